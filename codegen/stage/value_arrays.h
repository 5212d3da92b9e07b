/* Arrays with an element for each value of a graph. A stage touches few of many elements, so all stages of a graph use
 * the same arrays, one after the other, and each leaves zeros where it visited a value: allocated or zeroed whole for
 * every stage, they would take time quadratic in the layers. */
#ifndef CODEGEN_STAGE_VALUE_ARRAYS_H
#define CODEGEN_STAGE_VALUE_ARRAYS_H

#include "graph/graph.h"

typedef struct ValueArrays ValueArrays;

ValueArrays *value_arrays_create(size_t values);
/* An element that a stage left set is a bug. */
void value_arrays_free(ValueArrays *arrays);
/* The value's elements may be changed from now on, until value_arrays_clear. */
void value_arrays_visit(ValueArrays *arrays, ValueId value);
/* One of the arrays, with zeros in it, which belongs to the caller until it is returned. */
void *value_array_take(ValueArrays *arrays, size_t element_bytes);
#define value_array_new(arrays, type) ((type *)value_array_take((arrays), sizeof(type)))
/* Zeroes the elements of all values that were visited; `array` may be NULL. */
void value_array_return(ValueArrays *arrays, void *array);
/* No value is visited any more; all arrays must have been returned. */
void value_arrays_clear(ValueArrays *arrays);

#endif
