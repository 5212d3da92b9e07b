#include "graph/ops/add_node.h"

#include "graph/ops/operator.h"

/* Checks the number of inputs and applies the operator's shape rule to the node, which is not in the graph yet. */
static bool infer(InferContext *context)
{
    const Node *node = context->node;
    const OpcodeForm *form = &opcodes[node->op];
    if (node->input_count < form->least_inputs || (form->most_inputs >= 0 && node->input_count > form->most_inputs))
        return operator_error(context, NULL, "has %d inputs, but %s takes %d%s", node->input_count, form->name,
                              form->least_inputs, form->most_inputs == form->least_inputs ? "" : " or more");
    for (int i = 0; i < node->input_count; i++)
        if (!node->inputs[i] && i < form->least_inputs) return operator_error(context, NULL, "input %d is missing", i);
    if (!operators[node->op].infer(context)) return false;
    for (int i = 0; i < form->outputs; i++)
        if (shape_elements(&context->shape[i]) < 0)
            return operator_error(context, NULL, "output %d has an impossible number of elements", i);
    return true;
}

/* Of a reshaped value: the dimension in front of which as many elements stand as in front of the lines before. */
static int regrouped_lines(const Graph *graph, const Value *from, const Shape *shape)
{
    int64_t before = 1, seen = 1;
    if (from->line_axis <= 0) return from->line_axis;
    for (int i = 0; i < from->line_axis - 1; i++) before *= from->shape.dim[i];
    for (int i = 0; i < shape->rank && seen <= before; seen *= shape->dim[i++])
        if (seen == before && shape->dim[i] != 1) return shape->dim[i] % graph->packing.lines ? LINES_SPREAD : i + 1;
    return LINES_SPREAD;
}

/* Which axis of each input an axis of the output comes from, -1: none does. False if the rule says nothing. */
static bool input_axes(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    for (int i = 0; i < node->input_count; i++) axes[i] = -1;
    return operators[node->op].axes(graph, node, output, axis, axes);
}

/* The first axis after `axis` that is longer than 1; the rank: none is. */
static int next_axis(const Shape *shape, int axis)
{
    do axis++;
    while (axis < shape->rank && shape->dim[axis] == 1);
    return axis;
}

/* Whether tokens stand in the output as in an input, whose axis `from` lines stand along and become `axis`: along the
 * same axis, or along the next one, which has to come from the input's next one. */
static bool keeps_tokens(const Graph *graph, const Node *node, int output, int axis, int input, int from)
{
    const Value *in = graph_value(graph, node->inputs[input]);
    const Shape *shape = &graph_value(graph, node->outputs[output])->shape;
    if (!in->by_token || shape->dim[axis] != in->shape.dim[from]) return false;
    if (in->shape.dim[from] % ((int64_t)graph->packing.lines * graph->packing.length) == 0) return true;
    int axes[node->input_count + 1], next = next_axis(shape, axis), next_from = next_axis(&in->shape, from);
    return next < shape->rank && next_from < in->shape.rank && shape->dim[next] == in->shape.dim[next_from] &&
           input_axes(graph, node, output, next, axes) && axes[input] == next_from;
}

/* Lines stand along the axis of the output that comes from one along which they stand in an input. */
static void find_lines(const Graph *graph, const Node *node, int output)
{
    Value *out = graph_value(graph, node->outputs[output]);
    int axes[node->input_count + 1];
    if (operator_has(node->op, REGROUPS)) {
        const Value *in = graph_value(graph, node->inputs[0]);
        out->line_axis = regrouped_lines(graph, in, &out->shape);
        out->by_token = in->by_token && out->line_axis > 0;
        return;
    }
    for (int axis = 0; axis < out->shape.rank; axis++) {
        if (!input_axes(graph, node, output, axis, axes)) continue;
        for (int i = 0; i < node->input_count; i++) {
            if (axes[i] < 0 || graph_value(graph, node->inputs[i])->line_axis != 1 + axes[i]) continue;
            out->line_axis = 1 + axis;
            out->by_token |= keeps_tokens(graph, node, output, axis, i, axes[i]);
        }
        if (out->line_axis) return;
    }
}

NodeId graph_add_node(Graph *graph, Opcode op, NodeOrigin origin, const ValueId *inputs, int input_count,
                      const Attribute *attributes, int attribute_count, ValueId *outputs, int output_count,
                      Diagnostics *diagnostics)
{
    const Node node = {.op = op,
                       .phase = origin.phase,
                       .input_count = input_count,
                       .output_count = opcodes[op].outputs,
                       .attribute_count = attribute_count,
                       .inputs = (ValueId *)inputs,
                       .attributes = (Attribute *)attributes,
                       .name = origin.name ? origin.name : "",
                       .differentiates = origin.differentiates,
                       .layer = origin.layer};
    InferContext context = {
        .graph = graph, .node = &node, .made_for = origin.made_for, .hint = origin.hint, .diagnostics = diagnostics};
    if (!infer(&context)) return 0;
    if (output_count > node.output_count)
        bug("%s has %d outputs, not %d", opcodes[op].name, node.output_count, output_count);
    NodeId id = graph_append(graph, &node, context.dtype, context.shape);
    const Node *added = graph_node(graph, id);
    for (int i = 0; graph->packing.lines && i < added->output_count; i++) find_lines(graph, added, i);
    for (int i = 0; i < output_count; i++) outputs[i] = added->outputs[i];
    return id;
}

bool graph_check_types(Graph *graph, Diagnostics *diagnostics)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        InferContext context = {.graph = graph, .node = node, .diagnostics = diagnostics};
        if (!infer(&context)) return false;
        for (int i = 0; i < node->output_count; i++) {
            const Value *value = graph_value(graph, node->outputs[i]);
            char text[256];
            if (value->dtype != context.dtype[i] || !shape_equal(&value->shape, &context.shape[i]))
                return operator_error(&context, NULL, "output %d is %s%s", i, dtype_name(context.dtype[i]),
                                      shape_format(&context.shape[i], text));
        }
    }
    return true;
}

/* ---- Builders ---- */

ValueId build_node(const Builder *b, Opcode op, const ValueId *inputs, int input_count, const Attribute *attributes,
                   int attribute_count)
{
    ValueId output = 0;
    Diagnostics refused = {0};
    for (int i = 0; i < input_count; i++)
        if (!inputs[i] && b->diagnostics) return 0;
    if (b->add) return b->add(b, op, inputs, input_count, attributes, attribute_count);
    if (!graph_add_node(b->graph, op, b->origin, inputs, input_count, attributes, attribute_count, &output,
                        opcodes[op].outputs > 0, b->diagnostics ? b->diagnostics : &refused) &&
        !b->diagnostics) {
        diagnostics_print(&refused, stderr);
        bug("a wrong %s is built for '%s'", opcodes[op].name, b->origin.name);
    }
    return output;
}

ValueId build_along(const Builder *b, Opcode op, const ValueId *inputs, int input_count, const char *name,
                    int64_t number)
{
    Attribute attribute = attribute_integer(name, number);
    return build_node(b, op, inputs, input_count, &attribute, 1);
}

ValueId build_unary(const Builder *b, Opcode op, ValueId x) { return build_node(b, op, &x, 1, NULL, 0); }

ValueId build_binary(const Builder *b, Opcode op, ValueId x, ValueId y)
{
    return build_node(b, op, (ValueId[]){x, y}, 2, NULL, 0);
}

ValueId build_where(const Builder *b, ValueId condition, ValueId x, ValueId y)
{
    return build_node(b, OP_Where, (ValueId[]){condition, x, y}, 3, NULL, 0);
}

ValueId build_cast(const Builder *b, ValueId x, DType dtype)
{
    return graph_value(b->graph, x)->dtype == dtype ? x : build_along(b, OP_Cast, &x, 1, "to", dtype);
}

static ValueId build_shaped(const Builder *b, Opcode op, ValueId x, const Shape *shape)
{
    Attribute attribute = attribute_integers("shape", shape->dim, shape->rank);
    return shape_equal(&graph_value(b->graph, x)->shape, shape) ? x : build_node(b, op, &x, 1, &attribute, 1);
}

ValueId build_reshape(const Builder *b, ValueId x, const Shape *shape) { return build_shaped(b, OP_Reshape, x, shape); }

ValueId build_expand(const Builder *b, ValueId x, const Shape *shape) { return build_shaped(b, OP_Expand, x, shape); }

ValueId build_transpose(const Builder *b, ValueId x, const int64_t *perm)
{
    int rank = graph_value(b->graph, x)->shape.rank, moved = 0;
    Attribute attribute = attribute_integers("perm", perm, rank);
    for (int i = 0; i < rank; i++) moved += perm[i] != i;
    return moved ? build_node(b, OP_Transpose, &x, 1, &attribute, 1) : x;
}

ValueId build_part(const Builder *b, ValueId x, int axis, int64_t start, int64_t count)
{
    Shape shape = graph_value(b->graph, x)->shape;
    int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (shape.dim[axis] == count) return x;
    starts[axis] = start;
    shape.dim[axis] = count;
    Attribute attributes[] = {attribute_integers("starts", starts, shape.rank),
                              attribute_integers("steps", steps, shape.rank),
                              attribute_integers("shape", shape.dim, shape.rank)};
    return build_node(b, OP_Slice, &x, 1, attributes, 3);
}

ValueId build_gather(const Builder *b, ValueId table, ValueId rows)
{
    return build_along(b, OP_Gather, (ValueId[]){table, rows}, 2, "axis", 0);
}
