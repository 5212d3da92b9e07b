#include "codegen/opencl/opencl_cut.h"

/* Shorter rows are one work item's: a group would wait more than it computes. */
enum { LEAST_ROW = 32, LEAST_PRODUCT = 4, LARGEST_TILE = 64, SMALLEST_TILE = 16 };

/* Whether it reduces rows that lie in one piece, so that the items of a group read neighbours. */
static bool has_long_rows(const Kernel *kernel)
{
    int inner = kernel->axis_count - 1;
    bool reduces = false, dense = false;
    if (kernel->extent[inner] < LEAST_ROW || kernel_inner_axis_is_sequential(kernel)) return false;
    for (Register r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        reduces |= kernel_op_is_reduction(instruction->op);
        if (!kernel_op_is_access(instruction->op) || !kernel_phase_of(kernel, r)->inner) continue;
        if (kernel_access_offset(instruction)) return false;
        dense |= kernel->operands[instruction->operand].stride[inner] == 1;
    }
    return reduces && dense;
}

static bool is_tiled_product(const Kernel *kernel, KernelGemm *gemm)
{
    return kernel_match_gemm(kernel, gemm) && kernel_type(kernel, gemm->sum) == DTYPE_F32 && gemm->row_axis >= 0 &&
           gemm->column_axis >= 0 && kernel->extent[gemm->row_axis] >= LEAST_PRODUCT &&
           kernel->extent[gemm->column_axis] >= LEAST_PRODUCT;
}

static int64_t tile_along(int64_t extent)
{
    int64_t tile = LARGEST_TILE;
    while (tile > SMALLEST_TILE && tile / 2 >= extent) tile /= 2;
    return tile;
}

OpenClCut opencl_cut(const Kernel *kernel)
{
    OpenClCut cut = {.form = OPENCL_LOOP};
    int inner = kernel->axis_count - 1;
    for (int axis = 0; axis < kernel->axis_count; axis++) cut.step[axis] = 1;
    if (kernel_coding_of(kernel)) {
        cut.form = OPENCL_CODING;
        cut.step[inner] = codec_bits(kernel_coding_codec(kernel_coding_of(kernel))) ? CODEC_TILE : 1;
    } else if (kernel_is_map(kernel)) {
        cut.form = OPENCL_MAP;
    } else {
        cut.step[inner] = kernel->extent[inner] ? kernel->extent[inner] : 1;
        if (is_tiled_product(kernel, &cut.gemm)) {
            cut.form = OPENCL_PRODUCT;
            cut.step[cut.gemm.row_axis] = tile_along(kernel->extent[cut.gemm.row_axis]);
            cut.step[cut.gemm.column_axis] = tile_along(kernel->extent[cut.gemm.column_axis]);
        } else if (has_long_rows(kernel)) {
            cut.form = OPENCL_ROW;
        }
    }
    for (int axis = 0; axis < kernel->axis_count; axis++)
        cut.count[axis] = (kernel->extent[axis] + cut.step[axis] - 1) / cut.step[axis];
    if (cut.form != OPENCL_MAP && cut.form != OPENCL_CODING) cut.count[inner] = 1; /* also of nothing */
    return cut;
}

int64_t opencl_cut_units(const Kernel *kernel, const OpenClCut *cut, int first)
{
    int64_t all = 1;
    for (int axis = first; axis < kernel->axis_count; axis++) all *= cut->count[axis];
    return all;
}
