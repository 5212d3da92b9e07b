/* --lora: what it says, and which weights of a model it means. */
#ifndef DRIVER_COMPILE_LOW_RANK_TARGETS_H
#define DRIVER_COMPILE_LOW_RANK_TARGETS_H

#include "frontend/onnx/import.h"
#include "graph/analysis/parameters.h"
#include "graph/passes/low_rank.h"

typedef struct LowRankSpec {
    int rank; /* 0: no branches are wanted */
    double alpha, dropout;
    const char **targets;
    size_t target_count;
    const char *text; /* all of it, in one form for one meaning, by which runs are resumed */
} LowRankSpec;

/* Reads "r=8,alpha=16,targets=query,value,dropout=0.05" (alpha: as r, dropout: 0); an item without '=' continues the
 * list before it. The strings are in the arena. Reports what is malformed (EXIT_USAGE). */
bool low_rank_parse(LowRankSpec *spec, const char *text, Arena *arena, Diagnostics *diagnostics);

/* Whether the target means a parameter of this name or alias (NULL: none): as a pattern where it has one of * ? [, else
 * as one or several of its components between dots. */
bool low_rank_target_matches(const char *target, const char *name, const char *alias);

/* Finds the weights that the targets mean, in the model's order; low_rank->branches is in the model's arena. Names that
 * are weights of no product are passed over, but every target must mean some that are: else EXIT_BAD_INPUT, with those
 * that there are. Warns of weights that can have no branch. */
bool low_rank_choose(LowRank *low_rank, const LowRankSpec *spec, uint64_t seed, const Graph *graph,
                     ImportedModel *model, Diagnostics *diagnostics);

/* Adds the parameters of the branches, once they are in the graph, to the model's list. */
void low_rank_list_parameters(const LowRank *low_rank, ImportedModel *model, const Graph *graph);

#endif
