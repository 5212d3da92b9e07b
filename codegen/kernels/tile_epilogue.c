#include "codegen/kernels/tile_epilogue.h"

#include "codegen/kernels/bf16_blocks.h"
#include "codegen/kernels/body_emit.h"
#include "codegen/kernels/kernel_sizes.h"

void tile_epilogue_prepare(TileEpilogue *epilogue, Emit *emit, const Kernel *kernel, Ir operands, Ir column,
                           const Ir *batch, int tail)
{
    Body *body = &epilogue->body;
    const KernelGemm *match = epilogue->match;
    int inner = kernel->axis_count - 1;
    body->emit = emit;
    body->kernel = kernel;
    body->lanes = BLOCK_SIDE;
    body->vector_axis = body->copy_axis = match->column_axis;
    body->copies = epilogue->vectors;
    body->copy_step = BLOCK_SIDE;
    if (tail) body->mask[epilogue->vectors - 1] = emit_lane_mask(emit, tail, BLOCK_SIDE);
    body_analyse(body);
    body_load_operands(body, operands);
    for (int axis = 0; axis < inner; axis++) body->index[axis] = batch[axis];
    body->index[match->column_axis] = column;
    body->index[inner] = emit_i64(emit, 0);
    body_emit_constant_part(body, (Register)(match->sum + 1));
}

void tile_epilogue_move(TileEpilogue *epilogue, Ir row)
{
    int axis = epilogue->match->row_axis;
    if (axis >= 0) epilogue->body.index[axis] = row;
    body_set_base(&epilogue->body);
}

/* One row, whose sums are known. */
static void emit_row(TileEpilogue *epilogue, Ir row, const Ir *sums)
{
    Body *body = &epilogue->body;
    Register sum = epilogue->match->sum;
    tile_epilogue_move(epilogue, row);
    for (int v = 0; v < epilogue->vectors; v++) body->value[sum][v] = sums[v];
    for (int r = sum + 1; r <= body->kernel->instruction_count; r++) body_emit(body, (Register)r);
}

bool tile_epilogue_is_short(const TileEpilogue *epilogue)
{
    return epilogue->body.kernel->instruction_count - epilogue->match->sum <= GEMM_DIRECT_EPILOGUE;
}

void tile_epilogue_emit_rows(TileEpilogue *epilogue, Ir row, int rows, const Ir *sums)
{
    Emit *emit = epilogue->body.emit;
    for (int r = 0; r < rows; r++)
        emit_row(epilogue, emit_add(emit, row, emit_i64(emit, r)), sums + (ptrdiff_t)r * epilogue->vectors);
}

void tile_epilogue_emit(TileEpilogue *epilogue, Ir row, Ir rows, Ir sums)
{
    Emit *emit = epilogue->body.emit;
    LLVMTypeRef vector = emit_vector_type(emit->f32, BLOCK_SIDE);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), rows, 1, 0, NULL);
    Ir here = emit_mul(emit, loop.index, (int64_t)epilogue->vectors * BLOCK_LINE_BYTES), of_row[BODY_MAX_COPIES];
    here = emit_address(emit, emit->i8, sums, here);
    for (int v = 0; v < epilogue->vectors; v++) {
        Ir address = emit_address(emit, emit->i8, here, emit_i64(emit, (int64_t)v * BLOCK_LINE_BYTES));
        of_row[v] = emit_load(emit, vector, address, NULL, BLOCK_LINE_BYTES);
    }
    emit_row(epilogue, emit_add(emit, row, loop.index), of_row);
    emit_loop_end(emit, &loop, NULL);
}

int tile_epilogue_streams(const TileEpilogue *epilogue, int *operands)
{
    const KernelGemm *match = epilogue->match;
    const Kernel *kernel = epilogue->body.kernel;
    int count = 0;
    if (match->row_axis < 0) return 0;
    for (int o = 0; o < kernel->operand_count; o++) {
        const KernelOperand *operand = &kernel->operands[o];
        if (o == match->a || o == match->b || !operand->stride[match->row_axis]) continue;
        if (operand->stride[match->column_axis] == 1) operands[count++] = o;
    }
    return count;
}

void tile_epilogue_prefetch(TileEpilogue *epilogue, const int *operands, int count, Ir line, Ir when, Ir instead)
{
    Body *body = &epilogue->body;
    Emit *emit = body->emit;
    Ir vectors = emit_i64(emit, epilogue->vectors);
    Ir row = emit_udiv(emit, line, vectors), vector = emit_urem(emit, line, vectors);
    for (int o = 0; o < count; o++) {
        const KernelOperand *operand = &body->kernel->operands[operands[o]];
        Ir at = emit_mul(emit, row, operand->stride[epilogue->match->row_axis]);
        at = emit_add(emit, at, emit_mul(emit, vector, BLOCK_SIDE));
        Ir address = emit_address(emit, emit_memory_type(emit, operand->dtype), body->base[operands[o]], at);
        if (when) address = emit_select(emit, when, address, instead);
        emit_prefetch(emit, address, operand->written ? PREFETCH_FOR_WRITING : PREFETCH_LEVEL1);
    }
}
