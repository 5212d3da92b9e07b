#include <inttypes.h>

#include "graph/kernel/kernel.h"

static const char *const names[KERNEL_OP_COUNT] = {
    [KERNEL_CONSTANT] = "constant",
    [KERNEL_AXIS] = "axis",
    [KERNEL_LOAD] = "load",
    [KERNEL_RANDOM] = "random",
    [KERNEL_STORE] = "store",
    [KERNEL_STORE_ADD] = "store_add",
    [KERNEL_ENCODE] = "encode",
    [KERNEL_DECODE] = "decode",
    [KERNEL_SUM] = "sum",
    [KERNEL_PRODUCT] = "product",
    [KERNEL_MAXIMUM_OF] = "maximum_of",
    [KERNEL_MINIMUM_OF] = "minimum_of",
    [KERNEL_CONVERT] = "convert",
    [KERNEL_NEGATE] = "negate",
    [KERNEL_ABSOLUTE] = "absolute",
    [KERNEL_SIGN] = "sign",
    [KERNEL_EXP] = "exp",
    [KERNEL_LOG] = "log",
    [KERNEL_SQRT] = "sqrt",
    [KERNEL_RECIPROCAL] = "reciprocal",
    [KERNEL_SIN] = "sin",
    [KERNEL_COS] = "cos",
    [KERNEL_ERF] = "erf",
    [KERNEL_TANH] = "tanh",
    [KERNEL_SIGMOID] = "sigmoid",
    [KERNEL_NORMAL_BELOW] = "normal_below",
    [KERNEL_NORMAL_DENSITY] = "normal_density",
    [KERNEL_NOT] = "not",
    [KERNEL_IS_NAN] = "is_nan",
    [KERNEL_ADD] = "add",
    [KERNEL_SUBTRACT] = "subtract",
    [KERNEL_MULTIPLY] = "multiply",
    [KERNEL_MULTIPLY_BF16] = "multiply_bf16",
    [KERNEL_MULTIPLY_BF16X3] = "multiply_bf16x3",
    [KERNEL_DIVIDE] = "divide",
    [KERNEL_REMAINDER] = "remainder",
    [KERNEL_POWER] = "power",
    [KERNEL_MINIMUM] = "minimum",
    [KERNEL_MAXIMUM] = "maximum",
    [KERNEL_EQUAL] = "equal",
    [KERNEL_LESS] = "less",
    [KERNEL_LESS_EQUAL] = "less_equal",
    [KERNEL_AND] = "and",
    [KERNEL_OR] = "or",
    [KERNEL_SELECT] = "select",
};

static void print_list(Buffer *buffer, const int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++) buffer_print(buffer, i ? ",%" PRId64 : "%" PRId64, numbers[i]);
}

static void print_constant(Buffer *buffer, const KernelInstruction *instruction)
{
    if (dtype_is_float((DType)instruction->type))
        buffer_print(buffer, " %.17g", instruction->constant.number);
    else
        buffer_print(buffer, " %" PRId64, instruction->constant.integer);
}

static void print_instruction(Buffer *buffer, const Kernel *kernel, Register r)
{
    const KernelInstruction *instruction = kernel_instruction(kernel, r);
    bool store = kernel_op_is_store(instruction->op);
    if (kernel_op_is_coding(instruction->op))
        buffer_print(buffer, "    %s.%s operand%d operand%d", names[instruction->op],
                     codec_name(kernel_coding_codec(instruction)), instruction->operand,
                     kernel_coding_bytes(instruction));
    else if (store)
        buffer_print(buffer, "    %s", names[instruction->op]);
    else
        buffer_print(buffer, "    r%d = %s.%s", r, names[instruction->op], dtype_name((DType)instruction->type));
    if (instruction->op == KERNEL_CONSTANT) print_constant(buffer, instruction);
    if (instruction->op == KERNEL_AXIS) buffer_print(buffer, " %d", instruction->operand);
    if (instruction->op == KERNEL_LOAD || instruction->op == KERNEL_RANDOM || store)
        buffer_print(buffer, " operand%d", instruction->operand);
    Register offset = instruction->op == KERNEL_LOAD ? instruction->a : store ? instruction->b : 0;
    if (offset) buffer_print(buffer, "[+r%d]", offset);
    if (store) {
        buffer_print(buffer, " r%d", instruction->a);
    } else if (instruction->op != KERNEL_LOAD) {
        Register arguments[3] = {instruction->a, instruction->b, instruction->c};
        for (int i = 0; i < 3 && arguments[i]; i++) buffer_print(buffer, " r%d", arguments[i]);
    }
    buffer_print(buffer, "\n");
}

void kernel_print(const Kernel *kernel, Buffer *buffer)
{
    buffer_print(buffer, "kernel %s [", kernel->label);
    print_list(buffer, kernel->extent, kernel->axis_count);
    buffer_print(buffer, "]");
    if (kernel->block_axes) buffer_print(buffer, " in blocks by %d axes", kernel->block_axes);
    if (kernel->keeps_b) buffer_print(buffer, " keeping its factor b");
    if (kernel->limited) buffer_print(buffer, " to a limit of its sum");
    buffer_print(buffer, "\n");
    for (int i = 0; i < kernel->operand_count; i++) {
        const KernelOperand *operand = &kernel->operands[i];
        buffer_print(buffer, "  operand%d %s%s%s (", i, dtype_name(operand->dtype), operand->read ? " read" : "",
                     operand->written ? " written" : "");
        print_list(buffer, operand->stride, kernel->axis_count);
        buffer_print(buffer, ")");
        if (operand->elements) buffer_print(buffer, " of %" PRId64, operand->elements);
        buffer_print(buffer, "\n");
    }
    for (int i = 0; i < kernel->phase_count; i++) {
        const KernelPhase *phase = &kernel->phases[i];
        buffer_print(buffer, "  %s\n", phase->inner ? "inner" : "scalar");
        for (int k = 0; k < phase->count; k++) print_instruction(buffer, kernel, (Register)(phase->first + k));
    }
}
