#include "runtime/train/progress.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/text.h"

static const double terminal_interval = 0.1, line_interval = 5; /* seconds between prints */

/* Training goes on when the reader of its output is gone or the disk is full. */
static void flush_output(Progress *progress)
{
    if (progress->quiet || (fflush(stdout) == 0 && !ferror(stdout))) return;
    progress->quiet = true;
    text_print(stderr, "skycc: warning: standard output cannot be written: %s; training goes on without it\n",
               strerror(errno));
}

bool progress_open(Progress *progress, bool quiet, const char *log_path, const char *event_directory,
                   int64_t first_step, int64_t last_step, Diagnostics *diagnostics)
{
    const char *terminal = getenv("SKYCC_TERMINAL"); /* set by the launcher: under mpiexec, output is a pipe */
    *progress = (Progress){.quiet = quiet,
                           .terminal = terminal ? *terminal == '1' : isatty(STDOUT_FILENO),
                           .first_step = first_step,
                           .last_step = last_step,
                           .watched = METRIC_COUNT};
    if ((log_path && !training_log_open(&progress->log, log_path, first_step, diagnostics)) ||
        !event_file_open(&progress->events, event_directory, first_step, diagnostics))
        return false;
    progress->start = progress->step_start = progress->step_end = monotonic_seconds();
    return true;
}

static void end_line(Progress *progress)
{
    if (progress->line_open) putchar('\n');
    progress->line_open = false;
}

static void print_time_left(char text[32], double seconds)
{
    int64_t whole = (int64_t)(seconds + 0.5);
    if (whole >= 3600)
        snprintf(text, 32, "%lld:%02d:%02d left", (long long)(whole / 3600), (int)(whole / 60 % 60), (int)(whole % 60));
    else
        snprintf(text, 32, "%d:%02d left", (int)(whole / 60), (int)(whole % 60));
}

static void print_line(Progress *progress, int64_t step, double tokens_per_second)
{
    char left[32] = "", total[32] = "";
    if (progress->last_step) {
        print_time_left(left, progress->trained / (double)progress->steps_done * (double)(progress->last_step - step));
        snprintf(total, sizeof total, "/%lld", (long long)progress->last_step);
    }
    char loss[64] = "";
    if (!progress->site) snprintf(loss, sizeof loss, "loss %.4f  ", progress->loss);
    printf("%s%s%sstep %lld%s  %s%s%.0f tokens/s  %s%s", progress->terminal ? "\r" : "",
           progress->site ? progress->site : "", progress->site ? ": " : "", (long long)step, total, loss,
           progress->evaluated, tokens_per_second, left, progress->terminal ? "\033[K" : "\n");
    progress->line_open = progress->terminal;
    flush_output(progress);
}

void progress_step(Progress *progress, int64_t step, double loss, double learning_rate, StepTokens tokens)
{
    double time = monotonic_seconds(), seconds = time - progress->step_start, elapsed = time - progress->start;
    progress->step_start = progress->step_end = time;
    progress->steps_done++;
    progress->trained += seconds;
    progress->tokens += (double)tokens.computed;
    progress->loss = loss;
    const double speed = (double)tokens.computed / seconds;
    training_log_step(&progress->log, &(LogRow){.step = step,
                                                .loss = loss,
                                                .learning_rate = learning_rate,
                                                .seconds = elapsed,
                                                .tokens_per_second = speed,
                                                .tokens = tokens.computed,
                                                .tokens_valid = tokens.valid});
    event_file_number(&progress->events, step, "train/loss", loss);
    event_file_number(&progress->events, step, "train/learning_rate", learning_rate);
    event_file_number(&progress->events, step, "train/tokens_per_second", speed);
    double interval = progress->terminal ? terminal_interval : line_interval;
    bool notable = step == progress->first_step || step == progress->last_step;
    if (progress->quiet || (!notable && time - progress->last_print < interval)) return;
    progress->last_print = time;
    print_line(progress, step, speed);
}

void progress_say(Progress *progress, const char *format, ...)
{
    if (progress->quiet) return;
    end_line(progress);
    va_list arguments;
    va_start(arguments, format);
    text_print_va(stdout, format, arguments);
    va_end(arguments);
    putchar('\n');
    flush_output(progress);
}

static void print_metric(Buffer *line, Metric metric, double value)
{
    if (metric == METRIC_ACCURACY || metric == METRIC_EXACT)
        buffer_print(line, "%s %.2f%%", metric_name(metric), 100 * value);
    else
        buffer_print(line, "%s %.*f", metric_name(metric), metric == METRIC_LOSS ? 6 : 4, value);
}

/* Keeps the value that progress lines repeat until the next evaluation. */
static void remember(Progress *progress, const double values[METRIC_COUNT])
{
    static const Metric telling[] = {METRIC_ACCURACY, METRIC_PEARSON, METRIC_LOSS};
    Metric metric = progress->watched;
    for (size_t i = 0; metric == METRIC_COUNT || isnan(values[metric]); i++) {
        if (i == sizeof telling / sizeof *telling) return;
        metric = telling[i];
    }
    FREED_WITH(buffer_free) Buffer text = {0};
    print_metric(&text, metric, values[metric]);
    snprintf(progress->evaluated, sizeof progress->evaluated, "%s%s  ", metric == METRIC_LOSS ? "evaluation " : "",
             buffer_text(&text));
}

void progress_evaluation(Progress *progress, int64_t step, const double values[METRIC_COUNT], int64_t rows)
{
    FREED_WITH(buffer_free) Buffer line = {0};
    for (Metric metric = 0; metric < METRIC_COUNT; metric++) {
        char name[32];
        snprintf(name, sizeof name, "eval/%s", metric_name(metric));
        event_file_number(&progress->events, step, name, values[metric]);
        if (metric != METRIC_LOSS && isnan(values[metric])) continue;
        if (metric != METRIC_LOSS) buffer_print(&line, ", ");
        print_metric(&line, metric, values[metric]);
    }
    remember(progress, values);
    training_log_evaluation(&progress->log, values);
    progress_say(progress, "evaluation after step %lld: %s (%lld rows)", (long long)step, buffer_text(&line),
                 (long long)rows);
}

void progress_start_step(Progress *progress) { progress->step_start = monotonic_seconds(); }

void progress_go_on(Progress *progress)
{
    progress_start_step(progress);
    progress->start += progress->step_start - progress->step_end;
}

static void say_summary(Progress *progress, double planned_step_s)
{
    double step = progress->trained / (double)progress->steps_done;
    char took[32], planned[32], line[128];
    int size = snprintf(line, sizeof line, "%s", seconds_format(step, took));
    if (planned_step_s > 0)
        snprintf(line + size, sizeof line - (size_t)size, " (planned %s, %+lld%%)",
                 seconds_format(planned_step_s, planned), (long long)round(100 * (step / planned_step_s - 1)));
    char loss[64] = "";
    if (!progress->site) snprintf(loss, sizeof loss, " loss %.4f,", progress->loss);
    progress_say(progress, "%s%s%lld steps in %.1f s:%s %.0f tokens/s", progress->site ? progress->site : "",
                 progress->site ? ": " : "", (long long)progress->steps_done, progress->trained, loss,
                 progress->tokens / progress->trained);
    progress_say(progress, "Step time %s", line);
}

bool progress_close(Progress *progress, double planned_step_s, Diagnostics *diagnostics)
{
    if (progress->steps_done) say_summary(progress, planned_step_s);
    event_file_close(&progress->events);
    return training_log_close(&progress->log, diagnostics);
}
