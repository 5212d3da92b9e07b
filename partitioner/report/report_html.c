#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "partitioner/report/report.h"
#include "partitioner/report/report_drawing.h"
#include "partitioner/report/report_style.h"

/* A name that may go on in the next line after its punctuation. */
static void html_name(Buffer *buffer, const char *name)
{
    for (size_t size; *name; name += size) {
        size = strcspn(name, "./_+:");
        size += name[size] != '\0';
        drawing_bytes(buffer, name, size);
        if (name[size]) buffer_print(buffer, "<wbr>");
    }
}

/* ---- tables ---- */

#define OPEN_TABLE(buffer, caption, rows, ...)                                                                         \
    drawing_open_table(buffer, caption, rows, (const char *const[]){__VA_ARGS__},                                      \
                       (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

/* Two parts, of which the second may be none; the number next to a bar says what it shows. */
static void print_bar(Buffer *buffer, double first, const char *class, double second, const char *second_class)
{
    if (first > 1) first = 1;
    if (first + second > 1) second = 1 - first;
    buffer_print(buffer, "<span class=bar aria-hidden=true><i class=%s style=\"width:%.1f%%\"></i>", class,
                 100 * first);
    if (second > 0) buffer_print(buffer, "<i class=%s style=\"width:%.1f%%\"></i>", second_class, 100 * second);
    buffer_print(buffer, "</span>");
}

/* A paragraph, or nothing. `class` may be "". */
static void print_paragraph(Buffer *buffer, const char *class, const char *text)
{
    if (!*text) return;
    buffer_print(buffer, *class ? "<p class=\"%s\">" : "<p>", class);
    drawing_text(buffer, text);
    buffer_print(buffer, "</p>\n");
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
    drawing_text(buffer, plan->name);
    buffer_print(buffer, "</title>\n<style>\n");
    buffer_print(buffer, "%s%s", drawing_colours, html_style);
    buffer_print(buffer, "</style>\n</head>\n<body>\n<main>\n<h1>");
    drawing_text(buffer, plan->name);
    char running[REPORT_SENTENCE];
    buffer_print(buffer, "</h1>\n<p class=soft>%s, %s allocation</p>\n", report_head(report, running),
                 plan_allocator_name(plan->allocator));
    print_paragraph(buffer, "soft", report_running(plan, running));
}

static void print_proof(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char sentence[REPORT_SENTENCE];
    bool proven = report_is_proven(plan);
    buffer_print(buffer, "<p class=\"proof%s\">%s", proven ? "" : " open",
                 proven ? "" : "<strong>Not proven optimal:</strong> ");
    report_proof(report, sentence);
    if (proven) *sentence = (char)toupper((unsigned char)*sentence);
    drawing_text(buffer, sentence);
    buffer_print(buffer, ".</p>\n");
    print_paragraph(buffer, "", report_certificate(plan, sentence));
    print_paragraph(buffer, "", report_unproven(plan, sentence));
    print_paragraph(buffer, "", report_replicas(report, sentence));
}

static void print_summary(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char text[REPORT_TEXT], sentence[REPORT_SENTENCE];
    bool samples = plan->rows.microbatch_kinds > 0, step = plan->objective == PLAN_OBJECTIVE_STEP;
    buffer_print(buffer, "<dl>\n");
    print_fact(buffer, "step time (simulated)", report_seconds(plan->simulated_step_ns, text));
    print_fact(buffer, step ? "objective: step" : "step", report_seconds(plan->step_ns, text));
    print_fact(buffer, step ? "period" : "objective: period", report_seconds(plan->period_ns, text));
    snprintf(text, sizeof text, "%.1f %%", 100 * plan->bubble);
    print_fact(buffer, "devices idle", text);
    print_fact(buffer, "lower bound", plan->lower_bound_ns > 0 ? report_seconds(plan->lower_bound_ns, text) : "none");
    buffer_print(buffer, "</dl>\n");
    print_proof(report, buffer);
    print_paragraph(buffer, "", report_bottleneck(plan, sentence));
    print_paragraph(buffer, "", report_speed(report, sentence));
    buffer_print(buffer,
                 "<p class=soft>The objective step is a sum: every stage once, every link there and back, one period "
                 "per further micro-batch, the longest update. %s</p>\n",
                 step ? report_objective(plan, sentence)
                      : "The proof is about the period. The simulation runs the schedule itself.");
    buffer_print(buffer,
                 "<nav aria-label=\"On this page\">%s<a href=\"#stages\">Stages</a>%s<a href=\"#time-line\">Time "
                 "line</a>%s%s</nav>\n",
                 samples ? "<a href=\"#rows\">Rows</a>" : "", plan->link_count ? "<a href=\"#links\">Links</a>" : "",
                 report->advice && report->advice->given ? "<a href=\"#advice\">What to change</a>" : "",
                 plan->replica_count > 1 ? "" : "<a href=\"#allocators\">Other allocations</a>");
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
    buffer_print(buffer, "</span><span class=\"limit%s\"> of %s</span>", over ? " over" : "",
                 report_bytes(stage->memory_limit_bytes, text));
}

static void print_stage(const Report *report, int k, Buffer *buffer)
{
    const Plan *plan = report->plan;
    const PlanStage *stage = &plan->stages[k];
    char text[REPORT_TEXT];
    int64_t work = stage->forward_ns + stage->backward_ns, period = report_period_ns(plan, k);
    buffer_print(buffer, "<tr><td class=n>%d<th scope=row>", k);
    drawing_text(buffer, stage->device);
    if (plan->replica_count > 1) buffer_print(buffer, " (replica %d)", plan->ranks[stage->rank].replica);
    buffer_print(buffer, "<td>");
    print_bar(buffer, share_of(stage->forward_ns, period), "fb", share_of(stage->backward_ns, period), "bb");
    buffer_print(buffer, "%s<td>", report_seconds(work, text));
    print_memory(stage, buffer);
    buffer_print(buffer, "<td class=n>%d<td class=n>%d&ndash;%d<td class=name>", stage->in_flight, stage->first_layer,
                 stage->last_layer);
    html_name(buffer, report->costs->layers[stage->first_layer].name);
    buffer_print(buffer, "</tr>\n");
}

static void print_shared_ranks(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    for (int r = 0; r < plan->rank_count; r++) {
        if (plan->ranks[r].stage_count == 1) continue;
        buffer_print(buffer, "<p>");
        drawing_text(buffer, plan->ranks[r].device);
        buffer_print(buffer, " runs stages");
        for (int k = 0; k < plan->ranks[r].stage_count; k++)
            buffer_print(buffer, "%s %d", k ? " and" : "", plan->ranks[r].stages[k]);
        buffer_print(buffer, ": %s per micro-batch", report_seconds(plan_rank_work(plan, r), text));
        buffer_print(buffer, " and %s of memory for both.</p>\n", report_bytes(plan_rank_memory(plan, r), text));
    }
}

static void print_unused(const Report *report, Buffer *buffer)
{
    FREED_WITH(buffer_free) Buffer idle = {0};
    report_idle(report, &idle);
    print_paragraph(buffer, "", buffer_text(&idle));
}

static void print_stages(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char strays[REPORT_SENTENCE];
    buffer_print(buffer, "<h2 id=stages>Stages</h2>\n<p class=key><span class=fb></span>forward<span class=bb></span>"
                         "backward<span class=mb></span>memory</p>\n<p class=soft>A full load bar is the period; a "
                         "full memory bar is the device's "
                         "limit.</p>\n");
    OPEN_TABLE(buffer, "Load and memory of every stage", plan->stage_count, "#stage", "device", "load", "memory",
               "#in flight", "#layers", "first layer");
    for (int k = 0; k < plan->stage_count; k++) print_stage(report, k, buffer);
    drawing_close_table(buffer);
    print_shared_ranks(plan, buffer);
    print_unused(report, buffer);
    print_paragraph(buffer, "over", report_strays(report, strays));
}

static void print_rows(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_SENTENCE];
    ReportBin bins[REPORT_BINS];
    int count = report_lengths(plan, bins);
    double most = 0;
    if (count == 0) return;
    buffer_print(buffer, "<h2 id=rows>Rows</h2>\n");
    print_paragraph(buffer, "", report_rows(plan, text));
    for (int i = 0; i < count; i++)
        if (bins[i].share > most) most = bins[i].share;
    OPEN_TABLE(buffer, "One row of this table: how many of the sampled rows have so many tokens", 0, "#tokens",
               "share of rows");
    for (int i = 0; i < count; i++) {
        buffer_print(buffer, "<tr><th scope=row class=n>%d&ndash;%d<td>", bins[i].first, bins[i].last);
        print_bar(buffer, bins[i].share / most, "fb", 0, "");
        buffer_print(buffer, "%.1f %%</tr>\n", 100 * bins[i].share);
    }
    drawing_close_table(buffer);
}

static void print_comparison(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    int64_t most = 1, own = plan_value_ns(plan);
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    if (plan->replica_count > 1) return; /* allocators know one pipeline */
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        int64_t value = step ? plan->compared[a].step_ns : plan->compared[a].period_ns;
        if (plan->compared[a].known && value > most) most = value;
    }
    buffer_print(buffer, "<h2 id=allocators>Other allocations</h2>\n");
    OPEN_TABLE(buffer, "One row per allocator, for the same layers and devices; less is better", 0, "allocator",
               step ? "step" : "period", "#compared with this plan", step ? "#period" : "#step", "memory");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        int64_t value = step ? c->step_ns : c->period_ns;
        buffer_print(buffer, "<tr%s><th scope=row>%s<td>", a == (int)plan->allocator ? " class=best" : "",
                     plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            buffer_print(buffer, "&ndash;<td class=n>&ndash;<td class=n>&ndash;<td>%s</tr>\n",
                         report_unknown(plan, (PlanAllocator)a));
            continue;
        }
        print_bar(buffer, share_of(value, most), c->fits ? "fb" : "ob", 0, "");
        buffer_print(buffer, "%s<td class=n>%.3f&times;<td class=n>", report_seconds(value, text),
                     own > 0 ? (double)value / (double)own : 1);
        buffer_print(buffer, "%s<td%s>%s</tr>\n", report_seconds(step ? c->period_ns : c->step_ns, text),
                     c->fits ? "" : " class=over", c->fits ? "fits" : "does not fit");
    }
    drawing_close_table(buffer);
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
    buffer_print(buffer, "<td class=ends>%d ", stage);
    drawing_text(buffer, device);
    if (*region) {
        buffer_print(buffer, " <span class=soft>");
        drawing_text(buffer, region);
        buffer_print(buffer, "</span>");
    }
}

/* Of both directions, in one where they agree. */
static void print_ways(Buffer *buffer, const char *(*words)(int64_t, char *), const int64_t ways[2])
{
    char text[2][REPORT_TEXT];
    buffer_print(buffer, "<td class=n>%s", words(ways[0], text[0]));
    if (ways[1] != ways[0]) buffer_print(buffer, ", %s", words(ways[1], text[1]));
}

static void print_links(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char text[REPORT_TEXT];
    bool coded = (plan->codecs & ~CODECS_LOSSLESS) != 0;
    if (plan->link_count == 0) return;
    buffer_print(buffer, "<h2 id=links>Links</h2>\n");
    if (report->costs->region_count == 0) {
        buffer_print(buffer, "<p>The costs name no links, so communication counts as free.</p>\n");
        return;
    }
    buffer_print(buffer, "<p class=soft>A full bar is the period.</p>\n");
    if (coded)
        OPEN_TABLE(buffer, "One row per link: what a micro-batch sends each way", plan->link_count, "from", "to",
                   "busy", "#bytes (forward, backward)", "#latency", "#codecs", "#bytes before coding");
    else
        OPEN_TABLE(buffer, "One row per link: what a micro-batch sends each way", plan->link_count, "from", "to",
                   "busy", "#bytes (forward, backward)", "#latency");
    for (int k = 0; k < plan->link_count; k++) {
        const PlanLink *link = &plan->links[k];
        buffer_print(buffer, "<tr>");
        print_end(report, link->from, buffer);
        print_end(report, link->to, buffer);
        buffer_print(buffer, "<td>");
        print_bar(buffer, share_of(plan_link_period(link), report_period_ns(plan, link->from)), "fb", 0, "");
        buffer_print(buffer, "%s", report_seconds(plan_link_period(link), text));
        print_ways(buffer, report_bytes, link->wire_bytes);
        print_ways(buffer, report_seconds, link->latency_ns);
        if (coded) {
            buffer_print(buffer, "<td class=n>%s, %s", codec_name(link->codecs[0]), codec_name(link->codecs[1]));
            print_ways(buffer, report_bytes, link->logical_bytes);
        }
        buffer_print(buffer, "</tr>\n");
    }
    drawing_close_table(buffer);
}

static void print_crossings(const Plan *plan, Buffer *buffer)
{
    char text[REPORT_TEXT];
    if (plan->crossing_count == 0) return;
    buffer_print(buffer, "<h3>What leaves a region</h3>\n");
    OPEN_TABLE(buffer, "One row per tensor that crosses between regions, for each micro-batch", plan->crossing_count,
               "tensor", "from", "to", "#bytes", "#stages");
    for (int i = 0; i < plan->crossing_count; i++) {
        const PlanCrossing *crossing = &plan->crossings[i];
        buffer_print(buffer, "<tr><th scope=row class=name>");
        html_name(buffer, crossing->tensor);
        buffer_print(buffer, "<td>");
        drawing_text(buffer, crossing->from_region);
        buffer_print(buffer, "<td>");
        drawing_text(buffer, crossing->to_region);
        buffer_print(buffer, "<td class=n>%s<td class=n>", report_bytes(crossing->bytes, text));
        if (crossing->raw)
            buffer_print(buffer, "raw, read by %d</tr>\n", crossing->to_stage);
        else
            buffer_print(buffer, "%d&ndash;%d</tr>\n", crossing->from_stage, crossing->to_stage);
    }
    drawing_close_table(buffer);
}

static void print_without(const Report *report, Buffer *buffer)
{
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE];
    buffer_print(buffer, "<h3>Why not one device fewer?</h3>\n");
    OPEN_TABLE(buffer, "One row per kind of device: the best plan without one of them", advice->without_count,
               "without", report->plan->objective == PLAN_OBJECTIVE_STEP ? "step" : "period", "#such devices in use");
    for (int i = 0; i < advice->without_count; i++) {
        buffer_print(buffer, "<tr><th scope=row>");
        drawing_text(buffer, advice->without[i].device);
        buffer_print(buffer, "<td>%s<td class=n>%d</tr>\n",
                     report_replanned(report->plan, &advice->without[i].plan, text), advice->without[i].alike);
    }
    drawing_close_table(buffer);
}

static void print_advice(const Report *report, Buffer *buffer)
{
    const Advice *advice = report->advice;
    const char *objective = plan_objective_name(report->plan->objective);
    char text[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    buffer_print(buffer,
                 "<h2 id=advice>What to change</h2>\n<p class=soft>Every line is a plan of its own. &ldquo;At "
                 "most&rdquo;: the best plan that a fixed amount of search found. All other lines are optima.</p>\n");
    if (advice->without_count > 0) print_without(report, buffer);
    buffer_print(buffer, "<h3>What would help most?</h3>\n");
    if (advice->tried == 0)
        buffer_print(buffer, "<p>No change of a device or link was tried: no time was left.</p>\n");
    else if (advice->change_count == 0)
        buffer_print(buffer, "<p>None of the %d changes of one device or link that were tried shortens the %s.</p>\n",
                     advice->tried, objective);
    else
        buffer_print(buffer, "<p>The best of %d changes of one device or link that were tried:</p>\n<ol>\n",
                     advice->tried);
    for (int i = 0; i < advice->change_count; i++) {
        buffer_print(buffer, "<li>");
        drawing_text(buffer, report_change(&advice->changes[i], text));
        buffer_print(buffer, ": the %s is %s</li>\n", objective,
                     report_replanned(report->plan, &advice->changes[i].plan, text));
    }
    if (advice->change_count > 0) buffer_print(buffer, "</ol>\n");
}

static void print_foot(const Plan *plan, Buffer *buffer)
{
    buffer_print(buffer,
                 "<h2>Check it</h2>\n<p><code>skycc verify plan.json --costs costs.json</code> recomputes "
                 "every number of this plan%s. It does not use the solver.</p>\n<p class=soft>Costs <code>%s</code>",
                 plan->certificate ? " and checks the certificate of its bound" : "", plan->costs_hash);
    if (plan->model_hash[0]) {
        buffer_print(buffer, ", model <code>");
        drawing_text(buffer, plan->model_hash);
        buffer_print(buffer, "</code>");
    }
    buffer_print(buffer, "</p>\n</main>\n</body>\n</html>\n");
}

static void print_time_line(const Plan *plan, Buffer *buffer)
{
    enum { LEFT = 120, RIGHT = 1000, MOST_ROWS = 80 };
    FREED_WITH(step_drawing_free) StepDrawing step = {0};
    char text[REPORT_TEXT], rest[REPORT_SENTENCE];
    if (!step_drawing_create(&step, plan, LEFT, RIGHT, MOST_ROWS)) return;
    buffer_print(buffer, "<h2 id=time-line>Time line</h2>\n<p>One simulated step with the %s schedule: %s",
                 plan_schedule_name(plan->schedule), report_seconds(step.simulation.step_ns, text));
    if (plan->rows.microbatch_kinds)
        buffer_print(buffer, " with %d micro-batches, the median of the sampled steps", step.of);
    buffer_print(buffer,
                 ".</p>\n<p class=key><span class=fb></span>forward<span class=bb></span>backward%s<span "
                 "class=ub></span>update</p>\n",
                 step_drawing_splits(plan) ? "<span class=wb></span>gradient of the weights" : "");
    print_paragraph(buffer, "soft", step_drawing_rest(&step, rest));
    buffer_print(buffer,
                 "<div class=wide tabindex=0 role=region aria-label=\"Time line\"><svg viewBox=\"0 0 %d %d\" role=img "
                 "aria-label=\"What each device does over time, %s in all\">\n",
                 RIGHT + 4, step_drawing_height(&step), text);
    step_drawing_print(&step, buffer);
    buffer_print(buffer, "</svg></div>\n");
}

void report_html(const Report *report, Buffer *buffer)
{
    print_head(report, buffer);
    print_summary(report, buffer);
    print_rows(report->plan, buffer);
    print_stages(report, buffer);
    print_links(report, buffer);
    print_crossings(report->plan, buffer);
    print_time_line(report->plan, buffer);
    print_advice(report, buffer);
    print_comparison(report->plan, buffer);
    print_foot(report->plan, buffer);
}
