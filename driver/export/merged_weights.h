/* A model's weights with low-rank branches merged: W + alpha/rank (B A)^T, and frozen ones as they were stored in
 * training. A FindTrained (frontend/onnx/export.h) on top of another one. */
#ifndef DRIVER_EXPORT_MERGED_WEIGHTS_H
#define DRIVER_EXPORT_MERGED_WEIGHTS_H

#include "base/string_map.h"
#include "driver/compile/low_rank_targets.h"
#include "frontend/onnx/export.h"

typedef struct MergedBranch {
    LowRankBranch branch;
    ProductWeight weight;
    const float *a, *b; /* [rank, in], [out, rank] */
    float *merged;      /* the merged weight in the graph's layout; made on demand */
} MergedBranch;

typedef struct MergedWeights {
    Arena arena;
    Graph graph;
    ImportedModel model;
    LowRank low_rank;
    ProductWeight *weights; /* of every value of the graph */
    FindTrained *find;      /* where the trained values are */
    void *context;
    MergedBranch *branches; /* those that have trained values, in the model's order */
    size_t count;
    StringMap names; /* of the model's parameters: the parameter's number */
    size_t *places;  /* of such a parameter: its branch plus 1; 0: it has none */
    bool as_trained; /* frozen weights are those that training computed with (--frozen-weights), not the model's own */
} MergedWeights;

/* Imports the model and finds the branches of `spec` (NULL: there are none) among the values that `find` knows. Reports
 * a branch that is incomplete or has other shapes. Free it in any case. */
bool merged_weights_open(MergedWeights *merged, const char *path, const LowRankSpec *spec, FindTrained *find,
                         void *context, Diagnostics *diagnostics);
void merged_weights_free(MergedWeights *merged);

/* A FindTrained whose context is a MergedWeights: weights with merged branches, frozen ones `as_trained` or
 * the model's own, everything else unchanged. */
bool merged_weights_find(void *context, const char *name, TrainedTensor *tensor);

#endif
