/* Values of parameters when training starts. */
#ifndef RUNTIME_STORAGE_PARAMETERS_H
#define RUNTIME_STORAGE_PARAMETERS_H

#include "runtime/device/execute.h"

/* Gives every parameter of the program its initial value: bytes of a file named relative to `directory` (or absolute),
 * or a drawn one. Errors: a file is missing or shorter than when the program was compiled. */
bool parameters_initialize(Execution *execution, const char *directory, Diagnostics *diagnostics);

/* Normal, a pure function of seed, name and element: the same whichever stage draws it. */
void parameter_draw(const char *name, uint64_t seed, float mean, float deviation, float *values, size_t count);

/* Name under which checkpoints keep optimiser state `index` of parameters with `state_count` states: "adam.m" and
 * "adam.v", or "momentum". */
const char *parameter_state_prefix(uint32_t state_count, uint32_t index);

#endif
