/* A factor of a matrix product as it lies in memory. Everything that packs a factor reads it through these functions,
 * so this is the one place that knows how its elements are stored. Of weights in blocks (emit_blocks.h), packing asks
 * for neighbours from multiples of as many as it takes at once. */
#ifndef CODEGEN_KERNELS_FACTOR_H
#define CODEGEN_KERNELS_FACTOR_H

#include "codegen/kernels/emit.h"
#include "graph/kernel/kernel.h"

typedef struct Factor {
    Emit *emit;
    DType dtype;     /* of its elements in memory */
    int64_t along_k; /* elements from one k to the next */
    int64_t across;  /* and from one row of A, or column of B, to the next */
} Factor;

/* Operand `number`, whose rows or columns are `axis` (-1: there is one). */
Factor factor_of(Emit *emit, const Kernel *kernel, int number, int axis);

/* Whether packing can read elements of that type. */
bool factor_is_known(DType dtype);
/* Whether the elements are bf16 numbers, so that rounding them changes nothing. */
bool factor_is_bf16(const Factor *factor);

/* Bytes of so many neighbouring elements. */
int64_t factor_bytes(const Factor *factor, int64_t elements);
/* Of so many elements, `base` being the address of one. */
Ir factor_skip(const Factor *factor, Ir base, Ir elements);
/* Where memory has the element at an address: what may be prefetched. */
Ir factor_memory(const Factor *factor, Ir address);
/* Of the element `across` rows or columns and `k` steps further on than the one at `base`. */
Ir factor_at(const Factor *factor, Ir base, Ir across, Ir k);

/* `lanes` elements from `address` on, `stride` apart, as memory has them (float32, or bits of bf16); those that `mask`
 * leaves out (NULL: none) are 0. */
Ir factor_load_raw(const Factor *factor, Ir address, int64_t stride, int lanes, Ir mask);
/* The same as numbers of the register type. */
Ir factor_load(const Factor *factor, Ir address, int64_t stride, int lanes, Ir mask);

#endif
