/* Puts dropout where BERT has it (Devlin et al., NAACL 2019, and its released code): after the embeddings'
 * normalisation, on attention probabilities, on what a block's two parts add to their input, and before a classifier.
 * Warns about kinds of places that were not found. A graph that has Dropout already is left as it is. */
#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

typedef struct Site {
    bool chosen;
    NodeId reader; /* who reads the dropped value; 0: everybody */
    ValueId dropped;
} Site;

typedef struct Places {
    const Graph *graph;
    Site *site; /* per value */
    int embeddings, attention, residual;
} Places;

/* What the value shows: looks through operators that move elements, and through conversions. */
static ValueId behind_views(const Graph *graph, ValueId value)
{
    for (;;) {
        const Node *node = graph_producer(graph, value);
        if (!operator_has(node->op, IS_MOVEMENT | CONVERTS | IS_LOOKUP)) return value;
        value = node->inputs[0];
    }
}

/* Whether the value depends on parameters and constants only. */
static bool is_weight(const Graph *graph, ValueId value)
{
    ValueRole role = graph_value(graph, behind_views(graph, value))->role;
    return role == ROLE_PARAMETER || role == ROLE_CONSTANT;
}

/* The product with a weight, if `value` is that, perhaps with a bias and reshaped; else 0. */
static NodeId dense_layer(const Graph *graph, ValueId value)
{
    for (;;) {
        const Node *node = graph_producer(graph, value);
        if (node->op == OP_MatMul && is_weight(graph, node->inputs[1])) return graph_value(graph, value)->producer;
        if (operator_has(node->op, IS_MOVEMENT) && !operator_has(node->op, REORDERS) &&
            shape_elements(&graph_value(graph, node->inputs[0])->shape) ==
                shape_elements(&graph_value(graph, value)->shape))
            value = node->inputs[0];
        else if (node->op == OP_Add && is_weight(graph, node->inputs[1]))
            value = node->inputs[0];
        else if (node->op == OP_Add && is_weight(graph, node->inputs[0]))
            value = node->inputs[1];
        else
            return 0;
    }
}

/* Whether `value` is computed from `source`. */
static bool depends_on(const Graph *graph, ValueId value, ValueId source)
{
    if (graph_value(graph, value)->producer <= graph_value(graph, source)->producer) return false;
    FREED bool *depends = memory_allocate(graph->value_count);
    depends[source] = true;
    graph_mark_dependent(graph, depends);
    return depends[value];
}

/* What a part of a block adds to its input, if `value` is such a sum; else 0. The input of the first block may be a
 * dense layer, too: a projection of the embeddings, which the part then reads. */
static ValueId residual_branch(const Graph *graph, ValueId value)
{
    const Node *sum = graph_producer(graph, value);
    if (sum->op != OP_Add) return 0;
    bool first = dense_layer(graph, sum->inputs[0]), second = dense_layer(graph, sum->inputs[1]);
    if (first != second) return sum->inputs[second];
    for (int i = 0; first && i < 2; i++)
        if (depends_on(graph, sum->inputs[i], sum->inputs[!i])) return sum->inputs[i];
    return 0;
}

static void choose(Places *places, ValueId value, NodeId reader, int *count)
{
    Site *site = &places->site[value];
    if (!site->chosen) ++*count;
    *site = (Site){.chosen = true, .reader = reader};
}

/* The probabilities that weigh the values, where the node is that product. */
static bool weighs_values(const Graph *graph, const Node *node)
{
    if (node->op != OP_MatMul) return false;
    ValueId left = behind_views(graph, node->inputs[0]);
    if (graph_producer(graph, left)->op == OP_Where) left = behind_views(graph, graph_producer(graph, left)->inputs[2]);
    return graph_producer(graph, left)->op == OP_Softmax;
}

/* An encoder's result, on its way to a classifier that is a graph output. */
static void find_classifiers(Places *places)
{
    const Graph *graph = places->graph;
    int count = 0;
    for (size_t i = 0; i < graph->output_count; i++) {
        NodeId dense = dense_layer(graph, graph->outputs[i].value);
        if (!dense) continue;
        ValueId input = graph_node(graph, dense)->inputs[0];
        const Node *features = graph_producer(graph, behind_views(graph, input));
        bool pooled = operator_has(features->op, IS_MAP) && features->input_count == 1; /* an activation */
        if (pooled || (features->op == OP_LayerNormalization && residual_branch(graph, features->inputs[0])))
            choose(places, input, dense, &count);
    }
}

static void find_places(Places *places)
{
    const Graph *graph = places->graph;
    FREED bool *past_attention = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool past = node->op == OP_MatMul && !is_weight(graph, node->inputs[1]);
        for (int i = 0; i < node->input_count; i++) past |= past_attention[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++) past_attention[node->outputs[i]] = past;
        if (weighs_values(graph, node)) choose(places, node->inputs[0], n, &places->attention);
        if (node->op != OP_LayerNormalization) continue;
        ValueId branch = residual_branch(graph, node->inputs[0]);
        if (!past) choose(places, node->outputs[0], 0, &places->embeddings);
        if (branch) choose(places, branch, 0, &places->residual);
    }
    find_classifiers(places);
}

static void warn(const Places *places, Diagnostics *diagnostics)
{
    static const char hint[] = "--dropout applies dropout where BERT does; this model does not look like BERT";
    Place place = PLACE_FILE(places->graph->file);
    if (!places->embeddings) diagnostics_warning(diagnostics, place, hint, "found no embeddings to apply dropout to");
    if (!places->attention) diagnostics_warning(diagnostics, place, hint, "found no attention to apply dropout to");
    if (places->residual != 2 * places->attention)
        diagnostics_warning(diagnostics, place, hint,
                            "dropout is applied to %d outputs of attention and feed-forward parts; BERT has two for "
                            "each of the %d attention parts",
                            places->residual, places->attention);
}

/* Drops elements of what `node` makes. */
static bool drop_outputs(Graph *graph, Places *places, const Node *node, double ratio, Diagnostics *diagnostics)
{
    for (int i = 0; i < node->output_count; i++) {
        Site *site = &places->site[node->outputs[i]];
        if (!site->chosen) continue;
        NodeOrigin origin = {.name = arena_format(&graph->arena, "%s/dropout", node->name), .layer = LAYER_NONE};
        site->dropped = graph_add_dropout(graph, node->outputs[i], ratio, origin, diagnostics);
        if (!site->dropped) return false;
    }
    return true;
}

/* Builds the node list again, with Dropout after what it drops. */
static bool insert(Graph *graph, Places *places, double ratio, Diagnostics *diagnostics)
{
    size_t node_count;
    FREED Node *nodes = graph_take_nodes(graph, &node_count);
    bool ok = true;
    for (NodeId n = 1; n < node_count && ok; n++) {
        Node node = nodes[n];
        if (node.op == OP_NONE) continue;
        for (int i = 0; i < node.input_count; i++) {
            const Site *site = &places->site[node.inputs[i]];
            if (site->dropped && (!site->reader || site->reader == n)) node.inputs[i] = site->dropped;
        }
        graph_push_node(graph, node);
        ok = drop_outputs(graph, places, &node, ratio, diagnostics);
    }
    return ok;
}

bool insert_dropout(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (options->dropout <= 0) return true;
    for (NodeId n = 1; n < graph->node_count; n++)
        if (graph_node(graph, n)->op == OP_Dropout) return true;
    Places places = {.graph = graph};
    places.site = memory_allocate(graph->value_count * sizeof *places.site);
    find_places(&places);
    warn(&places, diagnostics);
    bool ok = insert(graph, &places, options->dropout, diagnostics);
    free(places.site);
    return ok;
}
