/* Internal to stages: what the parts of stage_build share while one stage is made. In order: nodes and boundaries
 * (stage_nodes.c), lowering and fusion (stage.c), sums in parts (stage_sums.c), groups (stage_groups.c),
 * waves (stage_waves.c), places (stage_places.c), tables (stage_tables.c). */
#ifndef CODEGEN_STAGE_STAGE_BUILDER_H
#define CODEGEN_STAGE_STAGE_BUILDER_H

#include "codegen/stage/stage_code.h"
#include "codegen/stage/stage_index.h"
#include "graph/ops/lower.h"

/* Sizes at which a stage is laid out or its calls are cut otherwise. */
enum {
    STAGE_GROUP_CALLS = 16, /* at most: more than attention has in any form, and what a thread hands on stays near */
    STAGE_PART_ROWS = 32,   /* at least, of a sum in parts: shorter parts cost more to add up than they share out */
    STAGE_LARGE_STATE = 512 << 10,     /* bytes: values of the state that must not stand a multiple of this apart ... */
    STAGE_STATE_GAP = (36 << 10) + 256 /* ... so this many are left free after each (stage_places.c) */
};

typedef struct NodeList {
    NodeId *nodes;
    size_t count, capacity;
} NodeList;

typedef struct ValueList {
    ValueId *values;
    size_t count, capacity;
} ValueList;

void value_list_add(ValueList *list, ValueId value);

typedef struct KernelEntry {
    Hash hash;
    const Kernel *kernel;
} KernelEntry;

typedef struct LoweredGroup {
    uint32_t group;  /* 1 + its first call */
    uint32_t blocks; /* how many it runs in */
} LoweredGroup;

typedef struct StageBuilder {
    StageCode *code;
    const StageIndex *index;
    Graph *graph;
    int first_layer, last_layer;
    StageForm form;
    Lowering lowering;
    NodeList nodes[SKY_LIST_COUNT]; /* none of weight_gradient: its calls are taken from backward's */
    ValueList receive_forward, send_forward, receive_backward, send_backward, outputs;
    ValueList parameters; /* all that the stage's nodes read */
    ValueId *holder;  /* per value of a parameter here: the first in the stage that uses the same; shares its place */
    uint32_t *update; /* per value of a parameter here: 1 + the position of its update among the stage's; 0: none */
    size_t end[SKY_LIST_COUNT]; /* of each list in lowering.calls, where the next begins */
    bool *kept;                 /* per value: outlives the list that writes it */
    bool *recomputed;           /* per forward call: backward runs it again; NULL: none */
    bool cuts_tokens;           /* calls leave out the tokens after a line's last row, where they can */
    bool *needs_tail;           /* per value: its tokens that are left out are read; NULL: none's are */
    SkyLocation *location;      /* per value, where placed */
    bool *placed;
    LoweredGroup *groups;  /* per call: where it belongs; group 0: nowhere */
    size_t *wave;          /* per call: 1 + the first call of its wave */
    uint64_t *block_bytes; /* per value: of one block, where only calls of one group touch it; else 0 */
    KernelEntry *kernels;  /* those the call tables point to */
    size_t kernel_count, kernel_capacity;
    Buffer constants;
    uint64_t state_bytes, slot_bytes;
    uint64_t stash_bytes; /* the stash where it is recomputed: the beginning of the scratch of forward and backward */
} StageBuilder;

static inline size_t stage_list_begin(const StageBuilder *builder, SkyListKind list)
{
    return list == SKY_LIST_FORWARD ? 0 : builder->end[list - 1];
}

/* ---- stage_nodes.c ---- */
void stage_collect_nodes(StageBuilder *builder);
void stage_collect_boundaries(StageBuilder *builder);
/* Parameters that the stage's nodes read, in the order of the model. Of uses of one parameter the first is updated. */
void stage_collect_parameters(StageBuilder *builder);
/* The name of a call, to be shown. */
const char *stage_call_name(const StageBuilder *builder, const LoweredCall *call);
bool stage_has_loss(const StageBuilder *builder);
/* The node that updates the parameter and, unless NULL, its position among the stage's updates; NULL: none does. */
const Node *stage_update_of(const StageBuilder *builder, ValueId parameter, uint32_t *index);
/* Of an update's inputs the first that is optimiser state; before it stand value, gradient and scalars. */
enum { UPDATE_FIRST_STATE = 3 };

/* ---- stage_places.c ---- */
uint64_t stage_value_bytes(const Graph *graph, ValueId id);
/* Whether the value lasts from step to step: a parameter, its gradient, or the optimiser's. */
bool stage_lives_in_state(const Value *value);
void stage_place_parameters(StageBuilder *builder);
/* Everything else that outlives a list of calls. */
void stage_place_lasting(StageBuilder *builder);
/* Temporaries of the calls first ... end - 1 that live in `space`, packed by lifetime from `base` on. Returns where
 * they end. Those in SKY_SPACE_BLOCK come before the others. */
uint64_t stage_place_temporaries(StageBuilder *builder, size_t first, size_t end, SkySpace space, uint64_t base);

/* ---- stage_sums.c ---- */
/* Has long sums into few numbers computed in parts. Drops dead calls. */
void stage_cut_sums(StageBuilder *builder);

/* ---- stage_groups.c ---- */
/* Joins runs of the calls first ... end - 1 of one list into groups (runtime/program/program.h): kernels between matrix
 * products, of which each has as many independent blocks. What only they touch needs room for one block a thread.
 * Returns whether there are any groups. */
bool stage_group_calls(StageBuilder *builder, size_t first, size_t end);

/* ---- stage_waves.c ---- */
/* What the calls of a wave touch. */
typedef struct ValueTurns {
    size_t read, written; /* the last turn in which the value was */
} ValueTurns;

typedef struct Touched {
    ValueArrays *arrays;
    ValueTurns *turns; /* per value */
    size_t turn;
} Touched;

Touched stage_touched_create(const StageBuilder *builder);
void stage_touched_clear(Touched *touched); /* nothing is touched any more */
void stage_touched_free(Touched *touched);
/* Whether the call must come after what has touched: it reads what that writes, or writes what that reads or writes. */
bool stage_waits(const StageBuilder *builder, const LoweredCall *call, const Touched *touched);
void stage_touch(const StageBuilder *builder, const LoweredCall *call, Touched *touched);

/* Joins runs of the calls first ... end - 1 of one list, groups whole, into waves (runtime/program/program.h). Of
 * several layers only if `across_layers`: what calls of a wave need lives as long as the whole wave. */
void stage_find_waves(StageBuilder *builder, size_t first, size_t end, bool across_layers);

/* ---- stage_lines.c ---- */
/* Has sums over lines that calls store added instead, to what a call before makes 0. */
void stage_add_sums(StageBuilder *builder);
/* Finds out whether all calls of the stage can do without some lines: fills lines_vary of builder->code, or
 * needs_lines. */
void stage_find_lines(StageBuilder *builder);

/* How a call does without the lines that a micro-batch lacks: the fields of SkyCall that are called so. */
typedef struct LineCut {
    uint32_t axis, extent, token_extent, blocks, loops, sum_extent;
    uint64_t line_bytes[KERNEL_MAX_OPERANDS];
} LineCut;

/* Finds it for a kernel in its canonical form, whose sum is limited if it is over lines and can be; which is cut to
 * one line if it has to run for each. `blocks`: of the call's group, or 0. False if the call has to have all lines; the
 * kernel may have been changed then. */
bool stage_cut_lines(const StageBuilder *builder, const LoweredCall *call, uint32_t blocks, Kernel *kernel,
                     LineCut *cut);

/* ---- stage_tokens.c ---- */
/* Finds out whether calls can leave out tokens, and which values others read whole all the same. */
void stage_find_tails(StageBuilder *builder);

/* ---- stage_tables.c ---- */
/* Fills builder->code from all of the above. */
void stage_make_tables(StageBuilder *builder);
/* A kernel as tables have it: canonical, equal ones once. */
const Kernel *stage_intern_kernel(StageBuilder *builder, Kernel *kernel);

/* ---- stage_gradients.c ---- */
/* Adds SKY_LIST_SQUARES to the tables, and what parameters say of them. */
void stage_list_gradient_calls(StageBuilder *builder);

#endif
