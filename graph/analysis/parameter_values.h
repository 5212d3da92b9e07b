/* Values of parameters as programs have them. */
#ifndef GRAPH_ANALYSIS_PARAMETER_VALUES_H
#define GRAPH_ANALYSIS_PARAMETER_VALUES_H

#include "graph/graph.h"

/* Whether the model has values for the parameter, in whatever form. */
bool parameter_has_values(const Value *value);
/* Copies them to `bytes`, which has room for dtype_bytes of the parameter's type, in its form. */
void parameter_copy_values(const Value *value, void *bytes);
/* Whether `check` is the low word of hash_bytes of the values, or of any form that they may have been stored in.
 * `stored`, unless it is NULL, becomes the parameter in that form. */
bool parameter_form(const Value *value, uint64_t check, Value *stored);
/* The elements of `value`, row by row in its own shape, as programs decode them from `stored`, a form of it. To be
 * freed. */
float *parameter_as_stored(const Value *value, const Value *stored);

#endif
