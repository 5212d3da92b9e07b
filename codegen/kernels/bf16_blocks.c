/* A line is either 16 consecutive pairs of k of one row (or column), or one pair of k of 16 rows; which of the two lies
 * contiguous in memory is read, and transposed where the block wants the other. */
#include "codegen/kernels/bf16_blocks.h"

#include "base/integers.h"

enum {
    LANES = 16,
    WHOLE_PARTS = 3 /* they add up to a float32 */
};

/* The last two only of the function for the rest. */
enum { REORDER_SOURCE, REORDER_TARGET, REORDER_EXTENT, REORDER_DEPTH, REORDER_ROW, REORDER_K, REORDER_PARAMETERS };

typedef struct BlockReorder {
    Emit *emit;
    bool along_k;       /* lines are read along k */
    bool lines_along_k; /* and stored so */
    const BlockLayout *layout;
    bool whole; /* no masks */
    Factor factor;
    Ir source, reordered, extent, depth;
    Ir steps; /* blocks along k */
} BlockReorder;

static LLVMTypeRef f32_vector(const BlockReorder *reorder) { return emit_vector_type(reorder->emit->f32, LANES); }

/* The lanes that are below `count` - `first`. */
static Ir lanes_below(const BlockReorder *reorder, Ir count, Ir first)
{
    Emit *emit = reorder->emit;
    Ir left = emit_sub(emit, count, first);
    return emit_compare(emit, LLVMIntSGT, emit_broadcast(emit, left, LANES), emit_iota(emit, 1, LANES));
}

static Ir all_if(const BlockReorder *reorder, Ir condition) { return emit_broadcast(reorder->emit, condition, LANES); }

static Ir at_most(const BlockReorder *reorder, Ir value, Ir limit)
{
    return emit_select(reorder->emit, emit_compare(reorder->emit, LLVMIntSLT, value, limit), value, limit);
}

static int64_t line_stride(const BlockReorder *reorder)
{
    return reorder->along_k ? reorder->factor.along_k : reorder->factor.across;
}

/* Whether elements go into blocks as they are. */
static bool keeps_bits(const BlockReorder *reorder)
{
    return reorder->layout->parts == 1 && factor_is_bf16(&reorder->factor);
}

/* 16 elements at `row`, `k`, consecutive or strided along the line: numbers, or bits that are kept. */
static Ir load_lanes(const BlockReorder *reorder, Ir row, Ir k, Ir mask)
{
    const Factor *factor = &reorder->factor;
    return (keeps_bits(reorder) ? factor_load_raw : factor_load)(factor, factor_at(factor, reorder->source, row, k),
                                                                 line_stride(reorder), LANES, mask);
}

/* k ... k + 15 of one row; rows that do not exist repeat the last one. */
static Ir lanes_of_row(const BlockReorder *reorder, Ir row, Ir k)
{
    if (reorder->whole) return load_lanes(reorder, row, k, NULL);
    row = at_most(reorder, row, emit_add(reorder->emit, reorder->extent, emit_i64(reorder->emit, -1)));
    return load_lanes(reorder, row, k, lanes_below(reorder, reorder->depth, k));
}

/* One k of 16 rows. */
static Ir lanes_of_k(const BlockReorder *reorder, Ir row, Ir k)
{
    if (reorder->whole) return load_lanes(reorder, row, k, NULL);
    Ir inside = all_if(reorder, emit_compare(reorder->emit, LLVMIntSLT, k, reorder->depth));
    Ir exists = lanes_below(reorder, reorder->extent, row);
    return load_lanes(reorder, row, k, emit_and(reorder->emit, exists, inside));
}

/* The vectors of a block as memory has them: of row i its k 0 ... 15 and 16 ... 31 at i and LANES + i, or k 0 ... 31 of
 * all rows. */
static void load_block(const BlockReorder *reorder, Ir row, Ir k, Ir *floats)
{
    Emit *emit = reorder->emit;
    for (int i = 0; i < 2 * LANES; i++) {
        floats[i] = reorder->along_k ? lanes_of_row(reorder, emit_add(emit, row, emit_i64(emit, i % LANES)),
                                                    emit_add(emit, k, emit_i64(emit, i / LANES * LANES)))
                                     : lanes_of_k(reorder, row, emit_add(emit, k, emit_i64(emit, i)));
    }
}

/* The two vectors whose elements make line i, of floats as load_block() leaves them. */
static int low_of_line(bool along_k, int i) { return along_k ? i : 2 * i; }
static int high_of_line(bool along_k, int i) { return along_k ? LANES + i : 2 * i + 1; }

/* 16 pairs: the halves of a row one after the other, two k interleaved. Of the numbers in `low` and `high` every
 * `step`th counts: of floats seen as pairs of 16 bits, the upper half. */
static Ir pairs(const BlockReorder *reorder, Ir low, Ir high, int step, bool along_k)
{
    Emit *emit = reorder->emit;
    Ir order[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) {
        int vector = along_k ? i / LANES : i % 2, lane = along_k ? i % LANES : i / 2;
        order[i] = emit_i32(emit, vector * LANES * step + lane * step + step - 1);
    }
    Ir both = LLVMBuildShuffleVector(emit->builder, low, high, LLVMConstVector(order, 2 * LANES), "");
    return LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i32, LANES), "");
}

static Ir joined(Emit *emit, Ir low, Ir high)
{
    Ir lanes[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) lanes[i] = emit_i32(emit, i);
    return LLVMBuildShuffleVector(emit->builder, low, high, LLVMConstVector(lanes, 2 * LANES), "");
}

/* Rounds 32 floats, or takes as many bf16: the low 16 come first. Returned as 16 pairs. */
static Ir rounded(const BlockReorder *reorder, Ir low, Ir high, bool along_k)
{
    Emit *emit = reorder->emit;
    Ir both = keeps_bits(reorder)
                  ? joined(emit, low, high)
                  : emit_intrinsic(emit, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", NULL, 0, (Ir[]){high, low}, 2);
    if (along_k) return LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i32, LANES), "");
    both = LLVMBuildBitCast(emit->builder, both, LLVMVectorType(emit->i16, 2 * LANES), "");
    Ir half[2];
    for (int h = 0; h < 2; h++) {
        Ir lanes[LANES];
        for (int i = 0; i < LANES; i++) lanes[i] = emit_i32(emit, h * LANES + i);
        half[h] = LLVMBuildShuffleVector(emit->builder, both, LLVMGetPoison(LLVMTypeOf(both)),
                                         LLVMConstVector(lanes, LANES), "");
    }
    return pairs(reorder, half[0], half[1], 1, along_k);
}

/* The leading 8 bits of floats, to nearest, as a float; what is left remains in `value`, exactly. */
static Ir split_leading(const BlockReorder *reorder, Ir *value)
{
    Emit *emit = reorder->emit;
    LLVMBuilderRef builder = emit->builder;
    LLVMTypeRef bits = LLVMVectorType(emit->i32, LANES);
    Ir half = emit_broadcast(emit, emit_i32(emit, 0x8000), LANES);
    Ir mask = emit_broadcast(emit, emit_i32(emit, (int)0xFFFF0000), LANES);
    Ir leading = LLVMBuildAdd(builder, LLVMBuildBitCast(builder, *value, bits, ""), half, "");
    leading = LLVMBuildBitCast(builder, emit_and(emit, leading, mask), f32_vector(reorder), "");
    *value = LLVMBuildFSub(builder, *value, leading, "");
    return leading;
}

static void store_line(const BlockReorder *reorder, Ir block, int part, int line, Ir value)
{
    Emit *emit = reorder->emit;
    Ir address =
        emit_address(emit, emit->i8, block, emit_i64(emit, part * BLOCK_BYTES + line * reorder->layout->line_pitch));
    emit_store(emit, value, address, NULL, 64);
}

/* Rounding first leaves half as much to transpose. */
static void reorder_rounded(const BlockReorder *reorder, Ir *floats, Ir block)
{
    Ir line[LANES];
    for (int i = 0; i < LANES; i++) {
        Ir low = floats[low_of_line(reorder->along_k, i)], high = floats[high_of_line(reorder->along_k, i)];
        line[i] = rounded(reorder, low, high, reorder->along_k);
    }
    if (reorder->along_k != reorder->lines_along_k) emit_transpose_square(reorder->emit, line, LANES);
    for (int i = 0; i < LANES; i++) store_line(reorder, block, 0, i, line[i]);
}

static void reorder_split(const BlockReorder *reorder, Ir *floats, Ir block)
{
    LLVMBuilderRef builder = reorder->emit->builder;
    LLVMTypeRef halves = LLVMVectorType(reorder->emit->i16, 2 * LANES);
    if (reorder->along_k != reorder->lines_along_k) {
        emit_transpose_square(reorder->emit, floats, LANES);
        emit_transpose_square(reorder->emit, floats + LANES, LANES);
    }
    for (int i = 0; i < LANES; i++) {
        Ir low = floats[low_of_line(reorder->lines_along_k, i)], high = floats[high_of_line(reorder->lines_along_k, i)];
        for (int part = 0; part < reorder->layout->parts; part++) {
            bool whole = part == WHOLE_PARTS - 1; /* of 8 bits */
            Ir a = LLVMBuildBitCast(builder, whole ? low : split_leading(reorder, &low), halves, "");
            Ir b = LLVMBuildBitCast(builder, whole ? high : split_leading(reorder, &high), halves, "");
            store_line(reorder, block, part, i, pairs(reorder, a, b, 2, reorder->lines_along_k));
        }
    }
}

static Ir block_address(const BlockReorder *reorder, Ir row, Ir k)
{
    Emit *emit = reorder->emit;
    LLVMBuilderRef builder = emit->builder;
    const BlockLayout *layout = reorder->layout;
    Ir side = emit_lshr(emit, row, emit_i64(emit, 4));
    Ir before =
        layout->side_pitch ? emit_mul(emit, side, layout->side_pitch) : LLVMBuildMul(builder, side, reorder->steps, "");
    Ir step = emit_lshr(emit, k, emit_i64(emit, 5));
    Ir offset = layout->side_pitch ? emit_add(emit, before, emit_mul(emit, step, layout->step_pitch))
                                   : emit_mul(emit, emit_add(emit, before, step), layout->step_pitch);
    return emit_address(emit, emit->i8, reorder->reordered, offset);
}

static void reorder_block(BlockReorder *reorder, Ir row, Ir k, bool whole)
{
    Ir floats[2 * LANES];
    reorder->whole = whole;
    load_block(reorder, row, k, floats);
    (reorder->layout->parts > 1 ? reorder_split : reorder_rounded)(reorder, floats, block_address(reorder, row, k));
}

/* Where memory is read by the next turn of the outer loop: the processor does not see rows this far apart coming. */
static void prefetch_block(const BlockReorder *reorder, Ir row, Ir k)
{
    Emit *emit = reorder->emit;
    const Factor *factor = &reorder->factor;
    if (line_stride(reorder) != 1) return;
    int lines = reorder->along_k ? BLOCK_SIDE : BLOCK_DEPTH,
        line_elements = reorder->along_k ? BLOCK_DEPTH : BLOCK_SIDE;
    int64_t between = reorder->along_k ? factor->across : factor->along_k;
    Ir first = factor_at(factor, reorder->source, row, k);
    for (int i = 0; i < lines; i++) {
        Ir line = factor_memory(factor, factor_skip(factor, first, emit_i64(emit, (lines + i) * between)));
        for (int64_t byte = 0; byte < factor_bytes(factor, line_elements); byte += BLOCK_LINE_BYTES)
            emit_prefetch(emit, emit_address(emit, emit->i8, line, emit_i64(emit, byte)), PREFETCH_LEVEL2);
    }
}

static BlockReorder reorder_for(Emit *emit, const Kernel *kernel, const KernelGemm *match, const BlockLayout *layout,
                                bool is_b)
{
    BlockReorder reorder = {.emit = emit, .lines_along_k = !is_b, .layout = layout};
    reorder.factor = is_b ? factor_of(emit, kernel, match->b, match->column_axis)
                          : factor_of(emit, kernel, match->a, match->row_axis);
    reorder.along_k = reorder.factor.along_k == 1 || reorder.factor.across != 1;
    reorder.source = LLVMGetParam(emit->function, REORDER_SOURCE);
    reorder.reordered = LLVMGetParam(emit->function, REORDER_TARGET);
    reorder.extent = LLVMGetParam(emit->function, REORDER_EXTENT);
    reorder.depth = LLVMGetParam(emit->function, REORDER_DEPTH);
    Ir more = emit_add(emit, reorder.depth, emit_i64(emit, BLOCK_DEPTH - 1));
    reorder.steps = emit_lshr(emit, more, emit_i64(emit, 5));
    return reorder;
}

static LLVMTypeRef reorder_function_type(Emit *emit, unsigned parameters)
{
    LLVMTypeRef types[] = {emit->pointer, emit->pointer, emit->i64, emit->i64, emit->i64, emit->i64};
    return LLVMFunctionType(emit->void_type, types, parameters, false);
}

LLVMTypeRef blocks_reorder_type(Emit *emit) { return reorder_function_type(emit, REORDER_ROW); }

/* A block that reaches beyond an end, with masks: a function of its own, or they would be computed for every block. */
static LLVMValueRef emit_reorder_rest(Emit *emit, const Kernel *kernel, const KernelGemm *match,
                                      const BlockLayout *layout, bool is_b, const char *name)
{
    char rest[112];
    snprintf(rest, sizeof rest, "%s_rest", name);
    LLVMValueRef function = emit_function(emit, rest, reorder_function_type(emit, REORDER_PARAMETERS), true);
    BlockReorder reorder = reorder_for(emit, kernel, match, layout, is_b);
    reorder_block(&reorder, LLVMGetParam(function, REORDER_ROW), LLVMGetParam(function, REORDER_K), false);
    LLVMBuildRetVoid(emit->builder);
    return function;
}

static void reorder_block_or_rest(BlockReorder *reorder, Ir row, Ir k, LLVMValueRef rest)
{
    Emit *emit = reorder->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir row_end = emit_add(emit, row, emit_i64(emit, BLOCK_SIDE)),
       k_end = emit_add(emit, k, emit_i64(emit, BLOCK_DEPTH));
    Ir whole = emit_and(emit, emit_compare(emit, LLVMIntSLE, row_end, reorder->extent),
                        emit_compare(emit, LLVMIntSLE, k_end, reorder->depth));
    EmitIf branch;
    emit_if(emit, &branch, whole);
    if (!reorder->layout->in_cache) prefetch_block(reorder, row, k);
    reorder_block(reorder, row, k, true);
    emit_else(emit, &branch);
    Ir arguments[] = {reorder->source, reorder->reordered, reorder->extent, reorder->depth, row, k};
    LLVMBuildCall2(builder, reorder_function_type(emit, REORDER_PARAMETERS), rest, arguments, REORDER_PARAMETERS, "");
    emit_end_if(emit, &branch);
}

LLVMValueRef blocks_emit_reorder(Emit *emit, const Kernel *kernel, const KernelGemm *match, const BlockLayout *layout,
                                 bool is_b, const char *name)
{
    LLVMValueRef rest = emit_reorder_rest(emit, kernel, match, layout, is_b, name);
    LLVMValueRef function = emit_function(emit, name, blocks_reorder_type(emit), true);
    BlockReorder reorder = reorder_for(emit, kernel, match, layout, is_b);
    /* The inner loop walks through memory. */
    EmitLoop outer, inner;
    Ir zero = emit_i64(emit, 0);
    emit_loop_begin(emit, &outer, zero, reorder.along_k ? reorder.extent : reorder.depth,
                    reorder.along_k ? BLOCK_SIDE : BLOCK_DEPTH, 0, NULL);
    emit_loop_begin(emit, &inner, zero, reorder.along_k ? reorder.depth : reorder.extent,
                    reorder.along_k ? BLOCK_DEPTH : BLOCK_SIDE, 0, NULL);
    reorder_block_or_rest(&reorder, reorder.along_k ? outer.index : inner.index,
                          reorder.along_k ? inner.index : outer.index, rest);
    emit_loop_end(emit, &inner, NULL);
    emit_loop_end(emit, &outer, NULL);
    LLVMBuildRetVoid(emit->builder);
    return function;
}

Ir blocks_factor_address(Emit *emit, const Kernel *kernel, int number, Ir base, const Ir *index, int moving_axis,
                         Ir position, Ir k)
{
    const KernelOperand *operand = &kernel->operands[number];
    Factor factor = factor_of(emit, kernel, number, moving_axis);
    Ir batch = emit_i64(emit, 0);
    for (int axis = 0; axis < kernel->axis_count - 1; axis++)
        if (operand->stride[axis] && axis != moving_axis)
            batch = emit_add(emit, batch, emit_mul(emit, index[axis], operand->stride[axis]));
    return factor_at(&factor, factor_skip(&factor, base, batch), position, k);
}

/* ---- Panels that are kept ---- */

bool blocks_keep_b(const Kernel *kernel, int64_t columns, int64_t depth, int64_t depth_block, int64_t width)
{
    if (!kernel->keeps_b) return false;
    int64_t elements = round_up(columns, width) * round_up(depth, depth_block);
    return elements <= kernel->operands[kernel->operand_count - 2].elements;
}

Ir blocks_kept_panel(Emit *emit, const Kernel *kernel, const Ir *operand, int64_t depth_block, int64_t width, Ir column,
                     Ir k)
{
    int64_t of_column = round_up(kernel_inner_extent(kernel), depth_block) * 2;
    Ir offset = emit_add(emit, emit_mul(emit, column, of_column), emit_mul(emit, k, width * 2));
    return emit_address(emit, emit->i8, operand[kernel->operand_count - 2], offset);
}

Ir blocks_are_kept(Emit *emit, const Kernel *kernel, const Ir *operand)
{
    Ir flag = emit_load(emit, emit->i32, operand[kernel->operand_count - 1], NULL, sizeof(float));
    return emit_compare(emit, LLVMIntNE, flag, emit_i32(emit, 0));
}
