#include "codegen/opencl/opencl_product.h"

#include <inttypes.h>
#include <stdio.h>

/* One of the two factors: its tile is `name`[DEPTH][tile] in local memory. */
typedef struct Factor {
    const char *name;
    int operand, axis;
    int64_t tile;
    const char *width; /* elements from one row of the tile to the next */
} Factor;

static bool tile_divides(const Kernel *kernel, const OpenClCut *cut, int axis)
{
    return kernel->extent[axis] % cut->step[axis] == 0;
}

/* The items read along the axis in which the factor's elements are neighbours, and convert each element once. Outside
 * of the matrix are zeros. */
static void print_fill(const OpenClBody *body, const OpenClCut *cut, const Factor *factor)
{
    const Kernel *kernel = body->kernel;
    int inner = kernel->axis_count - 1;
    const int64_t *stride = kernel->operands[factor->operand].stride;
    bool deep = stride[inner] == 1;
    char elements[96];
    snprintf(elements, sizeof elements, "(start + k) * %" PRId64 " + (long)m * %" PRId64, stride[inner],
             stride[factor->axis]);
    buffer_print(body->text,
                 "        for (int e = item; e < DEPTH * %" PRId64 "; e += ITEMS) {\n"
                 "            int k = e %s, m = e %s;\n            float x = 0;\n            if (start + k < depth",
                 factor->tile, deep ? "% DEPTH" : "/ TILE", deep ? "/ DEPTH" : "% TILE");
    if (!tile_divides(kernel, cut, factor->axis))
        buffer_print(body->text, " && i%d + m < %" PRId64, factor->axis, kernel->extent[factor->axis]);
    buffer_print(body->text, ") x = ");
    opencl_print_element(body, factor->operand, elements);
    buffer_print(body->text, ";\n            %s[k * %s + m] = %s;\n        }\n", factor->name, factor->width,
                 cut->gemm.precision == PRODUCTS_BF16 ? "bf16_round(x)" : "x");
}

static void print_sums(const OpenClBody *body, const OpenClCut *cut, const Factor factors[2])
{
    Buffer *text = body->text;
    bool limited = body->kernel->limited;
    buffer_print(text,
                 "    const int x = item %% (COLUMNS / VECTOR) * VECTOR, y = item / (COLUMNS / VECTOR) * ITEM_ROWS;\n"
                 "    FLOATS sums[ITEM_ROWS];\n    for (int r = 0; r < ITEM_ROWS; r++) sums[r] = 0;\n"
                 "    const long depth = %s%" PRId64 "%s;\n    for (long start = 0; start < depth; start += DEPTH) {\n",
                 limited ? "min(limit, " : "", kernel_inner_extent(body->kernel), limited ? "L)" : "");
    for (int f = 0; f < 2; f++) {
        buffer_print(text, "#undef TILE\n#define TILE %" PRId64 "\n", factors[f].tile);
        print_fill(body, cut, &factors[f]);
    }
    buffer_print(text, "        barrier(CLK_LOCAL_MEM_FENCE);\n        for (int k = 0; k < DEPTH; k++) {\n"
                       "            FLOATS right = rights[(k * WIDTH + x) / VECTOR];\n"
                       "            for (int r = 0; r < ITEM_ROWS; r++) sums[r] += left[k * HEIGHT + y + r] * right;\n"
                       "        }\n        barrier(CLK_LOCAL_MEM_FENCE);\n    }\n");
}

/* The epilogue, for one element of the tile after the other: copies of it for all would take drivers long. */
static void print_results(const OpenClBody *body, const OpenClCut *cut)
{
    const Kernel *kernel = body->kernel;
    int axes[2] = {cut->gemm.row_axis, cut->gemm.column_axis};
    Buffer *text = body->text;
    buffer_print(text,
                 "    for (int r = 0; r < ITEM_ROWS; r++) {\n    float row[VECTOR];\n"
                 "    STORE_FLOATS(sums[r], 0, row);\n#pragma unroll 1\n    for (int c = 0; c < VECTOR; c++) {\n");
    for (int k = 0; k < kernel->operand_count; k++) {
        const KernelOperand *operand = &kernel->operands[k];
        int64_t size = dtype_in_blocks(operand->dtype) ? 1 : (int64_t)dtype_size(operand->dtype);
        buffer_print(text, "    long p%d = q%d + (y + r) * %" PRId64 " + (x + c) * %" PRId64 ";\n", k, k,
                     operand->stride[axes[0]] * size, operand->stride[axes[1]] * size);
    }
    buffer_print(text, "    long row_index = i%d + y + r, column_index = i%d + x + c;\n", axes[0], axes[1]);
    for (int a = 0; a < 2; a++)
        if (!tile_divides(kernel, cut, axes[a]))
            buffer_print(text, "    if (%s_index >= %" PRId64 ") continue;\n", a ? "column" : "row",
                         kernel->extent[axes[a]]);
    buffer_print(text, "    {\n    long i%d = row_index, i%d = column_index;\n", axes[0], axes[1]);
    for (int k = 0; k < kernel->operand_count; k++) buffer_print(text, "    long q%d = p%d;\n", k, k);
    buffer_print(text, "    r%d = row[c];\n", cut->gemm.sum);
    for (int p = 1; p < kernel->phase_count; p++) opencl_print_phase(body, &kernel->phases[p]);
    buffer_print(text, "    }\n    }\n    }\n");
}

void opencl_print_product(const OpenClBody *body, const OpenClCut *cut)
{
    int axes[2] = {cut->gemm.row_axis, cut->gemm.column_axis};
    Factor factors[2] = {{"left", cut->gemm.a, axes[0], cut->step[axes[0]], "HEIGHT"},
                         {"((__local float *)rights)", cut->gemm.b, axes[1], cut->step[axes[1]], "WIDTH"}};
    buffer_print(body->text,
                 "#undef ROWS\n#undef COLUMNS\n#define ROWS %" PRId64 "\n#define COLUMNS %" PRId64 "\n"
                 "    __local float left[DEPTH * HEIGHT];\n    __local FLOATS rights[DEPTH * WIDTH / VECTOR];\n",
                 cut->step[axes[0]], cut->step[axes[1]]);
    print_sums(body, cut, factors);
    print_results(body, cut);
}
