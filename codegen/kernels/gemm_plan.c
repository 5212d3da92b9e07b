#include "codegen/kernels/gemm_plan.h"

#include "codegen/kernels/kernel_sizes.h"

static int64_t extent_of(const Kernel *kernel, int axis) { return axis < 0 ? 1 : kernel->extent[axis]; }
static int64_t stride_of(const Kernel *kernel, int operand, int axis)
{
    return axis < 0 ? 0 : kernel->operands[operand].stride[axis];
}

/* The store of the sum, if nothing else becomes of it; else NULL. */
static const KernelInstruction *only_store_of_sum(const Kernel *kernel, Register sum)
{
    if (kernel->instruction_count != sum + 1) return NULL;
    const KernelInstruction *store = kernel_instruction(kernel, (Register)(sum + 1));
    return kernel_op_is_store(store->op) && store->a == sum && !store->b ? store : NULL;
}

static void find_epilogue(GemmPlan *plan, const Kernel *kernel)
{
    const KernelInstruction *store = only_store_of_sum(kernel, plan->match.sum);
    if (!store) return;
    const KernelOperand *c = &kernel->operands[store->operand];
    if (c->dtype != plan->type || stride_of(kernel, store->operand, plan->match.column_axis) != 1) return;
    plan->sums_in_place = true;
    plan->accumulates = store->op == KERNEL_STORE_ADD;
}

/* The accumulators, a row of B and one broadcast element of A must fit the registers. */
static void choose_tile(GemmPlan *plan, bool by_columns, const Target *target)
{
    plan->lanes = target->vector_bytes / (plan->type == DTYPE_F64 ? 8 : 4);
    plan->accumulators = target->vector_registers < 32 ? 12 : 24;
    plan->vectors = target->vector_registers < 32 ? 2 : target->vector_bytes > 16 ? 4 : 3;
    if ((by_columns || plan->hidden.count) && plan->vectors == 4) plan->vectors = 2; /* narrow ones are hidden sooner */
    int64_t needed = (plan->columns + plan->lanes - 1) / plan->lanes;
    if (needed < plan->vectors) plan->vectors = (int)needed;
}

int gemm_tile_rows(const GemmPlan *plan, int vectors)
{
    if (plan->reorder_a) vectors = plan->vectors; /* one height for all panels */
    int rows = plan->accumulators / vectors;
    return rows > 12 ? 12 : rows;
}

/* Rows of B that start a multiple of 1 KiB apart begin in at most four of the nearest cache's 64 sets, and push each
 * other out. */
static bool rows_collide(int64_t stride_bytes) { return stride_bytes % 1024 == 0; }

static void choose_reordering(GemmPlan *plan, const Kernel *kernel, const Target *target)
{
    const KernelOperand *b = &kernel->operands[plan->match.b];
    int64_t along_n = stride_of(kernel, plan->match.b, plan->match.column_axis);
    int64_t along_k = b->stride[kernel->axis_count - 1], size = (int64_t)dtype_size(b->dtype);
    if (along_n != 1) {
        plan->b = GEMM_B_TRANSPOSED;
        return;
    }
    int64_t panel_bytes = plan->depth * plan->vectors * plan->lanes * size;
    bool small = panel_bytes <= (int64_t)target->level1_bytes * 2 / 3 && plan->rows <= GEMM_DIRECT_ROWS &&
                 !rows_collide(along_k * size);
    bool plain = b->dtype == plan->type && !plan->rounds_b;
    plan->b = plain && (small || plan->rows <= GEMM_DIRECT_TILES * gemm_tile_rows(plan, plan->vectors)) ? GEMM_B_DIRECT
                                                                                                        : GEMM_B_COPIED;
}

static void choose_a(GemmPlan *plan, const Kernel *kernel)
{
    const KernelOperand *a = &kernel->operands[plan->match.a];
    bool columns =
        stride_of(kernel, plan->match.a, plan->match.row_axis) == 1 && a->stride[kernel->axis_count - 1] != 1;
    plan->reorder_a = columns && kernel_register_type(a->dtype) == plan->type && plan->sums_in_place &&
                      plan->depth >= GEMM_LEAST_DEPTH_REORDERED &&
                      (plan->columns >= GEMM_LEAST_SIDE_REORDERED || plan->rows >= GEMM_LEAST_SIDE_REORDERED);
}

/* A tile's rows are neighbours in a vector, or each has k in vectors of its own: wide enough ones. */
static void choose_skipping(GemmPlan *plan, const Kernel *kernel, const Target *target)
{
    const KernelOperand *a = &kernel->operands[plan->match.a];
    bool columns = stride_of(kernel, plan->match.a, plan->match.row_axis) == 1;
    plan->skips_zeros = a->often_zero && a->dtype == DTYPE_F32 && plan->type == DTYPE_F32 && !plan->reorder_a &&
                        !kernel->limited && target->vector_bytes >= 32 && plan->depth % GEMM_ZERO_STEP == 0 &&
                        plan->depth <= plan->depth_block && (columns || a->stride[kernel->axis_count - 1] == 1);
}

static void choose_depth(GemmPlan *plan, bool by_columns, int64_t multiple)
{
    int64_t most = plan->reorder_a           ? GEMM_MOST_DEPTH_REORDERED
                   : by_columns              ? GEMM_MOST_DEPTH_BY_COLUMNS
                   : plan->type == DTYPE_F64 ? GEMM_MOST_DEPTH / 2
                                             : GEMM_MOST_DEPTH;
    int64_t blocks = (plan->depth + most - 1) / most;
    if (blocks < 1) blocks = 1;
    plan->depth_block = ((plan->depth + blocks - 1) / blocks + multiple - 1) / multiple * multiple;
}

static void choose_units(GemmPlan *plan, const Kernel *kernel)
{
    int64_t batches = units_init_batches(&plan->units, kernel, &plan->match);
    plan->panel_columns = (int64_t)plan->vectors * plan->lanes;
    int64_t panels = (plan->columns + plan->panel_columns - 1) / plan->panel_columns, per_unit = 1, chunks;
    if (plan->reorder_a) {
        chunks = (plan->rows + GEMM_REORDERED_ROWS - 1) / GEMM_REORDERED_ROWS;
        per_unit = panels < GEMM_REORDERED_PANELS ? panels : GEMM_REORDERED_PANELS;
        for (int64_t units; per_unit > 1; per_unit = (per_unit + 1) / 2) {
            units = batches * chunks * ((panels + per_unit - 1) / per_unit);
            if (units >= GEMM_WANTED_REORDERED_UNITS || (units > 1 && per_unit <= GEMM_FEW_PANELS)) break;
        }
    } else {
        chunks = (plan->rows + GEMM_WANTED_ROWS - 1) / GEMM_WANTED_ROWS;
        while (batches * panels * chunks < GEMM_WANTED_UNITS && plan->rows / (chunks + 1) >= GEMM_LEAST_ROWS) chunks++;
    }
    plan->unit_columns = per_unit * plan->panel_columns;
    plan->unit_rows = (plan->rows + chunks - 1) / (chunks ? chunks : 1);
    plan->unit_rows = (plan->unit_rows + GEMM_ROW_GRANULE - 1) / GEMM_ROW_GRANULE * GEMM_ROW_GRANULE;
    if (plan->match.row_axis >= 0) units_add(&plan->units, plan->match.row_axis, plan->rows, plan->unit_rows);
    units_add(&plan->units, plan->match.column_axis, plan->columns, plan->unit_columns);
}

/* Every unit must start with a whole tile, of any panel's height. */
static bool tile_can_reorder_b(const GemmPlan *plan, const Kernel *kernel)
{
    int64_t last_unit = plan->rows % plan->unit_rows, ragged = plan->columns % plan->panel_columns;
    int vectors = (int)((ragged + plan->lanes - 1) / plan->lanes);
    int64_t height = gemm_tile_rows(plan, ragged ? vectors : plan->vectors);
    if (height < gemm_tile_rows(plan, plan->vectors)) height = gemm_tile_rows(plan, plan->vectors);
    return plan->b == GEMM_B_COPIED && kernel->operands[plan->match.b].dtype == plan->type && plan->rows >= height &&
           (last_unit == 0 || last_unit >= height);
}

bool gemm_plan(GemmPlan *plan, const Kernel *kernel, const Target *target)
{
    *plan = (GemmPlan){0};
    if (!kernel_match_gemm(kernel, &plan->match) || dtype_in_blocks(kernel->operands[plan->match.a].dtype))
        return false;
    plan->type = kernel_type(kernel, plan->match.sum);
    plan->rows = extent_of(kernel, plan->match.row_axis);
    plan->columns = extent_of(kernel, plan->match.column_axis);
    plan->depth = kernel_inner_extent(kernel);
    if (plan->columns < 2 || plan->rows < 1 || plan->depth < 1) return false;
    bool b_along_k = kernel->operands[plan->match.b].stride[kernel->axis_count - 1] == 1;
    if (plan->rows < GEMM_LEAST_ROWS_BY_COLUMNS && b_along_k &&
        stride_of(kernel, plan->match.b, plan->match.column_axis) != 1)
        return false;
    bool rounds = plan->match.precision == PRODUCTS_BF16;
    plan->rounds_a = rounds && kernel->operands[plan->match.a].dtype != DTYPE_BF16;
    plan->rounds_b = rounds && kernel->operands[plan->match.b].dtype != DTYPE_BF16;
    find_epilogue(plan, kernel);
    plan->hidden = hidden_sums_find(kernel, &plan->match);
    choose_tile(plan, kernel->operands[plan->match.a].stride[kernel->axis_count - 1] != 1, target);
    choose_reordering(plan, kernel, target);
    choose_a(plan, kernel);
    choose_depth(plan, kernel->operands[plan->match.a].stride[kernel->axis_count - 1] != 1,
                 dtype_in_blocks(kernel->operands[plan->match.b].dtype) ? DTYPE_BLOCK : 8);
    choose_skipping(plan, kernel, target);
    choose_units(plan, kernel);
    plan->reorders_b_in_tile = tile_can_reorder_b(plan, kernel);
    size_t size = dtype_size(plan->type), width = (size_t)(plan->vectors * plan->lanes);
    if (plan->b != GEMM_B_DIRECT) plan->b_bytes = (size_t)plan->depth_block * width * size;
    if (plan->reorder_a) plan->a_bytes = (size_t)(plan->unit_rows * plan->depth_block + plan->lanes) * size;
    if (plan->depth > plan->depth_block && !plan->sums_in_place)
        plan->sum_bytes = (size_t)plan->unit_rows * width * size;
    double rate = 3.0 * 2 * 2 * plan->lanes; /* floating-point operations per nanosecond */
    plan->nanoseconds = (int64_t)(kernel_flops(kernel) / rate);
    return true;
}
