/* A product with a large vocabulary whose only use is a cross-entropy becomes one operator, which computes the logits
 * some classes at a time (graph/ops/sliced_cross_entropy.c): their memory is that of a slice. Where the
 * vocabulary is trained too, they are computed twice. An output that shows the logits goes, so this is for programs
 * that train. */
#include "graph/ops/add_node.h"
#include "graph/passes/passes.h"

enum {
    LEAST_LOGITS = 64 << 20, /* bytes, below which whole logits are faster and do no harm */
    LEAST_FROZEN = 16 << 20, /* the same next to a frozen vocabulary, whose logits are computed once either way */
    SLICE_BYTES = 8 << 20,   /* what caches hold next to a slice of the table */
    SLICE_COLUMNS = 64,      /* a slice is a multiple of this */
    LEAST_SLICES = 4         /* where --logits sliced asks for them */
};

static int count_readers(const Graph *graph, ValueId value)
{
    int count = 0;
    for (NodeId n = 1; n < graph->node_count; n++)
        for (int i = 0; graph_node(graph, n)->op != OP_NONE && i < graph_node(graph, n)->input_count; i++)
            count += graph_node(graph, n)->inputs[i] == value;
    return count;
}

/* The product that the logits are, reshaped perhaps, if nothing else reads it; 0: they are something else. */
static NodeId find_product(const Graph *graph, ValueId logits)
{
    for (;;) {
        NodeId producer = graph_value(graph, logits)->producer;
        const Node *node = graph_node(graph, producer);
        if (!producer || count_readers(graph, logits) != 1) return 0;
        if (node->op == OP_MatMul)
            return graph_value(graph, node->inputs[0])->shape.rank > 1 &&
                           graph_value(graph, node->inputs[1])->shape.rank == 2
                       ? producer
                       : 0;
        if (node->op != OP_Reshape) return 0;
        logits = node->inputs[0];
    }
}

static void drop_outputs(Graph *graph, ValueId value)
{
    size_t kept = 0;
    for (size_t i = 0; i < graph->output_count; i++)
        if (graph->outputs[i].value != value) graph->outputs[kept++] = graph->outputs[i];
    graph->output_count = kept;
}

/* The way from the product to the loss is gone. */
static void remove_logits(Graph *graph, ValueId logits, NodeId product)
{
    for (NodeId producer = 0; producer != product;) {
        producer = graph_value(graph, logits)->producer;
        Node *node = graph_node(graph, producer);
        drop_outputs(graph, logits);
        graph_value(graph, logits)->producer = 0;
        logits = node->inputs[0];
        *node = (Node){.name = node->name, .layer = LAYER_NONE};
    }
}

/* As few slices as fit, of about one size. */
static int64_t slice_columns(int64_t rows, int64_t classes, size_t element)
{
    int64_t most = SLICE_BYTES / (int64_t)element / rows / SLICE_COLUMNS * SLICE_COLUMNS;
    if (most > classes / LEAST_SLICES) most = classes / LEAST_SLICES;
    if (most < SLICE_COLUMNS) most = SLICE_COLUMNS;
    int64_t slices = (classes + most - 1) / most, columns = (classes + slices - 1) / slices;
    columns = (columns + SLICE_COLUMNS - 1) / SLICE_COLUMNS * SLICE_COLUMNS;
    return columns < classes ? columns : classes;
}

/* The node that was added last takes the place of another, whose first output it makes if it is given. */
static void move_last(Graph *graph, NodeId to, ValueId first_output)
{
    Node node = *graph_node(graph, (NodeId)--graph->node_count);
    if (first_output) node.outputs[0] = first_output;
    for (int i = 0; i < node.output_count; i++) graph_value(graph, node.outputs[i])->producer = to;
    *graph_node(graph, to) = node;
}

static void slice(Graph *graph, NodeId loss, NodeId product, bool differentiate)
{
    const Node old = *graph_node(graph, loss), logits = *graph_node(graph, product);
    const Node *maker = graph_producer(graph, logits.inputs[1]);
    bool by_rows = maker->op == OP_Transpose;
    ValueId table = by_rows ? maker->inputs[0] : logits.inputs[1], hidden = logits.inputs[0];
    const Value *shown = graph_value(graph, hidden);
    int64_t size = shown->shape.dim[shown->shape.rank - 1], rows = shape_elements(&shown->shape) / size;
    int64_t classes = graph_value(graph, table)->shape.dim[!by_rows];
    int64_t columns = slice_columns(rows, classes, dtype_size(shown->dtype));
    remove_logits(graph, old.inputs[0], product);

    Builder b = {.graph = graph, .origin = {.name = old.name, .phase = PHASE_FORWARD, .layer = LAYER_NONE}};
    ValueId flat = build_reshape(&b, hidden, &(Shape){2, {rows, size}}), outputs[4];
    if (flat != hidden) move_last(graph, product, 0);
    Attribute attributes[] = {attribute_integer("ignore_index", node_integer(&old, "ignore_index", -100)),
                              attribute_integer("labels", node_integer(&old, "labels", 0)),
                              attribute_integer("slice", columns), attribute_integer("columns", !by_rows),
                              attribute_integer("pull", differentiate)};
    if (!graph_add_node(graph, OP_SlicedCrossEntropy, b.origin, (ValueId[]){flat, table, old.inputs[1], old.inputs[2]},
                        4, attributes, 5, outputs, 4, NULL))
        bug("'%s' cannot be sliced", old.name);
    move_last(graph, loss, old.outputs[0]);
}

/* Whether the table of the product is kept as it is. */
static bool is_frozen(const Graph *graph, NodeId product)
{
    const Node *node = graph_node(graph, product);
    if (!product) return false;
    const Value *table = graph_value(graph, node->inputs[1]);
    const Node *maker = graph_node(graph, table->producer);
    if (maker->op == OP_Transpose) table = graph_value(graph, maker->inputs[0]);
    return table->role == ROLE_PARAMETER && table->frozen;
}

bool slice_loss(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    (void)diagnostics;
    if (options->logits == LOGITS_WHOLE) return true;
    for (NodeId n = 1; n < graph->node_count; n++) {
        if (graph_node(graph, n)->op != OP_CrossEntropy) continue;
        const Value *logits = graph_value(graph, graph_node(graph, n)->inputs[0]);
        NodeId product = find_product(graph, graph_node(graph, n)->inputs[0]);
        int64_t bytes = shape_elements(&logits->shape) * (int64_t)dtype_size(logits->dtype);
        int64_t least = options->logits == LOGITS_SLICED ? 0 : is_frozen(graph, product) ? LEAST_FROZEN : LEAST_LOGITS;
        if (product && bytes >= least) slice(graph, n, product, options->differentiate);
    }
    graph_remove_dead(graph);
    return true;
}
