#include "frontend/onnx/export.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/write_model.h"
#include "graph/analysis/parameter_values.h"

typedef struct Exporter {
    ImportedModel *model;
    const Graph *parameters;    /* of the model */
    const ImportedModel *whole; /* imported to tell which parameters are trained; NULL where that is impossible */
    bool distinct;              /* every initializer is one parameter */
    Onnx__GraphProto *graph;
    FindTrained *find;
    void *context;
    Diagnostics *diagnostics;
} Exporter;

static Arena *arena_of(const Exporter *exporter) { return &exporter->model->onnx.arena; }

static bool refuse(const Exporter *exporter, const char *name, const char *problem)
{
    char object[512];
    snprintf(object, sizeof object, "parameter '%.400s'", name);
    return diagnostics_error(exporter->diagnostics, EXIT_BAD_INPUT,
                             (Place){.file = exporter->model->onnx.path, .object = object},
                             "give the model that the checkpoint was made from", "%s", problem);
}

/* ---- Initializers ---- */

static bool set_trained(const Exporter *exporter, Onnx__TensorProto *tensor, const char *name,
                        const TrainedTensor *trained)
{
    DType dtype = onnx_dtype(tensor->data_type);
    size_t size = dtype_size(dtype);
    bool same = (size_t)trained->shape.rank == tensor->n_dims;
    for (size_t i = 0; same && i < tensor->n_dims; i++) same = trained->shape.dim[i] == tensor->dims[i];
    if (!same) return refuse(exporter, name, "has another shape in the checkpoint");
    bool half = dtype == DTYPE_BF16 || dtype == DTYPE_F16;
    if (half && exporter->distinct) { /* skycc import's own graph casts it: trained weights keep their precision */
        dtype = DTYPE_F32;
        size = sizeof(float);
        tensor->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
    }
    int64_t elements = shape_elements(&trained->shape);
    const void *data = trained->data;
    if (trained->dtype != dtype) {
        void *converted = arena_allocate_array(arena_of(exporter), (size_t)elements, size);
        for (int64_t i = 0; i < elements; i++)
            element_store_double(dtype, converted, i, element_as_double(trained->dtype, data, i));
        data = converted;
    }
    onnx_set_raw_data(tensor, data, (size_t)elements * size);
    return true;
}

/* The same for a tensor that is computed of the parameter. */
static bool set_computed(const Exporter *exporter, Onnx__TensorProto *tensor, const ImportedParameter *parameter,
                         const TrainedTensor *trained)
{
    const ParameterCopies *copies = parameter->copies;
    TrainedTensor whole = *trained;
    size_t size = dtype_size(trained->dtype);
    if (parameter->one_plus) {
        void *data = arena_allocate_array(arena_of(exporter), (size_t)shape_elements(&trained->shape), size);
        for (int64_t i = 0; i < shape_elements(&trained->shape); i++)
            element_store_double(trained->dtype, data, i, element_as_double(trained->dtype, trained->data, i) + 1);
        whole.data = data;
        return set_trained(exporter, tensor, parameter->name, &whole);
    }
    const Shape *shape = &graph_value(exporter->parameters, parameter->value)->shape;
    if (!copies || !shape_equal(&trained->shape, shape)) return set_trained(exporter, tensor, parameter->name, trained);
    void *data = arena_allocate_array(arena_of(exporter), (size_t)shape_elements(&copies->shape), size);
    parameter_copies_expand(copies, size, trained->data, data);
    whole.shape = copies->shape;
    whole.data = data;
    return set_trained(exporter, tensor, parameter->name, &whole);
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

/* Adds an initializer for a parameter that was split off, and lets its node read it. */
static bool add_split(const Exporter *exporter, const ImportedParameter *parameter, const TrainedTensor *trained)
{
    Onnx__GraphProto *graph = exporter->graph;
    Arena *arena = arena_of(exporter);
    if (!parameter->node) return refuse(exporter, parameter->name, "is used several times, in the body of a function");
    Onnx__TensorProto *tensor =
        arena_copy(arena, graph->initializer[parameter->initializer], sizeof **graph->initializer);
    Onnx__TensorProto **initializers = arena_new_array(arena, Onnx__TensorProto *, graph->n_initializer + 1);
    for (size_t i = 0; i < graph->n_initializer; i++) initializers[i] = graph->initializer[i];
    tensor->name = arena_string(arena, parameter->name);
    initializers[graph->n_initializer++] = tensor;
    graph->initializer = initializers;
    graph->node[parameter->node - 1]->input[parameter->input] = tensor->name;
    if (exporter->model->onnx.proto->ir_version < 4) add_input(exporter, tensor);
    return trained->data ? set_computed(exporter, tensor, parameter, trained)
                         : onnx_restore_initializer(&exporter->model->onnx, parameter->initializer, tensor,
                                                    exporter->diagnostics);
}

/* Whether the parameter is trained by default; true if the whole model cannot be imported. */
static bool is_trained(const Exporter *exporter, const char *name)
{
    const ImportedModel *whole = exporter->whole;
    for (size_t i = 0; whole && i < whole->parameter_count; i++)
        if (strcmp(whole->parameters[i].name, name) == 0) return true;
    return !whole;
}

/* The model's own value, of which `check` may say what it was while others were trained. */
static bool restore(const Exporter *exporter, size_t initializer, uint64_t check)
{
    Onnx__TensorProto *tensor = exporter->graph->initializer[initializer];
    if (!onnx_restore_initializer(&exporter->model->onnx, initializer, tensor, exporter->diagnostics)) return false;
    bool known = check && tensor->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT && tensor->raw_data.len &&
                 tensor->n_dims <= MAX_RANK;
    Value value = {.dtype = DTYPE_F32, .data = tensor->raw_data.data, .shape.rank = (int)tensor->n_dims};
    for (size_t i = 0; known && i < tensor->n_dims; i++) value.shape.dim[i] = tensor->dims[i];
    return !known || parameter_form(&value, check, NULL) ||
           refuse(exporter, tensor->name, "was frozen, and had another value when the checkpoint was made");
}

static bool replace_weights(const Exporter *exporter)
{
    const ImportedModel *model = exporter->model;
    bool ok = true;
    size_t count = exporter->graph->n_initializer;
    bool *replaced = arena_new_array(arena_of(exporter), bool, count);
    uint64_t *checks = arena_new_array(arena_of(exporter), uint64_t, count);
    for (size_t i = 0; i < model->parameter_count; i++) {
        const ImportedParameter *parameter = &model->parameters[i];
        TrainedTensor trained;
        /* If every initializer is one parameter, only --untie made splits. */
        if (parameter->split && exporter->distinct && !exporter->find(exporter->context, parameter->name, &trained))
            continue;
        if (!exporter->find(exporter->context, parameter->name, &trained) &&
            !(parameter->split && exporter->find(exporter->context, parameter->leader, &trained))) {
            /* With --keep-ties the initializer was trained as one parameter, which has no splits. */
            if (!parameter->split && is_trained(exporter, parameter->name))
                ok = refuse(exporter, parameter->name, "is missing in the checkpoint");
            /* What was merged with a trained parameter, but is none, keeps its numbers. */
            if (parameter->split && replaced[parameter->initializer] &&
                (parameter->constant || !is_trained(exporter, parameter->leader)))
                ok = add_split(exporter, parameter, &(TrainedTensor){0}) && ok;
            continue;
        }
        if (parameter->split) {
            ok = add_split(exporter, parameter, &trained) && ok;
            continue;
        }
        if (!trained.data) {
            const Value *own = graph_value(exporter->parameters, parameter->value);
            if (!parameter->copies && !parameter->one_plus)
                checks[parameter->initializer] = trained.check;
            else if (trained.check && !parameter_form(own, trained.check, NULL))
                ok =
                    refuse(exporter, parameter->name, "was frozen, and had another value when the checkpoint was made");
            continue;
        }
        replaced[parameter->initializer] = true;
        ok = set_computed(exporter, exporter->graph->initializer[parameter->initializer], parameter, &trained) && ok;
    }
    for (size_t i = 0; ok && i < count; i++)
        if (!replaced[i]) ok = restore(exporter, i, checks[i]);
    return ok;
}

bool export_model(const char *path, FindTrained *find, void *context, WriteModel *write, void *writing,
                  Diagnostics *diagnostics)
{
    /* Untied, every initializer and split has its own name, however training tied them. */
    enum { ANY_DIMENSION = 8 };
    ImportOptions options = {.no_weights = true, .untie = true};
    ImportOptions whole_options = {.no_weights = true, .default_dimension = ANY_DIMENSION};
    FREED_WITH(graph_free) Graph graph = {0}, whole_graph = {0};
    FREED_WITH(imported_model_free) ImportedModel model = {0}, whole = {0};
    /* Warnings that were given when the model was compiled. */
    FREED_WITH(diagnostics_free) Diagnostics ties = {0}, unread = {0};
    graph_init(&graph, path);
    graph_init(&whole_graph, path);
    bool ok = import_parameters(&graph, &model, path, &options, &ties);
    bool is_whole = import_onnx(&whole_graph, &whole, path, &whole_options, &unread);
    if (!ok) {
        for (const Diagnostic *d = ties.first; d; d = d->next)
            if (d->is_error) diagnostics_error(diagnostics, ties.exit_code, d->place, d->hint, "%s", d->message);
    } else {
        Exporter exporter = {&model,
                             &graph,
                             is_whole ? &whole : NULL,
                             onnx_model_is_distinct(&model.onnx),
                             model.onnx.proto->graph,
                             find,
                             context,
                             diagnostics};
        ok = replace_weights(&exporter) && write(writing, &model.onnx, diagnostics);
    }
    return ok;
}

static bool write_onnx(void *output, OnnxModel *model, Diagnostics *diagnostics)
{
    return onnx_write_model(model, *(const char *const *)output, diagnostics);
}

bool export_onnx(const char *path, const char *output, FindTrained *find, void *context, Diagnostics *diagnostics)
{
    return export_model(path, find, context, write_onnx, &output, diagnostics);
}
