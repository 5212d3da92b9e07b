#include "runtime/train/training_log.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/input_files.h"
#include "base/text.h"

static const char header[] =
    "step,loss,learning_rate,seconds,tokens_per_second,tokens,tokens_valid,eval_loss,"
    "eval_accuracy,eval_f1,eval_matthews,eval_pearson,eval_spearman,eval_perplexity,eval_exact\n";
static const char not_evaluated[] = ",,,,,,,,"; /* the columns of metrics */
_Static_assert(sizeof not_evaluated == METRIC_COUNT + 1, "a comma before every metric");

/* Writes as much of the unwritten text as it can. */
static bool write_out(TrainingLog *log)
{
    size_t done = 0;
    ssize_t count = 0;
    while (done < log->unwritten.size) {
        count = write(log->descriptor, log->unwritten.bytes + done, log->unwritten.size - done);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        done += (size_t)count;
    }
    int error = errno;
    log->unwritten.size -= done;
    if (done) memmove(log->unwritten.bytes, log->unwritten.bytes + done, log->unwritten.size);
    if (log->unwritten.size == 0) {
        log->lost_from = 0;
        return true;
    }
    if (!log->lost_from) log->lost_from = log->step;
    if (!log->error)
        text_print(stderr,
                   "skycc: warning: %s: cannot be written: %s; training goes on, and its rows are kept to be written "
                   "later\n",
                   log->path, strerror(error));
    log->error = error;
    return false;
}

static void end_row(TrainingLog *log, const char *rest)
{
    if (!log->row_open) return;
    buffer_print(&log->unwritten, "%s\n", rest);
    log->row_open = false;
    write_out(log);
}

/* The rows of an earlier log before `first_step`. A killed run may have left its last row incomplete. `last` is the
 * step of the last one. False if the log has other columns. */
static bool keep_rows(Buffer *kept, const char *path, int64_t first_step, int64_t *last)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    FREED_WITH(file_unmap) MappedFile file = {0};
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
            *last = step;
            buffer_append(kept, line, (size_t)(next - line));
            if (!whole) buffer_print(kept, "%s\n", not_evaluated);
        }
    }
    return same;
}

/* Writes the kept rows over themselves, then cuts off the rest, so that a run killed here loses none of them. */
static bool begin(TrainingLog *log, const Buffer *kept)
{
    log->descriptor = open(log->path, O_WRONLY | O_CREAT | O_CLOEXEC | (kept->size ? 0 : O_TRUNC), 0666);
    if (log->descriptor < 0) return false;
    const char *parts[] = {header, buffer_text(kept)};
    for (int i = 0; i < 2; i++)
        for (size_t done = 0, size = strlen(parts[i]); done < size;) {
            ssize_t count = write(log->descriptor, parts[i] + done, size - done);
            if (count < 0 && errno != EINTR) return false;
            if (count > 0) done += (size_t)count;
        }
    return kept->size == 0 || ftruncate(log->descriptor, lseek(log->descriptor, 0, SEEK_CUR)) == 0;
}

/* A row that has no metrics yet may get them: the evaluation that a signal put off. */
static bool open_row(Buffer *kept)
{
    size_t length = sizeof not_evaluated; /* with the end of the line */
    if (kept->size < length || memcmp(kept->bytes + kept->size - length, not_evaluated, length - 1) != 0) return false;
    kept->size -= length;
    kept->bytes[kept->size] = '\0';
    return true;
}

bool training_log_open(TrainingLog *log, const char *path, int64_t first_step, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer kept = {0};
    *log = (TrainingLog){.path = path, .descriptor = -1};
    if (!input_files_spare(path, diagnostics)) return false;
    bool ok = keep_rows(&kept, path, first_step, &log->step);
    log->row_open = ok && log->step == first_step - 1 && open_row(&kept);
    if (!ok)
        input_error(diagnostics, path, "name another --log", "is no log with the columns that this run writes");
    else if (!(ok = begin(log, &kept)))
        file_error(diagnostics, path, log->descriptor < 0 ? "cannot create" : "cannot be written");
    return ok;
}

void training_log_step(TrainingLog *log, const LogRow *row)
{
    if (!log->path) return;
    char valid[24] = "";
    if (row->tokens_valid >= 0) snprintf(valid, sizeof valid, "%lld", (long long)row->tokens_valid);
    end_row(log, not_evaluated);
    log->step = row->step;
    buffer_print(&log->unwritten, "%lld,%.9g,%.7g,%.6f,%.1f,%lld,%s", (long long)row->step, row->loss,
                 row->learning_rate, row->seconds, row->tokens_per_second, (long long)row->tokens, valid);
    log->row_open = true;
    write_out(log);
}

void training_log_evaluation(TrainingLog *log, const double values[METRIC_COUNT])
{
    FREED_WITH(buffer_free) Buffer columns = {0};
    for (Metric metric = 0; metric < METRIC_COUNT; metric++) {
        buffer_print(&columns, ",");
        if (metric != METRIC_LOSS && isnan(values[metric])) continue;
        buffer_print(&columns, metric == METRIC_ACCURACY ? "%.6f" : "%.9g", values[metric]);
    }
    end_row(log, buffer_text(&columns));
}

bool training_log_close(TrainingLog *log, Diagnostics *diagnostics)
{
    if (!log->path) return true;
    end_row(log, not_evaluated);
    bool ok = write_out(log);
    if (close(log->descriptor) != 0 && ok) {
        ok = false;
        log->error = errno;
        log->lost_from = log->step;
    }
    buffer_free(&log->unwritten);
    return ok || input_error(diagnostics, log->path,
                             "the training itself is done; make room, and have --log written elsewhere",
                             "cannot be written: %s: the rows from step %lld on are lost", strerror(log->error),
                             (long long)log->lost_from);
}
