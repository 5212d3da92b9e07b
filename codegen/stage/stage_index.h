/* What stages need to know of their graph, found once for all of them: looked for in every stage anew, it would take
 * time quadratic in the layers. */
#ifndef CODEGEN_STAGE_STAGE_INDEX_H
#define CODEGEN_STAGE_STAGE_INDEX_H

#include "graph/graph.h"
#include "graph/kernel/kernel.h"

/* Which parameter of the model a value is, and which of its uses. */
typedef struct ParameterNumber {
    uint32_t index, use, uses;
} ParameterNumber;

/* The values that one layer makes and a later one (forward; backward: an earlier one) reads, ascending. */
typedef struct Crossings {
    ValueId *values;
    size_t count, capacity;
} Crossings;

typedef struct StageIndex {
    Graph *graph;
    Arena arena;
    NodeId *nodes;      /* of each layer, ascending */
    size_t *first_node; /* [layer]: where its nodes begin; [layer_count]: where they end */
    NodeId *layerless;  /* those of no layer, ascending */
    size_t layerless_count;
    Crossings forward, backward;
    int *reach;               /* [value]: see values_reach of graph/analysis/cuts.h */
    uint32_t *blocks;         /* [value]: of a parameter, SkyParameter.block */
    unsigned char *exempt;    /* [value]: of a parameter, SkyParameter.decay_exempt_class */
    ParameterNumber *numbers; /* [value] */
    int64_t *index_limit;     /* [graph input]: the least extent of a table that it indexes; 0 if it indexes none */
    ProductPrecision precision;
} StageIndex;

/* The graph must not change while the index is in use. */
StageIndex *stage_index_create(Graph *graph, ProductPrecision precision);
void stage_index_free(StageIndex *index);

#endif
