#include "driver/compile/smaller_microbatches.h"

#include <string.h>

#include "driver/compile/microbatch_forms.h"

/* A second copy of the model, to be cut into smaller micro-batches. */
typedef struct Smaller {
    PlannedModel model;
    MicrobatchForms forms;
    int counts[MICROBATCH_FORMS_MOST], count; /* those above the plan's */
} Smaller;

/* Whether there is anything to try. Close in any case. */
static bool open(Smaller *smaller, const PlannedModel *planned, const PlanModelOptions *options)
{
    const TrainingModel *model = &planned->model;
    bool packed = planned->packed.packing.slots;
    int own = packed ? (int)row_samples_mean(&planned->rows) : planned->microbatches;
    *smaller = (Smaller){0};
    if (!planned->path || planned->batch.rows || planned->microbatches < 1 || strcmp(planned->path, "-") == 0 ||
        !model->imported.batch_dimension)
        return false;
    int64_t rows =
        packed ? planned->rows.packing.rows : graph_value(&model->source, model->source.inputs[0])->shape.dim[0] * own;
    smaller->model = (PlannedModel){.cluster = planned->cluster,
                                    .path = planned->path,
                                    .packed = planned->packed,
                                    .profile = planned->profile,
                                    .profiled = planned->profiled};
    smaller->forms = (MicrobatchForms){&smaller->model, options, .packed = packed, .rows = rows};
    smaller->model.packed.import.batch_rows = 0; /* whatever it is, it is imported anew */
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool ok = !packed || microbatch_forms_import(&smaller->forms, &ignored);
    int all[MICROBATCH_FORMS_MOST], listed = microbatch_form_counts(&smaller->forms, all);
    for (int i = 0; i < listed; i++)
        if (all[i] > own) smaller->counts[smaller->count++] = all[i];
    return ok && smaller->count > 0;
}

static void close(Smaller *smaller)
{
    row_lengths_free(&smaller->forms.lengths);
    arena_free(&smaller->model.arena);
    if (smaller->model.path) training_model_free(&smaller->model.model);
}

void smaller_microbatches_hint(const PlannedModel *planned, const PlanModelOptions *options, Diagnostics *diagnostics)
{
    Smaller smaller;
    Diagnostic *last = diagnostics->last;
    if (diagnostics->exit_code != EXIT_NO_PLAN || !last || !last->is_error) return;
    bool open_ok = open(&smaller, planned, options);
    int i = 0;
    while (open_ok && i < smaller.count && !microbatch_form_step_ns(&smaller.forms, smaller.counts[i], true)) i++;
    if (open_ok && i < smaller.count) {
        Arena *arena = &diagnostics->arena;
        long long rows = (long long)smaller.forms.rows;
        const char *what = smaller.forms.packed
                               ? arena_format(arena, "at least %d micro-batches of packed rows", smaller.counts[i])
                               : arena_format(arena, "micro-batches of %lld row%s", rows / smaller.counts[i],
                                              rows == smaller.counts[i] ? "" : "s");
        last->hint = arena_format(
            arena, "%s%s%s would be enough: --batch %lld, without --microbatches and --dim for the batch dimension",
            last->hint ? last->hint : "", last->hint ? "; or " : "", what, rows);
    }
    close(&smaller);
}

/* The plan's step by the heuristic allocation; 0: it finds none. */
static int64_t heuristic_step_ns(const PlannedModel *planned, const PlanModelOptions *options, Costs *costs)
{
    PlannedModel same = {.cluster = planned->cluster, .path = planned->path, .microbatches = planned->microbatches};
    PlanModelOptions quick = microbatch_form_quick(options);
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    same.costs = *costs;
    int64_t step = planned_model_plan(&same, &quick, &ignored) ? same.plan.step_ns : 0;
    plan_free(&same.plan);
    arena_free(&same.arena);
    return step;
}

/* Whether the plan would be quicker, by more than a hundredth, if no device had a memory limit. */
static bool is_limited(const PlannedModel *planned, const PlanModelOptions *options)
{
    Costs costs = planned->costs, unlimited = costs;
    FREED_WITH(arena_free) Arena arena = {0};
    unlimited.devices = arena_copy(&arena, costs.devices, (size_t)costs.device_count * sizeof *costs.devices);
    for (int d = 0; d < costs.device_count; d++) unlimited.devices[d].memory_bytes = COSTS_NO_LIMIT;
    double limited = (double)heuristic_step_ns(planned, options, &costs);
    double free = (double)heuristic_step_ns(planned, options, &unlimited);
    return limited == 0 || free < 0.99 * limited;
}

void smaller_microbatches_advise(const PlannedModel *planned, const PlanModelOptions *options, Advice *advice)
{
    Smaller smaller;
    const Plan *plan = &planned->plan;
    if (!advice->given || plan->objective != PLAN_OBJECTIVE_STEP || planned->batch.rows || !planned->path ||
        !is_limited(planned, options))
        return;
    int best = -1;
    Replanned least = {.simulated_ns = plan->simulated_step_ns - plan->simulated_step_ns / 100};
    for (int i = 0, ok = open(&smaller, planned, options); ok && i < smaller.count; i++) {
        microbatch_form_step_ns(&smaller.forms, smaller.counts[i], true);
        if (!smaller.forms.found.found || replanned_ns(&smaller.forms.found) >= replanned_ns(&least)) continue;
        least = smaller.forms.found;
        best = i;
    }
    if (best >= 0)
        advice_add_microbatches(advice, plan, smaller.forms.packed ? 0 : smaller.forms.rows / smaller.counts[best],
                                smaller.forms.rows, least);
    close(&smaller);
}
