/* What a compiled program consists of: the contract between codegen, which emits it as constant data with the kernels,
 * and the runtime, which interprets it. `skycc run` builds it in memory.
 *
 * A rank is one process on one device and owns one or more stages. Every buffer lies in one of a few spaces, each one
 * allocation made at start-up; calls name buffers by space and offset. Nothing here changes at run time.
 *
 * codegen/link/program_object.c lists the fields of every structure here, and does not compile while one is missing. */
#ifndef RUNTIME_PROGRAM_PROGRAM_H
#define RUNTIME_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/program/norm_round.h"
#include "runtime/program/packing.h"
#include "runtime/program/step_scalars.h"

/* An environment variable: the recipe and weights that programs of a site of a federation must have (SkyProgram), with
 * a blank between. */
#define SKY_RECIPE_VARIABLE "SKYCC_RECIPE"

enum { SKY_PROGRAM_VERSION = 25, SKY_MAX_RANK = 8 };

typedef enum SkySpace {
    SKY_SPACE_CONSTANT, /* SkyStage.constants: read-only */
    SKY_SPACE_STATE,    /* parameters, accumulated gradients, optimiser state: lives through the run */
    SKY_SPACE_SLOT,     /* one copy per micro-batch in flight: inputs, boundary tensors, stash, loss */
    SKY_SPACE_SCRATCH,  /* dead after each forward, backward or update */
    SKY_SPACE_STEP,     /* float32 [SKY_STEP_SCALARS], set by the runtime before every step */
    SKY_SPACE_BLOCK,    /* what the calls of a group hand on: one block's, for every thread */
    SKY_SPACE_COUNT
} SkySpace;

typedef struct SkyLocation {
    uint32_t space;
    uint32_t block_bytes; /* in SKY_SPACE_BLOCK: from one block to the next as the kernel counts, which are all kept in
                             the same place, one after another; else 0 */
    uint64_t offset;      /* bytes */
    uint64_t line_bytes;  /* of calls that run line by line: from one line to the next */
} SkyLocation;

/* Work units [begin, end) of a kernel; operand pointers are resolved by the caller. `scratch` is private to the thread
 * and has SkyStage.thread_scratch_bytes, aligned to 64. Of the axis along which units are numbered first, what lies
 * from `limit` on need not be computed; each unit has something before it. A kernel whose sum is limited
 * (kernel_limit_sum) sums its first `limit` products instead, at least one. SKY_NO_LIMIT: all must be. */
typedef void SkyKernel(void *const *operand, int64_t begin, int64_t end, void *scratch, int64_t limit);
#define SKY_NO_LIMIT INT64_MAX

/* Calls in a row may be a group: each has the same number of blocks, whose work units follow each other, and block b of
 * a call depends on block b of the others only. A thread takes a block through all calls.
 *
 * Calls and groups in a row that do not depend on each other are a wave: threads share its work and meet after it.
 *
 * Of a micro-batch with fewer lines than packing.lines (packing.h) a call skips the absent ones if it can: it works
 * line by line, its units (blocks, of a group) are in the order of the lines, or it sums over them in their order. Of
 * the last line that there is, it skips the tokens after the last one that a row has, if it goes in the order of the
 * tokens too. What others read of these becomes 0 after its wave. */
typedef struct SkyCall {
    SkyKernel *kernel;
    const SkyLocation *operands;
    const SkyLocation *tails; /* values whose absent tokens become 0; line_bytes: what a line has of them */
    uint32_t operand_count;
    uint32_t reserved;
    uint32_t layer;        /* for traces */
    uint32_t group_count;  /* of the first call of a group: how many calls it has. 0: no group, or not the first */
    uint32_t block_count;  /* of every call of a group: divides its units. Else 0 */
    uint32_t wave_count;   /* of the first call of a wave: how many calls it has; else 0 */
    uint32_t line_loops;   /* how often it runs, once for every line, operands moved on; 0: once for all lines */
    uint32_t line_axis;    /* 1 + the axis of the kernel along which lines stand; 0: it does not know them */
    uint32_t line_extent;  /* how far a line reaches along it */
    uint32_t token_extent; /* and a token; 0: it computes all tokens of a line */
    uint32_t tail_count;
    uint32_t line_blocks;    /* of every call of a group: blocks of a line; 0: all blocks have to run */
    uint32_t unit_extent;    /* how far a unit reaches along that axis; 0: all units have to run */
    uint32_t unit_count;     /* units that reach as far */
    uint32_t sum_extent;     /* of a kernel that sums along that axis to its limit: how far it goes for all lines */
    uint32_t device_kernel;  /* 1 + the number of its kernel in SkyProgram.device_kernels; 0: `kernel` has the code */
    int64_t units;           /* independent pieces of work, in any order, on any thread */
    int64_t nanoseconds;     /* what all of it takes on one thread, roughly: shares are cut by it */
    const char *name;        /* of the ONNX node and the kernel, for traces */
    const void *interpreted; /* NULL in emitted programs: the Kernel, interpreted where there is no code for it */
} SkyCall;

/* What there is of a micro-batch: packed lines, and their tokens up to the last one that a row has in the last line.
 * Where rows are not packed, it has one line of one token. */
typedef struct SkyPresent {
    uint32_t lines, tokens;
} SkyPresent;

/* How far the call, which is in no group, has to go along the axis along which lines stand. */
static inline int64_t sky_work_reach(const SkyCall *call, SkyPresent present)
{
    return call->token_extent ? (int64_t)present.tokens * call->token_extent
                              : (int64_t)present.lines * call->line_extent;
}

/* How many of its units, or of its group's blocks, a call has then. */
static inline int64_t sky_work_pieces(const SkyCall *call, SkyPresent present)
{
    int64_t all = call->group_count ? call->block_count : call->units;
    if (call->group_count ? !call->line_blocks : !call->unit_extent) return all;
    int64_t pieces = (int64_t)present.lines * call->line_blocks;
    if (!call->group_count)
        pieces = (sky_work_reach(call, present) + call->unit_extent - 1) / call->unit_extent * call->unit_count;
    return pieces < all ? pieces : all;
}

/* Where the kernel of a call, which is in no group, may stop then. */
static inline int64_t sky_work_limit(const SkyCall *call, SkyPresent present)
{
    return call->unit_extent || call->sum_extent ? sky_work_reach(call, present) : SKY_NO_LIMIT;
}

/* How often its kernel runs for all lines of a micro-batch. */
static inline int sky_call_runs(const SkyCall *call) { return call->line_loops ? (int)call->line_loops : 1; }

/* How many calls the work has that begins with this one: its group's, or it alone. */
static inline uint32_t sky_group_size(const SkyCall *call) { return call->group_count ? call->group_count : 1; }
/* How many its wave has that begins with this one. */
static inline uint32_t sky_wave_size(const SkyCall *call)
{
    return call->wave_count ? call->wave_count : sky_group_size(call);
}

/* A kernel of a device that is reached by OpenCL: a function of SkyProgram.opencl_source, whose parameters
 * codegen/opencl/opencl_source.h describes. */
typedef struct SkyDeviceKernel {
    const char *name;
    uint32_t operand_count;
    uint32_t tile[2]; /* rows and columns of a product's unit, which a work group computes; 1, 1: one computes a row;
                         0, 0: a unit is a work item */
    uint32_t reserved;
    uint64_t begin, bytes; /* where its text is in the source */
    const char *label;     /* what it is for people */
} SkyDeviceKernel;

/* What a stage does. */
typedef enum SkyListKind {
    SKY_LIST_FORWARD,
    SKY_LIST_BACKWARD,
    SKY_LIST_WEIGHT_GRADIENT, /* the half of a split backward that nobody waits for; else empty */
    SKY_LIST_UPDATE,
    /* Before UPDATE, and for checks: */
    SKY_LIST_SQUARES, /* per trained parameter: sums of the squares of operand 0 go to operand 1, in parts that depend
                         on the shape alone. Operands: the gradient, float64 [SkyParameter.square_parts], the value, the
                         optimiser's states. The runtime puts the one it asks about in place 0 */
    SKY_LIST_COUNT
} SkyListKind;

typedef struct SkyCallList {
    const SkyCall *calls;
    uint32_t count;
    uint32_t reserved;
} SkyCallList;

typedef struct SkyTensor {
    const char *name;
    uint32_t dtype; /* DType of base/dtype.h */
    uint32_t rank;
    int64_t dim[SKY_MAX_RANK];
    uint64_t bytes;
    int64_t value_limit; /* integer graph inputs that index a table: values must be in 0 ... value_limit - 1; 0: any */
    uint32_t fill;       /* of graph inputs: SkyFill of packing.h */
    uint32_t by_lines;   /* the first lines of a micro-batch have the first of its bytes */
    SkyLocation location;
} SkyTensor;

/* What one layer adds to the gradient of a parameter that several layers share. */
typedef struct SkyUse {
    uint32_t number; /* among the model's uses of this parameter, in the order of the layers */
    uint32_t reserved;
    SkyLocation gradient;
} SkyUse;

/* Another name under which checkpoints have a parameter's value. */
typedef struct SkyTiedName {
    const char *name;
    uint32_t transposed; /* a matrix: there it stands with its dimensions exchanged */
    uint32_t reserved;
} SkyTiedName;

typedef struct SkyParameter {
    SkyTensor value;
    SkyLocation gradient; /* float32, like the value. Of a shared parameter where the sum is to go before UPDATE */
    const SkyUse *uses;   /* of a parameter that several layers of the model share: by this stage, ascending */
    const SkyTiedName *tied_names;
    uint32_t use_count; /* 0 where one layer alone uses it */
    uint32_t tied_name_count;
    uint32_t state_count;   /* 0 SGD, 1 momentum, 2 Adam */
    uint32_t update;        /* number of its call in the stage's SKY_LIST_UPDATE */
    uint32_t update_stride; /* if there are several: from one to the next; else 0 */
    uint32_t squares;       /* number of its call in SKY_LIST_SQUARES */
    uint32_t square_parts;
    uint32_t reads; /* rows that a micro-batch reads of it at most, where one lookup along its first axis alone reads
                       it: replicas sum only rows that occur. 0: it is used otherwise */
    SkyLocation states[2];       /* adam.m, adam.v, or momentum */
    uint32_t frozen;             /* keeps its value: it has no gradient, no states, no uses and no update */
    uint32_t block;              /* 0 before the model's first block, 1 in it ... block_count + 1 after the last */
    uint32_t decay_exempt_class; /* 0 weight, 1 bias, 2 normalisation gain or bias: what --no-decay may name */
    uint32_t global_index;       /* position among all parameters of the model: the order of global reductions */
    const char *alias;        /* what its place in the model is called, where that says more than the name; or NULL */
    const char *initial_file; /* where the initial value is, relative to the program's directory; may be NULL */
    uint64_t initial_offset;  /* bytes into that file */
    uint64_t initial_check; /* the low word of hash_bytes of the value's bytes there: the file must not have changed */
    float initial_mean, initial_deviation; /* without a file: normal, drawn from SkyProgram.seed by name (parameter_draw
                                              of runtime/storage/parameters.h); deviation 0: all equal the mean */
} SkyParameter;

typedef struct SkyStage {
    uint32_t index; /* among all stages of the pipeline */
    uint32_t first_layer, last_layer;
    uint32_t slot_count; /* micro-batches in flight at most */
    SkyCallList lists[SKY_LIST_COUNT];
    uint32_t input_count, parameter_count, output_count;
    uint32_t has_loss;
    const SkyTensor *inputs;  /* graph inputs this stage reads, labels included; in the slot */
    const SkyTensor *outputs; /* graph outputs this stage computes; in the slot */
    const SkyParameter *parameters;
    /* Boundary tensors, in an order both neighbours agree on; in the slot. Received into and sent from in place. */
    const SkyTensor *receive_forward, *send_forward, *receive_backward, *send_backward;
    uint32_t receive_forward_count, send_forward_count, receive_backward_count, send_backward_count;
    SkyLocation loss;                      /* float32: the micro-batch's share; in the slot */
    uint64_t space_bytes[SKY_SPACE_COUNT]; /* slot: of one slot; block: of one thread */
    uint64_t thread_scratch_bytes;
    double planned_s[SKY_LIST_COUNT]; /* of each list in an average step; 0: no plan says */
    const void *constants;
} SkyStage;

/* All calls of a stage, list after list: how many there are, and the one of that number. */
static inline uint32_t sky_call_count(const SkyStage *stage)
{
    uint32_t count = 0;
    for (int list = 0; list < SKY_LIST_COUNT; list++) count += stage->lists[list].count;
    return count;
}

static inline const SkyCall *sky_call(const SkyStage *stage, uint32_t number)
{
    int list = 0;
    while (number >= stage->lists[list].count) number -= stage->lists[list++].count;
    return &stage->lists[list].calls[number];
}

/* Lifetimes in a slot, which the layout must respect:
 *
 * - receive_forward and inputs may be written as soon as the slot is free and its sends are complete;
 *
 * - receive_backward may be written from the end of FORWARD on, and stays until the slot is free;
 *
 * - send_forward and graph outputs stay until BACKWARD starts, send_backward and the loss until the slot is reused.
 *
 * Between stages of one rank the runtime copies send_forward[i] to receive_forward[i], and so on. UPDATE leaves
 * gradients zero, as they are at the start. */
typedef enum SkyInstructionOp {
    SKY_RECEIVE_FORWARD, /* post or complete the activations of (stage, micro-batch) */
    SKY_FORWARD,
    SKY_SEND_FORWARD,
    SKY_RECEIVE_BACKWARD,
    SKY_BACKWARD,
    SKY_SEND_BACKWARD,
    SKY_WEIGHT_GRADIENT, /* of stages whose backward is split: the other half; the slot is in use until then */
    SKY_UPDATE,          /* all parameters of the stage */
    SKY_REDUCE,          /* gradients of shared parameters are summed over all uses */
    SKY_OP_COUNT
} SkyInstructionOp;

typedef struct SkyInstruction {
    uint32_t op;
    uint32_t stage; /* index of the stage among all stages */
    uint32_t microbatch;
    uint32_t slot;
} SkyInstruction;

/* Between a stage and the next, for one micro-batch: [0] forward, [1] backward. Zeros between stages of one rank. */
typedef struct SkyLink {
    double latency_s[2];
    double transfer_s[2]; /* how long it occupies the link */
} SkyLink;

/* An input that losses compare with, and what its elements weigh where losses are averaged. One input may stand here
 * several times: with the same kind and ignore_index, but other weights, say. */
typedef struct SkyLabels {
    const char *name;
    int64_t ignore_index; /* elements with this value weigh nothing; no matter where they are SKY_LABELS_NUMBERS */
    int64_t classes;      /* SKY_LABELS_CLASSES must be in 0 ... classes - 1, or ignore_index; 0: unchecked */
    const float *weights; /* per class; NULL: each label weighs 1 */
    uint32_t weight_count;
    uint32_t kind;    /* SkyLabelKind */
    uint32_t shifted; /* [rows, positions, ...]: position 0 weighs nothing, for no earlier one predicts it */
    uint32_t reserved;
} SkyLabels;

typedef struct SkyProgram {
    uint32_t version; /* SKY_PROGRAM_VERSION */
    uint32_t rank, rank_count;
    uint32_t stage_count;       /* of this rank */
    uint32_t total_stage_count; /* of the pipeline, or of all that share a step */
    uint32_t instruction_count; /* one training step */
    uint32_t microbatch_count;  /* per step; where rows share lines, the most there may be */
    uint32_t microbatch_size;   /* rows; or lines */
    uint32_t sequence_length;
    uint32_t threads;        /* of the device; 0: as many as cores are available */
    uint32_t uses_tiles;     /* kernels use AMX tiles (runtime/program/tiles.h) */
    uint32_t loss_is_summed; /* all of it is scaled by 1 / weight of the labels, nothing by 1 / micro-batches */
    uint32_t total_parameter_count;
    uint32_t
        label_count; /* label inputs, at most SKY_MOST_LABELS; 0 if the model computes its own loss from its inputs */
    uint32_t block_count;   /* of the model; 0: names do not say */
    uint32_t site;          /* of this rank, as site_names counts; 0 where there are no sites */
    uint32_t site_count;    /* sites that have a rank, if they are several; else 0: MPI reaches all ranks */
    uint16_t lines_vary;    /* micro-batches may have fewer lines than packing.lines */
    uint16_t tokens_vary;   /* and calls may leave out tokens of the last line: all stages bear what that makes 0 */
    uint32_t whole_batches; /* no row of a batch may lack: the loss would not know that it does */
    uint32_t replica_count; /* pipelines that share a step, if they are several; else 0 */
    uint32_t sum_codec;     /* Codec of base/codec.h, of the gradients that replicas sum */
    uint32_t summed_layers; /* entries of sum_places */
    uint32_t dealt_count;   /* micro-batches of a step that this rank's replica has, if they are several */
    uint32_t device_kernel_count;
    uint32_t device_blocks;      /* of an OpenCL device: blocks of a group that it computes at once */
    SkyPacking packing;          /* slots 0: every row has a line of its own */
    double clip;                 /* largest norm of the whole gradient, unless --clip says otherwise; 0: no clipping */
    uint64_t seed;               /* of initial values that are drawn */
    uint64_t spare_bytes;        /* of the device's memory that the plan leaves: for copies of what checkpoints save */
    double planned_microbatches; /* of an average step, as predicted_step_s */
    double slowdown;             /* emulated with --emulate: every piece of work takes this many times as long */
    const SkyStage *stages;
    const SkyInstruction *instructions;
    const uint32_t *stage_rank; /* per stage of the pipeline: the rank that owns it */
    const SkyLink
        *links; /* per stage of the pipeline, to the next one; emulated with --emulate where all ranks share a host */
    const SkyNormRound *norm; /* one element; emulated likewise. NULL: compiled with --clip 0, or there is one rank */
    const uint32_t *rank_replicas; /* per rank: its replica; NULL where there is one */
    const uint32_t *dealt;         /* per micro-batch of this rank's instructions: which of the step's it is; or NULL */
    const uint32_t *sum_places;    /* per layer of the model: its place in the order in which replicas sum gradients;
                                      NULL: the last layer first */
    double sum_s, sum_latency_s;   /* of this rank: how long summing a byte of gradients over replicas occupies its
                                    links, and how much later the last message is there; emulated as links are */
    const SkyLabels *labels;
    const char *const *site_names; /* per site; in the order of the cluster file */
    const uint32_t *rank_sites;    /* per rank: its site; NULL where site_count is 0 */
    const char *device_name;
    const char *opencl_source; /* of all kernels of this rank; NULL: its device is a CPU. Else which device it is: */
    const char *opencl_platform, *opencl_device; /* a pattern for the platform's name; one for the device's, or a
                                                    number */
    const SkyDeviceKernel *device_kernels;
    const char *low_rank;               /* --lora, as it was given; "": without */
    const char *model_hash, *plan_hash; /* all ranks must carry the same; so, too: */
    const char *recipe_hash;            /* of what is computed: the training graph, the optimiser, the clipping */
    const char *weights_hash;           /* of the initial values of all parameters of the model */
    const char *settings; /* lines "--dropout 0.1": to name what made these hashes differ between two ranks */
    const char
        *label_names; /* of the model, as a JSON list: data sets are brought into this numbering. NULL or "" and: */
    const char *tokenizers;         /* hashes of the model's, with spaces between: not known */
    const double *predicted_step_s; /* one element: the plan's step time */
    SkyOptimizer optimizer;
} SkyProgram;

/* Which replica a rank belongs to. */
static inline uint32_t sky_replica(const SkyProgram *program, int rank)
{
    return program->rank_replicas ? program->rank_replicas[rank] : 0;
}

/* How many micro-batches of a step the instructions are about, and the number in the step of one of them. */
static inline uint32_t sky_own_microbatches(const SkyProgram *program)
{
    return program->dealt ? program->dealt_count : program->microbatch_count;
}

static inline uint32_t sky_microbatch(const SkyProgram *program, uint32_t own)
{
    return program->dealt ? program->dealt[own] : own;
}

/* Rows of a step. */
static inline int64_t sky_batch_rows(const SkyProgram *program)
{
    return program->packing.slots ? program->packing.rows
                                  : (int64_t)program->microbatch_count * program->microbatch_size;
}

/* Goes through the parameters of all stages of this rank: for (SkyHeld held = {0}; sky_next_parameter(program, &held);)
 */
typedef struct SkyHeld {
    const SkyParameter *parameter;
    uint32_t stage, next; /* the stage's number on this rank; the next of its parameters */
} SkyHeld;

static inline bool sky_next_parameter(const SkyProgram *program, SkyHeld *held)
{
    for (; held->stage < program->stage_count; held->stage++, held->next = 0) {
        if (held->next == program->stages[held->stage].parameter_count) continue;
        held->parameter = &program->stages[held->stage].parameters[held->next++];
        return true;
    }
    return false;
}

/* The emitted object defines this. */
extern const SkyProgram sky_program;

#endif
