#include "partitioner/report/report_drawing.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* ---- text ---- */

void drawing_bytes(Buffer *buffer, const char *text, size_t size)
{
    FREED_WITH(buffer_free) Buffer clean = {0};
    text_append(&clean, text, size);
    for (const char *c = buffer_text(&clean); *c; c++) {
        switch (*c) {
        case '<': buffer_print(buffer, "&lt;"); break;
        case '>': buffer_print(buffer, "&gt;"); break;
        case '&': buffer_print(buffer, "&amp;"); break;
        case '"': buffer_print(buffer, "&quot;"); break;
        default: buffer_append(buffer, c, 1);
        }
    }
}

void drawing_text(Buffer *buffer, const char *text) { drawing_bytes(buffer, text, strlen(text)); }

void drawing_name(Buffer *buffer, const char *name, int room)
{
    size_t size = strlen(name), length = 0, before = 0, used;
    int characters = 0;
    while (length < size && characters < room) {
        before = length;
        text_character(name + length, size - length, &used);
        length += used;
        characters++;
    }
    if (length == size) {
        drawing_text(buffer, name);
        return;
    }
    buffer_print(buffer, "<title>");
    drawing_text(buffer, name);
    buffer_print(buffer, "</title>");
    drawing_bytes(buffer, name, before); /* the last character makes room for the dots */
    buffer_print(buffer, "\u2026");
}

/* ---- tables ---- */

void drawing_open_table(Buffer *buffer, const char *caption, int rows, const char *const *heads, int count)
{
    buffer_print(buffer,
                 "<div class=\"wide%s\" tabindex=0 role=region aria-label=\"%s\"><table>\n<caption>%s</caption>"
                 "\n<thead><tr>",
                 rows > 100 ? " tall" : "", caption, caption);
    for (int i = 0; i < count; i++) {
        bool number = heads[i][0] == '#';
        buffer_print(buffer, "<th scope=col%s>", number ? " class=n" : "");
        drawing_text(buffer, heads[i] + number);
    }
    buffer_print(buffer, "</tr></thead>\n<tbody>\n");
}

void drawing_close_table(Buffer *buffer) { buffer_print(buffer, "</tbody></table></div>\n"); }

void drawing_fact(Buffer *buffer, const char *name, const char *format, ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buffer_print(buffer, "<div><dt>%s</dt><dd>", name);
    drawing_text(buffer, text);
    buffer_print(buffer, "</dd></div>\n");
}

/* ---- one step ---- */

/* Where there are more ranks than rows, the rows are evenly spread over them. */
static int rank_of_row(const StepDrawing *d, int row)
{
    return d->rows == d->plan->rank_count ? row : (int)((int64_t)row * (d->plan->rank_count - 1) / (d->rows - 1));
}

static double at(const StepDrawing *d, int64_t time)
{
    return d->left + (double)time / (double)d->simulation.step_ns * (d->right - d->left);
}

/* All boxes of one kind in a row are one path: a tenth of the bytes of as many rectangles. Gradients of the weights are
 * low, so that they differ from what has to be waited for in more than their colour. */
static void print_boxes(const StepDrawing *d, Buffer *buffer, int row, SkyInstructionOp op, const char *class)
{
    const PlanRank *rank = &d->plan->ranks[rank_of_row(d, row)];
    const SimulatedSpan *spans = d->simulation.spans[rank_of_row(d, row)];
    int full = d->row_height - 4, height = op == SKY_WEIGHT_GRADIENT ? full * 3 / 5 : full;
    int y = row * d->row_height + 2 + full - height;
    bool open = false;
    for (int i = 0; i < rank->instruction_count; i++) {
        if (rank->instructions[i].op != op || rank->instructions[i].microbatch >= d->microbatches ||
            spans[i].end == spans[i].start)
            continue;
        double x = at(d, spans[i].start), width = at(d, spans[i].end) - x;
        if (width > 0.6) width -= 0.2;
        if (!open) buffer_print(buffer, "<path class=\"%s\" d=\"", class);
        open = true;
        buffer_print(buffer, "M%.2f %dh%.2fv%dh-%.2fz", x, y, width, height, width);
    }
    if (open) buffer_print(buffer, "\"/>");
}

static void print_rows(const StepDrawing *d, Buffer *buffer)
{
    enum { ROOM = 17 };
    for (int row = 0; row < d->rows; row++) {
        int bottom = (row + 1) * d->row_height;
        buffer_print(buffer, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", d->left - 8,
                     bottom - d->row_height / 2 + 4);
        drawing_name(buffer, d->plan->ranks[rank_of_row(d, row)].device, ROOM);
        buffer_print(buffer, "</text><path class=\"r\" d=\"M%d %dH%d\"/>", d->left, bottom, d->right);
        print_boxes(d, buffer, row, SKY_FORWARD, "f");
        print_boxes(d, buffer, row, SKY_BACKWARD, "b");
        print_boxes(d, buffer, row, SKY_WEIGHT_GRADIENT, "w");
        print_boxes(d, buffer, row, SKY_UPDATE, "u");
        buffer_print(buffer, "\n");
    }
}

/* Ticks at 1, 2 or 5 times a power of ten. */
static void print_scale(const StepDrawing *d, Buffer *buffer)
{
    double step = (double)d->simulation.step_ns, power = pow(10, floor(log10(step / 8))), share = step / 8 / power;
    double tick = power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
    int bottom = d->rows * d->row_height;
    static const char *const units[] = {"ns", "\u00b5s", "ms", "s"};
    int unit = step >= 1e9 ? 3 : step >= 1e6 ? 2 : step >= 1e3 ? 1 : 0;
    double scale = pow(1000, unit);
    int decimals = tick < scale ? (int)ceil(-log10(tick / scale) - 1e-9) : 0;
    for (double time = 0; time < step - 0.3 * tick; time += tick) {
        double x = at(d, (int64_t)time);
        buffer_print(buffer,
                     "<path class=\"r\" d=\"M%.1f 0V%d\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.*f "
                     "%s</text>",
                     x, bottom + 4, x, bottom + 17, decimals, time / scale, units[unit]);
    }
    buffer_print(buffer, "\n");
}

bool step_drawing_splits(const Plan *plan)
{
    for (int k = 0; k < plan->stage_count; k++)
        if (plan->stages[k].weight_gradient_ns > 0) return true;
    return false;
}

const char *step_drawing_rest(const StepDrawing *d, char text[static REPORT_SENTENCE])
{
    *text = '\0';
    if (d->rows < d->plan->rank_count)
        snprintf(text, REPORT_SENTENCE, "Drawn: %d of %d devices, evenly chosen. ", d->rows, d->plan->rank_count);
    if (d->microbatches < d->of)
        snprintf(text + strlen(text), REPORT_SENTENCE - strlen(text), "Drawn: the first %d of %d micro-batches.",
                 d->microbatches, d->of);
    return text;
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

/* Each on its own, with its own micro-batches; all update at the end, when gradients are summed. */
static bool simulate_replicas(StepDrawing *d, Diagnostics *ignored)
{
    const Plan *plan = d->plan;
    Arena *arena = &d->simulation.arena;
    d->simulation.step_ns = plan->padded_step_ns > 0 ? plan->padded_step_ns : plan->simulated_step_ns;
    d->simulation.spans = arena_new_array(arena, SimulatedSpan *, (size_t)plan->rank_count);
    d->of = 0;
    for (int r = 0; r < plan->replica_count; r++) {
        const PlanReplica *replica = &plan->replicas[r];
        FREED_WITH(simulation_free) Simulation alone = {0};
        if (!plan_simulate(&alone, replica->pipeline, ignored)) return false;
        if (replica->microbatches > d->of) d->of = replica->microbatches;
        for (int k = replica->first_rank; k < replica->first_rank + replica->rank_count; k++) {
            const PlanRank *rank = &plan->ranks[k];
            SimulatedSpan *spans = d->simulation.spans[k] = arena_copy(arena, alone.spans[k - replica->first_rank],
                                                                       (size_t)rank->instruction_count * sizeof *spans);
            for (int i = 0; i < rank->instruction_count; i++) {
                if (rank->instructions[i].op != SKY_UPDATE) continue;
                spans[i].start += d->simulation.step_ns - alone.step_ns;
                spans[i].end += d->simulation.step_ns - alone.step_ns;
            }
        }
    }
    return true;
}

bool step_drawing_create(StepDrawing *d, const Plan *plan, int left, int right, int most_rows)
{
    enum { MOST_BOXES = 12000 };
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    *d = (StepDrawing){.plan = plan, .left = left, .right = right, .of = typical_microbatches(plan)};
    bool runs = plan->replica_count > 1 ? simulate_replicas(d, &ignored)
                                        : plan_simulate_first(&d->simulation, plan, d->of, &ignored);
    if (!runs || d->simulation.step_ns <= 0) {
        step_drawing_free(d);
        return false;
    }
    d->rows = plan->rank_count < most_rows ? plan->rank_count : most_rows;
    d->row_height = d->rows > 24 ? 14 : 20;
    int boxes = MOST_BOXES / 2 / d->rows;
    d->microbatches = d->of < boxes ? d->of : boxes;
    return true;
}

int step_drawing_height(const StepDrawing *d) { return d->rows * d->row_height + 22; }

void step_drawing_print(const StepDrawing *d, Buffer *buffer)
{
    print_scale(d, buffer);
    print_rows(d, buffer);
}

void step_drawing_free(StepDrawing *d) { simulation_free(&d->simulation); }
