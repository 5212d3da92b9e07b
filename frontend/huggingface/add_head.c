#include "frontend/huggingface/add_head.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/huggingface/heads.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/write_model.h"

enum { LEAST_OPSET = 13 }; /* since then axes are inputs */

/* The encoder's results. */
typedef struct Encoder {
    const char *states, *pooled; /* outputs; pooled is NULL if there is none */
    int64_t hidden, opset;
} Encoder;

static bool refuse(const char *path, Diagnostics *diagnostics, const char *hint, const char *problem)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), hint, "%s", problem);
}

static bool find_states(Encoder *encoder, const Graph *graph, Arena *arena, const char *path, Diagnostics *diagnostics)
{
    size_t candidates = 0;
    const char *names = "";
    for (size_t i = 0; i < graph->output_count; i++) {
        const char *name = graph->outputs[i].name;
        const Value *value = graph_value(graph, graph->outputs[i].value);
        bool named = strcmp(name, "last_hidden_state") == 0;
        names = arena_format(arena, "%s%s%s", names, i ? ", " : "", name);
        if (strstr(name, "logits") || strcmp(name, "embedding") == 0)
            return refuse(path, diagnostics, "skycc import FOLDER --head puts another one on the encoder",
                          arena_format(arena, "has a head already: its output is '%s'", name));
        if (strcmp(name, "pooler_output") == 0 && value->dtype == DTYPE_F32 && value->shape.rank == 2)
            encoder->pooled = arena_string(arena, name);
        if (value->dtype != DTYPE_F32 || value->shape.rank != 3 || candidates > 1000) continue;
        candidates = named ? 1001 : candidates + 1;
        encoder->states = arena_string(arena, name);
        encoder->hidden = value->shape.dim[2];
    }
    if (candidates == 1 || candidates == 1001) return true;
    return refuse(path, diagnostics,
                  "export the encoder alone, in float32, with an output 'last_hidden_state' of [batch, seq, hidden]",
                  arena_format(arena, "must have exactly one output that a head can read, but has %s", names));
}

/* Shapes are known only after a full import. */
static bool inspect(Encoder *encoder, Arena *arena, const char *path, Diagnostics *diagnostics)
{
    enum { ANY_DIMENSION = 8 };
    ImportOptions options = {.no_weights = true, .default_dimension = ANY_DIMENSION};
    Graph graph;
    ImportedModel model;
    Diagnostics unread = {0}; /* warnings come again when the new model is imported */
    graph_init(&graph, path);
    bool ok = import_onnx(&graph, &model, path, &options, &unread);
    if (!ok) diagnostics_append(diagnostics, &unread);
    if (ok) encoder->opset = model.opset;
    ok = ok && find_states(encoder, &graph, arena, path, diagnostics);
    graph_free(&graph);
    imported_model_free(&model);
    diagnostics_free(&unread);
    return ok;
}

/* ---- Extending the model ---- */

static BuilderDimension dimension_of(const Onnx__GraphProto *graph, const char *output, size_t axis, const char *name)
{
    for (size_t i = 0; i < graph->n_output; i++) {
        const Onnx__TypeProto *type = graph->output[i]->type;
        if (strcmp(graph->output[i]->name, output) != 0 || !type ||
            type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type->shape ||
            axis >= type->tensor_type->shape->n_dim)
            continue;
        const Onnx__TensorShapeProto__Dimension *dimension = type->tensor_type->shape->dim[axis];
        if (dimension->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && dimension->dim_value > 0)
            return (BuilderDimension){dimension->dim_value, name};
        if (dimension->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *dimension->dim_param)
            return (BuilderDimension){0, dimension->dim_param};
    }
    return (BuilderDimension){0, name};
}

/* In a model with a head, the library's names of the encoder's tensors begin with the family's name. */
static void rename_parameters(Network *network)
{
    Onnx__GraphProto *graph = &network->builder.graph;
    Arena *arena = &network->builder.arena;
    StringMap names = {0};
    for (size_t i = 0; i < graph->n_initializer; i++) {
        string_map_add(&names, graph->initializer[i]->name, (uint32_t)i);
        graph->initializer[i]->name = arena_format(arena, "%s%s", network->prefix, graph->initializer[i]->name);
    }
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_input; k++) {
            const uint32_t *found = string_map_find(&names, graph->node[i]->input[k]);
            if (found) graph->node[i]->input[k] = graph->initializer[*found]->name;
        }
    string_map_free(&names);
}

/* Removes nodes and parameters that no output needs any more, such as a pooler. Nodes are in order. */
static void remove_unused(Onnx__GraphProto *graph)
{
    StringMap needed = {0};
    for (size_t i = 0; i < graph->n_output; i++) string_map_add(&needed, graph->output[i]->name, 0);
    for (size_t i = graph->n_node; i-- > 0;) {
        const Onnx__NodeProto *node = graph->node[i];
        bool any = false;
        for (size_t k = 0; k < node->n_output; k++) any |= string_map_find(&needed, node->output[k]) != NULL;
        for (size_t k = 0; any && k < node->n_input; k++) string_map_add(&needed, node->input[k], 0);
    }
    size_t nodes = 0, initializers = 0;
    for (size_t i = 0; i < graph->n_node; i++)
        if (string_map_find(&needed, graph->node[i]->output[0])) graph->node[nodes++] = graph->node[i];
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (string_map_find(&needed, graph->initializer[i]->name))
            graph->initializer[initializers++] = graph->initializer[i];
    graph->n_node = nodes;
    graph->n_initializer = initializers;
    string_map_free(&needed);
}

static void set_property(OnnxBuilder *builder, const char *key, const char *value)
{
    for (size_t i = 0; i < builder->model.n_metadata_props; i++)
        if (strcmp(builder->model.metadata_props[i]->key, key) == 0)
            builder->model.metadata_props[i]->value = arena_string(&builder->arena, value);
}

/* For a model that skycc import made. */
static void add_family_head(Network *network, const Encoder *encoder, const Head *head)
{
    bool alone = head->kind == HEAD_MEAN || head->kind == HEAD_FIRST;
    Onnx__GraphProto *graph = &network->builder.graph;
    network->prefix = alone ? "" : arena_format(&network->builder.arena, "%s.", network->config->type->base);
    rename_parameters(network);
    for (size_t i = 0; i < graph->n_initializer; i++)
        string_map_add(&network->parameters, graph->initializer[i]->name, 0);
    head_build(network, head, encoder->states);
    remove_unused(graph);
    Buffer config = {0};
    config_print(network->config, head, &config);
    set_property(&network->builder, PROPERTY_CONFIG, buffer_text(&config));
    set_property(&network->builder, PROPERTY_HEAD, head_text(&network->builder.arena, head));
    buffer_free(&config);
}

/* For any other model. Its parameters must not have names of new ones. */
static bool add_plain_head(Network *network, const Encoder *encoder, const Head *head, const char *path)
{
    const Onnx__GraphProto *graph = &network->builder.graph;
    const size_t former = graph->n_initializer;
    network->pooled = encoder->pooled;
    head_build(network, head, encoder->states);
    for (size_t i = 0; i < network->added_count; i++)
        for (size_t k = 0; k < former; k++)
            if (strcmp(network->added[i], graph->initializer[k]->name) == 0)
                return refuse(path, network->diagnostics, NULL,
                              arena_format(&network->builder.arena, "has a parameter '%s' already", network->added[i]));
    return true;
}

static bool has_mask(const Onnx__GraphProto *graph)
{
    for (size_t i = 0; i < graph->n_input; i++)
        if (strcmp(graph->input[i]->name, "attention_mask") == 0) return true;
    return false;
}

static bool add(OnnxModel *model, const Encoder *encoder, const Head *head, const char *output, uint64_t seed,
                FILE *summary, Diagnostics *diagnostics)
{
    static const ModelType plain = {"encoder", FAMILY_BERT, "Bert", "bert", NULL, false};
    const char *path = model->path, *text = onnx_model_property(model, PROPERTY_CONFIG);
    HuggingFaceConfig config = {.type = &plain, .hidden = encoder->hidden, .heads = 1, .initial_deviation = 0.02};
    bool family = text && onnx_model_is_distinct(model), ok = true;
    Network network = {.config = &config, .diagnostics = diagnostics, .prefix = "", .draws = true};
    onnx_builder_continue(&network.builder, model->proto);
    Onnx__GraphProto *graph = &network.builder.graph;
    network.inputs[1] = "attention_mask";
    network.batch = dimension_of(graph, encoder->states, 0, "batch");
    network.sequence = dimension_of(graph, encoder->states, 1, "seq");
    graph->n_output = 0;
    network.builder.output_capacity = 0;
    if (family)
        ok = config_parse(&config, text, path, &network.builder.arena, diagnostics);
    else if (head->pairs)
        ok = refuse(path, diagnostics, "skycc import FOLDER --head pairs:mean", "takes one text a row, not pairs");
    else if (head->kind == HEAD_MASKED)
        ok = refuse(path, diagnostics, "skycc import FOLDER --head mlm",
                    "was not made by skycc import, so it does not say which weights a language model shares with it");
    if (ok && head->kind == HEAD_MEAN && !has_mask(graph))
        ok = refuse(path, diagnostics, "embedding:cls needs none", "has no input 'attention_mask' to average with");
    if (ok && family)
        add_family_head(&network, encoder, head);
    else if (ok)
        ok = add_plain_head(&network, encoder, head, path);
    onnx_builder_hold(&network.builder, &(InitialWeights){.seed = seed, .deviation = config.initial_deviation});
    model->proto = &network.builder.model;
    ok = ok && onnx_write_model(model, output, diagnostics);
    for (size_t i = 0; ok && summary && i < network.added_count; i++)
        text_print(summary, "%s%s", i ? ", " : "new: ", network.added[i]);
    if (ok && summary && network.added_count) fputc('\n', summary);
    if (family) config_free(&config);
    string_map_free(&network.parameters);
    free(network.widened);
    free(network.added);
    onnx_builder_close(&network.builder);
    return ok;
}

bool head_add(const char *path, const char *output, const Head *head, uint64_t seed, FILE *summary,
              Diagnostics *diagnostics)
{
    Encoder encoder = {0};
    Arena arena = {0};
    OnnxModel model = {0};
    bool ok = inspect(&encoder, &arena, path, diagnostics);
    if (ok && encoder.opset < LEAST_OPSET)
        ok = refuse(path, diagnostics, "export it with a newer opset",
                    "uses an opset before 13, to which skycc adds no heads");
    ok = ok && onnx_model_open(&model, path, false, diagnostics);
    for (size_t i = 0; ok && i < model.proto->graph->n_initializer; i++)
        ok = onnx_restore_initializer(&model, i, model.proto->graph->initializer[i], diagnostics);
    ok = ok && add(&model, &encoder, head, output, seed, summary, diagnostics);
    if (model.path) onnx_model_close(&model);
    arena_free(&arena);
    return ok;
}
