#include "profiler/costs/model_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/cluster.h"
#include "codegen/stage/memory_layout.h"
#include "codegen/stage/stage_kept.h"
#include "graph/analysis/cuts.h"
#include "profiler/costs/costs.h"
#include "profiler/costs/kept_costs.h"
#include "profiler/costs/model_sites.h"
#include "runtime/device/opencl_api.h"
#include "runtime/program/program.h"

/* A device without specification is taken for one core of a current server, per thread. Plans compare devices, so what
 * matters is that all unspecified devices get the same. */
static const double default_gflops_per_thread = 60, default_bandwidth_per_thread = 12e9;
static const double seconds_per_call = 2e-6; /* starting a kernel on a few threads */

/* Matrix products of bf16 numbers against float32's: what VDPBF16PS promises. AMX does more, emulation less; a profile
 * knows. */
static const double bf16_speedup = 2;

/* What a process takes in addition to its stages, as they are laid out: the program, the C library, MPICH with its
 * messages inside a host, copies of what is read or written, and threads with the panels of their products. Measured,
 * with MPICH 4.0 over UCX: 17 to 23 MB for 1 to 8 ranks of BERTs of two layers of 128 to twelve of 768. */
static const int64_t process_bytes = 22 << 20, process_thread_bytes = 1 << 20;

typedef struct Speed {
    double flops, bytes; /* per second */
} Speed;

/* What a matrix product takes before it runs at full speed: time for so many more multiply-adds along its shortest
 * extent (model_costs.h). Of several products in one kernel, as attention has, nothing depends on the micro-batch. */
static const double startup_rows = 12;
/* Of these, along the rows, for reordering the second factor, which products that keep it do once a step. */
static const double reordering_rows = 8;

static double startup_flops(const Kernel *kernel, const KernelGemm *gemm)
{
    int inner = kernel->axis_count - 1;
    if (gemm->row_axis < 0 || gemm->column_axis < 0 || kernel->axis_count > 3) return 0;
    double m = (double)kernel->extent[gemm->row_axis], n = (double)kernel->extent[gemm->column_axis],
           k = (double)kernel->extent[inner];
    double kept_rows = kernel->keeps_b ? reordering_rows : 0;
    return 2 * startup_rows * m * n * k / fmin(m, fmin(n, k)) - 2 * kept_rows * n * k;
}

/* Of a kernel that runs so many times in a call, on one line after the other. */
static double roofline_s(const Kernel *kernel, int times, Speed speed)
{
    KernelGemm gemm;
    double startup_s = 0;
    if (kernel_match_gemm(kernel, &gemm)) {
        startup_s = startup_flops(kernel, &gemm) / speed.flops;
        if (gemm.precision == PRODUCTS_BF16) speed.flops *= bf16_speedup;
    }
    double flops_s = startup_s + kernel_flops(kernel) / speed.flops;
    return seconds_per_call + times * fmax(flops_s, kernel_bytes(kernel) / speed.bytes);
}

/* Of the calls of a wave those that `chosen` says; NULL: all. */
static double wave_roofline_s(const SkyCall *wave, const bool *chosen, Speed speed)
{
    double seconds = 0;
    for (uint32_t i = 0; i < sky_wave_size(wave); i++)
        if (!chosen || chosen[i]) seconds += roofline_s(wave[i].interpreted, sky_call_runs(&wave[i]), speed);
    return seconds;
}

/* What a call list takes on a machine. `measured` may be NULL; *missing counts the calls that it lacks. */
static double calls_s(const SkyCall *calls, uint32_t count, const MachineProfile *measured, Speed speed,
                      size_t *missing)
{
    double seconds = 0;
    for (uint32_t i = 0; i < count; i += sky_wave_size(&calls[i])) {
        double time = measured ? machine_profile_seconds(measured, profile_work(&calls[i])) : -1;
        if (time < 0 && measured && measured->kernel_count) ++*missing;
        seconds += time >= 0 ? time : wave_roofline_s(&calls[i], NULL, speed);
    }
    return seconds;
}

static double list_s(const SkyCallList *list, const MachineProfile *measured, Speed speed, size_t *missing)
{
    return calls_s(list->calls, list->count, measured, speed, missing);
}

static int64_t tensors_bytes(const SkyTensor *tensors, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += (int64_t)tensors[i].bytes;
    return bytes;
}

/* The same as they are laid out. */
static int64_t placed_bytes(const SkyTensor *tensors, uint32_t count)
{
    int64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) bytes += (int64_t)align_bytes(tensors[i].bytes);
    return bytes;
}

/* What a stage that recomputes keeps of the layer in addition to its boundaries: inputs, outputs, the loss, and what
 * aligning those and four boundaries may take. */
static int64_t kept_bytes(const SkyStage *stage)
{
    int64_t alignment = 64, pieces = stage->input_count + stage->output_count + 1 + 4;
    return tensors_bytes(stage->inputs, stage->input_count) + tensors_bytes(stage->outputs, stage->output_count) +
           alignment * pieces;
}

static void add_gradient(LayerCost *layer, const SkyParameter *parameter)
{
    int64_t bytes = (int64_t)parameter->value.bytes;
    if (parameter->frozen) return;
    layer->gradient_bytes += bytes;
    if (parameter->reads == 0 || bytes <= layer->table_rows * layer->table_row_bytes) return;
    layer->table_rows = (int64_t)parameter->value.dim[0];
    layer->table_row_bytes = bytes / layer->table_rows;
    layer->table_reads = parameter->reads;
}

static void layer_memory(LayerCost *layer, const SkyStage *stage)
{
    for (uint32_t p = 0; p < stage->parameter_count; p++) add_gradient(layer, &stage->parameters[p]);
    layer->state_bytes = (int64_t)(stage->space_bytes[SKY_SPACE_STATE] + stage->space_bytes[SKY_SPACE_CONSTANT]);
    layer->stash_bytes = (int64_t)stage->space_bytes[SKY_SPACE_SLOT];
    layer->kept_bytes = kept_bytes(stage);
    layer->output_bytes = tensors_bytes(stage->send_forward, stage->send_forward_count);
    /* In a longer stage the gradient that passes between two of its layers is scratch, not a boundary. */
    layer->scratch_bytes = (int64_t)stage->space_bytes[SKY_SPACE_SCRATCH] +
                           placed_bytes(stage->receive_backward, stage->receive_backward_count) +
                           placed_bytes(stage->send_backward, stage->send_backward_count);
    int64_t back = tensors_bytes(stage->receive_backward, stage->receive_backward_count);
    if (back != layer->output_bytes) layer->output_backward_bytes = back;
}

/* What the layer, laid out by itself as `stage`, has in common with the layer before: what that one hands on is in the
 * slots of both, and so are the gradients that come back, which a stage of both has in its scratch. */
static void share_stash(LayerCost *before, const LayerCost *layer, const SkyStage *stage)
{
    int64_t shared = placed_bytes(stage->receive_forward, stage->receive_forward_count) +
                     2 * placed_bytes(stage->send_backward, stage->send_backward_count);
    if (shared > before->stash_bytes) shared = before->stash_bytes;
    before->shared_bytes = shared < layer->stash_bytes ? shared : layer->stash_bytes;
}

/* Groups of calls run on as many threads as a device has, each with room for a block of its own. A stage may need the
 * block of one layer together with the scratch of another, so all count it. */
static void add_blocks(Costs *costs, const Cluster *cluster, uint64_t block_bytes)
{
    int threads = 1;
    for (int d = 0; d < cluster->device_count; d++)
        if (cluster_blocks(&cluster->devices[d]) > threads) threads = cluster_blocks(&cluster->devices[d]);
    for (int l = 0; l < costs->layer_count; l++) costs->layers[l].scratch_bytes += (int64_t)block_bytes * threads;
}

/* Names of what the layer hands on and of the model's inputs that it reads. */
static void layer_tensors(Costs *costs, LayerCost *layer, const SkyStage *stage)
{
    layer->inputs = arena_new_array(&costs->arena, CostInput, stage->input_count);
    for (uint32_t i = 0; i < stage->input_count; i++)
        layer->inputs[layer->input_count++] =
            (CostInput){arena_string(&costs->arena, stage->inputs[i].name), (int64_t)stage->inputs[i].bytes};
    /* Values that passes made have numbers for names, which say nothing. */
    if (stage->send_forward_count > 0 && stage->send_forward[0].name[0] != '%')
        layer->output = arena_string(&costs->arena, stage->send_forward[0].name);
}

/* What splitting the layer's backward puts off, and keeps until then: of a gradient that comes from the next layer of
 * the same stage, too. */
static void layer_split(LayerCost *layer, const StageCode *code, const MachineProfile *measured, Speed speed)
{
    size_t ignored = 0;
    const SkyCallList *backward = &code->stage.lists[SKY_LIST_BACKWARD];
    const SkyCall *calls = backward->calls;
    for (uint32_t i = 0; i < backward->count; i += sky_wave_size(&calls[i]))
        layer->weight_gradient_s += calls_s(&calls[i], sky_wave_size(&calls[i]), measured, speed, &ignored) *
                                    wave_roofline_s(&calls[i], &code->puts_off[i], speed) /
                                    wave_roofline_s(&calls[i], NULL, speed);
    if (layer->weight_gradient_s > layer->backward_s) layer->weight_gradient_s = layer->backward_s; /* rounding */
    layer->split_bytes = (int64_t)code->split_bytes;
    if (layer->weight_gradient_s > 0)
        layer->split_bytes += placed_bytes(code->stage.receive_backward, code->stage.receive_backward_count);
}

/* Measured, else specified, else assumed. Both arguments may be NULL. */
static Speed machine_speed(const ClusterDevice *device, const MachineProfile *measured)
{
    int threads = device ? device->threads : 1;
    Speed speed = {default_gflops_per_thread * 1e9 * threads, default_bandwidth_per_thread * threads};
    if (device && device->gflops > 0) speed.flops = device->gflops * 1e9;
    if (device && device->bandwidth_Bps > 0) speed.bytes = device->bandwidth_Bps;
    if (measured && measured->gflops > 0) speed.flops = measured->gflops * 1e9;
    if (measured && measured->bandwidth_Bps > 0) speed.bytes = measured->bandwidth_Bps;
    return speed;
}

/* What stages may take of a device that has so much memory. */
static int64_t stages_limit(const ClusterDevice *device, int64_t memory_bytes, int64_t process)
{
    if (memory_bytes == CLUSTER_NO_LIMIT) return COSTS_NO_LIMIT;
    int64_t reserve = device->reserve_bytes == CLUSTER_RESERVE_PROCESS ? process : device->reserve_bytes;
    return reserve < memory_bytes ? memory_bytes - reserve : 0;
}

/* Which of this host's OpenCL devices it is: the memory of that. False after reporting that none is, or several are. */
static bool find_here(const ClusterDevice *device, int64_t *bytes, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int count;
    const OpenClDevice *devices = opencl_devices(&arena, &count, diagnostics), *chosen = NULL;
    if (devices) chosen = opencl_choose(devices, count, device->opencl_platform, device->opencl_device, diagnostics);
    if (chosen) *bytes = chosen->memory_bytes;
    return chosen != NULL;
}

/* `memory: auto` is what was measured, or what this host's device says. False after reporting. */
static bool find_memory(const ClusterDevice *device, const Profile *profile, int64_t *bytes, Diagnostics *diagnostics)
{
    const MachineProfile *own = profile ? profile_device(profile, device->name) : NULL;
    Place place = {.object = device->name};
    *bytes = device->memory_bytes;
    if (*bytes != CLUSTER_MEMORY_OF_DEVICE) return true;
    if (own && own->memory_bytes) return *bytes = own->memory_bytes, true;
    if (strcmp(device->host, "localhost") != 0)
        return diagnostics_error(
            diagnostics, EXIT_BAD_INPUT, place,
            "measure it with skycc probe and give --profile, or write its size in the cluster file",
            "memory: auto is not known here: the device is on host '%s', and no profile has it", device->host);
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    if (!find_here(device, bytes, &said))
        diagnostics_error(diagnostics, said.exit_code, place, said.first->hint, "memory: auto is not known here: %s",
                          said.first->message);
    return *bytes != CLUSTER_MEMORY_OF_DEVICE;
}

static bool set_devices(Costs *costs, const Cluster *cluster, const Profile *profile, bool linked,
                        Diagnostics *diagnostics)
{
    costs->device_count = cluster->device_count;
    costs->devices = arena_new_array(&costs->arena, DeviceCost, (size_t)cluster->device_count);
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        int64_t process = process_bytes + device->threads * process_thread_bytes, memory;
        if (!find_memory(device, profile, &memory, diagnostics)) return false;
        if (device->memory_bytes == CLUSTER_MEMORY_OF_DEVICE) memory /= cluster_memory_sharers(cluster, device);
        costs->devices[d] = (DeviceCost){.name = arena_string(&costs->arena, device->name),
                                         .slowdown = device->slowdown,
                                         .memory_bytes = stages_limit(device, memory, process),
                                         .process_bytes = process,
                                         .region = linked ? device->zone : -1,
                                         .site = device->site};
    }
    return true;
}

/* Where one machine stands for all devices, those of a host run on it, and share it where it has too few processors. */
static void set_hosts(Costs *costs, const Cluster *cluster, const MachineProfile *machine)
{
    bool shared = false;
    double *busy = arena_new_array(&costs->arena, double, (size_t)cluster->device_count);
    for (int d = 0; d < cluster->device_count; d++) {
        DeviceCost *device = &costs->devices[d];
        while (strcmp(cluster->devices[device->host].host, cluster->devices[d].host) != 0) device->host++;
        device->cores = cluster->devices[d].threads / fmax(1, device->slowdown);
        busy[device->host] += device->cores;
        shared |= busy[device->host] > machine->processors;
    }
    if (shared) costs->processors = machine->processors;
}

static void set_links(Costs *costs, const Cluster *cluster)
{
    int zones = cluster->zone_count;
    size_t pairs = (size_t)zones * (size_t)zones;
    costs->region_count = zones;
    costs->region_names = arena_new_array(&costs->arena, const char *, (size_t)zones);
    costs->latency_s = arena_new_array(&costs->arena, double, pairs);
    costs->bandwidth_Bps = arena_new_array(&costs->arena, double, pairs);
    for (int i = 0; i < zones; i++) costs->region_names[i] = arena_string(&costs->arena, cluster->zone_names[i]);
    for (int i = 0; i < zones * zones; i++) {
        costs->latency_s[i] = cluster->links[i].latency_s;
        costs->bandwidth_Bps[i] = fmin(cluster->links[i].bandwidth_Bps, 1e18); /* free links: finite in the file */
        if (!cluster->links[i].half_duplex) continue;
        if (!costs->half_duplex) costs->half_duplex = arena_new_array(&costs->arena, bool, pairs);
        costs->half_duplex[i] = true;
    }
}

static bool profile_has_machines(const Profile *profile)
{
    return profile->device_count || profile->reference.gflops > 0 || profile->reference.kernel_count;
}

/* What was measured between two devices holds for all devices of their zones. */
static void set_measured_links(Costs *costs, const Cluster *cluster, const Profile *profile)
{
    for (size_t l = 0; l < profile->link_count; l++) {
        const LinkProfile *link = &profile->links[l];
        int from = cluster_find_device(cluster, link->between[0]), to = cluster_find_device(cluster, link->between[1]);
        if (from < 0 || to < 0) continue; /* a device that has left the cluster since */
        int a = cluster->devices[from].zone, b = cluster->devices[to].zone, zones = cluster->zone_count;
        costs->latency_s[a * zones + b] = costs->latency_s[b * zones + a] = link->latency_s;
        costs->bandwidth_Bps[a * zones + b] = costs->bandwidth_Bps[b * zones + a] = link->bandwidth_Bps;
    }
}

/* What crosses a link of an OpenCL device is copied between its memory and the host's first. */
static bool has_copies(const Cluster *cluster, const Profile *profile)
{
    for (int d = 0; profile && d < cluster->device_count; d++) {
        const MachineProfile *own = profile_device(profile, cluster->devices[d].name);
        if (own && own->copy_Bps[0] > 0 && own->copy_Bps[1] > 0) return true;
    }
    return false;
}

static void add_copies(Costs *costs, const Cluster *cluster, const Profile *profile)
{
    int zones = cluster->zone_count;
    for (int d = 0; d < cluster->device_count; d++) {
        const MachineProfile *own = profile_device(profile, cluster->devices[d].name);
        if (!own || !(own->copy_Bps[0] > 0 && own->copy_Bps[1] > 0)) continue;
        double copy_Bps = fmin(own->copy_Bps[0], own->copy_Bps[1]);
        for (int i = 0; i < zones * zones; i++) {
            int ends = (i / zones == cluster->devices[d].zone) + (i % zones == cluster->devices[d].zone);
            costs->latency_s[i] += ends * own->copy_latency_s;
            costs->bandwidth_Bps[i] = 1 / (1 / costs->bandwidth_Bps[i] + ends / copy_Bps);
        }
    }
}

static const char *device_name(Costs *costs, int device) { return device < 0 ? NULL : costs->devices[device].name; }

/* Whether the device is not just a slower reference machine; `own` is what was measured on it. One that OpenCL reaches
 * never is: it has its own speed or that of the cluster file, even where a profile has that of CPUs. */
static bool differs(const ClusterDevice *device, const Profile *profile, const MachineProfile *own)
{
    bool specified = device->gflops > 0 || device->bandwidth_Bps > 0 || device->threads > 1;
    return device->opencl_device || (profile ? own != NULL : specified);
}

/* Programs may be compiled for another host; where this one is named, what is wrong is known before they start. */
static void warn_of_absence(const ClusterDevice *device, Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    int64_t bytes;
    if (device->memory_bytes != CLUSTER_MEMORY_OF_DEVICE && strcmp(device->host, "localhost") == 0 &&
        !find_here(device, &bytes, &said))
        diagnostics_warning(diagnostics, (Place){.object = device->name}, said.first->hint,
                            "training cannot start on this host: %s", said.first->message);
}

static void warn_of_guesses(const Cluster *cluster, const Profile *profile, Diagnostics *diagnostics)
{
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        if (!device->opencl_device || (profile && profile_device(profile, device->name))) continue;
        warn_of_absence(device, diagnostics);
        if (!(device->gflops > 0 && device->bandwidth_Bps > 0))
            diagnostics_warning(diagnostics, (Place){.object = device->name},
                                "measure it with skycc probe, or give both in the cluster file",
                                "the OpenCL device has no gflops or no bandwidth: the plan takes it for a CPU core "
                                "(%.0f GFLOP/s, %.0f GB/s) there",
                                default_gflops_per_thread, default_bandwidth_per_thread / 1e9);
    }
}

/* Whether estimates of the device are those of the one before it, as of devices that are listed by their `count`. */
static bool is_like_before(const Cluster *cluster, const Profile *profile, int device)
{
    if (device == 0) return false;
    const ClusterDevice *a = &cluster->devices[device - 1], *b = &cluster->devices[device];
    if (profile && (profile_device(profile, a->name) || profile_device(profile, b->name))) return false;
    Speed before = machine_speed(a, NULL), own = machine_speed(b, NULL);
    return differs(a, profile, NULL) && before.flops == own.flops && before.bytes == own.bytes &&
           a->slowdown == b->slowdown;
}

/* Of a layer's parameters, once a step: squares of the gradients, too, where their norm is clipped. */
static double update_s(const Costs *costs, const SkyStage *stage, const MachineProfile *measured, Speed speed,
                       size_t *missing)
{
    double squares = costs->norm_bytes > 0 ? list_s(&stage->lists[SKY_LIST_SQUARES], measured, speed, missing) : 0;
    return squares + list_s(&stage->lists[SKY_LIST_UPDATE], measured, speed, missing);
}

/* The times of one layer on such a device. */
static void set_device_times(Costs *costs, int device, const Cluster *cluster, int layer, const SkyStage *stage,
                             const Profile *profile, size_t *missing)
{
    const ClusterDevice *from = &cluster->devices[device];
    DeviceCost *to = &costs->devices[device];
    const MachineProfile *own = profile ? profile_device(profile, from->name) : NULL;
    if (!differs(from, profile, own)) return;
    if (!to->forward_s) {
        size_t layers = (size_t)costs->layer_count;
        to->forward_s = arena_new_array(&costs->arena, double, layers);
        to->backward_s = arena_new_array(&costs->arena, double, layers);
        to->update_s = arena_new_array(&costs->arena, double, layers);
    }
    if (is_like_before(cluster, profile, device)) {
        to->forward_s[layer] = to[-1].forward_s[layer];
        to->backward_s[layer] = to[-1].backward_s[layer];
        to->update_s[layer] = to[-1].update_s[layer];
        return;
    }
    Speed speed = machine_speed(from, own);
    to->forward_s[layer] = from->slowdown * list_s(&stage->lists[SKY_LIST_FORWARD], own, speed, missing);
    to->backward_s[layer] = from->slowdown * list_s(&stage->lists[SKY_LIST_BACKWARD], own, speed, missing);
    to->update_s[layer] = from->slowdown * update_s(costs, stage, own, speed, missing);
}

/* What a list takes less where weights are kept. A profile that lacks such products is of a machine without them. */
static double list_gain_s(const SkyCallList *plain, const SkyCallList *keeping, const MachineProfile *measured,
                          Speed speed)
{
    size_t missing = 0, missing_kept = 0;
    double before = list_s(plain, measured, speed, &missing), kept = list_s(keeping, measured, speed, &missing_kept);
    return missing_kept > missing ? 0 : fmax(0, before - kept);
}

static KeptGain layer_gain(const SkyStage *plain, const SkyStage *keeping, const ClusterDevice *device,
                           const MachineProfile *measured)
{
    const SkyCallList *before = plain->lists, *after = keeping->lists;
    Speed speed = machine_speed(device, measured);
    double slowdown = device ? device->slowdown : 1;
    return (KeptGain){slowdown * list_gain_s(&before[SKY_LIST_FORWARD], &after[SKY_LIST_FORWARD], measured, speed),
                      slowdown * list_gain_s(&before[SKY_LIST_BACKWARD], &after[SKY_LIST_BACKWARD], measured, speed)};
}

/* Of the layer that `code` is, on the reference and on devices with times of their own. */
static void set_gains(KeptCosts *kept, const Costs *costs, const Cluster *cluster, int layer, StageCode *code,
                      const Profile *profile)
{
    const SkyStage *plain = &code->stage;
    SkyStage keeping = *plain;
    int64_t bytes = (int64_t)stage_keep_weights(&keeping, &code->arena, UINT64_MAX);
    if (!bytes) return;
    kept->bytes += bytes;
    *kept_costs_gain(kept, costs, -1, layer) = layer_gain(plain, &keeping, NULL, profile ? &profile->reference : NULL);
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        const MachineProfile *own = profile ? profile_device(profile, device->name) : NULL;
        if (device->opencl_device || !differs(device, profile, own)) continue;
        *kept_costs_gain(kept, costs, d, layer) = is_like_before(cluster, profile, d)
                                                      ? *kept_costs_gain(kept, costs, d - 1, layer)
                                                      : layer_gain(plain, &keeping, device, own);
    }
}

/* Of a tensor that is large enough for everything but its bytes not to count. */
static double coding_s(Codec codec, int decodes, Speed speed)
{
    enum { ROWS = 1024, COLUMNS = 12 * CODEC_TILE };
    Kernel kernel;
    int64_t bytes = codec_row_bytes(codec, COLUMNS);
    kernel_begin(&kernel, "coding", 2, (int64_t[]){ROWS, COLUMNS});
    int row = kernel_operand(&kernel, DTYPE_F32, (int64_t[]){COLUMNS, 1});
    int coded = kernel_operand(&kernel, DTYPE_U8, (int64_t[]){bytes, 0});
    if (decodes)
        kernel_decode(&kernel, codec, row, coded);
    else
        kernel_encode(&kernel, codec, row, coded, 0, 0);
    return (roofline_s(&kernel, 1, speed) - seconds_per_call) / (4.0 * ROWS * COLUMNS);
}

/* What codecs make of what crosses the cuts, and what that takes. */
static void set_codings(Costs *costs, const Graph *graph, const Cluster *cluster, const Profile *profile)
{
    FREED CutBytes *cuts = cuts_measure(graph);
    for (int l = 0; l + 1 < costs->layer_count; l++)
        for (int codec = 1; codec < CODEC_COUNT; codec++)
            for (int d = 0; d < 2; d++) costs->layers[l].wire_bytes[d][codec] = cuts[l + 1].bytes[d][codec];
    for (int codec = 1; codec < CODEC_COUNT; codec++)
        for (int decodes = 0; decodes < 2; decodes++) {
            const MachineProfile *reference = profile ? &profile->reference : NULL;
            costs->coding_s[codec][decodes] = coding_s((Codec)codec, decodes, machine_speed(NULL, reference));
            for (int d = 0; d < cluster->device_count; d++) {
                const ClusterDevice *device = &cluster->devices[d];
                const MachineProfile *own = profile ? profile_device(profile, device->name) : NULL;
                if (!differs(device, profile, own)) continue;
                costs->devices[d].coding_s[codec][decodes] =
                    is_like_before(cluster, profile, d)
                        ? costs->devices[d - 1].coding_s[codec][decodes]
                        : device->slowdown * coding_s((Codec)codec, decodes, machine_speed(device, own));
            }
        }
}

bool model_costs(Costs *costs, Graph *graph, ProductPrecision precision, const Cluster *cluster, const Profile *profile,
                 const char *name, const char *model_hash, int microbatches, int in_flight, unsigned codecs,
                 int64_t norm_bytes, Diagnostics *diagnostics)
{
    *costs = (Costs){.microbatches = microbatches,
                     .layer_count = graph->layer_count,
                     .lines_vary = true,
                     .tokens_vary = true,
                     .norm_bytes = norm_bytes};
    costs->name = arena_string(&costs->arena, name);
    costs->model_hash = arena_string(&costs->arena, model_hash);
    costs->layers = arena_new_array(&costs->arena, LayerCost, (size_t)graph->layer_count);
    warn_of_guesses(cluster, profile, diagnostics);
    bool measured_links = profile && profile->link_count, copies = has_copies(cluster, profile);
    bool linked = cluster->has_links || measured_links || copies;
    if (!set_devices(costs, cluster, profile, linked, diagnostics)) {
        costs_free(costs);
        return false;
    }
    if (linked) set_links(costs, cluster);
    if (measured_links) set_measured_links(costs, cluster, profile);
    if (copies) add_copies(costs, cluster, profile);
    costs->keep_inputs = device_name(costs, cluster->keep_inputs);
    costs->keep_labels = device_name(costs, cluster->keep_labels);
    FREED_WITH(model_sites_close) ModelSites sites = model_sites_open(costs, cluster);

    if (profile && !profile_has_machines(profile)) profile = NULL; /* of links alone, as sites measure them */
    const MachineProfile *reference = profile ? &profile->reference : NULL;
    if (reference && reference->processors > 0) set_hosts(costs, cluster, reference);
    Speed speed = machine_speed(NULL, reference);
    size_t missing = 0;
    uint64_t block_bytes = 0;
    FREED_WITH(kept_costs_close) KeptCosts kept = kept_costs_open(costs);
    StageIndex *index = stage_index_create(graph, precision);
    for (int l = 0; l < graph->layer_count; l++) {
        FREED_WITH(stage_free) StageCode code = {0};
        stage_build_indexed(&code, index, l, l, STAGE_PLAIN);
        LayerCost *layer = &costs->layers[l];
        layer->name = arena_string(&costs->arena, graph->layer_names[l]);
        layer_memory(layer, &code.stage);
        if (l > 0) share_stash(layer - 1, layer, &code.stage);
        if (code.stage.space_bytes[SKY_SPACE_BLOCK] > block_bytes)
            block_bytes = code.stage.space_bytes[SKY_SPACE_BLOCK];
        layer_tensors(costs, layer, &code.stage);
        model_sites_add(&sites, l, &code.stage);
        layer->forward_s = list_s(&code.stage.lists[SKY_LIST_FORWARD], reference, speed, &missing);
        layer->backward_s = list_s(&code.stage.lists[SKY_LIST_BACKWARD], reference, speed, &missing);
        layer->update_s = update_s(costs, &code.stage, reference, speed, &missing);
        layer_split(layer, &code, reference, speed);
        costs->lines_vary &= code.lines_vary;
        costs->tokens_vary &= code.tokens_vary;
        for (int d = 0; d < cluster->device_count; d++) {
            costs->tokens_vary &= !cluster->devices[d].opencl_device;
            set_device_times(costs, d, cluster, l, &code.stage, profile, &missing);
        }
        if (precision == PRODUCTS_BF16 && microbatches > 1) set_gains(&kept, costs, cluster, l, &code, profile);
    }
    stage_index_free(index);
    add_blocks(costs, cluster, block_bytes);
    kept_costs_count(&kept, costs, cluster, in_flight);
    if (codecs & ~CODECS_LOSSLESS) set_codings(costs, graph, cluster, profile);
    costs->unmeasured = missing;
    if (missing)
        diagnostics_warning(diagnostics, PLACE_NONE, "run skycc probe with this model, micro-batch and sequence length",
                            "the profile lacks %zu kernel calls of this model; their times are estimated", missing);
    return costs_check(costs, "the model's costs", diagnostics);
}

static void multiply(double *seconds, int count, double factor)
{
    for (int i = 0; seconds && i < count; i++) seconds[i] *= factor;
}

void model_costs_expect_rows(Costs *costs, const RowSamples *rows)
{
    costs->rows = row_samples_copy(rows, &costs->arena);
    if (!costs->lines_vary) costs->rows.lines_computed = 0;
    if (!costs->lines_vary || !costs->tokens_vary) costs->rows.tokens_computed = 0;
    double share = row_samples_share(&costs->rows);
    for (int l = 0; l < costs->layer_count; l++) {
        LayerCost *layer = &costs->layers[l];
        layer->forward_s *= share;
        layer->backward_s *= share;
        layer->weight_gradient_s *= share;
    }
    for (int d = 0; d < costs->device_count; d++) {
        multiply(costs->devices[d].forward_s, costs->layer_count, share);
        multiply(costs->devices[d].backward_s, costs->layer_count, share);
    }
}
