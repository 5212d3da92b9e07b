#include "partitioner/report_html.h"

#include <string.h>

void html_text(Buffer *buffer, const char *text)
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
    ":root{color-scheme:light dark;--ink:#1c2430;--soft:#535d6b;--line:#d5dae1;--back:#fff;--panel:#f3f5f8;"
    "--forward:#2f6fbf;--backward:#c77f12;--weights:#8a5fb5;--update:#4c8b48;--memory:#5b6f8f;--over:#b3362b;"
    "--good:#2e7031}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adbb;--line:#39424f;--back:#14181e;"
    "--panel:#1d232c;--forward:#6aa5ee;--backward:#e6ab4d;--weights:#b894dd;--update:#84c07f;--memory:#93a5c2;"
    "--over:#ee7b70;--good:#84c07f}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:74rem;padding:2rem 1.5rem 3rem;background:var(--back);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2.4rem 0 .5rem}h3{font-size:1rem;margin:1.4rem 0 .4rem}"
    "p{margin:.4rem 0;max-width:46rem}ol{margin:.4rem 0;padding-left:1.4rem}a{color:var(--forward)}"
    ":focus-visible{outline:2px solid var(--forward);outline-offset:2px}\n"
    "nav{margin:1rem 0}nav a{margin-right:1.2rem;white-space:nowrap}\n"
    ".soft,caption{color:var(--soft)}caption{text-align:left;padding-bottom:.4rem}\n"
    ".proof{border-left:4px solid var(--good);padding:.5rem .9rem;background:var(--panel)}"
    ".open{border-color:var(--backward)}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;margin:1.2rem 0}"
    "dl div{background:var(--panel);padding:.6rem .8rem;border-radius:6px}dt{color:var(--soft);font-size:.87rem}"
    "dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}\n"
    ".wide{overflow:auto}.tall{max-height:38rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "min-width:min(100%,40rem)}"
    "th,td{text-align:left;padding:.28rem 1.1rem .28rem 0;border-bottom:1px solid var(--line);white-space:nowrap;"
    "font-weight:400}thead th{color:var(--soft);font-weight:500;position:sticky;top:0;background:var(--back)}"
    ".n{text-align:right}.best th,.best td{font-weight:600}\n"
    ".bar{display:inline-flex;vertical-align:middle;width:8rem;height:.75rem;background:var(--line);border-radius:3px;"
    "overflow:hidden;margin-right:.6rem}.bar i{height:100%}.over{color:var(--over);font-weight:600}\n"
    "svg{display:block;width:100%;min-width:44rem;height:auto}svg text{fill:var(--soft);font:11px system-ui,sans-serif}"
    ".f{fill:var(--forward)}.b{fill:var(--backward)}.w{fill:var(--weights)}.u{fill:var(--update)}"
    ".r{stroke:var(--line);stroke-width:.7}\n"
    ".fb{background:var(--forward)}.bb{background:var(--backward)}.wb{background:var(--weights)}"
    ".ub{background:var(--update)}.mb{background:var(--memory)}.ob{background:var(--over)}\n"
    ".key span{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .4rem 0 1.2rem;"
    "vertical-align:-1px}.key span:first-child{margin-left:0}\n"
    "@media print{:root{color-scheme:light;--ink:#000;--soft:#444;--line:#bbb;--back:#fff;--panel:#f3f3f3;"
    "--forward:#2f6fbf;--backward:#c77f12;--weights:#8a5fb5;--update:#4c8b48;--memory:#5b6f8f;--over:#b3362b;"
    "--good:#2e7031}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    "body{padding:0;max-width:none;font-size:10px}nav{display:none}.wide{overflow:visible}.tall{max-height:none}"
    "svg{min-width:0}.bar{width:5rem}th,td{padding-right:.6rem}tr,svg,dl{break-inside:avoid}"
    "h2,h3,caption{break-after:avoid}thead th{position:static}}\n";

/* ---- tables ---- */

/* A table that scrolls by itself, also by keyboard. `heads` are cells; those that begin with '#' are numbers. */
static void open_table(Buffer *buffer, const char *caption, int rows, const char *const *heads, int count)
{
    buffer_print(buffer,
                 "<div class=\"wide%s\" tabindex=0 role=region aria-label=\"%s\"><table>\n<caption>%s</caption>"
                 "\n<thead><tr>",
                 rows > 30 ? " tall" : "", caption, caption);
    for (int i = 0; i < count; i++)
        buffer_print(buffer, "<th scope=col%s>%s", *heads[i] == '#' ? " class=n" : "", heads[i] + (*heads[i] == '#'));
    buffer_print(buffer, "</tr></thead>\n<tbody>\n");
}

#define OPEN_TABLE(buffer, caption, rows, ...)                                                                         \
    open_table(buffer, caption, rows, (const char *const[]){__VA_ARGS__},                                              \
               (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static void close_table(Buffer *buffer) { buffer_print(buffer, "</tbody></table></div>\n"); }

/* Two parts, of which the second may be none; the numbers beside a bar say what it shows. */
static void print_bar(Buffer *buffer, double first, const char *class, double second, const char *second_class)
{
    if (first > 1) first = 1;
    if (first + second > 1) second = 1 - first;
    buffer_print(buffer, "<span class=bar aria-hidden=true><i class=%s style=\"width:%.1f%%\"></i>", class,
                 100 * first);
    if (second > 0) buffer_print(buffer, "<i class=%s style=\"width:%.1f%%\"></i>", second_class, 100 * second);
    buffer_print(buffer, "</span>");
}

static double share_of(int64_t part, int64_t whole) { return whole > 0 ? (double)part / (double)whole : 0; }

/* ---- the parts of the page ---- */

static void print_fact(Buffer *buffer, const char *name, const char *value)
{
    buffer_print(buffer, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

static void print_head(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    buffer_print(buffer, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport "
                         "content=\"width=device-width,initial-scale=1\">\n<title>skycc plan: ");
    html_text(buffer, plan->name);
    buffer_print(buffer, "</title>\n<style>\n");
    buffer_append(buffer, style, sizeof style - 1);
    buffer_print(buffer, "</style>\n</head>\n<body>\n<main>\n<h1>");
    html_text(buffer, plan->name);
    buffer_print(
        buffer,
        "</h1>\n<p class=soft>%d layers in %d stages on %d of %d devices &middot; %d micro-batches &middot; %s "
        "&middot; %s allocation &middot; objective: %s</p>\n",
        plan->layer_count, plan->stage_count, plan->rank_count, report->costs->device_count, plan->microbatches,
        plan_schedule_name(plan->schedule), plan_allocator_name(plan->allocator), plan_objective_name(plan->objective));
    char running[REPORT_SENTENCE];
    if (*report_running(plan, running)) buffer_print(buffer, "<p class=soft>%s</p>\n", running);
}

static void print_summary(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char text[REPORT_TEXT], proof[256];
    buffer_print(buffer, "<dl>\n");
    print_fact(buffer, "step", report_seconds(plan->step_ns, text));
    print_fact(buffer, "simulated step", report_seconds(plan->simulated_step_ns, text));
    print_fact(buffer, "period", report_seconds(plan->period_ns, text));
    snprintf(text, sizeof text, "%.1f %%", 100 * plan->bubble);
    print_fact(buffer, "devices idle", text);
    print_fact(buffer, "lower bound", report_seconds(plan->lower_bound_ns, text));
    buffer_print(buffer, "</dl>\n<p class=\"proof%s\"><strong>%s</strong> %s%s.</p>\n",
                 plan->proven_optimal ? "" : " open", plan->proven_optimal ? "Proven optimal." : "Not proven optimal.",
                 plan->proven_optimal ? "No plan for these devices has a smaller " : report_proof(plan, proof),
                 plan->proven_optimal ? plan_objective_name(plan->objective) : "");
    if (plan->certificate)
        buffer_print(buffer,
                     "<p>%s <code>skycc verify plan.json --costs costs.json</code> checks it independently of "
                     "the solver.</p>\n",
                     report_certificate(plan, proof));
    else
        buffer_print(buffer, "<p>The bound rests on the solver's search; the plan carries no certificate of it.</p>\n");
    buffer_print(buffer,
                 "<nav aria-label=\"On this page\"><a href=\"#stages\">Stages</a><a href=\"#allocators\">"
                 "Allocators</a><a href=\"#time-line\">Time line</a>%s%s</nav>\n",
                 plan->link_count ? "<a href=\"#links\">Links</a>" : "",
                 report->advice && report->advice->given ? "<a href=\"#advice\">What if</a>" : "");
}

static void print_memory(const PlanStage *stage, Buffer *buffer)
{
    char text[REPORT_TEXT];
    bool over = stage->memory_bytes > stage->memory_limit_bytes;
    if (!report_has_limit(stage)) {
        buffer_print(buffer, "%s", report_bytes(stage->memory_bytes, text));
        return;
    }
    print_bar(buffer, over ? 1 : share_of(stage->memory_bytes, stage->memory_limit_bytes), over ? "ob" : "mb", 0, "");
    buffer_print(buffer, "<span%s>%s", over ? " class=over" : "", report_bytes(stage->memory_bytes, text));
    buffer_print(buffer, " of %s</span>", report_bytes(stage->memory_limit_bytes, text));
}

static void print_stage(const Report *report, int k, Buffer *buffer)
{
    const Plan *plan = report->plan;
    const PlanStage *stage = &plan->stages[k];
    char text[REPORT_TEXT];
    int64_t work = stage->forward_ns + stage->backward_ns;
    buffer_print(buffer, "<tr><td class=n>%d<th scope=row>", k);
    html_text(buffer, stage->device);
    buffer_print(buffer, "<td>");
    print_bar(buffer, share_of(stage->forward_ns, plan->period_ns), "fb", share_of(stage->backward_ns, plan->period_ns),
              "bb");
    buffer_print(buffer, "%s<td>", report_seconds(work, text));
    print_memory(stage, buffer);
    buffer_print(buffer, "<td class=n>%d<td class=n>%d&ndash;%d<td>", stage->in_flight, stage->first_layer,
                 stage->last_layer);
    html_text(buffer, report->costs->layers[stage->first_layer].name);
    buffer_print(buffer, "</tr>\n");
}

static void print_shared_ranks(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    for (int r = 0; r < plan->rank_count; r++) {
        if (plan->ranks[r].stage_count == 1) continue;
        buffer_print(buffer, "<p>");
        html_text(buffer, plan->ranks[r].device);
        buffer_print(buffer, " runs stages");
        for (int k = 0; k < plan->ranks[r].stage_count; k++)
            buffer_print(buffer, "%s %d", k ? " and" : "", plan->ranks[r].stages[k]);
        buffer_print(buffer, ": together %s a micro-batch", report_seconds(report_rank_work(plan, r), text));
        buffer_print(buffer, " and %s of memory.</p>\n", report_bytes(report_rank_memory(plan, r), text));
    }
}

static void print_unused(const Report *report, Buffer *buffer)
{
    enum { MOST = 40 };
    const Costs *costs = report->costs;
    int unused = 0;
    for (int d = 0; d < costs->device_count; d++) {
        if (report_rank_of(report->plan, costs->devices[d].name) >= 0) continue;
        if (unused++ >= MOST) continue;
        buffer_print(buffer, unused > 1 ? ", " : "<p>Not used: ");
        html_text(buffer, costs->devices[d].name);
    }
    if (unused > MOST) buffer_print(buffer, " and %d more", unused - MOST);
    if (unused) buffer_print(buffer, ".</p>\n");
}

static void print_stages(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    buffer_print(
        buffer,
        "<h2 id=stages>Stages</h2>\n<p class=key><span class=fb></span>forward<span class=bb></span>"
        "backward<span class=mb></span>memory</p>\n<p class=soft>A full bar is the period, or the device's memory "
        "limit.</p>\n");
    OPEN_TABLE(buffer, "Load and memory of every stage", plan->stage_count, "#stage", "device", "load", "memory",
               "#in flight", "#layers", "first layer");
    for (int k = 0; k < plan->stage_count; k++) print_stage(report, k, buffer);
    close_table(buffer);
    print_shared_ranks(plan, buffer);
    print_unused(report, buffer);
}

static void print_comparison(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    int64_t most = 1, own = plan_value_ns(plan);
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        int64_t value = step ? plan->compared[a].step_ns : plan->compared[a].period_ns;
        if (plan->compared[a].known && value > most) most = value;
    }
    buffer_print(buffer, "<h2 id=allocators>Allocators</h2>\n");
    OPEN_TABLE(buffer, "The same layers and devices, allocated in four ways", 0, "allocator", step ? "step" : "period",
               "#against this plan", step ? "#period" : "#step", "memory");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        int64_t value = step ? c->step_ns : c->period_ns;
        buffer_print(buffer, "<tr%s><th scope=row>%s<td>", a == (int)plan->allocator ? " class=best" : "",
                     plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            buffer_print(buffer, "&ndash;<td class=n>&ndash;<td class=n>&ndash;<td>finds nothing that fits</tr>\n");
            continue;
        }
        print_bar(buffer, share_of(value, most), c->fits ? "fb" : "ob", 0, "");
        buffer_print(buffer, "%s<td class=n>%.3f&times;<td class=n>", report_seconds(value, text),
                     own > 0 ? (double)value / (double)own : 1);
        buffer_print(buffer, "%s<td%s>%s</tr>\n", report_seconds(step ? c->period_ns : c->step_ns, text),
                     c->fits ? "" : " class=over", c->fits ? "fits" : "does not fit");
    }
    close_table(buffer);
}

static const char *region_of(const Report *report, const char *device)
{
    int index = costs_find_device(report->costs, device);
    bool known = index >= 0 && report->costs->region_count > 0 && report->costs->devices[index].region >= 0;
    return known ? report->costs->region_names[report->costs->devices[index].region] : "";
}

static void print_end(const Report *report, int stage, Buffer *buffer)
{
    const char *device = report->plan->stages[stage].device, *region = region_of(report, device);
    buffer_print(buffer, "<td>%d ", stage);
    html_text(buffer, device);
    if (*region) {
        buffer_print(buffer, " <span class=soft>");
        html_text(buffer, region);
        buffer_print(buffer, "</span>");
    }
}

static void print_links(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char text[REPORT_TEXT];
    if (plan->link_count == 0) return;
    buffer_print(buffer, "<h2 id=links>Links</h2>\n");
    if (report->costs->region_count == 0) {
        buffer_print(buffer, "<p>The costs name no links: communication is taken to be free.</p>\n");
        return;
    }
    buffer_print(buffer, "<p class=soft>A full bar is the period.</p>\n");
    OPEN_TABLE(buffer, "What one micro-batch sends each way", plan->link_count, "from", "to", "busy", "#bytes each way",
               "#latency");
    for (int k = 0; k < plan->link_count; k++) {
        const PlanLink *link = &plan->links[k];
        int slower = report_link_busy(link);
        buffer_print(buffer, "<tr>");
        print_end(report, link->from, buffer);
        print_end(report, link->to, buffer);
        buffer_print(buffer, "<td>");
        print_bar(buffer, share_of(link->transfer_ns[slower], plan->period_ns), "fb", 0, "");
        buffer_print(buffer, "%s<td class=n>", report_seconds(link->transfer_ns[slower], text));
        buffer_print(buffer, "%s<td class=n>", report_bytes(link->wire_bytes, text));
        buffer_print(buffer, "%s</tr>\n", report_seconds(link->latency_ns[slower], text));
    }
    close_table(buffer);
}

static void print_crossings(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    if (plan->crossing_count == 0) return;
    buffer_print(buffer, "<h3>What leaves a region</h3>\n");
    OPEN_TABLE(buffer, "Every tensor that crosses between regions, per micro-batch", plan->crossing_count, "tensor",
               "from", "to", "#bytes", "#stages");
    for (int i = 0; i < plan->crossing_count; i++) {
        const PlanCrossing *crossing = &plan->crossings[i];
        buffer_print(buffer, "<tr><td>");
        html_text(buffer, crossing->tensor);
        buffer_print(buffer, "<td>");
        html_text(buffer, crossing->from_region);
        buffer_print(buffer, "<td>");
        html_text(buffer, crossing->to_region);
        buffer_print(buffer, "<td class=n>%s<td class=n>", report_bytes(crossing->bytes, text));
        if (crossing->raw)
            buffer_print(buffer, "raw, read by %d</tr>\n", crossing->to_stage);
        else
            buffer_print(buffer, "%d&ndash;%d</tr>\n", crossing->from_stage, crossing->to_stage);
    }
    close_table(buffer);
}

static void print_without(const Report *report, Buffer *buffer)
{
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE];
    buffer_print(buffer, "<h3>Why not one device fewer?</h3>\n");
    OPEN_TABLE(buffer, "Planned again without one device", advice->without_count, "without",
               report->plan->objective == PLAN_OBJECTIVE_STEP ? "step" : "period", "#such devices in use");
    for (int i = 0; i < advice->without_count; i++) {
        buffer_print(buffer, "<tr><th scope=row>");
        html_text(buffer, advice->without[i].device);
        buffer_print(buffer, "<td>%s<td class=n>%d</tr>\n",
                     report_replanned(report->plan, &advice->without[i].plan, text), advice->without[i].alike);
    }
    close_table(buffer);
}

static void print_advice(const Report *report, Buffer *buffer)
{
    const Advice *advice = report->advice;
    const char *objective = plan_objective_name(report->plan->objective);
    char text[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    buffer_print(buffer,
                 "<h2 id=advice>What if</h2>\n<p class=soft>Every line is a plan of its own. &ldquo;At "
                 "most&rdquo; marks the best that a fixed amount of search found; the others are optima.</p>\n");
    if (advice->without_count > 0) print_without(report, buffer);
    buffer_print(buffer, "<h3>What would help most?</h3>\n");
    if (advice->change_count == 0)
        buffer_print(buffer, "<p>None of %d changes of one device or link that were tried shortens the %s.</p>\n",
                     advice->tried, objective);
    else
        buffer_print(buffer, "<p>Of %d changes of one device or link that were tried:</p>\n<ol>\n", advice->tried);
    for (int i = 0; i < advice->change_count; i++) {
        buffer_print(buffer, "<li>");
        html_text(buffer, report_change(&advice->changes[i], text));
        buffer_print(buffer, ": the %s is %s</li>\n", objective,
                     report_replanned(report->plan, &advice->changes[i].plan, text));
    }
    if (advice->change_count > 0) buffer_print(buffer, "</ol>\n");
}

static void print_foot(const Plan *plan, Buffer *buffer)
{
    buffer_print(buffer,
                 "<h2>Check it</h2>\n<p><code>skycc verify plan.json --costs costs.json</code> recomputes "
                 "every number of this plan and checks the certificate of its bound, independently of the "
                 "solver.</p>\n<p class=soft>Costs <code>%s</code>",
                 plan->costs_hash);
    if (plan->model_hash[0]) {
        buffer_print(buffer, ", model <code>");
        html_text(buffer, plan->model_hash);
        buffer_print(buffer, "</code>");
    }
    buffer_print(buffer, "</p>\n</main>\n</body>\n</html>\n");
}

void report_html(const Report *report, Buffer *buffer)
{
    print_head(report, buffer);
    print_summary(report, buffer);
    print_stages(report, buffer);
    print_comparison(report->plan, buffer);
    html_time_line(buffer, report->plan);
    print_links(report, buffer);
    print_crossings(report->plan, buffer);
    print_advice(report, buffer);
    print_foot(report->plan, buffer);
}
