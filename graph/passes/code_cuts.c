#include "graph/passes/code_cuts.h"

#include <stdlib.h>

#include "base/random.h"
#include "graph/ops/add_node.h"

/* Between which layers values of a phase are handed on. */
typedef struct Reach {
    int *nearest,
        *farthest; /* [value]: of the layers other than the maker's that read it in its phase; else the maker's */
} Reach;

static bool is_handed_on(const Graph *graph, ValueId value)
{
    NodeId producer = graph_value(graph, value)->producer;
    const Node *from = graph_node(graph, producer); /* node 0 is dead */
    return producer && from->op != OP_NONE && from->phase != PHASE_UPDATE && from->layer != LAYER_NONE;
}

static int layer_of(const Graph *graph, ValueId value)
{
    return graph_node(graph, graph_value(graph, value)->producer)->layer;
}

static Reach find_reach(const Graph *graph)
{
    Reach reach = {memory_allocate(graph->value_count * sizeof(int)),
                   memory_allocate(graph->value_count * sizeof(int))};
    for (ValueId v = 1; v < graph->value_count; v++)
        reach.nearest[v] = reach.farthest[v] = is_handed_on(graph, v) ? layer_of(graph, v) : LAYER_NONE;
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        for (int i = 0; node->op != OP_NONE && i < node->input_count; i++) {
            ValueId value = node->inputs[i];
            if (!is_handed_on(graph, value) || node->layer == LAYER_NONE) continue;
            const Node *from = graph_node(graph, graph_value(graph, value)->producer);
            bool ahead = from->phase == PHASE_FORWARD ? node->layer > from->layer : node->layer < from->layer;
            if (from->phase != node->phase || !ahead) continue;
            int *nearest = &reach.nearest[value], *farthest = &reach.farthest[value];
            if (*nearest == from->layer || abs(node->layer - from->layer) < abs(*nearest - from->layer))
                *nearest = node->layer;
            if (abs(node->layer - from->layer) > abs(*farthest - from->layer)) *farthest = node->layer;
        }
    }
    return reach;
}

static void free_reach(Reach *reach)
{
    free(reach->nearest);
    free(reach->farthest);
}

/* Whether a codec may be put on the value at the one cut that it crosses. */
static bool may_code(const Graph *graph, const Reach *reach, ValueId value)
{
    const Value *tensor = graph_value(graph, value);
    int made = reach->nearest[value] == LAYER_NONE ? 0 : layer_of(graph, value);
    return reach->nearest[value] != LAYER_NONE && abs(reach->farthest[value] - made) == 1 &&
           tensor->dtype == DTYPE_F32 && tensor->shape.rank > 0 && !tensor->parameter &&
           shape_elements(&tensor->shape) > 0;
}

/* 0 forward, 1 backward. */
static int direction_of(const Graph *graph, ValueId value)
{
    return graph_node(graph, graph_value(graph, value)->producer)->phase == PHASE_BACKWARD;
}

/* ---- Bytes ---- */

CutBytes *cuts_measure(const Graph *graph)
{
    CutBytes *cuts = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *cuts);
    Reach reach = find_reach(graph);
    for (ValueId v = 1; v < graph->value_count; v++) {
        if (reach.nearest[v] == LAYER_NONE || reach.farthest[v] == layer_of(graph, v)) continue;
        const Value *value = graph_value(graph, v);
        int direction = direction_of(graph, v), made = layer_of(graph, v), read = reach.farthest[v];
        int64_t bytes = shape_elements(&value->shape) * (int64_t)dtype_size(value->dtype);
        bool codes = may_code(graph, &reach, v);
        int64_t columns = codes ? value->shape.dim[value->shape.rank - 1] : 1, rows = bytes / (4 * columns);
        for (int cut = 1 + (made < read ? made : read); cut <= (made < read ? read : made); cut++) {
            for (int codec = 0; codec < CODEC_COUNT; codec++)
                cuts[cut].bytes[direction][codec] += codes ? rows * codec_row_bytes((Codec)codec, columns) : bytes;
            if (codes) cuts[cut].coded[direction] += bytes;
        }
    }
    free_reach(&reach);
    return cuts;
}

/* ---- Codings ---- */

typedef struct Insertion {
    NodeId behind, encode, decode;
} Insertion;

typedef struct Coder {
    Graph *graph;
    Insertion *insertions; /* in the order of the nodes that they stand behind */
    size_t count, capacity;
    Diagnostics diagnostics;
} Coder;

/* Elements of one row of the batch. */
static int64_t row_elements(const Graph *graph, const Shape *shape)
{
    const Shape *input = graph->input_count ? &graph_value(graph, graph->inputs[0])->shape : NULL;
    int64_t rows = input && input->rank ? input->dim[0] : 1, elements = shape_elements(shape);
    return rows > 0 && elements % rows == 0 ? elements / rows : elements;
}

static NodeId add_node(Coder *coder, Opcode op, NodeOrigin origin, const ValueId *inputs, int input_count,
                       const Attribute *attributes, ValueId *output)
{
    NodeId node =
        graph_add_node(coder->graph, op, origin, inputs, input_count, attributes, 2, output, 1, &coder->diagnostics);
    if (!node) {
        diagnostics_print(&coder->diagnostics, stderr);
        bug("a value that crosses a cut has no codec");
    }
    return node;
}

/* Layers on the other side of the cut read `decoded` from now on. */
static void replace_readers(Graph *graph, ValueId value, ValueId decoded, int cut, int direction, NodeId except)
{
    for (NodeId n = 1; n < graph->node_count; n++) {
        const Node *node = graph_node(graph, n);
        bool behind = direction == 0 ? node->layer >= cut : node->layer < cut;
        for (int i = 0;
             node->op != OP_NONE && node->layer != LAYER_NONE && behind && n != except && i < node->input_count; i++)
            if (node->inputs[i] == value) node->inputs[i] = decoded;
    }
}

static void code_value(Coder *coder, ValueId value, int cut, Codec codec, int number)
{
    Graph *graph = coder->graph;
    int direction = direction_of(graph, value);
    Shape shape = graph_value(graph, value)->shape;
    NodeId producer = graph_value(graph, value)->producer;
    const Node from = *graph_node(graph, producer);
    NodeOrigin origin = {
        .name = from.name, .phase = from.phase, .differentiates = from.differentiates, .layer = from.layer};
    Attribute attributes[2] = {attribute_string("codec", codec_name(codec)),
                               attribute_integer("row", row_elements(graph, &shape))};
    ValueId inputs[3] = {value}, coded, decoded;
    if (direction) {
        char name[64];
        snprintf(name, sizeof name, "codec/%d/%d", cut, number);
        int64_t key = (int64_t)random_stream(0, name).stream;
        inputs[1] = graph_constant_integers(graph, &key, 1);
        inputs[2] = graph_step_scalars(graph);
    }
    Insertion insertion = {.behind = producer};
    insertion.encode = add_node(coder, OP_Encode, origin, inputs, direction ? 3 : 1, attributes, &coded);
    attributes[1] = attribute_integer("columns", shape.dim[shape.rank - 1]);
    origin.layer = direction ? cut - 1 : cut;
    insertion.decode = add_node(coder, OP_Decode, origin, &coded, 1, attributes, &decoded);
    graph_value(graph, coded)->lines = graph_value(graph, decoded)->lines = graph_value(graph, value)->lines;
    replace_readers(graph, value, decoded, cut, direction, insertion.encode);
    array_push(coder->insertions, coder->count, coder->capacity, insertion);
}

static int by_place(const void *a, const void *b)
{
    const Insertion *x = a, *y = b;
    if (x->behind != y->behind) return x->behind < y->behind ? -1 : 1;
    return x->encode < y->encode ? -1 : x->encode > y->encode;
}

static void put_in_place(Coder *coder, size_t former_count)
{
    Graph *graph = coder->graph;
    NodeId *order = memory_allocate(graph->node_count * sizeof *order);
    size_t next = 0, count = 0;
    if (coder->count) qsort(coder->insertions, coder->count, sizeof *coder->insertions, by_place);
    for (NodeId n = 1; n < former_count; n++) {
        order[count++] = n;
        for (; next < coder->count && coder->insertions[next].behind == n; next++) {
            order[count++] = coder->insertions[next].encode;
            order[count++] = coder->insertions[next].decode;
        }
    }
    graph_reorder(graph, order);
    free(order);
}

void cuts_code(Graph *graph, const CutCodec *cuts, int count)
{
    Coder coder = {.graph = graph};
    size_t values = graph->value_count, nodes = graph->node_count;
    const CutCodec **codecs = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *codecs); /* per cut */
    int *numbers = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *numbers);
    for (int i = 0; i < count; i++) codecs[cuts[i].cut] = &cuts[i];
    Reach reach = find_reach(graph);
    for (ValueId v = 1; v < values; v++) {
        if (!may_code(graph, &reach, v)) continue;
        int made = layer_of(graph, v), cut = made > reach.farthest[v] ? made : reach.farthest[v];
        Codec codec = codecs[cut] ? codecs[cut]->codecs[direction_of(graph, v)] : CODEC_NONE;
        int number = numbers[cut]++; /* whatever is coded at other cuts, or forward */
        if (codec != CODEC_NONE) code_value(&coder, v, cut, codec, number);
    }
    put_in_place(&coder, nodes);
    graph_verify(graph);
    free_reach(&reach);
    free(codecs);
    free(numbers);
    free(coder.insertions);
    diagnostics_free(&coder.diagnostics);
}
