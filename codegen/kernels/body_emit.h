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

/* Whether, in a phase, any element is not 0 of what its loads, of neighbouring elements of operands that often are 0,
 * read; NULL: there are no such loads. With body->are_zero they all count as zero. */
Ir body_any_not_zero(Body *body, const KernelPhase *phase);

/* The neutral element of reduction r, and one step of it. */
Ir body_reduction_identity(Body *body, Register r, int lanes);
Ir body_reduction_step(Body *body, Register r, Ir accumulated, Ir value);
/* All lanes into one, halving. */
Ir body_reduction_across(Body *body, Register r, Ir accumulated);

#endif
