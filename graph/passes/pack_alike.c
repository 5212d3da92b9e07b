/* Rules of operators that take elements in the same place: their inputs broadcast to one layout. */
#include "graph/analysis/axes.h"
#include "graph/ops/operator.h"
#include "graph/passes/pack_internal.h"

/* The dimension of input `input` that broadcasts along `axis`; -1: none, or one of extent 1. */
static int axis_of_input(const Packer *packer, int input, int rank, int axis)
{
    const Shape *shape = pack_shape_before(packer, input);
    int at = axis - (rank - shape->rank);
    if (at < 0) return -1;
    return shape->dim[at] > 1 || layout_labelled(pack_layout_of(packer, input), at) ? at : -1;
}

/* Where one input counts slots with the lines, all do. */
static void merge_alike(Packer *packer, int count)
{
    bool merged = false;
    for (int i = 0; i < count; i++) merged |= layout_is_merged(pack_layout_of(packer, i));
    for (int i = 0; merged && i < count; i++) {
        Packed x = {packer->node.inputs[i], *pack_layout_of(packer, i)};
        if (layout_find_kind(&x.layout, ATOM_SLOT) < 0 || layout_is_merged(&x.layout)) continue;
        x = pack_merge_slots(packer, &x);
        pack_replace_input(packer, i, &x);
    }
}

bool pack_join(Packer *packer, int first, int count, int rank, int axes, Layout *joined)
{
    *joined = (Layout){.of_data = true, .rank = rank};
    for (int axis = 0; axis < axes; axis++) {
        int from = -1;
        int64_t plain = 1;
        for (int i = first; i < first + count; i++) {
            if (!packer->node.inputs[i]) continue;
            int at = axis_of_input(packer, i, rank, axis);
            if (at < 0) continue;
            plain = pack_shape_before(packer, i)->dim[at];
            if (!layout_labelled(pack_layout_of(packer, i), at)) continue;
            if (from >= 0 && !layout_same_axis(pack_layout_of(packer, i), at, pack_layout_of(packer, from),
                                               axis_of_input(packer, from, rank, axis)))
                return pack_refuse(packer, "combines values per token with values per row");
            from = i;
        }
        if (from >= 0)
            layout_copy_axis(joined, axis, pack_layout_of(packer, from), axis_of_input(packer, from, rank, axis));
        else
            layout_add_plain(joined, plain, axis);
    }
    return true;
}

/* An input that the rows have in common may depend on pairs of positions: then the dimension that no other input has
 * counts tokens, too. */
static void find_pairs(Packer *packer, int first, int count, Layout *joined)
{
    for (int i = first; i < first + count; i++) {
        ValueId input = packer->node.inputs[i];
        if (!input) continue;
        for (int axis = 0; axis < joined->rank; axis++) {
            int key = axis_of_input(packer, i, joined->rank, axis);
            if (key < 0 || layout_labelled(pack_layout_of(packer, i), key) ||
                layout_find(joined, axis, ATOM_TOKEN) < 0 || value_is_uniform(packer->graph, input, key))
                continue;
            for (int other = 0; other < joined->rank; other++) {
                int query = axis_of_input(packer, i, joined->rank, other);
                int atom = layout_find(joined, other, ATOM_PLAIN);
                if (query < 0 || atom < 0 || joined->atoms[atom].extent != packer->form.longest ||
                    layout_count_kind(joined, ATOM_TOKEN) > 1 || value_is_uniform(packer->graph, input, query) ||
                    !value_is_toeplitz(packer->graph, input, query, key))
                    continue;
                joined->atoms[atom].kind = ATOM_TOKEN;
                joined->atoms[atom].extent = packer->form.length;
            }
        }
    }
}

/* Only the first index of a dimension along which the input is the same. */
static void cut_input(Packer *packer, int i, int axis)
{
    const Layout *whole = pack_layout_of(packer, i);
    Packed cut = {build_part(&packer->b, packer->node.inputs[i], axis, 0, 1), {.of_data = whole->of_data}};
    cut.layout.rank = whole->rank;
    for (int k = 0; k < whole->rank; k++)
        if (k != axis) layout_copy_axis(&cut.layout, k, whole, k);
    pack_replace_input(packer, i, &cut);
}

bool pack_fit(Packer *packer, int i, const Layout *joined, int axes)
{
    int tokens[MAX_RANK], count = 0, rank = joined->rank;
    for (int axis = 0; axis < axes; axis++) {
        int at = axis_of_input(packer, i, rank, axis);
        if (at < 0 || !layout_labelled(joined, axis) || layout_labelled(pack_layout_of(packer, i), at)) continue;
        if (value_is_uniform(packer->graph, packer->node.inputs[i], at))
            cut_input(packer, i, at);
        else if (layout_find(joined, axis, ATOM_TOKEN) < 0)
            return pack_refuse(packer, "input %d is not the same for all rows, although it does not depend on data", i);
        else
            tokens[count++] = axis;
    }
    ValueId input = packer->node.inputs[i];
    int lead = rank - pack_shape_before(packer, i)->rank;
    if (count == 0) return true;
    if (count == 2 && value_is_toeplitz(packer->graph, input, tokens[0] - lead, tokens[1] - lead)) {
        packer->node.inputs[i] = pack_widen_pairs(packer, input, tokens[0] - lead, tokens[1] - lead);
        return true; /* nobody asks for its layout any more */
    }
    if (count > 1 || pack_layout_of(packer, i)->of_data)
        return pack_refuse(
            packer, "input %d depends on positions in the sequence in a way that packed sequences do not keep", i);
    ValueId gathered = axes == rank ? pack_gather_positions(packer, input, tokens[0], joined) : 0;
    if (gathered) packer->node.inputs[i] = gathered;
    return gathered || pack_refuse(packer, "input %d depends on positions", i);
}

static bool is_zero(const Packer *packer, int input)
{
    const Value *value = graph_value(packer->graph, packer->node.inputs[input]);
    if (value->role != ROLE_CONSTANT) return false;
    for (int64_t i = 0; i < shape_elements(&value->shape); i++)
        if (element_as_double(value->dtype, value->data, i) != 0) return false;
    return true;
}

/* Whether the result is 0 wherever inputs that are zero outside of rows are. */
static bool keeps_blocks(const Packer *packer)
{
    bool any = false, all = true;
    for (int i = 0; i < packer->node.input_count; i++) {
        if (graph_value(packer->graph, packer->node.inputs[i])->dtype == DTYPE_BOOL) continue;
        any |= pack_layout_of(packer, i)->in_blocks;
        all &= pack_layout_of(packer, i)->in_blocks || is_zero(packer, i);
    }
    return (operator_has(packer->node.op, ZERO_OF_FIRST) && pack_layout_of(packer, 0)->in_blocks) ||
           (operator_has(packer->node.op, ZERO_OF_ANY) && any) || (operator_has(packer->node.op, ZERO_OF_ALL) && all);
}

bool pack_map(Packer *packer)
{
    Layout joined;
    int count = packer->node.input_count, rank = packer->before.values[packer->node.outputs[0]].shape.rank;
    merge_alike(packer, count);
    if (!pack_join(packer, 0, count, rank, rank, &joined)) return false;
    find_pairs(packer, 0, count, &joined);
    joined.in_blocks = keeps_blocks(packer);
    for (int i = 0; i < count; i++)
        if (packer->node.inputs[i] && !pack_fit(packer, i, &joined, rank)) return false;
    return pack_finish(packer, &joined);
}
