#include "partitioner/solver.h"

bool solver_is_small(const Problem *p) { return (int64_t)p->layer_count * p->device_count <= 3000; }

bool solver_is_large(const Problem *p) { return (int64_t)p->layer_count * p->device_count > 50000; }

bool solver_out_of_time(Solver *s)
{
    if (monotonic_seconds() > s->deadline) s->timed_out = true;
    return s->timed_out;
}

bool solver_offer(Solver *s, const Allocation *allocation)
{
    AllocationValue value = allocation_evaluate(s->problem, allocation);
    if (!value.fits || (s->found && !allocation_better(s->problem, &value, &s->value))) return false;
    allocation_copy(s->best, allocation);
    s->value = value;
    s->found = true;
    return true;
}

void solver_load_prices(const Solver *s, const Relaxation *r, double *price)
{
    for (int c = 0; c < r->class_count; c++) price[c] = s->type_price[r->class_type[c]];
}

void solver_store_prices(Solver *s, const Relaxation *r, const double *price)
{
    for (int d = 0; d < s->problem->device_count; d++) s->type_price[s->problem->type_of[d]] = price[r->class_of[d]];
}

double solver_price_deadline(const Solver *s)
{
    double time = monotonic_seconds();
    return time + (s->deadline - time) / 3;
}

void solver_improve(Solver *s, int failures, double until)
{
    if (solver_is_small(s->problem)) return;
    for (int failed = 0; failed < failures && s->found && !solver_out_of_time(s) && monotonic_seconds() < until;
         failed++) {
        int64_t value = s->problem->objective == PLAN_OBJECTIVE_STEP ? s->value.step : s->value.period;
        if (value <= s->bound) return;
        if (neighbourhood_try(&s->neighbourhood, s->best, s->bound, &s->trial) && solver_offer(s, &s->trial))
            failed = -1;
    }
}
