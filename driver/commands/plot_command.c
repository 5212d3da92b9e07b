/* skycc plot: the loss of a run over its steps, and what evaluations measured, from the CSV log, as one SVG picture. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/units.h"
#include "driver/commands/commands.h"

/* ---- the log ---- */

enum { LOSS, EVAL_LOSS, EVAL_ACCURACY, EVAL_F1, EVAL_MATTHEWS, EVAL_PEARSON, EVAL_SPEARMAN, SERIES_COUNT };

static const char *const series_columns[SERIES_COUNT] = {"loss",          "eval_loss",    "eval_accuracy", "eval_f1",
                                                         "eval_matthews", "eval_pearson", "eval_spearman"};

typedef struct Row {
    double step, value[SERIES_COUNT]; /* NaN: none */
} Row;

typedef struct Log {
    Row *rows;
    size_t count, capacity;
    int step_column, column[SERIES_COUNT], columns; /* -1: the log has none */
    size_t diverged;                                /* losses that are nan or infinite */
    double first_diverged;                          /* the step of the first */
} Log;

typedef struct Line {
    const char *file;
    int number;
    const char *text, *end;
    bool whole; /* ends with a newline */
    Diagnostics *diagnostics;
} Line;

static bool refuse(const Line *line, const char *what, const char *text)
{
    Place place = {.file = line->file, .line = line->number};
    return diagnostics_error(line->diagnostics, EXIT_BAD_INPUT, place, NULL, what, text);
}

/* Cuts the next field off the line into `field`; false at the end of the line, or (reporting) if it is too long. */
static bool next_field(const Line *line, const char **position, char field[static 64])
{
    if (!*position) return false;
    const char *comma = memchr(*position, ',', (size_t)(line->end - *position));
    const char *end = comma ? comma : line->end;
    size_t length = (size_t)(end - *position);
    if (length >= 64 || memchr(*position, '\0', length)) return refuse(line, "%s", "a field is no number and no name");
    memcpy(field, *position, length);
    field[length] = '\0';
    *position = comma ? comma + 1 : NULL;
    return true;
}

static bool read_header(Log *log, const Line *line)
{
    const char *position = line->text;
    char field[64];
    log->step_column = -1;
    for (int s = 0; s < SERIES_COUNT; s++) log->column[s] = -1;
    for (; next_field(line, &position, field); log->columns++) {
        if (strcmp(field, "step") == 0) log->step_column = log->columns;
        for (int s = 0; s < SERIES_COUNT; s++)
            if (strcmp(field, series_columns[s]) == 0) log->column[s] = log->columns;
    }
    if (line->diagnostics->errors) return false;
    return (log->step_column >= 0 && log->column[LOSS] >= 0) ||
           refuse(line, "the first line must name the columns, %s among them", "step and loss");
}

/* nan and inf, however they are spelled, and what is too large for a double. */
static bool is_no_finite_number(const char *field)
{
    char *end;
    double value = strtod(field, &end);
    return end != field && !*end && !isfinite(value);
}

/* A run that diverges logs nan and inf: gaps in the curve, as where a column is empty. */
static bool read_value(const Line *line, const char *field, double *value, bool *gap)
{
    *value = NAN;
    *gap = is_no_finite_number(field);
    return *gap || !*field || units_parse_number(field, value) || refuse(line, "'%s' is not a number", field);
}

static bool read_row(Log *log, const Line *line)
{
    const char *position = line->text;
    char field[64];
    int column = 0;
    Row row = {.step = NAN};
    for (int s = 0; s < SERIES_COUNT; s++) row.value[s] = NAN;
    bool gap, diverged = false;
    for (; next_field(line, &position, field); column++) {
        if (column == log->step_column && !read_value(line, field, &row.step, &gap)) return false;
        for (int s = 0; s < SERIES_COUNT; s++) {
            if (column != log->column[s]) continue;
            if (!read_value(line, field, &row.value[s], &gap)) return false;
            diverged |= gap && s == LOSS;
        }
    }
    if (line->diagnostics->errors) return false;
    if (column > log->columns) return refuse(line, "has %s fields than the first line", "more");
    if (column < log->columns && line->whole) return refuse(line, "has %s fields than the first line", "fewer");
    if (!(row.step >= 0)) return line->whole ? refuse(line, "has %s", "no step") : true;
    if (log->count && row.step <= log->rows[log->count - 1].step)
        return refuse(line, "%s", "its step is not after that of the line before");
    array_push(log->rows, log->count, log->capacity, row);
    if (diverged && log->diverged++ == 0) log->first_diverged = row.step;
    return true;
}

static bool read_log(Log *log, const char *path, Diagnostics *diagnostics)
{
    MappedFile file;
    if (!file_map(&file, path, diagnostics)) return false;
    const char *text = file.bytes ? (const char *)file.bytes : "", *end = text + file.size;
    Line line = {.file = path, .diagnostics = diagnostics};
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
        ok = log->columns ? read_row(log, &line) : read_header(log, &line);
    }
    bool drawable = false;
    for (size_t i = 0; i < log->count && !drawable; i++) drawable = !isnan(log->rows[i].value[LOSS]);
    if (ok && !drawable && log->diverged)
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL,
                               "there is no loss to draw: all %zu are nan or infinite", log->diverged);
    else if (ok && !drawable)
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), NULL, "there is no loss to draw");
    file_unmap(&file);
    return ok;
}

/* ---- axes ---- */

/* A range of values on a range of the picture. It may be twice as wide as the greatest double, and ends beyond it. */
typedef struct Axis {
    long double low, high, tick;
    double from, to;
} Axis;

static double at(const Axis *axis, long double value)
{
    return axis->from + (double)((value - axis->low) / (axis->high - axis->low)) * (axis->to - axis->from);
}

/* 1, 2 or 5 times a power of ten, so that there are about `count` of them. */
static long double nice_tick(long double range, int count)
{
    long double power = powl(10, floorl(log10l(range / count))), share = range / count / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static Axis make_axis(long double low, long double high, double from, double to, int ticks, double least_tick)
{
    if (high - low < 1e-9L * fmaxl(fabsl(high), least_tick)) {
        long double margin = fmaxl(least_tick, 0.05L * fabsl(high));
        low -= margin;
        high += margin;
    }
    long double tick = fmaxl(nice_tick(high - low, ticks), least_tick);
    return (Axis){floorl(low / tick + 1e-9L) * tick, ceill(high / tick - 1e-9L) * tick, tick, from, to};
}

static Axis value_axis(const Log *log, const int *series, int count, double from, double to, int ticks)
{
    double low = HUGE_VAL, high = -HUGE_VAL;
    for (int s = 0; s < count; s++)
        for (size_t i = 0; i < log->count; i++) {
            double value = log->rows[i].value[series[s]];
            if (value < low) low = value;
            if (value > high) high = value;
        }
    return make_axis(low, high, from, to, ticks, 1e-300);
}

/* As many decimals as the tick needs; its power of ten where numbers get long. */
static void print_number(Buffer *svg, long double value, long double tick)
{
    int decimals = (int)ceill(-log10l(tick) - 1e-9L);
    if (fabsl(value) < tick * 1e-6L) value = 0;
    if (decimals <= 6 && fabsl(value) < 1e7L) {
        buffer_print(svg, "%.*Lf", decimals > 0 ? decimals : 0, value);
        return;
    }
    char text[32];
    snprintf(text, sizeof text, "%.3Lg", value);
    char *plus = strchr(text, '+'); /* 1e308: there is room for no more */
    buffer_print(svg, "%.*s%s", plus ? (int)(plus - text) : (int)strlen(text), text, plus ? plus + 1 : "");
}

/* ---- the picture ---- */

enum { WIDTH = 860, LEFT = 92, RIGHT = 836, LOSS_TOP = 64, LOSS_BOTTOM = 384, ACCURACY_HEIGHT = 110, GAP = 34 };

static const char style[] =
    ":root{color-scheme:light dark}"
    "svg{--ink:#1c2430;--soft:#4d5766;--line:#d5dae1;--back:#fff;--loss:#2460a7;--eval:#a85b00;--s1:#23744a;--s2:#"
    "8a3b8f;"
    "--s3:#b0303f;--s4:#26747d;background:var(--back)}"
    "@media(prefers-color-scheme:dark){svg{--ink:#e4e8ee;--soft:#aab4c2;--line:#39424f;--back:#14181e;--loss:#6aa5ee;"
    "--eval:#e6ab4d;--s1:#63c492;--s2:#cf8ad4;--s3:#ef8590;--s4:#6cc3cd}}"
    "text{font:13px system-ui,sans-serif;fill:var(--soft)}.t{font-size:17px;font-weight:600;fill:var(--ink)}"
    ".g{stroke:var(--line);fill:none}.l{stroke:var(--loss);stroke-width:1.6}.e{stroke:var(--eval);stroke-width:1.8}"
    ".s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}"
    ".l,.e,.s1,.s2,.s3,.s4{fill:none;stroke-linejoin:round}.s1,.s2,.s3,.s4{stroke-width:1.8}.m{fill:var(--eval)}";

static void print_axes(Buffer *svg, const Axis *x, const Axis *y, const char *title, bool percent, bool steps)
{
    double middle = (y->from + y->to) / 2;
    for (int k = 0; k <= (int)((y->high - y->low) / y->tick + 0.5); k++) {
        long double value = y->low + k * y->tick;
        double position = at(y, value);
        buffer_print(svg, "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT,
                     position, RIGHT, LEFT - 8, position + 4.5);
        print_number(svg, percent ? 100 * value : value, percent ? 100 * y->tick : y->tick);
        buffer_print(svg, "%s</text>\n", percent ? "%" : "");
    }
    buffer_print(svg, "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", middle,
                 title);
    for (long double tick = ceill(x->low / x->tick - 1e-9L); tick * x->tick <= x->high * (1 + 1e-12L) && steps;
         tick++) {
        double position = at(x, tick * x->tick);
        buffer_print(svg, "<path class=\"g\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                     position, y->from, position, y->from + 20);
        print_number(svg, tick * x->tick, x->tick);
        buffer_print(svg, "</text>\n");
    }
    if (steps)
        buffer_print(svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">optimiser steps</text>\n",
                     (LEFT + RIGHT) / 2, y->from + 42);
}

/* A line through the values; of the many that may fall on one column of pixels only the first, the least, the greatest
 * and the last in their order. */
static void print_curve(Buffer *svg, const Log *log, int series, const Axis *x, const Axis *y, const char *class)
{
    static const char alone[] = "m-2 0h4"; /* a point between two gaps */
    int drawn = 0;                         /* points since the last gap */
    buffer_print(svg, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0, next; i < log->count; i = next) {
        double column = floor(2 * at(x, log->rows[i].step));
        size_t keep[4] = {i, i, i, i}; /* first, least, greatest, last */
        bool gap = isnan(log->rows[i].value[series]);
        for (next = i + 1; next < log->count && floor(2 * at(x, log->rows[next].step)) == column; next++) {
            double value = log->rows[next].value[series];
            if (isnan(value) != gap) break;
            if (value < log->rows[keep[1]].value[series]) keep[1] = next;
            if (value > log->rows[keep[2]].value[series]) keep[2] = next;
            keep[3] = next;
        }
        /* A column that evaluations leave empty between two of them is no gap of the curve. */
        if (gap && series == LOSS) {
            buffer_print(svg, "%s", drawn == 1 ? alone : "");
            drawn = 0;
        }
        if (gap) continue;
        if (keep[1] > keep[2]) {
            size_t later = keep[1];
            keep[1] = keep[2];
            keep[2] = later;
        }
        for (int k = 0; k < 4; k++) {
            if (k > 0 && keep[k] == keep[k - 1]) continue;
            buffer_print(svg, "%s%.1f %.1f", drawn ? "L" : "M", at(x, log->rows[keep[k]].step),
                         at(y, log->rows[keep[k]].value[series]));
            drawn++;
        }
    }
    buffer_print(svg, "%s\"/>\n", drawn == 1 ? alone : "");
}

static void print_points(Buffer *svg, const Log *log, int series, const Axis *x, const Axis *y)
{
    double last = -HUGE_VAL;
    for (size_t i = 0; i < log->count; i++) {
        double position = at(x, log->rows[i].step);
        if (isnan(log->rows[i].value[series]) || position - last < 2) continue;
        last = position;
        buffer_print(svg, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", position,
                     at(y, log->rows[i].value[series]));
    }
    buffer_print(svg, "\n");
}

static bool has_values(const Log *log, int series)
{
    for (size_t i = 0; i < log->count; i++)
        if (!isnan(log->rows[i].value[series])) return true;
    return false;
}

static const Row *last_with(const Log *log, int series)
{
    size_t i = log->count;
    while (i-- > 0)
        if (!isnan(log->rows[i].value[series])) return &log->rows[i];
    return NULL;
}

/* The title says the numbers that a reader looks for first; the key stands at the right. */
static void print_heading(Buffer *svg, const Log *log, bool evaluated)
{
    const Row *last = last_with(log, LOSS), *evaluation = last_with(log, EVAL_LOSS);
    buffer_print(svg, "<text class=\"t\" x=\"%d\" y=\"26\">Training loss</text>\n<text x=\"%d\" y=\"46\">", LEFT, LEFT);
    buffer_print(svg, "%.4g after step %.15g", last->value[LOSS], last->step);
    if (evaluated)
        buffer_print(svg, "; evaluation %.4g after step %.15g", evaluation->value[EVAL_LOSS], evaluation->step);
    if (log->diverged)
        buffer_print(svg, "; %zu loss%s nan or infinite, the first in step %.15g", log->diverged,
                     log->diverged > 1 ? "es are" : " is", log->first_diverged);
    buffer_print(svg, "</text>\n<path class=\"l\" d=\"M%d 22h22\"/><text x=\"%d\" y=\"26\">training</text>\n",
                 RIGHT - 210, RIGHT - 182);
    if (evaluated)
        buffer_print(svg,
                     "<path class=\"e\" d=\"M%d 22h22\"/><circle class=\"m\" cx=\"%d\" cy=\"22\" r=\"3.2\"/>"
                     "<text x=\"%d\" y=\"26\">evaluation</text>\n",
                     RIGHT - 100, RIGHT - 89, RIGHT - 72);
}

/* The series, beside losses, that have values: at most 1, all of them, and so drawn on one axis. */
static int find_shares(const Log *log, int shares[SERIES_COUNT])
{
    int count = 0;
    for (int s = EVAL_ACCURACY; s < SERIES_COUNT; s++)
        if (has_values(log, s)) shares[count++] = s;
    return count;
}

static void print_shares(Buffer *svg, const Log *log, const Axis *x, int bottom, const int *shares, int count)
{
    static const char *const classes[] = {"e", "s1", "s2", "s3", "s4"};
    bool percent = count == 1 && shares[0] == EVAL_ACCURACY;
    Axis share = value_axis(log, shares, count, bottom, LOSS_BOTTOM + GAP, 3);
    const char *alone = series_columns[shares[0]] + strlen("eval_");
    print_axes(svg, x, &share, count == 1 ? alone : "metrics", percent, true);
    for (int i = 0; i < count; i++) {
        const char *class = classes[shares[i] - EVAL_ACCURACY];
        print_curve(svg, log, shares[i], x, &share, class);
        if (count > 1)
            buffer_print(svg, "<path class=\"%s\" d=\"M%d %dh22\"/><text x=\"%d\" y=\"%d\">%s</text>\n", class,
                         LEFT + 110 * i, LOSS_BOTTOM + GAP - 14, LEFT + 110 * i + 28, LOSS_BOTTOM + GAP - 10,
                         series_columns[shares[i]] + strlen("eval_"));
    }
    if (count == 1) print_points(svg, log, shares[0], x, &share);
}

static void print_picture(Buffer *svg, const Log *log)
{
    static const int losses[] = {LOSS, EVAL_LOSS};
    int shares[SERIES_COUNT], share_count = find_shares(log, shares);
    bool evaluated = has_values(log, EVAL_LOSS);
    int bottom = LOSS_BOTTOM + (share_count ? GAP + ACCURACY_HEIGHT : 0), height = bottom + 56;
    Axis x = make_axis(log->rows[0].step, log->rows[log->count - 1].step, LEFT, RIGHT, 8, 1);
    x.low = fminl(log->rows[0].step, x.high - 1); /* time starts where the log does */
    x.high = fmaxl(log->rows[log->count - 1].step, x.low + 1);
    Axis y = value_axis(log, losses, evaluated ? 2 : 1, LOSS_BOTTOM, LOSS_TOP, 6);
    buffer_print(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
                 "aria-labelledby=\"title summary\">\n<title id=\"title\">Training loss by step</title>\n"
                 "<desc id=\"summary\">%zu steps; the last loss is %.6g.</desc>\n<style>%s</style>\n",
                 WIDTH, height, log->count, last_with(log, LOSS)->value[LOSS], style);
    print_heading(svg, log, evaluated);
    print_axes(svg, &x, &y, "loss (nats, if a cross-entropy)", false, !share_count);
    print_curve(svg, log, LOSS, &x, &y, "l");
    if (evaluated) {
        print_curve(svg, log, EVAL_LOSS, &x, &y, "e");
        print_points(svg, log, EVAL_LOSS, &x, &y);
    }
    if (share_count) print_shares(svg, log, &x, bottom, shares, share_count);
    buffer_print(svg, "</svg>\n");
}

int plot_command(const Options *options, Diagnostics *diagnostics)
{
    Log log = {0};
    Buffer svg = {0};
    bool ok = read_log(&log, options->log, diagnostics);
    if (ok) print_picture(&svg, &log);
    ok = ok && file_write_all(options->output ? options->output : "-", svg.bytes, svg.size, diagnostics);
    buffer_free(&svg);
    free(log.rows);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
