#include "frontend/onnx/normalize.h"

#include <string.h>

/* Indices that are known now must lie inside the axis: programs check only those that come with the data. */
static bool check_indices(const OnnxNode *node, ValueId indices, int64_t extent)
{
    const Value *value = graph_value(node->graph, indices);
    if (value->role != ROLE_CONSTANT || !dtype_is_integer(value->dtype)) return true;
    for (int64_t i = 0; i < shape_elements(&value->shape); i++) {
        int64_t index = element_as_integer(value->dtype, value->data, i);
        if (index < -extent || index >= extent)
            return node_error(node, NULL, "reads index %lld of an axis of %lld elements", (long long)index,
                              (long long)extent);
    }
    return true;
}

/* The only row that is all zeros, as PyTorch makes that of padding; -1: there is none, or several. */
static int64_t only_row_of_zeros(const Value *table, bool *several)
{
    size_t row = (size_t)table->shape.dim[1] * dtype_size(table->dtype);
    int64_t found = -1;
    for (int64_t r = 0; table->data && row && r < table->shape.dim[0]; r++) {
        const char *bytes = (const char *)table->data + (size_t)r * row;
        if (*bytes || memcmp(bytes, bytes + 1, row - 1) != 0) continue;
        *several = found >= 0;
        if (*several) return -1;
        found = r;
    }
    return found;
}

/* Of a table in which the model looks up what its inputs say, once. Few rows are those of types or positions. */
static void note_padding(OnnxNode *node, ValueId table)
{
    enum { FEW = 100 };
    ImportedModel *model = node->importer->model;
    const Value *value = graph_value(node->graph, table);
    PaddingRow padding = {table, padding_row(&model->arena, node->source->proto), false};
    if (padding.row >= value->shape.dim[0] || (padding.row < 0 && !model->torchscript)) return;
    if (padding.row < 0) {
        if (value->role != ROLE_PARAMETER || value->shape.rank != 2 ||
            graph_value(node->graph, node->inputs[1])->role == ROLE_CONSTANT)
            return;
        bool several = false;
        padding.row = only_row_of_zeros(value, &several);
        padding.guessed = padding.row >= 0;
        if (!padding.guessed && !several && value->shape.dim[0] <= FEW) return;
    }
    for (size_t p = 0; p < model->padding_count; p++)
        if (model->padding_rows[p].table == table && model->padding_rows[p].row == padding.row) return;
    array_push(model->padding_rows, model->padding_count, model->padding_capacity, padding);
}

bool normalize_gather(OnnxNode *node)
{
    int64_t axis = integer_attribute(node, "axis", 0);
    Shape shape = shape_of(node, node->inputs[0]);
    if (!check_axis(node, &axis, shape.rank) || !check_indices(node, node->inputs[1], shape.dim[axis])) return false;
    if (axis == 0 && node->rule->opcode == OP_Gather) note_padding(node, node->inputs[0]);
    return set_output(node, 0, emit_along(node, node->rule->opcode, node->inputs, 2, "axis", axis));
}

/* A constant matrix [rows, columns] of booleans: whether column - row lies in low ... high. */
static ValueId emit_band(OnnxNode *node, int64_t rows, int64_t columns, int64_t low, int64_t high)
{
    Shape shape = {2, {rows, columns}};
    void *data;
    ValueId result = emit_constant(node, DTYPE_BOOL, &shape, &data);
    unsigned char *mask = data;
    if (!result) return 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) mask[i * columns + j] = j - i >= low && j - i <= high;
    return result;
}

bool normalize_trilu(OnnxNode *node)
{
    ValueId x = node->inputs[0];
    Shape shape = shape_of(node, x);
    bool upper = integer_attribute(node, "upper", 1);
    double diagonal = constant_scalar(node, 1, 0);
    if (shape.rank < 2) return node_error(node, NULL, "takes matrices, not a tensor of rank %d", shape.rank);
    int64_t k = diagonal > INT32_MAX ? INT32_MAX : diagonal < INT32_MIN ? INT32_MIN : (int64_t)diagonal;
    ValueId mask = emit_band(node, shape.dim[shape.rank - 2], shape.dim[shape.rank - 1], upper ? k : INT64_MIN,
                             upper ? INT64_MAX : k);
    return set_output(node, 0, emit_where(node, mask, x, emit_scalar(node, dtype_of(node, x), 0)));
}

/* Sums of prefixes are sums over rows of a triangle: y[i] = sum over j of (j <= i ? x[j] : 0). Quadratic in the extent
 * of the axis, which for the position ids that BERT relatives compute this way is nothing. */
bool normalize_cumsum(OnnxNode *node)
{
    ValueId x = node->inputs[0];
    DType type = dtype_of(node, x);
    Shape shape = shape_of(node, x);
    const int64_t *axes;
    bool exclusive = integer_attribute(node, "exclusive", 0), reverse = integer_attribute(node, "reverse", 0);
    if (constant_integers(node, 1, &axes) != 1) return node_error(node, NULL, "needs one axis");
    int64_t axis = axes[0];
    if (!check_axis(node, &axis, shape.rank)) return false;

    int last = shape.rank - 1;
    x = emit_swap_axes(node, x, (int)axis, last);
    if (!x) return false;
    Shape moved = shape_of(node, x), rows = {3, {1, 1, moved.dim[last]}};
    for (int i = 0; i < last; i++) rows.dim[0] *= moved.dim[i];
    int64_t low = reverse ? (exclusive ? 1 : 0) : INT64_MIN, high = reverse ? INT64_MAX : exclusive ? -1 : 0;
    ValueId triangle = emit_band(node, rows.dim[2], rows.dim[2], low, high);
    if (!triangle) return false;
    ValueId masked = emit_where(node, triangle, emit_reshape(node, x, &rows), emit_scalar(node, type, 0));
    ValueId sums = emit_reshape(node, emit_reduce(node, OP_ReduceSum, masked, (int64_t[]){2}, 1, false), &moved);
    return set_output(node, 0, emit_swap_axes(node, sums, (int)axis, last));
}

bool normalize_one_hot(OnnxNode *node)
{
    ValueId indices = emit_cast(node, node->inputs[0], DTYPE_I64), values = node->inputs[2];
    double number = constant_scalar(node, 1, 0);
    int64_t axis = integer_attribute(node, "axis", -1);
    if (!indices) return false;
    if (!(number >= 1 && number <= (double)MAX_CONSTANT_ELEMENTS))
        return node_error(node, NULL, "has an impossible depth");
    int64_t depth = (int64_t)number;
    Shape shape = shape_of(node, indices), pair = shape_of(node, values);
    if (shape.rank == MAX_RANK) return node_unsupported(node, NULL, "makes a tensor of %d dimensions", MAX_RANK + 1);
    if (pair.rank != 1 || pair.dim[0] != 2) return node_error(node, NULL, "needs an off value and an on value");
    if (!check_axis(node, &axis, shape.rank + 1)) return false;

    ValueId range = emit_counting(node, 0, &(Shape){1, {depth}});
    if (!range) return false;
    Shape column = shape, along = {.rank = shape.rank - (int)axis + 1, .dim = {depth}};
    column.rank++;
    for (int i = shape.rank; i > axis; i--) column.dim[i] = column.dim[i - 1];
    column.dim[axis] = 1;
    for (int i = 1; i < along.rank; i++) along.dim[i] = 1;

    ValueId negative = emit_binary(node, OP_Less, indices, emit_scalar(node, DTYPE_I64, 0));
    ValueId wrapped = emit_binary(node, OP_Add, indices, emit_scalar(node, DTYPE_I64, (double)depth));
    ValueId index = emit_reshape(node, emit_where(node, negative, wrapped, indices), &column);
    ValueId hit = emit_binary(node, OP_Equal, index, emit_reshape(node, range, &along));
    ValueId off = emit_part(node, values, 0, 0, 1), on = emit_part(node, values, 0, 1, 1);
    return set_output(node, 0, emit_where(node, hit, on, off));
}
