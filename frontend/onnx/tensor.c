#include "frontend/onnx/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/model.h"

/* One row per element type: its ONNX number and name, and the field that holds its elements when raw_data does not. */
typedef enum TypedField { FIELD_NONE, FIELD_FLOAT, FIELD_INT32, FIELD_INT64, FIELD_DOUBLE } TypedField;

static const struct {
    const char *name;
    DType dtype; /* DTYPE_NONE: not supported */
    TypedField field;
} data_types[] = {
    [ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED] = {"UNDEFINED", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT] = {"FLOAT", DTYPE_F32, FIELD_FLOAT},
    [ONNX__TENSOR_PROTO__DATA_TYPE__UINT8] = {"UINT8", DTYPE_U8, FIELD_INT32},
    [ONNX__TENSOR_PROTO__DATA_TYPE__INT8] = {"INT8", DTYPE_I8, FIELD_INT32},
    [ONNX__TENSOR_PROTO__DATA_TYPE__UINT16] = {"UINT16", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__INT16] = {"INT16", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__INT32] = {"INT32", DTYPE_I32, FIELD_INT32},
    [ONNX__TENSOR_PROTO__DATA_TYPE__INT64] = {"INT64", DTYPE_I64, FIELD_INT64},
    [ONNX__TENSOR_PROTO__DATA_TYPE__STRING] = {"STRING", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__BOOL] = {"BOOL", DTYPE_BOOL, FIELD_INT32},
    [ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16] = {"FLOAT16", DTYPE_F16, FIELD_INT32},
    [ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE] = {"DOUBLE", DTYPE_F64, FIELD_DOUBLE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__UINT32] = {"UINT32", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__UINT64] = {"UINT64", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX64] = {"COMPLEX64", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__COMPLEX128] = {"COMPLEX128", DTYPE_NONE, FIELD_NONE},
    [ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16] = {"BFLOAT16", DTYPE_BF16, FIELD_INT32},
};
enum { DATA_TYPES = sizeof data_types / sizeof *data_types };

/* Of elements in a file: integers of 8 bits, which are quantised weights, as well. */
static DType stored_dtype(int32_t data_type)
{
    return data_type >= 0 && data_type < DATA_TYPES ? data_types[data_type].dtype : DTYPE_NONE;
}

DType onnx_dtype(int32_t data_type)
{
    DType dtype = stored_dtype(data_type);
    return dtype == DTYPE_I8 || dtype == DTYPE_U8 ? DTYPE_NONE : dtype;
}

int32_t onnx_data_type(DType dtype)
{
    for (int32_t i = 1; i < DATA_TYPES; i++)
        if (data_types[i].dtype == dtype) return i;
    return ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED;
}

/* Newer ONNX types that skycc can only name. */
static const char *const newer_data_types[] = {
    "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",
    "INT4",         "FLOAT4E2M1",     "FLOAT8E8M0", "UINT2",          "INT2"};
enum { KNOWN_DATA_TYPES = DATA_TYPES + sizeof newer_data_types / sizeof *newer_data_types };

const char *onnx_data_type_name(int32_t data_type)
{
    if (data_type < 0 || data_type >= KNOWN_DATA_TYPES) return "unknown";
    return data_type < DATA_TYPES ? data_types[data_type].name : newer_data_types[data_type - DATA_TYPES];
}

int32_t onnx_data_type_named(const char *name, size_t length)
{
    for (int32_t i = 1; i < DATA_TYPES; i++)
        if (strlen(data_types[i].name) == length && memcmp(data_types[i].name, name, length) == 0) return i;
    return ONNX__TENSOR_PROTO__DATA_TYPE__UNDEFINED;
}

int64_t onnx_shape_volume(const Shape *shape)
{
    Shape filled = *shape;
    for (int i = 0; i < filled.rank; i++)
        if (filled.dim[i] == 0) filled.dim[i] = 1;
    return shape_elements(&filled);
}

typedef struct TensorReader {
    OnnxModel *model;
    const Onnx__TensorProto *proto;
    Place place;
    Diagnostics *diagnostics;
} TensorReader;

static bool refuse(const TensorReader *reader, const char *problem)
{
    return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, reader->place, NULL, "%s", problem);
}

static bool read_type(const TensorReader *reader, OnnxTensor *tensor)
{
    const Onnx__TensorProto *proto = reader->proto;
    tensor->dtype = stored_dtype(proto->data_type);
    if (tensor->dtype == DTYPE_NONE)
        return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, reader->place,
                                 "skycc handles FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT32, INT64, INT8, UINT8 and BOOL",
                                 "has elements of type %s (%d), which is not supported",
                                 onnx_data_type_name(proto->data_type), proto->data_type);
    if (proto->segment) return refuse(reader, "is one segment of a larger tensor, which is not supported");
    if (proto->n_dims > MAX_RANK)
        return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, reader->place, NULL,
                                 "has %zu dimensions; at most %d are supported", proto->n_dims, MAX_RANK);
    tensor->shape.rank = (int)proto->n_dims;
    for (size_t i = 0; i < proto->n_dims; i++) tensor->shape.dim[i] = proto->dims[i];
    if (onnx_shape_volume(&tensor->shape) < 0)
        return refuse(reader, "has an impossible shape: a negative dimension, or too many elements");
    tensor->bytes = (size_t)shape_elements(&tensor->shape) * dtype_size(tensor->dtype);
    return true;
}

/* Elements at `data`, which lie in a file: used where they are if they are aligned. */
static bool take_bytes(const TensorReader *reader, OnnxTensor *tensor, const unsigned char *data)
{
    tensor->data = data;
    bool clean = true;
    if (tensor->dtype == DTYPE_BOOL)
        for (size_t i = 0; clean && i < tensor->bytes; i++) clean = data[i] <= 1;
    if (clean && (uintptr_t)data % dtype_size(tensor->dtype) == 0) return true;
    unsigned char *copy = arena_copy(&reader->model->arena, data, tensor->bytes);
    if (!clean)
        for (size_t i = 0; i < tensor->bytes; i++) copy[i] = copy[i] != 0;
    tensor->data = copy;
    return true;
}

static bool wrong_size(const TensorReader *reader, const OnnxTensor *tensor, size_t bytes)
{
    char shape[256];
    return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, reader->place, NULL,
                             "holds %zu bytes, but its shape %s needs %zu", bytes, shape_format(&tensor->shape, shape),
                             tensor->bytes);
}

static bool read_raw(const TensorReader *reader, OnnxTensor *tensor, const WireSpan *weights)
{
    const Onnx__TensorProto *proto = reader->proto;
    bool in_file = weights && weights->present;
    size_t bytes = in_file ? weights->size : proto->raw_data.len;
    if (bytes != tensor->bytes) return wrong_size(reader, tensor, bytes);
    if (!in_file) return take_bytes(reader, tensor, proto->raw_data.data);
    tensor->file = reader->model->path;
    tensor->offset = weights->offset;
    return take_bytes(reader, tensor, reader->model->file.bytes + weights->offset);
}

static bool read_typed(const TensorReader *reader, OnnxTensor *tensor)
{
    const Onnx__TensorProto *proto = reader->proto;
    TypedField field = data_types[proto->data_type].field;
    const size_t counts[] = {[FIELD_FLOAT] = proto->n_float_data,
                             [FIELD_INT32] = proto->n_int32_data,
                             [FIELD_INT64] = proto->n_int64_data,
                             [FIELD_DOUBLE] = proto->n_double_data};
    size_t others = proto->n_string_data + proto->n_uint64_data;
    for (TypedField f = FIELD_FLOAT; f <= FIELD_DOUBLE; f++)
        if (f != field) others += counts[f];
    if (others) return refuse(reader, "holds its elements in a field meant for another type");
    size_t elements = (size_t)shape_elements(&tensor->shape);
    if (counts[field] != elements)
        return diagnostics_error(reader->diagnostics, EXIT_BAD_INPUT, reader->place, NULL,
                                 "holds %zu elements, but its shape needs %zu", counts[field], elements);
    if (!elements) return true;
    switch (tensor->dtype) {
    case DTYPE_F32: tensor->data = proto->float_data; return true;
    case DTYPE_F64: tensor->data = proto->double_data; return true;
    case DTYPE_I32: tensor->data = proto->int32_data; return true;
    case DTYPE_I64: tensor->data = proto->int64_data; return true;
    default: break;
    }
    unsigned char *data = arena_allocate(&reader->model->arena, tensor->bytes);
    for (size_t i = 0; i < elements; i++) {
        uint16_t bits = (uint16_t)proto->int32_data[i];
        if (tensor->dtype == DTYPE_BOOL)
            data[i] = proto->int32_data[i] != 0;
        else if (dtype_size(tensor->dtype) == 1)
            data[i] = (unsigned char)proto->int32_data[i];
        else /* the bits of a 16-bit float */
            memcpy(data + 2 * i, &bits, sizeof bits);
    }
    tensor->data = data;
    return true;
}

static bool parse_size(const char *text, size_t *value)
{
    if (!*text || text[strspn(text, "0123456789")]) return false;
    errno = 0;
    unsigned long long number = strtoull(text, NULL, 10);
    *value = (size_t)number;
    return errno == 0;
}

typedef struct ExternalReference {
    const char *location;
    size_t offset, length;
    bool has_length;
} ExternalReference;

static bool read_reference(const TensorReader *reader, ExternalReference *reference)
{
    const Onnx__TensorProto *proto = reader->proto;
    bool has_offset = false;
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const char *key = proto->external_data[i]->key, *value = proto->external_data[i]->value;
        if (!key || !value) return refuse(reader, "has an external data entry without key or value");
        bool again = false;
        if (strcmp(key, "location") == 0) {
            again = reference->location != NULL;
            reference->location = value;
        } else if (strcmp(key, "offset") == 0) {
            again = has_offset;
            has_offset = true;
            if (!parse_size(value, &reference->offset)) return refuse(reader, "has an offset that is not a number");
        } else if (strcmp(key, "length") == 0) {
            again = reference->has_length;
            reference->has_length = true;
            if (!parse_size(value, &reference->length)) return refuse(reader, "has a length that is not a number");
        }
        if (again) return refuse(reader, "has the same external data key twice");
    }
    return reference->location || refuse(reader, "is external but names no location");
}

static bool read_external(const TensorReader *reader, OnnxTensor *tensor)
{
    ExternalReference reference = {0};
    if (!read_reference(reader, &reference)) return false;
    const ExternalFile *external =
        external_data_open(&reader->model->external, reference.location, reader->place, reader->diagnostics);
    if (!external) return false;
    if (external->missing) return true;
    size_t size = external->file.size;
    if (reference.offset > size || (reference.has_length && reference.length > size - reference.offset))
        return refuse(reader, "lies beyond the end of its external file");
    size_t bytes = reference.has_length ? reference.length : size - reference.offset;
    if (bytes != tensor->bytes) return wrong_size(reader, tensor, bytes);
    tensor->file = external->path;
    tensor->offset = reference.offset;
    return !bytes || take_bytes(reader, tensor, external->file.bytes + reference.offset);
}

bool onnx_tensor_elements(OnnxModel *model, const Onnx__TensorProto *proto, const WireSpan *weights, const char *object,
                          OnnxTensor *tensor, Diagnostics *diagnostics)
{
    TensorReader reader = {model, proto, {.file = model->path, .object = object}, diagnostics};
    *tensor = (OnnxTensor){0};
    if (!read_type(&reader, tensor)) return false;
    bool external = proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    bool raw = proto->has_raw_data || (weights && weights->present);
    size_t typed = proto->n_float_data + proto->n_int32_data + proto->n_int64_data + proto->n_double_data +
                   proto->n_uint64_data + proto->n_string_data;
    if ((external && (raw || typed)) || (raw && typed)) return refuse(&reader, "holds its elements twice");
    if (external) return read_external(&reader, tensor);
    if (raw) return read_raw(&reader, tensor, weights);
    return read_typed(&reader, tensor);
}

bool onnx_tensor_read(const char *path, Arena *arena, DType *dtype, Shape *shape, const void **data,
                      Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel file = {.path = path, .external = {.model_path = path}};
    if (!file_map(&file.file, path, diagnostics)) return false;
    const MappedFile *mapped = &file.file;
    if (!mapped->size) return input_error(diagnostics, path, NULL, "is empty, not an ONNX tensor");
    OnnxTensor tensor;
    bool ok = wire_scan(mapped->bytes, mapped->size, &onnx__tensor_proto__descriptor, path, diagnostics);
    Onnx__TensorProto *proto = NULL;
    if (ok) {
        ProtobufCAllocator allocator = onnx_allocator(&file.arena);
        proto = onnx__tensor_proto__unpack(&allocator, mapped->size, mapped->bytes);
        ok = proto || input_error(diagnostics, path, NULL, "is not a valid ONNX tensor");
    }
    /* Graphs have no uint16, but the reader of elements only copies words: it is told that they are bfloat16. */
    bool is_word = ok && proto->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__UINT16;
    if (is_word) proto->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
    ok = ok && onnx_tensor_elements(&file, proto, NULL, "tensor", &tensor, diagnostics);
    if (ok) {
        *dtype = is_word ? DTYPE_U16 : tensor.dtype;
        *shape = tensor.shape;
        *data = arena_copy(arena, tensor.data, tensor.bytes);
    }
    return ok;
}
