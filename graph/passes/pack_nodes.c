#include <float.h>
#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/pack_internal.h"

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

/* ---- Movements ---- */

static bool pack_regrouped(Packer *packer)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    const Shape *wanted = &packer->before.values[packer->node.outputs[0]].shape;
    Layout to;
    bool parts_slots;
    bool fits = layout_reshape(&x.layout, wanted, &to, &parts_slots);
    if (!fits && parts_slots) {
        x = pack_merge_slots(packer, &x);
        packer->node.inputs[0] = x.value;
        fits = layout_reshape(&x.layout, wanted, &to, &parts_slots);
    }
    if (!fits) return pack_refuse(packer, "splits the dimension of rows or of tokens");
    Shape shape = layout_shape(&to);
    set_shape_attribute(packer, &shape);
    return pack_finish(packer, &to);
}

/* ---- By axes ---- */

/* The axes of the node's inputs that axes of its outputs come from: bits. */
typedef struct Carried {
    unsigned axes[PACK_MOST_INPUTS];
} Carried;

/* The layout of an output: what its axes count is what those count that they come from. */
static bool layout_by_axes(Packer *packer, int output, Carried *carried, Layout *to)
{
    const Node *node = &packer->node;
    const Shape *shape = &packer->before.values[node->outputs[output]].shape;
    *to = (Layout){.of_data = true, .rank = shape->rank};
    for (int axis = 0; axis < shape->rank; axis++) {
        int axes[PACK_MOST_INPUTS], from = -1;
        for (int i = 0; i < node->input_count; i++) axes[i] = -1;
        bool known = operators[node->op].axes(&packer->before, node, output, axis, axes);
        for (int i = 0; known && i < node->input_count; i++) {
            if (axes[i] < 0) continue;
            carried->axes[i] |= 1u << axes[i];
            if (from < 0 || layout_labelled(pack_layout_of(packer, i), axes[i])) from = i;
        }
        for (int i = 0; from >= 0 && i < node->input_count; i++)
            if (axes[i] >= 0 &&
                !layout_same_axis(pack_layout_of(packer, i), axes[i], pack_layout_of(packer, from), axes[from]))
                return pack_refuse(packer, node->op == OP_CrossEntropy
                                               ? "chooses one of a row's tokens, as where an answer begins: tokens of "
                                                 "the rows next to it would take part"
                                               : "combines values per token with values per row");
        if (from >= 0 && layout_labelled(pack_layout_of(packer, from), axes[from]))
            layout_copy_axis(to, axis, pack_layout_of(packer, from), axes[from]);
        else
            layout_add_plain(to, shape->dim[axis], axis);
    }
    return layout_count_kind(to, ATOM_LINE) < 2 || pack_refuse(packer, "compares rows with each other");
}

/* Whether the node's result goes into the scaled loss alone: there labels decide what counts. */
static bool goes_into_loss(const Packer *packer) { return strcmp(packer->node.name, "loss") == 0; }

/* The last atom of that kind that no axis of the result comes from; -1: there is none. */
static int taken_atom(const Layout *layout, unsigned carried, AtomKind kind)
{
    for (int i = layout->count - 1; i >= 0; i--)
        if (layout->atoms[i].kind == kind && !(carried >> layout->atoms[i].axis & 1)) return i;
    return -1;
}

/* Reports if rows or tokens of an input meet. */
static bool keeps_apart(Packer *packer, const Carried *carried)
{
    const Opcode op = packer->node.op;
    for (int i = 0; i < packer->node.input_count; i++) {
        const Layout *layout = pack_layout_of(packer, i);
        if (!packer->node.inputs[i] || !layout->of_data) continue;
        bool lines = taken_atom(layout, carried->axes[i], ATOM_LINE) >= 0 ||
                     taken_atom(layout, carried->axes[i], ATOM_SLOT) >= 0;
        if (lines && operator_has(op, ADDS_UP) && goes_into_loss(packer)) return true;
        if (lines) return pack_refuse(packer, "combines rows");
        if (taken_atom(layout, carried->axes[i], ATOM_TOKEN) < 0) continue;
        return pack_refuse(packer, operator_has(op, SELECTS) ? "reads a token of the sequence that is not the first"
                                                             : "combines the tokens of a sequence, padding included");
    }
    return true;
}

/* ---- The first token ---- */

static bool pack_first_token(Packer *packer, int token)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    const Shape *wanted = &packer->before.values[packer->node.outputs[0]].shape;
    bool parts_slots;
    x = pack_take_first(packer, &x, token);
    Layout to = x.layout;
    if (wanted->rank != to.rank && !layout_reshape(&x.layout, wanted, &to, &parts_slots)) {
        x = pack_merge_slots(packer, &x);
        if (!layout_reshape(&x.layout, wanted, &to, &parts_slots))
            return pack_refuse(packer, "reads the first token of the sequence");
    }
    Shape shape = layout_shape(&to);
    x = (Packed){build_reshape(&packer->b, x.value, &shape), to};
    pack_become(packer, &x);
    return true;
}

/* The atom of tokens of which the node takes the first; -1: it does something else. */
static int first_token(const Packer *packer)
{
    AxisPart part;
    if (!operator_selects(&packer->before, &packer->node, &part) || part.start || part.count != 1) return -1;
    return layout_find(pack_layout_of(packer, 0), part.axis, ATOM_TOKEN);
}

/* ---- Labels of the next token ---- */

/* The loss moves labels one place on: a slice of the labels, and then one that does not count. The first label of a row
 * does not count in packed lines, so the last token of the row before it meets none: what moves rows moves lines. */
static const Labels *moved_labels(const Packer *packer, ValueId value)
{
    const Graph *graph = packer->graph;
    for (int i = 0; i < graph->label_count; i++)
        if (graph->labels[i].shifted && graph->labels[i].input == value) return &graph->labels[i];
    return NULL;
}

/* The slice becomes the labels as they are, and the concatenation does both. */
static bool pack_moved_labels(Packer *packer)
{
    Graph *graph = packer->graph;
    ValueId from = packer->node.inputs[0];
    bool joins = packer->node.op == OP_Concat;
    if (!goes_into_loss(packer) || (!joins && packer->node.op != OP_Slice)) return false;
    if (joins) from = graph_producer(graph, from)->inputs[0];
    const Labels *labels = moved_labels(packer, from);
    if (!labels) return false;
    Packed moved = {from, packer->layouts[from]};
    if (joins) {
        Shape end = layout_shape(&moved.layout);
        end.dim[1] = 1;
        ValueId ignored = graph_constant_scalar(graph, graph_value(graph, from)->dtype, (double)labels->ignore_index);
        ValueId rest = build_part(&packer->b, from, 1, 1, packer->form.length - 1);
        ValueId parts[] = {rest, build_expand(&packer->b, ignored, &end)};
        moved.value = build_along(&packer->b, OP_Concat, parts, 2, "axis", 1);
    }
    pack_become(packer, &moved);
    return true;
}

/* ---- Pairs of tokens, and sums over them ---- */

/* The other atom of a pair of tokens, or of slot and token; -1: none. */
static int other_of_pair(const Layout *layout, int token)
{
    for (int i = 0; i < layout->count; i++)
        if (i != token &&
            (layout->atoms[i].kind == ATOM_TOKEN || (layout->atoms[i].kind == ATOM_SLOT && !layout_is_merged(layout))))
            return i;
    return -1;
}

/* Shares of what a token, or a slot, attends to: of its own row alone. */
static bool pack_shares(Packer *packer)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    int token = layout_find(&x.layout, x.layout.rank - 1, ATOM_TOKEN);
    int query = token < 0 ? -1 : other_of_pair(&x.layout, token);
    if (query < 0) return pack_refuse(packer, "normalises over the sequence or over rows, but not as attention does");
    packer->node.inputs[0] = pack_mask_pairs(packer, &x, query, token, -FLT_MAX);
    x.layout.in_blocks = true;
    return pack_finish(packer, &x.layout);
}

static bool sum_over_tokens(Packer *packer, const Carried *carried, int token, const Layout *to)
{
    Packed x = {packer->node.inputs[0], *pack_layout_of(packer, 0)};
    int axis = x.layout.atoms[token].axis, query = other_of_pair(&x.layout, token);
    if (query >= 0) {
        if (!x.layout.in_blocks) packer->node.inputs[0] = pack_mask_pairs(packer, &x, query, token, 0);
        return pack_finish(packer, to);
    }
    unsigned all = (1u << x.layout.rank) - 1;
    if ((all & ~carried->axes[0]) != 1u << axis || layout_find(&x.layout, axis, ATOM_TOKEN) < 0)
        return pack_refuse(packer, "adds up over the sequence and another dimension");
    DType dtype = graph_value(packer->graph, x.value)->dtype;
    if (!dtype_is_float(dtype)) x.value = build_cast(&packer->b, x.value, DTYPE_F32);
    x = pack_sum_rows(packer, &x, token, to->rank == x.layout.rank);
    if (!dtype_is_float(dtype)) x.value = build_cast(&packer->b, x.value, dtype);
    pack_become(packer, &x);
    return true;
}

static bool pack_by_axes(Packer *packer)
{
    Carried carried = {0};
    Layout to[PACK_MOST_OUTPUTS];
    const Layout *from = pack_layout_of(packer, 0);
    if (operators[packer->node.op].axes == axes_none)
        return pack_refuse(packer, "skycc does not know whether this operator keeps rows apart");
    for (int i = 0; i < packer->node.output_count; i++)
        if (packer->node.outputs[i] && !layout_by_axes(packer, i, &carried, &to[i])) return false;
    int token = taken_atom(from, carried.axes[0], ATOM_TOKEN);
    bool lines = taken_atom(from, carried.axes[0], ATOM_LINE) >= 0 || taken_atom(from, carried.axes[0], ATOM_SLOT) >= 0;
    if (token >= 0 && !lines && operator_has(packer->node.op, ADDS_UP))
        return sum_over_tokens(packer, &carried, token, &to[0]);
    if (!keeps_apart(packer, &carried)) return false;
    to[0].in_blocks = from->in_blocks && operator_has(packer->node.op, ZERO_OF_FIRST);
    for (int i = packer->node.output_count - 1; i > 0; i--) pack_set_layout(packer, i, &to[i]);
    Shape shape = layout_shape(&to[0]);
    set_shape_attribute(packer, &shape);
    return pack_finish(packer, &to[0]);
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

static bool pack_product(Packer *packer)
{
    const Layout a = *pack_layout_of(packer, 0), b = *pack_layout_of(packer, 1);
    int rank = packer->before.values[packer->node.outputs[0]].shape.rank;
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
    if (operator_has(packer->node.op, IS_RANDOM) && node_integer(&packer->node, "row", 0))
        return pack_refuse(packer, "drops elements of a value that all rows share");
    for (int i = 0; i < packer->node.output_count; i++)
        if (packer->node.outputs[i]) pack_set_plain(packer, packer->node.outputs[i]);
    graph_push_node(packer->graph, packer->node);
    return true;
}

bool pack_node(Packer *packer)
{
    const Opcode op = packer->node.op;
    if (!depends_on_data(packer)) return pack_common(packer);
    own_node(packer);
    if (packer->node.input_count > PACK_MOST_INPUTS || packer->node.output_count > PACK_MOST_OUTPUTS)
        return pack_refuse(packer, "it has too many inputs");
    if (pack_moved_labels(packer)) return true;
    if (operator_has(op, IS_MAP)) return pack_map(packer);
    if (operator_has(op, REGROUPS)) return pack_regrouped(packer);
    if (operator_has(op, IS_PRODUCT)) return pack_product(packer);
    if (operator_has(op, IS_RANDOM)) return pack_dropout(packer);
    const Layout *first = pack_layout_of(packer, 0);
    if (operator_has(op, NORMALISES) && layout_labelled(first, first->rank - 1)) return pack_shares(packer);
    int token = first_token(packer);
    return token >= 0 ? pack_first_token(packer, token) : pack_by_axes(packer);
}
