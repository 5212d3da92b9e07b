/* What every operator should compute, written independently of kernels and lowering, for one element at a time. */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "tests/graph/ops/operator_cases.h"

static int64_t integer_attribute(const Case *test, const char *name, int64_t absent)
{
    Node node = {.attributes = (Attribute *)test->attributes, .attribute_count = 4};
    for (int i = 0; i < 4; i++)
        if (!test->attributes[i].name) node.attribute_count = i < node.attribute_count ? i : node.attribute_count;
    return node_integer(&node, name, absent);
}

void reference_unary(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output) output->data[i] = test->unary(input->data[i]);
}

void reference_binary(const Case *test, const Tensor *input, Tensor *output)
{
    int rank = output->shape.rank;
    FOR_EACH_ELEMENT(i, output)
    output->data[i] = test->binary(*element(&input[0], at, rank), *element(&input[1], at, rank));
}

void reference_where(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    int rank = output->shape.rank;
    FOR_EACH_ELEMENT(i, output)
    output->data[i] = *element(&input[*element(&input[0], at, rank) != 0 ? 1 : 2], at, rank);
}

void reference_same(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output) output->data[i] = input->data[i];
}

void reference_expand(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output) output->data[i] = *element(input, at, output->shape.rank);
}

void reference_transpose(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t from[MAX_RANK];
        for (int axis = 0; axis < output->shape.rank; axis++) from[test->attributes[0].integers[axis]] = at[axis];
        output->data[i] = *element(input, from, output->shape.rank);
    }
}

void reference_slice(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        for (int axis = 0; axis < output->shape.rank; axis++)
            at[axis] = test->attributes[0].integers[axis] + at[axis] * test->attributes[1].integers[axis];
        output->data[i] = *element(input, at, output->shape.rank);
    }
}

void reference_slice_gradient(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, input)
    {
        for (int axis = 0; axis < output->shape.rank; axis++)
            at[axis] = test->attributes[0].integers[axis] + at[axis] * test->attributes[1].integers[axis];
        *element(output, at, output->shape.rank) = input->data[i];
    }
}

void reference_concat(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t axis = integer_attribute(test, "axis", 0);
    FOR_EACH_ELEMENT(i, output)
    {
        int from = 0;
        while (at[axis] >= input[from].shape.dim[axis]) at[axis] -= input[from++].shape.dim[axis];
        output->data[i] = *element(&input[from], at, output->shape.rank);
    }
}

/* The place in the data that a gather reads for `at` of its result. */
static void gathered(const Tensor *data, const Tensor *indices, int64_t axis, const int64_t *at, int64_t *from)
{
    int rank = indices->shape.rank;
    for (int i = 0; i < data->shape.rank; i++) from[i] = i < axis ? at[i] : at[i + rank - 1];
    int64_t index = (int64_t)*element(indices, at + axis, rank);
    from[axis] = index < 0 ? index + data->shape.dim[axis] : index;
}

void reference_gather(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t from[MAX_RANK];
        gathered(&input[0], &input[1], integer_attribute(test, "axis", 0), at, from);
        output->data[i] = *element(&input[0], from, input[0].shape.rank);
    }
}

void reference_gather_gradient(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, &input[1])
    {
        int64_t to[MAX_RANK];
        int64_t axis = integer_attribute(test, "axis", 0);
        gathered(output, &input[0], axis, at, to);
        bool left_out = false;
        const Attribute *rows = &test->attributes[2];
        for (int k = 0; rows->name && k < rows->count; k++) left_out |= to[axis] == rows->integers[k];
        if (!left_out) *element(output, to, output->shape.rank) += input[1].data[i];
    }
}

void reference_gather_elements(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t axis = integer_attribute(test, "axis", 0);
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t index = (int64_t)input[1].data[i];
        at[axis] = index < 0 ? index + input[0].shape.dim[axis] : index;
        output->data[i] = *element(&input[0], at, output->shape.rank);
    }
}

/* The place in `whole` that element `at` of the updates of a tuple of indices means. */
static void tuple_place(const Case *test, const Tensor *whole, const Tensor *indices, const int64_t *at, int64_t *place)
{
    int64_t batch = integer_attribute(test, "batch_dims", 0);
    int last = indices->shape.rank - 1, width = (int)indices->shape.dim[last];
    for (int i = 0; i < batch; i++) place[i] = at[i];
    for (int i = 0; i < width; i++) {
        int64_t tuple[MAX_RANK];
        memcpy(tuple, at, sizeof tuple);
        tuple[last] = i;
        int64_t index = (int64_t)*element(indices, tuple, indices->shape.rank);
        place[batch + i] = index < 0 ? index + whole->shape.dim[batch + i] : index;
    }
    for (int i = (int)batch + width; i < whole->shape.rank; i++) place[i] = at[i - batch - width + last];
}

void reference_gather_nd(const Case *test, const Tensor *input, Tensor *output)
{
    FOR_EACH_ELEMENT(i, output)
    {
        int64_t place[MAX_RANK];
        tuple_place(test, &input[0], &input[1], at, place);
        output->data[i] = *element(&input[0], place, input[0].shape.rank);
    }
}

static double combined(const char *reduction, double old, double update)
{
    if (strcmp(reduction, "add") == 0) return old + update;
    if (strcmp(reduction, "mul") == 0) return old * update;
    if (strcmp(reduction, "max") == 0) return fmax(old, update);
    if (strcmp(reduction, "min") == 0) return fmin(old, update);
    return update;
}

void reference_scatter(const Case *test, const Tensor *input, Tensor *output)
{
    if (input[2].data) FOR_EACH_ELEMENT(i, output) output->data[i] = input[2].data[i];
    int64_t axis = integer_attribute(test, "axis", 0);
    FOR_EACH_ELEMENT(i, &input[1])
    {
        int64_t place[MAX_RANK];
        if (test->op == OP_ScatterND) {
            tuple_place(test, output, &input[0], at, place);
        } else {
            int64_t index = (int64_t)input[0].data[i];
            memcpy(place, at, sizeof place);
            place[axis] = index < 0 ? index + output->shape.dim[axis] : index;
        }
        double *target = element(output, place, output->shape.rank);
        *target = combined(test->attributes[0].string, *target, input[1].data[i]);
    }
}

void reference_arg_max(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t axis = integer_attribute(test, "axis", 0);
    FOR_EACH_ELEMENT(i, output)
    {
        double best = -INFINITY;
        for (int64_t k = 0; k < input->shape.dim[axis]; k++) {
            at[axis] = k;
            double x = *element(input, at, input->shape.rank);
            if (x > best || (x == best && integer_attribute(test, "select_last_index", 0))) output->data[i] = (double)k;
            best = fmax(best, x);
        }
    }
}

void reference_reduce(const Case *test, const Tensor *input, Tensor *output)
{
    unsigned reduced = 0;
    for (int i = 0; i < test->attributes[0].count; i++)
        reduced |= 1u << (test->attributes[0].integers[i] + input->shape.rank) % input->shape.rank;
    if (!reduced) reduced = (1u << input->shape.rank) - 1;
    Tensor kept = {.data = output->data, .shape = input->shape};
    for (int i = 0; i < kept.shape.rank; i++)
        if (reduced >> i & 1) kept.shape.dim[i] = 1;
    double count = (double)shape_elements(&input->shape) / (double)shape_elements(&kept.shape);
    double start = test->op == OP_ReduceProd  ? 1
                   : test->op == OP_ReduceMax ? -INFINITY
                   : test->op == OP_ReduceMin ? INFINITY
                                              : 0;
    for (int64_t i = 0; i < shape_elements(&kept.shape); i++) kept.data[i] = start;
    FOR_EACH_ELEMENT(i, input)
    {
        double *result = element(&kept, at, input->shape.rank), x = input->data[i];
        if (test->op == OP_ReduceMax)
            *result = fmax(*result, x);
        else if (test->op == OP_ReduceMin)
            *result = fmin(*result, x);
        else if (test->op == OP_ReduceProd)
            *result *= x;
        else
            *result += test->op == OP_ReduceMean ? x / count : x;
    }
}

void reference_matmul(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    Tensor a = input[0], b = input[1], c = *output;
    if (a.shape.rank == 1) a.shape = (Shape){2, {1, a.shape.dim[0]}};
    if (input[0].shape.rank == 1) { /* give the result its row back */
        int columns = input[1].shape.rank > 1;
        for (int i = c.shape.rank; i > c.shape.rank - columns; i--) c.shape.dim[i] = c.shape.dim[i - 1];
        c.shape.dim[c.shape.rank - columns] = 1;
        c.shape.rank++;
    }
    if (b.shape.rank == 1) {
        b.shape = (Shape){2, {b.shape.dim[0], 1}};
        c.shape.dim[c.shape.rank++] = 1;
    }
    int rank = c.shape.rank;
    FOR_EACH_ELEMENT(i, &c)
    {
        c.data[i] = 0;
        for (int64_t k = 0; k < a.shape.dim[a.shape.rank - 1]; k++) {
            int64_t left[MAX_RANK], right[MAX_RANK];
            memcpy(left, at, sizeof left);
            memcpy(right, at, sizeof right);
            left[rank - 1] = right[rank - 2] = k;
            c.data[i] += *element(&a, left, rank) * *element(&b, right, rank);
        }
    }
}

void reference_softmax(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t width = input->shape.dim[input->shape.rank - 1], count = shape_elements(&input->shape);
    for (int64_t row = 0; row < count; row += width) {
        double sum = 0, largest = input->data[row];
        for (int64_t i = 0; i < width; i++) largest = fmax(largest, input->data[row + i]);
        for (int64_t i = 0; i < width; i++) sum += exp(input->data[row + i] - largest);
        for (int64_t i = 0; i < width; i++) {
            double below = input->data[row + i] - largest;
            output->data[row + i] = test->op == OP_Softmax ? exp(below) / sum : below - log(sum);
        }
    }
}

void reference_layer_norm(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t width = input->shape.dim[input->shape.rank - 1], count = shape_elements(&input->shape);
    double epsilon = test->attributes[0].number;
    for (int64_t row = 0; row < count / width; row++) {
        const double *x = input->data + row * width;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < width; i++) mean += x[i] / (double)width;
        for (int64_t i = 0; i < width; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)width;
        output[1].data[row] = mean;
        output[2].data[row] = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < width; i++)
            output[0].data[row * width + i] =
                (x[i] - mean) / sqrt(variance + epsilon) * input[1].data[i] + (input[2].data ? input[2].data[i] : 0);
    }
}

static double float_attribute(const Case *test, const char *name)
{
    for (int i = 0; i < 4 && test->attributes[i].name; i++)
        if (strcmp(test->attributes[i].name, name) == 0) return test->attributes[i].number;
    return 0;
}

/* Also weighted: as PyTorch defines it, each class' -log p has a part in the loss of a row. */
void reference_cross_entropy(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t rows = input->shape.dim[0], classes = input->shape.dim[1];
    int64_t ignored = integer_attribute(test, "ignore_index", -100);
    double scale = input[2].data[loss_scale_element((int)integer_attribute(test, "labels", 0))];
    double smoothing = float_attribute(test, "smoothing");
    bool weighted = test->op == OP_WeightedCrossEntropy;
    output[0].data[0] = 0;
    for (int64_t row = 0; row < rows; row++) {
        const double *logits = input->data + row * classes;
        double sum = 0, loss = 0, largest = logits[0];
        for (int64_t i = 1; i < classes; i++) largest = fmax(largest, logits[i]);
        for (int64_t i = 0; i < classes; i++) sum += exp(logits[i] - largest);
        output[1].data[2 * row] = largest;
        output[1].data[2 * row + 1] = log(sum);
        int64_t label = (int64_t)input[1].data[row];
        for (int64_t i = 0; i < classes; i++) {
            double part = (i == label ? 1 - smoothing : 0) + smoothing / (double)classes;
            if (weighted) part *= input[3].data[input[3].shape.rank ? i : 0];
            loss += part * (largest - logits[i] + log(sum));
        }
        if (label == ignored) loss = 0;
        if (weighted) output[2].data[row] = loss;
        output[0].data[0] += loss * scale;
    }
}

/* What is left of the logits is exp(x - the largest), but 0 of labels: of the last slice, and where the one before is
 * wider, of its end. */
void reference_sliced_cross_entropy(const Case *test, const Tensor *input, Tensor *output)
{
    static double logits[MAX_ELEMENTS], log_sum[MAX_ELEMENTS];
    bool columns = integer_attribute(test, "columns", 0);
    int64_t rows = input->shape.dim[0], size = input->shape.dim[1], classes = input[1].shape.dim[columns];
    int64_t slice = integer_attribute(test, "slice", 0);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t c = 0; c < classes; c++) {
            double sum = 0;
            for (int64_t k = 0; k < size; k++)
                sum += input->data[row * size + k] * input[1].data[columns ? k * classes + c : c * size + k];
            logits[row * classes + c] = sum;
        }
    const Tensor whole[] = {{{2, {rows, classes}}, logits}, input[2], input[3]};
    Tensor results[] = {output[0], {{2, {rows, 2}}, log_sum}};
    reference_cross_entropy(test, whole, results);
    for (int64_t row = 0; row < rows; row++) {
        double *seen = output[1].data + 5 * row, former = -INFINITY, largest = -INFINITY;
        int64_t label = (int64_t)input[2].data[row];
        for (int64_t c = 0; c < classes; c++) {
            if (c % slice == 0) former = largest;
            for (int64_t k = c; k < classes && k < c + slice && c % slice == 0; k++)
                largest = fmax(largest, logits[row * classes + k]);
            output[3].data[row * slice + c % slice] = c == label ? 0 : exp(logits[row * classes + c] - largest);
            for (int64_t k = 0; k < size && c != label; k++)
                output[2].data[row * size + k] += exp(logits[row * classes + c] - log_sum[2 * row]) *
                                                  input[1].data[columns ? k * classes + c : c * size + k];
        }
        seen[0] = largest;
        seen[1] = log_sum[2 * row + 1];
        seen[2] = exp(seen[1]);
        seen[3] = logits[row * classes + label];
        seen[4] = exp(former - largest);
    }
}

void reference_binary_cross_entropy(const Case *test, const Tensor *input, Tensor *output)
{
    (void)test;
    FOR_EACH_ELEMENT(i, output)
    {
        double x = input[0].data[i], y = input[1].data[i];
        output->data[i] =
            y * (x > 0 ? log1p(exp(-x)) : log1p(exp(x)) - x) + (1 - y) * (x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
    }
}

/* The int64 that stands in the place of two scalars. */
static int64_t wide_scalar(const Tensor *scalars, int element)
{
    float words[2] = {(float)scalars->data[element], (float)scalars->data[element + 1]};
    int64_t value;
    memcpy(&value, words, sizeof value);
    return value;
}

void reference_dropout(const Case *test, const Tensor *input, Tensor *output)
{
    const bool active = input[2].data[SKY_STEP_DROPOUT] != 0;
    const double bound = active ? round(test->attributes[0].number * RANDOM_ELEMENT_RANGE) : 0;
    const int64_t *positions = test->attributes[2].integers;
    uint64_t key = (uint64_t)((int64_t)input[1].data[0] + wide_scalar(&input[2], SKY_STEP_RANDOM_KEY));
    uint64_t row = (uint64_t)wide_scalar(&input[2], SKY_STEP_FIRST_ROW);
    FOR_EACH_ELEMENT(i, output)
    {
        uint64_t position = row * (uint64_t)test->attributes[1].integer + (uint64_t)positions[0];
        for (int axis = 0; axis < 3; axis++) position += (uint64_t)(at[axis] * positions[1 + axis]);
        bool dropped = random_element(key, position) < bound;
        output->data[i] = dropped ? 0 : input->data[i] / (1 - bound / RANDOM_ELEMENT_RANGE);
    }
}

void reference_scale_loss(const Case *test, const Tensor *input, Tensor *output)
{
    int64_t labels = integer_attribute(test, "labels", -1);
    int64_t element = labels < 0 ? integer_attribute(test, "element", SKY_STEP_SHARE) : loss_scale_element((int)labels);
    double scale = input[1].data[element];
    FOR_EACH_ELEMENT(i, output) output->data[i] = input->data[i] * scale;
}

double scalar_negate(double x) { return -x; }
double scalar_sign(double x) { return (x > 0) - (x < 0); }
double scalar_reciprocal(double x) { return 1 / x; }
double scalar_sigmoid(double x) { return 1 / (1 + exp(-x)); }
double scalar_relu(double x) { return x > 0 ? x : 0; }
double scalar_logical_not(double x) { return x == 0; }
double scalar_is_nan(double x) { return isnan(x); }
double scalar_to_integer(double x) { return trunc(x); }
double scalar_gelu(double x) { return x * 0.5 * erfc(-x / sqrt(2)); }
double scalar_softsign(double x) { return x / (1 + fabs(x)); }
double scalar_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double scalar_add(double a, double b) { return a + b; }
double scalar_subtract(double a, double b) { return a - b; }
double scalar_multiply(double a, double b) { return a * b; }
double scalar_divide(double a, double b) { return a / b; }
double scalar_divide_whole(double a, double b) { return trunc(a / b); }
double scalar_floor_remainder(double a, double b) { return a - floor(a / b) * b; }
double scalar_both(double a, double b) { return a && b; }
double scalar_either(double a, double b) { return a || b; }
double scalar_equal(double a, double b) { return a == b; }
double scalar_less(double a, double b) { return a < b; }
double scalar_less_equal(double a, double b) { return a <= b; }
double scalar_greater(double a, double b) { return a > b; }
double scalar_greater_equal(double a, double b) { return a >= b; }
