#include "partitioner/allocation.h"

#include <string.h>

Allocation allocation_create(Arena *arena, const Problem *problem)
{
    size_t room = (size_t)problem->device_count + 1;
    return (Allocation){0, arena_new_array(arena, int, room), arena_new_array(arena, int, room)};
}

void allocation_copy(Allocation *to, const Allocation *from)
{
    to->stage_count = from->stage_count;
    memcpy(to->device, from->device, (size_t)from->stage_count * sizeof *to->device);
    memcpy(to->end, from->end, (size_t)from->stage_count * sizeof *to->end);
}

bool allocation_equal(const Allocation *a, const Allocation *b)
{
    size_t bytes = (size_t)a->stage_count * sizeof *a->device;
    return a->stage_count == b->stage_count && memcmp(a->device, b->device, bytes) == 0 &&
           memcmp(a->end, b->end, bytes) == 0;
}

static bool is_keeper(const Allocation *a)
{
    return a->stage_count > 1 && a->device[0] == a->device[a->stage_count - 1];
}

/* Which of its two stages a keeper recomputes, where that is open: those that take the least time and leave
 * it enough memory. Bit 0 is the first stage, bit 1 the last. */
static int keeper_recomputes(const Problem *p, const Allocation *a)
{
    int type = p->type_of[a->device[0]], stages[] = {0, a->stage_count - 1}, best = 0;
    int64_t bytes[2][2], forward[2], least = INT64_MAX; /* bytes [stage][recomputes] */
    for (int i = 0; i < 2; i++) {
        int start = allocation_start(a, stages[i]), end = a->end[stages[i]],
            in_flight = problem_in_flight(p, a->stage_count - stages[i]);
        bytes[i][0] = problem_stage_bytes(p, start, end, in_flight);
        bytes[i][1] = problem_recompute_bytes(p, start, end, in_flight);
        forward[i] = problem_forward(p, type, start, end);
        if (bytes[i][1] < bytes[i][0]) best |= 1 << i; /* where nothing fits, as little as there may be */
    }
    for (int set = 0, all = best; set < 4; set++) {
        int64_t time = (set & 1 ? forward[0] : 0) + (set & 2 ? forward[1] : 0);
        bool fits = bytes[0][set & 1] <= p->type_limit[type] - bytes[1][set >> 1];
        if (!fits || (set & ~all) || time >= least) continue;
        least = time;
        best = set;
    }
    return best;
}

bool allocation_recomputes(const Problem *p, const Allocation *a, int stage)
{
    int last = a->stage_count - 1, type = p->type_of[a->device[stage]];
    if (problem_is_relaxed(p) && p->has_limits && is_keeper(a) && (stage == 0 || stage == last))
        return keeper_recomputes(p, a) >> (stage > 0) & 1;
    return problem_stage_recomputes(p, type, allocation_start(a, stage), a->end[stage], a->stage_count - stage);
}

/* A device with the first and the last stage works for both, and holds both. `again`: what recomputation adds. */
static void close_keeper(const Problem *p, const Allocation *a, int64_t again, AllocationValue *value)
{
    int last = a->stage_count - 1, type = p->type_of[a->device[0]], start = allocation_start(a, last);
    int64_t work = problem_work(p, type, 0, a->end[0]) + problem_work(p, type, start, a->end[last]) + again;
    int64_t update = problem_update(p, type, 0, a->end[0]) + problem_update(p, type, start, a->end[last]);
    int64_t first = problem_least_bytes(p, 0, a->end[0], problem_in_flight(p, a->stage_count)),
            bytes = problem_least_bytes(p, start, a->end[last], problem_in_flight(p, 1));
    if (work > value->period) value->period = work;
    if (update > value->update) value->update = update;
    if (p->type_limit[type] == COSTS_NO_LIMIT || bytes <= p->type_limit[type] - first) return;
    value->fits = false;
    if (__builtin_add_overflow(value->excess, first, &value->excess)) value->excess = INT64_MAX;
}

/* `settled`: with the time of recomputation where the problem leaves that open. */
static AllocationValue evaluate(const Problem *problem, const Allocation *allocation, bool settled)
{
    AllocationValue value = {.fits = true};
    int64_t ends_again = 0; /* what the first stage and the last recompute */
    for (int k = 0, start = 0; k < allocation->stage_count; start = allocation->end[k++]) {
        int end = allocation->end[k], type = problem->type_of[allocation->device[k]];
        int to_end = allocation->stage_count - k;
        int64_t work = problem_work(problem, type, start, end), update = problem_update(problem, type, start, end);
        bool again = allocation_recomputes(problem, allocation, k);
        if (settled && again && problem_is_relaxed(problem)) {
            work += problem_forward(problem, type, start, end);
            if (k == 0 || k + 1 == allocation->stage_count) ends_again += problem_forward(problem, type, start, end);
        }
        if (!problem_stage_fits(problem, type, start, end, to_end)) {
            value.fits = false;
            int in_flight = problem_in_flight(problem, to_end);
            int64_t over = (again ? problem_recompute_bytes(problem, start, end, in_flight)
                                  : problem_stage_bytes(problem, start, end, in_flight)) -
                           problem->type_limit[type];
            if (over > 0 && __builtin_add_overflow(value.excess, over, &value.excess)) value.excess = INT64_MAX;
        }
        value.sum += work;
        if (work > value.period) value.period = work;
        if (update > value.update) value.update = update;
        if (k == 0 || problem->free_links) continue;
        int from = problem->type_region[problem->type_of[allocation->device[k - 1]]], to = problem->type_region[type];
        int64_t busy = problem_link_period(problem, start, from, to);
        if (busy > value.period) value.period = busy;
        value.sum += problem_link_sum(problem, start, from, to);
    }
    if (is_keeper(allocation)) close_keeper(problem, allocation, ends_again, &value);
    value.step =
        value.sum + row_samples_rounds(&problem->costs->rows, problem->microbatches, value.period) + value.update;
    return value;
}

AllocationValue allocation_evaluate(const Problem *problem, const Allocation *allocation)
{
    return evaluate(problem, allocation, false);
}

AllocationValue allocation_settle(const Problem *problem, const Allocation *allocation)
{
    return evaluate(problem, allocation, true);
}

bool allocation_better(const Problem *problem, const AllocationValue *a, const AllocationValue *b)
{
    if (a->fits != b->fits) return a->fits;
    if (!a->fits && a->excess != b->excess) return a->excess < b->excess;
    bool step = problem->objective == PLAN_OBJECTIVE_STEP;
    int64_t first = step ? a->step - b->step : a->period - b->period;
    int64_t second = step ? a->period - b->period : a->step - b->step;
    return first != 0 ? first < 0 : second < 0;
}

int64_t allocation_objective(const Problem *problem, const AllocationValue *value)
{
    return problem->objective == PLAN_OBJECTIVE_STEP ? value->step : value->period;
}

AllocationValue incumbent_evaluate(const Incumbent *incumbent, const Allocation *allocation)
{
    return evaluate(incumbent->problem, allocation, incumbent->settled);
}

bool incumbent_offer(Incumbent *incumbent, const Allocation *allocation)
{
    AllocationValue value = incumbent_evaluate(incumbent, allocation);
    if (!value.fits || (incumbent->found && !allocation_better(incumbent->problem, &value, &incumbent->value)))
        return false;
    allocation_copy(incumbent->allocation, allocation);
    incumbent->value = value;
    return incumbent->found = true;
}

int64_t incumbent_objective(const Incumbent *incumbent)
{
    return allocation_objective(incumbent->problem, &incumbent->value);
}
