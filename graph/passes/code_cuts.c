#include "graph/passes/code_cuts.h"

#include <stdlib.h>

#include "base/random.h"
#include "graph/analysis/cuts.h"
#include "graph/ops/add_node.h"

typedef struct Insertion {
    NodeId after, encode, decode;
} Insertion;

typedef struct Coder {
    Graph *graph;
    Insertion *insertions; /* in the order of the nodes that they follow */
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
        bool beyond = direction == 0 ? node->layer >= cut : node->layer < cut;
        for (int i = 0;
             node->op != OP_NONE && node->layer != LAYER_NONE && beyond && n != except && i < node->input_count; i++)
            if (node->inputs[i] == value) node->inputs[i] = decoded;
    }
}

static void code_value(Coder *coder, ValueId value, int cut, Codec codec, int number)
{
    Graph *graph = coder->graph;
    int direction = value_direction(graph, value);
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
    Insertion insertion = {.after = producer};
    insertion.encode = add_node(coder, OP_Encode, origin, inputs, direction ? 3 : 1, attributes, &coded);
    attributes[1] = attribute_integer("columns", shape.dim[shape.rank - 1]);
    origin.layer = direction ? cut - 1 : cut;
    insertion.decode = add_node(coder, OP_Decode, origin, &coded, 1, attributes, &decoded);
    replace_readers(graph, value, decoded, cut, direction, insertion.encode);
    array_push(coder->insertions, coder->count, coder->capacity, insertion);
}

static int by_place(const void *a, const void *b)
{
    const Insertion *x = a, *y = b;
    if (x->after != y->after) return x->after < y->after ? -1 : 1;
    return x->encode < y->encode ? -1 : x->encode > y->encode;
}

static void put_in_place(Coder *coder, size_t former_count)
{
    Graph *graph = coder->graph;
    FREED NodeId *order = memory_allocate(graph->node_count * sizeof *order);
    size_t next = 0, count = 0;
    if (coder->count) qsort(coder->insertions, coder->count, sizeof *coder->insertions, by_place);
    for (NodeId n = 1; n < former_count; n++) {
        order[count++] = n;
        for (; next < coder->count && coder->insertions[next].after == n; next++) {
            order[count++] = coder->insertions[next].encode;
            order[count++] = coder->insertions[next].decode;
        }
    }
    graph_reorder(graph, order);
}

void cuts_code(Graph *graph, const CutCodec *cuts, int count)
{
    Coder coder = {.graph = graph};
    size_t values = graph->value_count, nodes = graph->node_count;
    const CutCodec **codecs = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *codecs); /* per cut */
    FREED int *numbers = memory_allocate((size_t)(graph->layer_count + 1) * sizeof *numbers);
    for (int i = 0; i < count; i++) codecs[cuts[i].cut] = &cuts[i];
    FREED int *reach = values_reach(graph);
    for (ValueId v = 1; v < values; v++) {
        int cut = codable_cut(graph, reach, v);
        if (!cut) continue;
        Codec codec = codecs[cut] ? codecs[cut]->codecs[value_direction(graph, v)] : CODEC_NONE;
        int number = numbers[cut]++; /* whatever is coded at other cuts, or forward */
        if (codec != CODEC_NONE) code_value(&coder, v, cut, codec, number);
    }
    put_in_place(&coder, nodes);
    graph_verify(graph);
    free(codecs);
    free(coder.insertions);
    diagnostics_free(&coder.diagnostics);
}
