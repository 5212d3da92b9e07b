/* Runs kernels on the first OpenCL device of this machine. */
#ifndef TESTS_CODEGEN_KERNELS_OPENCL_RUNNER_H
#define TESTS_CODEGEN_KERNELS_OPENCL_RUNNER_H

#include "graph/kernel/kernel.h"

/* NULL, or why there is no device. */
const char *opencl_missing(void);

/* A kernel over pieces of buffers. */
typedef struct OpenClCall {
    const Kernel *kernel;
    int64_t limit; /* of a limited sum */
    size_t buffer[KERNEL_MAX_OPERANDS];
    int64_t offset[KERNEL_MAX_OPERANDS]; /* bytes */
} OpenClCall;

/* The calls one after the other, as one program, over those of `count` buffers of so many bytes each that they use.
 * Fails the test if the device does. */
void opencl_run_calls(const OpenClCall *calls, size_t call_count, void *const *data, const size_t *bytes, size_t count);
/* The whole kernel over its operands, to the limit of its sum if that is limited. */
void opencl_run(const Kernel *kernel, void *const *data, const size_t *bytes, int64_t limit);

#endif
