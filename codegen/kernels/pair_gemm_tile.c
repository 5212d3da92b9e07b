/* The innermost part of a matrix product by VDPBF16PS: the rows of a unit times one reordered panel, and the
 * reordering of the next one meanwhile. */
#include "base/integers.h"
#include "codegen/kernels/kernel_sizes.h"
#include "codegen/kernels/pair_gemm_tile.h"
#include "codegen/kernels/tile_epilogue.h"
#include "codegen/kernels/zero_range.h"

enum {
    UNROLL = 4, /* pairs of k */
    PAIR_BYTES = 4,
    TURN_BYTES = UNROLL * PAIR_BYTES, /* of a row of A in a turn of the loop */
    TURNS_PER_LINE = BLOCK_LINE_BYTES / TURN_BYTES,
    TURNS_PER_STEP = BLOCK_PAIRS / UNROLL
};

typedef struct PairPanel {
    Emit *emit;
    const Kernel *kernel;
    const PairPlan *plan;
    LLVMValueRef function, reorder_b;
    Factor source; /* B */
    int vectors;
    int64_t steps; /* of k in a whole block */
    int64_t share; /* steps of the next panel that a tile reorders */
    int rows;      /* of the tile */
    Ir tile;       /* its number in the unit */
    Ir a;          /* its rows */
    TileEpilogue epilogue;
} PairPanel;

static Ir parameter(PairPanel *panel, PairPanelParameter which)
{
    return LLVMGetParam(panel->function, (unsigned)which);
}

static Ir bytes_after(PairPanel *panel, Ir base, Ir bytes)
{
    return emit_address(panel->emit, panel->emit->i8, base, bytes);
}

static Ir below(PairPanel *panel, Ir a, Ir b) { return emit_compare(panel->emit, LLVMIntSLT, a, b); }

/* ---- Reordering the next panel ---- */

/* The next panel's element at k, in its first column. */
static Ir next_source(PairPanel *panel, Ir k)
{
    return factor_at(&panel->source, parameter(panel, PAIR_NEXT_SOURCE), emit_i64(panel->emit, 0), k);
}

/* The next panel's k from `k`, a multiple of BLOCK_DEPTH, to `end`. */
static void reorder_next(PairPanel *panel, Ir k, Ir end)
{
    Emit *emit = panel->emit;
    EmitIf branch;
    emit_if(emit, &branch, below(panel, k, end));
    Ir to = emit_mul(emit, k, panel->plan->vectors * BLOCK_LINE_BYTES / 2);
    Ir arguments[] = {next_source(panel, k), bytes_after(panel, parameter(panel, PAIR_NEXT_B), to),
                      parameter(panel, PAIR_NEXT_EXTENT), emit_sub(emit, end, k)};
    LLVMBuildCall2(emit->builder, blocks_reorder_type(emit), panel->reorder_b, arguments, 4, "");
    emit_end_if(emit, &branch);
}

/* The first k of share number `share`, at most all. */
static Ir share_begin(PairPanel *panel, Ir share)
{
    Ir k = emit_mul(panel->emit, share, panel->share * BLOCK_DEPTH), all = parameter(panel, PAIR_NEXT_DEPTH);
    return emit_select(panel->emit, below(panel, k, all), k, all);
}

/* The tile before has prefetched it. */
static void reorder_share(PairPanel *panel)
{
    Ir before = emit_sub(panel->emit, panel->tile, emit_i64(panel->emit, 1));
    EmitIf branch;
    emit_if(panel->emit, &branch, emit_compare(panel->emit, LLVMIntSGE, before, emit_i64(panel->emit, 0)));
    reorder_next(panel, share_begin(panel, before), share_begin(panel, panel->tile));
    emit_end_if(panel->emit, &branch);
}

/* The lines that the next tile will reorder, into the second-level cache: some in every turn. Mostly a few tiles
 * reorder all, and the others skip this. */
static void prefetch_share(PairPanel *panel, Ir turn)
{
    Emit *emit = panel->emit;
    const Factor *source = &panel->source;
    bool by_rows = source->across == 1;
    if (!by_rows && source->along_k != 1) return;
    int64_t columns = pair_panel_columns(panel->plan), depth = panel->share * BLOCK_DEPTH;
    int64_t per_row = divide_up(factor_bytes(source, by_rows ? columns : depth), BLOCK_LINE_BYTES);
    int64_t lines = per_row * (by_rows ? depth : columns);
    int64_t pitch = factor_bytes(source, by_rows ? source->along_k : source->across);
    int64_t each = divide_up(lines, panel->steps * TURNS_PER_STEP);
    Ir k = emit_mul(emit, panel->tile, depth), divisor = emit_i64(emit, per_row);
    Ir first = factor_memory(source, next_source(panel, k));
    Ir rows = by_rows ? emit_sub(emit, parameter(panel, PAIR_NEXT_DEPTH), k) : parameter(panel, PAIR_NEXT_EXTENT);
    EmitIf branch;
    emit_if(emit, &branch, below(panel, k, parameter(panel, PAIR_NEXT_DEPTH)));
    for (int64_t i = 0; i < each; i++) {
        Ir line = emit_add(emit, emit_mul(emit, turn, each), emit_i64(emit, i));
        Ir row = emit_udiv(emit, line, divisor), within = emit_urem(emit, line, divisor);
        Ir address = emit_add(emit, emit_mul(emit, row, pitch), emit_mul(emit, within, BLOCK_LINE_BYTES));
        address = emit_select(emit, below(panel, row, rows), address, emit_i64(emit, 0));
        emit_prefetch(emit, bytes_after(panel, first, address), PREFETCH_LEVEL2);
    }
    emit_end_if(emit, &branch);
}

/* The next panel where it is kept already, likewise: those of the first tiles that are enough. */
static void prefetch_kept(PairPanel *panel, Ir turn)
{
    Emit *emit = panel->emit;
    const PairPlan *plan = panel->plan;
    if (!plan->keeps_b) return;
    int64_t lines = (int64_t)plan->b_bytes / BLOCK_LINE_BYTES, turns = panel->steps * TURNS_PER_STEP;
    int64_t each = divide_up(lines, divide_up(plan->unit_rows, plan->tile_rows) * turns);
    Ir zero = emit_i64(emit, 0), first = emit_mul(emit, emit_add(emit, emit_mul(emit, panel->tile, turns), turn), each);
    Ir kept = emit_compare(emit, LLVMIntEQ, parameter(panel, PAIR_NEXT_DEPTH), zero);
    kept = emit_and(emit, kept, below(panel, zero, parameter(panel, PAIR_NEXT_EXTENT)));
    EmitIf branch;
    emit_if(emit, &branch, emit_and(emit, kept, below(panel, first, emit_i64(emit, lines))));
    for (int64_t i = 0; i < each; i++) {
        Ir line = emit_mul(emit, emit_add(emit, first, emit_i64(emit, i)), BLOCK_LINE_BYTES);
        emit_prefetch(emit, bytes_after(panel, parameter(panel, PAIR_NEXT_B), line), PREFETCH_LEVEL2);
    }
    emit_end_if(emit, &branch);
}

/* ---- Prefetching what the tile itself reads ---- */

/* A's lines a little later, at the end of its rows those of the next tile: a turn takes its part of the rows. */
static void prefetch_a(PairPanel *panel, Ir turn, Ir bytes)
{
    enum { AHEAD = 2 * BLOCK_LINE_BYTES };
    Emit *emit = panel->emit;
    int64_t pitch = panel->plan->row_pitch, each = divide_up(panel->rows, TURNS_PER_LINE);
    Ir row = emit_and(emit, turn, emit_i64(emit, TURNS_PER_LINE - 1));
    Ir ahead = emit_add(emit, bytes, emit_i64(emit, AHEAD));
    Ir length = emit_mul(emit, parameter(panel, PAIR_STEPS), BLOCK_LINE_BYTES);
    Ir wrapped = emit_sub(emit, emit_add(emit, ahead, emit_i64(emit, panel->rows * pitch)), length);
    ahead = emit_select(emit, below(panel, ahead, length), ahead, wrapped);
    ahead = emit_add(emit, ahead, emit_mul(emit, row, each * pitch));
    for (int64_t i = 0; i < each; i++) {
        Ir address = bytes_after(panel, panel->a, emit_add(emit, ahead, emit_i64(emit, i * pitch)));
        emit_prefetch(emit, address, PREFETCH_LEVEL1);
    }
}

/* The lines that the epilogue walks through, if the sums are complete after this block of k: some in every turn. */
static void prefetch_streams(PairPanel *panel, Ir turn, Ir at_hand)
{
    Emit *emit = panel->emit;
    const PairPlan *plan = panel->plan;
    int operands[KERNEL_MAX_OPERANDS], count = tile_epilogue_streams(&panel->epilogue, operands);
    if (count == 0) return;
    int64_t last_steps = divide_up((plan->depth - 1) % plan->depth_block + 1, BLOCK_DEPTH);
    int64_t each = divide_up((int64_t)panel->rows * panel->vectors, last_steps * TURNS_PER_STEP);
    for (int64_t i = 0; i < each; i++) {
        Ir line = emit_add(emit, emit_mul(emit, turn, each), emit_i64(emit, i));
        Ir last = plan->depth > plan->depth_block ? parameter(panel, PAIR_LAST) : NULL;
        tile_epilogue_prefetch(&panel->epilogue, operands, count, line, last, at_hand);
    }
}

/* ---- Multiplying ---- */

static void multiply_pair(PairPanel *panel, Ir a, Ir b, Ir *sum)
{
    Emit *emit = panel->emit;
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(emit->context), 2 * BLOCK_PAIRS);
    Ir vector[PAIR_MAX_VECTORS];
    for (int v = 0; v < panel->vectors; v++) {
        Ir address = bytes_after(panel, b, emit_i64(emit, v * BLOCK_LINE_BYTES));
        vector[v] = emit_load(emit, pairs, address, NULL, BLOCK_LINE_BYTES);
    }
    for (int r = 0; r < panel->rows; r++) {
        Ir address = bytes_after(panel, a, emit_i64(emit, r * panel->plan->row_pitch));
        Ir pair = emit_load(emit, emit->i32, address, NULL, PAIR_BYTES / 2);
        Ir factor = LLVMBuildBitCast(emit->builder, emit_broadcast(emit, pair, BLOCK_PAIRS), pairs, "");
        for (int v = 0; v < panel->vectors; v++) {
            Ir *to = &sum[r * panel->vectors + v];
            *to = emit_intrinsic(emit, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, (Ir[]){*to, factor, vector[v]}, 3);
        }
    }
}

/* The pairs of k that are multiplied: none where all sums are hidden, else all, unless they begin or end with zeros.
 */
static void find_range(PairPanel *panel, Ir *first, Ir *end)
{
    Emit *emit = panel->emit;
    *first = emit_i64(emit, 0);
    *end = emit_mul(emit, parameter(panel, PAIR_STEPS), BLOCK_PAIRS);
    Body *body = &panel->epilogue.body;
    Ir visible = hidden_sums_any_visible(body, &panel->plan->hidden, &panel->plan->match, panel->rows);
    if (visible) *end = emit_select(emit, visible, *end, *first);
    if (!panel->plan->skips_zeros) return;
    ZeroRange range = {.integer = emit->i32,
                       .lanes = PAIR_ZERO_STEP / 2,
                       .pieces = panel->rows,
                       .step = PAIR_ZERO_STEP / 2,
                       .k_bytes = PAIR_BYTES,
                       .piece_bytes = panel->plan->row_pitch};
    zero_range_emit(emit, &range, panel->a, *end, first, end);
}

static void multiply(PairPanel *panel, Ir *sum)
{
    Emit *emit = panel->emit;
    int count = panel->rows * panel->vectors;
    int64_t line = panel->plan->vectors * BLOCK_LINE_BYTES;
    EmitLoop loop;
    Ir first, end;
    find_range(panel, &first, &end);
    emit_loop_begin(emit, &loop, first, end, UNROLL, count, sum);
    for (int i = 0; i < count; i++) sum[i] = loop.carried[i];
    Ir bytes = emit_mul(emit, loop.index, PAIR_BYTES), a = bytes_after(panel, panel->a, bytes);
    Ir b = bytes_after(panel, parameter(panel, PAIR_B), emit_mul(emit, loop.index, line));
    Ir turn = emit_udiv(emit, loop.index, emit_i64(emit, UNROLL));
    prefetch_a(panel, turn, bytes);
    prefetch_share(panel, turn);
    prefetch_kept(panel, turn);
    prefetch_streams(panel, turn, b);
    for (int u = 0; u < UNROLL; u++)
        multiply_pair(panel, bytes_after(panel, a, emit_i64(emit, u * PAIR_BYTES)),
                      bytes_after(panel, b, emit_i64(emit, u * line)), sum);
    emit_loop_end(emit, &loop, sum);
    for (int i = 0; i < count; i++) sum[i] = loop.carried[i];
}

static Ir sum_address(PairPanel *panel, Ir base, int number)
{
    return bytes_after(panel, base, emit_i64(panel->emit, (int64_t)number * BLOCK_LINE_BYTES));
}

static void start_sums(PairPanel *panel, Ir kept, Ir *sum)
{
    Emit *emit = panel->emit;
    LLVMTypeRef vector = emit_vector_type(emit->f32, BLOCK_SIDE);
    Ir later = emit_not(emit, emit_broadcast(emit, parameter(panel, PAIR_FIRST), BLOCK_SIDE));
    for (int i = 0; i < panel->rows * panel->vectors; i++)
        sum[i] = panel->plan->sum_bytes ? emit_load(emit, vector, sum_address(panel, kept, i), later, BLOCK_LINE_BYTES)
                                        : LLVMConstNull(vector);
}

static void keep_sums(PairPanel *panel, Ir to, const Ir *sum)
{
    for (int i = 0; i < panel->rows * panel->vectors; i++)
        emit_store(panel->emit, sum[i], sum_address(panel, to, i), NULL, BLOCK_LINE_BYTES);
}

/* The sums of `rows` rows from `row` on, and if they are complete what becomes of them. */
static void emit_tile(PairPanel *panel, Ir row, int rows)
{
    Emit *emit = panel->emit;
    const PairPlan *plan = panel->plan;
    Ir in_unit = emit_sub(emit, row, parameter(panel, PAIR_BEGIN)), sum[PAIR_SUMS_IN_REGISTERS];
    panel->rows = rows;
    panel->tile = emit_udiv(emit, in_unit, emit_i64(emit, plan->tile_rows));
    panel->a = bytes_after(panel, parameter(panel, PAIR_A), emit_mul(emit, in_unit, plan->row_pitch));
    Ir at = emit_mul(emit, in_unit, panel->vectors * BLOCK_LINE_BYTES);
    Ir kept = bytes_after(panel, parameter(panel, PAIR_SUMS), at), finished = parameter(panel, PAIR_TILE);
    reorder_share(panel);
    tile_epilogue_move(&panel->epilogue, row);
    start_sums(panel, kept, sum);
    multiply(panel, sum);
    if (plan->sum_bytes == 0 && tile_epilogue_is_short(&panel->epilogue)) {
        tile_epilogue_emit_rows(&panel->epilogue, row, rows, sum);
        return;
    }
    keep_sums(panel, emit_select(emit, parameter(panel, PAIR_LAST), finished, kept), sum);
    EmitIf branch;
    emit_if(emit, &branch, parameter(panel, PAIR_LAST));
    tile_epilogue_emit(&panel->epilogue, row, emit_i64(emit, rows), finished);
    emit_end_if(emit, &branch);
}

/* ---- Panels ---- */

/* Whole tiles, then the rows that are left at the matrix' end. */
static void emit_tiles(PairPanel *panel)
{
    Emit *emit = panel->emit;
    const PairPlan *plan = panel->plan;
    int64_t rest = plan->rows % plan->tile_rows;
    Ir end = parameter(panel, PAIR_END), limit = emit_i64(emit, plan->rows - rest);
    if (plan->rows >= plan->tile_rows) {
        EmitLoop loop;
        emit_loop_begin(emit, &loop, parameter(panel, PAIR_BEGIN),
                        emit_select(emit, below(panel, end, limit), end, limit), plan->tile_rows, 0, NULL);
        emit_tile(panel, loop.index, plan->tile_rows);
        emit_loop_end(emit, &loop, NULL);
    }
    if (rest == 0) return;
    EmitIf branch;
    emit_if(emit, &branch, emit_compare(emit, LLVMIntSGT, end, limit));
    emit_tile(panel, limit, (int)rest);
    emit_end_if(emit, &branch);
}

/* What no tile has reordered. */
static void reorder_left(PairPanel *panel)
{
    Emit *emit = panel->emit;
    Ir rows = emit_sub(emit, parameter(panel, PAIR_END), parameter(panel, PAIR_BEGIN));
    rows = emit_add(emit, rows, emit_i64(emit, panel->plan->tile_rows - 1));
    Ir tiles = emit_udiv(emit, rows, emit_i64(emit, panel->plan->tile_rows));
    Ir reordered = share_begin(panel, emit_sub(emit, tiles, emit_i64(emit, 1)));
    reorder_next(panel, reordered, parameter(panel, PAIR_NEXT_DEPTH));
}

LLVMTypeRef pair_panel_type(Emit *emit, const Kernel *kernel)
{
    LLVMTypeRef types[PAIR_BATCH + KERNEL_MAX_AXES];
    int count = PAIR_BATCH + kernel->axis_count - 1;
    for (int i = 0; i < count; i++)
        types[i] = i < PAIR_BEGIN ? emit->pointer : i == PAIR_FIRST || i == PAIR_LAST ? emit->i1 : emit->i64;
    return LLVMFunctionType(emit->void_type, types, (unsigned)count, false);
}

LLVMValueRef pair_emit_panel(Emit *emit, const Kernel *kernel, const PairPlan *plan, LLVMValueRef reorder_b,
                             int vectors, int tail, const char *name)
{
    PairPanel panel = {.emit = emit, .kernel = kernel, .plan = plan, .reorder_b = reorder_b, .vectors = vectors};
    int64_t tiles = divide_up(plan->unit_rows, plan->tile_rows);
    panel.source = factor_of(emit, kernel, plan->match.b, plan->match.column_axis);
    panel.steps = divide_up(plan->depth < plan->depth_block ? plan->depth : plan->depth_block, BLOCK_DEPTH);
    panel.share = divide_up(panel.steps, tiles > 1 ? tiles - 1 : 1);
    panel.function = emit_function(emit, name, pair_panel_type(emit, kernel), true);
    panel.epilogue = (TileEpilogue){.match = &plan->match, .vectors = vectors};
    Ir batch[KERNEL_MAX_AXES];
    for (int axis = 0; axis < kernel->axis_count - 1; axis++)
        batch[axis] = parameter(&panel, PAIR_BATCH + (unsigned)axis);
    tile_epilogue_prepare(&panel.epilogue, emit, kernel, parameter(&panel, PAIR_OPERANDS),
                          parameter(&panel, PAIR_COLUMN), batch, tail);
    emit_tiles(&panel);
    reorder_left(&panel);
    LLVMBuildRetVoid(emit->builder);
    return panel.function;
}
