/* Under --precision bf16 what waits in memory is bf16, half as long as float32: what crosses a cut between layers, what
 * backward reads of forward, and factors of products. All are rounded wherever the model is cut, and whether backward
 * reads the value from memory or computes it again, so all plans compute the same bits.
 *
 * Losses read logits as they are, and statistics of rows stay as they are: they are small, and errors in them would
 * count for whole rows. */
#include <stdlib.h>

#include "graph/analysis/cuts.h"
#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

enum { LEAST_COLUMNS = 16 }; /* of a value that is worth it */

typedef struct Insertion {
    NodeId next; /* it comes right before this node */
    NodeId node;
} Insertion;

/* What stands for a value in backward of one layer. */
typedef struct Stored {
    ValueId value;
    int layer;
    ValueId again;
    ValueId bits; /* the bf16 value that `again` widens; 0: it is made otherwise */
} Stored;

typedef struct Storing {
    Graph *graph;
    size_t nodes; /* before any was added */
    Insertion *insertions;
    size_t count, capacity;
    Stored *stored;
    size_t stored_count, stored_capacity;
    Diagnostics *diagnostics;
} Storing;

static ValueId insert(Storing *storing, NodeId next, Opcode op, NodeOrigin origin, ValueId input,
                      const Attribute *attributes, int attribute_count)
{
    ValueId output = 0;
    NodeId node = graph_add_node(storing->graph, op, origin, &input, 1, attributes, attribute_count, &output, 1,
                                 storing->diagnostics);
    if (!node) bug("'%s' is not stored as bf16", origin.name);
    Insertion insertion = {next, node};
    array_push(storing->insertions, storing->count, storing->capacity, insertion);
    return output;
}

static ValueId cast(Storing *storing, NodeId next, NodeOrigin origin, ValueId input, DType to)
{
    Attribute attribute = attribute_integer("to", to);
    return insert(storing, next, OP_Cast, origin, input, &attribute, 1);
}

static int by_place(const void *a, const void *b)
{
    const Insertion *x = a, *y = b;
    if (x->next != y->next) return x->next < y->next ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void put_in_place(Storing *storing)
{
    Graph *graph = storing->graph;
    FREED NodeId *order = memory_allocate((graph->node_count + 1) * sizeof *order);
    size_t next = 0, count = 0;
    if (storing->count) qsort(storing->insertions, storing->count, sizeof *storing->insertions, by_place);
    for (NodeId n = 1; n <= storing->nodes; n++) {
        for (; next < storing->count && storing->insertions[next].next == n; next++)
            order[count++] = storing->insertions[next].node;
        if (n < storing->nodes) order[count++] = n;
    }
    graph_reorder(graph, order);
    free(storing->insertions);
    free(storing->stored);
}

/* ---- Cuts ---- */

/* Before there are gradients: those of the casts cross the cut as bf16 too. */
static void round_value(Storing *storing, ValueId value, int cut)
{
    Graph *graph = storing->graph;
    NodeId producer = graph_value(graph, value)->producer;
    NodeOrigin origin = {.name = graph_node(graph, producer)->name, .layer = graph_node(graph, producer)->layer};
    ValueId sent = cast(storing, producer + 1, origin, value, DTYPE_BF16);
    origin.layer = cut;
    ValueId received = cast(storing, producer + 1, origin, sent, DTYPE_F32);
    for (NodeId n = 1; n < storing->nodes; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && node->layer >= cut && i < node->input_count; i++)
            if (node->inputs[i] == value) node->inputs[i] = received;
    }
}

bool round_cuts(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (!options->bf16_cuts) return true;
    Storing storing = {.graph = graph, .nodes = graph->node_count, .diagnostics = diagnostics};
    size_t values = graph->value_count;
    FREED int *reach = values_reach(graph);
    for (ValueId v = 1; v < values; v++) {
        int cut = codable_cut(graph, reach, v);
        if (cut) round_value(&storing, v, cut);
    }
    put_in_place(&storing);
    return true;
}

/* ---- The stash ---- */

/* Whether the node shows its input's elements as they lie in memory. Bringing them into the order in which the node
 * groups them anew takes a copy. */
static bool is_view(const Graph *graph, const Node *node)
{
    if (!operator_has(node->op, IS_MOVEMENT)) return false;
    const Value *input = graph_value(graph, node->inputs[0]);
    bool reordered = operator_has(graph_node(graph, input->producer)->op, REORDERS);
    return !(reordered && operator_has(node->op, REGROUPS)) &&
           shape_elements(&input->shape) == shape_elements(&graph_value(graph, node->outputs[0])->shape);
}

static bool is_large(const Shape *shape) { return shape->rank >= 2 && shape->dim[shape->rank - 1] >= LEAST_COLUMNS; }

/* What the node of backward reads in place of the value: made from what is stored, right before the node. */
static ValueId stored(Storing *storing, ValueId value, NodeId reader)
{
    Graph *graph = storing->graph;
    NodeId producer = graph_value(graph, value)->producer;
    if (!producer || producer >= storing->nodes || graph_value(graph, value)->dtype != DTYPE_F32) return value;
    const Node made = *graph_node(graph, producer), reads = *graph_node(graph, reader);
    if (made.phase != PHASE_FORWARD || made.layer == LAYER_NONE) return value;
    for (size_t i = storing->stored_count; i-- > 0;)
        if (storing->stored[i].value == value && storing->stored[i].layer == reads.layer)
            return storing->stored[i].again;
    NodeOrigin origin = {
        .name = made.name, .phase = PHASE_BACKWARD, .differentiates = reads.differentiates, .layer = reads.layer};
    bool is_widened = operator_has(made.op, CONVERTS) && graph_value(graph, made.inputs[0])->dtype == DTYPE_BF16;
    ValueId again = value, bits = 0;
    if (is_widened) {
        again = cast(storing, reader, origin, made.inputs[0], DTYPE_F32);
    } else if (is_view(graph, &made)) {
        ValueId from = stored(storing, made.inputs[0], reader);
        if (from != made.inputs[0])
            again = insert(storing, reader, made.op, origin, from, made.attributes, made.attribute_count);
    } else if (is_large(&graph_value(graph, value)->shape)) {
        NodeOrigin forward = {.name = made.name, .layer = reads.layer};
        bits = cast(storing, producer + 1, forward, value, DTYPE_BF16);
        again = cast(storing, reader, origin, bits, DTYPE_F32);
    }
    Stored entry = {value, reads.layer, again, bits};
    array_push(storing->stored, storing->stored_count, storing->stored_capacity, entry);
    return again;
}

/* What a product of forward reads in place of the value: its factors are rounded anyway, so where the value is stored
 * it reads that, and often nobody needs the float32 any more. */
static ValueId stored_factor(Storing *storing, ValueId value, NodeId reader)
{
    Graph *graph = storing->graph;
    NodeId producer = graph_value(graph, value)->producer;
    if (!producer || producer >= storing->nodes) return value;
    const Node made = *graph_node(graph, producer);
    NodeOrigin origin = {.name = made.name, .layer = made.layer};
    if (made.phase != PHASE_FORWARD || made.layer != graph_node(graph, reader)->layer) return value;
    for (size_t i = 0; i < storing->stored_count; i++)
        if (storing->stored[i].value == value && storing->stored[i].bits)
            return cast(storing, reader, origin, storing->stored[i].bits, DTYPE_F32);
    if (!operator_has(made.op, IS_MOVEMENT)) return value;
    ValueId from = stored_factor(storing, made.inputs[0], reader);
    if (from == made.inputs[0]) return value;
    return insert(storing, reader, made.op, origin, from, made.attributes, made.attribute_count);
}

/* ---- Factors ---- */

/* What reads a value, itself or through views. */
typedef struct FactorUses {
    uint32_t products, others; /* those that only add up, as gradients of biases do, are neither */
    ValueId bits;              /* the value as bf16, once it is needed */
} FactorUses;

/* The value that a view shows; any other value itself. */
static ValueId shown(const Graph *graph, ValueId value)
{
    for (;;) {
        const Node *made = graph_producer(graph, value);
        if (!is_view(graph, made)) return value;
        value = made->inputs[0];
    }
}

static int factor_count(const Node *node)
{
    if (operator_has(node->op, IS_LOSS | HAS_MEMORY)) return 0;
    if (operator_has(node->op, IS_PRODUCT)) return 2;
    return operator_has(node->op, ADDS_UP) && node->phase == PHASE_BACKWARD;
}

static FactorUses *count_uses(const Graph *graph)
{
    FactorUses *uses = memory_allocate(graph->value_count * sizeof *uses);
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            if (!node->inputs[i] || is_view(graph, node)) continue; /* a view's own readers count */
            FactorUses *of = &uses[shown(graph, node->inputs[i])];
            if (i >= factor_count(node))
                of->others++;
            else if (operator_has(node->op, IS_PRODUCT))
                of->products++;
        }
    }
    return uses;
}

/* Whether the node reads the value as bf16: half as much, which need not be rounded and reordered in every product. */
static bool rounds_factor(const Storing *storing, const FactorUses *uses, const Node *node, ValueId value)
{
    const Value *factor = graph_value(storing->graph, value);
    const Node *made = graph_node(storing->graph, factor->producer);
    if (!factor->producer || factor->producer >= storing->nodes || factor->dtype != DTYPE_F32) return false;
    if (made->layer != node->layer || made->phase != node->phase || made->layer == LAYER_NONE) return false;
    if (operator_has(made->op, CONVERTS) || !is_large(&factor->shape)) return false;
    return uses[value].products > (uses[value].others ? 1 : 0);
}

/* What the node reads in place of the value. */
static ValueId rounded_factor(Storing *storing, FactorUses *uses, ValueId value, NodeId reader)
{
    Graph *graph = storing->graph;
    NodeId producer = graph_value(graph, value)->producer;
    const Node made = *graph_node(graph, producer), reads = *graph_node(graph, reader);
    NodeOrigin origin = {
        .name = made.name, .phase = reads.phase, .differentiates = reads.differentiates, .layer = reads.layer};
    if (is_view(graph, &made)) {
        ValueId from = rounded_factor(storing, uses, made.inputs[0], reader);
        return insert(storing, reader, made.op, origin, from, made.attributes, made.attribute_count);
    }
    NodeOrigin making = origin;
    making.differentiates = made.differentiates;
    if (!uses[value].bits) uses[value].bits = cast(storing, producer + 1, making, value, DTYPE_BF16);
    return cast(storing, reader, origin, uses[value].bits, DTYPE_F32);
}

static void round_factors(Storing *storing)
{
    FREED FactorUses *uses = count_uses(storing->graph);
    for (NodeId n = 1; n < storing->nodes; n++) {
        const Node node = *graph_node(storing->graph, n);
        for (int i = 0; node.op != OP_NONE && i < factor_count(&node); i++)
            if (rounds_factor(storing, uses, &node, shown(storing->graph, node.inputs[i])))
                node.inputs[i] = rounded_factor(storing, uses, node.inputs[i], n);
    }
}

static bool differentiates_loss(const Graph *graph, const Node *node)
{
    return node->differentiates && operator_has(graph_node(graph, node->differentiates)->op, IS_LOSS);
}

bool store_bf16(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    if (!options->differentiate || !options->bf16) return true;
    Storing storing = {.graph = graph, .nodes = graph->node_count, .diagnostics = diagnostics};
    for (NodeId n = 1; n < storing.nodes; n++) {
        const Node node = *graph_node(graph, n);
        if (node.op == OP_NONE || node.phase != PHASE_BACKWARD || node.layer == LAYER_NONE ||
            differentiates_loss(graph, &node))
            continue;
        for (int i = 0; i < node.input_count; i++)
            if (node.inputs[i]) node.inputs[i] = stored(&storing, node.inputs[i], n);
    }
    for (NodeId n = 1; n < storing.nodes; n++) {
        const Node node = *graph_node(graph, n);
        if (node.phase != PHASE_FORWARD || node.layer == LAYER_NONE || !operator_has(node.op, IS_PRODUCT)) continue;
        for (int i = 0; i < 2; i++) node.inputs[i] = stored_factor(&storing, node.inputs[i], n);
    }
    round_factors(&storing);
    put_in_place(&storing);
    return true;
}
