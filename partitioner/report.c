#include "partitioner/report.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

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
    if (plan->proven_optimal)
        snprintf(text, 256, "proven optimal: no plan for these devices has a smaller %s", objective);
    else
        snprintf(text, 256, "no plan has a %s below %s: this one is at most %.3g%% above the optimum%s", objective,
                 report_seconds(plan->lower_bound_ns, bound),
                 100.0 * (double)(plan_value_ns(plan) - plan->lower_bound_ns) /
                     (double)(plan->lower_bound_ns > 0 ? plan->lower_bound_ns : 1),
                 plan->timed_out ? " (the time limit ended the search; another run may differ)" : "");
    return text;
}

int64_t report_rank_work(const Plan *plan, int rank)
{
    int64_t work = 0;
    for (int k = 0; k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        work += stage->forward_ns + stage->backward_ns;
    }
    return work;
}

int64_t report_rank_memory(const Plan *plan, int rank)
{
    int64_t bytes = 0;
    for (int k = 0; k < plan->ranks[rank].stage_count; k++)
        bytes += plan->stages[plan->ranks[rank].stages[k]].memory_bytes;
    return bytes;
}

/* ---- text ---- */

/* A petabyte and more is a way of saying that there is no limit. */
static bool has_limit(const PlanStage *stage) { return stage->memory_limit_bytes < (int64_t)1 << 50; }

static void print_bar(Buffer *buffer, double share)
{
    enum { WIDTH = 16 };
    int filled = share > 1 ? WIDTH : (int)(share * WIDTH + 0.5);
    for (int i = 0; i < WIDTH; i++) buffer_print(buffer, "%c", i < filled ? '#' : '.');
}

static void print_stage_line(Buffer *buffer, const Plan *plan, const Costs *costs, int k)
{
    const PlanStage *stage = &plan->stages[k];
    char work[REPORT_TEXT], memory[REPORT_TEXT], limit[REPORT_TEXT], layers[REPORT_TEXT];
    int64_t duration = stage->forward_ns + stage->backward_ns;
    snprintf(layers, sizeof layers, "%d-%d", stage->first_layer, stage->last_layer);
    buffer_print(buffer, "%5d  %-16.16s %-9s %-22.22s ", k, stage->device, layers,
                 costs ? costs->layers[stage->first_layer].name : "");
    print_bar(buffer, plan->period_ns > 0 ? (double)duration / (double)plan->period_ns : 0);
    buffer_print(buffer, " %9s  ", report_seconds(duration, work));
    if (has_limit(stage))
        print_bar(buffer,
                  stage->memory_limit_bytes > 0 ? (double)stage->memory_bytes / (double)stage->memory_limit_bytes : 1);
    buffer_print(buffer, " %s", report_bytes(stage->memory_bytes, memory));
    if (has_limit(stage)) buffer_print(buffer, " of %s", report_bytes(stage->memory_limit_bytes, limit));
    buffer_print(buffer, "\n");
}

static void print_stages(Buffer *buffer, const Plan *plan, const Costs *costs)
{
    enum { MOST = 32 }; /* one screen */
    buffer_print(buffer, "\nstage  %-16s %-9s %-22s %-16s %9s  memory\n", "device", "layers", "from", "load", "");
    for (int k = 0; k < plan->stage_count; k++) {
        if (plan->stage_count > MOST && k == MOST / 2) {
            int skipped = plan->stage_count - MOST;
            buffer_print(buffer, "  ...  %d more stages (all of them are in the plan and in the HTML report)\n",
                         skipped);
            k += skipped;
        }
        print_stage_line(buffer, plan, costs, k);
    }
}

static void print_slowest_link(Buffer *buffer, const Plan *plan)
{
    int slowest = -1;
    int64_t most = 0;
    for (int k = 0; k < plan->link_count; k++) {
        int64_t busy = plan->links[k].transfer_ns[0] > plan->links[k].transfer_ns[1] ? plan->links[k].transfer_ns[0]
                                                                                     : plan->links[k].transfer_ns[1];
        if (busy > most) most = busy, slowest = k;
    }
    if (slowest < 0) return;
    char busy[REPORT_TEXT], latency[REPORT_TEXT], bytes[REPORT_TEXT];
    const PlanLink *link = &plan->links[slowest];
    buffer_print(buffer, "slowest link: stage %d to %d, %s a micro-batch in %s + %s latency\n", link->from, link->to,
                 report_bytes(link->wire_bytes, bytes), report_seconds(most, busy),
                 report_seconds(link->latency_ns[0], latency));
}

static void print_comparison(Buffer *buffer, const Plan *plan)
{
    int64_t best = plan_value_ns(plan);
    bool step = plan->objective == PLAN_OBJECTIVE_STEP;
    buffer_print(buffer, "\n           %12s %12s\n", "period", "step");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        char period[REPORT_TEXT], duration[REPORT_TEXT];
        buffer_print(buffer, "%c %-9s", a == (int)plan->allocator ? '*' : ' ', plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            buffer_print(buffer, "%12s %12s   finds nothing that fits\n", "-", "-");
            continue;
        }
        int64_t value = step ? c->step_ns : c->period_ns;
        buffer_print(buffer, "%12s %12s", report_seconds(c->period_ns, period), report_seconds(c->step_ns, duration));
        if (!c->fits)
            buffer_print(buffer, "   does not fit in memory");
        else if (best > 0 && a != (int)plan->allocator)
            buffer_print(buffer, "   %.2f x the %s", (double)value / (double)best,
                         plan_objective_name(plan->objective));
        buffer_print(buffer, "\n");
    }
}

static void print_unused(Buffer *buffer, const Plan *plan, const Costs *costs)
{
    int unused = 0;
    for (int d = 0; costs && d < costs->device_count; d++) {
        bool used = false;
        for (int r = 0; r < plan->rank_count && !used; r++)
            used = strcmp(plan->ranks[r].device, costs->devices[d].name) == 0;
        if (used) continue;
        if (unused < 8) buffer_print(buffer, "%s%s", unused ? ", " : "not used: ", costs->devices[d].name);
        unused++;
    }
    if (unused > 8) buffer_print(buffer, " and %d more", unused - 8);
    if (unused > 0) buffer_print(buffer, "\n");
}

void report_text(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    char step[REPORT_TEXT], period[REPORT_TEXT], simulated[REPORT_TEXT], proof[256];
    buffer_print(buffer, "%s: %d layers in %d stages on %d of %d devices, %d micro-batches, %s, %s\n", plan->name,
                 plan->layer_count, plan->stage_count, plan->rank_count, costs ? costs->device_count : plan->rank_count,
                 plan->microbatches, plan_schedule_name(plan->schedule), plan_allocator_name(plan->allocator));
    buffer_print(buffer, "step %s (simulated %s, %.1f%% idle), period %s; objective: %s\n",
                 report_seconds(plan->step_ns, step), report_seconds(plan->simulated_step_ns, simulated),
                 100 * plan->bubble, report_seconds(plan->period_ns, period), plan_objective_name(plan->objective));
    print_stages(buffer, plan, costs);
    print_slowest_link(buffer, plan);
    print_unused(buffer, plan, costs);
    print_comparison(buffer, plan);
    buffer_print(buffer, "\n%s\n", report_proof(plan, proof));
}

/* ---- JSON ---- */

static void print_seconds(Buffer *buffer, const char *key, int64_t nanoseconds)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_number(buffer, (double)nanoseconds / 1e9);
}

static void print_device(Buffer *buffer, const Plan *plan, const DeviceCost *device)
{
    int rank = plan->rank_count - 1;
    while (rank >= 0 && strcmp(plan->ranks[rank].device, device->name) != 0) rank--;
    buffer_print(buffer, "{\"name\":");
    json_print_string(buffer, device->name);
    buffer_print(buffer, ",\"stages\":[");
    for (int k = 0; rank >= 0 && k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        buffer_print(buffer, "%s{\"stage\":%d,\"first_layer\":%d,\"last_layer\":%d}", k ? "," : "",
                     plan->ranks[rank].stages[k], stage->first_layer, stage->last_layer);
    }
    buffer_print(buffer, "]");
    print_seconds(buffer, "load_s", rank >= 0 ? report_rank_work(plan, rank) : 0);
    buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)(rank >= 0 ? report_rank_memory(plan, rank) : 0));
    if (device->memory_bytes != COSTS_NO_LIMIT)
        buffer_print(buffer, ",\"memory_limit_bytes\":%lld", (long long)device->memory_bytes);
    buffer_print(buffer, "}");
}

void report_json(const Plan *plan, const Costs *costs, Buffer *buffer)
{
    buffer_print(buffer, "{\"format\":\"skycc.report/1\",\"name\":");
    json_print_string(buffer, plan->name);
    buffer_print(buffer, ",\n \"allocate\":\"%s\",\"objective\":\"%s\",\"schedule\":\"%s\",\"microbatches\":%d",
                 plan_allocator_name(plan->allocator), plan_objective_name(plan->objective),
                 plan_schedule_name(plan->schedule), plan->microbatches);
    print_seconds(buffer, "period_s", plan->period_ns);
    print_seconds(buffer, "step_s", plan->step_ns);
    print_seconds(buffer, "simulated_step_s", plan->simulated_step_ns);
    buffer_print(buffer, ",\"bubble\":");
    json_print_number(buffer, plan->bubble);
    print_seconds(buffer, "lower_bound_s", plan->lower_bound_ns);
    buffer_print(buffer, ",\"gap\":");
    json_print_number(buffer, plan->gap);
    buffer_print(buffer, ",\"proven_optimal\":%s,\"timed_out\":%s,\n \"compared\":{",
                 plan->proven_optimal ? "true" : "false", plan->timed_out ? "true" : "false");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        buffer_print(buffer, "%s\"%s\":{\"found\":%s,\"fits\":%s", a ? "," : "", plan_allocator_name((PlanAllocator)a),
                     c->known ? "true" : "false", c->known && c->fits ? "true" : "false");
        if (c->known) {
            print_seconds(buffer, "period_s", c->period_ns);
            print_seconds(buffer, "step_s", c->step_ns);
        }
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "},\n \"devices\":[");
    for (int d = 0; d < costs->device_count; d++) {
        buffer_print(buffer, d ? ",\n  " : "\n  ");
        print_device(buffer, plan, &costs->devices[d]);
    }
    buffer_print(buffer, "]}\n");
}

void report_print(const Plan *plan, const Costs *costs, const char *form, Buffer *buffer)
{
    if (strcmp(form, "json") == 0)
        report_json(plan, costs, buffer);
    else if (strcmp(form, "html") == 0)
        report_html(plan, costs, buffer);
    else
        report_text(plan, costs, buffer);
}

bool report_write(const Plan *plan, const Costs *costs, const char *path, Diagnostics *diagnostics)
{
    const char *dot = strrchr(path, '.');
    Buffer buffer = {0};
    report_print(plan, costs, dot ? dot + 1 : "text", &buffer);
    bool ok = file_write_all(path, buffer.bytes, buffer.size, diagnostics);
    buffer_free(&buffer);
    return ok;
}
