#include "profiler/costs/costs.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

/* Larger times would overflow 64-bit nanoseconds once multiplied by the number of micro-batches. */
static const double MAX_SECONDS = 1e6;
static const double MAX_BYTES = 1e18;

double costs_forward_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return d->forward_s ? d->forward_s[layer] : d->slowdown * costs->layers[layer].forward_s;
}

double costs_backward_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return d->backward_s ? d->backward_s[layer] : d->slowdown * costs->layers[layer].backward_s;
}

double costs_update_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return d->update_s ? d->update_s[layer] : d->slowdown * costs->layers[layer].update_s;
}

int costs_find_device(const Costs *costs, const char *name)
{
    for (int i = 0; i < costs->device_count; i++)
        if (strcmp(costs->devices[i].name, name) == 0) return i;
    return -1;
}

const char *costs_keeper(const Costs *costs)
{
    const char *first = costs->keep_inputs, *last = costs->keep_labels;
    return first && last && strcmp(first, last) == 0 ? first : NULL;
}

bool costs_may_begin(const Costs *costs, int device)
{
    const SiteCosts *sites = &costs->sites;
    return !sites->count || sites->keep_inputs < 0 || costs->devices[device].site == sites->keep_inputs;
}

bool costs_may_end(const Costs *costs, int device)
{
    const SiteCosts *sites = &costs->sites;
    return !sites->count || sites->keep_labels < 0 || costs->devices[device].site == sites->keep_labels;
}

const char *costs_site_of(const Costs *costs, const char *device)
{
    int index = device && costs->sites.count ? costs_find_device(costs, device) : -1;
    return index < 0 ? NULL : costs->sites.names[costs->devices[index].site];
}

void costs_free(Costs *costs)
{
    arena_free(&costs->arena);
    memset(costs, 0, sizeof *costs);
}

/* ---- reading ---- */

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

static bool read_layer(const CostsReading *r, const json_t *object, int index)
{
    const char *path = arena_format(r->arena, "layers[%d]", index);
    LayerCost *layer = &r->costs->layers[index];
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    layer->resident = json_object_get(object, "memory_bytes") != NULL;
    bool parts = json_object_get(object, "state_bytes") || json_object_get(object, "stash_bytes") ||
                 json_object_get(object, "scratch_bytes");
    if (layer->resident && parts)
        return json_refuse(r->json, path, "give either memory_bytes, or state, stash and scratch");
    return read_name(r, object, path, &layer->name) &&
           json_get_number(r->json, object, path, "forward_s", &layer->forward_s) &&
           json_get_number(r->json, object, path, "backward_s", &layer->backward_s) &&
           json_optional_number(r->json, object, path, "update_s", &layer->update_s) &&
           json_optional_number(r->json, object, path, "weight_gradient_s", &layer->weight_gradient_s) &&
           json_optional_integer(r->json, object, path, "memory_bytes", &layer->memory_bytes) &&
           json_optional_integer(r->json, object, path, "state_bytes", &layer->state_bytes) &&
           json_optional_integer(r->json, object, path, "stash_bytes", &layer->stash_bytes) &&
           json_optional_integer(r->json, object, path, "shared_bytes", &layer->shared_bytes) &&
           json_optional_integer(r->json, object, path, "scratch_bytes", &layer->scratch_bytes) &&
           json_optional_integer(r->json, object, path, "kept_bytes", &layer->kept_bytes) &&
           json_optional_integer(r->json, object, path, "split_bytes", &layer->split_bytes) &&
           json_optional_integer(r->json, object, path, "output_bytes", &layer->output_bytes) &&
           json_optional_integer(r->json, object, path, "output_backward_bytes", &layer->output_backward_bytes) &&
           read_wire_bytes(r, object, path, layer) && read_tensors(r, object, path, layer);
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
    device->slowdown = 1;
    device->memory_bytes = COSTS_NO_LIMIT;
    device->region = -1;
    if (!read_name(r, object, path, &device->name) ||
        !json_optional_number(r->json, object, path, "slowdown", &device->slowdown) ||
        !json_optional_integer(r->json, object, path, "memory_bytes", &device->memory_bytes) ||
        !json_optional_integer(r->json, object, path, "process_bytes", &device->process_bytes) ||
        !json_optional_string(r->json, object, path, "region", &region) ||
        !read_own_times(r, object, path, "forward_s", &device->forward_s) ||
        !read_own_times(r, object, path, "backward_s", &device->backward_s) ||
        !read_own_times(r, object, path, "update_s", &device->update_s) ||
        !read_codec_pairs(r, object, path, "coding_s", device->coding_s))
        return false;
    if (!region || r->costs->region_count == 0) return true; /* without links a region means nothing */
    for (int i = 0; i < r->costs->region_count && device->region < 0; i++)
        if (strcmp(region, r->costs->region_names[i]) == 0) device->region = i;
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
    if (!row_samples_read(&costs->rows, r->json, root, costs->microbatches, r->arena)) return false;
    costs->layer_count = (int)json_array_size(layers);
    costs->device_count = (int)json_array_size(devices);
    costs->layers = arena_new_array(r->arena, LayerCost, (size_t)costs->layer_count);
    costs->devices = arena_new_array(r->arena, DeviceCost, (size_t)costs->device_count);
    if (!read_links(r, root) || !read_codec_pairs(r, root, "", "coding_s", costs->coding_s)) return false;
    for (int i = 0; i < costs->layer_count; i++)
        if (!read_layer(r, json_array_get(layers, (size_t)i), i)) return false;
    for (int i = 0; i < costs->device_count; i++)
        if (!read_device(r, json_array_get(devices, (size_t)i), i)) return false;
    return json_optional_integer(r->json, root, "", "norm_bytes", &costs->norm_bytes) &&
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

/* ---- checking ---- */

typedef struct Checking {
    const char *file;
    Diagnostics *diagnostics;
    Arena scratch;
} Checking;

static bool wrong(Checking *c, const char *object, const char *reason)
{
    return diagnostics_error(c->diagnostics, EXIT_BAD_INPUT, (Place){.file = c->file, .object = object}, NULL, "%s",
                             reason);
}

static bool check_seconds(Checking *c, const char *object, const char *what, double value)
{
    if (value >= 0 && value <= MAX_SECONDS) return true; /* false for NaN */
    return wrong(c, object, arena_format(&c->scratch, "%s must be between 0 and 1e6 seconds", what));
}

static bool check_bytes(Checking *c, const char *object, const char *what, int64_t value)
{
    if (value >= 0 && (double)value <= MAX_BYTES) return true;
    return wrong(c, object, arena_format(&c->scratch, "%s must be between 0 and 1e18 bytes", what));
}

static bool check_layer(Checking *c, const Costs *costs, int i)
{
    const LayerCost *l = &costs->layers[i];
    const char *object = arena_format(&c->scratch, "layers[%d] '%s'", i, l->name);
    return check_seconds(c, object, "forward_s", l->forward_s) &&
           check_seconds(c, object, "backward_s", l->backward_s) && check_seconds(c, object, "update_s", l->update_s) &&
           check_seconds(c, object, "weight_gradient_s", l->weight_gradient_s) &&
           (l->weight_gradient_s <= l->backward_s ||
            wrong(c, object, "weight_gradient_s must not be more than backward_s")) &&
           check_bytes(c, object, "memory_bytes", l->memory_bytes) &&
           check_bytes(c, object, "state_bytes", l->state_bytes) &&
           check_bytes(c, object, "stash_bytes", l->stash_bytes) &&
           check_bytes(c, object, "shared_bytes", l->shared_bytes) &&
           (!l->shared_bytes ||
            (i + 1 < costs->layer_count && l->shared_bytes <= l->stash_bytes && l->shared_bytes <= l[1].stash_bytes) ||
            wrong(c, object, "shared_bytes must not be more than the stash of the layer or of the next")) &&
           check_bytes(c, object, "scratch_bytes", l->scratch_bytes) &&
           check_bytes(c, object, "kept_bytes", l->kept_bytes) &&
           check_bytes(c, object, "split_bytes", l->split_bytes) &&
           check_bytes(c, object, "output_bytes", l->output_bytes) &&
           check_bytes(c, object, "output_backward_bytes", l->output_backward_bytes);
}

/* A second for a byte: beyond that 64 bits might not hold what a tensor takes. */
static bool check_coding(Checking *c, const char *object, const double coding_s[CODEC_COUNT][2])
{
    for (int codec = 0; codec < CODEC_COUNT; codec++)
        for (int way = 0; way < 2; way++)
            if (!(coding_s[codec][way] >= 0 && coding_s[codec][way] <= 1))
                return wrong(c, object, "coding_s must be between 0 and 1 second a byte");
    return true;
}

static bool check_own_times(Checking *c, const char *object, const char *what, const double *times, int count)
{
    for (int i = 0; times && i < count; i++)
        if (!check_seconds(c, object, what, times[i])) return false;
    return true;
}

static bool check_device(Checking *c, const Costs *costs, int i)
{
    const DeviceCost *d = &costs->devices[i];
    const char *object = arena_format(&c->scratch, "devices[%d] '%s'", i, d->name);
    if (!(d->slowdown > 0 && d->slowdown <= 1e9)) return wrong(c, object, "slowdown must be above 0 and at most 1e9");
    if (d->memory_bytes < 0) return wrong(c, object, "memory_bytes must not be negative");
    if (d->process_bytes < 0 || d->process_bytes > COSTS_MOST_PROCESS_BYTES)
        return wrong(c, object, "process_bytes must be 0 to 2^40");
    if (costs->region_count > 0 && d->region < 0) return wrong(c, object, "must name its region, as there are links");
    return check_own_times(c, object, "forward_s", d->forward_s, costs->layer_count) &&
           check_own_times(c, object, "backward_s", d->backward_s, costs->layer_count) &&
           check_own_times(c, object, "update_s", d->update_s, costs->layer_count) &&
           check_coding(c, object, d->coding_s);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool check_unique(Checking *c, const char **names, int count, const char *what)
{
    const char **sorted = arena_copy(&c->scratch, names, (size_t)count * sizeof *names);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_names);
    for (int i = 1; i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return wrong(c, what, arena_format(&c->scratch, "the name '%s' is used twice", sorted[i]));
    return true;
}

static bool check_links(Checking *c, const Costs *costs)
{
    for (int i = 0; i < costs->region_count * costs->region_count; i++) {
        const char *object =
            arena_format(&c->scratch, "links from '%s' to '%s'", costs->region_names[i / costs->region_count],
                         costs->region_names[i % costs->region_count]);
        if (!check_seconds(c, object, "latency", costs->latency_s[i])) return false;
        int back = i % costs->region_count * costs->region_count + i / costs->region_count;
        if (costs->half_duplex && costs->half_duplex[i] != costs->half_duplex[back])
            return wrong(c, object, "half_duplex is not the same in both directions");
        if (!(costs->bandwidth_Bps[i] > 0 && costs->bandwidth_Bps[i] <= 1e18))
            return wrong(c, object, "bandwidth must be above 0 and at most 1e18 bytes per second");
    }
    return check_unique(c, costs->region_names, costs->region_count, "links.regions");
}

static bool check_keep(Checking *c, const Costs *costs, const char *device)
{
    if (!device || costs_find_device(costs, device) >= 0) return true;
    return wrong(c, "keep", arena_format(&c->scratch, "no device is named '%s'", device));
}

static bool check_sites(Checking *c, const Costs *costs)
{
    const SiteCosts *sites = &costs->sites;
    for (int d = 0; d < costs->device_count && sites->count; d++)
        if (costs->devices[d].site < 0 || costs->devices[d].site >= sites->count)
            return wrong(c, "sites",
                         arena_format(&c->scratch, "device '%s' is in none: make it like a device of its site",
                                      costs->devices[d].name));
    return check_unique(c, sites->names, sites->count, "sites.names");
}

static bool check_all(Checking *c, const Costs *costs)
{
    if (costs->layer_count < 1) return wrong(c, "layers", "there is none");
    if (costs->device_count < 1) return wrong(c, "devices", "there is none");
    if (costs->microbatches < 1 || costs->microbatches > COSTS_MAX_MICROBATCHES)
        return wrong(c, "microbatches", "must be between 1 and 1048576");
    const char *fault = row_samples_fault(&costs->rows, costs->microbatches);
    if (fault) return wrong(c, "rows", fault);
    for (int i = 0; i < costs->layer_count; i++)
        if (!check_layer(c, costs, i)) return false;
    for (int i = 0; i < costs->device_count; i++)
        if (!check_device(c, costs, i)) return false;
    if (!check_sites(c, costs) || !check_bytes(c, "norm_bytes", "norm_bytes", costs->norm_bytes)) return false;
    const char **names = arena_new_array(&c->scratch, const char *, (size_t)costs->device_count);
    for (int i = 0; i < costs->device_count; i++) names[i] = costs->devices[i].name;
    return check_unique(c, names, costs->device_count, "devices") && check_links(c, costs) &&
           check_coding(c, "coding_s", costs->coding_s) && check_keep(c, costs, costs->keep_inputs) &&
           check_keep(c, costs, costs->keep_labels);
}

bool costs_check(const Costs *costs, const char *path, Diagnostics *diagnostics)
{
    Checking checking = {path, diagnostics, {0}};
    bool ok = check_all(&checking, costs);
    arena_free(&checking.scratch);
    return ok;
}
