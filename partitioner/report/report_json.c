#include "base/json_writer.h"
#include "partitioner/report/report.h"

static void add_device(JsonWriter *json, const Report *report, int index)
{
    const Plan *plan = report->plan;
    const DeviceCost *device = &report->costs->devices[index];
    int rank = plan_rank_of(plan, device->name);
    json_open(json, NULL, '{');
    json_add_bool(json, "used", rank >= 0);
    if (report->use && report->use->reason[index]) json_add_string(json, "idle", report->use->reason[index]);
    json_add_string(json, "name", device->name);
    json_open(json, "stages", '[');
    for (int k = 0; rank >= 0 && k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        json_open(json, NULL, '{');
        json_add_integer(json, "stage", plan->ranks[rank].stages[k]);
        json_add_integer(json, "first_layer", stage->first_layer);
        json_add_integer(json, "last_layer", stage->last_layer);
        json_add_integer(json, "in_flight", stage->in_flight);
        json_add_bool(json, "recompute", stage->recompute);
        json_close(json, '}');
    }
    json_close(json, ']');
    plan_add_seconds(json, "load_s", rank >= 0 ? plan_rank_work(plan, rank) : 0);
    json_add_integer(json, "memory_bytes", rank >= 0 ? plan_rank_memory(plan, rank) : 0);
    json_add_integer(json, "process_bytes", rank >= 0 ? plan_rank_process(plan, rank) : 0);
    if (device->memory_bytes != COSTS_NO_LIMIT) json_add_integer(json, "memory_limit_bytes", device->memory_bytes);
    json_close(json, '}');
}

static void add_link(JsonWriter *json, const Plan *plan, const PlanLink *link)
{
    int64_t coding = link->coding_ns[0][0] + link->coding_ns[0][1] + link->coding_ns[1][0] + link->coding_ns[1][1];
    json_open(json, NULL, '{');
    json_add_integer(json, "from", link->from);
    json_add_integer(json, "to", link->to);
    json_add_string(json, "from_device", plan->stages[link->from].device);
    json_add_string(json, "to_device", plan->stages[link->to].device);
    json_add_integer(json, "bytes", link->wire_bytes[plan_link_busy(link)]);
    plan_add_seconds(json, "busy_s", plan_link_period(link));
    plan_add_seconds(json, "latency_s", link->latency_ns[plan_link_busy(link)]);
    if (plan_link_is_coded(link)) {
        json_add_strings(json, "codec", (const char *const[]){codec_name(link->codecs[0]), codec_name(link->codecs[1])},
                         2);
        json_add_integers(json, "logical_bytes", link->logical_bytes, 2);
        json_add_integers(json, "wire_bytes", link->wire_bytes, 2);
        plan_add_seconds(json, "coding_s", coding);
    }
    json_close(json, '}');
}

static void add_compared(JsonWriter *json, const Plan *plan)
{
    json_open(json_break(json, "\n "), "compared", '{');
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        json_open(json, plan_allocator_name((PlanAllocator)a), '{');
        json_add_bool(json, "found", c->known);
        json_add_bool(json, "fits", c->known && c->fits);
        if (c->known) {
            plan_add_seconds(json, "period_s", c->period_ns);
            plan_add_seconds(json, "step_s", c->step_ns);
        }
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void add_replanned(JsonWriter *json, const Plan *plan, const Replanned *replanned)
{
    json_add_bool(json, "found", replanned->found);
    json_add_bool(json, "exact", replanned->exact);
    if (!replanned->found) return;
    plan_add_seconds(json, plan->objective == PLAN_OBJECTIVE_STEP ? "step_s" : "period_s", replanned->value_ns);
    if (replanned->simulated_ns > 0) plan_add_seconds(json, "simulated_step_s", replanned->simulated_ns);
}

static void add_advice(JsonWriter *json, const Report *report)
{
    static const char *const kinds[ADVICE_KIND_COUNT] = {"memory",    "speed",   "device",
                                                         "bandwidth", "latency", "microbatches"};
    const Advice *advice = report->advice;
    char text[REPORT_SENTENCE];
    if (!advice || !advice->given) return;
    json_open(json_break(json, "\n "), "without_one_device", '[');
    for (int i = 0; i < advice->without_count; i++) {
        json_open(json_break(json, "\n  "), NULL, '{');
        json_add_integer(json, "alike", advice->without[i].alike);
        json_add_string(json, "device", advice->without[i].device);
        add_replanned(json, report->plan, &advice->without[i].plan);
        json_close(json, '}');
    }
    json_close(json, ']');
    json_open(json_break(json, "\n "), "changes_that_help", '[');
    for (int i = 0; i < advice->change_count; i++) {
        const AdviceChange *change = &advice->changes[i];
        json_open(json_break(json, "\n  "), NULL, '{');
        json_add_string(json, "kind", kinds[change->kind]);
        json_add_string(json, "change", report_change(change, text));
        if (change->device) json_add_string(json, "device", change->device);
        if (change->from) json_add_string(json, "from_region", change->from);
        if (change->to) json_add_string(json, "to_region", change->to);
        if (change->kind == ADVICE_MEMORY) json_add_integer(json, "memory_bytes", change->memory_bytes);
        if (change->rows) json_add_integer(json, "microbatch_rows", change->rows);
        add_replanned(json, report->plan, &change->plan);
        plan_add_seconds(json, "gain_s", change->gain_ns);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void add_rows(JsonWriter *json, const RowSamples *rows)
{
    if (!rows->microbatch_kinds) return;
    row_samples_add(rows, json);
    json_add_number(json, "expected_microbatches", row_samples_mean(rows));
    json_add_number(json, "padding", row_samples_padding(rows));
    json_add_number(json, "padding_if_padded", row_samples_padded(rows));
}

static void add_sentences(JsonWriter *json, const Report *report)
{
    char sentence[REPORT_SENTENCE];
    json_add_string(json, "proof", report_proof(report, sentence));
    json_add_string(json, "certificate", report_certificate(report->plan, sentence));
    json_add_string(json, "unproven", report_unproven(report->plan, sentence));
    json_add_string(json, "replicas", report_replicas(report, sentence));
    json_add_string(json, "kept_data_read_elsewhere", report_strays(report, sentence));
}

void report_json(const Report *report, Buffer *buffer)
{
    const Plan *plan = report->plan;
    JsonWriter json = {.buffer = buffer};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", "skycc.report/1");
    json_add_string(&json, "name", plan->name);
    json_add_string(json_break(&json, "\n "), "allocate", plan_allocator_name(plan->allocator));
    json_add_string(&json, "objective", plan_objective_name(plan->objective));
    json_add_string(&json, "schedule", plan_schedule_name(plan->schedule));
    json_add_integer(&json, "microbatches", plan->microbatches);
    plan_add_seconds(&json, "step_time_s", plan->simulated_step_ns);
    plan_add_times(&json, plan);
    if (report->use) json_add_number(&json, "speed_used", report->use->speed);
    if (report->use) plan_add_seconds(&json, "division_bound_s", report->use->bound_ns);
    if (report->use) plan_add_seconds(&json, "computing_bound_s", report->use->computing_ns);
    add_rows(&json, &plan->rows);
    batch_choice_add(&plan->batch, &json);
    add_sentences(&json, report);
    add_compared(&json, plan);
    json_open(json_break(&json, "\n "), "devices", '[');
    for (int d = 0; d < report->costs->device_count; d++) add_device(json_break(&json, "\n  "), report, d);
    json_close(&json, ']');
    json_open(json_break(&json, "\n "), "links", '[');
    for (int k = 0; k < plan->link_count; k++) add_link(json_break(&json, "\n  "), plan, &plan->links[k]);
    json_close(&json, ']');
    add_advice(&json, report);
    json_close(&json, '}');
    buffer_print(buffer, "\n");
}
