/* The rows of the comparison: baselines are run again, and what cannot be found again is bounded. */
#include "partitioner/question.h"
#include "partitioner/solve/baselines.h"
#include "partitioner/verify/verify_lists.h"

static int64_t value_of(const Plan *plan, const PlanComparison *row)
{
    return plan->objective == PLAN_OBJECTIVE_STEP ? row->step_ns : row->period_ns;
}

static const char *object_of(Rules *r, int allocator)
{
    return arena_format(&r->arena, "compared.%s", plan_allocator_name((PlanAllocator)allocator));
}

static bool check_row(Rules *r, int allocator, const PlanComparison *found)
{
    const PlanComparison *row = &r->plan->compared[allocator];
    const char *object = object_of(r, allocator);
    if (row->known != found->known)
        return rules_refuse(r, object, found->known ? "is missing" : "this allocator finds no allocation");
    if (row->known &&
        (row->fits != found->fits || row->period_ns != found->period_ns || row->step_ns != found->step_ns))
        return rules_refuse(r, object, "its allocation %s, with a period of %lld and a step of %lld ns",
                            found->fits ? "fits" : "does not fit", (long long)found->period_ns,
                            (long long)found->step_ns);
    return true;
}

/* What the search found where the plan is another allocation: its stages say which one. */
static bool check_optimum(Rules *r, const Problem *problem)
{
    const Plan *plan = r->plan;
    const PlanComparison *row = &plan->compared[PLAN_OPTIMAL];
    const char *object = object_of(r, PLAN_OPTIMAL);
    Allocation found = allocation_create(&r->arena, problem);
    bool *used = arena_new_array(&r->arena, bool, (size_t)problem->device_count);
    if (!row->known) return true;
    if (row->stage_count == 0)
        return (row->fits && row->period_ns == plan->period_ns && row->step_ns == plan->step_ns) ||
               rules_refuse(r, object, "names no stages, so it is the plan's own allocation, which has other values");
    for (int k = 0; k < row->stage_count; k++) {
        int device = costs_find_device(problem->costs, row->stages[k].device), start = allocation_start(&found, k);
        bool keeps = k > 0 && k + 1 == row->stage_count && device == found.device[0] && costs_keeper(problem->costs);
        if (device < 0 || (used[device] && !keeps) || row->stages[k].first_layer != start)
            return rules_refuse(r, object, "its stages are no allocation of the layers");
        used[device] = true;
        found.device[k] = device;
        found.end[k] = row->stages[k].last_layer + 1;
        found.stage_count++;
    }
    if (found.end[found.stage_count - 1] != problem->layer_count)
        return rules_refuse(r, object, "its stages are no allocation of the layers");
    AllocationValue value = allocation_settle(problem, &found);
    if (!value.fits ||
        !check_row(r, PLAN_OPTIMAL,
                   &(PlanComparison){.known = true, .fits = true, .period_ns = value.period, .step_ns = value.step}))
        return value.fits ? false : rules_refuse(r, object, "does not fit, so it was not found");
    for (int a = 0; a < PLAN_OPTIMAL; a++)
        if (plan->compared[a].known && plan->compared[a].fits &&
            value_of(plan, &plan->compared[a]) < value_of(plan, row))
            return rules_refuse(r, object, "is worse than %s", plan_allocator_name((PlanAllocator)a));
    return value_of(plan, row) <= plan_value_ns(plan) || rules_refuse(r, object, "is worse than the plan");
}

static bool check_comparison(Rules *r)
{
    const Plan *plan = r->plan;
    FREED_WITH(problem_free) Problem problem = {0};
    Allocation found[PLAN_OPTIMAL];
    bool known[PLAN_OPTIMAL] = {false}, ok = true;
    Costs costs = question_costs(plan, r->costs, &r->arena);
    if (!question_problem(plan, &costs, NULL, &problem)) return rules_refuse(r, "compared", "times overflow");
    for (int a = 0; a < PLAN_OPTIMAL; a++) found[a] = allocation_create(&r->arena, &problem);
    const char *keeper = costs_keeper(&costs);
    baselines_run(&problem, keeper ? costs_find_device(&costs, keeper) : -1, found, known);
    for (int a = 0; a < PLAN_OPTIMAL && ok; a++) {
        AllocationValue value = known[a] ? allocation_settle(&problem, &found[a]) : (AllocationValue){0};
        ok = check_row(
            r, a,
            &(PlanComparison){.known = known[a], .fits = value.fits, .period_ns = value.period, .step_ns = value.step});
    }
    return ok && check_optimum(r, &problem);
}

bool verify_compared(Rules *r, int64_t certified_ns)
{
    const Plan *plan = r->plan;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        bool own = a == (int)plan->allocator && c->stage_count == 0;
        if (plan->infeasible && c->known) return rules_refuse(r, object_of(r, a), "nothing fits");
        if (plan->infeasible) continue;
        if (own && (!c->known || !c->fits || c->period_ns != plan->period_ns || c->step_ns != plan->step_ns))
            return rules_refuse(r, object_of(r, a), "is not what the plan itself reaches");
        if (c->known && c->fits && value_of(plan, c) < certified_ns)
            return rules_refuse(r, object_of(r, a), "is below the certified bound");
    }
    return plan->infeasible || check_comparison(r);
}
