#include "frontend/huggingface/found_head.h"

#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/onnx/import.h"
#include "runtime/program/label_names.h"

enum { ANY_DIMENSION = 8, MOST_CONFIG_BYTES = 1 << 24 };

void head_outputs(const Head *head, const char *names[2])
{
    bool answers = head->kind == HEAD_QUESTION, embeds = head->kind == HEAD_MEAN || head->kind == HEAD_FIRST;
    names[0] = answers ? "start_logits" : embeds ? "embedding" : "logits";
    names[1] = answers ? "end_logits" : embeds && head->pairs ? "embedding_2" : NULL;
}

/* ---- The graph's own parameters ---- */

static const Onnx__TensorProto *initializer_of(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_initializer; i++)
        if (strcmp(graph->initializer[i]->name, name) == 0) return graph->initializer[i];
    return NULL;
}

static const Onnx__NodeProto *maker_of(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_node; i++)
        for (size_t k = 0; k < graph->node[i]->n_output; k++)
            if (strcmp(graph->node[i]->output[k], name) == 0) return graph->node[i];
    return NULL;
}

/* The tables that tokens and their places choose rows of. */
static void find_tables(FoundHead *found, const Onnx__GraphProto *graph, Arena *arena)
{
    static const char places[] = "position_embeddings.weight";
    found->positions = INT64_MAX;
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];
        size_t length = strlen(tensor->name);
        if (tensor->n_dims == 2 && length >= sizeof places - 1 &&
            strcmp(tensor->name + length - (sizeof places - 1), places) == 0)
            found->positions = tensor->dims[0];
    }
    for (size_t i = 0; i < graph->n_node && !found->table; i++) {
        const Onnx__NodeProto *node = graph->node[i], *cast;
        if (strcmp(node->op_type, "Gather") != 0 || node->n_input < 2) continue;
        const char *chosen = node->input[1];
        while ((cast = maker_of(graph, chosen)) && cast->n_input == 1 &&
               (strcmp(cast->op_type, "Cast") == 0 || strcmp(cast->op_type, "Identity") == 0))
            chosen = cast->input[0];
        const Onnx__TensorProto *table = initializer_of(graph, node->input[0]);
        if (strcmp(chosen, "input_ids") != 0 || !table || table->n_dims != 2) continue;
        found->table = arena_string(arena, table->name);
        found->vocabulary = table->dims[0], found->width = table->dims[1];
    }
}

/* ---- Its outputs ---- */

/* Outputs in float32 that are no loss. */
typedef struct Outputs {
    const NamedValue *of_rank[4][3]; /* the first ones */
    size_t counts[4], scores;        /* scores: whose names say so */
    const NamedValue *scored[3];
} Outputs;

static const Shape *shape_of(const Graph *graph, const NamedValue *output)
{
    return &graph_value(graph, output->value)->shape;
}

static Outputs list_outputs(FoundHead *found, const Graph *graph, Arena *arena)
{
    Outputs outputs = {.scores = 0};
    found->all = "";
    for (size_t i = 0; i < graph->output_count; i++) {
        const NamedValue *output = &graph->outputs[i];
        int rank = shape_of(graph, output)->rank;
        found->all = arena_format(arena, "%s%s%s", found->all, i ? ", " : "", output->name);
        if (graph_value(graph, output->value)->dtype != DTYPE_F32 || rank < 1 || rank > 3) continue;
        if (strstr(output->name, "logits") && outputs.scores < 3) outputs.scored[outputs.scores++] = output;
        if (strcmp(output->name, "pooler_output") == 0 && rank == 2)
            found->pooled = "pooler_output";
        else if (outputs.counts[rank] < 3)
            outputs.of_rank[rank][outputs.counts[rank]++] = output;
    }
    return outputs;
}

static const NamedValue *output_named(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->output_count; i++)
        if (strcmp(graph->outputs[i].name, name) == 0) return &graph->outputs[i];
    return NULL;
}

static void take(FoundHead *found, HeadKind kind, int64_t labels, const NamedValue *first, const NamedValue *second,
                 Arena *arena)
{
    found->head = (Head){.kind = kind, .labels = labels, .pairs = kind == HEAD_MEAN && second};
    found->outputs[0] = arena_string(arena, first->name);
    found->outputs[1] = second ? arena_string(arena, second->name) : NULL;
}

static void take_scores(FoundHead *found, const Shape *shape, const NamedValue *output, Arena *arena)
{
    int64_t labels = shape->dim[shape->rank - 1];
    if (shape->rank == 2)
        take(found, labels == 1 ? HEAD_REGRESSION : HEAD_SEQUENCE, labels, output, NULL, arena);
    else if (shape->rank == 3 && labels == found->vocabulary)
        take(found, HEAD_MASKED, 0, output, NULL, arena);
    else if (shape->rank == 3)
        take(found, HEAD_TOKENS, labels, output, NULL, arena);
}

/* Hidden states, if nothing else is like them; what has their size is no scores of labels. */
static void take_states(FoundHead *found, const Graph *graph, const Outputs *outputs, int64_t hidden, Arena *arena)
{
    const NamedValue *named = output_named(graph, "last_hidden_state");
    const NamedValue *states = named && shape_of(graph, named)->rank == 3 ? named : outputs->of_rank[3][0];
    if (states != named && outputs->counts[3] != 1) return;
    found->states = arena_string(arena, states->name);
    found->hidden = shape_of(graph, states)->dim[2];
    const NamedValue *other = outputs->counts[2] == 1 ? outputs->of_rank[2][0] : NULL;
    if (!found->pooled && other && !strstr(other->name, "embedding") && shape_of(graph, other)->dim[1] == found->hidden)
        found->pooled = arena_string(arena, other->name); /* PyTorch's newer exporter names outputs by operators */
    if (states == named || strcmp(states->name, "token_embeddings") == 0 || !found->table ||
        found->hidden == found->width || found->hidden == hidden)
        found->head.kind = HEAD_NONE;
    else
        take_scores(found, shape_of(graph, states), states, arena);
}

static bool are_places(const Graph *graph, const NamedValue *const *outputs)
{
    const Shape *first = shape_of(graph, outputs[0]), *second = shape_of(graph, outputs[1]);
    return first->rank == 2 && second->rank == 2 && first->dim[1] == second->dim[1];
}

static void choose(FoundHead *found, const Graph *graph, int64_t hidden, Arena *arena)
{
    Outputs outputs = list_outputs(found, graph, arena);
    const NamedValue *embedding = output_named(graph, "embedding"), *second = output_named(graph, "embedding_2");
    bool unnamed = !outputs.scores && !found->pooled && !outputs.counts[3];
    found->head = (Head){.kind = HEAD_FROM_FOLDER};
    if (embedding)
        take(found, HEAD_MEAN, 0, embedding, second, arena);
    else if (outputs.scores == 1)
        take_scores(found, shape_of(graph, outputs.scored[0]), outputs.scored[0], arena);
    else if (outputs.scores == 2 && are_places(graph, outputs.scored)) {
        bool swapped = strstr(outputs.scored[0]->name, "end") && !strstr(outputs.scored[0]->name, "start");
        take(found, HEAD_QUESTION, 0, outputs.scored[swapped], outputs.scored[!swapped], arena);
    } else if (unnamed && outputs.counts[2] == 2 && are_places(graph, outputs.of_rank[2]))
        take(found, HEAD_QUESTION, 0, outputs.of_rank[2][0], outputs.of_rank[2][1], arena);
    else if (unnamed && outputs.counts[2] == 1 && shape_of(graph, outputs.of_rank[2][0])->dim[1] != found->width)
        take_scores(found, shape_of(graph, outputs.of_rank[2][0]), outputs.of_rank[2][0], arena);
    else if (!outputs.scores && outputs.counts[3])
        take_states(found, graph, &outputs, hidden, arena);
}

static bool refuse_probabilities(const FoundHead *found, const Onnx__GraphProto *graph, const char *path,
                                 Diagnostics *diagnostics)
{
    bool scores = found->head.kind == HEAD_SEQUENCE || found->head.kind == HEAD_REGRESSION ||
                  found->head.kind == HEAD_TOKENS || found->head.kind == HEAD_QUESTION;
    const Onnx__NodeProto *maker = scores ? maker_of(graph, found->outputs[0]) : NULL;
    return !maker || (strcmp(maker->op_type, "Softmax") != 0 && strcmp(maker->op_type, "Sigmoid") != 0) ||
           input_error(diagnostics, path, "export the model without its last operator",
                       "its output '%s' has probabilities (%s), but losses are computed from scores", found->outputs[0],
                       maker->op_type);
}

/* ---- What it says of itself ---- */

static const char *read_config(const OnnxModel *model, Arena *arena)
{
    const char *own = onnx_model_property(model, PROPERTY_CONFIG), *slash = strrchr(model->path, '/');
    if (own) return arena_string(arena, own);
    const char *path = arena_format(arena, "%.*sconfig.json", slash ? (int)(slash + 1 - model->path) : 0, model->path);
    FREED_WITH(file_unmap) MappedFile file = {0};
    FREED_WITH(diagnostics_free) Diagnostics unused = {0};
    const char *text = NULL;
    if (access(path, R_OK) == 0 && file_map(&file, path, &unused)) {
        if (file.size <= MOST_CONFIG_BYTES) text = arena_string_n(arena, (const char *)file.bytes, file.size);
    }
    return text;
}

static void read_names(FoundHead *found, const OnnxModel *model, Arena *arena)
{
    const char *list = onnx_model_property(model, PROPERTY_LABELS), *map = onnx_model_property(model, "id2label");
    size_t count = 0, generic = 0;
    const char *const *names = NULL;
    if (list)
        names = label_names_read(list, arena, &count);
    else if (map || found->config)
        names = config_labels(map ? arena_format(arena, "{\"id2label\": %s}", map) : found->config, arena, &count);
    for (size_t i = 0; i < count; i++) generic += strncmp(names[i], "LABEL_", strlen("LABEL_")) == 0;
    bool counts = found->head.kind == HEAD_SEQUENCE || found->head.kind == HEAD_TOKENS;
    if (counts && count && (int64_t)count == found->head.labels && generic < count) found->head.names = names;
}

bool found_head_read(FoundHead *found, const char *path, Arena *arena, Diagnostics *diagnostics)
{
    ImportOptions options = {.no_weights = true, .default_dimension = ANY_DIMENSION};
    FREED_WITH(graph_free) Graph graph = {0};
    FREED_WITH(imported_model_free) ImportedModel model = {0};
    FREED_WITH(diagnostics_free) Diagnostics unread = {0}; /* warnings come again when the model is compiled */
    *found = (FoundHead){.head.kind = HEAD_FROM_FOLDER};
    graph_init(&graph, path);
    bool ok = import_onnx(&graph, &model, path, &options, &unread);
    if (!ok) diagnostics_append(diagnostics, &unread);
    if (ok) {
        FREED_WITH(config_free) HuggingFaceConfig config = {0};
        const Onnx__GraphProto *proto = model.onnx.proto->graph;
        found->opset = model.opset;
        found->config = read_config(&model.onnx, arena);
        found->imported = onnx_model_property(&model.onnx, PROPERTY_CONFIG) && onnx_model_is_distinct(&model.onnx);
        bool known = found->config && config_parse(&config, found->config, path, arena, &unread);
        find_tables(found, proto, arena);
        choose(found, &graph, known ? config.hidden : 0, arena);
        read_names(found, &model.onnx, arena);
        if (known && config.type->form && found->head.kind == HEAD_MASKED) found->head.kind = HEAD_NEXT;
        ok = refuse_probabilities(found, proto, path, diagnostics);
    }
    return ok;
}

bool found_head_is(const FoundHead *found, const Head *head)
{
    bool predicts = found->head.kind == HEAD_MASKED && head->kind == HEAD_NEXT; /* it may be either */
    bool embeds = found->head.kind == HEAD_MEAN && head->kind == HEAD_FIRST;
    return (found->head.kind == head->kind || predicts || embeds) && found->head.labels == head->labels &&
           found->head.pairs == head->pairs;
}
