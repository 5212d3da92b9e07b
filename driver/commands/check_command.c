/* skycc check: imports a model and lists what is in it. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/compile/training_model.h"
#include "graph/analysis/layer_work.h"

enum { ASSUMED_DIMENSION = 8 };

/* ---- What there is ---- */

typedef struct OperatorCount {
    const char *domain, *op;
    int count;
    bool supported;
} OperatorCount;

typedef struct Census {
    OperatorCount *operators; /* the most frequent first */
    size_t operator_count, operator_capacity;
    int64_t parameters; /* tensors trained; tied names count once */
    int64_t elements;   /* in all of them */
    double bytes;
} Census;

static int by_name(const void *a, const void *b)
{
    const OperatorCount *left = a, *right = b;
    int order = strcmp(left->op, right->op);
    return order ? order : strcmp(left->domain, right->domain);
}

static int by_count(const void *a, const void *b)
{
    const OperatorCount *left = a, *right = b;
    if (left->count != right->count) return left->count > right->count ? -1 : 1;
    return by_name(left, right);
}

static void add_operator(Census *census, OperatorCount operator)
{
    if (!operator.domain) operator.domain = "";
    if (!operator.op) operator.op = "";
    array_push(census->operators, census->operator_count, census->operator_capacity, operator);
}

/* Each node counts its operator once, and a function none of its own: the import reports operators in the definition
 * that are not supported. */
static void count_operators(Census *census, const Onnx__ModelProto *model)
{
    for (size_t i = 0; i < model->n_functions; i++)
        add_operator(census, (OperatorCount){model->functions[i]->domain, model->functions[i]->name, 0, true});
    for (size_t i = 0; i < model->graph->n_node; i++) {
        const Onnx__NodeProto *node = model->graph->node[i];
        add_operator(census, (OperatorCount){node->domain, node->op_type, 1, false});
    }
    size_t count = census->operator_count;
    if (count) qsort(census->operators, count, sizeof *census->operators, by_name);
    census->operator_count = 0;
    for (size_t i = 0, next; i < count; i = next) {
        OperatorCount sum = census->operators[i];
        for (next = i + 1; next < count && by_name(&sum, &census->operators[next]) == 0; next++) {
            sum.count += census->operators[next].count;
            sum.supported |= census->operators[next].supported;
        }
        sum.supported = sum.supported || onnx_operator_supported(sum.domain, sum.op);
        if (sum.count) census->operators[census->operator_count++] = sum;
    }
    if (census->operator_count) qsort(census->operators, census->operator_count, sizeof *census->operators, by_count);
}

static void take_census(Census *census, const TrainingModel *model)
{
    const Onnx__ModelProto *proto = model->imported.onnx.proto;
    if (proto && proto->graph) count_operators(census, proto);
    for (size_t i = 0; model->graph.values && i < model->imported.parameter_count;
         i++) { /* else they are in no graph */
        if (model->imported.parameters[i].tied || !model->imported.parameters[i].trained) continue;
        const Value *value = graph_value(&model->graph, model->imported.parameters[i].value);
        int64_t elements = shape_elements(&value->shape);
        census->parameters++;
        census->elements += elements;
        census->bytes += (double)dtype_bytes(value->dtype, elements);
    }
}

/* ---- JSON ---- */

/* Opens an object for the caller to close. */
static void open_tensor(JsonWriter *json, const char *name, DType dtype, const Shape *shape)
{
    char text[256];
    json_open(json, NULL, '{');
    json_add_string(json, "name", name);
    json_add_string(json, "dtype", dtype_name(dtype));
    json_add_raw(json, "shape", "%s", shape_format(shape, text));
}

static void add_parameter(JsonWriter *json, const ImportedParameter *parameter, const Value *value)
{
    Shape own = value->shape; /* in the shape of this name */
    if (parameter->copies) own = parameter->copies->shape;
    if (parameter->transposed) own = (Shape){2, {value->shape.dim[1], value->shape.dim[0]}};
    open_tensor(json, parameter->name, value->dtype, &own);
    if (parameter->alias) json_add_string(json, "alias", parameter->alias);
    if (parameter->tied) {
        json_add_string(json, "tied_to", value->name);
        json_add_bool(json, "transposed", parameter->transposed);
    }
    json_close(json, '}');
}

static void add_parameters(JsonWriter *json, const TrainingModel *model)
{
    const ImportedModel *imported = &model->imported;
    json_open(json, "parameters", '[');
    for (size_t i = 0; i < imported->parameter_count; i++)
        add_parameter(json, &imported->parameters[i], graph_value(&model->graph, imported->parameters[i].value));
    json_close(json, ']');
    json_open(json, "trained", '[');
    for (size_t i = 0; i < imported->parameter_count; i++)
        if (imported->parameters[i].trained) json_add_string(json, NULL, imported->parameters[i].name);
    json_close(json, ']');
    json_open(json, "not_trained", '[');
    for (size_t i = 0; i < imported->untrained_count; i++) {
        json_open(json, NULL, '{');
        json_add_string(json, "name", imported->untrained[i].name);
        json_add_string(json, "why", imported->untrained[i].why);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void add_model(JsonWriter *json, const TrainingModel *model, const Census *census)
{
    const Graph *graph = &model->graph;
    json_open(json, "dimensions", '{');
    for (size_t i = 0; i < model->imported.dimension_count; i++)
        json_add_integer(json, model->imported.dimensions[i].name, model->imported.dimensions[i].value);
    json_close(json, '}');
    json_open(json, "inputs", '[');
    for (size_t i = 0; i < graph->input_count; i++) {
        const Value *input = graph_value(graph, graph->inputs[i]);
        open_tensor(json, input->name, input->dtype, &input->shape);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json, "outputs", '[');
    for (size_t i = 0; i < graph->output_count; i++) {
        const Value *output = graph_value(graph, graph->outputs[i].value);
        open_tensor(json, graph->outputs[i].name, output->dtype, &output->shape);
        json_close(json, '}');
    }
    json_close(json, ']');
    add_parameters(json, model);
    json_add_strings(json, "layers", graph->layer_names, (size_t)graph->layer_count);
    json_add_integer(json, "parameter_tensors", census->parameters);
    json_add_integer(json, "parameter_elements", census->elements);
}

static void add_operators(JsonWriter *json, const Census *census, bool supported)
{
    json_open(json, supported ? "operators" : "unsupported", supported ? '{' : '[');
    for (size_t i = 0; i < census->operator_count; i++) {
        const OperatorCount *operator= & census->operators[i];
        FREED_WITH(buffer_free) Buffer name = {0};
        buffer_print(&name, "%s%s%s", operator->domain, *operator->domain ? "." : "", operator->op);
        if (supported)
            json_add_integer(json, buffer_text(&name), operator->count);
        else if (!operator->supported)
            json_add_string(json, NULL, buffer_text(&name));
    }
    json_close(json, supported ? '}' : ']');
}

static void print_json(const Options *options, const TrainingModel *model, const Census *census, bool ok,
                       const Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    JsonWriter json = {.buffer = &text};
    char hash[33];
    json_open(&json, NULL, '{');
    json_add_string(&json, "model", options->model);
    json_add_bool(&json, "ok", ok);
    json_add_integer(&json, "opset", model->imported.opset);
    json_add_string(&json, "model_hash", hash_format(model->imported.onnx.hash, hash));
    add_operators(&json, census, true);
    add_operators(&json, census, false);
    if (ok) add_model(&json, model, census);
    json_add_diagnostics(&json, "errors", diagnostics, true);
    json_add_diagnostics(&json, "warnings", diagnostics, false);
    json_close(&json, '}');
    printf("%s\n", buffer_text(&text));
}

/* ---- Text ---- */

static void print_tensor(const char *label, const char *name, const Value *value)
{
    char shape[256];
    text_print(stdout, "%-11s %s  %s %s\n", label, name, dtype_name(value->dtype), shape_format(&value->shape, shape));
}

static void print_parameter(const ImportedParameter *parameter, const Value *value)
{
    char shape[256];
    text_print(stdout, "%-11s %s  %s %s%s%s%s%s\n", parameter->tied ? "  (tied)" : "", parameter->name,
               dtype_name(value->dtype), shape_format(&value->shape, shape), parameter->alias ? "  " : "",
               parameter->alias ? parameter->alias : "", parameter->why ? ": " : "",
               parameter->why ? parameter->why : "");
}

static void print_operators(const Census *census, const char *label, bool supported)
{
    enum { WIDTH = 100, INDENT = 12 };
    int column = 0;
    for (size_t i = 0; i < census->operator_count; i++) {
        const OperatorCount *operator= & census->operators[i];
        char text[128];
        if (operator->supported != supported) continue;
        int length = snprintf(text, sizeof text, " %.60s%s%.40s %d", operator->domain,
                              *operator->domain ? "." : "", operator->op, operator->count);
        if (!column)
            text_print(stdout, "%-*s", INDENT - 1, label);
        else
            putchar(',');
        bool wraps = column && column + 1 + length > WIDTH;
        if (wraps) text_print(stdout, "\n%*s", INDENT - 1, "");
        column = (column && !wraps ? column + 1 : INDENT - 1) + length;
        text_print(stdout, "%s", text);
    }
    if (column) putchar('\n');
}

/* A model that cannot be imported still has its operators listed. */
static void print_text(const Options *options, const TrainingModel *model, const Census *census, bool ok)
{
    const Graph *graph = &model->graph;
    const ImportedModel *imported = &model->imported;
    if (!census->operator_count) return;
    text_print(stdout, "%-11s %s, opset %lld\n", "model", options->model, (long long)imported->opset);
    if (!ok) {
        print_operators(census, "operators", true);
        print_operators(census, "unsupported", false);
        return;
    }
    for (size_t i = 0; i < imported->dimension_count; i++)
        text_print(stdout, "%-11s %s = %lld\n", i ? "" : "dimensions", imported->dimensions[i].name,
                   (long long)imported->dimensions[i].value);
    for (size_t i = 0; i < graph->input_count; i++)
        print_tensor(i ? "" : "inputs", graph_value(graph, graph->inputs[i])->name,
                     graph_value(graph, graph->inputs[i]));
    for (size_t i = 0; i < graph->output_count; i++)
        print_tensor(i ? "" : "outputs", graph->outputs[i].name, graph_value(graph, graph->outputs[i].value));
    print_operators(census, "operators", true);
    text_print(stdout, "%-11s %lld tensors, %lld elements, %.1f MB\n", "parameters", (long long)census->parameters,
               (long long)census->elements, census->bytes * 1e-6);
    for (size_t i = 0; options->verbose && i < imported->parameter_count; i++)
        print_parameter(&imported->parameters[i], graph_value(graph, imported->parameters[i].value));
    for (size_t i = 0; i < imported->untrained_count; i++)
        text_print(stdout, "%-11s %s: %s\n", i ? "" : "not trained", imported->untrained[i].name,
                   imported->untrained[i].why);
    for (int i = 0; i < graph->layer_count; i++)
        text_print(stdout, "%-11s %d %s\n", i ? "" : "layers", i, graph->layer_names[i]);
}

bool check_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(training_model_free) TrainingModel model = {0};
    Census census = {0};
    ModelOptions load = {.import = options->load.import, .low_rank = options->load.low_rank};
    load.import.default_dimension = ASSUMED_DIMENSION;
    bool ok = training_model_load(&model, options->model, &load, diagnostics);
    int code = diagnostics->exit_code;
    if (ok) layers_warn_of_large(&model.graph, diagnostics);
    take_census(&census, &model);
    if (options->json) {
        print_json(options, &model, &census, ok, diagnostics);
        diagnostics_free(diagnostics); /* they are in the JSON */
        diagnostics->exit_code = code;
    } else {
        print_text(options, &model, &census, ok);
    }
    free(census.operators);
    return ok;
}
