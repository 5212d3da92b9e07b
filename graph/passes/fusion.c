/* Recognises composite operators in the forward graph, before differentiation, so that each gets its own kernel and
 * gradient: LayerNormalization spelled out in primitive operators (opsets before 17), Gelu with erf. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

typedef struct Matcher {
    Graph *graph;
    int *uses; /* per value: nodes that read it, and graph outputs */
} Matcher;

static const Node *producer(const Matcher *matcher, ValueId value, Opcode op)
{
    const Node *node = graph_producer(matcher->graph, value);
    return node->op == op ? node : NULL;
}

/* A node of operator `op` that makes `value`, which nobody else reads: it may disappear into the composite. */
static const Node *inner(const Matcher *matcher, ValueId value, Opcode op)
{
    return matcher->uses[value] == 1 ? producer(matcher, value, op) : NULL;
}

static bool is_scalar(const Matcher *matcher, ValueId id, double *number)
{
    const Value *value = graph_value(matcher->graph, id);
    if (value->role != ROLE_CONSTANT || shape_elements(&value->shape) != 1 || !dtype_is_float(value->dtype))
        return false;
    *number = element_as_double(value->dtype, value->data, 0);
    return true;
}

static bool is_number(const Matcher *matcher, ValueId id, double expected)
{
    double number;
    return is_scalar(matcher, id, &number) && fabs(number - expected) <= 1e-6 * fabs(expected);
}

/* For a commutative node: the input that is the constant `expected`; the other one goes to *other. */
static bool constant_operand(const Matcher *matcher, const Node *node, double expected, ValueId *other)
{
    for (int i = 0; i < 2; i++)
        if (is_number(matcher, node->inputs[i], expected)) {
            *other = node->inputs[1 - i];
            return true;
        }
    return false;
}

static bool averages_last_axis(const Matcher *matcher, const Node *node)
{
    const Attribute *axes = node_attribute(node, "axes");
    int rank = graph_value(matcher->graph, node->inputs[0])->shape.rank;
    return axes && axes->count == 1 && (axes->integers[0] == rank - 1 || axes->integers[0] == -1) &&
           node_integer(node, "keepdims", 1) == 1;
}

/* value = average over the last axis of *x. */
static bool match_mean(const Matcher *matcher, ValueId value, ValueId *x)
{
    const Node *mean = producer(matcher, value, OP_ReduceMean);
    if (!mean || !averages_last_axis(matcher, mean)) return false;
    *x = mean->inputs[0];
    return true;
}

/* value = erf(x / sqrt 2) + 1, with *x. */
static bool match_erf_part(const Matcher *matcher, ValueId value, ValueId *x)
{
    const Node *add = inner(matcher, value, OP_Add);
    ValueId erf_value;
    if (!add || !constant_operand(matcher, add, 1.0, &erf_value)) return false;
    const Node *erf_node = inner(matcher, erf_value, OP_Erf);
    if (!erf_node) return false;
    const Node *divide = inner(matcher, erf_node->inputs[0], OP_Div);
    const Node *multiply = inner(matcher, erf_node->inputs[0], OP_Mul);
    if (divide && is_number(matcher, divide->inputs[1], sqrt(2.0))) {
        *x = divide->inputs[0];
        return true;
    }
    return multiply && constant_operand(matcher, multiply, sqrt(0.5), x);
}

/* node = x * 0.5 * (erf(x / sqrt 2) + 1), in any of the three associations that exporters write. */
static bool match_gelu(const Matcher *matcher, const Node *node, ValueId *x)
{
    if (node->op != OP_Mul) return false;
    ValueId inner_value, other, product;
    if (constant_operand(matcher, node, 0.5, &product)) { /* (x * part) * 0.5 */
        const Node *multiply = inner(matcher, product, OP_Mul);
        for (int i = 0; multiply && i < 2; i++)
            if (match_erf_part(matcher, multiply->inputs[i], x) && multiply->inputs[1 - i] == *x) return true;
    }
    for (int i = 0; i < 2; i++) {
        inner_value = node->inputs[i], other = node->inputs[1 - i];
        const Node *half = inner(matcher, inner_value, OP_Mul);
        if (!half) continue;
        if (match_erf_part(matcher, other, x) && constant_operand(matcher, half, 0.5, &product) && product == *x)
            return true; /* (x * 0.5) * part */
        if (constant_operand(matcher, half, 0.5, &product) && match_erf_part(matcher, product, x) && other == *x)
            return true; /* x * (part * 0.5) */
    }
    return false;
}

typedef struct LayerNormMatch {
    ValueId x, gain, bias;
    double epsilon;
} LayerNormMatch;

/* value = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + epsilon). */
static bool match_normalized(const Matcher *matcher, ValueId value, LayerNormMatch *match)
{
    const Node *divide = inner(matcher, value, OP_Div);
    if (!divide) return false;
    const Node *centred = producer(matcher, divide->inputs[0], OP_Sub);
    const Node *root = inner(matcher, divide->inputs[1], OP_Sqrt);
    if (!centred || !root) return false;
    ValueId x;
    if (!match_mean(matcher, centred->inputs[1], &x) || x != centred->inputs[0]) return false;
    match->x = x;
    const Node *add = inner(matcher, root->inputs[0], OP_Add);
    if (!add) return false;
    for (int i = 0; i < 2; i++) {
        ValueId squared;
        if (!is_scalar(matcher, add->inputs[1 - i], &match->epsilon) || !match_mean(matcher, add->inputs[i], &squared))
            continue;
        const Node *power = producer(matcher, squared, OP_Pow), *product = producer(matcher, squared, OP_Mul);
        if (power && is_number(matcher, power->inputs[1], 2.0)) {
            /* Some exporters subtract the mean once more for the square. */
            const Node *again = producer(matcher, power->inputs[0], OP_Sub);
            return power->inputs[0] == divide->inputs[0] ||
                   (again && again->inputs[0] == x && match_mean(matcher, again->inputs[1], &x) && x == match->x);
        }
        if (product && product->inputs[0] == divide->inputs[0] && product->inputs[1] == divide->inputs[0]) return true;
    }
    return false;
}

static bool is_row(const Matcher *matcher, ValueId id, int64_t length)
{
    const Shape *shape = &graph_value(matcher->graph, id)->shape;
    return shape->rank == 1 && shape->dim[0] == length;
}

static bool match_layer_norm(const Matcher *matcher, const Node *node, LayerNormMatch *match)
{
    if (node->op != OP_Add) return false;
    const Shape *shape = &graph_value(matcher->graph, node->outputs[0])->shape;
    int64_t length = shape->rank ? shape->dim[shape->rank - 1] : 0;
    for (int i = 0; i < 2; i++) {
        const Node *scaled = inner(matcher, node->inputs[i], OP_Mul);
        match->bias = node->inputs[1 - i];
        if (!scaled || !is_row(matcher, match->bias, length)) continue;
        for (int k = 0; k < 2; k++) {
            match->gain = scaled->inputs[1 - k];
            if (is_row(matcher, match->gain, length) && match_normalized(matcher, scaled->inputs[k], match))
                return true;
        }
    }
    return false;
}

/* Overwrites `id` with the composite: its first output stays the value that everybody reads. */
static void become(Graph *graph, NodeId id, Opcode op, const ValueId *inputs, int input_count,
                   const Attribute *attributes, int attribute_count, Diagnostics *diagnostics)
{
    /* Build it at the end for its checks and outputs, then move it to where it belongs. */
    Node old = *graph_node(graph, id);
    NodeOrigin origin = {.name = old.name, .phase = old.phase, .layer = old.layer};
    NodeId made =
        graph_add_node(graph, op, origin, inputs, input_count, attributes, attribute_count, NULL, 0, diagnostics);
    if (!made) {
        diagnostics_print(diagnostics, stderr);
        bug("fusion builds a wrong %s", opcodes[op].name);
    }
    Node node = *graph_node(graph, made);
    graph->node_count--;
    node.outputs[0] = old.outputs[0];
    for (int i = 0; i < node.output_count; i++) graph_value(graph, node.outputs[i])->producer = id;
    *graph_node(graph, id) = node;
}

bool fuse_composites(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options;
    Matcher matcher = {graph, memory_allocate(graph->value_count * sizeof(int))};
    for (NodeId n = 1; n < graph->node_count; n++)
        if (graph_node(graph, n)->op != OP_NONE)
            for (int i = 0; i < graph_node(graph, n)->input_count; i++) matcher.uses[graph_node(graph, n)->inputs[i]]++;
    for (size_t i = 0; i < graph->output_count; i++) matcher.uses[graph->outputs[i].value]++;

    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != PHASE_FORWARD) continue;
        LayerNormMatch norm = {0};
        ValueId x;
        if (match_layer_norm(&matcher, node, &norm)) {
            Attribute epsilon = attribute_float("epsilon", norm.epsilon);
            become(graph, n, OP_LayerNormalization, (ValueId[]){norm.x, norm.gain, norm.bias}, 3, &epsilon, 1,
                   diagnostics);
        } else if (match_gelu(&matcher, node, &x)) {
            Attribute exact = attribute_integer("tanh", 0);
            become(graph, n, OP_Gelu, &x, 1, &exact, 1, diagnostics);
        }
    }
    free(matcher.uses);
    graph_remove_dead(graph);
    return true;
}
