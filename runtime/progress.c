#include "runtime/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"

static const char header[] = "step,loss,learning_rate,seconds,tokens_per_second,eval_loss,eval_accuracy\n";
static const double terminal_interval = 0.1, line_interval = 5; /* seconds between prints */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A row stays open until it is known whether the step was evaluated. */
static void end_row(Progress *progress, const char *rest)
{
    if (!progress->row_open) return;
    fprintf(progress->log, "%s\n", rest);
    fflush(progress->log);
    progress->row_open = false;
}

/* The lines of an earlier log that stand before `first_step`. A run that was killed left its last row open. */
static void keep_lines(Buffer *kept, const char *path, int64_t first_step)
{
    Diagnostics ignored = {0};
    MappedFile file;
    if (first_step > 1 && file_map(&file, path, &ignored)) {
        const char *text = (const char *)file.bytes, *end = text + file.size;
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
            if (!whole) buffer_print(kept, ",,\n");
        }
        file_unmap(&file);
    }
    diagnostics_free(&ignored);
}

bool progress_open(Progress *progress, bool quiet, const char *log_path, int64_t first_step, int64_t last_step,
                   double tokens_per_step, Diagnostics *diagnostics)
{
    const char *terminal = getenv("SKYCC_TERMINAL"); /* the launcher's: under mpiexec, output is a pipe */
    *progress = (Progress){.quiet = quiet,
                           .terminal = terminal ? *terminal == '1' : isatty(STDOUT_FILENO),
                           .first_step = first_step,
                           .last_step = last_step,
                           .tokens_per_step = tokens_per_step};
    if (log_path) {
        Buffer kept = {0};
        keep_lines(&kept, log_path, first_step);
        progress->log = fopen(log_path, "we");
        if (progress->log) fprintf(progress->log, "%s%s", header, buffer_text(&kept));
        buffer_free(&kept);
        if (!progress->log)
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(log_path), NULL, "cannot create: %s",
                                     strerror(errno));
    }
    progress->start = progress->step_start = now();
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

static void print_line(Progress *progress, int64_t step, double seconds)
{
    char left[32] = "", total[32] = "";
    if (progress->last_step) {
        print_time_left(left, progress->trained / (double)progress->steps_done * (double)(progress->last_step - step));
        snprintf(total, sizeof total, "/%lld", (long long)progress->last_step);
    }
    printf("%sstep %lld%s  loss %.4f  %.0f tokens/s  %s%s", progress->terminal ? "\r" : "", (long long)step, total,
           progress->loss, progress->tokens_per_step / seconds, left, progress->terminal ? "\033[K" : "\n");
    progress->line_open = progress->terminal;
    fflush(stdout);
}

void progress_step(Progress *progress, int64_t step, double loss, double learning_rate)
{
    double time = now(), seconds = time - progress->step_start, elapsed = time - progress->start;
    progress->step_start = time;
    progress->steps_done++;
    progress->trained += seconds;
    progress->loss = loss;
    if (progress->log) {
        end_row(progress, ",,");
        fprintf(progress->log, "%lld,%.9g,%.7g,%.6f,%.1f", (long long)step, loss, learning_rate, elapsed,
                progress->tokens_per_step / seconds);
        fflush(progress->log);
        progress->row_open = true;
    }
    double interval = progress->terminal ? terminal_interval : line_interval;
    bool notable = step == progress->first_step || step == progress->last_step;
    if (progress->quiet || (!notable && time - progress->last_print < interval)) return;
    progress->last_print = time;
    print_line(progress, step, seconds);
}

void progress_say(Progress *progress, const char *format, ...)
{
    if (progress->quiet) return;
    end_line(progress);
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

void progress_evaluation(Progress *progress, int64_t step, double loss, double accuracy, int64_t count)
{
    char right[48] = "";
    char columns[64] = "";
    int length = snprintf(columns, sizeof columns, ",%.9g,", loss);
    if (accuracy >= 0) {
        snprintf(columns + length, sizeof columns - (size_t)length, "%.6f", accuracy);
        snprintf(right, sizeof right, ", accuracy %.2f%%", 100 * accuracy);
    }
    end_row(progress, columns);
    progress_say(progress, "evaluation after step %lld: loss %.6f%s (%lld rows)", (long long)step, loss, right,
                 (long long)count);
}

void progress_start_step(Progress *progress) { progress->step_start = now(); }

bool progress_close(Progress *progress, double predicted_step_s, Diagnostics *diagnostics)
{
    if (progress->steps_done) {
        double step = progress->trained / (double)progress->steps_done;
        char predicted[64] = "";
        if (predicted_step_s > 0)
            snprintf(predicted, sizeof predicted, " (the plan predicted %.4g s)", predicted_step_s);
        progress_say(progress, "%lld steps in %.1f s: loss %.4f, %.0f tokens/s, %.4g s a step%s",
                     (long long)progress->steps_done, progress->trained, progress->loss,
                     progress->tokens_per_step / step, step, predicted);
    }
    end_row(progress, ",,");
    if (!progress->log || fclose(progress->log) == 0) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "the log cannot be written: %s",
                             strerror(errno));
}
