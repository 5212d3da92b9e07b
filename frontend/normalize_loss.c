#include <string.h>

#include "frontend/normalize.h"

typedef struct LossNode {
    ValueId scores, labels; /* as in the node: [N, C, d1 ...] and [N, d1 ...] */
    ValueId weights;        /* [C]; 0: none */
    Shape score_shape, label_shape;
    int64_t ignore_index;
    bool ignores;
    const char *reduction;
} LossNode;

static bool read_loss(OnnxNode *node, LossNode *loss)
{
    *loss = (LossNode){.scores = node->inputs[0], .labels = node->inputs[1]};
    loss->score_shape = shape_of(node, loss->scores);
    loss->label_shape = shape_of(node, loss->labels);
    loss->ignores = attribute_present(node, "ignore_index");
    if (!read_integer(node, "ignore_index", -100, &loss->ignore_index) ||
        !read_string(node, "reduction", "mean", &loss->reduction))
        return false;
    if (has_input(node, 2)) loss->weights = node->inputs[2];
    int rank = loss->score_shape.rank;
    bool fits = rank >= 2 && loss->label_shape.rank == rank - 1;
    for (int i = 0; fits && i < rank - 1; i++) fits = loss->label_shape.dim[i] == loss->score_shape.dim[i ? i + 1 : 0];
    char scores[256], labels[256];
    if (!fits)
        return node_error(node, NULL, "has scores of shape %s for labels of shape %s",
                          shape_format(&loss->score_shape, scores), shape_format(&loss->label_shape, labels));
    Shape weights = {1, {loss->score_shape.dim[1]}}, given = loss->weights ? shape_of(node, loss->weights) : weights;
    if (!shape_equal(&weights, &given)) return node_error(node, NULL, "needs one weight for each class");
    return dtype_is_integer(dtype_of(node, loss->labels)) || node_error(node, NULL, "has labels that are not integers");
}

/* The classes moved from the second axis to the last, and back. */
static ValueId classes_last(OnnxNode *node, ValueId value, int rank)
{
    int64_t perm[MAX_RANK] = {0};
    for (int i = 1; i < rank; i++) perm[i] = i < rank - 1 ? i + 1 : 1;
    return emit_transpose(node, value, perm);
}

static ValueId classes_second(OnnxNode *node, ValueId value, int rank)
{
    int64_t perm[MAX_RANK] = {0};
    for (int i = 1; i < rank; i++) perm[i] = i == 1 ? rank - 1 : i - 1;
    return emit_transpose(node, value, perm);
}

/* The graph input that the labels are, seen through operators that keep the numbers; 0 if they are computed. */
static ValueId label_input(const Graph *graph, ValueId value)
{
    for (;;) {
        const Value *labels = graph_value(graph, value);
        if (labels->role == ROLE_INPUT) return value;
        if (!labels->producer) return 0;
        const Node *node = graph_node(graph, labels->producer);
        if (node->op != OP_Reshape && node->op != OP_Cast && node->op != OP_Identity) return 0;
        value = node->inputs[0];
    }
}

/* The mean over the valid labels: what training is compiled for. The runtime scales by the labels of the whole batch.
 */
static bool mean_loss(OnnxNode *node, const LossNode *loss, ValueId scores)
{
    int rank = loss->score_shape.rank;
    int64_t classes = loss->score_shape.dim[1], rows = shape_elements(&loss->label_shape);
    ValueId inputs[3] = {emit_reshape(node, classes_last(node, scores, rank), &(Shape){2, {rows, classes}}),
                         emit_reshape(node, loss->labels, &(Shape){1, {rows}}), graph_step_scalars(node->graph)};
    if (!inputs[0] || !inputs[1]) return false;
    Attribute attribute = attribute_integer("ignore_index", loss->ignore_index);
    ValueId results[2];
    if (!emit_outputs(node, OP_CrossEntropy, inputs, 3, &attribute, 1, results, 2)) return false;
    Graph *graph = node->graph;
    if (!graph->loss) {
        graph->loss = results[0];
        graph->labels = label_input(graph, loss->labels);
        graph->ignore_index = loss->ignore_index;
        graph->loss_is_summed = true;
    }
    return set_output(node, 0, results[0]);
}

/* What each label counts: its class's weight, or 1; 0 where it is ignored. 0 as a value: every label counts 1. */
static ValueId label_weights(OnnxNode *node, const LossNode *loss, ValueId labels, bool *uniform)
{
    DType type = dtype_of(node, loss->scores);
    *uniform = !loss->weights && !loss->ignores;
    if (*uniform || !labels) return 0;
    ValueId weights = emit_expand(node, emit_scalar(node, type, 1), &loss->label_shape);
    Attribute axis = attribute_integer("axis", 0);
    if (loss->weights) weights = emit_with(node, OP_Gather, (ValueId[]){loss->weights, labels}, 2, &axis, 1);
    if (!loss->ignores) return weights;
    ValueId ignored = graph_add_constant(node->graph, NULL, DTYPE_I64, &(Shape){0}, &loss->ignore_index);
    return emit_where(node, emit_binary(node, OP_Equal, labels, ignored), emit_scalar(node, type, 0), weights);
}

/* Each label's loss, their sum or their mean, in elementary operators: the label's weight times
 * -sum over classes of (class == label ? log p : 0). */
static bool plain_loss(OnnxNode *node, const LossNode *loss, ValueId log_likelihood)
{
    int rank = loss->score_shape.rank;
    int64_t classes = loss->score_shape.dim[1];
    Shape column = loss->label_shape;
    column.dim[column.rank++] = 1;
    if (!check_size(node, &(Shape){1, {classes}}, true)) return false;
    ValueId range = graph_add_constant(node->graph, NULL, DTYPE_I64, &(Shape){1, {classes}}, NULL);
    int64_t *numbers = (int64_t *)graph_value(node->graph, range)->data;
    for (int64_t i = 0; i < classes; i++) numbers[i] = i;

    ValueId labels = emit_cast(node, loss->labels, DTYPE_I64);
    ValueId hit = emit_binary(node, OP_Equal, emit_reshape(node, labels, &column), range);
    ValueId scores = classes_last(node, log_likelihood, rank);
    ValueId chosen = emit_where(node, hit, scores, emit_scalar(node, dtype_of(node, loss->scores), 0));
    int64_t last = rank - 1, axes[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    ValueId each = emit_unary(node, OP_Neg, emit_reduce(node, OP_ReduceSum, chosen, &last, 1, false));
    bool uniform;
    ValueId weights = label_weights(node, loss, labels, &uniform);
    if (!uniform) each = emit_binary(node, OP_Mul, each, weights);
    if (strcmp(loss->reduction, "none") == 0) return set_output(node, 0, each);
    bool mean = strcmp(loss->reduction, "mean") == 0;
    if (!mean && strcmp(loss->reduction, "sum") != 0)
        return node_error(node, NULL, "the reduction '%s' is unknown", loss->reduction);
    ValueId sum = emit_reduce(node, mean && uniform ? OP_ReduceMean : OP_ReduceSum, each, axes, rank - 1, false);
    if (mean && !uniform)
        sum = emit_binary(node, OP_Div, sum, emit_reduce(node, OP_ReduceSum, weights, axes, rank - 1, false));
    return set_output(node, 0, sum);
}

bool normalize_cross_entropy(OnnxNode *node)
{
    LossNode loss;
    if (!read_loss(node, &loss)) return false;
    int rank = loss.score_shape.rank;
    bool mean = strcmp(loss.reduction, "mean") == 0 && !loss.weights;
    ValueId log_likelihood = 0;
    if (!mean || node->output_count > 1) {
        ValueId moved = classes_last(node, loss.scores, rank);
        log_likelihood = classes_second(node, emit_unary(node, OP_LogSoftmax, moved), rank);
        if (!set_output(node, 1, log_likelihood)) return false;
    }
    return mean ? mean_loss(node, &loss, loss.scores) : plain_loss(node, &loss, log_likelihood);
}

/* The mean of log-likelihoods that are a LogSoftmax is the cross-entropy of them: LogSoftmax leaves them as they are.
 */
bool normalize_likelihood(OnnxNode *node)
{
    LossNode loss;
    if (!read_loss(node, &loss)) return false;
    if (strcmp(loss.reduction, "mean") != 0 || loss.weights) return plain_loss(node, &loss, loss.scores);
    NodeId producer = graph_value(node->graph, loss.scores)->producer;
    Opcode op = producer ? graph_node(node->graph, producer)->op : OP_NONE;
    if (op == OP_Transpose || op == OP_Reshape) {
        producer = graph_value(node->graph, graph_node(node->graph, producer)->inputs[0])->producer;
        op = producer ? graph_node(node->graph, producer)->op : OP_NONE;
    }
    return op == OP_LogSoftmax ? mean_loss(node, &loss, loss.scores) : plain_loss(node, &loss, loss.scores);
}
