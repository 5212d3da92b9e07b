/* Padding: with a constant, or with elements of the tensor itself. */
#include <string.h>

#include "frontend/onnx/normalize.h"

typedef enum PadMode { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_WRAP, PAD_MODES } PadMode;

typedef struct PadNode {
    OnnxNode *node;
    PadMode mode;
    ValueId filler; /* PAD_CONSTANT: a scalar */
    const int64_t *pads, *axes;
    int axis_count; /* -1: all axes */
} PadNode;

static bool read_pad(PadNode *pad, DType type)
{
    static const char *const modes[PAD_MODES] = {"constant", "edge", "reflect", "wrap"};
    OnnxNode *node = pad->node;
    int rank = shape_of(node, node->inputs[0]).rank;
    double number = node->opset < 11 ? float_attribute(node, "value", 0) : 0;
    bool marked[MAX_RANK];
    const char *mode = string_attribute(node, "mode", "constant");
    int count = integers_since(node, 11, node->opset < 2 ? "paddings" : "pads", 1, &pad->pads);
    pad->axis_count = node->opset >= 18 ? constant_integers(node, 3, &pad->axes) : -1;
    if (pad->axis_count >= 0 && !mark_axes(node, pad->axes, pad->axis_count, rank, marked)) return false;
    for (pad->mode = PAD_CONSTANT; pad->mode < PAD_MODES && strcmp(mode, modes[pad->mode]) != 0;) pad->mode++;
    if (pad->mode == PAD_MODES) return node_error(node, NULL, "the mode '%s' is unknown", mode);
    if (count != 2 * (pad->axis_count < 0 ? rank : pad->axis_count))
        return node_error(node, NULL, "needs two pads for each axis");
    bool given = node->opset >= 11 && has_input(node, 2);
    pad->filler = given ? emit_reshape(node, node->inputs[2], &(Shape){0}) : emit_scalar(node, type, number);
    return pad->filler != 0;
}

/* Concatenates `count` copies of the filler before or after the value along the axis. */
static ValueId pad_side(const PadNode *pad, ValueId value, int axis, int64_t count, bool before)
{
    OnnxNode *node = pad->node;
    if (!value || count <= 0) return value;
    Shape shape = shape_of(node, value);
    shape.dim[axis] = count;
    if (!check_size(node, &shape, true)) return 0;
    ValueId border = emit_expand(node, pad->filler, &shape);
    return before ? emit_concat(node, border, value, axis) : emit_concat(node, value, border, axis);
}

/* Which of `extent` elements stands at `position`, which may lie outside of them. */
static int64_t padding_source(PadMode mode, int64_t position, int64_t extent)
{
    if (mode == PAD_EDGE || extent == 1) return position < 0 ? 0 : position >= extent ? extent - 1 : position;
    int64_t period = mode == PAD_WRAP ? extent : 2 * (extent - 1), rest = position % period;
    if (rest < 0) rest += period;
    return rest < extent ? rest : period - rest; /* only reflections go back */
}

/* The axis with elements of its own on both sides. */
static ValueId pad_by_own(const PadNode *pad, ValueId value, int axis, int64_t before, int64_t after)
{
    OnnxNode *node = pad->node;
    before = before > 0 ? before : 0;
    after = after > 0 ? after : 0;
    if (!value || (before == 0 && after == 0)) return value;
    Shape shape = shape_of(node, value);
    int64_t extent = shape.dim[axis];
    if (extent == 0) return node_error(node, NULL, "pads axis %d, which is empty, with elements of its own", axis), 0;
    if (before > MAX_CONSTANT_ELEMENTS || after > MAX_CONSTANT_ELEMENTS)
        return node_error(node, NULL, "pads axis %d by more than %lld", axis, (long long)MAX_CONSTANT_ELEMENTS), 0;
    void *data;
    ValueId sources = emit_constant(node, DTYPE_I64, &(Shape){1, {before + extent + after}}, &data);
    if (!sources) return 0;
    for (int64_t i = 0; i < before + extent + after; i++)
        ((int64_t *)data)[i] = padding_source(pad->mode, i - before, extent);
    return emit_lookup(node, value, sources, axis);
}

/* Negative pads drop elements, before anything is padded. */
static ValueId drop_sides(OnnxNode *node, ValueId value, int axis, int64_t before, int64_t after)
{
    if (!value || (before >= 0 && after >= 0)) return value;
    int64_t extent = shape_of(node, value).dim[axis];
    if (before < -extent || after < -extent || (before < 0 && after < 0 && after < -(extent + before)))
        return node_error(node, NULL, "removes more elements than the axis has"), 0;
    int64_t start = before < 0 ? -before : 0;
    return emit_part(node, value, axis, start, extent - start + (after < 0 ? after : 0));
}

bool normalize_pad(OnnxNode *node)
{
    PadNode pad = {.node = node};
    ValueId value = node->inputs[0];
    int rank = shape_of(node, value).rank;
    if (!read_pad(&pad, dtype_of(node, value))) return false;
    int padded = pad.axis_count < 0 ? rank : pad.axis_count;
    for (int i = 0; i < padded; i++) {
        int axis = (int)(pad.axis_count < 0 ? i : pad.axes[i] < 0 ? pad.axes[i] + rank : pad.axes[i]);
        int64_t before = pad.pads[i], after = pad.pads[padded + i];
        value = drop_sides(node, value, axis, before, after);
        if (pad.mode == PAD_CONSTANT)
            value = pad_side(&pad, pad_side(&pad, value, axis, before, true), axis, after, false);
        else
            value = pad_by_own(&pad, value, axis, before, after);
    }
    return set_output(node, 0, value);
}
