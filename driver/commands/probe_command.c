/* skycc probe: measures this machine and a model's kernels; under mpiexec also all devices and their links. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "codegen/stage/stage_kept.h"
#include "driver/commands/commands.h"
#include "driver/compile/local_program.h"
#include "driver/compile/microbatch_forms.h"
#include "driver/compile/plan_load.h"
#include "profiler/probe/measure.h"
#include "profiler/probe/probe_world.h"
#include "runtime/program/parallel.h"

typedef struct ProbedForm {
    int microbatches;
    bool measured;
    StageWorks works;
} ProbedForm;

typedef struct Probe {
    const Options *options;
    PlannedModel planned;
    ProbeWorld world;
    Profile profile;
    const ClusterDevice *opencl; /* measured now; NULL: a processor is */
    PlanModelOptions plan;       /* with the plans in mind that plan and compile make by default */
    MicrobatchForms forms; /* of a batch whose micro-batches planning chooses: some are measured, others lie between */
    bool keeps;            /* products of bf16 may keep weights there (codegen/stage/stage_kept.h) */
    /* Of the model in its present form, each built as a stage of its own; after them, as they keep weights, those that
     * can. NULL: not yet. */
    StageCode *layers;
    int layer_count, measured_count;
    LayerTraffic traffic; /* of these */
    ProbedForm probed[MICROBATCH_FORMS_MOST];
    int probed_count;
    double layer_s; /* after so long no further pass over a layer of an OpenCL device begins */
    double spread;  /* of the passes over a form that differ most, as a share of their mean */
} Probe;

static void note_spread(Probe *probe, const MeasurePasses *made)
{
    if (measure_passes_spread(made) > probe->spread) probe->spread = measure_passes_spread(made);
}

/* All passes over a layer use what the driver has compiled once, which takes it long. */
static bool measure_opencl_layer(Probe *probe, MachineProfile *machine, Execution *execution, Diagnostics *diagnostics)
{
    MeasurePasses made = {0};
    double begun = monotonic_seconds();
    do {
        MachineProfile pass = {.threads = machine->threads};
        if (!measure_stage(&pass, &probe->profile.arena, execution, probe->traffic, (MeasureCompany){0}, diagnostics))
            return false;
        measure_passes_add(&made, &probe->profile.arena, &pass);
    } while (!measure_passes_are_enough(&made) && monotonic_seconds() - begun < probe->layer_s);
    note_spread(probe, &made);
    machine_profile_merge(machine, &probe->profile.arena, &made.mean);
    return true;
}

/* Times the kernels of a layer, built as a stage of its own. */
static bool measure_layer(Probe *probe, MachineProfile *machine, const StageCode *code, Diagnostics *diagnostics)
{
    FREED_WITH(local_program_free) LocalProgram program = {0};
    MeasureCompany company = {0};
    if (!probe->opencl) company = measure_company(&probe->planned.cluster, machine->threads, parallel_processors());
    FREED Execution *executions = memory_allocate((size_t)(company.count + 1) * sizeof *executions);
    local_program_create(&program, &probe->planned.model, code);
    if (probe->opencl) local_program_bind_opencl(&program, probe->opencl);
    bool ok = probe->opencl || local_program_compile(&program, probe->options->target_cpu, diagnostics);
    int opened = 0;
    for (; ok && opened <= company.count; opened += ok) {
        int threads = opened ? 1 : machine->threads;
        ok = execution_open(&executions[opened], &program.program, threads, local_program_interpret, diagnostics);
        if (ok) program_make_up_inputs(&executions[opened]);
    }
    if (ok && probe->opencl)
        ok = measure_opencl_layer(probe, machine, executions, diagnostics);
    else if (ok)
        ok = measure_stage(machine, &probe->profile.arena, executions, probe->traffic, company, diagnostics);
    while (opened) execution_close(&executions[--opened]);
    return ok;
}

static void open_layers(Probe *probe)
{
    Graph *graph = &probe->planned.model.graph;
    StageIndex *index = stage_index_create(graph, probe->planned.model.precision);
    probe->layer_count = probe->measured_count = graph->layer_count;
    probe->layers = memory_allocate(2 * (size_t)graph->layer_count * sizeof *probe->layers);
    probe->traffic = (LayerTraffic){0};
    for (int layer = 0; layer < graph->layer_count; layer++) {
        StageCode *code = &probe->layers[layer];
        stage_build_indexed(code, index, layer, layer, STAGE_PLAIN);
        layer_traffic_add(&probe->traffic, &code->stage);
        code->stage.slot_count = 1;
        StageCode *keeping = &probe->layers[probe->measured_count];
        *keeping = *code; /* which owns what they share */
        if (probe->keeps && stage_keep_weights(&keeping->stage, &code->arena, UINT64_MAX)) probe->measured_count++;
    }
    stage_index_free(index);
}

static void close_layers(Probe *probe)
{
    for (int layer = 0; layer < probe->layer_count; layer++) stage_free(&probe->layers[layer]);
    free(probe->layers);
    probe->layers = NULL;
    probe->layer_count = probe->measured_count = 0;
}

/* Times all layers with kernels that `known` lacks. */
static bool measure_pass(Probe *probe, const MachineProfile *known, MachineProfile *pass, Diagnostics *diagnostics)
{
    for (int layer = 0; layer < probe->measured_count; layer++) {
        const StageCode *code = &probe->layers[layer];
        if (stage_is_measured(known, &code->stage) || stage_is_measured(pass, &code->stage)) continue;
        if (probe->opencl)
            text_print(stderr, "Device %s: layer %d of %d, whose kernels its driver compiles first\n",
                       probe->opencl->name, layer + 1, probe->layer_count);
        if (!measure_layer(probe, pass, code, diagnostics)) return false;
    }
    return true;
}

/* Times all layers, and so all kernels that a plan may use. */
static bool measure_layers(Probe *probe, MachineProfile *machine, Diagnostics *diagnostics)
{
    /* No pass of any form but the first begins later, or, of small models, after so many times what is measured. */
    static const double budget_s = 15, most_times = 250;
    MeasurePasses made = {0};
    double begun = monotonic_seconds(), share_s = budget_s / (probe->probed_count ? probe->probed_count : 1);
    probe->layer_s = share_s / probe->layer_count;
    do {
        MachineProfile pass = {.threads = machine->threads};
        if (!measure_pass(probe, machine, &pass, diagnostics)) return false;
        measure_passes_add(&made, &probe->profile.arena, &pass);
    } while (!probe->opencl && !measure_passes_are_enough(&made) &&
             monotonic_seconds() - begun < fmin(share_s, most_times * made.mean_total));
    note_spread(probe, &made);
    machine_profile_merge(machine, &probe->profile.arena, &made.mean);
    return true;
}

/* Makes the form if it can be made, lists what its layers do, and measures it if asked to. */
static bool measure_form(Probe *probe, MachineProfile *machine, ProbedForm *form, bool measures,
                         Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool made = microbatch_form_make(&probe->forms, form->microbatches, &ignored);
    if (!made) return true;
    free(form->works.hash);
    form->works = (StageWorks){0};
    open_layers(probe);
    for (int layer = 0; layer < probe->measured_count; layer++)
        stage_works_append(&form->works, &probe->layers[layer].stage);
    bool ok = !measures || measure_layers(probe, machine, diagnostics);
    close_layers(probe);
    return ok;
}

/* Whether planning may choose so many micro-batches: not those that it found too large. Of packings, which have nothing
 * between them, it is asked for the one that seems best and its neighbours. */
static bool may_be_chosen(const BatchChoice *batch, int microbatches, bool packed)
{
    int best = -1, asked = -1;
    for (int i = 0; i < batch->tried_count; i++) {
        const BatchTrial *trial = &batch->tried[i];
        if (trial->step_ns && (best < 0 || trial->step_ns < batch->tried[best].step_ns)) best = i;
        if (trial->microbatches == microbatches) asked = i;
    }
    if (!packed || asked < 0) return !packed && (asked < 0 || batch->tried[asked].step_ns);
    return batch->tried[asked].step_ns && abs(asked - best) <= 1;
}

/* Small micro-batches first. Of rows of one length every second size is measured, and the largest. */
static bool list_forms(Probe *probe, Diagnostics *diagnostics)
{
    PlannedModel *planned = &probe->planned;
    const BatchChoice *batch = &planned->batch;
    MicrobatchForms *forms = &probe->forms;
    *forms =
        (MicrobatchForms){planned, &probe->plan, .packed = planned->model.graph.packing.slots, .rows = batch->rows};
    if (batch->tried_count < 2) return true;
    int counts[MICROBATCH_FORMS_MOST];
    for (int i = microbatch_form_counts(forms, counts) - 1; i >= 0; i--)
        if (may_be_chosen(batch, counts[i], forms->packed))
            probe->probed[probe->probed_count++].microbatches = counts[i];
    for (int i = 0; i < probe->probed_count; i++)
        probe->probed[i].measured = forms->packed || i % 2 == 0 || i == probe->probed_count - 1;
    if (!forms->packed) return true;
    training_model_free(&planned->model);
    return microbatch_forms_import(forms, diagnostics);
}

/* One form after the other; then those that lie between two that were measured, if their kernels are alike. */
static bool measure_forms(Probe *probe, MachineProfile *machine, Diagnostics *diagnostics)
{
    ProbedForm *probed = probe->probed;
    double rows = (double)probe->forms.rows;
    if (!probe->probed_count) {
        open_layers(probe);
        bool ok = measure_layers(probe, machine, diagnostics);
        close_layers(probe);
        return ok;
    }
    for (int i = 0; i < probe->probed_count; i++)
        if (!measure_form(probe, machine, &probed[i], probed[i].measured, diagnostics)) return false;
    for (int i = 1; i + 1 < probe->probed_count; i++) {
        ProbedForm *form = &probed[i];
        const ProbedForm *fewer = form - 1, *more = form + 1;
        if (form->measured ||
            stage_works_interpolate(machine, &probe->profile.arena, &form->works, rows / form->microbatches,
                                    &fewer->works, rows / fewer->microbatches, &more->works, rows / more->microbatches))
            continue;
        if (!measure_form(probe, machine, form, true, diagnostics)) return false;
    }
    return true;
}

static void tell_forms(const Probe *probe)
{
    Buffer text[2] = {{0}, {0}};
    for (int i = 0; i < probe->probed_count; i++) {
        Buffer *list = &text[!probe->probed[i].measured];
        int n = probe->probed[i].microbatches;
        buffer_print(list, "%s%lld", list->size ? ", " : "",
                     probe->forms.packed ? n : (long long)probe->forms.rows / n);
    }
    bool packed = probe->forms.packed;
    if (text[0].size)
        text_print(stderr, "Micro-batches: measured with %s%s %s%s%s\n", packed ? "at least " : "",
                   buffer_text(&text[0]), packed ? "per step" : "rows", text[1].size ? "; interpolated: " : "",
                   text[1].size ? buffer_text(&text[1]) : "");
    buffer_free(&text[0]);
    buffer_free(&text[1]);
}

static bool measure_on_opencl(Probe *probe, MachineProfile *machine, const ClusterDevice *device,
                              Diagnostics *diagnostics)
{
    *machine = (MachineProfile){.threads = device->threads,
                                .target = arena_format(&probe->profile.arena, "opencl %s", device->opencl_device)};
    probe->opencl = device;
    probe->keeps = false;
    bool ok = measure_opencl(machine, device, diagnostics) && measure_forms(probe, machine, diagnostics);
    probe->opencl = NULL;
    return ok;
}

static bool measure(Probe *probe, MachineProfile *machine, int threads, Diagnostics *diagnostics)
{
    FREED_WITH(target_free) Target target = {0};
    *machine = (MachineProfile){.threads = threads};
    if (!target_init(&target, (TargetOptions){.cpu = probe->options->target_cpu}, diagnostics)) return false;
    machine->target = arena_string(&probe->profile.arena, target.cpu);
    probe->keeps = target.bf16 != BF16_NONE;
    bool ok = measure_machine(machine, &target, diagnostics);
    return ok && measure_forms(probe, machine, diagnostics);
}

static void warn_of_threads(const ClusterDevice *device, Diagnostics *diagnostics)
{
    if (device->threads > parallel_processors())
        diagnostics_warning(diagnostics, (Place){.object = device->name}, NULL,
                            "has %d threads, but this process may use only %d processors", device->threads,
                            parallel_processors());
}

static bool measure_device(Probe *probe, MachineProfile *machine, const ClusterDevice *device, Diagnostics *diagnostics)
{
    return device->opencl_device ? measure_on_opencl(probe, machine, device, diagnostics)
                                 : measure(probe, machine, device->threads, diagnostics);
}

/* Whether the device computes as the one that was measured under that name. */
static bool is_like(const Cluster *cluster, const ClusterDevice *device, const char *measured)
{
    const ClusterDevice *other = &cluster->devices[cluster_find_device(cluster, measured)];
    if (!device->opencl_device || !other->opencl_device)
        return !device->opencl_device && !other->opencl_device && device->threads == other->threads;
    return strcmp(device->opencl_device, other->opencl_device) == 0 &&
           strcmp(device->opencl_platform, other->opencl_platform) == 0;
}

/* Without mpiexec this machine stands for all devices; it is measured again for each number of threads. */
static bool probe_alone(Probe *probe, Diagnostics *diagnostics)
{
    Profile *profile = &probe->profile;
    const Cluster *cluster = &probe->planned.cluster;
    if (!measure(probe, &profile->reference, 1, diagnostics)) return false;
    profile->reference.processors = parallel_processors();
    profile->devices = arena_new_array(&profile->arena, MachineProfile, (size_t)cluster->device_count);
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *device = &cluster->devices[d];
        if (device->threads == 1 && !device->opencl_device) continue;
        MachineProfile *machine = &profile->devices[profile->device_count];
        const MachineProfile *same = NULL;
        for (size_t i = 0; i < profile->device_count; i++)
            if (is_like(cluster, device, profile->devices[i].device)) same = &profile->devices[i];
        if (!same && !device->opencl_device) warn_of_threads(device, diagnostics);
        if (same)
            *machine = *same;
        else if (!measure_device(probe, machine, device, diagnostics))
            return false;
        machine->device = device->name;
        profile->device_count++;
    }
    return profile_write(profile, probe->options->output, diagnostics);
}

/* Step times depend on how fast the machines are while they train. */
static void warn_of_noise(const Probe *probe, Diagnostics *diagnostics)
{
    enum { WORTH_SAYING = 5 };
    int percent = probe_world_agree(&probe->world, (int)(100 * probe->spread)); /* the largest */
    if (probe->world.rank == 0 && percent >= WORTH_SAYING)
        diagnostics_warning(diagnostics, PLACE_NONE, "if other programs ran, end them and probe again",
                            "the speed of this machine changed while it was measured (standard deviation %d%%): step "
                            "times may differ from their plan by as much",
                            percent);
}

static bool check_processes(const Probe *probe, Diagnostics *diagnostics)
{
    int devices = probe->planned.cluster.device_count, processes = probe->world.size;
    if (!probe->world.distributed || processes == devices) return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(probe->options->plan.cluster),
                             "start one process per device, in the order of the file",
                             "has %d devices, but the launcher started %d processes", devices, processes);
}

/* Whether all processes got here without an error; if not, all end with the same exit code. */
static bool agree(Probe *probe, bool ok, Diagnostics *diagnostics)
{
    int code = probe_world_agree(&probe->world, ok ? EXIT_OK : diagnostics->exit_code);
    if (code) diagnostics->exit_code = code;
    return !code;
}

/* Under mpiexec, this process is the device of its rank. */
static bool probe_together(Probe *probe, Diagnostics *diagnostics)
{
    const ProbeWorld *world = &probe->world;
    const Cluster *cluster = &probe->planned.cluster;
    Profile *profile = &probe->profile;
    const ClusterDevice *device = &cluster->devices[world->rank];
    MachineProfile own;
    probe_world_begin_turn(world, cluster);
    if (!device->opencl_device) warn_of_threads(device, diagnostics);
    bool ok = measure_device(probe, &own, device, diagnostics);
    if (world->rank == 0) {
        profile->reference = own;
        if (device->threads > 1 || device->opencl_device)
            ok = ok && measure(probe, &profile->reference, 1, diagnostics);
    }
    probe_world_end_turn(world, cluster);
    if (!agree(probe, ok, diagnostics)) return false;
    probe_world_gather(world, cluster, &own, profile);
    probe_world_measure_links(world, cluster, profile);
    if (world->rank > 0) return true;
    return profile_write(profile, probe->options->output, diagnostics);
}

static bool load(Probe *probe, Diagnostics *diagnostics)
{
    const Options *options = probe->options;
    ModelOptions load = options->load;
    load.train = true;
    load.import.no_weights = true; /* their values do not matter here */
    if (!options->model && options->plan.batch)
        return usage_error(diagnostics, "add a model, whose kernels are measured", "--batch needs a model");
    if (!options->model) return cluster_read(&probe->planned.cluster, options->plan.cluster, diagnostics);
    probe->plan = options->plan;
    probe->plan.request = PLAN_REQUEST_DEFAULT;
    probe->plan.request.microbatches = options->plan.request.microbatches;
    return planned_model_load(&probe->planned, &probe->plan, options->model, &load, diagnostics) &&
           list_forms(probe, diagnostics);
}

/* All processes read the same files and report the same: one of them prints it. */
static void say_once(const ProbeWorld *world, Diagnostics *diagnostics)
{
    FREED char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) memory_exhausted();
    diagnostics_print(diagnostics, stream);
    fclose(stream);
    if (!probe_world_speaks(world, hash_bytes(text, bytes))) diagnostics_free(diagnostics);
}

bool probe_command(const Options *options, Diagnostics *diagnostics)
{
    if (options->lists_devices) return probe_devices_command(options, diagnostics);
    if (options->site) return probe_sites_command(options, diagnostics);
    if (!options->plan.cluster || options->federation)
        return usage_error(diagnostics, "skycc probe --help lists the options",
                           options->federation ? "--federation needs --site NAME, which measures the links of one site"
                                               : "give a cluster with --cluster FILE");
    Probe probe = {.options = options};
    probe_world_open(&probe.world);
    bool ok = agree(&probe, load(&probe, diagnostics) && check_processes(&probe, diagnostics), diagnostics);
    int code = diagnostics->exit_code;
    say_once(&probe.world, diagnostics);
    diagnostics->exit_code = code; /* also of processes that say nothing */
    if (ok && probe.world.rank == 0) tell_forms(&probe);
    ok = ok && (probe.world.distributed ? probe_together(&probe, diagnostics) : probe_alone(&probe, diagnostics));
    warn_of_noise(&probe, diagnostics);
    for (int i = 0; i < probe.probed_count; i++) free(probe.probed[i].works.hash);
    row_lengths_free(&probe.forms.lengths);
    profile_free(&probe.profile);
    planned_model_free(&probe.planned);
    probe_world_close(&probe.world);
    return ok;
}
