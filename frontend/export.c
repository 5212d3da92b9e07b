#include "frontend/export.h"

#include <stdlib.h>
#include <string.h>

typedef struct Exporter {
    ImportedModel *model;
    Onnx__GraphProto *graph;
    FindTrained *find;
    void *context;
    const char *output;
    Diagnostics *diagnostics;
} Exporter;

/* Weights beyond this go into a file of their own: a protobuf message ends at 2 GiB, and the graph needs room too. */
#define MOST_INLINE_BYTES ((uint64_t)3 << 29)

enum { DATA_ALIGNMENT = 64 };

static Arena *arena_of(const Exporter *exporter) { return &exporter->model->onnx.arena; }

static bool refuse(const Exporter *exporter, const char *name, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "parameter '%.400s'", name);
    return diagnostics_error(exporter->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = exporter->model->onnx.path, .object = object},
                             "was the checkpoint made from this model?", "%s", problem);
}

/* --- Initializers ----------------------------------------------------------------------------------------------------
 */

/* Makes the elements part of the message, wherever they were. */
static void set_raw_data(Onnx__TensorProto *tensor, const void *data, size_t bytes)
{
    tensor->n_float_data = tensor->n_int32_data = tensor->n_int64_data = tensor->n_double_data = 0;
    tensor->n_uint64_data = tensor->n_string_data = tensor->n_external_data = 0;
    tensor->has_data_location = false;
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){bytes, (uint8_t *)data};
}

static bool set_trained(const Exporter *exporter, Onnx__TensorProto *tensor, const char *name,
                        const TrainedTensor *trained)
{
    DType dtype = onnx_dtype(tensor->data_type);
    size_t size = dtype_size(dtype);
    bool same = (size_t)trained->shape.rank == tensor->n_dims;
    for (size_t i = 0; same && i < tensor->n_dims; i++) same = trained->shape.dim[i] == tensor->dims[i];
    if (!same) return refuse(exporter, name, "has another shape in the checkpoint");
    int64_t elements = shape_elements(&trained->shape);
    const void *data = trained->data;
    if (trained->dtype != dtype) {
        void *converted = arena_allocate_array(arena_of(exporter), (size_t)elements, size);
        for (int64_t i = 0; i < elements; i++)
            element_store_double(dtype, converted, i, element_as_double(trained->dtype, data, i));
        data = converted;
    }
    set_raw_data(tensor, data, (size_t)elements * size);
    return true;
}

/* The elements that unpacking left out. */
static bool restore(const Exporter *exporter, size_t index)
{
    OnnxModel *onnx = &exporter->model->onnx;
    Onnx__TensorProto *tensor = exporter->graph->initializer[index];
    const WireSpan *span = &onnx->weights[index];
    if (span->present) {
        set_raw_data(tensor, onnx->file.bytes + span->offset, span->size);
        return true;
    }
    if (tensor->data_location != ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL) return true;
    OnnxTensor elements;
    if (!onnx_tensor_elements(onnx, tensor, span, tensor->name, &elements, exporter->diagnostics)) return false;
    if (!elements.data && elements.bytes) return refuse(exporter, tensor->name, "has no data, and is not trained");
    set_raw_data(tensor, elements.data, elements.bytes);
    return true;
}

/* Files before IR version 4 list initializers among the inputs too. */
static void add_input(const Exporter *exporter, const Onnx__TensorProto *tensor)
{
    Onnx__GraphProto *graph = exporter->graph;
    Arena *arena = arena_of(exporter);
    Onnx__ValueInfoProto *model = NULL, **inputs = arena_new_array(arena, Onnx__ValueInfoProto *, graph->n_input + 1);
    for (size_t i = 0; i < graph->n_input; i++) inputs[i] = graph->input[i];
    for (size_t i = 0; i < graph->n_input && !model; i++) {
        const Onnx__TypeProto *type = inputs[i]->type;
        if (type && type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) model = inputs[i];
    }
    Onnx__ValueInfoProto *input = arena_new(arena, Onnx__ValueInfoProto);
    Onnx__TypeProto *type = arena_new(arena, Onnx__TypeProto);
    Onnx__TypeProto__Tensor *tensor_type = arena_new(arena, Onnx__TypeProto__Tensor);
    Onnx__TensorShapeProto *shape = arena_new(arena, Onnx__TensorShapeProto);
    onnx__value_info_proto__init(input);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor_type);
    onnx__tensor_shape_proto__init(shape);
    shape->n_dim = tensor->n_dims;
    shape->dim = arena_new_array(arena, Onnx__TensorShapeProto__Dimension *, tensor->n_dims);
    for (size_t i = 0; i < tensor->n_dims; i++) {
        shape->dim[i] = arena_new(arena, Onnx__TensorShapeProto__Dimension);
        onnx__tensor_shape_proto__dimension__init(shape->dim[i]);
        shape->dim[i]->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        shape->dim[i]->dim_value = tensor->dims[i];
    }
    tensor_type->has_elem_type = true;
    tensor_type->elem_type = tensor->data_type;
    tensor_type->shape = shape;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor_type;
    input->name = tensor->name;
    input->type = type;
    inputs[graph->n_input++] = input;
    graph->input = inputs;
}

/* A further initializer for a parameter that was split off, and the Identity node reads it. */
static bool add_split(const Exporter *exporter, const ImportedParameter *parameter, const TrainedTensor *trained)
{
    Onnx__GraphProto *graph = exporter->graph;
    Arena *arena = arena_of(exporter);
    Onnx__TensorProto *tensor =
        arena_copy(arena, graph->initializer[parameter->initializer], sizeof **graph->initializer);
    Onnx__TensorProto **initializers = arena_new_array(arena, Onnx__TensorProto *, graph->n_initializer + 1);
    for (size_t i = 0; i < graph->n_initializer; i++) initializers[i] = graph->initializer[i];
    tensor->name = arena_string(arena, parameter->name);
    initializers[graph->n_initializer++] = tensor;
    graph->initializer = initializers;
    graph->node[parameter->identity - 1]->input[0] = tensor->name;
    if (exporter->model->onnx.proto->ir_version < 4) add_input(exporter, tensor);
    return set_trained(exporter, tensor, parameter->name, trained);
}

static bool replace_weights(const Exporter *exporter)
{
    const ImportedModel *model = exporter->model;
    bool ok = true;
    size_t count = exporter->graph->n_initializer;
    bool *replaced = arena_new_array(arena_of(exporter), bool, count);
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        TrainedTensor trained;
        if (!exporter->find(exporter->context, parameter->name, &trained)) {
            /* Absent splits were trained as one, with --keep-ties. */
            if (!parameter->split) ok = refuse(exporter, parameter->name, "is missing in the checkpoint");
            continue;
        }
        if (parameter->split) {
            ok = add_split(exporter, parameter, &trained) && ok;
            continue;
        }
        replaced[parameter->initializer] = true;
        ok = set_trained(exporter, exporter->graph->initializer[parameter->initializer], parameter->name, &trained) &&
             ok;
    }
    for (size_t i = 0; ok && i < count; i++)
        if (!replaced[i]) ok = restore(exporter, i);
    return ok;
}

/* --- Files -----------------------------------------------------------------------------------------------------------
 */

static Onnx__StringStringEntryProto *new_entry(Arena *arena, const char *key, char *value)
{
    Onnx__StringStringEntryProto *entry = arena_new(arena, Onnx__StringStringEntryProto);
    onnx__string_string_entry_proto__init(entry);
    entry->key = arena_string(arena, key);
    entry->value = value;
    return entry;
}

/* Writes all raw data to `output`.data and leaves references in the message. */
static bool write_external(const Exporter *exporter)
{
    Arena *arena = arena_of(exporter);
    const char *path = arena_format(arena, "%s.data", exporter->output), *slash = strrchr(path, '/');
    OutputFile file;
    if (!file_create(&file, path, exporter->diagnostics)) return false;
    uint64_t offset = 0;
    for (size_t i = 0; i < exporter->graph->n_initializer; i++) {
        static const char padding[DATA_ALIGNMENT];
        Onnx__TensorProto *tensor = exporter->graph->initializer[i];
        if (!tensor->has_raw_data) continue;
        size_t gap = (size_t)(-offset % DATA_ALIGNMENT);
        fwrite(padding, 1, gap, file.stream);
        fwrite(tensor->raw_data.data, 1, tensor->raw_data.len, file.stream);
        offset += gap;
        tensor->n_external_data = 3;
        tensor->external_data = arena_new_array(arena, Onnx__StringStringEntryProto *, 3);
        tensor->external_data[0] = new_entry(arena, "location", arena_string(arena, slash ? slash + 1 : path));
        tensor->external_data[1] = new_entry(arena, "offset", arena_format(arena, "%llu", (unsigned long long)offset));
        tensor->external_data[2] = new_entry(arena, "length", arena_format(arena, "%zu", tensor->raw_data.len));
        tensor->has_data_location = true;
        tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
        offset += tensor->raw_data.len;
        tensor->has_raw_data = false;
        tensor->raw_data = (ProtobufCBinaryData){0};
    }
    return file_commit(&file, exporter->diagnostics);
}

/* protobuf-c packs into anything that appends. */
typedef struct StreamBuffer {
    ProtobufCBuffer base;
    FILE *stream;
} StreamBuffer;

static void stream_append(ProtobufCBuffer *buffer, size_t size, const uint8_t *data)
{
    fwrite(data, 1, size, ((StreamBuffer *)buffer)->stream); /* file_commit finds out about errors */
}

static bool write_model(const Exporter *exporter)
{
    uint64_t raw = 0;
    for (size_t i = 0; i < exporter->graph->n_initializer; i++) raw += exporter->graph->initializer[i]->raw_data.len;
    if (raw > MOST_INLINE_BYTES && !write_external(exporter)) return false;
    OutputFile file;
    if (!file_create(&file, exporter->output, exporter->diagnostics)) return false;
    StreamBuffer buffer = {{stream_append}, file.stream};
    onnx__model_proto__pack_to_buffer(exporter->model->onnx.proto, &buffer.base);
    return file_commit(&file, exporter->diagnostics);
}

bool export_onnx(const char *path, const char *output, FindTrained *find, void *context, Diagnostics *diagnostics)
{
    /* Untied, every initializer and every split stands for itself: their names do not depend on how training tied them.
     */
    ImportOptions options = {.no_weights = true, .untie = true};
    Graph graph;
    ImportedModel model;
    Diagnostics ties = {0}; /* warnings that were given when the model was compiled */
    graph_init(&graph, path);
    bool ok = import_parameters(&graph, &model, path, &options, &ties);
    if (!ok) {
        for (const Diagnostic *d = ties.first; d; d = d->next)
            if (d->is_error) diagnostics_error(diagnostics, ties.exit_code, d->place, d->hint, "%s", d->message);
    } else {
        Exporter exporter = {&model, model.onnx.proto->graph, find, context, output, diagnostics};
        ok = replace_weights(&exporter) && write_model(&exporter);
    }
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&ties);
    return ok;
}
