/* Kernels of class GEMM: C[m][n] = epilogue(sum over k of A[m][k] B[k][n]), with batch axes.
 *
 * The structure is that of register-tiled matrix products (Goto and van de Geijn, "Anatomy of High-Performance Matrix
 * Multiplication", 2008), simplified: a tile of rows x vectors of C stays in registers while k runs; B is packed into
 * panels of one tile's width, small enough for the second-level cache; A is read in place, one broadcast element at a
 * time, with the cache lines of later k and of the next tile prefetched at an even rate. Long sums are cut into blocks
 * of k, and the tile is loaded back from memory when a block starts: the order of additions is that of one plain loop
 * over k, whatever the block and unit sizes. */
#ifndef CODEGEN_GEMM_H
#define CODEGEN_GEMM_H

#include "codegen/emit.h"
#include "codegen/work_units.h"
#include "graph/kernel.h"

typedef enum GemmB {
    GEMM_B_DIRECT,    /* read in place: contiguous along n, and not worth packing */
    GEMM_B_COPIED,    /* packed from rows that are contiguous along n */
    GEMM_B_TRANSPOSED /* packed from columns, contiguous along k or not */
} GemmB;

typedef struct GemmPlan {
    KernelGemm match;
    DType type; /* of the sum: F32 or F64 */
    int64_t rows, columns, depth;
    int lanes;
    int vectors;      /* of a full panel */
    int accumulators; /* registers that a tile may take */
    GemmB b;
    bool rounds_a, rounds_b; /* to bf16, where they are not already */
    bool packs_b_in_tile;    /* COPIED: the first tile of a panel does, and nobody waits for it */
    bool pack_a;             /* into tiles: where consecutive k would walk through too many cache lines */
    int64_t depth_block;     /* of k; the last block may be shorter */
    int64_t panel_columns;   /* vectors * lanes */
    int64_t unit_rows, unit_columns;
    bool accumulates;                   /* the epilogue is C += sum alone: C is where the sum starts */
    bool sums_in_place;                 /* the epilogue is a plain store of the sum: blocks of k accumulate in C */
    size_t b_bytes, a_bytes, sum_bytes; /* of the thread's scratch: packed B, packed A, sums between blocks of k */
    Units units;
    int64_t nanoseconds; /* rough */
} GemmPlan;

/* The height of a tile of so many vectors. */
int gemm_tile_rows(const GemmPlan *plan, int vectors);

/* False if the kernel is better served as a loop: not a matrix product at all, or a degenerate one. */
bool gemm_plan(GemmPlan *plan, const Kernel *kernel, const Target *target);
void gemm_emit(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const char *symbol);

#endif
