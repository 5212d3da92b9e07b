/* skycc explain: prints a plan as text, compared with the trace of a run. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/order.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "partitioner/report/report.h"
#include "partitioner/schedule/simulate.h"

typedef struct StageTimes {
    double forward, backward, weight_gradient, update; /* sums, seconds */
    int64_t forwards, backwards, weight_gradients, updates;
} StageTimes;

enum { MOST_PARTS = 16 };

/* Where the time of a rank's steps went, as its "step" events say. */
typedef struct RankParts {
    const char *names[MOST_PARTS]; /* in the trace's own memory */
    double seconds[MOST_PARTS], all;
    int count;
    int64_t seen, steps; /* without the first one, unless it is the only one */
    int64_t full_at;     /* the step at which the trace ends too early; 0: it does not */
} RankParts;

typedef struct Measured {
    RankParts *ranks;

    StageTimes *stages;
    double *updated;   /* [step]: when the last stage had updated; -HUGE_VAL: not known */
    int *microbatches; /* [step], of plans whose steps differ in that */
    double begin;      /* of the first event */
    int steps, capacity;
} Measured;

static void add_steps(Measured *m, int step)
{
    while (m->steps <= step) {
        if (m->steps == m->capacity) {
            m->capacity = m->capacity ? 2 * m->capacity : 64;
            m->updated = memory_resize(m->updated, (size_t)m->capacity, sizeof *m->updated);
            m->microbatches = memory_resize(m->microbatches, (size_t)m->capacity, sizeof *m->microbatches);
        }
        m->microbatches[m->steps] = 0;
        m->updated[m->steps++] = -HUGE_VAL;
    }
}

static void note_update(Measured *m, int step, double end)
{
    add_steps(m, step);
    if (end > m->updated[step]) m->updated[step] = end;
}

static bool note_backward(Measured *m, const Plan *plan, int step, const json_t *microbatch)
{
    json_int_t number = json_integer_value(microbatch);
    if (!json_is_integer(microbatch) || number < 0 || number >= plan->microbatches) return false;
    add_steps(m, step);
    if (number >= m->microbatches[step]) m->microbatches[step] = (int)number + 1;
    return true;
}

/* Adds a step to those of its rank. The first one is replaced by the second: it is slower than the others. */
static bool note_step(RankParts *rank, const json_t *parts, double duration)
{
    const char *name;
    json_t *part;
    if (rank->seen++ == 1) *rank = (RankParts){.seen = 2, .full_at = rank->full_at};
    rank->steps++;
    rank->count = 0;
    rank->all += duration;
    json_object_foreach((json_t *)parts, name, part)
    {
        double seconds = json_number_value(part) / 1e6;
        if (rank->count == MOST_PARTS || !(seconds >= 0 && seconds <= duration * 1.001 + 1e-6)) return false;
        rank->names[rank->count] = name;
        rank->seconds[rank->count++] += seconds;
    }
    return true;
}

static bool read_event(Measured *m, const Plan *plan, const json_t *event, int skip)
{
    enum { MOST_STEPS = 1 << 24 };
    const double most_s = 1e9; /* decades: nanoseconds of it fit 64 bits */
    const char *phase = json_string_value(json_object_get(event, "ph")),
               *name = json_string_value(json_object_get(event, "name"));
    const json_t *args = json_object_get(event, "args"), *step = json_object_get(args, "step"),
                 *microbatch = json_object_get(args, "microbatch"), *tid = json_object_get(event, "tid");
    const json_t *start = json_object_get(event, "ts"), *length = json_object_get(event, "dur");
    const json_t *pid = json_object_get(event, "pid");
    RankParts *rank = json_is_integer(pid) && json_integer_value(pid) >= 0 && json_integer_value(pid) < plan->rank_count
                          ? &m->ranks[json_integer_value(pid)]
                          : NULL;
    if (rank && name && strcmp(name, "trace_full") == 0) rank->full_at = json_integer_value(step);
    if (!phase || strcmp(phase, "X") != 0) return true;
    if (!name || !json_is_integer(tid) || !json_is_integer(step) || !json_is_number(start) || !json_is_number(length))
        return false;
    json_int_t stage = json_integer_value(tid), number = json_integer_value(step);
    double begin = json_number_value(start) / 1e6, duration = json_number_value(length) / 1e6;
    if (stage < 0 || stage >= plan->stage_count || number < 0 || number > MOST_STEPS) return false;
    if (!(fabs(begin) <= most_s && duration >= 0 && duration <= most_s)) return false;
    if (strcmp(name, "step") == 0) return rank && note_step(rank, json_object_get(args, "parts"), duration);
    if (begin < m->begin) m->begin = begin;
    if (strcmp(name, "update") == 0) note_update(m, (int)number, begin + duration);
    if (plan->rows.microbatch_kinds && strcmp(name, "backward") == 0 &&
        !note_backward(m, plan, (int)number, microbatch))
        return false;
    if (number < skip) return true;
    StageTimes *times = &m->stages[stage];
    if (strcmp(name, "forward") == 0) times->forward += duration, times->forwards++;
    if (strcmp(name, "backward") == 0) times->backward += duration, times->backwards++;
    if (strcmp(name, "weight gradient") == 0) times->weight_gradient += duration, times->weight_gradients++;
    if (strcmp(name, "update") == 0) times->update += duration, times->updates++;
    if (strcmp(name, "norm") == 0) times->update += duration; /* squares, which plans count with it */
    return true;
}

static double mean(double sum, int64_t count) { return count > 0 ? sum / (double)count : 0; }

static void print_compared(Buffer *buffer, const char *what, int64_t predicted, double measured)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    int64_t now = (int64_t)(measured * 1e9);
    text_format(buffer, " %s %s (planned %s", what, report_seconds(now, b), report_seconds(predicted, a));
    if (predicted > 0) text_format(buffer, ", %+.1f%%", 100 * (measured * 1e9 / (double)predicted - 1));
    text_format(buffer, ")");
}

/* From the last update of a step to that of the next: steps overlap where a stage is done early, and its waits for the
 * others are no part of them. Of a lone step all that there is counts. Returns how many durations there are. */
static int measure_steps(const Measured *m, double *durations)
{
    int count = 0;
    for (int s = 1; s < m->steps; s++)
        if (m->updated[s - 1] > -HUGE_VAL && m->updated[s] > m->updated[s - 1])
            durations[count++] = m->updated[s] - m->updated[s - 1];
    if (m->steps == 1 && m->updated[0] > m->begin) durations[count++] = m->updated[0] - m->begin;
    return count;
}

/* What the plan makes of as many micro-batches; 0: its schedule does not run. */
static int64_t planned_step(const Plan *plan, int microbatches, int64_t *known)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED_WITH(simulation_free) Simulation simulation = {0};
    if (known[microbatches] == 0 && plan_simulate_first(&simulation, plan, microbatches, &ignored))
        known[microbatches] = simulation.step_ns;
    return known[microbatches];
}

/* Steps that differ in their micro-batches, compared with what is planned for that number. */
static void print_steps_of_rows(Buffer *buffer, const Plan *plan, const Measured *m)
{
    int64_t *known = memory_allocate(((size_t)plan->microbatches + 1) * sizeof *known), planned = 0, microbatches = 0;
    double measured = 0;
    int count = 0;
    for (int s = m->steps > 1 ? 1 : 0; s < m->steps; s++) {
        double before = s > 0 ? m->updated[s - 1] : m->begin;
        if (!(before > -HUGE_VAL && m->updated[s] > before) || m->microbatches[s] == 0) continue;
        measured += m->updated[s] - before;
        planned += planned_step(plan, m->microbatches[s], known);
        microbatches += m->microbatches[s];
        count++;
    }
    text_format(buffer, "\nmeasured over %d step%s:\n  step:", count, count == 1 ? "" : "s");
    if (count > 0) {
        print_compared(buffer, "mean", planned / count, measured / count);
        text_format(buffer, ", micro-batches %.2f a step (expected %.2f)", (double)microbatches / count,
                    row_samples_mean(&plan->rows));
    }
    text_format(buffer, "\n");
    free(known);
}

static void print_steps(Buffer *buffer, const Plan *plan, const Measured *m)
{
    FREED double *durations = memory_allocate((size_t)(m->steps + 1) * sizeof *durations);
    int count = measure_steps(m, durations);
    text_format(buffer, "\nmeasured over %d step%s:\n  step:", count, count == 1 ? "" : "s");
    if (count > 0) print_compared(buffer, "median", plan->simulated_step_ns, median(durations, (size_t)count));
    text_format(buffer, "\n");
}

static void print_measured(Buffer *buffer, const Plan *plan, const Measured *m)
{
    if (plan->rows.microbatch_kinds)
        print_steps_of_rows(buffer, plan, m);
    else
        print_steps(buffer, plan, m);
    for (int k = 0; k < plan->stage_count; k++) {
        const StageTimes *t = &m->stages[k];
        text_format(buffer, "  stage %d on %s:", k, plan->stages[k].device);
        print_compared(buffer, "forward", plan->stages[k].forward_ns, mean(t->forward, t->forwards));
        int64_t later = plan_stage_weight_gradient(&plan->stages[k]);
        print_compared(buffer, " backward", plan_stage_backward(&plan->stages[k]), mean(t->backward, t->backwards));
        if (later > 0) print_compared(buffer, " weight gradient", later, mean(t->weight_gradient, t->weight_gradients));
        print_compared(buffer, " update", plan->stages[k].update_ns, mean(t->update, t->updates));
        text_format(buffer, "\n");
    }
}

/* Parts of at least 0.05%, which add up to all; "rest" is what no part names. */
static void print_parts(Buffer *buffer, const Plan *plan, const RankParts *ranks)
{
    static const double most_rest = 0.03;
    char text[REPORT_TEXT];
    for (int r = 0; r < plan->rank_count; r++) {
        const RankParts *rank = &ranks[r];
        const char *separator = "";
        if (rank->full_at)
            text_format(buffer, "  rank %d: the trace ends at step %lld, because it was full\n", r,
                        (long long)rank->full_at);
        if (rank->all <= 0) continue;
        text_format(buffer, "  rank %d on %s, of %s a step: ", r, plan->stages[plan->ranks[r].stages[0]].device,
                    report_seconds((int64_t)(1e9 * rank->all / (double)rank->steps), text));
        for (int p = 0; p < rank->count; p++) {
            double share = rank->seconds[p] / rank->all;
            bool unknown = strcmp(rank->names[p], "rest") == 0 && share > most_rest;
            if (share < 0.0005) continue;
            text_format(buffer, "%s%s %.1f%%%s", separator, rank->names[p], 100 * share,
                        unknown ? " (more than 3%: a defect)" : "");
            separator = ", ";
        }
        text_format(buffer, "\n");
    }
}

static bool explain_trace(Buffer *buffer, const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    json_t *root = json_read(path, diagnostics), *events;
    if (!root) return false;
    Measured m = {.stages = memory_allocate((size_t)plan->stage_count * sizeof *m.stages),
                  .begin = HUGE_VAL,
                  .ranks = memory_allocate((size_t)plan->rank_count * sizeof *m.ranks)};
    JsonReader reader = {path, diagnostics};
    bool ok = json_is_object(root) ? json_get_array(reader, root, "", "traceEvents", &events)
                                   : input_error(diagnostics, path, NULL, "is not a trace");
    bool several = false; /* steps */
    for (size_t i = 0; ok && i < json_array_size(events) && !several; i++)
        several = json_integer_value(json_object_get(json_object_get(json_array_get(events, i), "args"), "step")) > 0;
    for (size_t i = 0; ok && i < json_array_size(events); i++)
        if (!read_event(&m, plan, json_array_get(events, i), several))
            ok = input_error(diagnostics, path, NULL, "event %zu is not of a run of this plan", i);
    if (ok) print_measured(buffer, plan, &m);
    if (ok) print_parts(buffer, plan, m.ranks);
    free(m.ranks);
    free(m.stages);
    free(m.updated);
    free(m.microbatches);
    json_decref(root);
    return ok;
}

bool explain_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(plan_free) Plan plan = {0};
    FREED_WITH(buffer_free) Buffer buffer = {0};
    if (options->trace && options->report && strcmp(options->report, "svg") == 0)
        return usage_error(diagnostics, "leave out one of them",
                           "--report svg draws the plan, not what --trace measured");
    if (!plan_read(&plan, options->plans[0], diagnostics)) return false;
    report_print(&(Report){.plan = &plan}, options->report ? options->report : "text", &buffer);
    return (!options->trace || explain_trace(&buffer, &plan, options->trace, diagnostics)) &&
           file_write_all("-", buffer.bytes, buffer.size, diagnostics);
}
