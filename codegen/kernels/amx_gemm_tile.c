/* The innermost part of a matrix product on AMX tiles: the rows of a unit times one reordered panel. */
#include "codegen/kernels/amx_gemm_tile.h"
#include "codegen/kernels/tile_epilogue.h"

enum {
    A_TILES = 2, /* two tiles of rows by up to two of columns, numbered 0 ... 3; then those of A, of B */
    FIRST_A = 4,
    FIRST_B = 6
};

typedef struct AmxPanel {
    Emit *emit;
    const Kernel *kernel;
    const AmxPlan *plan;
    LLVMValueRef function;
    int vectors;
    Ir tile; /* number of the tile of rows in the unit */
    TileEpilogue epilogue;
} AmxPanel;

static Ir parameter(AmxPanel *panel, AmxPanelParameter which) { return LLVMGetParam(panel->function, (unsigned)which); }

static Ir bytes_after(AmxPanel *panel, Ir base, Ir bytes)
{
    return emit_address(panel->emit, panel->emit->i8, base, bytes);
}

static int64_t sums_pitch(const AmxPanel *panel) { return panel->vectors * BLOCK_LINE_BYTES; }

static Ir sum_address(AmxPanel *panel, Ir base, int row, int vector)
{
    return bytes_after(panel, base, emit_i64(panel->emit, row * sums_pitch(panel) + vector * BLOCK_LINE_BYTES));
}

static Ir tile_number(AmxPanel *panel, int number) { return LLVMConstInt(panel->emit->i8, (unsigned)number, false); }

static void tile_move(AmxPanel *panel, const char *intrinsic, int number, Ir address, int64_t pitch)
{
    Emit *emit = panel->emit;
    Ir arguments[] = {tile_number(panel, number), address, emit_i64(emit, pitch)};
    emit_intrinsic(emit, intrinsic, NULL, 0, arguments, 3);
}

static void tiles_each(AmxPanel *panel, const char *intrinsic, Ir base)
{
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir address = sum_address(panel, base, i * BLOCK_SIDE, v);
            tile_move(panel, intrinsic, i * A_TILES + v, address, sums_pitch(panel));
        }
    }
}

/* The blocks of A that the next step loads, into the first-level cache: a share of their lines with every product. */
static void prefetch_a(AmxPanel *panel, Ir a, Ir offset, Ir line, int product, int products)
{
    Emit *emit = panel->emit;
    int64_t step = amx_step_bytes(panel->plan), lines = A_TILES * step / BLOCK_LINE_BYTES;
    for (int64_t i = lines * product / products; i < lines * (product + 1) / products; i++) {
        int64_t tile = i * BLOCK_LINE_BYTES / step, within = i * BLOCK_LINE_BYTES % step;
        Ir address = emit_add(emit, offset, emit_mul(emit, line, tile));
        address = bytes_after(panel, a, emit_add(emit, address, emit_i64(emit, step + within)));
        emit_prefetch(emit, address, PREFETCH_LEVEL1);
    }
}

/* Loads the tiles of one part of one factor. */
static void tiles_load(AmxPanel *panel, int first, int count, int part, Ir base, Ir offset, Ir line)
{
    Emit *emit = panel->emit;
    for (int i = 0; i < count; i++) {
        Ir address = emit_add(emit, offset, emit_mul(emit, line, i));
        address = bytes_after(panel, base, emit_add(emit, address, emit_i64(emit, part * BLOCK_BYTES)));
        tile_move(panel, "llvm.x86.tileloadd64", first + i, address, BLOCK_LINE_BYTES);
    }
}

static void tiles_product(AmxPanel *panel)
{
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir arguments[] = {tile_number(panel, i * A_TILES + v), tile_number(panel, FIRST_A + i),
                              tile_number(panel, FIRST_B + v)};
            emit_intrinsic(panel->emit, "llvm.x86.tdpbf16ps", NULL, 0, arguments, 3);
        }
    }
}

/* The products of parts that count, by the number of parts: neighbours have one part in common, small ones come first
 * where all of a float32 counts. */
static const struct {
    int count;
    struct {
        int a, b;
    } of[6];
} products_of_parts[] = {
    [1] = {1, {{0, 0}}},
    [2] = {3, {{1, 0}, {0, 0}, {0, 1}}},
    [3] = {6, {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}}},
};

/* The sums of the next tile of rows, which follow this one's: a share of their lines for every step of k. */
static void prefetch_sums(AmxPanel *panel, Ir sums, Ir offset)
{
    Emit *emit = panel->emit;
    int64_t bytes = panel->plan->tile_rows * sums_pitch(panel), steps = panel->plan->depth_block / BLOCK_DEPTH;
    int64_t lines = (bytes / BLOCK_LINE_BYTES + steps - 1) / steps;
    Ir step = emit_udiv(emit, offset, emit_i64(emit, amx_step_bytes(panel->plan)));
    Ir next = emit_add(emit, emit_mul(emit, step, lines * BLOCK_LINE_BYTES), emit_i64(emit, bytes));
    for (int64_t i = 0; i < lines; i++) {
        Ir line = bytes_after(panel, sums, emit_add(emit, next, emit_i64(emit, i * BLOCK_LINE_BYTES)));
        emit_prefetch(emit, line, PREFETCH_FOR_WRITING);
    }
}

/* The panel that will be reordered next, into the second-level cache: a share of its lines with every step of k of
 * every tile. */
static void prefetch_next_panel(AmxPanel *panel, Ir offset)
{
    Emit *emit = panel->emit;
    const AmxPlan *plan = panel->plan;
    const Factor source = factor_of(emit, panel->kernel, plan->match.b, plan->match.column_axis);
    bool by_columns = source.along_k == 1;
    if (!by_columns && source.across != 1) return;
    int64_t columns = amx_panel_columns(plan),
            depth = plan->depth_block < plan->depth ? plan->depth_block : plan->depth;
    int64_t row_bytes = factor_bytes(&source, by_columns ? depth : columns);
    int64_t row_lines = (row_bytes + BLOCK_LINE_BYTES - 1) / BLOCK_LINE_BYTES, rows = by_columns ? columns : depth;
    int64_t steps = (depth + BLOCK_DEPTH - 1) / BLOCK_DEPTH, turns = plan->unit_rows / plan->tile_rows * steps;
    int64_t share = (row_lines * rows + turns - 1) / turns;
    Ir step = emit_udiv(emit, offset, emit_i64(emit, amx_step_bytes(plan)));
    Ir first = emit_mul(emit, emit_add(emit, emit_mul(emit, panel->tile, steps), step), share);
    for (int64_t i = 0; i < share; i++) {
        Ir line = emit_add(emit, first, emit_i64(emit, i)), per_row = emit_i64(emit, row_lines);
        Ir row = emit_udiv(emit, line, per_row);
        Ir at = emit_mul(emit, emit_urem(emit, line, per_row), BLOCK_LINE_BYTES);
        at =
            emit_add(emit, at, emit_mul(emit, row, factor_bytes(&source, by_columns ? source.across : source.along_k)));
        if (plan->keeps_b) { /* one line after the other, of bf16 */
            Ir kept = emit_mul(emit, line, BLOCK_LINE_BYTES * 2 / dtype_size(source.dtype));
            at = emit_select(emit, parameter(panel, AMX_KEPT), kept, at);
        }
        emit_prefetch(emit, bytes_after(panel, factor_memory(&source, parameter(panel, AMX_NEXT)), at),
                      PREFETCH_LEVEL2);
    }
}

/* The lines that the epilogue walks through for this tile, if its sums are complete after this block of k: a share with
 * every step. */
static void prefetch_streams(AmxPanel *panel, Ir offset)
{
    Emit *emit = panel->emit;
    const AmxPlan *plan = panel->plan;
    int operands[KERNEL_MAX_OPERANDS], count = tile_epilogue_streams(&panel->epilogue, operands);
    if (count == 0) return;
    int64_t last_depth = (plan->depth - 1) % plan->depth_block + 1,
            steps = (last_depth + BLOCK_DEPTH - 1) / BLOCK_DEPTH;
    int64_t share = (plan->tile_rows * panel->vectors + steps - 1) / steps;
    EmitIf branch;
    emit_if(emit, &branch, parameter(panel, AMX_LAST));
    Ir step = emit_udiv(emit, offset, emit_i64(emit, amx_step_bytes(plan)));
    for (int64_t i = 0; i < share; i++) {
        Ir line = emit_add(emit, emit_mul(emit, step, share), emit_i64(emit, i));
        tile_epilogue_prefetch(&panel->epilogue, operands, count, line, NULL, NULL);
    }
    emit_end_if(emit, &branch);
}

static void tiles_multiply(AmxPanel *panel, Ir a, Ir b, Ir sums)
{
    Emit *emit = panel->emit;
    const AmxPlan *plan = panel->plan;
    Ir line = emit_mul(emit, parameter(panel, AMX_STEPS), amx_step_bytes(plan));
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), line, amx_step_bytes(plan), 0, NULL);
    if (plan->sum_bytes) prefetch_sums(panel, sums, loop.index);
    prefetch_next_panel(panel, loop.index);
    prefetch_streams(panel, loop.index);
    int products = products_of_parts[plan->parts].count;
    for (int p = 0, a_part = -1, b_part = -1; p < products; p++) {
        int next_a = products_of_parts[plan->parts].of[p].a, next_b = products_of_parts[plan->parts].of[p].b;
        if (next_a != a_part) tiles_load(panel, FIRST_A, A_TILES, next_a, a, loop.index, line);
        if (next_b != b_part) tiles_load(panel, FIRST_B, panel->vectors, next_b, b, loop.index, line);
        a_part = next_a, b_part = next_b;
        prefetch_a(panel, a, loop.index, line, p, products);
        tiles_product(panel);
    }
    emit_loop_end(emit, &loop, NULL);
}

static void sum_by_tiles(AmxPanel *panel, Ir a, Ir from, Ir to)
{
    Emit *emit = panel->emit;
    EmitIf branch;
    emit_if(emit, &branch, parameter(panel, AMX_FIRST));
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir number = tile_number(panel, i * A_TILES + v);
            emit_intrinsic(emit, "llvm.x86.tilezero", NULL, 0, &number, 1);
        }
    }
    emit_else(emit, &branch);
    tiles_each(panel, "llvm.x86.tileloadd64", from);
    emit_end_if(emit, &branch);
    tiles_multiply(panel, a, parameter(panel, AMX_B), from);
    tiles_each(panel, "llvm.x86.tilestored64", to);
}

LLVMTypeRef amx_panel_type(Emit *emit, const Kernel *kernel)
{
    LLVMTypeRef types[AMX_BATCH + KERNEL_MAX_AXES];
    int count = AMX_BATCH + kernel->axis_count - 1;
    for (int i = 0; i < count; i++)
        types[i] = i < AMX_BEGIN ? emit->pointer : i >= AMX_FIRST && i <= AMX_KEPT ? emit->i1 : emit->i64;
    return LLVMFunctionType(emit->void_type, types, (unsigned)count, false);
}

/* The sums of the tile at `row`, and if they are complete what becomes of them. */
static void emit_tile(AmxPanel *panel, Ir row)
{
    Emit *emit = panel->emit;
    Ir in_unit = emit_sub(emit, row, parameter(panel, AMX_BEGIN));
    panel->tile = emit_udiv(emit, in_unit, emit_i64(emit, panel->plan->tile_rows));
    Ir within = emit_and(emit, in_unit, emit_i64(emit, BLOCK_SIDE - 1));
    Ir block = emit_lshr(emit, in_unit, emit_i64(emit, 4));
    Ir offset = LLVMBuildMul(emit->builder, block, parameter(panel, AMX_STEPS), "");
    offset =
        emit_add(emit, emit_mul(emit, offset, amx_step_bytes(panel->plan)), emit_mul(emit, within, BLOCK_LINE_BYTES));
    Ir a = bytes_after(panel, parameter(panel, AMX_A), offset);
    Ir kept = bytes_after(panel, parameter(panel, AMX_SUMS), emit_mul(emit, in_unit, sums_pitch(panel)));
    Ir to = emit_select(emit, parameter(panel, AMX_LAST), parameter(panel, AMX_TILE), kept);
    tile_epilogue_move(&panel->epilogue, row);
    sum_by_tiles(panel, a, kept, to);
    EmitIf branch;
    emit_if(emit, &branch, parameter(panel, AMX_LAST));
    Ir left = emit_sub(emit, parameter(panel, AMX_END), row);
    Ir height = emit_i64(emit, panel->plan->tile_rows), fewer = emit_compare(emit, LLVMIntSLT, left, height);
    Ir rows = emit_select(emit, fewer, left, height);
    tile_epilogue_emit(&panel->epilogue, row, rows, parameter(panel, AMX_TILE));
    emit_end_if(emit, &branch);
}

LLVMValueRef amx_emit_panel(Emit *emit, const Kernel *kernel, const AmxPlan *plan, int vectors, int tail,
                            const char *name)
{
    AmxPanel panel = {.emit = emit, .kernel = kernel, .plan = plan, .vectors = vectors};
    panel.function = emit_function(emit, name, amx_panel_type(emit, kernel), true);
    Ir batch[KERNEL_MAX_AXES];
    for (int axis = 0; axis < kernel->axis_count - 1; axis++)
        batch[axis] = parameter(&panel, AMX_BATCH + (unsigned)axis);
    panel.epilogue = (TileEpilogue){.match = &plan->match, .vectors = vectors};
    tile_epilogue_prepare(&panel.epilogue, emit, kernel, parameter(&panel, AMX_OPERANDS), parameter(&panel, AMX_COLUMN),
                          batch, tail);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, parameter(&panel, AMX_BEGIN), parameter(&panel, AMX_END), plan->tile_rows, 0, NULL);
    emit_tile(&panel, loop.index);
    emit_loop_end(emit, &loop, NULL);
    LLVMBuildRetVoid(emit->builder);
    return panel.function;
}
