#include "partitioner/schedule/simulate.h"

#include "partitioner/schedule/host_load.h"

#include <stdlib.h>
#include <string.h>

typedef struct Simulator {
    const Plan *plan;
    int microbatches; /* that the step has */
    Simulation *simulation;
    Arena scratch;
    int *next;      /* [rank]: instruction to do */
    int64_t *clock; /* [rank] */
    int64_t *busy;  /* [rank] */
    HostLoad load;  /* where ranks share processors */
    /* [direction][stage * microbatches + microbatch] when the message to that stage is there; -1: not sent */
    int64_t *arrival[2];
    int64_t *link_free[2];  /* [direction][link]; one and the same where they share it: [0] */
    int **slot;             /* [stage][in_flight]: micro-batch that occupies it; free: -1, or left() of its last one */
    char *state;            /* [stage * microbatches + microbatch]: how many of forward, backward, weight gradient */
    char *finished;         /* [stage]: updates done */
    int64_t *begun, *known; /* [rank]: when it began the round on the norm, -1: not yet; when it knows it */
    int beginners;
    char *received[2];  /* [direction][stage * microbatches + microbatch] */
    const char *reason; /* why an instruction is wrong; NULL: it only has to wait */
    int culprit;        /* the rank it is about */
} Simulator;

static size_t message(const Simulator *s, int stage, int microbatch)
{
    return (size_t)stage * (size_t)s->plan->microbatches + (size_t)microbatch;
}

/* When the message of `direction` (0: forward) for stage and micro-batch is there, or -1. Stages of one rank hand over
 * without a message. */
static int64_t available(const Simulator *s, int direction, int stage, int microbatch)
{
    int other = direction == 0 ? stage - 1 : stage + 1;
    if (other < 0 || other >= s->plan->stage_count) return 0;
    if (s->plan->stages[other].rank == s->plan->stages[stage].rank)
        return s->state[message(s, other, microbatch)] >= (direction == 0 ? 1 : 2) ? 0 : -1;
    return s->arrival[direction][message(s, stage, microbatch)];
}

static bool is_received(const Simulator *s, int direction, const PlanInstruction *i)
{
    return s->received[direction][message(s, i->stage, i->microbatch)];
}

/* Whether the data a computation needs was produced on this rank, or received. */
static bool at_hand(const Simulator *s, int direction, const PlanInstruction *i)
{
    int other = direction == 0 ? i->stage - 1 : i->stage + 1;
    if (other < 0 || other >= s->plan->stage_count) return true;
    return s->plan->stages[other].rank == s->plan->stages[i->stage].rank || is_received(s, direction, i);
}

/* A free slot: what the micro-batch sends from it is still there. */
static int left(int microbatch) { return -2 - microbatch; }

static bool wrong(Simulator *s, const char *reason)
{
    s->reason = reason;
    return false;
}

static bool compute(Simulator *s, int rank, int64_t duration)
{
    if (s->plan->processors > 0 && duration > 0)
        host_load_add(&s->load, s->clock[rank], duration, &s->plan->ranks[rank]);
    s->clock[rank] += duration;
    s->busy[rank] += duration;
    return true;
}

static bool do_receive(Simulator *s, int rank, const PlanInstruction *i, int direction)
{
    int64_t at = available(s, direction, i->stage, i->microbatch);
    int link = direction == 0 ? i->stage - 1 : i->stage;
    int held = s->slot[i->stage][i->slot];
    if (direction == 0 && held >= 0) return wrong(s, "receives into a stash slot that is still in use");
    if (direction == 1 && held != i->microbatch) return wrong(s, "receives into another micro-batch's stash slot");
    if (at < 0) return false;
    if (at > s->clock[rank]) s->clock[rank] = at;
    if (link >= 0 && link < s->plan->link_count) compute(s, rank, s->plan->links[link].coding_ns[direction][1]);
    s->received[direction][message(s, i->stage, i->microbatch)] = 1;
    s->slot[i->stage][i->slot] = i->microbatch;
    return true;
}

static bool do_send(Simulator *s, int rank, const PlanInstruction *i, int direction)
{
    int to = direction == 0 ? i->stage + 1 : i->stage - 1, link = direction == 0 ? i->stage : i->stage - 1;
    if (to < 0 || to >= s->plan->stage_count) return wrong(s, "sends where there is no stage");
    if (s->state[message(s, i->stage, i->microbatch)] < (direction == 0 ? 1 : 2))
        return wrong(s, "sends what is not computed");
    int held = s->slot[i->stage][i->slot];
    if (held != i->microbatch && held != left(i->microbatch))
        return wrong(s, "sends from a stash slot that another micro-batch has taken");
    const PlanLink *over = &s->plan->links[link];
    int64_t *free_at = &s->link_free[over->half_duplex ? 0 : direction][link];
    int64_t *arrival = &s->arrival[direction][message(s, to, i->microbatch)];
    if (*arrival >= 0) return wrong(s, "sends twice");
    compute(s, rank, over->coding_ns[direction][0]);
    int64_t start = *free_at > s->clock[rank] ? *free_at : s->clock[rank];
    *free_at = start + over->transfer_ns[direction];
    *arrival = *free_at + over->latency_ns[direction];
    return true;
}

static bool do_forward(Simulator *s, int rank, const PlanInstruction *i)
{
    const PlanStage *stage = &s->plan->stages[i->stage];
    if (!at_hand(s, 0, i)) return wrong(s, "runs forward without having received");
    if (available(s, 0, i->stage, i->microbatch) < 0) return false;
    if (s->state[message(s, i->stage, i->microbatch)] != 0) return wrong(s, "runs forward twice");
    int held = s->slot[i->stage][i->slot];
    if (is_received(s, 0, i) ? held != i->microbatch : held >= 0)
        return wrong(s, "needs a stash slot that is still in use");
    s->slot[i->stage][i->slot] = i->microbatch;
    s->state[message(s, i->stage, i->microbatch)] = 1;
    return compute(s, rank, stage->forward_ns);
}

static bool do_backward(Simulator *s, int rank, const PlanInstruction *i)
{
    const PlanStage *stage = &s->plan->stages[i->stage];
    if (!at_hand(s, 1, i)) return wrong(s, "runs backward without having received");
    if (available(s, 1, i->stage, i->microbatch) < 0) return false;
    if (s->state[message(s, i->stage, i->microbatch)] != 1) return wrong(s, "runs backward without its forward");
    if (s->slot[i->stage][i->slot] != i->microbatch) return wrong(s, "runs backward from another micro-batch's stash");
    if (stage->weight_gradient_ns == 0) s->slot[i->stage][i->slot] = left(i->microbatch);
    s->state[message(s, i->stage, i->microbatch)] = 2;
    return compute(s, rank, plan_stage_backward(stage));
}

static bool do_weight_gradient(Simulator *s, int rank, const PlanInstruction *i)
{
    const PlanStage *stage = &s->plan->stages[i->stage];
    if (stage->weight_gradient_ns == 0) return wrong(s, "is of a stage whose backward is not split");
    if (s->state[message(s, i->stage, i->microbatch)] != 2) return wrong(s, "runs without its backward, or twice");
    if (i->microbatch > 0 && s->state[message(s, i->stage, i->microbatch - 1)] != 3)
        return wrong(s, "sums gradients in another order than that of the micro-batches");
    if (s->slot[i->stage][i->slot] != i->microbatch) return wrong(s, "reads another micro-batch's stash");
    s->slot[i->stage][i->slot] = left(i->microbatch);
    s->state[message(s, i->stage, i->microbatch)] = 3;
    return compute(s, rank, plan_stage_weight_gradient(stage));
}

/* Before the first REDUCE is done: sums of gradients, and the round on the norm, which nobody knows before all have
 * begun it. */
static bool do_reduce(Simulator *s, int rank)
{
    const Plan *plan = s->plan;
    size_t ranks = (size_t)plan->rank_count;
    bool first = s->begun[rank] < 0;
    for (int k = 0; k < plan->ranks[rank].stage_count && first; k++)
        compute(s, rank, plan->stages[plan->ranks[rank].stages[k]].sum_ns);
    if (first && !plan->norm) s->begun[rank] = s->clock[rank];
    if (!plan->norm) return true;
    if (first) {
        s->begun[rank] = s->clock[rank];
        if (++s->beginners == plan->rank_count) norm_round(plan->norm, s->begun, s->known, s->known + ranks);
    }
    if (s->beginners < plan->rank_count) return false;
    if (s->known[rank] > s->clock[rank]) s->clock[rank] = s->known[rank];
    return true;
}

static bool do_update(Simulator *s, int rank, const PlanInstruction *i)
{
    int complete = s->plan->stages[i->stage].weight_gradient_ns > 0 ? 3 : 2;
    for (int m = 0; m < s->microbatches; m++)
        if (s->state[message(s, i->stage, m)] != complete) return wrong(s, "updates before every backward is done");
    if (s->finished[i->stage]++) return wrong(s, "updates twice");
    return compute(s, rank, s->plan->stages[i->stage].update_ns);
}

/* False: it has to wait, or (s->reason) is wrong. */
static bool do_instruction(Simulator *s, int rank, const PlanInstruction *i)
{
    bool in_batch = i->op != SKY_REDUCE && i->op != SKY_UPDATE;
    if (i->stage < 0 || i->stage >= s->plan->stage_count || s->plan->stages[i->stage].rank != rank)
        return wrong(s, "is about a stage of another rank");
    if (in_batch && (i->microbatch < 0 || i->microbatch >= s->plan->microbatches || i->slot < 0 ||
                     i->slot >= s->plan->stages[i->stage].in_flight))
        return wrong(s, "names a micro-batch or stash slot that does not exist");
    if (in_batch && i->microbatch >= s->microbatches) return true;
    switch (i->op) {
    case SKY_RECEIVE_FORWARD: return do_receive(s, rank, i, 0);
    case SKY_FORWARD: return do_forward(s, rank, i);
    case SKY_SEND_FORWARD: return do_send(s, rank, i, 0);
    case SKY_RECEIVE_BACKWARD: return do_receive(s, rank, i, 1);
    case SKY_BACKWARD: return do_backward(s, rank, i);
    case SKY_SEND_BACKWARD: return do_send(s, rank, i, 1);
    case SKY_WEIGHT_GRADIENT: return do_weight_gradient(s, rank, i);
    case SKY_REDUCE: return do_reduce(s, rank);
    case SKY_UPDATE: return do_update(s, rank, i);
    case SKY_OP_COUNT: break;
    }
    return wrong(s, "is not known to this schedule");
}

static void prepare(Simulator *s)
{
    const Plan *plan = s->plan;
    Arena *arena = &s->scratch;
    size_t stages = (size_t)plan->stage_count, ranks = (size_t)plan->rank_count;
    size_t messages = stages * (size_t)plan->microbatches;
    s->next = arena_new_array(arena, int, ranks);
    s->clock = arena_new_array(arena, int64_t, ranks);
    s->busy = arena_new_array(arena, int64_t, ranks);
    s->begun = arena_new_array(arena, int64_t, ranks);
    s->known = arena_new_array(arena, int64_t, ranks + NORM_ROUND_SCRATCH(ranks));
    for (size_t r = 0; r < ranks; r++) s->begun[r] = -1;
    s->state = arena_new_array(arena, char, messages);
    s->finished = arena_new_array(arena, char, stages);
    s->slot = arena_new_array(arena, int *, stages);
    for (int d = 0; d < 2; d++) {
        s->arrival[d] = arena_new_array(arena, int64_t, messages);
        s->link_free[d] = arena_new_array(arena, int64_t, stages);
        s->received[d] = arena_new_array(arena, char, messages);
        for (size_t m = 0; m < messages; m++) s->arrival[d][m] = -1;
    }
    for (size_t k = 0; k < stages; k++) {
        s->slot[k] = arena_new_array(arena, int, (size_t)plan->stages[k].in_flight);
        for (int m = 0; m < plan->stages[k].in_flight; m++) s->slot[k][m] = -1;
    }
    s->simulation->spans = arena_new_array(&s->simulation->arena, SimulatedSpan *, ranks);
    for (size_t r = 0; r < ranks; r++)
        s->simulation->spans[r] =
            arena_new_array(&s->simulation->arena, SimulatedSpan, (size_t)plan->ranks[r].instruction_count);
}

/* Every message has one sender, which sends in its own order: times follow from running each rank as far as it can go,
 * round after round, whatever the order of the ranks. */
static bool run(Simulator *s)
{
    const Plan *plan = s->plan;
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < plan->rank_count; r++) {
            for (; s->next[r] < plan->ranks[r].instruction_count; s->next[r]++) {
                SimulatedSpan *span = &s->simulation->spans[r][s->next[r]];
                span->start = s->clock[r];
                if (!do_instruction(s, r, &plan->ranks[r].instructions[s->next[r]])) break;
                span->end = s->clock[r];
                moved = true;
            }
            s->culprit = r;
            if (s->reason) return false;
        }
    }
    for (s->culprit = 0; s->culprit < plan->rank_count; s->culprit++)
        if (s->next[s->culprit] < plan->ranks[s->culprit].instruction_count)
            return wrong(s, "waits for ever: the schedule deadlocks");
    return true;
}

static bool report(Simulator *s, Diagnostics *diagnostics)
{
    int r = s->culprit;
    if (r >= s->plan->rank_count)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "%s", s->reason);
    const PlanInstruction *i = &s->plan->ranks[r].instructions[s->next[r]];
    const char *object = arena_format(&s->scratch, "rank %d, instruction %d (%s of stage %d, micro-batch %d)", r,
                                      s->next[r], plan_op_name(i->op), i->stage, i->microbatch);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = object}, NULL, "%s", s->reason);
}

/* The spans, and of each rank its end and how long it works. */
static void stretch(Simulator *s)
{
    HostStretch stretch = host_load_stretch(&s->load, s->plan, &s->scratch);
    for (int r = 0; r < s->plan->rank_count; r++) {
        int64_t end = s->clock[r];
        for (int i = 0; i < s->plan->ranks[r].instruction_count; i++) {
            SimulatedSpan *span = &s->simulation->spans[r][i];
            *span =
                (SimulatedSpan){host_stretch_moment(&stretch, span->start), host_stretch_moment(&stretch, span->end)};
        }
        s->clock[r] = host_stretch_moment(&stretch, end);
        if (end > 0) s->busy[r] = (int64_t)((double)s->busy[r] / (double)end * (double)s->clock[r]);
    }
}

bool plan_simulate_first(Simulation *simulation, const Plan *plan, int microbatches, Diagnostics *diagnostics)
{
    memset(simulation, 0, sizeof *simulation);
    Simulator s = {.plan = plan, .microbatches = microbatches, .simulation = simulation};
    prepare(&s);
    bool ok = run(&s);
    for (int k = 0; ok && k < plan->stage_count; k++)
        if (!s.finished[k]) ok = wrong(&s, "a stage is never updated");
    if (!ok) report(&s, diagnostics);
    double busy = 0;
    if (ok && s.load.count > 0) stretch(&s);
    host_load_free(&s.load);
    for (int r = 0; r < plan->rank_count; r++) {
        if (s.clock[r] > simulation->step_ns) simulation->step_ns = s.clock[r];
        busy += (double)s.busy[r];
    }
    if (simulation->step_ns > 0) simulation->bubble = 1 - busy / ((double)simulation->step_ns * plan->rank_count);
    arena_free(&s.scratch);
    if (!ok) simulation_free(simulation);
    return ok;
}

bool plan_simulate(Simulation *simulation, const Plan *plan, Diagnostics *diagnostics)
{
    return plan_simulate_first(simulation, plan, plan->microbatches, diagnostics);
}

bool plan_simulate_samples(const Plan *plan, int64_t *step_ns, double *bubble, Diagnostics *diagnostics)
{
    FREED_WITH(simulation_free) Simulation simulation = {0};
    if (!plan_simulate(&simulation, plan, diagnostics)) return false;
    *step_ns = simulation.step_ns;
    *bubble = simulation.bubble;
    simulation_free(&simulation);
    int64_t steps = row_samples_steps(&plan->rows), mean = 0, rest = 0;
    double all = 0, idle = 0;
    for (int i = 0; i < plan->rows.microbatch_kinds; i++) {
        const SampleCount *sample = &plan->rows.microbatches[i];
        if (!plan_simulate_first(&simulation, plan, sample->value, diagnostics)) return false;
        mean += simulation.step_ns / steps * sample->times;
        rest += simulation.step_ns % steps * sample->times;
        all += (double)simulation.step_ns * sample->times;
        idle += simulation.bubble * (double)simulation.step_ns * sample->times;
        simulation_free(&simulation);
    }
    if (steps > 0) {
        *step_ns = mean + (rest + steps - 1) / steps;
        *bubble = all > 0 ? idle / all : 0;
    }
    return true;
}

void simulation_free(Simulation *simulation)
{
    arena_free(&simulation->arena);
    memset(simulation, 0, sizeof *simulation);
}
