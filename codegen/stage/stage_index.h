/* What stages need to know of their graph, found once for all of them: looked for in every stage anew, it would take
 * time quadratic in the layers. */
#ifndef CODEGEN_STAGE_STAGE_INDEX_H
#define CODEGEN_STAGE_STAGE_INDEX_H

#include "codegen/stage/value_arrays.h"
#include "graph/kernel/kernel.h"

/* Which parameter of the model a value is, and which of its uses. */
typedef struct ParameterNumber {
    uint32_t index, use, uses;
} ParameterNumber;

/* The values that cross each cut in one direction, ascending. Cut c is before layer c; nothing crosses the first and
 * the last. */
typedef struct Crossings {
    ValueId *values;
    size_t *first; /* [cut]: where its values begin; [layer_count + 1]: where the last one's end */
} Crossings;

typedef struct StageIndex {
    Graph *graph;
    Arena arena;
    NodeId *nodes;               /* of each layer, ascending */
    size_t *first_node;          /* [layer]: where its nodes begin; [layer_count]: where they end */
    Crossings forward, backward; /* made before and read after the cut; made after and read before it */
    uint32_t *blocks;            /* [value]: of a parameter, SkyParameter.block */
    unsigned char *exempt;       /* [value]: of a parameter, SkyParameter.decay_exempt_class */
    ParameterNumber *numbers;    /* [value] */
    int64_t *index_limit;        /* [graph input]: the least extent of a table that it indexes; 0 if it indexes none */
    ProductPrecision precision;
    ValueArrays *arrays; /* of the stage that is being made */
} StageIndex;

/* The graph must not change while the index is in use. */
StageIndex *stage_index_create(Graph *graph, ProductPrecision precision);
void stage_index_free(StageIndex *index);

#endif
