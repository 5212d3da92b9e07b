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
#include "partitioner/planner/packing.h"
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

/* What packing a model needs: the model is imported once, its graph is made for every form that is tried. */
typedef struct Packing {
    PlannedModel *planned;
    const PlanModelOptions *options;
    PackingWish wish;
} Packing;

/* Makes the graph for the form that packing_choose chooses. */
static bool make_form(Packing *packing, int microbatches, bool whole, Diagnostics *diagnostics)
{
    PlannedModel *planned = packing->planned;
    planned->rows = packing_choose(&packing->wish, microbatches, whole, &planned->arena);
    planned->packed.packing = planned->rows.packing;
    planned->most_microbatches = (int)packing_most_microbatches(&planned->packed.packing);
    if (planned->most_microbatches > COSTS_MAX_MICROBATCHES)
        return usage_error(diagnostics, "lower --microbatches",
                           "%d micro-batches may be needed for a batch, more than %d", planned->most_microbatches,
                           COSTS_MAX_MICROBATCHES);
    return training_model_make(&planned->model, &planned->packed, diagnostics);
}

/* If all lines of a micro-batch must be computed, another form is cheaper. Its errors were reported for the first. */
static bool pack(Packing *packing, int microbatches, Diagnostics *diagnostics)
{
    const ModelOptions *load = &packing->planned->packed;
    if (!make_form(packing, microbatches, false, diagnostics)) return false;
    if (load->packing.lines < 2 || !load->train || load->last_pass || lines_vary(&packing->planned->model)) return true;
    Diagnostics ignored = {0};
    bool ok = make_form(packing, microbatches, true, &ignored);
    diagnostics_free(&ignored);
    return ok;
}

/* A MicrobatchRate, of the heuristic allocation as for rows of one length. Errors of the model are reported later. */
static double train_rows(void *context, int microbatches)
{
    Packing *packing = context;
    PlannedModel *planned = packing->planned;
    PlanModelOptions trying = *packing->options;
    Diagnostics ignored = {0};
    trying.request.microbatches = microbatches;
    trying.request.allocate = PLAN_HEURISTIC;
    trying.request.watch = NULL;
    bool ok = pack(packing, microbatches, &ignored) && planned_model_costs(planned, &trying, &ignored) &&
              planned_model_plan(planned, &trying, &ignored);
    double rows = ok ? (double)planned->costs.rows.packing.rows / (double)planned->plan.step_ns : 0;
    plan_free(&planned->plan);
    costs_free(&planned->costs);
    profile_free(&planned->profile);
    diagnostics_free(&ignored);
    return rows;
}

static bool load_packed(PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    const LengthOptions *lengths = &planned->packed.lengths;
    Packing packing = {.planned = planned, .options = options};
    RowLengths rows = {0};
    int microbatches = options->request.microbatches ? options->request.microbatches : DEFAULT_MICROBATCHES;
    if (strcmp(planned->path, "-") == 0)
        return usage_error(diagnostics, "write the model to a file",
                           "with several lengths the model is read twice, which standard input cannot be");
    bool ok = packed_model_import(&planned->model, planned->path, &planned->packed, diagnostics) &&
              packed_lengths_read(&rows, lengths, diagnostics);
    packing.wish = (PackingWish){.lengths = rows.lengths,
                                 .count = rows.rows,
                                 .longest = (uint32_t)lengths->list[lengths->count - 1],
                                 .rows = planned->model.imported.batch_size};
    if (ok && microbatches == PLAN_MICROBATCHES_AUTO)
        microbatches = microbatches_choose_by_rate(train_rows, &packing, &planned->rows_gain);
    ok = ok && pack(&packing, microbatches, diagnostics);
    row_lengths_free(&rows);
    return ok;
}

void planned_model_tell_packing(const PlannedModel *planned, bool quiet)
{
    const SkyPacking *packing = &planned->model.graph.packing;
    const RowSamples *rows = &planned->rows;
    if (!packing->slots || quiet) return;
    text_print(
        stderr,
        "Packing: each micro-batch holds %u packed sequence%s of %u tokens, with at most %u rows each. A step of %u "
        "rows takes %.1f micro-batches on average (%d-%d in 64 sampled steps, never more than %d).\n"
        "Padding: %.1f%% of the tokens computed (%.1f%% without packing).\n",
        packing->lines, packing->lines > 1 ? "s" : "", packing->length, packing->slots, packing->rows,
        row_samples_mean(rows), rows->microbatches[0].value, row_samples_worst(rows), planned->most_microbatches,
        100 * row_samples_padding(rows), 100 * row_samples_padded(rows));
}

bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics)
{
    planned->path = path;
    planned->packed = *load;
    planned->packed.want_loss = true;
    if (!cluster_read_with(&planned->cluster, options->cluster, options->added.items, (int)options->added.count,
                           diagnostics))
        return false;
    if (!load->lengths.dimension && load->lengths.data)
        return usage_error(diagnostics, "add, for example, --dim seq=auto:128",
                           "--lengths needs a --dim with several lengths");
    bool ok = load->lengths.dimension ? load_packed(planned, options, diagnostics)
                                      : training_model_load(&planned->model, path, &planned->packed, diagnostics);
    return ok && (!loss_compares_rows(load->loss) || options->request.microbatches == 1 ||
                  usage_error(diagnostics, "use --microbatches 1",
                              "--loss %s compares all rows of a batch, so it needs a single micro-batch", load->loss));
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

/* Plans limit only the memory of stages; a process needs more. */
static void warn_of_processes(const Plan *plan, const Cluster *cluster, Diagnostics *diagnostics)
{
    char text[3][REPORT_TEXT], others[32] = "";
    int over = -1, count = 0;
    for (int r = plan->rank_count - 1; r >= 0; r--) {
        int device = cluster_find_device(cluster, plan->ranks[r].device); /* -1: a device added to costs */
        if (device < 0 || plan_rank_process(plan, r) <= cluster->devices[device].memory_bytes) continue;
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
