#include "codegen/kernels/zero_range.h"

/* Whether the step from `k` on has nothing but zeros, of either sign. */
static Ir step_is_zero(Emit *emit, const ZeroRange *range, Ir a, Ir k)
{
    LLVMTypeRef vector = LLVMVectorType(range->integer, (unsigned)range->lanes);
    Ir here = emit_address(emit, emit->i8, a, emit_mul(emit, k, range->k_bytes)), bits = NULL;
    for (int i = 0; i < range->pieces; i++) {
        Ir address = emit_address(emit, emit->i8, here, emit_i64(emit, i * range->piece_bytes));
        Ir more = emit_load(emit, vector, address, range->mask, LLVMGetIntTypeWidth(range->integer) / 8);
        bits = bits ? emit_or(emit, bits, more) : more;
    }
    bits = LLVMBuildAdd(emit->builder, bits, bits, ""); /* without the sign */
    Ir lanes = emit_compare(emit, LLVMIntNE, bits, LLVMConstNull(vector));
    LLVMTypeRef set = LLVMIntTypeInContext(emit->context, (unsigned)range->lanes);
    lanes = LLVMBuildBitCast(emit->builder, lanes, set, "");
    return emit_compare(emit, LLVMIntEQ, lanes, LLVMConstNull(set));
}

/* From `k` on towards `limit`, as long as steps are zero: forward, or backward the steps that end at k. */
static Ir skip_zeros(Emit *emit, const ZeroRange *range, Ir a, Ir k, Ir limit, bool forward)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(emit->builder), header, body, exit;
    header = LLVMAppendBasicBlockInContext(emit->context, emit->function, "zeros");
    body = LLVMAppendBasicBlockInContext(emit->context, emit->function, "look");
    exit = LLVMAppendBasicBlockInContext(emit->context, emit->function, "found");
    LLVMBuildBr(emit->builder, header);
    LLVMPositionBuilderAtEnd(emit->builder, header);
    Ir here = LLVMBuildPhi(emit->builder, emit->i64, "");
    LLVMAddIncoming(here, &k, &before, 1);
    LLVMBuildCondBr(emit->builder, emit_compare(emit, LLVMIntNE, here, limit), body, exit);
    LLVMPositionBuilderAtEnd(emit->builder, body);
    Ir next = emit_add(emit, here, emit_i64(emit, forward ? range->step : -range->step));
    Ir zero = step_is_zero(emit, range, a, forward ? here : next);
    LLVMAddIncoming(here, &next, &body, 1);
    LLVMBuildCondBr(emit->builder, zero, header, exit);
    LLVMPositionBuilderAtEnd(emit->builder, exit);
    return here;
}

void zero_range_emit(Emit *emit, const ZeroRange *range, Ir a, Ir depth, Ir *first, Ir *end)
{
    *first = skip_zeros(emit, range, a, emit_i64(emit, 0), depth, true);
    *end = skip_zeros(emit, range, a, depth, *first, false);
}
