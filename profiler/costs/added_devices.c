#include "profiler/costs/added_devices.h"

#include <math.h>
#include <string.h>

#include "base/parts.h"
#include "base/units.h"
#include "cluster/device_spec.h"

enum { NAME, ALIKE, SLOWDOWN, MEMORY, REGION, COUNT, MEMBERS };

static double *scaled(Costs *costs, const double *times, double factor)
{
    if (!times) return NULL;
    double *copy = arena_copy(&costs->arena, times, (size_t)costs->layer_count * sizeof *times);
    for (int l = 0; l < costs->layer_count; l++) copy[l] *= factor;
    return copy;
}

static bool read_alike(Costs *costs, const YamlFile *yaml, const YamlMember *members, DeviceCost *device)
{
    const char *name;
    double slowdown = 1;
    if (members[SLOWDOWN].value) {
        if (!yaml_number(yaml, members[SLOWDOWN].value, "device", "slowdown", 0, &slowdown)) return false;
        if (!(slowdown > 0 && slowdown <= 1e9))
            return yaml_error(yaml, members[SLOWDOWN].value, "device", NULL, "slowdown must be above 0, at most 1e9");
    }
    if (members[ALIKE].value) {
        if (!yaml_text(yaml, members[ALIKE].value, "device", "like", &name)) return false;
        int other = costs_find_device(costs, name);
        if (other < 0) return yaml_error(yaml, members[ALIKE].value, "device", NULL, "unknown device '%s'", name);
        *device = costs->devices[other];
        device->forward_s = scaled(costs, device->forward_s, slowdown);
        device->backward_s = scaled(costs, device->backward_s, slowdown);
        device->update_s = scaled(costs, device->update_s, slowdown);
    }
    device->slowdown = fmin(device->slowdown * slowdown, 1e9);
    return true;
}

static bool read_rest(Costs *costs, const YamlFile *yaml, const YamlMember *members, DeviceCost *device)
{
    const char *text;
    if (members[MEMORY].value) {
        if (!yaml_text(yaml, members[MEMORY].value, "device", "memory", &text)) return false;
        if (!units_parse_bytes(text, &device->memory_bytes))
            return yaml_error(yaml, members[MEMORY].value, "device", UNITS_BYTES_HINT, "memory '%s' is not a size",
                              text);
    }
    if (members[REGION].value) {
        if (!yaml_text(yaml, members[REGION].value, "device", "region", &text)) return false;
        device->region = word_index(text, costs->region_names, (size_t)costs->region_count);
        if (device->region < 0)
            return yaml_error(yaml, members[REGION].value, "device", "the costs list the regions under links",
                              "unknown region '%s'", text);
    }
    return (costs->region_count == 0) == (device->region < 0) ||
           yaml_error(yaml, yaml->root, "device", NULL, "must name its region, as there are links");
}

static bool append(Costs *costs, const YamlFile *yaml, YamlNode *node, DeviceCost device)
{
    int n = costs->device_count;
    if (costs_find_device(costs, device.name) >= 0)
        return yaml_error(yaml, node, "device", NULL, "the name '%s' is taken", device.name);
    if (n == COSTS_MAX_DEVICES) return yaml_error(yaml, node, NULL, NULL, "more than %d devices", COSTS_MAX_DEVICES);
    DeviceCost *grown = arena_new_array(&costs->arena, DeviceCost, (size_t)n + 1);
    memcpy(grown, costs->devices, (size_t)n * sizeof *grown);
    grown[n] = device;
    costs->devices = grown;
    costs->device_count++;
    return true;
}

static bool add(Costs *costs, const YamlFile *yaml)
{
    YamlMember members[MEMBERS] = {{"name", true, NULL},    {"like", false, NULL},   {"slowdown", false, NULL},
                                   {"memory", false, NULL}, {"region", false, NULL}, {"count", false, NULL}};
    DeviceCost device = {.slowdown = 1, .memory_bytes = COSTS_NO_LIMIT, .region = -1};
    const char *name;
    int64_t count = 0;
    if (!yaml_members(yaml, yaml->root, "device", members, MEMBERS) ||
        !yaml_text(yaml, members[NAME].value, "device", "name", &name) || !read_alike(costs, yaml, members, &device) ||
        !read_rest(costs, yaml, members, &device))
        return false;
    if (members[COUNT].value && !yaml_integer(yaml, members[COUNT].value, "device", "count", 1, 1000, &count))
        return false;
    for (int64_t i = 0; i < (count ? count : 1); i++) {
        device.name =
            count ? arena_format(&costs->arena, "%s.%lld", name, (long long)i) : arena_string(&costs->arena, name);
        if (!append(costs, yaml, members[NAME].value, device)) return false;
    }
    return true;
}

bool costs_add_devices(Costs *costs, const char *const *specs, int count, Diagnostics *diagnostics)
{
    bool ok = true, first_error = diagnostics->errors == 0;
    for (int i = 0; i < count && ok; i++) {
        FREED_WITH(yaml_close) YamlFile yaml = {0};
        ok = device_spec_read(&yaml, specs[i], diagnostics);
        if (!ok) break;
        ok = add(costs, &yaml);
    }
    if (!ok && first_error) diagnostics->exit_code = EXIT_USAGE;
    return ok;
}
