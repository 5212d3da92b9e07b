#include "graph/analysis/line_values.h"

static bool same_nodes(const Graph *a, const Graph *b)
{
    if (a->node_count != b->node_count || a->value_count != b->value_count) return false;
    for (NodeId n = 1; n < a->node_count; n++) {
        const Node *x = graph_node(a, n), *y = graph_node(b, n);
        if (x->op != y->op || x->input_count != y->input_count || x->output_count != y->output_count) return false;
        for (int i = 0; i < x->input_count; i++)
            if (x->inputs[i] != y->inputs[i]) return false;
        for (int i = 0; i < x->output_count; i++)
            if (x->outputs[i] != y->outputs[i]) return false;
    }
    return true;
}

static LineGrowth compare(const Shape *a, int64_t a_lines, const Shape *b, int64_t b_lines)
{
    int first = 0;
    if (shape_equal(a, b)) return LINES_FIXED;
    if (a->rank != b->rank) return LINES_MIXED;
    while (first < a->rank - 1 && a->dim[first] == 1 && b->dim[first] == 1) first++;
    for (int i = first + 1; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return LINES_MIXED;
    bool whole = a->dim[first] % a_lines == 0 && b->dim[first] % b_lines == 0;
    return whole && a->dim[first] / a_lines == b->dim[first] / b_lines ? LINES_FIRST : LINES_MIXED;
}

void line_values_mark(Graph *graph, const Graph *other)
{
    if (!same_nodes(graph, other)) return;
    for (ValueId v = 1; v < graph->value_count; v++)
        graph_value(graph, v)->lines = compare(&graph_value(graph, v)->shape, graph->packing.lines,
                                               &graph_value(other, v)->shape, other->packing.lines);
    graph->lines_known = true;
}
