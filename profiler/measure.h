/* Times kernels on this machine. */
#ifndef PROFILER_MEASURE_H
#define PROFILER_MEASURE_H

#include "codegen/codegen.h"
#include "profiler/model_costs.h"

/* Measures every compiled kernel on one thread, over buffers of its own that stay warm, and appends its time to the
 * profile: the median of several runs. Kernels already in the profile are skipped. */
void measure_kernels(Profile *profile, const CompiledKernels *compiled, const JitProgram *jit);

#endif
