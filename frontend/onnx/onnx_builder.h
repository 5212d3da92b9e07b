/* Building an ONNX model in memory, and writing it with weights that are drawn or converted while they are written.
 *
 * Node and value names follow PyTorch's exporter: the node "/encoder/layer.0/query/MatMul" yields
 * "/encoder/layer.0/query/MatMul_output_0". A scope is a module's dotted name, such as "encoder.layer.0.query".
 * Everything lives in the builder's arena. */
#ifndef FRONTEND_ONNX_ONNX_BUILDER_H
#define FRONTEND_ONNX_ONNX_BUILDER_H

#include "base/dtype.h"
#include "base/file.h"
#include "base/string_map.h"
#include "onnx/onnx.pb-c.h"

typedef enum WeightFill { FILL_ZEROS, FILL_ONES, FILL_NORMAL, FILL_GIVEN } WeightFill;

typedef struct BuilderWeight {
    Onnx__TensorProto *tensor;
    WeightFill fill;
    int64_t elements;
    DType dtype; /* of FILL_GIVEN: the elements; bf16 and f16 stay what they are, other types become float32 */
    const void *data;
    const char *location; /* the file next to the model that has them already; NULL: they are written */
    int64_t offset;       /* there */
} BuilderWeight;

typedef struct OnnxBuilder {
    Arena arena;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    StringMap node_names; /* how often each was asked for */
    size_t node_capacity, input_capacity, output_capacity, initializer_capacity, property_capacity;
    BuilderWeight *weights; /* in the order of the initializers */
    size_t weight_count, weight_capacity;
} OnnxBuilder;

void onnx_builder_open(OnnxBuilder *builder, const char *graph_name, int64_t opset);
/* Goes on with a model that is there, whose messages must outlive the builder. */
void onnx_builder_continue(OnnxBuilder *builder, const Onnx__ModelProto *model);
void onnx_builder_close(OnnxBuilder *builder);

/* A dimension of an input or output: a number, or the name of a symbolic one. */
typedef struct BuilderDimension {
    int64_t value; /* 0: symbolic */
    const char *name;
} BuilderDimension;

void onnx_builder_input(OnnxBuilder *builder, const char *name, int32_t data_type, const BuilderDimension *dimensions,
                        int rank);
void onnx_builder_output(OnnxBuilder *builder, const char *name, int32_t data_type, const BuilderDimension *dimensions,
                         int rank);

/* A float32 parameter "SCOPE.NAME"; `columns` 0: a vector. */
const char *onnx_builder_weight(OnnxBuilder *builder, const char *scope, const char *name, WeightFill fill,
                                int64_t rows, int64_t columns);

/* A parameter of any shape, of that name as it is. FILL_GIVEN: `data`, which must outlive the builder. Of bf16 or f16
 * if these are; else of float32. */
const char *onnx_builder_tensor(OnnxBuilder *builder, const char *name, const Shape *shape, WeightFill fill,
                                DType dtype, const void *data);

/* The last parameter, of bf16, f16 or float32, is not written: the model refers to this file next to it. */
void onnx_builder_refer(OnnxBuilder *builder, const char *location, int64_t offset);
/* The bytes of parameters that the model refers to, or that are written. */
int64_t onnx_builder_bytes(const OnnxBuilder *builder, bool referred);

/* A property of the model: a key and a value, both copied. */
void onnx_builder_property(OnnxBuilder *builder, const char *key, const char *value);

/* Adds a node with `count` inputs and one output and returns it, so that attributes can be added. */
Onnx__NodeProto *onnx_builder_node(OnnxBuilder *builder, const char *scope, const char *op, const char *const *inputs,
                                   size_t count);
void onnx_node_integer(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, int64_t value);
void onnx_node_float(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, float value);
void onnx_node_text(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, const char *value);
void onnx_node_integers(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, const int64_t *values,
                        size_t count);
/* The name of its output. */
const char *onnx_node_output(const Onnx__NodeProto *node);
void onnx_node_name_output(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name);

/* The output of a new node without attributes. */
#define onnx_builder_apply(builder, scope, op, ...)                                                                    \
    onnx_node_output(onnx_builder_node(builder, scope, op, (const char *const[]){__VA_ARGS__},                         \
                                       sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)))

/* Constant nodes. */
const char *onnx_builder_float(OnnxBuilder *builder, const char *scope, float value);
const char *onnx_builder_floats(OnnxBuilder *builder, const char *scope, const float *values, const Shape *shape);
const char *onnx_builder_integers(OnnxBuilder *builder, const char *scope, const int64_t *values, const Shape *shape);

typedef struct InitialWeights {
    bool present;        /* false: declared as external data in a file that is not there */
    uint64_t seed;       /* FILL_NORMAL: by the parameter's name, as `--init normal:STD` draws it */
    double deviation;    /* of FILL_NORMAL */
    int64_t most_inside; /* more bytes of weights than this go into a file of their own */
} InitialWeights;

/* Draws or converts all weights, and lets the model hold them. */
void onnx_builder_hold(OnnxBuilder *builder, const InitialWeights *options);

/* Writes the model, atomically. Weights that it does not hold are drawn piece by piece into "PATH.data" next to it. */
bool onnx_builder_write(OnnxBuilder *builder, const char *path, const InitialWeights *options,
                        Diagnostics *diagnostics);

#endif
