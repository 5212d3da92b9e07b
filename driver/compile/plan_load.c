#include "driver/compile/plan_load.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/stage/stage.h"
#include "graph/passes/loss.h"
#include "graph/passes/pack_rows.h"
#include "partitioner/planner/microbatches.h"
#include "partitioner/planner/packing.h"
#include "runtime/program/row_packer.h"

enum { MOST_TRIED = 32 };

typedef struct Loading {
    PlannedModel *planned;
    const PlanModelOptions *options;
    bool packed;        /* rows have several lengths: the model is imported once, its graph made for every form */
    RowLengths lengths; /* then */
    PackingWish wish;   /* then; its rows are 0 where they depend on the number of micro-batches */
    int64_t rows;       /* of a step that is to be cut; 0: the micro-batch is given */
} Loading;

/* ---- Making the graph for micro-batches of one form ---- */

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

/* What packing_choose chooses for steps of `microbatches` micro-batches. */
static void choose_form(Loading *loading, int microbatches, bool whole)
{
    PlannedModel *planned = loading->planned;
    PackingWish wish = loading->wish;
    wish.rows = loading->rows ? loading->rows : planned->model.imported.batch_size * microbatches;
    planned->rows = packing_choose(&wish, microbatches, whole, &planned->arena);
    planned->packed.packing = planned->rows.packing;
    planned->microbatches = (int)packing_most_microbatches(&planned->packed.packing);
}

static bool make_form(Loading *loading, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    if (planned->microbatches > COSTS_MAX_MICROBATCHES)
        return usage_error(diagnostics, loading->rows ? "lower --batch" : "lower --microbatches",
                           "%d micro-batches may be needed for a batch, more than %d", planned->microbatches,
                           COSTS_MAX_MICROBATCHES);
    return training_model_make(&planned->model, &planned->packed, diagnostics);
}

/* If all lines of a micro-batch must be computed, another form is cheaper. Its errors were reported for the first. */
static bool pack(Loading *loading, int microbatches, Diagnostics *diagnostics)
{
    const ModelOptions *load = &loading->planned->packed;
    choose_form(loading, microbatches, false);
    if (!make_form(loading, diagnostics)) return false;
    if (load->packing.lines < 2 || !load->train || load->last_pass || lines_vary(&loading->planned->model)) return true;
    Diagnostics ignored = {0};
    choose_form(loading, microbatches, true);
    bool ok = make_form(loading, &ignored);
    diagnostics_free(&ignored);
    return ok;
}

/* Warnings of an import that was repeated were reported the first time. */
static bool cut(Loading *loading, int microbatches, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    int64_t rows = loading->rows / microbatches, *bound = &planned->packed.import.unbound_rows;
    Diagnostics ignored = {0};
    bool ok = true;
    planned->microbatches = microbatches;
    if (rows && *bound != rows) {
        *bound = rows;
        training_model_free(&planned->model);
        ok = training_model_import(&planned->model, planned->path, &planned->packed, &ignored);
    }
    diagnostics_free(&ignored);
    return ok && training_model_make(&planned->model, &planned->packed, diagnostics);
}

static bool make(Loading *loading, int microbatches, Diagnostics *diagnostics)
{
    return (loading->packed ? pack : cut)(loading, microbatches, diagnostics);
}

/* ---- Choosing the number of micro-batches ---- */

/* The time of a step of micro-batches as `make` makes them; 0: nothing was found that fits. Errors of the model are
 * reported later. */
static int64_t try_step_ns(Loading *loading, int microbatches)
{
    PlannedModel *planned = loading->planned;
    PlanModelOptions trying = *loading->options;
    Diagnostics ignored = {0};
    if (trying.request.allocate == PLAN_OPTIMAL) trying.request.allocate = PLAN_HEURISTIC;
    trying.request.quick = true;
    trying.request.watch = NULL;
    trying.request.time_limit_s = INFINITY;
    int64_t step = 0;
    if (make(loading, microbatches, &ignored) && planned_model_costs(planned, &trying, &ignored) &&
        planned_model_plan(planned, &trying, &ignored))
        step = planned->plan.objective == PLAN_OBJECTIVE_STEP
                   ? planned->plan.step_ns
                   : planned->plan.period_ns +
                         row_samples_rounds(&planned->costs.rows, planned->microbatches, planned->plan.period_ns);
    plan_free(&planned->plan);
    costs_free(&planned->costs);
    planned->plan = (Plan){0};
    diagnostics_free(&ignored);
    return step;
}

/* A MicrobatchRate. */
static double train_rows(void *context, int microbatches)
{
    Loading *loading = context;
    int64_t step = try_step_ns(loading, microbatches);
    return step ? (double)loading->planned->rows.packing.rows / (double)step : 0;
}

/* Numbers of micro-batches, ascending, and what a step with so many takes. */
typedef struct Search {
    Loading *loading;
    BatchTrial trials[MOST_TRIED];
    bool tried[MOST_TRIED];
    int count, best;     /* -1: nothing fits so far */
    TrainingModel model; /* of the best, where every size is imported anew */
} Search;

/* Micro-batches of rows of one length have equally many rows; packed ones have as many as go in, and 1, 2, 3, 4, 6, 8,
 * 12 ... of them are tried. Of very many numbers those that are half as much again as the one before. */
static void list_counts(Search *search)
{
    enum { MANY = 16 };
    int64_t rows = search->loading->rows;
    for (int thin = 0; thin < 2 && (!thin || search->count > MANY); thin++) {
        search->count = 0;
        for (int64_t n = 1, last = 0; n <= rows && search->count < MOST_TRIED; n++) {
            bool fits =
                search->loading->packed ? !(n & (n - 1)) || (n % 3 == 0 && !(n / 3 & (n / 3 - 1))) : rows % n == 0;
            if (!fits || (thin && n < last * 3 / 2)) continue;
            search->trials[search->count++].microbatches = (int)n;
            last = n;
        }
    }
}

static int64_t try_count(Search *search, int i)
{
    PlannedModel *planned = search->loading->planned;
    BatchTrial *trial = &search->trials[i];
    if (search->tried[i]) return trial->step_ns;
    search->tried[i] = true;
    trial->step_ns = try_step_ns(search->loading, trial->microbatches);
    if (!trial->step_ns || (search->best >= 0 && trial->step_ns >= search->trials[search->best].step_ns))
        return trial->step_ns;
    search->best = i;
    if (!search->loading->packed) {
        training_model_free(&search->model);
        search->model = planned->model;
        planned->model = (TrainingModel){0};
    }
    return trial->step_ns;
}

/* Large models: from the number that keeps the devices busy, uphill in both directions. */
static void climb(Search *search)
{
    int start = 0, devices = search->loading->planned->cluster.device_count;
    while (start + 1 < search->count && search->trials[start].microbatches < 2 * devices && devices > 1) start++;
    while (!try_count(search, start) && start + 1 < search->count) start++;
    for (int i = start + 1; i < search->count && search->best == i - 1; i++) try_count(search, i);
    for (int i = start - 1; i >= 0 && search->best == i + 1; i--) try_count(search, i);
}

/* Whether it is a form of packed rows that a smaller number gave, too. */
static bool repeats(Loading *loading, int microbatches)
{
    SkyPacking before = loading->planned->packed.packing;
    if (!loading->packed) return false;
    choose_form(loading, microbatches, false);
    const SkyPacking *now = &loading->planned->packed.packing;
    return now->lines == before.lines && now->length == before.length && now->slots == before.slots;
}

/* Fills planned->batch, and makes what was chosen planned->model, unless rows are packed. */
static void choose(Loading *loading)
{
    enum { MOST_NODES = 20000 }; /* to be costed in all */
    PlannedModel *planned = loading->planned;
    Search search = {.loading = loading, .best = -1};
    BatchChoice *choice = &planned->batch;
    list_counts(&search);
    if ((size_t)search.count * planned->model.source.node_count > MOST_NODES)
        climb(&search);
    else
        for (int i = 0; i < search.count; i++)
            if (!repeats(loading, search.trials[i].microbatches)) try_count(&search, i);
    choice->tried = arena_new_array(&planned->arena, BatchTrial, MOST_TRIED);
    for (int i = search.count - 1; i >= 0; i--)
        if (search.tried[i]) choice->tried[choice->tried_count++] = search.trials[i];
    /* Where nothing fits, what needs the least memory may do so with another allocation. */
    choice->microbatches = search.best >= 0 ? search.trials[search.best].microbatches : choice->tried[0].microbatches;
    if (search.best < 0 || loading->packed) return;
    training_model_free(&planned->model);
    planned->model = search.model;
    planned->packed.import.unbound_rows = loading->rows / choice->microbatches;
}

/* ---- What was asked for ---- */

static bool refuse_multiple(const Loading *loading, int64_t own, bool bound, Diagnostics *diagnostics)
{
    long long below = loading->options->batch / own * own;
    Buffer hint = {0};
    buffer_print(&hint, "give --batch ");
    if (below) buffer_print(&hint, "%lld or ", below);
    buffer_print(&hint, "%lld, or %s", below + (long long)own,
                 bound ? "leave out --dim for the batch dimension" : "export the model with an open batch dimension");
    usage_error(diagnostics, buffer_text(&hint), "--batch %lld is no multiple of the micro-batch of %lld row%s%s",
                (long long)loading->options->batch, (long long)own, own == 1 ? "" : "s",
                bound ? " that --dim gives" : ", which is fixed in the model");
    buffer_free(&hint);
    return false;
}

/* The micro-batch is the model's own, or that of --dim: their number follows. */
static bool follow(Loading *loading, int64_t own, bool bound, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    const PlanModelOptions *options = loading->options;
    int asked = options->request.microbatches;
    int64_t rows = options->batch ? options->batch : BATCH_DEFAULT, count = rows / own ? rows / own : 1;
    loading->rows = 0;
    if (own < 1) return true; /* reported elsewhere */
    if (options->batch && rows % own) return refuse_multiple(loading, own, bound, diagnostics);
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
static int64_t own_rows(const Loading *loading, bool *bound)
{
    const TrainingModel *model = &loading->planned->model;
    const Graph *source = &model->source;
    *bound = model->imported.batch_dimension != NULL;
    if (*bound) return model->imported.batch_size;
    const Shape *shape = source->input_count ? &graph_value(source, source->inputs[0])->shape : NULL;
    return shape && shape->rank ? shape->dim[0] : 1;
}

/* Before anything is imported: the rows of a step that are cut if the model leaves that open. */
static bool settle_rows(Loading *loading, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    int64_t batch = loading->options->batch;
    int count = loading->options->request.microbatches;
    planned->microbatches = count ? count : PLAN_MICROBATCHES_DEFAULT;
    if (batch == BATCH_BOUND || (!batch && count)) return true;
    loading->rows = batch ? batch : BATCH_DEFAULT;
    planned->packed.import.unbound_rows = loading->packed ? PACKING_GRAPH_ROWS : loading->rows;
    if (count <= 0) return true;
    long long below = batch / count * count;
    if (batch % count == 0) {
        if (!loading->packed) planned->packed.import.unbound_rows = batch / count;
        return true;
    }
    Buffer hint = {0};
    buffer_print(&hint, "give --batch ");
    if (below) buffer_print(&hint, "%lld or ", below);
    buffer_print(&hint, "%lld, or leave out --microbatches", below + count);
    usage_error(diagnostics, buffer_text(&hint),
                "--batch %lld cannot be cut into %d micro-batches of equally many rows", (long long)batch, count);
    buffer_free(&hint);
    return false;
}

static bool import(Loading *loading, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    const LengthOptions *lengths = &planned->packed.lengths;
    if (!loading->packed) return training_model_import(&planned->model, planned->path, &planned->packed, diagnostics);
    if (strcmp(planned->path, "-") == 0)
        return usage_error(diagnostics, "write the model to a file",
                           "with several lengths the model is read twice, which standard input cannot be");
    if (!packed_model_import(&planned->model, planned->path, &planned->packed, diagnostics) ||
        !packed_lengths_read(&loading->lengths, lengths, diagnostics))
        return false;
    loading->wish = (PackingWish){.lengths = loading->lengths.lengths,
                                  .count = loading->lengths.rows,
                                  .longest = (uint32_t)lengths->list[lengths->count - 1]};
    return true;
}

/* How many micro-batches a step has. */
static bool settle(Loading *loading, Diagnostics *diagnostics)
{
    PlannedModel *planned = loading->planned;
    const char *loss = planned->packed.loss;
    bool bound, alone = loss_compares_rows(loss);
    int64_t own = own_rows(loading, &bound);
    int asked = loading->options->request.microbatches;
    if (loading->rows && bound && own >= 0 && !loading->options->batch) loading->rows = 0; /* --dim alone */
    if (loading->rows && own >= 0 && !follow(loading, own, bound, diagnostics)) return false;
    if (loading->rows && asked <= 0) {
        planned->batch = (BatchChoice){.rows = loading->rows, .microbatches = 1};
        if (!alone && strcmp(planned->path, "-") == 0)
            return usage_error(
                diagnostics, "write the model to a file, or give --dim for the batch dimension",
                "to choose micro-batches, the model is read several times, which standard input cannot be");
        if (!alone) choose(loading);
        planned->microbatches = planned->batch.microbatches;
    } else if (loading->packed && planned->microbatches == PLAN_MICROBATCHES_AUTO) {
        planned->microbatches = microbatches_choose_by_rate(train_rows, loading, &planned->rows_gain);
    }
    return !alone || planned->microbatches == 1 ||
           usage_error(diagnostics, "use --microbatches 1",
                       "--loss %s compares all rows of a batch, so it needs a single micro-batch", loss);
}

bool planned_model_load(PlannedModel *planned, const PlanModelOptions *options, const char *path,
                        const ModelOptions *load, Diagnostics *diagnostics)
{
    Loading loading = {.planned = planned, .options = options, .packed = load->lengths.dimension};
    planned->path = path;
    planned->packed = *load;
    planned->packed.want_loss = true;
    if (!cluster_read_with(&planned->cluster, options->cluster, options->added.items, (int)options->added.count,
                           diagnostics))
        return false;
    if (!loading.packed && load->lengths.data)
        return usage_error(diagnostics, "add, for example, --dim seq=auto:128",
                           "--lengths needs a --dim with several lengths");
    bool ok = settle_rows(&loading, diagnostics) && import(&loading, diagnostics) && settle(&loading, diagnostics) &&
              make(&loading, planned->microbatches, diagnostics);
    row_lengths_free(&loading.lengths);
    return ok;
}
