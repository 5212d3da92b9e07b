#include <string.h>

#include "base/buffer.h"
#include "frontend/onnx/importer.h"

typedef struct InputBinder {
    Importer *importer;
    Buffer unbound;       /* " --dim NAME=8" for each */
    Buffer assumed;       /* "NAME=8, " for each */
    StringMap dimensions; /* the names that are bound, to their numbers in the model */
} InputBinder;

static bool refuse(const Importer *importer, const char *input, const char *hint, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "input '%.400s'", input);
    return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = importer->graph->file, .object = object}, hint, "%s", problem);
}

static const DimensionBinding *find_binding(const DimensionBinding *bindings, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(bindings[i].name, name) == 0) return &bindings[i];
    return NULL;
}

const InputShape *given_input(const ImportOptions *options, const char *name, size_t position)
{
    size_t nameless = 0;
    const InputShape *by_position = NULL;
    for (size_t i = 0; i < options->input_shape_count; i++) {
        const InputShape *given = &options->input_shapes[i];
        if (given->name && strcmp(given->name, name) == 0) return given;
        if (!given->name && nameless++ == position) by_position = given;
    }
    return by_position;
}

/* The extent of axis `axis` of the tensor given for the next input; -1 if there is none. */
static int64_t given_extent(const Importer *importer, const char *input, int rank, int axis)
{
    const InputShape *given = given_input(importer->options, input, importer->graph->input_count);
    return given && given->shape.rank == rank ? given->shape.dim[axis] : -1;
}

/* The value of a symbolic dimension; -1 if nothing binds it. */
static int64_t bind_dimension(InputBinder *binder, const char *name, const char *input, int rank, int axis)
{
    Importer *importer = binder->importer;
    ImportedModel *model = importer->model;
    const ImportOptions *options = importer->options;
    const uint32_t *bound = string_map_find(&binder->dimensions, name);
    if (bound) return model->dimensions[*bound].value;
    const DimensionBinding *option = find_binding(options->dimensions, options->dimension_count, name);
    int64_t value = option ? option->value : given_extent(importer, input, rank, axis);
    if (axis == 0 && importer->graph->input_count == 0) {
        model->batch_dimension = arena_string(&model->arena, name);
        model->batch_size = value;
        if (value < 0 && options->unbound_rows) value = options->unbound_rows;
        if (value >= 0 && options->batch_rows) value = options->batch_rows;
    }
    if (value < 0 && options->default_dimension) {
        value = options->default_dimension;
        buffer_print(&binder->assumed, "%s%s=%lld", binder->assumed.size ? ", " : "", name, (long long)value);
    }
    if (value < 0) buffer_print(&binder->unbound, " --dim %s=8", name);
    DimensionBinding binding = {arena_string(&model->arena, name), value};
    string_map_add(&binder->dimensions, binding.name, (uint32_t)model->dimension_count);
    array_push(model->dimensions, model->dimension_count, model->dimension_capacity, binding);
    return value;
}

static bool read_shape(InputBinder *binder, const char *input, const Onnx__TensorShapeProto *proto, Shape *shape)
{
    Importer *importer = binder->importer;
    if (proto->n_dim > MAX_RANK) return refuse(importer, input, NULL, "has more than 8 dimensions");
    *shape = (Shape){.rank = (int)proto->n_dim};
    bool bound = true;
    for (int i = 0; i < shape->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = proto->dim[i];
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dim->dim_value >= 0) {
            shape->dim[i] = dim->dim_value;
            continue;
        }
        const char *name =
            dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM ? dim->dim_param : "";
        if (!*name) name = arena_format(&importer->arena, "%s.%d", input, i);
        shape->dim[i] = bind_dimension(binder, name, input, shape->rank, i);
        bound = bound && shape->dim[i] >= 0;
    }
    if (bound && onnx_shape_volume(shape) < 0) return refuse(importer, input, NULL, "has too many elements");
    return bound;
}

static bool import_input(InputBinder *binder, const Onnx__ValueInfoProto *input, Symbol *symbol)
{
    Importer *importer = binder->importer;
    const Onnx__TypeProto *type = input->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return refuse(importer, input->name, NULL, "is not a tensor");
    const Onnx__TypeProto__Tensor *tensor = type->tensor_type;
    DType dtype = imported_dtype(importer, tensor->elem_type);
    char object[512];
    snprintf(object, sizeof object, "input '%.400s'", input->name);
    if (dtype == DTYPE_NONE)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT,
                                 (Place){.file = importer->graph->file, .object = object},
                                 "skycc handles FLOAT, DOUBLE, FLOAT16, BFLOAT16, INT32, INT64 and BOOL",
                                 "has elements of type %s (%d), which is not supported",
                                 onnx_data_type_name(tensor->elem_type), tensor->elem_type);
    if (!tensor->shape)
        return refuse(importer, input->name, "export the model with the shapes of its inputs", "has no shape");
    Shape shape;
    if (!read_shape(binder, input->name, tensor->shape, &shape)) return false;
    symbol->value = graph_add_input(importer->graph, input->name, dtype, &shape);
    return true;
}

static void warn_about_unused(const Importer *importer)
{
    const ImportOptions *options = importer->options;
    const ImportedModel *model = importer->model;
    FREED_WITH(buffer_free) Buffer known = {0};
    for (size_t i = 0; i < model->dimension_count; i++)
        buffer_print(&known, "%s%s", i ? ", " : "", model->dimensions[i].name);
    for (size_t i = 0; i < options->dimension_count; i++)
        if (!find_binding(model->dimensions, model->dimension_count, options->dimensions[i].name))
            diagnostics_warning(importer->diagnostics, PLACE_FILE(importer->graph->file), NULL,
                                "--dim %s is ignored: the model's open dimensions are %s", options->dimensions[i].name,
                                known.size ? known.bytes : "none");
}

bool import_inputs(Importer *importer)
{
    InputBinder binder = {.importer = importer};
    bool ok = true;
    for (size_t i = 0; i < importer->proto->n_input; i++) {
        const Onnx__ValueInfoProto *input = importer->proto->input[i];
        Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, input->name)];
        if (symbol->kind == SYMBOL_INPUT) ok = import_input(&binder, input, symbol) && ok;
    }
    Place place = PLACE_FILE(importer->graph->file);
    if (binder.unbound.size) {
        FREED_WITH(buffer_free) Buffer hint = {0};
        buffer_print(&hint, "give their values:%s", binder.unbound.bytes);
        diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, place, hint.bytes,
                          "has dimensions without a value, but programs are compiled for fixed shapes");
    }
    if (binder.assumed.size)
        diagnostics_warning(importer->diagnostics, place, NULL, "its open dimensions are set to %s",
                            binder.assumed.bytes);
    warn_about_unused(importer);
    buffer_free(&binder.unbound);
    buffer_free(&binder.assumed);
    string_map_free(&binder.dimensions);
    return ok;
}
