/* Matrix products in the interpreter: blocks of both operands are unpacked to double, multiplied, and the epilogue runs
 * over the columns of each row as lanes. The sums add in ascending order of the inner index, as they do elsewhere. */
#include <string.h>

#include "base/arena.h"
#include "graph/kernel/interpret.h"

enum { ROWS = 64, COLUMNS = STRIP, DEPTH = 256, VECTOR = 8 };

typedef double Vector __attribute__((vector_size(VECTOR * sizeof(double)), aligned(16)));

/* As large as the product needs: a fresh one of all rows and columns takes longer than a small product. */
typedef struct PanelBlock {
    Vector (*b)[DEPTH], (*sum)[ROWS]; /* by vector of columns */
    double (*a)[DEPTH];               /* by row */
} PanelBlock;

static PanelBlock block_create(int64_t rows, int64_t columns)
{
    size_t vectors = (size_t)((columns < COLUMNS ? columns : COLUMNS) + VECTOR - 1) / VECTOR;
    size_t lines = rows < ROWS ? (size_t)rows + 1 : ROWS;
    PanelBlock block;
    block.b = memory_resize(NULL, 1, vectors * (sizeof *block.b + sizeof *block.sum) + lines * sizeof *block.a);
    block.sum = (void *)(block.b + vectors);
    block.a = (void *)(block.sum + vectors);
    return block;
}

typedef struct Extent {
    int64_t first;
    int count;
} Extent;

static Extent part(int64_t extent, int64_t first, int most)
{
    return (Extent){first, extent - first < most ? (int)(extent - first) : most};
}

static int64_t axis_extent(const Kernel *kernel, int axis) { return axis < 0 ? 1 : kernel->extent[axis]; }
static int64_t axis_stride(const KernelOperand *operand, int axis) { return axis < 0 ? 0 : operand->stride[axis]; }

static void round_factors(InterpreterLanes *lanes, int count)
{
    for (int i = 0; i < count; i++) lanes->number[i] = bfloat_round((float)lanes->number[i]);
}

static void unpack(const Interpreter *run, const KernelGemm *gemm, PanelBlock *block, Extent rows, Extent columns,
                   Extent depth)
{
    const KernelOperand *a = &run->kernel->operands[gemm->a], *b = &run->kernel->operands[gemm->b];
    int inner = run->kernel->axis_count - 1;
    InterpreterLanes lanes;
    int64_t from_a = run->position[gemm->a] + rows.first * axis_stride(a, gemm->row_axis);
    int64_t from_b = run->position[gemm->b] + columns.first * axis_stride(b, gemm->column_axis);
    for (int m = 0; m < rows.count; m++) {
        int64_t position = from_a + m * axis_stride(a, gemm->row_axis) + depth.first * a->stride[inner];
        interpret_load(&lanes, a->dtype, run->address[gemm->a], position, a->stride[inner], depth.count);
        if (gemm->precision == PRODUCTS_BF16) round_factors(&lanes, depth.count);
        memcpy(block->a[m], lanes.number, (size_t)depth.count * sizeof lanes.number[0]);
    }
    int padded = (columns.count + VECTOR - 1) / VECTOR * VECTOR;
    for (int k = 0; k < depth.count; k++) {
        interpret_load(&lanes, b->dtype, run->address[gemm->b], from_b + (depth.first + k) * b->stride[inner],
                       axis_stride(b, gemm->column_axis), columns.count);
        if (gemm->precision == PRODUCTS_BF16) round_factors(&lanes, columns.count);
        for (int n = columns.count; n < padded; n++) lanes.number[n] = 0;
        for (int n = 0; n < padded; n += VECTOR) memcpy(&block->b[n / VECTOR][k], lanes.number + n, sizeof(Vector));
    }
}

static void multiply(PanelBlock *block, int rows, int columns, int depth)
{
    for (int n = 0; n * VECTOR < columns; n++)
        for (int m = 0; m < rows; m += 2) { /* the row after an odd last one is computed for nothing */
            const double *first = block->a[m], *second = block->a[m + 1];
            Vector sum_first = block->sum[n][m], sum_second = block->sum[n][m + 1];
            for (int k = 0; k < depth; k++) {
                Vector b = block->b[n][k];
                sum_first += first[k] * b;
                sum_second += second[k] * b;
            }
            block->sum[n][m] = sum_first;
            block->sum[n][m + 1] = sum_second;
        }
}

/* Runs the phases after the product for one row, with the block's columns as lanes. */
static bool epilogue(Interpreter *run, const KernelGemm *gemm, PanelBlock *block, int row, Extent columns)
{
    const Kernel *kernel = run->kernel;
    for (int n = 0; n * VECTOR < columns.count; n++)
        memcpy(run->lanes[gemm->sum].number + n * VECTOR, &block->sum[n][row], sizeof(Vector));
    for (int i = 1; i < kernel->phase_count; i++) {
        int axis = gemm->column_axis < 0 ? kernel->axis_count - 1 : gemm->column_axis;
        if (!interpret_lanes(run, &kernel->phases[i], axis, columns.first, columns.count)) return false;
    }
    return true;
}

static bool interpret_block(Interpreter *run, const KernelGemm *gemm, PanelBlock *block, Extent rows, Extent columns)
{
    const Kernel *kernel = run->kernel;
    int64_t inner = kernel_inner_extent(kernel);
    for (int n = 0; n * VECTOR < columns.count; n++) memset(block->sum[n], 0, sizeof block->sum[n]);
    for (int64_t first = 0; first < inner; first += DEPTH) {
        Extent depth = part(inner, first, DEPTH);
        unpack(run, gemm, block, rows, columns, depth);
        multiply(block, rows.count, columns.count, depth.count);
    }
    int64_t start[KERNEL_MAX_OPERANDS];
    memcpy(start, run->position, sizeof start);
    bool inside = true;
    for (int m = 0; m < rows.count && inside; m++) {
        for (int i = 0; i < kernel->operand_count; i++)
            run->position[i] = start[i] + (rows.first + m) * axis_stride(&kernel->operands[i], gemm->row_axis);
        if (gemm->row_axis >= 0) run->index[gemm->row_axis] = rows.first + m;
        inside = epilogue(run, gemm, block, m, columns);
    }
    if (gemm->row_axis >= 0) run->index[gemm->row_axis] = 0;
    memcpy(run->position, start, sizeof start);
    return inside;
}

bool interpret_gemm(Interpreter *run, const KernelGemm *gemm, unsigned skipped)
{
    const Kernel *kernel = run->kernel;
    if (gemm->row_axis >= 0) skipped |= 1u << gemm->row_axis;
    if (gemm->column_axis >= 0) skipped |= 1u << gemm->column_axis;
    int64_t rows = axis_extent(kernel, gemm->row_axis), columns = axis_extent(kernel, gemm->column_axis);
    PanelBlock block = block_create(rows, columns);
    bool inside = true;
    do
        for (int64_t m = 0; m < rows && inside; m += ROWS)
            for (int64_t n = 0; n < columns && inside; n += COLUMNS)
                inside = interpret_block(run, gemm, &block, part(rows, m, ROWS), part(columns, n, COLUMNS));
    while (inside && interpret_step(run, skipped));
    free(block.b);
    return inside;
}
