/* The part of OpenCL 1.2 that is used here, from the specification (Khronos: The OpenCL Specification, version 1.2),
 * and its loader, libOpenCL.so.1, which is opened when a program needs it: so neither building skycc nor programs for
 * CPUs need OpenCL. */
#ifndef RUNTIME_DEVICE_OPENCL_API_H
#define RUNTIME_DEVICE_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/diagnostics.h"

typedef struct ClPlatform *ClPlatformId;
typedef struct ClDevice *ClDeviceId;
typedef struct ClContext *ClContextId;
typedef struct ClQueue *ClQueueId;
typedef struct ClBuffer *ClBufferId;
typedef struct ClProgram *ClProgramId;
typedef struct ClKernel *ClKernelId;
typedef struct ClEvent *ClEventId;

enum {
    CL_SUCCESS = 0,
    CL_COMPLETE = 0,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE_ALL = -1,
    CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101b,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103a,
    CL_DEVICE_NAME = 0x102b,
    CL_DRIVER_VERSION = 0x102d,
    CL_DEVICE_VERSION = 0x102f,
    CL_DEVICE_EXTENSIONS = 0x1030,
    CL_MEM_READ_WRITE = 1 << 0,
    CL_MEM_ALLOC_HOST_PTR = 1 << 4,
    CL_MAP_READ_WRITE = 3,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11b0,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183
};

/* FUNCTION(result, name after cl, parameters): each is a member of OpenClApi. */
#define OPENCL_FUNCTIONS(FUNCTION)                                                                                     \
    FUNCTION(int32_t, GetPlatformIDs, (uint32_t, ClPlatformId *, uint32_t *))                                          \
    FUNCTION(int32_t, GetPlatformInfo, (ClPlatformId, uint32_t, size_t, void *, size_t *))                             \
    FUNCTION(int32_t, GetDeviceIDs, (ClPlatformId, uint64_t, uint32_t, ClDeviceId *, uint32_t *))                      \
    FUNCTION(int32_t, GetDeviceInfo, (ClDeviceId, uint32_t, size_t, void *, size_t *))                                 \
    FUNCTION(ClContextId, CreateContext, (const intptr_t *, uint32_t, const ClDeviceId *, void *, void *, int32_t *))  \
    FUNCTION(int32_t, ReleaseContext, (ClContextId))                                                                   \
    FUNCTION(ClQueueId, CreateCommandQueue, (ClContextId, ClDeviceId, uint64_t, int32_t *))                            \
    FUNCTION(int32_t, ReleaseCommandQueue, (ClQueueId))                                                                \
    FUNCTION(ClBufferId, CreateBuffer, (ClContextId, uint64_t, size_t, void *, int32_t *))                             \
    FUNCTION(int32_t, ReleaseMemObject, (ClBufferId))                                                                  \
    FUNCTION(ClProgramId, CreateProgramWithSource, (ClContextId, uint32_t, const char **, const size_t *, int32_t *))  \
    FUNCTION(                                                                                                          \
        ClProgramId, CreateProgramWithBinary,                                                                          \
        (ClContextId, uint32_t, const ClDeviceId *, const size_t *, const unsigned char **, int32_t *, int32_t *))     \
    FUNCTION(int32_t, BuildProgram, (ClProgramId, uint32_t, const ClDeviceId *, const char *, void *, void *))         \
    FUNCTION(int32_t, GetProgramInfo, (ClProgramId, uint32_t, size_t, void *, size_t *))                               \
    FUNCTION(int32_t, GetProgramBuildInfo, (ClProgramId, ClDeviceId, uint32_t, size_t, void *, size_t *))              \
    FUNCTION(int32_t, ReleaseProgram, (ClProgramId))                                                                   \
    FUNCTION(ClKernelId, CreateKernel, (ClProgramId, const char *, int32_t *))                                         \
    FUNCTION(int32_t, GetKernelWorkGroupInfo, (ClKernelId, ClDeviceId, uint32_t, size_t, void *, size_t *))            \
    FUNCTION(int32_t, ReleaseKernel, (ClKernelId))                                                                     \
    FUNCTION(int32_t, SetKernelArg, (ClKernelId, uint32_t, size_t, const void *))                                      \
    FUNCTION(int32_t, EnqueueNDRangeKernel,                                                                            \
             (ClQueueId, ClKernelId, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,               \
              const ClEventId *, ClEventId *))                                                                         \
    FUNCTION(int32_t, EnqueueReadBuffer,                                                                               \
             (ClQueueId, ClBufferId, uint32_t, size_t, size_t, void *, uint32_t, const ClEventId *, ClEventId *))      \
    FUNCTION(                                                                                                          \
        int32_t, EnqueueWriteBuffer,                                                                                   \
        (ClQueueId, ClBufferId, uint32_t, size_t, size_t, const void *, uint32_t, const ClEventId *, ClEventId *))     \
    FUNCTION(int32_t, EnqueueFillBuffer,                                                                               \
             (ClQueueId, ClBufferId, const void *, size_t, size_t, size_t, uint32_t, const ClEventId *, ClEventId *))  \
    FUNCTION(void *, EnqueueMapBuffer,                                                                                 \
             (ClQueueId, ClBufferId, uint32_t, uint64_t, size_t, size_t, uint32_t, const ClEventId *, ClEventId *,     \
              int32_t *))                                                                                              \
    FUNCTION(int32_t, EnqueueUnmapMemObject,                                                                           \
             (ClQueueId, ClBufferId, void *, uint32_t, const ClEventId *, ClEventId *))                                \
    FUNCTION(int32_t, GetEventInfo, (ClEventId, uint32_t, size_t, void *, size_t *))                                   \
    FUNCTION(int32_t, ReleaseEvent, (ClEventId))                                                                       \
    FUNCTION(int32_t, Flush, (ClQueueId))                                                                              \
    FUNCTION(int32_t, Finish, (ClQueueId))

typedef struct OpenClApi {
#define FUNCTION(result, name, parameters) result(*name) parameters;
    OPENCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
} OpenClApi;

/* Opens the loader once; it stays open. NULL after reporting (EXIT_RUN_FAILED) that there is none. */
const OpenClApi *opencl_api(Diagnostics *diagnostics);
/* "CL_OUT_OF_RESOURCES"; of codes without a name "OpenCL error -1001". */
const char *opencl_error_name(int32_t code, char text[static 40]);

enum { OPENCL_MOST_DEVICES = 256 }; /* of a host; more are not looked at */

typedef struct OpenClDevice {
    ClDeviceId id;
    char platform[128], name[128], driver[128];
    int64_t memory_bytes, buffer_bytes, local_bytes; /* all its memory; of one buffer at most; of a work group */
    size_t work_group;                               /* work items of one at most */
    uint32_t vector_width; /* of float32: 1 where work items, not vectors, are computed side by side */
    bool doubles, exact_division;
} OpenClDevice;

/* All devices of this host in the order of the loader, in memory of the arena. NULL after reporting (EXIT_RUN_FAILED)
 * that there is no loader or no device. */
OpenClDevice *opencl_devices(Arena *arena, int *count, Diagnostics *diagnostics);
/* The first whose platform's name matches `platform` and that `device` means: a pattern (fnmatch) for its name, or its
 * number among those of these platforms. NULL after reporting, with what there is, that none does or, unless the
 * pattern is "*", that several do. */
const OpenClDevice *opencl_choose(const OpenClDevice *devices, int count, const char *platform, const char *device,
                                  Diagnostics *diagnostics);

#endif
