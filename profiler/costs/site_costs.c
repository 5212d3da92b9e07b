#include "profiler/costs/site_costs.h"

#include <string.h>

enum { MOST_TENSORS = 1000, MOST_SHARED = 1 << 16 };

typedef struct SiteReading {
    JsonReader json;
    SiteCosts *sites;
    const SitePlaces *places;
    Arena *arena;
} SiteReading;

static DType dtype_of(const char *name)
{
    for (int d = 1; d < DTYPE_COUNT; d++)
        if (strcmp(name, dtype_name((DType)d)) == 0) return (DType)d;
    return DTYPE_NONE;
}

bool cost_tensor_read(JsonReader reader, const json_t *object, const char *path, Arena *arena, CostTensor *tensor)
{
    const char *name, *dtype;
    json_t *shape;
    if (!json_is_object(object)) return json_refuse(reader, path, "must be an object");
    if (!json_get_string(reader, object, path, "name", &name) ||
        !json_get_string(reader, object, path, "dtype", &dtype) ||
        !json_get_array(reader, object, path, "shape", &shape) ||
        !json_get_integer(reader, object, path, "bytes", &tensor->bytes))
        return false;
    tensor->name = arena_string(arena, name);
    tensor->dtype = dtype_of(dtype);
    if (tensor->dtype == DTYPE_NONE) return json_refuse(reader, path, "has an unknown dtype");
    if (json_array_size(shape) > MAX_RANK) return json_refuse(reader, path, "has too many dimensions");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dimension = json_array_get(shape, i);
        if (!json_is_integer(dimension) || json_integer_value(dimension) < 0)
            return json_refuse(reader, path, "has a shape that is none");
        tensor->shape.dim[tensor->shape.rank++] = json_integer_value(dimension);
    }
    int64_t elements = shape_elements(&tensor->shape);
    return (elements >= 0 && tensor->bytes == elements * (int64_t)dtype_size(tensor->dtype)) ||
           json_refuse(reader, path, "does not have the bytes of its shape");
}

void cost_tensor_add(const CostTensor *tensor, JsonWriter *json)
{
    json_add_string(json, "name", tensor->name);
    json_add_string(json, "dtype", dtype_name(tensor->dtype));
    json_add_integers(json, "shape", tensor->shape.dim, (size_t)tensor->shape.rank);
    json_add_integer(json, "bytes", tensor->bytes);
}

/* ---- reading ---- */

static bool read_names(const SiteReading *r, const json_t *sites)
{
    SiteCosts *to = r->sites;
    json_t *names;
    if (!json_get_array(r->json, sites, "sites", "names", &names)) return false;
    if (json_array_size(names) < 1 || json_array_size(names) > COSTS_MAX_SITES)
        return json_refuse(r->json, "sites.names", "are not 1 to 256");
    to->names = arena_new_array(r->arena, const char *, json_array_size(names));
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name) return json_refuse(r->json, "sites.names", "must be an array of strings");
        to->names[to->count++] = arena_string(r->arena, name);
    }
    return true;
}

static bool read_places(const SiteReading *r, const json_t *sites)
{
    json_t *devices;
    if (!json_get_array(r->json, sites, "sites", "devices", &devices)) return false;
    if (json_array_size(devices) != (size_t)r->places->device_count)
        return json_refuse(r->json, "sites.devices", "must be one number per device");
    for (int d = 0; d < r->places->device_count; d++) {
        const json_t *site = json_array_get(devices, (size_t)d);
        if (!json_is_integer(site) || json_integer_value(site) < 0 || json_integer_value(site) >= r->sites->count)
            return json_refuse(r->json, "sites.devices", "must be numbers of sites");
        r->places->site[d] = (int)json_integer_value(site);
    }
    return true;
}

static bool read_kept(const SiteReading *r, const json_t *sites, const char *key, int *site)
{
    json_t *keep;
    const char *name = NULL;
    if (!json_object_get(sites, "keep")) return true;
    if (!json_get_object(r->json, sites, "sites", "keep", &keep) ||
        !json_optional_string(r->json, keep, "sites.keep", key, &name))
        return false;
    for (int s = 0; name && s < r->sites->count; s++)
        if (strcmp(r->sites->names[s], name) == 0) *site = s;
    return !name || *site >= 0 || json_refuse(r->json, "sites.keep", "names a site that does not exist");
}

static bool read_direction(const SiteReading *r, const json_t *object, const char *path, int direction, CostCut *cut)
{
    json_t *array;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    if (!json_get_array(r->json, object, path, direction ? "backward" : "forward", &array)) return false;
    if (json_array_size(array) > MOST_TENSORS) return json_refuse(r->json, path, "has too many tensors");
    cut->tensors[direction] = arena_new_array(r->arena, CostTensor, json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!cost_tensor_read(r->json, json_array_get(array, i), path, r->arena,
                              &cut->tensors[direction][cut->count[direction]++]))
            return false;
    return true;
}

static bool read_cuts(const SiteReading *r, const json_t *sites)
{
    json_t *cuts;
    size_t count = (size_t)r->places->layer_count;
    if (!json_get_array(r->json, sites, "sites", "cuts", &cuts)) return false;
    if (json_array_size(cuts) != count) return json_refuse(r->json, "sites.cuts", "must be one per layer");
    r->sites->cuts = arena_new_array(r->arena, CostCut, count);
    for (size_t l = 0; l < count; l++)
        for (int direction = 0; direction < 2; direction++)
            if (!read_direction(r, json_array_get(cuts, l), arena_format(r->arena, "sites.cuts[%zu]", l), direction,
                                &r->sites->cuts[l]))
                return false;
    return true;
}

static bool read_shared_one(const SiteReading *r, const json_t *object, const char *path, CostShared *shared)
{
    json_t *layers;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    if (!cost_tensor_read(r->json, json_object_get(object, "tensor"), path, r->arena, &shared->tensor) ||
        !json_get_array(r->json, object, path, "layers", &layers))
        return false;
    shared->layers = arena_new_array(r->arena, int, json_array_size(layers));
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        if (!json_is_integer(layer) || json_integer_value(layer) < 0 ||
            json_integer_value(layer) >= r->places->layer_count)
            return json_refuse(r->json, path, "names a layer that does not exist");
        shared->layers[shared->layer_count++] = (int)json_integer_value(layer);
        if (i > 0 && shared->layers[i] < shared->layers[i - 1])
            return json_refuse(r->json, path, "has layers that do not ascend");
    }
    return true;
}

static bool read_shared(const SiteReading *r, const json_t *sites)
{
    SiteCosts *to = r->sites;
    json_t *shared;
    if (!json_object_get(sites, "shared")) return true;
    if (!json_get_array(r->json, sites, "sites", "shared", &shared)) return false;
    if (json_array_size(shared) > MOST_SHARED) return json_refuse(r->json, "sites.shared", "are too many");
    to->shared = arena_new_array(r->arena, CostShared, json_array_size(shared));
    for (size_t i = 0; i < json_array_size(shared); i++)
        if (!read_shared_one(r, json_array_get(shared, i), arena_format(r->arena, "sites.shared[%zu]", i),
                             &to->shared[to->shared_count++]))
            return false;
    return true;
}

bool site_costs_read(SiteCosts *sites, JsonReader reader, const json_t *root, const SitePlaces *places, Arena *arena)
{
    SiteReading reading = {reader, sites, places, arena}, *r = &reading;
    json_t *object;
    *sites = (SiteCosts){.keep_inputs = -1, .keep_labels = -1};
    if (!json_object_get(root, "sites")) return true;
    return json_get_object(reader, root, "", "sites", &object) && read_names(r, object) && read_places(r, object) &&
           read_kept(r, object, "inputs", &sites->keep_inputs) && read_kept(r, object, "labels", &sites->keep_labels) &&
           read_cuts(r, object) && read_shared(r, object);
}

/* ---- writing ---- */

static void add_tensors(JsonWriter *json, const char *key, const CostTensor *tensors, int count)
{
    json_open(json, key, '[');
    for (int i = 0; i < count; i++) {
        json_open(json, NULL, '{');
        cost_tensor_add(&tensors[i], json);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void add_keep(JsonWriter *json, const SiteCosts *sites)
{
    if (sites->keep_inputs < 0 && sites->keep_labels < 0) return;
    json_open(json_break(json, "\n  "), "keep", '{');
    if (sites->keep_inputs >= 0) json_add_string(json, "inputs", sites->names[sites->keep_inputs]);
    if (sites->keep_labels >= 0) json_add_string(json, "labels", sites->names[sites->keep_labels]);
    json_close(json, '}');
}

static void add_integers(JsonWriter *json, const char *key, const int *numbers, int count)
{
    json_open(json, key, '[');
    for (int i = 0; i < count; i++) json_add_integer(json, NULL, numbers[i]);
    json_close(json, ']');
}

static void add_shared(JsonWriter *json, const SiteCosts *sites)
{
    if (!sites->shared_count) return;
    json_open(json_break(json, "\n  "), "shared", '[');
    for (int i = 0; i < sites->shared_count; i++) {
        json_open(json_break(json, "\n   "), NULL, '{');
        json_open(json, "tensor", '{');
        cost_tensor_add(&sites->shared[i].tensor, json);
        json_close(json, '}');
        add_integers(json, "layers", sites->shared[i].layers, sites->shared[i].layer_count);
        json_close(json, '}');
    }
    json_close(json, ']');
}

void site_costs_add(const SiteCosts *sites, const SitePlaces *places, JsonWriter *json)
{
    if (!sites->count) return;
    json_open(json_break(json, "\n "), "sites", '{');
    json_add_strings(json, "names", sites->names, (size_t)sites->count);
    add_integers(json, "devices", places->site, places->device_count);
    add_keep(json, sites);
    json_open(json_break(json, "\n  "), "cuts", '[');
    for (int l = 0; l < places->layer_count; l++) {
        json_open(json_break(json, "\n   "), NULL, '{');
        add_tensors(json, "forward", sites->cuts[l].tensors[0], sites->cuts[l].count[0]);
        add_tensors(json, "backward", sites->cuts[l].tensors[1], sites->cuts[l].count[1]);
        json_close(json, '}');
    }
    json_close(json, ']');
    add_shared(json, sites);
    json_close(json, '}');
}
