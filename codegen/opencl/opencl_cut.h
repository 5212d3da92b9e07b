/* How a kernel's work is cut into units, and what computes a unit: one work item, or a work group.
 *
 * A map has a unit per element, a coding per tile of a row; other kernels one per outer iteration, which a work group
 * shares where its rows are long and lie in one piece. A product's unit is a tile of its result. */
#ifndef CODEGEN_OPENCL_OPENCL_CUT_H
#define CODEGEN_OPENCL_OPENCL_CUT_H

#include "graph/kernel/kernel.h"

typedef enum OpenClForm { OPENCL_MAP, OPENCL_LOOP, OPENCL_ROW, OPENCL_PRODUCT, OPENCL_CODING } OpenClForm;

typedef struct OpenClCut {
    OpenClForm form;
    KernelGemm gemm; /* of a product */
    /* Per axis: how far a unit reaches along it, and how many of them that are. The axes count units in their order,
     * the last fastest. */
    int64_t step[KERNEL_MAX_AXES], count[KERNEL_MAX_AXES];
} OpenClCut;

OpenClCut opencl_cut(const Kernel *kernel);
/* Units of axes first ... axis_count - 1. */
int64_t opencl_cut_units(const Kernel *kernel, const OpenClCut *cut, int first);

#endif
