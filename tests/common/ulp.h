/* How far a float is from an exact value, in units in the last place of the float nearest to it. */
#ifndef TESTS_COMMON_ULP_H
#define TESTS_COMMON_ULP_H

#include <math.h>

/* 0 where both are NaN or `found` is the nearest float; infinite where only one of them is NaN or infinite. */
static inline double ulp_error(float found, double exact)
{
    float rounded = (float)exact;
    if (isnan(exact) || isnan(found)) return isnan(exact) == isnan(found) ? 0 : INFINITY;
    if (rounded == found) return 0;
    if (!isfinite(rounded) || !isfinite(found)) return INFINITY;
    double unit = (double)(nextafterf(fabsf(rounded), INFINITY) - fabsf(rounded));
    return fabs((double)found - exact) / unit;
}

#endif
