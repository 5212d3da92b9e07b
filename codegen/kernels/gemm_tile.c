#include "codegen/kernels/gemm_tile.h"

#include "codegen/kernels/arithmetic.h"
#include "codegen/kernels/emit_blocks.h"
#include "codegen/kernels/body_emit.h"
#include "codegen/kernels/kernel_sizes.h"
#include "codegen/kernels/zero_range.h"

enum {
    UNROLL = 8,              /* of k */
    PREFETCH_DISTANCE = 64,  /* in k, of rows of A that are contiguous along k */
    PREFETCH_COLUMNS = 8,    /* in k, of columns of A */
    PREFETCH_ROWS_OF_B = 16, /* in k, of B in place */
    MAX_ACCUMULATORS = 24
};

typedef struct Tile {
    Emit *emit;
    const Kernel *kernel;
    const GemmPlan *plan;
    const Panel *panel;
    LLVMValueRef function;
    LLVMTypeRef element, vector;
    DType a_type;                    /* as the tile reads it */
    int64_t a_row, a_depth, b_depth; /* strides in elements */
    bool reorders;                   /* the tile reads the panel's source and writes the reordered panel as it goes */
    int rows;
    Ir row; /* the tile's first */
    Ir sum[MAX_ACCUMULATORS];
    Ir spill; /* a tile in memory, for long epilogues */
    Body body;
} Tile;

static Ir *sum_at(Tile *tile, int row, int vector) { return &tile->sum[row * tile->panel->vectors + vector]; }

static Ir vector_mask(Tile *tile, int vector)
{
    const Panel *panel = tile->panel;
    if (!panel->tail || vector < panel->vectors - 1) return NULL;
    return emit_lane_mask(tile->emit, panel->tail, tile->plan->lanes);
}

static Ir offset_address(Tile *tile, Ir base, int64_t elements)
{
    return emit_address(tile->emit, tile->element, base, emit_i64(tile->emit, elements));
}

/* ---- Sums between blocks of k ---- */

/* Elements from one row of sums to the next. */
static int64_t sums_pitch(const Kernel *kernel, const GemmPlan *plan)
{
    if (!plan->sums_in_place) return (int64_t)plan->vectors * plan->lanes;
    const KernelInstruction *store = kernel_instruction(kernel, (Register)(plan->match.sum + 1));
    return plan->match.row_axis < 0 ? 0 : kernel->operands[store->operand].stride[plan->match.row_axis];
}

static Ir sums_address(Tile *tile, Ir row_in_unit, int row, int vector)
{
    Emit *emit = tile->emit;
    int64_t pitch = sums_pitch(tile->kernel, tile->plan);
    Ir base =
        emit_address(emit, tile->element, LLVMGetParam(tile->function, PANEL_SUMS), emit_mul(emit, row_in_unit, pitch));
    return offset_address(tile, base, row * pitch + (int64_t)vector * tile->plan->lanes);
}

static Ir row_in_unit(Tile *tile) { return emit_sub(tile->emit, tile->row, LLVMGetParam(tile->function, PANEL_BEGIN)); }

static void start_sums(Tile *tile)
{
    bool load = !tile->panel->first || tile->plan->accumulates;
    Ir from = row_in_unit(tile);
    unsigned alignment = (unsigned)dtype_size(tile->plan->type);
    for (int r = 0; r < tile->rows; r++) {
        for (int v = 0; v < tile->panel->vectors; v++) {
            *sum_at(tile, r, v) = load ? emit_load(tile->emit, tile->vector, sums_address(tile, from, r, v),
                                                   vector_mask(tile, v), alignment)
                                       : LLVMConstNull(tile->vector);
        }
    }
}

static void keep_sums(Tile *tile)
{
    Ir to = row_in_unit(tile);
    unsigned alignment = (unsigned)dtype_size(tile->plan->type);
    for (int r = 0; r < tile->rows; r++) {
        for (int v = 0; v < tile->panel->vectors; v++)
            emit_store(tile->emit, *sum_at(tile, r, v), sums_address(tile, to, r, v), vector_mask(tile, v), alignment);
    }
}

/* ---- The sum over k ---- */

/* Of this block. */
static Ir depth_of(Tile *tile)
{
    return tile->kernel->limited ? LLVMGetParam(tile->function, PANEL_DEPTH) : emit_i64(tile->emit, tile->panel->depth);
}

/* Elements of a row of the reordered panel. */
static int64_t reordered_width(const Tile *tile) { return (int64_t)tile->panel->vectors * tile->plan->lanes; }

/* Row k of the panel, from `b` on. `reordered`: where row 0 goes, if the tile reorders. */
static void load_row_of_b(Tile *tile, Ir b, Ir reordered, int64_t k, Ir *vector)
{
    Emit *emit = tile->emit;
    int lanes = tile->plan->lanes;
    unsigned alignment = (unsigned)dtype_size(tile->plan->type), whole = alignment * (unsigned)lanes;
    bool in_place = tile->reorders || tile->plan->b == GEMM_B_DIRECT;
    for (int v = 0; v < tile->panel->vectors; v++) {
        Ir address = offset_address(tile, b, k * tile->b_depth + (int64_t)v * lanes);
        Ir mask = in_place ? vector_mask(tile, v) : NULL;
        vector[v] = emit_load(emit, tile->vector, address, mask, in_place ? alignment : whole);
        if (!tile->reorders) continue;
        if (tile->plan->rounds_b) vector[v] = arithmetic_round_bf16(emit, vector[v]);
        Ir to = offset_address(tile, reordered, k * reordered_width(tile) + (int64_t)v * lanes);
        emit_store(emit, vector[v], to, NULL, whole);
    }
}

/* One k: a row of B times one element of A per row of the tile. */
static void multiply_step(Tile *tile, Ir a, Ir b, Ir reordered, int64_t k)
{
    Emit *emit = tile->emit;
    int lanes = tile->plan->lanes;
    Ir vector[8];
    load_row_of_b(tile, b, reordered, k, vector);
    LLVMTypeRef a_memory = emit_memory_type(emit, tile->a_type);
    for (int r = 0; r < tile->rows; r++) {
        Ir address = emit_address(emit, a_memory, a, emit_i64(emit, r * tile->a_row + k * tile->a_depth));
        Ir element = emit_load(emit, a_memory, address, NULL, (unsigned)dtype_size(tile->a_type));
        element = arithmetic_widen(emit, tile->a_type, element);
        if (tile->plan->rounds_a && !tile->plan->reorder_a) element = arithmetic_round_bf16(emit, element);
        Ir factor = emit_broadcast(emit, element, lanes);
        for (int v = 0; v < tile->panel->vectors; v++)
            *sum_at(tile, r, v) = emit_fma(emit, factor, vector[v], *sum_at(tile, r, v));
    }
}

/* Spread over the loop, one line of A at a time: rows that are contiguous along k take turns, half of them every UNROLL
 * steps, and beyond the end of the block it is the next tile's turn. */
static void prefetch_rows(Tile *tile, Ir a, Ir k)
{
    Emit *emit = tile->emit;
    int half = (tile->rows + 1) / 2;
    Ir ahead = emit_add(emit, k, emit_i64(emit, PREFETCH_DISTANCE));
    Ir depth = depth_of(tile), beyond = emit_compare(emit, LLVMIntSGE, ahead, depth);
    Ir next_tile = emit_add(emit, ahead, emit_sub(emit, emit_i64(emit, tile->rows * tile->a_row), depth));
    Ir offset = emit_select(emit, beyond, next_tile, ahead);
    Ir odd = emit_and(emit, k, emit_i64(emit, UNROLL));
    Ir turn = emit_mul(emit, emit_lshr(emit, odd, emit_i64(emit, __builtin_ctz(UNROLL))), half * tile->a_row);
    offset = emit_add(emit, offset, turn);
    for (int r = 0; r < half; r++) {
        Ir line = emit_add(emit, offset, emit_i64(emit, r * tile->a_row));
        emit_prefetch(emit, emit_address(emit, emit_memory_type(emit, tile->a_type), a, line), PREFETCH_LEVEL1);
    }
}

/* The matrices that the epilogue walks through, row by row: nothing else fetches their lines in time. */
static int streamed_operands(const Tile *tile, int *operands)
{
    const KernelGemm *match = &tile->plan->match;
    int count = 0;
    if (match->row_axis < 0) return 0;
    for (int o = 0; o < tile->kernel->operand_count; o++) {
        const KernelOperand *operand = &tile->kernel->operands[o];
        if (o == match->a || o == match->b || !operand->stride[match->row_axis]) continue;
        if (operand->stride[match->column_axis] == 1) operands[count++] = o;
    }
    return count;
}

/* Prefetches their lines for this tile or, where sums start from memory, for the next one; evenly spread over the loop.
 */
static void prefetch_streams(Tile *tile, Ir k)
{
    Emit *emit = tile->emit;
    int operands[KERNEL_MAX_OPERANDS], count = streamed_operands(tile, operands);
    bool next = !tile->panel->first || tile->plan->accumulates;
    int64_t lines = (int64_t)tile->rows * tile->panel->vectors, turns = tile->panel->depth / UNROLL;
    Ir turn = emit_lshr(emit, k, emit_i64(emit, __builtin_ctz(UNROLL)));
    for (int64_t i = 0; i < (lines + turns - 1) / turns; i++) {
        /* Fixed point, so that it takes no division. */
        Ir line = emit_add(emit, emit_mul(emit, turn, (lines << 16) / turns), emit_i64(emit, i << 16));
        line = emit_lshr(emit, line, emit_i64(emit, 16));
        Ir vectors = emit_i64(emit, tile->panel->vectors);
        Ir row = emit_udiv(emit, line, vectors), vector = emit_urem(emit, line, vectors);
        for (int o = 0; o < count; o++) {
            const KernelOperand *operand = &tile->kernel->operands[operands[o]];
            int64_t pitch = operand->stride[tile->plan->match.row_axis];
            Ir offset = emit_add(emit, emit_mul(emit, row, pitch), emit_mul(emit, vector, tile->plan->lanes));
            offset = emit_add(emit, offset, emit_i64(emit, next ? tile->rows * pitch : 0));
            LLVMTypeRef type = emit_memory_type(emit, operand->dtype);
            emit_prefetch(emit, emit_address(emit, type, tile->body.base[operands[o]], offset),
                          operand->written ? PREFETCH_FOR_WRITING : PREFETCH_LEVEL1);
        }
    }
}

/* The line of A that a later k reads, and into the second-level cache the one that the next block of k will read. */
static void prefetch_column(Tile *tile, Ir a, int64_t k)
{
    Emit *emit = tile->emit;
    LLVMTypeRef type = emit_memory_type(emit, tile->a_type);
    Ir ahead = emit_i64(emit, (k + PREFETCH_COLUMNS) * tile->a_depth);
    Ir next = emit_i64(emit, k * tile->a_depth + tile->panel->next_a);
    emit_prefetch(emit, emit_address(emit, type, a, ahead), PREFETCH_LEVEL1);
    emit_prefetch(emit, emit_address(emit, type, a, next), PREFETCH_LEVEL2);
}

/* The lines of A that will be reordered next, into the second-level cache: panels take turns at rows of A in memory,
 * tiles at the lines of a row. */
static void prefetch_a_in_place(Tile *tile, Ir k)
{
    Emit *emit = tile->emit;
    const GemmPlan *plan = tile->plan;
    const KernelOperand *a = &tile->kernel->operands[plan->match.a];
    int64_t a_depth = a->stride[tile->kernel->axis_count - 1];
    int64_t panels = plan->unit_columns / plan->panel_columns;
    int64_t steps = panels < UNROLL ? UNROLL / panels : 1, lines = (plan->unit_rows + plan->lanes - 1) / plan->lanes;
    Ir column = LLVMGetParam(tile->function, PANEL_COLUMN);
    Ir panel = emit_udiv(emit, column, emit_i64(emit, plan->panel_columns));
    panel = emit_urem(emit, panel, emit_i64(emit, (UNROLL + steps - 1) / steps));
    Ir number = emit_udiv(emit, row_in_unit(tile), emit_i64(emit, tile->rows));
    Ir line = emit_urem(emit, number, emit_i64(emit, lines));
    Ir step = emit_add(emit, k, emit_mul(emit, panel, steps));
    Ir offset = emit_add(emit, emit_mul(emit, step, a_depth), emit_mul(emit, line, plan->lanes));
    Ir source = LLVMGetParam(tile->function, PANEL_A_SOURCE);
    for (int64_t i = 0; i < steps; i++) {
        Ir at = emit_add(emit, offset, emit_i64(emit, i * a_depth + tile->panel->next_a));
        emit_prefetch(emit, emit_address(emit, emit_memory_type(emit, a->dtype), source, at), PREFETCH_LEVEL2);
    }
}

/* What will be reordered next, into the second-level cache: in every round of UNROLL steps the tiles take turns at the
 * lines of UNROLL rows of the source, or of a few of its columns. */
static void prefetch_source(Tile *tile, Ir b_here, Ir k)
{
    Emit *emit = tile->emit;
    const GemmPlan *plan = tile->plan;
    const KernelOperand *b = &tile->kernel->operands[plan->match.b];
    int64_t along_k = b->stride[tile->kernel->axis_count - 1], along_n = b->stride[plan->match.column_axis];
    bool by_rows = along_n == 1;
    int64_t turns = by_rows ? UNROLL : UNROLL * 2, columns = (int64_t)tile->panel->vectors * plan->lanes;
    int64_t lines = by_rows ? tile->panel->vectors : (columns + turns - 1) / turns;
    Ir turn = emit_udiv(emit, tile->row, emit_i64(emit, tile->rows));
    turn = emit_and(emit, turn, emit_i64(emit, turns - 1));
    Ir offset = emit_add(emit, emit_mul(emit, k, along_k), emit_i64(emit, tile->panel->next_source));
    offset = emit_add(emit, offset, emit_mul(emit, turn, by_rows ? along_k : lines * along_n));
    Ir source = LLVMGetParam(tile->function, PANEL_SOURCE);
    /* Once is enough: the last tiles do it, the others touch a line that is there. */
    Ir later = emit_add(emit, tile->row, emit_i64(emit, turns * tile->rows));
    Ir soon = emit_compare(emit, LLVMIntSGE, later, LLVMGetParam(tile->function, PANEL_END));
    for (int64_t i = 0; i < lines; i++) {
        Ir line = emit_add(emit, offset, emit_i64(emit, i * (by_rows ? plan->lanes : along_n)));
        Ir address = emit_element_address(emit, b->dtype, source, line);
        if (dtype_in_blocks(b->dtype)) address = emit_block_address(emit, address);
        emit_prefetch(emit, emit_select(emit, soon, address, b_here), PREFETCH_LEVEL2);
    }
}

/* B in place, for few rows: it passes through the caches once, and its rows are too far apart for the processor to see.
 */
static bool streams_b(const Tile *tile)
{
    const Target *target = tile->emit->target;
    size_t row = (size_t)tile->panel->vectors * (size_t)target->vector_bytes;
    if (tile->reorders) return true;
    return tile->plan->b == GEMM_B_DIRECT && (size_t)tile->panel->depth * row > target->level1_bytes / 2;
}

static void prefetch_b(Tile *tile, Ir b, int64_t k)
{
    for (int v = 0; v < tile->panel->vectors; v++) {
        int64_t ahead = (k + PREFETCH_ROWS_OF_B) * tile->b_depth + (int64_t)v * tile->plan->lanes;
        emit_prefetch(tile->emit, offset_address(tile, b, ahead), PREFETCH_LEVEL1);
    }
}

static void multiply_unrolled(Tile *tile, Ir a, Ir b, Ir reordered, Ir k)
{
    Emit *emit = tile->emit;
    LLVMTypeRef a_memory = emit_memory_type(emit, tile->a_type);
    Ir a_here = emit_address(emit, a_memory, a, emit_mul(emit, k, tile->a_depth));
    Ir b_here = emit_address(emit, tile->element, b, emit_mul(emit, k, tile->b_depth));
    Ir reordered_here = emit_address(emit, tile->element, reordered, emit_mul(emit, k, reordered_width(tile)));
    if (tile->plan->reorder_a)
        prefetch_a_in_place(tile, k);
    else if (tile->a_depth == 1)
        prefetch_rows(tile, a, k);
    if (tile->plan->b != GEMM_B_DIRECT && !tile->reorders) prefetch_source(tile, b_here, k);
    if (tile->panel->last || tile->plan->sums_in_place) prefetch_streams(tile, k);
    for (int u = 0; u < UNROLL; u++) {
        if (tile->a_depth != 1 && !tile->plan->reorder_a) prefetch_column(tile, a_here, u);
        if (streams_b(tile)) prefetch_b(tile, b_here, u);
        multiply_step(tile, a_here, b_here, reordered_here, u);
    }
}

/* The k that are multiplied: none where all sums are hidden, else all, unless they begin or end with zeros. A tile that
 * reorders B needs all of that. */
static void find_range(Tile *tile, Ir a, Ir whole, Ir *first, Ir *end)
{
    Emit *emit = tile->emit;
    *first = emit_i64(emit, 0);
    *end = whole;
    bool columns = tile->a_depth != 1;
    int lanes = tile->plan->lanes;
    if (tile->reorders) return;
    Ir visible = hidden_sums_any_visible(&tile->body, &tile->plan->hidden, &tile->plan->match, tile->rows);
    if (visible) *end = emit_select(emit, visible, *end, *first);
    if (!tile->plan->skips_zeros || (columns && tile->rows > lanes)) return;
    ZeroRange range = {.integer = emit->i32,
                       .lanes = lanes,
                       .pieces = columns ? UNROLL : tile->rows,
                       .mask = columns && tile->rows < lanes ? emit_lane_mask(emit, tile->rows, lanes) : NULL,
                       .step = columns ? UNROLL : lanes,
                       .k_bytes = tile->a_depth * (int64_t)sizeof(float),
                       .piece_bytes = (columns ? tile->a_depth : tile->a_row) * (int64_t)sizeof(float)};
    zero_range_emit(emit, &range, a, whole, first, end);
}

/* The steps from `whole` on, to a limit. */
static void multiply_rest(Tile *tile, Ir a, Ir b, Ir reordered, Ir whole)
{
    Emit *emit = tile->emit;
    int count = tile->rows * tile->panel->vectors;
    EmitLoop loop;
    emit_loop_begin(emit, &loop, whole, depth_of(tile), 1, count, tile->sum);
    for (int i = 0; i < count; i++) tile->sum[i] = loop.carried[i];
    Ir a_here = emit_address(emit, emit_memory_type(emit, tile->a_type), a, emit_mul(emit, loop.index, tile->a_depth));
    Ir b_here = emit_address(emit, tile->element, b, emit_mul(emit, loop.index, tile->b_depth));
    Ir to = emit_address(emit, tile->element, reordered, emit_mul(emit, loop.index, reordered_width(tile)));
    multiply_step(tile, a_here, b_here, to, 0);
    emit_loop_end(emit, &loop, tile->sum);
    for (int i = 0; i < count; i++) tile->sum[i] = loop.carried[i];
}

static void multiply(Tile *tile)
{
    Emit *emit = tile->emit;
    int count = tile->rows * tile->panel->vectors;
    bool limited = tile->kernel->limited;
    int64_t whole = tile->panel->depth / UNROLL * UNROLL;
    LLVMTypeRef a_memory = emit_memory_type(emit, tile->a_type);
    Ir a_offset = tile->plan->reorder_a ? emit_mul(emit, row_in_unit(tile), tile->panel->depth)
                                        : emit_mul(emit, tile->row, tile->a_row);
    Ir a = emit_address(emit, a_memory, LLVMGetParam(tile->function, PANEL_A), a_offset);
    Ir reordered = LLVMGetParam(tile->function, PANEL_B);
    Ir b = tile->reorders ? LLVMGetParam(tile->function, PANEL_SOURCE) : reordered;
    if (tile->plan->match.row_axis >= 0) tile->body.index[tile->plan->match.row_axis] = tile->row;
    body_set_base(&tile->body);
    if (whole) {
        EmitLoop loop;
        Ir first, end,
            steps = limited ? emit_and(emit, depth_of(tile), emit_i64(emit, -UNROLL)) : emit_i64(emit, whole);
        find_range(tile, a, steps, &first, &end);
        emit_loop_begin(emit, &loop, first, end, UNROLL, count, tile->sum);
        for (int i = 0; i < count; i++) tile->sum[i] = loop.carried[i];
        multiply_unrolled(tile, a, b, reordered, loop.index);
        emit_loop_end(emit, &loop, tile->sum);
        for (int i = 0; i < count; i++) tile->sum[i] = loop.carried[i];
        if (limited) multiply_rest(tile, a, b, reordered, steps);
    }
    if (limited) return;
    Ir a_rest = emit_address(emit, a_memory, a, emit_i64(emit, whole * tile->a_depth));
    Ir b_rest = offset_address(tile, b, whole * tile->b_depth);
    Ir reordered_rest = offset_address(tile, reordered, whole * reordered_width(tile));
    for (int64_t k = 0; k < tile->panel->depth - whole; k++) multiply_step(tile, a_rest, b_rest, reordered_rest, k);
}

/* ---- Epilogue ---- */

/* The scalar phases, for one row of the tile: columns are the lanes. */
static void emit_epilogue_row(Tile *tile, Ir row, const Ir *sums)
{
    Body *body = &tile->body;
    if (tile->plan->match.row_axis >= 0) body->index[tile->plan->match.row_axis] = row;
    body_set_base(body);
    for (int v = 0; v < tile->panel->vectors; v++) body->value[tile->plan->match.sum][v] = sums[v];
    for (int r = tile->plan->match.sum + 1; r <= tile->kernel->instruction_count; r++) body_emit(body, (Register)r);
}

static void emit_epilogue(Tile *tile)
{
    Emit *emit = tile->emit;
    int vectors = tile->panel->vectors, lanes = tile->plan->lanes;
    unsigned alignment = (unsigned)dtype_size(tile->plan->type) * (unsigned)lanes;
    if (tile->kernel->instruction_count - tile->plan->match.sum <= GEMM_DIRECT_EPILOGUE) {
        for (int r = 0; r < tile->rows; r++)
            emit_epilogue_row(tile, emit_add(emit, tile->row, emit_i64(emit, r)), sum_at(tile, r, 0));
        return;
    }
    for (int i = 0; i < tile->rows * vectors; i++)
        emit_store(emit, tile->sum[i], offset_address(tile, tile->spill, (int64_t)i * lanes), NULL, alignment);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, tile->rows), 1, 0, NULL);
    Ir sums[BODY_MAX_COPIES];
    Ir base = emit_address(emit, tile->element, tile->spill, emit_mul(emit, loop.index, (int64_t)vectors * lanes));
    for (int v = 0; v < vectors; v++)
        sums[v] = emit_load(emit, tile->vector, offset_address(tile, base, (int64_t)v * lanes), NULL, alignment);
    emit_epilogue_row(tile, emit_add(emit, tile->row, loop.index), sums);
    emit_loop_end(emit, &loop, NULL);
}

/* ---- Panels ---- */

static void emit_tile(Tile *tile, Ir row, int rows)
{
    tile->row = row;
    tile->rows = rows;
    start_sums(tile);
    multiply(tile);
    if (!tile->panel->last || tile->plan->sums_in_place)
        keep_sums(tile);
    else
        emit_epilogue(tile);
}

static void prepare_body(Tile *tile)
{
    Body *body = &tile->body;
    const GemmPlan *plan = tile->plan;
    int inner = tile->kernel->axis_count - 1;
    body->emit = tile->emit;
    body->kernel = tile->kernel;
    body->lanes = plan->lanes;
    body->vector_axis = body->copy_axis = plan->match.column_axis;
    body->copies = tile->panel->vectors;
    body->copy_step = plan->lanes;
    body->mask[tile->panel->vectors - 1] = vector_mask(tile, tile->panel->vectors - 1);
    body_analyse(body);
    body_load_operands(body, LLVMGetParam(tile->function, PANEL_OPERANDS));
    for (int axis = 0; axis < inner; axis++)
        body->index[axis] = LLVMGetParam(tile->function, (unsigned)(PANEL_BATCH + axis));
    body->index[plan->match.column_axis] = LLVMGetParam(tile->function, PANEL_COLUMN);
    body->index[inner] = emit_i64(tile->emit, 0);
    body_emit_constant_part(body, (Register)(plan->match.sum + 1));
}

LLVMTypeRef gemm_panel_type(Emit *emit, const Kernel *kernel)
{
    LLVMTypeRef parameters[PANEL_BATCH + KERNEL_MAX_AXES];
    int count = PANEL_BATCH + kernel->axis_count - 1;
    for (int i = 0; i < count; i++) parameters[i] = i < PANEL_BEGIN ? emit->pointer : emit->i64;
    return LLVMFunctionType(emit->void_type, parameters, (unsigned)count, false);
}

LLVMValueRef gemm_emit_panel(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const Panel *panel,
                             const char *name)
{
    const KernelOperand *a = &kernel->operands[plan->match.a], *b = &kernel->operands[plan->match.b];
    int inner = kernel->axis_count - 1;
    Tile tile = {.emit = emit,
                 .kernel = kernel,
                 .plan = plan,
                 .panel = panel,
                 .a_type = plan->reorder_a ? plan->type : a->dtype};
    tile.function = emit_function(emit, name, gemm_panel_type(emit, kernel), true);
    tile.element = emit_register_type(emit, plan->type);
    tile.vector = emit_vector_type(tile.element, plan->lanes);
    tile.a_row = plan->reorder_a ? 1 : plan->match.row_axis < 0 ? 0 : a->stride[plan->match.row_axis];
    tile.a_depth = plan->reorder_a ? gemm_tile_rows(plan, panel->vectors) : a->stride[inner];
    tile.b_depth = plan->b == GEMM_B_DIRECT ? b->stride[inner] : (int64_t)panel->vectors * plan->lanes;
    int64_t reordered_b_depth = tile.b_depth, rows = gemm_tile_rows(plan, panel->vectors), rest = plan->rows % rows;
    tile.spill = LLVMBuildArrayAlloca(emit->builder, tile.vector, emit_i32(emit, (int)rows * panel->vectors), "");
    LLVMSetAlignment(tile.spill, (unsigned)emit->target->vector_bytes);
    prepare_body(&tile);

    Ir begin = LLVMGetParam(tile.function, PANEL_BEGIN), end = LLVMGetParam(tile.function, PANEL_END);
    if (plan->rows >= rows) {
        Ir limit = emit_i64(emit, plan->rows - rest);
        Ir below = emit_compare(emit, LLVMIntSLT, end, limit);
        if (plan->reorders_b_in_tile) {
            tile.reorders = true;
            tile.b_depth = b->stride[inner];
            emit_tile(&tile, begin, (int)rows);
            tile.reorders = false;
            tile.b_depth = reordered_b_depth;
            begin = emit_add(emit, begin, emit_i64(emit, rows));
        }
        EmitLoop loop;
        emit_loop_begin(emit, &loop, begin, emit_select(emit, below, end, limit), rows, 0, NULL);
        emit_tile(&tile, loop.index, (int)rows);
        emit_loop_end(emit, &loop, NULL);
    }
    if (rest) {
        EmitIf branch;
        emit_if(emit, &branch, emit_compare(emit, LLVMIntSGT, end, emit_i64(emit, plan->rows - rest)));
        emit_tile(&tile, emit_i64(emit, plan->rows - rest), (int)rest);
        emit_end_if(emit, &branch);
    }
    LLVMBuildRetVoid(emit->builder);
    return tile.function;
}
