#include <string.h>

#include "frontend/onnx/normalize.h"

typedef struct LossNode {
    ValueId scores, labels; /* as in the node: [N, C, d1 ...] and [N, d1 ...] */
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
    loss->ignore_index = integer_attribute(node, "ignore_index", -100);
    loss->reduction = string_attribute(node, "reduction", "mean");
    int rank = loss->score_shape.rank;
    bool fits = rank >= 2 && loss->label_shape.rank == rank - 1;
    for (int i = 0; fits && i < rank - 1; i++) fits = loss->label_shape.dim[i] == loss->score_shape.dim[i ? i + 1 : 0];
    char scores[256], labels[256];
    if (!fits)
        return node_error(node, NULL, "has scores of shape %s for labels of shape %s",
                          shape_format(&loss->score_shape, scores), shape_format(&loss->label_shape, labels));
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
static ValueId find_label_input(const Graph *graph, ValueId value)
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

/* The mean over the valid labels of an input, which is what training is compiled for: CrossEntropy sums over
 * the micro-batch and scales by a number that the runtime sets before the step, 1 / valid labels of the whole batch. */
static bool mean_loss(OnnxNode *node, const LossNode *loss, ValueId scores, ValueId label_input)
{
    int rank = loss->score_shape.rank;
    int64_t classes = loss->score_shape.dim[1], rows = shape_elements(&loss->label_shape);
    ValueId inputs[3] = {emit_reshape(node, classes_last(node, scores, rank), &(Shape){2, {rows, classes}}),
                         emit_reshape(node, loss->labels, &(Shape){1, {rows}}), graph_step_scalars(node->graph)};
    if (!inputs[0] || !inputs[1]) return false;
    Graph *graph = node->graph;
    int number = graph_label_number(graph, &(Labels){.input = label_input, .ignore_index = loss->ignore_index});
    if (number < 0)
        return node_unsupported(node, NULL, "there are more than %d label inputs, or one has two ignore indices",
                                SKY_MOST_LABELS);
    Attribute attributes[] = {attribute_integer("ignore_index", loss->ignore_index),
                              attribute_integer("labels", number)};
    ValueId results[2];
    if (!emit_outputs(node, OP_CrossEntropy, inputs, 3, attributes, 2, results, 2)) return false;
    if (!graph->loss) {
        graph->loss = results[0];
        graph->loss_is_summed = true;
    }
    return set_output(node, 0, results[0]);
}

/* Which elements of [N, d1 ..., C] belong to the labels, ignored ones excepted. */
static ValueId label_hits(OnnxNode *node, const LossNode *loss)
{
    Shape column = loss->label_shape;
    column.dim[column.rank++] = 1;
    ValueId range = emit_counting(node, 0, &(Shape){1, {loss->score_shape.dim[1]}});
    if (!range) return 0;
    ValueId labels = emit_reshape(node, emit_cast(node, loss->labels, DTYPE_I64), &column);
    ValueId hit = emit_binary(node, OP_Equal, labels, range);
    if (!hit || !loss->ignores) return hit;
    ValueId ignored = graph_add_constant(node->graph, NULL, DTYPE_I64, &(Shape){0}, &loss->ignore_index);
    return emit_binary(node, OP_And, hit, emit_unary(node, OP_Not, emit_binary(node, OP_Equal, labels, ignored)));
}

/* The loss in elementary operators: of each label -w log p, with a weight per class (1 without); then none, the sum, or
 * the sum over the sum of the weights. */
static bool plain_loss(OnnxNode *node, const LossNode *loss, ValueId log_likelihood)
{
    int rank = loss->score_shape.rank;
    DType type = dtype_of(node, loss->scores);
    int64_t last = rank - 1, axes[MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    bool mean = strcmp(loss->reduction, "mean") == 0;
    ValueId weights = has_input(node, 2) ? node->inputs[2] : emit_scalar(node, type, 1),
            zero = emit_scalar(node, type, 0);
    Shape weight_shape = shape_of(node, weights);
    if (has_input(node, 2) && (weight_shape.rank != 1 || weight_shape.dim[0] != loss->score_shape.dim[1]))
        return node_error(node, NULL, "needs a weight for each class");
    ValueId hit = label_hits(node, loss);
    ValueId chosen = emit_where(node, hit, classes_last(node, log_likelihood, rank), zero);
    ValueId weight = emit_reduce(node, OP_ReduceSum, emit_where(node, hit, weights, zero), &last, 1, false);
    ValueId each = emit_unary(node, OP_Neg, emit_reduce(node, OP_ReduceSum, chosen, &last, 1, false));
    if (has_input(node, 2)) each = emit_binary(node, OP_Mul, each, weight);
    if (strcmp(loss->reduction, "none") == 0) return set_output(node, 0, each);
    if (!mean && strcmp(loss->reduction, "sum") != 0)
        return node_error(node, NULL, "the reduction '%s' is unknown", loss->reduction);
    ValueId sum = emit_reduce(node, OP_ReduceSum, each, axes, rank - 1, false);
    if (mean) sum = emit_binary(node, OP_Div, sum, emit_reduce(node, OP_ReduceSum, weight, axes, rank - 1, false));
    return set_output(node, 0, sum);
}

bool normalize_cross_entropy(OnnxNode *node)
{
    LossNode loss;
    if (!read_loss(node, &loss)) return false;
    int rank = loss.score_shape.rank;
    ValueId labels = find_label_input(node->graph, loss.labels);
    bool mean = labels && strcmp(loss.reduction, "mean") == 0 && !has_input(node, 2);
    ValueId log_likelihood = 0;
    if (!mean || node->output_count > 1) {
        ValueId moved = classes_last(node, loss.scores, rank);
        log_likelihood = classes_second(node, emit_unary(node, OP_LogSoftmax, moved), rank);
        if (!set_output(node, 1, log_likelihood)) return false;
    }
    return mean ? mean_loss(node, &loss, loss.scores, labels) : plain_loss(node, &loss, log_likelihood);
}

/* Where the log-likelihoods come from a LogSoftmax, their mean is the cross-entropy of themselves: a second LogSoftmax,
 * as CrossEntropy has it, changes nothing. So that node does for both forms of the loss. */
bool normalize_likelihood(OnnxNode *node)
{
    LossNode loss;
    if (!read_loss(node, &loss)) return false;
    const Node *producer = graph_producer(node->graph, loss.scores);
    if (producer->op == OP_Transpose || producer->op == OP_Reshape)
        producer = graph_producer(node->graph, producer->inputs[0]);
    ValueId labels = find_label_input(node->graph, loss.labels);
    bool simple = labels && producer->op == OP_LogSoftmax && strcmp(loss.reduction, "mean") == 0 && !has_input(node, 2);
    return simple ? mean_loss(node, &loss, loss.scores, labels) : plain_loss(node, &loss, loss.scores);
}
