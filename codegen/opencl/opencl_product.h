/* Matrix products: a work group computes a tile of the result, each of its items a part of that in registers, from
 * tiles of both operands that it brings into local memory one after the other.
 *
 * Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", 2008. */
#ifndef CODEGEN_OPENCL_OPENCL_PRODUCT_H
#define CODEGEN_OPENCL_OPENCL_PRODUCT_H

#include "codegen/opencl/opencl_body.h"
#include "codegen/opencl/opencl_cut.h"

/* After indices, places and registers of the unit. */
void opencl_print_product(const OpenClBody *body, const OpenClCut *cut);

#endif
