/* Tile, block and unit sizes of a matrix product on the processor's bf16 unit. */
#include "codegen/gemm_bf16.h"

enum {
    TILE_ROWS = 32, /* two AMX tiles by two */
    TILE_VECTORS = 2,
    PAIR_ROWS = 8, /* 24 accumulators, 3 vectors of B, a pair of A */
    PAIR_VECTORS = 3,
    MOST_DEPTH = 1024,      /* of a block of k */
    MOST_DEPTH_SPLIT = 256, /* of factors that take three times the room */
    LEAST_REUSE = 60,       /* products per split element that pay for splitting it, */
    LEAST_DEPTH_SPLIT = 64, /* and per sum */
    MOST_ROWS = 768,        /* of a unit */
    LEAST_ROWS = 128,       /* not cut further for the sake of parallelism */
    LEAST_PANELS = 8,
    LEAST_PANELS_SPLIT = 16,
    WANTED_UNITS = 4
};

static int64_t extent_of(const Kernel *kernel, int axis) { return axis < 0 ? 1 : kernel->extent[axis]; }
static int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }
static int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

static void choose_tile(Bf16Plan *plan, const Target *target)
{
    plan->tiles = target->bf16 == BF16_TILES;
    plan->tile_rows = plan->tiles ? TILE_ROWS : PAIR_ROWS;
    plan->vectors = plan->tiles ? TILE_VECTORS : PAIR_VECTORS;
    int64_t needed = divide_up(plan->columns, BF16_BLOCK);
    if (needed < plan->vectors) plan->vectors = (int)needed;
}

/* Units begin with whole tiles and whole blocks. */
static int64_t row_granule(const Bf16Plan *plan) { return plan->tile_rows < BF16_BLOCK ? BF16_BLOCK : plan->tile_rows; }

/* Packed A takes up to five eighths of the second-level cache. */
static void choose_blocks(Bf16Plan *plan, const Target *target)
{
    int64_t deepest = plan->parts > 1 ? MOST_DEPTH_SPLIT : MOST_DEPTH;
    plan->depth_block = round_up(divide_up(plan->depth, divide_up(plan->depth, deepest)), BF16_STEP);
    int64_t granule = row_granule(plan);
    int64_t most = (int64_t)target->level2_bytes * 5 / 8 / (plan->depth_block * 2 * plan->parts) / granule * granule;
    if (most > MOST_ROWS) most = MOST_ROWS;
    if (most < LEAST_ROWS) most = LEAST_ROWS;
    plan->unit_rows = round_up(divide_up(plan->rows, divide_up(plan->rows, most)), granule);
}

static void choose_units(Bf16Plan *plan, const Kernel *kernel)
{
    units_init(&plan->units);
    int64_t batches = 1, width = bf16_panel_columns(plan);
    for (int axis = 0; axis < kernel->axis_count - 1; axis++) {
        if (axis == plan->match.row_axis || axis == plan->match.column_axis) continue;
        units_add(&plan->units, axis, kernel->extent[axis], 1);
        batches *= kernel->extent[axis];
    }
    int64_t panels = divide_up(plan->columns, width), pieces = 1;
    int64_t chunks = batches * divide_up(plan->rows, plan->unit_rows);
    int64_t least = plan->parts > 1 ? LEAST_PANELS_SPLIT : LEAST_PANELS;
    while (chunks * pieces < WANTED_UNITS && panels / (pieces * 2) >= least) pieces *= 2;
    bool single = chunks * pieces == 1;
    if (single) { /* a second thread is worth packing the smaller factor twice */
        if (plan->rows < plan->columns)
            pieces = 2;
        else
            plan->unit_rows = round_up(divide_up(plan->rows, 2), row_granule(plan));
    }
    plan->unit_columns = divide_up(panels, pieces) * width;
    if (plan->match.row_axis >= 0) units_add(&plan->units, plan->match.row_axis, plan->rows, plan->unit_rows);
    units_add(&plan->units, plan->match.column_axis, plan->columns, plan->unit_columns);
    plan->joins_units = single && plan->units.total == 2;
    plan->most_rows = plan->joins_units ? round_up(plan->rows, row_granule(plan)) : plan->unit_rows;
    plan->most_columns = plan->joins_units ? panels * width : plan->unit_columns;
}

static void choose_scratch(Bf16Plan *plan)
{
    size_t steps = (size_t)(plan->depth_block / BF16_STEP), blocks = (size_t)(plan->most_rows / BF16_BLOCK);
    plan->a_bytes = blocks * steps * (size_t)bf16_step_bytes(plan);
    plan->b_bytes = (size_t)plan->vectors * steps * (size_t)bf16_step_bytes(plan);
    if (plan->depth > plan->depth_block)
        plan->sum_bytes = (size_t)(plan->most_rows * plan->most_columns) * sizeof(float);
    plan->tile_bytes = (size_t)(plan->tile_rows * bf16_panel_columns(plan)) * sizeof(float);
}

static bool splitting_pays(const Bf16Plan *plan)
{
    if (plan->parts == 1) return true;
    return plan->rows * plan->columns >= LEAST_REUSE * (plan->rows + plan->columns) && plan->depth >= LEAST_DEPTH_SPLIT;
}

bool bf16_plan(Bf16Plan *plan, const Kernel *kernel, const Target *target)
{
    *plan = (Bf16Plan){0};
    if (!target->bf16 || !kernel_match_gemm(kernel, &plan->match)) return false;
    if (!plan->match.bf16 && target->bf16 != BF16_TILES) return false;
    plan->parts = plan->match.bf16 ? 1 : BF16_MAX_PARTS;
    const KernelOperand *a = &kernel->operands[plan->match.a], *b = &kernel->operands[plan->match.b];
    if (a->dtype != DTYPE_F32 || b->dtype != DTYPE_F32) return false;
    plan->rows = extent_of(kernel, plan->match.row_axis);
    plan->columns = extent_of(kernel, plan->match.column_axis);
    plan->depth = kernel_inner_extent(kernel);
    if (plan->columns < 2 || plan->rows < 2 || plan->depth < 2 || !splitting_pays(plan)) return false;
    choose_tile(plan, target);
    choose_blocks(plan, target);
    choose_units(plan, kernel);
    choose_scratch(plan);
    double rate = plan->parts > 1 ? 250 : plan->tiles ? 1500 : 150; /* floating-point operations per nanosecond */
    plan->nanoseconds = (int64_t)(kernel_flops(kernel) / rate);
    return true;
}
