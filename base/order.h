/* Orders for qsort and bsearch, ascending. */
#ifndef BASE_ORDER_H
#define BASE_ORDER_H

#include <stddef.h>

int order_numbers(const void *a, const void *b); /* of doubles */
/* Of texts, byte by byte, or of structures whose first member is one. */
int order_texts(const void *a, const void *b);
/* Sorts the values; the upper one of two in the middle, NAN if there are none. */
double median(double *values, size_t count);

#endif
