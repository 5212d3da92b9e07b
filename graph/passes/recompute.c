/* What backward computes again instead of keeping it. The bits are the same.
 *
 * recompute_attention: a softmax over a matrix product, dropout included, from the factors of the product, where these
 * take less than half the room: in attention, where the sequence is at least four times as long as a head is wide.
 * Otherwise the probabilities are kept, which is faster, and only what dropout leaves of them is drawn again.
 *
 * recompute_maps: what elementwise operators make of what is kept anyway, in layers with frozen matrices. There the
 * stash is most of the memory: a frozen matrix has neither gradient nor optimiser state.
 *
 * recompute_layers: all that a layer makes for itself. What it reads of other layers is kept, and forward runs a second
 * time, layer by layer, so what backward reads of forward needs room for one layer. The layer of the loss keeps its
 * own: its backward comes first. */
#include <stdlib.h>

#include "graph/analysis/cuts.h"
#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

enum {
    WORTHWHILE = 2, /* least number of elements made of each that would be kept in their place */
    LITTLE = 16     /* so many times more elements than an input has: keeping that costs nothing */
};

typedef struct Recomputation {
    Graph *graph;
    Diagnostics *diagnostics;
    size_t values;  /* before any was added */
    bool *chosen;   /* per value of forward: backward computes it again */
    ValueId *again; /* per value: what backward reads in its place; 0: not made yet */
} Recomputation;

static int64_t elements(const Graph *graph, ValueId value) { return shape_elements(&graph_value(graph, value)->shape); }

static bool may_remake(const Graph *graph, ValueId value);

/* Whether the scores take more room than what they are made of. Of a part of them (skip_masked.c), whether the whole
 * does: the factors are kept whole. */
static bool is_larger_than_factors(const Graph *graph, const Node *product)
{
    double scores = (double)elements(graph, product->outputs[0]), factors = 0;
    for (int i = 0; i < 2; i++) {
        ValueId factor = product->inputs[i];
        const Node *producer = graph_producer(graph, factor);
        ValueId whole = producer->op == OP_Slice ? producer->inputs[0] : factor;
        scores *= (double)elements(graph, whole) / (double)elements(graph, factor);
        factors += (double)elements(graph, whole);
    }
    return scores >= WORTHWHILE * factors;
}

/* Whether a simple node's result may be made again: its large inputs may. */
static bool may_remake_inputs(const Graph *graph, const Node *node)
{
    bool any = false;
    for (int i = 0; i < node->input_count; i++) {
        if (!node->inputs[i] || elements(graph, node->inputs[i]) < elements(graph, node->outputs[0])) continue;
        if (!may_remake(graph, node->inputs[i])) return false;
        any = true;
    }
    return any;
}

/* Whether what the value is made from, by a product and what follows it, is worth keeping in its place. */
static bool may_remake(const Graph *graph, ValueId value)
{
    const Node *node = graph_producer(graph, value);
    if (operator_has(node->op, IS_PRODUCT)) return is_larger_than_factors(graph, node);
    if (operator_has(node->op, NORMALISES | IS_RANDOM)) return may_remake(graph, node->inputs[0]);
    return operator_has(node->op, IS_MAP | IS_MOVEMENT) && may_remake_inputs(graph, node);
}

/* The value, and on the way to the product what it is made from. */
static void choose(Recomputation *recomputation, ValueId value)
{
    const Graph *graph = recomputation->graph;
    if (recomputation->chosen[value] || !may_remake(graph, value)) return;
    recomputation->chosen[value] = true;
    const Node *node = graph_producer(graph, value);
    for (int i = 0; !operator_has(node->op, IS_PRODUCT) && i < node->input_count; i++)
        if (node->inputs[i]) choose(recomputation, node->inputs[i]);
}

static void choose_attention(Recomputation *recomputation)
{
    const Graph *graph = recomputation->graph;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->phase != PHASE_FORWARD || node->layer == LAYER_NONE) continue;
        bool random = operator_has(node->op, IS_RANDOM);
        if (operator_has(node->op, NORMALISES) || (random && recomputation->chosen[node->inputs[0]]))
            choose(recomputation, node->outputs[0]);
        /* Probabilities that are kept are read from memory once: what dropout leaves of them is computed next to
         * them, which costs less than reading it too. */
        if (random && operator_has(graph_producer(graph, node->inputs[0])->op, NORMALISES))
            recomputation->chosen[node->outputs[0]] = true;
    }
}

/* [layer]: whether a loss is computed there; to be freed. */
static bool *layers_of_losses(const Graph *graph)
{
    bool *has_loss = memory_allocate((size_t)graph->layer_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op != OP_NONE && node->layer != LAYER_NONE && operator_has(node->op, IS_LOSS))
            has_loss[node->layer] = true;
    }
    return has_loss;
}

/* [value]: whether backward reads it, or a view of it; to be freed. */
static bool *read_by_backward(const Graph *graph)
{
    bool *read = memory_allocate(graph->value_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->phase == PHASE_BACKWARD && i < node->input_count; i++)
            for (ValueId value = node->inputs[i]; value;) {
                const Node *producer = graph_producer(graph, value);
                read[value] = true;
                bool is_view = operator_has(producer->op, IS_MOVEMENT) &&
                               elements(graph, producer->inputs[0]) == elements(graph, value);
                value = is_view ? producer->inputs[0] : 0;
            }
    }
    return read;
}

/* Whether backward has the input of the node, or can keep it for nothing. */
static bool is_at_hand(const Recomputation *recomputation, const bool *read, const Node *node, ValueId input)
{
    const Graph *graph = recomputation->graph;
    NodeId producer = graph_value(graph, input)->producer;
    return !producer || graph_node(graph, producer)->layer == LAYER_NONE || read[input] ||
           recomputation->chosen[input] || elements(graph, input) * LITTLE <= elements(graph, node->outputs[0]);
}

/* [layer]: whether it reads a frozen matrix, and computes no loss, before whose backward nothing else runs; to be
 * freed. */
static bool *lean_layers(const Graph *graph)
{
    bool *has_loss = layers_of_losses(graph), *lean = memory_allocate((size_t)graph->layer_count);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->layer != LAYER_NONE && i < node->input_count; i++) {
            const Value *value = graph_value(graph, node->inputs[i]);
            bool is_frozen = value->role == ROLE_PARAMETER && value->frozen && value->shape.rank == 2;
            if (is_frozen && !has_loss[node->layer]) lean[node->layer] = true;
        }
    }
    free(has_loss);
    return lean;
}

static void choose_maps(Recomputation *recomputation)
{
    const Graph *graph = recomputation->graph;
    FREED bool *read = read_by_backward(graph), *lean = lean_layers(graph);
    FREED int *reach = values_reach(graph);
    for (size_t i = 0; i < graph->output_count; i++) reach[graph->outputs[i].value] = graph->layer_count;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->phase != PHASE_FORWARD || node->layer == LAYER_NONE || !lean[node->layer] ||
            !operator_has(node->op, IS_MAP | IS_MOVEMENT | FILLS) || reach[node->outputs[0]] != node->layer)
            continue;
        bool all = true;
        for (int i = 0; i < node->input_count; i++) all &= is_at_hand(recomputation, read, node, node->inputs[i]);
        recomputation->chosen[node->outputs[0]] = all;
    }
}

/* What forward makes in a layer, and no other layer reads. */
static void choose_layers(Recomputation *recomputation)
{
    const Graph *graph = recomputation->graph;
    bool *has_loss = layers_of_losses(graph), *chosen = recomputation->chosen;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        if (node->op == OP_NONE) continue;
        bool is_chosen = node->phase == PHASE_FORWARD && node->layer != LAYER_NONE && !has_loss[node->layer];
        for (int i = 0; is_chosen && i < node->output_count; i++) chosen[node->outputs[i]] = true;
        for (int i = 0; i < node->input_count; i++) {
            NodeId producer = graph_value(graph, node->inputs[i])->producer;
            if (producer && graph_node(graph, producer)->layer != node->layer) chosen[node->inputs[i]] = false;
        }
    }
    for (size_t i = 0; i < graph->output_count; i++) chosen[graph->outputs[i].value] = false;
    chosen[0] = false;
    free(has_loss);
}

/* What a node of backward reads in place of the value; 0 after reporting. */
static ValueId remake(Recomputation *recomputation, ValueId value)
{
    if (value >= recomputation->values || !recomputation->chosen[value]) return value;
    if (recomputation->again[value]) return recomputation->again[value];
    Graph *graph = recomputation->graph;
    NodeId producer = graph_value(graph, value)->producer;
    const Node node = *graph_node(graph, producer); /* a copy: the array moves while nodes are appended */
    size_t count = (size_t)node.input_count + (size_t)node.output_count;
    ValueId *inputs = arena_new_array(&graph->arena, ValueId, count), *outputs = inputs + node.input_count;
    for (int i = 0; i < node.input_count; i++) {
        inputs[i] = remake(recomputation, node.inputs[i]);
        if (node.inputs[i] && !inputs[i]) return 0;
    }
    NodeOrigin origin = {.name = node.name, .phase = PHASE_BACKWARD, .differentiates = producer, .layer = node.layer};
    if (!graph_add_node(graph, node.op, origin, inputs, node.input_count, node.attributes, node.attribute_count,
                        outputs, node.output_count, recomputation->diagnostics))
        return 0;
    for (int i = 0; i < node.output_count; i++) {
        recomputation->again[node.outputs[i]] = outputs[i];
        graph_value(graph, outputs[i])->line_axis = graph_value(graph, node.outputs[i])->line_axis;
        graph_value(graph, outputs[i])->by_token = graph_value(graph, node.outputs[i])->by_token;
    }
    recomputation->again[0] = 0;
    return recomputation->again[value];
}

/* Builds the node list again, with what backward computes again right before it is first read. The nodes of forward
 * that backward names stand before all of it, and keep their numbers. */
static bool insert(Recomputation *recomputation)
{
    Graph *graph = recomputation->graph;
    size_t node_count;
    FREED Node *nodes = graph_take_nodes(graph, &node_count);
    bool ok = true;
    for (NodeId n = 1; n < node_count && ok; n++) {
        Node node = nodes[n];
        for (int i = 0; node.phase == PHASE_BACKWARD && node.op != OP_NONE && i < node.input_count; i++) {
            ValueId input = remake(recomputation, node.inputs[i]);
            ok &= input || !node.inputs[i];
            node.inputs[i] = input;
        }
        graph_push_node(graph, node);
    }
    return ok;
}

static bool recompute(Graph *graph, void (*choose_values)(Recomputation *recomputation), Diagnostics *diagnostics)
{
    Recomputation recomputation = {.graph = graph,
                                   .diagnostics = diagnostics,
                                   .values = graph->value_count,
                                   .chosen = memory_allocate(graph->value_count),
                                   .again = memory_allocate(graph->value_count * sizeof(ValueId))};
    choose_values(&recomputation);
    bool ok = insert(&recomputation);
    free(recomputation.chosen);
    free(recomputation.again);
    return ok;
}

bool recompute_attention(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || recompute(graph, choose_attention, diagnostics);
}

bool recompute_maps(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || recompute(graph, choose_maps, diagnostics);
}

bool recompute_layers(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    return !options->differentiate || !options->recompute_layers || recompute(graph, choose_layers, diagnostics);
}
