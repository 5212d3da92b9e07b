#include "frontend/huggingface/network.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/parts.h"

const char *network_scope(Network *network, const char *scope, const char *name)
{
    return *scope ? arena_format(&network->builder.arena, "%s.%s", scope, name) : name;
}

const char *network_encoder_scope(Network *network, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const char *name = arena_format_va(&network->builder.arena, format, arguments);
    va_end(arguments);
    return arena_format(&network->builder.arena, "%s%s", network->prefix, name);
}

/* ---- Parameters ---- */

/* Other names of a parameter: in checkpoints of other classes and of early versions of the library. */
static const SafeTensor *find_tensor(Network *network, const char *name)
{
    static const char *const old_names[][2] = {{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}};
    if (!network->folder) return NULL;
    Arena *arena = &network->builder.arena;
    const char *base = arena_format(arena, "%s.", network->config->type->base);
    size_t length = strlen(base);
    const char *forms[4] = {name};
    int count = 1;
    forms[count++] = strncmp(name, base, length) == 0 ? name + length : arena_format(arena, "%s%s", base, name);
    for (int i = 0; i < 2; i++) {
        if (!text_ends_with(name, old_names[i][0])) continue;
        int stem = (int)(strlen(name) - strlen(strrchr(name, '.') + 1));
        forms[count++] = arena_format(arena, "%.*s%s", stem, name, old_names[i][1]);
        stem = (int)(strlen(forms[1]) - strlen(strrchr(forms[1], '.') + 1));
        forms[count++] = arena_format(arena, "%.*s%s", stem, forms[1], old_names[i][1]);
    }
    const SafeTensor *tensor = NULL;
    for (int i = 0; i < count && !tensor; i++) tensor = folder_tensor(network->folder, forms[i]);
    return tensor;
}

bool network_has(Network *network, const char *name) { return find_tensor(network, name) != NULL; }

static void refuse_parameter(const Network *network, const char *name, const Shape *shape, const char *problem)
{
    char object[512], wanted[256], message[512];
    if (network->diagnostics->errors >= NETWORK_MOST_ERRORS) return;
    snprintf(object, sizeof object, "tensor '%.400s'", name);
    snprintf(message, sizeof message, "%s, but config.json needs %s", problem, shape_format(shape, wanted));
    diagnostics_error(network->diagnostics, EXIT_BAD_INPUT, (Place){.file = network->folder->path, .object = object},
                      "use tensors and config.json of the same model; --head draws a head that the folder lacks", "%s",
                      message);
}

static const char *new_parameter(Network *network, const char *name, const Shape *shape, WeightFill fill)
{
    array_push(network->added, network->added_count, network->added_capacity, name);
    return onnx_builder_tensor(&network->builder, name, shape, fill, DTYPE_F32, NULL);
}

/* Its value in float32. */
static const char *given_parameter(Network *network, const char *name, const Shape *shape, const SafeTensor *tensor)
{
    int64_t offset;
    onnx_builder_tensor(&network->builder, name, shape, FILL_GIVEN, tensor->dtype, tensor->data);
    const char *file =
        dtype_size(tensor->dtype) <= sizeof(float) ? folder_place(network->folder, tensor, &offset) : NULL;
    if (file) onnx_builder_refer(&network->builder, file, offset);
    if (tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16) return name;
    const char *wide = network_cast(network, name, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT);
    array_push(network->widened, network->widened_count, network->widened_capacity, wide);
    *string_map_find(&network->parameters, name) = (uint32_t)network->widened_count;
    return wide;
}

static const char *add_parameter(Network *network, const char *name, const Shape *shape, WeightFill fill)
{
    const SafeTensor *tensor = find_tensor(network, name);
    char found[256];
    if (tensor && dtype_is_float(tensor->dtype) && shape_equal(&tensor->shape, shape))
        return given_parameter(network, name, shape, tensor);
    if (network->draws) return new_parameter(network, name, shape, fill);
    if (!tensor)
        refuse_parameter(network, name, shape, "is missing in the folder");
    else if (!dtype_is_float(tensor->dtype))
        refuse_parameter(network, name, shape,
                         arena_format(&network->builder.arena, "has the type %s, as quantised weights have",
                                      dtype_safetensors_name(tensor->dtype)));
    else
        refuse_parameter(
            network, name, shape,
            arena_format(&network->builder.arena, "has the shape %s", shape_format(&tensor->shape, found)));
    return name;
}

const char *network_parameter(Network *network, const char *name, const Shape *shape, WeightFill fill)
{
    name = arena_string(&network->builder.arena, name);
    const uint32_t *known = string_map_find(&network->parameters, name);
    if (known) return *known ? network->widened[*known - 1] : name;
    string_map_add(&network->parameters, name, 0);
    return add_parameter(network, name, shape, fill);
}

const char *network_matrix(Network *network, const char *scope, int64_t rows, int64_t columns)
{
    const Shape shape = {2, {rows, columns}};
    return network_parameter(network, network_scope(network, scope, "weight"), &shape, FILL_NORMAL);
}

const char *network_vector(Network *network, const char *scope, const char *name, WeightFill fill, int64_t size)
{
    const Shape shape = {1, {size}};
    return network_parameter(network, network_scope(network, scope, name), &shape, fill);
}

/* ---- Constants and nodes ---- */

const char *network_integer(Network *network, const char *scope, int64_t value)
{
    return onnx_builder_integers(&network->builder, scope, &value, &(Shape){0});
}

const char *network_integers(Network *network, const char *scope, const int64_t *values, size_t count)
{
    return onnx_builder_integers(&network->builder, scope, values, &(Shape){1, {(int64_t)count}});
}

const char *network_transpose(Network *network, const char *scope, const char *input, const int64_t *order, size_t rank)
{
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "Transpose", &input, 1);
    onnx_node_integers(&network->builder, node, "perm", order, rank);
    return onnx_node_output(node);
}

const char *network_gather(Network *network, const char *scope, const char *data, const char *index, int64_t axis)
{
    Onnx__NodeProto *node =
        onnx_builder_node(&network->builder, scope, "Gather", (const char *const[]){data, index}, 2);
    onnx_node_integer(&network->builder, node, "axis", axis);
    return onnx_node_output(node);
}

const char *network_cast(Network *network, const char *scope, const char *input, int32_t data_type)
{
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "Cast", &input, 1);
    onnx_node_integer(&network->builder, node, "to", data_type);
    return onnx_node_output(node);
}

const char *network_softmax(Network *network, const char *scope, const char *input)
{
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "Softmax", &input, 1);
    onnx_node_integer(&network->builder, node, "axis", -1);
    return onnx_node_output(node);
}

const char *network_embedding(Network *network, const char *scope, const char *index, int64_t rows, int64_t width)
{
    return network_gather(network, scope, network_matrix(network, scope, rows, width), index, 0);
}

/* ---- Parts ---- */

const char *network_linear_without_bias(Network *network, const char *scope, const char *input, int64_t in, int64_t out)
{
    static const int64_t swap[2] = {1, 0};
    const char *weight = network_matrix(network, scope, out, in);
    return network_apply(network, scope, "MatMul", input, network_transpose(network, scope, weight, swap, 2));
}

const char *network_linear(Network *network, const char *scope, const char *input, int64_t in, int64_t out)
{
    const char *product = network_linear_without_bias(network, scope, input, in, out);
    return network_apply(network, scope, "Add", product, network_vector(network, scope, "bias", FILL_ZEROS, out));
}

const char *network_linear_maybe(Network *network, const char *scope, const char *input, int64_t in, int64_t out,
                                 bool bias)
{
    return bias ? network_linear(network, scope, input, in, out)
                : network_linear_without_bias(network, scope, input, in, out);
}

const char *network_slice(Network *network, const char *scope, const char *input, int64_t axis, int64_t from,
                          int64_t to)
{
    return network_apply(network, scope, "Slice", input, network_list(network, scope, from),
                         network_list(network, scope, to), network_list(network, scope, axis));
}

const char *network_norm(Network *network, const char *scope, const char *input, int64_t width, double epsilon,
                         bool bias)
{
    const char *gain = network_vector(network, scope, "weight", FILL_ONES, width);
    const char *inputs[3] = {input, gain, bias ? network_vector(network, scope, "bias", FILL_ZEROS, width) : NULL};
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "LayerNormalization", inputs, bias ? 3 : 2);
    onnx_node_integer(&network->builder, node, "axis", -1);
    onnx_node_float(&network->builder, node, "epsilon", (float)epsilon);
    return onnx_node_output(node);
}

const char *network_activation(Network *network, const char *scope, Activation activation, const char *input)
{
    switch (activation) {
    case ACTIVATION_RELU: return network_apply(network, scope, "Relu", input);
    case ACTIVATION_TANH: return network_apply(network, scope, "Tanh", input);
    case ACTIVATION_SILU:
        return network_apply(network, scope, "Mul", input, network_apply(network, scope, "Sigmoid", input));
    default: break;
    }
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, scope, "Gelu", &input, 1);
    onnx_node_text(&network->builder, node, "approximate", activation == ACTIVATION_GELU_TANH ? "tanh" : "none");
    return onnx_node_output(node);
}

const char *network_length(Network *network, const char *scope, const char *axis)
{
    if (network->room) {
        const BuilderDimension dimensions[2] = {{1, NULL}, {1, NULL}};
        if (!network->length)
            onnx_builder_input(&network->builder, "length", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, dimensions, 2);
        return network->length = "length";
    }
    return network_gather(network, scope, network_apply(network, scope, "Shape", network->inputs[0]), axis, 0);
}

const char *network_first_token(Network *network, const char *scope, const char *input)
{
    return network_gather(network, scope, input, network_integer(network, scope, 0), 1);
}

const char *network_split_heads(Network *network, const char *scope, const char *input)
{
    const int64_t heads = network->config->heads, swap[4] = {0, 2, 1, 3};
    if (!network->split_shape)
        network->split_shape = network_list(network, scope, 0, 0, heads, network->config->hidden / heads);
    return network_transpose(network, scope, network_apply(network, scope, "Reshape", input, network->split_shape),
                             swap, 4);
}

const char *network_merge_heads(Network *network, const char *scope, const char *input)
{
    static const int64_t swap[4] = {0, 2, 1, 3};
    if (!network->merge_shape) network->merge_shape = network_list(network, scope, 0, 0, network->config->hidden);
    return network_apply(network, scope, "Reshape", network_transpose(network, scope, input, swap, 4),
                         network->merge_shape);
}

void network_output(Network *network, const char *name, const char *value, const BuilderDimension *dimensions, int rank)
{
    Onnx__NodeProto *node = onnx_builder_node(&network->builder, name, "Identity", &value, 1);
    onnx_node_name_output(&network->builder, node, name);
    onnx_builder_output(&network->builder, name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dimensions, rank);
}
