#include "partitioner/question.h"

Costs question_costs(const Plan *plan, const Costs *asked, Arena *arena)
{
    Costs costs = *asked;
    costs.codecs = plan->codecs;
    costs.devices = arena_new_array(arena, DeviceCost, (size_t)asked->device_count + 1);
    costs.device_count = 0;
    for (int d = 0; d < asked->device_count; d++)
        if (!plan_leaves_out(plan, asked->devices[d].name)) costs.devices[costs.device_count++] = asked->devices[d];
    return costs;
}

bool question_problem(const Plan *plan, const Costs *costs, Watch *watch, Problem *problem)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    if (!problem_create_recomputing(problem, costs, plan->objective, plan->schedule, plan->microbatches,
                                    plan->recompute, NULL, &ignored))
        return false;
    problem_limit_in_flight(problem, plan->in_flight_limit);
    problem->watch = watch;
    for (int i = 0; i < plan->pin_count; i++) {
        int device = costs_find_device(costs, plan->pins[i].device);
        if (device >= 0) problem_pin(problem, plan->pins[i].first_layer, plan->pins[i].last_layer, device);
    }
    return true;
}
