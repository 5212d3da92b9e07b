#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/pack_internal.h"

/* ---- What all rules share ---- */

bool pack_refuse(Packer *packer, const char *format, ...)
{
    char place[512], text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return diagnostics_error(packer->diagnostics, EXIT_BAD_INPUT, node_place(packer->graph, &packer->node, place),
                             "bind the dimension to one length: all rows are padded to it then",
                             "rows of several lengths cannot be packed: %s", text);
}

void pack_set_layout(Packer *packer, int output, const Layout *layout)
{
    ValueId value = packer->node.outputs[output];
    if (!value) return;
    packer->layouts[value] = *layout;
    graph_value(packer->graph, value)->shape = layout_shape(layout);
}

void pack_push(Packer *packer)
{
    Graph *graph = packer->graph;
    for (int i = 0; i < packer->node.output_count; i++)
        if (packer->node.outputs[i]) graph_value(graph, packer->node.outputs[i])->producer = (NodeId)graph->node_count;
    array_push(graph->nodes, graph->node_count, graph->node_capacity, packer->node);
}

void pack_become(Packer *packer, const Packed *result)
{
    Graph *graph = packer->graph;
    ValueId output = packer->node.outputs[0];
    pack_set_layout(packer, 0, &result->layout);
    Value *made = graph_value(graph, result->value);
    if (!shape_equal(&made->shape, &graph_value(graph, output)->shape))
        bug("%s: a packed %s has another shape than expected", packer->node.name, opcodes[packer->node.op].name);
    NodeId last = (NodeId)graph->node_count - 1;
    if (made->producer == last && graph_node(graph, last)->output_count == 1) {
        graph_node(graph, last)->outputs[0] = output;
        graph_value(graph, output)->producer = last;
        made->producer = 0;
        return;
    }
    Attribute shape = attribute_integers("shape", made->shape.dim, made->shape.rank);
    pack_add(packer, OP_Reshape, &result->value, 1, &shape, 1);
    last = (NodeId)graph->node_count - 1;
    graph_value(graph, graph_node(graph, last)->outputs[0])->producer = 0;
    graph_node(graph, last)->outputs[0] = output;
    graph_value(graph, output)->producer = last;
}

/* The node gets inputs and attributes of its own. */
static void own_node(Packer *packer)
{
    Node *node = &packer->node;
    Arena *arena = &packer->graph->arena;
    node->inputs = arena_copy(arena, node->inputs, (size_t)node->input_count * sizeof *node->inputs);
    node->attributes = arena_copy(arena, node->attributes, (size_t)node->attribute_count * sizeof *node->attributes);
}

static void set_shape_attribute(Packer *packer, const Shape *shape)
{
    for (int i = 0; i < packer->node.attribute_count; i++) {
        Attribute *attribute = &packer->node.attributes[i];
        if (strcmp(attribute->name, "shape") != 0) continue;
        attribute->count = shape->rank;
        attribute->integers = arena_copy(&packer->graph->arena, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]);
    }
}

bool pack_finish(Packer *packer, const Layout *layout)
{
    pack_set_layout(packer, 0, layout);
    pack_push(packer);
    return true;
}

void pack_replace_input(Packer *packer, int input, const Packed *by)
{
    pack_note(packer, by);
    packer->node.inputs[input] = by->value;
}

/* ---- Movements ---- */

static bool pack_reshape_node(Packer *packer)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    const Shape *wanted = &packer->shapes[packer->node.outputs[0]];
    Layout to;
    bool parts_slots;
    bool fits = layout_reshape(&x.layout, wanted, &to, &parts_slots);
    if (!fits && parts_slots) {
        x = pack_merge_slots(packer, &x);
        packer->node.inputs[0] = x.value;
        fits = layout_reshape(&x.layout, wanted, &to, &parts_slots);
    }
    if (!fits) return pack_refuse(packer, "takes the dimensions of rows or tokens apart");
    Shape shape = layout_shape(&to);
    set_shape_attribute(packer, &shape);
    return pack_finish(packer, &to);
}

static bool pack_transpose_node(Packer *packer)
{
    const Layout *from = pack_layout_of(packer, 0);
    const Attribute *perm = node_attribute(&packer->node, "perm");
    Layout to = {.of_data = true, .in_blocks = from->in_blocks, .rank = from->rank};
    for (int i = 0; i < to.rank; i++) layout_copy_axis(&to, i, from, perm ? (int)perm->integers[i] : to.rank - 1 - i);
    return pack_finish(packer, &to);
}

static bool pack_expand(Packer *packer)
{
    const Layout *from = pack_layout_of(packer, 0);
    const Shape *wanted = &packer->shapes[packer->node.outputs[0]];
    Layout to = {.of_data = true, .in_blocks = from->in_blocks, .rank = wanted->rank};
    for (int axis = 0; axis < to.rank; axis++) {
        int at = pack_axis_of_input(packer, 0, to.rank, axis);
        if (at >= 0)
            layout_copy_axis(&to, axis, from, at);
        else
            layout_add_plain(&to, wanted->dim[axis], axis);
    }
    Shape shape = layout_shape(&to);
    set_shape_attribute(packer, &shape);
    return pack_finish(packer, &to);
}

static bool pack_concat(Packer *packer)
{
    const Shape *shape = &packer->shapes[packer->node.outputs[0]];
    int64_t joined_axis = node_integer(&packer->node, "axis", 0);
    Layout to = {.of_data = true, .rank = shape->rank};
    normalize_axis(&joined_axis, shape->rank, false);
    for (int axis = 0; axis < shape->rank; axis++) {
        if (axis == joined_axis) {
            layout_add_plain(&to, shape->dim[axis], axis);
            continue;
        }
        for (int i = 1; i < packer->node.input_count; i++)
            if (!layout_same_axis(pack_layout_of(packer, 0), axis, pack_layout_of(packer, i), axis))
                return pack_refuse(packer, "joins values of tokens with others");
        layout_copy_axis(&to, axis, pack_layout_of(packer, 0), axis);
    }
    for (int i = 0; i < packer->node.input_count; i++)
        if (layout_labelled(pack_layout_of(packer, i), (int)joined_axis))
            return pack_refuse(packer, "joins rows or sequences");
    return pack_finish(packer, &to);
}

/* ---- Parts ---- */

static bool pack_slice(Packer *packer)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    const Shape *before = pack_shape_before(packer, 0), *after = &packer->shapes[packer->node.outputs[0]];
    Layout to = {.of_data = true, .rank = x.layout.rank};
    Shape starts;
    int token = -1, cuts = 0;
    node_shape(&packer->node, "starts", &starts);
    for (int axis = 0; axis < to.rank; axis++) {
        if (before->dim[axis] == after->dim[axis]) {
            layout_copy_axis(&to, axis, &x.layout, axis);
            continue;
        }
        cuts++;
        if (!layout_labelled(&x.layout, axis)) {
            layout_add_plain(&to, after->dim[axis], axis);
            continue;
        }
        token = layout_find(&x.layout, axis, ATOM_TOKEN);
        if (token < 0) return pack_refuse(packer, "takes some of the rows");
        if (starts.dim[axis] != 0 || after->dim[axis] != 1)
            return pack_refuse(packer, "reads a place of the sequence that is not its first");
    }
    if (token >= 0 && cuts > 1) return pack_refuse(packer, "takes parts of several dimensions");
    if (token >= 0) {
        x = pack_take_first(packer, &x, token);
        pack_become(packer, &x);
        return true;
    }
    Shape shape = layout_shape(&to);
    set_shape_attribute(packer, &shape);
    return pack_finish(packer, &to);
}

/* Gather of index 0 of the tokens, or of constant indices of something else. */
static bool gather_from_data(Packer *packer, int axis)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    const Value *indices = graph_value(packer->graph, packer->node.inputs[1]);
    int index_rank = indices->shape.rank;
    Layout to = {.of_data = true, .rank = x.layout.rank - 1 + index_rank};
    int token = layout_find(&x.layout, axis, ATOM_TOKEN);
    if (pack_layout_of(packer, 1)->of_data || (token < 0 && layout_labelled(&x.layout, axis)))
        return pack_refuse(packer, "looks up rows or tokens");
    if (token >= 0) {
        bool parts_slots;
        if (indices->role != ROLE_CONSTANT || shape_elements(&indices->shape) != 1 ||
            element_as_integer(indices->dtype, indices->data, 0) != 0)
            return pack_refuse(packer, "reads a place of the sequence that is not its first");
        x = pack_take_first(packer, &x, token);
        if (!layout_reshape(&x.layout, &packer->shapes[packer->node.outputs[0]], &to, &parts_slots)) {
            x = pack_merge_slots(packer, &x);
            if (!layout_reshape(&x.layout, &packer->shapes[packer->node.outputs[0]], &to, &parts_slots))
                return pack_refuse(packer, "reads the first place of the sequence");
        }
        Shape shape = layout_shape(&to);
        x = (Packed){pack_reshape(packer, x.value, &shape), to};
        pack_become(packer, &x);
        return true;
    }
    for (int i = 0; i < to.rank; i++) {
        bool indexed = i >= axis && i < axis + index_rank;
        if (indexed)
            layout_add_plain(&to, indices->shape.dim[i - axis], i);
        else
            layout_copy_axis(&to, i, &x.layout, i < axis ? i : i - index_rank + 1);
    }
    return pack_finish(packer, &to);
}

static bool pack_gather(Packer *packer)
{
    int64_t axis = node_integer(&packer->node, "axis", 0);
    const Shape *data = pack_shape_before(packer, 0), *indices = pack_shape_before(packer, 1);
    normalize_axis(&axis, data->rank, false);
    if (pack_layout_of(packer, 0)->of_data) return gather_from_data(packer, (int)axis);
    Layout to = {.of_data = true, .rank = data->rank - 1 + indices->rank};
    for (int i = 0; i < to.rank; i++) {
        if (i >= axis && i < axis + indices->rank)
            layout_copy_axis(&to, i, pack_layout_of(packer, 1), i - (int)axis);
        else
            layout_add_plain(&to, data->dim[i < axis ? i : i - indices->rank + 1], i);
    }
    return pack_finish(packer, &to);
}

/* ---- Along a dimension ---- */

/* The other atom of a pair of tokens, or of slot and token; -1: none. */
static int other_of_pair(const Layout *layout, int token)
{
    for (int i = 0; i < layout->count; i++)
        if (i != token &&
            (layout->atoms[i].kind == ATOM_TOKEN || (layout->atoms[i].kind == ATOM_SLOT && !layout_is_merged(layout))))
            return i;
    return -1;
}

static bool pack_softmax(Packer *packer)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    int last = x.layout.rank - 1, token = layout_find(&x.layout, last, ATOM_TOKEN);
    if (layout_labelled(&x.layout, last)) {
        int query = token < 0 ? -1 : other_of_pair(&x.layout, token);
        if (query < 0 || packer->node.op != OP_Softmax)
            return pack_refuse(packer, "normalises over the sequence, or over rows, other than attention does");
        packer->node.inputs[0] = pack_mask_pairs(packer, &x, query, token, -FLT_MAX);
        x.layout.in_blocks = true;
    }
    return pack_finish(packer, &x.layout);
}

static bool pack_layer_norm(Packer *packer)
{
    Layout layout = *pack_layout_of(packer, 0), statistics = {.of_data = true, .rank = layout.rank};
    if (layout_labelled(&layout, layout.rank - 1)) return pack_refuse(packer, "normalises over the sequence");
    layout.in_blocks = false;
    for (int i = 0; i + 1 < layout.rank; i++) layout_copy_axis(&statistics, i, &layout, i);
    pack_set_layout(packer, 1, &statistics);
    pack_set_layout(packer, 2, &statistics);
    return pack_finish(packer, &layout);
}

/* Whether the node's result goes into the scaled loss alone: there labels decide what counts. */
static bool goes_into_loss(const Packer *packer) { return strcmp(packer->node.name, "loss") == 0; }

typedef struct Reduction {
    bool axis[MAX_RANK], keep;
    int tokens, token; /* token: the last atom among them */
    bool lines;
} Reduction;

static Reduction reduction_of(const Packer *packer)
{
    const Layout *layout = pack_layout_of(packer, 0);
    const Attribute *axes = node_attribute(&packer->node, "axes");
    Reduction reduction = {.keep = node_integer(&packer->node, "keepdims", 1), .token = -1};
    for (int i = 0; i < layout->rank; i++) reduction.axis[i] = !axes || !axes->count;
    for (int i = 0; axes && i < axes->count; i++) {
        int64_t axis = axes->integers[i];
        normalize_axis(&axis, layout->rank, false);
        reduction.axis[axis] = true;
    }
    if (packer->node.op == OP_ArgMax) {
        int64_t axis = node_integer(&packer->node, "axis", 0);
        normalize_axis(&axis, layout->rank, false);
        for (int i = 0; i < layout->rank; i++) reduction.axis[i] = i == axis;
    }
    for (int i = 0; i < layout->count; i++) {
        const Atom *atom = &layout->atoms[i];
        if (!reduction.axis[atom->axis]) continue;
        if (atom->kind == ATOM_TOKEN) reduction.tokens++, reduction.token = i;
        reduction.lines |= atom->kind == ATOM_LINE || atom->kind == ATOM_SLOT;
    }
    return reduction;
}

static Layout reduced_layout(const Layout *from, const Reduction *reduction)
{
    Layout to = {.of_data = true};
    for (int i = 0; i < from->rank; i++) {
        if (!reduction->axis[i]) layout_copy_axis(&to, to.rank, from, i);
        to.rank += !reduction->axis[i] || reduction->keep;
    }
    return to;
}

static bool sum_over_tokens(Packer *packer, const Reduction *reduction)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    int axis = x.layout.atoms[reduction->token].axis, axes = 0;
    for (int i = 0; i < x.layout.rank; i++) axes += reduction->axis[i];
    bool of_pairs = other_of_pair(&x.layout, reduction->token) >= 0;
    if (packer->node.op != OP_ReduceSum)
        return pack_refuse(packer, "takes a mean or an extreme over the sequence, padding included");
    if (of_pairs) {
        if (!x.layout.in_blocks)
            packer->node.inputs[0] =
                pack_mask_pairs(packer, &x, other_of_pair(&x.layout, reduction->token), reduction->token, 0);
        Layout to = reduced_layout(&x.layout, reduction);
        return pack_finish(packer, &to);
    }
    if (axes > 1 || layout_find(&x.layout, axis, ATOM_TOKEN) < 0)
        return pack_refuse(packer, "adds up over the sequence and another dimension");
    DType dtype = graph_value(packer->graph, x.value)->dtype;
    Attribute to_float = attribute_integer("to", DTYPE_F32), back = attribute_integer("to", dtype);
    if (!dtype_is_float(dtype)) x.value = pack_add(packer, OP_Cast, &x.value, 1, &to_float, 1);
    x = pack_sum_rows(packer, &x, reduction->token, reduction->keep);
    if (!dtype_is_float(dtype)) x.value = pack_add(packer, OP_Cast, &x.value, 1, &back, 1);
    pack_become(packer, &x);
    return true;
}

static bool pack_reduce(Packer *packer)
{
    const Reduction reduction = reduction_of(packer);
    if (reduction.lines && !(goes_into_loss(packer) && packer->node.op == OP_ReduceSum))
        return pack_refuse(packer, "mixes rows");
    if (reduction.tokens && !reduction.lines) return sum_over_tokens(packer, &reduction);
    Layout to = reduced_layout(pack_layout_of(packer, 0), &reduction);
    return pack_finish(packer, &to);
}

/* ---- Products ---- */

/* Atom of a product's factor `input` that is alone in its dimension and counts tokens; -1: none. */
static int summed_token(const Packer *packer, int input)
{
    const Layout *layout = pack_layout_of(packer, input);
    return layout_find(layout, input ? layout->rank - 2 : layout->rank - 1, ATOM_TOKEN);
}

/* A sum over the tokens of a line, of factor `pairs` with the other: it must be 0 outside of rows. */
static bool sum_over_pairs(Packer *packer, int token_of_a, int token_of_b)
{
    int of_a = other_of_pair(pack_layout_of(packer, 0), token_of_a),
        of_b = other_of_pair(pack_layout_of(packer, 1), token_of_b);
    if (pack_layout_of(packer, 0)->in_blocks || pack_layout_of(packer, 1)->in_blocks) return true;
    if (of_a < 0 && of_b < 0) return pack_refuse(packer, "adds up over the sequence");
    int input = of_a >= 0 ? 0 : 1;
    Packed x = {packer->node.inputs[input], *pack_layout_of(packer, input)};
    x.value = pack_mask_pairs(packer, &x, input ? of_b : of_a, input ? token_of_b : token_of_a, 0);
    pack_replace_input(packer, input, &x);
    return true;
}

static bool pack_matmul(Packer *packer)
{
    const Layout a = *pack_layout_of(packer, 0), b = *pack_layout_of(packer, 1);
    int rank = packer->shapes[packer->node.outputs[0]].rank;
    Layout to;
    if (a.rank < 2 || b.rank < 2) return pack_refuse(packer, "is a product with a vector");
    bool sums = layout_labelled(&a, a.rank - 1) || layout_labelled(&b, b.rank - 2);
    int token_of_a = summed_token(packer, 0), token_of_b = summed_token(packer, 1);
    if (sums && (token_of_a < 0 || token_of_b < 0))
        return pack_refuse(packer, "adds up over the sequence or over rows");
    if (sums && !sum_over_pairs(packer, token_of_a, token_of_b)) return false;
    if (!pack_join(packer, 0, 2, rank, rank - 2, &to)) return false;
    for (int i = 0; i < 2; i++)
        if (!pack_fit(packer, i, &to, rank - 2)) return false;
    layout_copy_axis(&to, rank - 2, &a, a.rank - 2);
    layout_copy_axis(&to, rank - 1, &b, b.rank - 1);
    if (layout_count_kind(&to, ATOM_LINE) > 1) return pack_refuse(packer, "compares rows with each other");
    return pack_finish(packer, &to);
}

/* ---- Losses ---- */

static bool pack_cross_entropy(Packer *packer)
{
    const Layout *logits = pack_layout_of(packer, 0);
    Layout scalar = {.of_data = true}, rows = {.of_data = true, .rank = 1};
    if (layout_labelled(logits, 1)) return pack_refuse(packer, "takes tokens or rows for classes");
    if (!layout_same_axis(logits, 0, pack_layout_of(packer, 1), 0))
        return pack_refuse(packer, "compares values of tokens with labels of rows, or the other way round");
    layout_copy_axis(&rows, 0, logits, 0);
    for (int i = 1; i < packer->node.output_count; i++) pack_set_layout(packer, i, &rows);
    return pack_finish(packer, &scalar);
}

/* ---- All ---- */

static bool depends_on_data(const Packer *packer)
{
    for (int i = 0; i < packer->node.input_count; i++)
        if (packer->node.inputs[i] && pack_layout_of(packer, i)->of_data) return true;
    return false;
}

/* What does not depend on data is the same for all rows, and stays as it is. */
static bool pack_common(Packer *packer)
{
    if (packer->node.op == OP_Dropout && node_integer(&packer->node, "row", 0))
        return pack_refuse(packer, "drops elements of what all rows have in common");
    for (int i = 0; i < packer->node.output_count; i++)
        if (packer->node.outputs[i]) pack_set_plain(packer, packer->node.outputs[i]);
    pack_push(packer);
    return true;
}

bool pack_node(Packer *packer)
{
    if (!depends_on_data(packer)) return pack_common(packer);
    own_node(packer);
    Opcode op = packer->node.op;
    if (operator_is_map(op) || op == OP_Gelu || op == OP_BinaryCrossEntropy || op == OP_ScaleLoss)
        return pack_map(packer);
    switch (op) {
    case OP_Reshape: return pack_reshape_node(packer);
    case OP_Transpose: return pack_transpose_node(packer);
    case OP_Expand: return pack_expand(packer);
    case OP_Slice: return pack_slice(packer);
    case OP_Concat: return pack_concat(packer);
    case OP_Gather: return pack_gather(packer);
    case OP_Softmax:
    case OP_LogSoftmax: return pack_softmax(packer);
    case OP_LayerNormalization: return pack_layer_norm(packer);
    case OP_ReduceSum:
    case OP_ReduceMean:
    case OP_ReduceMax:
    case OP_ReduceMin:
    case OP_ReduceProd:
    case OP_ArgMax: return pack_reduce(packer);
    case OP_MatMul: return pack_matmul(packer);
    case OP_Dropout: return pack_dropout(packer);
    case OP_CrossEntropy:
    case OP_WeightedCrossEntropy: return pack_cross_entropy(packer);
    default: return pack_refuse(packer, "the operator is not known to keep rows apart");
    }
}
