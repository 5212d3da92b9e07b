/* Runs a kernel on the first OpenCL device of this machine. */
#ifndef TESTS_CODEGEN_KERNELS_OPENCL_RUNNER_H
#define TESTS_CODEGEN_KERNELS_OPENCL_RUNNER_H

#include "graph/kernel/kernel.h"

/* NULL, or why there is no device. */
const char *opencl_missing(void);
/* The whole kernel over its operands, of so many bytes each. Fails the test if the device does. */
void opencl_run(const Kernel *kernel, void *const *data, const size_t *bytes);

#endif
