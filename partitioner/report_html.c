#include <stdio.h>
#include <string.h>

#include "partitioner/report.h"
#include "partitioner/schedule.h"

/* Text from files of strangers, inside HTML. */
static void print_text(Buffer *buffer, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': buffer_print(buffer, "&lt;"); break;
        case '>': buffer_print(buffer, "&gt;"); break;
        case '&': buffer_print(buffer, "&amp;"); break;
        case '"': buffer_print(buffer, "&quot;"); break;
        default: buffer_append(buffer, text, 1);
        }
    }
}

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1c2430;--soft:#5c6675;--line:#d5dae1;--back:#fff;--panel:#f5f7f9;"
    "--forward:#2f6fbf;--backward:#d08a1d;--update:#5b9b57;--over:#b3362b}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa5b4;--line:#39424f;--back:#14181e;--panel:#"
    "1c222a;"
    "--forward:#6aa5ee;--backward:#e6ab4d;--update:#84c07f;--over:#ee7b70}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:2rem 1.5rem;background:var(--back);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}p{margin:.4rem "
    "0;max-width:60rem}\n"
    ".soft{color:var(--soft)}.proof{border-left:4px solid var(--update);padding:.4rem .8rem;background:var(--panel)}"
    ".open{border-color:var(--backward)}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;margin:1.2rem 0}"
    "dl div{background:var(--panel);padding:.6rem .8rem;border-radius:6px}dt{color:var(--soft);font-size:.85rem}"
    "dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th{color:var(--soft);font-weight:500}.n{text-align:right}\n"
    ".bar{display:inline-block;vertical-align:middle;width:8rem;height:.7rem;background:var(--line);border-radius:3px;"
    "overflow:hidden;margin-right:.5rem}.bar i{display:block;height:100%;background:var(--forward)}"
    ".bar .full{background:var(--over)}\n"
    "svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font:11px system-ui,sans-serif}"
    ".f{fill:var(--forward)}.b{fill:var(--backward)}.u{fill:var(--update)}.r{stroke:var(--line)}\n"
    ".key span{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .4rem 0 "
    "1rem;vertical-align:-1px}\n"
    "@media "
    "print{:root{--ink:#000;--soft:#444;--line:#bbb;--back:#fff;--panel:#f3f3f3;--forward:#2f6fbf;--backward:#d08a1d;"
    "--update:#5b9b57;--over:#b3362b}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    "body{padding:0;max-width:none;font-size:11px}tr,svg{break-inside:avoid}}\n";

static void print_fact(Buffer *buffer, const char *name, const char *value)
{
    buffer_print(buffer, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

static void print_summary(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    char text[REPORT_TEXT], proof[256];
    buffer_print(buffer, "<h1>");
    print_text(buffer, plan->name);
    buffer_print(
        buffer,
        "</h1>\n<p class=soft>%d layers in %d stages on %d of %d devices &middot; %d micro-batches &middot; %s "
        "&middot; %s allocation &middot; objective: %s</p>\n<dl>\n",
        plan->layer_count, plan->stage_count, plan->rank_count, costs->device_count, plan->microbatches,
        plan_schedule_name(plan->schedule), plan_allocator_name(plan->allocator), plan_objective_name(plan->objective));
    print_fact(buffer, "step", report_seconds(plan->step_ns, text));
    print_fact(buffer, "simulated step", report_seconds(plan->simulated_step_ns, text));
    print_fact(buffer, "period", report_seconds(plan->period_ns, text));
    print_fact(buffer, "lower bound", report_seconds(plan->lower_bound_ns, text));
    snprintf(text, sizeof text, "%.1f %%", 100 * plan->bubble);
    print_fact(buffer, "idle", text);
    buffer_print(buffer, "</dl>\n<p class=\"proof%s\">The plan is %s.</p>\n", plan->proven_optimal ? "" : " open",
                 plan->proven_optimal ? report_proof(plan, proof) : "not proven optimal");
    if (!plan->proven_optimal) buffer_print(buffer, "<p>In numbers: %s.</p>\n", report_proof(plan, proof));
}

static void print_bar(Buffer *buffer, double share, bool full)
{
    if (share > 1) share = 1;
    buffer_print(buffer, "<span class=bar><i%s style=\"width:%.1f%%\"></i></span>", full ? " class=full" : "",
                 100 * share);
}

static void print_stages(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    char text[REPORT_TEXT];
    buffer_print(buffer,
                 "<h2>Stages</h2>\n<div class=wide tabindex=0><table>\n<thead><tr><th class=n>stage<th>device<th "
                 "class=n>layers<th>from<th>to<th>load<th>memory<th class=n>in flight</tr></thead>\n<tbody>\n");
    for (int k = 0; k < plan->stage_count; k++) {
        const PlanStage *stage = &plan->stages[k];
        int64_t work = stage->forward_ns + stage->backward_ns;
        buffer_print(buffer, "<tr><td class=n>%d<td>", k);
        print_text(buffer, stage->device);
        buffer_print(buffer, "<td class=n>%d<td>", stage->last_layer - stage->first_layer + 1);
        print_text(buffer, costs->layers[stage->first_layer].name);
        buffer_print(buffer, "<td>");
        print_text(buffer, costs->layers[stage->last_layer].name);
        buffer_print(buffer, "<td>");
        print_bar(buffer, plan->period_ns > 0 ? (double)work / (double)plan->period_ns : 0, false);
        buffer_print(buffer, "%s<td>", report_seconds(work, text));
        if (stage->memory_limit_bytes < (int64_t)1 << 50) {
            double share =
                stage->memory_limit_bytes > 0 ? (double)stage->memory_bytes / (double)stage->memory_limit_bytes : 2;
            print_bar(buffer, share, share > 1);
        }
        buffer_print(buffer, "%s", report_bytes(stage->memory_bytes, text));
        if (stage->memory_limit_bytes < (int64_t)1 << 50)
            buffer_print(buffer, " of %s", report_bytes(stage->memory_limit_bytes, text));
        buffer_print(buffer, "<td class=n>%d</tr>\n", stage->in_flight);
    }
    buffer_print(buffer, "</tbody></table></div>\n");
}

static void print_comparison(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    int64_t most = 1;
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        int64_t value = step ? plan->compared[a].step_ns : plan->compared[a].period_ns;
        if (plan->compared[a].known && value > most) most = value;
    }
    buffer_print(buffer,
                 "<h2>Allocators</h2>\n<div class=wide tabindex=0><table>\n<thead><tr><th>allocator<th>%s<th "
                 "class=n>period<th class=n>step<th>memory</tr></thead>\n<tbody>\n",
                 plan_objective_name(plan->objective));
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        buffer_print(buffer, "<tr><td>%s<td>", plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            buffer_print(buffer, "<td class=n>&ndash;<td class=n>&ndash;<td>finds nothing that fits</tr>\n");
            continue;
        }
        print_bar(buffer, (double)(step ? c->step_ns : c->period_ns) / (double)most, !c->fits);
        buffer_print(buffer, "<td class=n>%s", report_seconds(c->period_ns, text));
        buffer_print(buffer, "<td class=n>%s<td>%s</tr>\n", report_seconds(c->step_ns, text),
                     c->fits ? "fits" : "does not fit");
    }
    buffer_print(buffer, "</tbody></table></div>\n");
}

static void print_links(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    if (plan->link_count == 0) return;
    buffer_print(buffer,
                 "<h2>Links</h2>\n<div class=wide tabindex=0><table>\n<thead><tr><th>from<th>to<th class=n>bytes each "
                 "way<th>busy per micro-batch<th class=n>latency</tr></thead>\n<tbody>\n");
    for (int k = 0; k < plan->link_count; k++) {
        const PlanLink *link = &plan->links[k];
        int64_t busy = link->transfer_ns[0] > link->transfer_ns[1] ? link->transfer_ns[0] : link->transfer_ns[1];
        buffer_print(buffer, "<tr><td>%d ", link->from);
        print_text(buffer, plan->stages[link->from].device);
        buffer_print(buffer, "<td>%d ", link->to);
        print_text(buffer, plan->stages[link->to].device);
        buffer_print(buffer, "<td class=n>%s<td>", report_bytes(link->wire_bytes, text));
        print_bar(buffer, plan->period_ns > 0 ? (double)busy / (double)plan->period_ns : 0, false);
        buffer_print(buffer, "%s<td class=n>", report_seconds(busy, text));
        buffer_print(buffer, "%s</tr>\n", report_seconds(link->latency_ns[0], text));
    }
    buffer_print(buffer, "</tbody></table></div>\n");
}

/* One row per rank; at most so many boxes that the page stays light: then only the first micro-batches are drawn. */
static void print_boxes(const Plan *plan, const Simulation *simulation, double scale, int row_height, int left,
                        int most, Buffer *buffer)
{
    for (int r = 0; r < plan->rank_count; r++) {
        int y = r * row_height;
        buffer_print(buffer, "<text x=\"0\" y=\"%d\">", y + row_height - 3);
        print_text(buffer, plan->ranks[r].device);
        buffer_print(buffer, "</text><line class=r x1=\"%d\" x2=\"1000\" y1=\"%d\" y2=\"%d\"/>\n", left, y + row_height,
                     y + row_height);
        for (int i = 0; i < plan->ranks[r].instruction_count; i++) {
            const PlanInstruction *instruction = &plan->ranks[r].instructions[i];
            const SimulatedSpan *span = &simulation->spans[r][i];
            const char *kind = instruction->op == PLAN_FORWARD ? "f" : instruction->op == PLAN_BACKWARD ? "b" : "u";
            bool drawn =
                instruction->op == PLAN_FORWARD || instruction->op == PLAN_BACKWARD || instruction->op == PLAN_UPDATE;
            if (!drawn || span->end == span->start || instruction->microbatch >= most) continue;
            double x = left + (double)span->start * scale, width = (double)(span->end - span->start) * scale;
            buffer_print(buffer, "<rect class=%s x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"/>", kind, x, y + 2,
                         width > 0.6 ? width - 0.2 : width, row_height - 4);
        }
        buffer_print(buffer, "\n");
    }
}

static void print_time_line(const Plan *plan, Buffer *buffer)
{
    enum { LEFT = 110, BOXES = 12000 };
    Diagnostics diagnostics = {0};
    Simulation simulation;
    char text[REPORT_TEXT];
    if (plan_simulate(&simulation, plan, &diagnostics) && simulation.step_ns > 0) {
        int row = plan->rank_count > 40 ? 10 : 18, most = BOXES / (2 * plan->rank_count);
        buffer_print(buffer, "<h2>One step</h2>\n<p class=key><span style=\"background:var(--forward)\"></span>forward"
                             "<span style=\"background:var(--backward)\"></span>backward"
                             "<span style=\"background:var(--update)\"></span>update</p>\n");
        if (most < plan->microbatches)
            buffer_print(buffer, "<p class=soft>Drawn: the first %d of %d micro-batches.</p>\n", most,
                         plan->microbatches);
        buffer_print(buffer, "<svg viewBox=\"0 0 1000 %d\" role=img aria-label=\"time line of one step, %s\">\n",
                     plan->rank_count * row + 16, report_seconds(simulation.step_ns, text));
        print_boxes(plan, &simulation, (1000.0 - LEFT) / (double)simulation.step_ns, row, LEFT, most, buffer);
        buffer_print(buffer,
                     "<text x=\"%d\" y=\"%d\">0</text><text x=\"1000\" y=\"%d\" text-anchor=end>%s</text></svg>\n",
                     LEFT, plan->rank_count * row + 13, plan->rank_count * row + 13, text);
        simulation_free(&simulation);
    }
    diagnostics_free(&diagnostics);
}

static void print_unused(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    int unused = 0;
    for (int d = 0; d < costs->device_count; d++) {
        bool used = false;
        for (int r = 0; r < plan->rank_count && !used; r++)
            used = strcmp(plan->ranks[r].device, costs->devices[d].name) == 0;
        if (used) continue;
        buffer_print(buffer, unused++ ? ", " : "<p>Not used: ");
        print_text(buffer, costs->devices[d].name);
    }
    if (unused) buffer_print(buffer, ".</p>\n");
}

void report_html(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    buffer_print(buffer, "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<meta name=viewport "
                         "content=\"width=device-width\">\n<title>skycc plan: ");
    print_text(buffer, plan->name);
    buffer_print(buffer, "</title>\n<style>\n");
    buffer_append(buffer, style, sizeof style - 1);
    buffer_print(buffer, "</style>\n<main>\n");
    print_summary(plan, costs, buffer);
    print_stages(plan, costs, buffer);
    print_unused(plan, costs, buffer);
    print_comparison(plan, buffer);
    print_time_line(plan, buffer);
    print_links(plan, buffer);
    buffer_print(buffer, "<p class=soft>Costs %s", plan->costs_hash);
    if (plan->model_hash[0]) {
        buffer_print(buffer, ", model ");
        print_text(buffer, plan->model_hash);
    }
    buffer_print(
        buffer,
        ". Check the plan and its proof with: skycc verify plan.json --costs costs.json</p>\n</main>\n</html>\n");
}
