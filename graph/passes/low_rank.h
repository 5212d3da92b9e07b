/* Low-rank branches next to matrix products (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR
 * 2022): y = x W becomes y = x W + ((alpha / rank) drop(x) A^T) B^T, with A [rank, in] and B [out, rank] as the PEFT
 * library keeps them. B starts as zeros, so that nothing changes at first, and A uniform in +-1/sqrt(in), as that
 * library draws it, from a seed by name. */
#ifndef GRAPH_PASSES_LOW_RANK_H
#define GRAPH_PASSES_LOW_RANK_H

#include "graph/graph.h"

/* A weight that gets a branch in every product that it is a factor of; all of them share A and B. */
typedef struct LowRankBranch {
    ValueId weight;     /* ROLE_PARAMETER */
    const char *module; /* A and B are called MODULE.lora_A.weight and MODULE.lora_B.weight */
    /* Filled by low_rank_insert; 0 before. */
    ValueId a, b;
} LowRankBranch;

typedef struct LowRank {
    int rank;
    double alpha, dropout; /* the share of x's elements that the branch does not see in training; 0: none */
    uint64_t seed;
    LowRankBranch *branches;
    size_t count;
} LowRank;

/* Adds the branches, of which every weight is in products and has no problem. Before layers are assigned, after
 * whatever looks for a model's own products. Nodes are renumbered. */
bool low_rank_insert(Graph *graph, LowRank *low_rank, Diagnostics *diagnostics);

#endif
