/* A program's kernels, built by a device's driver with what suits the device, or taken from where an earlier run left
 * them. */
#ifndef RUNTIME_DEVICE_OPENCL_BUILD_H
#define RUNTIME_DEVICE_OPENCL_BUILD_H

#include "base/hash.h"
#include "runtime/device/opencl_api.h"
#include "runtime/program/program.h"

/* Sizes that follow from the device's limits: the macros of codegen/opencl/prelude.cl. */
typedef struct OpenClSizes {
    uint32_t row_group, vector, item_rows, depth;
} OpenClSizes;

/* False after reporting (EXIT_RUN_FAILED) which limit is too small for the program's kernels. */
bool opencl_sizes(const OpenClDevice *device, const SkyProgram *program, OpenClSizes *sizes, Diagnostics *diagnostics);
/* Work items of a group that computes a unit of the kernel; 0: units are work items. */
size_t opencl_group(const SkyDeviceKernel *kernel, const OpenClSizes *sizes);

/* Next to a stage program, of its rank: what a driver built. `skycc compile` makes it empty, so that it belongs to the
 * folder and the next compilation replaces it. */
#define OPENCL_KEPT "opencl-%02u.bin"

/* NULL after reporting (EXIT_TOOLCHAIN) the kernel that does not compile, with what the driver says of it.
 *
 * Takes from OPENCL_KEPT what an earlier run kept there, while device, driver, source and options are the same: `key`
 * is all of these, `kept` whether it was there. */
ClProgramId opencl_build(const OpenClApi *api, ClContextId context, const OpenClDevice *device,
                         const SkyProgram *program, const OpenClSizes *sizes, Hash *key, bool *kept,
                         Diagnostics *diagnostics);
/* A stage program keeps what was built for the next run. Where nothing can be written, that builds again. */
void opencl_keep(const OpenClApi *api, const SkyProgram *program, ClProgramId built, const Hash *key);

#endif
