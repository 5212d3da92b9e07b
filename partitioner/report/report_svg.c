/* The plan as one picture that needs no other file: devices with their layers, load and memory, the links between them,
 * and one step on a time line. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "partitioner/report/report.h"
#include "partitioner/report/report_drawing.h"
#include "partitioner/report/report_style.h"

enum {
    WIDTH = 880,
    MARGIN = 20,
    PER_ROW = 4,
    GAP = 56, /* between boxes: room for what a link carries */
    BOX = (WIDTH - 2 * MARGIN - (PER_ROW - 1) * GAP) / PER_ROW,
    BOX_HEIGHT = 92,
    ROW = BOX_HEIGHT + 26,
    HEAD = 74,
    MOST_BOXES = 12
};

static const char style[] =
    "svg{background:var(--back)}text{fill:var(--ink);font:12px system-ui,sans-serif}.t{font-size:19px;font-weight:600}"
    ".d{font-weight:600}.s,.g text{fill:var(--soft);font-size:11px}.box{fill:var(--panel);stroke:var(--line)}"
    ".rail{fill:var(--line)}.m{fill:var(--memory)}.o{fill:var(--over)}.a{fill:none;stroke:var(--soft);stroke-width:1."
    "4}";

/* How many boxes there are; of very many stages the middle ones share one. */
static int box_count(const Plan *plan) { return plan->stage_count < MOST_BOXES ? plan->stage_count : MOST_BOXES; }

/* The stage in a box; -1: the box stands for several. */
static int stage_of_box(const Plan *plan, int box)
{
    if (plan->stage_count <= MOST_BOXES || box < MOST_BOXES / 2) return box;
    return box == MOST_BOXES / 2 ? -1 : plan->stage_count - MOST_BOXES + box;
}

static void print_rail(Buffer *buffer, int x, int y, double share, const char *class)
{
    const int width = BOX - 20;
    if (share > 1) share = 1;
    buffer_print(buffer, "<path class=\"rail\" d=\"M%d %dh%dv6h-%dz\"/><path class=\"%s\" d=\"M%d %dh%.1fv6h-%.1fz\"/>",
                 x, y, width, width, class, x, y, share * width, share * width);
}

static void print_box(Buffer *buffer, const Plan *plan, int k, int x, int y)
{
    const PlanStage *stage = &plan->stages[k];
    char work[REPORT_TEXT], memory[REPORT_TEXT], limit[REPORT_TEXT];
    int64_t load = stage->forward_ns + stage->backward_ns, period = report_period_ns(plan, k);
    bool limited = report_has_limit(stage);
    buffer_print(
        buffer,
        "<rect class=\"box\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/><text class=\"d\" x=\"%d\" "
        "y=\"%d\">",
        x, y, BOX, BOX_HEIGHT, x + 10, y + 18);
    drawing_name(buffer, stage->device, 20);
    buffer_print(buffer, "</text><text class=\"s\" x=\"%d\" y=\"%d\">", x + 10, y + 33);
    buffer_print(buffer, "stage %d, layers %d\u2013%d</text>", k, stage->first_layer, stage->last_layer);
    buffer_print(buffer, "<text class=\"s\" x=\"%d\" y=\"%d\">load %s</text>", x + 10, y + 51,
                 report_seconds(load, work));
    if (plan->replica_count > 1)
        buffer_print(buffer, "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">replica %d</text>", x + BOX - 10,
                     y + 51, plan->ranks[stage->rank].replica);
    print_rail(buffer, x + 10, y + 55, period > 0 ? (double)load / (double)period : 0, "f");
    buffer_print(buffer, "<text class=\"s\" x=\"%d\" y=\"%d\">%s%s%s</text>", x + 10, y + 76,
                 report_bytes(stage->memory_bytes, memory), limited ? " of " : "",
                 limited ? report_bytes(stage->memory_limit_bytes, limit) : "");
    if (limited)
        print_rail(buffer, x + 10, y + 80, (double)stage->memory_bytes / (double)(stage->memory_limit_bytes + 1),
                   stage->memory_bytes > stage->memory_limit_bytes ? "o" : "m");
    buffer_print(buffer, "\n");
}

/* NULL: the stage is the first of a replica. */
static const PlanLink *link_into(const Plan *plan, int stage)
{
    for (int l = 0; l < plan->link_count; l++)
        if (plan->links[l].to == stage) return &plan->links[l];
    return NULL;
}

/* Into the box at x, y; a new row begins with a line from above. */
static void print_link(Buffer *buffer, const PlanLink *link, int x, int y, bool new_row)
{
    char bytes[REPORT_TEXT], time[REPORT_TEXT];
    int busy = plan_link_busy(link), middle = y + BOX_HEIGHT / 2;
    report_bytes(link->wire_bytes[busy], bytes);
    report_seconds(link->transfer_ns[busy] + link->latency_ns[busy], time);
    if (new_row) {
        buffer_print(
            buffer,
            "<path class=\"a\" d=\"M%d %dv18m-4 -6l4 6l4 -6\"/><text class=\"s\" x=\"%d\" y=\"%d\">%s, %s</text>",
            x + 14, y - 19, x + 26, y - 7, bytes, time);
        return;
    }
    buffer_print(buffer,
                 "<path class=\"a\" d=\"M%d %dh%dm-6 -4l6 4l-6 4\"/><text class=\"s\" x=\"%d\" y=\"%d\" "
                 "text-anchor=\"middle\">%s</text><text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
                 x - GAP + 4, middle, GAP - 8, x - GAP / 2, middle - 8, bytes, x - GAP / 2, middle + 17, time);
}

static void print_boxes(Buffer *buffer, const Plan *plan)
{
    for (int box = 0; box < box_count(plan); box++) {
        int k = stage_of_box(plan, box), x = MARGIN + box % PER_ROW * (BOX + GAP), y = HEAD + box / PER_ROW * ROW;
        const PlanLink *link = link_into(plan, k);
        if (link) print_link(buffer, link, x, y, box % PER_ROW == 0);
        if (k >= 0)
            print_box(buffer, plan, k, x, y);
        else
            buffer_print(buffer,
                         "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">\u2026 %d more stages</text>\n",
                         x + BOX / 2, y + BOX_HEIGHT / 2, plan->stage_count - MOST_BOXES + 1);
    }
}

/* The colours of the time line, in a row. */
static void print_key(Buffer *buffer, const Plan *plan, int y)
{
    static const struct {
        const char *class, *word;
        int width;
    } keys[] = {
        {"f", "forward", 82}, {"b", "backward", 92}, {"w", "gradient of the weights", 168}, {"u", "update", 80}};
    int x = MARGIN + 120;
    buffer_print(buffer, "<text class=\"d\" x=\"%d\" y=\"%d\">One step</text>", MARGIN, y);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (*keys[i].class == 'w' && !step_drawing_splits(plan)) continue;
        buffer_print(buffer,
                     "<path class=\"%s\" d=\"M%d %dh10v10h-10z\"/><text class=\"s\" x=\"%d\" y=\"%d\">%s</text>",
                     keys[i].class, x, y - 9, x + 15, y, keys[i].word);
        x += keys[i].width;
    }
    buffer_print(buffer, "\n");
}

/* A sentence in lines of the picture's width; returns where the next one goes. */
static int print_sentence(Buffer *buffer, const char *text, int y)
{
    enum { MOST = 140 };
    while (*text) {
        size_t length = strlen(text);
        if (length > MOST)
            for (length = MOST; length > MOST / 2 && text[length] != ' ';) length--;
        buffer_print(buffer, "<text class=\"s\" x=\"%d\" y=\"%d\">", MARGIN, y);
        char line[MOST + 1];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        drawing_text(buffer, line);
        buffer_print(buffer, "</text>\n");
        text += length + (text[length] == ' ');
        y += 16;
    }
    return y;
}

static void print_head(Buffer *buffer, const Report *report)
{
    char step[REPORT_TEXT], head[REPORT_SENTENCE];
    buffer_print(buffer, "<text class=\"t\" x=\"%d\" y=\"34\">", MARGIN);
    drawing_name(buffer, report->plan->name, 60);
    buffer_print(buffer, "</text><text x=\"%d\" y=\"54\">Step time %s (simulated): %s</text>\n", MARGIN,
                 report_seconds(report->plan->simulated_step_ns, step), report_head(report, head));
}

void report_svg(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    FREED_WITH(buffer_free) Buffer body = {0};
    FREED_WITH(step_drawing_free) StepDrawing step = {0};
    char sentence[REPORT_SENTENCE];
    print_head(&body, report);
    print_boxes(&body, plan);
    int y = HEAD + (box_count(plan) + PER_ROW - 1) / PER_ROW * ROW + 6;
    if (step_drawing_create(&step, plan, MARGIN + 120, WIDTH - MARGIN, 24)) {
        print_key(&body, plan, y);
        buffer_print(&body, "<g class=\"g\" transform=\"translate(0 %d)\">\n", y + 10);
        step_drawing_print(&step, &body);
        buffer_print(&body, "</g>\n");
        y += step_drawing_height(&step) + 30;
        y = print_sentence(&body, step_drawing_rest(&step, sentence), y);
    }
    y = print_sentence(&body, "A full bar of load is the period, a full bar of memory the device's limit.", y);
    y = print_sentence(&body, report_bottleneck(plan, sentence), y);
    y = print_sentence(&body, report_replicas(report, sentence), y);
    y = print_sentence(&body, report_speed(report, sentence), y);
    report_proof(report, sentence);
    *sentence = (char)toupper((unsigned char)*sentence);
    y = print_sentence(&body, sentence, y);
    y = print_sentence(&body, report_unproven(plan, sentence), y);
    buffer_print(
        buffer,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" "
        "aria-label=\"Plan: devices, links and one step\">\n<style>%s%s</style>\n%s</svg>\n",
        WIDTH, y, WIDTH, y, drawing_colours, style, buffer_text(&body));
}
