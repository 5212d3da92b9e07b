#include "profiler/costs/costs.h"

#include <string.h>

static double seconds(const DeviceCost *device, const double *own, double reference, int layer)
{
    return own ? own[layer] : device->slowdown * reference;
}

double costs_forward_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return seconds(d, d->forward_s, costs->layers[layer].forward_s, layer);
}

double costs_backward_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return seconds(d, d->backward_s, costs->layers[layer].backward_s, layer);
}

double costs_update_s(const Costs *costs, int device, int layer)
{
    const DeviceCost *d = &costs->devices[device];
    return seconds(d, d->update_s, costs->layers[layer].update_s, layer);
}

double costs_sum_s(const Costs *costs, int device, int layer)
{
    return costs->devices[device].sum_s * (double)costs->layers[layer].summed_bytes;
}

int64_t costs_step_rows(const Costs *costs, int microbatches)
{
    if (costs->rows.microbatch_kinds) return costs->rows.packing.rows;
    return costs->batch.rows ? costs->batch.rows : costs->microbatch_rows * microbatches;
}

int costs_find_device(const Costs *costs, const char *name)
{
    for (int i = 0; i < costs->device_count; i++)
        if (strcmp(costs->devices[i].name, name) == 0) return i;
    return -1;
}

bool costs_read_input(const Costs *costs, int first, int last, const char *input)
{
    for (int l = first; l <= last; l++)
        for (int i = 0; i < costs->layers[l].input_count; i++)
            if (strcmp(costs->layers[l].inputs[i].name, input) == 0) return true;
    return false;
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
