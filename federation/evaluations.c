#include "federation/evaluations.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

const char *const evaluation_metrics[EVALUATION_METRICS] = {"loss",     "accuracy", "f1",
                                                            "matthews", "pearson",  "spearman"};

int evaluation_metric(const char *name)
{
    for (int m = 0; m < EVALUATION_METRICS; m++)
        if (strcmp(name, evaluation_metrics[m]) == 0) return m;
    return -1;
}

static bool is_better(const Evaluations *evaluations, const Evaluation *one, const Evaluation *other)
{
    double a = one->values[evaluations->metric], b = other->values[evaluations->metric];
    if (isnan(a) || isnan(b)) return isnan(b) && !isnan(a);
    return evaluations->metric == EVALUATION_LOSS ? a < b : a > b;
}

void evaluations_add(Evaluations *evaluations, const Evaluation *evaluation)
{
    array_push(evaluations->items, evaluations->count, evaluations->capacity, *evaluation);
    size_t last = evaluations->count - 1;
    if (last == 0 || is_better(evaluations, evaluation, &evaluations->items[evaluations->best]))
        evaluations->best = last;
}

bool evaluations_are_over(const Evaluations *evaluations)
{
    return evaluations->patience > 0 && evaluations->count > 0 &&
           (int64_t)(evaluations->count - 1 - evaluations->best) >= evaluations->patience;
}

const Evaluation *evaluations_of(const Evaluations *evaluations, int64_t round)
{
    for (size_t i = evaluations->count; i-- > 0;)
        if (evaluations->items[i].round == round) return &evaluations->items[i];
    return NULL;
}

void evaluations_free(Evaluations *evaluations)
{
    free(evaluations->items);
    *evaluations = (Evaluations){0};
}

/* ---- The file ---- */

static void print_header(Buffer *text)
{
    buffer_print(text, "round");
    for (int m = 0; m < EVALUATION_METRICS; m++) buffer_print(text, ",%s", evaluation_metrics[m]);
    buffer_print(text, "\n");
}

static bool read_row(Evaluation *row, char *at)
{
    char *end;
    row->round = strtoll(at, &end, 10);
    if (end == at) return false;
    for (int m = 0; m < EVALUATION_METRICS; m++) {
        if (*end != ',') return false;
        at = end + 1;
        row->values[m] = strtod(at, &end);
        if (end == at) row->values[m] = NAN;
    }
    return *end == '\n';
}

bool evaluations_read(Evaluations *evaluations, const char *path, int64_t round, Diagnostics *diagnostics)
{
    FREED_WITH(stream_close) FILE *file = fopen(path, "re");
    FREED char *line = NULL;
    size_t capacity = 0;
    FREED_WITH(buffer_free) Buffer header = {0};
    bool ok = true;
    if (!file) return access(path, F_OK) != 0 || file_error(diagnostics, path, "cannot read");
    print_header(&header);
    if (getline(&line, &capacity, file) <= 0 || strcmp(line, buffer_text(&header)) != 0)
        ok = input_error(diagnostics, path, NULL, "is not what a coordinator wrote of its evaluations");
    Evaluation row;
    while (ok && getline(&line, &capacity, file) > 0 && read_row(&row, line) && row.round <= round)
        evaluations_add(evaluations, &row);
    return ok;
}

bool evaluations_write(const Evaluations *evaluations, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer text = {0};
    print_header(&text);
    for (size_t i = 0; i < evaluations->count; i++) {
        buffer_print(&text, "%" PRId64, evaluations->items[i].round);
        for (int m = 0; m < EVALUATION_METRICS; m++) {
            double value = evaluations->items[i].values[m];
            if (isnan(value))
                buffer_print(&text, ",");
            else
                buffer_print(&text, ",%.9g", value);
        }
        buffer_print(&text, "\n");
    }
    return file_write_all(path, text.bytes, text.size, diagnostics);
}
