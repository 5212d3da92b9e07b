/* costs.json, read and written. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/parts.h"
#include "profiler/costs/costs_members.h"

/* ---- Reading ---- */

typedef struct CostsReading {
    JsonReader json;
    Costs *costs;
    Arena *arena;
} CostsReading;

static bool read_name(const CostsReading *r, const json_t *object, const char *path, const char **name)
{
    if (!json_get_string(r->json, object, path, "name", name)) return false;
    *name = arena_string(r->arena, *name);
    return true;
}

/* An array of numbers into a new array of `count` doubles. */
static bool read_numbers(const CostsReading *r, const json_t *array, const char *path, int count, double *numbers)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)count)
        return json_refuse(r->json, path, arena_format(r->arena, "must be an array of %d numbers", count));
    for (int i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, (size_t)i);
        if (!json_is_number(item))
            return json_refuse(r->json, path, arena_format(r->arena, "element %d is not a number", i));
        numbers[i] = json_number_value(item);
    }
    return true;
}

/* What a layer reads and hands on, by name: known where a model was there. */
static bool read_tensors(const CostsReading *r, const json_t *object, const char *path, LayerCost *layer)
{
    enum { MOST = 1000 };
    json_t *inputs;
    const char *output = NULL;
    if (!json_optional_string(r->json, object, path, "output", &output)) return false;
    if (output) layer->output = arena_string(r->arena, output);
    if (!json_object_get(object, "inputs")) return true;
    if (!json_get_array(r->json, object, path, "inputs", &inputs)) return false;
    if (json_array_size(inputs) > MOST) return json_refuse(r->json, path, "has too many inputs");
    layer->inputs = arena_new_array(r->arena, CostInput, json_array_size(inputs));
    for (size_t i = 0; i < json_array_size(inputs); i++) {
        const json_t *item = json_array_get(inputs, i);
        const char *place = arena_format(r->arena, "%s.inputs[%zu]", path, i), *name;
        int64_t bytes;
        if (!json_is_object(item)) return json_refuse(r->json, place, "must be an object");
        if (!json_get_string(r->json, item, place, "name", &name) ||
            !json_get_integer(r->json, item, place, "bytes", &bytes))
            return false;
        if (bytes < 0) return json_refuse(r->json, place, "its bytes must not be negative");
        layer->inputs[layer->input_count++] = (CostInput){arena_string(r->arena, name), bytes};
    }
    return true;
}

/* {"q8": [a, b], ...}: a pair of numbers for some of the codecs. */
static bool read_codec_pairs(const CostsReading *r, const json_t *object, const char *path, const char *key,
                             double pairs[CODEC_COUNT][2])
{
    const json_t *table = json_object_get(object, key), *pair;
    const char *name, *place = arena_format(r->arena, path[0] ? "%s.%s" : "%s%s", path, key);
    if (!table) return true;
    if (!json_is_object(table)) return json_refuse(r->json, place, "must be an object of codecs");
    json_object_foreach((json_t *)table, name, pair)
    {
        Codec codec;
        if (!codec_from_name(name, &codec) || codec == CODEC_NONE)
            return json_refuse(r->json, place, "names a codec that does not exist");
        if (!read_numbers(r, pair, place, 2, pairs[codec])) return false;
    }
    return true;
}

static bool read_wire_bytes(const CostsReading *r, const json_t *object, const char *path, LayerCost *layer)
{
    double pairs[CODEC_COUNT][2] = {{0}};
    if (!read_codec_pairs(r, object, path, "wire_bytes", pairs)) return false;
    for (int codec = 0; codec < CODEC_COUNT; codec++)
        for (int direction = 0; direction < 2; direction++) {
            double bytes = pairs[codec][direction];
            if (!(bytes >= 0 && bytes <= 0x1p53 && bytes == (double)(int64_t)bytes))
                return json_refuse(r->json, path, "wire_bytes are not whole numbers of bytes");
            layer->wire_bytes[direction][codec] = (int64_t)bytes;
        }
    return true;
}

static bool read_member(const CostsReading *r, const json_t *object, const char *path, const CostMember *member,
                        LayerCost *layer)
{
    if (member->is_bytes) return json_optional_integer(r->json, object, path, member->key, layer_bytes(member, layer));
    if (member->presence == COST_REQUIRED)
        return json_get_number(r->json, object, path, member->key, layer_seconds(member, layer));
    return json_optional_number(r->json, object, path, member->key, layer_seconds(member, layer));
}

static bool read_layer(const CostsReading *r, const json_t *object, int index)
{
    const char *path = arena_format(r->arena, "layers[%d]", index);
    LayerCost *layer = &r->costs->layers[index];
    bool parts = false;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    layer->resident = json_object_get(object, "memory_bytes") != NULL;
    for (const CostMember *m = layer_members; m->key; m++)
        parts = parts || (m->presence == COST_PART && json_object_get(object, m->key));
    if (layer->resident && parts)
        return json_refuse(r->json, path, "give either memory_bytes, or state, stash and scratch");
    if (!read_name(r, object, path, &layer->name)) return false;
    for (const CostMember *m = layer_members; m->key; m++)
        if (!read_member(r, object, path, m, layer)) return false;
    return read_wire_bytes(r, object, path, layer) && read_tensors(r, object, path, layer);
}

static bool read_own_times(const CostsReading *r, const json_t *object, const char *path, const char *key,
                           double **times)
{
    const json_t *array = json_object_get(object, key);
    if (!array) return true;
    *times = arena_new_array(r->arena, double, (size_t)r->costs->layer_count);
    return read_numbers(r, array, arena_format(r->arena, "%s.%s", path, key), r->costs->layer_count, *times);
}

static bool read_device(const CostsReading *r, const json_t *object, int index)
{
    const char *path = arena_format(r->arena, "devices[%d]", index), *region = NULL;
    DeviceCost *device = &r->costs->devices[index];
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    int64_t host = 0;
    device->slowdown = 1;
    device->memory_bytes = COSTS_NO_LIMIT;
    device->region = -1;
    if (!read_name(r, object, path, &device->name) ||
        !json_optional_number(r->json, object, path, "slowdown", &device->slowdown) ||
        !json_optional_integer(r->json, object, path, "memory_bytes", &device->memory_bytes) ||
        !json_optional_integer(r->json, object, path, "process_bytes", &device->process_bytes) ||
        !json_optional_integer(r->json, object, path, "host", &host) ||
        !json_optional_number(r->json, object, path, "cores", &device->cores) ||
        !json_optional_string(r->json, object, path, "region", &region) ||
        !read_codec_pairs(r, object, path, "coding_s", device->coding_s))
        return false;
    if (host < 0 || host >= COSTS_MAX_DEVICES) return json_refuse(r->json, path, "host is not a number of one");
    device->host = (int)host;
    for (const CostMember *m = device_times; m->key; m++)
        if (!read_own_times(r, object, path, m->key, own_times(m, device))) return false;
    if (!region || r->costs->region_count == 0) return true; /* without links a region means nothing */
    device->region = word_index(region, r->costs->region_names, (size_t)r->costs->region_count);
    return device->region >= 0 ||
           json_refuse(r->json, path, arena_format(r->arena, "region '%s' has no links", region));
}

static bool read_matrix(const CostsReading *r, const json_t *links, const char *key, double **matrix)
{
    json_t *rows;
    int n = r->costs->region_count;
    size_t pairs = (size_t)n * (size_t)n;
    if (!json_get_array(r->json, links, "links", key, &rows)) return false;
    const char *path = arena_format(r->arena, "links.%s", key);
    if (json_array_size(rows) != (size_t)n) return json_refuse(r->json, path, "must have one row per region");
    *matrix = arena_new_array(r->arena, double, pairs);
    for (int i = 0; i < n; i++)
        if (!read_numbers(r, json_array_get(rows, (size_t)i), arena_format(r->arena, "%s[%d]", path, i), n,
                          *matrix + (size_t)i * (size_t)n))
            return false;
    return true;
}

/* A matrix of 0 and 1. */
static bool read_duplex(const CostsReading *r, const json_t *links)
{
    size_t pairs = (size_t)r->costs->region_count * (size_t)r->costs->region_count;
    double *half;
    if (!json_object_get(links, "half_duplex")) return true;
    if (!read_matrix(r, links, "half_duplex", &half)) return false;
    r->costs->half_duplex = arena_new_array(r->arena, bool, pairs);
    for (size_t i = 0; i < pairs; i++) {
        if (half[i] != 0 && half[i] != 1) return json_refuse(r->json, "links.half_duplex", "must be 0 or 1");
        r->costs->half_duplex[i] = half[i] != 0;
    }
    return true;
}

static bool read_links(const CostsReading *r, const json_t *root)
{
    Costs *costs = r->costs;
    json_t *links, *regions;
    const json_t *present = json_object_get(root, "links");
    if (!present || json_is_null(present)) return true;
    if (!json_get_object(r->json, root, "", "links", &links) ||
        !json_get_array(r->json, links, "links", "regions", &regions))
        return false;
    if (json_array_size(regions) > COSTS_MAX_REGIONS) return json_refuse(r->json, "links.regions", "too many regions");
    costs->region_count = (int)json_array_size(regions);
    costs->region_names = arena_new_array(r->arena, const char *, (size_t)costs->region_count);
    for (int i = 0; i < costs->region_count; i++) {
        const char *name = json_string_value(json_array_get(regions, (size_t)i));
        if (!name) return json_refuse(r->json, "links.regions", "must be an array of strings");
        costs->region_names[i] = arena_string(r->arena, name);
    }
    return read_matrix(r, links, "latency_s", &costs->latency_s) &&
           read_matrix(r, links, "bandwidth_Bps", &costs->bandwidth_Bps) && read_duplex(r, links);
}

static bool read_keep(const CostsReading *r, const json_t *root, const char *key, const char **device)
{
    json_t *keep;
    const char *name = NULL;
    if (!json_object_get(root, "keep")) return true;
    if (!json_get_object(r->json, root, "", "keep", &keep) || !json_optional_string(r->json, keep, "keep", key, &name))
        return false;
    if (name) *device = arena_string(r->arena, name);
    return true;
}

static bool read_sites(const CostsReading *r, const json_t *root)
{
    Costs *costs = r->costs;
    SitePlaces places = {costs->layer_count, costs->device_count,
                         arena_new_array(r->arena, int, (size_t)costs->device_count)};
    if (!site_costs_read(&costs->sites, r->json, root, &places, r->arena)) return false;
    for (int d = 0; d < costs->device_count; d++) costs->devices[d].site = costs->sites.count ? places.site[d] : -1;
    return true;
}

static bool read_root(const CostsReading *r, const json_t *root)
{
    Costs *costs = r->costs;
    const char *format, *name = "", *model_hash = "";
    int64_t microbatches = 1;
    json_t *layers, *devices;
    if (!json_is_object(root)) return json_refuse(r->json, NULL, "must be a JSON object");
    if (!json_get_string(r->json, root, "", "format", &format)) return false;
    if (strcmp(format, "skycc.costs/1") != 0) return json_refuse(r->json, "format", "is not \"skycc.costs/1\"");
    if (!json_optional_string(r->json, root, "", "name", &name) ||
        !json_optional_string(r->json, root, "", "model_hash", &model_hash) ||
        !json_optional_integer(r->json, root, "", "microbatches", &microbatches) ||
        !json_get_array(r->json, root, "", "layers", &layers) ||
        !json_get_array(r->json, root, "", "devices", &devices))
        return false;
    costs->name = arena_string(r->arena, name);
    costs->model_hash = arena_string(r->arena, model_hash);
    if (microbatches < 1 || microbatches > COSTS_MAX_MICROBATCHES)
        return json_refuse(r->json, "microbatches", "must be between 1 and 1048576");
    if (json_array_size(layers) > COSTS_MAX_LAYERS) return json_refuse(r->json, "layers", "too many layers");
    if (json_array_size(devices) > COSTS_MAX_DEVICES) return json_refuse(r->json, "devices", "too many devices");
    costs->microbatches = (int)microbatches;
    if (!row_samples_read(&costs->rows, r->json, root, costs->microbatches, r->arena) ||
        !batch_choice_read(&costs->batch, r->json, root, costs->rows.microbatch_kinds > 0, r->arena))
        return false;
    costs->layer_count = (int)json_array_size(layers);
    costs->device_count = (int)json_array_size(devices);
    costs->layers = arena_new_array(r->arena, LayerCost, (size_t)costs->layer_count);
    costs->devices = arena_new_array(r->arena, DeviceCost, (size_t)costs->device_count);
    if (!read_links(r, root) || !read_codec_pairs(r, root, "", "coding_s", costs->coding_s)) return false;
    for (int i = 0; i < costs->layer_count; i++)
        if (!read_layer(r, json_array_get(layers, (size_t)i), i)) return false;
    for (int i = 0; i < costs->device_count; i++)
        if (!read_device(r, json_array_get(devices, (size_t)i), i)) return false;
    int64_t processors = 0;
    if (!json_optional_integer(r->json, root, "", "processors", &processors)) return false;
    if (processors < 0 || processors > COSTS_MAX_DEVICES)
        return json_refuse(r->json, "processors", "is not a number of them");
    costs->processors = (int)processors;
    return json_optional_integer(r->json, root, "", "norm_bytes", &costs->norm_bytes) &&
           json_optional_integer(r->json, root, "", "microbatch_rows", &costs->microbatch_rows) &&
           read_keep(r, root, "inputs", &costs->keep_inputs) && read_keep(r, root, "labels", &costs->keep_labels) &&
           read_sites(r, root);
}

bool costs_read(Costs *costs, const char *path, Diagnostics *diagnostics)
{
    memset(costs, 0, sizeof *costs);
    json_t *root = json_read(path, diagnostics);
    if (!root) return false;
    CostsReading reading = {{path, diagnostics}, costs, &costs->arena};
    bool ok = read_root(&reading, root) && costs_check(costs, path, diagnostics);
    json_decref(root);
    if (!ok) costs_free(costs);
    return ok;
}

/* ---- Writing ---- */

static void add_codec_pairs(JsonWriter *json, const char *key, const double pairs[CODEC_COUNT][2])
{
    bool any = false;
    for (int codec = 1; codec < CODEC_COUNT; codec++) {
        if (pairs[codec][0] == 0 && pairs[codec][1] == 0) continue;
        if (!any) json_open(json, key, '{');
        json_add_numbers(json, codec_name((Codec)codec), pairs[codec], 2);
        any = true;
    }
    if (any) json_close(json, '}');
}

static void add_member(JsonWriter *json, const CostMember *member, const LayerCost *layer)
{
    bool zero = member->is_bytes ? *layer_bytes(member, layer) == 0 : *layer_seconds(member, layer) == 0;
    if (member->presence == COST_NOT_ZERO && zero) return;
    if (member->presence == (layer->resident ? COST_PART : COST_WHOLE)) return;
    if (member->is_bytes)
        json_add_integer(json, member->key, *layer_bytes(member, layer));
    else
        json_add_number(json, member->key, *layer_seconds(member, layer));
}

static void add_layer(JsonWriter *json, const LayerCost *layer)
{
    double wire_bytes[CODEC_COUNT][2];
    for (int codec = 0; codec < CODEC_COUNT; codec++)
        for (int direction = 0; direction < 2; direction++)
            wire_bytes[codec][direction] = (double)layer->wire_bytes[direction][codec];
    json_open(json, NULL, '{');
    json_add_string(json, "name", layer->name);
    for (const CostMember *m = layer_members; m->key; m++) add_member(json, m, layer);
    add_codec_pairs(json, "wire_bytes", wire_bytes);
    if (layer->output) json_add_string(json, "output", layer->output);
    if (layer->input_count) json_open(json, "inputs", '[');
    for (int i = 0; i < layer->input_count; i++) {
        json_open(json, NULL, '{');
        json_add_string(json, "name", layer->inputs[i].name);
        json_add_integer(json, "bytes", layer->inputs[i].bytes);
        json_close(json, '}');
    }
    if (layer->input_count) json_close(json, ']');
    json_close(json, '}');
}

static void add_device(JsonWriter *json, const Costs *costs, const DeviceCost *device)
{
    json_open(json, NULL, '{');
    json_add_string(json, "name", device->name);
    json_add_number(json, "slowdown", device->slowdown);
    if (device->memory_bytes != COSTS_NO_LIMIT) json_add_integer(json, "memory_bytes", device->memory_bytes);
    if (device->process_bytes > 0) json_add_integer(json, "process_bytes", device->process_bytes);
    if (costs->processors > 0) json_add_integer(json, "host", device->host);
    if (costs->processors > 0) json_add_number(json, "cores", device->cores);
    if (costs->region_count > 0) json_add_string(json, "region", costs->region_names[device->region]);
    for (const CostMember *m = device_times; m->key; m++)
        if (*own_times(m, device)) json_add_numbers(json, m->key, *own_times(m, device), (size_t)costs->layer_count);
    add_codec_pairs(json, "coding_s", device->coding_s);
    json_close(json, '}');
}

static void add_matrix(JsonWriter *json, const char *key, const double *matrix, size_t n)
{
    json_open(json_break(json, "\n  "), key, '[');
    for (size_t i = 0; i < n; i++) json_add_numbers(json_break(json, "\n    "), NULL, matrix + i * n, n);
    json_close(json, ']');
}

static void add_links(JsonWriter *json, const Costs *costs)
{
    size_t n = (size_t)costs->region_count;
    json_open(json_break(json, "\n "), "links", '{');
    json_add_strings(json, "regions", costs->region_names, n);
    add_matrix(json, "latency_s", costs->latency_s, n);
    add_matrix(json, "bandwidth_Bps", costs->bandwidth_Bps, n);
    if (costs->half_duplex) {
        FREED double *half = memory_allocate(n * n * sizeof *half);
        for (size_t i = 0; i < n * n; i++) half[i] = costs->half_duplex[i];
        add_matrix(json, "half_duplex", half, n);
    }
    json_close(json, '}');
}

static void add_keep(JsonWriter *json, const Costs *costs)
{
    if (!costs->keep_inputs && !costs->keep_labels) return;
    json_open(json_break(json, "\n "), "keep", '{');
    if (costs->keep_inputs) json_add_string(json, "inputs", costs->keep_inputs);
    if (costs->keep_labels) json_add_string(json, "labels", costs->keep_labels);
    json_close(json, '}');
}

static void add_sites(JsonWriter *json, const Costs *costs)
{
    FREED_WITH(arena_free) Arena arena = {0};
    SitePlaces places = {costs->layer_count, costs->device_count,
                         arena_new_array(&arena, int, (size_t)costs->device_count)};
    for (int d = 0; d < costs->device_count; d++) places.site[d] = costs->devices[d].site;
    site_costs_add(&costs->sites, &places, json);
}

void costs_print(const Costs *costs, Buffer *buffer)
{
    JsonWriter writer = {.buffer = buffer}, *json = &writer;
    json_open(json, NULL, '{');
    json_add_string(json, "format", "skycc.costs/1");
    json_add_string(json_break(json, " "), "name", costs->name);
    if (costs->model_hash && costs->model_hash[0])
        json_add_string(json_break(json, " "), "model_hash", costs->model_hash);
    json_add_integer(json_break(json, " "), "microbatches", costs->microbatches);
    json_open(json_break(json, "\n "), "layers", '[');
    for (int i = 0; i < costs->layer_count; i++) add_layer(json_break(json, "\n  "), &costs->layers[i]);
    json_close(json, ']');
    json_open(json_break(json, "\n "), "devices", '[');
    for (int i = 0; i < costs->device_count; i++) add_device(json_break(json, "\n  "), costs, &costs->devices[i]);
    json_close(json, ']');
    if (costs->region_count > 0) add_links(json, costs);
    add_codec_pairs(json, "coding_s", costs->coding_s);
    if (costs->processors > 0) json_add_integer(json_break(json, "\n "), "processors", costs->processors);
    if (costs->norm_bytes > 0) json_add_integer(json_break(json, "\n "), "norm_bytes", costs->norm_bytes);
    add_keep(json, costs);
    add_sites(json, costs);
    row_samples_add(&costs->rows, json);
    batch_choice_add(&costs->batch, json);
    if (costs->microbatch_rows > 0) json_add_integer(json, "microbatch_rows", costs->microbatch_rows);
    json_close(json, '}');
    buffer_print(buffer, "\n");
}

Hash costs_hash(const Costs *costs)
{
    FREED_WITH(buffer_free) Buffer buffer = {0};
    Costs hashed = *costs;
    hashed.microbatch_rows = 0;
    costs_print(&hashed, &buffer);
    return hash_bytes(buffer.bytes, buffer.size);
}
