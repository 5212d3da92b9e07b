/* The scalar meaning of kernel operations (graph/kernel/kernel.h), in IR, on scalars and vectors alike. */
#ifndef CODEGEN_KERNELS_ARITHMETIC_H
#define CODEGEN_KERNELS_ARITHMETIC_H

#include "codegen/kernels/emit.h"
#include "graph/kernel/kernel.h"

/* Between an element as it lies in memory and the register type it is computed in. */
Ir arithmetic_widen(Emit *emit, DType dtype, Ir element);
Ir arithmetic_narrow(Emit *emit, DType dtype, Ir value);

Ir arithmetic_round_bf16(Emit *emit, Ir value); /* float32 to the nearest number that bf16 has, ties to even */

Ir arithmetic_convert(Emit *emit, DType from, DType to, Ir value); /* register types */
Ir arithmetic_unary(Emit *emit, int op, DType type, Ir a);
Ir arithmetic_binary(Emit *emit, int op, DType type, Ir a, Ir b);
/* a to the power of a constant; `b` is that constant, broadcast. */
Ir arithmetic_power_constant(Emit *emit, Ir a, Ir b, double exponent);

#endif
