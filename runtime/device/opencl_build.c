#include "runtime/device/opencl_build.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"

/* ---- Sizes ---- */

enum { LARGEST_TILE = 64, LEAST_ITEMS = 16, MOST_VECTOR = 16, MOST_ROWS = 16, LEAST_DEPTH = 4, WIDEST_ELEMENT = 8 };

static bool too_small(const OpenClDevice *device, const char *what, int64_t has, int64_t needs,
                      Diagnostics *diagnostics)
{
    return run_error(diagnostics, "use another device: skycc probe --devices",
                     "OpenCL device '%s' has too little for these kernels: %s: %lld, of %lld needed", device->name,
                     what, (long long)has, (long long)needs);
}

static uint32_t product_items(const OpenClSizes *sizes)
{
    return LARGEST_TILE / sizes->item_rows * (LARGEST_TILE / sizes->vector);
}

static int64_t product_bytes(const OpenClSizes *sizes)
{
    return (int64_t)sizeof(float) * sizes->depth * (LARGEST_TILE + 1 + LARGEST_TILE + sizes->vector);
}

/* An item has as many columns as two of the device's vectors, at least 4, and more where groups are small. */
static bool product_sizes(const OpenClDevice *device, OpenClSizes *sizes, Diagnostics *diagnostics)
{
    *sizes = (OpenClSizes){.row_group = sizes->row_group, .vector = 4, .item_rows = 8, .depth = 16};
    while (sizes->vector < 2 * device->vector_width && sizes->vector < MOST_VECTOR) sizes->vector *= 2;
    while (product_items(sizes) > device->work_group && sizes->item_rows < MOST_ROWS) sizes->item_rows *= 2;
    while (product_items(sizes) > device->work_group && sizes->vector < MOST_VECTOR) sizes->vector *= 2;
    while (product_bytes(sizes) > device->local_bytes && sizes->depth > LEAST_DEPTH) sizes->depth /= 2;
    if (product_items(sizes) > device->work_group)
        return too_small(device, "work items of a group", (int64_t)device->work_group, LEAST_ITEMS, diagnostics);
    if (product_bytes(sizes) > device->local_bytes)
        return too_small(device, "bytes of local memory", device->local_bytes, product_bytes(sizes), diagnostics);
    return true;
}

bool opencl_sizes(const OpenClDevice *device, const SkyProgram *program, OpenClSizes *sizes, Diagnostics *diagnostics)
{
    bool products = false, rows = false;
    for (uint32_t k = 0; k < program->device_kernel_count; k++) {
        products |= program->device_kernels[k].tile[0] > 1;
        rows |= program->device_kernels[k].tile[0] == 1;
    }
    /* Where an item's vectors are a processor's, groups need not hide how long memory takes. */
    sizes->row_group = device->vector_width > 1 ? 16 : 64;
    while (sizes->row_group > device->work_group && sizes->row_group > 1) sizes->row_group /= 2;
    int64_t bytes = 3 * WIDEST_ELEMENT * (int64_t)sizes->row_group; /* one of each type of register at most */
    if (rows && bytes > device->local_bytes)
        return too_small(device, "bytes of local memory", device->local_bytes, bytes, diagnostics);
    sizes->vector = sizes->item_rows = sizes->depth = 1;
    return !products || product_sizes(device, sizes, diagnostics);
}

size_t opencl_group(const SkyDeviceKernel *kernel, const OpenClSizes *sizes)
{
    if (kernel->tile[0] < 2) return kernel->tile[0] * sizes->row_group;
    return kernel->tile[0] / sizes->item_rows * (kernel->tile[1] / sizes->vector);
}

/* ---- Building ---- */

typedef struct Build {
    const OpenClApi *api;
    ClContextId context;
    const OpenClDevice *device;
    const SkyProgram *program;
    char options[192];
    Hash key; /* of all that what is built depends on */
} Build;

static ClProgramId from_source(const Build *build, const char *parts[2], const size_t sizes[2], uint32_t count,
                               int32_t *code)
{
    ClProgramId built = build->api->CreateProgramWithSource(build->context, count, parts, sizes, code);
    if (*code == CL_SUCCESS) *code = build->api->BuildProgram(built, 1, &build->device->id, build->options, NULL, NULL);
    return built;
}

static void quote_log(const Build *build, ClProgramId built, Diagnostics *diagnostics)
{
    size_t size = 0;
    if (!built) return;
    build->api->GetProgramBuildInfo(built, build->device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    FREED char *log = memory_allocate(size + 1);
    build->api->GetProgramBuildInfo(built, build->device->id, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    diagnostics_quote(diagnostics, log);
}

/* The program's first `bytes` bytes and what follows of one kernel; NULL if they compile. */
static ClProgramId try_alone(const Build *build, const SkyDeviceKernel *kernel, int32_t *code)
{
    const SkyProgram *program = build->program;
    const char *parts[2] = {program->opencl_source, program->opencl_source + (kernel ? kernel->begin : 0)};
    size_t all = strlen(program->opencl_source);
    size_t sizes[2] = {program->device_kernel_count ? program->device_kernels->begin : all, kernel ? kernel->bytes : 0};
    ClProgramId built = from_source(build, parts, sizes, kernel ? 2 : 1, code);
    if (*code != CL_SUCCESS || !built) return built;
    build->api->ReleaseProgram(built);
    return NULL;
}

/* Says which kernel it is: the first that does not compile by itself; or that nothing does. */
static void build_failed(const Build *build, ClProgramId all, int32_t code, Diagnostics *diagnostics)
{
    const SkyProgram *program = build->program;
    const char *what = "even a program without kernels does", *label = "";
    const char *hint = "look whether the driver can write into its cache folder (PoCL: POCL_CACHE_DIR or "
                       "~/.cache/pocl), and whether the disk is full";
    char text[40];
    int32_t alone;
    ClProgramId culprit = try_alone(build, NULL, &alone);
    if (alone == CL_SUCCESS) {
        what = "the kernels do";
        hint = "update the driver, or use another device";
    }
    for (uint32_t k = 0; k < program->device_kernel_count && alone == CL_SUCCESS; k++) {
        culprit = try_alone(build, &program->device_kernels[k], &alone);
        if (alone == CL_SUCCESS) continue;
        what = "' does";
        label = program->device_kernels[k].label;
    }
    diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE, hint,
                      "OpenCL device '%s', driver %s: %s%s%s not compile: %s", build->device->name,
                      build->device->driver, *label ? "kernel '" : "", label, what, opencl_error_name(code, text));
    quote_log(build, culprit ? culprit : all, diagnostics);
    if (culprit) build->api->ReleaseProgram(culprit);
}

/* ---- Built by an earlier run ---- */

/* NULL: this is no stage program. free() it. */
static char *kept_path(const SkyProgram *program)
{
    if (!program->stage_count || !sky_call_count(program->stages) || sky_call(program->stages, 0)->interpreted)
        return NULL;
    FREED char *directory = file_program_directory();
    char *path;
    if (asprintf(&path, "%s/" OPENCL_KEPT, directory, program->rank) < 0) memory_exhausted();
    return path;
}

/* What the file starts with. A driver need not notice that a binary is damaged. */
typedef struct KeptHead {
    Hash key, binary;
} KeptHead;

/* NULL: there is nothing whole of this key. */
static ClProgramId load_kept(const Build *build, const char *path)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    KeptHead head = {0};
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    ClProgramId built = NULL;
    bool found = path && file_map(&file, path, &ignored);
    size_t size = found && file.size > sizeof head ? file.size - sizeof head : 0;
    const unsigned char *bytes = size ? file.bytes + sizeof head : NULL;
    if (size) memcpy(&head, file.bytes, sizeof head);
    if (size && hash_equal(head.key, build->key) && hash_equal(head.binary, hash_bytes(bytes, size))) {
        int32_t code;
        built = build->api->CreateProgramWithBinary(build->context, 1, &build->device->id, &size, &bytes, NULL, &code);
        if (code == CL_SUCCESS)
            code = build->api->BuildProgram(built, 1, &build->device->id, build->options, NULL, NULL);
        if (code != CL_SUCCESS && built) build->api->ReleaseProgram(built);
        if (code != CL_SUCCESS) built = NULL;
    }
    return built;
}

void opencl_keep(const OpenClApi *api, const SkyProgram *program, ClProgramId built, const Hash *key)
{
    size_t size = 0;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED char *path = kept_path(program);
    bool replaces = path && (remove(path) == 0 || errno == ENOENT); /* what was read is not written into */
    if (!replaces || api->GetProgramInfo(built, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS)
        size = 0;
    FREED unsigned char *bytes = memory_allocate(sizeof(KeptHead) + size);
    unsigned char *binary = bytes + sizeof(KeptHead);
    if (size && api->GetProgramInfo(built, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS) {
        KeptHead head = {*key, hash_bytes(binary, size)};
        memcpy(bytes, &head, sizeof head);
        file_write_all(path, bytes, sizeof head + size, &ignored);
    }
}

ClProgramId opencl_build(const OpenClApi *api, ClContextId context, const OpenClDevice *device,
                         const SkyProgram *program, const OpenClSizes *sizes, Hash *key, bool *kept,
                         Diagnostics *diagnostics)
{
    Build build = {.api = api, .context = context, .device = device, .program = program};
    snprintf(build.options, sizeof build.options,
             "-w -cl-std=CL1.2 -cl-denorms-are-zero%s -DROW_GROUP=%u -DVECTOR=%u -DITEM_ROWS=%u -DDEPTH=%u",
             device->exact_division ? " -cl-fp32-correctly-rounded-divide-sqrt" : "", sizes->row_group, sizes->vector,
             sizes->item_rows, sizes->depth);
    const char *parts[] = {device->platform, device->name, device->driver, build.options, program->opencl_source};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        build.key = hash_extend(build.key, parts[i], strlen(parts[i]) + 1);
    *key = build.key;
    FREED char *path = kept_path(program);
    ClProgramId built = load_kept(&build, path);
    *kept = built != NULL;
    if (built) return built;
    int32_t code;
    built = from_source(&build, (const char *[2]){program->opencl_source}, NULL, 1, &code);
    if (code == CL_SUCCESS) return built;
    build_failed(&build, built, code, diagnostics);
    if (built) api->ReleaseProgram(built);
    return NULL;
}
