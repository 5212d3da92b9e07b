#include "profiler/costs/model_sites.h"

#include <string.h>

ModelSites model_sites_open(Costs *costs, const Cluster *cluster)
{
    ModelSites filling = {.costs = costs};
    SiteCosts *sites = &costs->sites;
    sites->keep_inputs = sites->keep_labels = -1;
    if (cluster->site_count < 2) return filling;
    sites->count = cluster->site_count;
    sites->names = arena_new_array(&costs->arena, const char *, (size_t)sites->count);
    for (int s = 0; s < sites->count; s++) sites->names[s] = arena_string(&costs->arena, cluster->sites[s].name);
    sites->keep_inputs = cluster->keep_inputs_site;
    sites->keep_labels = cluster->keep_labels_site;
    sites->cuts = arena_new_array(&costs->arena, CostCut, (size_t)costs->layer_count);
    return filling;
}

void model_sites_close(ModelSites *filling) { string_map_free(&filling->shared); }

/* Values that passes made have numbers for names, which say nothing and differ from cut to cut. */
static const char *name_of(Arena *arena, const SkyStage *stage, const char *layer, bool forward, uint32_t number)
{
    const SkyTensor *tensors = forward ? stage->send_forward : stage->receive_backward;
    const char *name = tensors[number].name;
    if (name[0] != '%') return arena_string(arena, name);
    const char *what = forward ? "output" : "gradient of output";
    return number ? arena_format(arena, "%s %u of %s", what, number, layer)
                  : arena_format(arena, "%s of %s", what, layer);
}

static CostTensor describe(const SkyTensor *tensor, const char *name)
{
    CostTensor cost = {
        .name = name, .dtype = (DType)tensor->dtype, .shape.rank = (int)tensor->rank, .bytes = (int64_t)tensor->bytes};
    for (uint32_t i = 0; i < tensor->rank; i++) cost.shape.dim[i] = tensor->dim[i];
    return cost;
}

/* The array, or a copy twice as long where no room is left after `count` elements. */
static void *with_room(Arena *arena, void *array, int count, size_t size)
{
    if (count & (count - 1)) return array;
    void *longer = arena_allocate_array(arena, count ? 2 * (size_t)count : 1, size);
    if (count) memcpy(longer, array, (size_t)count * size);
    return longer;
}

static void add_use(ModelSites *filling, int layer, const SkyParameter *parameter)
{
    Costs *costs = filling->costs;
    SiteCosts *sites = &costs->sites;
    const char *name = arena_format(&costs->arena, "gradient of %s", parameter->value.name);
    if (string_map_add(&filling->shared, name, (uint32_t)sites->shared_count)) {
        sites->shared = with_room(&costs->arena, sites->shared, sites->shared_count, sizeof *sites->shared);
        sites->shared[sites->shared_count++] = (CostShared){describe(&parameter->value, name), NULL, 0};
    }
    CostShared *shared = &sites->shared[*string_map_find(&filling->shared, name)];
    shared->layers = with_room(&costs->arena, shared->layers, shared->layer_count, sizeof *shared->layers);
    shared->layers[shared->layer_count++] = layer;
}

void model_sites_add(ModelSites *filling, int layer, const SkyStage *stage)
{
    Costs *costs = filling->costs;
    SiteCosts *sites = &costs->sites;
    if (!sites->count) return;
    CostCut *cut = &sites->cuts[layer];
    const char *name = costs->layers[layer].name;
    const SkyTensor *tensors[2] = {stage->send_forward, stage->receive_backward};
    const uint32_t counts[2] = {stage->send_forward_count, stage->receive_backward_count};
    for (int direction = 0; direction < 2; direction++) {
        cut->tensors[direction] = arena_new_array(&costs->arena, CostTensor, counts[direction]);
        for (uint32_t i = 0; i < counts[direction]; i++)
            cut->tensors[direction][cut->count[direction]++] =
                describe(&tensors[direction][i], name_of(&costs->arena, stage, name, direction == 0, i));
    }
    for (uint32_t p = 0; p < stage->parameter_count; p++)
        for (uint32_t u = 0; u < stage->parameters[p].use_count; u++) add_use(filling, layer, &stage->parameters[p]);
}
