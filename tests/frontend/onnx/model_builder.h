/* Small ONNX models put together by tests: nodes over constant inputs, one output, named "y". */
#ifndef TESTS_FRONTEND_ONNX_MODEL_BUILDER_H
#define TESTS_FRONTEND_ONNX_MODEL_BUILDER_H

#include <string.h>

/* A constant of at most four given numbers: rank 1, or rank 0 where count is 0 (one number). */
typedef struct BuilderConstant {
    int32_t type; /* of ONNX: FLOAT or INT64 */
    int count;
    double numbers[4];
} BuilderConstant;

#define INTEGERS(...)                                                                                                  \
    {                                                                                                                  \
        ONNX__TENSOR_PROTO__DATA_TYPE__INT64, sizeof((double[]){__VA_ARGS__}) / sizeof(double), { __VA_ARGS__ }        \
    }
#define FLOATS(...)                                                                                                    \
    {                                                                                                                  \
        ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, sizeof((double[]){__VA_ARGS__}) / sizeof(double), { __VA_ARGS__ }        \
    }
#define INTEGER(number)                                                                                                \
    {                                                                                                                  \
        ONNX__TENSOR_PROTO__DATA_TYPE__INT64, 0, { number }                                                            \
    }

typedef struct ModelBuilder {
    Arena arena;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    Onnx__ValueInfoProto output, *outputs[1];
    Onnx__NodeProto *nodes[64];
    Onnx__TensorProto *constants[64];
} ModelBuilder;

static inline void builder_begin(ModelBuilder *builder)
{
    *builder = (ModelBuilder){0};
    onnx__model_proto__init(&builder->model);
    onnx__graph_proto__init(&builder->graph);
    onnx__operator_set_id_proto__init(&builder->opset);
    onnx__value_info_proto__init(&builder->output);
    builder->model.has_ir_version = builder->opset.has_version = 1;
    builder->model.ir_version = 8;
    builder->opset.domain = (char *)"";
    builder->opset.version = 17;
    builder->opsets[0] = &builder->opset;
    builder->model.opset_import = builder->opsets;
    builder->model.n_opset_import = 1;
    builder->model.graph = &builder->graph;
    builder->graph.name = (char *)"g";
    builder->output.name = (char *)"y";
    builder->outputs[0] = &builder->output;
    builder->graph.output = builder->outputs;
    builder->graph.n_output = 1;
    builder->graph.node = builder->nodes;
    builder->graph.initializer = builder->constants;
}

/* The constant's name. */
static inline char *builder_constant(ModelBuilder *builder, const BuilderConstant *constant)
{
    Onnx__TensorProto *tensor = arena_new(&builder->arena, Onnx__TensorProto);
    onnx__tensor_proto__init(tensor);
    int64_t *dims = arena_new(&builder->arena, int64_t);
    size_t count = constant->count ? (size_t)constant->count : 1;
    *dims = constant->count;
    tensor->dims = dims;
    tensor->n_dims = constant->count != 0;
    tensor->has_data_type = 1;
    tensor->data_type = constant->type;
    tensor->name = arena_format(&builder->arena, "c%zu", builder->graph.n_initializer);
    if (constant->type == ONNX__TENSOR_PROTO__DATA_TYPE__INT64) {
        tensor->n_int64_data = count;
        tensor->int64_data = arena_new_array(&builder->arena, int64_t, count);
        for (size_t i = 0; i < count; i++) tensor->int64_data[i] = (int64_t)constant->numbers[i];
    } else {
        tensor->n_float_data = count;
        tensor->float_data = arena_new_array(&builder->arena, float, count);
        for (size_t i = 0; i < count; i++) tensor->float_data[i] = (float)constant->numbers[i];
    }
    builder->constants[builder->graph.n_initializer++] = tensor;
    return tensor->name;
}

/* Appends a node; `output` may be "y". */
static inline Onnx__NodeProto *builder_node(ModelBuilder *builder, const char *op, const char *output,
                                            char *const *inputs, size_t count)
{
    Onnx__NodeProto *node = arena_new(&builder->arena, Onnx__NodeProto);
    onnx__node_proto__init(node);
    char **outputs = arena_new(&builder->arena, char *);
    *outputs = arena_string(&builder->arena, output);
    node->op_type = arena_string(&builder->arena, op);
    node->input = arena_copy(&builder->arena, inputs, count * sizeof *inputs);
    node->n_input = count;
    node->output = outputs;
    node->n_output = 1;
    builder->nodes[builder->graph.n_node++] = node;
    return node;
}

static inline void builder_integer_attribute(ModelBuilder *builder, Onnx__NodeProto *node, const char *name,
                                             int64_t value)
{
    Onnx__AttributeProto *attribute = arena_new(&builder->arena, Onnx__AttributeProto),
                         **attributes = arena_new(&builder->arena, Onnx__AttributeProto *);
    onnx__attribute_proto__init(attribute);
    attribute->name = arena_string(&builder->arena, name);
    attribute->has_type = attribute->has_i = 1;
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    attribute->i = value;
    *attributes = attribute;
    node->attribute = attributes;
    node->n_attribute = 1;
}

/* The message, in the builder's arena; free that. */
static inline unsigned char *builder_end(ModelBuilder *builder, size_t *size)
{
    *size = onnx__model_proto__get_packed_size(&builder->model);
    unsigned char *bytes = arena_allocate(&builder->arena, *size);
    onnx__model_proto__pack(&builder->model, bytes);
    return bytes;
}

#endif
