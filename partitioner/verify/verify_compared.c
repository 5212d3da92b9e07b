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

static bool check_baselines(Rules *r)
{
    const Plan *plan = r->plan;
    Problem problem;
    Allocation found[PLAN_OPTIMAL];
    bool known[PLAN_OPTIMAL] = {false}, ok = true;
    Costs costs = question_costs(plan, r->costs, &r->arena);
    if (!question_problem(plan, &costs, NULL, &problem)) return rules_refuse(r, "compared", "times overflow");
    for (int a = 0; a < PLAN_OPTIMAL; a++) found[a] = allocation_create(&r->arena, &problem);
    const char *keeper = costs_keeper(&costs);
    baselines_run(&problem, keeper ? costs_find_device(&costs, keeper) : -1, found, known);
    for (int a = 0; a < PLAN_OPTIMAL && ok; a++) {
        AllocationValue value = known[a] ? allocation_settle(&problem, &found[a]) : (AllocationValue){0};
        ok = check_row(r, a, &(PlanComparison){known[a], value.fits, value.period, value.step});
    }
    problem_free(&problem);
    return ok;
}

/* What the search found for a plan of another allocator: it starts from the heuristic's allocation, so it is no worse
 * than any row, and a step has at least the period's rounds and once more what the period is the longest of. */
static bool check_optimum(Rules *r)
{
    const Plan *plan = r->plan;
    const PlanComparison *row = &plan->compared[PLAN_OPTIMAL];
    const char *object = object_of(r, PLAN_OPTIMAL);
    if (!row->known || plan->allocator == PLAN_OPTIMAL) return true;
    if (!row->fits) return rules_refuse(r, object, "does not fit, so it was not found");
    for (int a = 0; a < PLAN_OPTIMAL; a++)
        if (plan->compared[a].known && plan->compared[a].fits &&
            value_of(plan, &plan->compared[a]) < value_of(plan, row))
            return rules_refuse(r, object, "is worse than %s", plan_allocator_name((PlanAllocator)a));
    int64_t longest = 0, sum = 0; /* every layer on the device that is quickest with it */
    for (int l = 0; l < r->layers; l++) {
        int64_t least = INT64_MAX;
        for (int d = 0; d < r->devices; d++)
            if (!r->left_out[d] && r->work[d][l + 1] - r->work[d][l] < least) least = r->work[d][l + 1] - r->work[d][l];
        if (least > longest) longest = least;
        sum += least;
    }
    if (sum < row->period_ns) sum = row->period_ns;
    return (row->period_ns >= longest && row->step_ns - sum >= rules_rounds(r, row->period_ns)) ||
           rules_refuse(r, object, "no plan is as short");
}

bool verify_compared(Rules *r, int64_t certified_ns)
{
    const Plan *plan = r->plan;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        bool own = a == (int)plan->allocator;
        if (plan->infeasible && c->known) return rules_refuse(r, object_of(r, a), "nothing fits");
        if (plan->infeasible) continue;
        if (own && (!c->known || !c->fits || c->period_ns != plan->period_ns || c->step_ns != plan->step_ns))
            return rules_refuse(r, object_of(r, a), "is not what the plan itself reaches");
        if (c->known && c->fits && value_of(plan, c) < certified_ns)
            return rules_refuse(r, object_of(r, a), "is below the certified bound");
    }
    return plan->infeasible || (check_baselines(r) && check_optimum(r));
}
