#include "frontend/onnx/onnx_builder.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/random.h"
#include "frontend/onnx/model.h"

#define IR_VERSION 8                      /* the one that goes with opsets 15 to 18 */
#define IR_VERSION_19 9                   /* with opsets 19 and 20 */
#define IR_VERSION_23 11                  /* with opset 23 */
#define EXTERNAL_ALIGNMENT ((int64_t)64)  /* of tensors in the data file */
#define PIECE_ELEMENTS ((size_t)64 << 10) /* drawn and written at a time */

/* New message of a generated type. */
#define message(builder, Type, initial) ((Type *)arena_copy(&(builder)->arena, &(Type)initial, sizeof(Type)))

/* Appends to an array of pointers that lives in the arena. */
#define append(builder, items, count, capacity, item)                                                                  \
    do {                                                                                                               \
        if ((count) == (capacity)) {                                                                                   \
            (capacity) = (capacity) ? 2 * (capacity) : 64;                                                             \
            void *grown = arena_allocate_array(&(builder)->arena, (capacity), sizeof *(items));                        \
            if (count) memcpy(grown, (items), (count) * sizeof *(items));                                              \
            (items) = grown;                                                                                           \
        }                                                                                                              \
        (items)[(count)++] = (item);                                                                                   \
    } while (0)

void onnx_builder_open(OnnxBuilder *builder, const char *graph_name, int64_t opset)
{
    *builder = (OnnxBuilder){0};
    onnx__model_proto__init(&builder->model);
    onnx__graph_proto__init(&builder->graph);
    onnx__operator_set_id_proto__init(&builder->opset);
    builder->graph.name = arena_string(&builder->arena, graph_name);
    builder->opset.domain = arena_string(&builder->arena, "");
    builder->opset.has_version = true;
    builder->opset.version = opset;
    builder->opsets[0] = &builder->opset;
    builder->model.has_ir_version = true;
    builder->model.ir_version = opset < 19 ? IR_VERSION : opset < 23 ? IR_VERSION_19 : IR_VERSION_23;
    builder->model.producer_name = arena_string(&builder->arena, "skycc");
    builder->model.n_opset_import = 1;
    builder->model.opset_import = builder->opsets;
    builder->model.graph = &builder->graph;
}

void onnx_builder_continue(OnnxBuilder *builder, const Onnx__ModelProto *model)
{
    *builder = (OnnxBuilder){.model = *model, .graph = *model->graph};
    builder->model.graph = &builder->graph;
    /* Arrays that are full: what is added makes copies of them. */
    builder->node_capacity = builder->graph.n_node;
    builder->input_capacity = builder->graph.n_input;
    builder->output_capacity = builder->graph.n_output;
    builder->initializer_capacity = builder->graph.n_initializer;
    builder->property_capacity = builder->model.n_metadata_props;
    for (size_t i = 0; i < builder->graph.n_node; i++)
        if (builder->graph.node[i]->name) string_map_add(&builder->node_names, builder->graph.node[i]->name, 1);
}

void onnx_builder_close(OnnxBuilder *builder)
{
    string_map_free(&builder->node_names);
    arena_free(&builder->arena);
}

static Onnx__ValueInfoProto *value_info(OnnxBuilder *builder, const char *name, int32_t data_type,
                                        const BuilderDimension *dimensions, int rank)
{
    Onnx__TensorShapeProto *shape = message(builder, Onnx__TensorShapeProto, ONNX__TENSOR_SHAPE_PROTO__INIT);
    shape->n_dim = (size_t)rank;
    shape->dim = arena_new_array(&builder->arena, Onnx__TensorShapeProto__Dimension *, (size_t)rank);
    for (int i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *dimension =
            message(builder, Onnx__TensorShapeProto__Dimension, ONNX__TENSOR_SHAPE_PROTO__DIMENSION__INIT);
        if (dimensions[i].value) {
            dimension->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dimension->dim_value = dimensions[i].value;
        } else {
            dimension->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dimension->dim_param = arena_string(&builder->arena, dimensions[i].name);
        }
        shape->dim[i] = dimension;
    }
    Onnx__TypeProto__Tensor *tensor = message(builder, Onnx__TypeProto__Tensor, ONNX__TYPE_PROTO__TENSOR__INIT);
    tensor->has_elem_type = true;
    tensor->elem_type = data_type;
    tensor->shape = shape;
    Onnx__TypeProto *type = message(builder, Onnx__TypeProto, ONNX__TYPE_PROTO__INIT);
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    Onnx__ValueInfoProto *info = message(builder, Onnx__ValueInfoProto, ONNX__VALUE_INFO_PROTO__INIT);
    info->name = arena_string(&builder->arena, name);
    info->type = type;
    return info;
}

void onnx_builder_input(OnnxBuilder *builder, const char *name, int32_t data_type, const BuilderDimension *dimensions,
                        int rank)
{
    append(builder, builder->graph.input, builder->graph.n_input, builder->input_capacity,
           value_info(builder, name, data_type, dimensions, rank));
}

void onnx_builder_output(OnnxBuilder *builder, const char *name, int32_t data_type, const BuilderDimension *dimensions,
                         int rank)
{
    append(builder, builder->graph.output, builder->graph.n_output, builder->output_capacity,
           value_info(builder, name, data_type, dimensions, rank));
}

static Onnx__TensorProto *new_tensor(OnnxBuilder *builder, int32_t data_type, const int64_t *dims, int rank)
{
    Onnx__TensorProto *tensor = message(builder, Onnx__TensorProto, ONNX__TENSOR_PROTO__INIT);
    tensor->has_data_type = true;
    tensor->data_type = data_type;
    tensor->n_dims = (size_t)rank;
    tensor->dims = arena_copy(&builder->arena, dims, (size_t)rank * sizeof *dims);
    return tensor;
}

static bool is_half(DType dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_F16; }

static bool keeps_type(const BuilderWeight *weight) { return weight->fill == FILL_GIVEN && is_half(weight->dtype); }

static int64_t bytes_of(const BuilderWeight *weight)
{
    return weight->elements * (int64_t)(keeps_type(weight) ? dtype_size(weight->dtype) : sizeof(float));
}

const char *onnx_builder_tensor(OnnxBuilder *builder, const char *name, const Shape *shape, WeightFill fill,
                                DType dtype, const void *data)
{
    int32_t type = fill != FILL_GIVEN || !is_half(dtype) ? ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT
                   : dtype == DTYPE_BF16                 ? ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16
                                                         : ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16;
    Onnx__TensorProto *tensor = new_tensor(builder, type, shape->dim, shape->rank);
    tensor->name = arena_string(&builder->arena, name);
    append(builder, builder->graph.initializer, builder->graph.n_initializer, builder->initializer_capacity, tensor);
    BuilderWeight weight = {tensor, fill, shape_elements(shape), dtype, data, NULL, 0};
    append(builder, builder->weights, builder->weight_count, builder->weight_capacity, weight);
    return tensor->name;
}

const char *onnx_builder_weight(OnnxBuilder *builder, const char *scope, const char *name, WeightFill fill,
                                int64_t rows, int64_t columns)
{
    const Shape shape = {columns ? 2 : 1, {rows, columns}};
    return onnx_builder_tensor(builder, arena_format(&builder->arena, "%s.%s", scope, name), &shape, fill, DTYPE_F32,
                               NULL);
}

static Onnx__StringStringEntryProto *new_entry(OnnxBuilder *builder, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *entry =
        message(builder, Onnx__StringStringEntryProto, ONNX__STRING_STRING_ENTRY_PROTO__INIT);
    entry->key = arena_string(&builder->arena, key);
    entry->value = arena_string(&builder->arena, value);
    return entry;
}

void onnx_builder_property(OnnxBuilder *builder, const char *key, const char *value)
{
    append(builder, builder->model.metadata_props, builder->model.n_metadata_props, builder->property_capacity,
           new_entry(builder, key, value));
}

/* "/encoder/layer.0/query/MatMul"; repeated names end in _1, _2 ... */
static char *node_name(OnnxBuilder *builder, const char *scope, const char *op)
{
    char *name = arena_format(&builder->arena, "/%s/%s", scope, op);
    for (char *c = name; *c; c++)
        if (*c == '.' && (c[1] < '0' || c[1] > '9')) *c = '/';
    uint32_t *uses = string_map_find(&builder->node_names, name);
    if (uses) return arena_format(&builder->arena, "%s_%u", name, (*uses)++);
    string_map_add(&builder->node_names, name, 1);
    return name;
}

Onnx__NodeProto *onnx_builder_node(OnnxBuilder *builder, const char *scope, const char *op, const char *const *inputs,
                                   size_t count)
{
    Onnx__NodeProto *node = message(builder, Onnx__NodeProto, ONNX__NODE_PROTO__INIT);
    node->name = node_name(builder, scope, op);
    node->op_type = arena_string(&builder->arena, op);
    node->n_input = count;
    node->input = arena_new_array(&builder->arena, char *, count);
    for (size_t i = 0; i < count; i++) node->input[i] = arena_string(&builder->arena, inputs[i]);
    node->n_output = 1;
    node->output = arena_new_array(&builder->arena, char *, 1);
    node->output[0] = arena_format(&builder->arena, "%s_output_0", node->name);
    append(builder, builder->graph.node, builder->graph.n_node, builder->node_capacity, node);
    return node;
}

const char *onnx_node_output(const Onnx__NodeProto *node) { return node->output[0]; }

void onnx_node_name_output(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name)
{
    node->output[0] = arena_string(&builder->arena, name);
}

static Onnx__AttributeProto *add_attribute(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = message(builder, Onnx__AttributeProto, ONNX__ATTRIBUTE_PROTO__INIT);
    attribute->name = arena_string(&builder->arena, name);
    attribute->has_type = true;
    attribute->type = type;
    size_t capacity = node->n_attribute; /* grows by one: nodes have few */
    append(builder, node->attribute, node->n_attribute, capacity, attribute);
    return attribute;
}

void onnx_node_integer(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, int64_t value)
{
    Onnx__AttributeProto *attribute = add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    attribute->has_i = true;
    attribute->i = value;
}

void onnx_node_float(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, float value)
{
    Onnx__AttributeProto *attribute = add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    attribute->has_f = true;
    attribute->f = value;
}

void onnx_node_text(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, const char *value)
{
    Onnx__AttributeProto *attribute = add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    attribute->has_s = true;
    attribute->s = (ProtobufCBinaryData){strlen(value), (uint8_t *)arena_string(&builder->arena, value)};
}

void onnx_node_integers(OnnxBuilder *builder, Onnx__NodeProto *node, const char *name, const int64_t *values,
                        size_t count)
{
    Onnx__AttributeProto *attribute = add_attribute(builder, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    attribute->n_ints = count;
    attribute->ints = arena_copy(&builder->arena, values, count * sizeof *values);
}

static const char *add_constant(OnnxBuilder *builder, const char *scope, Onnx__TensorProto *tensor, const void *data,
                                size_t bytes)
{
    tensor->has_raw_data = true;
    tensor->raw_data = (ProtobufCBinaryData){bytes, arena_copy(&builder->arena, data, bytes)};
    Onnx__NodeProto *node = onnx_builder_node(builder, scope, "Constant", NULL, 0);
    add_attribute(builder, node, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)->t = tensor;
    return onnx_node_output(node);
}

const char *onnx_builder_floats(OnnxBuilder *builder, const char *scope, const float *values, const Shape *shape)
{
    Onnx__TensorProto *tensor = new_tensor(builder, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, shape->dim, shape->rank);
    return add_constant(builder, scope, tensor, values, (size_t)shape_elements(shape) * sizeof *values);
}

const char *onnx_builder_float(OnnxBuilder *builder, const char *scope, float value)
{
    return onnx_builder_floats(builder, scope, &value, &(Shape){0});
}

const char *onnx_builder_integers(OnnxBuilder *builder, const char *scope, const int64_t *values, const Shape *shape)
{
    Onnx__TensorProto *tensor = new_tensor(builder, ONNX__TENSOR_PROTO__DATA_TYPE__INT64, shape->dim, shape->rank);
    return add_constant(builder, scope, tensor, values, (size_t)shape_elements(shape) * sizeof *values);
}

/* ---- Writing ---- */

static void fill_weight(const BuilderWeight *weight, const InitialWeights *options, int64_t first, float *values,
                        size_t count)
{
    if (weight->fill == FILL_NORMAL) {
        FREED_WITH(buffer_free) Buffer stream = {0};
        buffer_print(&stream, "init/%s", weight->tensor->name);
        random_fill_normal(random_stream(options->seed, buffer_text(&stream)), (uint64_t)first, options->deviation,
                           values, count);
        return;
    }
    if (weight->fill == FILL_GIVEN) {
        for (size_t i = 0; i < count; i++)
            values[i] = (float)element_as_double(weight->dtype, weight->data, first + (int64_t)i);
        return;
    }
    for (size_t i = 0; i < count; i++) values[i] = weight->fill == FILL_ONES ? 1.0f : 0.0f;
}

static void set_external(OnnxBuilder *builder, Onnx__TensorProto *tensor, const char *const *entries, size_t count)
{
    tensor->has_data_location = true;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->n_external_data = count;
    tensor->external_data = arena_new_array(&builder->arena, Onnx__StringStringEntryProto *, count);
    for (size_t i = 0; i < count; i++)
        tensor->external_data[i] = new_entry(builder, entries[2 * i], entries[2 * i + 1]);
}

/* Refers to elements in a file. */
static void place_weight(OnnxBuilder *builder, const BuilderWeight *weight, const char *location, int64_t offset)
{
    char first[32], length[32];
    snprintf(first, sizeof first, "%lld", (long long)offset);
    snprintf(length, sizeof length, "%lld", (long long)bytes_of(weight));
    set_external(builder, weight->tensor,
                 (const char *const[]){"location", location, "offset", first, "length", length}, 3);
}

void onnx_builder_refer(OnnxBuilder *builder, const char *location, int64_t offset)
{
    BuilderWeight *weight = &builder->weights[builder->weight_count - 1];
    weight->location = location;
    place_weight(builder, weight, location, offset);
}

int64_t onnx_builder_bytes(const OnnxBuilder *builder, bool referred)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < builder->weight_count; i++)
        if (!builder->weights[i].location == !referred) bytes += bytes_of(&builder->weights[i]);
    return bytes;
}

void onnx_builder_hold(OnnxBuilder *builder, const InitialWeights *options)
{
    for (size_t i = 0; i < builder->weight_count; i++) {
        const BuilderWeight *weight = &builder->weights[i];
        void *values = NULL;
        if (weight->location) continue;
        if (weight->fill == FILL_GIVEN && (weight->dtype == DTYPE_F32 || keeps_type(weight))) {
            values = (void *)weight->data; /* packed from where they are, and not written to */
        } else {
            values = arena_new_array(&builder->arena, float, (size_t)weight->elements);
            fill_weight(weight, options, 0, values, (size_t)weight->elements);
        }
        weight->tensor->has_raw_data = true;
        weight->tensor->raw_data = (ProtobufCBinaryData){(size_t)bytes_of(weight), values};
    }
}

static int64_t pad(int64_t offset) { return (EXTERNAL_ALIGNMENT - offset % EXTERNAL_ALIGNMENT) % EXTERNAL_ALIGNMENT; }

/* Gives every weight its place in the file `location`. */
static void place_outside(OnnxBuilder *builder, const char *location)
{
    int64_t offset = 0;
    for (size_t i = 0; i < builder->weight_count; i++) {
        const BuilderWeight *weight = &builder->weights[i];
        if (weight->location) continue;
        place_weight(builder, weight, location, offset);
        offset += bytes_of(weight) + pad(bytes_of(weight));
    }
}

static void write_outside(const OnnxBuilder *builder, const InitialWeights *options, FILE *stream)
{
    FREED float *values = memory_allocate(PIECE_ELEMENTS * sizeof *values);
    for (size_t i = 0; i < builder->weight_count && !ferror(stream); i++) {
        const BuilderWeight *weight = &builder->weights[i];
        if (weight->location) continue;
        if (keeps_type(weight)) fwrite(weight->data, 1, (size_t)bytes_of(weight), stream);
        for (int64_t first = 0; !keeps_type(weight) && first < weight->elements && !ferror(stream);
             first += (int64_t)PIECE_ELEMENTS) {
            size_t left = (size_t)(weight->elements - first), count = left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS;
            fill_weight(weight, options, first, values, count);
            fwrite(values, sizeof *values, count, stream);
        }
        for (int64_t n = pad(bytes_of(weight)); n > 0; n--) fputc(0, stream);
    }
}

static bool write_model(const OnnxBuilder *builder, OutputFile *file, Diagnostics *diagnostics)
{
    OnnxStream stream = onnx_stream(file->stream);
    onnx__model_proto__pack_to_buffer(&builder->model, &stream.base);
    return file_commit(file, diagnostics);
}

/* The data file takes its final name first, so that no model ever refers to one that is not there. */
static bool write_with_data(OnnxBuilder *builder, const char *path, const char *data_path,
                            const InitialWeights *options, OutputFile *model, Diagnostics *diagnostics)
{
    OutputFile data;
    const char *slash = strrchr(data_path, '/');
    place_outside(builder, slash ? slash + 1 : data_path);
    if (strcmp(path, "-") == 0)
        return usage_error(diagnostics, "name a file, or give --weights none",
                           "weights in a file of their own cannot be written to standard output");
    if (!file_create(&data, data_path, diagnostics)) return false;
    write_outside(builder, options, data.stream);
    return file_commit(&data, diagnostics) && write_model(builder, model, diagnostics);
}

bool onnx_builder_write(OnnxBuilder *builder, const char *path, const InitialWeights *options, Diagnostics *diagnostics)
{
    OutputFile model;
    if (!file_create(&model, path, diagnostics)) return false;
    int64_t bytes = onnx_builder_bytes(builder, false);
    bool ok;
    if (!options->present) {
        const char *slash = strrchr(path, '/');
        char *location = arena_format(&builder->arena, "%s.weights.absent", slash ? slash + 1 : path);
        for (size_t i = 0; i < builder->weight_count; i++)
            set_external(builder, builder->weights[i].tensor, (const char *const[]){"location", location}, 1);
        ok = write_model(builder, &model, diagnostics);
    } else if (bytes <= options->most_inside) {
        onnx_builder_hold(builder, options);
        ok = write_model(builder, &model, diagnostics);
    } else {
        char *data_path = arena_format(&builder->arena, "%s.data", path);
        ok = write_with_data(builder, path, data_path, options, &model, diagnostics);
    }
    if (!ok) file_abandon(&model);
    return ok;
}
