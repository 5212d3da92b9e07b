/* Kernels of class GEMM: C[m][n] = epilogue(sum over k of A[m][k] B[k][n]), with batch axes.
 *
 * The structure is that of register-tiled matrix products (Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008), simplified: a tile of rows x vectors of C stays in registers while k runs; B is reordered
 * into panels of one tile's width, small enough for the second-level cache; A is read in place, one broadcast element
 * at a time, with the cache lines of later k and of the next tile prefetched at an even rate. Long sums are cut into
 * blocks of k, and the tile is loaded back from memory when a block starts: the order of additions is that of one
 * plain loop over k, whatever the block and unit sizes. Where a run may end the sum early (kernel_limit_sum), there is
 * one function for all blocks, which is told how many k its block has. */
#ifndef CODEGEN_KERNELS_GEMM_H
#define CODEGEN_KERNELS_GEMM_H

#include "codegen/kernels/gemm_plan.h"

void gemm_emit(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const char *symbol);

#endif
