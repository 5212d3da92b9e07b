/* skycc probe --devices: what this host can compute with. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "codegen/kernels/target.h"
#include "driver/commands/commands.h"
#include "runtime/device/opencl_api.h"
#include "runtime/program/parallel.h"

/* What a cluster file says of it is what is quoted. */
static void print_opencl(const OpenClDevice *device, int number)
{
    text_print(stdout,
               "opencl: {platform: \"%s\", device: %d}\n"
               "  %s, driver %s\n"
               "  memory %.0f MiB (%.0f MiB in one piece, %.0f KiB in a work group), work groups of %zu, %s\n",
               device->platform, number, device->name, device->driver, (double)device->memory_bytes / (1 << 20),
               (double)device->buffer_bytes / (1 << 20), (double)device->local_bytes / (1 << 10), device->work_group,
               device->doubles ? "float64" : "no float64: skycc cannot use it");
}

bool probe_devices_command(const Options *options, Diagnostics *diagnostics)
{
    if (options->model || options->output || options->plan.cluster || options->site)
        return usage_error(diagnostics, "skycc probe --devices",
                           "--devices lists what this host has, without a model, "
                           "a cluster or a file to write");
    FREED_WITH(target_free) Target target = {0};
    FREED_WITH(arena_free) Arena arena = {0};
    int count;
    if (!target_init(&target, (TargetOptions){0}, diagnostics)) return false;
    text_print(stdout, "native\n  %s (%s), %d processors\n", target.cpu, target.triple, parallel_processors());
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    const OpenClDevice *devices = opencl_devices(&arena, &count, &said);
    for (int d = 0; devices && d < count; d++) {
        int number = 0; /* as opencl_choose counts them */
        for (int e = 0; e < d; e++) number += strcmp(devices[e].platform, devices[d].platform) == 0;
        print_opencl(&devices[d], number);
    }
    if (!devices) text_print(stdout, "opencl\n  none: %s\n", said.first->message);
    return true;
}
