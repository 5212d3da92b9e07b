#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/loss_internal.h"

enum { IGNORED = -100 }; /* PyTorch's ignore_index */

ValueId loss_append(Graph *graph, Opcode op, const ValueId *inputs, int count, const Attribute *attributes,
                    int attribute_count, Diagnostics *diagnostics)
{
    NodeOrigin origin = {.name = "loss", .phase = PHASE_FORWARD, .layer = LAYER_NONE};
    ValueId output = 0;
    graph_add_node(graph, op, origin, inputs, count, attributes, attribute_count, &output, 1, diagnostics);
    return output;
}

static ValueId append_unary(Graph *graph, Opcode op, ValueId a, Diagnostics *diagnostics)
{
    return loss_append(graph, op, &a, 1, NULL, 0, diagnostics);
}

static ValueId append_binary(Graph *graph, Opcode op, ValueId a, ValueId b, Diagnostics *diagnostics)
{
    return loss_append(graph, op, (ValueId[]){a, b}, 2, NULL, 0, diagnostics);
}

static ValueId append_where(Graph *graph, ValueId condition, ValueId a, Diagnostics *diagnostics)
{
    ValueId zero = graph_constant_scalar(graph, graph_value(graph, a)->dtype, 0);
    return loss_append(graph, OP_Where, (ValueId[]){condition, a, zero}, 3, NULL, 0, diagnostics);
}

static ValueId append_reshape(Graph *graph, ValueId a, const Shape *shape, Diagnostics *diagnostics)
{
    if (shape_equal(&graph_value(graph, a)->shape, shape)) return a;
    Attribute attribute = attribute_integers("shape", shape->dim, shape->rank);
    return loss_append(graph, OP_Reshape, &a, 1, &attribute, 1, diagnostics);
}

static ValueId append_cast(Graph *graph, ValueId a, DType dtype, Diagnostics *diagnostics)
{
    if (graph_value(graph, a)->dtype == dtype) return a;
    Attribute to = attribute_integer("to", dtype);
    return loss_append(graph, OP_Cast, &a, 1, &to, 1, diagnostics);
}

/* The output that the term's name number `position` says; 0 after reporting. */
static ValueId find_named(Graph *graph, const LossTerm *term, int position, Diagnostics *diagnostics)
{
    const char *name = term->names[position];
    ValueId output = name && *name ? loss_find_output(graph, name) : loss_default_output(graph);
    if (!output && name && *name)
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT, "there is no output '%s', which --loss %s names", name,
                           term->text);
    if (!output)
        return loss_refuse(graph, diagnostics, EXIT_USAGE, "--loss %s does not say which output it is about",
                           term->text);
    if (!dtype_is_float(graph_value(graph, output)->dtype))
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT, "--loss %s needs an output of a float type", term->text);
    return output;
}

/* The output that the term is about; 0 after reporting. */
static ValueId find_scores(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    return find_named(graph, term, 0, diagnostics);
}

static ValueId find_labels(const Graph *graph, const char *name)
{
    for (size_t i = 0; i < graph->input_count; i++)
        if (strcmp(graph_value(graph, graph->inputs[i])->name, name) == 0) return graph->inputs[i];
    return 0;
}

static const char *labels_name(const LossTerm *term)
{
    const char *name = term->names[term->output_count];
    return name && *name ? name : "labels";
}

/* The input that the term compares with, added unless the graph has it; it must have the first shape, or the second. */
static ValueId find_or_add_labels(Graph *graph, const LossTerm *term, ValueId scores, DType dtype, const Shape *shape,
                                  const Shape *other, Diagnostics *diagnostics)
{
    const char *name = labels_name(term);
    ValueId labels = find_labels(graph, name);
    if (!labels) return graph_add_input(graph, name, dtype, shape);
    const Value *value = graph_value(graph, labels);
    char found[256], wanted[256], of[256];
    if (!shape_equal(&value->shape, shape) && !shape_equal(&value->shape, other))
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                           "--loss %s compares an output of shape %s with labels of shape %s, but the input '%s' has "
                           "shape %s",
                           term->text, shape_format(&graph_value(graph, scores)->shape, of),
                           shape_format(shape, wanted), name, shape_format(&value->shape, found));
    bool is_index = value->dtype == DTYPE_I32 || value->dtype == DTYPE_I64;
    if (!dtype_is_float(dtype) && !is_index)
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                           "--loss %s compares with numbers of classes, but the input '%s' is %s", term->text, name,
                           dtype_name(value->dtype));
    return labels;
}

/* The number of the way in which the term reads its labels; -1 after reporting. */
static int number_labels(Graph *graph, const LossTerm *term, const Labels *labels, Diagnostics *diagnostics)
{
    int number = graph_label_number(graph, labels);
    if (number < 0)
        loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                    "--loss %s: labels are read in more than %d ways, or '%s' holds classes for one loss and numbers "
                    "for another",
                    term->text, SKY_MOST_LABELS, graph_value(graph, labels->input)->name);
    return number;
}

/* ---- Classes ---- */

static ValueId weights_of(Graph *graph, const LossTerm *term, int64_t classes, Diagnostics *diagnostics)
{
    if (term->weight_count == classes)
        return graph_add_constant(graph, "loss-weights", DTYPE_F32, &(Shape){1, {classes}}, term->weights);
    return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT, "--loss %s has %lld weights for %lld classes", term->text,
                       (long long)term->weight_count, (long long)classes);
}

/* Labels as the scores of each position are compared with: those of the next one, so nothing for the last. */
static ValueId labels_of_next(Graph *graph, ValueId labels, Diagnostics *diagnostics)
{
    const Value *value = graph_value(graph, labels);
    DType dtype = value->dtype;
    Shape rest = value->shape, end = value->shape;
    int64_t starts[MAX_RANK] = {0, 1}, steps[MAX_RANK];
    for (int i = 0; i < MAX_RANK; i++) steps[i] = 1;
    rest.dim[1]--, end.dim[1] = 1;
    Attribute slice[] = {attribute_integers("starts", starts, rest.rank), attribute_integers("steps", steps, rest.rank),
                         attribute_integers("shape", rest.dim, rest.rank)};
    Attribute expand = attribute_integers("shape", end.dim, end.rank), axis = attribute_integer("axis", 1);
    ValueId ignored = graph_constant_scalar(graph, dtype, IGNORED);
    ValueId parts[] = {loss_append(graph, OP_Slice, &labels, 1, slice, 3, diagnostics),
                       loss_append(graph, OP_Expand, &ignored, 1, &expand, 1, diagnostics)};
    return loss_append(graph, OP_Concat, parts, 2, &axis, 1, diagnostics);
}

static ValueId append_cross_entropy(Graph *graph, const LossTerm *term, ValueId logits, ValueId labels, int number,
                                    Diagnostics *diagnostics)
{
    Shape shape = graph_value(graph, logits)->shape;
    int64_t classes = shape.dim[shape.rank - 1], rows = shape_elements(&shape) / classes;
    ValueId weights = graph->labels[number].weights;
    logits = append_reshape(graph, logits, &(Shape){2, {rows, classes}}, diagnostics);
    labels = append_reshape(graph, labels, &(Shape){1, {rows}}, diagnostics);
    ValueId inputs[] = {logits, labels, graph_step_scalars(graph), weights};
    Attribute attributes[] = {attribute_integer("ignore_index", IGNORED), attribute_integer("labels", number),
                              attribute_float("smoothing", term->smoothing)};
    if (!weights && term->smoothing == 0)
        return loss_append(graph, OP_CrossEntropy, inputs, 3, attributes, 2, diagnostics);
    if (!weights) inputs[3] = graph_constant_scalar(graph, DTYPE_F32, 1);
    return loss_append(graph, OP_WeightedCrossEntropy, inputs, 4, attributes, 3, diagnostics);
}

ValueId loss_cross_entropy(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    ValueId logits = find_scores(graph, term, diagnostics);
    if (!logits) return 0;
    Shape shape = graph_value(graph, logits)->shape, label_shape = shape;
    label_shape.rank--;
    char text[256];
    if (shape.rank < 2 || shape_elements(&shape) == 0)
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                           "--loss %s needs an output of shape [..., classes], not %s", term->text,
                           shape_format(&shape, text));
    if (term->shift && (shape.rank < 3 || shape.dim[1] < 2))
        return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                           "--loss %s needs an output of shape [batch, positions, classes], not %s", term->text,
                           shape_format(&shape, text));
    Labels labels = {.kind = SKY_LABELS_CLASSES, .ignore_index = IGNORED, .shifted = term->shift};
    labels.input = find_or_add_labels(graph, term, logits, DTYPE_I64, &label_shape, &label_shape, diagnostics);
    if (!labels.input) return 0;
    if (term->weights && !(labels.weights = weights_of(graph, term, shape.dim[shape.rank - 1], diagnostics))) return 0;
    int number = number_labels(graph, term, &labels, diagnostics);
    if (number < 0) return 0;
    ValueId compared = term->shift ? labels_of_next(graph, labels.input, diagnostics) : labels.input;
    return append_cross_entropy(graph, term, logits, compared, number, diagnostics);
}

/* ---- Numbers ---- */

/* What losses of numbers need: scores and labels, both of one shape and type, and which elements count. */
typedef struct Comparison {
    ValueId scores, labels, valid; /* bool; */
    int number;                    /* of the labels */
} Comparison;

/* Whether labels can say that they do not count: with NaN among numbers, and with -100 among probabilities. */
static bool can_be_ignored(const Graph *graph, const Labels *labels)
{
    DType dtype = graph_value(graph, labels->input)->dtype;
    bool is_index = dtype == DTYPE_I32 || dtype == DTYPE_I64;
    return dtype_is_float(dtype) || (is_index && labels->kind == SKY_LABELS_PROBABILITIES);
}

/* Labels have the shape of the scores, or that without a last dimension of 1. */
static bool compare(Graph *graph, const LossTerm *term, ValueId scores, SkyLabelKind kind, Comparison *comparison,
                    Diagnostics *diagnostics)
{
    if (!scores) return false;
    const Shape shape = graph_value(graph, scores)->shape;
    const DType dtype = graph_value(graph, scores)->dtype;
    Shape squeezed = shape;
    if (shape.rank > 1 && shape.dim[shape.rank - 1] == 1) squeezed.rank--;
    Labels labels = {.kind = kind, .ignore_index = kind == SKY_LABELS_PROBABILITIES ? IGNORED : 0};
    labels.input = find_or_add_labels(graph, term, scores, DTYPE_F32, &squeezed, &shape, diagnostics);
    if (!labels.input) return false;
    if (!can_be_ignored(graph, &labels)) graph->whole_batches = true;
    comparison->number = number_labels(graph, term, &labels, diagnostics);
    if (comparison->number < 0) return false;
    const Shape label_shape = graph_value(graph, labels.input)->shape;
    ValueId read = append_cast(graph, labels.input, dtype, diagnostics);
    ValueId valid = append_unary(graph, OP_Not, append_unary(graph, OP_IsNaN, read, diagnostics), diagnostics);
    if (kind == SKY_LABELS_PROBABILITIES) {
        ValueId ignored = graph_constant_scalar(graph, dtype, IGNORED);
        ValueId counts =
            append_unary(graph, OP_Not, append_binary(graph, OP_Equal, read, ignored, diagnostics), diagnostics);
        valid = append_binary(graph, OP_And, valid, counts, diagnostics);
    }
    comparison->scores = append_reshape(graph, scores, &label_shape, diagnostics);
    comparison->labels = append_where(graph, valid, read, diagnostics);
    comparison->valid = valid;
    return true;
}

/* The sum of the errors that count, over what all labels of the batch weigh. */
static ValueId mean_error(Graph *graph, const Comparison *comparison, ValueId errors, Diagnostics *diagnostics)
{
    Attribute whole = attribute_integer("keepdims", 0), labels = attribute_integer("labels", comparison->number);
    ValueId sum = loss_append(graph, OP_ReduceSum, &errors, 1, &whole, 1, diagnostics);
    return loss_append(graph, OP_ScaleLoss, (ValueId[]){sum, graph_step_scalars(graph)}, 2, &labels, 1, diagnostics);
}

static ValueId squared_error(Graph *graph, const LossTerm *term, ValueId scores, Diagnostics *diagnostics)
{
    Comparison comparison;
    if (!compare(graph, term, scores, SKY_LABELS_NUMBERS, &comparison, diagnostics)) return 0;
    ValueId difference = append_binary(graph, OP_Sub, comparison.scores, comparison.labels, diagnostics);
    ValueId counted = append_where(graph, comparison.valid, difference, diagnostics);
    return mean_error(graph, &comparison, append_binary(graph, OP_Mul, counted, counted, diagnostics), diagnostics);
}

ValueId loss_squared_error(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    return squared_error(graph, term, find_scores(graph, term, diagnostics), diagnostics);
}

ValueId loss_binary_cross_entropy(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    Comparison comparison;
    ValueId scores = find_scores(graph, term, diagnostics);
    if (!compare(graph, term, scores, SKY_LABELS_PROBABILITIES, &comparison, diagnostics)) return 0;
    ValueId errors = append_binary(graph, OP_BinaryCrossEntropy, comparison.scores, comparison.labels, diagnostics);
    return mean_error(graph, &comparison, append_where(graph, comparison.valid, errors, diagnostics), diagnostics);
}

/* ---- Embeddings ---- */

/* The two outputs that the term names, [rows, elements] each, their rows of length 1. */
static bool find_directions(Graph *graph, const LossTerm *term, ValueId directions[2], Diagnostics *diagnostics)
{
    Attribute along[] = {attribute_integers("axes", (int64_t[]){1}, 1), attribute_integer("keepdims", 1)};
    for (int i = 0; i < 2; i++) {
        ValueId a = find_named(graph, term, i, diagnostics);
        if (!a) return false;
        const Value *value = graph_value(graph, a);
        if (value->shape.rank != 2 || (i && !shape_equal(&value->shape, &graph_value(graph, directions[0])->shape)))
            return loss_refuse(graph, diagnostics, EXIT_BAD_INPUT,
                               "--loss %s needs two outputs of one shape [rows, elements]", term->text);
        const DType dtype = value->dtype;
        ValueId least = graph_constant_scalar(graph, DTYPE_F64, 1e-12); /* PyTorch's, for rows of zeros */
        a = append_cast(graph, a, DTYPE_F64, diagnostics);              /* the square of a large float32 is none */
        ValueId squares = append_binary(graph, OP_Mul, a, a, diagnostics);
        ValueId length = append_unary(
            graph, OP_Sqrt, loss_append(graph, OP_ReduceSum, &squares, 1, along, 2, diagnostics), diagnostics);
        directions[i] =
            append_binary(graph, OP_Div, a, append_binary(graph, OP_Max, length, least, diagnostics), diagnostics);
        directions[i] = append_cast(graph, directions[i], dtype, diagnostics);
    }
    return true;
}

ValueId loss_cosine(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    ValueId directions[2];
    Attribute along[] = {attribute_integers("axes", (int64_t[]){1}, 1), attribute_integer("keepdims", 0)};
    if (!find_directions(graph, term, directions, diagnostics)) return 0;
    ValueId products = append_binary(graph, OP_Mul, directions[0], directions[1], diagnostics);
    ValueId cosines = loss_append(graph, OP_ReduceSum, &products, 1, along, 2, diagnostics);
    return squared_error(graph, term, cosines, diagnostics);
}

/* bool [rows]: which rows there are. The last batch of an epoch may have fewer than others. */
static ValueId rows_there(Graph *graph, int64_t rows, Diagnostics *diagnostics)
{
    Attribute element = attribute_integer("element", SKY_STEP_ROWS);
    ValueId inputs[] = {graph_constant_scalar(graph, DTYPE_F32, 1), graph_step_scalars(graph)};
    ValueId count = loss_append(graph, OP_ScaleLoss, inputs, 2, &element, 1, diagnostics);
    ValueId numbers = graph_add_constant(graph, "loss-rows", DTYPE_F32, &(Shape){1, {rows}}, NULL);
    for (int64_t i = 0; i < rows; i++) ((float *)graph_value(graph, numbers)->data)[i] = (float)i;
    return append_binary(graph, OP_Less, numbers, count, diagnostics);
}

/* Minus the sum of the logarithms of softmax that count: those of each row's own partner. */
static ValueId sum_of_partners(Graph *graph, ValueId logarithms, ValueId there, Diagnostics *diagnostics)
{
    const Shape shape = graph_value(graph, logarithms)->shape;
    int64_t rows = shape.dim[0];
    Attribute whole = attribute_integer("keepdims", 0);
    ValueId weights = graph_add_constant(graph, "loss-partners", DTYPE_F32, &shape, NULL);
    for (int64_t i = 0; i < rows; i++) ((float *)graph_value(graph, weights)->data)[i * rows + i] = -1;
    ValueId counted = append_binary(graph, OP_Mul, logarithms, weights, diagnostics);
    counted =
        append_where(graph, append_reshape(graph, there, &(Shape){2, {rows, 1}}, diagnostics), counted, diagnostics);
    return loss_append(graph, OP_ReduceSum, &counted, 1, &whole, 1, diagnostics);
}

ValueId loss_contrastive(Graph *graph, const LossTerm *term, Diagnostics *diagnostics)
{
    ValueId directions[2];
    Attribute swapped = attribute_integers("perm", (int64_t[]){1, 0}, 2), last = attribute_integer("axis", 1);
    if (!find_directions(graph, term, directions, diagnostics)) return 0;
    DType dtype = graph_value(graph, directions[0])->dtype;
    ValueId columns = loss_append(graph, OP_Transpose, &directions[1], 1, &swapped, 1, diagnostics);
    ValueId cosines = append_binary(graph, OP_MatMul, directions[0], columns, diagnostics);
    ValueId sharpness = graph_constant_scalar(graph, dtype, 1 / term->temperature);
    ValueId scores = append_binary(graph, OP_Mul, cosines, sharpness, diagnostics);
    ValueId there = rows_there(graph, graph_value(graph, scores)->shape.dim[0], diagnostics);
    ValueId compared[] = {there, scores, graph_constant_scalar(graph, dtype, -1e30)};
    scores = loss_append(graph, OP_Where, compared, 3, NULL, 0, diagnostics);
    ValueId logarithms = loss_append(graph, OP_LogSoftmax, &scores, 1, &last, 1, diagnostics);
    ValueId loss = sum_of_partners(graph, append_cast(graph, logarithms, DTYPE_F32, diagnostics), there, diagnostics);
    Attribute share = attribute_integer("element", SKY_STEP_ROW_SHARE);
    graph->loss_is_summed = false;
    return loss_append(graph, OP_ScaleLoss, (ValueId[]){loss, graph_step_scalars(graph)}, 2, &share, 1, diagnostics);
}
