#include "partitioner/report/report.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* Each sentence on a line of its own. */
static void print_sentences(Buffer *buffer, const char *text)
{
    for (const char *end; *text; text = end) {
        end = strstr(text, ". ");
        end = end ? end + 2 : text + strlen(text);
        text_format(buffer, "%.*s\n", (int)(end - text - (end[-1] == ' ')), text);
    }
}

static void print_bar(Buffer *buffer, double share)
{
    enum { WIDTH = 16 };
    int filled = share > 1 ? WIDTH : (int)(share * WIDTH + 0.5);
    for (int i = 0; i < WIDTH; i++) text_format(buffer, "%c", i < filled ? '#' : '.');
}

static double memory_share(const PlanStage *stage)
{
    return stage->memory_limit_bytes > 0 ? (double)stage->memory_bytes / (double)stage->memory_limit_bytes : 1;
}

static void print_stage_line(Buffer *buffer, const Report *report, int k)
{
    const Plan *plan = report->plan;
    const PlanStage *stage = &plan->stages[k];
    char work[REPORT_TEXT], memory[REPORT_TEXT], limit[REPORT_TEXT], layers[REPORT_TEXT];
    int64_t duration = stage->forward_ns + stage->backward_ns, period = report_period_ns(plan, k);
    const PlanReplica *replica = &plan->replicas[plan->ranks[stage->rank].replica];
    snprintf(layers, sizeof layers, "%d-%d", stage->first_layer, stage->last_layer);
    if (plan->replica_count > 1 && replica->first_stage == k)
        text_format(buffer, "replica %d, %d micro-batches:\n", (int)(replica - plan->replicas), replica->microbatches);
    text_format(buffer, "%5d  %-16.16s %-9s %-22.22s ", k, stage->device, layers,
                report->costs ? report->costs->layers[stage->first_layer].name : "");
    print_bar(buffer, period > 0 ? (double)duration / (double)period : 0);
    text_format(buffer, " %9s  ", report_seconds(duration, work));
    if (report_has_limit(stage)) print_bar(buffer, memory_share(stage));
    text_format(buffer, " %s", report_bytes(stage->memory_bytes, memory));
    if (report_has_limit(stage)) text_format(buffer, " of %s", report_bytes(stage->memory_limit_bytes, limit));
    text_format(buffer, "\n");
}

/* What the stages first ... last-1 have in common, in place of their lines. */
static void print_stages_between(Buffer *buffer, const Plan *plan, int first, int last)
{
    int64_t least = INT64_MAX, most = 0;
    double empty = 1, full = 0;
    char low[REPORT_TEXT], high[REPORT_TEXT];
    for (int k = first; k < last; k++) {
        const PlanStage *stage = &plan->stages[k];
        int64_t work = stage->forward_ns + stage->backward_ns;
        if (work < least) least = work;
        if (work > most) most = work;
        if (!report_has_limit(stage)) continue;
        if (memory_share(stage) < empty) empty = memory_share(stage);
        if (memory_share(stage) > full) full = memory_share(stage);
    }
    text_format(buffer, "  ...  %d more stages with loads of %s to %s", last - first, report_seconds(least, low),
                report_seconds(most, high));
    if (full > 0) text_format(buffer, ", using %.0f%% to %.0f%% of their memory", 100 * empty, 100 * full);
    text_format(buffer, "\n");
}

static void print_stages(Buffer *buffer, const Report *report)
{
    enum { MOST = 20 }; /* one screen */
    const Plan *plan = report->plan;
    text_format(buffer, "\nstage  %-16s %-9s %-22s %-16s %9s  memory\n", "device", "layers", "from", "load", "");
    for (int k = 0; k < plan->stage_count; k++) {
        if (plan->stage_count > MOST && k == MOST / 2) {
            k = plan->stage_count - MOST / 2;
            print_stages_between(buffer, plan, MOST / 2, k);
        }
        print_stage_line(buffer, report, k);
    }
    for (int r = 0; r < plan->rank_count; r++) {
        char work[REPORT_TEXT], memory[REPORT_TEXT];
        if (plan->ranks[r].stage_count == 1) continue;
        text_format(buffer, "%s runs stages", plan->ranks[r].device);
        for (int k = 0; k < plan->ranks[r].stage_count; k++)
            text_format(buffer, "%s %d", k ? " and" : "", plan->ranks[r].stages[k]);
        text_format(buffer, ": %s per micro-batch and %s of memory for both\n",
                    report_seconds(plan_rank_work(plan, r), work), report_bytes(plan_rank_memory(plan, r), memory));
    }
}

static void print_rows(Buffer *buffer, const Plan *plan)
{
    char text[REPORT_SENTENCE];
    ReportBin bins[REPORT_BINS];
    int count = report_lengths(plan, bins);
    if (count == 0) return;
    text_format(buffer, "\n");
    print_sentences(buffer, report_rows(plan, text));
    for (int i = 0; i < count; i++) {
        text_format(buffer, "%6d to %-6d tokens ", bins[i].first, bins[i].last);
        print_bar(buffer, bins[i].share);
        text_format(buffer, " %4.1f%% of rows\n", 100 * bins[i].share);
    }
}

static void print_limits(Buffer *buffer, const Plan *plan)
{
    char sentence[REPORT_SENTENCE];
    int slowest = -1;
    int64_t most = 0;
    for (int k = 0; k < plan->link_count; k++) {
        int64_t busy = plan_link_period(&plan->links[k]);
        if (busy > most) most = busy, slowest = k;
    }
    print_sentences(buffer, report_bottleneck(plan, sentence));
    if (slowest < 0) return;
    char busy[REPORT_TEXT], latency[REPORT_TEXT], bytes[REPORT_TEXT];
    const PlanLink *link = &plan->links[slowest];
    text_format(buffer, "Slowest link: stage %d to %d, %s per micro-batch in %s + %s latency\n", link->from, link->to,
                report_bytes(link->wire_bytes[plan_link_busy(link)], bytes), report_seconds(most, busy),
                report_seconds(link->latency_ns[plan_link_busy(link)], latency));
}

/* What codecs save on each link, and the time they take. */
static void print_codings(Buffer *buffer, const Plan *plan)
{
    char text[4][REPORT_TEXT], codecs[16];
    bool any = false;
    for (int k = 0; k < plan->link_count; k++) any |= plan_link_is_coded(&plan->links[k]);
    if (plan->codecs & ~CODECS_LOSSLESS)
        text_format(buffer, "Codecs allowed: %s%s\n", codecs_print(plan->codecs, codecs),
                    any ? "" : " (no link gains from one)");
    for (int k = 0; any && k < plan->link_count; k++)
        for (int d = 0; d < 2; d++) {
            const PlanLink *link = &plan->links[k];
            text_format(buffer, "  stage %d to %d: %-4s %s -> %s, encode %s, decode %s\n", d ? link->to : link->from,
                        d ? link->from : link->to, codec_name(link->codecs[d]),
                        report_bytes(link->logical_bytes[d], text[0]), report_bytes(link->wire_bytes[d], text[1]),
                        report_seconds(link->coding_ns[d][0], text[2]), report_seconds(link->coding_ns[d][1], text[3]));
        }
}

static void print_comparison(Buffer *buffer, const Plan *plan)
{
    int64_t best = plan_value_ns(plan);
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    if (plan->replica_count > 1) return; /* allocators know one pipeline */
    text_format(buffer, "\nallocation  %11s %12s\n", "period", "step");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        char period[REPORT_TEXT], duration[REPORT_TEXT];
        text_format(buffer, "%c %-9s", a == (int)plan->allocator ? '*' : ' ', plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            text_format(buffer, "%12s %12s   %s\n", "-", "-", report_unknown(plan, (PlanAllocator)a));
            continue;
        }
        int64_t value = step ? c->step_ns : c->period_ns;
        text_format(buffer, "%12s %12s", report_seconds(c->period_ns, period), report_seconds(c->step_ns, duration));
        if (!c->fits)
            text_format(buffer, "   does not fit in memory");
        else if (best > 0 && a != (int)plan->allocator)
            text_format(buffer, "   %.2fx the %s of this plan", (double)value / (double)best,
                        plan_objective_name(plan->objective));
        text_format(buffer, "\n");
    }
}

static void print_unused(Buffer *buffer, const Report *report)
{
    FREED_WITH(buffer_free) Buffer idle = {0};
    report_idle(report, &idle);
    if (idle.size > 0) text_format(buffer, "%s\n", buffer_text(&idle));
    for (int i = 0; i < report->plan->without_count; i++)
        text_format(buffer, "%s%s", i ? ", " : "Left out as asked: ", report->plan->without[i]);
    if (report->plan->without_count > 0) text_format(buffer, "\n");
}

static void print_crossings(Buffer *buffer, const Report *report)
{
    const Plan *plan = report->plan;
    int64_t bytes = 0;
    int raw = 0;
    char text[REPORT_TEXT], strays[REPORT_SENTENCE];
    for (int i = 0; i < plan->crossing_count; i++) {
        raw += plan->crossings[i].raw;
        if (!plan->crossings[i].raw) bytes += plan->crossings[i].bytes;
    }
    if (plan->crossing_count > raw)
        text_format(buffer, "Between regions: %d tensors per micro-batch, %s\n", plan->crossing_count - raw,
                    report_bytes(bytes, text));
    if (raw > 0)
        text_format(buffer, "Raw inputs read outside their home region: %d (see crossings in plan.json)\n", raw);
    print_sentences(buffer, report_strays(report, strays));
}

static void print_advice(Buffer *buffer, const Report *report)
{
    enum { MOST = 4 };
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE], value[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    if (advice->without_count > 0)
        text_format(buffer, "\nWithout one of these devices the %s would be:\n",
                    plan_objective_name(report->plan->objective));
    for (int i = 0; i < advice->without_count && i < MOST; i++) {
        const AdviceWithout *without = &advice->without[i];
        text_format(buffer, "  %-26s  %s", report_replanned(report->plan, &without->plan, value), without->device);
        if (without->alike > 1) text_format(buffer, ", or another of the %d like it", without->alike);
        text_format(buffer, "\n");
    }
    if (advice->without_count > MOST)
        text_format(buffer, "  ... %d other kind%s of device\n", advice->without_count - MOST,
                    advice->without_count - MOST > 1 ? "s" : "");
    if (advice->tried == 0)
        text_format(buffer, "No change of a device or link was tried: no time was left\n");
    else if (advice->change_count == 0)
        text_format(buffer, "None of the %d changes of one device or link that were tried helps\n", advice->tried);
    else
        text_format(buffer, "What would help most:\n");
    for (int i = 0; i < advice->change_count; i++)
        text_format(buffer, "  %-26s  %s\n", report_replanned(report->plan, &advice->changes[i].plan, value),
                    report_change(&advice->changes[i], text));
}

static void print_head(Buffer *buffer, const Report *report)
{
    const Plan *plan = report->plan;
    char step[REPORT_TEXT], period[REPORT_TEXT], simulated[REPORT_TEXT], sentence[REPORT_SENTENCE];
    report_seconds(plan->step_ns, step);
    report_seconds(plan->period_ns, period);
    text_format(buffer, "%s: %s, %s allocation\n", plan->name, report_head(report, sentence),
                plan_allocator_name(plan->allocator));
    text_format(buffer, "Step time: %s (simulated; devices are idle %.1f%% of it)\n",
                report_seconds(plan->simulated_step_ns, simulated), 100 * plan->bubble);
    if (plan->objective == PLAN_OBJECTIVE_STEP)
        text_format(buffer, "Objective: step %s (period %s). %s\n", step, period, report_objective(plan, sentence));
    else
        text_format(buffer, "Objective: period %s (step %s)\n", period, step);
    print_sentences(buffer, report_running(plan, sentence));
    print_sentences(buffer, report_speed(report, sentence));
}

static void report_text(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char sentence[REPORT_SENTENCE];
    print_head(buffer, report);
    print_rows(buffer, plan);
    print_stages(buffer, report);
    print_limits(buffer, plan);
    print_codings(buffer, plan);
    print_crossings(buffer, report);
    print_unused(buffer, report);
    print_comparison(buffer, plan);
    text_format(buffer, "\n%s\n", report_proof(report, sentence));
    print_sentences(buffer, report_unproven(plan, sentence));
    print_sentences(buffer, report_replicas(report, sentence));
    print_advice(buffer, report);
}

/* ---- whichever form ---- */

void report_print(const Report *asked, const char *form, Buffer *buffer)
{
    Report report = *asked;
    FREED_WITH(report_use_free) ReportUse use = {0};
    if (report.costs && !report.plan->infeasible) {
        report_use_create(&use, report.plan, report.costs);
        report.use = &use;
    }
    if (strcmp(form, "json") == 0)
        report_json(&report, buffer);
    else if (strcmp(form, "html") == 0)
        report_html(&report, buffer);
    else if (strcmp(form, "svg") == 0)
        report_svg(&report, buffer);
    else
        report_text(&report, buffer);
}

const char *report_form(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : "text";
}
