/* Cross-entropy of hidden x W, in slices of the classes, so that the logits never are in memory as a whole. Forward
 * goes through the slices once, as attention that sees keys and values in blocks does (Milakov and Gimelshein 2018, Dao
 * et al. 2022): of every row it keeps the largest logit m so far, the sum of exp(x - m), and `pull`, the sum of
 * exp(x - m) times what the table has of the class, both brought to a new m where there is one. From that follows the
 * gradient of what is hidden: pull / sum minus the table's row of the label. (`pull` leaves the label out, whose part
 * is (p - 1) times its row: nothing cancels.) The gradient of the table needs every slice again.
 *
 * `table` holds W: [classes, hidden], or [hidden, classes] with the attribute `columns`. Both operators overwrite one
 * slice of logits, their last output. */
#include "graph/ops/add_node.h"
#include "graph/ops/cross_entropy.h"

/* What is known of a row, in columns: LogSum of cross_entropy.h first. */
enum { SEEN_MAXIMUM, SEEN_LOGARITHM, SEEN_SUM, SEEN_LABEL, SEEN_FACTOR, SEEN_COUNT };

static int class_axis(const Node *node) { return node_integer(node, "columns", 0) != 0; }

int64_t cross_entropy_classes(const Graph *graph, const Node *node)
{
    if (node->op == OP_SlicedCrossEntropy) return graph_value(graph, node->inputs[1])->shape.dim[class_axis(node)];
    bool whole = node->op == OP_CrossEntropy || node->op == OP_WeightedCrossEntropy;
    return whole ? graph_value(graph, node->inputs[0])->shape.dim[1] : 0;
}

/* ---- Types ---- */

/* Inputs 0 ... 2, and the shape of a slice of logits. */
static bool infer_slices(InferContext *context, Shape *slice)
{
    const Node *node = context->node;
    const Value *hidden = infer_input(context, 0), *table = infer_input(context, 1), *labels = infer_input(context, 2);
    if (!infer_float_inputs(context, 2)) return false;
    if (labels->dtype != DTYPE_I32 && labels->dtype != DTYPE_I64)
        return operator_error(context, NULL, "labels of type %s", dtype_name(labels->dtype));
    if (hidden->shape.rank != 2 || table->shape.rank != 2 || labels->shape.rank != 1 ||
        labels->shape.dim[0] != hidden->shape.dim[0] || table->shape.dim[!class_axis(node)] != hidden->shape.dim[1])
        return operator_error(context, NULL, "there must be hidden [rows, size], a table of classes and labels [rows]");
    int64_t classes = table->shape.dim[class_axis(node)], columns = node_integer(node, "slice", 0);
    if (columns < 1 || columns > classes)
        return operator_error(context, NULL, "there are no slices of %lld of %lld classes", (long long)columns,
                              (long long)classes);
    *slice = (Shape){2, {hidden->shape.dim[0], columns}};
    return true;
}

bool infer_sliced_cross_entropy(InferContext *context)
{
    Shape slice;
    if (!infer_slices(context, &slice) || !infer_scalars(context, 3)) return false;
    for (int i = 0; i < 4; i++) context->dtype[i] = infer_input(context, 0)->dtype;
    context->shape[0] = (Shape){0};
    context->shape[1] = (Shape){2, {slice.dim[0], SEEN_COUNT}};
    context->shape[2] = infer_input(context, 0)->shape;
    context->shape[3] = slice;
    return true;
}

bool infer_sliced_cross_entropy_gradient(InferContext *context)
{
    Shape slice;
    if (!infer_slices(context, &slice) || !infer_scalars(context, 5)) return false;
    const Shape seen = {2, {slice.dim[0], SEEN_COUNT}};
    if (!shape_equal(&infer_input(context, 3)->shape, &seen))
        return operator_error(context, NULL, "there must be %d numbers of what was seen of each row", SEEN_COUNT);
    if (!shape_equal(&infer_input(context, 4)->shape, &infer_input(context, 0)->shape))
        return operator_error(context, NULL, "input 4 is not like input 0");
    if (infer_input(context, 6)->shape.rank) return operator_error(context, NULL, "input 6 must be a scalar");
    for (int i = 0; i < 3; i++) context->dtype[i] = infer_input(context, 0)->dtype;
    for (int i = 0; i < 2; i++) context->shape[i] = infer_input(context, i)->shape;
    context->shape[2] = slice;
    return true;
}

/* Rows of what is hidden, labels and what is known of rows; the table goes with classes. */
bool axes_sliced_cross_entropy(const Graph *graph, const Node *node, int output, int axis, int *axes)
{
    (void)graph;
    bool forward = operator_has(node->op, IS_LOSS), of_rows = forward ? output > 0 : output != 1;
    axes[0] = axes[2] = axis;
    if (!forward) axes[3] = axes[4] = axis;
    return of_rows && axis == 0;
}

/* ---- Gradient ---- */

/* A parameter that nothing else reads gets its gradient added in place: it may be larger than all else. */
bool differentiate_sliced_cross_entropy(Differentiation *d, const Node *node)
{
    ValueId hidden = node->inputs[0], table = node->inputs[1], outputs[3];
    bool of[2] = {gradient_wanted(d, hidden), gradient_wanted(d, table)};
    for (int i = 1; i < node->output_count; i++)
        if (gradient_of(d, node->outputs[i])) return false;
    if (!of[0] && !of[1]) return true;
    bool accumulate =
        of[1] && graph_value(d->graph, table)->role == ROLE_PARAMETER && d->pending[table] == 1 && !d->gradient[table];
    Attribute attributes[] = {attribute_integer("ignore_index", node_integer(node, "ignore_index", -100)),
                              attribute_integer("labels", node_integer(node, "labels", 0)),
                              attribute_integer("slice", node_integer(node, "slice", 0)),
                              attribute_integer("columns", class_axis(node)),
                              attribute_integer("of_hidden", of[0]),
                              attribute_integer("of_table", of[1]),
                              attribute_integer("accumulate", accumulate)};
    ValueId inputs[] = {hidden,
                        table,
                        node->inputs[2],
                        node->outputs[1],
                        node->outputs[2],
                        node->inputs[3],
                        gradient_of(d, node->outputs[0])};
    if (!graph_add_node(d->graph, OP_SlicedCrossEntropyGradient, d->b->origin, inputs, 7, attributes, 7, outputs, 3,
                        d->diagnostics))
        return false;
    if (of[0]) gradient_add(d, hidden, outputs[0]);
    if (of[1]) gradient_add(d, table, outputs[1]);
    return true;
}

/* ---- Lowering ---- */

/* What becomes of what was in the matrix that a product goes to. */
typedef enum Former { FORMER_GOES, FORMER_STAYS, FORMER_SCALED } Former;

/* c = a x b, with c added, scaled row by row perhaps by `factors`. */
static void lower_product(Lowering *lowering, const View *a, const View *b, const View *c, Former former,
                          const View *factors)
{
    int64_t extent[] = {a->shape.dim[0], b->shape.dim[1], a->shape.dim[1]};
    Kernel *kernel = lower_begin(lowering, opcodes[OP_MatMul].name, 3, extent);
    Register x = kernel_load(kernel, lower_operand(lowering, a, (int64_t[]){a->stride[0], 0, a->stride[1]}));
    Register y = kernel_load(kernel, lower_operand(lowering, b, (int64_t[]){0, b->stride[1], b->stride[0]}));
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_multiply(kernel, x, y));
    kernel_begin_phase(kernel, false);
    int to = lower_operand(lowering, c, (int64_t[]){c->stride[0], c->stride[1], 0});
    if (former == FORMER_SCALED) {
        Register factor = kernel_load(kernel, lower_operand(lowering, factors, (int64_t[]){factors->stride[0], 0, 0}));
        Register old = kernel_multiply(kernel, kernel_load(kernel, to), factor);
        sum = kernel_add(kernel, old, sum);
    }
    former == FORMER_STAYS ? kernel_store_add(kernel, to, sum) : kernel_store(kernel, to, sum);
    lower_end(lowering);
}

static View transposed(const View *view)
{
    View result = *view;
    for (int i = 0; i < 2; i++) {
        result.shape.dim[i] = view->shape.dim[1 - i];
        result.stride[i] = view->stride[1 - i];
    }
    return result;
}

/* The classes of one slice. */
typedef struct Slice {
    int64_t first, count;
    View logits;
} Slice;

static Slice slice_at(int64_t first, int64_t classes, const View *logits)
{
    int64_t count = logits->shape.dim[1];
    if (count > classes - first) count = classes - first;
    Slice slice = {.first = first, .count = count, .logits = *logits};
    slice.logits.shape.dim[1] = count;
    return slice;
}

/* Those classes of W or of its gradient, as [classes, hidden]. */
static View rows_of_table(const View *table, const Node *node, const Slice *slice)
{
    View view = class_axis(node) ? transposed(table) : *table;
    view.offset += slice->first * view.stride[0];
    view.shape.dim[0] = slice->count;
    return view;
}

static void lower_slice(Lowering *lowering, const Node *node, const View *hidden, const View *table, const Slice *slice)
{
    const View rows = rows_of_table(table, node, slice), columns = transposed(&rows);
    lower_product(lowering, hidden, &columns, &slice->logits, FORMER_GOES, NULL);
}

/* The row's label, counted from the first class of the slice, and whether the slice has it. */
static Register label_in(Lowering *lowering, const Node *node, const Slice *slice, int64_t classes, Register *inside)
{
    Kernel *kernel = lowering->kernel;
    Register label = lower_index(kernel, load_label(lowering, node, 1, 0), classes);
    label = kernel_subtract(kernel, label, kernel_constant_integer(kernel, slice->first));
    Register below = kernel_binary(kernel, KERNEL_LESS, label, kernel_constant_integer(kernel, 0));
    Register fits = kernel_binary(kernel, KERNEL_LESS, label, kernel_constant_integer(kernel, slice->count));
    *inside = kernel_binary(kernel, KERNEL_AND, kernel_unary(kernel, KERNEL_NOT, below), fits);
    return label;
}

/* Goes on with `seen`, and makes of the logits exp(x - m), but 0 of the label's. */
static void lower_seen(Lowering *lowering, const Node *node, const Slice *slice, int64_t classes, const View *seen)
{
    Kernel *kernel = lower_begin(lowering, "LogSumExp", 2, slice->logits.shape.dim);
    int64_t elements, step[] = {seen->stride[0], 0}, logits_step[] = {slice->logits.stride[0], 0};
    int column[SEEN_COUNT];
    for (int i = 0; i < SEEN_COUNT; i++) {
        const View view = column_of(seen, i);
        column[i] = lower_operand(lowering, &view, step);
    }
    int x = lower_operand(lowering, &slice->logits, slice->logits.stride);
    int chosen = lower_operand_indexed(lowering, &slice->logits, logits_step, &elements);
    Register maximum = kernel_reduce(kernel, KERNEL_MAXIMUM_OF, kernel_load(kernel, x)), inside;
    DType type = kernel_type(kernel, maximum);
    kernel_begin_phase(kernel, false);
    Register zero = kernel_constant(kernel, type, 0), before = zero, factor = zero, logit = zero;
    Register label = label_in(lowering, node, slice, classes, &inside);
    Register safe = kernel_select(kernel, inside, label, kernel_constant_integer(kernel, 0));
    Register here = kernel_load_at(kernel, chosen, lower_scaled(kernel, safe, slice->logits.stride[1], 0), elements);
    if (slice->first) {
        Register former = kernel_load(kernel, column[SEEN_MAXIMUM]);
        maximum = kernel_binary(kernel, KERNEL_MAXIMUM, former, maximum);
        factor = kernel_unary(kernel, KERNEL_EXP, kernel_subtract(kernel, former, maximum));
        before = kernel_multiply(kernel, kernel_load(kernel, column[SEEN_SUM]), factor);
        logit = kernel_load(kernel, column[SEEN_LABEL]);
    }
    logit = kernel_select(kernel, inside, here, logit);
    kernel_begin_phase(kernel, true);
    Register shifted = kernel_subtract(kernel, kernel_load(kernel, x), maximum);
    Register power = kernel_unary(kernel, KERNEL_EXP, shifted);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, power);
    Register hit = kernel_binary(kernel, KERNEL_EQUAL, label, kernel_axis(kernel, 1));
    kernel_store(kernel, x, kernel_select(kernel, hit, zero, power));
    kernel_begin_phase(kernel, false);
    sum = kernel_add(kernel, before, sum);
    const Register results[] = {maximum, kernel_unary(kernel, KERNEL_LOG, sum), sum, logit, factor};
    for (int i = 0; i < SEEN_COUNT; i++) kernel_store(kernel, column[i], results[i]);
    lower_end(lowering);
}

static void lower_loss(Lowering *lowering, const Node *node, const View *seen)
{
    View loss = lower_output(lowering, node->outputs[0]);
    const View chosen = column_of(seen, SEEN_LABEL);
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 1, chosen.shape.dim);
    Register label = load_label(lowering, node, 1, 0), valid = is_valid(kernel, node, label);
    const LogSum known = load_log_sum(lowering, seen, DTYPE_F64);
    Register row = missed(kernel, &known, kernel_load(kernel, lower_operand(lowering, &chosen, chosen.stride)));
    Register zero = kernel_constant(kernel, DTYPE_F64, 0);
    Register sum = kernel_reduce(kernel, KERNEL_SUM, kernel_select(kernel, valid, row, zero));
    kernel_begin_phase(kernel, false);
    Register scale = load_scale(lowering, node->inputs[3], scale_element(node), DTYPE_F64);
    Register scaled = kernel_multiply(kernel, sum, scale);
    kernel_store(kernel, lower_operand(lowering, &loss, (int64_t[]){0}), scaled);
    lower_end(lowering);
}

void lower_sliced_cross_entropy(Lowering *lowering, const Node *node)
{
    View hidden = lower_view(lowering, node->inputs[0]), table = lower_view(lowering, node->inputs[1]);
    View seen = lower_output(lowering, node->outputs[1]), pull = lower_output(lowering, node->outputs[2]);
    View logits = lower_output(lowering, node->outputs[3]);
    const View factors = column_of(&seen, SEEN_FACTOR);
    int64_t classes = table.shape.dim[class_axis(node)];
    for (int64_t first = 0; first < classes; first += logits.shape.dim[1]) {
        const Slice slice = slice_at(first, classes, &logits);
        lower_slice(lowering, node, &hidden, &table, &slice);
        lower_seen(lowering, node, &slice, classes, &seen);
        const View rows = rows_of_table(&table, node, &slice);
        if (node_integer(node, "pull", 1))
            lower_product(lowering, &slice.logits, &rows, &pull, first ? FORMER_SCALED : FORMER_GOES, &factors);
    }
    lower_loss(lowering, node, &seen);
}

/* The factor of a row's gradient, 0 if its label does not count. */
static Register row_scale(Lowering *lowering, const Node *node, Register label, DType type)
{
    Kernel *kernel = lowering->kernel;
    View dy = lower_view(lowering, node->inputs[6]);
    Register valid = is_valid(kernel, node, label);
    Register scale = load_scale(lowering, node->inputs[5], scale_element(node), type);
    Register outer = kernel_convert(kernel, type, lower_load(lowering, &dy));
    scale = kernel_multiply(kernel, scale, outer);
    return kernel_select(kernel, valid, scale, kernel_constant(kernel, type, 0));
}

/* (pull / sum + (p - 1) * the table's row of the label) * scale, p being the label's probability. */
static void lower_hidden_gradient(Lowering *lowering, const Node *node, const View *table, const View *seen)
{
    View pull = lower_view(lowering, node->inputs[4]), output = lower_output(lowering, node->outputs[0]);
    int axis = class_axis(node);
    int64_t elements, classes = table->shape.dim[axis], step[] = {seen->stride[0], 0};
    Kernel *kernel = lower_begin(lowering, opcodes[node->op].name, 2, output.shape.dim);
    DType type = kernel_register_type(graph_value(lowering->graph, output.base)->dtype);
    int pulled = lower_operand(lowering, &pull, pull.stride);
    int row = lower_operand_indexed(lowering, table, (int64_t[]){0, table->stride[!axis]}, &elements);
    kernel_begin_phase(kernel, false);
    Register label = load_label(lowering, node, 1, 0), scale = row_scale(lowering, node, label, type);
    Register one = kernel_constant(kernel, type, 1);
    Register at = lower_scaled(kernel, lower_index(kernel, label, classes), table->stride[axis], table->offset);
    const LogSum known = load_log_sum(lowering, seen, type);
    const View logits = column_of(seen, SEEN_LABEL), sums = column_of(seen, SEEN_SUM);
    Register logit = kernel_load(kernel, lower_operand(lowering, &logits, step));
    Register slope = kernel_subtract(kernel, probability_of(kernel, &known, logit), one);
    Register sum = kernel_load(kernel, lower_operand(lowering, &sums, step));
    Register share = kernel_binary(kernel, KERNEL_DIVIDE, scale, sum);
    slope = kernel_multiply(kernel, slope, scale);
    kernel_begin_phase(kernel, true);
    Register others = kernel_multiply(kernel, kernel_load(kernel, pulled), share);
    Register own = kernel_multiply(kernel, kernel_load_at(kernel, row, at, elements), slope);
    kernel_store(kernel, lower_operand(lowering, &output, output.stride), kernel_add(kernel, others, own));
    lower_end(lowering);
}

/* logits = (exp(p) - [the label is this class]) * scale, with p = log-softmax. */
static void lower_slope(Lowering *lowering, const Node *node, const Slice *slice, const View *seen)
{
    Kernel *kernel = lower_begin(lowering, opcodes[OP_CrossEntropyGradient].name, 2, slice->logits.shape.dim);
    int x = lower_operand(lowering, &slice->logits, slice->logits.stride);
    DType type = kernel_register_type(graph_value(lowering->graph, slice->logits.base)->dtype);
    kernel_begin_phase(kernel, false);
    Register label = load_label(lowering, node, 1, 0), scale = row_scale(lowering, node, label, type);
    label = kernel_subtract(kernel, label, kernel_constant_integer(kernel, slice->first));
    const LogSum known = load_log_sum(lowering, seen, type);
    kernel_begin_phase(kernel, true);
    Register probability = probability_of(kernel, &known, kernel_load(kernel, x));
    Register hit = kernel_binary(kernel, KERNEL_EQUAL, label, kernel_axis(kernel, 1));
    Register slope = kernel_subtract(kernel, probability, kernel_convert(kernel, type, hit));
    kernel_store(kernel, x, kernel_multiply(kernel, slope, scale));
    lower_end(lowering);
}

void lower_sliced_cross_entropy_gradient(Lowering *lowering, const Node *node)
{
    View hidden = lower_view(lowering, node->inputs[0]), table = lower_view(lowering, node->inputs[1]);
    View seen = lower_view(lowering, node->inputs[3]), of_table = lower_output(lowering, node->outputs[1]);
    View logits = lower_output(lowering, node->outputs[2]);
    int64_t classes = table.shape.dim[class_axis(node)];
    Former former = node_integer(node, "accumulate", 0) ? FORMER_STAYS : FORMER_GOES;
    if (node_integer(node, "of_hidden", 1)) lower_hidden_gradient(lowering, node, &table, &seen);
    if (!node_integer(node, "of_table", 1)) return;
    for (int64_t first = 0; first < classes; first += logits.shape.dim[1]) {
        const Slice slice = slice_at(first, classes, &logits);
        lower_slice(lowering, node, &hidden, &table, &slice);
        lower_slope(lowering, node, &slice, &seen);
        const View slopes = transposed(&slice.logits), rows = rows_of_table(&of_table, node, &slice);
        lower_product(lowering, &slopes, &hidden, &rows, former, NULL);
    }
}
