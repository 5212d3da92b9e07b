#include "partitioner/planner/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/crossings.h"
#include "partitioner/periods.h"
#include "partitioner/planner/fastest.h"
#include "partitioner/planner/microbatches.h"
#include "partitioner/planner/shortage.h"
#include "partitioner/proof/certify.h"
#include "partitioner/proof/keeper_certify.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/site_crossings.h"
#include "partitioner/sizes.h"
#include "partitioner/solve/baselines.h"
#include "partitioner/solve/keeper_feasible.h"
#include "partitioner/solve/keeper_recompute.h"
#include "partitioner/solve/optimal.h"
#include "partitioner/solve/recompute.h"

/* What planning may take where there is no time limit, in seconds of counted work. */
static const double COUNTED_SECONDS = 30, COMPARED_SECONDS = 0.3, ROUGH_SECONDS = 0.03;

typedef struct Planner {
    const Costs *asked; /* as the user gave them */
    Costs costs;        /* without the devices that must not be used; shares everything else */
    const PlanRequest *request;
    PlanPin *pins; /* the request's, and what keep: implies */
    int pin_count;
    int in_flight_limit; /* of searched orders where nothing fits otherwise; 0: none */
    Watch *watch;
    double started, seconds; /* on the watch: from when on, and how long planning may take */
    Arena arena;
    Diagnostics *diagnostics;
} Planner;

/* ---- wishes ---- */

static bool check_device(const Planner *planner, const char *name, const char *what)
{
    enum { MOST = 12 };
    if (costs_find_device(planner->asked, name) >= 0) return true;
    FREED_WITH(buffer_free) Buffer known = {0};
    for (int d = 0; d < planner->asked->device_count && d < MOST; d++)
        buffer_print(&known, d ? ", %s" : "devices: %s", planner->asked->devices[d].name);
    if (planner->asked->device_count > MOST) buffer_print(&known, " and %d more", planner->asked->device_count - MOST);
    usage_error(planner->diagnostics, buffer_text(&known), "%s: no device is named '%s'", what, name);
    return false;
}

static bool leave_out(Planner *planner)
{
    const PlanRequest *request = planner->request;
    for (int i = 0; i < request->without_count; i++)
        if (!check_device(planner, request->without[i], "--without")) return false;
    planner->costs = *planner->asked;
    planner->costs.codecs = request->codecs;
    planner->costs.devices = arena_new_array(&planner->arena, DeviceCost, (size_t)planner->asked->device_count);
    planner->costs.device_count = 0;
    for (int i = 0; i < planner->asked->device_count; i++)
        if (!plan_request_without(request, planner->asked->devices[i].name))
            planner->costs.devices[planner->costs.device_count++] = planner->asked->devices[i];
    if (planner->costs.device_count > 0) return true;
    return diagnostics_error(planner->diagnostics, EXIT_NO_PLAN, PLACE_NONE, NULL, "no device is left");
}

static bool add_pin(Planner *planner, PlanPin pin, const char *what)
{
    if (!check_device(planner, pin.device, what)) return false;
    if (plan_request_without(planner->request, pin.device))
        return usage_error(planner->diagnostics, NULL, "%s: '%s' is left out", what, pin.device);
    for (int i = 0; i < planner->pin_count; i++)
        if (pin.first_layer <= planner->pins[i].last_layer && planner->pins[i].first_layer <= pin.last_layer &&
            strcmp(pin.device, planner->pins[i].device) != 0)
            return usage_error(planner->diagnostics, NULL, "%s: a layer cannot be both on '%s' and on '%s'", what,
                               pin.device, planner->pins[i].device);
    planner->pins[planner->pin_count++] = pin;
    return true;
}

/* Whether one device keeps both: it has the first and the last stage then. */
static bool has_keeper(const Planner *planner) { return costs_keeper(planner->asked) != NULL; }

/* That device; -1: none. */
static int keeper_device(const Planner *planner)
{
    return has_keeper(planner) ? costs_find_device(&planner->costs, costs_keeper(planner->asked)) : -1;
}

/* Raw inputs stay where the first layer runs, labels where the last one does. */
static bool collect_pins(Planner *planner)
{
    int last = planner->asked->layer_count - 1;
    planner->pins = arena_new_array(&planner->arena, PlanPin, (size_t)planner->request->pin_count + 2);
    for (int i = 0; i < planner->request->pin_count; i++)
        if (!add_pin(planner, planner->request->pins[i], "--pin")) return false;
    if (planner->asked->keep_inputs && !add_pin(planner, (PlanPin){0, 0, planner->asked->keep_inputs}, "keep: inputs"))
        return false;
    return !planner->asked->keep_labels ||
           add_pin(planner, (PlanPin){last, last, planner->asked->keep_labels}, "keep: labels");
}

static bool create_problem(const Planner *planner, const Costs *costs, PlanSchedule schedule, PlanRecompute how,
                           Problem *problem)
{
    if (!problem_create_recomputing(problem, costs, planner->request->objective, schedule,
                                    planner->request->microbatches, how, NULL, planner->diagnostics))
        return false;
    problem->watch = planner->watch;
    problem_limit_in_flight(problem, planner->in_flight_limit);
    for (int i = 0; i < planner->pin_count; i++)
        problem_pin(problem, planner->pins[i].first_layer, planner->pins[i].last_layer,
                    costs_find_device(costs, planner->pins[i].device));
    return true;
}

/* ---- the allocators ---- */

typedef struct Candidates {
    Allocation allocation[PLAN_ALLOCATOR_COUNT];
    bool known[PLAN_ALLOCATOR_COUNT];
    OptimalResult result;
    Evidence evidence; /* for the result's bound */
    KeeperTrail trail; /* the same around a keeper */
} Candidates;

/* Whoever asks for another allocation wants it at once, not the bound that says how good it is, unless there is a limit
 * to the time that may take. */
static bool wants_bound(const Planner *planner)
{
    return planner->request->allocate == PLAN_OPTIMAL || isfinite(planner->request->time_limit_s);
}

/* An allocation that is as good by the objective, too, is the optimum, or nearer to it than what the search found. */
static void offer_optimum(const Problem *problem, const Allocation *chosen, Candidates *c)
{
    AllocationValue value = allocation_settle(problem, chosen);
    int64_t objective = allocation_objective(problem, &value);
    if (c->known[PLAN_OPTIMAL] && objective > c->result.value) return;
    allocation_copy(&c->allocation[PLAN_OPTIMAL], chosen);
    c->known[PLAN_OPTIMAL] = c->result.found = true;
    c->result.value = objective;
}

/* A search that its time ended may know less than the baselines. */
static void offer_baselines(const Problem *problem, Candidates *c)
{
    for (int a = 0; a < PLAN_OPTIMAL && c->result.timed_out; a++)
        if (c->known[a] && allocation_settle(problem, &c->allocation[a]).fits)
            offer_optimum(problem, &c->allocation[a], c);
}

static void run_allocators(const Planner *planner, Problem *problem, Arena *arena, Candidates *c)
{
    const PlanRequest *request = planner->request;
    double compared = request->rough ? ROUGH_SECONDS : COMPARED_SECONDS;
    double deadline = planner->started + (request->compared ? compared : 0.9 * planner->seconds);
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) c->allocation[a] = allocation_create(arena, problem);
    if (has_keeper(planner)) {
        double seconds = wants_bound(planner) ? deadline - watch_seconds(planner->watch) : 0;
        KeeperResult result =
            keeper_solve_recomputing(problem, keeper_device(planner), seconds, c->allocation, &c->trail);
        memcpy(c->known, result.known, sizeof c->known);
        if (wants_bound(planner))
            c->result = result.optimal;
        else
            c->known[PLAN_OPTIMAL] = false;
        if (wants_bound(planner)) offer_baselines(problem, c);
        return;
    }
    baselines_run(problem, -1, c->allocation, c->known);
    const Allocation *asked = &c->allocation[planner->request->allocate];
    if (planner->request->quick) return;
    if (!wants_bound(planner) && asked->stage_count > 0 && allocation_evaluate(problem, asked).fits) return;
    const Allocation *start = c->known[PLAN_HEURISTIC] ? &c->allocation[PLAN_HEURISTIC] : NULL;
    double seconds = deadline - watch_seconds(planner->watch);
    c->result = (recompute_matters(problem) ? recompute_solve : optimal_solve)(
        problem, start, seconds, &c->allocation[PLAN_OPTIMAL], &c->evidence);
    c->known[PLAN_OPTIMAL] = c->result.found;
    offer_baselines(problem, c);
}

/* ---- fewer micro-batches in flight ---- */

/* Whether a plan fits with so many in flight at most; a search that takes long counts as no. */
static bool fits_with(const Planner *planner, const Problem *problem, int limit)
{
    Problem limited;
    double deadline = watch_seconds(planner->watch) + planner->seconds / 20;
    if (!problem_derive(&limited, problem, problem->costs, problem->microbatches, problem->recompute, NULL))
        return false;
    problem_limit_in_flight(&limited, limit);
    Allocation any = allocation_create(&limited.arena, &limited);
    Feasibility answer = has_keeper(planner) ? keeper_feasibility(&limited, keeper_device(planner), deadline, &any)
                                             : optimal_feasibility(&limited, deadline, &any);
    problem_free(&limited);
    return answer == FEASIBLE_YES;
}

/* Nothing fits with the micro-batches that 1F1B keeps in flight: the most with which something does, or 1. 0: memory
 * does not depend on them, or the order is not to be searched for. */
static int find_in_flight_limit(const Planner *planner, const Problem *problem)
{
    int low = 1, high = problem_in_flight(problem, problem->device_count + has_keeper(planner));
    if (planner->request->schedule != PLAN_AUTO || problem->level_limit == 0 || high <= 1) return 0;
    if (!fits_with(planner, problem, low)) return low;
    while (high - low > 1) { /* with low something fits, with high nothing */
        int middle = low + (high - low) / 2;
        *(fits_with(planner, problem, middle) ? &low : &high) = middle;
    }
    return low;
}

/* ---- the fastest of the good allocations ---- */

/* The fastest allocation with at most that objective, at least as fast as the chosen one, which has stages then. */
static Fastest search_fastest(const Planner *planner, const Problem *problem, const Candidates *c, int64_t most_ns,
                              Allocation *chosen)
{
    double deadline = watch_seconds(planner->watch) + planner->seconds / 100;
    Fastest fastest = fastest_create(problem, keeper_device(planner), deadline, chosen);
    fastest.most_ns = most_ns;
    fastest.restricts &= !planner->request->part;
    fastest.limits &=
        problem->objective == PLAN_OBJECTIVE_STEP && (most_ns == INT64_MAX || problem->in_flight_limit > 0);
    if (chosen->stage_count > 0) fastest_offer(&fastest, chosen);
    for (int a = PLAN_OPTIMAL; a >= 0; a--)
        if (c->known[a]) fastest_offer(&fastest, &c->allocation[a]);
    fastest_search(&fastest);
    return fastest;
}

/* Of the allocations with the optimum of the objective, the fastest in simulation. Where steps are to be short, the
 * simulated step is their time: then the fastest of all where all can be looked at, else what a search finds that is
 * clearly faster. So a relaxed question has no slower answer. False: the chosen one needs less in flight than the
 * problem asks about, so the question changes. */
static bool choose_fastest(const Planner *planner, const Problem *problem, const Candidates *c, Arena *arena,
                           Allocation *chosen, int *in_flight_limit)
{
    enum { PART = 1000 };
    Fastest near = search_fastest(planner, problem, c, c->result.value, chosen);
    if (problem->objective == PLAN_OBJECTIVE_STEP) {
        Allocation any = allocation_create(arena, problem);
        allocation_copy(&any, chosen);
        Fastest far = search_fastest(planner, problem, c, INT64_MAX, &any);
        bool exact = far.complete && far.in_flight_limit == near.in_flight_limit;
        if (near.step_ns - far.step_ns > (exact ? 0 : near.step_ns / PART)) {
            allocation_copy(chosen, &any);
            near = far;
        }
    }
    *in_flight_limit = near.in_flight_limit;
    return near.in_flight_limit == problem->in_flight_limit;
}

/* ---- the plan ---- */

/* The optimum's allocation too, where it is not the plan's: it is not found again without the solver. */
static void fill_optimum(Plan *plan, const Problem *problem, const Allocation *optimum)
{
    PlanComparison *row = &plan->compared[PLAN_OPTIMAL];
    row->stage_count = optimum->stage_count;
    row->stages = arena_new_array(&plan->arena, PlanPin, (size_t)optimum->stage_count);
    for (int k = 0; k < optimum->stage_count; k++) {
        const char *device = problem->costs->devices[optimum->device[k]].name;
        row->stages[k] =
            (PlanPin){allocation_start(optimum, k), optimum->end[k] - 1, arena_string(&plan->arena, device)};
    }
}

static void fill_comparison(Plan *plan, const Problem *problem, const Candidates *c, const Allocation *chosen)
{
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        if (!c->known[a]) continue;
        AllocationValue value = allocation_settle(problem, &c->allocation[a]);
        plan->compared[a] =
            (PlanComparison){.known = true, .fits = value.fits, .period_ns = value.period, .step_ns = value.step};
    }
    if (c->known[PLAN_OPTIMAL] && !allocation_equal(&c->allocation[PLAN_OPTIMAL], chosen))
        fill_optimum(plan, problem, &c->allocation[PLAN_OPTIMAL]);
}

static void fill_wishes(const Planner *planner, Plan *plan)
{
    char text[33];
    plan->costs_hash = "";
    if (!planner->request->compared) /* it is only compared by its time, then */
        plan->costs_hash = arena_string(&plan->arena, hash_format(costs_hash(planner->asked), text));
    plan->schedule_forced = planner->request->schedule != PLAN_AUTO;
    plan->without_count = planner->request->without_count;
    plan->without = arena_new_array(&plan->arena, const char *, (size_t)plan->without_count);
    for (int i = 0; i < plan->without_count; i++)
        plan->without[i] = arena_string(&plan->arena, planner->request->without[i]);
    plan->pin_count = planner->pin_count;
    plan->pins = arena_copy(&plan->arena, planner->pins, (size_t)planner->pin_count * sizeof *planner->pins);
    for (int i = 0; i < plan->pin_count; i++)
        plan->pins[i].device = arena_string(&plan->arena, planner->pins[i].device);
}

static void fill_bound(Plan *plan, const OptimalResult *result)
{
    int64_t value = plan_value_ns(plan);
    plan->lower_bound_ns = result->bound < value ? result->bound : value;
    if (plan->lower_bound_ns < 0) plan->lower_bound_ns = 0; /* a search that ended at once may know less than that */
    plan->gap = plan->lower_bound_ns == value ? 0 : (double)(value - plan->lower_bound_ns) / (double)value;
    plan->timed_out = result->timed_out;
}

/* Counted on its own, as this takes much longer than it is worth where the search ended early; where that used up all
 * that it was given, what is left is the limit. Periods: the trees are about those of the search. Steps: two
 * seconds' worth, or a tenth of a second's of large problems, where trees rarely get further than prices alone. What
 * takes more is certified a little lower. */
static int64_t certify_work(const Problem *problem, bool used_up)
{
    if (used_up) return INT64_MAX;
    if (problem->objective == PLAN_OBJECTIVE_PERIOD) return 10000000000;
    return size_has_trees(problem) ? 2000000000 : 100000000;
}

static void fill_certificate(const Planner *planner, Plan *plan, const Problem *problem, Candidates *candidates)
{
    bool known = plan->infeasible || plan->lower_bound_ns > 0;
    if (!known || planner->request->compared) return;
    FREED int *device_of = memory_allocate((size_t)problem->device_count * sizeof *device_of);
    for (int d = 0; d < problem->device_count; d++)
        device_of[d] = costs_find_device(planner->asked, planner->costs.devices[d].name);
    CertifyRequest request = {.bound = plan->infeasible ? period_largest(problem) + 1 : plan->lower_bound_ns,
                              .device_of = device_of,
                              .price_count = planner->asked->device_count,
                              .evidence = &candidates->evidence,
                              .work = certify_work(problem, candidates->result.timed_out),
                              .infeasible = plan->infeasible,
                              .deadline = planner->started + planner->seconds};
    if (has_keeper(planner))
        plan->certificate = keeper_certify(problem, keeper_device(planner), &candidates->trail, &request, &plan->arena,
                                           &plan->timed_out);
    else
        plan->certificate = certify(problem, &request, &plan->arena, &plan->timed_out);
    plan->timed_out = !planner->watch->counted && (plan->timed_out || planner->watch->struck);
    plan->proven_optimal = !plan->infeasible && plan->certificate && plan->certificate->bound_ns == plan_value_ns(plan);
}

/* A plan without stages, but with the proof that there is none. Without a proof it is not given out. */
static void fill_infeasible(const Planner *planner, Plan *plan, const Problem *problem, Candidates *candidates)
{
    memset(plan, 0, sizeof *plan);
    plan->infeasible = true;
    plan->codecs = planner->request->codecs ? planner->request->codecs : CODECS_LOSSLESS;
    plan->name = arena_string(&plan->arena, planner->asked->name);
    plan->model_hash = arena_string(&plan->arena, planner->asked->model_hash ? planner->asked->model_hash : "");
    plan->allocator = PLAN_OPTIMAL;
    plan->objective = planner->request->objective;
    plan->schedule = problem->schedule == PLAN_AUTO ? PLAN_SEARCHED : problem->schedule;
    plan->recompute = planner->request->recompute;
    plan->microbatches = problem->microbatches;
    plan->rows = row_samples_copy(&planner->asked->rows, &plan->arena);
    plan->batch = batch_choice_copy(&planner->asked->batch, &plan->arena);
    plan->in_flight_limit = problem->in_flight_limit;
    plan->layer_count = problem->layer_count;
    fill_wishes(planner, plan);
    fill_certificate(planner, plan, problem, candidates);
    if (!plan->certificate) plan_free(plan);
}

static bool report_misfit(const Planner *planner, const Problem *problem, const Candidates *c)
{
    PlanAllocator a = planner->request->allocate;
    const Allocation *allocation = &c->allocation[a];
    const char *name = plan_allocator_name(a);
    for (int k = 0; k < allocation->stage_count; k++) {
        int device = allocation->device[k], start = allocation_start(allocation, k), end = allocation->end[k];
        if (problem_stage_fits(problem, problem->type_of[device], start, end, allocation->stage_count - k)) continue;
        int in_flight = problem_in_flight(problem, allocation->stage_count - k);
        return diagnostics_error(
            planner->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--allocate optimal may still find a plan",
            "%s allocation: layers %d to %d do not fit on '%s' (%lld of %lld bytes)", name, start, end - 1,
            planner->costs.devices[device].name, (long long)problem_stage_bytes(problem, start, end, in_flight),
            (long long)problem->type_limit[problem->type_of[device]]);
    }
    return diagnostics_error(planner->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--allocate optimal may still find a plan",
                             "%s allocation finds nothing that fits", name);
}

static bool check_found(const Planner *planner, const Problem *problem, const Candidates *c)
{
    PlanAllocator chosen = planner->request->allocate;
    if (c->result.infeasible && !planner->request->compared)
        return shortage_report(problem, keeper_device(planner), planner->started + planner->seconds,
                               planner->diagnostics);
    if (chosen == PLAN_OPTIMAL && !c->result.found)
        return diagnostics_error(planner->diagnostics, EXIT_NO_PLAN, PLACE_NONE,
                                 planner->watch->counted ? "--time-limit lets the search go on for longer"
                                                         : "give --time-limit more seconds",
                                 "no plan that fits was found in the time given, and none was excluded");
    const Allocation *allocation = &c->allocation[chosen]; /* without stages where the allocator knows none */
    return chosen == PLAN_OPTIMAL || (allocation->stage_count > 0 && allocation_evaluate(problem, allocation).fits) ||
           report_misfit(planner, problem, c);
}

static void candidates_free(Candidates *c)
{
    evidence_free(&c->evidence);
    keeper_trail_free(&c->trail);
    *c = (Candidates){0};
}

/* The same about at most so many in flight; 0: as it is. */
static void limit_in_flight(Planner *planner, Problem *problem, int limit, Arena *arena, Candidates *candidates)
{
    if (limit == 0) return;
    planner->in_flight_limit = limit;
    problem_limit_in_flight(problem, limit);
    candidates_free(candidates);
    run_allocators(planner, problem, arena, candidates);
}

static bool make_plan(Planner *planner, Plan *plan)
{
    Problem problem;
    Candidates candidates = {0};
    Arena arena = {0};
    int limit;
    if (!create_problem(planner, &planner->costs, planner->request->schedule, planner->request->recompute, &problem))
        return false;
    run_allocators(planner, &problem, &arena, &candidates);
    if (candidates.result.infeasible)
        limit_in_flight(planner, &problem, find_in_flight_limit(planner, &problem), &arena, &candidates);
    if (candidates.result.infeasible) fill_infeasible(planner, plan, &problem, &candidates);
    bool ok = check_found(planner, &problem, &candidates);
    if (ok) {
        Allocation chosen = candidates.allocation[planner->request->allocate];
        if (planner->request->allocate == PLAN_OPTIMAL && !planner->request->rough) {
            chosen = allocation_create(&arena, &problem);
            if (!choose_fastest(planner, &problem, &candidates, &arena, &chosen, &limit))
                limit_in_flight(planner, &problem, limit, &arena, &candidates);
            offer_optimum(&problem, &chosen, &candidates);
        }
        plan_build(plan, &problem, &chosen, planner->request->allocate);
        plan->recompute = planner->request->recompute;
        fill_comparison(plan, &problem, &candidates, &chosen);
        crossings_fill(plan, planner->asked);
        site_crossings_fill(plan, planner->asked);
        fill_wishes(planner, plan);
        fill_bound(plan, &candidates.result);
        fill_certificate(planner, plan, &problem, &candidates);
    }
    problem_free(&problem);
    candidates_free(&candidates);
    arena_free(&arena);
    return ok;
}

/* Halves the request's number of micro-batches until something fits around the keeper, or it is 1. */
static bool make_room_for_keeper(const Planner *planner, PlanRequest *request, double *gain)
{
    while (request->microbatches > 1) {
        Problem problem;
        if (!create_problem(planner, &planner->costs, request->schedule, request->recompute, &problem)) return false;
        bool fits = fits_with(planner, &problem, request->schedule == PLAN_AUTO ? 1 : 0);
        problem_free(&problem);
        if (fits) break;
        request->microbatches /= 2;
        *gain = -1; /* twice as many do not fit */
    }
    return true;
}

/* Rows that share lines say how many micro-batches there are. */
static bool check_microbatches(const Planner *planner)
{
    const Costs *costs = planner->asked;
    int asked = planner->request->microbatches;
    if (!costs->rows.microbatch_kinds || asked == 0 || asked == costs->microbatches) return true;
    return usage_error(planner->diagnostics, "leave out --microbatches",
                       "the costs are of rows packed into lines: a step has as many micro-batches as its rows "
                       "need, at most %d",
                       costs->microbatches);
}

/* Replaces PLAN_MICROBATCHES_AUTO in the request by a number. */
static bool choose_microbatches(const Planner *planner, PlanRequest *request, double *gain)
{
    Problem problem;
    Planner open = *planner;
    if (request->microbatches != PLAN_MICROBATCHES_AUTO) return true;
    request->microbatches = 1;
    /* As if the labels were free, since the heuristic gives a device one stage; memory is looked at afterwards. */
    if (has_keeper(planner)) open.pin_count--;
    if (!create_problem(&open, &planner->costs, request->schedule, planner->request->recompute, &problem)) return false;
    request->microbatches = microbatches_choose(&problem, gain);
    problem_free(&problem);
    return !has_keeper(planner) || make_room_for_keeper(planner, request, gain);
}

bool plan_make(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    PlanRequest settled = *request;
    bool limited = isfinite(request->time_limit_s);
    Watch watch = {.counted = !limited};
    Planner planner = {.asked = costs,
                       .request = &settled,
                       .watch = request->watch ? request->watch : &watch,
                       .seconds = limited ? request->time_limit_s : COUNTED_SECONDS,
                       .diagnostics = diagnostics};
    double gain = 0;
    planner.started = watch_seconds(planner.watch);
    if (!planner.watch->counted) planner.watch->limit = planner.started + planner.seconds;
    bool ok = check_microbatches(&planner) && leave_out(&planner) && collect_pins(&planner) &&
              choose_microbatches(&planner, &settled, &gain) && make_plan(&planner, plan);
    if (ok) plan->microbatches_gain = gain;
    if (ok) plan->replicas[0].rows = request->rows > 0 ? request->rows : -1;
    arena_free(&planner.arena);
    return ok;
}
