#include "codegen/kernels/gemm_reorder.h"

#include "codegen/kernels/arithmetic.h"
#include "codegen/kernels/factor.h"

typedef struct PanelReorder {
    Emit *emit;
    const GemmPlan *plan;
    const PanelShape *panel;
    Factor b;
    Ir source, reordered;
    int width; /* lanes of a reordered row */
} PanelReorder;

/* Of `depth` k, the first `limit` alone where there is one: where those end that make whole groups of `step`, a power
 * of 2, and where all do. */
static Ir whole_end(Emit *emit, int64_t depth, Ir limit, int64_t step)
{
    return limit ? emit_and(emit, limit, emit_i64(emit, -step)) : emit_i64(emit, depth / step * step);
}

static Ir depth_end(Emit *emit, int64_t depth, Ir limit) { return limit ? limit : emit_i64(emit, depth); }

static unsigned reordered_bytes(const PanelReorder *reorder) { return (unsigned)dtype_size(reorder->plan->type); }

static Ir source_at(const PanelReorder *reorder, Ir k, int64_t more_k, int64_t n)
{
    Emit *emit = reorder->emit;
    return factor_at(&reorder->b, reorder->source, emit_i64(emit, n), emit_add(emit, k, emit_i64(emit, more_k)));
}

static Ir load(const PanelReorder *reorder, Ir address, int64_t stride, Ir mask)
{
    Ir value = factor_load(&reorder->b, address, stride, reorder->plan->lanes, mask);
    return reorder->plan->rounds_b ? arithmetic_round_bf16(reorder->emit, value) : value;
}

static void store_row(const PanelReorder *reorder, Ir k, int64_t more_k, int vector, Ir value)
{
    Emit *emit = reorder->emit;
    Ir offset = emit_mul(emit, k, reorder->width);
    offset = emit_add(emit, offset, emit_i64(emit, more_k * reorder->width + vector * reorder->plan->lanes));
    Ir address = emit_address(emit, emit_register_type(emit, reorder->plan->type), reorder->reordered, offset);
    emit_store(emit, value, address, NULL, reordered_bytes(reorder) * (unsigned)reorder->plan->lanes);
}

static int lanes_of_vector(const PanelReorder *reorder, int vector)
{
    bool ragged = reorder->panel->tail && vector == reorder->panel->vectors - 1;
    return ragged ? reorder->panel->tail : reorder->plan->lanes;
}

/* Row k of the panel, contiguous in B or gathered. */
static void reorder_row(const PanelReorder *reorder, Ir k)
{
    int lanes = reorder->plan->lanes;
    for (int v = 0; v < reorder->panel->vectors; v++) {
        int active = lanes_of_vector(reorder, v);
        Ir mask = active < lanes ? emit_lane_mask(reorder->emit, active, lanes) : NULL;
        Ir address = source_at(reorder, k, 0, (int64_t)v * lanes);
        store_row(reorder, k, 0, v, load(reorder, address, reorder->b.across, mask));
    }
}

static void reorder_rows(const PanelReorder *reorder, Ir begin)
{
    Emit *emit = reorder->emit;
    EmitLoop loop;
    emit_loop_begin(emit, &loop, begin, depth_end(emit, reorder->panel->depth, reorder->panel->limit), 1, 0, NULL);
    reorder_row(reorder, loop.index);
    emit_loop_end(emit, &loop, NULL);
}

/* `count` rows k, k + 1 ... of vector `v`, from columns of B that are contiguous along k. */
static void reorder_block(const PanelReorder *reorder, Ir k, int count, int v)
{
    Emit *emit = reorder->emit;
    int lanes = reorder->plan->lanes, active = lanes_of_vector(reorder, v);
    Ir mask = count < lanes ? emit_lane_mask(emit, count, lanes) : NULL;
    Ir row[64];
    for (int n = 0; n < active; n++) row[n] = load(reorder, source_at(reorder, k, 0, (int64_t)v * lanes + n), 1, mask);
    for (int n = active; n < lanes; n++) row[n] = LLVMConstNull(LLVMTypeOf(row[0]));
    emit_transpose_square(emit, row, lanes);
    for (int i = 0; i < count; i++) store_row(reorder, k, i, v, row[i]);
}

static void reorder_transposed(const PanelReorder *reorder)
{
    Emit *emit = reorder->emit;
    int lanes = reorder->plan->lanes;
    const PanelShape *panel = reorder->panel;
    Ir whole = whole_end(emit, panel->depth, panel->limit, lanes);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), whole, lanes, 0, NULL);
    for (int v = 0; v < panel->vectors; v++) reorder_block(reorder, loop.index, lanes, v);
    emit_loop_end(emit, &loop, NULL);
    int rest = (int)(panel->depth % lanes);
    if (panel->limit)
        reorder_rows(reorder, whole);
    else
        for (int v = 0; rest && v < panel->vectors; v++) reorder_block(reorder, whole, rest, v);
}

void gemm_reorder_b(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const PanelShape *panel, Ir source,
                    Ir reordered)
{
    PanelReorder reorder = {.emit = emit, .plan = plan, .panel = panel, .source = source, .reordered = reordered};
    reorder.b = factor_of(emit, kernel, plan->match.b, plan->match.column_axis);
    reorder.width = plan->lanes * panel->vectors;
    if (plan->b == GEMM_B_TRANSPOSED && reorder.b.along_k == 1)
        reorder_transposed(&reorder);
    else
        reorder_rows(&reorder, emit_i64(emit, 0));
}

/* ---- A ---- */

enum { STEPS = 8 /* of k that are taken together, so that a line of A is read once */ };

typedef struct TilesReorder {
    Emit *emit;
    const GemmPlan *plan;
    Factor a;
    LLVMTypeRef element; /* of reordered A */
    int64_t depth;
} TilesReorder;

/* Elements k ... k + count - 1 of `rows` rows, which stand side by side in A. What a store writes beyond them is
 * overwritten by the next one. */
static void reorder_tile_steps(const TilesReorder *reorder, Ir source, Ir reordered, int rows, int count)
{
    Emit *emit = reorder->emit;
    const GemmPlan *plan = reorder->plan;
    int height = gemm_tile_rows(plan, plan->vectors), lanes = 1;
    while (lanes < height) lanes *= 2;
    Ir mask = rows < lanes ? emit_lane_mask(emit, rows, lanes) : NULL, value[STEPS];
    for (int i = 0; i < count; i++) {
        Ir from = factor_at(&reorder->a, source, emit_i64(emit, 0), emit_i64(emit, i));
        value[i] = factor_load(&reorder->a, from, 1, lanes, mask);
        if (plan->rounds_a) value[i] = arithmetic_round_bf16(emit, value[i]);
    }
    for (int i = 0; i < count; i++) {
        Ir to = emit_address(emit, reorder->element, reordered, emit_i64(emit, (int64_t)i * height));
        emit_store(emit, value[i], to, i == count - 1 ? emit_lane_mask(emit, height, lanes) : NULL,
                   (unsigned)dtype_size(plan->type));
    }
}

static void reorder_steps(const TilesReorder *reorder, Ir rows, Ir source, Ir reordered, Ir k, int count)
{
    Emit *emit = reorder->emit;
    const GemmPlan *plan = reorder->plan;
    int height = gemm_tile_rows(plan, plan->vectors), rest = (int)(plan->rows % height);
    Ir from = factor_at(&reorder->a, source, emit_i64(emit, 0), k);
    Ir to = emit_address(emit, reorder->element, reordered, emit_mul(emit, k, height));
    Ir extra = emit_urem(emit, rows, emit_i64(emit, height));
    Ir whole = emit_sub(emit, rows, extra);
    EmitLoop tiles;
    emit_loop_begin(emit, &tiles, emit_i64(emit, 0), whole, height, 0, NULL);
    reorder_tile_steps(reorder, factor_skip(&reorder->a, from, tiles.index),
                       emit_address(emit, reorder->element, to, emit_mul(emit, tiles.index, reorder->depth)), height,
                       count);
    emit_loop_end(emit, &tiles, NULL);
    if (!rest) return;
    EmitIf branch;
    emit_if(emit, &branch, emit_compare(emit, LLVMIntNE, extra, emit_i64(emit, 0)));
    reorder_tile_steps(reorder, factor_skip(&reorder->a, from, whole),
                       emit_address(emit, reorder->element, to, emit_mul(emit, whole, reorder->depth)), rest, count);
    emit_end_if(emit, &branch);
}

void gemm_reorder_a(Emit *emit, const Kernel *kernel, const GemmPlan *plan, int64_t depth, Ir limit, Ir rows, Ir source,
                    Ir reordered)
{
    TilesReorder reorder = {.emit = emit,
                            .plan = plan,
                            .a = factor_of(emit, kernel, plan->match.a, plan->match.row_axis),
                            .element = emit_register_type(emit, plan->type),
                            .depth = depth};
    Ir whole = whole_end(emit, depth, limit, STEPS);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), whole, STEPS, 0, NULL);
    reorder_steps(&reorder, rows, source, reordered, loop.index, STEPS);
    emit_loop_end(emit, &loop, NULL);
    int rest = (int)(depth % STEPS);
    if (limit) {
        emit_loop_begin(emit, &loop, whole, limit, 1, 0, NULL);
        reorder_steps(&reorder, rows, source, reordered, loop.index, 1);
        emit_loop_end(emit, &loop, NULL);
    } else if (rest) {
        reorder_steps(&reorder, rows, source, reordered, whole, rest);
    }
}
