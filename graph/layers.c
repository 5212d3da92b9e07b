#include "graph/layers.h"

#include <stdlib.h>
#include <string.h>

#include "graph/operator.h"
#include "graph/sharing.h"

/* Marks (true) every value that depends on a parameter; free with free(). */
static bool *values_depending_on_parameters(const Graph *graph)
{
    bool *depends = memory_allocate(graph->value_count);
    for (ValueId v = 1; v < graph->value_count; v++) depends[v] = graph_value(graph, v)->role == ROLE_PARAMETER;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool any = false;
        for (int i = 0; i < node->input_count; i++) any |= depends[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++) depends[node->outputs[i]] = any;
    }
    return depends;
}

ValueId parameter_behind(const Graph *graph, ValueId value)
{
    while (graph_value(graph, value)->producer) {
        const Node *node = graph_node(graph, graph_value(graph, value)->producer);
        if (!operator_is_movement(node->op)) return 0;
        value = node->inputs[0];
    }
    return graph_value(graph, value)->role == ROLE_PARAMETER ? value : 0;
}

typedef struct Cutter {
    Graph *graph;
    NodeId *nodes; /* those that depend on parameters, in order, but for views of parameters */
    size_t count;
    bool *cut; /* [i]: a layer begins at nodes[i] */
} Cutter;

/* candidate[i]: exactly one tensor, and not a mere view, crosses from nodes[0 ... i-1] to nodes[i ...]. */
static bool *find_candidates(const Cutter *cutter)
{
    const Graph *graph = cutter->graph;
    size_t *last_use = memory_allocate(graph->value_count * sizeof *last_use);
    for (size_t i = 0; i < cutter->count; i++) {
        const Node *node = graph_node(graph, cutter->nodes[i]);
        for (int k = 0; k < node->input_count; k++) last_use[node->inputs[k]] = i;
    }
    for (size_t i = 0; i < graph->output_count; i++) last_use[graph->outputs[i].value] = cutter->count;

    bool *candidate = memory_allocate(cutter->count + 1);
    size_t live = 0;
    size_t *ends = memory_allocate((cutter->count + 1) * sizeof *ends); /* tensors whose last use is at i */
    for (size_t i = 0; i < cutter->count; i++) {
        const Node *node = graph_node(graph, cutter->nodes[i]);
        live -= ends[i];
        bool is_view = operator_is_movement(node->op);
        for (int k = 0; k < node->output_count; k++)
            if (last_use[node->outputs[k]] > i) live++, ends[last_use[node->outputs[k]]]++;
        candidate[i + 1] = live == 1 && !is_view && i + 1 < cutter->count;
    }
    free(last_use);
    free(ends);
    return candidate;
}

static bool reads_table(const Graph *graph, const Node *node)
{
    return node->op == OP_Gather && parameter_behind(graph, node->inputs[0]);
}

/* Views of parameters go with their readers. */
static void place_views(Graph *graph)
{
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            NodeId producer = graph_value(graph, node->inputs[i])->producer;
            if (producer && parameter_behind(graph, node->inputs[i])) graph_node(graph, producer)->layer = node->layer;
        }
    }
}

/* Chooses cuts among the candidates: before a segment with a matrix product when the layer so far has weight of its
 * own. */
static void choose_cuts(Cutter *cutter, const bool *candidate)
{
    bool has_product = false, has_table = false;
    for (size_t begin = 0, end; begin < cutter->count; begin = end) {
        bool product = false, table = false;
        for (end = begin; end == begin || (end < cutter->count && !candidate[end]); end++) {
            const Node *node = graph_node(cutter->graph, cutter->nodes[end]);
            product |= node->op == OP_MatMul;
            table |= reads_table(cutter->graph, node);
        }
        if ((product && (has_product || has_table)) || (table && has_product)) {
            cutter->cut[begin] = true;
            has_product = has_table = false;
        }
        has_product |= product;
        has_table |= table;
    }
}

/* The length of the longest prefix of `a` and `b` that ends at a dot or at the end of both. */
static size_t common_components(const char *a, const char *b, size_t length)
{
    size_t last = 0, i = 0;
    for (; i < length && a[i] == b[i] && b[i]; i++)
        if (a[i] == '.') last = i;
    bool a_ends = i == length || a[i] == '.', b_ends = !b[i] || b[i] == '.';
    return a_ends && b_ends ? i : last;
}

/* Names that exporters invent ("onnx::MatMul_336") say nothing about where a parameter belongs. */
static bool speaks(const char *name) { return strchr(name, '.') && !strstr(name, "::"); }

/* What a parameter is called where it is used; NULL if that says nothing. */
static const char *speaking_name(const Graph *graph, ValueId parameter)
{
    const Value *value = graph_value(graph, parameter);
    const char *name = value->use ? value->use : value->name;
    return parameter && !value->parameter && speaks(name) ? name : NULL; /* shared ones belong to another layer */
}

/* What is known of a layer's name: the names of its parameters have the first `length` characters in common. */
typedef struct LayerName {
    const char *first, *other; /* a name, and one that goes on differently */
    size_t length;
} LayerName;

static void add_name(LayerName *layer, const char *name)
{
    if (!layer->first) {
        *layer = (LayerName){.first = name, .length = (size_t)(strrchr(name, '.') - name)};
        return;
    }
    size_t common = common_components(layer->first, name, layer->length);
    if (common < layer->length) layer->other = name;
    layer->length = common;
}

static const char *layer_name(Graph *graph, const LayerName *layer, int number)
{
    const char *first = layer->first;
    size_t length = layer->length;
    if (!first || length == 0) return arena_format(&graph->arena, "layer-%d", number);
    const char *prefix = arena_string_n(&graph->arena, first, length);
    const char *last_dot = strrchr(prefix, '.');
    /* "encoder.layer.3" alone would name the whole block: say which parts of it. */
    if (layer->other && last_dot && strspn(last_dot + 1, "0123456789") == strlen(last_dot + 1)) {
        const char *a = first + length + 1, *b = layer->other + length + 1;
        return arena_format(&graph->arena, "%s.%.*s+%.*s", prefix, (int)strcspn(a, "."), a, (int)strcspn(b, "."), b);
    }
    return prefix;
}

static void name_layers(Graph *graph)
{
    LayerName *layers = memory_allocate((size_t)graph->layer_count * sizeof *layers);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->layer != LAYER_NONE && i < node->input_count; i++) {
            const char *name = speaking_name(graph, parameter_behind(graph, node->inputs[i]));
            if (name) add_name(&layers[node->layer], name);
        }
    }
    graph->layer_names = arena_new_array(&graph->arena, const char *, (size_t)graph->layer_count);
    for (int l = 0; l < graph->layer_count; l++) graph->layer_names[l] = layer_name(graph, &layers[l], l);
    free(layers);
}

/* Drops the leading components that all names share ("m.bert." stays if the head is "m.classifier": then only "m."). */
static void strip_common_prefix(Graph *graph)
{
    if (graph->layer_count < 2) return;
    const char *first = graph->layer_names[0];
    size_t length = strlen(first);
    for (int i = 1; i < graph->layer_count; i++) length = common_components(first, graph->layer_names[i], length);
    for (int i = 0; i < graph->layer_count; i++)
        if (strlen(graph->layer_names[i]) <= length) return;
    for (int i = 0; length > 0 && i < graph->layer_count; i++) graph->layer_names[i] += length + 1;
}

void layers_assign(Graph *graph, Diagnostics *diagnostics)
{
    bool *depends = values_depending_on_parameters(graph);
    Cutter cutter = {graph, memory_allocate(graph->node_count * sizeof(NodeId)), 0, NULL};
    for (NodeId n = 1; n < graph->node_count; n++) {
        Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != PHASE_FORWARD) continue;
        node->layer = LAYER_NONE;
        if (depends[node->outputs[0]] && !parameter_behind(graph, node->outputs[0])) cutter.nodes[cutter.count++] = n;
    }
    cutter.cut = memory_allocate(cutter.count + 1);
    bool *candidate = find_candidates(&cutter);
    choose_cuts(&cutter, candidate);

    graph->layer_count = 0;
    for (size_t begin = 0, end; begin < cutter.count; begin = end) {
        int layer = graph->layer_count++;
        for (end = begin; end == begin || (end < cutter.count && !cutter.cut[end]); end++)
            graph_node(graph, cutter.nodes[end])->layer = layer;
    }
    place_views(graph);
    parameters_share(graph, diagnostics);
    name_layers(graph);
    strip_common_prefix(graph);
    free(candidate);
    free(cutter.cut);
    free(cutter.nodes);
    free(depends);
}
