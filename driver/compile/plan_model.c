#include "driver/compile/plan_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "codegen/stage/stage.h"
#include "driver/compile/local_program.h"
#include "driver/compile/pins.h"
#include "graph/analysis/layer_work.h"
#include "graph/passes/loss.h"
#include "partitioner/planner/microbatches.h"
#include "partitioner/problem.h"
#include "partitioner/report/report.h"
#include "profiler/costs/added_devices.h"
#include "runtime/program/row_packer.h"

enum { DEFAULT_MICROBATCHES = 8 };

bool planned_model_read_costs(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                              Diagnostics *diagnostics)
{
    return costs_read(&planned->costs, path, diagnostics) &&
           costs_add_devices(&planned->costs, options->added.items, (int)options->added.count, diagnostics);
}

/* ---- Rows of several lengths ---- */

/* Rows that a nanosecond trains with `microbatches` times the rows of a micro-batch in a step; 0: no plan was found. As
 * where rows have one length, of the heuristic allocation. What is wrong with the model is said when it is loaded. */
static double train_rows(const PlanModelOptions *options, const char *path, const ModelOptions *load, int microbatches)
{
    PlannedModel trial = {0};
    PlanModelOptions trying = *options;
    Diagnostics ignored = {0};
    trying.request.microbatches = microbatches;
    trying.request.allocate = PLAN_HEURISTIC;
    trying.request.watch = NULL;
    bool ok = planned_model_load(&trial, &trying, path, load, &ignored) &&
              planned_model_costs(&trial, &trying, &ignored) && planned_model_plan(&trial, &trying, &ignored);
    double rows = ok ? (double)trial.costs.rows.packing.rows / (double)trial.plan.step_ns : 0;
    planned_model_free(&trial);
    diagnostics_free(&ignored);
    return rows;
}

/* --microbatches auto, by the rule of partitioner/planner/microbatches.h. The form of micro-batches, and so the costs,
 * change with the rows of a step: each number of rows is planned with its own. */
static int choose_rows(const PlanModelOptions *options, const char *path, const ModelOptions *load, double *gain)
{
    int microbatches = 1;
    double rows = train_rows(options, path, load, microbatches);
    for (*gain = -1; microbatches < MICROBATCHES_MOST && rows > 0; microbatches *= 2) {
        double twice = train_rows(options, path, load, 2 * microbatches);
        *gain = twice / rows - 1;
        if (*gain < MICROBATCHES_GAIN) break;
        rows = twice;
    }
    return microbatches;
}

/* --dim with several lengths. */
static bool prepare_packing(PlannedModel *planned, const PlanModelOptions *options, ModelOptions *training,
                            Diagnostics *diagnostics)
{
    int microbatches = options->request.microbatches ? options->request.microbatches : DEFAULT_MICROBATCHES;
    if (!training->lengths.dimension)
        return !training->lengths.data ||
               diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "add for instance --dim seq=auto:128",
                                 "--lengths says how long rows are, but no --dim has several lengths");
    if (microbatches == PLAN_MICROBATCHES_AUTO)
        microbatches = choose_rows(options, planned->path, training, &planned->rows_gain);
    if (!packed_model_prepare(training, &planned->rows, planned->path, microbatches, &planned->arena, diagnostics))
        return false;
    planned->most_microbatches = (int)packing_most_microbatches(&training->packing);
    return planned->most_microbatches <= COSTS_MAX_MICROBATCHES ||
           diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "give fewer --microbatches",
                             "%d micro-batches may be needed for a batch, more than %d", planned->most_microbatches,
                             COSTS_MAX_MICROBATCHES);
}

void planned_model_tell_packing(const PlannedModel *planned, bool quiet)
{
    const SkyPacking *packing = &planned->model.graph.packing;
    const RowSamples *rows = &planned->rows;
    if (!packing->slots || quiet) return;
    text_print(stderr,
               "rows are packed: %u line%s of %u tokens a micro-batch, at most %u rows a line; a step of %u rows takes "
               "%.1f micro-batches (%d to %d in samples, at most %d), %.1f%% of what is computed is padding (%.1f%% if "
               "every row were padded)\n",
               packing->lines, packing->lines > 1 ? "s" : "", packing->length, packing->slots, packing->rows,
               row_samples_mean(rows), rows->microbatches[0].value, row_samples_worst(rows), planned->most_microbatches,
               100 * row_samples_padding(rows), 100 * row_samples_padded(rows));
}

/* Whether the last micro-batch of a step may have fewer lines than the others. */
static bool lines_vary(TrainingModel *model)
{
    Graph *graph = &model->graph;
    StageIndex *index = stage_index_create(graph, model->bf16_products);
    bool vary = true;
    for (int layer = 0; layer < graph->layer_count && vary; layer++) {
        StageCode code;
        stage_build_indexed(&code, index, layer, layer, STAGE_PLAIN);
        vary = code.lines_vary;
        stage_free(&code);
    }
    stage_index_free(index);
    return vary;
}

/* Where all lines of a micro-batch have to be computed, another form costs the least. What there is to say of the model is
 * said already. */
static bool pack_whole_lines(PlannedModel *planned, const PlanModelOptions *options, const ModelOptions *load,
                             Diagnostics *diagnostics)
{
    Diagnostics ignored = {0};
    ModelOptions training = *load;
    training.want_loss = training.lengths.whole = true;
    if (!prepare_packing(planned, options, &training, diagnostics)) return false;
    training_model_free(&planned->model);
    if (!training_model_load(&planned->model, planned->path, &training, &ignored))
        bug("%s was loaded for other lines, but not for these", planned->path);
    planned->packed = training;
    diagnostics_free(&ignored);
    return true;
}

bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics)
{
    ModelOptions training = *load;
    training.want_loss = true;
    planned->path = path;
    if (!cluster_read_with(&planned->cluster, options->cluster, options->added.items, (int)options->added.count,
                           diagnostics) ||
        !prepare_packing(planned, options, &training, diagnostics))
        return false;
    planned->packed = training;
    if (!training_model_load(&planned->model, path, &training, diagnostics)) return false;
    bool may_vary = training.packing.slots && training.packing.lines > 1 && load->train && !load->last_pass;
    if (may_vary && !lines_vary(&planned->model) && !pack_whole_lines(planned, options, load, diagnostics))
        return false;
    return !loss_compares_rows(load->loss) || options->request.microbatches == 1 ||
           diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "give --microbatches 1",
                             "--loss %s compares the rows of a batch, which several micro-batches would part",
                             load->loss);
}

const char *planned_model_name(Arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    return arena_string_n(arena, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

bool planned_model_costs(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    char hash[33];
    if (options->profile && !profile_read(&planned->profile, options->profile, diagnostics)) return false;
    if (planned->cluster.device_count > 1) layers_warn_of_large(&planned->model.graph, diagnostics);
    if (!model_costs(&planned->costs, &planned->model.graph, planned->model.bf16_products, &planned->cluster,
                     options->profile ? &planned->profile : NULL,
                     planned_model_name(&planned->model.graph.arena, planned->path),
                     hash_format(planned->model.imported.onnx.hash, hash),
                     planned->most_microbatches          ? planned->most_microbatches
                     : options->request.microbatches > 0 ? options->request.microbatches
                                                         : DEFAULT_MICROBATCHES,
                     options->request.codecs, diagnostics))
        return false;
    model_costs_expect_rows(&planned->costs, &planned->rows);
    if (options->clip > 0) planned->costs.norm_bytes = program_norm_bytes(&planned->model.graph);
    return true;
}

/* Stages alone are held to the memory that the cluster file gives; a process takes more. */
static void warn_of_processes(const Plan *plan, const Cluster *cluster, Diagnostics *diagnostics)
{
    char text[3][REPORT_TEXT], others[32] = "";
    int over = -1, count = 0;
    for (int r = plan->rank_count - 1; r >= 0; r--) {
        int device = cluster_find_device(cluster, plan->ranks[r].device); /* -1: one that was added to costs */
        if (device < 0 || plan_rank_process(plan, r) <= cluster->devices[device].memory_bytes) continue;
        over = r;
        count++;
    }
    if (over < 0) return;
    if (count > 1) snprintf(others, sizeof others, " (and %d more)", count - 1);
    const ClusterDevice *device = &cluster->devices[cluster_find_device(cluster, plan->ranks[over].device)];
    diagnostics_warning(
        diagnostics, PLACE_NONE, "if it has no more, write 'reserve: auto' beside its memory in the cluster file",
        "'%s' has %s of memory and stages of %s, but with the program and MPI its process takes up to "
        "%s%s",
        device->name, report_bytes(device->memory_bytes, text[0]), report_bytes(plan_rank_memory(plan, over), text[1]),
        report_bytes(plan_rank_process(plan, over), text[2]), others);
}

bool planned_model_plan(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    PlanRequest request = options->request;
    if (planned->most_microbatches) request.microbatches = planned->most_microbatches;
    if (planned->path && !request.microbatches) request.microbatches = DEFAULT_MICROBATCHES; /* costs bring their own */
    planned->advice_deadline = isinf(request.time_limit_s) ? 0 : monotonic_seconds() + request.time_limit_s + 0.5;
    request.without = options->without.items;
    request.without_count = (int)options->without.count;
    request.pin_count = (int)options->pins.count;
    request.pins = pins_read(options->pins.items, request.pin_count, &planned->costs, &planned->arena, diagnostics);
    if (!request.pins || !plan_make(&planned->plan, &planned->costs, &request, diagnostics)) return false;
    if (planned->rows_gain != 0) planned->plan.microbatches_gain = planned->rows_gain;
    warn_of_processes(&planned->plan, &planned->cluster, diagnostics);
    return true;
}

bool plan_check_limit(const Plan *plan, const char *called, double seconds, Diagnostics *diagnostics)
{
    double found = (double)plan_value_ns(plan) / 1e9;
    if (found <= seconds) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL,
                             "%s %s takes %g s, more than the %g s allowed", called,
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
