/* Matrix products of factors that are to be rounded to bf16 (PRODUCTS_BF16), by VDPBF16PS, which adds the products
 * of two pairs to each of 16 sums; processors without it run codegen/kernels/gemm.h's code, which rounds the factors
 * as it reads them, those with AMX codegen/kernels/amx_gemm.h's.
 *
 * A tile of rows x vectors of sums stays in registers while k runs. All of a unit's rows of A are reordered first,
 * row by row, k in pairs: an element of A is a broadcast pair. Rows of bf16 that lie so already stay where they are.
 * B is reordered panel by panel, of one tile's width: for every pair of k its columns side by side. The panel that is
 * being used stays in the second-level cache; while it is, the tiles reorder the next one, each a share, whose lines
 * the tile before has prefetched. So memory is read at an even rate during the products, and B, A and the epilogue's
 * operands once.
 *
 * Units that a call is given together share their reordered rows of A. Long sums are cut into blocks of k, between
 * which a panel's sums wait in scratch memory: their order depends on neither units nor threads. */
#ifndef CODEGEN_KERNELS_PAIR_GEMM_H
#define CODEGEN_KERNELS_PAIR_GEMM_H

#include "codegen/kernels/pair_gemm_plan.h"

void pair_emit(Emit *emit, const Kernel *kernel, const PairPlan *plan, const char *symbol);

#endif
