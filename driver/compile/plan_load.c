#include "driver/compile/plan_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "driver/compile/microbatch_forms.h"
#include "graph/passes/loss.h"
#include "graph/passes/pack_rows.h"
#include "partitioner/planner/microbatches.h"

/* A MicrobatchRate. */
static double train_rows(void *context, int microbatches)
{
    MicrobatchForms *forms = context;
    int64_t step = microbatch_form_step_ns(forms, microbatches, true);
    return step ? (double)forms->planned->rows.packing.rows / (double)step : 0;
}

/* Numbers of micro-batches, ascending, and what a step with so many takes. */
typedef struct Search {
    MicrobatchForms *forms;
    BatchTrial trials[MICROBATCH_FORMS_MOST];
    bool tried[MICROBATCH_FORMS_MOST], unmeasured[MICROBATCH_FORMS_MOST];
    int count, best; /* -1: nothing fits so far */
} Search;

/* What is only estimated is not compared with what was measured. */
static bool is_better(const Search *search, int i)
{
    int best = search->best;
    if (best < 0 || search->unmeasured[best] != search->unmeasured[i]) return best < 0 || search->unmeasured[best];
    return search->trials[i].step_ns < search->trials[best].step_ns;
}

static int64_t try_count(Search *search, int i)
{
    BatchTrial *trial = &search->trials[i];
    if (search->tried[i]) return trial->step_ns;
    search->tried[i] = true;
    trial->step_ns = microbatch_form_step_ns(search->forms, trial->microbatches, true);
    search->unmeasured[i] = search->forms->unmeasured;
    if (trial->step_ns && is_better(search, i)) search->best = i;
    return trial->step_ns;
}

/* Large models: from the number that keeps the devices busy, uphill in both directions. */
static void climb(Search *search)
{
    int start = 0, devices = search->forms->planned->cluster.device_count;
    while (start + 1 < search->count && search->trials[start].microbatches < 2 * devices && devices > 1) start++;
    while (!try_count(search, start) && start + 1 < search->count) start++;
    for (int i = start + 1; i < search->count && search->best == i - 1; i++) try_count(search, i);
    for (int i = start - 1; i >= 0 && search->best == i + 1; i--) try_count(search, i);
}

/* The quickest number but for `other`, if it comes near the best; -1: none. */
static int next_near(const Search *search, int other)
{
    enum { PERCENT = 10 };
    int next = -1;
    for (int i = 0; i < search->count; i++) {
        int64_t step = search->trials[i].step_ns, best = search->trials[search->best].step_ns;
        if (i == other || !search->tried[i] || !step || step > best + best / 100 * PERCENT ||
            search->unmeasured[i] != search->unmeasured[search->best])
            continue;
        if (next < 0 || step < search->trials[next].step_ns) next = i;
    }
    return next;
}

static void plan_closely(Search *search, int i)
{
    BatchTrial *trial = &search->trials[i];
    int64_t step = microbatch_form_step_ns(search->forms, trial->microbatches, false);
    if (step) trial->step_ns = step;
}

/* The first trials have quick allocations, and one grouping of devices. The two best are planned again as the plan will
 * be, unless they are far apart, a model takes long, or the clock runs. */
static void compare_closely(Search *search)
{
    const PlanRequest *request = &search->forms->options->request;
    int first = search->best, second = first < 0 ? -1 : next_near(search, first);
    if (request->allocate != PLAN_OPTIMAL || isfinite(request->time_limit_s) || second < 0) return;
    plan_closely(search, first);
    plan_closely(search, second);
    if (search->trials[second].step_ns < search->trials[first].step_ns) search->best = second;
}

/* On one device nothing is piped, so more micro-batches of packed rows save no more than padding, and what each of them
 * costs is not known to a hundredth: the fewest of those that take hardly longer. */
static void prefer_few(Search *search)
{
    enum { HARDLY = 100 };
    if (search->best < 0 || !search->forms->packed || search->forms->planned->cluster.device_count > 1) return;
    int64_t best = search->trials[search->best].step_ns;
    for (int i = 0; i < search->best; i++)
        if (search->tried[i] && search->trials[i].step_ns && search->trials[i].step_ns <= best + best / HARDLY &&
            search->unmeasured[i] == search->unmeasured[search->best])
            search->best = i;
}

/* Whether it is a form of packed rows that a smaller number gave, too. */
static bool repeats(MicrobatchForms *forms, int microbatches)
{
    SkyPacking before = forms->planned->packed.packing;
    if (!forms->packed) return false;
    microbatch_form_choose(forms, microbatches, false);
    const SkyPacking *now = &forms->planned->packed.packing;
    return now->lines == before.lines && now->length == before.length && now->slots == before.slots;
}

/* Micro-batches that the profile lacks are left out where it has others. */
static void list_tried(const Search *search, Diagnostics *diagnostics)
{
    PlannedModel *planned = search->forms->planned;
    BatchChoice *choice = &planned->batch;
    bool measured = search->best >= 0 && !search->unmeasured[search->best];
    FREED_WITH(buffer_free) Buffer lacking = {0};
    choice->tried = arena_new_array(&planned->arena, BatchTrial, MICROBATCH_FORMS_MOST);
    for (int i = search->count - 1; i >= 0; i--) {
        if (search->tried[i] && !(measured && search->unmeasured[i]))
            choice->tried[choice->tried_count++] = search->trials[i];
        else if (search->tried[i] && search->trials[i].step_ns && !search->forms->packed)
            buffer_print(&lacking, "%s%lld", lacking.size ? ", " : "",
                         (long long)search->forms->rows / search->trials[i].microbatches);
    }
    if (lacking.size)
        diagnostics_warning(diagnostics, PLACE_NONE, "run skycc probe with the same --batch",
                            "micro-batches of %s rows are left out, as the profile lacks them", buffer_text(&lacking));
}

/* Fills planned->batch. */
static void choose(MicrobatchForms *forms, Diagnostics *diagnostics)
{
    enum { MOST_NODES = 20000 }; /* to be costed in all */
    PlannedModel *planned = forms->planned;
    Search search = {.forms = forms, .best = -1};
    BatchChoice *choice = &planned->batch;
    int counts[MICROBATCH_FORMS_MOST];
    search.count = microbatch_form_counts(forms, counts);
    for (int i = 0; i < search.count; i++) search.trials[i].microbatches = counts[i];
    bool large = (size_t)search.count * planned->model.source.node_count > MOST_NODES;
    if (large)
        climb(&search);
    else
        for (int i = 0; i < search.count; i++)
            if (!repeats(forms, search.trials[i].microbatches)) try_count(&search, i);
    if (!large) compare_closely(&search);
    prefer_few(&search);
    list_tried(&search, diagnostics);
    /* Where nothing fits, what needs the least memory may do so with another allocation. */
    choice->microbatches = search.best >= 0 ? search.trials[search.best].microbatches : choice->tried[0].microbatches;
}

/* ---- What was asked for ---- */

/* --batch cannot be cut like that: names the nearest that can, or what else would do. */
static bool refuse_batch(const MicrobatchForms *forms, int64_t unit, const char *otherwise, const char *problem,
                         Diagnostics *diagnostics)
{
    long long batch = (long long)forms->options->batch, below = batch / unit * unit;
    FREED_WITH(arena_free) Arena arena = {0};
    const char *lower = below ? arena_format(&arena, "%lld or ", below) : "";
    usage_error(diagnostics,
                arena_format(&arena, "give --batch %s%lld, or %s", lower, below + (long long)unit, otherwise),
                "--batch %lld %s", batch, problem);
    return false;
}

/* The micro-batch is the model's own, or that of --dim: their number follows. */
static bool follow(MicrobatchForms *forms, int64_t own, bool bound, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    const PlanModelOptions *options = forms->options;
    int asked = options->request.microbatches;
    int64_t rows = options->batch ? options->batch : BATCH_DEFAULT, count = rows / own ? rows / own : 1;
    forms->rows = 0;
    if (own < 1) return true; /* reported elsewhere */
    if (options->batch && rows % own) {
        char problem[96];
        snprintf(problem, sizeof problem, "is no multiple of the micro-batch of %lld row%s%s", (long long)own,
                 own == 1 ? "" : "s", bound ? " that --dim gives" : ", which is fixed in the model");
        return refuse_batch(forms, own,
                            bound ? "leave out --dim for the batch dimension"
                                  : "export the model with an open batch dimension",
                            problem, diagnostics);
    }
    if (asked > 0 && asked != count)
        return usage_error(diagnostics, "leave one of them out",
                           "%d micro-batches of the %lld rows that %s are %lld rows, not --batch %lld", asked,
                           (long long)own, bound ? "--dim gives" : "the model has", (long long)own * asked,
                           (long long)rows);
    if (count > COSTS_MAX_MICROBATCHES) return usage_error(diagnostics, NULL, "--batch has too many micro-batches");
    planned->microbatches = (int)count;
    if (!bound) planned->batch = (BatchChoice){.rows = own * count, .microbatches = (int)count};
    if (rows % own)
        diagnostics_warning(diagnostics, PLACE_FILE(planned->path), "--batch says how many rows a step has",
                            "the model is exported for micro-batches of %lld rows: a step trains %lld rows, not %d",
                            (long long)own, (long long)own * count, BATCH_DEFAULT);
    return true;
}

/* How many rows the model's micro-batches have, and whether --dim says so; -1: that is open. */
static int64_t own_rows(const MicrobatchForms *forms, bool *bound)
{
    const TrainingModel *model = &forms->planned->model;
    const Graph *source = &model->source;
    *bound = model->imported.batch_dimension != NULL;
    if (*bound) return model->imported.batch_size;
    const Shape *shape = source->input_count ? &graph_value(source, source->inputs[0])->shape : NULL;
    return shape && shape->rank ? shape->dim[0] : 1;
}

/* Before anything is imported: the rows of a step that are cut if the model leaves that open. */
static bool settle_rows(MicrobatchForms *forms, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    int64_t batch = forms->options->batch;
    int count = forms->options->request.microbatches;
    planned->microbatches = count ? count : PLAN_MICROBATCHES_DEFAULT;
    if (batch == BATCH_BOUND || (!batch && count)) return true;
    forms->rows = batch ? batch : BATCH_DEFAULT;
    planned->packed.import.unbound_rows = forms->packed ? PACKING_GRAPH_ROWS : forms->rows;
    if (count <= 0) return true;
    if (!forms->packed) planned->packed.import.unbound_rows = batch / count;
    if (batch % count == 0) return true;
    char problem[80];
    snprintf(problem, sizeof problem, "cannot be cut into %d micro-batches of equally many rows", count);
    return refuse_batch(forms, count, "leave out --microbatches", problem, diagnostics);
}

/* How many micro-batches a step has. */
static bool settle(MicrobatchForms *forms, Diagnostics *diagnostics)
{
    PlannedModel *planned = forms->planned;
    const char *loss = planned->packed.loss ? planned->packed.loss : planned->model.loss;
    bool bound, alone = loss_compares_rows(loss);
    int64_t own = own_rows(forms, &bound);
    int asked = forms->options->request.microbatches;
    if (forms->rows && bound && own >= 0 && !forms->options->batch) forms->rows = 0; /* --dim alone */
    if (forms->rows && own >= 0 && !follow(forms, own, bound, diagnostics)) return false;
    if (forms->rows && !forms->packed) planned->packed.import.batch_rows = planned->packed.import.unbound_rows;
    if (forms->rows && asked <= 0) {
        planned->batch = (BatchChoice){.rows = forms->rows, .microbatches = 1};
        if (!alone && strcmp(planned->path, "-") == 0)
            return usage_error(
                diagnostics, "write the model to a file, or give --dim for the batch dimension",
                "to choose micro-batches, the model is read several times, which standard input cannot be");
        if (!alone) choose(forms, diagnostics);
        planned->microbatches = planned->batch.microbatches;
    } else if (forms->packed && planned->microbatches == PLAN_MICROBATCHES_AUTO) {
        planned->microbatches = microbatches_choose_by_rate(train_rows, forms, &planned->rows_gain);
    }
    return !alone || planned->microbatches == 1 ||
           usage_error(diagnostics, "use --microbatches 1",
                       "the loss %s compares all rows of a batch, so it needs a single micro-batch", loss);
}

bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics)
{
    MicrobatchForms forms = {.planned = planned, .options = options, .packed = load->lengths.dimension};
    planned->path = path;
    planned->packed = *load;
    planned->packed.want_loss = true;
    planned->packed.recompute_layers = options->request.recompute == PLAN_RECOMPUTE_LAYERS;
    if (!cluster_read_with(&planned->cluster, options->cluster, options->added.items, (int)options->added.count,
                           diagnostics))
        return false;
    if (!forms.packed && load->lengths.data)
        return usage_error(diagnostics, "add, for example, --dim seq=auto:128",
                           "--lengths needs a --dim with several lengths");
    bool ok = settle_rows(&forms, diagnostics) && microbatch_forms_import(&forms, diagnostics) &&
              settle(&forms, diagnostics) && microbatch_form_make(&forms, planned->microbatches, diagnostics);
    row_lengths_free(&forms.lengths);
    return ok;
}
