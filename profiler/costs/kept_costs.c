#include "profiler/costs/kept_costs.h"

#include <math.h>
#include <stddef.h>

KeptCosts kept_costs_open(const Costs *costs)
{
    KeptCosts kept = {0};
    kept.devices = arena_new_array(&kept.arena, KeptGain *, (size_t)costs->device_count);
    return kept;
}

void kept_costs_close(KeptCosts *kept) { arena_free(&kept->arena); }

KeptGain *kept_costs_gain(KeptCosts *kept, const Costs *costs, int device, int layer)
{
    KeptGain **gains = device < 0 ? &kept->reference : &kept->devices[device];
    if (!*gains) *gains = arena_new_array(&kept->arena, KeptGain, (size_t)costs->layer_count);
    return &(*gains)[layer];
}

/* Memory with which compiling keeps weights, whatever layers a plan gives to the device: for all of them, for what they
 * keep, and for the copy of their state that checkpoints make. */
static double sufficient_bytes(const Costs *costs, int64_t kept_bytes, int in_flight)
{
    enum { ENDS = 2, BUFFERS = 4, STAGES = 2 }; /* of a stage; of an end; of a device, at most */
    double bytes = (double)kept_bytes, scratch = 0, crossing = 0;
    for (int l = 0; l < costs->layer_count; l++) {
        const LayerCost *layer = &costs->layers[l];
        bytes += 2 * (double)layer->state_bytes + in_flight * (double)(layer->stash_bytes + layer->split_bytes);
        scratch = fmax(scratch, (double)layer->scratch_bytes);
        crossing = fmax(crossing, (double)(costs_output_bytes(layer, 0) + costs_output_bytes(layer, 1)));
    }
    return bytes + STAGES * (scratch + ENDS * (BUFFERS + in_flight) * crossing);
}

static double *times_of_reference(Costs *costs, double slowdown, size_t member)
{
    double *times = arena_new_array(&costs->arena, double, (size_t)costs->layer_count);
    for (int l = 0; l < costs->layer_count; l++)
        times[l] = slowdown * *(const double *)((const char *)&costs->layers[l] + member);
    return times;
}

static void give_own_times(Costs *costs, DeviceCost *device)
{
    if (device->forward_s) return;
    device->forward_s = times_of_reference(costs, device->slowdown, offsetof(LayerCost, forward_s));
    device->backward_s = times_of_reference(costs, device->slowdown, offsetof(LayerCost, backward_s));
    device->update_s = times_of_reference(costs, device->slowdown, offsetof(LayerCost, update_s));
}

static void take(double *forward, double *backward, double *update, KeptGain gain)
{
    *forward -= gain.forward;
    *backward -= gain.backward;
    *update += gain.forward + gain.backward;
}

void kept_costs_count(const KeptCosts *kept, Costs *costs, const Cluster *cluster, int in_flight)
{
    if (!kept->reference) return;
    double bytes = sufficient_bytes(costs, kept->bytes, in_flight);
    int keeping = 0;
    bool *keeps = arena_new_array(&costs->arena, bool, (size_t)costs->device_count);
    for (int d = 0; d < costs->device_count; d++) {
        const DeviceCost *device = &costs->devices[d];
        keeps[d] = !cluster->devices[d].opencl_device &&
                   (device->memory_bytes == COSTS_NO_LIMIT ||
                    bytes + (double)device->process_bytes <= (double)device->memory_bytes);
        keeping += keeps[d];
    }
    for (int d = 0; d < costs->device_count && keeping; d++) {
        DeviceCost *device = &costs->devices[d];
        if (!keeps[d]) give_own_times(costs, device);
        for (int l = 0; l < costs->layer_count && keeps[d] && device->forward_s; l++)
            take(&device->forward_s[l], &device->backward_s[l], &device->update_s[l], kept->devices[d][l]);
    }
    for (int l = 0; l < costs->layer_count && keeping; l++) {
        LayerCost *layer = &costs->layers[l];
        take(&layer->forward_s, &layer->backward_s, &layer->update_s, kept->reference[l]);
        layer->weight_gradient_s = fmin(layer->weight_gradient_s, layer->backward_s);
    }
}
