/* Random sites for random costs: who is where, what they keep, which tensors would cross between them. */
#ifndef TESTS_PARTITIONER_RANDOM_SITES_H
#define TESTS_PARTITIONER_RANDOM_SITES_H

#include "tests/partitioner/random_costs.h"

static inline CostTensor tensor_of(Costs *costs, const char *name, int64_t columns)
{
    return (CostTensor){arena_string(&costs->arena, name), DTYPE_F32, {2, {3, columns}}, 12 * columns};
}

static inline void random_sites(Costs *costs)
{
    static const char *const names[] = {"lyon", "kyoto", "lima"};
    SiteCosts *sites = &costs->sites;
    sites->count = 2 + draw(2);
    sites->names = arena_new_array(&costs->arena, const char *, (size_t)sites->count);
    for (int s = 0; s < sites->count; s++) sites->names[s] = names[s];
    for (int d = 0; d < costs->device_count; d++) costs->devices[d].site = draw(sites->count);
    costs->norm_bytes = 1608;
    sites->keep_inputs = draw(3) ? costs->devices[draw(costs->device_count)].site : -1;
    sites->keep_labels = draw(3) ? costs->devices[draw(costs->device_count)].site : -1;
    sites->cuts = arena_new_array(&costs->arena, CostCut, (size_t)costs->layer_count);
    for (int l = 0; l + 1 < costs->layer_count; l++)
        for (int direction = 0; direction < 2; direction++) {
            CostCut *cut = &sites->cuts[l];
            cut->tensors[direction] = arena_new_array(&costs->arena, CostTensor, 2);
            cut->count[direction] = 1 + draw(2);
            for (int i = 0; i < cut->count[direction]; i++)
                cut->tensors[direction][i] = tensor_of(costs, i ? "side" : "output", 1 + draw(4));
        }
    if (costs->layer_count < 3 || draw(2)) return;
    sites->shared_count = 1;
    sites->shared = arena_new(&costs->arena, CostShared);
    sites->shared->tensor = tensor_of(costs, "gradient of words", 5);
    sites->shared->layers = arena_new_array(&costs->arena, int, 3);
    for (int use = 0; use < 3; use++)
        sites->shared->layers[sites->shared->layer_count++] = use * (costs->layer_count - 1) / 2;
}

#endif
