/* How a loop kernel is vectorised. */
#include "codegen/kernels/kernel_sizes.h"
#include "codegen/kernels/loop_plan.h"

#include <float.h>

static int count_reductions(const Kernel *kernel)
{
    int count = 0;
    for (int i = 0; i < kernel->instruction_count; i++) count += kernel_op_is_reduction(kernel->instructions[i].op);
    return count;
}

static int natural_lanes(const Kernel *kernel, const Target *target)
{
    bool wide = false;
    for (int i = 0; i < kernel->instruction_count; i++) {
        if (kernel->instructions[i].type == DTYPE_F32) return target->vector_bytes / 4;
        wide |= kernel->instructions[i].type == DTYPE_F64 || kernel->instructions[i].type == DTYPE_I64;
    }
    return target->vector_bytes / (wide ? 8 : 4);
}

static int lanes_for(int lanes, int64_t extent)
{
    while (lanes > 1 && lanes / 2 >= extent) lanes /= 2;
    return lanes;
}

/* What one inner iteration costs, roughly in cycles, vectorised along `axis`. */
static double axis_cost(const Kernel *kernel, int axis, int lanes)
{
    int inner = kernel->axis_count - 1;
    int64_t inner_extent = kernel->extent[inner] > 0 ? kernel->extent[inner] : 1;
    double cost = 0;
    for (int r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, (Register)r);
        bool store = kernel_op_is_store(instruction->op);
        double weight = kernel_phase_of(kernel, (Register)r)->inner ? 1 : 1.0 / (double)inner_extent;
        double each = 0.5 / lanes;
        if (kernel_op_is_access(instruction->op)) {
            int64_t stride = kernel->operands[instruction->operand].stride[axis];
            if (stride == 1)
                each = 1.0 / lanes;
            else if (stride || (kernel_access_offset(instruction) && axis == inner))
                each = store ? 2 : 1.2;
        }
        if (kernel_op_is_reduction(instruction->op) && axis == inner) each += 6.0 / (double)inner_extent;
        cost += weight * each;
    }
    int64_t extent = kernel->extent[axis] > 0 ? kernel->extent[axis] : 1;
    double rounds = (double)((extent + lanes - 1) / lanes) * lanes;
    return cost * rounds / (double)extent;
}

static void choose_vector_axis(LoopPlan *plan, const Kernel *kernel, const Target *target)
{
    int inner = kernel->axis_count - 1, natural = natural_lanes(kernel, target);
    bool sequential = kernel_inner_axis_is_sequential(kernel);
    double best = DBL_MAX;
    for (int axis = inner; axis >= kernel->block_axes; axis--) {
        if (kernel->extent[axis] < 2 || (axis == inner && sequential)) continue;
        int lanes = lanes_for(natural, kernel->extent[axis]);
        double cost = axis_cost(kernel, axis, lanes);
        if (cost >= best) continue;
        best = cost;
        plan->vector_axis = axis;
        plan->lanes = lanes;
    }
}

/* How many copies fit the registers, and are worth the code. */
static int wanted_copies(const Kernel *kernel)
{
    int weight = 0;
    for (int i = 0; i < kernel->instruction_count; i++) {
        int op = kernel->instructions[i].op;
        bool function = (op >= KERNEL_EXP && op <= KERNEL_LOG) || (op >= KERNEL_SIN && op <= KERNEL_NORMAL_DENSITY) ||
                        op == KERNEL_POWER || op == KERNEL_RANDOM;
        weight += function ? 10 : 1;
    }
    /* A kernel with many reductions would carry too many accumulators. */
    if (count_reductions(kernel) > 8) return 1;
    return weight <= 30 ? 4 : weight <= 70 ? 2 : 1;
}

/* The outer axis nearest to the inner one that is long enough to take rows of it together; -1 if there is none. */
static int row_axis(const Kernel *kernel, int rows)
{
    for (int axis = kernel->axis_count - 2; axis >= kernel->block_axes; axis--) {
        if (kernel->extent[axis] >= rows) return axis;
    }
    return -1;
}

/* Columns per unit where whole rows are added up (see loop_columns.c); 0 where that does not fit the kernel. */
static int64_t columns_together(const Kernel *kernel, const LoopPlan *plan)
{
    int inner = kernel->axis_count - 1;
    if (plan->vector_axis < 0 || plan->vector_axis == inner || kernel->extent[inner] < LOOP_ROWS_TOGETHER) return 0;
    if (kernel->phase_count != 2 || !kernel->phases[0].inner || kernel->phases[1].inner) return 0;
    if (count_reductions(kernel) != 1 || kernel_inner_axis_is_sequential(kernel)) return 0;
    for (int r = 1; r <= kernel->phases[0].count; r++)
        if (kernel_op_is_store(kernel_instruction(kernel, (Register)r)->op)) return 0;
    int64_t columns = kernel->extent[plan->vector_axis], half = columns / 2 / plan->lanes * plan->lanes;
    if (columns % plan->lanes || half < LOOP_LEAST_COLUMNS) return 0;
    return half < LOOP_MOST_COLUMNS ? half : LOOP_MOST_COLUMNS;
}

/* Whether it passes over rows once that are so long that what happens at their ends does not count. */
static bool reads_long_rows(const Kernel *kernel)
{
    return kernel->phase_count == 2 && kernel->phases[0].inner && !kernel->phases[1].inner &&
           kernel_inner_extent(kernel) >= LOOP_LONG_ROW;
}

static void choose_copies(LoopPlan *plan, const Kernel *kernel)
{
    int inner = kernel->axis_count - 1, wanted = wanted_copies(kernel);
    plan->copy_axis = -1;
    plan->copies = 1;
    if (plan->vector_axis < 0 || wanted == 1) return;
    plan->columns = columns_together(kernel, plan);
    if (plan->columns) {
        plan->copy_axis = inner;
        plan->copies = LOOP_ROWS_TOGETHER;
        return;
    }
    int rows = row_axis(kernel, wanted);
    if (plan->vector_axis == inner && rows >= 0 && count_reductions(kernel) && !reads_long_rows(kernel)) {
        plan->copy_axis = rows;
        plan->copies = wanted;
        return;
    }
    if (plan->vector_axis == inner && !count_reductions(kernel) && wanted > 2) wanted = 2;
    int64_t vectors = (kernel->extent[plan->vector_axis] + plan->lanes - 1) / plan->lanes;
    plan->copy_axis = plan->vector_axis;
    plan->copies = (int)(vectors < wanted ? vectors : wanted);
}

static double estimate_nanoseconds(const Kernel *kernel, const LoopPlan *plan)
{
    double compute = kernel_flops(kernel) / (2.0 * plan->lanes), memory = kernel_bytes(kernel) / 20;
    return compute > memory ? compute : memory;
}

void loop_plan(LoopPlan *plan, const Kernel *kernel, const Target *target)
{
    *plan = (LoopPlan){.vector_axis = -1, .lanes = 1, .stepped_axis = -1};
    choose_vector_axis(plan, kernel, target);
    choose_copies(plan, kernel);
    int inner = kernel->axis_count - 1;
    units_init(&plan->units);
    for (int axis = 0; axis < inner; axis++) {
        int64_t step = 1;
        if (axis == plan->copy_axis) step = plan->copies;
        if (axis == plan->vector_axis) step = plan->columns ? plan->columns : (int64_t)plan->lanes * plan->copies;
        if (step > 1) plan->stepped_axis = axis;
        units_add(&plan->units, axis, kernel->extent[axis], step);
    }
    bool by_rows = plan->copy_axis >= 0 && plan->copy_axis < inner && kernel->extent[inner] <= LOOP_MOST_PREFETCHED_ROW;
    plan->streams = (kernel_is_map(kernel) || by_rows) && plan->vector_axis == inner &&
                    kernel_bytes(kernel) > 4 * (double)target->level1_bytes;
    int64_t chunk = LOOP_CHUNK_ELEMENTS; /* a multiple of lanes * copies */
    if (plan->stepped_axis < 0 && kernel_is_map(kernel) && kernel->extent[inner] > chunk) {
        plan->stepped_axis = inner;
        units_add(&plan->units, inner, kernel->extent[inner], chunk);
    }
    if (kernel_is_map(kernel) && kernel->extent[inner] == 0) plan->units.total = 0; /* loops run once before they ask */
    plan->nanoseconds = (int64_t)estimate_nanoseconds(kernel, plan);
}
