#include "codegen/kernels/hidden_sums.h"

/* Whether something is stored that depends on the sum, where `select` takes what is not from it. */
static bool is_read(const Kernel *kernel, Register sum, Register select)
{
    bool depends[KERNEL_MAX_INSTRUCTIONS + 1] = {false};
    depends[sum] = true;
    for (Register r = (Register)(sum + 1); r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        depends[r] = depends[instruction->a] || (r != select && depends[instruction->b]) || depends[instruction->c];
        if (depends[r] && kernel_op_is_store(instruction->op)) return true;
    }
    return false;
}

static bool is_mask(const Kernel *kernel, const KernelGemm *match, const KernelInstruction *load)
{
    const KernelOperand *operand = &kernel->operands[load->operand];
    return load->op == KERNEL_LOAD && operand->dtype == DTYPE_BOOL && !load->a && !operand->written &&
           match->row_axis >= 0 && match->column_axis >= 0 && operand->stride[match->column_axis] == 1;
}

HiddenSums hidden_sums_find(const Kernel *kernel, const KernelGemm *match)
{
    HiddenSums hidden = {0};
    for (Register r = (Register)(match->sum + 1); r <= kernel->instruction_count && hidden.count < 2; r++) {
        const KernelInstruction *select = kernel_instruction(kernel, r);
        if (select->op == KERNEL_SELECT && is_mask(kernel, match, kernel_instruction(kernel, select->a)) &&
            !is_read(kernel, match->sum, r))
            hidden.load[hidden.count++] = select->a;
    }
    return hidden;
}

/* Whether any condition of the load holds. */
static Ir any_holds(Body *body, int operand, int64_t pitch, int rows)
{
    Emit *emit = body->emit;
    unsigned bytes = (unsigned)(body->lanes * body->copies);
    LLVMTypeRef vector = LLVMVectorType(emit->i8, bytes), whole = LLVMIntTypeInContext(emit->context, 8 * bytes);
    Ir first = body_address(body, operand, 0, 0, false), any = NULL;
    for (int r = 0; r < rows; r++) {
        Ir more = emit_load(emit, vector, emit_address(emit, emit->i8, first, emit_i64(emit, r * pitch)), NULL, 1);
        any = any && pitch ? emit_or(emit, any, more) : more;
    }
    any = LLVMBuildBitCast(emit->builder, any, whole, "");
    return emit_compare(emit, LLVMIntNE, any, LLVMConstNull(whole));
}

Ir hidden_sums_any_visible(Body *body, const HiddenSums *hidden, const KernelGemm *match, int rows)
{
    Ir visible = NULL;
    for (int copy = 0; copy < body->copies; copy++)
        if (body->mask[copy]) return NULL;
    for (int i = 0; i < hidden->count; i++) {
        int operand = kernel_instruction(body->kernel, hidden->load[i])->operand;
        Ir any = any_holds(body, operand, body->kernel->operands[operand].stride[match->row_axis], rows);
        visible = visible ? emit_and(body->emit, visible, any) : any;
    }
    return visible;
}
