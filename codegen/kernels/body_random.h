/* Emission of KERNEL_RANDOM: the arithmetic of random_element (base/random.h), for a block of iterations at once. */
#ifndef CODEGEN_KERNELS_BODY_RANDOM_H
#define CODEGEN_KERNELS_BODY_RANDOM_H

#include "codegen/kernels/body.h"

/* Emits register r, in all copies. `inner`: it stands in an inner phase. */
void body_random(Body *body, Register r, bool inner);

#endif
