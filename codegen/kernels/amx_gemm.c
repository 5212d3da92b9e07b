/* Emission of matrix products on AMX tiles as planned: units, blocks of k, panels. */
#include "codegen/kernels/amx_gemm.h"

#include <string.h>

#include "codegen/kernels/emit_blocks.h"
#include "codegen/kernels/amx_gemm_tile.h"

typedef struct AmxEmitter {
    Emit *emit;
    const Kernel *kernel;
    const AmxPlan *plan;
    /* Functions; no `panel` where all columns are fewer, no `ragged` where panels divide them. */
    LLVMValueRef reorder_a, reorder_b, panel, ragged;
    Ir operand[KERNEL_MAX_OPERANDS];
    Ir index[KERNEL_MAX_AXES]; /* of the unit */
    Ir units;                  /* that it is made of: 1, or 2 joined */
    Ir begin, end;             /* its rows */
    Ir columns_end;            /* of its columns */
    Ir all_depth;              /* of a sum */
    Ir k, depth;               /* the block of k */
    Ir first, last;            /* whether it is the first, and the last */
    Ir kept;                   /* whether all panels of B are kept already; NULL: they are not to be */
    Ir control[2];             /* of x86's floating-point unit: as it was, and taking subnormal numbers for 0 */
} AmxEmitter;

/* Where the unit ends along an axis that is cut into pieces of `step`, `extent` being all of it that counts. */
static Ir unit_end(AmxEmitter *gemm, int axis, Ir step, Ir extent)
{
    Emit *emit = gemm->emit;
    Ir end = emit_add(emit, gemm->index[axis], LLVMBuildMul(emit->builder, gemm->units, step, ""));
    return emit_least(emit, end, extent);
}

static void emit_parts(AmxEmitter *gemm, const char *symbol)
{
    const AmxPlan *plan = gemm->plan;
    BlockLayout layout = {.parts = plan->parts, .line_pitch = BLOCK_LINE_BYTES, .step_pitch = amx_step_bytes(plan)};
    char name[96];
    snprintf(name, sizeof name, "%s.reorder_a", symbol);
    gemm->reorder_a = blocks_emit_reorder(gemm->emit, gemm->kernel, &plan->match, &layout, false, name);
    snprintf(name, sizeof name, "%s.reorder_b", symbol);
    gemm->reorder_b = blocks_emit_reorder(gemm->emit, gemm->kernel, &plan->match, &layout, true, name);
    int64_t width = amx_panel_columns(plan), rest = plan->columns % width;
    snprintf(name, sizeof name, "%s.panel", symbol);
    if (plan->columns >= width) gemm->panel = amx_emit_panel(gemm->emit, gemm->kernel, plan, plan->vectors, 0, name);
    snprintf(name, sizeof name, "%s.ragged", symbol);
    int vectors = (int)((rest + BLOCK_SIDE - 1) / BLOCK_SIDE), tail = (int)(rest % BLOCK_SIDE);
    if (rest) gemm->ragged = amx_emit_panel(gemm->emit, gemm->kernel, plan, vectors, tail, name);
}

static Ir factor_address(AmxEmitter *gemm, int number, int moving_axis, Ir position, Ir k)
{
    return blocks_factor_address(gemm->emit, gemm->kernel, number, gemm->operand[number], gemm->index, moving_axis,
                                 position, k);
}

static void call(AmxEmitter *gemm, LLVMTypeRef type, LLVMValueRef function, Ir *arguments, int count)
{
    LLVMBuildCall2(gemm->emit->builder, type, function, arguments, (unsigned)count, "");
}

static void set_control(AmxEmitter *gemm, int which)
{
    if (gemm->plan->parts > 1) emit_intrinsic(gemm->emit, "llvm.x86.sse.ldmxcsr", NULL, 0, &gemm->control[which], 1);
}

/* What is left of a factor may be subnormal, which AMX takes for 0, but which the processor computes twenty times as
 * slowly as 0. */
static void emit_reorder_call(AmxEmitter *gemm, LLVMValueRef reorder, Ir source, Ir reordered, Ir extent)
{
    set_control(gemm, 1);
    call(gemm, blocks_reorder_type(gemm->emit), reorder, (Ir[]){source, reordered, extent, gemm->depth}, 4);
    set_control(gemm, 0);
}

static void prepare_control(AmxEmitter *gemm)
{
    enum { FLUSH_SUBNORMALS = 0x8040 };
    Emit *emit = gemm->emit;
    if (gemm->plan->parts == 1) return;
    for (int i = 0; i < 2; i++) gemm->control[i] = LLVMBuildAlloca(emit->builder, emit->i32, "");
    emit_intrinsic(emit, "llvm.x86.sse.stmxcsr", NULL, 0, &gemm->control[0], 1);
    Ir before = emit_load(emit, emit->i32, gemm->control[0], NULL, 4);
    emit_store(emit, emit_or(emit, before, emit_i32(emit, FLUSH_SUBNORMALS)), gemm->control[1], NULL, 4);
}

static Ir kept_panel(AmxEmitter *gemm, Ir column, Ir k)
{
    const AmxPlan *plan = gemm->plan;
    return blocks_kept_panel(gemm->emit, gemm->kernel, gemm->operand, plan->depth_block, amx_panel_columns(plan),
                             column, k);
}

/* The panel of B at `column`, reordered unless it is kept. Units but those of the first rows may run at the same time,
 * so they do not keep what they reorder. */
static Ir reordered_panel(AmxEmitter *gemm, Ir column, Ir columns)
{
    Emit *emit = gemm->emit;
    const AmxPlan *plan = gemm->plan;
    Ir reordered = emit_scratch_at(emit, plan->a_bytes);
    Ir source = factor_address(gemm, plan->match.b, plan->match.column_axis, column, gemm->k);
    if (!plan->keeps_b) {
        emit_reorder_call(gemm, gemm->reorder_b, source, reordered, columns);
        return reordered;
    }
    Ir first_rows = emit_compare(emit, LLVMIntEQ, gemm->begin, emit_i64(emit, 0));
    reordered = emit_select(emit, emit_or(emit, gemm->kept, first_rows), kept_panel(gemm, column, gemm->k), reordered);
    EmitIf branch;
    emit_if(emit, &branch, emit_not(emit, gemm->kept));
    emit_reorder_call(gemm, gemm->reorder_b, source, reordered, columns);
    emit_end_if(emit, &branch);
    return reordered;
}

static void emit_panel_call(AmxEmitter *gemm, LLVMValueRef panel, Ir column, Ir columns)
{
    Emit *emit = gemm->emit;
    const AmxPlan *plan = gemm->plan;
    int axis = plan->match.column_axis;
    Ir reordered = reordered_panel(gemm, column, columns);
    Ir first = gemm->index[axis], in_unit = emit_sub(emit, column, first);
    Ir kept = emit_mul(emit, in_unit, plan->most_rows * (int64_t)sizeof(float));
    Ir arguments[AMX_BATCH + KERNEL_MAX_AXES];
    arguments[AMX_OPERANDS] = LLVMGetParam(emit->function, KERNEL_OPERANDS);
    arguments[AMX_A] = emit_scratch_at(gemm->emit, 0);
    arguments[AMX_B] = reordered;
    arguments[AMX_SUMS] =
        emit_address(emit, emit->i8, emit_scratch_at(gemm->emit, plan->a_bytes + plan->b_bytes), kept);
    arguments[AMX_TILE] = emit_scratch_at(gemm->emit, plan->a_bytes + plan->b_bytes + plan->sum_bytes);
    Ir next_k = emit_add(emit, gemm->k, emit_i64(emit, plan->depth_block));
    Ir next = emit_add(emit, column, emit_i64(emit, amx_panel_columns(plan)));
    Ir same = emit_compare(emit, LLVMIntSLT, next, gemm->columns_end);
    next = emit_select(emit, same, next, first);
    next_k = emit_select(emit, same, gemm->k, next_k);
    arguments[AMX_NEXT] = factor_address(gemm, plan->match.b, axis, next, next_k);
    arguments[AMX_KEPT] = plan->keeps_b ? gemm->kept : LLVMConstInt(emit->i1, 0, false);
    if (plan->keeps_b)
        arguments[AMX_NEXT] = emit_select(emit, gemm->kept, kept_panel(gemm, next, next_k), arguments[AMX_NEXT]);
    arguments[AMX_BEGIN] = gemm->begin;
    arguments[AMX_END] = gemm->end;
    arguments[AMX_COLUMN] = column;
    Ir more = emit_add(emit, gemm->depth, emit_i64(emit, BLOCK_DEPTH - 1));
    arguments[AMX_STEPS] = emit_udiv(emit, more, emit_i64(emit, BLOCK_DEPTH));
    arguments[AMX_FIRST] = gemm->first;
    arguments[AMX_LAST] = gemm->last;
    int count = AMX_BATCH + gemm->kernel->axis_count - 1;
    for (int i = AMX_BATCH; i < count; i++) arguments[i] = gemm->index[i - AMX_BATCH];
    call(gemm, amx_panel_type(emit, gemm->kernel), panel, arguments, count);
}

/* The panels of a unit: full ones, then perhaps a ragged one at the end of the rows. */
static void emit_panels(AmxEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const AmxPlan *plan = gemm->plan;
    int64_t width = amx_panel_columns(plan), whole = plan->columns / width * width;
    Ir first = gemm->index[plan->match.column_axis];
    Ir end = unit_end(gemm, plan->match.column_axis, emit_i64(emit, plan->unit_columns), emit_i64(emit, plan->columns));
    gemm->columns_end = end;
    if (gemm->panel) {
        EmitLoop loop;
        emit_loop_begin(emit, &loop, first, emit_least(emit, end, emit_i64(emit, whole)), width, 0, NULL);
        emit_panel_call(gemm, gemm->panel, loop.index, emit_i64(emit, width));
        emit_loop_end(emit, &loop, NULL);
    }
    if (gemm->ragged) {
        EmitIf branch;
        emit_if(emit, &branch, emit_compare(emit, LLVMIntSGT, end, emit_i64(emit, whole)));
        emit_panel_call(gemm, gemm->ragged, emit_i64(emit, whole), emit_i64(emit, plan->columns - whole));
        emit_end_if(emit, &branch);
    }
}

static void emit_unit(AmxEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const AmxPlan *plan = gemm->plan;
    Ir depth = gemm->all_depth;
    int axis = plan->match.row_axis;
    gemm->begin = emit_i64(emit, 0);
    gemm->end = emit_i64(emit, plan->rows);
    if (axis >= 0) {
        UnitRows rows = units_emit_rows(emit, gemm->kernel, &plan->units, axis, plan->tile_rows, gemm->index);
        gemm->begin = gemm->index[axis];
        gemm->end = unit_end(gemm, axis, rows.step, rows.limit);
    }
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), depth, plan->depth_block, 0, NULL);
    gemm->k = loop.index;
    Ir left = emit_sub(emit, depth, loop.index);
    gemm->depth = emit_least(emit, left, emit_i64(emit, plan->depth_block));
    gemm->first = emit_compare(emit, LLVMIntEQ, loop.index, emit_i64(emit, 0));
    gemm->last = emit_compare(emit, LLVMIntSLE, left, emit_i64(emit, plan->depth_block));
    Ir source = factor_address(gemm, plan->match.a, axis, gemm->begin, gemm->k);
    Ir unit_rows = emit_sub(emit, gemm->end, gemm->begin);
    emit_reorder_call(gemm, gemm->reorder_a, source, emit_scratch_at(gemm->emit, 0), unit_rows);
    emit_panels(gemm);
    emit_loop_end(emit, &loop, NULL);
}

/* Both units in one turn, or the one that the call is given. */
static void emit_joined_units(AmxEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const Units *units = &gemm->plan->units;
    Ir end = LLVMGetParam(emit->function, KERNEL_END);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, LLVMGetParam(emit->function, KERNEL_BEGIN), end, units->total, 0, NULL);
    gemm->units = emit_sub(emit, end, loop.index);
    for (int i = 0; i < units->axis_count; i++)
        if (units->axes[i].count > 1)
            gemm->index[units->axes[i].axis] = emit_mul(emit, loop.index, units->axes[i].step);
    emit_unit(gemm);
    emit_loop_end(emit, &loop, NULL);
}

static void emit_units(AmxEmitter *gemm)
{
    EmitLoop loop;
    gemm->units = emit_i64(gemm->emit, 1);
    units_emit_loop(gemm->emit, &gemm->plan->units, &loop, gemm->index);
    emit_unit(gemm);
    emit_loop_end(gemm->emit, &loop, NULL);
}

Ir amx_tile_configuration(Emit *emit)
{
    unsigned char bytes[64] = {1};
    for (int tile = 0; tile < 8; tile++) {
        bytes[16 + 2 * tile] = 64;
        bytes[48 + tile] = 16;
    }
    Ir value = LLVMConstStringInContext(emit->context, (const char *)bytes, sizeof bytes, true);
    LLVMValueRef global = LLVMAddGlobal(emit->module, LLVMTypeOf(value), "");
    LLVMSetInitializer(global, value);
    LLVMSetGlobalConstant(global, true);
    LLVMSetLinkage(global, LLVMPrivateLinkage);
    LLVMSetAlignment(global, 64);
    return global;
}

void amx_emit(Emit *emit, const Kernel *kernel, const AmxPlan *plan, const char *symbol)
{
    AmxEmitter gemm = {.emit = emit, .kernel = kernel, .plan = plan};
    emit_parts(&gemm, symbol);
    Ir function = emit_kernel_function(emit, symbol);
    for (int i = 0; i < kernel->operand_count; i++)
        gemm.operand[i] = emit_operand(emit, LLVMGetParam(function, KERNEL_OPERANDS), i, kernel->operands[i].dtype);
    for (int axis = 0; axis < kernel->axis_count; axis++) gemm.index[axis] = emit_i64(emit, 0);
    prepare_control(&gemm);
    if (plan->keeps_b) gemm.kept = blocks_are_kept(emit, kernel, gemm.operand);
    gemm.all_depth = units_emit_limit(emit, kernel, &plan->units, kernel->axis_count - 1);
    Ir configuration = amx_tile_configuration(emit);
    emit_intrinsic(emit, "llvm.x86.ldtilecfg", NULL, 0, &configuration, 1);
    (plan->joins_units ? emit_joined_units : emit_units)(&gemm);
    emit_intrinsic(emit, "llvm.x86.tilerelease", NULL, 0, NULL, 0);
    LLVMBuildRetVoid(emit->builder);
}
