#include "profiler/costs/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "graph/kernel/kernel.h"

/* ---- Writing ---- */

/* `margin` and `inner` are the white space before its members, and before its kernels. */
static void add_machine(JsonWriter *json, const MachineProfile *machine, const char *margin, const char *inner)
{
    json_add_string(json_break(json, margin), "target", machine->target);
    json_add_integer(json_break(json, margin), "threads", machine->threads);
    if (machine->processors > 0) json_add_integer(json_break(json, margin), "processors", machine->processors);
    json_add_number(json_break(json, margin), "gflops", machine->gflops);
    json_add_number(json_break(json, margin), "bandwidth_Bps", machine->bandwidth_Bps);
    if (machine->memory_bytes > 0) {
        json_add_integer(json_break(json, margin), "memory_bytes", machine->memory_bytes);
        json_add_number(json_break(json, margin), "copy_in_Bps", machine->copy_Bps[0]);
        json_add_number(json_break(json, margin), "copy_out_Bps", machine->copy_Bps[1]);
        json_add_number(json_break(json, margin), "copy_latency_s", machine->copy_latency_s);
    }
    json_open(json_break(json, margin), "kernels", '{');
    for (size_t i = 0; i < machine->kernel_count; i++) {
        char hash[33];
        json_add_number(json_break(json, inner), hash_format(machine->kernels[i].kernel, hash),
                        machine->kernels[i].seconds);
    }
    json_close(json, '}');
}

static void add_link(JsonWriter *json, const LinkProfile *link)
{
    json_open(json_break(json, "\n    "), NULL, '{');
    json_add_strings(json, "between", link->between, 2);
    json_add_number(json, "latency_s", link->latency_s);
    json_add_number(json, "bandwidth_Bps", link->bandwidth_Bps);
    json_close(json, '}');
}

bool profile_write(const Profile *profile, const char *path, Diagnostics *diagnostics)
{
    static const char margin[] = "\n  ";
    FREED_WITH(buffer_free) Buffer text = {0};
    JsonWriter writer = {.buffer = &text, .spaced = true}, *json = &writer;
    json_open(json, NULL, '{');
    json_add_string(json_break(json, margin), "format", "skycc.profile/1");
    add_machine(json, &profile->reference, margin, "\n    ");
    json_open(json_break(json, margin), "devices", '[');
    for (size_t i = 0; i < profile->device_count; i++) {
        json_open(json_break(json, "\n    "), NULL, '{');
        json_add_string(json, "device", profile->devices[i].device);
        add_machine(json, &profile->devices[i], "\n     ", "\n       ");
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json_break(json, margin), "links", '[');
    for (size_t i = 0; i < profile->link_count; i++) add_link(json, &profile->links[i]);
    json_close(json, ']');
    json_close(json_break(json, "\n"), '}');
    buffer_print(&text, "\n");
    return file_write_all(path, text.bytes, text.size, diagnostics);
}

/* ---- Reading ---- */

static bool parse_hash(const char *text, Hash *hash)
{
    if (strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32) return false;
    unsigned long long high, low;
    if (sscanf(text, "%16llx%16llx", &high, &low) != 2) return false;
    *hash = (Hash){high, low};
    return true;
}

static bool refuse_profile(JsonReader reader, const char *path, const char *reason)
{
    return input_error(reader.diagnostics, reader.file, "skycc probe writes profiles", "%s: %s", path, reason);
}

static bool read_kernels(MachineProfile *machine, Arena *arena, json_t *object, const char *path, JsonReader reader)
{
    json_t *kernels;
    if (!json_get_object(reader, object, path, "kernels", &kernels)) return false;
    machine->kernels = arena_new_array(arena, KernelTime, json_object_size(kernels));
    const char *key;
    json_t *member;
    json_object_foreach(kernels, key, member)
    {
        KernelTime *time = &machine->kernels[machine->kernel_count++];
        if (!parse_hash(key, &time->kernel)) return refuse_profile(reader, key, "not a kernel hash");
        if (!json_get_number(reader, kernels, "kernels", key, &time->seconds)) return false;
        if (!(time->seconds >= 0 && time->seconds < 1e6)) return refuse_profile(reader, key, "not a time in seconds");
    }
    machine_profile_sort(machine);
    return true;
}

static bool read_machine(MachineProfile *machine, Arena *arena, json_t *object, const char *path, JsonReader reader)
{
    const char *target;
    int64_t threads = 1, processors = 0;
    if (!json_get_string(reader, object, path, "target", &target) ||
        !json_optional_integer(reader, object, path, "threads", &threads) ||
        !json_optional_integer(reader, object, path, "processors", &processors) ||
        !json_optional_number(reader, object, path, "gflops", &machine->gflops) ||
        !json_optional_number(reader, object, path, "bandwidth_Bps", &machine->bandwidth_Bps) ||
        !json_optional_integer(reader, object, path, "memory_bytes", &machine->memory_bytes) ||
        !json_optional_number(reader, object, path, "copy_in_Bps", &machine->copy_Bps[0]) ||
        !json_optional_number(reader, object, path, "copy_out_Bps", &machine->copy_Bps[1]) ||
        !json_optional_number(reader, object, path, "copy_latency_s", &machine->copy_latency_s))
        return false;
    if (machine->memory_bytes < 0) return refuse_profile(reader, "memory_bytes", "not a number of bytes");
    for (int way = 0; way < 2; way++)
        if (!(machine->copy_Bps[way] >= 0 && machine->copy_Bps[way] < 1e18))
            return refuse_profile(reader, way ? "copy_out_Bps" : "copy_in_Bps", "not a bandwidth");
    if (!(machine->copy_latency_s >= 0 && machine->copy_latency_s < 1e6))
        return refuse_profile(reader, "copy_latency_s", "not a latency in seconds");
    if (threads < 1 || threads > 1 << 16) return refuse_profile(reader, "threads", "not a number of threads");
    if (processors < 0 || processors > 1 << 16) return refuse_profile(reader, "processors", "not a number of them");
    if (!(machine->gflops >= 0 && machine->gflops < 1e9)) return refuse_profile(reader, "gflops", "not a speed");
    if (!(machine->bandwidth_Bps >= 0 && machine->bandwidth_Bps < 1e18))
        return refuse_profile(reader, "bandwidth_Bps", "not a bandwidth");
    machine->target = arena_string(arena, target);
    machine->threads = (int)threads;
    machine->processors = (int)processors;
    return read_kernels(machine, arena, object, path, reader);
}

static bool read_link(LinkProfile *link, Arena *arena, json_t *object, const char *path, JsonReader reader)
{
    json_t *between;
    if (!json_get_array(reader, object, path, "between", &between) ||
        !json_get_number(reader, object, path, "latency_s", &link->latency_s) ||
        !json_get_number(reader, object, path, "bandwidth_Bps", &link->bandwidth_Bps))
        return false;
    if (json_array_size(between) != 2) return refuse_profile(reader, path, "a link is between two devices");
    for (size_t i = 0; i < 2; i++) {
        const char *name = json_string_value(json_array_get(between, i));
        if (!name) return refuse_profile(reader, path, "a device is named by a string");
        link->between[i] = arena_string(arena, name);
    }
    if (!(link->latency_s >= 0 && link->latency_s < 1e6))
        return refuse_profile(reader, path, "not a latency in seconds");
    if (!(link->bandwidth_Bps > 0 && link->bandwidth_Bps <= 1e18))
        return refuse_profile(reader, path, "not a bandwidth");
    return true;
}

/* An optional array of objects; NULL and no items where it is absent. */
static bool get_objects(json_t *root, const char *key, JsonReader reader, json_t **array, size_t *count)
{
    *array = json_object_get(root, key);
    *count = json_array_size(*array);
    if (*array && !json_is_array(*array)) return refuse_profile(reader, key, "not an array");
    for (size_t i = 0; i < *count; i++)
        if (!json_is_object(json_array_get(*array, i))) return refuse_profile(reader, key, "holds what is no object");
    return true;
}

static bool read_devices(Profile *profile, json_t *root, JsonReader reader)
{
    json_t *devices;
    size_t count;
    if (!get_objects(root, "devices", reader, &devices, &count)) return false;
    profile->devices = arena_new_array(&profile->arena, MachineProfile, count);
    for (size_t i = 0; i < count; i++) {
        json_t *device = json_array_get(devices, i);
        const char *path = arena_format(&profile->arena, "devices[%zu]", i), *name;
        MachineProfile *machine = &profile->devices[profile->device_count++];
        if (!json_get_string(reader, device, path, "device", &name)) return false;
        machine->device = arena_string(&profile->arena, name);
        if (!read_machine(machine, &profile->arena, device, path, reader)) return false;
    }
    return true;
}

static bool read_links(Profile *profile, json_t *root, JsonReader reader)
{
    json_t *links;
    size_t count;
    if (!get_objects(root, "links", reader, &links, &count)) return false;
    profile->links = arena_new_array(&profile->arena, LinkProfile, count);
    for (size_t i = 0; i < count; i++)
        if (!read_link(&profile->links[profile->link_count++], &profile->arena, json_array_get(links, i),
                       arena_format(&profile->arena, "links[%zu]", i), reader))
            return false;
    return true;
}

static bool read_profile(Profile *profile, json_t *root, JsonReader reader)
{
    const char *format;
    if (!json_get_string(reader, root, "", "format", &format)) return false;
    if (strcmp(format, "skycc.profile/1") != 0)
        return input_error(reader.diagnostics, reader.file, "skycc probe writes profiles",
                           "is not a profile (format '%s')", format);
    return read_machine(&profile->reference, &profile->arena, root, "", reader) &&
           read_devices(profile, root, reader) && read_links(profile, root, reader);
}

bool profile_read(Profile *profile, const char *path, Diagnostics *diagnostics)
{
    *profile = (Profile){0};
    json_t *root = json_read(path, diagnostics);
    if (!root) return false;
    bool ok = read_profile(profile, root, (JsonReader){path, diagnostics});
    json_decref(root);
    if (!ok) profile_free(profile);
    return ok;
}

void profile_free(Profile *profile)
{
    arena_free(&profile->arena);
    *profile = (Profile){0};
}

/* ---- Looking up ---- */

static int by_hash(const void *a, const void *b)
{
    const Hash *x = &((const KernelTime *)a)->kernel, *y = &((const KernelTime *)b)->kernel;
    if (x->high != y->high) return x->high < y->high ? -1 : 1;
    return x->low < y->low ? -1 : x->low > y->low;
}

void machine_profile_sort(MachineProfile *machine)
{
    if (machine->kernel_count) qsort(machine->kernels, machine->kernel_count, sizeof *machine->kernels, by_hash);
}

void machine_profile_merge(MachineProfile *machine, Arena *arena, const MachineProfile *more)
{
    size_t known = machine->kernel_count, count = known;
    KernelTime *times = arena_new_array(arena, KernelTime, known + more->kernel_count);
    if (known) memcpy(times, machine->kernels, known * sizeof *times);
    for (size_t k = 0; k < more->kernel_count; k++)
        if (machine_profile_seconds(machine, more->kernels[k].kernel) < 0) times[count++] = more->kernels[k];
    machine->kernels = times;
    machine->kernel_count = count;
    machine_profile_sort(machine);
}

static Hash call_work(const SkyCall *call)
{
    Hash hash = kernel_hash(call->interpreted);
    return call->line_loops ? hash_extend(hash, &call->line_loops, sizeof call->line_loops) : hash;
}

Hash profile_work(const SkyCall *call)
{
    Hash hash = call_work(call);
    for (uint32_t i = 1; i < sky_wave_size(call); i++) {
        Hash next = call_work(&call[i]);
        hash = hash_extend(hash, &next, sizeof next);
    }
    return hash;
}

double machine_profile_seconds(const MachineProfile *machine, Hash work)
{
    if (!machine->kernel_count) return -1;
    KernelTime key = {.kernel = work};
    const KernelTime *found = bsearch(&key, machine->kernels, machine->kernel_count, sizeof key, by_hash);
    return found ? found->seconds : -1;
}

const MachineProfile *profile_device(const Profile *profile, const char *device)
{
    for (size_t i = 0; i < profile->device_count; i++)
        if (strcmp(profile->devices[i].device, device) == 0) return &profile->devices[i];
    return NULL;
}
