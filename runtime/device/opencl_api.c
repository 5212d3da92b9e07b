#include "runtime/device/opencl_api.h"

#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

const OpenClApi *opencl_api(Diagnostics *diagnostics)
{
    static OpenClApi api;
    static const char *const hint = "install the loader (Debian: ocl-icd-libopencl1) and the driver of your device";
    if (api.Finish) return &api;
    void *loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!loader) {
        run_error(diagnostics, hint, "there is no OpenCL on this host: %s", dlerror());
        return NULL;
    }
#define FUNCTION(result, name, parameters)                                                                             \
    *(void **)&api.name = dlsym(loader, "cl" #name);                                                                   \
    if (!api.name) {                                                                                                   \
        run_error(diagnostics, hint, "libOpenCL.so.1 has no cl" #name);                                                \
        api.Finish = NULL;                                                                                             \
        return NULL;                                                                                                   \
    }
    OPENCL_FUNCTIONS(FUNCTION)
#undef FUNCTION
    return &api;
}

const char *opencl_error_name(int32_t code, char text[static 40])
{
    static const struct {
        int32_t code;
        const char *name;
    } names[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                 {-2, "CL_DEVICE_NOT_AVAILABLE"},
                 {-3, "CL_COMPILER_NOT_AVAILABLE"},
                 {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                 {-5, "CL_OUT_OF_RESOURCES"},
                 {-6, "CL_OUT_OF_HOST_MEMORY"},
                 {-11, "CL_BUILD_PROGRAM_FAILURE"},
                 {-36, "CL_INVALID_COMMAND_QUEUE"},
                 {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
                 {-54, "CL_INVALID_WORK_GROUP_SIZE"},
                 {-61, "CL_INVALID_BUFFER_SIZE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) return names[i].name;
    snprintf(text, 40, "OpenCL error %d", code);
    return text;
}

/* ---- Devices ---- */

static int64_t number_of(const OpenClApi *api, ClDeviceId id, uint32_t what)
{
    uint64_t value = 0;
    size_t used = 0;
    if (api->GetDeviceInfo(id, what, sizeof value, &value, &used) != CL_SUCCESS) return 0;
    return (int64_t)value;
}

static void text_of(const OpenClApi *api, ClDeviceId id, uint32_t what, char text[static 128])
{
    char all[4096] = "";
    if (api->GetDeviceInfo(id, what, sizeof all, all, NULL) != CL_SUCCESS) *all = 0;
    snprintf(text, 128, "%.127s", all);
}

static bool has_extension(const OpenClApi *api, ClDeviceId id, const char *name)
{
    size_t size = 0;
    if (api->GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, 0, NULL, &size) != CL_SUCCESS) return false;
    FREED char *all = memory_allocate(size + 1);
    return api->GetDeviceInfo(id, CL_DEVICE_EXTENSIONS, size, all, NULL) == CL_SUCCESS && strstr(all, name);
}

static OpenClDevice describe(const OpenClApi *api, ClDeviceId id, const char *platform)
{
    OpenClDevice device = {.id = id,
                           .memory_bytes = number_of(api, id, CL_DEVICE_GLOBAL_MEM_SIZE),
                           .buffer_bytes = number_of(api, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
                           .local_bytes = number_of(api, id, CL_DEVICE_LOCAL_MEM_SIZE),
                           .work_group = (size_t)number_of(api, id, CL_DEVICE_MAX_WORK_GROUP_SIZE),
                           .vector_width = (uint32_t)number_of(api, id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT),
                           .doubles = has_extension(api, id, "cl_khr_fp64"),
                           .exact_division =
                               number_of(api, id, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT};
    snprintf(device.platform, sizeof device.platform, "%.127s", platform);
    text_of(api, id, CL_DEVICE_NAME, device.name);
    text_of(api, id, CL_DRIVER_VERSION, device.driver);
    return device;
}

OpenClDevice *opencl_devices(Arena *arena, int *count, Diagnostics *diagnostics)
{
    enum { MOST_PLATFORMS = 64 };
    const OpenClApi *api = opencl_api(diagnostics);
    *count = 0;
    if (!api) return NULL;
    ClPlatformId platforms[MOST_PLATFORMS];
    uint32_t platform_count = 0;
    char text[40];
    FREED_WITH(buffer_free) Buffer without = {0}; /* what platforms say that have no device */
    if (api->GetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count) != CL_SUCCESS) platform_count = 0;
    OpenClDevice *devices = arena_new_array(arena, OpenClDevice, OPENCL_MOST_DEVICES);
    for (uint32_t p = 0; p < platform_count && p < MOST_PLATFORMS; p++) {
        ClDeviceId ids[OPENCL_MOST_DEVICES];
        uint32_t found = 0;
        char name[128] = "";
        api->GetPlatformInfo(platforms[p], CL_PLATFORM_NAME, sizeof name, name, NULL);
        name[sizeof name - 1] = 0;
        int32_t code = api->GetDeviceIDs(platforms[p], 0xffffffff, OPENCL_MOST_DEVICES, ids, &found);
        buffer_print(&without, "%s'%s': %s", p ? ", " : ": ", name, opencl_error_name(code, text));
        if (code != CL_SUCCESS) continue;
        for (uint32_t d = 0; d < found && *count < OPENCL_MOST_DEVICES; d++)
            devices[(*count)++] = describe(api, ids[d], name);
    }
    if (!*count && !platform_count)
        run_error(diagnostics,
                  "install the OpenCL driver of your device, which /etc/OpenCL/vendors names; clinfo -l lists devices",
                  "there is no OpenCL platform on this host");
    else if (!*count)
        run_error(diagnostics,
                  "look whether you may use the device (groups render and video), and whether its driver can "
                  "write into its cache folder (PoCL: POCL_CACHE_DIR or ~/.cache/pocl)",
                  "no OpenCL platform of this host has a device%s", buffer_text(&without));
    return *count ? devices : NULL;
}

const OpenClDevice *opencl_choose(const OpenClDevice *devices, int count, const char *platform, const char *device,
                                  Diagnostics *diagnostics)
{
    char *end;
    long number = strtol(device, &end, 10), seen = 0, matches = 0;
    bool by_number = end != device && !*end;
    const OpenClDevice *chosen = NULL;
    FREED_WITH(buffer_free) Buffer text = {0};
    for (int d = 0; d < count; d++) {
        bool platform_matches = fnmatch(platform, devices[d].platform, 0) == 0;
        bool match = platform_matches && (by_number ? seen == number : fnmatch(device, devices[d].name, 0) == 0);
        buffer_print(&text, "%s'%s' of platform '%s'", d ? ", " : "", devices[d].name, devices[d].platform);
        if (platform_matches) buffer_print(&text, " (device: %ld)", seen++);
        if (match && !matches++) chosen = &devices[d];
    }
    bool several = matches > 1 && strcmp(device, "*") != 0; /* of any the first is meant */
    if (!chosen || several)
        run_error(diagnostics, "opencl: {platform: GLOB, device: GLOB or number}",
                  "%s of this host %s platform '%s', device '%s'; there is %s",
                  several ? "several OpenCL devices" : "no OpenCL device", several ? "match" : "matches", platform,
                  device, buffer_text(&text));
    return several ? NULL : chosen;
}
