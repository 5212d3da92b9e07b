#include "partitioner/solve/solver.h"

#include "partitioner/sizes.h"

bool solver_out_of_time(Solver *s)
{
    if (watch_passed(s->problem->watch, s->deadline)) s->timed_out = true;
    return s->timed_out;
}

void solver_load_prices(const Solver *s, const Relaxation *r, double *price)
{
    for (int c = 0; c < r->class_count; c++) price[c] = s->type_price[r->class_type[c]];
}

void solver_store_prices(Solver *s, const Relaxation *r, const double *price)
{
    for (int d = 0; d < s->problem->device_count; d++) s->type_price[s->problem->type_of[d]] = price[r->class_of[d]];
}

double solver_price_deadline(const Solver *s) { return watch_share(s->problem->watch, s->deadline, 1.0 / 3); }

void solver_improve(Solver *s, int failures, double until)
{
    enum { REPEATED = 15 }; /* a step's neighbourhoods of everything have five caps, drawn at random */
    if (size_is_small(s->problem)) return;
    for (int failed = 0;
         failed < failures && s->best.found && !solver_out_of_time(s) && !watch_passed(s->problem->watch, until);
         failed++) {
        int64_t value = incumbent_objective(&s->best);
        if (value <= s->bound) return;
        if (neighbourhood_try(&s->neighbourhood, s->best.allocation, s->bound, &s->trial) &&
            incumbent_offer(&s->best, &s->trial))
            failed = -1;
        if (s->problem->objective == PLAN_OBJECTIVE_STEP && s->neighbourhood.repeated >= REPEATED) return;
    }
}
