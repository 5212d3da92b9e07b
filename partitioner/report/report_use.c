#include "partitioner/report/report_use.h"

#include <math.h>

#include "base/integers.h"
#include "partitioner/question.h"
#include "partitioner/replicas.h"
#include "partitioner/report/division.h"

static const char LEFT_OUT[] = "left out as asked", MEMORY[] = "memory",
                  LINK[] = "its link is slower than what it saves", SLOW[] = "too slow to save time",
                  LAYERS[] = "more devices than useful layers";

typedef struct Use {
    const Plan *plan;
    Problem problem;
    int *type;          /* [stage] */
    int64_t *others_ns; /* [stage]: the period without it and its links */
    int64_t *beside_ns; /* [stage]: what its device does in its other stage */
} Use;

/* ---- speeds, and the bound ---- */

/* [layer]: what it takes on the device that suits it best. */
static int64_t *least_works(const Problem *p, Arena *arena)
{
    int64_t *least = arena_new_array(arena, int64_t, (size_t)p->layer_count);
    for (int l = 0; l < p->layer_count; l++) {
        least[l] = problem_work(p, 0, l, l + 1);
        for (int t = 1; t < p->type_count; t++)
            if (problem_work(p, t, l, l + 1) < least[l]) least[l] = problem_work(p, t, l, l + 1);
    }
    return least;
}

/* With the layer that suits it best of those that take at least `shortest`: others count for nothing, as what they take
 * has little to do with a device's speed. */
static double speed_of(const Problem *p, int type, const int64_t *least, int64_t shortest)
{
    double speed = 0;
    for (int l = 0; l < p->layer_count; l++)
        if (least[l] >= shortest)
            speed = fmax(speed, (double)least[l] / (double)larger(problem_work(p, type, l, l + 1), 1));
    return speed;
}

static bool holds_a_layer(const Problem *p, int type)
{
    int l = 0;
    while (l < p->layer_count && !problem_stage_fits(p, type, l, l + 1, 1)) l++;
    return l < p->layer_count;
}

/* How long the quickest link between two devices is busy with a micro-batch over the narrowest cut; `apart`: of
 * different regions. INT64_MAX: there is none. */
static int64_t narrowest(const Problem *p, bool apart)
{
    int64_t least = INT64_MAX;
    for (int width = 0; width < p->width_count; width++)
        for (int a = 0; a < p->region_count; a++)
            for (int b = 0; b < p->region_count; b++)
                if ((a != b || !apart) && problem_width_link(p, width, a, b)->period < least)
                    least = problem_width_link(p, width, a, b)->period;
    return p->free_links ? 0 : least;
}

/* What replicas send instead of what crosses a cut: a part of all gradients, but of rows that may not occur, over the
 * fastest link, ns. */
static double gradient_sums(const Problem *p)
{
    const Costs *costs = p->costs;
    double bytes = 0, fastest = 0;
    for (int l = 0; l < p->layer_count; l++) {
        const LayerCost *layer = &costs->layers[l];
        bytes += (double)(layer->gradient_bytes - layer->table_rows * layer->table_row_bytes);
    }
    for (int i = 0; i < costs->region_count * costs->region_count; i++)
        fastest = fmax(fastest, costs->bandwidth_Bps[i]);
    return fastest > 0 ? 1e9 * codecs_sum_share(costs->codecs) * bytes / costs->device_count / fastest : 0;
}

/* A longer stage may fit where none of its layers does on its own, as less crosses its cuts, and with several pipelines
 * fewer micro-batches may be in flight: what counts is what a layer takes in any stage. */
static bool may_hold_a_layer(const Problem *p, int type)
{
    int l = 0;
    while (l < p->layer_count && p->fixed_bytes[l + 1] - p->fixed_bytes[l] > p->type_limit[type]) l++;
    return l < p->layer_count;
}

/* What layers that take at least `shortest` take on all devices, on those of one region, and on one: computing all the
 * time. */
typedef struct Works {
    double across, inside, alone;
} Works;

static Works works_with(const Problem *p, const int64_t *least, int64_t shortest, double *region)
{
    double work = 0, all = 0, alone = 0, best = 0;
    for (int l = 0; l < p->layer_count; l++) work += least[l] >= shortest ? (double)least[l] : 0;
    for (int r = 0; r < p->region_count; r++) region[r] = 0;
    for (int t = 0; t < p->type_count; t++) {
        double speed = may_hold_a_layer(p, t) ? speed_of(p, t, least, shortest) : 0;
        alone = fmax(alone, speed);
        all += speed * p->type_size[t];
        best = fmax(best, region[p->type_region[t]] += speed * p->type_size[t]);
    }
    return all > 0 ? (Works){work / all, work / best, work / alone} : (Works){0};
}

/* As if layers could be divided. Several devices need a cut between them, or sum their gradients. */
static int64_t bound_of(const Problem *p, Arena *arena)
{
    static const double shares[] = {0, 0.02, 0.1, 0.3, 0.6};
    double *region = arena_new_array(arena, double, (size_t)p->region_count);
    double rounds = p->rounds + 1, sums = gradient_sums(p), cut = 0, cut_apart = 0;
    int64_t *least = least_works(p, arena), bound = 0, longest = 0;
    for (int l = 0; l < p->layer_count; l++) longest = larger(longest, least[l]);
    if (p->layer_count > 1) cut = fmin(sums, rounds * (double)narrowest(p, false));
    if (p->layer_count > 1) cut_apart = fmin(sums, rounds * (double)narrowest(p, true));
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        Works works = works_with(p, least, (int64_t)(shares[i] * (double)longest), region);
        double inside = fmax(rounds * works.inside, cut), across = fmax(rounds * works.across, cut_apart);
        if (p->region_count > 1) inside = fmin(inside, across);
        bound = larger(bound, (int64_t)fmin(inside, rounds * works.alone));
    }
    return bound;
}

/* ---- why a device is idle ---- */

typedef struct Trial {
    int idle;        /* type */
    bool free_link;  /* the cut that it adds costs nothing, and the others what they cost now */
    bool any_memory; /* it holds whatever it is given */
} Trial;

static void add_link(const Problem *p, int cut, int from, int to, int64_t *period, int64_t *sum)
{
    if (p->free_links || from < 0 || to < 0) return;
    int a = p->type_region[from], b = p->type_region[to];
    *period = larger(*period, problem_link_period(p, cut, a, b));
    *sum += problem_link_sum(p, cut, a, b);
}

/* Whether the plan is better if the device takes the layers before `cut`, or after it, of a stage; or all of them. */
static bool helps(const Use *use, const Trial *trial, int stage, int cut, bool before)
{
    const Problem *p = &use->problem;
    const PlanStage *s = &use->plan->stages[stage];
    int own = use->type[stage], start = s->first_layer, end = s->last_layer + 1,
        to_end = use->plan->stage_count - stage;
    int from = before ? start : cut, to = before ? cut : end;
    int previous = stage ? use->type[stage - 1] : -1, next = to_end > 1 ? use->type[stage + 1] : -1;
    int64_t now = problem_work(p, own, start, end), unused = 0;
    int64_t taken = problem_work(p, trial->idle, from, to), left = now - problem_work(p, own, from, to);
    int64_t period = larger(use->others_ns[stage], larger(taken, left > 0 ? left + use->beside_ns[stage] : 0));
    int64_t sum = taken + left;
    if (!trial->any_memory && !problem_stage_fits(p, trial->idle, from, to, to_end)) return false;
    add_link(p, start, previous, own, &unused, &now);
    add_link(p, end, own, next, &unused, &now);
    int idle = trial->free_link ? own : trial->idle;
    add_link(p, start, previous, before || left == 0 ? idle : own, &period, &sum);
    if (left > 0 && !trial->free_link) add_link(p, cut, before ? idle : own, before ? own : idle, &period, &sum);
    add_link(p, end, before && left > 0 ? own : idle, next, &period, &sum);
    double change = (double)(sum - now) + p->rounds * (double)(period - use->plan->period_ns);
    return p->objective == PLAN_OBJECTIVE_PERIOD ? period < use->plan->period_ns : change < 0;
}

static bool any_helps(const Use *use, Trial trial)
{
    for (int k = 0; k < use->plan->stage_count; k++)
        for (int cut = use->plan->stages[k].first_layer + 1; cut <= use->plan->stages[k].last_layer + 1; cut++)
            if (helps(use, &trial, k, cut, true) ||
                (cut <= use->plan->stages[k].last_layer && helps(use, &trial, k, cut, false)))
                return true;
    return false;
}

/* The period is that of a stage with one layer, which no further device makes shorter. */
static bool is_one_layer(const Use *use)
{
    bool one = false;
    for (int k = 0; k < use->plan->stage_count; k++) {
        const PlanStage *stage = &use->plan->stages[k];
        one |=
            stage->first_layer == stage->last_layer && stage->forward_ns + stage->backward_ns == use->plan->period_ns;
    }
    return one;
}

static const char *reason_of(const Use *use, int type)
{
    const Problem *p = &use->problem;
    bool slower = false;
    for (int k = 0; k < use->plan->stage_count; k++)
        slower |= problem_work(p, type, 0, p->layer_count) > problem_work(p, use->type[k], 0, p->layer_count);
    if (!holds_a_layer(p, type)) return MEMORY;
    if (any_helps(use, (Trial){.idle = type, .free_link = true})) return LINK;
    if (any_helps(use, (Trial){.idle = type, .any_memory = true})) return MEMORY;
    if (any_helps(use, (Trial){.idle = type, .any_memory = true, .free_link = true})) return LINK;
    return slower && !is_one_layer(use) ? SLOW : LAYERS;
}

/* ---- all of it ---- */

static void prepare(Use *use, Arena *arena)
{
    const Plan *plan = use->plan;
    const Problem *p = &use->problem;
    size_t stages = (size_t)plan->stage_count;
    use->type = arena_new_array(arena, int, stages);
    use->others_ns = arena_new_array(arena, int64_t, stages);
    use->beside_ns = arena_new_array(arena, int64_t, stages);
    for (int k = 0; k < plan->stage_count; k++) {
        const PlanStage *stage = &plan->stages[k];
        use->type[k] = p->type_of[costs_find_device(p->costs, stage->device)];
        use->beside_ns[k] = plan_rank_work(plan, stage->rank) - stage->forward_ns - stage->backward_ns;
    }
    for (int k = 0; k < plan->stage_count; k++) {
        for (int r = 0; r < plan->rank_count; r++)
            if (r != plan->stages[k].rank) use->others_ns[k] = larger(use->others_ns[k], plan_rank_work(plan, r));
        for (int i = 0; i < plan->link_count; i++)
            if (i != k && i != k - 1) use->others_ns[k] = larger(use->others_ns[k], plan_link_period(&plan->links[i]));
    }
}

/* Why devices of a pipeline are idle, and how many devices' speeds it has and uses; others are left alone. */
static void use_pipeline(ReportUse *result, const Plan *plan, const Costs *asked, double *used, double *all)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Use use = {.plan = plan};
    Costs costs = question_costs(plan, asked, &arena);
    if (question_problem(plan, &costs, NULL, &use.problem)) {
        const Problem *p = &use.problem;
        prepare(&use, &arena);
        const char **reason = arena_new_array(&arena, const char *, (size_t)p->type_count);
        for (int d = 0, i = 0; d < asked->device_count; d++) {
            const char *name = asked->devices[d].name;
            if (plan_leaves_out(plan, name)) continue;
            int type = p->type_of[i++];
            bool idle = plan_rank_of(plan, name) < 0;
            if (idle && !reason[type]) reason[type] = reason_of(&use, type);
            result->reason[d] = idle ? reason[type] : NULL;
            double speed = 1 / (double)larger(problem_work(p, type, 0, p->layer_count), 1);
            *used += idle ? 0 : speed;
            *all += speed;
        }
        problem_free(&use.problem);
    }
}

void report_use_create(ReportUse *result, const Plan *plan, const Costs *asked)
{
    *result = (ReportUse){0};
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(problem_free) Problem problem = {0};
    Costs costs = question_costs(plan, asked, &arena);
    double used = 0, all = 0;
    result->reason = arena_new_array(&result->arena, const char *, (size_t)asked->device_count);
    for (int d = 0; d < asked->device_count; d++) result->reason[d] = LEFT_OUT;
    for (int r = 0; r < plan->replica_count; r++) use_pipeline(result, plan_pipeline(plan, r), asked, &used, &all);
    if (question_problem(plan, &costs, NULL, &problem)) {
        bool splits = !plan->schedule_forced || plan_schedule_traits(plan->schedule).splits_backward;
        result->computing_ns = bound_of(&problem, &arena);
        result->bound_ns = division_bound(&problem, splits, result->computing_ns, plan->simulated_step_ns);
    }
    result->speed = all > 0 ? used / all : 0;
}

void report_use_free(ReportUse *use) { arena_free(&use->arena); }
