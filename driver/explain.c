/* skycc explain: a plan in words and, beside a trace of a run, what became of its predictions. */
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "driver/commands.h"
#include "driver/options.h"
#include "partitioner/report.h"

static const char usage[] = "usage: skycc explain PLAN.json [--trace TRACE.json]\n"
                            "\n"
                            "Prints a plan as text. With the trace of a run (DIR/train --trace FILE) it sets what was "
                            "measured beside what the plan\n"
                            "predicted. The first step, in which everything is touched for the first time, does not "
                            "count where there are more.\n"
                            "\n"
                            "  --trace FILE   the trace of a run of this plan\n"
                            "  -h, --help     this text\n";

typedef struct StageTimes {
    double forward, backward, weight_gradient, update; /* sums, seconds */
    int64_t forwards, backwards, weight_gradients, updates;
} StageTimes;

typedef struct Measured {
    StageTimes *stages;
    double *begin, *end; /* [step] */
    int steps, capacity;
} Measured;

static void note_step(Measured *m, int step, double begin, double end)
{
    while (m->steps <= step) {
        if (m->steps == m->capacity) {
            m->capacity = m->capacity ? 2 * m->capacity : 64;
            m->begin = memory_resize(m->begin, (size_t)m->capacity, sizeof *m->begin);
            m->end = memory_resize(m->end, (size_t)m->capacity, sizeof *m->end);
        }
        m->begin[m->steps] = HUGE_VAL;
        m->end[m->steps++] = -HUGE_VAL;
    }
    if (begin < m->begin[step]) m->begin[step] = begin;
    if (end > m->end[step]) m->end[step] = end;
}

static bool read_event(Measured *m, const Plan *plan, const json_t *event, int skip)
{
    enum { MOST_STEPS = 1 << 24 };
    const double most_s = 1e9; /* decades: nanoseconds of it fit 64 bits */
    const char *phase = json_string_value(json_object_get(event, "ph")),
               *name = json_string_value(json_object_get(event, "name"));
    const json_t *tid = json_object_get(event, "tid"), *step = json_object_get(json_object_get(event, "args"), "step");
    const json_t *start = json_object_get(event, "ts"), *length = json_object_get(event, "dur");
    if (!phase || strcmp(phase, "X") != 0) return true;
    if (!name || !json_is_integer(tid) || !json_is_integer(step) || !json_is_number(start) || !json_is_number(length))
        return false;
    json_int_t stage = json_integer_value(tid), number = json_integer_value(step);
    double begin = json_number_value(start) / 1e6, duration = json_number_value(length) / 1e6;
    if (stage < 0 || stage >= plan->stage_count || number < 0 || number > MOST_STEPS) return false;
    if (!(fabs(begin) <= most_s && duration >= 0 && duration <= most_s)) return false;
    note_step(m, (int)number, begin, begin + duration);
    if (number < skip) return true;
    StageTimes *times = &m->stages[stage];
    if (strcmp(name, "forward") == 0) times->forward += duration, times->forwards++;
    if (strcmp(name, "backward") == 0) times->backward += duration, times->backwards++;
    if (strcmp(name, "weight gradient") == 0) times->weight_gradient += duration, times->weight_gradients++;
    if (strcmp(name, "update") == 0) times->update += duration, times->updates++;
    return true;
}

static double mean(double sum, int64_t count) { return count > 0 ? sum / (double)count : 0; }

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_compared(Buffer *buffer, const char *what, int64_t predicted, double measured)
{
    char a[REPORT_TEXT], b[REPORT_TEXT];
    int64_t now = (int64_t)(measured * 1e9);
    buffer_print(buffer, " %s %s (planned %s", what, report_seconds(now, b), report_seconds(predicted, a));
    if (predicted > 0) buffer_print(buffer, ", %+.1f%%", 100 * (measured * 1e9 / (double)predicted - 1));
    buffer_print(buffer, ")");
}

static void print_measured(Buffer *buffer, const Plan *plan, Measured *m, int skip)
{
    int count = 0;
    double *durations = memory_allocate((size_t)(m->steps + 1) * sizeof *durations);
    for (int s = skip; s < m->steps; s++)
        if (m->end[s] > m->begin[s]) durations[count++] = m->end[s] - m->begin[s];
    qsort(durations, (size_t)count, sizeof *durations, by_value);
    buffer_print(buffer, "\nmeasured over %d step%s:\n  step:", count, count == 1 ? "" : "s");
    if (count > 0) print_compared(buffer, "median", plan->simulated_step_ns, durations[count / 2]);
    buffer_print(buffer, "\n");
    for (int k = 0; k < plan->stage_count; k++) {
        const StageTimes *t = &m->stages[k];
        buffer_print(buffer, "  stage %d on %s:", k, plan->stages[k].device);
        print_compared(buffer, "forward", plan->stages[k].forward_ns, mean(t->forward, t->forwards));
        int64_t later = plan->stages[k].weight_gradient_ns;
        print_compared(buffer, " backward", plan->stages[k].backward_ns - later, mean(t->backward, t->backwards));
        if (later > 0) print_compared(buffer, " weight gradient", later, mean(t->weight_gradient, t->weight_gradients));
        print_compared(buffer, " update", plan->stages[k].update_ns, mean(t->update, t->updates));
        buffer_print(buffer, "\n");
    }
    free(durations);
}

static bool explain_trace(Buffer *buffer, const Plan *plan, const char *path, Diagnostics *diagnostics)
{
    json_t *root = json_read(path, diagnostics), *events;
    if (!root) return false;
    Measured m = {.stages = memory_allocate((size_t)plan->stage_count * sizeof *m.stages)};
    JsonReader reader = {path, diagnostics};
    bool ok = json_is_object(root)
                  ? json_get_array(reader, root, "", "traceEvents", &events)
                  : diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "is not a trace");
    bool several = false; /* steps */
    for (size_t i = 0; ok && i < json_array_size(events) && !several; i++)
        several = json_integer_value(json_object_get(json_object_get(json_array_get(events, i), "args"), "step")) > 0;
    for (size_t i = 0; ok && i < json_array_size(events); i++)
        if (!read_event(&m, plan, json_array_get(events, i), several))
            ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL,
                                   "event %zu is not of a run of this plan", i);
    if (ok) print_measured(buffer, plan, &m, several);
    free(m.stages);
    free(m.begin);
    free(m.end);
    json_decref(root);
    return ok;
}

/* -1: go on; else the exit code. */
static int parse(int argc, char **argv, const char **path, const char **trace, Diagnostics *diagnostics)
{
    enum { OPTION_TRACE = 256 };
    static const struct option long_options[] = {
        {"trace", required_argument, NULL, OPTION_TRACE}, {"help", no_argument, NULL, 'h'}, {0}};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("explain");
        if (option == OPTION_TRACE) *trace = optarg;
        if (option == 1 && *path) return option_unexpected(optarg, diagnostics), EXIT_USAGE;
        if (option == 1) *path = optarg;
    }
    if (*path) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc explain --help", "no plan is named");
    return EXIT_USAGE;
}

static bool explain(const char *path, const char *trace, Diagnostics *diagnostics)
{
    Plan plan;
    Buffer buffer = {0};
    if (!plan_read(&plan, path, diagnostics)) return false;
    report_text(&(Report){&plan, NULL, NULL}, &buffer);
    bool ok = (!trace || explain_trace(&buffer, &plan, trace, diagnostics)) &&
              file_write_all("-", buffer.bytes, buffer.size, diagnostics);
    plan_free(&plan);
    buffer_free(&buffer);
    return ok;
}

int explain_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    const char *path = NULL, *trace = NULL;
    int code = parse(argc, argv, &path, &trace, &diagnostics);
    if (code < 0) code = explain(path, trace, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    return code;
}
