/* Attention that a constant mask keeps from later keys (decoders), or from distant ones (sliding windows), computes
 * only what counts: queries are cut into parts of some rows, and each part reads the keys between the first and the
 * last that any of its rows sees. What is left out was exactly 0 after the softmax, so forward has the same bits.
 * Backward adds the gradients of keys and values part by part, and so rounds them otherwise.
 *
 * Where padding hides every key that a row sees, its result differs; nothing reads such a row.
 *
 * Comes after the layers, which know attention by how many products it has. */
#include <stdlib.h>

#include "graph/ops/add_node.h"
#include "graph/ops/masked.h"
#include "graph/ops/operator.h"
#include "graph/passes/passes.h"

enum {
    PART_ROWS = 128, /* of queries: enough for products to run at full speed */
    MOST_STEPS = 12  /* between the product and the softmax */
};
#define WORTHWHILE 0.8125 /* of all scores, at most so many are computed then */

/* The way from the product of queries and keys to that of probabilities and values. */
typedef struct Attention {
    NodeId product, steps[MOST_STEPS]; /* [0]: the softmax, then upwards */
    int step_count;
    const bool *visible; /* [row][key] */
} Attention;

/* A part of what broadcasts to the scores, by all layers that read it. */
typedef struct Part {
    ValueId whole, part;
    int64_t row, key;
} Part;

typedef struct Skipping {
    Graph *graph;
    int *readers; /* per value */
    Part *parts;
    size_t count, capacity;
} Skipping;

static int64_t dimension(const Graph *graph, ValueId value, int from_end)
{
    const Shape *shape = &graph_value(graph, value)->shape;
    return shape->rank >= from_end ? shape->dim[shape->rank - from_end] : 1;
}

/* [row][key] of what a constant hides; NULL: nothing. */
static const bool *constant_mask(const Graph *graph, const Node *node, int64_t size)
{
    const Value *condition = graph_value(graph, node->inputs[0]);
    bool is_mask = node_hides(graph, node) && condition->role == ROLE_CONSTANT &&
                   dimension(graph, node->inputs[0], 1) == size && shape_elements(&condition->shape) == size * size;
    return is_mask ? condition->data : NULL;
}

/* The input of an elementwise node that comes from the product; 0: not clear. */
static ValueId main_input(const Graph *graph, const Node *node)
{
    ValueId found = 0;
    if (!operator_has(node->op, IS_MAP)) return 0;
    for (int i = 0; i < node->input_count; i++) {
        const Value *input = graph_value(graph, node->inputs[i]);
        if (input->role == ROLE_PARAMETER) return 0;
        if (!input->producer || graph_node(graph, input->producer)->layer == LAYER_NONE) continue;
        if (found || !shape_equal(&input->shape, &graph_value(graph, node->outputs[0])->shape)) return 0;
        found = node->inputs[i];
    }
    return found;
}

/* The keys that the rows see: the first, and the end of the last; whether every row sees any. */
static bool visible_keys(const bool *visible, int64_t size, int64_t row, int64_t end, int64_t *first, int64_t *last)
{
    *first = size;
    *last = 0;
    for (bool any; row < end; row++) {
        any = false;
        for (int64_t key = 0; key < size; key++) {
            if (!visible[row * size + key]) continue;
            any = true;
            if (key < *first) *first = key;
            if (key >= *last) *last = key + 1;
        }
        if (!any) return false;
    }
    return true;
}

static bool is_worthwhile(const bool *visible, int64_t size)
{
    int64_t computed = 0, first, last;
    for (int64_t row = 0, end; row < size; row = end) {
        end = row + PART_ROWS < size ? row + PART_ROWS : size;
        if (!visible_keys(visible, size, row, end, &first, &last)) return false;
        computed += (end - row) * (last - first);
    }
    return (double)computed <= WORTHWHILE * (double)size * (double)size;
}

/* Whether the node multiplies probabilities of masked scores with values. */
static bool find_attention(const Skipping *skipping, const Node *context, Attention *attention)
{
    const Graph *graph = skipping->graph;
    *attention = (Attention){0};
    if (context->op != OP_MatMul || context->layer == LAYER_NONE) return false;
    int64_t size = dimension(graph, context->inputs[0], 1);
    if (size < 2 * PART_ROWS || dimension(graph, context->inputs[0], 2) != size) return false;
    for (ValueId value = context->inputs[0];;) {
        NodeId producer = graph_value(graph, value)->producer;
        const Node *node = graph_node(graph, producer);
        if (!producer || skipping->readers[value] != 1 || node->layer != context->layer) return false;
        if (node->op == OP_MatMul) {
            attention->product = producer;
            return attention->visible && is_worthwhile(attention->visible, size);
        }
        if (attention->step_count == MOST_STEPS || (attention->step_count == 0) != (node->op == OP_Softmax))
            return false;
        attention->steps[attention->step_count++] = producer;
        if (!attention->visible) attention->visible = constant_mask(graph, node, size);
        /* Whatever else stands below the mask leaves hidden what is hidden. */
        if (!attention->visible && node->op != OP_Softmax && node->op != OP_Add && !node_hides(graph, node))
            return false;
        value = node->op == OP_Softmax ? node->inputs[0] : main_input(graph, node);
    }
}

static ValueId part_along(const Builder *b, ValueId value, int from_end, int64_t first, int64_t count)
{
    int rank = graph_value(b->graph, value)->shape.rank;
    return dimension(b->graph, value, from_end) == 1 ? value : build_part(b, value, rank - from_end, first, count);
}

/* The same rows and keys of what broadcasts to the scores. */
static ValueId side_part(Skipping *skipping, ValueId value, int64_t row, int64_t rows, int64_t key, int64_t keys)
{
    for (size_t i = 0; i < skipping->count; i++)
        if (skipping->parts[i].whole == value && skipping->parts[i].row == row && skipping->parts[i].key == key)
            return skipping->parts[i].part;
    const NodeOrigin origin = {.name = "visible keys", .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    const Builder b = {.graph = skipping->graph, .origin = origin};
    ValueId part = part_along(&b, part_along(&b, value, 2, row, rows), 1, key, keys);
    Part entry = {value, part, row, key};
    array_push(skipping->parts, skipping->count, skipping->capacity, entry);
    return part;
}

/* A node of the old list again, with these inputs. */
static ValueId again(Graph *graph, const Node *node, const ValueId *inputs)
{
    const NodeOrigin origin = {.name = node->name, .phase = PHASE_FORWARD, .layer = node->layer};
    const Builder b = {.graph = graph, .origin = origin};
    return build_node(&b, node->op, inputs, node->input_count, node->attributes, node->attribute_count);
}

/* What the queries row ... row + rows - 1 get. */
static ValueId add_part(Skipping *skipping, const Node *nodes, const Node *context, const Attention *attention,
                        int64_t row, int64_t rows)
{
    Graph *graph = skipping->graph;
    const Node *product = &nodes[attention->product];
    const Builder b = {.graph = graph, .origin = {.name = product->name, .layer = product->layer}};
    int64_t first, last;
    visible_keys(attention->visible, dimension(graph, context->inputs[0], 1), row, row + rows, &first, &last);
    ValueId factors[] = {part_along(&b, product->inputs[0], 2, row, rows),
                         part_along(&b, product->inputs[1], 1, first, last - first)};
    ValueId value = again(graph, product, factors), whole = product->outputs[0];
    for (int s = attention->step_count; s-- > 0;) {
        const Node *step = &nodes[attention->steps[s]];
        ValueId *inputs = arena_new_array(&graph->arena, ValueId, (size_t)step->input_count);
        for (int i = 0; i < step->input_count; i++)
            inputs[i] =
                step->inputs[i] == whole ? value : side_part(skipping, step->inputs[i], row, rows, first, last - first);
        value = again(graph, step, inputs);
        whole = step->outputs[0];
    }
    return again(graph, context, (ValueId[]){value, part_along(&b, context->inputs[1], 2, first, last - first)});
}

static void add_parts(Skipping *skipping, const Node *nodes, const Node *context, const Attention *attention)
{
    Graph *graph = skipping->graph;
    int64_t size = dimension(graph, context->inputs[0], 1), count = (size + PART_ROWS - 1) / PART_ROWS;
    ValueId *parts = arena_new_array(&graph->arena, ValueId, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i * PART_ROWS;
        parts[i] = add_part(skipping, nodes, context, attention, row, row + PART_ROWS < size ? PART_ROWS : size - row);
    }
    const Builder b = {.graph = graph, .origin = {.name = context->name, .layer = context->layer}};
    int rank = graph_value(graph, context->outputs[0])->shape.rank;
    build_along(&b, OP_Concat, parts, (int)count, "axis", rank - 2);
    NodeId last = (NodeId)graph->node_count - 1;
    graph_node(graph, last)->outputs[0] = context->outputs[0];
    graph_value(graph, context->outputs[0])->producer = last;
}

static int *count_readers(const Graph *graph)
{
    int *readers = memory_allocate(graph->value_count * sizeof *readers);
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->op != OP_NONE && i < graph_node(graph, n)->input_count; i++)
            readers[graph_node(graph, n)->inputs[i]]++;
    for (size_t i = 0; i < graph->output_count; i++) readers[graph->outputs[i].value]++;
    return readers;
}

bool skip_masked(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)options, (void)diagnostics;
    Skipping skipping = {.graph = graph, .readers = count_readers(graph)};
    FREED Attention *found = memory_allocate(graph->node_count * sizeof *found);
    bool *chosen = memory_allocate(graph->node_count), any = false;
    for (NodeId n = 1; n < graph->node_count; n++)
        any |= chosen[n] = find_attention(&skipping, graph_node(graph, n), &found[n]);
    size_t node_count = 0;
    FREED Node *nodes = any ? graph_take_nodes(graph, &node_count) : NULL;
    for (NodeId n = 1; n < node_count; n++) {
        if (chosen[n])
            add_parts(&skipping, nodes, &nodes[n], &found[n]);
        else
            graph_push_node(graph, nodes[n]);
    }
    if (any) graph_remove_dead(graph);
    free(chosen);
    free(skipping.parts);
    free(skipping.readers);
    return true;
}
