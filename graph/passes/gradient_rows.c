#include "graph/passes/gradient_rows.h"

#include <string.h>

#include "graph/ops/operator.h"
#include "graph/analysis/parameters.h"

static bool gathers_rows(const Graph *graph, const Node *node, ValueId table, int64_t rows)
{
    if (node->op != OP_Gather || node->phase != PHASE_FORWARD || parameter_behind(graph, node->inputs[0]) != table)
        return false;
    const Shape *shape = &graph_value(graph, node->inputs[0])->shape;
    int64_t axis = node_integer(node, "axis", 0);
    return normalize_axis(&axis, shape->rank) && shape->dim[axis] == rows;
}

static bool leave_out(Graph *graph, Node *node, int64_t row)
{
    const Attribute *known = node_attribute(node, "no_gradient");
    int count = known ? known->count : 0, others = 0;
    for (int i = 0; i < count; i++)
        if (known->integers[i] == row) return true;
    if (count == MOST_ROWS_LEFT_OUT) return false;
    int64_t *list = arena_new_array(&graph->arena, int64_t, (size_t)count + 1);
    if (known) memcpy(list, known->integers, (size_t)count * sizeof *list);
    list[count] = row;
    Attribute *attributes = arena_new_array(&graph->arena, Attribute, (size_t)node->attribute_count + 1);
    for (int i = 0; i < node->attribute_count; i++)
        if (&node->attributes[i] != known) attributes[others++] = node->attributes[i];
    attributes[others++] = attribute_integers("no_gradient", list, count + 1);
    node->attributes = attributes;
    node->attribute_count = others;
    return true;
}

int gradient_rows_leave_out(Graph *graph, ValueId table, int64_t rows, int64_t row)
{
    int count = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        Node *node = graph_node(graph, n);
        if (!gathers_rows(graph, node, table, rows)) continue;
        if (!leave_out(graph, node, row)) return -1;
        count++;
    }
    return count;
}

bool gradient_rows_left_out(const Graph *graph, ValueId table, int64_t row)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = &graph->nodes[n];
        const Attribute *known = node_attribute(node, "no_gradient");
        for (int i = 0; known && node->op == OP_Gather && i < known->count; i++)
            if ((row < 0 || known->integers[i] == row) && parameter_behind(graph, node->inputs[0]) == table)
                return true;
    }
    return false;
}
