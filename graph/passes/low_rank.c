/* Low-rank branches next to matrix products (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR
 * 2022): y = x W becomes y = x W + ((alpha / rank) drop(x) A^T) B^T, with A [rank, in] and B [out, rank] as the PEFT
 * library keeps them. B starts as zeros, so that nothing changes at first, and A uniform in +-1/sqrt(in), as that
 * library draws it, from a seed by name. Every weight must be in products and have no problem. */
#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "graph/analysis/parameters.h"
#include "graph/ops/add_node.h"
#include "graph/passes/passes.h"

/* ---- Parameters ---- */

static ValueId add_parameter(Graph *graph, const char *name, int64_t rows, int64_t columns)
{
    Shape shape = {2, {rows, columns}};
    return graph_add_parameter(graph, name, DTYPE_F32, &shape, NULL);
}

static bool add_parameters(Graph *graph, const LowRank *low_rank, LowRankBranch *branch, ProductWeight weight,
                           Diagnostics *diagnostics)
{
    const Value *value = graph_value(graph, branch->weight);
    if (weight.problem) bug("'%s' can have no branch", value->name);
    if (!weight.in) return true; /* the loss does not depend on it */
    if (value->dtype != DTYPE_F32)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = graph->file, .object = value->name},
                                 "export the model in float32", "is of type %s; only f32 is trained",
                                 dtype_name(value->dtype));
    const char *a = arena_format(&graph->arena, "%s.lora_A.weight", branch->module);
    const char *b = arena_format(&graph->arena, "%s.lora_B.weight", branch->module);
    branch->a = add_parameter(graph, a, low_rank->rank, weight.in);
    branch->b = add_parameter(graph, b, weight.out, low_rank->rank);
    size_t elements = (size_t)(low_rank->rank * weight.in);
    float *drawn = arena_new_array(&graph->arena, float, elements);
    RandomStream stream = random_stream(low_rank->seed, arena_format(&graph->arena, "init/%s", a));
    double bound = 1 / sqrt((double)weight.in);
    for (size_t i = 0; i < elements; i++) drawn[i] = (float)(bound * (2 * (double)random_uniform(stream, i) - 1));
    graph_value(graph, branch->a)->data = drawn;
    graph_value(graph, branch->b)->data = arena_new_array(&graph->arena, float, (size_t)(low_rank->rank * weight.out));
    return true;
}

/* ---- Nodes ---- */

/* x M^T */
static ValueId multiply(const Builder *b, ValueId x, ValueId matrix)
{
    return build_binary(b, OP_MatMul, x, build_transpose(b, matrix, (int64_t[]){1, 0}));
}

/* What is added to the product with `x`; 0 after reporting. The factor alpha / rank is applied where there are fewest
 * elements. */
static ValueId add_branch(const Builder *b, const LowRank *low_rank, const LowRankBranch *branch, ValueId x)
{
    NodeOrigin origin = b->origin;
    origin.name = arena_format(&b->graph->arena, "%s.lora_dropout", branch->module);
    if (low_rank->dropout > 0) x = graph_add_dropout(b->graph, x, low_rank->dropout, origin, b->diagnostics);
    ValueId narrow = multiply(b, x, branch->a);
    double scale = low_rank->alpha / low_rank->rank;
    if (scale != 1) narrow = build_binary(b, OP_Mul, narrow, graph_constant_scalar(b->graph, DTYPE_F32, scale));
    return multiply(b, narrow, branch->b);
}

/* In front of the product, so that the sum can be fused into it. */
static bool rebuild_product(const Builder *b, const LowRank *low_rank, const LowRankBranch *branch, const Node *node)
{
    Graph *graph = b->graph;
    ValueId whole = node->outputs[0], added = add_branch(b, low_rank, branch, node->inputs[0]);
    const Shape shape = graph_value(graph, whole)->shape;
    if (!added) return false;
    ValueId product = build_binary(b, OP_MatMul, node->inputs[0], node->inputs[1]);
    ValueId sum = build_binary(b, OP_Add, product, added);
    if (!sum || !shape_equal(&graph_value(graph, sum)->shape, &shape)) bug("a branch changes '%s'", node->name);
    /* The sum takes the place of the product's value, whose name and number others know. */
    Node *last = graph_producer(graph, sum);
    last->outputs[0] = whole;
    graph_value(graph, whole)->producer = graph_value(graph, sum)->producer;
    graph_value(graph, sum)->producer = 0;
    return true;
}

static bool rebuild(Graph *graph, const LowRank *low_rank, Diagnostics *diagnostics)
{
    size_t count, values = graph->value_count;
    FREED const LowRankBranch **branches =
        memory_allocate(values * sizeof *branches); /* by the value of their weight */
    for (size_t i = 0; i < low_rank->count; i++) branches[low_rank->branches[i].weight] = &low_rank->branches[i];
    FREED Node *nodes = graph_take_nodes(graph, &count);
    bool ok = true;
    for (NodeId n = 1; n < count && ok; n++) {
        Node node = nodes[n];
        if (node.op == OP_NONE) continue;
        ValueId parameter = operator_has(node.op, IS_PRODUCT) ? parameter_behind(graph, node.inputs[1]) : 0;
        const LowRankBranch *branch = parameter < values ? branches[parameter] : NULL;
        NodeOrigin origin = {.name = node.name, .layer = LAYER_NONE};
        Builder b = {.graph = graph, .origin = origin, .diagnostics = diagnostics};
        if (branch)
            ok = rebuild_product(&b, low_rank, branch, &node);
        else
            graph_push_node(graph, node);
    }
    return ok;
}

bool insert_low_rank(Graph *graph, const PassOptions *options, Diagnostics *diagnostics)
{
    LowRank *low_rank = options->low_rank;
    if (!low_rank) return true;
    FREED ProductWeight *weights = product_weights(graph);
    bool ok = true;
    for (size_t i = 0; i < low_rank->count && ok; i++) {
        LowRankBranch *branch = &low_rank->branches[i];
        ok = add_parameters(graph, low_rank, branch, weights[branch->weight], diagnostics);
    }
    return ok && rebuild(graph, low_rank, diagnostics);
}
