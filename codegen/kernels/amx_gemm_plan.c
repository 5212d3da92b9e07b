/* Tile, block and unit sizes of a matrix product on AMX tiles. */
#include "codegen/kernels/amx_gemm_plan.h"
#include "base/integers.h"
#include "codegen/kernels/kernel_sizes.h"

static int64_t extent_of(const Kernel *kernel, int axis) { return axis < 0 ? 1 : kernel->extent[axis]; }

static void choose_tile(AmxPlan *plan)
{
    plan->tile_rows = AMX_TILE_ROWS;
    plan->vectors = AMX_TILE_VECTORS;
    int64_t needed = divide_up(plan->columns, BLOCK_SIDE);
    if (needed < plan->vectors) plan->vectors = (int)needed;
}

/* Reordered A takes up to five eighths of the second-level cache. */
static void choose_blocks(AmxPlan *plan, const Target *target)
{
    int64_t deepest = plan->parts > 1 ? AMX_MOST_DEPTH_SPLIT : AMX_MOST_DEPTH;
    plan->depth_block = round_up(divide_up(plan->depth, divide_up(plan->depth, deepest)), BLOCK_DEPTH);
    int64_t granule = plan->tile_rows;
    int64_t most = (int64_t)target->level2_bytes * 5 / 8 / (plan->depth_block * 2 * plan->parts) / granule * granule;
    if (most > AMX_MOST_ROWS) most = AMX_MOST_ROWS;
    if (most < AMX_LEAST_ROWS) most = AMX_LEAST_ROWS;
    plan->unit_rows = round_up(divide_up(plan->rows, divide_up(plan->rows, most)), granule);
}

static void choose_units(AmxPlan *plan, const Kernel *kernel)
{
    int64_t batches = units_init_batches(&plan->units, kernel, &plan->match), width = amx_panel_columns(plan);
    int64_t panels = divide_up(plan->columns, width), pieces = 1;
    int64_t chunks = batches * divide_up(plan->rows, plan->unit_rows);
    int64_t least = plan->parts > 1 ? AMX_LEAST_PANELS_SPLIT : AMX_LEAST_PANELS;
    while (chunks * pieces < AMX_WANTED_UNITS && panels / (pieces * 2) >= least) pieces *= 2;
    bool single = chunks * pieces == 1;
    if (single) { /* a second thread is worth reordering the smaller factor twice */
        if (plan->rows < plan->columns)
            pieces = 2;
        else
            plan->unit_rows = round_up(divide_up(plan->rows, 2), plan->tile_rows);
    }
    plan->unit_columns = divide_up(panels, pieces) * width;
    if (plan->match.row_axis >= 0) units_add(&plan->units, plan->match.row_axis, plan->rows, plan->unit_rows);
    units_add(&plan->units, plan->match.column_axis, plan->columns, plan->unit_columns);
    plan->joins_units = single && plan->units.total == 2;
    plan->most_rows = plan->joins_units ? round_up(plan->rows, plan->tile_rows) : plan->unit_rows;
    plan->most_columns = plan->joins_units ? panels * width : plan->unit_columns;
}

static void choose_scratch(AmxPlan *plan)
{
    size_t steps = (size_t)(plan->depth_block / BLOCK_DEPTH), blocks = (size_t)(plan->most_rows / BLOCK_SIDE);
    plan->a_bytes = blocks * steps * (size_t)amx_step_bytes(plan);
    plan->b_bytes = (size_t)plan->vectors * steps * (size_t)amx_step_bytes(plan);
    if (plan->depth > plan->depth_block)
        plan->sum_bytes = (size_t)(plan->most_rows * plan->most_columns) * sizeof(float);
    plan->tile_bytes = (size_t)(plan->tile_rows * amx_panel_columns(plan)) * sizeof(float);
}

static bool splitting_pays(const AmxPlan *plan)
{
    if (plan->parts == 1) return true;
    return plan->rows * plan->columns >= AMX_LEAST_REUSE * (plan->rows + plan->columns) &&
           plan->depth >= AMX_LEAST_DEPTH_SPLIT;
}

bool amx_plan(AmxPlan *plan, const Kernel *kernel, const Target *target)
{
    static const int parts[] = {[PRODUCTS_F32] = AMX_MAX_PARTS, [PRODUCTS_BF16] = 1, [PRODUCTS_BF16X3] = 2};
    static const double rates[] = {[PRODUCTS_F32] = 250, [PRODUCTS_BF16] = 1500, [PRODUCTS_BF16X3] = 450};
    *plan = (AmxPlan){0};
    if (target->bf16 != BF16_TILES || !kernel_match_gemm(kernel, &plan->match)) return false;
    plan->parts = parts[plan->match.precision];
    if (!factor_is_known(kernel->operands[plan->match.a].dtype) ||
        !factor_is_known(kernel->operands[plan->match.b].dtype))
        return false;
    plan->rows = extent_of(kernel, plan->match.row_axis);
    plan->columns = extent_of(kernel, plan->match.column_axis);
    plan->depth = kernel_inner_extent(kernel);
    if (plan->columns < 2 || plan->rows < 2 || plan->depth < 2 || !splitting_pays(plan)) return false;
    choose_tile(plan);
    choose_blocks(plan, target);
    choose_units(plan, kernel);
    choose_scratch(plan);
    plan->keeps_b = plan->parts == 1 &&
                    blocks_keep_b(kernel, plan->columns, plan->depth, plan->depth_block, amx_panel_columns(plan));
    /* Floating-point operations per nanosecond. */
    plan->nanoseconds = (int64_t)(kernel_flops(kernel) / rates[plan->match.precision]);
    return true;
}
