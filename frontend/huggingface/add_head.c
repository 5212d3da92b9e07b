#include "frontend/huggingface/add_head.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "frontend/huggingface/heads.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/onnx/write_model.h"
#include "runtime/program/label_names.h"

enum { LEAST_OPSET = 13 }; /* since then axes are inputs */

static bool refuse(const char *path, Diagnostics *diagnostics, const char *hint, const char *problem)
{
    return input_error(diagnostics, path, hint, "%s", problem);
}

bool head_can_be_added(const FoundHead *found, const Head *head, bool has_mask, const char *path, Arena *arena,
                       Diagnostics *diagnostics)
{
    if (!found->states && found->head.kind != HEAD_FROM_FOLDER)
        return refuse(path, diagnostics, "--as-is keeps it; skycc import FOLDER --head puts another one on the encoder",
                      arena_format(arena, "has a head already: its output is '%s'", found->outputs[0]));
    if (!found->states)
        return refuse(
            path, diagnostics,
            "export the encoder alone, in float32, with an output 'last_hidden_state' of [batch, seq, hidden]",
            arena_format(arena, "must have exactly one output that a head can read, but has %s", found->all));
    if (found->opset < LEAST_OPSET)
        return refuse(path, diagnostics, "export it with a newer opset",
                      "uses an opset before 13, to which skycc adds no heads");
    if (head->kind == HEAD_NEXT && !found->imported)
        return refuse(path, diagnostics, "export it with its head, or skycc import FOLDER --head lm",
                      "was not made by skycc import, so nothing says how it would predict tokens");
    if (head->kind == HEAD_MASKED && !found->imported && !found->table)
        return refuse(path, diagnostics, "skycc import FOLDER --head mlm",
                      "was not made by skycc import, so it does not say which weights a language model shares with it");
    return head->kind != HEAD_MEAN || has_mask ||
           refuse(path, diagnostics, "embedding:cls needs none", "has no input 'attention_mask' to average with");
}

/* ---- Extending the model ---- */

static const Onnx__ValueInfoProto *find(Onnx__ValueInfoProto *const *values, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(values[i]->name, name) == 0) return values[i];
    return NULL;
}

/* NULL: it is not known. */
static Onnx__TensorShapeProto__Dimension *dimension(const Onnx__ValueInfoProto *value, size_t axis)
{
    const Onnx__TensorShapeProto *shape = value ? onnx_value_shape(value) : NULL;
    return shape && axis < shape->n_dim ? shape->dim[axis] : NULL;
}

static bool is_symbolic(const Onnx__TensorShapeProto__Dimension *found)
{
    return found && found->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM && *found->dim_param;
}

static BuilderDimension dimension_of(const Onnx__ValueInfoProto *value, size_t axis, const char *name)
{
    const Onnx__TensorShapeProto__Dimension *found = dimension(value, axis);
    if (found && found->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE && found->dim_value > 0)
        return (BuilderDimension){found->dim_value, name};
    return (BuilderDimension){0, is_symbolic(found) ? found->dim_param : name};
}

/* Rows and tokens of all inputs have the names that those of input_ids have. */
static void share_dimensions(Onnx__GraphProto *graph)
{
    const Onnx__ValueInfoProto *ids = find(graph->input, graph->n_input, "input_ids");
    for (size_t i = 0; i < graph->n_input; i++)
        for (size_t axis = 0; axis < 2; axis++) {
            Onnx__TensorShapeProto__Dimension *own = dimension(graph->input[i], axis), *first = dimension(ids, axis);
            if (is_symbolic(own) && is_symbolic(first) && own->dim_param != first->dim_param)
                own->dim_param = first->dim_param;
        }
}

/* ---- Names of values ---- */

static void replace_name(char **name, const char *former, char *renamed)
{
    if (strcmp(*name, former) == 0) *name = renamed;
}

static void rename_value(OnnxBuilder *builder, const char *former, const char *name)
{
    Onnx__GraphProto *graph = &builder->graph;
    char *renamed = (char *)arena_string(&builder->arena, name);
    former = arena_string(&builder->arena, former);
    for (size_t i = 0; i < graph->n_output; i++) replace_name(&graph->output[i]->name, former, renamed);
    for (size_t i = 0; i < graph->n_initializer; i++) replace_name(&graph->initializer[i]->name, former, renamed);
    for (size_t i = 0; i < graph->n_node; i++) {
        Onnx__NodeProto *node = graph->node[i];
        for (size_t k = 0; k < node->n_input; k++) replace_name(&node->input[k], former, renamed);
        for (size_t k = 0; k < node->n_output; k++) replace_name(&node->output[k], former, renamed);
    }
}

/* Values inside the graph may not have the names that the head's outputs get. */
static void make_room(OnnxBuilder *builder, const Head *head)
{
    const char *names[2];
    head_outputs(head, names);
    for (int i = 0; i < 2 && names[i]; i++)
        rename_value(builder, names[i], arena_format(&builder->arena, "%s.inside", names[i]));
}

/* In a model with a head, the library's names of the encoder's tensors begin with the family's name. */
static void rename_parameters(Network *network)
{
    Onnx__GraphProto *graph = &network->builder.graph;
    Arena *arena = &network->builder.arena;
    FREED_WITH(string_map_free) StringMap names = {0};
    for (size_t i = 0; i < graph->n_initializer; i++) {
        string_map_add(&names, graph->initializer[i]->name, (uint32_t)i);
        graph->initializer[i]->name = arena_format(arena, "%s%s", network->prefix, graph->initializer[i]->name);
    }
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_input; k++) {
            const uint32_t *found = string_map_find(&names, graph->node[i]->input[k]);
            if (found) graph->node[i]->input[k] = graph->initializer[*found]->name;
        }
}

/* Removes nodes and parameters that no output needs any more, such as a pooler. Nodes are in order. */
static void remove_unused(Onnx__GraphProto *graph)
{
    FREED_WITH(string_map_free) StringMap needed = {0};
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
}

static void set_property(OnnxBuilder *builder, const char *key, const char *value)
{
    for (size_t i = 0; i < builder->model.n_metadata_props; i++)
        if (strcmp(builder->model.metadata_props[i]->key, key) == 0) {
            builder->model.metadata_props[i]->value = arena_string(&builder->arena, value);
            return;
        }
    onnx_builder_property(builder, key, value);
}

/* What compile, train and predict have to know of the model with its head. */
static void describe(OnnxBuilder *builder, const FoundHead *found, const Head *head, const char *path)
{
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    FREED_WITH(diagnostics_free) Diagnostics unused = {0}; /* graphs of other kinds of models are of use too */
    FREED_WITH(buffer_free) Buffer text = {0};
    set_property(builder, PROPERTY_HEAD, head_text(&builder->arena, head));
    if (found->config && config_parse(&config, found->config, path, &builder->arena, &unused)) {
        config_print(&config, head, &text);
        set_property(builder, PROPERTY_CONFIG, buffer_text(&text));
    }
    if (head->names && !found->imported) {
        text.size = 0;
        label_names_print(&text, head->names, (size_t)head->labels);
        set_property(builder, PROPERTY_LABELS, buffer_text(&text));
    }
}

/* Gives every input a second one, and the encoder the rows of both: the first ones, then the second ones. */
static void take_pairs(Network *network)
{
    OnnxBuilder *builder = &network->builder;
    Onnx__GraphProto *graph = &builder->graph;
    size_t inputs = graph->n_input, nodes = graph->n_node;
    Onnx__NodeProto **joins = arena_new_array(&builder->arena, Onnx__NodeProto *, inputs + nodes);
    for (size_t i = 0; i < inputs; i++) {
        const Onnx__ValueInfoProto *input = graph->input[i];
        const char *second = arena_format(&builder->arena, "%s_2", input->name);
        onnx_builder_input(builder, second, input->type->tensor_type->elem_type,
                           (BuilderDimension[]){dimension_of(input, 0, "batch"), dimension_of(input, 1, "seq")}, 2);
        joins[i] = onnx_builder_node(builder, "pairs", "Concat", (const char *const[]){input->name, second}, 2);
        onnx_node_integer(builder, joins[i], "axis", 0);
        for (size_t n = 0; n < nodes; n++)
            for (size_t k = 0; k < graph->node[n]->n_input; k++)
                if (strcmp(graph->node[n]->input[k], input->name) == 0)
                    graph->node[n]->input[k] = (char *)onnx_node_output(joins[i]);
        const char *const names[] = {"input_ids", "attention_mask"};
        for (int k = 0; k < 2; k++)
            if (strcmp(input->name, names[k]) == 0) network->inputs[k] = onnx_node_output(joins[i]);
    }
    memcpy(joins + inputs, graph->node, nodes * sizeof *joins); /* nodes are in order */
    memcpy(graph->node, joins, (inputs + nodes) * sizeof *joins);
}

/* For a model that skycc import made. */
static void add_family_head(Network *network, const FoundHead *found, const Head *head)
{
    bool alone = head->kind == HEAD_MEAN || head->kind == HEAD_FIRST;
    Onnx__GraphProto *graph = &network->builder.graph;
    network->prefix = alone ? "" : arena_format(&network->builder.arena, "%s.", network->config->type->base);
    rename_parameters(network);
    for (size_t i = 0; i < graph->n_initializer; i++)
        string_map_add(&network->parameters, graph->initializer[i]->name, 0);
    head_build(network, head, found->states);
    remove_unused(graph);
}

/* For any other model. Its parameters must not have names of new ones. */
static bool add_plain_head(Network *network, const FoundHead *found, const Head *head, const char *path)
{
    const Onnx__GraphProto *graph = &network->builder.graph;
    const size_t former = graph->n_initializer;
    network->pooled = found->pooled, network->table = found->table;
    head_build(network, head, found->states);
    for (size_t i = 0; i < network->added_count; i++)
        for (size_t k = 0; k < former; k++)
            if (strcmp(network->added[i], graph->initializer[k]->name) == 0)
                return refuse(path, network->diagnostics, NULL,
                              arena_format(&network->builder.arena, "has a parameter '%s' already", network->added[i]));
    return true;
}

static bool add(OnnxModel *model, const FoundHead *found, const Head *head, const char *output, uint64_t seed,
                FILE *summary, Diagnostics *diagnostics)
{
    static const ModelType plain = {"encoder", FAMILY_BERT, "Bert", "bert", NULL, false};
    const char *path = model->path;
    HuggingFaceConfig config = {.type = &plain,
                                .hidden = found->hidden,
                                .heads = 1,
                                .initial_deviation = 0.02,
                                .vocabulary = found->vocabulary,
                                .embedding = found->width,
                                .ties_decoder = true,
                                .activation = ACTIVATION_GELU,
                                .norm_epsilon = 1e-12};
    Network network = {.config = &config, .diagnostics = diagnostics, .prefix = "", .draws = true};
    onnx_builder_continue(&network.builder, model->proto);
    Onnx__GraphProto *graph = &network.builder.graph;
    network.inputs[1] = "attention_mask";
    const Onnx__ValueInfoProto *states = find(graph->output, graph->n_output, found->states ? found->states : "");
    network.batch = dimension_of(states, 0, "batch");
    network.sequence = dimension_of(states, 1, "seq");
    share_dimensions(graph);
    bool ok = head_can_be_added(found, head, find(graph->input, graph->n_input, "attention_mask"), path,
                                &network.builder.arena, diagnostics);
    graph->n_output = 0;
    network.builder.output_capacity = 0;
    if (ok) make_room(&network.builder, head);
    if (ok && found->imported) ok = config_parse(&config, found->config, path, &network.builder.arena, diagnostics);
    if (ok && head->pairs) take_pairs(&network);
    if (ok && found->imported)
        add_family_head(&network, found, head);
    else if (ok)
        ok = add_plain_head(&network, found, head, path);
    if (ok) describe(&network.builder, found, head, path);
    onnx_builder_hold(&network.builder, &(InitialWeights){.seed = seed, .deviation = config.initial_deviation});
    model->proto = &network.builder.model;
    ok = ok && onnx_write_model(model, output, diagnostics);
    for (size_t i = 0; ok && summary && i < network.added_count; i++)
        text_print(summary, "%s%s", i ? ", " : "new: ", network.added[i]);
    if (ok && summary && network.added_count) fputc('\n', summary);
    if (found->imported) config_free(&config);
    string_map_free(&network.parameters);
    free(network.widened);
    free(network.added);
    onnx_builder_close(&network.builder);
    return ok;
}

/* ---- Keeping the head that is there ---- */

static bool keep(OnnxModel *model, const FoundHead *found, const Head *given, const char *output,
                 Diagnostics *diagnostics)
{
    FREED_WITH(onnx_builder_close) OnnxBuilder builder = {0};
    Head head = *given;
    const char *names[2];
    onnx_builder_continue(&builder, model->proto);
    share_dimensions(&builder.graph);
    bool ok = found_head_is(found, &head) ||
              refuse(model->path, diagnostics, "leave --as-is out to put a new head on an encoder",
                     arena_format(&builder.arena, "does not have the head %s: its outputs are %s",
                                  head_text(&builder.arena, &head), found->all));
    if (!head.names) head.names = found->head.names;
    head_outputs(&head, names);
    for (int i = 0; ok && i < 2 && names[i]; i++)
        rename_value(&builder, found->outputs[i], arena_format(&builder.arena, "%s.outside", names[i]));
    if (ok) make_room(&builder, &head);
    for (int i = 0; ok && i < 2 && names[i]; i++)
        rename_value(&builder, arena_format(&builder.arena, "%s.outside", names[i]), names[i]);
    if (ok) describe(&builder, found, &head, model->path);
    model->proto = &builder.model;
    return ok && onnx_write_model(model, output, diagnostics);
}

static bool write(const char *path, const Head *head, bool keeps, const char *output, uint64_t seed, FILE *summary,
                  Diagnostics *diagnostics)
{
    FoundHead found;
    FREED_WITH(arena_free) Arena arena = {0};
    OnnxModel model = {0};
    bool ok = found_head_read(&found, path, &arena, diagnostics) && onnx_model_open(&model, path, false, diagnostics);
    for (size_t i = 0; ok && i < model.proto->graph->n_initializer; i++)
        ok = onnx_restore_initializer(&model, i, model.proto->graph->initializer[i], diagnostics);
    if (ok && keeps)
        ok = keep(&model, &found, head, output, diagnostics);
    else if (ok)
        ok = add(&model, &found, head, output, seed, summary, diagnostics);
    if (model.path) onnx_model_close(&model);
    return ok;
}

bool head_add(const char *path, const char *output, const Head *head, uint64_t seed, FILE *summary,
              Diagnostics *diagnostics)
{
    return write(path, head, false, output, seed, summary, diagnostics);
}

bool head_keep(const char *path, const char *output, const Head *head, Diagnostics *diagnostics)
{
    return write(path, head, true, output, 0, NULL, diagnostics);
}
