/* Elementary functions in IR, on float32 vectors or scalars: polynomials fitted for this purpose. At most 4 units in
 * the last place over all floats; the largest error that bench_ulp finds is given with each. Subnormal arguments and
 * results are computed like others. NaN stays NaN; infinities, zeros and what is outside the domain:
 *
 *              -inf     negative     -0     +0     +inf     overflows, underflows
 *   exp           0                   1      1     +inf     +inf above 88.72, 0 below -103.97
 *   log         NaN          NaN   -inf   -inf     +inf
 *   erf          -1                  -0     +0        1
 *   tanh         -1                  -0     +0        1
 *   sigmoid       0                 0.5    0.5        1     0 below -103.97
 *
 * The normal distribution's functions are for activations, which add them to numbers near 1: their errors are absolute.
 *
 * For float64 they call the C library, lane by lane. */
#ifndef CODEGEN_KERNELS_ELEMENTARY_H
#define CODEGEN_KERNELS_ELEMENTARY_H

#include "codegen/kernels/emit.h"

Ir math_exp(Emit *emit, Ir x);         /* 1.04 ulp */
Ir math_exp_remains(Emit *emit, Ir x); /* of float32, whether exp is not 0, or may not be */
Ir math_log(Emit *emit, Ir x);         /* 0.82 */
Ir math_erf(Emit *emit, Ir x);         /* 2.76 */
Ir math_tanh(Emit *emit, Ir x);        /* 1.33 */
Ir math_sigmoid(Emit *emit, Ir x);     /* 2.40 */

Ir math_normal_below(Emit *emit, Ir x);   /* of a standard normal variable: to 1.2e-7; 0 below -5.3 */
Ir math_normal_density(Emit *emit, Ir x); /* likewise to 1e-7; 0 where |x| > 13 */

#endif
