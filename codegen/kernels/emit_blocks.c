#include "codegen/kernels/emit_blocks.h"

enum { LANE_BITS = 5 }; /* log2 DTYPE_BLOCK */

static Ir integer_of(Emit *emit, Ir place) { return LLVMBuildPtrToInt(emit->builder, place, emit->i64, ""); }
static Ir pointer_of(Emit *emit, Ir integer) { return LLVMBuildIntToPtr(emit->builder, integer, emit->pointer, ""); }

Ir emit_block_place(Emit *emit, Ir address)
{
    Ir shifted = emit_shl(emit, integer_of(emit, address), emit_i64(emit, LANE_BITS));
    return pointer_of(emit, shifted);
}

Ir emit_block_address(Emit *emit, Ir place)
{
    return pointer_of(emit, emit_lshr(emit, integer_of(emit, place), emit_i64(emit, LANE_BITS)));
}

/* The number of an element in its block, and of the block: of `elements` after the first of a block. */
static Ir lane_of(Emit *emit, Ir elements)
{
    return emit_and(emit, elements, emit_integer_like(emit, elements, DTYPE_BLOCK - 1));
}

static Ir block_of(Emit *emit, Ir elements)
{
    return emit_ashr(emit, elements, emit_integer_like(emit, elements, LANE_BITS));
}

Ir emit_block_skip(Emit *emit, DType dtype, Ir place, Ir elements)
{
    Ir from = integer_of(emit, place), reached = emit_add(emit, lane_of(emit, from), elements);
    Ir block = emit_lshr(emit, from, emit_i64(emit, LANE_BITS));
    block = emit_add(emit, block, emit_mul(emit, block_of(emit, reached), dtype_bytes(dtype, DTYPE_BLOCK)));
    block = emit_shl(emit, block, emit_i64(emit, LANE_BITS));
    return pointer_of(emit, emit_or(emit, block, lane_of(emit, reached)));
}

static LLVMTypeRef lanes_like(LLVMTypeRef type, Ir like) { return emit_vector_type(type, emit_lanes(like)); }

/* Codes as bytes, and scales as bits of bf16, to numbers. */
static Ir scaled(Emit *emit, Ir codes, Ir scales)
{
    LLVMBuilderRef builder = emit->builder;
    Ir bits = LLVMBuildZExt(builder, scales, lanes_like(emit->i32, scales), "");
    bits = emit_shl(emit, bits, emit_integer_like(emit, bits, 16));
    Ir scale = emit_broadcast(emit, emit_bitcast(emit, bits, emit->f32), emit_lanes(codes));
    Ir whole = LLVMBuildSExt(builder, codes, lanes_like(emit->i32, codes), "");
    return LLVMBuildFMul(builder, LLVMBuildSIToFP(builder, whole, lanes_like(emit->f32, codes), ""), scale, "");
}

/* The integers of four bits in bytes, `shift` (0 or 4) from the right. */
static Ir four_bits(Emit *emit, Ir bytes, Ir shift)
{
    Ir code = emit_lshr(emit, bytes, emit_broadcast(emit, shift, emit_lanes(bytes)));
    code = emit_and(emit, code, emit_integer_like(emit, code, 15));
    return emit_sub(emit, code, emit_integer_like(emit, code, 8));
}

/* Of 4 bits: the byte of a lane, and its shift there. */
static Ir byte_of(Emit *emit, Ir lane)
{
    return emit_and(emit, lane, emit_integer_like(emit, lane, DTYPE_BLOCK / 2 - 1));
}

static Ir shift_of(Emit *emit, Ir lane)
{
    Ir half = emit_lshr(emit, lane, emit_integer_like(emit, lane, LANE_BITS - 1));
    half = emit_shl(emit, half, emit_integer_like(emit, half, 2));
    return LLVMBuildTrunc(emit->builder, half, lanes_like(emit->i8, half), "");
}

static Ir load_at(Emit *emit, LLVMTypeRef type, Ir base, Ir bytes, Ir mask)
{
    LLVMBuilderRef builder = emit->builder;
    int lanes = emit_lanes(bytes);
    Ir addresses = emit_address(emit, emit->i8, base, bytes);
    if (lanes == 1) return emit_load(emit, type, addresses, NULL, 1);
    (void)builder;
    LLVMTypeRef vector = LLVMVectorType(type, (unsigned)lanes), types[] = {vector, LLVMTypeOf(addresses)};
    if (!mask) mask = emit_lane_mask(emit, lanes, lanes);
    return emit_intrinsic(emit, "llvm.masked.gather", types, 2,
                          (Ir[]){addresses, emit_i32(emit, 1), mask, LLVMConstNull(vector)}, 4);
}

Ir emit_block_gather(Emit *emit, DType dtype, Ir place, Ir offsets, Ir mask)
{
    LLVMBuilderRef builder = emit->builder;
    int lanes = emit_lanes(offsets);
    Ir base = emit_block_address(emit, place), first = lane_of(emit, integer_of(emit, place));
    Ir reached = emit_add(emit, emit_broadcast(emit, first, lanes), offsets), lane = lane_of(emit, reached);
    Ir block = LLVMBuildMul(builder, block_of(emit, reached),
                            emit_integer_like(emit, reached, dtype_bytes(dtype, DTYPE_BLOCK)), "");
    Ir scales = load_at(emit, emit->i16, base, block, mask);
    Ir byte = emit_add(emit, block, dtype == DTYPE_Q8 ? lane : byte_of(emit, lane));
    byte = emit_add(emit, byte, emit_integer_like(emit, byte, DTYPE_SCALE_BYTES));
    Ir codes = load_at(emit, emit->i8, base, byte, mask);
    if (dtype == DTYPE_Q4) codes = four_bits(emit, codes, shift_of(emit, lane));
    return scaled(emit, codes, scales); /* what the mask leaves out has the scale 0 */
}

Ir emit_block_load(Emit *emit, DType dtype, Ir place, int lanes)
{
    Ir base = emit_block_address(emit, place), lane = lane_of(emit, integer_of(emit, place));
    Ir scale = emit_load(emit, emit->i16, base, NULL, 1);
    Ir byte = emit_add(emit, dtype == DTYPE_Q8 ? lane : byte_of(emit, lane), emit_i64(emit, DTYPE_SCALE_BYTES));
    Ir codes = emit_load(emit, emit_vector_type(emit->i8, lanes), emit_address(emit, emit->i8, base, byte), NULL, 1);
    if (dtype == DTYPE_Q4) codes = four_bits(emit, codes, shift_of(emit, lane));
    return scaled(emit, codes, scale);
}

/* ---- Operands ---- */

Ir emit_operand(Emit *emit, Ir array, int i, DType dtype)
{
    Ir address = emit_load(emit, emit->pointer, emit_address(emit, emit->pointer, array, emit_i64(emit, i)), NULL, 8);
    return dtype_in_blocks(dtype) ? emit_block_place(emit, address) : address;
}

Ir emit_element_address(Emit *emit, DType dtype, Ir base, Ir offset)
{
    if (dtype_in_blocks(dtype)) return emit_block_skip(emit, dtype, base, offset);
    return emit_address(emit, emit_memory_type(emit, dtype), base, offset);
}
