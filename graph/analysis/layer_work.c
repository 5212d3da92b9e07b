#include "graph/analysis/layer_work.h"

#include <stdlib.h>

#include "graph/ops/cross_entropy.h"

/* Multiplications of the layer's matrix products, forward. */
static double *count_work(const Graph *graph)
{
    double *work = memory_allocate((size_t)graph->layer_count * sizeof *work);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (!operator_has(node->op, IS_PRODUCT) || node->phase != PHASE_FORWARD || node->layer == LAYER_NONE) continue;
        const Shape *factor = &graph_value(graph, node->inputs[0])->shape;
        int64_t classes = cross_entropy_classes(graph, node), columns = factor->dim[factor->rank - 1];
        int64_t results =
            classes ? factor->dim[0] * classes : shape_elements(&graph_value(graph, node->outputs[0])->shape);
        work[node->layer] += (double)results * (double)columns;
    }
    return work;
}

void layers_warn_of_large(const Graph *graph, Diagnostics *diagnostics)
{
    double *work = count_work(graph), total = 0;
    int largest = 0;
    for (int l = 0; l < graph->layer_count; l++) {
        total += work[l];
        if (work[l] > work[largest]) largest = l;
    }
    if (total > 0 && work[largest] > total / 3)
        diagnostics_warning(diagnostics, PLACE_FILE(graph->file),
                            "layers are cut where one tensor crosses, perhaps with a few that all blocks read",
                            "layer %d, '%s', does %.0f%% of the model's work, and no plan can divide it", largest,
                            graph->layer_names[largest], 100 * work[largest] / total);
    free(work);
}
