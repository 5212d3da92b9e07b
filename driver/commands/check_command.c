/* skycc check: imports a model and says what is in it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
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

static int by_count(const void *a, const void *b)
{
    const OperatorCount *left = a, *right = b;
    if (left->count != right->count) return left->count > right->count ? -1 : 1;
    int order = strcmp(left->op, right->op);
    return order ? order : strcmp(left->domain, right->domain);
}

/* Whether the model defines the operator itself; its import reports what is not supported in the definition. */
static bool is_function(const Onnx__ModelProto *model, const char *domain, const char *op)
{
    for (size_t i = 0; i < model->n_functions; i++) {
        const Onnx__FunctionProto *function = model->functions[i];
        if (function->name && strcmp(function->name, op) == 0 &&
            strcmp(function->domain ? function->domain : "", domain) == 0)
            return true;
    }
    return false;
}

static void count_operator(Census *census, const Onnx__ModelProto *model, const char *domain, const char *op)
{
    for (size_t i = 0; i < census->operator_count; i++) {
        OperatorCount *known = &census->operators[i];
        if (strcmp(known->op, op) == 0 && strcmp(known->domain, domain) == 0) {
            known->count++;
            return;
        }
    }
    OperatorCount first = {domain, op, 1, onnx_operator_supported(domain, op) || is_function(model, domain, op)};
    array_push(census->operators, census->operator_count, census->operator_capacity, first);
}

static void take_census(Census *census, const TrainingModel *model)
{
    const Onnx__ModelProto *proto = model->imported.onnx.proto;
    for (size_t i = 0; proto && i < proto->graph->n_node; i++) {
        const Onnx__NodeProto *node = proto->graph->node[i];
        count_operator(census, proto, node->domain ? node->domain : "", node->op_type ? node->op_type : "");
    }
    if (census->operator_count) qsort(census->operators, census->operator_count, sizeof *census->operators, by_count);
    for (size_t i = 0; i < model->imported.parameter_count; i++) {
        if (model->imported.parameters[i].tied || !model->imported.parameters[i].trained) continue;
        const Value *value = graph_value(&model->graph, model->imported.parameters[i].value);
        int64_t elements = shape_elements(&value->shape);
        census->parameters++;
        census->elements += elements;
        census->bytes += (double)elements * (double)dtype_size(value->dtype);
    }
}

/* ---- JSON ---- */

static void json_tensor(Buffer *json, const char *name, const Value *value)
{
    char shape[256];
    json_print_string(json, name);
    buffer_print(json, ",\"dtype\":\"%s\",\"shape\":%s", dtype_name(value->dtype), shape_format(&value->shape, shape));
}

static void json_tensors(Buffer *json, const TrainingModel *model)
{
    const Graph *graph = &model->graph;
    const ImportedModel *imported = &model->imported;
    buffer_print(json, ",\"dimensions\":{");
    for (size_t i = 0; i < imported->dimension_count; i++) {
        if (i) buffer_print(json, ",");
        json_print_string(json, imported->dimensions[i].name);
        buffer_print(json, ":%lld", (long long)imported->dimensions[i].value);
    }
    buffer_print(json, "},\"inputs\":[");
    for (size_t i = 0; i < graph->input_count; i++) {
        buffer_print(json, "%s{\"name\":", i ? "," : "");
        json_tensor(json, graph_value(graph, graph->inputs[i])->name, graph_value(graph, graph->inputs[i]));
        buffer_print(json, "}");
    }
    buffer_print(json, "],\"outputs\":[");
    for (size_t i = 0; i < graph->output_count; i++) {
        buffer_print(json, "%s{\"name\":", i ? "," : "");
        json_tensor(json, graph->outputs[i].name, graph_value(graph, graph->outputs[i].value));
        buffer_print(json, "}");
    }
    buffer_print(json, "],\"parameters\":[");
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const ImportedParameter *parameter = &imported->parameters[i];
        const Value *value = graph_value(graph, parameter->value);
        Value own = *value; /* in the shape of this name */
        if (parameter->transposed) own.shape = (Shape){2, {value->shape.dim[1], value->shape.dim[0]}};
        buffer_print(json, "%s{\"name\":", i ? "," : "");
        json_tensor(json, parameter->name, &own);
        if (parameter->alias) {
            buffer_print(json, ",\"alias\":");
            json_print_string(json, parameter->alias);
        }
        if (parameter->tied) {
            buffer_print(json, ",\"tied_to\":");
            json_print_string(json, value->name);
            buffer_print(json, ",\"transposed\":%s", parameter->transposed ? "true" : "false");
        }
        buffer_print(json, "}");
    }
    buffer_print(json, "],\"trained\":[");
    const char *separator = "";
    for (size_t i = 0; i < imported->parameter_count; i++) {
        if (!imported->parameters[i].trained) continue;
        buffer_print(json, "%s", separator);
        json_print_string(json, imported->parameters[i].name);
        separator = ",";
    }
    buffer_print(json, "],\"not_trained\":[");
    for (size_t i = 0; i < imported->untrained_count; i++) {
        buffer_print(json, "%s{\"name\":", i ? "," : "");
        json_print_string(json, imported->untrained[i].name);
        buffer_print(json, ",\"why\":");
        json_print_string(json, imported->untrained[i].why);
        buffer_print(json, "}");
    }
    buffer_print(json, "],\"layers\":[");
    for (int i = 0; i < graph->layer_count; i++) {
        if (i) buffer_print(json, ",");
        json_print_string(json, graph->layer_names[i]);
    }
    buffer_print(json, "]");
}

static void print_json(const Options *options, const TrainingModel *model, const Census *census, bool ok,
                       const Diagnostics *diagnostics)
{
    Buffer json = {0};
    char hash[33];
    buffer_print(&json, "{\"model\":");
    json_print_string(&json, options->model);
    buffer_print(&json, ",\"ok\":%s,\"opset\":%lld,\"model_hash\":\"%s\",\"operators\":{", ok ? "true" : "false",
                 (long long)model->imported.opset, hash_format(model->imported.onnx.hash, hash));
    for (int supported = 1; supported >= 0; supported--) {
        const char *separator = "";
        for (size_t i = 0; i < census->operator_count; i++) {
            const OperatorCount *operator= & census->operators[i];
            if (!supported && operator->supported) continue;
            Buffer name = {0};
            buffer_print(&name, "%s%s%s", operator->domain, *operator->domain ? "." : "", operator->op);
            buffer_print(&json, "%s", separator);
            json_print_string(&json, buffer_text(&name));
            if (supported) buffer_print(&json, ":%d", operator->count);
            buffer_free(&name);
            separator = ",";
        }
        buffer_print(&json, supported ? "},\"unsupported\":[" : "]");
    }
    if (ok) {
        json_tensors(&json, model);
        buffer_print(&json, ",\"parameter_tensors\":%lld,\"parameter_elements\":%lld", (long long)census->parameters,
                     (long long)census->elements);
    }
    JsonWriter writer = {.buffer = &json, .follows = true};
    json_add_diagnostics(&writer, "errors", diagnostics, true);
    json_add_diagnostics(&writer, "warnings", diagnostics, false);
    buffer_print(&json, "}\n");
    fputs(json.bytes, stdout);
    buffer_free(&json);
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

/* One line or more, if there are any. */
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

/* Of a model that cannot be imported, what can be said nevertheless. */
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

int check_command(const Options *options, Diagnostics *diagnostics)
{
    TrainingModel model;
    Census census = {0};
    ModelOptions load = {.import = options->load.import, .low_rank = options->load.low_rank};
    load.import.default_dimension = ASSUMED_DIMENSION;
    bool ok = training_model_load(&model, options->model, &load, diagnostics);
    int code = ok ? EXIT_OK : diagnostics->exit_code;
    if (ok) layers_warn_of_large(&model.graph, diagnostics);
    take_census(&census, &model);
    if (options->json) {
        print_json(options, &model, &census, ok, diagnostics);
        diagnostics_free(diagnostics); /* they stand in the JSON */
    } else {
        print_text(options, &model, &census, ok);
    }
    free(census.operators);
    training_model_free(&model);
    return code;
}
