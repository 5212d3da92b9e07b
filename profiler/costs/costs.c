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
           read_tensors(r, object, path, layer);
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
        !json_optional_string(r->json, object, path, "region", &region) ||
        !read_own_times(r, object, path, "forward_s", &device->forward_s) ||
        !read_own_times(r, object, path, "backward_s", &device->backward_s) ||
        !read_own_times(r, object, path, "update_s", &device->update_s))
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
           read_matrix(r, links, "bandwidth_Bps", &costs->bandwidth_Bps);
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
    if (!read_links(r, root)) return false;
    for (int i = 0; i < costs->layer_count; i++)
        if (!read_layer(r, json_array_get(layers, (size_t)i), i)) return false;
    for (int i = 0; i < costs->device_count; i++)
        if (!read_device(r, json_array_get(devices, (size_t)i), i)) return false;
    return read_keep(r, root, "inputs", &costs->keep_inputs) && read_keep(r, root, "labels", &costs->keep_labels) &&
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
           check_bytes(c, object, "output_bytes", l->output_bytes);
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
    if (costs->region_count > 0 && d->region < 0) return wrong(c, object, "must name its region, as there are links");
    return check_own_times(c, object, "forward_s", d->forward_s, costs->layer_count) &&
           check_own_times(c, object, "backward_s", d->backward_s, costs->layer_count) &&
           check_own_times(c, object, "update_s", d->update_s, costs->layer_count);
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
    if (!check_sites(c, costs)) return false;
    const char **names = arena_new_array(&c->scratch, const char *, (size_t)costs->device_count);
    for (int i = 0; i < costs->device_count; i++) names[i] = costs->devices[i].name;
    return check_unique(c, names, costs->device_count, "devices") && check_links(c, costs) &&
           check_keep(c, costs, costs->keep_inputs) && check_keep(c, costs, costs->keep_labels);
}

bool costs_check(const Costs *costs, const char *path, Diagnostics *diagnostics)
{
    Checking checking = {path, diagnostics, {0}};
    bool ok = check_all(&checking, costs);
    arena_free(&checking.scratch);
    return ok;
}

/* ---- writing ---- */

static void print_member(Buffer *buffer, const char *key, double value)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_number(buffer, value);
}

static void print_numbers(Buffer *buffer, const double *numbers, int count)
{
    buffer_print(buffer, "[");
    for (int i = 0; i < count; i++) {
        if (i) buffer_print(buffer, ",");
        json_print_number(buffer, numbers[i]);
    }
    buffer_print(buffer, "]");
}

static void print_layer(Buffer *buffer, const LayerCost *layer)
{
    buffer_print(buffer, "{\"name\":");
    json_print_string(buffer, layer->name);
    print_member(buffer, "forward_s", layer->forward_s);
    print_member(buffer, "backward_s", layer->backward_s);
    print_member(buffer, "update_s", layer->update_s);
    if (layer->weight_gradient_s > 0) print_member(buffer, "weight_gradient_s", layer->weight_gradient_s);
    if (layer->resident)
        buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)layer->memory_bytes);
    else
        buffer_print(buffer, ",\"state_bytes\":%lld,\"stash_bytes\":%lld,\"scratch_bytes\":%lld",
                     (long long)layer->state_bytes, (long long)layer->stash_bytes, (long long)layer->scratch_bytes);
    if (layer->shared_bytes > 0) buffer_print(buffer, ",\"shared_bytes\":%lld", (long long)layer->shared_bytes);
    if (layer->kept_bytes > 0) buffer_print(buffer, ",\"kept_bytes\":%lld", (long long)layer->kept_bytes);
    if (layer->split_bytes > 0) buffer_print(buffer, ",\"split_bytes\":%lld", (long long)layer->split_bytes);
    buffer_print(buffer, ",\"output_bytes\":%lld", (long long)layer->output_bytes);
    if (layer->output) {
        buffer_print(buffer, ",\"output\":");
        json_print_string(buffer, layer->output);
    }
    for (int i = 0; i < layer->input_count; i++) {
        buffer_print(buffer, i ? ",{\"name\":" : ",\"inputs\":[{\"name\":");
        json_print_string(buffer, layer->inputs[i].name);
        buffer_print(buffer, ",\"bytes\":%lld}", (long long)layer->inputs[i].bytes);
    }
    buffer_print(buffer, layer->input_count ? "]}" : "}");
}

static void print_own_times(Buffer *buffer, const char *key, const double *times, int count)
{
    if (!times) return;
    buffer_print(buffer, ",\"%s\":", key);
    print_numbers(buffer, times, count);
}

static void print_device(Buffer *buffer, const Costs *costs, const DeviceCost *device)
{
    buffer_print(buffer, "{\"name\":");
    json_print_string(buffer, device->name);
    print_member(buffer, "slowdown", device->slowdown);
    if (device->memory_bytes != COSTS_NO_LIMIT)
        buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)device->memory_bytes);
    if (costs->region_count > 0) {
        buffer_print(buffer, ",\"region\":");
        json_print_string(buffer, costs->region_names[device->region]);
    }
    print_own_times(buffer, "forward_s", device->forward_s, costs->layer_count);
    print_own_times(buffer, "backward_s", device->backward_s, costs->layer_count);
    print_own_times(buffer, "update_s", device->update_s, costs->layer_count);
    buffer_print(buffer, "}");
}

static void print_matrix(Buffer *buffer, const char *key, const double *matrix, int n)
{
    buffer_print(buffer, ",\n  \"%s\":[", key);
    for (int i = 0; i < n; i++) {
        buffer_print(buffer, i ? ",\n    " : "\n    ");
        print_numbers(buffer, matrix + (size_t)i * (size_t)n, n);
    }
    buffer_print(buffer, "]");
}

static void print_links(Buffer *buffer, const Costs *costs)
{
    buffer_print(buffer, ",\n \"links\":{\"regions\":[");
    for (int i = 0; i < costs->region_count; i++) {
        if (i) buffer_print(buffer, ",");
        json_print_string(buffer, costs->region_names[i]);
    }
    buffer_print(buffer, "]");
    print_matrix(buffer, "latency_s", costs->latency_s, costs->region_count);
    print_matrix(buffer, "bandwidth_Bps", costs->bandwidth_Bps, costs->region_count);
    buffer_print(buffer, "}");
}

static void print_keep(Buffer *buffer, const Costs *costs)
{
    if (!costs->keep_inputs && !costs->keep_labels) return;
    buffer_print(buffer, ",\n \"keep\":{");
    if (costs->keep_inputs) {
        buffer_print(buffer, "\"inputs\":");
        json_print_string(buffer, costs->keep_inputs);
    }
    if (costs->keep_labels) {
        buffer_print(buffer, costs->keep_inputs ? ",\"labels\":" : "\"labels\":");
        json_print_string(buffer, costs->keep_labels);
    }
    buffer_print(buffer, "}");
}

static void print_sites(Buffer *buffer, const Costs *costs)
{
    Arena arena = {0};
    SitePlaces places = {costs->layer_count, costs->device_count,
                         arena_new_array(&arena, int, (size_t)costs->device_count)};
    for (int d = 0; d < costs->device_count; d++) places.site[d] = costs->devices[d].site;
    site_costs_print(&costs->sites, &places, buffer);
    arena_free(&arena);
}

void costs_print(const Costs *costs, Buffer *buffer)
{
    buffer_print(buffer, "{\"format\":\"skycc.costs/1\", \"name\":");
    json_print_string(buffer, costs->name);
    if (costs->model_hash && costs->model_hash[0]) {
        buffer_print(buffer, ", \"model_hash\":");
        json_print_string(buffer, costs->model_hash);
    }
    buffer_print(buffer, ", \"microbatches\":%d,\n \"layers\":[", costs->microbatches);
    for (int i = 0; i < costs->layer_count; i++) {
        buffer_print(buffer, i ? ",\n  " : "\n  ");
        print_layer(buffer, &costs->layers[i]);
    }
    buffer_print(buffer, "],\n \"devices\":[");
    for (int i = 0; i < costs->device_count; i++) {
        buffer_print(buffer, i ? ",\n  " : "\n  ");
        print_device(buffer, costs, &costs->devices[i]);
    }
    buffer_print(buffer, "]");
    if (costs->region_count > 0) print_links(buffer, costs);
    print_keep(buffer, costs);
    print_sites(buffer, costs);
    row_samples_print(&costs->rows, buffer);
    buffer_print(buffer, "}\n");
}

Hash costs_hash(const Costs *costs)
{
    Buffer buffer = {0};
    costs_print(costs, &buffer);
    Hash hash = hash_bytes(buffer.bytes, buffer.size);
    buffer_free(&buffer);
    return hash;
}
