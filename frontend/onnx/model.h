/* An ONNX file, opened: mapped, scanned, unpacked without its weights. */
#ifndef FRONTEND_ONNX_MODEL_H
#define FRONTEND_ONNX_MODEL_H

#include "base/dtype.h"
#include "base/hash.h"
#include "frontend/onnx/external_data.h"
#include "frontend/onnx/wire.h"
#include "onnx/onnx.pb-c.h"

typedef struct OnnxModel {
    const char *path;
    MappedFile file;
    Arena arena; /* holds the unpacked message */
    Onnx__ModelProto *proto;
    WireSpan *weights; /* per initializer of the graph: its raw_data, which `proto` lacks */
    size_t weight_count, weight_capacity;
    ExternalData external;
    Hash hash; /* of the file's bytes; external data is represented by the file's references to it */
} OnnxModel;

/* `path` must outlive the model. The model has a graph and every initializer a name. */
bool onnx_model_open(OnnxModel *model, const char *path, bool tolerate_missing_data, Diagnostics *diagnostics);
void onnx_model_close(OnnxModel *model);

/* A property of models that skycc import wrote: every initializer is one parameter. Equal ones are not tied, constant
 * ones are not split. */
#define PROPERTY_PARAMETERS "skycc.parameters"
#define PARAMETERS_ARE_INITIALIZERS "initializers"

/* The value of a property of the model, NULL if it has none of that key. */
const char *onnx_model_property(const OnnxModel *model, const char *key);
/* NULL: it is no tensor, or of unknown rank. */
const Onnx__TensorShapeProto *onnx_value_shape(const Onnx__ValueInfoProto *value);

/* Whether it has that one. */
bool onnx_model_is_distinct(const OnnxModel *model);

/* Lets protobuf-c pack into a stream, whose error flag tells whether that worked. */
typedef struct OnnxStream {
    ProtobufCBuffer base;
    FILE *stream;
} OnnxStream;

OnnxStream onnx_stream(FILE *stream);

/* Allocates what protobuf-c unpacks in the arena. */
ProtobufCAllocator onnx_allocator(Arena *arena);

/* The elements of a TensorProto. */
typedef struct OnnxTensor {
    DType dtype;
    Shape shape;
    const void *data; /* aligned, row-major; in a mapping, or in the model's arena; NULL: external data is missing */
    const char *file; /* where the same bytes lie, NULL if nowhere */
    size_t offset, bytes;
} OnnxTensor;

/* Checks the tensor and finds its elements. `weights` is the place of the raw_data that `proto` lacks, or NULL.
 * `object` names the tensor in errors. */
bool onnx_tensor_elements(OnnxModel *model, const Onnx__TensorProto *proto, const WireSpan *weights, const char *object,
                          OnnxTensor *tensor, Diagnostics *diagnostics);

/* The number of elements if empty dimensions had extent 1: products of any dimensions of such a shape do not overflow.
 * -1 for a shape that no tensor can have. */
int64_t onnx_shape_volume(const Shape *shape);

/* DTYPE_NONE for a data type that nodes do not compute with. Constants may hold integers of 8 bits as well. */
DType onnx_dtype(int32_t data_type);
int32_t onnx_data_type(DType dtype); /* its inverse */
const char *onnx_data_type_name(int32_t data_type);
int32_t onnx_data_type_named(const char *name, size_t length); /* 0 if there is no such data type */

#endif
