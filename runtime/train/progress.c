#include "runtime/train/progress.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/input_files.h"
#include "base/text.h"

static const char header[] = "step,loss,learning_rate,seconds,tokens_per_second,tokens,tokens_valid,eval_loss,"
                             "eval_accuracy,eval_f1,eval_matthews,eval_pearson,eval_spearman,eval_perplexity\n";
static const char not_evaluated[] = ",,,,,,,"; /* the columns of metrics */
_Static_assert(sizeof not_evaluated == METRIC_COUNT + 1, "a comma in front of every metric");
static const double terminal_interval = 0.1, line_interval = 5; /* seconds between prints */

/* A row stays open until it is known whether the step was evaluated. */
static void end_row(Progress *progress, const char *rest)
{
    if (!progress->row_open) return;
    fprintf(progress->log, "%s\n", rest);
    fflush(progress->log);
    progress->row_open = false;
}

/* The lines of an earlier log that stand before `first_step`. A run that was killed left its last row open. False if it
 * has other columns. */
static bool keep_lines(Buffer *kept, const char *path, int64_t first_step)
{
    Diagnostics ignored = {0};
    MappedFile file;
    bool same = true;
    if (first_step > 1 && file_map(&file, path, &ignored)) {
        const char *text = (const char *)file.bytes, *end = text + file.size;
        size_t headed = file.size < sizeof header - 1 ? file.size : sizeof header - 1;
        same = headed == 0 || memcmp(text, header, headed) == 0;
        for (const char *line = text, *next; line < end; line = next) {
            next = memchr(line, '\n', (size_t)(end - line));
            bool whole = next != NULL;
            next = whole ? next + 1 : end;
            char *number_end;
            char number[24] = {0};
            memcpy(number, line, (size_t)(next - line) < sizeof number - 1 ? (size_t)(next - line) : sizeof number - 1);
            long long step = strtoll(number, &number_end, 10);
            if (number_end == number || step <= 0 || step >= first_step) continue;
            buffer_append(kept, line, (size_t)(next - line));
            if (!whole) buffer_print(kept, "%s\n", not_evaluated);
        }
        file_unmap(&file);
    }
    diagnostics_free(&ignored);
    return same;
}

/* What is kept is written over itself, and what follows cut off then: a run that is killed here loses none of it. */
static FILE *open_log(const char *path, int64_t first_step, Diagnostics *diagnostics)
{
    Buffer kept = {0};
    if (!input_files_spare(path, diagnostics)) return NULL;
    if (!keep_lines(&kept, path, first_step)) {
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), "name another --log",
                          "is no log with the columns that this run writes");
        buffer_free(&kept);
        return NULL;
    }
    FILE *log = fopen(path, kept.size ? "r+e" : "we");
    if (log && (fprintf(log, "%s%s", header, buffer_text(&kept)) < 0 || fflush(log) != 0 ||
                (kept.size && ftruncate(fileno(log), ftello(log)) != 0))) {
        int saved = errno;
        fclose(log);
        errno = saved;
        log = NULL;
    }
    if (!log)
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "cannot create: %s", strerror(errno));
    buffer_free(&kept);
    return log;
}

bool progress_open(Progress *progress, bool quiet, const char *log_path, int64_t first_step, int64_t last_step,
                   Diagnostics *diagnostics)
{
    const char *terminal = getenv("SKYCC_TERMINAL"); /* the launcher's: under mpiexec, output is a pipe */
    *progress = (Progress){.quiet = quiet,
                           .terminal = terminal ? *terminal == '1' : isatty(STDOUT_FILENO),
                           .first_step = first_step,
                           .last_step = last_step,
                           .watched = METRIC_COUNT};
    if (log_path) {
        progress->log = open_log(log_path, first_step, diagnostics);
        if (!progress->log) return false;
    }
    progress->start = progress->step_start = monotonic_seconds();
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
    fflush(stdout);
}

void progress_step(Progress *progress, int64_t step, double loss, double learning_rate, StepTokens tokens)
{
    double time = monotonic_seconds(), seconds = time - progress->step_start, elapsed = time - progress->start;
    progress->step_start = time;
    progress->steps_done++;
    progress->trained += seconds;
    progress->tokens += (double)tokens.computed;
    progress->loss = loss;
    if (progress->log) {
        char valid[24] = "";
        if (tokens.valid >= 0) snprintf(valid, sizeof valid, "%lld", (long long)tokens.valid);
        end_row(progress, not_evaluated);
        fprintf(progress->log, "%lld,%.9g,%.7g,%.6f,%.1f,%lld,%s", (long long)step, loss, learning_rate, elapsed,
                (double)tokens.computed / seconds, (long long)tokens.computed, valid);
        fflush(progress->log);
        progress->row_open = true;
    }
    double interval = progress->terminal ? terminal_interval : line_interval;
    bool notable = step == progress->first_step || step == progress->last_step;
    if (progress->quiet || (!notable && time - progress->last_print < interval)) return;
    progress->last_print = time;
    print_line(progress, step, (double)tokens.computed / seconds);
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
    fflush(stdout);
}

static void print_metric(Buffer *line, Metric metric, double value)
{
    if (metric == METRIC_ACCURACY)
        buffer_print(line, "accuracy %.2f%%", 100 * value);
    else
        buffer_print(line, "%s %.*f", metric_name(metric), metric == METRIC_LOSS ? 6 : 4, value);
}

/* What lines of progress repeat until the next evaluation. */
static void remember(Progress *progress, const double values[METRIC_COUNT])
{
    static const Metric telling[] = {METRIC_ACCURACY, METRIC_PEARSON, METRIC_LOSS};
    Metric metric = progress->watched;
    for (size_t i = 0; metric == METRIC_COUNT || isnan(values[metric]); i++) {
        if (i == sizeof telling / sizeof *telling) return;
        metric = telling[i];
    }
    Buffer text = {0};
    print_metric(&text, metric, values[metric]);
    snprintf(progress->evaluated, sizeof progress->evaluated, "%s%s  ", metric == METRIC_LOSS ? "evaluation " : "",
             buffer_text(&text));
    buffer_free(&text);
}

void progress_evaluation(Progress *progress, int64_t step, const double values[METRIC_COUNT], int64_t count)
{
    Buffer line = {0}, columns = {0};
    for (Metric metric = 0; metric < METRIC_COUNT; metric++) {
        buffer_print(&columns, ",");
        if (metric != METRIC_LOSS && isnan(values[metric])) continue;
        buffer_print(&columns, metric == METRIC_ACCURACY ? "%.6f" : "%.9g", values[metric]);
        buffer_print(&line, "%s", metric == METRIC_LOSS ? "" : ", ");
        print_metric(&line, metric, values[metric]);
    }
    remember(progress, values);
    end_row(progress, buffer_text(&columns));
    progress_say(progress, "evaluation after step %lld: %s (%lld rows)", (long long)step, buffer_text(&line),
                 (long long)count);
    buffer_free(&line);
    buffer_free(&columns);
}

void progress_start_step(Progress *progress) { progress->step_start = monotonic_seconds(); }

bool progress_close(Progress *progress, double predicted_step_s, Diagnostics *diagnostics)
{
    if (progress->steps_done) {
        double step = progress->trained / (double)progress->steps_done;
        char predicted[64] = "", loss[64] = "";
        if (!progress->site) snprintf(loss, sizeof loss, " loss %.4f,", progress->loss);
        if (predicted_step_s > 0)
            snprintf(predicted, sizeof predicted, " (the plan predicted %.4g s)", predicted_step_s);
        progress_say(progress, "%s%s%lld steps in %.1f s:%s %.0f tokens/s, %.4g s a step%s",
                     progress->site ? progress->site : "", progress->site ? ": " : "", (long long)progress->steps_done,
                     progress->trained, loss, progress->tokens / progress->trained, step, predicted);
    }
    end_row(progress, not_evaluated);
    if (!progress->log || fclose(progress->log) == 0) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "the log cannot be written: %s",
                             strerror(errno));
}
