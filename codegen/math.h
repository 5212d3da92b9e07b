/* Elementary functions in IR, on float32 vectors or scalars: polynomials fitted for this purpose, at most 4 ulp over
 * the whole range (the largest error seen is beside each). NaN stays NaN; infinities give the limits. For float64 they
 * call the C library, lane by lane. */
#ifndef CODEGEN_MATH_H
#define CODEGEN_MATH_H

#include "codegen/emit.h"

Ir math_exp(Emit *emit, Ir x);
Ir math_log(Emit *emit, Ir x); /* -infinity of 0, NaN of negative numbers */
Ir math_erf(Emit *emit, Ir x);
Ir math_tanh(Emit *emit, Ir x);
Ir math_sigmoid(Emit *emit, Ir x);

#endif
