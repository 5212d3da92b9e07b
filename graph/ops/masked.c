#include "graph/ops/masked.h"

#include "base/dtype.h"

enum { MOST_STEPS = 10 };           /* upwards: more than attention has */
static const double MASKED = -1e30; /* at most what masked scores are replaced with */

bool node_hides(const Graph *graph, const Node *node)
{
    if (node->op != OP_Where) return false;
    const Value *hidden = graph_value(graph, node->inputs[2]);
    return hidden->role == ROLE_CONSTANT && shape_elements(&hidden->shape) == 1 &&
           element_as_double(hidden->dtype, hidden->data, 0) <= MASKED;
}

/* Whether scores have been masked on their way to `value`. */
static bool are_masked(const Graph *graph, ValueId value, int steps)
{
    const Node *node = graph_producer(graph, value);
    if (steps == 0) return false;
    if (node_hides(graph, node)) return true;
    if (node->op == OP_Add && are_masked(graph, node->inputs[1], steps - 1)) return true;
    if (node->op == OP_Where) return are_masked(graph, node->inputs[1], steps - 1);
    return (node->op == OP_Add || operator_has(node->op, ZERO_OF_FIRST)) &&
           are_masked(graph, node->inputs[0], steps - 1);
}

bool value_is_often_zero(const Graph *graph, ValueId value)
{
    for (int steps = MOST_STEPS; steps > 0; steps--) {
        const Node *node = graph_producer(graph, value);
        if (node->op == OP_Softmax) return are_masked(graph, node->inputs[0], MOST_STEPS);
        bool condition_first = node->op == OP_Where; /* and 0 elsewhere, as gradients of masked scores are */
        if (!condition_first && node->op != OP_SoftmaxGradient &&
            !operator_has(node->op, ZERO_OF_FIRST | ZERO_OF_ANY | IS_RANDOM))
            return false;
        value = node->inputs[condition_first];
    }
    return false;
}
