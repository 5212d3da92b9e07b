#include "profiler/model_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A device without specification is taken for one core of a current server, per thread. Plans compare devices, so what
 * matters is that all unspecified devices get the same. */
static const double default_gflops_per_thread = 60, default_bandwidth_per_thread = 12e9;
static const double seconds_per_call = 2e-6; /* starting a kernel on a few threads */

typedef struct Speed {
    double flops, bytes; /* per second */
} Speed;

static double roofline_s(const Kernel *kernel, Speed speed)
{
    return seconds_per_call + fmax(kernel_flops(kernel) / speed.flops, kernel_bytes(kernel) / speed.bytes);
}

static int by_hash(const void *a, const void *b)
{
    const Hash *x = &((const KernelTime *)a)->kernel, *y = &((const KernelTime *)b)->kernel;
    if (x->high != y->high) return x->high < y->high ? -1 : 1;
    return x->low < y->low ? -1 : x->low > y->low;
}

void profile_sort(Profile *profile)
{
    if (profile->kernel_count) qsort(profile->kernels, profile->kernel_count, sizeof *profile->kernels, by_hash);
}

static const KernelTime *find_time(const Profile *profile, const Kernel *kernel)
{
    KernelTime key = {.kernel = kernel_hash(kernel)};
    return profile->kernel_count ? bsearch(&key, profile->kernels, profile->kernel_count, sizeof key, by_hash) : NULL;
}

static double calls_s(const SkyCall *calls, uint32_t count, const Profile *profile, Speed speed, size_t *missing)
{
    double seconds = 0;
    for (uint32_t i = 0; i < count; i++) {
        const Kernel *kernel = calls[i].interpreted;
        const KernelTime *time = profile ? find_time(profile, kernel) : NULL;
        if (profile && !time) ++*missing;
        seconds += time ? time->seconds : roofline_s(kernel, speed);
    }
    return seconds;
}

static int64_t tensors_bytes(const SkyTensor *tensors, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += (int64_t)tensors[i].bytes;
    return bytes;
}

static void layer_memory(LayerCost *layer, const SkyStage *stage)
{
    layer->state_bytes = (int64_t)(stage->space_bytes[SKY_SPACE_STATE] + stage->space_bytes[SKY_SPACE_CONSTANT]);
    layer->stash_bytes = (int64_t)stage->space_bytes[SKY_SPACE_SLOT];
    layer->output_bytes = tensors_bytes(stage->send_forward, stage->send_forward_count);
    /* In a longer stage the gradient that passes between two of its layers is scratch, not a boundary. */
    layer->scratch_bytes = (int64_t)stage->space_bytes[SKY_SPACE_SCRATCH] +
                           tensors_bytes(stage->receive_backward, stage->receive_backward_count) +
                           tensors_bytes(stage->send_backward, stage->send_backward_count);
}

static Speed device_speed(const ClusterDevice *device)
{
    int threads = device ? device->threads : 1;
    Speed speed = {default_gflops_per_thread * 1e9 * threads, default_bandwidth_per_thread * threads};
    if (device && device->gflops > 0) speed.flops = device->gflops * 1e9;
    if (device && device->bandwidth_Bps > 0) speed.bytes = device->bandwidth_Bps;
    return speed;
}

static void set_devices(Costs *costs, const Cluster *cluster)
{
    costs->device_count = cluster->device_count;
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)cluster->device_count);
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        costs->devices[d] = (DeviceCost){.name = arena_string(&costs->arena, device->name),
                                         .slowdown = device->slowdown,
                                         .memory_bytes = device->memory_bytes,
                                         .region = cluster->has_links ? device->zone : -1};
    }
    if (!cluster->has_links) return;
    int zones = cluster->zone_count;
    costs->region_count = zones;
    costs->region_names = arena_new_array(&costs->arena, const char *, (size_t)zones);
    costs->latency_s = arena_new_array(&costs->arena, double, (size_t)zones *(size_t)zones);
    costs->bandwidth_Bps = arena_new_array(&costs->arena, double, (size_t)zones *(size_t)zones);
    for (int i = 0; i < zones; i++) costs->region_names[i] = arena_string(&costs->arena, cluster->zone_names[i]);
    for (int i = 0; i < zones * zones; i++) {
        costs->latency_s[i] = cluster->links[i].latency_s;
        costs->bandwidth_Bps[i] = fmin(cluster->links[i].bandwidth_Bps, 1e18); /* free links: finite in the file */
    }
}

static const char *device_name(Costs *costs, int device) { return device < 0 ? NULL : costs->devices[device].name; }

/* Times of the device's own, where its specification differs from the reference's. */
static void set_device_times(Costs *costs, int device, const Cluster *cluster, int layer, const SkyStage *stage,
                             const Profile *profile)
{
    const ClusterDevice *from = &cluster->devices[device];
    DeviceCost *to = &costs->devices[device];
    bool specified = from->gflops > 0 || from->bandwidth_Bps > 0 || from->threads > 1;
    if (profile || !specified) return;
    if (!to->forward_s) {
        size_t layers = (size_t)costs->layer_count;
        to->forward_s = arena_new_array(&costs->arena, double, layers);
        to->backward_s = arena_new_array(&costs->arena, double, layers);
        to->update_s = arena_new_array(&costs->arena, double, layers);
    }
    Speed speed = device_speed(from);
    size_t missing = 0;
    to->forward_s[layer] = from->slowdown * calls_s(stage->forward, stage->forward_count, NULL, speed, &missing);
    to->backward_s[layer] = from->slowdown * calls_s(stage->backward, stage->backward_count, NULL, speed, &missing);
    to->update_s[layer] = from->slowdown * calls_s(stage->update, stage->update_count, NULL, speed, &missing);
}

bool model_costs(Costs *costs, Graph *graph, const Cluster *cluster, const Profile *profile, const char *name,
                 const char *model_hash, int microbatches, Diagnostics *diagnostics)
{
    *costs = (Costs){.microbatches = microbatches, .layer_count = graph->layer_count};
    costs->name = arena_string(&costs->arena, name);
    costs->model_hash = arena_string(&costs->arena, model_hash);
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)graph->layer_count);
    set_devices(costs, cluster);
    costs->keep_inputs = device_name(costs, cluster->keep_inputs);
    costs->keep_labels = device_name(costs, cluster->keep_labels);

    Speed reference = device_speed(NULL);
    size_t missing = 0;
    for (int l = 0; l < graph->layer_count; l++) {
        StageCode code;
        stage_build(&code, graph, l, l);
        LayerCost *layer = &costs->layers[l];
        layer->name = arena_string(&costs->arena, graph->layer_names[l]);
        layer_memory(layer, &code.stage);
        layer->forward_s = calls_s(code.stage.forward, code.stage.forward_count, profile, reference, &missing);
        layer->backward_s = calls_s(code.stage.backward, code.stage.backward_count, profile, reference, &missing);
        layer->update_s = calls_s(code.stage.update, code.stage.update_count, profile, reference, &missing);
        for (int d = 0; d < cluster->device_count; d++) set_device_times(costs, d, cluster, l, &code.stage, profile);
        stage_free(&code);
    }
    if (missing)
        diagnostics_warning(diagnostics, PLACE_NONE, "run skycc probe with this model, micro-batch and sequence length",
                            "the profile lacks %zu kernel calls of this model; their times are estimated", missing);
    return costs_check(costs, "the model's costs", diagnostics);
}
