/* Packing of factors into blocks of bf16 pairs: 16 lines of 16 pairs. A line is either 16 consecutive pairs of k of one
 * row (or column), or one pair of k of 16 rows; which of the two lies contiguous in memory is read, and transposed
 * where the block wants the other. */
#include "codegen/gemm_bf16.h"
#include "codegen/gemm_pack.h"

enum { LANES = 16 };

enum { PACK_SOURCE, PACK_PACKED, PACK_EXTENT, PACK_DEPTH };

typedef struct Packer {
    Emit *emit;
    bool along_k;       /* lines are read along k */
    bool lines_along_k; /* and stored so */
    int64_t k, other;   /* strides */
    Ir source, packed, extent, depth;
    Ir steps; /* blocks along k */
} Packer;

static LLVMTypeRef f32_vector(const Packer *packer) { return emit_vector_type(packer->emit->f32, LANES); }

/* The lanes that are below `count` - `first`. */
static Ir lanes_below(const Packer *packer, Ir count, Ir first)
{
    Emit *emit = packer->emit;
    Ir left = LLVMBuildSub(emit->builder, count, first, "");
    return LLVMBuildICmp(emit->builder, LLVMIntSGT, emit_broadcast(emit, left, LANES), emit_iota(emit, 1, LANES), "");
}

static Ir all_if(const Packer *packer, Ir condition) { return emit_broadcast(packer->emit, condition, LANES); }

static Ir at_most(const Packer *packer, Ir value, Ir limit)
{
    LLVMBuilderRef builder = packer->emit->builder;
    return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSLT, value, limit, ""), value, limit, "");
}

/* 16 floats at `other`, `k`, consecutive or strided along the line. */
static Ir load_floats(const Packer *packer, Ir other, Ir k, Ir mask)
{
    Emit *emit = packer->emit;
    Ir offset = emit_add(emit, emit_mul(emit, other, packer->other), emit_mul(emit, k, packer->k));
    Ir address = emit_address(emit, emit->f32, packer->source, offset);
    int64_t stride = packer->along_k ? packer->k : packer->other;
    if (stride == 1) return emit_load(emit, f32_vector(packer), address, mask, 4);
    return emit_gather(emit, emit->f32, address, emit_iota(emit, stride, LANES), mask);
}

/* Rounds 32 floats: the low 16 come first. Returned as 16 pairs. */
static Ir rounded(const Packer *packer, Ir low, Ir high)
{
    Emit *emit = packer->emit;
    Ir both = emit_intrinsic(emit, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", NULL, 0, (Ir[]){high, low}, 2);
    return LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i32, LANES), "");
}

/* Pairs k, k + 1 ... k + 31 of one row; rows that do not exist repeat the last one. */
static Ir line_of_row(const Packer *packer, Ir row, Ir k)
{
    Emit *emit = packer->emit;
    Ir last = emit_add(emit, packer->extent, emit_i64(emit, -1)), half[2];
    row = at_most(packer, row, last);
    for (int i = 0; i < 2; i++) {
        Ir first = emit_add(emit, k, emit_i64(emit, LANES * i));
        half[i] = load_floats(packer, row, first, lanes_below(packer, packer->depth, first));
    }
    return rounded(packer, half[0], half[1]);
}

/* Pair k, k + 1 of 16 rows: the two halves of the rounded vector are interleaved. */
static Ir line_of_pair(const Packer *packer, Ir row, Ir k)
{
    Emit *emit = packer->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir exists = lanes_below(packer, packer->extent, row), half[2], order[2 * LANES];
    for (int i = 0; i < 2; i++) {
        Ir at = emit_add(emit, k, emit_i64(emit, i));
        Ir inside = all_if(packer, LLVMBuildICmp(builder, LLVMIntSLT, at, packer->depth, ""));
        half[i] = load_floats(packer, row, at, LLVMBuildAnd(builder, exists, inside, ""));
    }
    Ir both = LLVMBuildBitCast(builder, rounded(packer, half[0], half[1]), LLVMVectorType(emit->i16, 2 * LANES), "");
    for (int i = 0; i < 2 * LANES; i++) order[i] = emit_i32(emit, i % 2 * LANES + i / 2);
    Ir interleaved =
        LLVMBuildShuffleVector(builder, both, LLVMGetPoison(LLVMTypeOf(both)), LLVMConstVector(order, 2 * LANES), "");
    return LLVMBuildBitCast(builder, interleaved, LLVMVectorType(emit->i32, LANES), "");
}

static void pack_block(const Packer *packer, Ir row, Ir k)
{
    Emit *emit = packer->emit;
    Ir line[LANES];
    for (int i = 0; i < LANES; i++) {
        line[i] = packer->along_k ? line_of_row(packer, emit_add(emit, row, emit_i64(emit, i)), k)
                                  : line_of_pair(packer, row, emit_add(emit, k, emit_i64(emit, 2 * i)));
    }
    if (packer->along_k != packer->lines_along_k) gemm_transpose(emit, line, LANES);
    Ir block = LLVMBuildMul(emit->builder, LLVMBuildLShr(emit->builder, row, emit_i64(emit, 4), ""), packer->steps, "");
    block = emit_add(emit, block, LLVMBuildLShr(emit->builder, k, emit_i64(emit, 5), ""));
    Ir to = emit_address(emit, emit->i8, packer->packed, emit_mul(emit, block, BF16_BLOCK_BYTES));
    for (int i = 0; i < LANES; i++) {
        emit_store(emit, line[i], emit_address(emit, emit->i8, to, emit_i64(emit, 64 * i)), NULL, 64);
    }
}

LLVMTypeRef bf16_pack_type(Emit *emit)
{
    LLVMTypeRef parameters[] = {emit->pointer, emit->pointer, emit->i64, emit->i64};
    return LLVMFunctionType(emit->void_type, parameters, 4, false);
}

LLVMValueRef bf16_emit_pack(Emit *emit, const Kernel *kernel, const Bf16Plan *plan, bool is_b, const char *name)
{
    const KernelOperand *operand = &kernel->operands[is_b ? plan->match.b : plan->match.a];
    int axis = is_b ? plan->match.column_axis : plan->match.row_axis;
    LLVMValueRef function = emit_function(emit, name, bf16_pack_type(emit), true);
    Packer packer = {.emit = emit, .lines_along_k = !is_b};
    packer.k = operand->stride[kernel->axis_count - 1];
    packer.other = axis < 0 ? 0 : operand->stride[axis];
    packer.along_k = packer.k == 1 || packer.other != 1;
    packer.source = LLVMGetParam(function, PACK_SOURCE);
    packer.packed = LLVMGetParam(function, PACK_PACKED);
    packer.extent = LLVMGetParam(function, PACK_EXTENT);
    packer.depth = LLVMGetParam(function, PACK_DEPTH);
    Ir more = emit_add(emit, packer.depth, emit_i64(emit, BF16_STEP - 1));
    packer.steps = LLVMBuildLShr(emit->builder, more, emit_i64(emit, 5), "");
    /* The inner loop walks through memory. */
    Loop outer, inner;
    Ir zero = emit_i64(emit, 0);
    emit_loop_begin(emit, &outer, zero, packer.along_k ? packer.extent : packer.depth,
                    packer.along_k ? BF16_BLOCK : BF16_STEP, 0, NULL);
    emit_loop_begin(emit, &inner, zero, packer.along_k ? packer.depth : packer.extent,
                    packer.along_k ? BF16_STEP : BF16_BLOCK, 0, NULL);
    pack_block(&packer, packer.along_k ? outer.index : inner.index, packer.along_k ? inner.index : outer.index);
    emit_loop_end(emit, &inner, NULL);
    emit_loop_end(emit, &outer, NULL);
    LLVMBuildRetVoid(emit->builder);
    return function;
}
