#include "frontend/onnx/import.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/onnx/normalize.h"
#include "frontend/onnx/importer.h"

/* Whether the node can be tried: no input of it failed before, and none is a sequence but that of SequenceAt. */
static bool gather_inputs(Importer *importer, const SourceNode *source, ValueId *inputs)
{
    char place[512];
    for (size_t i = 0; i < source->proto->n_input; i++) {
        if (!source->inputs[i]) continue;
        if (importer->symbols[source->inputs[i]].parts && (i || source->rule->apply != normalize_sequence_at))
            return diagnostics_error(importer->diagnostics, EXIT_UNSUPPORTED_OPERATOR,
                                     source_place(importer, source, place), NULL, "input %zu is a sequence", i);
        inputs[i] = importer->symbols[source->inputs[i]].value;
        bool of_branch = i > 0 && source->rule->apply == normalize_if; /* perhaps of the one not taken */
        if (!inputs[i] && !of_branch) return false;
    }
    return true;
}

/* Whether the node is in a branch that is not taken. The If itself reports an unknown condition. */
static bool is_left_out(const Importer *importer, const SourceNode *source)
{
    if (!source->condition) return false;
    const Value *condition = graph_value(importer->graph, importer->symbols[source->condition].value);
    if (condition->role != ROLE_CONSTANT || shape_elements(&condition->shape) != 1) return true;
    return (element_as_integer(condition->dtype, condition->data, 0) != 0) != source->when;
}

static bool import_node(Importer *importer, const SourceNode *source)
{
    const Onnx__NodeProto *proto = source->proto;
    char place[512];
    if (is_left_out(importer, source)) return true;
    if (!source->rule)
        return diagnostics_error(importer->diagnostics, EXIT_UNSUPPORTED_OPERATOR,
                                 source_place(importer, source, place), NULL, "this operator is not supported");
    if (proto->n_input > INT32_MAX || proto->n_output > INT32_MAX)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, source_place(importer, source, place), NULL,
                                 "has too many inputs or outputs");
    ValueId *inputs = arena_new_array(&importer->arena, ValueId, proto->n_input);
    ValueId *outputs = arena_new_array(&importer->arena, ValueId, proto->n_output);
    if (!gather_inputs(importer, source, inputs)) return false;
    OnnxNode node = {.importer = importer,
                     .graph = importer->graph,
                     .source = source,
                     .place = source_place(importer, source, place).object,
                     .rule = source->rule,
                     .opset = source->opset,
                     .inputs = inputs,
                     .input_count = (int)proto->n_input,
                     .outputs = outputs,
                     .output_count = (int)proto->n_output};
    while (node.input_count && !source->inputs[node.input_count - 1]) node.input_count--; /* trailing absent ones */
    bool ok = normalize_node(&node);
    for (size_t i = 0; ok && i < proto->n_output; i++) {
        Symbol *symbol = &importer->symbols[source->outputs[i]];
        if (!source->outputs[i]) continue;
        symbol->value = outputs[i];
        if (!outputs[i] && symbol->needed) ok = node_unsupported(&node, NULL, "its output %zu is not supported", i);
    }
    return ok;
}

/* If shapes do not fit, the values of open dimensions are the usual cause: the hint lists these. */
static const char *shape_hint(Importer *importer)
{
    const ImportedModel *model = importer->model;
    if (!model->dimension_count) return NULL;
    enum { MOST_LISTED = 20 };
    const char *hint = "the open dimensions are";
    for (size_t i = 0; i < model->dimension_count && i < MOST_LISTED; i++)
        hint = arena_format(&importer->arena, "%s%s %s=%lld", hint, i ? "," : "", model->dimensions[i].name,
                            (long long)model->dimensions[i].value);
    if (model->dimension_count > MOST_LISTED) hint = arena_format(&importer->arena, "%s and others", hint);
    return arena_format(&importer->arena, "%s; change them with --dim NAME=VALUE", hint);
}

/* Reports errors for every node that can be tried, up to a limit. */
static bool import_nodes(Importer *importer)
{
    enum { MOST_ERRORS = 100 };
    bool ok = true;
    importer->shape_hint = shape_hint(importer);
    for (size_t i = 0; i < importer->node_count && importer->diagnostics->errors < MOST_ERRORS; i++) {
        const SourceNode *node = &importer->nodes[importer->order[i]];
        if (node->needed) ok = import_node(importer, node) && ok;
    }
    return ok;
}

/* Checks an output against its declaration in the file. */
static bool check_declared(const Importer *importer, const Onnx__ValueInfoProto *output, const Value *value)
{
    const Onnx__TypeProto *type = output->type;
    if (!type || type->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET) return true;
    char object[512], found[256];
    snprintf(object, sizeof object, "output '%.400s'", output->name);
    Place place = {.file = importer->graph->file, .object = object};
    if (type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, place, NULL, "must be declared as a tensor");
    const Onnx__TypeProto__Tensor *tensor = type->tensor_type;
    if (tensor->elem_type && imported_dtype(importer, tensor->elem_type) != value->dtype)
        return diagnostics_error(importer->diagnostics, EXIT_BAD_INPUT, place, NULL, "is declared as %s, but is %s",
                                 onnx_data_type_name(tensor->elem_type),
                                 onnx_data_type_name(onnx_data_type(value->dtype)));
    if (!tensor->shape) return true;
    bool fits = tensor->shape->n_dim == (size_t)value->shape.rank;
    for (int i = 0; fits && i < value->shape.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];
        fits = dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
               dim->dim_value == value->shape.dim[i];
    }
    if (!fits)
        diagnostics_warning(importer->diagnostics, place, NULL, "is declared with another shape than it has, %s",
                            shape_format(&value->shape, found));
    return true;
}

static bool import_outputs(Importer *importer)
{
    Graph *graph = importer->graph;
    bool ok = true, has_loss = false;
    for (size_t i = 0; i < importer->proto->n_output; i++) {
        const Onnx__ValueInfoProto *output = importer->proto->output[i];
        const Symbol *symbol = &importer->symbols[*string_map_find(&importer->names, output->name)];
        ValueId value = symbol->value;
        if (symbol->parts)
            return diagnostics_error(importer->diagnostics, EXIT_UNSUPPORTED_OPERATOR, PLACE_FILE(graph->file), NULL,
                                     "output '%s' is a sequence", output->name);
        graph_add_output(graph, output->name, value);
        has_loss = has_loss || value == graph->loss;
        ok = check_declared(importer, output, graph_value(graph, value)) && ok;
    }
    if (graph->loss && !has_loss) { /* it is only a term of what the model gives out as its loss */
        graph->loss = 0;
        graph->loss_is_summed = false;
    }
    return ok;
}

/* How far to go. */
typedef enum ImportScope { PARAMETERS_ONLY, WHOLE_MODEL } ImportScope;

static bool import_scope(ImportScope scope, Graph *graph, ImportedModel *model, const char *path,
                         const ImportOptions *options, Diagnostics *diagnostics)
{
    *model = (ImportedModel){0};
    graph->file = path;
    if (!onnx_model_open(&model->onnx, path, options->no_weights, diagnostics)) return false;
    restore_removed_biases(&model->onnx, diagnostics);
    Importer importer = {.graph = graph,
                         .model = model,
                         .options = options,
                         .diagnostics = diagnostics,
                         .proto = model->onnx.proto->graph};
    importer.distinct = onnx_model_is_distinct(&model->onnx);
    bool ok = resolve_names(&importer);
    if (ok) choose_widening(&importer);
    if (scope == WHOLE_MODEL) ok = ok && import_inputs(&importer);
    ok = ok && import_initializers(&importer);
    if (scope == WHOLE_MODEL)
        ok = ok && import_nodes(&importer) && import_outputs(&importer) && choose_parameters(&importer);
    arena_free(&importer.arena);
    string_map_free(&importer.names);
    string_map_free(&importer.modules);
    string_map_free(&importer.parents);
    free(importer.symbols);
    return ok;
}

bool import_onnx(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                 Diagnostics *diagnostics)
{
    return import_scope(WHOLE_MODEL, graph, model, path, options, diagnostics);
}

bool import_parameters(Graph *graph, ImportedModel *model, const char *path, const ImportOptions *options,
                       Diagnostics *diagnostics)
{
    return import_scope(PARAMETERS_ONLY, graph, model, path, options, diagnostics);
}

void imported_model_free(ImportedModel *model)
{
    onnx_model_close(&model->onnx);
    free(model->parameters);
    free(model->untrained);
    free(model->padding_rows);
    free(model->dimensions);
    arena_free(&model->arena);
    *model = (ImportedModel){0};
}
