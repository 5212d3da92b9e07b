/* plan.json, written. */
#include "partitioner/certificate.h"
#include "partitioner/plan.h"
#include "partitioner/plan_groupings.h"
#include "partitioner/plan_norm.h"
#include "partitioner/replica_sums.h"
#include "partitioner/site_crossings.h"

void plan_add_times(JsonWriter *json, const Plan *plan)
{
    plan_add_seconds(json, "period_s", plan->period_ns);
    plan_add_seconds(json, "step_s", plan->step_ns);
    if (plan->rows.microbatch_kinds) {
        plan_add_seconds(json, "worst_step_s", plan->worst_step_ns);
        plan_add_seconds(json, "padded_step_s", plan->padded_step_ns);
    }
    plan_add_seconds(json, "simulated_step_s", plan->simulated_step_ns);
    json_add_number(json, "bubble", plan->bubble);
    plan_add_seconds(json, "lower_bound_s", plan->lower_bound_ns);
    json_add_number(json, "gap", plan->gap);
    json_add_bool(json, "proven_optimal", plan->proven_optimal);
    json_add_bool(json, "timed_out", plan->timed_out);
}

static void add_stage(JsonWriter *json, const PlanStage *stage)
{
    json_open(json, NULL, '{');
    json_add_string(json, "device", stage->device);
    json_add_integer(json, "rank", stage->rank);
    json_add_integer(json, "first_layer", stage->first_layer);
    json_add_integer(json, "last_layer", stage->last_layer);
    plan_add_seconds(json, "forward_s", stage->forward_ns);
    plan_add_seconds(json, "backward_s", stage->backward_ns);
    plan_add_seconds(json, "update_s", stage->update_ns);
    if (stage->sum_ns) plan_add_seconds(json, "sum_s", stage->sum_ns);
    if (stage->weight_gradient_ns > 0) plan_add_seconds(json, "weight_gradient_s", stage->weight_gradient_ns);
    if (stage->recompute) json_add_bool(json, "recompute", true);
    json_add_integer(json, "memory_bytes", stage->memory_bytes);
    if (stage->memory_limit_bytes != COSTS_NO_LIMIT)
        json_add_integer(json, "memory_limit_bytes", stage->memory_limit_bytes);
    json_add_integer(json, "in_flight", stage->in_flight);
    json_close(json, '}');
}

/* Of both directions, in one where they agree. */
static void add_bytes(JsonWriter *json, const char *key, const int64_t bytes[2])
{
    if (bytes[0] == bytes[1])
        json_add_integer(json, key, bytes[0]);
    else
        json_add_raw(json, key, "[%lld,%lld]", (long long)bytes[0], (long long)bytes[1]);
}

static void add_link(JsonWriter *json, const PlanLink *link)
{
    bool coded = plan_link_is_coded(link);
    json_open(json, NULL, '{');
    json_add_integer(json, "from", link->from);
    json_add_integer(json, "to", link->to);
    add_bytes(json, "logical_bytes", link->logical_bytes);
    add_bytes(json, "wire_bytes", link->wire_bytes);
    json_add_string(json, "dtype", dtype_name(link->dtype));
    if (coded)
        json_add_strings(json, "codec", (const char *const[]){codec_name(link->codecs[0]), codec_name(link->codecs[1])},
                         2);
    else
        json_add_string(json, "codec", "identity");
    plan_add_seconds(json, "latency_s", link->latency_ns[0]);
    plan_add_seconds(json, "seconds", link->transfer_ns[0]);
    plan_add_seconds(json, "backward_latency_s", link->latency_ns[1]);
    plan_add_seconds(json, "backward_seconds", link->transfer_ns[1]);
    static const char *const coding[] = {"encode_s", "decode_s", "backward_encode_s", "backward_decode_s"};
    for (int i = 0; i < 4 && coded; i++) plan_add_seconds(json, coding[i], link->coding_ns[i / 2][i % 2]);
    if (link->half_duplex) json_add_string(json, "duplex", "half");
    json_close(json, '}');
}

static void add_crossing(JsonWriter *json, const PlanCrossing *crossing)
{
    json_open(json, NULL, '{');
    json_add_string(json, "tensor", crossing->tensor);
    json_add_integer(json, "bytes", crossing->bytes);
    json_add_bool(json, "raw", crossing->raw);
    if (!crossing->raw) json_add_integer(json, "from_stage", crossing->from_stage);
    json_add_integer(json, "to_stage", crossing->to_stage);
    json_add_string(json, "from_region", crossing->from_region);
    json_add_string(json, "to_region", crossing->to_region);
    json_close(json, '}');
}

static void add_rank(JsonWriter *json, const PlanRank *rank)
{
    json_open(json, NULL, '{');
    json_add_string(json, "device", rank->device);
    json_add_integer(json, "replica", rank->replica);
    json_open(json, "stages", '[');
    for (int k = 0; k < rank->stage_count; k++) json_add_integer(json, NULL, rank->stages[k]);
    json_close(json, ']');
    if (rank->process_bytes > 0) json_add_integer(json, "process_bytes", rank->process_bytes);
    if (rank->cores > 0) json_add_integer(json, "host", rank->host);
    if (rank->cores > 0) json_add_number(json, "cores", rank->cores);
    if (rank->sum_ns > 0) plan_add_seconds(json, "sum_s", rank->sum_ns);
    if (rank->sum_latency_ns > 0) plan_add_seconds(json, "sum_latency_s", rank->sum_latency_ns);
    json_close(json, '}');
}

static void add_schedule(JsonWriter *json, const PlanRank *rank)
{
    json_open(json, NULL, '[');
    for (int k = 0; k < rank->instruction_count; k++) {
        const PlanInstruction *i = &rank->instructions[k];
        json_open(json, NULL, '[');
        json_add_string(json, NULL, plan_op_name(i->op));
        json_add_integer(json, NULL, i->stage);
        json_add_integer(json, NULL, i->microbatch);
        json_add_integer(json, NULL, i->slot);
        json_close(json, ']');
    }
    json_close(json, ']');
}

/* Which layers are on which device. */
static void add_pins(JsonWriter *json, const char *key, const PlanPin *pins, int count)
{
    json_open(json, key, '[');
    for (int i = 0; i < count; i++) {
        json_open(json, NULL, '{');
        json_add_integer(json, "first_layer", pins[i].first_layer);
        json_add_integer(json, "last_layer", pins[i].last_layer);
        json_add_string(json, "device", pins[i].device);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void add_compared(JsonWriter *json, const Plan *plan)
{
    json_open(json_break(json, "\n "), "compared", '{');
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        const char *key = plan_allocator_name((PlanAllocator)a);
        if (!c->known) {
            json_add_null(json, key);
            continue;
        }
        json_open(json, key, '{');
        json_add_bool(json, "fits", c->fits);
        plan_add_seconds(json, "period_s", c->period_ns);
        plan_add_seconds(json, "step_s", c->step_ns);
        if (c->stage_count > 0) add_pins(json, "stages", c->stages, c->stage_count);
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void add_head(JsonWriter *json, const Plan *plan)
{
    char codecs[16];
    json_add_string(json, "format", "skycc.plan/1");
    json_add_string(json_break(json, " "), "name", plan->name);
    json_add_string(json_break(json, "\n "), "model_hash", plan->model_hash);
    json_add_string(json, "costs_hash", plan->costs_hash);
    json_add_string(json_break(json, "\n "), "allocate", plan_allocator_name(plan->allocator));
    json_add_string(json, "objective", plan_objective_name(plan->objective));
    json_add_string(json, "schedule_kind", plan_schedule_name(plan->schedule));
    json_add_string(json, "recompute", plan_recompute_name(plan->recompute));
    json_add_integer(json, "microbatches", plan->microbatches);
    json_add_integer(json, "layers", plan->layer_count);
    if (plan->processors > 0) json_add_integer(json, "processors", plan->processors);
    if (plan->sum_ns > 0) plan_add_seconds(json, "sum_s", plan->sum_ns);
    if (plan->microbatches_gain != 0) json_add_number(json, "microbatches_gain", plan->microbatches_gain);
    if (plan->codecs & ~CODECS_LOSSLESS) json_add_string(json, "codecs", codecs_print(plan->codecs, codecs));
    if (plan->schedule_forced) json_add_bool(json, "schedule_forced", true);
    if (plan->in_flight_limit > 0) json_add_integer(json, "in_flight_limit", plan->in_flight_limit);
    plan_add_times(json, plan);
    if (plan->infeasible) json_add_bool(json, "infeasible", true);
    row_samples_add(&plan->rows, json);
    batch_choice_add(&plan->batch, json);
}

static void add_requests(JsonWriter *json, const Plan *plan)
{
    json_add_strings(json_break(json, "\n "), "without", plan->without, (size_t)plan->without_count);
    add_pins(json, "pins", plan->pins, plan->pin_count);
}

/* Of several, what each has as a plan of its own, but for what the whole plan lists. */
static void add_replica(JsonWriter *json, const PlanReplica *replica)
{
    json_open(json, NULL, '{');
    json_open(json, "ranks", '[');
    for (int r = 0; r < replica->rank_count; r++) json_add_integer(json, NULL, replica->first_rank + r);
    json_close(json, ']');
    if (replica->rows < 0)
        json_add_null(json, "rows");
    else
        json_add_integer(json, "rows", replica->rows);
    json_add_integer(json, "microbatches", replica->microbatches);
    if (replica->pipeline) {
        json_open(json, "plan", '{');
        add_head(json, replica->pipeline);
        add_requests(json, replica->pipeline);
        add_compared(json, replica->pipeline);
        plan_norm_print(replica->pipeline, json);
        certificate_print(replica->pipeline->certificate, json_break(json, "\n "));
        json_close(json, '}');
    }
    json_close(json, '}');
}

static void open_list(JsonWriter *json, const char *key) { json_open(json_break(json, "\n "), key, '['); }

/* A list whose items have lines of their own. */
#define ADD_LIST(json, key, add, items, count)                                                                         \
    do {                                                                                                               \
        open_list(json, key);                                                                                          \
        for (int item = 0; item < (count); item++) {                                                                   \
            add(json_break(json, "\n  "), &(items)[item]);                                                             \
        }                                                                                                              \
        json_close(json, ']');                                                                                         \
    } while (0)

void plan_print(const Plan *plan, Buffer *buffer)
{
    JsonWriter json = {.buffer = buffer};
    json_open(&json, NULL, '{');
    add_head(&json, plan);
    add_requests(&json, plan);
    add_compared(&json, plan);
    ADD_LIST(&json, "stages", add_stage, plan->stages, plan->stage_count);
    ADD_LIST(&json, "links", add_link, plan->links, plan->link_count);
    ADD_LIST(&json, "crossings", add_crossing, plan->crossings, plan->crossing_count);
    site_crossings_print(plan, &json);
    plan_norm_print(plan, &json);
    ADD_LIST(&json, "ranks", add_rank, plan->ranks, plan->rank_count);
    ADD_LIST(&json, "replicas", add_replica, plan->replicas, plan->replica_count);
    replica_sums_print_order(plan, &json);
    plan_groupings_print(plan, &json);
    ADD_LIST(&json, "schedule", add_schedule, plan->ranks, plan->rank_count);
    certificate_print(plan->certificate, json_break(&json, "\n "));
    json_close(&json, '}');
    buffer_print(buffer, "\n");
}
