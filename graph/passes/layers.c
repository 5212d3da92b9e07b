/* Layers: the forward graph cut into the atoms that a stage is made of.
 *
 * A cut is a place in the node order that one tensor crosses, besides a few side tensors: those that reach further than
 * any tensor inside a block, as what all blocks read does. Of these places, those before a matrix product (and after
 * the embeddings) are taken, so that an atom is the embeddings, the attention or the feed-forward part of an encoder
 * block, the pooler, or the head. What depends on inputs and constants alone (the attention mask) belongs to no layer
 * and is computed again in every stage that needs it; a side tensor that is cheaply made of small parameters (a bias of
 * relative positions) is made again by every layer that reads it, which then share those parameters.
 *
 * Sets Node.layer of every forward node, graph->layer_names and layer_count. The forward graph (loss included) must be
 * final; differentiation passes layers on to backward nodes. */
#include <stdlib.h>
#include <string.h>

#include "graph/analysis/parameters.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"
#include "graph/passes/sharing.h"

/* Marks (true) every value that depends on a parameter; free with free(). */
static bool *values_depending_on_parameters(const Graph *graph)
{
    bool *depends = memory_allocate(graph->value_count);
    for (ValueId v = 1; v < graph->value_count; v++) depends[v] = graph_value(graph, v)->role == ROLE_PARAMETER;
    graph_mark_dependent(graph, depends);
    return depends;
}

/* A tensor inside a block is read at most so many matrix products after it was made: the input of an attention part
 * goes through three projections, scores, their product with values and the output projection before it is added to the
 * result; with adapters of low rank every projection is three products. In models of few blocks, which seldom have
 * adapters, what all blocks read reaches less far, so the bound is two fifths of the model's products within these. */
enum { LEAST_REACH_OF_SIDE_TENSOR = 6, MOST_REACH_OF_SIDE_TENSOR = 14, MOST_SIDE_TENSORS = 4 };

/* What is made again in every layer that reads it: elements of all steps and of the tables, as multiples of its own. */
enum { MOST_WORK_OF_CARRIED = 8, MOST_TABLE_OF_CARRIED = 2, MOST_NODES_OF_CARRIED = 32 };

typedef struct Cutter {
    Graph *graph;
    const bool *depends; /* [value]: on a parameter */
    bool *carried; /* [value]: made of parameters at so little cost that every layer which reads it makes its own */
    NodeId *nodes; /* those that depend on parameters, in order, but for those that make carried values */
    size_t count;
    bool *cut; /* [i]: a layer begins at nodes[i] */
} Cutter;

static void list_nodes(Cutter *cutter)
{
    const Graph *graph = cutter->graph;
    cutter->count = 0;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != PHASE_FORWARD) continue;
        if (cutter->depends[node->outputs[0]] && !cutter->carried[node->outputs[0]]) cutter->nodes[cutter->count++] = n;
    }
}

/* How many matrix products stand in nodes[0 ... i-1], for every i; free with free(). */
static int *count_products(const Cutter *cutter)
{
    int *products = memory_allocate((cutter->count + 1) * sizeof *products);
    for (size_t i = 0; i < cutter->count; i++)
        products[i + 1] = products[i] + operator_has(graph_node(cutter->graph, cutter->nodes[i])->op, IS_PRODUCT);
    return products;
}

/* Where each value is last read, as an index into cutter->nodes; outputs: after all. Free with free(). */
static size_t *find_last_uses(const Cutter *cutter)
{
    const Graph *graph = cutter->graph;
    size_t *last_use = memory_allocate(graph->value_count * sizeof *last_use);
    for (size_t i = 0; i < cutter->count; i++) {
        const Node *node = graph_node(graph, cutter->nodes[i]);
        for (int k = 0; k < node->input_count; k++) last_use[node->inputs[k]] = i;
    }
    for (size_t i = 0; i < graph->output_count; i++) last_use[graph->outputs[i].value] = cutter->count;
    return last_use;
}

static bool is_side_tensor(const Cutter *cutter, const int *products, size_t made, size_t last_use)
{
    int reach = products[cutter->count] * 2 / 5;
    if (reach < LEAST_REACH_OF_SIDE_TENSOR) reach = LEAST_REACH_OF_SIDE_TENSOR;
    if (reach > MOST_REACH_OF_SIDE_TENSOR) reach = MOST_REACH_OF_SIDE_TENSOR;
    return last_use > made && products[last_use] - products[made] > reach;
}

/* What it takes to make a value of parameters and of what depends on none. */
typedef struct Making {
    NodeId *nodes;
    size_t count, capacity;
    int64_t elements, parameter_elements; /* of all that the nodes make; of the parameters that they read */
    bool possible;                        /* without products, and without random numbers */
} Making;

static void add_making(const Cutter *cutter, ValueId value, Making *making)
{
    const Graph *graph = cutter->graph;
    const Value *made = graph_value(graph, value);
    if (made->role == ROLE_PARAMETER) making->parameter_elements += shape_elements(&made->shape);
    if (!made->producer || !cutter->depends[value]) return;
    for (size_t i = 0; i < making->count; i++)
        if (making->nodes[i] == made->producer) return;
    const Node *node = graph_node(graph, made->producer);
    making->possible &= !operator_has(node->op, IS_PRODUCT | IS_RANDOM) && making->count < MOST_NODES_OF_CARRIED;
    if (!making->possible) return;
    array_push(making->nodes, making->count, making->capacity, made->producer);
    making->elements += shape_elements(&made->shape);
    for (int i = 0; i < node->input_count; i++) add_making(cutter, node->inputs[i], making);
}

/* Side tensors that are cheaper to make again than to send, as a bias of relative positions is, which all blocks read:
 * they read small tables, and take a few steps of elementwise work. */
static void carry_cheap_side_tensors(Cutter *cutter)
{
    const Graph *graph = cutter->graph;
    FREED size_t *last_use = find_last_uses(cutter);
    FREED int *products = count_products(cutter);
    for (size_t i = 0; i < cutter->count; i++) {
        const Node *node = graph_node(graph, cutter->nodes[i]);
        for (int k = 0; k < node->output_count; k++) {
            ValueId value = node->outputs[k];
            int64_t elements = shape_elements(&graph_value(graph, value)->shape);
            if (last_use[value] == cutter->count || !is_side_tensor(cutter, products, i, last_use[value])) continue;
            Making making = {.possible = true};
            add_making(cutter, value, &making);
            if (making.possible && making.elements <= MOST_WORK_OF_CARRIED * elements &&
                making.parameter_elements <= MOST_TABLE_OF_CARRIED * elements)
                for (size_t m = 0; m < making.count; m++) {
                    const Node *maker = graph_node(graph, making.nodes[m]);
                    for (int o = 0; o < maker->output_count; o++) cutter->carried[maker->outputs[o]] = true;
                }
            free(making.nodes);
        }
    }
    cutter->carried[0] = false;
}

/* candidate[i]: one tensor, and not a mere view, crosses from nodes[0 ... i-1] to nodes[i ...], besides at most
 * MOST_SIDE_TENSORS that reach further than any tensor inside a block does. */
static bool *find_candidates(const Cutter *cutter)
{
    FREED size_t *last_use = find_last_uses(cutter);
    FREED int *products = count_products(cutter);
    bool *candidate = memory_allocate(cutter->count + 1);
    /* Tensors that are live, and how many of them are read last at each node: [0] the others, [1] side tensors. */
    size_t live[2] = {0}, *ends[2];
    for (int side = 0; side < 2; side++) ends[side] = memory_allocate((cutter->count + 1) * sizeof *ends[side]);
    for (size_t i = 0; i < cutter->count; i++) {
        const Node *node = graph_node(cutter->graph, cutter->nodes[i]);
        for (int side = 0; side < 2; side++) live[side] -= ends[side][i];
        for (int k = 0; k < node->output_count; k++) {
            size_t last = last_use[node->outputs[k]];
            bool side = is_side_tensor(cutter, products, i, last);
            if (last > i) live[side]++, ends[side][last]++;
        }
        bool few = live[0] == 1 ? live[1] <= MOST_SIDE_TENSORS : live[0] + live[1] == 1;
        candidate[i + 1] = few && !operator_has(node->op, IS_MOVEMENT) && i + 1 < cutter->count;
    }
    for (int side = 0; side < 2; side++) free(ends[side]);
    return candidate;
}

static bool reads_table(const Graph *graph, const Node *node)
{
    return operator_has(node->op, IS_LOOKUP) && parameter_behind(graph, node->inputs[0]);
}

/* What is carried goes with its readers. */
static void place_carried(const Cutter *cutter)
{
    const Graph *graph = cutter->graph;
    for (NodeId n = (NodeId)graph->node_count - 1; n > 0; n--) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++)
            if (cutter->carried[node->inputs[i]]) graph_producer(graph, node->inputs[i])->layer = node->layer;
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
            product |= operator_has(node->op, IS_PRODUCT);
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
    FREED LayerName *layers = memory_allocate((size_t)graph->layer_count * sizeof *layers);
    FREED ValueId *parameters = parameters_behind(graph);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->layer != LAYER_NONE && i < node->input_count; i++) {
            const char *name = speaking_name(graph, parameters[node->inputs[i]]);
            if (name) add_name(&layers[node->layer], name);
        }
    }
    graph->layer_names = arena_new_array(&graph->arena, const char *, (size_t)graph->layer_count);
    for (int l = 0; l < graph->layer_count; l++) graph->layer_names[l] = layer_name(graph, &layers[l], l);
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

/* [value]: whether it is a mere view of a parameter. */
static bool *find_views(const Graph *graph)
{
    FREED ValueId *parameters = parameters_behind(graph);
    bool *views = memory_allocate(graph->value_count);
    for (ValueId v = 0; v < graph->value_count; v++) views[v] = graph_value(graph, v)->producer && parameters[v];
    return views;
}

bool assign_layers(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options;
    FREED bool *depends = values_depending_on_parameters(graph);
    Cutter cutter = {.graph = graph,
                     .depends = depends,
                     .carried = find_views(graph),
                     .nodes = memory_allocate(graph->node_count * sizeof(NodeId))};
    for (NodeId n = 1; n < graph->node_count; n++) {
        Node *node = graph_node(graph, n);
        if (node->op == OP_NONE || node->phase != PHASE_FORWARD) continue;
        node->layer = LAYER_NONE;
    }
    list_nodes(&cutter);
    carry_cheap_side_tensors(&cutter);
    list_nodes(&cutter);
    cutter.cut = memory_allocate(cutter.count + 1);
    FREED bool *candidate = find_candidates(&cutter);
    choose_cuts(&cutter, candidate);

    graph->layer_count = 0;
    for (size_t begin = 0, end; begin < cutter.count; begin = end) {
        int layer = graph->layer_count++;
        for (end = begin; end == begin || (end < cutter.count && !cutter.cut[end]); end++)
            graph_node(graph, cutter.nodes[end])->layer = layer;
    }
    place_carried(&cutter);
    parameters_share(graph, cutter.carried, diagnostics);
    name_layers(graph);
    strip_common_prefix(graph);
    free(cutter.cut);
    free(cutter.carried);
    free(cutter.nodes);
    return true;
}
