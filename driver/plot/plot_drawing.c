#include "driver/plot/plot_drawing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "partitioner/report/report_drawing.h"

/* ---- axes ---- */

/* Maps a range of values to a range of the picture. The values may span twice the greatest double. */
typedef struct Axis {
    long double low, high, tick;
    double from, to;
} Axis;

static double at(const Axis *axis, long double value)
{
    return axis->from + (double)((value - axis->low) / (axis->high - axis->low)) * (axis->to - axis->from);
}

/* 1, 2 or 5 times a power of ten, for about `count` ticks. */
static long double nice_tick(long double range, int count)
{
    long double power = powl(10, floorl(log10l(range / count))), share = range / count / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static Axis make_axis(long double low, long double high, double from, double to, int ticks, double least_tick)
{
    if (high - low < 1e-9L * fmaxl(fabsl(high), least_tick)) {
        long double margin = fmaxl(least_tick, 0.05L * (high ? fabsl(high) : 1));
        low -= margin;
        high += margin;
    }
    long double tick = fmaxl(nice_tick(high - low, ticks), least_tick);
    return (Axis){floorl(low / tick + 1e-9L) * tick, ceill(high / tick - 1e-9L) * tick, tick, from, to};
}

static void widen(double range[2], const PlotLog *log, const int *series, int count)
{
    for (int s = 0; s < count; s++)
        for (size_t i = 0; i < log->count; i++) {
            double value = plot_value(log, i, series[s]);
            if (value < range[0]) range[0] = value;
            if (value > range[1]) range[1] = value;
        }
}

static Axis value_axis(const PlotLog *log, const int *series, int count, double from, double to, int ticks)
{
    double range[2] = {HUGE_VAL, -HUGE_VAL};
    widen(range, log, series, count);
    return make_axis(range[0], range[1], from, to, ticks, 1e-300);
}

/* Prints as many decimals as the tick needs, or a power of ten if the number gets long. */
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
    char *plus = strchr(text, '+'); /* 1e308 without the plus sign, to fit the margin */
    buffer_print(svg, "%.*s%s", plus ? (int)(plus - text) : (int)strlen(text), text, plus ? plus + 1 : "");
}

/* ---- the picture ---- */

enum { MARGIN = 24, LOSS_TOP = 64, LOSS_BOTTOM = 384, ACCURACY_HEIGHT = 110, GAP = 34, LINE = 18 };

/* Where things stand in a picture for a desk, and in one for a phone, which has a line for each part of the heading. */
typedef struct Frame {
    int heading, left, right, ticks, key_columns;
    bool narrow;
} Frame;

static const Frame wide = {.heading = 92, .left = 92, .right = 836, .ticks = 8, .key_columns = 5},
                   narrow = {.heading = 8, .left = 76, .right = 346, .ticks = 4, .key_columns = 2, .narrow = true};

enum { LEAST_SMOOTHED = 40 }; /* steps: the curve of fewer is plain enough */

#define LOSS_TITLE "loss (nats, if a cross-entropy)"

static const char style[] =
    ":root{color-scheme:light dark}"
    "svg{--ink:#1c2430;--soft:#4d5766;--line:#d5dae1;--back:#fff;--loss:#2460a7;--eval:#a85b00;--s1:#23744a;--s2:#"
    "8a3b8f;"
    "--s3:#b0303f;--s4:#26747d;background:var(--back)}"
    "@media(prefers-color-scheme:dark){svg{--ink:#e4e8ee;--soft:#aab4c2;--line:#39424f;--back:#14181e;--loss:#6aa5ee;"
    "--eval:#e6ab4d;--s1:#63c492;--s2:#cf8ad4;--s3:#ef8590;--s4:#6cc3cd}}"
    "text{font:13px system-ui,sans-serif;fill:var(--soft)}.t{font-size:17px;font-weight:600;fill:var(--ink)}"
    ".g{stroke:var(--line);fill:none}.l,.h{stroke:var(--loss);stroke-width:1.6}.e{stroke:var(--eval);stroke-width:1.8}"
    ".s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{stroke:var(--s4)}"
    ".l,.h,.e,.s1,.s2,.s3,.s4{fill:none;stroke-linejoin:round}.s1,.s2,.s3,.s4{stroke-width:1.8}.m{fill:var(--eval)}"
    ".raw{opacity:.35}.b{stroke:var(--soft);stroke-dasharray:4 4;fill:none}";

static const char many_lines[] =
    ".s{fill:none;stroke:hsl(var(--h) 60% 45%);stroke-width:1.1;stroke-linejoin:round}.l{stroke-width:2.6}"
    "@media(prefers-color-scheme:dark){.s{stroke:hsl(var(--h) 60% 65%)}}";

/* `below`: the unit of the x axis; NULL: no ticks there. */
static void print_axes(Buffer *svg, const Frame *frame, const Axis *x, const Axis *y, const char *title, bool percent,
                       const char *below)
{
    double middle = (y->from + y->to) / 2;
    for (int k = 0; k <= (int)((y->high - y->low) / y->tick + 0.5); k++) {
        long double value = y->low + k * y->tick;
        double position = at(y, value);
        buffer_print(svg, "<path class=\"g\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                     frame->left, position, frame->right, frame->left - 8, position + 4.5);
        print_number(svg, percent ? 100 * value : value, percent ? 100 * y->tick : y->tick);
        buffer_print(svg, "%s</text>\n", percent ? "%" : "");
    }
    buffer_print(svg, "<text transform=\"translate(16 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n", middle,
                 title);
    for (long double tick = ceill(x->low / x->tick - 1e-9L); tick * x->tick <= x->high * (1 + 1e-12L) && below;
         tick++) {
        double position = at(x, tick * x->tick);
        buffer_print(svg, "<path class=\"g\" d=\"M%.1f %.1fv5\"/><text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">",
                     position, y->from, position, y->from + 20);
        print_number(svg, tick * x->tick, x->tick);
        buffer_print(svg, "</text>\n");
    }
    if (below)
        buffer_print(svg, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                     (frame->left + frame->right) / 2, y->from + 42, below);
}

/* A line through the values. Of all values in one column of pixels, only the first, least, greatest and last are
 * drawn. */
static void print_curve(Buffer *svg, const PlotLog *log, int series, const Axis *x, const Axis *y, const char *class)
{
    static const char alone[] = "m-2 0h4"; /* a point between two gaps */
    int drawn = 0;                         /* points since the last gap */
    buffer_print(svg, "<path class=\"%s\" d=\"", class);
    for (size_t i = 0, next; i < log->count; i = next) {
        double column = floor(2 * at(x, log->steps[i]));
        size_t keep[4] = {i, i, i, i}; /* first, least, greatest, last */
        bool gap = isnan(plot_value(log, i, series));
        for (next = i + 1; next < log->count && floor(2 * at(x, log->steps[next])) == column; next++) {
            double value = plot_value(log, next, series);
            if (isnan(value) != gap) break;
            if (value < plot_value(log, keep[1], series)) keep[1] = next;
            if (value > plot_value(log, keep[2], series)) keep[2] = next;
            keep[3] = next;
        }
        /* An empty column between two evaluations is no gap in the curve; a round without a site is. */
        if (gap && (series == LOSS || log->federated)) {
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
            buffer_print(svg, "%s%.1f %.1f", drawn ? "L" : "M", at(x, log->steps[keep[k]]),
                         at(y, plot_value(log, keep[k], series)));
            drawn++;
        }
    }
    buffer_print(svg, "%s\"/>\n", drawn == 1 ? alone : "");
}

static void print_points(Buffer *svg, const PlotLog *log, int series, const Axis *x, const Axis *y)
{
    double last = -HUGE_VAL;
    for (size_t i = 0; i < log->count; i++) {
        double position = at(x, log->steps[i]);
        if (isnan(plot_value(log, i, series)) || position - last < 2) continue;
        last = position;
        buffer_print(svg, "<circle class=\"m\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"/>", position,
                     at(y, plot_value(log, i, series)));
    }
    buffer_print(svg, "\n");
}

/* The last row that has a value of the series; -1: none has. */
static ptrdiff_t last_with(const PlotLog *log, int series)
{
    ptrdiff_t i = (ptrdiff_t)log->count - 1;
    while (i >= 0 && isnan(plot_value(log, (size_t)i, series))) i--;
    return i;
}

static bool has_values(const PlotLog *log, int series) { return last_with(log, series) >= 0; }

/* What follows in a heading: after a semicolon, or on a line of its own. */
static int next_part(Buffer *svg, const Frame *frame, int y)
{
    if (!frame->narrow) return buffer_print(svg, "; "), y;
    buffer_print(svg, "</text>\n<text x=\"%d\" y=\"%d\">", frame->heading, y + LINE);
    return y + LINE;
}

/* The title shows the numbers that readers look for first; the key is at the right, or below. Returns where the curves
 * may begin. */
static int print_heading(Buffer *svg, const Frame *frame, const PlotLog *log, bool evaluated)
{
    size_t last = (size_t)last_with(log, LOSS);
    int y = 46, x = frame->heading, key = frame->narrow ? x : frame->right - 210;
    buffer_print(svg, "<text class=\"t\" x=\"%d\" y=\"26\">Training loss</text>\n<text x=\"%d\" y=\"46\">", x, x);
    buffer_print(svg, "%.4g after step %.15g", plot_value(log, last, LOSS), log->steps[last]);
    if (evaluated) {
        size_t evaluation = (size_t)last_with(log, EVAL_LOSS);
        y = next_part(svg, frame, y);
        buffer_print(svg, "evaluation %.4g after step %.15g", plot_value(log, evaluation, EVAL_LOSS),
                     log->steps[evaluation]);
    }
    if (log->diverged) {
        y = next_part(svg, frame, y);
        buffer_print(svg, "%zu loss%s nan or infinite, the first in step %.15g", log->diverged,
                     log->diverged > 1 ? "es are" : " is", log->first_diverged);
    }
    y = frame->narrow ? y + LINE : 26;
    buffer_print(svg, "</text>\n<path class=\"l\" d=\"M%d %dh22\"/><text x=\"%d\" y=\"%d\">training</text>\n", key,
                 y - 4, key + 28, y);
    if (evaluated)
        buffer_print(svg,
                     "<path class=\"e\" d=\"M%d %dh22\"/><circle class=\"m\" cx=\"%d\" cy=\"%d\" r=\"3.2\"/>"
                     "<text x=\"%d\" y=\"%d\">evaluation</text>\n",
                     key + 110, y - 4, key + 121, y - 4, key + 138, y);
    return frame->narrow ? y + LINE : LOSS_TOP;
}

/* The series other than losses that have values. All are at most 1, so they share one axis. */
static int find_shares(const PlotLog *log, int shares[RUN_SERIES])
{
    int count = 0;
    for (int s = EVAL_ACCURACY; s < LEARNING_RATE; s++)
        if (has_values(log, s)) shares[count++] = s;
    return count;
}

static void print_shares(Buffer *svg, const Frame *frame, const PlotLog *log, const Axis *x, int bottom,
                         const int *shares, int count)
{
    static const char *const classes[] = {"e", "s1", "s2", "s3", "s4", "e"}; /* exact comes without accuracy */
    bool percent = count == 1 && shares[0] == EVAL_ACCURACY;
    Axis share = value_axis(log, shares, count, bottom, LOSS_BOTTOM + GAP, 3);
    const char *alone = log->series[shares[0]].name + strlen("eval_");
    print_axes(svg, frame, x, &share, count == 1 ? alone : "metrics", percent, "optimiser steps");
    for (int i = 0; i < count; i++) {
        const char *class = classes[shares[i] - EVAL_ACCURACY];
        print_curve(svg, log, shares[i], x, &share, class);
        if (count > 1)
            buffer_print(svg, "<path class=\"%s\" d=\"M%d %dh22\"/><text x=\"%d\" y=\"%d\">%s</text>\n", class,
                         frame->heading + 110 * i, LOSS_BOTTOM + GAP - 14, frame->heading + 110 * i + 28,
                         LOSS_BOTTOM + GAP - 10, log->series[shares[i]].name + strlen("eval_"));
    }
    if (count == 1) print_points(svg, log, shares[0], x, &share);
}

static Axis time_range(const Frame *frame, double first, double last)
{
    Axis x = make_axis(first, last, frame->left, frame->right, frame->ticks, 1);
    x.low = fminl(first, x.high - 1); /* the axis starts at the log's first step */
    x.high = fmaxl(last, x.low + 1);
    return x;
}

static Axis time_axis(const Frame *frame, const PlotLog *log)
{
    return time_range(frame, log->steps[0], log->steps[log->count - 1]);
}

/* The losses as a mean that forgets: its weight halves every twentieth of the run. */
static void print_smoothed(Buffer *svg, const PlotLog *log, const Axis *x, const Axis *y)
{
    PlotLog smoothed = *log;
    size_t bytes = log->value_count * sizeof *log->values;
    double share = 1 - exp2(-20.0 / (double)log->count), mean = NAN;
    smoothed.values = memcpy(memory_allocate(bytes), log->values, bytes);
    for (size_t i = 0; i < log->count; i++) {
        double *value = &smoothed.values[i * (size_t)log->series_count + LOSS];
        if (isnan(*value)) continue;
        mean = isnan(mean) ? *value : mean + share * (*value - mean);
        *value = mean;
    }
    print_curve(svg, &smoothed, LOSS, x, y, "h");
    free(smoothed.values);
}

static void print_losses(Buffer *svg, const PlotLog *log, const Axis *x, const Axis *y)
{
    bool smooth = log->count >= LEAST_SMOOTHED;
    buffer_print(svg, smooth ? "<g class=\"raw\">" : "");
    print_curve(svg, log, LOSS, x, y, "l");
    buffer_print(svg, smooth ? "</g>\n" : "");
    if (smooth) print_smoothed(svg, log, x, y);
    if (!has_values(log, EVAL_LOSS)) return;
    print_curve(svg, log, EVAL_LOSS, x, y, "e");
    print_points(svg, log, EVAL_LOSS, x, y);
}

static void open_picture(Buffer *svg, const Frame *frame, int height, const char *title, const char *more_style)
{
    const char *kind = frame->narrow ? "narrow" : "broad";
    buffer_print(svg,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" class=\"%s\" "
                 "aria-labelledby=\"%s-title %s-summary\">\n<title id=\"%s-title\">%s</title>\n<style>%s%s</style>\n"
                 "<desc id=\"%s-summary\">",
                 frame->right + MARGIN, height, kind, kind, kind, kind, title, style, more_style, kind);
}

static void print_run(Buffer *svg, const Frame *frame, const PlotLog *log, double best_step)
{
    static const int losses[] = {LOSS, EVAL_LOSS};
    int shares[RUN_SERIES], share_count = find_shares(log, shares);
    bool evaluated = has_values(log, EVAL_LOSS);
    int bottom = LOSS_BOTTOM + (share_count ? GAP + ACCURACY_HEIGHT : 0);
    Axis x = time_axis(frame, log);
    open_picture(svg, frame, bottom + 56, "Training loss by step", "");
    buffer_print(svg, "%zu steps; the last loss is %.6g.</desc>\n", log->count,
                 plot_value(log, (size_t)last_with(log, LOSS), LOSS));
    int top = print_heading(svg, frame, log, evaluated);
    Axis y = value_axis(log, losses, evaluated ? 2 : 1, LOSS_BOTTOM, top, 6);
    print_axes(svg, frame, &x, &y, LOSS_TITLE, false, share_count ? NULL : "optimiser steps");
    if (best_step >= x.low && best_step <= x.high)
        buffer_print(svg,
                     "<path class=\"b\" d=\"M%.1f %dv%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"end\">best"
                     "</text>\n",
                     at(&x, best_step), top, bottom - top, at(&x, best_step) - 4, top + 12);
    print_losses(svg, log, &x, &y);
    if (share_count) print_shares(svg, frame, log, &x, bottom, shares, share_count);
    buffer_print(svg, "</svg>\n");
}

/* ---- the picture of a federation ---- */

enum { KEY_HEIGHT = 20 };

static int key_height(const Frame *frame, int lines)
{
    return (lines + frame->key_columns - 1) / frame->key_columns * KEY_HEIGHT;
}

/* The golden angle keeps the hues of consecutive sites far apart, however many there are. */
static double hue_of(int site) { return fmod(137.508 * site + 20, 360); }

static void print_line(Buffer *svg, const PlotLog *log, int series, const Axis *x, const Axis *y, int number)
{
    buffer_print(svg, "<g style=\"--h:%.0f\">", hue_of(number));
    print_curve(svg, log, series, x, y, "s");
    buffer_print(svg, "</g>");
}

/* The name of line `number`, from 1, and its last value. */
static void print_key(Buffer *svg, const Frame *frame, const PlotLog *log, int series, const char *name, int number,
                      int top)
{
    int columns = frame->key_columns, width = (frame->right - frame->heading) / columns;
    int x = frame->heading + (number - 1) % columns * width, y = top + (number - 1) / columns * KEY_HEIGHT;
    ptrdiff_t last = last_with(log, series);
    buffer_print(svg, "<path class=\"s\" style=\"--h:%.0f\" d=\"M%d %dh22\"/><text x=\"%d\" y=\"%d\">", hue_of(number),
                 x, y - 4, x + 28, y);
    drawing_name(svg, name, 14);
    if (last >= 0)
        buffer_print(svg, " %.3g</text>\n", plot_value(log, (size_t)last, series));
    else
        buffer_print(svg, " -</text>\n");
}

static void print_federation(Buffer *svg, const Frame *frame, const PlotLog *log)
{
    int sites = log->series_count - 1, key = LOSS_BOTTOM + 76, lower = frame->narrow ? 2 * LINE : 0;
    FREED int *all = memory_allocate((size_t)log->series_count * sizeof *all);
    for (int s = 0; s < log->series_count; s++) all[s] = s;
    double mean = plot_value(log, (size_t)last_with(log, LOSS), LOSS);
    Axis x = time_axis(frame, log);
    Axis y = value_axis(log, all, log->series_count, LOSS_BOTTOM, LOSS_TOP + lower, 6);
    int mark = frame->narrow ? frame->heading : frame->right - 130;
    open_picture(svg, frame, key + key_height(frame, sites), "Loss by round", many_lines);
    buffer_print(svg,
                 "%zu rounds of %d sites; the last mean loss is %.6g.</desc>\n"
                 "<text class=\"t\" x=\"%d\" y=\"26\">Loss of a federation</text>\n<text x=\"%d\" y=\"46\">mean %.4g "
                 "after round %.15g</text>\n<path class=\"l\" d=\"M%d %dh22\"/><text x=\"%d\" y=\"%d\">mean of the "
                 "sites</text>\n",
                 log->count, sites, mean, frame->heading, frame->heading, mean, log->steps[last_with(log, LOSS)], mark,
                 22 + lower, mark + 28, 26 + lower);
    print_axes(svg, frame, &x, &y, LOSS_TITLE, false, "rounds");
    for (int s = 1; s <= sites; s++) print_line(svg, log, s, &x, &y, s);
    print_curve(svg, log, LOSS, &x, &y, "l");
    for (int s = 1; s <= sites; s++) print_key(svg, frame, log, s, log->series[s].name, s, key);
    buffer_print(svg, "</svg>\n");
}

static void draw(Buffer *svg, const Frame *frame, const PlotLog *log, double best_step)
{
    if (log->federated)
        print_federation(svg, frame, log);
    else
        print_run(svg, frame, log, best_step);
}

void plot_draw(Buffer *svg, const PlotLog *log, double best_step) { draw(svg, &wide, log, best_step); }

void plot_draw_in_page(Buffer *page, const char *heading, const PlotLog *log, double best_step)
{
    buffer_print(page, "<h2>%s</h2>\n<div class=drawing>\n", heading);
    draw(page, &wide, log, best_step);
    draw(page, &narrow, log, best_step);
    buffer_print(page, "</div>\n");
}

/* ---- several runs ---- */

/* What runs are compared by: the evaluation loss where all have one, and the training loss otherwise. */
static int compared_series(const PlotLog *logs, int count)
{
    for (int i = 0; i < count; i++)
        if (logs[i].federated || !has_values(&logs[i], EVAL_LOSS)) return LOSS;
    return EVAL_LOSS;
}

void plot_compare(Buffer *svg, const PlotLog *logs, const char *const *names, int count)
{
    int series = compared_series(logs, count), key = LOSS_BOTTOM + 76;
    double range[2] = {HUGE_VAL, -HUGE_VAL}, last = logs[0].steps[0], first = last;
    for (int i = 0; i < count; i++) {
        widen(range, &logs[i], &series, 1);
        first = fmin(first, logs[i].steps[0]);
        last = fmax(last, logs[i].steps[logs[i].count - 1]);
    }
    Axis x = time_range(&wide, first, last), y = make_axis(range[0], range[1], LOSS_BOTTOM, LOSS_TOP, 6, 1e-300);
    open_picture(svg, &wide, key + key_height(&wide, count), "Runs compared", many_lines);
    buffer_print(svg,
                 "%d runs.</desc>\n<text class=\"t\" x=\"%d\" y=\"26\">%s of %d runs</text>\n"
                 "<text x=\"%d\" y=\"46\">the last value of each is next to its name</text>\n",
                 count, wide.heading, series == LOSS ? "Training loss" : "Evaluation loss", count, wide.heading);
    print_axes(svg, &wide, &x, &y, LOSS_TITLE, false, logs[0].federated ? "rounds" : "optimiser steps");
    for (int i = 0; i < count; i++) {
        print_line(svg, &logs[i], series, &x, &y, i + 1);
        print_key(svg, &wide, &logs[i], series, names[i], i + 1, key);
    }
    buffer_print(svg, "</svg>\n");
}
