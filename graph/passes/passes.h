/* The way from the graph of a model to the training graph: a list of passes, run in its order.
 *
 * After every pass, what it left constant is folded, and graph_verify runs. A pass that the options do not ask for
 * leaves the graph as it is. */
#ifndef GRAPH_PASSES_PASSES_H
#define GRAPH_PASSES_PASSES_H

#include "graph/graph.h"
#include "graph/ops/autodiff.h"
#include "graph/passes/fold.h"

/* A weight that gets a branch in every product that it is a factor of; all of them share A and B. */
typedef struct LowRankBranch {
    ValueId weight;     /* ROLE_PARAMETER */
    const char *module; /* A and B are called MODULE.lora_A.weight and MODULE.lora_B.weight */
    /* Filled by the pass; 0 before. */
    ValueId a, b;
} LowRankBranch;

typedef struct LowRank {
    int rank;
    double alpha, dropout; /* the share of x's elements that the branch does not see in training; 0: none */
    uint64_t seed;
    LowRankBranch *branches;
    size_t count;
} LowRank;

/* How a product with a vocabulary and its cross-entropy are computed (slice_loss.c). */
typedef enum LogitsForm { LOGITS_WHOLE, LOGITS_AUTO, LOGITS_SLICED } LogitsForm;

typedef struct PassOptions {
    bool want_loss;     /* attach the loss */
    const char *loss;   /* loss.h: its specification; NULL: the default */
    double dropout;     /* the share of elements to drop where BERT does; 0: none */
    LowRank *low_rank;  /* branches next to products with these weights, which it fills in; NULL: none */
    SkyPacking packing; /* rows share lines (pack_rows.h); slots 0: they do not */
    LogitsForm logits;
    DType frozen_weights;           /* how frozen matrices are stored (store_frozen.c); DTYPE_NONE: as they are */
    bool no_pruning;                /* compute every token, also where only one is read */
    bool differentiate;             /* gradients of all parameters; needs the loss */
    bool recompute_layers;          /* backward makes again what layers make for themselves (recompute.c) */
    bool bf16, bf16_cuts;           /* what waits for backward, or crosses a cut, is stored as bf16 (store_bf16.c) */
    const OptimizerSpec *optimizer; /* its updates; needs the gradients. NULL: none */
} PassOptions;

typedef bool PassRule(Graph *graph, const PassOptions *options, Diagnostics *diagnostics);

typedef struct Pass {
    const char *name;
    PassRule *run; /* false after reporting; NULL: nothing but what follows every pass */
} Pass;

extern const Pass passes[]; /* the last one has no name */

/* The rows of the list, each in the file of its name or in that of its object (attach_loss: loss.c). */
PassRule attach_loss, fuse_composites, insert_dropout, insert_low_rank, prune_unread, pack_rows, slice_loss,
    skip_masked, store_frozen, assign_layers, round_cuts, recompute_attention, recompute_maps, store_bf16,
    recompute_layers, append_updates;

/* NULL after reporting the names that there are (EXIT_USAGE). */
const Pass *pass_find(const char *name, Diagnostics *diagnostics);
/* Runs one pass and what follows every pass; false after reporting. `folding` goes on from where it is. */
bool pass_run(const Pass *pass, Graph *graph, const PassOptions *options, Folding *folding, Diagnostics *diagnostics);
/* Runs the list, up to the pass `last` (it included) or, where that is NULL, all of it; false after reporting. */
bool passes_run(Graph *graph, const PassOptions *options, const char *last, Folding *folding, Diagnostics *diagnostics);

#endif
