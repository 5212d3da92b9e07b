/* --lora: its specification, and the weights that it means. */
#ifndef DRIVER_COMPILE_LOW_RANK_TARGETS_H
#define DRIVER_COMPILE_LOW_RANK_TARGETS_H

#include "frontend/onnx/import.h"
#include "graph/analysis/parameters.h"
#include "graph/passes/passes.h"

typedef struct LowRankSpec {
    int rank; /* 0: no branches are wanted */
    double alpha, dropout;
    const char **targets;
    size_t target_count;
    const char *text; /* the whole specification in one form, which runs compare when they resume */
} LowRankSpec;

/* Reads "r=8,alpha=16,targets=query,value,dropout=0.05" (alpha defaults to r, dropout to 0). An item without '='
 * continues the list before it. The strings are in the arena. Reports malformed text (EXIT_USAGE). */
bool low_rank_parse(LowRankSpec *spec, const char *text, Arena *arena, Diagnostics *diagnostics);

/* Finds the weights that the targets mean, in the model's order; low_rank->branches is in the model's arena. Targets
 * skip weights of no matrix product, but each must match one (else EXIT_BAD_INPUT, with a list). Warns of weights
 * that cannot have a branch. */
bool low_rank_choose(LowRank *low_rank, const LowRankSpec *spec, uint64_t seed, const Graph *graph,
                     ImportedModel *model, Diagnostics *diagnostics);

/* Adds the parameters of the branches, once they are in the graph, to the model's list. */
void low_rank_list_parameters(const LowRank *low_rank, ImportedModel *model, const Graph *graph);

#endif
