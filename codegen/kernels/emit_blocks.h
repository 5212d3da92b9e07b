/* Elements of weights in blocks (base/weight_blocks.h), decoded on the way into registers. Several elements share a
 * byte and all of a block its scale, so the address of an element is its place: 32 times the address of the block plus
 * the number of the element in it. */
#ifndef CODEGEN_KERNELS_EMIT_BLOCKS_H
#define CODEGEN_KERNELS_EMIT_BLOCKS_H

#include "codegen/kernels/emit.h"

Ir emit_block_place(Emit *emit, Ir address); /* of the first element of the block at an address */
Ir emit_block_address(Emit *emit, Ir place); /* of the block that has the element */
Ir emit_block_skip(Emit *emit, DType dtype, Ir place, Ir elements);
/* The elements at `offsets` from a place, one or a vector, as float32; those that `mask` leaves out are 0. */
Ir emit_block_gather(Emit *emit, DType dtype, Ir place, Ir offsets, Ir mask);
/* `lanes` neighbouring ones from a place that is a multiple of `lanes`, which are at most 16 and a power of 2. */
Ir emit_block_load(Emit *emit, DType dtype, Ir place, int lanes);

/* Operand number `i` of a kernel's array of addresses; of blocks it is a place. */
Ir emit_operand(Emit *emit, Ir array, int i, DType dtype);
/* The address of the element so many after `base`, which is one that emit_operand loaded, or moved on from there. */
Ir emit_element_address(Emit *emit, DType dtype, Ir base, Ir offset);

#endif
