/* Matrix products on AMX tiles (TDPBF16PS), which multiply bf16.
 *
 * Factors that are to be rounded to bf16 (PRODUCTS_BF16) are. Those of full float32 are split, since tiles multiply
 * sixteen times as fast as the processor's float32 units: a = a0 + a1 + a2 exactly, each part a bf16 of the 8 leading
 * bits of what is left. Of the nine products of parts, six are summed; the other three, a1 b2, a2 b1 and a2 b2, are
 * together at most the last bit of a float32, 2^-23 of |a b|, and mostly far less. Sums are of float32; the one kept
 * is rounded six times per 32 k where fused multiply-adds would round it 32 times: the result is closer to the exact
 * one than theirs (tests/codegen/kernels/test_codegen_gemm.c measures both). (Henry, Tang and Heinecke, "Leveraging
 * the bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations", ARITH 2019.) What differs: an
 * infinite factor, or one above 3.396e38 whose leading part is, makes NaN, not infinity, in its row or column (zeros
 * for its other parts would not help: infinity times a part of the other factor that is 0 is NaN too), and parts and
 * sums below 2^-126 count as zero.
 *
 * Of PRODUCTS_BF16X3 a factor has two parts, a0 and a1, of which the second is rounded too, and three products are
 * summed: a0 b0, a0 b1, a1 b0. What is left of a factor is at most 2^-16 of it, as is a1 b1 of |a b|, so a product is
 * wrong by at most 3 * 2^-16 of |a b|, mostly by far less.
 *
 * Both factors are reordered (codegen/kernels/bf16_blocks.h), blocks one after the other along k. A unit reorders its
 * rows of A once per block of k, then takes panel after panel of B: reorders it, and multiplies it with tile after
 * tile of rows. Sums wait in scratch memory between blocks of k; the epilogue reads a finished tile row by row from a
 * small buffer. The order of additions depends on neither units nor threads. */
#ifndef CODEGEN_KERNELS_AMX_GEMM_H
#define CODEGEN_KERNELS_AMX_GEMM_H

#include "codegen/kernels/amx_gemm_plan.h"

void amx_emit(Emit *emit, const Kernel *kernel, const AmxPlan *plan, const char *symbol);
/* The address of a constant: eight tiles of 16 rows of 64 bytes, in the form that LDTILECFG reads. */
Ir amx_tile_configuration(Emit *emit);

#endif
