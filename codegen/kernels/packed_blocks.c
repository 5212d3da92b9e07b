/* A line is either 16 consecutive pairs of k of one row (or column), or one pair of k of 16 rows; which of the two lies
 * contiguous in memory is read, and transposed where the block wants the other. */
#include "codegen/kernels/packed_blocks.h"

enum { LANES = 16 };

/* The last two only of the function for the rest. */
enum { PACK_SOURCE, PACK_PACKED, PACK_EXTENT, PACK_DEPTH, PACK_ROW, PACK_K, PACK_PARAMETERS };

typedef struct BlockPacker {
    Emit *emit;
    bool along_k;       /* lines are read along k */
    bool lines_along_k; /* and stored so */
    const PackedLayout *layout;
    bool whole;       /* no masks */
    int64_t k, other; /* strides */
    Ir source, packed, extent, depth;
    Ir steps; /* blocks along k */
} BlockPacker;

static LLVMTypeRef f32_vector(const BlockPacker *packer) { return emit_vector_type(packer->emit->f32, LANES); }

/* The lanes that are below `count` - `first`. */
static Ir lanes_below(const BlockPacker *packer, Ir count, Ir first)
{
    Emit *emit = packer->emit;
    Ir left = LLVMBuildSub(emit->builder, count, first, "");
    return LLVMBuildICmp(emit->builder, LLVMIntSGT, emit_broadcast(emit, left, LANES), emit_iota(emit, 1, LANES), "");
}

static Ir all_if(const BlockPacker *packer, Ir condition) { return emit_broadcast(packer->emit, condition, LANES); }

static Ir at_most(const BlockPacker *packer, Ir value, Ir limit)
{
    LLVMBuilderRef builder = packer->emit->builder;
    return LLVMBuildSelect(builder, LLVMBuildICmp(builder, LLVMIntSLT, value, limit, ""), value, limit, "");
}

/* 16 floats at `other`, `k`, consecutive or strided along the line. */
static Ir load_floats(const BlockPacker *packer, Ir other, Ir k, Ir mask)
{
    Emit *emit = packer->emit;
    Ir offset = emit_add(emit, emit_mul(emit, other, packer->other), emit_mul(emit, k, packer->k));
    Ir address = emit_address(emit, emit->f32, packer->source, offset);
    int64_t stride = packer->along_k ? packer->k : packer->other;
    if (stride == 1) return emit_load(emit, f32_vector(packer), address, mask, 4);
    return emit_gather(emit, emit->f32, address, emit_iota(emit, stride, LANES), mask);
}

/* k ... k + 15 of one row; rows that do not exist repeat the last one. */
static Ir floats_of_row(const BlockPacker *packer, Ir row, Ir k)
{
    if (packer->whole) return load_floats(packer, row, k, NULL);
    row = at_most(packer, row, emit_add(packer->emit, packer->extent, emit_i64(packer->emit, -1)));
    return load_floats(packer, row, k, lanes_below(packer, packer->depth, k));
}

/* One k of 16 rows. */
static Ir floats_of_k(const BlockPacker *packer, Ir row, Ir k)
{
    if (packer->whole) return load_floats(packer, row, k, NULL);
    LLVMBuilderRef builder = packer->emit->builder;
    Ir inside = all_if(packer, LLVMBuildICmp(builder, LLVMIntSLT, k, packer->depth, ""));
    Ir exists = lanes_below(packer, packer->extent, row);
    return load_floats(packer, row, k, LLVMBuildAnd(builder, exists, inside, ""));
}

/* The vectors of a block as memory has them: of row i its k 0 ... 15 and 16 ... 31 at i and LANES + i, or k 0 ... 31 of
 * all rows. */
static void load_block(const BlockPacker *packer, Ir row, Ir k, Ir *floats)
{
    Emit *emit = packer->emit;
    for (int i = 0; i < 2 * LANES; i++) {
        floats[i] = packer->along_k ? floats_of_row(packer, emit_add(emit, row, emit_i64(emit, i % LANES)),
                                                    emit_add(emit, k, emit_i64(emit, i / LANES * LANES)))
                                    : floats_of_k(packer, row, emit_add(emit, k, emit_i64(emit, i)));
    }
}

/* The two vectors whose elements make line i, of floats as load_block() leaves them. */
static int low_of_line(bool along_k, int i) { return along_k ? i : 2 * i; }
static int high_of_line(bool along_k, int i) { return along_k ? LANES + i : 2 * i + 1; }

/* 16 pairs: the halves of a row one after the other, two k interleaved. Of the numbers in `low` and `high` every
 * `step`th counts: of floats seen as pairs of 16 bits, the upper half. */
static Ir pairs(const BlockPacker *packer, Ir low, Ir high, int step, bool along_k)
{
    Emit *emit = packer->emit;
    Ir order[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) {
        int vector = along_k ? i / LANES : i % 2, lane = along_k ? i % LANES : i / 2;
        order[i] = emit_i32(emit, vector * LANES * step + lane * step + step - 1);
    }
    Ir both = LLVMBuildShuffleVector(emit->builder, low, high, LLVMConstVector(order, 2 * LANES), "");
    return LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i32, LANES), "");
}

/* Rounds 32 floats: the low 16 come first. Returned as 16 pairs. */
static Ir rounded(const BlockPacker *packer, Ir low, Ir high, bool along_k)
{
    Emit *emit = packer->emit;
    Ir both = emit_intrinsic(emit, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", NULL, 0, (Ir[]){high, low}, 2);
    if (along_k) return LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i32, LANES), "");
    both = LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i16, 2 * LANES), "");
    Ir half[2];
    for (int h = 0; h < 2; h++) {
        Ir lanes[LANES];
        for (int i = 0; i < LANES; i++) lanes[i] = emit_i32(emit, h * LANES + i);
        half[h] = LLVMBuildShuffleVector(emit->builder, both, LLVMGetPoison(LLVMTypeOf(both)),
                                         LLVMConstVector(lanes, LANES), "");
    }
    return pairs(packer, half[0], half[1], 1, along_k);
}

/* The leading 8 bits of floats, to nearest, as a float; what is left remains in `value`, exactly. */
static Ir split_leading(const BlockPacker *packer, Ir *value)
{
    Emit *emit = packer->emit;
    LLVMBuilderRef builder = emit->builder;
    LLVMTypeRef bits = LLVMVectorType(emit->i32, LANES);
    Ir half = emit_broadcast(emit, emit_i32(emit, 0x8000), LANES);
    Ir mask = emit_broadcast(emit, emit_i32(emit, (int)0xFFFF0000), LANES);
    Ir leading = LLVMBuildAdd(builder, LLVMBuildBitCast(builder, *value, bits, ""), half, "");
    leading = LLVMBuildBitCast(builder, LLVMBuildAnd(builder, leading, mask, ""), f32_vector(packer), "");
    *value = LLVMBuildFSub(builder, *value, leading, "");
    return leading;
}

static void store_line(const BlockPacker *packer, Ir block, int part, int line, Ir value)
{
    Emit *emit = packer->emit;
    Ir address = emit_address(emit, emit->i8, block,
                              emit_i64(emit, part * PACKED_BLOCK_BYTES + line * packer->layout->line_pitch));
    emit_store(emit, value, address, NULL, 64);
}

/* Rounding first leaves half as much to transpose. */
static void pack_rounded(const BlockPacker *packer, Ir *floats, Ir block)
{
    Ir line[LANES];
    for (int i = 0; i < LANES; i++) {
        Ir low = floats[low_of_line(packer->along_k, i)], high = floats[high_of_line(packer->along_k, i)];
        line[i] = rounded(packer, low, high, packer->along_k);
    }
    if (packer->along_k != packer->lines_along_k) emit_transpose_square(packer->emit, line, LANES);
    for (int i = 0; i < LANES; i++) store_line(packer, block, 0, i, line[i]);
}

static void pack_split(const BlockPacker *packer, Ir *floats, Ir block)
{
    LLVMBuilderRef builder = packer->emit->builder;
    LLVMTypeRef halves = LLVMVectorType(packer->emit->i16, 2 * LANES);
    if (packer->along_k != packer->lines_along_k) {
        emit_transpose_square(packer->emit, floats, LANES);
        emit_transpose_square(packer->emit, floats + LANES, LANES);
    }
    for (int i = 0; i < LANES; i++) {
        Ir low = floats[low_of_line(packer->lines_along_k, i)], high = floats[high_of_line(packer->lines_along_k, i)];
        for (int part = 0; part < packer->layout->parts; part++) {
            bool last = part == packer->layout->parts - 1; /* of 8 bits, whole */
            Ir a = LLVMBuildBitCast(builder, last ? low : split_leading(packer, &low), halves, "");
            Ir b = LLVMBuildBitCast(builder, last ? high : split_leading(packer, &high), halves, "");
            store_line(packer, block, part, i, pairs(packer, a, b, 2, packer->lines_along_k));
        }
    }
}

static Ir block_address(const BlockPacker *packer, Ir row, Ir k)
{
    Emit *emit = packer->emit;
    LLVMBuilderRef builder = emit->builder;
    const PackedLayout *layout = packer->layout;
    Ir side = LLVMBuildLShr(builder, row, emit_i64(emit, 4), "");
    Ir before =
        layout->side_pitch ? emit_mul(emit, side, layout->side_pitch) : LLVMBuildMul(builder, side, packer->steps, "");
    Ir step = LLVMBuildLShr(builder, k, emit_i64(emit, 5), "");
    Ir offset = layout->side_pitch ? emit_add(emit, before, emit_mul(emit, step, layout->step_pitch))
                                   : emit_mul(emit, emit_add(emit, before, step), layout->step_pitch);
    return emit_address(emit, emit->i8, packer->packed, offset);
}

static void pack_block(BlockPacker *packer, Ir row, Ir k, bool whole)
{
    Ir floats[2 * LANES];
    packer->whole = whole;
    load_block(packer, row, k, floats);
    (packer->layout->parts > 1 ? pack_split : pack_rounded)(packer, floats, block_address(packer, row, k));
}

/* Where memory is read by the next turn of the outer loop: the processor does not see rows this far apart coming. */
static void prefetch_block(const BlockPacker *packer, Ir row, Ir k)
{
    Emit *emit = packer->emit;
    int64_t stride = packer->along_k ? packer->k : packer->other;
    if (stride != 1) return;
    int lines = packer->along_k ? PACKED_BLOCK : PACKED_STEP,
        line_floats = packer->along_k ? PACKED_STEP : PACKED_BLOCK;
    int64_t between = packer->along_k ? packer->other : packer->k;
    Ir offset = emit_add(emit, emit_mul(emit, row, packer->other), emit_mul(emit, k, packer->k));
    for (int i = 0; i < lines; i++) {
        for (int j = 0; j < line_floats; j += LANES) {
            Ir line = emit_add(emit, offset, emit_i64(emit, (lines + i) * between + j));
            emit_prefetch(emit, emit_address(emit, emit->f32, packer->source, line), PREFETCH_LEVEL2);
        }
    }
}

static BlockPacker packer_for(Emit *emit, const Kernel *kernel, const KernelGemm *match, const PackedLayout *layout,
                              bool is_b)
{
    const KernelOperand *operand = &kernel->operands[is_b ? match->b : match->a];
    int axis = is_b ? match->column_axis : match->row_axis;
    BlockPacker packer = {.emit = emit, .lines_along_k = !is_b, .layout = layout};
    packer.k = operand->stride[kernel->axis_count - 1];
    packer.other = axis < 0 ? 0 : operand->stride[axis];
    packer.along_k = packer.k == 1 || packer.other != 1;
    packer.source = LLVMGetParam(emit->function, PACK_SOURCE);
    packer.packed = LLVMGetParam(emit->function, PACK_PACKED);
    packer.extent = LLVMGetParam(emit->function, PACK_EXTENT);
    packer.depth = LLVMGetParam(emit->function, PACK_DEPTH);
    Ir more = emit_add(emit, packer.depth, emit_i64(emit, PACKED_STEP - 1));
    packer.steps = LLVMBuildLShr(emit->builder, more, emit_i64(emit, 5), "");
    return packer;
}

static LLVMTypeRef pack_function_type(Emit *emit, unsigned parameters)
{
    LLVMTypeRef types[] = {emit->pointer, emit->pointer, emit->i64, emit->i64, emit->i64, emit->i64};
    return LLVMFunctionType(emit->void_type, types, parameters, false);
}

LLVMTypeRef packed_pack_type(Emit *emit) { return pack_function_type(emit, PACK_ROW); }

/* A block that reaches beyond an end, with masks: a function of its own, or they would be computed for every block. */
static LLVMValueRef emit_pack_rest(Emit *emit, const Kernel *kernel, const KernelGemm *match,
                                   const PackedLayout *layout, bool is_b, const char *name)
{
    char rest[112];
    snprintf(rest, sizeof rest, "%s_rest", name);
    LLVMValueRef function = emit_function(emit, rest, pack_function_type(emit, PACK_PARAMETERS), true);
    BlockPacker packer = packer_for(emit, kernel, match, layout, is_b);
    pack_block(&packer, LLVMGetParam(function, PACK_ROW), LLVMGetParam(function, PACK_K), false);
    LLVMBuildRetVoid(emit->builder);
    return function;
}

static void pack_block_or_rest(BlockPacker *packer, Ir row, Ir k, LLVMValueRef rest)
{
    Emit *emit = packer->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir row_end = emit_add(emit, row, emit_i64(emit, PACKED_BLOCK)),
       k_end = emit_add(emit, k, emit_i64(emit, PACKED_STEP));
    Ir whole = LLVMBuildAnd(builder, LLVMBuildICmp(builder, LLVMIntSLE, row_end, packer->extent, ""),
                            LLVMBuildICmp(builder, LLVMIntSLE, k_end, packer->depth, ""), "");
    EmitIf branch;
    emit_if(emit, &branch, whole);
    if (!packer->layout->in_cache) prefetch_block(packer, row, k);
    pack_block(packer, row, k, true);
    emit_else(emit, &branch);
    Ir arguments[] = {packer->source, packer->packed, packer->extent, packer->depth, row, k};
    LLVMBuildCall2(builder, pack_function_type(emit, PACK_PARAMETERS), rest, arguments, PACK_PARAMETERS, "");
    emit_end_if(emit, &branch);
}

LLVMValueRef packed_emit_pack(Emit *emit, const Kernel *kernel, const KernelGemm *match, const PackedLayout *layout,
                              bool is_b, const char *name)
{
    LLVMValueRef rest = emit_pack_rest(emit, kernel, match, layout, is_b, name);
    LLVMValueRef function = emit_function(emit, name, packed_pack_type(emit), true);
    BlockPacker packer = packer_for(emit, kernel, match, layout, is_b);
    /* The inner loop walks through memory. */
    EmitLoop outer, inner;
    Ir zero = emit_i64(emit, 0);
    emit_loop_begin(emit, &outer, zero, packer.along_k ? packer.extent : packer.depth,
                    packer.along_k ? PACKED_BLOCK : PACKED_STEP, 0, NULL);
    emit_loop_begin(emit, &inner, zero, packer.along_k ? packer.depth : packer.extent,
                    packer.along_k ? PACKED_STEP : PACKED_BLOCK, 0, NULL);
    pack_block_or_rest(&packer, packer.along_k ? outer.index : inner.index, packer.along_k ? inner.index : outer.index,
                       rest);
    emit_loop_end(emit, &inner, NULL);
    emit_loop_end(emit, &outer, NULL);
    LLVMBuildRetVoid(emit->builder);
    return function;
}

Ir packed_factor_address(Emit *emit, const Kernel *kernel, int number, Ir base, const Ir *index, int moving_axis,
                         Ir position, Ir k)
{
    const KernelOperand *operand = &kernel->operands[number];
    int inner = kernel->axis_count - 1;
    Ir offset = emit_mul(emit, k, operand->stride[inner]);
    for (int axis = 0; axis < inner; axis++) {
        if (!operand->stride[axis]) continue;
        Ir at = axis == moving_axis ? position : index[axis];
        offset = emit_add(emit, offset, emit_mul(emit, at, operand->stride[axis]));
    }
    return emit_address(emit, emit->f32, base, offset);
}
