#include "driver/compile/plan_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "driver/compile/local_program.h"
#include "driver/compile/pins.h"
#include "graph/analysis/layer_work.h"
#include "partitioner/planner/replicated.h"
#include "partitioner/report/report.h"
#include "profiler/costs/added_devices.h"

bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics)
{
    return costs_read(&planned->costs, path, diagnostics) &&
           costs_add_devices(&planned->costs, options->added.items, (int)options->added.count, diagnostics);
}

void planned_model_tell_packing(const PlannedModel *planned, bool quiet)
{
    const SkyPacking *packing = &planned->model.graph.packing;
    const RowSamples *rows = &planned->rows;
    char line[BATCH_CHOICE_LINE];
    if (planned->batch.rows && !quiet)
        text_print(stderr, "%s\n",
                   batch_choice_line(&planned->batch, packing->slots ? row_samples_mean(rows) : 0, line));
    if (!packing->slots || quiet) return;
    text_print(
        stderr,
        "Packing: each micro-batch holds %u packed sequence%s of %u tokens, with at most %u rows each. A step of %u "
        "rows takes %.1f micro-batches on average (%d-%d in 64 sampled steps, never more than %d).\n"
        "Padding: %.1f%% of the tokens computed (%.1f%% without packing).\n",
        packing->lines, packing->lines > 1 ? "s" : "", packing->length, packing->slots, packing->rows,
        row_samples_mean(rows), rows->microbatches[0].value, row_samples_worst(rows), planned->microbatches,
        100 * row_samples_padding(rows), 100 * row_samples_padded(rows));
}

const char *planned_model_name(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return arena_string_n(arena, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

/* Of rows of one length; 0: not known. */
static int64_t microbatch_rows(const Graph *graph)
{
    const Shape *shape = graph->input_count ? &graph_value(graph, graph->inputs[0])->shape : NULL;
    return graph->packing.slots || !shape || !shape->rank ? 0 : shape->dim[0];
}

bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    char hash[33];
    int microbatches = planned->microbatches > 0 ? planned->microbatches : PLAN_MICROBATCHES_DEFAULT;
    bool holds_all = plan_schedule_traits(options->request.schedule).holds_all;
    int most = holds_all ? microbatches : planned->cluster.device_count;
    if (options->profile && !planned->profiled && !profile_read(&planned->profile, options->profile, diagnostics))
        return false;
    planned->profiled = true;
    if (planned->cluster.device_count > 1) layers_warn_of_large(&planned->model.graph, diagnostics);
    if (!model_costs(&planned->costs, &planned->model.graph, planned->model.precision, &planned->cluster,
                     options->profile ? &planned->profile : NULL,
                     planned_model_name(&planned->model.graph.arena, planned->path),
                     hash_format(planned->model.imported.onnx.hash, hash), microbatches,
                     most < microbatches ? most : microbatches, options->request.codecs,
                     options->clip > 0 ? program_norm_bytes(&planned->model.graph) : 0, diagnostics))
        return false;
    model_costs_expect_rows(&planned->costs, &planned->rows);
    planned->costs.batch = batch_choice_copy(&planned->batch, &planned->costs.arena);
    planned->costs.microbatch_rows = microbatch_rows(&planned->model.graph);
    return true;
}

/* Plans limit only the memory of stages; a process needs more. */
static void warn_of_processes(const Plan *plan, const Cluster *cluster, Diagnostics *diagnostics)
{
    char text[3][REPORT_TEXT], others[32] = "";
    int over = -1, count = 0;
    for (int r = plan->rank_count - 1; r >= 0; r--) {
        int device = cluster_find_device(cluster, plan->ranks[r].device);   /* -1: a device added to costs */
        if (device < 0 || cluster->devices[device].opencl_device) continue; /* its process is in the host's memory */
        if (plan_rank_process(plan, r) <= cluster->devices[device].memory_bytes) continue;
        over = r;
        count++;
    }
    if (over < 0) return;
    if (count > 1) snprintf(others, sizeof others, " (and %d more)", count - 1);
    const ClusterDevice *device = &cluster->devices[cluster_find_device(cluster, plan->ranks[over].device)];
    diagnostics_warning(
        diagnostics, PLACE_NONE, "if the device has no more memory, add 'reserve: auto' to it in the cluster file",
        "'%s' has %s of memory and its stages need %s, but with the program and MPI its process takes up to %s%s",
        device->name, report_bytes(device->memory_bytes, text[0]), report_bytes(plan_rank_memory(plan, over), text[1]),
        report_bytes(plan_rank_process(plan, over), text[2]), others);
}

/* Rows of a step; 0: not known. */
static int64_t step_rows(const PlannedModel *planned)
{
    if (!planned->path) return planned->costs.batch.rows;
    if (planned->model.graph.packing.slots) return planned->model.graph.packing.rows;
    return planned->microbatches < 1 ? 0 : costs_step_rows(&planned->costs, planned->microbatches);
}

/* Where nothing fits, and --recompute leaves that open, layers keep only their inputs. */
static bool plan_or_recompute_layers(PlannedModel *planned, const PlanModelOptions *options, PlanRequest *request,
                                     Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics first = {0}, ignored = {0};
    bool ok = plan_make_replicas(&planned->plan, &planned->costs, request, &first);
    bool again = !ok && first.exit_code == EXIT_NO_PLAN && request->recompute == PLAN_RECOMPUTE_AUTO && planned->path &&
                 planned->model.graph.loss;
    if (again) {
        plan_free(&planned->plan);
        costs_free(&planned->costs);
        planned->plan = (Plan){0};
        planned->packed.recompute_layers = planned->packed.train = true;
        request->recompute = PLAN_RECOMPUTE_LAYERS;
        ok = training_model_make(&planned->model, &planned->packed, &ignored) &&
             planned_model_costs(planned, options, &ignored) &&
             plan_make_replicas(&planned->plan, &planned->costs, request, diagnostics);
    } else {
        diagnostics_append(diagnostics, &first);
    }
    return ok;
}

bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    PlanRequest request = options->request;
    if (planned->path) request.microbatches = planned->microbatches; /* costs bring their own */
    request.rows = step_rows(planned);
    planned->advice_deadline = isinf(request.time_limit_s) ? 0 : monotonic_seconds() + request.time_limit_s + 0.5;
    request.without = options->without.items;
    request.without_count = (int)options->without.count;
    request.pin_count = (int)options->pins.count;
    request.pins = pins_read(options->pins.items, request.pin_count, &planned->costs, &planned->arena, diagnostics);
    if (request.replicas > 1 && planned->model.graph.whole_batches)
        return usage_error(diagnostics, "leave out --replicas",
                           "--replicas %d: the loss compares all rows of a batch, so they stay on one pipeline",
                           request.replicas);
    if (planned->model.graph.whole_batches) request.replicas = 1;
    if (!request.pins || !plan_or_recompute_layers(planned, options, &request, diagnostics)) return false;
    if (planned->rows_gain != 0) planned->plan.microbatches_gain = planned->rows_gain;
    warn_of_processes(&planned->plan, &planned->cluster, diagnostics);
    return true;
}

bool plan_check_limit(const Plan *plan, const char *called, double seconds, Diagnostics *diagnostics)
{
    double found = (double)plan_value_ns(plan) / 1e9;
    if (found <= seconds) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL,
                             "%s %s takes %g s, more than the allowed %g s", called,
                             plan_objective_name(plan->objective), found, seconds);
}

void planned_model_free(PlannedModel *planned)
{
    arena_free(&planned->arena);
    plan_free(&planned->plan);
    costs_free(&planned->costs);
    profile_free(&planned->profile);
    training_model_free(&planned->model);
    cluster_free(&planned->cluster);
}
