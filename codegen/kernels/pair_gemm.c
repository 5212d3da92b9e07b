/* Emission of matrix products by VDPBF16PS as planned: units, panels, blocks of k. */
#include "codegen/kernels/pair_gemm.h"

#include <string.h>

#include "codegen/kernels/emit_blocks.h"
#include "codegen/kernels/pair_gemm_tile.h"

typedef struct PairEmitter {
    Emit *emit;
    const Kernel *kernel;
    const PairPlan *plan;
    /* Functions; no `panel` where all columns are fewer, no `ragged` where panels divide them. */
    LLVMValueRef reorder_a, reorder_b, panel, ragged; /* no `reorder_a` where A is read in place */
    Ir operand[KERNEL_MAX_OPERANDS];
    Ir index[KERNEL_MAX_AXES]; /* of the units */
    Ir begin, end;             /* their rows */
    Ir depth;                  /* of their sums */
    Ir rows;                   /* the first one's pairs */
    Ir columns_begin, columns_end;
    Ir buffers[2]; /* where the addresses of the panel in use and of the next one are kept */
    Ir kept;       /* whether all panels are kept already; NULL: they are not to be */
    Ir in_kept;    /* whether the panels of these rows are there, or go there */
} PairEmitter;

static Ir most(Emit *emit, Ir a, Ir b) { return emit_select(emit, emit_compare(emit, LLVMIntSGT, a, b), a, b); }

static void emit_parts(PairEmitter *gemm, const char *symbol)
{
    const PairPlan *plan = gemm->plan;
    Emit *emit = gemm->emit;
    int64_t width = pair_panel_columns(plan), rest = plan->columns % width;
    BlockLayout rows = {.parts = 1,
                        .line_pitch = plan->row_pitch,
                        .step_pitch = BLOCK_LINE_BYTES,
                        .side_pitch = plan->row_pitch * BLOCK_SIDE};
    BlockLayout panels = {.parts = 1,
                          .line_pitch = plan->vectors * BLOCK_LINE_BYTES,
                          .step_pitch = plan->vectors * BLOCK_BYTES,
                          .side_pitch = BLOCK_LINE_BYTES,
                          .in_cache = true};
    char name[96];
    snprintf(name, sizeof name, "%s.reorder_a", symbol);
    if (!plan->a_in_place) gemm->reorder_a = blocks_emit_reorder(emit, gemm->kernel, &plan->match, &rows, false, name);
    snprintf(name, sizeof name, "%s.reorder_b", symbol);
    gemm->reorder_b = blocks_emit_reorder(emit, gemm->kernel, &plan->match, &panels, true, name);
    snprintf(name, sizeof name, "%s.panel", symbol);
    if (plan->columns >= width)
        gemm->panel = pair_emit_panel(emit, gemm->kernel, plan, gemm->reorder_b, plan->vectors, 0, name);
    snprintf(name, sizeof name, "%s.ragged", symbol);
    int vectors = (int)((rest + BLOCK_SIDE - 1) / BLOCK_SIDE), tail = (int)(rest % BLOCK_SIDE);
    if (rest) gemm->ragged = pair_emit_panel(emit, gemm->kernel, plan, gemm->reorder_b, vectors, tail, name);
}

static Ir factor_address(PairEmitter *gemm, int number, int moving_axis, Ir position, Ir k)
{
    return blocks_factor_address(gemm->emit, gemm->kernel, number, gemm->operand[number], gemm->index, moving_axis,
                                 position, k);
}

static void call(PairEmitter *gemm, LLVMTypeRef type, LLVMValueRef function, Ir *arguments, int count)
{
    LLVMBuildCall2(gemm->emit->builder, type, function, arguments, (unsigned)count, "");
}

static Ir buffer(PairEmitter *gemm, int which)
{
    return emit_load(gemm->emit, gemm->emit->pointer, gemm->buffers[which], NULL, 8);
}

/* Where the panel at `column` and k is reordered to: rows but the first may run at the same time, so they do not keep
 * what they reorder. */
static Ir panel_address(PairEmitter *gemm, int which, Ir column, Ir k)
{
    const PairPlan *plan = gemm->plan;
    if (!plan->keeps_b) return buffer(gemm, which);
    Ir kept = blocks_kept_panel(gemm->emit, gemm->kernel, gemm->operand, plan->depth_block, pair_panel_columns(plan),
                                column, k);
    return emit_select(gemm->emit, gemm->in_kept, kept, buffer(gemm, which));
}

/* What follows the panel at `column` and its block at `k`: the next block of k, the next panel, or nothing. */
static void set_next(PairEmitter *gemm, Ir column, Ir k, Ir *arguments)
{
    Emit *emit = gemm->emit;
    const PairPlan *plan = gemm->plan;
    Ir zero = emit_i64(emit, 0), depth = gemm->depth, block = emit_i64(emit, plan->depth_block);
    Ir next_k = emit_add(emit, k, block), more_k = emit_compare(emit, LLVMIntSLT, next_k, depth);
    next_k = emit_select(emit, more_k, next_k, zero);
    Ir width = emit_i64(emit, pair_panel_columns(plan)), next = emit_add(emit, column, width);
    next = emit_select(emit, more_k, column, next);
    Ir exists = emit_compare(emit, LLVMIntSLT, next, gemm->columns_end);
    Ir extent = emit_least(emit, width, emit_sub(emit, gemm->columns_end, next));
    Ir next_depth = emit_least(emit, block, emit_sub(emit, depth, next_k));
    arguments[PAIR_NEXT_SOURCE] = factor_address(gemm, plan->match.b, plan->match.column_axis, next, next_k);
    arguments[PAIR_NEXT_EXTENT] = emit_select(emit, exists, extent, zero);
    if (plan->keeps_b) exists = emit_and(emit, exists, emit_not(emit, gemm->kept));
    arguments[PAIR_NEXT_DEPTH] = emit_select(emit, exists, next_depth, zero);
    arguments[PAIR_NEXT_B] = panel_address(gemm, 1, next, next_k);
}

static void call_panel(PairEmitter *gemm, Ir column, Ir *arguments)
{
    Emit *emit = gemm->emit;
    LLVMTypeRef type = pair_panel_type(emit, gemm->kernel);
    int count = PAIR_BATCH + gemm->kernel->axis_count - 1;
    if (!gemm->panel || !gemm->ragged) {
        call(gemm, type, gemm->panel ? gemm->panel : gemm->ragged, arguments, count);
        return;
    }
    Ir end = emit_add(emit, column, emit_i64(emit, pair_panel_columns(gemm->plan)));
    EmitIf branch;
    emit_if(emit, &branch, emit_compare(emit, LLVMIntSLE, end, emit_i64(emit, gemm->plan->columns)));
    call(gemm, type, gemm->panel, arguments, count);
    emit_else(emit, &branch);
    call(gemm, type, gemm->ragged, arguments, count);
    emit_end_if(emit, &branch);
}

static void emit_block(PairEmitter *gemm, Ir column, Ir k)
{
    Emit *emit = gemm->emit;
    const PairPlan *plan = gemm->plan;
    Ir arguments[PAIR_BATCH + KERNEL_MAX_AXES];
    arguments[PAIR_OPERANDS] = LLVMGetParam(emit->function, KERNEL_OPERANDS);
    arguments[PAIR_A] = emit_address(emit, emit->i8, gemm->rows, emit_mul(emit, k, 2));
    arguments[PAIR_B] = panel_address(gemm, 0, column, k);
    arguments[PAIR_SUMS] = emit_scratch_at(gemm->emit, plan->a_bytes + 2 * plan->b_bytes);
    arguments[PAIR_TILE] = emit_scratch_at(gemm->emit, plan->a_bytes + 2 * plan->b_bytes + plan->sum_bytes);
    set_next(gemm, column, k, arguments);
    arguments[PAIR_BEGIN] = gemm->begin;
    arguments[PAIR_END] = gemm->end;
    arguments[PAIR_COLUMN] = column;
    Ir left = emit_sub(emit, gemm->depth, k), block = emit_i64(emit, plan->depth_block);
    Ir more = emit_add(emit, emit_least(emit, left, block), emit_i64(emit, BLOCK_DEPTH - 1));
    arguments[PAIR_STEPS] = emit_udiv(emit, more, emit_i64(emit, BLOCK_DEPTH));
    arguments[PAIR_FIRST] = emit_compare(emit, LLVMIntEQ, k, emit_i64(emit, 0));
    arguments[PAIR_LAST] = emit_compare(emit, LLVMIntSLE, left, block);
    for (int axis = 0; axis < gemm->kernel->axis_count - 1; axis++) arguments[PAIR_BATCH + axis] = gemm->index[axis];
    call_panel(gemm, column, arguments);
    emit_store(emit, arguments[PAIR_NEXT_B], gemm->buffers[0], NULL, 8);
    emit_store(emit, arguments[PAIR_B], gemm->buffers[1], NULL, 8);
}

/* Units of the same rows: those are reordered unless they can stay in place, then the columns' first panel; each
 * further one while the one before is used. */
static void emit_units(PairEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const PairPlan *plan = gemm->plan;
    Ir zero = emit_i64(emit, 0), depth = gemm->depth;
    gemm->rows = factor_address(gemm, plan->match.a, plan->match.row_axis, gemm->begin, zero);
    if (!plan->a_in_place) {
        Ir reordered = emit_scratch_at(gemm->emit, 0), row_count = emit_sub(emit, gemm->end, gemm->begin);
        call(gemm, blocks_reorder_type(emit), gemm->reorder_a, (Ir[]){gemm->rows, reordered, row_count, depth}, 4);
        gemm->rows = reordered;
    }
    for (int i = 0; i < 2; i++)
        emit_store(emit, emit_scratch_at(gemm->emit, plan->a_bytes + (size_t)i * plan->b_bytes), gemm->buffers[i], NULL,
                   8);
    Ir columns = factor_address(gemm, plan->match.b, plan->match.column_axis, gemm->columns_begin, zero);
    Ir extent = emit_sub(emit, gemm->columns_end, gemm->columns_begin);
    extent = emit_least(emit, extent, emit_i64(emit, pair_panel_columns(plan)));
    Ir first_depth = emit_least(emit, depth, emit_i64(emit, plan->depth_block));
    if (plan->keeps_b) gemm->in_kept = emit_or(emit, gemm->kept, emit_compare(emit, LLVMIntEQ, gemm->begin, zero));
    Ir first = panel_address(gemm, 0, gemm->columns_begin, zero);
    EmitIf branch;
    if (plan->keeps_b) emit_if(emit, &branch, emit_not(emit, gemm->kept));
    call(gemm, blocks_reorder_type(emit), gemm->reorder_b, (Ir[]){columns, first, extent, first_depth}, 4);
    if (plan->keeps_b) emit_end_if(emit, &branch);
    EmitLoop panels, blocks;
    emit_loop_begin(emit, &panels, gemm->columns_begin, gemm->columns_end, pair_panel_columns(plan), 0, NULL);
    emit_loop_begin(emit, &blocks, zero, depth, plan->depth_block, 0, NULL);
    emit_block(gemm, panels.index, blocks.index);
    emit_loop_end(emit, &blocks, NULL);
    emit_loop_end(emit, &panels, NULL);
}

/* Of the call's units those with the same rows, run by run. */
static void emit_runs(PairEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const PairPlan *plan = gemm->plan;
    const Units *units = &plan->units;
    const UnitAxis *columns = &units->axes[units->axis_count - 1];
    Ir per_run = emit_i64(emit, columns->count), begin = LLVMGetParam(emit->function, KERNEL_BEGIN);
    Ir end = LLVMGetParam(emit->function, KERNEL_END), last = emit_add(emit, end, emit_i64(emit, columns->count - 1));
    EmitLoop runs;
    emit_loop_begin(emit, &runs, emit_udiv(emit, begin, per_run), emit_udiv(emit, last, per_run), 1, 0, NULL);
    Ir first = emit_mul(emit, runs.index, columns->count), rest = runs.index;
    Ir from = emit_sub(emit, most(emit, begin, first), first);
    Ir to = emit_least(emit, emit_sub(emit, end, first), per_run);
    gemm->columns_begin = emit_mul(emit, from, columns->step);
    gemm->columns_end = emit_least(emit, emit_mul(emit, to, columns->step), emit_i64(emit, plan->columns));
    for (int i = units->axis_count - 2; i >= 0; i--) {
        const UnitAxis *axis = &units->axes[i];
        Ir count = emit_i64(emit, axis->count);
        gemm->index[axis->axis] = emit_mul(emit, emit_urem(emit, rest, count), axis->step);
        rest = emit_udiv(emit, rest, count);
    }
    UnitRows rows = units_emit_rows(emit, gemm->kernel, units, plan->match.row_axis, plan->tile_rows, gemm->index);
    gemm->begin = gemm->index[plan->match.row_axis];
    gemm->end = emit_least(emit, emit_add(emit, gemm->begin, rows.step), rows.limit);
    emit_units(gemm);
    emit_loop_end(emit, &runs, NULL);
}

void pair_emit(Emit *emit, const Kernel *kernel, const PairPlan *plan, const char *symbol)
{
    PairEmitter gemm = {.emit = emit, .kernel = kernel, .plan = plan};
    emit_parts(&gemm, symbol);
    Ir function = emit_kernel_function(emit, symbol);
    for (int i = 0; i < kernel->operand_count; i++)
        gemm.operand[i] = emit_operand(emit, LLVMGetParam(function, KERNEL_OPERANDS), i, kernel->operands[i].dtype);
    for (int i = 0; i < 2; i++) gemm.buffers[i] = LLVMBuildAlloca(emit->builder, emit->pointer, "");
    for (int axis = 0; axis < kernel->axis_count; axis++) gemm.index[axis] = emit_i64(emit, 0);
    if (plan->keeps_b) gemm.kept = blocks_are_kept(emit, kernel, gemm.operand);
    gemm.depth = units_emit_limit(emit, kernel, &plan->units, kernel->axis_count - 1);
    emit_runs(&gemm);
    LLVMBuildRetVoid(emit->builder);
}
