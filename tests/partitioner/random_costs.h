/* Small random costs with the features that a variant names: one generator for every test of the planner. */
#ifndef TESTS_PARTITIONER_RANDOM_COSTS_H
#define TESTS_PARTITIONER_RANDOM_COSTS_H

#include <string.h>

#include "base/random.h"
#include "profiler/costs/costs.h"

static uint64_t random_state;

static int draw(int n) { return (int)random_draw_below(&random_state, (uint64_t)n); }

enum {
    WITH_MEMORY = 1,
    WITH_LINKS = 2,
    WITH_TYPES = 4,
    WITH_UPDATE = 8,
    WITH_STASH = 16,
    WITH_OWN_TIMES = 32,
    VARIANTS = 64
};

static void random_layer(Costs *costs, int i, int variant)
{
    LayerCost *layer = &costs->layers[i];
    layer->name = "layer";
    layer->forward_s = (1 + draw(20)) * 1e-9;
    layer->backward_s = (1 + draw(40)) * 1e-9;
    if (variant & WITH_UPDATE) layer->update_s = draw(30) * 1e-9;
    layer->output_bytes = (1 + draw(3)) * 10;
    layer->resident = !(variant & WITH_STASH) || draw(4) == 0;
    if (layer->resident) {
        layer->memory_bytes = 10 * draw(10);
    } else {
        layer->state_bytes = 10 * draw(10);
        layer->stash_bytes = 5 * draw(10);
        layer->scratch_bytes = 10 * draw(6);
    }
}

static void random_device(Costs *costs, int i, int variant)
{
    DeviceCost *device = &costs->devices[i];
    if (i > 0 && (variant & WITH_TYPES) && draw(2)) {
        *device = costs->devices[draw(i)];
    } else {
        device->slowdown = (1 + draw(8)) / 2.0;
        device->memory_bytes = variant & WITH_MEMORY ? 40 + draw(variant & WITH_STASH ? 900 : 260) : COSTS_NO_LIMIT;
        device->region = costs->region_count ? draw(costs->region_count) : -1;
        if (variant & WITH_OWN_TIMES && draw(2)) {
            device->forward_s = arena_new_array(&costs->arena, double, (size_t)costs->layer_count);
            device->backward_s = arena_new_array(&costs->arena, double, (size_t)costs->layer_count);
            for (int l = 0; l < costs->layer_count; l++) {
                device->forward_s[l] = draw(60) * 1e-9;
                device->backward_s[l] = draw(90) * 1e-9;
            }
        }
    }
    device->name = arena_format(&costs->arena, "d%d", i);
}

static inline void random_costs_sized(Costs *costs, int variant, uint64_t seed, int most_layers, int most_devices)
{
    memset(costs, 0, sizeof *costs);
    random_state = seed * 7919 + 1;
    draw(2);
    costs->name = "random";
    costs->layer_count = 1 + draw(most_layers);
    costs->device_count = 1 + draw(most_devices);
    costs->microbatches = 1 + draw(6);
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)costs->layer_count);
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)costs->device_count);
    if (variant & WITH_LINKS) {
        costs->region_count = 1 + draw(3);
        size_t pairs = (size_t)(costs->region_count * costs->region_count);
        costs->region_names = arena_new_array(&costs->arena, const char *, (size_t)costs->region_count);
        costs->latency_s = arena_new_array(&costs->arena, double, pairs);
        costs->bandwidth_Bps = arena_new_array(&costs->arena, double, pairs);
        for (int r = 0; r < costs->region_count; r++) costs->region_names[r] = arena_format(&costs->arena, "r%d", r);
        for (size_t i = 0; i < pairs; i++) {
            costs->latency_s[i] = draw(30) * 1e-9;
            costs->bandwidth_Bps[i] = 1e9 / (1 + draw(8));
        }
    }
    for (int i = 0; i < costs->layer_count; i++) random_layer(costs, i, variant);
    for (int i = 0; i + 1 < costs->layer_count; i++) { /* nothing, half or all of what can be */
        LayerCost *layer = &costs->layers[i];
        int64_t most = layer->stash_bytes < layer[1].stash_bytes ? layer->stash_bytes : layer[1].stash_bytes;
        layer->shared_bytes = most * (int64_t)((seed + (uint64_t)i) % 3) / 2;
    }
    for (int i = 0; i < costs->device_count; i++) random_device(costs, i, variant);
}

/* Steps of one to microbatches micro-batches: eight of them. */
static inline void random_samples(Costs *costs)
{
    enum { STEPS = 8 };
    size_t most = (size_t)costs->microbatches;
    RowSamples *rows = &costs->rows;
    int *times = arena_new_array(&costs->arena, int, most + 1);
    for (int i = 0; i < STEPS; i++) times[1 + draw((int)most)]++;
    rows->packing = (SkyPacking){.lines = 2, .length = 4, .slots = 2, .longest = 4, .rows = 2 * (uint32_t)most};
    rows->microbatches = arena_new_array(&costs->arena, SampleCount, most);
    for (int n = 1; n <= costs->microbatches; n++)
        if (times[n] > 0) rows->microbatches[rows->microbatch_kinds++] = (SampleCount){n, times[n]};
    rows->lengths = arena_new_array(&costs->arena, SampleCount, 1);
    rows->lengths[rows->length_kinds++] = (SampleCount){1, STEPS * 2 * costs->microbatches};
}

static inline void random_costs(Costs *costs, int variant, uint64_t seed)
{
    random_costs_sized(costs, variant, seed, 8, 5);
}

#endif
