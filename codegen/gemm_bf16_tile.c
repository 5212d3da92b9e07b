/* The innermost part of a matrix product on the bf16 unit: the rows of a unit times one packed panel. */
#include "codegen/body.h"
#include "codegen/gemm_bf16.h"

enum {
    ROW_BYTES = 64, /* of a block, an AMX tile, a vector */
    PAIRS = 16,     /* of a row */
    UNROLL = 4,     /* pairs of VDPBF16PS */
    A_TILES = 2,    /* AMX: two tiles of rows by up to two of columns, numbered 0 ... 3; then those of A, of B */
    FIRST_A = 4,
    FIRST_B = 6,
    MAX_SUMS = 24
};

typedef struct Panel {
    Emit *emit;
    const Kernel *kernel;
    const Bf16Plan *plan;
    LLVMValueRef function;
    LLVMTypeRef vector; /* of floats */
    int vectors;
    Ir tile; /* number of the tile of rows in the unit */
    Body body;
} Panel;

static Ir parameter(Panel *panel, Bf16PanelParameter which) { return LLVMGetParam(panel->function, (unsigned)which); }

static Ir bytes_behind(Panel *panel, Ir base, Ir bytes)
{
    return emit_address(panel->emit, panel->emit->i8, base, bytes);
}

static int64_t sums_pitch(const Panel *panel) { return panel->vectors * ROW_BYTES; }

static Ir sum_address(Panel *panel, Ir base, int row, int vector)
{
    return bytes_behind(panel, base, emit_i64(panel->emit, row * sums_pitch(panel) + vector * ROW_BYTES));
}

/* --- AMX ------------------------------------------------------------------------------------------------------------
 */

static Ir tile_number(Panel *panel, int number) { return LLVMConstInt(panel->emit->i8, (unsigned)number, false); }

static void tile_move(Panel *panel, const char *intrinsic, int number, Ir address, int64_t pitch)
{
    Emit *emit = panel->emit;
    Ir arguments[] = {tile_number(panel, number), address, emit_i64(emit, pitch)};
    emit_intrinsic(emit, intrinsic, NULL, 0, arguments, 3);
}

static void tiles_each(Panel *panel, const char *intrinsic, Ir base)
{
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir address = sum_address(panel, base, i * BF16_BLOCK, v);
            tile_move(panel, intrinsic, i * A_TILES + v, address, sums_pitch(panel));
        }
    }
}

/* The blocks of A that the next step loads, into the first-level cache: a share of their lines with every product. */
static void prefetch_a(Panel *panel, Ir a, Ir offset, Ir line, int product, int products)
{
    Emit *emit = panel->emit;
    int64_t step = bf16_step_bytes(panel->plan), lines = A_TILES * step / ROW_BYTES;
    for (int64_t i = lines * product / products; i < lines * (product + 1) / products; i++) {
        int64_t tile = i * ROW_BYTES / step, within = i * ROW_BYTES % step;
        Ir address = emit_add(emit, offset, emit_mul(emit, line, tile));
        address = bytes_behind(panel, a, emit_add(emit, address, emit_i64(emit, step + within)));
        emit_prefetch(emit, address, PREFETCH_LEVEL1);
    }
}

/* Loads the tiles of one part of one factor. */
static void tiles_load(Panel *panel, int first, int count, int part, Ir base, Ir offset, Ir line)
{
    Emit *emit = panel->emit;
    for (int i = 0; i < count; i++) {
        Ir address = emit_add(emit, offset, emit_mul(emit, line, i));
        address = bytes_behind(panel, base, emit_add(emit, address, emit_i64(emit, part * BF16_BLOCK_BYTES)));
        tile_move(panel, "llvm.x86.tileloadd64", first + i, address, ROW_BYTES);
    }
}

static void tiles_product(Panel *panel)
{
    Emit *emit = panel->emit;
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir arguments[] = {tile_number(panel, i * A_TILES + v), tile_number(panel, FIRST_A + i),
                              tile_number(panel, FIRST_B + v)};
            emit_intrinsic(emit, "llvm.x86.tdpbf16ps", NULL, 0, arguments, 3);
        }
    }
}

/* The products of parts that count, neighbours with one part in common, small ones first. */
static const struct {
    int a, b;
} split_products[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};

/* The sums of the next tile of rows, which follow this one's: a share of their lines for every step of k. */
static void prefetch_sums(Panel *panel, Ir sums, Ir offset)
{
    Emit *emit = panel->emit;
    int64_t bytes = panel->plan->tile_rows * sums_pitch(panel), steps = panel->plan->depth_block / BF16_STEP;
    int64_t lines = (bytes / ROW_BYTES + steps - 1) / steps;
    Ir step = LLVMBuildUDiv(emit->builder, offset, emit_i64(emit, bf16_step_bytes(panel->plan)), "");
    Ir next = emit_add(emit, emit_mul(emit, step, lines * ROW_BYTES), emit_i64(emit, bytes));
    for (int64_t i = 0; i < lines; i++) {
        Ir line = bytes_behind(panel, sums, emit_add(emit, next, emit_i64(emit, i * ROW_BYTES)));
        emit_prefetch(emit, line, PREFETCH_FOR_WRITING);
    }
}

/* The panel that will be packed next, into the second-level cache: a share of its lines with every step of k of every
 * tile. */
static void prefetch_next_panel(Panel *panel, Ir offset)
{
    Emit *emit = panel->emit;
    const Bf16Plan *plan = panel->plan;
    const KernelOperand *operand = &panel->kernel->operands[plan->match.b];
    int64_t along_k = operand->stride[panel->kernel->axis_count - 1];
    int64_t along_n = operand->stride[plan->match.column_axis];
    if (along_k != 1 && along_n != 1) return;
    int64_t columns = bf16_panel_columns(plan),
            depth = plan->depth_block < plan->depth ? plan->depth_block : plan->depth;
    int64_t row_bytes = (along_k == 1 ? depth : columns) * (int64_t)sizeof(float);
    int64_t row_lines = (row_bytes + ROW_BYTES - 1) / ROW_BYTES, rows = along_k == 1 ? columns : depth;
    int64_t steps = (depth + BF16_STEP - 1) / BF16_STEP, turns = plan->unit_rows / plan->tile_rows * steps;
    int64_t share = (row_lines * rows + turns - 1) / turns;
    Ir step = LLVMBuildUDiv(emit->builder, offset, emit_i64(emit, bf16_step_bytes(plan)), "");
    Ir first = emit_mul(emit, emit_add(emit, emit_mul(emit, panel->tile, steps), step), share);
    for (int64_t i = 0; i < share; i++) {
        Ir line = emit_add(emit, first, emit_i64(emit, i)), per_row = emit_i64(emit, row_lines);
        Ir row = LLVMBuildUDiv(emit->builder, line, per_row, "");
        Ir at = emit_mul(emit, LLVMBuildURem(emit->builder, line, per_row, ""), ROW_BYTES);
        at = emit_add(emit, at, emit_mul(emit, row, (along_k == 1 ? along_n : along_k) * (int64_t)sizeof(float)));
        emit_prefetch(emit, bytes_behind(panel, parameter(panel, BF16_NEXT), at), PREFETCH_LEVEL2);
    }
}

/* The matrices that the epilogue walks through, a piece of every row: nothing else fetches their lines in time. */
static int streamed_operands(const Panel *panel, int *operands)
{
    const KernelGemm *match = &panel->plan->match;
    int count = 0;
    if (match->row_axis < 0) return 0;
    for (int o = 0; o < panel->kernel->operand_count; o++) {
        const KernelOperand *operand = &panel->kernel->operands[o];
        if (o == match->a || o == match->b || !operand->stride[match->row_axis]) continue;
        if (operand->stride[match->column_axis] == 1) operands[count++] = o;
    }
    return count;
}

/* Their lines for this tile, if its sums are complete after this block of k: a share with every step. */
static void prefetch_streams(Panel *panel, Ir offset)
{
    Emit *emit = panel->emit;
    LLVMBuilderRef builder = emit->builder;
    const Bf16Plan *plan = panel->plan;
    int operands[KERNEL_MAX_OPERANDS], count = streamed_operands(panel, operands);
    if (count == 0) return;
    int64_t last_depth = (plan->depth - 1) % plan->depth_block + 1, steps = (last_depth + BF16_STEP - 1) / BF16_STEP;
    int64_t share = (plan->tile_rows * panel->vectors + steps - 1) / steps;
    If branch;
    emit_if(emit, &branch, parameter(panel, BF16_LAST));
    Ir step = LLVMBuildUDiv(builder, offset, emit_i64(emit, bf16_step_bytes(plan)), "");
    for (int64_t i = 0; i < share; i++) {
        Ir line = emit_add(emit, emit_mul(emit, step, share), emit_i64(emit, i));
        Ir row = LLVMBuildUDiv(builder, line, emit_i64(emit, panel->vectors), "");
        Ir vector = LLVMBuildURem(builder, line, emit_i64(emit, panel->vectors), "");
        for (int o = 0; o < count; o++) {
            const KernelOperand *operand = &panel->kernel->operands[operands[o]];
            Ir at = emit_mul(emit, row, operand->stride[plan->match.row_axis]);
            at = emit_add(emit, at, emit_mul(emit, vector, BF16_BLOCK));
            Ir address = emit_address(emit, emit_memory_type(emit, operand->dtype), panel->body.base[operands[o]], at);
            emit_prefetch(emit, address, operand->written ? PREFETCH_FOR_WRITING : PREFETCH_LEVEL1);
        }
    }
    emit_else(emit, &branch);
    emit_end_if(emit, &branch);
}

static void tiles_multiply(Panel *panel, Ir a, Ir b, Ir sums)
{
    Emit *emit = panel->emit;
    const Bf16Plan *plan = panel->plan;
    Ir line = emit_mul(emit, parameter(panel, BF16_STEPS), bf16_step_bytes(plan));
    Loop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), line, bf16_step_bytes(plan), 0, NULL);
    if (plan->sum_bytes) prefetch_sums(panel, sums, loop.index);
    prefetch_next_panel(panel, loop.index);
    prefetch_streams(panel, loop.index);
    int products = plan->parts > 1 ? (int)(sizeof split_products / sizeof *split_products) : 1;
    for (int p = 0, a_part = -1, b_part = -1; p < products; p++) {
        int next_a = plan->parts > 1 ? split_products[p].a : 0, next_b = plan->parts > 1 ? split_products[p].b : 0;
        if (next_a != a_part) tiles_load(panel, FIRST_A, A_TILES, next_a, a, loop.index, line);
        if (next_b != b_part) tiles_load(panel, FIRST_B, panel->vectors, next_b, b, loop.index, line);
        a_part = next_a, b_part = next_b;
        prefetch_a(panel, a, loop.index, line, p, products);
        tiles_product(panel);
    }
    emit_loop_end(emit, &loop, NULL);
}

static void sum_by_tiles(Panel *panel, Ir a, Ir from, Ir to)
{
    Emit *emit = panel->emit;
    If branch;
    emit_if(emit, &branch, parameter(panel, BF16_FIRST));
    for (int i = 0; i < A_TILES; i++) {
        for (int v = 0; v < panel->vectors; v++) {
            Ir number = tile_number(panel, i * A_TILES + v);
            emit_intrinsic(emit, "llvm.x86.tilezero", NULL, 0, &number, 1);
        }
    }
    emit_else(emit, &branch);
    tiles_each(panel, "llvm.x86.tileloadd64", from);
    emit_end_if(emit, &branch);
    tiles_multiply(panel, a, parameter(panel, BF16_B), from);
    tiles_each(panel, "llvm.x86.tilestored64", to);
}

/* --- VDPBF16PS ------------------------------------------------------------------------------------------------------
 */

static void pairs_multiply(Panel *panel, Ir a, Ir b, Ir *sum)
{
    Emit *emit = panel->emit;
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(emit->context), 2 * PAIRS);
    Ir vector[BF16_MAX_VECTORS], line = emit_mul(emit, parameter(panel, BF16_STEPS), BF16_BLOCK_BYTES);
    for (int v = 0; v < panel->vectors; v++) {
        vector[v] = emit_load(emit, pairs, bytes_behind(panel, b, emit_mul(emit, line, v)), NULL, ROW_BYTES);
    }
    for (int r = 0; r < panel->plan->tile_rows; r++) {
        Ir pair = emit_load(emit, emit->i32, bytes_behind(panel, a, emit_i64(emit, r * ROW_BYTES)), NULL, 4);
        Ir factor = LLVMBuildBitCast(emit->builder, emit_broadcast(emit, pair, PAIRS), pairs, "");
        for (int v = 0; v < panel->vectors; v++) {
            Ir *to = &sum[r * panel->vectors + v];
            *to = emit_intrinsic(emit, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, (Ir[]){*to, factor, vector[v]}, 3);
        }
    }
}

static void sum_by_pairs(Panel *panel, Ir a, Ir from, Ir to)
{
    Emit *emit = panel->emit;
    int count = panel->plan->tile_rows * panel->vectors;
    Ir sum[MAX_SUMS], first = emit_broadcast(emit, parameter(panel, BF16_FIRST), PAIRS);
    Ir later = LLVMBuildNot(emit->builder, first, "");
    for (int i = 0; i < count; i++)
        sum[i] = emit_load(emit, panel->vector, sum_address(panel, from, i / panel->vectors, i % panel->vectors), later,
                           ROW_BYTES);
    Loop loop;
    Ir end = emit_mul(emit, parameter(panel, BF16_STEPS), PAIRS);
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), end, UNROLL, count, sum);
    for (int i = 0; i < count; i++) sum[i] = loop.carried[i];
    Ir within = LLVMBuildAnd(emit->builder, loop.index, emit_i64(emit, PAIRS - 1), "");
    Ir block = LLVMBuildSub(emit->builder, loop.index, within, "");
    Ir a_offset = emit_add(emit, emit_mul(emit, block, ROW_BYTES), emit_mul(emit, within, 4));
    for (int u = 0; u < UNROLL; u++) {
        Ir a_here = bytes_behind(panel, a, emit_add(emit, a_offset, emit_i64(emit, u * 4)));
        Ir b_offset = emit_mul(emit, emit_add(emit, loop.index, emit_i64(emit, u)), ROW_BYTES);
        pairs_multiply(panel, a_here, bytes_behind(panel, parameter(panel, BF16_B), b_offset), sum);
    }
    emit_loop_end(emit, &loop, sum);
    for (int i = 0; i < count; i++)
        emit_store(emit, loop.carried[i], sum_address(panel, to, i / panel->vectors, i % panel->vectors), NULL,
                   ROW_BYTES);
}

/* --- Epilogue and rows ----------------------------------------------------------------------------------------------
 */

/* The scalar phases, row by row: columns are the lanes. */
static void emit_epilogue(Panel *panel, Ir row)
{
    Emit *emit = panel->emit;
    Body *body = &panel->body;
    Register sum = panel->plan->match.sum;
    Ir left = LLVMBuildSub(emit->builder, parameter(panel, BF16_END), row, "");
    Ir height = emit_i64(emit, panel->plan->tile_rows);
    Ir fewer = LLVMBuildICmp(emit->builder, LLVMIntSLT, left, height, "");
    Loop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), LLVMBuildSelect(emit->builder, fewer, left, height, ""), 1, 0,
                    NULL);
    Ir sums = bytes_behind(panel, parameter(panel, BF16_TILE), emit_mul(emit, loop.index, sums_pitch(panel)));
    if (panel->plan->match.row_axis >= 0) body->index[panel->plan->match.row_axis] = emit_add(emit, row, loop.index);
    body_set_base(body);
    for (int v = 0; v < panel->vectors; v++)
        body->value[sum][v] = emit_load(emit, panel->vector, sum_address(panel, sums, 0, v), NULL, ROW_BYTES);
    for (int r = sum + 1; r <= panel->kernel->instruction_count; r++) body_emit(body, (Register)r);
    emit_loop_end(emit, &loop, NULL);
}

static void prepare_body(Panel *panel, int tail)
{
    Body *body = &panel->body;
    int inner = panel->kernel->axis_count - 1;
    body->emit = panel->emit;
    body->kernel = panel->kernel;
    body->lanes = BF16_BLOCK;
    body->vector_axis = body->copy_axis = panel->plan->match.column_axis;
    body->copies = panel->vectors;
    body->copy_step = BF16_BLOCK;
    if (tail) body->mask[panel->vectors - 1] = emit_lane_mask(panel->emit, tail, BF16_BLOCK);
    body_analyse(body);
    body_load_operands(body, parameter(panel, BF16_OPERANDS));
    for (int axis = 0; axis < inner; axis++) body->index[axis] = parameter(panel, BF16_BATCH + (unsigned)axis);
    body->index[panel->plan->match.column_axis] = parameter(panel, BF16_COLUMN);
    body->index[inner] = emit_i64(panel->emit, 0);
    body_emit_constant_part(body, (Register)(panel->plan->match.sum + 1));
}

LLVMTypeRef bf16_panel_type(Emit *emit, const Kernel *kernel)
{
    LLVMTypeRef types[BF16_BATCH + KERNEL_MAX_AXES];
    int count = BF16_BATCH + kernel->axis_count - 1;
    for (int i = 0; i < count; i++)
        types[i] = i < BF16_BEGIN ? emit->pointer : i == BF16_FIRST || i == BF16_LAST ? emit->i1 : emit->i64;
    return LLVMFunctionType(emit->void_type, types, (unsigned)count, false);
}

/* The sums of the tile at `row`, and if they are complete what becomes of them. */
static void emit_tile(Panel *panel, Ir row)
{
    Emit *emit = panel->emit;
    Ir in_unit = LLVMBuildSub(emit->builder, row, parameter(panel, BF16_BEGIN), "");
    panel->tile = LLVMBuildUDiv(emit->builder, in_unit, emit_i64(emit, panel->plan->tile_rows), "");
    Ir within = LLVMBuildAnd(emit->builder, in_unit, emit_i64(emit, BF16_BLOCK - 1), "");
    Ir block = LLVMBuildLShr(emit->builder, in_unit, emit_i64(emit, 4), "");
    Ir offset = LLVMBuildMul(emit->builder, block, parameter(panel, BF16_STEPS), "");
    offset = emit_add(emit, emit_mul(emit, offset, bf16_step_bytes(panel->plan)), emit_mul(emit, within, ROW_BYTES));
    Ir a = bytes_behind(panel, parameter(panel, BF16_A), offset);
    Ir kept = bytes_behind(panel, parameter(panel, BF16_SUMS), emit_mul(emit, in_unit, sums_pitch(panel)));
    Ir to = LLVMBuildSelect(emit->builder, parameter(panel, BF16_LAST), parameter(panel, BF16_TILE), kept, "");
    if (panel->plan->match.row_axis >= 0) panel->body.index[panel->plan->match.row_axis] = row;
    body_set_base(&panel->body);
    (panel->plan->tiles ? sum_by_tiles : sum_by_pairs)(panel, a, kept, to);
    If branch;
    emit_if(emit, &branch, parameter(panel, BF16_LAST));
    emit_epilogue(panel, row);
    emit_else(emit, &branch);
    emit_end_if(emit, &branch);
}

LLVMValueRef bf16_emit_panel(Emit *emit, const Kernel *kernel, const Bf16Plan *plan, int vectors, int tail,
                             const char *name)
{
    Panel panel = {.emit = emit, .kernel = kernel, .plan = plan, .vectors = vectors};
    panel.function = emit_function(emit, name, bf16_panel_type(emit, kernel), true);
    panel.vector = emit_vector_type(emit->f32, BF16_BLOCK);
    prepare_body(&panel, tail);
    Loop loop;
    emit_loop_begin(emit, &loop, parameter(&panel, BF16_BEGIN), parameter(&panel, BF16_END), plan->tile_rows, 0, NULL);
    emit_tile(&panel, loop.index);
    emit_loop_end(emit, &loop, NULL);
    LLVMBuildRetVoid(emit->builder);
    return panel.function;
}
