#include <string.h>

#include "graph/ops/add_node.h"
#include "graph/ops/operator.h"
#include "graph/passes/loss_internal.h"

enum { IGNORED = -100 }; /* PyTorch's ignore_index */

/* `x` where the condition holds, else 0. */
static ValueId counted_where(const Builder *b, ValueId condition, ValueId x)
{
    return build_where(b, condition, x, graph_constant_scalar(b->graph, graph_value(b->graph, x)->dtype, 0));
}

/* The output that the term's name number `position` says; 0 after reporting. */
static ValueId find_named(const Builder *b, const LossTerm *term, int position)
{
    const char *name = term->names[position];
    ValueId output = name && *name ? loss_find_output(b->graph, name) : loss_default_output(b->graph);
    if (!output && name && *name)
        return loss_refuse(b, EXIT_BAD_INPUT, "there is no output '%s', which --loss %s names", name, term->text);
    if (!output) return loss_refuse(b, EXIT_USAGE, "--loss %s does not say which output it is about", term->text);
    if (!dtype_is_float(graph_value(b->graph, output)->dtype))
        return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s needs an output of a float type", term->text);
    return output;
}

/* The output that the term is about; 0 after reporting. */
static ValueId find_scores(const Builder *b, const LossTerm *term) { return find_named(b, term, 0); }

static ValueId find_labels(const Builder *b, const char *name)
{
    for (size_t i = 0; i < b->graph->input_count; i++)
        if (strcmp(graph_value(b->graph, b->graph->inputs[i])->name, name) == 0) return b->graph->inputs[i];
    return 0;
}

static const char *labels_name(const LossTerm *term)
{
    const char *name = term->names[term->output_count];
    return name && *name ? name : "labels";
}

/* The input that the term compares with, added unless the graph has it; it must have the first shape, or the second. */
static ValueId find_or_add_labels(const Builder *b, const LossTerm *term, ValueId scores, DType dtype,
                                  const Shape *shape, const Shape *other)
{
    const char *name = labels_name(term);
    ValueId labels = find_labels(b, name);
    if (!labels) return graph_add_input(b->graph, name, dtype, shape);
    const Value *value = graph_value(b->graph, labels);
    char found[256], wanted[256], of[256];
    if (!shape_equal(&value->shape, shape) && !shape_equal(&value->shape, other))
        return loss_refuse(b, EXIT_BAD_INPUT,
                           "--loss %s compares an output of shape %s with labels of shape %s, but the input '%s' has "
                           "shape %s",
                           term->text, shape_format(&graph_value(b->graph, scores)->shape, of),
                           shape_format(shape, wanted), name, shape_format(&value->shape, found));
    bool is_index = value->dtype == DTYPE_I32 || value->dtype == DTYPE_I64;
    if (!dtype_is_float(dtype) && !is_index)
        return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s compares with numbers of classes, but the input '%s' is %s",
                           term->text, name, dtype_name(value->dtype));
    return labels;
}

/* The number of the way in which the term reads its labels; -1 after reporting. */
static int number_labels(const Builder *b, const LossTerm *term, const Labels *labels)
{
    int number = graph_label_number(b->graph, labels);
    if (number < 0)
        loss_refuse(b, EXIT_BAD_INPUT,
                    "--loss %s: labels are read in more than %d ways, or '%s' holds classes for one loss and numbers "
                    "for another",
                    term->text, SKY_MOST_LABELS, graph_value(b->graph, labels->input)->name);
    return number;
}

/* ---- Classes ---- */

static ValueId weights_of(const Builder *b, const LossTerm *term, int64_t classes)
{
    if (term->weight_count == classes)
        return graph_add_constant(b->graph, "loss-weights", DTYPE_F32, &(Shape){1, {classes}}, term->weights);
    return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s has %lld weights for %lld classes", term->text,
                       (long long)term->weight_count, (long long)classes);
}

/* Labels as the scores of each position are compared with: those of the next one, so nothing for the last. */
static ValueId labels_of_next(const Builder *b, ValueId labels)
{
    const Value *value = graph_value(b->graph, labels);
    Shape end = value->shape;
    ValueId ignored = graph_constant_scalar(b->graph, value->dtype, IGNORED);
    end.dim[1] = 1;
    ValueId rest = build_part(b, labels, 1, 1, graph_value(b->graph, labels)->shape.dim[1] - 1);
    return build_along(b, OP_Concat, (ValueId[]){rest, build_expand(b, ignored, &end)}, 2, "axis", 1);
}

static ValueId append_cross_entropy(const Builder *b, const LossTerm *term, ValueId logits, ValueId labels, int number)
{
    Shape shape = graph_value(b->graph, logits)->shape;
    int64_t classes = shape.dim[shape.rank - 1], rows = shape_elements(&shape) / classes;
    ValueId weights = b->graph->labels[number].weights;
    logits = build_reshape(b, logits, &(Shape){2, {rows, classes}});
    labels = build_reshape(b, labels, &(Shape){1, {rows}});
    ValueId inputs[] = {logits, labels, graph_step_scalars(b->graph), weights};
    Attribute attributes[] = {attribute_integer("ignore_index", IGNORED), attribute_integer("labels", number),
                              attribute_float("smoothing", term->smoothing)};
    if (!weights && term->smoothing == 0) return build_node(b, OP_CrossEntropy, inputs, 3, attributes, 2);
    if (!weights) inputs[3] = graph_constant_scalar(b->graph, DTYPE_F32, 1);
    return build_node(b, OP_WeightedCrossEntropy, inputs, 4, attributes, 3);
}

/* What exporters call an output that stands for a text or a token: its elements are no classes. */
static const char *embedding_name(const Graph *graph, ValueId output)
{
    static const char *const parts[] = {"embed", "hidden", "pool"};
    for (size_t i = 0; i < graph->output_count; i++)
        for (size_t k = 0; graph->outputs[i].value == output && k < sizeof parts / sizeof *parts; k++)
            if (strstr(graph->outputs[i].name, parts[k])) return graph->outputs[i].name;
    return NULL;
}

ValueId loss_cross_entropy(const Builder *b, const LossTerm *term)
{
    ValueId logits = find_scores(b, term);
    if (!logits) return 0;
    const char *embedding = term->names[0] ? NULL : embedding_name(b->graph, logits);
    if (embedding)
        return loss_refuse(b, EXIT_USAGE, "no loss is given for the output '%s', whose elements are no classes",
                           embedding);
    Shape shape = graph_value(b->graph, logits)->shape, label_shape = shape;
    label_shape.rank--;
    char text[256];
    if (shape.rank < 2 || shape_elements(&shape) == 0)
        return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s needs an output of shape [..., classes], not %s", term->text,
                           shape_format(&shape, text));
    if (term->shift && (shape.rank < 3 || shape.dim[1] < 2))
        return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s needs an output of shape [batch, positions, classes], not %s",
                           term->text, shape_format(&shape, text));
    Labels labels = {.kind = SKY_LABELS_CLASSES, .ignore_index = IGNORED, .shifted = term->shift};
    labels.input = find_or_add_labels(b, term, logits, DTYPE_I64, &label_shape, &label_shape);
    if (!labels.input) return 0;
    if (term->weights && !(labels.weights = weights_of(b, term, shape.dim[shape.rank - 1]))) return 0;
    int number = number_labels(b, term, &labels);
    if (number < 0) return 0;
    ValueId compared = term->shift ? labels_of_next(b, labels.input) : labels.input;
    return append_cross_entropy(b, term, logits, compared, number);
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
static bool compare(const Builder *b, const LossTerm *term, ValueId scores, SkyLabelKind kind, Comparison *comparison)
{
    if (!scores) return false;
    const Shape shape = graph_value(b->graph, scores)->shape;
    const DType dtype = graph_value(b->graph, scores)->dtype;
    Shape squeezed = shape;
    if (shape.rank > 1 && shape.dim[shape.rank - 1] == 1) squeezed.rank--;
    Labels labels = {.kind = kind, .ignore_index = kind == SKY_LABELS_PROBABILITIES ? IGNORED : 0};
    labels.input = find_or_add_labels(b, term, scores, DTYPE_F32, &squeezed, &shape);
    if (!labels.input) return false;
    if (!can_be_ignored(b->graph, &labels)) b->graph->whole_batches = true;
    comparison->number = number_labels(b, term, &labels);
    if (comparison->number < 0) return false;
    const Shape label_shape = graph_value(b->graph, labels.input)->shape;
    ValueId read = build_cast(b, labels.input, dtype);
    ValueId valid = build_unary(b, OP_Not, build_unary(b, OP_IsNaN, read));
    if (kind == SKY_LABELS_PROBABILITIES) {
        ValueId ignored = graph_constant_scalar(b->graph, dtype, IGNORED);
        ValueId counts = build_unary(b, OP_Not, build_binary(b, OP_Equal, read, ignored));
        valid = build_binary(b, OP_And, valid, counts);
    }
    comparison->scores = build_reshape(b, scores, &label_shape);
    comparison->labels = counted_where(b, valid, read);
    comparison->valid = valid;
    return true;
}

/* The sum of the errors that count, over what all labels of the batch weigh. */
static ValueId mean_error(const Builder *b, const Comparison *comparison, ValueId errors)
{
    ValueId sum = build_along(b, OP_ReduceSum, &errors, 1, "keepdims", 0);
    return build_along(b, OP_ScaleLoss, (ValueId[]){sum, graph_step_scalars(b->graph)}, 2, "labels",
                       comparison->number);
}

static ValueId squared_error(const Builder *b, const LossTerm *term, ValueId scores)
{
    Comparison comparison;
    if (!compare(b, term, scores, SKY_LABELS_NUMBERS, &comparison)) return 0;
    ValueId difference = build_binary(b, OP_Sub, comparison.scores, comparison.labels);
    ValueId counted = counted_where(b, comparison.valid, difference);
    return mean_error(b, &comparison, build_binary(b, OP_Mul, counted, counted));
}

ValueId loss_squared_error(const Builder *b, const LossTerm *term)
{
    return squared_error(b, term, find_scores(b, term));
}

ValueId loss_binary_cross_entropy(const Builder *b, const LossTerm *term)
{
    Comparison comparison;
    ValueId scores = find_scores(b, term);
    if (!compare(b, term, scores, SKY_LABELS_PROBABILITIES, &comparison)) return 0;
    ValueId errors = build_binary(b, OP_BinaryCrossEntropy, comparison.scores, comparison.labels);
    return mean_error(b, &comparison, counted_where(b, comparison.valid, errors));
}

/* ---- Embeddings ---- */

/* The two outputs that the term names, [rows, elements] each, their rows of length 1. Float64: a cosine's rounding is
 * multiplied by the sharpness, and the square of a large float32 is none. */
static bool find_directions(const Builder *b, const LossTerm *term, ValueId directions[2])
{
    Attribute along[] = {attribute_integers("axes", (int64_t[]){1}, 1), attribute_integer("keepdims", 1)};
    for (int i = 0; i < 2; i++) {
        ValueId a = find_named(b, term, i);
        if (!a) return false;
        const Value *value = graph_value(b->graph, a);
        if (value->shape.rank != 2 || (i && !shape_equal(&value->shape, &graph_value(b->graph, directions[0])->shape)))
            return loss_refuse(b, EXIT_BAD_INPUT, "--loss %s needs two outputs of one shape [rows, elements]",
                               term->text);
        ValueId least = graph_constant_scalar(b->graph, DTYPE_F64, 1e-12); /* PyTorch's, for rows of zeros */
        a = build_cast(b, a, DTYPE_F64);
        ValueId squares = build_binary(b, OP_Mul, a, a);
        ValueId length = build_unary(b, OP_Sqrt, build_node(b, OP_ReduceSum, &squares, 1, along, 2));
        directions[i] = build_binary(b, OP_Div, a, build_binary(b, OP_Max, length, least));
    }
    return true;
}

ValueId loss_cosine(const Builder *b, const LossTerm *term)
{
    ValueId directions[2];
    Attribute along[] = {attribute_integers("axes", (int64_t[]){1}, 1), attribute_integer("keepdims", 0)};
    if (!find_directions(b, term, directions)) return 0;
    ValueId products = build_binary(b, OP_Mul, directions[0], directions[1]);
    ValueId cosines = build_node(b, OP_ReduceSum, &products, 1, along, 2);
    return squared_error(b, term, build_cast(b, cosines, DTYPE_F32));
}

/* bool [rows]: which rows there are. The last batch of an epoch may have fewer than others. */
static ValueId rows_there(const Builder *b, int64_t rows)
{
    ValueId one = graph_constant_scalar(b->graph, DTYPE_F32, 1);
    ValueId inputs[] = {one, graph_step_scalars(b->graph)};
    ValueId count = build_along(b, OP_ScaleLoss, inputs, 2, "element", SKY_STEP_ROWS);
    ValueId numbers = graph_add_constant(b->graph, "loss-rows", DTYPE_F32, &(Shape){1, {rows}}, NULL);
    for (int64_t i = 0; i < rows; i++) ((float *)graph_value(b->graph, numbers)->data)[i] = (float)i;
    return build_binary(b, OP_Less, numbers, count);
}

/* Minus the sum of the logarithms of softmax that count: those of each row's own partner. */
static ValueId sum_of_partners(const Builder *b, ValueId logarithms, ValueId there)
{
    const Shape shape = graph_value(b->graph, logarithms)->shape;
    int64_t rows = shape.dim[0];
    ValueId weights = graph_add_constant(b->graph, "loss-partners", DTYPE_F32, &shape, NULL);
    for (int64_t i = 0; i < rows; i++) ((float *)graph_value(b->graph, weights)->data)[i * rows + i] = -1;
    ValueId counted = build_binary(b, OP_Mul, logarithms, weights);
    counted = counted_where(b, build_reshape(b, there, &(Shape){2, {rows, 1}}), counted);
    return build_along(b, OP_ReduceSum, &counted, 1, "keepdims", 0);
}

ValueId loss_contrastive(const Builder *b, const LossTerm *term)
{
    ValueId directions[2];
    if (!find_directions(b, term, directions)) return 0;
    if (graph_value(b->graph, directions[0])->shape.dim[0] < 2) {
        diagnostics_error(b->diagnostics, EXIT_USAGE, PLACE_FILE(b->graph->file),
                          "bind the batch to at least 2 rows, with --dim or finetune's --batch",
                          "--loss %s needs other rows in a batch, from which each row is told", term->text);
        return 0;
    }
    ValueId columns = build_transpose(b, directions[1], (int64_t[]){1, 0});
    ValueId cosines = build_binary(b, OP_MatMul, directions[0], columns);
    ValueId sharpness = graph_constant_scalar(b->graph, DTYPE_F64, 1 / term->temperature);
    ValueId scores = build_binary(b, OP_Mul, cosines, sharpness);
    ValueId there = rows_there(b, graph_value(b->graph, scores)->shape.dim[0]);
    scores = build_where(b, there, scores, graph_constant_scalar(b->graph, DTYPE_F64, -1e30));
    ValueId logarithms = build_along(b, OP_LogSoftmax, &scores, 1, "axis", 1);
    ValueId loss = sum_of_partners(b, build_cast(b, logarithms, DTYPE_F32), there);
    b->graph->loss_is_summed = false;
    ValueId inputs[] = {loss, graph_step_scalars(b->graph)};
    return build_along(b, OP_ScaleLoss, inputs, 2, "element", SKY_STEP_ROW_SHARE);
}
