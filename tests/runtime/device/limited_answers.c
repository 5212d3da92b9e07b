/* The functions of limited_opencl.c that do not just hand on. */
#include <stdlib.h>
#include <string.h>

#include "runtime/device/opencl_api.h"

#define REAL(name) ((__typeof__(((OpenClApi *)0)->name))real_##name)
extern void *real_GetKernelWorkGroupInfo, *real_GetDeviceInfo, *real_GetDeviceIDs, *real_CreateBuffer,
    *real_CreateProgramWithSource;

static uint64_t limit(const char *name) { return getenv(name) ? strtoull(getenv(name), NULL, 10) : 0; }

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
