#include "partitioner/report/report_words.h"

#include <math.h>
#include <string.h>

#include "base/text.h"
#include "partitioner/certificate.h"
#include "partitioner/crossings.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/simulate.h"

/* Appends to a sentence; what does not fit is left out. */
__attribute__((format(printf, 2, 3))) static void add(char text[static REPORT_SENTENCE], const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + used, REPORT_SENTENCE - used, format, arguments);
    va_end(arguments);
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* ---- numbers ---- */

const char *report_seconds(int64_t nanoseconds, char text[static REPORT_TEXT])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)nanoseconds;
    int unit = 0;
    while (unit < 3 && value >= 999.5) value /= 1000, unit++;
    int decimals = unit == 0 || value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
    snprintf(text, REPORT_TEXT, "%.*f %s", decimals, value, units[unit]);
    return text;
}

const char *report_bytes(int64_t bytes, char text[static REPORT_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    if (bytes == COSTS_NO_LIMIT) return strcpy(text, "-");
    while (unit < 4 && value >= 1000) value /= 1024, unit++;
    int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(text, REPORT_TEXT, "%.*f %s", decimals, value, units[unit]);
    return text;
}

/* ---- what the proof is about ---- */

const char *report_objective(const Plan *plan, char text[static REPORT_SENTENCE])
{
    text[0] = '\0';
    add(text, "The proof is about this sum. The simulation runs the schedule itself");
    if (plan->simulated_step_ns < plan->step_ns)
        add(text, ": it is shorter, because %sfilling and draining overlap with other work there",
            plan->replica_count > 1 ? "sums of gradients, " : "");
    if (plan->simulated_step_ns > plan->step_ns) add(text, ": it is longer, because stages wait for each other there");
    add(text, ".");
    return text;
}

enum { MOST_NAMES = 4 };

/* The same as the next item of a list. */
#define add_item(text, ...) (add(text, "%s", *(text) ? "; " : ""), add(text, __VA_ARGS__))

/* "without a, b and 3 more"; or, where that is shorter, the devices that are left. */
static void add_devices(char text[static REPORT_SENTENCE], const Report *report)
{
    const Plan *plan = report->plan;
    const Costs *costs = report->costs;
    int left = costs ? costs->device_count - plan->without_count : INT32_MAX, named = 0;
    if (plan->without_count == 0) return;
    bool alone = left <= plan->without_count && left <= MOST_NAMES;
    add_item(text, "%s", alone ? "" : "without ");
    for (int d = 0; alone && d < costs->device_count; d++)
        if (!plan_leaves_out(plan, costs->devices[d].name))
            add(text, "%s%.60s", named++ ? ", " : "", costs->devices[d].name);
    if (alone) add(text, " alone");
    for (int i = 0; !alone && i < plan->without_count && i < MOST_NAMES; i++)
        add(text, "%s%.60s", i ? ", " : "", plan->without[i]);
    if (!alone && plan->without_count > MOST_NAMES) add(text, " and %d more", plan->without_count - MOST_NAMES);
}

static bool is_kept(const Costs *costs, const PlanPin *pin, int layer, const char *home)
{
    return costs && home && pin->first_layer == layer && pin->last_layer == layer && strcmp(pin->device, home) == 0;
}

static bool is_pinned(const Plan *plan, int layer)
{
    int i = 0;
    while (i < plan->pin_count && !(plan->pins[i].first_layer <= layer && layer <= plan->pins[i].last_layer)) i++;
    return i < plan->pin_count;
}

static void add_pins(char text[static REPORT_SENTENCE], const Report *report)
{
    const Plan *plan = report->plan;
    const Costs *costs = report->costs;
    int pinned = 0, named = 0;
    for (int l = 0; l < plan->layer_count; l++) pinned += is_pinned(plan, l);
    if (pinned == plan->layer_count) {
        add_item(text, "all layers pinned");
        return;
    }
    for (int r = 0; r == 0 || r < plan->replica_count; r++) {
        const Plan *pipeline = plan_pipeline(plan, r); /* which has the pins on its devices */
        for (int i = 0; i < pipeline->pin_count; i++) {
            const PlanPin *pin = &pipeline->pins[i];
            if (is_kept(costs, pin, 0, costs ? costs->keep_inputs : NULL) ||
                is_kept(costs, pin, plan->layer_count - 1, costs ? costs->keep_labels : NULL))
                continue;
            if (named++ >= MOST_NAMES) continue;
            if (pin->last_layer > pin->first_layer)
                add_item(text, "layers %d-%d on %.60s", pin->first_layer, pin->last_layer, pin->device);
            else
                add_item(text, "layer %d on %.60s", pin->first_layer, pin->device);
        }
    }
    if (named > MOST_NAMES) add(text, " and %d more pins", named - MOST_NAMES);
}

static void add_homes(char text[static REPORT_SENTENCE], const Costs *costs)
{
    if (!costs) return;
    const SiteCosts *sites = &costs->sites;
    const struct {
        const char *what, *device;
        int site;
    } homes[] = {{"inputs", costs->keep_inputs, sites->keep_inputs},
                 {"labels", costs->keep_labels, sites->keep_labels}};
    for (int i = 0; i < 2; i++) {
        bool at_site = !homes[i].device && sites->count > 0 && homes[i].site >= 0;
        if (!homes[i].device && !at_site) continue;
        add_item(text, "%s kept %s %.60s", homes[i].what, at_site ? "at site" : "on",
                 at_site ? sites->names[homes[i].site] : homes[i].device);
    }
}

enum { MOST_REPLICAS = 6 };

/* How many replicas from this one on have as many devices and micro-batches. */
static int alike_from(const Plan *plan, int first)
{
    const PlanReplica *replicas = plan->replicas;
    int next = first;
    while (next < plan->replica_count && replicas[next].rank_count == replicas[first].rank_count &&
           replicas[next].microbatches == replicas[first].microbatches && replicas[next].rows == replicas[first].rows)
        next++;
    return next - first;
}

static const char *times(int count, char text[static REPORT_TEXT])
{
    text[0] = '\0';
    if (count > 1) snprintf(text, REPORT_TEXT, "%d times ", count);
    return text;
}

/* The bound of several replicas holds for their groups of devices, as micro-batches were dealt to them. */
static void add_replicas(char text[static REPORT_SENTENCE], const Plan *plan)
{
    char many[REPORT_TEXT];
    int told = 0;
    if (plan->replica_count < 2) return;
    add_item(text, "these groups of devices with ");
    for (int r = 0, alike; r < plan->replica_count && told < MOST_REPLICAS; r += alike, told++) {
        alike = alike_from(plan, r);
        bool last = r + alike == plan->replica_count;
        add(text, "%s%s%d", r == 0 ? "" : last ? " and " : ", ", times(alike, many), plan->replicas[r].microbatches);
        if (!last && told + 1 == MOST_REPLICAS) add(text, " ...");
    }
    add(text, " micro-batches");
}

const char *report_subject(const Report *report, char text[static REPORT_SENTENCE])
{
    const Plan *plan = report->plan;
    char asked[REPORT_SENTENCE] = "", codecs[16];
    add_devices(asked, report);
    add_pins(asked, report);
    add_homes(asked, report->costs);
    add_replicas(asked, plan);
    if (plan->schedule_forced || plan_schedule_traits(plan->schedule).holds_all)
        add_item(asked, "schedule %s", plan_schedule_name(plan->schedule));
    if (plan->in_flight_limit > 0)
        add_item(asked, "room for %d micro-batch%s in flight", plan->in_flight_limit,
                 plan->in_flight_limit == 1 ? "" : "es");
    if (plan_recompute_of_stages(plan->recompute) != PLAN_RECOMPUTE_AUTO)
        add_item(asked, "recompute %s", plan_recompute_name(plan->recompute));
    if (plan->codecs & ~CODECS_LOSSLESS) add_item(asked, "codecs %s", codecs_print(plan->codecs, codecs));
    if (!*asked) return strcpy(text, "plan for these devices");
    text[0] = '\0';
    add(text, "plan asked for (%s)", asked);
    return text;
}

bool report_is_proven(const Plan *plan)
{
    return plan->proven_optimal || (plan->certificate && plan->certificate->bound_ns == plan_optimum_ns(plan));
}

const char *report_proof(const Report *report, char text[static REPORT_SENTENCE])
{
    const Plan *plan = report->plan;
    char bound[REPORT_TEXT], subject[REPORT_SENTENCE];
    const char *objective = plan_objective_name(plan->objective);
    int64_t value = plan_value_ns(plan), optimum = plan_optimum_ns(plan);
    text[0] = '\0';
    report_subject(report, subject);
    if (plan->lower_bound_ns == 0 && !plan->proven_optimal)
        add(text, "no bound is known: %s",
            plan->compared[PLAN_OPTIMAL].known || plan->allocator == PLAN_OPTIMAL
                ? "the search ended before it found one"
                : "none was searched for (--time-limit asks for one)");
    else if (plan->proven_optimal)
        add(text, "proven optimal: no %s has a smaller %s", subject, objective);
    else if (plan->lower_bound_ns == value)
        add(text, "optimal according to the solver's search: it left no %s with a smaller %s", subject, objective);
    else if (plan->lower_bound_ns == optimum)
        add(text, "%s: no %s has a smaller %s than %s; this plan's is %.3g%% larger, and its simulation is faster",
            report_is_proven(plan) ? "proven" : "according to the solver's search", subject, objective,
            report_seconds(optimum, bound), 100.0 * (double)(value - optimum) / (double)optimum);
    else
        add(text, "no %s has a %s below %s: this plan is at most %.3g%% above the optimum%s", subject,
            plan->simulated_step_ns < plan->lower_bound_ns ? "sum (the objective)" : objective,
            report_seconds(plan->lower_bound_ns, bound),
            100.0 * (double)(value - plan->lower_bound_ns) / (double)plan->lower_bound_ns,
            plan->timed_out ? " (the time limit ended the search; another run may find another plan)" : "");
    if (plan->lower_bound_ns > 0 && plan->objective == PLAN_OBJECTIVE_PERIOD)
        add(text, "; the period is the objective, so another plan may have a shorter step");
    return text;
}

const char *report_unknown(const Plan *plan, PlanAllocator allocator)
{
    if (plan->replica_count > 1) return "not compared: each replica has an allocation of its own";
    return allocator == PLAN_OPTIMAL ? "not searched for, or not found" : "finds nothing that fits";
}

const char *report_certificate(const Plan *plan, char text[static REPORT_SENTENCE])
{
    const Certificate *c = plan->certificate;
    char bound[REPORT_TEXT];
    int leaves = 0;
    *text = '\0';
    if (!c) return text;
    for (int i = 0; i < c->node_count; i++) leaves += c->nodes[i].leaf;
    add(text,
        "Certificate: %d set%s of device prices over %d range%s of periods rule%s out every %s below %s. Check it with "
        "skycc verify.",
        leaves, plural(leaves), c->interval_count, plural(c->interval_count), leaves == 1 ? "s" : "",
        plan_objective_name(plan->objective), report_seconds(c->bound_ns, bound));
    return text;
}

/* Where nobody had to choose. */
static const char *why_one(const Report *report)
{
    const Plan *plan = report->plan;
    if (!report->costs || report->costs->device_count < 2 || plan->replica_count != 1 || plan->grouping_count > 0)
        return NULL;
    return replicas_excluded(report->costs, plan->codecs, plan->allocator, plan->objective, plan->pin_count > 0);
}

/* Whether fewer than a handful of groupings have a smaller step, or the plan has as many replicas. */
static bool is_near_best(const Plan *plan, int grouping)
{
    const PlanGrouping *own = &plan->groupings[grouping];
    int smaller = 0;
    for (int i = 0; i < plan->grouping_count; i++) smaller += plan->groupings[i].step_ns < own->step_ns;
    return smaller < MOST_REPLICAS || own->count == plan->replica_count;
}

const char *report_replicas(const Report *report, char text[static REPORT_SENTENCE])
{
    const Plan *plan = report->plan;
    char step[REPORT_TEXT], many[REPORT_TEXT];
    text[0] = '\0';
    if (why_one(report)) add(text, "One pipeline: %s. ", why_one(report));
    if (plan->replica_count > 1) {
        add(text, "Replicas: %d pipelines share the %d micro-batches of a step:", plan->replica_count,
            plan->microbatches);
        for (int r = 0, told = 0, alike; r < plan->replica_count && told < MOST_REPLICAS; r += alike, told++) {
            const PlanReplica *replica = &plan->replicas[r];
            alike = alike_from(plan, r);
            add(text, "%s %s%d ", r ? "," : "", times(alike, many), replica->microbatches);
            if (replica->rows >= 0) add(text, "(%lld rows) ", (long long)replica->rows);
            add(text, "on %d device%s", replica->rank_count, plural(replica->rank_count));
            if (r + alike < plan->replica_count && told + 1 == MOST_REPLICAS) add(text, ", and others");
        }
        Codec codec = codecs_of_sums(plan->codecs);
        add(text, ". The sums of gradients take %s, %s. ", report_seconds(plan->sum_ns, step),
            codec ? "coded with error feedback" : "which overlap with backwards");
    }
    if (plan->grouping_count == 0) return text;
    add(text, "Groupings of devices tried: %d%s; estimated steps of the best:", plan->groupings_tried,
        plan->groupings_all ? ", which are all" : "");
    int told = 0;
    for (int i = 0; i < plan->grouping_count; i++)
        if (is_near_best(plan, i))
            add(text, "%s %s with %d replica%s", told++ ? "," : "", report_seconds(plan->groupings[i].step_ns, step),
                plan->groupings[i].count, plural(plan->groupings[i].count));
    if (plan->replica_count < 2) add(text, ". Several pipelines are taken if over %d%% faster", REPLICAS_GAIN_PERCENT);
    add(text, ". ");
    return text;
}

const char *report_unproven(const Plan *plan, char text[static REPORT_SENTENCE])
{
    int64_t certified = plan->certificate ? plan->certificate->bound_ns : 0;
    char bound[REPORT_TEXT], from[REPORT_TEXT];
    text[0] = '\0';
    if (plan->lower_bound_ns > certified && plan->certificate)
        add(text,
            "The certificate proves the bound up to %s, %.3g%% less. From there to %s it rests on the solver's search.",
            report_seconds(certified, from),
            100.0 * (double)(plan->lower_bound_ns - certified) / (double)plan->lower_bound_ns,
            report_seconds(plan->lower_bound_ns, bound));
    else if (plan->lower_bound_ns > certified && plan->replica_count < 2)
        add(text, "The bound has no certificate: it rests on the solver's search, and skycc verify cannot check it.");
    return text;
}

/* ---- how it runs ---- */

const char *report_head(const Report *report, char text[static REPORT_SENTENCE])
{
    const Plan *plan = report->plan;
    text[0] = '\0';
    add(text, "%d layer%s in %d stage%s on %d ", plan->layer_count, plural(plan->layer_count), plan->stage_count,
        plural(plan->stage_count), plan->rank_count);
    if (report->costs)
        add(text, "of %d devices", report->costs->device_count);
    else
        add(text, "device%s", plural(plan->rank_count));
    add(text, ", %s%d micro-batch%s per step", plan->rows.microbatch_kinds ? "at most " : "", plan->microbatches,
        plan->microbatches == 1 ? "" : "es");
    return text;
}

/* No cut goes through a layer. This matters for a layer with more than a device's even share of the work, such as the
 * head of a large vocabulary. */
static void add_largest_layer(char text[static REPORT_SENTENCE], const Costs *costs)
{
    double all = 0, most = 0;
    int largest = 0;
    for (int i = 0; i < costs->layer_count; i++) {
        double seconds = costs->layers[i].forward_s + costs->layers[i].backward_s;
        all += seconds;
        if (seconds > most) most = seconds, largest = i;
    }
    if (most * costs->device_count <= all || most * costs->layer_count < 2 * all) return; /* no larger than others */
    add(text, " Layer '%.100s'%s is %.0f%% of the work, and a layer is not divided.", costs->layers[largest].name,
        largest == costs->layer_count - 1 ? ", the last one," : "", 100 * most / all);
}

const char *report_speed(const Report *report, char text[static REPORT_SENTENCE])
{
    const ReportUse *use = report->use;
    char bound[REPORT_TEXT], computing[REPORT_TEXT];
    text[0] = '\0';
    if (!use || use->bound_ns == 0) return text;
    add(text, "In use: %.0f%% of the devices' speed. ", 100 * use->speed);
    add(text, "No way to divide the work takes less than %s: the step time is %.2f times as long.",
        report_seconds(use->bound_ns, bound), (double)report->plan->simulated_step_ns / (double)use->bound_ns);
    if (use->bound_ns - use->computing_ns > use->computing_ns / 100)
        add(text,
            " Devices that compute all the time would take %s: layers cannot be divided, pipelines fill and drain, and "
            "replicas sum gradients.",
            report_seconds(use->computing_ns, computing));
    if (report->costs && report->costs->device_count > 1) add_largest_layer(text, report->costs);
    return text;
}

void report_idle(const Report *report, Buffer *buffer)
{
    enum { MOST = 8 };
    const Costs *costs = report->costs;
    const char *const *reasons = report->use ? report->use->reason : NULL;
    bool any = false;
    for (int first = 0; reasons && first < costs->device_count; first++) {
        int named = 0;
        for (int d = 0; d < first && reasons[first]; d++) named += reasons[d] == reasons[first];
        if (!reasons[first] || named > 0 || plan_leaves_out(report->plan, costs->devices[first].name)) continue;
        for (int d = first; d < costs->device_count; d++) {
            if (reasons[d] != reasons[first]) continue;
            if (named < MOST)
                text_format(buffer, "%s%.60s", named ? ", " : any ? "; " : "Not used: ", costs->devices[d].name);
            named++;
        }
        if (named > MOST) text_format(buffer, " and %d more", named - MOST);
        text_format(buffer, " (%s)", reasons[first]);
        any = true;
    }
}

const char *report_strays(const Report *report, char text[static REPORT_SENTENCE])
{
    StrayInput strays[MOST_NAMES];
    int count = report->costs ? crossings_strays(report->plan, report->costs, strays, MOST_NAMES) : 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        add(text, "%.60s leaves its home %.60s: %d other device%s it. ", strays[i].name, strays[i].home,
            strays[i].devices, strays[i].devices > 1 ? "s read" : " reads");
    if (count > 0) add(text, "Each needs it in its own copy of the data.");
    return text;
}

bool report_has_limit(const PlanStage *stage) { return stage->memory_limit_bytes < (int64_t)1 << 50; }

static void add_processes(char text[static REPORT_SENTENCE], const Plan *plan)
{
    int largest = 0;
    char more[REPORT_TEXT], all[REPORT_TEXT];
    for (int r = 1; r < plan->rank_count; r++)
        if (plan_rank_process(plan, r) > plan_rank_process(plan, largest)) largest = r;
    if (plan->rank_count == 0 || plan->ranks[largest].process_bytes == 0) return;
    add(text, "Peak memory: at most %s per process, including %s for the program and MPI. ",
        report_bytes(plan_rank_process(plan, largest), all), report_bytes(plan->ranks[largest].process_bytes, more));
}

/* Of a step: micro-batches or, where these depend on how long rows are, rows. */
static void add_chosen(char text[static REPORT_SENTENCE], const Plan *plan)
{
    double gain = plan->microbatches_gain;
    bool packed = plan->rows.microbatch_kinds > 0;
    char line[BATCH_CHOICE_LINE];
    if (plan->batch.rows)
        add(text, "%s. Another size rounds sums differently. ",
            batch_choice_line(&plan->batch, packed ? row_samples_mean(&plan->rows) : 0, line));
    if (gain == 0) return;
    add(text, "%s: %d per step, chosen automatically (", packed ? "Rows" : "Micro-batches",
        packed ? (int)plan->rows.packing.rows : plan->microbatches);
    if (gain <= -1)
        add(text, "no plan was found for twice as many). ");
    else
        add(text, "twice as many would train %.1f%% %s rows per second). ", 100 * fabs(gain),
            gain < 0 ? "fewer" : "more");
}

static void add_schedule(char text[static REPORT_SENTENCE], const Plan *plan)
{
    const ScheduleTraits traits = plan_schedule_traits(plan->schedule);
    int split = 0;
    for (int k = 0; k < plan->stage_count; k++) split += plan->stages[k].weight_gradient_ns > 0;
    add(text, "Schedule: %s", traits.told);
    if (traits.splits_backward) add(text, " (backward split on %d of %d stages)", split, plan->stage_count);
    add(text, ". ");
}

const char *report_running(const Plan *plan, char text[static REPORT_SENTENCE])
{
    int recomputing = 0;
    text[0] = '\0';
    for (int k = 0; k < plan->stage_count; k++) recomputing += plan->stages[k].recompute;
    add_schedule(text, plan);
    add_chosen(text, plan);
    if (plan->in_flight_limit > 0)
        add(text, "Memory limit: stages get by with %d micro-batch%s in flight, fewer than 1F1B needs. ",
            plan->in_flight_limit, plan->in_flight_limit > 1 ? "es" : "");
    if (recomputing > 0)
        add(text, "Recomputation: %d of %d stages run%s forward again instead of keeping its results. ", recomputing,
            plan->stage_count, recomputing == 1 ? "s" : "");
    if (plan->recompute == PLAN_RECOMPUTE_LAYERS)
        add(text, "Recomputation: layers keep only their inputs, and run forward again one by one. ");
    add_processes(text, plan);
    text[strlen(text) - 1] = '\0';
    return text;
}

/* A step with so many micro-batches that all have all lines. */
static int64_t simulate_whole(const Plan *plan, int microbatches)
{
    FREED_WITH(simulation_free) Simulation simulation = {0};
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    int64_t step = microbatches == plan->microbatches ? plan->padded_step_ns : plan->worst_step_ns;
    if (plan->replica_count > 1) return row_samples_whole(&plan->rows, step); /* which simulated each replica */
    if (!plan_simulate_first(&simulation, plan, microbatches, &ignored)) return 0;
    return row_samples_whole(&plan->rows, simulation.step_ns);
}

const char *report_rows(const Plan *plan, char text[static REPORT_SENTENCE])
{
    char step[REPORT_TEXT], worst[REPORT_TEXT], padded[REPORT_TEXT];
    const RowSamples *rows = &plan->rows;
    text[0] = '\0';
    if (!rows->microbatch_kinds) return text;
    add(text,
        "Packing: each micro-batch holds %u packed sequence%s of %u tokens. A step of %u rows takes %.1f micro-batches "
        "on average (%d-%d in %d sampled steps, never more than %d). ",
        rows->packing.lines, plural(rows->packing.lines), rows->packing.length, rows->packing.rows,
        row_samples_mean(rows), rows->microbatches[0].value, row_samples_worst(rows), row_samples_steps(rows),
        plan->microbatches);
    if (!plan->infeasible)
        add(text, "Expected step time: %s (worst of %d sampled steps: %s; if every row had %u tokens: %s). ",
            report_seconds(plan->simulated_step_ns, step), row_samples_steps(rows),
            report_seconds(simulate_whole(plan, row_samples_worst(rows)), worst), rows->packing.longest,
            report_seconds(simulate_whole(plan, plan->microbatches), padded));
    add(text, "Padding: %.1f%% of the tokens computed (%.1f%% without packing).", 100 * row_samples_padding(rows),
        100 * row_samples_padded(rows));
    return text;
}

int64_t report_period_ns(const Plan *plan, int stage)
{
    return plan_pipeline(plan, plan->ranks[plan->stages[stage].rank].replica)->period_ns;
}

const char *report_bottleneck(const Plan *plan, char text[static REPORT_SENTENCE])
{
    char period[REPORT_TEXT], of[REPORT_TEXT] = "";
    int slowest = 0;
    text[0] = '\0';
    for (int r = 1; r < plan->replica_count; r++)
        if (plan_pipeline(plan, r)->simulated_step_ns > plan_pipeline(plan, slowest)->simulated_step_ns) slowest = r;
    const PlanReplica *replica = &plan->replicas[slowest];
    int64_t most = plan_pipeline(plan, slowest)->period_ns;
    report_seconds(most, period);
    if (plan->replica_count > 1) snprintf(of, sizeof of, " of replica %d", slowest);
    for (int r = replica->first_rank; r < replica->first_rank + replica->rank_count; r++)
        if (plan_rank_work(plan, r) == most) {
            add(text, "Bottleneck%s: device %.60s, which computes %s per micro-batch.", of, plan->ranks[r].device,
                period);
            return text;
        }
    for (int k = 0; k < plan->link_count; k++)
        if (plan_link_period(&plan->links[k]) == most && plan->links[k].from >= replica->first_stage &&
            plan->links[k].to < replica->first_stage + replica->stage_count) {
            add(text, "Bottleneck%s: the link from stage %d to %d, busy %s per micro-batch.", of, plan->links[k].from,
                plan->links[k].to, period);
            return text;
        }
    return text;
}

int report_lengths(const Plan *plan, ReportBin bins[static REPORT_BINS])
{
    const RowSamples *rows = &plan->rows;
    int longest = (int)rows->packing.longest, count = longest < REPORT_BINS ? longest : REPORT_BINS, bin = 0;
    int64_t all = (int64_t)row_samples_steps(rows) * rows->packing.rows;
    if (!rows->length_kinds) return 0;
    for (int i = 0; i < count; i++)
        bins[i] = (ReportBin){i ? bins[i - 1].last + 1 : 0, (int)((int64_t)longest * (i + 1) / count), 0};
    for (int i = 0; i < rows->length_kinds; i++) {
        while (bins[bin].last < rows->lengths[i].value) bin++;
        bins[bin].share += (double)rows->lengths[i].times / (double)all;
    }
    return count;
}

/* ---- what would change it ---- */

const char *report_replanned(const Plan *plan, const Replanned *replanned, char text[static REPORT_SENTENCE])
{
    char value[REPORT_TEXT];
    int64_t now = plan_chosen_ns(plan), then = replanned_ns(replanned);
    if (!replanned->found) return strcpy(text, replanned->exact ? "nothing would fit" : "nothing that fits was found");
    double percent = now > 0 ? 100 * ((double)then / (double)now - 1) : 0;
    text[0] = '\0';
    add(text, "%s%s ", replanned->exact ? "" : "at most ", report_seconds(then, value));
    if (then == now)
        add(text, "(no change)");
    else
        add(text, "(%+.*f%%)", percent > -0.1 && percent < 0.1 ? 3 : 1, percent);
    return text;
}

const char *report_change(const AdviceChange *change, char text[static REPORT_SENTENCE])
{
    char needed[REPORT_TEXT], limit[REPORT_TEXT];
    bool inside = change->from && strcmp(change->from, change->to) == 0;
    const char *from = change->from && *change->from ? change->from : "devices without region",
               *to = change->to && *change->to ? change->to : "devices without region";
    text[0] = '\0';
    switch (change->kind) {
    case ADVICE_MEMORY:
        add(text, "%s of memory on %.200s instead of %s", report_bytes(change->memory_bytes, needed), change->device,
            report_bytes(change->limit_bytes, limit));
        break;
    case ADVICE_SPEED: add(text, "%.200s twice as fast", change->device); break;
    case ADVICE_DEVICE: add(text, "one more device like %.200s", change->device); break;
    case ADVICE_BANDWIDTH:
    case ADVICE_LATENCY:
        add(text, "%s %s %.100s%s%.100s", change->kind == ADVICE_LATENCY ? "half the latency" : "twice the bandwidth",
            inside ? "inside" : "between", from, inside ? "" : " and ", inside ? "" : to);
        break;
    case ADVICE_MICROBATCHES:
        if (change->rows)
            add(text, "micro-batches of %lld row%s", (long long)change->rows, change->rows > 1 ? "s" : "");
        if (!change->rows) add(text, "smaller micro-batches");
        add(text, ": --batch %lld, without --microbatches and --dim for the batch dimension", (long long)change->batch);
        break;
    case ADVICE_KIND_COUNT: break;
    }
    return text;
}
