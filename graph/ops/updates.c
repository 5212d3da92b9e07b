/* Accumulation of gradients and the optimisers' updates, in place. The scalars of the step are read at the places that
 * runtime/program/step_scalars.h names; the gradient is scaled first, and zero afterwards. */
#include "graph/ops/lower.h"
#include "graph/ops/operator.h"
#include "runtime/program/step_scalars.h"

/* Into how many parts each of so many long sums is best cut: threads compute parts at the same time, each from the rows
 * that its caches hold, and adding them up afterwards costs more the more sums there are. Where rows share lines, every
 * line is a part: there may be fewer of them. */
static int64_t worthwhile_parts(int64_t sums, const SkyPacking *packing)
{
    int64_t parts = sums <= 1 << 12 ? 8 : sums <= 1 << 16 ? 2 : 0;
    if (!parts || !packing->slots || packing->lines < 2) return parts;
    return packing->lines <= 8 * parts ? packing->lines : 0;
}

/* The second output is room for parts of the contribution, where that is a long sum (codegen/stage/stage_sums.c). */
bool infer_accumulate_gradient(InferContext *context)
{
    if (!infer_float_inputs(context, 1) || !infer_same(context)) return false;
    int64_t elements = shape_elements(&context->shape[0]);
    context->dtype[1] = context->dtype[0];
    context->shape[1] = (Shape){.rank = 2, .dim = {worthwhile_parts(elements, &context->graph->packing), elements}};
    return true;
}

void lower_accumulate_gradient(Lowering *lowering, const Node *node)
{
    View x = lower_view(lowering, node->inputs[0]), sum = lower_output(lowering, node->outputs[0]);
    Kernel *kernel = lower_begin_over(lowering, opcodes[node->op].name, &sum.shape);
    Register value = lower_load(lowering, &x);
    kernel_store_add(kernel, lower_operand_broadcast(lowering, &sum), value);
    lower_end(lowering);
}

/* ---- Updates: parameter, gradient, scalars, then what is remembered of former gradients ---- */

bool infer_update(InferContext *context)
{
    const Value *parameter = infer_input(context, 0), *scalars = infer_input(context, 2);
    if (!infer_float_inputs(context, 2)) return false;
    if (scalars->dtype != DTYPE_F32 || scalars->shape.rank != 1 || scalars->shape.dim[0] != SKY_STEP_SCALARS)
        return operator_error(context, NULL, "input 2 does not hold the scalars of the step");
    for (int i = 1; i < context->node->input_count; i++) {
        const Value *input = infer_input(context, i);
        if (i != 2 && (!shape_equal(&input->shape, &parameter->shape) || input->dtype != parameter->dtype))
            return operator_error(context, NULL, "input %d is not like the parameter", i);
    }
    return true;
}

typedef struct Update {
    Lowering *lowering;
    Kernel *kernel;
    ValueId scalars;
    DType type;
    int parameter, memory[2]; /* operands */
    Register gradient;        /* scaled */
} Update;

static Register load_scalar(const Update *update, int which)
{
    View view = lower_view(update->lowering, update->scalars);
    view.offset += which;
    int operand = lower_operand(update->lowering, &view, (int64_t[KERNEL_MAX_AXES]){0});
    return kernel_convert(update->kernel, update->type, kernel_load(update->kernel, operand));
}

/* The accumulated gradient, which is left zero for the next step: while its line is at hand, that costs nothing. */
static Register take_gradient(const Update *update, int operand)
{
    Register gradient = kernel_load(update->kernel, operand);
    kernel_store(update->kernel, operand, kernel_constant(update->kernel, update->type, 0));
    return gradient;
}

static Update begin_update(Lowering *lowering, const Node *node)
{
    const Value *parameter = graph_value(lowering->graph, node->inputs[0]);
    Update update = {.lowering = lowering, .scalars = node->inputs[2], .type = kernel_register_type(parameter->dtype)};
    update.kernel = lower_begin_over(lowering, opcodes[node->op].name, &parameter->shape);
    update.parameter = lower_operand_of(lowering, node->inputs[0]);
    int gradient = lower_operand_of(lowering, node->inputs[1]);
    for (int i = 3; i < node->input_count; i++) {
        update.memory[i - 3] = lower_operand_of(lowering, node->inputs[i]);
        update.kernel->operands[update.memory[i - 3]].often_zero = true;
    }
    update.kernel->operands[gradient].often_zero = true; /* in the rows of a table that nothing reads */
    Register scale = load_scalar(&update, SKY_STEP_GRADIENT_SCALE);
    update.gradient = kernel_multiply(update.kernel, take_gradient(&update, gradient), scale);
    return update;
}

/* gradient + weight decay * parameter */
static Register decayed_gradient(const Update *update, Register parameter)
{
    Register decay = kernel_multiply(update->kernel, load_scalar(update, SKY_STEP_WEIGHT_DECAY), parameter);
    return kernel_add(update->kernel, update->gradient, decay);
}

/* parameter - learning rate * direction */
static void step(const Update *update, Register parameter, Register direction)
{
    Register change = kernel_multiply(update->kernel, load_scalar(update, SKY_STEP_LEARNING_RATE), direction);
    kernel_store(update->kernel, update->parameter, kernel_subtract(update->kernel, parameter, change));
    lower_end(update->lowering);
}

void lower_sgd_update(Lowering *lowering, const Node *node)
{
    Update update = begin_update(lowering, node);
    Register parameter = kernel_load(update.kernel, update.parameter);
    step(&update, parameter, decayed_gradient(&update, parameter));
}

void lower_momentum_update(Lowering *lowering, const Node *node)
{
    Update update = begin_update(lowering, node);
    Register parameter = kernel_load(update.kernel, update.parameter);
    Register gradient = decayed_gradient(&update, parameter);
    Register old = kernel_load(update.kernel, update.memory[0]);
    Register kept = kernel_multiply(update.kernel, load_scalar(&update, SKY_STEP_BETA1), old);
    Register velocity = kernel_add(update.kernel, kept, gradient);
    kernel_store(update.kernel, update.memory[0], velocity);
    step(&update, parameter, velocity);
}

/* beta * memory + (1 - beta) * value, which is stored as the new memory. */
static Register moving_average(const Update *update, int which, Register beta, Register value)
{
    Register one = kernel_constant(update->kernel, update->type, 1);
    Register rest = kernel_multiply(update->kernel, kernel_subtract(update->kernel, one, beta), value);
    Register kept = kernel_multiply(update->kernel, kernel_load(update->kernel, update->memory[which]), beta);
    Register average = kernel_add(update->kernel, kept, rest);
    kernel_store(update->kernel, update->memory[which], average);
    return average;
}

/* Adam (Kingma and Ba, arXiv 1412.6980); decoupled: AdamW (Loshchilov and Hutter, arXiv 1711.05101). */
void lower_adam_update(Lowering *lowering, const Node *node)
{
    bool decoupled = node_integer(node, "decoupled", 0);
    Update update = begin_update(lowering, node);
    Register parameter = kernel_load(update.kernel, update.parameter), gradient = update.gradient;
    if (decoupled) {
        Register rate = load_scalar(&update, SKY_STEP_LEARNING_RATE);
        Register decay = kernel_multiply(update.kernel, load_scalar(&update, SKY_STEP_WEIGHT_DECAY), rate);
        Register one = kernel_constant(update.kernel, update.type, 1);
        parameter = kernel_multiply(update.kernel, parameter, kernel_subtract(update.kernel, one, decay));
    } else {
        gradient = decayed_gradient(&update, parameter);
    }
    Register first = moving_average(&update, 0, load_scalar(&update, SKY_STEP_BETA1), gradient);
    Register square = kernel_multiply(update.kernel, gradient, gradient);
    Register second = moving_average(&update, 1, load_scalar(&update, SKY_STEP_BETA2), square);
    Register unbiased = kernel_multiply(update.kernel, load_scalar(&update, SKY_STEP_CORRECTION2), second);
    Register root = kernel_unary(update.kernel, KERNEL_SQRT, unbiased);
    Register divisor = kernel_add(update.kernel, root, load_scalar(&update, SKY_STEP_EPSILON));
    Register corrected = kernel_multiply(update.kernel, load_scalar(&update, SKY_STEP_CORRECTION1), first);
    step(&update, parameter, kernel_binary(update.kernel, KERNEL_DIVIDE, corrected, divisor));
}

/* ---- LAMB: Adam whose step is as long as the parameter (You et al., arXiv 1904.00962) ---- */

int64_t lower_part(int64_t elements)
{
    enum { MOST = 4096, LEAST = 256, VECTOR = 16 };
    for (int step = VECTOR; step; step = step > 1 ? 1 : 0)
        for (int64_t part = MOST / step * step; part >= LEAST; part -= step)
            if (elements % part == 0) return part;
    return elements;
}

/* The output is room for the squares of parameter and step, part by part, and for the rate that follows from them. */
bool infer_lamb_update(InferContext *context)
{
    if (!infer_update(context)) return false;
    const Value *parameter = infer_input(context, 0);
    int64_t elements = shape_elements(&parameter->shape);
    context->dtype[0] = parameter->dtype;
    context->shape[0] = (Shape){.rank = 1, .dim = {elements ? 2 * (elements / lower_part(elements)) + 1 : 1}};
    return true;
}

/* One of the calls of an update. Operands: parameter, gradient, m, v and the room, each from element `offset` on. */
typedef struct Lamb {
    Update update;
    const Node *node;
    int64_t elements, part, parts;
} Lamb;

static Lamb lamb_begin(Lowering *lowering, const Node *node)
{
    const Value *parameter = graph_value(lowering->graph, node->inputs[0]);
    Lamb lamb = {.node = node, .elements = shape_elements(&parameter->shape)};
    lamb.update =
        (Update){.lowering = lowering, .scalars = node->inputs[2], .type = kernel_register_type(parameter->dtype)};
    lamb.part = lower_part(lamb.elements);
    lamb.parts = lamb.elements / lamb.part;
    return lamb;
}

static void lamb_kernel(Lamb *lamb, int64_t rows, int64_t columns)
{
    lamb->update.kernel =
        lower_begin(lamb->update.lowering, opcodes[lamb->node->op].name, 2, (int64_t[]){rows, columns});
}

static int lamb_operand(const Lamb *lamb, ValueId value, int64_t offset, int64_t row, int64_t column)
{
    View view = lower_view(lamb->update.lowering, value);
    view.offset += offset;
    return lower_operand(lamb->update.lowering, &view, (int64_t[]){row, column});
}

/* Adam's direction with the decay added: where the step goes, before its length is chosen. */
static Register lamb_direction(const Update *update, Register parameter, Register first, Register second)
{
    Register unbiased = kernel_multiply(update->kernel, second, load_scalar(update, SKY_STEP_CORRECTION2));
    Register root = kernel_unary(update->kernel, KERNEL_SQRT, unbiased);
    Register divisor = kernel_add(update->kernel, root, load_scalar(update, SKY_STEP_EPSILON));
    Register corrected = kernel_multiply(update->kernel, first, load_scalar(update, SKY_STEP_CORRECTION1));
    Register direction = kernel_binary(update->kernel, KERNEL_DIVIDE, corrected, divisor);
    return kernel_add(update->kernel, direction,
                      kernel_multiply(update->kernel, parameter, load_scalar(update, SKY_STEP_WEIGHT_DECAY)));
}

/* New m and v; the squares of parameter and direction of every part. */
static void lower_lamb_moments(Lamb *lamb)
{
    Update *update = &lamb->update;
    const Node *node = lamb->node;
    lamb_kernel(lamb, lamb->parts, lamb->part);
    int parameter = lamb_operand(lamb, node->inputs[0], 0, lamb->part, 1);
    int gradient = lamb_operand(lamb, node->inputs[1], 0, lamb->part, 1);
    for (int i = 0; i < 2; i++) update->memory[i] = lamb_operand(lamb, node->inputs[3 + i], 0, lamb->part, 1);
    int squares = lamb_operand(lamb, node->outputs[0], 0, 1, 0);
    int steps = lamb_operand(lamb, node->outputs[0], lamb->parts, 1, 0);
    Register scale = load_scalar(update, SKY_STEP_GRADIENT_SCALE);
    Register scaled = kernel_multiply(update->kernel, take_gradient(update, gradient), scale);
    Register first = moving_average(update, 0, load_scalar(update, SKY_STEP_BETA1), scaled);
    Register square = kernel_multiply(update->kernel, scaled, scaled);
    Register second = moving_average(update, 1, load_scalar(update, SKY_STEP_BETA2), square);
    Register value = kernel_load(update->kernel, parameter);
    Register direction = lamb_direction(update, value, first, second);
    Register value_squares = kernel_reduce(update->kernel, KERNEL_SUM, kernel_multiply(update->kernel, value, value));
    Register step_squares =
        kernel_reduce(update->kernel, KERNEL_SUM, kernel_multiply(update->kernel, direction, direction));
    kernel_begin_phase(update->kernel, false);
    kernel_store(update->kernel, squares, value_squares);
    kernel_store(update->kernel, steps, step_squares);
    lower_end(update->lowering);
}

/* The rate times |parameter| / |direction|, or the rate alone where one of them is 0. */
static void lower_lamb_rate(Lamb *lamb)
{
    Update *update = &lamb->update;
    ValueId room = lamb->node->outputs[0];
    lamb_kernel(lamb, 1, lamb->parts);
    Kernel *kernel = update->kernel;
    Register length = kernel_load(kernel, lamb_operand(lamb, room, 0, 0, 1));
    Register step_length = kernel_load(kernel, lamb_operand(lamb, room, lamb->parts, 0, 1));
    int to = lamb_operand(lamb, room, 2 * lamb->parts, 0, 0);
    length = kernel_reduce(kernel, KERNEL_SUM, length);
    step_length = kernel_reduce(kernel, KERNEL_SUM, step_length);
    kernel_begin_phase(kernel, false);
    length = kernel_unary(kernel, KERNEL_SQRT, length);
    step_length = kernel_unary(kernel, KERNEL_SQRT, step_length);
    Register zero = kernel_constant(kernel, update->type, 0), one = kernel_constant(kernel, update->type, 1);
    Register ratio = kernel_binary(kernel, KERNEL_DIVIDE, length, step_length);
    Register has_length = kernel_binary(kernel, KERNEL_LESS, zero, length);
    Register has_step = kernel_binary(kernel, KERNEL_LESS, zero, step_length);
    Register both = kernel_binary(kernel, KERNEL_AND, has_length, has_step);
    Register factor = kernel_select(kernel, both, ratio, one);
    kernel_store(kernel, to, kernel_multiply(update->kernel, load_scalar(update, SKY_STEP_LEARNING_RATE), factor));
    lower_end(update->lowering);
}

static void lower_lamb_step(Lamb *lamb)
{
    Update *update = &lamb->update;
    const Node *node = lamb->node;
    lamb_kernel(lamb, 1, lamb->elements);
    Kernel *kernel = update->kernel;
    update->parameter = lamb_operand(lamb, node->inputs[0], 0, 0, 1);
    Register first = kernel_load(kernel, lamb_operand(lamb, node->inputs[3], 0, 0, 1));
    Register second = kernel_load(kernel, lamb_operand(lamb, node->inputs[4], 0, 0, 1));
    Register rate = kernel_load(kernel, lamb_operand(lamb, node->outputs[0], 2 * lamb->parts, 0, 0));
    Register value = kernel_load(kernel, update->parameter);
    Register change = kernel_multiply(update->kernel, rate, lamb_direction(update, value, first, second));
    kernel_store(kernel, update->parameter, kernel_subtract(update->kernel, value, change));
    lower_end(update->lowering);
}

/* The lengths of parameter and step need all elements before any can change. */
void lower_lamb_update(Lowering *lowering, const Node *node)
{
    Lamb lamb = lamb_begin(lowering, node);
    lower_lamb_moments(&lamb);
    lower_lamb_rate(&lamb);
    lower_lamb_step(&lamb);
}
