#include "partitioner/report/report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "partitioner/certificate.h"
#include "partitioner/crossings.h"

const char *report_seconds(int64_t nanoseconds, char text[static REPORT_TEXT])
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    double value = (double)nanoseconds;
    int unit = 0;
    while (unit < 3 && value >= 999.5) value /= 1000, unit++;
    int decimals = unit == 0 || value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
    snprintf(text, REPORT_TEXT, "%.*f %s", decimals, value, units[unit]);
    return text;
}

const char *report_bytes(int64_t bytes, char text[static REPORT_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    if (bytes == COSTS_NO_LIMIT) return strcpy(text, "-");
    while (unit < 4 && value >= 1000) value /= 1024, unit++;
    snprintf(text, REPORT_TEXT, "%.*f %s",
             unit == 0 || value >= 99.95 ? 0
             : value >= 9.995            ? 1
                                         : 2,
             value, units[unit]);
    return text;
}

const char *report_proof(const Plan *plan, char text[static 256])
{
    char bound[REPORT_TEXT];
    const char *objective = plan_objective_name(plan->objective);
    if (plan->lower_bound_ns == 0 && !plan->proven_optimal)
        snprintf(text, 256, "nothing is known about shorter plans: %s",
                 plan->compared[PLAN_OPTIMAL].known || plan->allocator == PLAN_OPTIMAL
                     ? "the search ended without a bound"
                     : "no bound was searched for (--time-limit asks for one)");
    else if (plan->proven_optimal)
        snprintf(text, 256, "proven optimal: no plan for these devices has a smaller %s", objective);
    else if (plan->lower_bound_ns == plan_value_ns(plan))
        snprintf(text, 256, "optimal as far as the solver's search can tell: no plan with a smaller %s was left",
                 objective);
    else
        snprintf(text, 256, "no plan has a %s below %s: this one is at most %.3g%% above the optimum%s", objective,
                 report_seconds(plan->lower_bound_ns, bound),
                 100.0 * (double)(plan_value_ns(plan) - plan->lower_bound_ns) / (double)plan->lower_bound_ns,
                 plan->timed_out ? " (the time limit ended the search; another run may differ)" : "");
    return text;
}

const char *report_unknown(PlanAllocator allocator)
{
    return allocator == PLAN_OPTIMAL ? "not searched for, or not found" : "finds nothing that fits";
}

const char *report_certificate(const Plan *plan, char text[static 256])
{
    const Certificate *c = plan->certificate;
    char bound[REPORT_TEXT];
    int leaves = 0;
    *text = '\0';
    if (!c) return text;
    for (int i = 0; i < c->node_count; i++) leaves += c->nodes[i].leaf;
    snprintf(text, 256,
             "The certificate refutes every %s below %s with %d set%s of device prices over %d range%s of periods: "
             "skycc verify checks it.",
             plan_objective_name(plan->objective), report_seconds(c->bound_ns, bound), leaves, leaves == 1 ? "" : "s",
             c->interval_count, c->interval_count == 1 ? "" : "s");
    return text;
}

/* Appends to a sentence; what does not fit is left out. */
static void add(char text[static REPORT_SENTENCE], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(char text[static REPORT_SENTENCE], const char *format, ...)
{
    va_list arguments;
    size_t used = strlen(text);
    va_start(arguments, format);
    vsnprintf(text + used, REPORT_SENTENCE - used, format, arguments);
    va_end(arguments);
}

const char *report_unproven(const Report *report, char text[static REPORT_SENTENCE])
{
    const Plan *plan = report->plan;
    int64_t certified = plan->certificate ? plan->certificate->bound_ns : 0;
    char bound[REPORT_TEXT], from[REPORT_TEXT];
    text[0] = '\0';
    if (plan->lower_bound_ns > certified && plan->certificate)
        add(text, "The certificate ends at %s: from there to %s the bound rests on the solver's search.",
            report_seconds(certified, from), report_seconds(plan->lower_bound_ns, bound));
    else if (plan->lower_bound_ns > certified)
        add(text, "The bound has no certificate: it rests on the solver's search, and skycc verify cannot check it.");
    return text;
}

const char *report_strays(const Report *report, char text[static REPORT_SENTENCE])
{
    enum { MOST = 4 };
    StrayInput strays[MOST];
    int count = report->costs ? crossings_strays(report->plan, report->costs, strays, MOST) : 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++)
        add(text, "%s%.60s does not stay on %.60s: %d other device%s it.", i ? " " : "", strays[i].name, strays[i].home,
            strays[i].devices, strays[i].devices > 1 ? "s read" : " reads");
    if (count > 0) add(text, " Each needs it in its own copy of the data.");
    return text;
}

bool report_has_limit(const PlanStage *stage) { return stage->memory_limit_bytes < (int64_t)1 << 50; }

static void add_processes(char text[static REPORT_SENTENCE], const Plan *plan)
{
    int largest = 0;
    char more[REPORT_TEXT], all[REPORT_TEXT];
    for (int r = 1; r < plan->rank_count; r++)
        if (plan_rank_process(plan, r) > plan_rank_process(plan, largest)) largest = r;
    if (plan->rank_count == 0 || plan->ranks[largest].process_bytes == 0) return;
    add(text, "With the program and MPI, about %s, the largest process takes %s at most. ",
        report_bytes(plan->ranks[largest].process_bytes, more), report_bytes(plan_rank_process(plan, largest), all));
}

/* Of a step: micro-batches or, where these depend on how long rows are, rows. */
static void add_chosen(char text[static REPORT_SENTENCE], const Plan *plan)
{
    double gain = plan->microbatches_gain;
    bool packed = plan->rows.microbatch_kinds > 0;
    if (gain == 0) return;
    add(text, "%d %s were chosen: twice as many would ", packed ? (int)plan->rows.packing.rows : plan->microbatches,
        packed ? "rows a step" : "micro-batches");
    if (gain <= -1)
        add(text, "not fit. ");
    else
        add(text, "train %.1f%% %s rows a second. ", 100 * fabs(gain), gain < 0 ? "fewer" : "more");
}

const char *report_running(const Plan *plan, char text[static REPORT_SENTENCE])
{
    int recomputing = 0, split = 0;
    text[0] = '\0';
    for (int k = 0; k < plan->stage_count; k++) {
        recomputing += plan->stages[k].recompute;
        split += plan->stages[k].weight_gradient_ns > 0;
    }
    add_chosen(text, plan);
    if (plan->in_flight_limit > 0)
        add(text, "Memory is short: no stage has to keep more than %d micro-batch%s in flight. ", plan->in_flight_limit,
            plan->in_flight_limit > 1 ? "es" : "");
    if (split > 0) add(text, "Backward is split on %d of %d stages. ", split, plan->stage_count);
    if (recomputing > 0)
        add(text, "%d of %d stages run%s forward again instead of keeping its results. ", recomputing,
            plan->stage_count, recomputing == 1 ? "s" : "");
    add_processes(text, plan);
    size_t length = strlen(text);
    if (length > 0) text[length - 1] = '\0';
    return text;
}

const char *report_rows(const Plan *plan, char text[static REPORT_SENTENCE])
{
    char step[REPORT_TEXT], worst[REPORT_TEXT], padded[REPORT_TEXT];
    const RowSamples *rows = &plan->rows;
    text[0] = '\0';
    if (!rows->microbatch_kinds) return text;
    add(text,
        "Rows share lines: %u line%s of %u tokens a micro-batch; a step of %u rows takes %.1f micro-batches (%d to %d "
        "in "
        "%d samples, at most %d). ",
        rows->packing.lines, rows->packing.lines > 1 ? "s" : "", rows->packing.length, rows->packing.rows,
        row_samples_mean(rows), rows->microbatches[0].value, row_samples_worst(rows), row_samples_steps(rows),
        plan->microbatches);
    if (!plan->infeasible)
        add(text, "The step to expect is %s, the worst sampled %s, and %s if every row had %u tokens. ",
            report_seconds(plan->step_ns, step), report_seconds(plan->worst_step_ns, worst),
            report_seconds(plan->padded_step_ns, padded), rows->packing.longest);
    add(text, "Of what is computed %.1f%% is padding, of padded rows %.1f%% would be.", 100 * row_samples_padding(rows),
        100 * row_samples_padded(rows));
    return text;
}

int report_lengths(const Plan *plan, ReportBin bins[static REPORT_BINS])
{
    const RowSamples *rows = &plan->rows;
    int longest = (int)rows->packing.longest, count = longest < REPORT_BINS ? longest : REPORT_BINS, bin = 0;
    int64_t all = (int64_t)row_samples_steps(rows) * rows->packing.rows;
    if (!rows->length_kinds) return 0;
    for (int i = 0; i < count; i++)
        bins[i] = (ReportBin){i ? bins[i - 1].last + 1 : 0, (int)((int64_t)longest * (i + 1) / count), 0};
    for (int i = 0; i < rows->length_kinds; i++) {
        while (bins[bin].last < rows->lengths[i].value) bin++;
        bins[bin].share += (double)rows->lengths[i].times / (double)all;
    }
    return count;
}

const char *report_replanned(const Plan *plan, const Replanned *replanned, char text[static REPORT_SENTENCE])
{
    char value[REPORT_TEXT];
    int64_t now = plan_value_ns(plan);
    if (!replanned->found) return strcpy(text, replanned->exact ? "nothing would fit" : "nothing that fits was found");
    double percent = now > 0 ? 100 * ((double)replanned->value_ns / (double)now - 1) : 0;
    const char *bound = replanned->exact ? "" : "at most ";
    report_seconds(replanned->value_ns, value);
    if (replanned->value_ns == now)
        snprintf(text, REPORT_SENTENCE, "%s%s (no change)", bound, value);
    else
        snprintf(text, REPORT_SENTENCE, "%s%s (%+.*f%%)", bound, value, percent > -0.1 && percent < 0.1 ? 3 : 1,
                 percent);
    return text;
}

const char *report_change(const AdviceChange *change, char text[static REPORT_SENTENCE])
{
    char needed[REPORT_TEXT], limit[REPORT_TEXT];
    bool inside = change->from && strcmp(change->from, change->to) == 0;
    const char *from = change->from && *change->from ? change->from : "devices without region",
               *to = change->to && *change->to ? change->to : "devices without region";
    switch (change->kind) {
    case ADVICE_MEMORY:
        snprintf(text, REPORT_SENTENCE, "%s of memory on %.200s instead of %s",
                 report_bytes(change->memory_bytes, needed), change->device, report_bytes(change->limit_bytes, limit));
        break;
    case ADVICE_SPEED: snprintf(text, REPORT_SENTENCE, "%.200s twice as fast", change->device); break;
    case ADVICE_DEVICE: snprintf(text, REPORT_SENTENCE, "one more device like %.200s", change->device); break;
    case ADVICE_BANDWIDTH:
    case ADVICE_LATENCY:
        snprintf(text, REPORT_SENTENCE, "%s %s %.100s%s%.100s",
                 change->kind == ADVICE_LATENCY ? "half the latency" : "twice the bandwidth",
                 inside ? "inside" : "between", from, inside ? "" : " and ", inside ? "" : to);
        break;
    case ADVICE_KIND_COUNT: *text = '\0';
    }
    return text;
}

/* ---- text ---- */

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
    int64_t duration = stage->forward_ns + stage->backward_ns;
    snprintf(layers, sizeof layers, "%d-%d", stage->first_layer, stage->last_layer);
    text_format(buffer, "%5d  %-16.16s %-9s %-22.22s ", k, stage->device, layers,
                report->costs ? report->costs->layers[stage->first_layer].name : "");
    print_bar(buffer, plan->period_ns > 0 ? (double)duration / (double)plan->period_ns : 0);
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
    text_format(buffer, "  ...  %d more stages with a load of %s to %s", last - first, report_seconds(least, low),
                report_seconds(most, high));
    if (full > 0) text_format(buffer, ", %.0f%% to %.0f%% of their memory", 100 * empty, 100 * full);
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
        text_format(buffer, ": together %s a micro-batch, %s\n", report_seconds(plan_rank_work(plan, r), work),
                    report_bytes(plan_rank_memory(plan, r), memory));
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

static void print_slowest_link(Buffer *buffer, const Plan *plan)
{
    int slowest = -1;
    int64_t most = 0;
    for (int k = 0; k < plan->link_count; k++) {
        int64_t busy = plan_link_period(&plan->links[k]);
        if (busy > most) most = busy, slowest = k;
    }
    if (slowest < 0) return;
    char busy[REPORT_TEXT], latency[REPORT_TEXT], bytes[REPORT_TEXT];
    const PlanLink *link = &plan->links[slowest];
    text_format(buffer, "slowest link: stage %d to %d, %s a micro-batch in %s + %s latency\n", link->from, link->to,
                report_bytes(link->wire_bytes[plan_link_busy(link)], bytes), report_seconds(most, busy),
                report_seconds(link->latency_ns[plan_link_busy(link)], latency));
}

/* What codecs make of what crosses, link by link, and what they take. */
static void print_codings(Buffer *buffer, const Plan *plan)
{
    char text[4][REPORT_TEXT], codecs[16];
    bool any = false;
    for (int k = 0; k < plan->link_count; k++) any |= plan_link_is_coded(&plan->links[k]);
    if (plan->codecs & ~CODECS_LOSSLESS)
        text_format(buffer, "codecs: %s%s\n", codecs_print(plan->codecs, codecs), any ? "" : ", but no link needs one");
    for (int k = 0; any && k < plan->link_count; k++)
        for (int d = 0; d < 2; d++) {
            const PlanLink *link = &plan->links[k];
            text_format(buffer, "  stage %d to %d: %-4s %s -> %s, encoding %s, decoding %s\n",
                        d ? link->to : link->from, d ? link->from : link->to, codec_name(link->codecs[d]),
                        report_bytes(link->logical_bytes[d], text[0]), report_bytes(link->wire_bytes[d], text[1]),
                        report_seconds(link->coding_ns[d][0], text[2]), report_seconds(link->coding_ns[d][1], text[3]));
        }
}

static void print_comparison(Buffer *buffer, const Plan *plan)
{
    int64_t best = plan_value_ns(plan);
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    text_format(buffer, "\n           %12s %12s\n", "period", "step");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        char period[REPORT_TEXT], duration[REPORT_TEXT];
        text_format(buffer, "%c %-9s", a == (int)plan->allocator ? '*' : ' ', plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            text_format(buffer, "%12s %12s   %s\n", "-", "-", report_unknown((PlanAllocator)a));
            continue;
        }
        int64_t value = step ? c->step_ns : c->period_ns;
        text_format(buffer, "%12s %12s", report_seconds(c->period_ns, period), report_seconds(c->step_ns, duration));
        if (!c->fits)
            text_format(buffer, "   does not fit in memory");
        else if (best > 0 && a != (int)plan->allocator)
            text_format(buffer, "   %.2f x the %s", (double)value / (double)best, plan_objective_name(plan->objective));
        text_format(buffer, "\n");
    }
}

static void print_unused(Buffer *buffer, const Report *report)
{
    const Costs *costs = report->costs;
    int unused = 0;
    for (int d = 0; costs && d < costs->device_count; d++) {
        if (plan_rank_of(report->plan, costs->devices[d].name) >= 0) continue;
        if (plan_leaves_out(report->plan, costs->devices[d].name)) continue;
        if (unused < 8) text_format(buffer, "%s%s", unused ? ", " : "not used: ", costs->devices[d].name);
        unused++;
    }
    if (unused > 8) text_format(buffer, " and %d more", unused - 8);
    if (unused > 0) text_format(buffer, "\n");
    for (int i = 0; i < report->plan->without_count; i++)
        text_format(buffer, "%s%s", i ? ", " : "left out, as asked: ", report->plan->without[i]);
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
        text_format(buffer, "between regions: %d tensors a micro-batch, %s\n", plan->crossing_count - raw,
                    report_bytes(bytes, text));
    if (raw > 0)
        text_format(buffer,
                    "stages in other regions than their home's read raw tensors %d time%s (crossings in the plan)\n",
                    raw, raw > 1 ? "s" : "");
    print_sentences(buffer, report_strays(report, strays));
}

static void print_advice(Buffer *buffer, const Report *report)
{
    enum { MOST = 4 };
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE], value[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    if (advice->without_count > 0)
        text_format(buffer, "\nwithout one of the devices the %s would be:\n",
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
        text_format(buffer, "no change of a device or link was tried: there was no time left for it\n");
    else if (advice->change_count == 0)
        text_format(buffer, "none of %d changes of one device or link that were tried helps\n", advice->tried);
    else
        text_format(buffer, "what would help most:\n");
    for (int i = 0; i < advice->change_count; i++)
        text_format(buffer, "  %-26s  %s\n", report_replanned(report->plan, &advice->changes[i].plan, value),
                    report_change(&advice->changes[i], text));
}

void report_text(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    char step[REPORT_TEXT], period[REPORT_TEXT], simulated[REPORT_TEXT], proof[256], sentence[REPORT_SENTENCE];
    text_format(buffer, "%s: %d layers in %d stages on %d of %d devices, %s%d micro-batches, %s, %s\n", plan->name,
                plan->layer_count, plan->stage_count, plan->rank_count,
                report->costs ? report->costs->device_count : plan->rank_count,
                plan->rows.microbatch_kinds ? "at most " : "", plan->microbatches, plan_schedule_name(plan->schedule),
                plan_allocator_name(plan->allocator));
    text_format(buffer, "step %s (simulated %s, %.1f%% idle), period %s; objective: %s\n",
                report_seconds(plan->step_ns, step), report_seconds(plan->simulated_step_ns, simulated),
                100 * plan->bubble, report_seconds(plan->period_ns, period), plan_objective_name(plan->objective));
    if (*report_running(plan, sentence)) text_format(buffer, "%s\n", sentence);
    print_rows(buffer, plan);
    print_stages(buffer, report);
    print_slowest_link(buffer, plan);
    print_codings(buffer, plan);
    print_crossings(buffer, report);
    print_unused(buffer, report);
    print_comparison(buffer, plan);
    text_format(buffer, "\n%s\n", report_proof(plan, proof));
    print_sentences(buffer, report_unproven(report, sentence));
    print_advice(buffer, report);
}

/* ---- whichever form ---- */

void report_print(const Report *report, const char *form, Buffer *buffer)
{
    if (strcmp(form, "json") == 0)
        report_json(report, buffer);
    else if (strcmp(form, "html") == 0)
        report_html(report, buffer);
    else
        report_text(report, buffer);
}

const char *report_form(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : "text";
}
