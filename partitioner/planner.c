#include "partitioner/planner.h"

#include <stdlib.h>
#include <string.h>

#include "partitioner/allocate.h"
#include "partitioner/certify.h"
#include "partitioner/crossings.h"
#include "partitioner/loop.h"
#include "partitioner/loop_certify.h"
#include "partitioner/microbatches.h"
#include "partitioner/optimal.h"
#include "partitioner/prove.h"
#include "partitioner/recompute.h"
#include "partitioner/relax.h"
#include "partitioner/schedule.h"

typedef struct Planner {
    const Costs *asked; /* as the user gave them */
    Costs costs;        /* without the devices that must not be used; shares everything else */
    const PlanRequest *request;
    PlanPin *pins; /* the request's, and what keep: implies */
    int pin_count;
    int in_flight_limit; /* of searched orders where nothing fits otherwise; 0: none */
    double started;      /* on the monotonic clock: from here on the time limit counts */
    Arena arena;
    Diagnostics *diagnostics;
} Planner;

/* ---- wishes ---- */

static bool check_device(const Planner *p, const char *name, const char *what)
{
    enum { MOST = 12 };
    if (costs_find_device(p->asked, name) >= 0) return true;
    Buffer known = {0};
    for (int d = 0; d < p->asked->device_count && d < MOST; d++)
        buffer_print(&known, d ? ", %s" : "devices: %s", p->asked->devices[d].name);
    if (p->asked->device_count > MOST) buffer_print(&known, " and %d more", p->asked->device_count - MOST);
    diagnostics_error(p->diagnostics, EXIT_USAGE, PLACE_NONE, buffer_text(&known), "%s: no device is named '%s'", what,
                      name);
    buffer_free(&known);
    return false;
}

static bool is_left_out(const PlanRequest *request, const char *name)
{
    for (int i = 0; i < request->without_count; i++)
        if (strcmp(request->without[i], name) == 0) return true;
    return false;
}

static bool leave_out(Planner *p)
{
    const PlanRequest *request = p->request;
    for (int i = 0; i < request->without_count; i++)
        if (!check_device(p, request->without[i], "--without")) return false;
    p->costs = *p->asked;
    p->costs.devices = arena_new_array(&p->arena, DeviceCost, (size_t)p->asked->device_count);
    p->costs.device_count = 0;
    for (int i = 0; i < p->asked->device_count; i++)
        if (!is_left_out(request, p->asked->devices[i].name))
            p->costs.devices[p->costs.device_count++] = p->asked->devices[i];
    if (p->costs.device_count > 0) return true;
    return diagnostics_error(p->diagnostics, EXIT_NO_PLAN, PLACE_NONE, NULL, "no device is left");
}

static bool add_pin(Planner *p, PlanPin pin, const char *what)
{
    if (!check_device(p, pin.device, what)) return false;
    if (is_left_out(p->request, pin.device))
        return diagnostics_error(p->diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "%s: '%s' is left out", what,
                                 pin.device);
    for (int i = 0; i < p->pin_count; i++)
        if (pin.first_layer <= p->pins[i].last_layer && p->pins[i].first_layer <= pin.last_layer &&
            strcmp(pin.device, p->pins[i].device) != 0)
            return diagnostics_error(p->diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                                     "%s: a layer cannot be both on '%s' and on '%s'", what, pin.device,
                                     p->pins[i].device);
    p->pins[p->pin_count++] = pin;
    return true;
}

/* Whether one device keeps both: it has the first and the last stage then. */
static bool has_loop(const Planner *p) { return costs_keeper(p->asked) != NULL; }

/* Raw inputs stay where the first layer runs, labels where the last one does. */
static bool collect_pins(Planner *p)
{
    int last = p->asked->layer_count - 1;
    p->pins = arena_new_array(&p->arena, PlanPin, (size_t)p->request->pin_count + 2);
    for (int i = 0; i < p->request->pin_count; i++)
        if (!add_pin(p, p->request->pins[i], "--pin")) return false;
    if (p->asked->keep_inputs && !add_pin(p, (PlanPin){0, 0, p->asked->keep_inputs}, "keep: inputs")) return false;
    return !p->asked->keep_labels || add_pin(p, (PlanPin){last, last, p->asked->keep_labels}, "keep: labels");
}

static bool create_problem(const Planner *p, const Costs *costs, PlanSchedule schedule, ProblemRecompute how,
                           Problem *problem)
{
    if (!problem_create_recomputing(problem, costs, p->request->objective, schedule, p->request->microbatches, how,
                                    NULL, p->diagnostics))
        return false;
    problem_limit_in_flight(problem, p->in_flight_limit);
    for (int i = 0; i < p->pin_count; i++)
        problem_pin(problem, p->pins[i].first_layer, p->pins[i].last_layer,
                    costs_find_device(costs, p->pins[i].device));
    return true;
}

/* ---- the allocators ---- */

typedef struct Candidates {
    Allocation allocation[PLAN_ALLOCATOR_COUNT];
    bool known[PLAN_ALLOCATOR_COUNT];
    OptimalResult result;
    Evidence evidence; /* for the result's bound */
    LoopTrail trail;   /* the same around a loop */
} Candidates;

static void run_baselines(const Problem *problem, Candidates *c)
{
    allocate_even(problem, &c->allocation[PLAN_EVEN]);
    c->known[PLAN_EVEN] = true;
    c->known[PLAN_SKY] = allocate_sky(problem, &c->allocation[PLAN_SKY]);
    c->known[PLAN_HEURISTIC] = allocate_heuristic(problem, &c->allocation[PLAN_HEURISTIC]);
}

/* The baselines do not know recomputation: they get by without it where they can. */
static void run_allocators(const Planner *p, Problem *problem, Arena *arena, Candidates *c)
{
    Problem plain;
    bool recompute = recompute_matters(problem);
    double deadline = p->started + 0.9 * p->request->time_limit_s;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) c->allocation[a] = allocation_create(arena, problem);
    if (has_loop(p)) {
        int device = costs_find_device(&p->costs, costs_keeper(p->asked));
        double seconds = deadline - monotonic_seconds();
        LoopResult loop = recompute_loop(problem, device, seconds, c->allocation, &c->trail);
        memcpy(c->known, loop.known, sizeof c->known);
        c->result = loop.optimal;
        return;
    }
    if (recompute && problem_derive(&plain, problem, problem->costs, problem->microbatches, RECOMPUTE_NEVER, NULL)) {
        run_baselines(&plain, c);
        problem_free(&plain);
    }
    if (!c->known[PLAN_HEURISTIC]) run_baselines(problem, c);
    const Allocation *start = c->known[PLAN_HEURISTIC] ? &c->allocation[PLAN_HEURISTIC] : NULL;
    double seconds = deadline - monotonic_seconds();
    c->result = recompute ? recompute_solve(problem, start, seconds, &c->allocation[PLAN_OPTIMAL], &c->evidence)
                          : optimal_solve(problem, start, seconds, &c->allocation[PLAN_OPTIMAL], &c->evidence);
    c->known[PLAN_OPTIMAL] = c->result.found;
}

/* ---- fewer micro-batches in flight ---- */

/* Whether a plan fits with so many in flight at most; a search that takes long counts as no. */
static bool fits_with(const Planner *p, const Problem *problem, int limit)
{
    Problem limited;
    bool fits = false;
    if (!problem_derive(&limited, problem, problem->costs, problem->microbatches, problem->recompute, NULL))
        return false;
    problem_limit_in_flight(&limited, limit);
    if (has_loop(p)) {
        Allocation all[PLAN_ALLOCATOR_COUNT];
        int device = costs_find_device(&p->costs, costs_keeper(p->asked));
        double seconds = p->request->time_limit_s / 20;
        for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) all[a] = allocation_create(&limited.arena, &limited);
        fits = loop_solve(&limited, device, seconds, all, NULL).optimal.found;
    } else {
        fits = optimal_is_feasible(&limited);
    }
    problem_free(&limited);
    return fits;
}

/* Nothing fits with the micro-batches that 1F1B keeps in flight: the most with which something does, or 1. 0: memory
 * does not depend on them, or the order is not to be searched for. */
static int find_in_flight_limit(const Planner *p, const Problem *problem)
{
    int low = 1, high = problem_in_flight(problem, problem->device_count + has_loop(p));
    if (p->request->schedule != PLAN_AUTO || problem->level_limit == 0 || high <= 1) return 0;
    if (!fits_with(p, problem, low)) return low;
    while (high - low > 1) { /* with low something fits, with high nothing */
        int middle = low + (high - low) / 2;
        *(fits_with(p, problem, middle) ? &low : &high) = middle;
    }
    return low;
}

/* ---- the plan ---- */

static void fill_comparison(Plan *plan, const Problem *problem, const Candidates *c)
{
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        if (!c->known[a]) continue;
        AllocationValue value = allocation_settle(problem, &c->allocation[a]);
        plan->compared[a] = (PlanComparison){true, value.fits, value.period, value.step};
    }
}

static void fill_wishes(const Planner *p, Plan *plan)
{
    char text[33];
    plan->costs_hash = arena_string(&plan->arena, hash_format(costs_hash(p->asked), text));
    plan->without_count = p->request->without_count;
    plan->without = arena_new_array(&plan->arena, const char *, (size_t)plan->without_count);
    for (int i = 0; i < plan->without_count; i++) plan->without[i] = arena_string(&plan->arena, p->request->without[i]);
    plan->pin_count = p->pin_count;
    plan->pins = arena_copy(&plan->arena, p->pins, (size_t)p->pin_count * sizeof *p->pins);
    for (int i = 0; i < plan->pin_count; i++) plan->pins[i].device = arena_string(&plan->arena, p->pins[i].device);
}

static void fill_bound(Plan *plan, const OptimalResult *result)
{
    int64_t value = plan_value_ns(plan);
    plan->lower_bound_ns = result->bound < value ? result->bound : value;
    if (plan->lower_bound_ns < 0) plan->lower_bound_ns = 0; /* a search that ended at once may know less than that */
    plan->proven_optimal = plan->lower_bound_ns == value;
    plan->gap = plan->proven_optimal ? 0 : (double)(value - plan->lower_bound_ns) / (double)value;
    plan->timed_out = result->timed_out;
}

/* Counted, so that the same question gives the same bytes; where the time limit ended the search they are no longer the
 * same anyway, and what is left of it is the limit. Periods: the trees are about those of the search. Steps: two
 * seconds' worth, or a tenth of a second's of large problems, where trees rarely get further than prices alone. What
 * takes more is certified a little lower. */
static int64_t certify_work(const Problem *problem, bool timed_out)
{
    int64_t size = (int64_t)problem->layer_count * problem->device_count;
    if (timed_out) return INT64_MAX;
    if (problem->objective == PLAN_OBJECTIVE_PERIOD) return 10000000000;
    return size > 5000 ? 100000000 : 2000000000;
}

static void fill_certificate(const Planner *p, Plan *plan, const Problem *problem, Candidates *candidates)
{
    int *device_of = memory_allocate((size_t)problem->device_count * sizeof *device_of);
    for (int d = 0; d < problem->device_count; d++)
        device_of[d] = costs_find_device(p->asked, p->costs.devices[d].name);
    CertifyRequest request = {.bound = plan->infeasible ? period_largest(problem) + 1 : plan->lower_bound_ns,
                              .device_of = device_of,
                              .price_count = p->asked->device_count,
                              .evidence = &candidates->evidence,
                              .work = certify_work(problem, candidates->result.timed_out),
                              .infeasible = plan->infeasible,
                              .deadline = p->started + p->request->time_limit_s};
    if (has_loop(p))
        plan->certificate = loop_certify(problem, costs_find_device(&p->costs, costs_keeper(p->asked)),
                                         &candidates->trail, &request, &plan->arena, &plan->timed_out);
    else
        plan->certificate = certify(problem, &request, &plan->arena, &plan->timed_out);
    free(device_of);
}

/* A plan without stages, but with the proof that there is none. Without a proof it is not given out. */
static void fill_infeasible(const Planner *p, Plan *plan, const Problem *problem, Candidates *candidates)
{
    memset(plan, 0, sizeof *plan);
    plan->infeasible = true;
    plan->name = arena_string(&plan->arena, p->asked->name);
    plan->model_hash = arena_string(&plan->arena, p->asked->model_hash ? p->asked->model_hash : "");
    plan->allocator = PLAN_OPTIMAL;
    plan->objective = p->request->objective;
    plan->schedule = problem->schedule;
    plan->recompute = p->request->recompute;
    plan->microbatches = problem->microbatches;
    plan->in_flight_limit = problem->in_flight_limit;
    plan->layer_count = problem->layer_count;
    fill_wishes(p, plan);
    fill_certificate(p, plan, problem, candidates);
    if (!plan->certificate) plan_free(plan);
}

static bool report_misfit(const Planner *p, const Problem *problem, const Candidates *c)
{
    PlanAllocator a = p->request->allocate;
    const Allocation *allocation = &c->allocation[a];
    const char *name = plan_allocator_name(a);
    for (int k = 0; k < allocation->stage_count; k++) {
        int device = allocation->device[k], start = k ? allocation->end[k - 1] : 0, end = allocation->end[k];
        if (problem_stage_fits(problem, problem->type_of[device], start, end, allocation->stage_count - k)) continue;
        int in_flight = problem_in_flight(problem, allocation->stage_count - k);
        return diagnostics_error(p->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--allocate optimal may still find a plan",
                                 "%s allocation: layers %d to %d do not fit on '%s' (%lld of %lld bytes)", name, start,
                                 end - 1, p->costs.devices[device].name,
                                 (long long)problem_stage_bytes(problem, start, end, in_flight),
                                 (long long)problem->type_limit[problem->type_of[device]]);
    }
    return diagnostics_error(p->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "--allocate optimal may still find a plan",
                             "%s allocation finds nothing that fits", name);
}

static bool report_loop(const Planner *p, const Problem *problem)
{
    const char *name = p->asked->keep_inputs;
    int device = costs_find_device(&p->costs, name);
    int64_t needed = loop_least_memory(problem, device);
    Arena arena = {0};
    int64_t extra = needed - p->costs.devices[device].memory_bytes;
    diagnostics_error(p->diagnostics, EXIT_NO_PLAN, PLACE_NONE,
                      arena_format(&arena, "+%lld MiB on '%s' would be enough (%lld bytes)",
                                   (long long)((extra + 1048575) >> 20), name, (long long)extra),
                      "no allocation of the %d layers that fits the memory of the %d devices with inputs and labels on "
                      "'%s' was found%s",
                      problem->layer_count, problem->device_count, name, relax_limit_text(problem));
    arena_free(&arena);
    return false;
}

static bool check_found(const Planner *p, const Problem *problem, const Candidates *c)
{
    PlanAllocator chosen = p->request->allocate;
    if (c->result.infeasible && has_loop(p)) return report_loop(p, problem);
    if (c->result.infeasible) return relax_report(problem, p->diagnostics);
    if (chosen == PLAN_OPTIMAL && !c->result.found)
        return diagnostics_error(p->diagnostics, EXIT_NO_PLAN, PLACE_NONE, "give --time-limit more seconds",
                                 "no plan that fits was found in the time given, and none was excluded");
    const Allocation *allocation = &c->allocation[chosen]; /* without stages where the allocator knows none */
    return chosen == PLAN_OPTIMAL || (allocation->stage_count > 0 && allocation_evaluate(problem, allocation).fits) ||
           report_misfit(p, problem, c);
}

static void candidates_free(Candidates *c)
{
    evidence_free(&c->evidence);
    loop_trail_free(&c->trail);
    *c = (Candidates){0};
}

static bool make_plan(Planner *p, Plan *plan)
{
    Problem problem;
    Candidates candidates = {0};
    Arena arena = {0};
    if (!create_problem(p, &p->costs, p->request->schedule, problem_recompute(p->request->recompute), &problem))
        return false;
    run_allocators(p, &problem, &arena, &candidates);
    if (candidates.result.infeasible && (p->in_flight_limit = find_in_flight_limit(p, &problem)) > 0) {
        problem_limit_in_flight(&problem, p->in_flight_limit);
        candidates_free(&candidates);
        run_allocators(p, &problem, &arena, &candidates);
    }
    if (candidates.result.infeasible) fill_infeasible(p, plan, &problem, &candidates);
    bool ok = check_found(p, &problem, &candidates);
    if (ok) {
        const Allocation *chosen = &candidates.allocation[p->request->allocate];
        plan_build(plan, &problem, chosen, p->request->allocate);
        plan->recompute = p->request->recompute;
        fill_comparison(plan, &problem, &candidates);
        crossings_fill(plan, p->asked);
        fill_wishes(p, plan);
        fill_bound(plan, &candidates.result);
        fill_certificate(p, plan, &problem, &candidates);
    }
    problem_free(&problem);
    candidates_free(&candidates);
    arena_free(&arena);
    return ok;
}

/* Replaces PLAN_MICROBATCHES_AUTO in the request by a number. */
static bool choose_microbatches(const Planner *p, PlanRequest *request, double *gain)
{
    Problem problem;
    Planner open = *p;
    if (request->microbatches != PLAN_MICROBATCHES_AUTO) return true;
    request->microbatches = 1;
    if (has_loop(p)) open.pin_count--; /* as if the labels were free: the heuristic gives a device one stage */
    if (!create_problem(&open, &p->costs, request->schedule, problem_recompute(p->request->recompute), &problem))
        return false;
    request->microbatches = microbatches_choose(&problem, gain);
    problem_free(&problem);
    return true;
}

bool plan_make(Plan *plan, const Costs *costs, const PlanRequest *request, Diagnostics *diagnostics)
{
    PlanRequest settled = *request;
    Planner p = {.asked = costs, .request = &settled, .started = monotonic_seconds(), .diagnostics = diagnostics};
    double gain = 0;
    bool ok = leave_out(&p) && collect_pins(&p) && choose_microbatches(&p, &settled, &gain) && make_plan(&p, plan);
    if (ok) plan->microbatches_gain = gain;
    arena_free(&p.arena);
    return ok;
}
