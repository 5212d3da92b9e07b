#include "driver/plot/plot_log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/units.h"

enum { FIELD_BYTES = 128 };

static const char *const run_columns[RUN_SERIES] = {"loss",          "eval_loss",    "eval_accuracy",    "eval_f1",
                                                    "eval_matthews", "eval_pearson", "eval_spearman",    "eval_exact",
                                                    "learning_rate", "seconds",      "tokens_per_second"};
static const char site_column[] = "loss_";

typedef struct Line {
    const char *file;
    int number;
    const char *text, *end;
    bool whole; /* ends with a newline */
    Diagnostics *diagnostics;
} Line;

static bool wrong_line(const Line *line, const char *what, const char *text)
{
    Place place = {.file = line->file, .line = line->number};
    return diagnostics_error(line->diagnostics, EXIT_BAD_INPUT, place, NULL, what, text);
}

/* Cuts the next field off the line into `field`; false at the end of the line, or (reporting) if it is too long. */
static bool next_field(const Line *line, const char **position, char field[static FIELD_BYTES])
{
    if (!*position) return false;
    const char *comma = memchr(*position, ',', (size_t)(line->end - *position));
    const char *end = comma ? comma : line->end;
    size_t length = (size_t)(end - *position);
    if (length >= FIELD_BYTES || memchr(*position, '\0', length))
        return wrong_line(line, "%s", "a field is neither a number nor a name");
    memcpy(field, *position, length);
    field[length] = '\0';
    *position = comma ? comma + 1 : NULL;
    return true;
}

static int count_fields(const Line *line)
{
    int count = 1;
    for (const char *c = line->text; c < line->end; c++) count += *c == ',';
    return count;
}

static void open_series(PlotLog *log, const Line *line)
{
    size_t room = log->federated ? (size_t)count_fields(line) + 1 : RUN_SERIES;
    log->series = arena_new_array(&log->arena, PlotSeries, room);
    log->series_count = log->federated ? 1 : RUN_SERIES;
    for (int s = 0; s < log->series_count; s++) log->series[s] = (PlotSeries){run_columns[s], -1};
}

static void enter_column(PlotLog *log, const char *field)
{
    if (strcmp(field, log->federated ? "round" : "step") == 0) log->step_column = log->columns;
    for (int s = 0; s < (log->federated ? 1 : RUN_SERIES); s++)
        if (strcmp(field, run_columns[s]) == 0) log->series[s].column = log->columns;
    if (log->federated && strncmp(field, site_column, strlen(site_column)) == 0)
        log->series[log->series_count++] =
            (PlotSeries){arena_string(&log->arena, field + strlen(site_column)), log->columns};
}

/* Site names go into the picture, so they must be plain. */
static bool is_site(const char *name)
{
    static const char plain[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-";
    return *name && strspn(name, plain) == strlen(name);
}

static bool read_header(PlotLog *log, const Line *line)
{
    static const char first[] = "round,";
    const char *position = line->text;
    char field[FIELD_BYTES];
    log->step_column = -1;
    log->federated = (size_t)(line->end - line->text) > strlen(first) && strncmp(line->text, first, strlen(first)) == 0;
    open_series(log, line);
    for (; next_field(line, &position, field); log->columns++) enter_column(log, field);
    if (line->diagnostics->errors) return false;
    for (int s = 1; s < log->series_count && log->federated; s++)
        if (!is_site(log->series[s].name))
            return wrong_line(line, "column 'loss_%s' names no site", log->series[s].name);
    return (log->step_column >= 0 && log->series[LOSS].column >= 0) ||
           wrong_line(line, "the first line must name the columns, including %s",
                      log->federated ? "round and loss" : "step and loss");
}

/* Whether the field is nan, inf or too large for a double. */
static bool is_no_finite_number(const char *field)
{
    char *end;
    double value = strtod(field, &end);
    return end != field && !*end && !isfinite(value);
}

/* A run that diverges logs nan and inf: these are gaps in the curve, like empty fields. */
static bool read_value(const Line *line, const char *field, double *value, bool *gap)
{
    *value = NAN;
    *gap = is_no_finite_number(field);
    return *gap || !*field || units_parse_number(field, value) || wrong_line(line, "'%s' is not a number", field);
}

/* A coordinator that repeats a round logs it again: the last line counts. */
static bool place_row(PlotLog *log, const Line *line, double step)
{
    double last = log->count ? log->steps[log->count - 1] : -1;
    if (step > last) return true;
    if (!log->federated || step != last) return wrong_line(line, "%s", "its step does not come after the line before");
    log->count--;
    log->value_count -= (size_t)log->series_count;
    return true;
}

static bool read_fields(PlotLog *log, const Line *line, double *values, double *step, bool *diverged, int *fields)
{
    const char *position = line->text;
    char field[FIELD_BYTES];
    bool gap;
    *diverged = false;
    *step = NAN;
    for (int s = 0; s < log->series_count; s++) values[s] = NAN;
    for (*fields = 0; next_field(line, &position, field); ++*fields) {
        if (*fields == log->step_column && !read_value(line, field, step, &gap)) return false;
        for (int s = 0; s < log->series_count; s++) {
            if (*fields != log->series[s].column) continue;
            if (!read_value(line, field, &values[s], &gap)) return false;
            *diverged |= gap && s == LOSS;
        }
    }
    return line->diagnostics->errors == 0;
}

static bool read_row(PlotLog *log, const Line *line, double *values)
{
    double step;
    bool diverged;
    int fields;
    if (!read_fields(log, line, values, &step, &diverged, &fields)) return false;
    if (fields > log->columns) return wrong_line(line, "has %s fields than the first line", "more");
    if (fields < log->columns && line->whole) return wrong_line(line, "has %s fields than the first line", "fewer");
    if (!(step >= 0)) return line->whole ? wrong_line(line, "has %s", log->federated ? "no round" : "no step") : true;
    if (!place_row(log, line, step)) return false;
    array_push(log->steps, log->count, log->step_capacity, step);
    for (int s = 0; s < log->series_count; s++)
        array_push(log->values, log->value_count, log->value_capacity, values[s]);
    if (diverged && log->diverged++ == 0) log->first_diverged = step;
    return true;
}

static bool check_drawable(const PlotLog *log, const char *path, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < log->count; i++)
        if (!isnan(plot_value(log, i, LOSS))) return true;
    if (log->diverged)
        return input_error(diagnostics, path, NULL, "no loss to draw: all %zu are nan or infinite", log->diverged);
    return input_error(diagnostics, path,
                       log->count && log->federated ? "sites with hide_metrics report no losses" : NULL,
                       "no loss to draw");
}

bool plot_log_read(PlotLog *log, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(file_unmap) MappedFile file = {0};
    *log = (PlotLog){0};
    if (!file_map(&file, path, diagnostics)) return false;
    const char *text = file.bytes ? (const char *)file.bytes : "", *end = text + file.size;
    Line line = {.file = path, .diagnostics = diagnostics};
    double *values = NULL;
    bool ok = true;
    while (ok && text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        line.number++;
        line.text = text;
        line.whole = newline != NULL;
        line.end = newline ? newline : end;
        text = newline ? newline + 1 : end;
        if (line.end > line.text && line.end[-1] == '\r') line.end--;
        if (line.end == line.text) continue;
        ok = log->columns ? read_row(log, &line, values) : read_header(log, &line);
        if (ok && !values) values = arena_new_array(&log->arena, double, (size_t)log->series_count);
    }
    return ok && check_drawable(log, path, diagnostics);
}

void plot_log_free(PlotLog *log)
{
    free(log->steps);
    free(log->values);
    arena_free(&log->arena);
    *log = (PlotLog){0};
}
