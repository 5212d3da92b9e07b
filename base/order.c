#include "base/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int order_numbers(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int order_texts(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

double median(double *values, size_t count)
{
    if (!count) return NAN;
    qsort(values, count, sizeof *values, order_numbers);
    return values[count / 2];
}
