#include <math.h>
#include <string.h>

#include "partitioner/report/report_html.h"
#include "partitioner/schedule/simulate.h"

enum { LEFT = 120, RIGHT = 1000, MOST_RANKS = 80, MOST_BOXES = 12000 };

typedef struct Drawing {
    const Plan *plan;
    const Simulation *simulation;
    Buffer *buffer;
    int rows, row_height;
    int microbatches, of; /* the first so many are drawn, of those of the step */
} Drawing;

/* Where there are more ranks than rows, the rows are evenly spread over them. */
static int rank_of_row(const Drawing *d, int row)
{
    return d->rows == d->plan->rank_count ? row : (int)((int64_t)row * (d->plan->rank_count - 1) / (d->rows - 1));
}

static double at(const Drawing *d, int64_t time)
{
    return LEFT + (double)time / (double)d->simulation->step_ns * (RIGHT - LEFT);
}

/* All boxes of one kind in a row are one path: a tenth of the bytes of as many rectangles. Gradients of the weights are
 * low, so that they differ from what has to be waited for in more than their colour. */
static void print_boxes(const Drawing *d, int row, SkyInstructionOp op, const char *class)
{
    const PlanRank *rank = &d->plan->ranks[rank_of_row(d, row)];
    const SimulatedSpan *spans = d->simulation->spans[rank_of_row(d, row)];
    int full = d->row_height - 4, height = op == SKY_WEIGHT_GRADIENT ? full * 3 / 5 : full;
    int y = row * d->row_height + 2 + full - height;
    bool open = false;
    for (int i = 0; i < rank->instruction_count; i++) {
        if (rank->instructions[i].op != op || rank->instructions[i].microbatch >= d->microbatches ||
            spans[i].end == spans[i].start)
            continue;
        double x = at(d, spans[i].start), width = at(d, spans[i].end) - x;
        if (!open) buffer_print(d->buffer, "<path class=%s d=\"", class);
        open = true;
        buffer_print(d->buffer, "M%.2f %dh%.2fv%dh-%.2fz", x, y, width > 0.6 ? width - 0.2 : width, height,
                     width > 0.6 ? width - 0.2 : width);
    }
    if (open) buffer_print(d->buffer, "\"/>");
}

/* As much of a name as there is room for, cut between characters of UTF-8. */
static void print_name(Buffer *buffer, const char *name)
{
    enum { ROOM = 17 };
    char shown[4 * ROOM + 1];
    size_t length = 0;
    int characters = 0;
    while (name[length] && length < sizeof shown - 1) {
        if (((unsigned char)name[length] & 0xc0) != 0x80 && characters++ == ROOM) break;
        shown[length] = name[length];
        length++;
    }
    if (!name[length]) {
        html_text(buffer, name);
        return;
    }
    do length--;
    while (length > 0 && ((unsigned char)name[length] & 0xc0) == 0x80);
    shown[length] = '\0';
    buffer_print(buffer, "<title>");
    html_text(buffer, name);
    buffer_print(buffer, "</title>");
    html_text(buffer, shown);
    buffer_print(buffer, "&hellip;");
}

static void print_rows(const Drawing *d)
{
    for (int row = 0; row < d->rows; row++) {
        int bottom = (row + 1) * d->row_height;
        buffer_print(d->buffer, "<text x=%d y=%d text-anchor=end>", LEFT - 8, bottom - d->row_height / 2 + 4);
        print_name(d->buffer, d->plan->ranks[rank_of_row(d, row)].device);
        buffer_print(d->buffer, "</text><path class=r d=\"M%d %dH%d\"/>", LEFT, bottom, RIGHT);
        print_boxes(d, row, SKY_FORWARD, "f");
        print_boxes(d, row, SKY_BACKWARD, "b");
        print_boxes(d, row, SKY_WEIGHT_GRADIENT, "w");
        print_boxes(d, row, SKY_UPDATE, "u");
        buffer_print(d->buffer, "\n");
    }
}

/* Ticks at 1, 2 or 5 times a power of ten. */
static void print_scale(const Drawing *d)
{
    double step = (double)d->simulation->step_ns, power = pow(10, floor(log10(step / 8))), share = step / 8 / power;
    double tick = power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
    int bottom = d->rows * d->row_height;
    static const char *const units[] = {"ns", "&micro;s", "ms", "s"};
    int unit = step >= 1e9 ? 3 : step >= 1e6 ? 2 : step >= 1e3 ? 1 : 0;
    double scale = pow(1000, unit);
    int decimals = tick < scale ? (int)ceil(-log10(tick / scale) - 1e-9) : 0;
    for (double time = 0; time < step - 0.3 * tick; time += tick)
        buffer_print(d->buffer, "<path class=r d=\"M%.1f 0V%d\"/><text x=%.1f y=%d text-anchor=middle>%.*f %s</text>",
                     at(d, (int64_t)time), bottom + 4, at(d, (int64_t)time), bottom + 17, decimals, time / scale,
                     units[unit]);
    buffer_print(d->buffer, "\n");
}

static bool has_split_backward(const Plan *plan)
{
    for (int r = 0; r < plan->rank_count; r++)
        for (int i = 0; i < plan->ranks[r].instruction_count; i++)
            if (plan->ranks[r].instructions[i].op == SKY_WEIGHT_GRADIENT) return true;
    return false;
}

static void print_key(const Drawing *d)
{
    const Plan *plan = d->plan;
    buffer_print(d->buffer, "<p class=key><span class=fb></span>forward<span class=bb></span>backward");
    if (has_split_backward(plan)) buffer_print(d->buffer, "<span class=wb></span>gradient of the weights");
    buffer_print(d->buffer, "<span class=ub></span>update</p>\n");
    if (d->rows < plan->rank_count)
        buffer_print(d->buffer, "<p class=soft>Drawn: %d of %d devices, evenly chosen.</p>\n", d->rows,
                     plan->rank_count);
    if (d->microbatches < d->of)
        buffer_print(d->buffer, "<p class=soft>Drawn: the first %d of %d micro-batches.</p>\n", d->microbatches, d->of);
}

/* Of the steps that are sampled the one in the middle. */
static int typical_microbatches(const Plan *plan)
{
    int below = 0, half = row_samples_steps(&plan->rows) / 2;
    for (int i = 0; i < plan->rows.microbatch_kinds; i++) {
        below += plan->rows.microbatches[i].times;
        if (below > half) return plan->rows.microbatches[i].value;
    }
    return plan->microbatches;
}

void html_time_line(Buffer *buffer, const Plan *plan)
{
    Diagnostics diagnostics = {0};
    Simulation simulation;
    char text[REPORT_TEXT];
    int microbatches = typical_microbatches(plan);
    if (plan_simulate_first(&simulation, plan, microbatches, &diagnostics)) {
        Drawing d = {plan, &simulation, buffer, .rows = plan->rank_count, .row_height = 20};
        if (d.rows > MOST_RANKS) d.rows = MOST_RANKS;
        if (d.rows > 24) d.row_height = 14;
        int boxes = MOST_BOXES / 2 / d.rows;
        d.of = microbatches;
        d.microbatches = microbatches < boxes ? microbatches : boxes;
        if (simulation.step_ns > 0) {
            buffer_print(buffer,
                         "<h2 id=time-line>Time line</h2>\n<p>One step as the %s schedule runs it, simulated: %s",
                         plan_schedule_name(plan->schedule), report_seconds(simulation.step_ns, text));
            if (plan->rows.microbatch_kinds)
                buffer_print(buffer, " with %d micro-batches, as many as the step in the middle", microbatches);
            buffer_print(buffer, ".</p>\n");
            print_key(&d);
            buffer_print(buffer,
                         "<div class=wide tabindex=0 role=region aria-label=\"Time line\"><svg viewBox=\"0 0 %d %d\" "
                         "role=img aria-label=\"What each device does when, over %s\">\n",
                         RIGHT + 4, d.rows * d.row_height + 22, text);
            print_scale(&d);
            print_rows(&d);
            buffer_print(buffer, "</svg></div>\n");
        }
        simulation_free(&simulation);
    }
    diagnostics_free(&diagnostics);
}
