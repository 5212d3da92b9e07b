/* Dropout of packed rows: an element is numbered as in the tensor of the whole batch with every row padded to the
 * length of a line. */
#include <stdlib.h>
#include <string.h>

#include "graph/ops/operator.h"
#include "graph/passes/pack_internal.h"

/* What one step of each kind adds to an element's number; 0 where there is no such dimension. */
typedef struct Numbering {
    int64_t row, query, key, unit; /* unit divides the others */
    int query_atom, key_atom;      /* -1: none */
} Numbering;

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    for (int64_t rest; b; a = b, b = rest) rest = a % b;
    return a;
}

static ValueId times(Packer *packer, ValueId value, int64_t factor)
{
    ValueId number = graph_constant_scalar(packer->graph, DTYPE_I64, (double)factor);
    return factor == 1 ? value : build_binary(&packer->b, OP_Mul, value, number);
}

static ValueId sum(Packer *packer, ValueId a, ValueId b)
{
    return a && b ? build_binary(&packer->b, OP_Add, a, b) : a ? a : b;
}

/* Such an input, or that of rows' first tokens, as int64, times a factor; 0 if that is 0. */
static ValueId scaled_input(Packer *packer, SkyFill fill, bool of_slots, int64_t factor)
{
    if (!factor) return 0;
    ValueId input = of_slots ? pack_input_of_slots(packer, fill) : pack_input(packer, fill);
    return times(packer, build_cast(&packer->b, input, DTYPE_I64), factor);
}

/* The number of each token's, or slot's, first element, in units: rows and positions count from the row's own first
 * token, keys, whose dimension the kernel itself counts, from the line's. */
static ValueId first_elements(Packer *packer, const Numbering *numbering, bool of_slots)
{
    int64_t unit = numbering->unit, length = packer->form.length;
    ValueId rows = scaled_input(packer, SKY_FILL_ROW, of_slots, numbering->row / unit);
    ValueId positions = scaled_input(packer, SKY_FILL_POSITION, of_slots, (numbering->query + numbering->key) / unit);
    ValueId number = sum(packer, rows, positions);
    if (!numbering->key) return number;
    FREED int64_t *place = memory_allocate((size_t)length * sizeof *place);
    for (int64_t i = 0; i < length; i++) place[i] = -i * (numbering->key / unit);
    ValueId places = graph_add_constant(packer->graph, NULL, DTYPE_I64, &(Shape){2, {1, length}}, place);
    if (of_slots) {
        Shape flat = {1, {length}};
        ValueId table =
            graph_add_constant(packer->graph, NULL, DTYPE_I64, &flat, graph_value(packer->graph, places)->data);
        ValueId lines = graph_constant_scalar(packer->graph, DTYPE_I32, (double)length);
        ValueId in_line = build_binary(&packer->b, OP_Mod, pack_input(packer, SKY_FILL_FIRST), lines);
        places = build_gather(&packer->b, table, in_line);
    }
    return sum(packer, number, places);
}

/* What the kernel still counts: all but lines, slots and queries. The strides of atoms that share a dimension follow
 * from that of the dimension. */
static Numbering number_atoms(const Layout *layout, const int64_t *positions, int64_t strides[LAYOUT_MOST_ATOMS])
{
    Numbering numbering = {.query_atom = -1, .key_atom = -1};
    int64_t stride = 0;
    for (int i = layout->count - 1; i >= 0; i--) {
        const Atom *atom = &layout->atoms[i];
        bool inner = i + 1 == layout->count || layout->atoms[i + 1].axis != atom->axis;
        if (inner) stride = positions[1 + atom->axis];
        strides[i] = stride;
        if (atom->kind == ATOM_TOKEN && numbering.key_atom < 0 &&
            layout_count_kind(layout, ATOM_TOKEN) + layout_count_kind(layout, ATOM_SLOT) == 2) {
            numbering.key_atom = i;
            numbering.key = stride;
        } else if (atom->kind == ATOM_TOKEN || atom->kind == ATOM_SLOT) {
            numbering.query_atom = i;
            numbering.query = atom->kind == ATOM_TOKEN ? stride : 0;
            strides[i] = 0;
        } else if (atom->kind == ATOM_LINE) {
            numbering.row = stride;
            strides[i] = 0;
        }
        stride *= atom->before;
    }
    numbering.unit = greatest_divisor(greatest_divisor(numbering.row, numbering.query), numbering.key);
    return numbering;
}

bool pack_dropout(Packer *packer)
{
    const Node *node = &packer->node;
    Packed x = {node->inputs[0], packer->layouts[node->inputs[0]]};
    const Attribute *positions = node_attribute(node, "positions");
    int64_t strides[LAYOUT_MOST_ATOMS], numbers[1 + MAX_RANK] = {positions->integers[0]};
    if (!node_integer(node, "row", 0) || layout_find_kind(&x.layout, ATOM_LINE) < 0)
        return pack_refuse(packer, "drops the same elements of all rows");
    const Numbering numbering = number_atoms(&x.layout, positions->integers, strides);
    if (numbering.query_atom < 0 || numbering.row != node_integer(node, "row", 0))
        return pack_refuse(packer, "numbers the elements that it drops in another order than rows have");
    Packed apart = pack_apart(packer, &x);
    bool of_slots = x.layout.atoms[numbering.query_atom].kind == ATOM_SLOT;
    ValueId first = first_elements(packer, &numbering, of_slots);
    first = pack_spread(packer, first, &apart.layout, numbering.query_atom);
    for (int i = 0; i < apart.layout.count; i++) numbers[1 + apart.layout.atoms[i].axis] = strides[i];
    Attribute attributes[] = {attribute_float("ratio", node_float(node, "ratio", 0)),
                              attribute_integer("row", numbering.unit),
                              attribute_integers("positions", numbers, 1 + apart.layout.rank)};
    ValueId inputs[] = {apart.value, node->inputs[1], node->inputs[2], first};
    Shape shape = layout_shape(&x.layout);
    x.value = build_reshape(&packer->b, build_node(&packer->b, OP_Dropout, inputs, 4, attributes, 3), &shape);
    pack_become(packer, &x);
    return true;
}
