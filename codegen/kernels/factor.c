#include "codegen/kernels/factor.h"

#include "codegen/kernels/arithmetic.h"
#include "codegen/kernels/emit_blocks.h"

Factor factor_of(Emit *emit, const Kernel *kernel, int number, int axis)
{
    const KernelOperand *operand = &kernel->operands[number];
    return (Factor){.emit = emit,
                    .dtype = operand->dtype,
                    .along_k = operand->stride[kernel->axis_count - 1],
                    .across = axis < 0 ? 0 : operand->stride[axis]};
}

bool factor_is_known(DType dtype) { return dtype == DTYPE_F32 || dtype == DTYPE_BF16 || dtype_in_blocks(dtype); }

bool factor_is_bf16(const Factor *factor) { return factor->dtype == DTYPE_BF16; }

int64_t factor_bytes(const Factor *factor, int64_t elements)
{
    int64_t whole =
        dtype_in_blocks(factor->dtype) ? (elements + DTYPE_BLOCK - 1) / DTYPE_BLOCK * DTYPE_BLOCK : elements;
    return dtype_bytes(factor->dtype, whole);
}

Ir factor_memory(const Factor *factor, Ir address)
{
    return dtype_in_blocks(factor->dtype) ? emit_block_address(factor->emit, address) : address;
}

Ir factor_skip(const Factor *factor, Ir base, Ir elements)
{
    return emit_element_address(factor->emit, factor->dtype, base, elements);
}

Ir factor_at(const Factor *factor, Ir base, Ir across, Ir k)
{
    Emit *emit = factor->emit;
    Ir offset = emit_add(emit, emit_mul(emit, across, factor->across), emit_mul(emit, k, factor->along_k));
    return factor_skip(factor, base, offset);
}

Ir factor_load_raw(const Factor *factor, Ir address, int64_t stride, int lanes, Ir mask)
{
    Emit *emit = factor->emit;
    LLVMTypeRef type = emit_memory_type(emit, factor->dtype);
    unsigned alignment = (unsigned)dtype_size(factor->dtype);
    if (dtype_in_blocks(factor->dtype) && stride == 1 && !mask && lanes <= DTYPE_BLOCK / 2)
        return emit_block_load(emit, factor->dtype, address, lanes);
    if (dtype_in_blocks(factor->dtype))
        return emit_block_gather(emit, factor->dtype, address, emit_iota(emit, stride, lanes), mask);
    if (stride == 1) return emit_load(emit, emit_vector_type(type, lanes), address, mask, alignment);
    return emit_gather(emit, type, address, emit_iota(emit, stride, lanes), mask);
}

Ir factor_load(const Factor *factor, Ir address, int64_t stride, int lanes, Ir mask)
{
    return arithmetic_widen(factor->emit, factor->dtype, factor_load_raw(factor, address, stride, lanes, mask));
}
