#include "profiler/costs/model_sites.h"

#include <string.h>

void model_sites_open(Costs *costs, const Cluster *cluster)
{
    SiteCosts *sites = &costs->sites;
    sites->keep_inputs = sites->keep_labels = -1;
    if (cluster->site_count < 2) return;
    sites->count = cluster->site_count;
    sites->names = arena_new_array(&costs->arena, const char *, (size_t)sites->count);
    for (int s = 0; s < sites->count; s++) sites->names[s] = arena_string(&costs->arena, cluster->sites[s].name);
    sites->keep_inputs = cluster->keep_inputs_site;
    sites->keep_labels = cluster->keep_labels_site;
    sites->cuts = arena_new_array(&costs->arena, CostCut, (size_t)costs->layer_count);
}

/* Values that passes made have numbers for names, which say nothing and differ from cut to cut. */
const char *model_sites_name(Arena *arena, const SkyStage *stage, const char *layer, bool forward, uint32_t number)
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

static void add_use(Costs *costs, int layer, const SkyParameter *parameter)
{
    SiteCosts *sites = &costs->sites;
    const char *name = arena_format(&costs->arena, "gradient of %s", parameter->value.name);
    int k = 0;
    while (k < sites->shared_count && strcmp(sites->shared[k].tensor.name, name) != 0) k++;
    if (k == sites->shared_count) {
        CostShared *grown = arena_new_array(&costs->arena, CostShared, (size_t)k + 1);
        if (k) memcpy(grown, sites->shared, (size_t)k * sizeof *grown);
        grown[k] = (CostShared){describe(&parameter->value, name), NULL, 0};
        grown[k].layers = arena_new_array(&costs->arena, int, (size_t)costs->layer_count);
        sites->shared = grown;
        sites->shared_count++;
    }
    CostShared *shared = &sites->shared[k];
    if (shared->layer_count == costs->layer_count) bug("%s has more uses than there are layers", name);
    shared->layers[shared->layer_count++] = layer;
}

void model_sites_add(Costs *costs, int layer, const SkyStage *stage)
{
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
                describe(&tensors[direction][i], model_sites_name(&costs->arena, stage, name, direction == 0, i));
    }
    for (uint32_t p = 0; p < stage->parameter_count; p++)
        for (uint32_t u = 0; u < stage->parameters[p].use_count; u++) add_use(costs, layer, &stage->parameters[p]);
}
