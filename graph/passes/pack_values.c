#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/pack_internal.h"

static const Shape *shape_of(const Packer *packer, ValueId value) { return &graph_value(packer->graph, value)->shape; }

/* ---- The packed node and its layouts ---- */

void pack_set_plain(Packer *packer, ValueId value)
{
    const Shape *shape = &packer->before.values[value].shape;
    Layout plain = {.rank = shape->rank};
    for (int axis = 0; axis < plain.rank; axis++) layout_add_plain(&plain, shape->dim[axis], axis);
    packer->layouts[value] = plain;
}

void pack_set_lines(Packer *packer, ValueId value, const Layout *layout)
{
    Value *of = graph_value(packer->graph, value);
    of->line_axis = layout_line_axis(layout);
    of->by_token = layout_by_token(layout, packer->form.length);
}

/* A value that packing made becomes an input that rules may read. */
static void pack_note(Packer *packer, const Packed *value)
{
    size_t count = packer->graph->value_count; /* amortised: packing adds few values to each of the model's */
    packer->layouts = memory_resize(packer->layouts, count, sizeof *packer->layouts);
    packer->before.values = memory_resize(packer->before.values, count, sizeof *packer->before.values);
    Shape before = {.rank = value->layout.rank};
    for (int i = 0; i < before.rank; i++) before.dim[i] = 1;
    for (int i = 0; i < value->layout.count; i++)
        before.dim[value->layout.atoms[i].axis] *= value->layout.atoms[i].before;
    packer->layouts[value->value] = value->layout;
    packer->before.values[value->value] = (Value){.shape = before};
}

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
    pack_set_lines(packer, value, layout);
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
    build_node(&packer->b, OP_Reshape, &result->value, 1, &shape, 1);
    last = (NodeId)graph->node_count - 1;
    graph_value(graph, graph_node(graph, last)->outputs[0])->producer = 0;
    graph_node(graph, last)->outputs[0] = output;
    graph_value(graph, output)->producer = last;
}

bool pack_finish(Packer *packer, const Layout *layout)
{
    pack_set_layout(packer, 0, layout);
    graph_push_node(packer->graph, packer->node);
    return true;
}

void pack_replace_input(Packer *packer, int input, const Packed *by)
{
    pack_note(packer, by);
    packer->node.inputs[input] = by->value;
}

/* ---- Where rows stand ---- */

ValueId pack_input(Packer *packer, SkyFill fill)
{
    static const char *const names[SKY_FILL_COUNT] = {[SKY_FILL_SLOT] = "packing.slot",
                                                      [SKY_FILL_POSITION] = "packing.position",
                                                      [SKY_FILL_ROW] = "packing.row",
                                                      [SKY_FILL_FIRST] = "packing.first"};
    if (packer->made[fill]) return packer->made[fill];
    int64_t columns = fill == SKY_FILL_FIRST ? packer->form.slots : packer->form.length;
    packer->made[fill] =
        graph_add_input(packer->graph, names[fill], DTYPE_I32, &(Shape){2, {packer->form.lines, columns}});
    graph_value(packer->graph, packer->made[fill])->fill = fill;
    graph_value(packer->graph, packer->made[fill])->line_axis = 1;
    graph_value(packer->graph, packer->made[fill])->by_token = fill != SKY_FILL_FIRST;
    return packer->made[fill];
}

ValueId pack_input_of_slots(Packer *packer, SkyFill fill)
{
    Shape flat = {1, {(int64_t)packer->form.lines * packer->form.length}};
    /* One statement a node: the order in which arguments are evaluated, and so the numbering, is the compiler's. */
    ValueId first = pack_input(packer, SKY_FILL_FIRST);
    ValueId tokens = build_reshape(&packer->b, pack_input(packer, fill), &flat);
    return build_gather(&packer->b, tokens, first);
}

/* ---- Atoms in another order ---- */

/* A value with a dimension for each of its atoms, those in `order` (numbers of atoms) first, then the others. */
static ValueId atoms_first(Packer *packer, const Packed *x, const int *order, int count)
{
    Shape apart = {.rank = x->layout.count};
    int64_t perm[LAYOUT_MOST_ATOMS];
    int next = count;
    if (x->layout.count > MAX_RANK) bug("%s: more factors than dimensions", packer->node.name);
    for (int i = 0; i < count; i++) perm[i] = order[i];
    for (int i = 0; i < x->layout.count; i++) {
        bool named = false;
        apart.dim[i] = x->layout.atoms[i].extent;
        for (int k = 0; k < count; k++) named |= order[k] == i;
        if (!named) perm[next++] = i;
    }
    return build_transpose(&packer->b, build_reshape(&packer->b, x->value, &apart), perm);
}

/* The other way round: `value` has the atoms of `layout` as atoms_first leaves them. */
static ValueId atoms_back(Packer *packer, ValueId value, const Layout *layout, const int *order, int count)
{
    Shape apart = {.rank = layout->count}, shape = layout_shape(layout);
    int64_t perm[LAYOUT_MOST_ATOMS];
    int next = count;
    for (int i = 0; i < layout->count; i++) {
        int place = -1;
        for (int k = 0; k < count; k++)
            if (order[k] == i) place = k;
        perm[i] = place < 0 ? next++ : place;
    }
    for (int i = 0; i < layout->count; i++) apart.dim[perm[i]] = layout->atoms[i].extent;
    value = build_transpose(&packer->b, build_reshape(&packer->b, value, &apart), perm);
    return build_reshape(&packer->b, value, &shape);
}

/* The first `joined` dimensions as one. */
static ValueId join_first(Packer *packer, ValueId value, int joined)
{
    Shape shape = *shape_of(packer, value), result = {.rank = shape.rank - joined + 1};
    result.dim[0] = 1;
    for (int i = 0; i < joined; i++) result.dim[0] *= shape.dim[i];
    for (int i = joined; i < shape.rank; i++) result.dim[i - joined + 1] = shape.dim[i];
    return build_reshape(&packer->b, value, &result);
}

Packed pack_merge_slots(Packer *packer, const Packed *x)
{
    int line = layout_find_kind(&x->layout, ATOM_LINE), slot = layout_find_kind(&x->layout, ATOM_SLOT);
    Packed merged = {.layout = {.of_data = true, .rank = x->layout.rank}};
    if (slot < 0 || layout_is_merged(&x->layout)) return *x;
    for (int i = 0; i < x->layout.count; i++) {
        const Atom *atom = &x->layout.atoms[i];
        if (i == slot) continue;
        layout_add(&merged.layout, *atom);
        if (i == line) layout_add_slots(&merged.layout, x->layout.atoms[slot].extent, atom->axis);
    }
    merged.value = atoms_first(packer, x, (int[]){line, slot}, 2);
    merged.value = atoms_back(
        packer, merged.value, &merged.layout,
        (int[]){layout_find_kind(&merged.layout, ATOM_LINE), layout_find_kind(&merged.layout, ATOM_SLOT)}, 2);
    return merged;
}

Packed pack_take_first(Packer *packer, const Packed *x, int token)
{
    int order[] = {layout_find_kind(&x->layout, ATOM_LINE), token};
    Packed taken = {.layout = x->layout};
    taken.layout.atoms[token] = (Atom){ATOM_SLOT, packer->form.slots, 1, x->layout.atoms[token].axis};
    ValueId tokens = join_first(packer, atoms_first(packer, x, order, 2), 2);
    tokens = build_gather(&packer->b, tokens, pack_input(packer, SKY_FILL_FIRST));
    taken.value = atoms_back(packer, tokens, &taken.layout, order, 2);
    return taken;
}

/* Sums of slots without a row are what the first token of their line has: 0, as a divisor, would make NaN. */
static ValueId fill_unused_slots(Packer *packer, ValueId sums, ValueId tokens)
{
    int64_t rows = (int64_t)packer->form.lines * packer->form.slots;
    Shape flat = {1, {rows}}, column = {.rank = shape_of(packer, sums)->rank}, shape = *shape_of(packer, sums);
    for (int i = 0; i < column.rank; i++) column.dim[i] = i ? 1 : rows;
    FREED int32_t *numbers = memory_allocate((size_t)rows * sizeof *numbers);
    for (int64_t i = 0; i < rows; i++) numbers[i] = (int32_t)i;
    ValueId own = graph_add_constant(packer->graph, NULL, DTYPE_I32, &flat, numbers);
    graph_value(packer->graph, own)->line_axis = 1;
    ValueId found = build_reshape(&packer->b, pack_input_of_slots(packer, SKY_FILL_SLOT), &flat);
    ValueId used = build_binary(&packer->b, OP_Equal, found, own);
    ValueId first = build_gather(&packer->b, tokens, pack_input(packer, SKY_FILL_FIRST));
    ValueId inputs[] = {build_reshape(&packer->b, used, &column), sums, build_reshape(&packer->b, first, &shape)};
    return build_node(&packer->b, OP_Where, inputs, 3, NULL, 0);
}

Packed pack_sum_rows(Packer *packer, const Packed *x, int token, bool keep)
{
    int line = layout_find_kind(&x->layout, ATOM_LINE), order[] = {line, token};
    int axis = x->layout.atoms[token].axis;
    int64_t rows = (int64_t)packer->form.lines * packer->form.slots;
    Packed sums = {.layout = {.of_data = true, .rank = x->layout.rank - !keep}};
    for (int i = 0; i < x->layout.count; i++) {
        const Atom *atom = &x->layout.atoms[i];
        int at = atom->axis - (!keep && atom->axis > axis);
        if (i == token) continue;
        layout_add(&sums.layout, (Atom){atom->kind, atom->extent, atom->before, at});
        if (i == line) layout_add_slots(&sums.layout, packer->form.slots, at);
    }
    ValueId tokens = join_first(packer, atoms_first(packer, x, order, 2), 2);
    Shape shape = *shape_of(packer, tokens), flat = {1, {shape.dim[0]}};
    shape.dim[0] = rows + 1; /* the last one: tokens without a row */
    ValueId slots = build_reshape(&packer->b, pack_input(packer, SKY_FILL_SLOT), &flat);
    Attribute attributes[] = {attribute_integer("axis", 0), attribute_integers("shape", shape.dim, shape.rank)};
    ValueId all = build_node(&packer->b, OP_GatherGradient, (ValueId[]){slots, tokens}, 2, attributes, 2);
    ValueId used = build_part(&packer->b, all, 0, 0, rows);
    graph_value(packer->graph, all)->line_axis = LINES_SPREAD;
    graph_value(packer->graph, used)->line_axis = 1;
    all = fill_unused_slots(packer, used, tokens);
    sums.value =
        atoms_back(packer, all, &sums.layout,
                   (int[]){layout_find_kind(&sums.layout, ATOM_LINE), layout_find_kind(&sums.layout, ATOM_SLOT)}, 2);
    return sums;
}

/* ---- Pairs of tokens ---- */

/* A value with a dimension for each of `count` atoms, in a shape that broadcasts to the layout's: no dimension of it
 * has several atoms. */
static ValueId spread(Packer *packer, ValueId value, const Layout *layout, const int *order, int count)
{
    int64_t perm[3];
    Shape from = *shape_of(packer, value), shape = {.rank = layout->rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = 1;
    for (int i = 0; i < count; i++) {
        int before = 0;
        for (int k = 0; k < count; k++) before += order[k] < order[i];
        perm[before] = i;
        shape.dim[layout->atoms[order[i]].axis] = from.dim[i];
    }
    return build_reshape(&packer->b, build_transpose(&packer->b, value, perm), &shape);
}

Packed pack_apart(Packer *packer, const Packed *x)
{
    bool merged = false;
    for (int i = 1; i < x->layout.count; i++) merged |= x->layout.atoms[i].axis == x->layout.atoms[i - 1].axis;
    if (!merged) return *x;
    Packed apart = {atoms_first(packer, x, NULL, 0), x->layout};
    apart.layout.rank = x->layout.count;
    for (int i = 0; i < apart.layout.count; i++) apart.layout.atoms[i].axis = i;
    return apart;
}

/* Whether the tokens, or slot and token, belong together: [lines, queries, keys]. */
static ValueId same_rows(Packer *packer, AtomKind query)
{
    Shape slots = {3, {packer->form.lines, packer->form.slots, 1}};
    Shape tokens = {3, {packer->form.lines, packer->form.length, 1}};
    Shape keys = {3, {packer->form.lines, 1, packer->form.length}};
    ValueId asking = query == ATOM_SLOT ? build_reshape(&packer->b, pack_input_of_slots(packer, SKY_FILL_SLOT), &slots)
                                        : build_reshape(&packer->b, pack_input(packer, SKY_FILL_SLOT), &tokens);
    ValueId asked = build_reshape(&packer->b, pack_input(packer, SKY_FILL_SLOT), &keys);
    return build_binary(&packer->b, OP_Equal, asking, asked);
}

ValueId pack_mask_pairs(Packer *packer, const Packed *x, int query, int key, double number)
{
    const Packed apart = pack_apart(packer, x);
    int order[] = {layout_find_kind(&apart.layout, ATOM_LINE), query, key};
    ValueId mask = spread(packer, same_rows(packer, apart.layout.atoms[query].kind), &apart.layout, order, 3);
    ValueId other = graph_constant_scalar(packer->graph, graph_value(packer->graph, x->value)->dtype, number);
    ValueId masked = build_where(&packer->b, mask, apart.value, other);
    const Shape shape = *shape_of(packer, x->value);
    return build_reshape(&packer->b, masked, &shape);
}

ValueId pack_spread(Packer *packer, ValueId value, const Layout *layout, int query)
{
    int line = layout_find_kind(layout, ATOM_LINE);
    return spread(packer, value, layout, (int[]){line, query}, 2);
}

/* ---- Tables of positions ---- */

static bool counts_up(const Value *indices)
{
    for (int64_t i = 0; i < shape_elements(&indices->shape); i++)
        if (element_as_integer(indices->dtype, indices->data, i) != i) return false;
    return true;
}

/* Where the value is itself rows of a table, one for every position: the table's row for every token, [lines, length,
 * columns], instead of rows of rows. 0: it is not. */
static ValueId gather_from_table(Packer *packer, ValueId value, int axis)
{
    const Node *node = graph_producer(packer->graph, value);
    if (node->op != OP_Gather || node_integer(node, "axis", 0) != 0) return 0;
    ValueId table = node->inputs[0], numbers = node->inputs[1];
    const Attribute *attributes = node->attributes; /* rows without a gradient among them */
    int attribute_count = node->attribute_count;
    const Value *indices = graph_value(packer->graph, numbers);
    if (shape_of(packer, table)->rank != 2 || indices->role != ROLE_CONSTANT || axis >= indices->shape.rank ||
        indices->shape.dim[axis] != packer->form.longest || shape_elements(&indices->shape) != packer->form.longest)
        return 0;
    bool in_order = counts_up(indices);
    ValueId position = pack_input(packer, SKY_FILL_POSITION);
    if (!in_order) {
        numbers = build_reshape(&packer->b, numbers, &(Shape){1, {packer->form.longest}});
        position = build_gather(&packer->b, numbers, position);
    }
    return build_node(&packer->b, OP_Gather, (ValueId[]){table, position}, 2, attributes, attribute_count);
}

ValueId pack_gather_positions(Packer *packer, ValueId value, int axis, const Layout *layout)
{
    int line_atom = layout_find_kind(layout, ATOM_LINE), rank = layout->rank;
    if (line_atom < 0) return 0;
    int line = layout->atoms[line_atom].axis;
    Shape shape = *shape_of(packer, value), full = {.rank = rank}, rows = {.rank = 1, {packer->form.longest}};
    int lead = rank - shape.rank;
    for (int i = 0; i < rank; i++) full.dim[i] = i < lead ? 1 : shape.dim[i - lead];
    if (line == axis || full.dim[line] != 1 || layout_find(layout, line, ATOM_LINE) < 0) return 0;
    int64_t perm[MAX_RANK] = {axis};
    for (int i = 0, next = 1; i < rank; i++)
        if (i != axis) perm[next++] = i;
    for (int i = 0; i < rank; i++)
        if (i != axis && i != line) rows.dim[rows.rank++] = full.dim[i];
    ValueId gathered = rank == 3 && axis >= lead ? gather_from_table(packer, value, axis - lead) : 0;
    if (!gathered) {
        value = build_transpose(&packer->b, build_reshape(&packer->b, value, &full), perm);
        ValueId position = pack_input(packer, SKY_FILL_POSITION);
        gathered = build_gather(&packer->b, build_reshape(&packer->b, value, &rows), position);
    }
    int64_t back[MAX_RANK];
    for (int i = 0, next = 2; i < rank; i++) back[i] = i == line ? 0 : i == axis ? 1 : next++;
    return build_transpose(&packer->b, gathered, back);
}

/* Row and column of pairs as far apart as those of the longer lines; 0, 0 for those that no row has. */
static int64_t *places_of_pairs(int64_t length, int64_t longest)
{
    int64_t *places = memory_allocate((size_t)(length * length) * sizeof *places);
    for (int64_t query = 0; query < length; query++)
        for (int64_t key = 0; key < length; key++) {
            int64_t row = query > key ? query - key : 0, column = key > query ? key - query : 0;
            places[query * length + key] = row < longest && column < longest ? row * longest + column : 0;
        }
    return places;
}

ValueId pack_widen_pairs(Packer *packer, ValueId value, int query, int key)
{
    int64_t length = packer->form.length, longest = packer->form.longest;
    Shape from = *shape_of(packer, value), pairs = {.rank = 1, {longest * longest}}, square = {2, {length, length}};
    int64_t perm[MAX_RANK] = {query, key}, back[MAX_RANK];
    if (length == longest) return value;
    for (int i = 0, next = 2; i < from.rank; i++)
        if (i != query && i != key) perm[next++] = i;
    for (int i = 2; i < from.rank; i++) pairs.dim[pairs.rank++] = from.dim[perm[i]];
    for (int i = 0; i < from.rank; i++) back[perm[i]] = i;
    FREED int64_t *places = places_of_pairs(length, longest);
    ValueId indices = graph_add_constant(packer->graph, NULL, DTYPE_I64, &square, places);
    value = build_reshape(&packer->b, build_transpose(&packer->b, value, perm), &pairs);
    return build_transpose(&packer->b, build_gather(&packer->b, value, indices), back);
}
