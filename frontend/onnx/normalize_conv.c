/* Convolutions that are matrix products: of one tap after the other along a sequence (grouped, depthwise, dilated,
 * strided), of single points, and of patches that do not overlap. */
#include <string.h>

#include "frontend/onnx/normalize.h"

enum { MOST_TAPS = 64, MOST_SPACE = 3 };

typedef struct Convolution {
    OnnxNode *node;
    ValueId x, weight;
    Shape input, kernel; /* [batch, channels, extents...], [results, channels of a group, taps...] */
    int space;           /* spatial dimensions */
    int64_t groups, batch, channels, results;
    int64_t strides[MOST_SPACE], dilations[MOST_SPACE], before[MOST_SPACE], after[MOST_SPACE];
} Convolution;

static bool read_list(OnnxNode *node, const char *name, int64_t absent, int wanted, int64_t *list)
{
    const int64_t *values;
    int count = integers_attribute(node, name, &values);
    if (count >= 0 && count != wanted) return node_error(node, NULL, "has %d %s for %d", count, name, wanted);
    for (int i = 0; i < wanted; i++) {
        list[i] = count < 0 ? absent : values[i];
        if (list[i] < (absent ? 1 : 0) || list[i] > INT32_MAX)
            return node_unsupported(node, NULL, "has %s that are not supported", name);
    }
    return true;
}

/* Padding that keeps extents, for auto_pad. */
static void pad_same(Convolution *conv, const char *kind)
{
    for (int i = 0; i < conv->space; i++) {
        int64_t extent = conv->input.dim[2 + i], stride = conv->strides[i];
        int64_t reach = (conv->kernel.dim[2 + i] - 1) * conv->dilations[i] + 1;
        int64_t missing = ((extent + stride - 1) / stride - 1) * stride + reach - extent;
        if (missing < 0) missing = 0;
        conv->before[i] = strcmp(kind, "SAME_LOWER") == 0 ? missing - missing / 2 : missing / 2;
        conv->after[i] = missing - conv->before[i];
    }
}

static bool read_convolution(Convolution *conv)
{
    OnnxNode *node = conv->node;
    int64_t pads[2 * MOST_SPACE], taps[MOST_SPACE];
    conv->x = node->inputs[0];
    conv->weight = node->inputs[1];
    conv->input = shape_of(node, conv->x);
    conv->kernel = shape_of(node, conv->weight);
    conv->space = conv->input.rank - 2;
    if (conv->space < 1 || conv->space > MOST_SPACE || conv->kernel.rank != conv->input.rank)
        return node_unsupported(node, NULL, "convolves %d dimensions", conv->space);
    conv->groups = integer_attribute(node, "group", 1);
    if (!read_list(node, "strides", 1, conv->space, conv->strides) ||
        !read_list(node, "dilations", 1, conv->space, conv->dilations) ||
        !read_list(node, "pads", 0, 2 * conv->space, pads) || !read_list(node, "kernel_shape", 1, conv->space, taps))
        return false;
    const char *kind = string_attribute(node, "auto_pad", "NOTSET");
    conv->batch = conv->input.dim[0];
    conv->channels = conv->input.dim[1];
    conv->results = conv->kernel.dim[0];
    if (conv->groups < 1 || conv->channels != conv->groups * conv->kernel.dim[1] || conv->results % conv->groups)
        return node_error(node, NULL, "cannot split %lld channels among its groups", (long long)conv->channels);
    for (int i = 0; i < conv->space; i++) {
        conv->before[i] = pads[i];
        conv->after[i] = pads[conv->space + i];
    }
    if (strncmp(kind, "SAME", 4) == 0) pad_same(conv, kind);
    return !node_failed(node);
}

/* Adds zeros before and after the last axis. */
static ValueId padded(const Convolution *conv)
{
    OnnxNode *node = conv->node;
    ValueId x = conv->x;
    Shape zeros = conv->input;
    for (int side = 0; side < 2; side++) {
        zeros.dim[2] = side ? conv->after[0] : conv->before[0];
        if (!zeros.dim[2]) continue;
        if (!check_size(node, &zeros, true)) return 0;
        ValueId border = emit_expand(node, emit_scalar(node, dtype_of(node, conv->x), 0), &zeros);
        x = side ? emit_concat(node, x, border, 2) : emit_concat(node, border, x, 2);
    }
    return x;
}

/* Weights of one tap, [groups, results of a group, channels of a group], times the elements that it meets. */
static ValueId emit_tap(const Convolution *conv, ValueId x, int64_t tap, int64_t extent)
{
    OnnxNode *node = conv->node;
    int64_t inside = conv->kernel.dim[1], outside = conv->results / conv->groups;
    Shape met = {3, {conv->batch, conv->channels, extent}}, one = conv->kernel;
    one.dim[2] = 1;
    ValueId seen =
        emit_slice(node, x, (int64_t[]){0, 0, tap * conv->dilations[0]}, (int64_t[]){1, 1, conv->strides[0]}, &met);
    ValueId weight = emit_slice(node, conv->weight, (int64_t[]){0, 0, tap}, (int64_t[]){1, 1, 1}, &one);
    if (inside == 1 && outside == 1)
        return emit_binary(node, OP_Mul, seen, emit_reshape(node, weight, &(Shape){2, {conv->results, 1}}));
    seen = emit_reshape(node, seen, &(Shape){4, {conv->batch, conv->groups, inside, extent}});
    weight = emit_reshape(node, weight, &(Shape){3, {conv->groups, outside, inside}});
    return emit_reshape(node, emit_binary(node, OP_MatMul, weight, seen),
                        &(Shape){3, {conv->batch, conv->results, extent}});
}

static ValueId along_sequence(Convolution *conv)
{
    OnnxNode *node = conv->node;
    int64_t taps = conv->kernel.dim[2], reach = (taps - 1) * conv->dilations[0] + 1;
    int64_t extent = conv->input.dim[2] + conv->before[0] + conv->after[0];
    if (taps > MOST_TAPS) return node_unsupported(node, NULL, "has %lld taps", (long long)taps), 0;
    if (extent < reach) return node_error(node, NULL, "is longer than the sequence"), 0;
    ValueId x = padded(conv), sum = 0;
    for (int64_t t = 0; x && t < taps; t++) {
        ValueId term = emit_tap(conv, x, t, (extent - reach) / conv->strides[0] + 1);
        sum = t ? emit_binary(node, OP_Add, sum, term) : term;
    }
    return sum;
}

/* Patches that do not overlap: each is a row of channels and taps. */
static ValueId by_patches(Convolution *conv)
{
    OnnxNode *node = conv->node;
    Shape cut = {.rank = 2, .dim = {conv->batch, conv->channels}}, result = {2, {conv->batch, conv->results}};
    int64_t perm[MAX_RANK] = {0}, patches = 1, taps = conv->channels;
    bool fits = conv->groups == 1;
    for (int i = 0; i < conv->space; i++) {
        int64_t size = conv->kernel.dim[2 + i], extent = conv->input.dim[2 + i];
        fits = fits && conv->strides[i] == size && !conv->before[i] && !conv->after[i] &&
               (conv->dilations[i] == 1 || size == 1) && extent % size == 0;
        cut.dim[cut.rank++] = extent / size;
        cut.dim[cut.rank++] = size;
        result.dim[result.rank++] = extent / size;
        perm[1 + i] = 2 + 2 * i;
        perm[2 + conv->space + i] = 3 + 2 * i;
        patches *= extent / size;
        taps *= size;
    }
    perm[1 + conv->space] = 1;
    if (!fits)
        return node_unsupported(node, other_models_hint, "is a convolution along %d axes with patches that overlap",
                                conv->space),
               0;
    ValueId rows = emit_transpose(node, emit_reshape(node, conv->x, &cut), perm);
    rows = emit_reshape(node, rows, &(Shape){3, {conv->batch, patches, taps}});
    ValueId weight = emit_swap_axes(node, emit_reshape(node, conv->weight, &(Shape){2, {conv->results, taps}}), 0, 1);
    return emit_reshape(node, emit_swap_axes(node, emit_binary(node, OP_MatMul, rows, weight), 1, 2), &result);
}

bool normalize_conv(OnnxNode *node)
{
    Convolution conv = {.node = node};
    if (!read_convolution(&conv)) return false;
    ValueId result = conv.space == 1 ? along_sequence(&conv) : by_patches(&conv);
    if (!result || !has_input(node, 2)) return set_output(node, 0, result);
    Shape bias = {.rank = conv.space + 1, .dim = {conv.results, 1, 1, 1}};
    return set_output(node, 0, emit_binary(node, OP_Add, result, emit_reshape(node, node->inputs[2], &bias)));
}
