#include "partitioner/report/report.h"

#include <string.h>

#include "base/json.h"

static void print_name(Buffer *buffer, const char *key, const char *name)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_string(buffer, name);
}

static const char *truth(bool value) { return value ? "true" : "false"; }

static void print_device(Buffer *buffer, const Plan *plan, const DeviceCost *device)
{
    int rank = plan_rank_of(plan, device->name);
    buffer_print(buffer, "{\"used\":%s", truth(rank >= 0));
    print_name(buffer, "name", device->name);
    buffer_print(buffer, ",\"stages\":[");
    for (int k = 0; rank >= 0 && k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        buffer_print(buffer, "%s{\"stage\":%d,\"first_layer\":%d,\"last_layer\":%d,\"in_flight\":%d,\"recompute\":%s}",
                     k ? "," : "", plan->ranks[rank].stages[k], stage->first_layer, stage->last_layer, stage->in_flight,
                     truth(stage->recompute));
    }
    buffer_print(buffer, "]");
    plan_print_seconds(buffer, "load_s", rank >= 0 ? plan_rank_work(plan, rank) : 0);
    buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)(rank >= 0 ? plan_rank_memory(plan, rank) : 0));
    buffer_print(buffer, ",\"process_bytes\":%lld", (long long)(rank >= 0 ? plan_rank_process(plan, rank) : 0));
    if (device->memory_bytes != COSTS_NO_LIMIT)
        buffer_print(buffer, ",\"memory_limit_bytes\":%lld", (long long)device->memory_bytes);
    buffer_print(buffer, "}");
}

static void print_link(Buffer *buffer, const Plan *plan, const PlanLink *link)
{
    buffer_print(buffer, "{\"from\":%d,\"to\":%d", link->from, link->to);
    print_name(buffer, "from_device", plan->stages[link->from].device);
    print_name(buffer, "to_device", plan->stages[link->to].device);
    buffer_print(buffer, ",\"bytes\":%lld", (long long)link->wire_bytes[plan_link_busy(link)]);
    plan_print_seconds(buffer, "busy_s", plan_link_period(link));
    plan_print_seconds(buffer, "latency_s", link->latency_ns[plan_link_busy(link)]);
    if (plan_link_is_coded(link)) {
        buffer_print(buffer, ",\"codec\":[\"%s\",\"%s\"],\"logical_bytes\":[%lld,%lld],\"wire_bytes\":[%lld,%lld]",
                     codec_name(link->codecs[0]), codec_name(link->codecs[1]), (long long)link->logical_bytes[0],
                     (long long)link->logical_bytes[1], (long long)link->wire_bytes[0], (long long)link->wire_bytes[1]);
        plan_print_seconds(buffer, "coding_s",
                           link->coding_ns[0][0] + link->coding_ns[0][1] + link->coding_ns[1][0] +
                               link->coding_ns[1][1]);
    }
    buffer_print(buffer, "}");
}

static void print_compared(Buffer *buffer, const Plan *plan)
{
    buffer_print(buffer, ",\n \"compared\":{");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        buffer_print(buffer, "%s\"%s\":{\"found\":%s,\"fits\":%s", a ? "," : "", plan_allocator_name((PlanAllocator)a),
                     truth(c->known), truth(c->known && c->fits));
        if (c->known) {
            plan_print_seconds(buffer, "period_s", c->period_ns);
            plan_print_seconds(buffer, "step_s", c->step_ns);
        }
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "}");
}

static void print_replanned(Buffer *buffer, const Plan *plan, const Replanned *replanned)
{
    buffer_print(buffer, ",\"found\":%s,\"exact\":%s", truth(replanned->found), truth(replanned->exact));
    if (!replanned->found) return;
    buffer_print(buffer, ",\"%s_s\":", plan_objective_name(plan->objective));
    json_print_number(buffer, (double)replanned->value_ns / 1e9);
}

static void print_advice(Buffer *buffer, const Report *report)
{
    static const char *const kinds[ADVICE_KIND_COUNT] = {"memory", "speed", "device", "bandwidth", "latency"};
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    buffer_print(buffer, ",\n \"without_one_device\":[");
    for (int i = 0; i < advice->without_count; i++) {
        buffer_print(buffer, "%s\n  {\"alike\":%d", i ? "," : "", advice->without[i].alike);
        print_name(buffer, "device", advice->without[i].device);
        print_replanned(buffer, report->plan, &advice->without[i].plan);
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "],\n \"changes_that_help\":[");
    for (int i = 0; i < advice->change_count; i++) {
        const AdviceChange *change = &advice->changes[i];
        buffer_print(buffer, "%s\n  {\"kind\":\"%s\"", i ? "," : "", kinds[change->kind]);
        print_name(buffer, "change", report_change(change, text));
        if (change->device) print_name(buffer, "device", change->device);
        if (change->from) print_name(buffer, "from_region", change->from);
        if (change->to) print_name(buffer, "to_region", change->to);
        if (change->kind == ADVICE_MEMORY)
            buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)change->memory_bytes);
        print_replanned(buffer, report->plan, &change->plan);
        plan_print_seconds(buffer, "gain_s", change->gain_ns);
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "]");
}

static void print_rows(Buffer *buffer, const Plan *plan)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"expected_microbatches", row_samples_mean(&plan->rows)},
                   {"padding", row_samples_padding(&plan->rows)},
                   {"padding_if_padded", row_samples_padded(&plan->rows)}};
    if (!plan->rows.microbatch_kinds) return;
    row_samples_print(&plan->rows, buffer);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        buffer_print(buffer, ",\"%s\":", numbers[i].key);
        json_print_number(buffer, numbers[i].value);
    }
}

void report_json(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    const Costs *costs = report->costs;
    char proof[256], sentence[REPORT_SENTENCE];
    buffer_print(buffer, "{\"format\":\"skycc.report/1\"");
    print_name(buffer, "name", plan->name);
    buffer_print(buffer, ",\n \"allocate\":\"%s\",\"objective\":\"%s\",\"schedule\":\"%s\",\"microbatches\":%d",
                 plan_allocator_name(plan->allocator), plan_objective_name(plan->objective),
                 plan_schedule_name(plan->schedule), plan->microbatches);
    plan_print_times(buffer, plan);
    print_rows(buffer, plan);
    print_name(buffer, "proof", report_proof(plan, proof));
    print_name(buffer, "certificate", report_certificate(plan, proof));
    print_name(buffer, "unproven", report_unproven(report, sentence));
    print_name(buffer, "kept_data_read_elsewhere", report_strays(report, sentence));
    print_compared(buffer, plan);
    buffer_print(buffer, ",\n \"devices\":[");
    for (int d = 0; d < costs->device_count; d++) {
        buffer_print(buffer, d ? ",\n  " : "\n  ");
        print_device(buffer, plan, &costs->devices[d]);
    }
    buffer_print(buffer, "],\n \"links\":[");
    for (int k = 0; k < plan->link_count; k++) {
        buffer_print(buffer, k ? ",\n  " : "\n  ");
        print_link(buffer, plan, &plan->links[k]);
    }
    buffer_print(buffer, "]");
    print_advice(buffer, report);
    buffer_print(buffer, "}\n");
}
