/* Reads cluster files: targets, devices and where raw tensors are kept. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/units.h"
#include "cluster/device_spec.h"
#include "cluster/reader.h"
#include "runtime/device/opencl_api.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool read_target(ClusterReader *reader, YamlNode *node, ClusterTarget *target)
{
    enum { NAME, TRIPLE, CPU, FEATURES, LINKER, SYSROOT, RUNTIME, LAUNCH, MEMBERS };
    YamlMember members[MEMBERS] = {{"name", true, NULL},      {"triple", true, NULL},  {"cpu", false, NULL},
                                   {"features", false, NULL}, {"linker", false, NULL}, {"sysroot", false, NULL},
                                   {"runtime", false, NULL},  {"launch", false, NULL}};
    const char **values[MEMBERS] = {&target->name,   &target->triple,  &target->cpu,     &target->features,
                                    &target->linker, &target->sysroot, &target->runtime, &target->launch};
    bool ok = yaml_members(&reader->yaml, node, "target", members, MEMBERS);
    for (int i = 0; i < MEMBERS; i++) {
        YamlNode *value = members[i].value;
        *values[i] = "";
        /* All but the names may be left empty on purpose. */
        if (!value || (i > TRIPLE && value->type == YAML_SCALAR_NODE && value->data.scalar.length == 0)) continue;
        ok &= cluster_read_text(reader, value, "target", members[i].key, i <= CPU ? "._-" : NULL, values[i]);
    }
    return ok;
}

static bool read_targets(ClusterReader *reader, YamlNode *node)
{
    Cluster *cluster = reader->cluster;
    size_t count = 0;
    bool ok = !node || yaml_sequence(&reader->yaml, node, "targets", &count);
    if (count > CLUSTER_MAX_DEVICES) return yaml_error(&reader->yaml, node, NULL, NULL, "too many targets");
    cluster->targets = arena_new_array(&cluster->arena, ClusterTarget, count + 1);
    cluster->targets[cluster->target_count++] = (ClusterTarget){"native", "", "", "", "", "", "", ""};
    for (size_t i = 0; i < count; i++) {
        YamlNode *item = yaml_item(&reader->yaml, node, i);
        ClusterTarget *target = &cluster->targets[cluster->target_count];
        ok &= read_target(reader, item, target);
        for (int j = 0; j < cluster->target_count; j++)
            if (*target->name && strcmp(cluster->targets[j].name, target->name) == 0)
                ok = yaml_error(&reader->yaml, item, NULL, j == 0 ? "'native' is built in: choose another name" : NULL,
                                "two targets are named '%s'", target->name);
        if (strcmp(target->name, "opencl") == 0)
            ok = yaml_error(&reader->yaml, item, NULL, "choose another name", "the target 'opencl' is built in");
        cluster->target_count++;
    }
    return ok;
}

static bool read_target_name(ClusterReader *reader, YamlNode *node, const char *object, ClusterDevice *device)
{
    const Cluster *cluster = reader->cluster;
    const char *name;
    if (!yaml_text(&reader->yaml, node, object, "target", &name)) return false;
    device->target = 0;
    device->opencl_platform = device->opencl_device = strcmp(name, "opencl") == 0 ? "*" : NULL;
    if (device->opencl_device) return true;
    for (; device->target < cluster->target_count; device->target++)
        if (strcmp(cluster->targets[device->target].name, name) == 0) return true;
    return yaml_error(&reader->yaml, node, object, "define it under 'targets', or use 'native' or 'opencl'",
                      "unknown target '%s'", name);
}

/* A pattern for names. A number is none, but of devices a whole one counts them; nor is what YAML calls null. */
static bool read_pattern(ClusterReader *reader, YamlNode *node, const char *object, const char *what, bool counts,
                         const char **pattern)
{
    static const char *const hint = "skycc probe --devices lists what a host has";
    const YamlFile *yaml = &reader->yaml;
    char *end;
    int64_t index;
    if (!cluster_read_text(reader, node, object, what, NULL, pattern)) return false;
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (strcmp(*pattern, "~") == 0 || strcasecmp(*pattern, "null") == 0))
        return yaml_error(yaml, node, object, hint, "%s is empty", what);
    strtod(*pattern, &end);
    if (*end || !strpbrk(*pattern, "0123456789")) return true;
    if (counts) return yaml_integer(yaml, node, object, what, 0, OPENCL_MOST_DEVICES - 1, &index);
    return yaml_error(yaml, node, object, hint, "%s must be a pattern for its name, not the number %s", what, *pattern);
}

/* Which of a host's OpenCL devices it is. */
static bool read_opencl(ClusterReader *reader, YamlNode *node, const char *object, ClusterDevice *device)
{
    YamlMember members[] = {{"platform", false, NULL}, {"device", false, NULL}};
    const char **values[] = {&device->opencl_platform, &device->opencl_device};
    if (!device->opencl_device)
        return yaml_error(&reader->yaml, node, object, "add target: opencl", "opencl is for devices of target opencl");
    bool ok = yaml_members(&reader->yaml, node, "opencl", members, COUNT(members));
    for (size_t i = 0; i < COUNT(members); i++)
        if (members[i].value)
            ok &= read_pattern(reader, members[i].value, object, i ? "the OpenCL device" : "the OpenCL platform", i,
                               values[i]);
    return ok;
}

static bool read_memory(ClusterReader *reader, YamlNode *node, const char *object, bool opencl, int64_t *bytes)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, object, "memory", &text)) return false;
    if (opencl && strcmp(text, "auto") == 0) return *bytes = CLUSTER_MEMORY_OF_DEVICE, true;
    if (!units_parse_bytes(text, bytes) || *bytes == 0)
        return yaml_error(&reader->yaml, node, object, UNITS_BYTES_HINT, "memory '%s' is not a size", text);
    return true;
}

/* `auto` is a size that only costs know. */
static bool read_reserve(ClusterReader *reader, YamlNode *node, const char *object, int64_t *bytes)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, object, "reserve", &text)) return false;
    if (strcmp(text, "auto") == 0) return *bytes = CLUSTER_RESERVE_PROCESS, true;
    return units_parse_bytes(text, bytes) ||
           yaml_error(&reader->yaml, node, object, "auto, or " UNITS_BYTES_HINT, "reserve '%s' is not a size", text);
}

static bool read_bandwidth(ClusterReader *reader, YamlNode *node, const char *object, double *bandwidth)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, object, "bandwidth", &text)) return false;
    return units_parse_bandwidth(text, bandwidth) ||
           yaml_error(&reader->yaml, node, object, UNITS_BANDWIDTH_HINT, "bandwidth '%s' is not a rate", text);
}

/* LIKE is for added devices only. */
enum {
    NAME,
    HOST,
    TARGET,
    THREADS,
    MEMORY,
    RESERVE,
    GFLOPS,
    BANDWIDTH,
    SLOWDOWN,
    OPENCL,
    REGION,
    SITE,
    DEVICE_COUNT,
    LIKE,
    DEVICE_MEMBERS
};

/* The device that another is like; NULL after reporting that there is none. */
static const ClusterDevice *find_like(ClusterReader *reader, YamlNode *node, const char *object)
{
    const char *name;
    if (!yaml_text(&reader->yaml, node, object, "like", &name)) return NULL;
    for (int d = 0; d < reader->cluster->device_count; d++)
        if (strcmp(reader->cluster->devices[d].name, name) == 0) return &reader->cluster->devices[d];
    yaml_error(&reader->yaml, node, object, NULL, "unknown device '%s'", name);
    return NULL;
}

/* Everything but name and count, which decide how many devices there are. */
static bool read_specs(ClusterReader *reader, const YamlMember *members, const char *object, ClusterDevice *device)
{
    const YamlFile *yaml = &reader->yaml;
    const ClusterDevice *like = NULL;
    bool ok = true;
    *device =
        (ClusterDevice){.host = "localhost", .memory_bytes = CLUSTER_NO_LIMIT, .slowdown = 1, .threads = 1, .site = -1};
    if (members[LIKE].value) {
        like = find_like(reader, members[LIKE].value, object);
        if (like)
            *device = *like;
        else
            ok = false;
    }
    int64_t threads = device->threads;
    if (members[HOST].value)
        ok &= cluster_read_text(reader, members[HOST].value, object, "host", "._-:%", &device->host);
    if (members[TARGET].value) ok &= read_target_name(reader, members[TARGET].value, object, device);
    if (ok && members[OPENCL].value) ok = read_opencl(reader, members[OPENCL].value, object, device);
    if (members[THREADS].value)
        ok &= yaml_integer(yaml, members[THREADS].value, object, "threads", 1, CLUSTER_MAX_THREADS, &threads);
    device->threads = (int)threads;
    if (members[MEMORY].value)
        ok &= read_memory(reader, members[MEMORY].value, object, device->opencl_device, &device->memory_bytes);
    if (members[RESERVE].value) ok &= read_reserve(reader, members[RESERVE].value, object, &device->reserve_bytes);
    if (members[GFLOPS].value) {
        ok &= yaml_number(yaml, members[GFLOPS].value, object, "gflops", 0, &device->gflops);
        if (ok && device->gflops == 0)
            ok = yaml_error(yaml, members[GFLOPS].value, object, NULL, "gflops must be more than 0");
    }
    if (members[BANDWIDTH].value)
        ok &= read_bandwidth(reader, members[BANDWIDTH].value, object, &device->bandwidth_Bps);
    if (members[SLOWDOWN].value)
        ok &= yaml_number(yaml, members[SLOWDOWN].value, object, "slowdown", 1, &device->slowdown);
    if (members[REGION].value)
        ok &= cluster_read_text(reader, members[REGION].value, object, "region", NULL, &device->region);
    if (members[SITE].value) ok &= cluster_read_site_name(reader, members[SITE].value, object, &device->site);
    if (ok && device->memory_bytes == CLUSTER_MEMORY_OF_DEVICE && !device->opencl_device)
        ok = yaml_error(yaml, members[TARGET].value, object, "give its memory, too",
                        "memory: auto, which '%s' has, is for devices of target opencl", like->name);
    if (ok && device->memory_bytes != CLUSTER_MEMORY_OF_DEVICE && device->reserve_bytes >= device->memory_bytes)
        ok = yaml_error(yaml, members[members[RESERVE].value ? RESERVE : MEMORY].value, object, NULL,
                        "reserve leaves nothing of the memory");
    return ok;
}

static bool add_device(ClusterReader *reader, ClusterDevice device, int entry, YamlNode *node)
{
    Cluster *cluster = reader->cluster;
    if (reader->device_count == CLUSTER_MAX_DEVICES)
        return yaml_error(&reader->yaml, node, NULL, NULL, "more than %d devices", CLUSTER_MAX_DEVICES);
    cluster_add_name(reader, device.name, CLUSTER_DEVICE, cluster->device_count, node);
    array_push(reader->device_entry, reader->device_count, reader->device_capacity, entry);
    cluster->devices[cluster->device_count++] = device;
    return true;
}

static bool read_device(ClusterReader *reader, YamlNode *node, int entry)
{
    Arena *arena = &reader->cluster->arena;
    YamlMember members[DEVICE_MEMBERS] = {
        [NAME] = {"name", true, NULL},           [HOST] = {"host", false, NULL},
        [TARGET] = {"target", false, NULL},      [THREADS] = {"threads", false, NULL},
        [MEMORY] = {"memory", false, NULL},      [RESERVE] = {"reserve", false, NULL},
        [GFLOPS] = {"gflops", false, NULL},      [BANDWIDTH] = {"bandwidth", false, NULL},
        [SLOWDOWN] = {"slowdown", false, NULL},  [OPENCL] = {"opencl", false, NULL},
        [REGION] = {"region", false, NULL},      [SITE] = {"site", false, NULL},
        [DEVICE_COUNT] = {"count", false, NULL}, [LIKE] = {"like", false, NULL}};
    bool ok = yaml_members(&reader->yaml, node, "device", members, reader->adding ? DEVICE_MEMBERS : LIKE);
    const char *name = NULL, *object = "device";
    ClusterDevice device;
    int64_t count = 0;
    if (members[NAME].value) {
        ok &= cluster_read_text(reader, members[NAME].value, "device", "name", "._-", &name);
        if (name) object = arena_format(arena, "device '%s'", name);
    }
    ok &= read_specs(reader, members, object, &device);
    if (ok && device.site < 0 && reader->cluster->site_count)
        ok = yaml_error(&reader->yaml, node, object, "add for instance site: NAME", "is in none of the sites");
    if (members[DEVICE_COUNT].value)
        ok &= yaml_integer(&reader->yaml, members[DEVICE_COUNT].value, object, "count", 1, CLUSTER_MAX_DEVICES, &count);
    if (!name) return false;
    if (device.region)
        cluster_add_name(reader, device.region, CLUSTER_REGION, entry,
                         members[members[REGION].value ? REGION : LIKE].value);
    if (count == 0) {
        device.name = name;
        return add_device(reader, device, entry, members[NAME].value) && ok;
    }
    cluster_add_name(reader, name, CLUSTER_GROUP, entry, members[NAME].value);
    for (int64_t i = 0; i < count; i++) {
        device.name = arena_format(arena, "%s.%lld", name, (long long)i);
        if (!add_device(reader, device, entry, members[NAME].value)) return false;
    }
    return ok;
}

/* A device of the command line; the names of the file's are known. */
static bool read_added(ClusterReader *reader, const YamlFile *added, int entry)
{
    YamlFile file = reader->yaml;
    size_t known = reader->name_count;
    bool first_error = file.diagnostics->errors == 0;
    reader->yaml = *added;
    reader->adding = true;
    bool ok = read_device(reader, added->root, entry);
    for (size_t i = known; i < reader->name_count && ok; i++)
        for (size_t k = 0; k < known && ok; k++)
            if (strcmp(reader->names[i].name, reader->names[k].name) == 0 &&
                !(reader->names[i].level == CLUSTER_REGION && reader->names[k].level == CLUSTER_REGION))
                ok = yaml_error(&reader->yaml, reader->names[i].node, NULL, NULL, "the name '%s' is taken",
                                reader->names[i].name);
    reader->adding = false;
    reader->yaml = file;
    if (!ok && first_error) file.diagnostics->exit_code = EXIT_USAGE;
    return ok;
}

static bool read_devices(ClusterReader *reader, YamlNode *node)
{
    Cluster *cluster = reader->cluster;
    size_t entries;
    if (!yaml_sequence(&reader->yaml, node, "devices", &entries)) return false;
    if (!entries) return yaml_error(&reader->yaml, node, NULL, NULL, "'devices' is empty: at least one is needed");
    size_t all = entries + (size_t)reader->added_count;
    if (all > CLUSTER_MAX_DEVICES)
        return yaml_error(&reader->yaml, node, NULL, NULL, "more than %d devices", CLUSTER_MAX_DEVICES);
    cluster->devices = arena_new_array(&cluster->arena, ClusterDevice, CLUSTER_MAX_DEVICES);
    reader->entry_region = arena_new_array(&cluster->arena, int, all);
    bool ok = true;
    for (size_t i = 0; i < entries; i++) {
        reader->entry_region[i] = -1;
        ok &= read_device(reader, yaml_item(&reader->yaml, node, i), (int)i);
    }
    for (size_t i = entries; i < all && ok; i++) {
        reader->entry_region[i] = -1;
        if (!read_added(reader, &reader->added[i - entries], (int)i)) return false;
    }
    return cluster_sort_names(reader) && ok;
}

/* A site of one device is that device. */
static void keep_at_site(const Cluster *cluster, int site, int *device, int *kept_site)
{
    int count = 0;
    for (int d = 0; d < cluster->device_count; d++) {
        if (cluster->devices[d].site != site) continue;
        *device = d;
        count++;
    }
    if (count == 1) return;
    *device = -1;
    *kept_site = site;
}

static bool read_kept(ClusterReader *reader, YamlNode *node, const char *what, int *device, int *site)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(&reader->yaml, node, "keep", what, &text)) return false;
    const ClusterName *name = cluster_find_name(reader, text);
    if (name && name->level == CLUSTER_DEVICE) {
        *device = name->id;
        return true;
    }
    if (name && name->level == CLUSTER_SITE) {
        keep_at_site(reader->cluster, name->id, device, site);
        return true;
    }
    const char *hint = name && name->level == CLUSTER_GROUP ? "name one device of the group, with its number" : NULL;
    return yaml_error(&reader->yaml, node, "keep", hint, name ? "'%s' is not one device" : "unknown device '%s'", text);
}

static bool read_keep(ClusterReader *reader, YamlNode *node)
{
    Cluster *cluster = reader->cluster;
    YamlMember members[] = {{"inputs", false, NULL}, {"labels", false, NULL}};
    bool ok = !node || yaml_members(&reader->yaml, node, "keep", members, COUNT(members));
    ok &= read_kept(reader, members[0].value, "inputs", &cluster->keep_inputs, &cluster->keep_inputs_site);
    ok &= read_kept(reader, members[1].value, "labels", &cluster->keep_labels, &cluster->keep_labels_site);
    return ok;
}

static bool read_cluster(ClusterReader *reader)
{
    YamlMember members[] = {{"targets", false, NULL},      {"sites", false, NULL}, {"devices", true, NULL},
                            {"default_link", false, NULL}, {"links", false, NULL}, {"keep", false, NULL},
                            {"interface", false, NULL},    {"ports", false, NULL}};
    bool ok = yaml_members(&reader->yaml, reader->yaml.root, NULL, members, COUNT(members));
    if (reader->yaml.root->type != YAML_MAPPING_NODE) return false;
    ok &= read_targets(reader, members[0].value);
    /* Without sites or devices every name in what follows would be unknown: that would only confuse. */
    if (!cluster_read_sites(reader, members[1].value)) return false;
    if (!members[2].value || !read_devices(reader, members[2].value) || !cluster_check_sites(reader)) return false;
    ok &= cluster_read_links(reader, members[3].value, members[4].value);
    ok &= cluster_read_network(reader, members[6].value, members[7].value);
    return read_keep(reader, members[5].value) && ok;
}

static bool read_file(ClusterReader *reader, const char *path, Diagnostics *diagnostics)
{
    if (!yaml_read(&reader->yaml, path, diagnostics)) {
        Diagnostic *last = diagnostics->last;
        if (last && !last->hint && access(path, F_OK) != 0)
            last->hint = "a cluster file names the devices: devices: [{name: here, threads: 2, memory: 4GiB}]";
        return false;
    }
    bool ok = read_cluster(reader);
    yaml_close(&reader->yaml);
    free(reader->names);
    free(reader->device_entry);
    return ok;
}

bool cluster_read_with(Cluster *cluster, const char *path, const char *const *added, int count,
                       Diagnostics *diagnostics)
{
    *cluster = (Cluster){.keep_inputs = -1, .keep_labels = -1, .keep_inputs_site = -1, .keep_labels_site = -1};
    ClusterReader reader = {.cluster = cluster, .added = arena_new_array(&cluster->arena, YamlFile, (size_t)count)};
    bool ok = true;
    while (reader.added_count < count && ok)
        ok = device_spec_read(&reader.added[reader.added_count], added[reader.added_count], diagnostics) &&
             ++reader.added_count;
    ok = ok && read_file(&reader, path, diagnostics);
    for (int i = 0; i < reader.added_count; i++) yaml_close(&reader.added[i]);
    if (!ok) cluster_free(cluster);
    return ok;
}

bool cluster_read(Cluster *cluster, const char *path, Diagnostics *diagnostics)
{
    return cluster_read_with(cluster, path, NULL, 0, diagnostics);
}
