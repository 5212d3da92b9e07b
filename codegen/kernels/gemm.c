/* Emission of matrix products as planned: units and blocks of k. */
#include "codegen/kernels/gemm.h"

#include "codegen/kernels/emit_blocks.h"
#include "codegen/kernels/gemm_reorder.h"
#include "codegen/kernels/gemm_tile.h"

/* Blocks of k: the first, those between, the last; full and ragged panels of each. */
enum { FIRST, MIDDLE, LAST, POSITIONS };

typedef struct GemmEmitter {
    Emit *emit;
    const Kernel *kernel;
    const GemmPlan *plan;
    Ir operand[KERNEL_MAX_OPERANDS];
    Ir index[KERNEL_MAX_AXES]; /* of the unit */
    Ir row_end;
    Panel panel[POSITIONS][2]; /* full, ragged */
    LLVMValueRef function[POSITIONS][2];
} GemmEmitter;

static int64_t block_count(const GemmPlan *plan) { return (plan->depth + plan->depth_block - 1) / plan->depth_block; }

/* Sums that may be limited are accumulated in place, so one form is that of all blocks. */
static bool has_position(const GemmEmitter *gemm, int position)
{
    int64_t blocks = block_count(gemm->plan);
    if (gemm->kernel->limited) return position == MIDDLE;
    return position == LAST || blocks > (position == FIRST ? 1 : 2);
}

static void emit_panels(GemmEmitter *gemm, const char *symbol)
{
    const GemmPlan *plan = gemm->plan;
    int64_t blocks = block_count(plan), ragged = plan->columns % plan->panel_columns;
    for (int position = 0; position < POSITIONS; position++) {
        if (!has_position(gemm, position)) continue;
        int64_t last_depth = plan->depth - (blocks - 1) * plan->depth_block;
        for (int kind = 0; kind < 2; kind++) {
            Panel *panel = &gemm->panel[position][kind];
            int64_t columns = kind ? ragged : plan->panel_columns;
            *panel = (Panel){.vectors = (int)((columns + plan->lanes - 1) / plan->lanes),
                             .tail = (int)(columns % plan->lanes),
                             .depth = position == LAST ? last_depth : plan->depth_block,
                             .first = position == FIRST || blocks == 1,
                             .last = position == LAST};
            int inner = gemm->kernel->axis_count - 1;
            const KernelOperand *b = &gemm->kernel->operands[plan->match.b];
            /* After the last block the next panel starts again; units of several panels take them block by block. */
            int64_t depths = position == LAST ? last_depth - plan->depth : plan->depth_block;
            int64_t next_panel = plan->panel_columns * b->stride[plan->match.column_axis];
            bool several = plan->unit_columns > plan->panel_columns;
            panel->next_a = depths * gemm->kernel->operands[plan->match.a].stride[inner];
            if (position == LAST && plan->unit_columns >= plan->columns && plan->reorder_a)
                panel->next_a += plan->unit_rows;
            panel->next_source = several ? next_panel : depths * b->stride[inner];
            if (position == LAST && !several) panel->next_source += next_panel;
            if (kind ? !ragged : plan->columns < plan->panel_columns) continue;
            char name[96];
            snprintf(name, sizeof name, "%s.%s%s", symbol, (const char *[]){"first", "middle", "last"}[position],
                     kind ? ".ragged" : "");
            gemm->function[position][kind] = gemm_emit_panel(gemm->emit, gemm->kernel, plan, panel, name);
        }
    }
}

/* The operand's element at the unit's batch indices and the given row, column and k; those that are NULL are 0. */
static Ir element_address(GemmEmitter *gemm, int number, Ir row, Ir column, Ir k)
{
    Emit *emit = gemm->emit;
    const KernelOperand *operand = &gemm->kernel->operands[number];
    const KernelGemm *match = &gemm->plan->match;
    int inner = gemm->kernel->axis_count - 1;
    Ir offset = emit_i64(emit, 0);
    for (int axis = 0; axis <= inner; axis++) {
        Ir index = axis == match->row_axis      ? row
                   : axis == match->column_axis ? column
                   : axis == inner              ? k
                                                : gemm->index[axis];
        if (index && operand->stride[axis])
            offset = emit_add(emit, offset, emit_mul(emit, index, operand->stride[axis]));
    }
    return emit_element_address(emit, operand->dtype, gemm->operand[number], offset);
}

static Ir sums_address(GemmEmitter *gemm, Ir begin, Ir column)
{
    const GemmPlan *plan = gemm->plan;
    if (!plan->sums_in_place) return emit_scratch_at(gemm->emit, plan->b_bytes + plan->a_bytes);
    int c = kernel_instruction(gemm->kernel, (Register)(plan->match.sum + 1))->operand;
    return element_address(gemm, c, begin, column, NULL);
}

static Ir unit_begin(GemmEmitter *gemm)
{
    int axis = gemm->plan->match.row_axis;
    return axis < 0 ? emit_i64(gemm->emit, 0) : gemm->index[axis];
}

/* `depth`: of a limited sum. */
static void emit_panel_call(GemmEmitter *gemm, int position, int kind, Ir column, Ir k, Ir depth)
{
    Emit *emit = gemm->emit;
    const GemmPlan *plan = gemm->plan;
    const Panel *panel = &gemm->panel[position][kind];
    Ir begin = unit_begin(gemm);
    Ir source = element_address(gemm, plan->match.b, NULL, column, k), b = source;
    if (plan->b != GEMM_B_DIRECT) {
        PanelShape shape = {panel->vectors, panel->tail, panel->depth, depth};
        b = emit_scratch_at(gemm->emit, 0);
        if (!plan->reorders_b_in_tile) gemm_reorder_b(emit, gemm->kernel, plan, &shape, source, b);
    }
    Ir arguments[PANEL_BATCH + KERNEL_MAX_AXES];
    arguments[PANEL_OPERANDS] = LLVMGetParam(emit->function, KERNEL_OPERANDS);
    arguments[PANEL_A] = plan->reorder_a ? emit_scratch_at(gemm->emit, plan->b_bytes)
                                         : element_address(gemm, plan->match.a, NULL, NULL, k);
    arguments[PANEL_A_SOURCE] = element_address(gemm, plan->match.a, begin, NULL, k);
    arguments[PANEL_B] = b;
    arguments[PANEL_SOURCE] = source;
    arguments[PANEL_SUMS] = sums_address(gemm, begin, column);
    arguments[PANEL_BEGIN] = begin;
    arguments[PANEL_END] = gemm->row_end;
    arguments[PANEL_COLUMN] = column;
    arguments[PANEL_DEPTH] = depth ? depth : emit_i64(emit, panel->depth);
    int count = PANEL_BATCH + gemm->kernel->axis_count - 1;
    for (int i = PANEL_BATCH; i < count; i++) arguments[i] = gemm->index[i - PANEL_BATCH];
    LLVMTypeRef type = gemm_panel_type(emit, gemm->kernel);
    LLVMBuildCall2(emit->builder, type, gemm->function[position][kind], arguments, (unsigned)count, "");
}

/* The panels of a unit: full ones, then perhaps a ragged one at the end of the rows. */
static void emit_block(GemmEmitter *gemm, int position, Ir k, Ir depth)
{
    Emit *emit = gemm->emit;
    const GemmPlan *plan = gemm->plan;
    Ir first = gemm->index[plan->match.column_axis];
    int64_t whole = plan->columns / plan->panel_columns * plan->panel_columns;
    if (plan->reorder_a) {
        Ir rows = emit_sub(emit, gemm->row_end, unit_begin(gemm));
        gemm_reorder_a(emit, gemm->kernel, plan, gemm->panel[position][0].depth, depth, rows,
                       element_address(gemm, plan->match.a, unit_begin(gemm), NULL, k),
                       emit_scratch_at(gemm->emit, plan->b_bytes));
    }
    if (gemm->function[position][0]) {
        Ir end = emit_add(emit, first, emit_i64(emit, plan->unit_columns));
        Ir below = emit_compare(emit, LLVMIntSLT, end, emit_i64(emit, whole));
        end = emit_select(emit, below, end, emit_i64(emit, whole));
        EmitLoop loop;
        emit_loop_begin(emit, &loop, first, end, plan->panel_columns, 0, NULL);
        emit_panel_call(gemm, position, 0, loop.index, k, depth);
        emit_loop_end(emit, &loop, NULL);
    }
    if (gemm->function[position][1]) {
        EmitIf branch;
        Ir end = emit_add(emit, first, emit_i64(emit, plan->unit_columns));
        emit_if(emit, &branch, emit_compare(emit, LLVMIntSGT, end, emit_i64(emit, whole)));
        emit_panel_call(gemm, position, 1, emit_i64(emit, whole), k, depth);
        emit_end_if(emit, &branch);
    }
}

static void emit_limited_blocks(GemmEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const GemmPlan *plan = gemm->plan;
    Ir all = units_emit_limit(emit, gemm->kernel, &plan->units, gemm->kernel->axis_count - 1);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), all, plan->depth_block, 0, NULL);
    Ir depth = emit_least(emit, emit_sub(emit, all, loop.index), emit_i64(emit, plan->depth_block));
    emit_block(gemm, MIDDLE, loop.index, depth);
    emit_loop_end(emit, &loop, NULL);
}

static void emit_unit(GemmEmitter *gemm)
{
    Emit *emit = gemm->emit;
    const GemmPlan *plan = gemm->plan;
    int axis = plan->match.row_axis;
    gemm->row_end = emit_i64(emit, plan->rows);
    if (axis >= 0) {
        Ir limit = plan->reorder_a ? gemm->row_end : units_emit_limit(emit, gemm->kernel, &plan->units, axis);
        gemm->row_end = emit_least(emit, emit_add(emit, gemm->index[axis], emit_i64(emit, plan->unit_rows)), limit);
    }
    if (gemm->kernel->limited) {
        emit_limited_blocks(gemm);
        return;
    }
    int64_t blocks = block_count(plan);
    if (blocks > 1) emit_block(gemm, FIRST, emit_i64(emit, 0), NULL);
    Ir last = emit_i64(emit, (blocks - 1) * plan->depth_block);
    if (blocks > 2) {
        EmitLoop loop;
        emit_loop_begin(emit, &loop, emit_i64(emit, plan->depth_block), last, plan->depth_block, 0, NULL);
        emit_block(gemm, MIDDLE, loop.index, NULL);
        emit_loop_end(emit, &loop, NULL);
    }
    emit_block(gemm, LAST, last, NULL);
}

void gemm_emit(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const char *symbol)
{
    GemmEmitter gemm = {.emit = emit, .kernel = kernel, .plan = plan};
    emit_panels(&gemm, symbol);
    Ir function = emit_kernel_function(emit, symbol);
    for (int i = 0; i < kernel->operand_count; i++)
        gemm.operand[i] = emit_operand(emit, LLVMGetParam(function, KERNEL_OPERANDS), i, kernel->operands[i].dtype);
    for (int axis = 0; axis < kernel->axis_count; axis++) gemm.index[axis] = emit_i64(emit, 0);
    EmitLoop loop;
    units_emit_loop(emit, &plan->units, &loop, gemm.index);
    emit_unit(&gemm);
    emit_loop_end(emit, &loop, NULL);
    LLVMBuildRetVoid(emit->builder);
}
