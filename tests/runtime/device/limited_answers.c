/* The functions of limited_opencl.c that do not just hand on. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/device/opencl_api.h"

enum { CL_DEVICE_NOT_AVAILABLE = -2 };

#define REAL(name) ((__typeof__(((OpenClApi *)0)->name))real_##name)
extern void *real_GetKernelWorkGroupInfo, *real_GetDeviceInfo, *real_GetDeviceIDs, *real_CreateBuffer,
    *real_CreateProgramWithSource, *real_EnqueueReadBuffer, *real_EnqueueNDRangeKernel, *real_Finish;

static uint64_t limit(const char *name) { return getenv(name) ? strtoull(getenv(name), NULL, 10) : 0; }

static bool is_lost(void)
{
    static uint64_t calls;
    return getenv("LIMITED_LOST") && ++calls > limit("LIMITED_LOST");
}

int32_t clGetDeviceInfo(ClDeviceId id, uint32_t what, size_t size, void *value, size_t *used);
int32_t clGetDeviceInfo(ClDeviceId id, uint32_t what, size_t size, void *value, size_t *used)
{
    int32_t code = REAL(GetDeviceInfo)(id, what, size, value, used);
    const char *name = what == CL_DEVICE_LOCAL_MEM_SIZE        ? "LIMITED_LOCAL"
                       : what == CL_DEVICE_MAX_WORK_GROUP_SIZE ? "LIMITED_GROUP"
                       : what == CL_DEVICE_GLOBAL_MEM_SIZE     ? "LIMITED_MEMORY"
                                                               : NULL;
    if (name && value && getenv(name)) *(uint64_t *)value = limit(name);
    if (what == CL_DEVICE_EXTENSIONS && value && getenv("LIMITED_DOUBLES")) memset(value, 0, size);
    return code;
}

int32_t clGetKernelWorkGroupInfo(ClKernelId kernel, ClDeviceId id, uint32_t what, size_t size, void *value,
                                 size_t *used);
int32_t clGetKernelWorkGroupInfo(ClKernelId kernel, ClDeviceId id, uint32_t what, size_t size, void *value,
                                 size_t *used)
{
    int32_t code = REAL(GetKernelWorkGroupInfo)(kernel, id, what, size, value, used);
    if (getenv("LIMITED_KERNEL")) *(size_t *)value = limit("LIMITED_KERNEL");
    return code;
}

int32_t clGetDeviceIDs(ClPlatformId platform, uint64_t type, uint32_t size, ClDeviceId *ids, uint32_t *count);
int32_t clGetDeviceIDs(ClPlatformId platform, uint64_t type, uint32_t size, ClDeviceId *ids, uint32_t *count)
{
    int32_t code = REAL(GetDeviceIDs)(platform, type, size, ids, count);
    if (code == CL_SUCCESS && getenv("LIMITED_TWICE") && 2 * *count <= size) {
        memcpy(ids + *count, ids, *count * sizeof *ids);
        *count *= 2;
    }
    return code;
}

ClBufferId clCreateBuffer(ClContextId context, uint64_t flags, size_t size, void *host, int32_t *code);
ClBufferId clCreateBuffer(ClContextId context, uint64_t flags, size_t size, void *host, int32_t *code)
{
    static uint64_t all;
    all += size;
    if (!getenv("LIMITED_MEMORY") || all <= limit("LIMITED_MEMORY"))
        return REAL(CreateBuffer)(context, flags, size, host, code);
    *code = -4; /* CL_MEM_OBJECT_ALLOCATION_FAILURE */
    return NULL;
}

/* ---- Copies that kernels do not wait for ---- */

static ClQueueId copies; /* where one is under way; NULL: nowhere */
static int overlapped;

static void say_copies(void)
{
    FILE *file = fopen(getenv("LIMITED_COPIES"), "w");
    if (!file) abort();
    fprintf(file, "%d\n", overlapped);
    fclose(file);
}

int32_t clEnqueueReadBuffer(ClQueueId queue, ClBufferId buffer, uint32_t waits, size_t offset, size_t size, void *to,
                            uint32_t count, const ClEventId *after, ClEventId *event);
int32_t clEnqueueReadBuffer(ClQueueId queue, ClBufferId buffer, uint32_t waits, size_t offset, size_t size, void *to,
                            uint32_t count, const ClEventId *after, ClEventId *event)
{
    if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;
    if (!waits) copies = queue;
    return REAL(EnqueueReadBuffer)(queue, buffer, waits, offset, size, to, count, after, event);
}

int32_t clFinish(ClQueueId queue);
int32_t clFinish(ClQueueId queue)
{
    if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;
    if (queue == copies) copies = NULL;
    return REAL(Finish)(queue);
}

int32_t clEnqueueNDRangeKernel(ClQueueId queue, ClKernelId kernel, uint32_t dimensions, const size_t *offset,
                               const size_t *items, const size_t *group, uint32_t count, const ClEventId *after,
                               ClEventId *event);
int32_t clEnqueueNDRangeKernel(ClQueueId queue, ClKernelId kernel, uint32_t dimensions, const size_t *offset,
                               const size_t *items, const size_t *group, uint32_t count, const ClEventId *after,
                               ClEventId *event)
{
    if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;
    if (copies && copies != queue && getenv("LIMITED_COPIES")) {
        if (!overlapped++) atexit(say_copies);
        copies = NULL;
    }
    return REAL(EnqueueNDRangeKernel)(queue, kernel, dimensions, offset, items, group, count, after, event);
}

ClProgramId clCreateProgramWithSource(ClContextId context, uint32_t count, const char **parts, const size_t *sizes,
                                      int32_t *code);
ClProgramId clCreateProgramWithSource(ClContextId context, uint32_t count, const char **parts, const size_t *sizes,
                                      int32_t *code)
{
    enum { MOST = 8 };
    const char *all[MOST], *bad = getenv("LIMITED_SOURCE");
    size_t all_sizes[MOST];
    bool breaks = false;
    for (uint32_t i = 0; i < count && i < MOST - 1; i++) {
        all[i] = parts[i];
        all_sizes[i] = sizes ? sizes[i] : strlen(parts[i]);
        breaks |= bad && memmem(all[i], all_sizes[i], bad, strlen(bad));
    }
    if (!breaks) return REAL(CreateProgramWithSource)(context, count, parts, sizes, code);
    all[count] = "\n#error this driver cannot do that\n";
    all_sizes[count] = strlen(all[count]);
    return REAL(CreateProgramWithSource)(context, count + 1, all, all_sizes, code);
}
