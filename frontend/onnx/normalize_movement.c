#include <string.h>

#include "frontend/onnx/normalize.h"

static bool too_many_dimensions(const OnnxNode *node, int64_t rank)
{
    return node_unsupported(node, NULL, "makes a tensor of %lld dimensions; at most %d are supported", (long long)rank,
                            MAX_RANK);
}

bool normalize_reshape(OnnxNode *node)
{
    const int64_t *dims;
    int count = integers_since(node, 5, "shape", 1, &dims), unknown = -1;
    bool allow_zero = integer_attribute(node, "allowzero", 0);
    if (count < 0) return node_error(node, NULL, "has no shape");
    if (count > MAX_RANK) return too_many_dimensions(node, count);
    Shape present = shape_of(node, node->inputs[0]), shape = {.rank = count};
    for (int i = 0; i < count; i++) {
        shape.dim[i] = dims[i];
        if (dims[i] == 0 && !allow_zero) {
            if (i >= present.rank)
                return node_error(node, NULL, "keeps dimension %d, which its input does not have", i);
            shape.dim[i] = present.dim[i];
        }
        if (dims[i] >= 0) continue;
        if (dims[i] != -1 || unknown >= 0) return node_error(node, NULL, "has more than one open dimension");
        unknown = i;
        shape.dim[i] = 1;
    }
    int64_t elements = shape_elements(&present), known = shape_elements(&shape);
    if (unknown >= 0 && known > 0 && elements % known == 0) {
        shape.dim[unknown] = elements / known;
        known = elements;
    }
    char from[256], to[256];
    if (known != elements)
        return node_error(node, NULL, "cannot reshape %s to %s", shape_format(&present, from),
                          shape_format(&shape, to));
    return set_output(node, 0, emit_reshape(node, node->inputs[0], &shape));
}

bool normalize_flatten(OnnxNode *node)
{
    Shape present = shape_of(node, node->inputs[0]), shape = {2, {1, 1}};
    int64_t axis = integer_attribute(node, "axis", 1);
    if (axis != present.rank && !check_axis(node, &axis, present.rank)) return false;
    for (int i = 0; i < present.rank; i++) shape.dim[i >= axis] *= present.dim[i];
    return set_output(node, 0, emit_reshape(node, node->inputs[0], &shape));
}

bool normalize_squeeze(OnnxNode *node)
{
    Shape present = shape_of(node, node->inputs[0]), shape = {0};
    const int64_t *axes;
    int count = integers_since(node, 13, "axes", 1, &axes);
    bool marked[MAX_RANK];
    if (count >= 0 && !mark_axes(node, axes, count, present.rank, marked)) return false;
    for (int i = 0; i < present.rank; i++) {
        bool drop = count < 0 ? present.dim[i] == 1 : marked[i];
        if (drop && present.dim[i] != 1)
            return node_error(node, NULL, "drops axis %d, whose extent is %lld", i, (long long)present.dim[i]);
        if (!drop) shape.dim[shape.rank++] = present.dim[i];
    }
    return set_output(node, 0, emit_reshape(node, node->inputs[0], &shape));
}

bool normalize_unsqueeze(OnnxNode *node)
{
    Shape present = shape_of(node, node->inputs[0]), shape = {0};
    const int64_t *axes;
    int count = integers_since(node, 13, "axes", 1, &axes);
    bool marked[MAX_RANK];
    if (count < 0) return node_error(node, NULL, "has no axes");
    if (count > MAX_RANK - present.rank) return too_many_dimensions(node, (int64_t)present.rank + count);
    if (!mark_axes(node, axes, count, present.rank + count, marked)) return false;
    shape.rank = present.rank + count;
    for (int i = 0, from = 0; i < shape.rank; i++) shape.dim[i] = marked[i] ? 1 : present.dim[from++];
    return set_output(node, 0, emit_reshape(node, node->inputs[0], &shape));
}

bool normalize_transpose(OnnxNode *node)
{
    const int64_t *perm;
    int rank = shape_of(node, node->inputs[0]).rank, count = integers_attribute(node, "perm", &perm);
    int64_t order[MAX_RANK];
    bool marked[MAX_RANK];
    if (count >= 0 && count != rank)
        return node_error(node, NULL, "permutes %d axes of a tensor of rank %d", count, rank);
    if (count >= 0 && !mark_axes(node, perm, count, rank, marked)) return false;
    for (int i = 0; i < rank; i++) order[i] = count < 0 ? rank - 1 - i : perm[i] < 0 ? perm[i] + rank : perm[i];
    return set_output(node, 0, emit_transpose(node, node->inputs[0], order));
}

/* ONNX broadcasts input and given shape with each other: where that has extent 1, the input's stays. */
bool normalize_expand(OnnxNode *node)
{
    const int64_t *dims;
    int count = constant_integers(node, 1, &dims);
    if (count < 0) return false;
    if (count > MAX_RANK) return too_many_dimensions(node, count);
    Shape present = shape_of(node, node->inputs[0]), shape = {.rank = present.rank > count ? present.rank : count};
    for (int i = 0; i < shape.rank; i++) {
        int from = i - (shape.rank - present.rank), to = i - (shape.rank - count);
        int64_t have = from >= 0 ? present.dim[from] : 1, want = to >= 0 ? dims[to] : 1;
        if (have != want && have != 1 && want != 1)
            return node_error(node, NULL, "cannot expand an extent of %lld to %lld", (long long)have, (long long)want);
        shape.dim[i] = have == 1 ? want : have;
    }
    bool constant = graph_value(node->graph, node->inputs[0])->role == ROLE_CONSTANT;
    return check_size(node, &shape, constant) && set_output(node, 0, emit_expand(node, node->inputs[0], &shape));
}

/* One axis at a time, the tensor is seen as [before, 1, rest], expanded along the middle, and seen whole again. */
static ValueId emit_tile(OnnxNode *node, ValueId value, const int64_t *repeats)
{
    Shape shape = shape_of(node, value);
    bool constant = graph_value(node->graph, value)->role == ROLE_CONSTANT;
    for (int axis = shape.rank - 1; axis >= 0; axis--) {
        Shape parts = {3, {1, 1, 1}};
        for (int i = 0; i < shape.rank; i++) parts.dim[i < axis ? 0 : 2] *= shape.dim[i];
        value = emit_reshape(node, value, &parts);
        parts.dim[1] = repeats[axis];
        if (!check_size(node, &parts, constant)) return 0;
        value = emit_expand(node, value, &parts);
        shape.dim[axis] *= repeats[axis];
        value = emit_reshape(node, value, &shape);
    }
    return value;
}

/* Before opset 6 inputs say how many copies, and along which axis. */
static bool normalize_old_tile(OnnxNode *node)
{
    if (!has_input(node, 1) || !has_input(node, 2)) return node_error(node, NULL, "lacks the copies or their axis");
    double tiles = constant_scalar(node, 1, 1), number = constant_scalar(node, 2, 0);
    bool whole = tiles >= 0 && tiles <= (double)MAX_ELEMENTS && number >= -MAX_RANK && number <= MAX_RANK;
    int64_t axis = whole ? (int64_t)number : 0, repeats[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!whole) return node_error(node, NULL, "has an impossible number of copies, or axis");
    if (!check_axis(node, &axis, shape_of(node, node->inputs[0]).rank)) return false;
    repeats[axis] = (int64_t)tiles;
    return set_output(node, 0, emit_tile(node, node->inputs[0], repeats));
}

bool normalize_tile(OnnxNode *node)
{
    if (node->opset < 6) return normalize_old_tile(node);
    const int64_t *repeats;
    int count = constant_integers(node, 1, &repeats), rank = shape_of(node, node->inputs[0]).rank;
    if (count != rank) return node_error(node, NULL, "has %d repeats for a tensor of rank %d", count, rank);
    return set_output(node, 0, emit_tile(node, node->inputs[0], repeats));
}

/* The elements [start, end) by `step` of an axis of extent `dim`, in numpy's reading. */
typedef struct SliceRange {
    int64_t start, step, count;
} SliceRange;

static SliceRange slice_range(int64_t dim, int64_t start, int64_t end, int64_t step)
{
    if (step == INT64_MIN) step = -INT64_MAX;
    if (start < 0) start += dim;
    if (end < 0) end += dim;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? dim : dim - 1;
    start = start < low ? low : start > high ? high : start;
    end = end < low ? low : end > high ? high : end;
    int64_t distance = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    SliceRange range = {start, step, distance > 0 ? 1 + (distance - 1) / stride : 0};
    if (range.count <= 1) range.step = 1;
    if (range.count == 0) range.start = 0;
    return range;
}

typedef struct SliceArguments {
    const int64_t *starts, *ends, *axes, *steps;
    int start_count, end_count, axis_count, step_count;
} SliceArguments;

static bool read_slice(OnnxNode *node, SliceArguments *slice)
{
    slice->step_count = -1;
    slice->start_count = integers_since(node, 10, "starts", 1, &slice->starts);
    slice->end_count = integers_since(node, 10, "ends", 2, &slice->ends);
    slice->axis_count = integers_since(node, 10, "axes", 3, &slice->axes);
    if (node->opset >= 10) slice->step_count = constant_integers(node, 4, &slice->steps);
    int count = slice->start_count;
    if (count < 0 || slice->end_count != count || (slice->axis_count >= 0 && slice->axis_count != count) ||
        (slice->step_count >= 0 && slice->step_count != count))
        return node_error(node, NULL, "starts, ends, axes and steps differ in length");
    return true;
}

bool normalize_slice(OnnxNode *node)
{
    SliceArguments slice = {0};
    bool marked[MAX_RANK];
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t starts[MAX_RANK] = {0}, steps[MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (!read_slice(node, &slice)) return false;
    if (slice.axis_count < 0 && slice.start_count > shape.rank)
        return node_error(node, NULL, "slices %d axes of a tensor of rank %d", slice.start_count, shape.rank);
    if (slice.axis_count >= 0 && !mark_axes(node, slice.axes, slice.axis_count, shape.rank, marked)) return false;
    for (int i = 0; i < slice.start_count; i++) {
        int64_t axis = slice.axis_count < 0 ? i : slice.axes[i];
        if (axis < 0) axis += shape.rank;
        int64_t step = slice.step_count < 0 ? 1 : slice.steps[i];
        if (step == 0) return node_error(node, NULL, "slices with step 0");
        SliceRange range = slice_range(shape.dim[axis], slice.starts[i], slice.ends[i], step);
        starts[axis] = range.start;
        steps[axis] = range.step;
        shape.dim[axis] = range.count;
    }
    return set_output(node, 0, emit_slice(node, node->inputs[0], starts, steps, &shape));
}

/* The extents of the parts: given, or as equal as possible with the last one smaller. */
static bool split_sizes(OnnxNode *node, int64_t extent, const int64_t **sizes)
{
    int64_t parts = node->output_count, left = extent;
    int count = integers_since(node, 13, "split", 1, sizes);
    if (count < 0) {
        if (node->opset >= 18) parts = integer_attribute(node, "num_outputs", parts);
        if (parts != node->output_count)
            return node_error(node, NULL, "has %d outputs for %lld parts", node->output_count, (long long)parts);
        if (node->opset < 18 && extent % parts)
            return node_error(node, NULL, "cannot split %lld into %lld equal parts", (long long)extent,
                              (long long)parts);
        int64_t *equal = arena_new_array(&node->importer->arena, int64_t, (size_t)parts),
                size = (extent + parts - 1) / parts;
        for (int64_t i = 0; i < parts; left -= equal[i++]) equal[i] = left < size ? left : size;
        *sizes = equal;
        return true;
    }
    if (count != node->output_count)
        return node_error(node, NULL, "has %d outputs for %d parts", node->output_count, count);
    bool fits = true;
    for (int i = 0; i < count && fits; left -= (*sizes)[i++]) fits = (*sizes)[i] >= 0 && (*sizes)[i] <= left;
    return (fits && left == 0) || node_error(node, NULL, "the sizes of its parts do not add up to the axis");
}

bool normalize_split(OnnxNode *node)
{
    Shape shape = shape_of(node, node->inputs[0]);
    int64_t axis = integer_attribute(node, "axis", 0), start = 0;
    const int64_t *sizes;
    if (!check_axis(node, &axis, shape.rank) || !split_sizes(node, shape.dim[axis], &sizes)) return false;
    for (int i = 0; i < node->output_count; start += sizes[i++])
        if (!set_output(node, i, emit_part(node, node->inputs[0], axis, start, sizes[i]))) return false;
    return true;
}

/* Its parts stay with the symbol: nothing but SequenceAt may read a sequence. */
bool normalize_split_to_sequence(OnnxNode *node)
{
    enum { MOST_PARTS = 1 << 16 };
    Shape shape = shape_of(node, node->inputs[0]), without = {.rank = shape.rank - 1};
    int64_t axis = integer_attribute(node, "axis", 0), start = 0;
    const int64_t *given = NULL;
    bool has_sizes = has_input(node, 1), listed = has_sizes && shape_of(node, node->inputs[1]).rank > 0,
         keeps = integer_attribute(node, "keepdims", 1) || has_sizes;
    int count = has_sizes ? constant_integers(node, 1, &given) : 0;
    if (count < 0 || !check_axis(node, &axis, shape.rank)) return false;
    int64_t extent = shape.dim[axis], size = listed || !has_sizes ? 1 : given[0];
    if (size < 1) return node_error(node, NULL, "cannot split into parts of %lld", (long long)size);
    int64_t parts = listed ? count : extent / size + (extent % size > 0);
    if (!parts || parts > MOST_PARTS) return node_unsupported(node, NULL, "has %lld parts", (long long)parts);
    for (int i = 0, k = 0; i < shape.rank; i++)
        if (i != axis) without.dim[k++] = shape.dim[i];
    ValueId *values = arena_new_array(&node->importer->arena, ValueId, (size_t)parts);
    for (int64_t i = 0, length; i < parts; start += length, i++) {
        length = listed ? given[i] : size < extent - start ? size : extent - start;
        if (length < 0 || length > extent - start || (i == parts - 1 && start + length != extent))
            return node_error(node, NULL, "the sizes of its parts do not add up to the axis");
        values[i] = emit_part(node, node->inputs[0], axis, start, length);
        if (!keeps) values[i] = emit_reshape(node, values[i], &without);
        if (!values[i]) return false;
    }
    Symbol *sequence = &node->importer->symbols[node->source->outputs[0]];
    sequence->parts = values;
    sequence->part_count = parts;
    return set_output(node, 0, values[0]);
}

bool normalize_sequence_at(OnnxNode *node)
{
    const Symbol *sequence = &node->importer->symbols[node->source->inputs[0]];
    const int64_t *position;
    int count = constant_integers(node, 1, &position);
    if (count < 0) return false;
    if (!sequence->parts) return node_error(node, NULL, "input 0 is no sequence");
    if (count != 1 || position[0] < -sequence->part_count || position[0] >= sequence->part_count)
        return node_error(node, NULL, "the position is outside the sequence of %lld", (long long)sequence->part_count);
    return set_output(node, 0, sequence->parts[position[0] < 0 ? position[0] + sequence->part_count : position[0]]);
}

/* Some exporters put scalars among the parts of a shape: they count as lists of one. */
bool normalize_concat(OnnxNode *node)
{
    ValueId *parts = arena_new_array(&node->importer->arena, ValueId, (size_t)node->input_count);
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i]) return node_error(node, NULL, "input %d is missing", i);
        Shape shape = shape_of(node, node->inputs[i]);
        parts[i] = shape.rank ? node->inputs[i] : emit_reshape(node, node->inputs[i], &(Shape){1, {1}});
    }
    if (node->opset >= 4 && !attribute_present(node, "axis")) return node_error(node, NULL, "has no axis");
    int64_t axis = integer_attribute(node, "axis", 1);
    if (!parts[0] || !check_axis(node, &axis, shape_of(node, parts[0]).rank)) return false;
    if (node->input_count == 1) return set_output(node, 0, parts[0]);
    return set_output(node, 0, emit_along(node, OP_Concat, parts, node->input_count, "axis", axis));
}
