/* The OpenCL loader with a worse device behind it: found instead of libOpenCL.so.1 (LD_LIBRARY_PATH), it hands on what
 * the loader at $LIMITED_OPENCL answers, except for what these variables say of the device:
 *
 *   LIMITED_LOCAL, LIMITED_GROUP   bytes of local memory, work items of a group
 *   LIMITED_KERNEL                 work items of a group of any kernel, once it is compiled
 *   LIMITED_MEMORY                 bytes of all buffers together, after which there is no more
 *   LIMITED_DOUBLES=none           no float64
 *   LIMITED_SOURCE=TEXT            source with this text does not compile
 *   LIMITED_TWICE=1                every device is there twice
 *   LIMITED_LOST=N                 it is lost after so many kernels, waits and copies to the host
 *   LIMITED_COPIES=FILE            as it is; how often kernels did not wait for a copy to the host is written there */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/opencl_api.h"

/* Handed on without a look at the arguments. */
#define FUNCTION(result, name, parameters)                                                                             \
    void *real_##name __attribute__((visibility("hidden")));                                                           \
    __asm__(".weak cl" #name "\n.type cl" #name ", @function\ncl" #name ": jmp *real_" #name "(%rip)\n");
OPENCL_FUNCTIONS(FUNCTION)
#undef FUNCTION

__attribute__((constructor)) static void find_real(void)
{
    const char *path = getenv("LIMITED_OPENCL");
    void *loader = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!loader) abort();
#define FUNCTION(result, name, parameters) real_##name = dlsym(loader, "cl" #name);
    OPENCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
}
