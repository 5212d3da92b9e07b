#include "driver/compile/microbatch_forms.h"

#include <string.h>

#include "codegen/stage/stage.h"
#include "runtime/program/row_packer.h"

/* Whether the last micro-batch of a step may have fewer lines than the others. */
static bool lines_vary(TrainingModel *model)
{
    Graph *graph = &model->graph;
    StageIndex *index = stage_index_create(graph, model->precision);
    bool vary = true;
    for (int layer = 0; layer < graph->layer_count && vary; layer++) {
        FREED_WITH(stage_free) StageCode code = {0};
        stage_build_indexed(&code, index, layer, layer, STAGE_PLAIN);
        vary = code.lines_vary;
    }
    stage_index_free(index);
    return vary;
}

void microbatch_form_choose(MicrobatchForms *forms, int microbatches, bool whole)
{
    PlannedModel *planned = forms->planned;
    PackingWish wish = forms->wish;
    wish.rows = forms->rows ? forms->rows : planned->model.imported.batch_size * microbatches;
    planned->rows = packing_choose(&wish, microbatches, whole, &planned->arena);
    planned->packed.packing = planned->rows.packing;
    planned->microbatches = (int)packing_most_microbatches(&planned->packed.packing);
}

static bool make_form(MicrobatchForms *forms, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    if (planned->microbatches > COSTS_MAX_MICROBATCHES)
        return usage_error(diagnostics, forms->rows ? "lower --batch" : "lower --microbatches",
                           "%d micro-batches may be needed for a batch, more than %d", planned->microbatches,
                           COSTS_MAX_MICROBATCHES);
    return training_model_make(&planned->model, &planned->packed, diagnostics);
}

/* If all lines of a micro-batch must be computed, another form is cheaper. Its errors were reported for the first. */
static bool pack(MicrobatchForms *forms, int microbatches, Diagnostics *diagnostics)
{
    const ModelOptions *load = &forms->planned->packed;
    microbatch_form_choose(forms, microbatches, false);
    if (!make_form(forms, diagnostics)) return false;
    if (load->packing.lines < 2 || !load->train || load->last_pass || lines_vary(&forms->planned->model)) return true;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    microbatch_form_choose(forms, microbatches, true);
    return make_form(forms, &ignored);
}

bool microbatch_forms_import(MicrobatchForms *forms, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    const LengthOptions *lengths = &planned->packed.lengths;
    if (!forms->packed) return training_model_import(&planned->model, planned->path, &planned->packed, diagnostics);
    if (strcmp(planned->path, "-") == 0)
        return usage_error(diagnostics, "write the model to a file",
                           "with several lengths the model is read twice, which standard input cannot be");
    if (!packed_model_import(&planned->model, planned->path, &planned->packed, diagnostics) ||
        !packed_lengths_read(&forms->lengths, lengths, diagnostics))
        return false;
    forms->wish = (PackingWish){.lengths = forms->lengths.lengths,
                                .count = forms->lengths.rows,
                                .longest = (uint32_t)lengths->list[lengths->count - 1]};
    return true;
}

/* Warnings of an import that was repeated were reported the first time. */
static bool cut(MicrobatchForms *forms, int microbatches, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    int64_t rows = forms->rows / microbatches, *bound = &planned->packed.import.batch_rows;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    bool ok = true;
    planned->microbatches = microbatches;
    if (rows && *bound != rows) {
        *bound = rows;
        training_model_free(&planned->model);
        ok = training_model_import(&planned->model, planned->path, &planned->packed, &ignored);
    }
    return ok && training_model_make(&planned->model, &planned->packed, diagnostics);
}

bool microbatch_form_make(MicrobatchForms *forms, int microbatches, Diagnostics *diagnostics)
{
    return (forms->packed ? pack : cut)(forms, microbatches, diagnostics);
}

PlanModelOptions microbatch_form_quick(const PlanModelOptions *options)
{
    PlanModelOptions quick = *options;
    if (quick.request.allocate == PLAN_OPTIMAL)
        quick.request.allocate = PLAN_HEURISTIC;
    else if (quick.request.replicas == 0)
        quick.request.replicas = 1; /* as in the plan */
    quick.request.quick = true;
    quick.request.watch = NULL;
    quick.request.time_limit_s = INFINITY;
    return quick;
}

/* What plans are chosen by, of a whole step; by the objective where that is what was asked for. */
static int64_t chosen_ns(const PlannedModel *planned, const PlanModelOptions *options)
{
    const Plan *plan = &planned->plan;
    if (plan->objective == PLAN_OBJECTIVE_PERIOD)
        return plan->period_ns + row_samples_rounds(&planned->costs.rows, planned->microbatches, plan->period_ns);
    return options->request.allocate == PLAN_OPTIMAL ? plan->simulated_step_ns : plan->step_ns;
}

int64_t microbatch_form_step_ns(MicrobatchForms *forms, int microbatches, bool quickly)
{
    PlannedModel *planned = forms->planned;
    const ModelOptions asked = planned->packed;
    PlanModelOptions options = quickly ? microbatch_form_quick(forms->options) : *forms->options;
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    int64_t step = 0;
    options.request.compared = true;
    planned->packed.train = true;
    planned->packed.last_pass = NULL;
    if (microbatch_form_make(forms, microbatches, &ignored) && planned_model_costs(planned, &options, &ignored) &&
        planned_model_plan(planned, &options, &ignored))
        step = chosen_ns(planned, forms->options);
    forms->unmeasured = planned->costs.unmeasured;
    forms->found = (Replanned){
        .found = step > 0, .value_ns = plan_value_ns(&planned->plan), .simulated_ns = planned->plan.simulated_step_ns};
    plan_free(&planned->plan);
    costs_free(&planned->costs);
    planned->plan = (Plan){0};
    planned->packed.train = asked.train;
    planned->packed.last_pass = asked.last_pass;
    planned->packed.recompute_layers = asked.recompute_layers; /* this form may have needed it */
    return step;
}

int microbatch_form_counts(const MicrobatchForms *forms, int counts[MICROBATCH_FORMS_MOST])
{
    enum { MANY = 16 };
    int found = 0;
    for (int thin = 0; thin < 2 && (!thin || found > MANY); thin++) {
        found = 0;
        for (int64_t n = 1, last = 0; n <= forms->rows && found < MICROBATCH_FORMS_MOST; n++) {
            bool fits = forms->packed ? !(n & (n - 1)) || (n % 3 == 0 && !(n / 3 & (n / 3 - 1))) : forms->rows % n == 0;
            if (!fits || (thin && n < last * 3 / 2)) continue;
            counts[found++] = (int)n;
            last = n;
        }
    }
    return found;
}
