/* Tile, block and unit sizes of a matrix product by VDPBF16PS. */
#include "base/integers.h"
#include "codegen/kernels/kernel_sizes.h"
#include "codegen/kernels/pair_gemm_plan.h"

static int64_t extent_of(const Kernel *kernel, int axis) { return axis < 0 ? 1 : kernel->extent[axis]; }

static void choose_tile(PairPlan *plan)
{
    int64_t needed = divide_up(plan->columns, BLOCK_SIDE);
    int most = plan->hidden.count ? PAIR_MAX_VECTORS / 2 : PAIR_MAX_VECTORS; /* narrow tiles are hidden sooner */
    plan->vectors = needed < most ? (int)needed : most;
    plan->tile_rows = PAIR_SUMS_IN_REGISTERS / plan->vectors;
}

/* Lines of rows whose pitch is a power of two would share too few places in the nearest cache. */
static void choose_blocks(PairPlan *plan)
{
    plan->depth_block = round_up(divide_up(plan->depth, divide_up(plan->depth, PAIR_MOST_DEPTH)), BLOCK_DEPTH);
    plan->row_pitch = round_up(plan->depth * 2, BLOCK_LINE_BYTES);
    if (plan->row_pitch % PAIR_BAD_PITCH == 0) plan->row_pitch += BLOCK_LINE_BYTES;
    int64_t most = PAIR_MOST_A_BYTES / plan->row_pitch;
    if (most < PAIR_LEAST_ROWS) most = PAIR_LEAST_ROWS;
    plan->unit_rows = round_up(divide_up(plan->rows, divide_up(plan->rows, most)), plan->tile_rows);
}

/* Rows of bf16 whose k are neighbours are pairs already; what follows the last k would be multiplied too. */
static void choose_a(PairPlan *plan, const Kernel *kernel)
{
    const KernelOperand *a = &kernel->operands[plan->match.a];
    plan->a_in_place = a->dtype == DTYPE_BF16 && a->stride[kernel->axis_count - 1] == 1 &&
                       plan->depth % BLOCK_DEPTH == 0 && !kernel->limited;
    if (plan->a_in_place) plan->row_pitch = a->stride[plan->match.row_axis] * 2;
    plan->skips_zeros = a->often_zero && plan->depth > PAIR_ZERO_STEP;
}

static void choose_units(PairPlan *plan, const Kernel *kernel)
{
    int64_t batches = units_init_batches(&plan->units, kernel, &plan->match), width = pair_panel_columns(plan);
    int64_t panels = divide_up(plan->columns, width), pieces = 1;
    int64_t chunks = batches * divide_up(plan->rows, plan->unit_rows);
    while (chunks * pieces < PAIR_WANTED_UNITS && panels / (pieces * 2) >= PAIR_LEAST_PANELS) pieces *= 2;
    if (chunks * pieces == 1) { /* a second thread is worth reordering the smaller factor twice */
        if (plan->rows < plan->columns)
            pieces = 2;
        else
            plan->unit_rows = round_up(divide_up(plan->rows, 2), plan->tile_rows);
    }
    plan->unit_columns = divide_up(panels, pieces) * width;
    units_add(&plan->units, plan->match.row_axis, plan->rows, plan->unit_rows);
    units_add(&plan->units, plan->match.column_axis, plan->columns, plan->unit_columns);
}

static void choose_scratch(PairPlan *plan)
{
    int64_t line = (int64_t)plan->vectors * BLOCK_LINE_BYTES;
    if (!plan->a_in_place) plan->a_bytes = (size_t)(round_up(plan->unit_rows, BLOCK_SIDE) * plan->row_pitch);
    plan->b_bytes = (size_t)(plan->depth_block / 2 * line);
    if (plan->depth > plan->depth_block) plan->sum_bytes = (size_t)(plan->unit_rows * line);
    plan->tile_bytes = (size_t)(plan->tile_rows * line);
}

bool pair_plan(PairPlan *plan, const Kernel *kernel, const Target *target)
{
    *plan = (PairPlan){0};
    if (target->bf16 != BF16_PAIRS || !kernel_match_gemm(kernel, &plan->match) ||
        plan->match.precision != PRODUCTS_BF16)
        return false;
    if (!factor_is_known(kernel->operands[plan->match.a].dtype) ||
        !factor_is_known(kernel->operands[plan->match.b].dtype))
        return false;
    plan->rows = extent_of(kernel, plan->match.row_axis);
    plan->columns = extent_of(kernel, plan->match.column_axis);
    plan->depth = kernel_inner_extent(kernel);
    if (plan->columns < 2 || plan->rows < 2 || plan->depth < 2) return false;
    plan->hidden = hidden_sums_find(kernel, &plan->match);
    choose_tile(plan);
    choose_blocks(plan);
    choose_a(plan, kernel);
    choose_units(plan, kernel);
    choose_scratch(plan);
    plan->keeps_b = blocks_keep_b(kernel, plan->columns, plan->depth, plan->depth_block, pair_panel_columns(plan));
    const double rate = 150; /* floating-point operations per nanosecond */
    plan->nanoseconds = (int64_t)(kernel_flops(kernel) / rate);
    return true;
}
