/* What becomes of elements that are 0 where they would have been computed: whether a kernel could divide by one. */
#include <math.h>

#include "graph/kernel/kernel.h"

static KernelSign least_sign(KernelSign a, KernelSign b) { return a < b ? a : b; }
static KernelSign greatest_sign(KernelSign a, KernelSign b) { return a > b ? a : b; }

static KernelSign sign_of_number(double number)
{
    return number > 0 ? SIGN_POSITIVE : number == 0 ? SIGN_NOT_NEGATIVE : SIGN_ANY;
}

static KernelSign sign_of_constant(const KernelInstruction *constant)
{
    bool is_float = dtype_is_float((DType)constant->type);
    return sign_of_number(is_float ? constant->constant.number : (double)constant->constant.integer);
}

/* A sum is positive if one of its parts is and none is negative. */
static KernelSign sign_of_sum(KernelSign a, KernelSign b)
{
    return least_sign(a, b) == SIGN_ANY ? SIGN_ANY : greatest_sign(a, b);
}

static KernelSign sign_of(const KernelInstruction *instruction, KernelSign a, KernelSign b, KernelSign c)
{
    switch (instruction->op) {
    case KERNEL_CONSTANT: return sign_of_constant(instruction);
    case KERNEL_AXIS: return SIGN_NOT_NEGATIVE;
    case KERNEL_SUM:
    case KERNEL_PRODUCT:
    case KERNEL_MAXIMUM_OF:
    case KERNEL_MINIMUM_OF:
    case KERNEL_CONVERT:
    case KERNEL_RECIPROCAL: return a;
    case KERNEL_ABSOLUTE: return greatest_sign(a, SIGN_NOT_NEGATIVE);
    case KERNEL_SQRT: return greatest_sign(a, SIGN_NOT_NEGATIVE);
    case KERNEL_EXP:
    case KERNEL_SIGMOID: return SIGN_POSITIVE;
    case KERNEL_ADD: return sign_of_sum(a, b);
    case KERNEL_MULTIPLY:
        return instruction->a == instruction->b ? greatest_sign(a, SIGN_NOT_NEGATIVE) : least_sign(a, b);
    case KERNEL_DIVIDE:
    case KERNEL_MINIMUM: return least_sign(a, b);
    case KERNEL_MAXIMUM: return greatest_sign(a, b);
    case KERNEL_SELECT: return least_sign(b, c);
    default: return SIGN_ANY;
    }
}

/* The instruction's register whose sign must be known, and what it has to be at least: a divisor is not 0, what a root
 * is taken of not negative. 0: there is none. */
static Register limited_register(const Kernel *kernel, const KernelInstruction *instruction, KernelSign *least)
{
    *least = SIGN_POSITIVE;
    if (!dtype_is_float((DType)instruction->type)) return 0;
    switch (instruction->op) {
    case KERNEL_DIVIDE:
    case KERNEL_REMAINDER: return instruction->b;
    case KERNEL_LOG:
    case KERNEL_RECIPROCAL: return instruction->a;
    case KERNEL_SQRT: *least = SIGN_NOT_NEGATIVE; return instruction->a;
    case KERNEL_POWER: {
        const KernelInstruction *exponent = kernel_instruction(kernel, instruction->b);
        if (exponent->op != KERNEL_CONSTANT || exponent->constant.number < 0) return instruction->a;
        *least = SIGN_NOT_NEGATIVE;
        return exponent->constant.number == floor(exponent->constant.number) ? 0 : instruction->a;
    }
    default: return 0;
    }
}

static KernelZeros of_register(const KernelZeros *known, Register r)
{
    return r ? known[r] : (KernelZeros){.sign = SIGN_POSITIVE};
}

/* Rows and their bytes are computed from each other. */
static void pass_coding(const KernelInstruction *coding, KernelZeros *operands)
{
    KernelZeros *row = &operands[coding->operand], *bytes = &operands[kernel_coding_bytes(coding)];
    *row = *bytes = (KernelZeros){row->from_zeros || bytes->from_zeros, SIGN_ANY};
}

bool kernel_bears_zeros(const Kernel *kernel, KernelZeros *operands)
{
    KernelZeros known[KERNEL_MAX_INSTRUCTIONS + 1] = {0};
    for (Register r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        KernelZeros a = of_register(known, instruction->a), b = of_register(known, instruction->b),
                    c = of_register(known, instruction->c);
        KernelOp op = (KernelOp)instruction->op;
        KernelSign least;
        Register limited = limited_register(kernel, instruction, &least);
        if (limited && known[limited].from_zeros && known[limited].sign < least) return false;
        if (kernel_op_is_store(op)) {
            KernelZeros *to = &operands[instruction->operand];
            bool adds = op == KERNEL_STORE_ADD;
            *to =
                (KernelZeros){a.from_zeros || (adds && to->from_zeros), adds ? sign_of_sum(a.sign, to->sign) : a.sign};
            continue;
        }
        known[r] =
            (KernelZeros){a.from_zeros || b.from_zeros || c.from_zeros, sign_of(instruction, a.sign, b.sign, c.sign)};
        if (op == KERNEL_LOAD) known[r] = operands[instruction->operand];
    }
    const KernelInstruction *coding = kernel_coding_of(kernel);
    if (coding) pass_coding(coding, operands);
    return true;
}
