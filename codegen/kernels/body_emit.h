/* Emission of a kernel's instructions for a block of iterations (codegen/kernels/body.h). Copies are emitted one
 * instruction at a time, so that loads of all copies stand before their stores and independent work is interleaved. */
#ifndef CODEGEN_KERNELS_BODY_EMIT_H
#define CODEGEN_KERNELS_BODY_EMIT_H

#include "codegen/kernels/body.h"

/* Emits what is the same for the whole call, of registers `first` on, where the function begins: loads of scalars and
 * what follows from them. */
void body_emit_constant_part(Body *body, Register first);
/* Emits instruction r at index[inner] (scalar phases: body_analyse ignored the inner axis, set index[inner] to 0). Not
 * for reductions. */
void body_emit(Body *body, Register r);

/* The neutral element of reduction r, and one step of it. */
Ir body_reduction_identity(Body *body, Register r, int lanes);
Ir body_reduction_step(Body *body, Register r, Ir accumulated, Ir value);
/* All lanes into one, halving. */
Ir body_reduction_across(Body *body, Register r, Ir accumulated);

#endif
