/* What kind of a kernel it is. */
#include "base/diagnostics.h"
#include "graph/kernel/kernel.h"

const KernelPhase *kernel_phase_of(const Kernel *kernel, Register r)
{
    for (int p = 0; p < kernel->phase_count; p++)
        if (r >= kernel->phases[p].first && r < kernel->phases[p].first + kernel->phases[p].count)
            return &kernel->phases[p];
    bug("kernel %s: register %u belongs to no phase", kernel->label, r);
}

bool kernel_reads_axis(const Kernel *kernel, int axis)
{
    for (Register r = 1; r <= kernel->instruction_count; r++)
        if (kernel_instruction(kernel, r)->op == KERNEL_AXIS && kernel_instruction(kernel, r)->operand == axis)
            return true;
    return false;
}

bool kernel_inner_axis_is_sequential(const Kernel *kernel)
{
    if (kernel_inner_extent(kernel) == 1) return false;
    for (int p = 0; p < kernel->phase_count; p++)
        for (int i = 0; kernel->phases[p].inner && i < kernel->phases[p].count; i++) {
            const KernelInstruction *instruction = &kernel->instructions[kernel->phases[p].first - 1 + i];
            if (!kernel_op_is_store(instruction->op)) continue;
            if (instruction->b || !kernel->operands[instruction->operand].stride[kernel->axis_count - 1]) return true;
        }
    return false;
}

bool kernel_is_map(const Kernel *kernel)
{
    for (int i = 0; i < kernel->phase_count; i++)
        if (!kernel->phases[i].inner) return false;
    for (int i = 0; i < kernel->instruction_count; i++) {
        const KernelInstruction *instruction = &kernel->instructions[i];
        if (kernel_op_is_reduction(instruction->op) || kernel_op_is_coding(instruction->op)) return false;
        if (kernel_op_is_store(instruction->op) && instruction->b) return false;
    }
    return !kernel_inner_axis_is_sequential(kernel);
}

bool kernel_is_elementwise(const Kernel *kernel)
{
    for (int i = 0; i < kernel->instruction_count; i++) {
        const KernelInstruction *instruction = &kernel->instructions[i];
        if (instruction->op == KERNEL_AXIS) return false;
        if (kernel_op_is_access(instruction->op) && kernel_access_offset(instruction)) return false;
    }
    return kernel->phase_count == 1 && kernel_is_map(kernel);
}

/* ---- Classes ---- */

/* The operands of the product that the first phase sums, if it does nothing else and only scalar phases follow. */
static bool match_product_sum(const Kernel *kernel, int operands[2], KernelGemm *gemm)
{
    if (kernel->phase_count < 2 || !kernel->phases[0].inner || kernel->phases[0].count != 4) return false;
    for (int i = 1; i < kernel->phase_count; i++)
        if (kernel->phases[i].inner) return false;
    const KernelInstruction *load_a = &kernel->instructions[0], *load_b = &kernel->instructions[1];
    const KernelInstruction *product = &kernel->instructions[2], *total = &kernel->instructions[3];
    if (load_a->op != KERNEL_LOAD || load_a->a || load_b->op != KERNEL_LOAD || load_b->a) return false;
    gemm->precision = product->op == KERNEL_MULTIPLY_BF16     ? PRODUCTS_BF16
                      : product->op == KERNEL_MULTIPLY_BF16X3 ? PRODUCTS_BF16X3
                                                              : PRODUCTS_F32;
    if (product->op != KERNEL_MULTIPLY && gemm->precision == PRODUCTS_F32) return false;
    if (product->a + product->b != 3 || product->a == product->b) return false;
    if (total->op != KERNEL_SUM || total->a != 3 || !dtype_is_float((DType)total->type)) return false;
    operands[0] = load_a->operand;
    operands[1] = load_b->operand;
    gemm->sum = 4;
    return operands[0] != operands[1];
}

/* The operand that the epilogue stores to; -1 if it stores at computed places or not at all. */
static int stored_operand(const Kernel *kernel)
{
    int stored = -1;
    for (int i = 0; i < kernel->instruction_count; i++) {
        const KernelInstruction *instruction = &kernel->instructions[i];
        if (!kernel_op_is_store(instruction->op)) continue;
        if (instruction->b) return -1;
        if (stored < 0) stored = instruction->operand;
    }
    return stored;
}

/* The axis along which `moving` alone moves: the one where `stored` has stride 1, else the longest; -1 if there is
 * none. */
static int choose_axis(const Kernel *kernel, int moving, int still, int stored)
{
    int chosen = -1;
    for (int axis = 0; axis < kernel->axis_count - 1; axis++) {
        if (!kernel->operands[moving].stride[axis] || kernel->operands[still].stride[axis]) continue;
        if (kernel->operands[stored].stride[axis] == 1) return axis;
        if (chosen < 0 || kernel->extent[axis] >= kernel->extent[chosen]) chosen = axis;
    }
    return chosen;
}

bool kernel_match_gemm(const Kernel *kernel, KernelGemm *gemm)
{
    int operands[2];
    if (!match_product_sum(kernel, operands, gemm)) return false;
    int stored = stored_operand(kernel);
    if (stored < 0) return false;
    int first = choose_axis(kernel, operands[0], operands[1], stored);
    int second = choose_axis(kernel, operands[1], operands[0], stored);
    if (first < 0 && second < 0) return false;
    const int64_t *stride = kernel->operands[stored].stride;
    bool swap = first >= 0 && stride[first] == 1 && (second < 0 || stride[second] != 1);
    gemm->a = operands[swap];
    gemm->b = operands[!swap];
    gemm->row_axis = swap ? second : first;
    gemm->column_axis = swap ? first : second;
    return true;
}

bool kernel_can_limit_sum(const Kernel *kernel)
{
    enum { LEAST_SIDE = 4 }; /* fewer rows or columns are no product to some emitters */
    KernelGemm gemm;
    if (kernel->block_axes || kernel->keeps_b || !kernel_match_gemm(kernel, &gemm) || gemm.row_axis < 0 ||
        gemm.column_axis < 0 || kernel->instruction_count != gemm.sum + 1)
        return false;
    const KernelInstruction *store = kernel_instruction(kernel, (Register)(gemm.sum + 1));
    const KernelOperand *stored = &kernel->operands[store->operand];
    return store->op == KERNEL_STORE_ADD && store->a == gemm.sum && kernel_type(kernel, gemm.sum) == DTYPE_F32 &&
           stored->dtype == DTYPE_F32 && stored->stride[gemm.column_axis] == 1 &&
           kernel->extent[gemm.row_axis] >= LEAST_SIDE && kernel->extent[gemm.column_axis] >= LEAST_SIDE &&
           !dtype_in_blocks(kernel->operands[gemm.a].dtype) && !dtype_in_blocks(kernel->operands[gemm.b].dtype);
}

const KernelInstruction *kernel_coding_of(const Kernel *kernel)
{
    const KernelInstruction *last = kernel_instruction(kernel, (Register)kernel->instruction_count);
    return kernel->instruction_count && kernel_op_is_coding(last->op) ? last : NULL;
}

KernelClass kernel_classify(const Kernel *kernel)
{
    if (kernel_coding_of(kernel)) return KERNEL_CLASS_CODING;
    for (int i = 0; i < kernel->instruction_count; i++)
        if (kernel_op_is_store(kernel->instructions[i].op) && kernel->instructions[i].b) return KERNEL_CLASS_SCATTER;
    KernelGemm gemm;
    return kernel_match_gemm(kernel, &gemm) ? KERNEL_CLASS_GEMM : KERNEL_CLASS_LOOP;
}
