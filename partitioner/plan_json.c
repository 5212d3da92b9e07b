/* plan.json, written. */
#include <string.h>

#include "base/json.h"
#include "partitioner/certificate.h"
#include "partitioner/plan.h"
#include "partitioner/plan_norm.h"
#include "partitioner/site_crossings.h"

void plan_print_seconds(Buffer *buffer, const char *key, int64_t nanoseconds)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_number(buffer, (double)nanoseconds / 1e9);
}

void plan_print_times(Buffer *buffer, const Plan *plan)
{
    plan_print_seconds(buffer, "period_s", plan->period_ns);
    plan_print_seconds(buffer, "step_s", plan->step_ns);
    if (plan->rows.microbatch_kinds) {
        plan_print_seconds(buffer, "worst_step_s", plan->worst_step_ns);
        plan_print_seconds(buffer, "padded_step_s", plan->padded_step_ns);
    }
    plan_print_seconds(buffer, "simulated_step_s", plan->simulated_step_ns);
    buffer_print(buffer, ",\"bubble\":");
    json_print_number(buffer, plan->bubble);
    plan_print_seconds(buffer, "lower_bound_s", plan->lower_bound_ns);
    buffer_print(buffer, ",\"gap\":");
    json_print_number(buffer, plan->gap);
    buffer_print(buffer, ",\"proven_optimal\":%s,\"timed_out\":%s", plan->proven_optimal ? "true" : "false",
                 plan->timed_out ? "true" : "false");
}

static void print_stage(Buffer *buffer, const PlanStage *stage)
{
    buffer_print(buffer, "{\"device\":");
    json_print_string(buffer, stage->device);
    buffer_print(buffer, ",\"rank\":%d,\"first_layer\":%d,\"last_layer\":%d", stage->rank, stage->first_layer,
                 stage->last_layer);
    plan_print_seconds(buffer, "forward_s", stage->forward_ns);
    plan_print_seconds(buffer, "backward_s", stage->backward_ns);
    plan_print_seconds(buffer, "update_s", stage->update_ns);
    if (stage->weight_gradient_ns > 0) plan_print_seconds(buffer, "weight_gradient_s", stage->weight_gradient_ns);
    if (stage->recompute) buffer_print(buffer, ",\"recompute\":true");
    buffer_print(buffer, ",\"memory_bytes\":%lld", (long long)stage->memory_bytes);
    if (stage->memory_limit_bytes != COSTS_NO_LIMIT)
        buffer_print(buffer, ",\"memory_limit_bytes\":%lld", (long long)stage->memory_limit_bytes);
    buffer_print(buffer, ",\"in_flight\":%d}", stage->in_flight);
}

/* Of both directions, in one where they agree. */
static void print_bytes(Buffer *buffer, const char *key, const int64_t bytes[2])
{
    if (bytes[0] == bytes[1])
        buffer_print(buffer, ",\"%s\":%lld", key, (long long)bytes[0]);
    else
        buffer_print(buffer, ",\"%s\":[%lld,%lld]", key, (long long)bytes[0], (long long)bytes[1]);
}

static void print_link(Buffer *buffer, const PlanLink *link)
{
    buffer_print(buffer, "{\"from\":%d,\"to\":%d", link->from, link->to);
    print_bytes(buffer, "logical_bytes", link->logical_bytes);
    print_bytes(buffer, "wire_bytes", link->wire_bytes);
    buffer_print(buffer, ",\"dtype\":\"%s\",\"codec\":", dtype_name(link->dtype));
    if (plan_link_is_coded(link))
        buffer_print(buffer, "[\"%s\",\"%s\"]", codec_name(link->codecs[0]), codec_name(link->codecs[1]));
    else
        buffer_print(buffer, "\"identity\"");
    plan_print_seconds(buffer, "latency_s", link->latency_ns[0]);
    plan_print_seconds(buffer, "seconds", link->transfer_ns[0]);
    plan_print_seconds(buffer, "backward_latency_s", link->latency_ns[1]);
    plan_print_seconds(buffer, "backward_seconds", link->transfer_ns[1]);
    if (plan_link_is_coded(link)) {
        plan_print_seconds(buffer, "encode_s", link->coding_ns[0][0]);
        plan_print_seconds(buffer, "decode_s", link->coding_ns[0][1]);
        plan_print_seconds(buffer, "backward_encode_s", link->coding_ns[1][0]);
        plan_print_seconds(buffer, "backward_decode_s", link->coding_ns[1][1]);
    }
    if (link->half_duplex) buffer_print(buffer, ",\"duplex\":\"half\"");
    buffer_print(buffer, "}");
}

static void print_crossing(Buffer *buffer, const PlanCrossing *crossing)
{
    buffer_print(buffer, "{\"tensor\":");
    json_print_string(buffer, crossing->tensor);
    buffer_print(buffer, ",\"bytes\":%lld,\"raw\":%s", (long long)crossing->bytes, crossing->raw ? "true" : "false");
    if (!crossing->raw) buffer_print(buffer, ",\"from_stage\":%d", crossing->from_stage);
    buffer_print(buffer, ",\"to_stage\":%d,\"from_region\":", crossing->to_stage);
    json_print_string(buffer, crossing->from_region);
    buffer_print(buffer, ",\"to_region\":");
    json_print_string(buffer, crossing->to_region);
    buffer_print(buffer, "}");
}

static void print_rank(Buffer *buffer, const PlanRank *rank)
{
    buffer_print(buffer, "{\"device\":");
    json_print_string(buffer, rank->device);
    buffer_print(buffer, ",\"replica\":%d,\"stages\":[", rank->replica);
    for (int k = 0; k < rank->stage_count; k++) buffer_print(buffer, "%s%d", k ? "," : "", rank->stages[k]);
    buffer_print(buffer, "]");
    if (rank->process_bytes > 0) buffer_print(buffer, ",\"process_bytes\":%lld", (long long)rank->process_bytes);
    buffer_print(buffer, "}");
}

static char *put_text(char *at, const char *text)
{
    size_t length = strlen(text);
    memcpy(at, text, length);
    return at + length;
}

static char *put_int(char *at, int value)
{
    char digits[12];
    int count = 0;
    int64_t rest = value < 0 ? -(int64_t)value : value;
    do digits[count++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0) *at++ = '-';
    while (count > 0) *at++ = digits[--count];
    return at;
}

/* By hand: printf takes longer for the lists of a large plan than all but the search. */
static void print_schedule(Buffer *buffer, const PlanRank *rank)
{
    buffer_print(buffer, "[");
    for (int k = 0; k < rank->instruction_count; k++) {
        const PlanInstruction *i = &rank->instructions[k];
        char text[128], *at = put_text(put_text(text, k ? ",[\"" : "[\""), plan_op_name(i->op));
        at = put_int(put_text(at, "\","), i->stage);
        at = put_int(put_text(at, ","), i->microbatch);
        at = put_text(put_int(put_text(at, ","), i->slot), "]");
        buffer_append(buffer, text, (size_t)(at - text));
    }
    buffer_print(buffer, "]");
}

static void print_compared(Buffer *buffer, const Plan *plan)
{
    buffer_print(buffer, ",\n \"compared\":{");
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const PlanComparison *c = &plan->compared[a];
        buffer_print(buffer, "%s\"%s\":", a ? "," : "", plan_allocator_name((PlanAllocator)a));
        if (!c->known) {
            buffer_print(buffer, "null");
            continue;
        }
        buffer_print(buffer, "{\"fits\":%s", c->fits ? "true" : "false");
        plan_print_seconds(buffer, "period_s", c->period_ns);
        plan_print_seconds(buffer, "step_s", c->step_ns);
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "}");
}

static void print_head(Buffer *buffer, const Plan *plan)
{
    buffer_print(buffer, "{\"format\":\"skycc.plan/1\", \"name\":");
    json_print_string(buffer, plan->name);
    buffer_print(buffer, ",\n \"model_hash\":");
    json_print_string(buffer, plan->model_hash);
    buffer_print(buffer, ",\"costs_hash\":");
    json_print_string(buffer, plan->costs_hash);
    buffer_print(buffer,
                 ",\n "
                 "\"allocate\":\"%s\",\"objective\":\"%s\",\"schedule_kind\":\"%s\",\"recompute\":\"%s\","
                 "\"microbatches\":%d,\"layers\":%d",
                 plan_allocator_name(plan->allocator), plan_objective_name(plan->objective),
                 plan_schedule_name(plan->schedule), plan_recompute_name(plan->recompute), plan->microbatches,
                 plan->layer_count);
    if (plan->microbatches_gain != 0) {
        buffer_print(buffer, ",\"microbatches_gain\":");
        json_print_number(buffer, plan->microbatches_gain);
    }
    char codecs[16];
    if (plan->codecs & ~CODECS_LOSSLESS) buffer_print(buffer, ",\"codecs\":\"%s\"", codecs_print(plan->codecs, codecs));
    if (plan->in_flight_limit > 0) buffer_print(buffer, ",\"in_flight_limit\":%d", plan->in_flight_limit);
    plan_print_times(buffer, plan);
    if (plan->infeasible) buffer_print(buffer, ",\"infeasible\":true");
    row_samples_print(&plan->rows, buffer);
}

static void print_requests(Buffer *buffer, const Plan *plan)
{
    buffer_print(buffer, ",\n \"without\":[");
    for (int i = 0; i < plan->without_count; i++) {
        if (i) buffer_print(buffer, ",");
        json_print_string(buffer, plan->without[i]);
    }
    buffer_print(buffer, "],\"pins\":[");
    for (int i = 0; i < plan->pin_count; i++) {
        const PlanPin *pin = &plan->pins[i];
        buffer_print(buffer, "%s{\"first_layer\":%d,\"last_layer\":%d,\"device\":", i ? "," : "", pin->first_layer,
                     pin->last_layer);
        json_print_string(buffer, pin->device);
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "]");
}

void plan_print(const Plan *plan, Buffer *buffer)
{
    print_head(buffer, plan);
    print_requests(buffer, plan);
    print_compared(buffer, plan);
    buffer_print(buffer, ",\n \"stages\":[");
    for (int k = 0; k < plan->stage_count; k++) {
        buffer_print(buffer, k ? ",\n  " : "\n  ");
        print_stage(buffer, &plan->stages[k]);
    }
    buffer_print(buffer, "],\n \"links\":[");
    for (int k = 0; k < plan->link_count; k++) {
        buffer_print(buffer, k ? ",\n  " : "\n  ");
        print_link(buffer, &plan->links[k]);
    }
    buffer_print(buffer, "],\n \"crossings\":[");
    for (int k = 0; k < plan->crossing_count; k++) {
        buffer_print(buffer, k ? ",\n  " : "\n  ");
        print_crossing(buffer, &plan->crossings[k]);
    }
    buffer_print(buffer, "]");
    site_crossings_print(plan, buffer);
    plan_norm_print(plan, buffer);
    buffer_print(buffer, ",\n \"ranks\":[");
    for (int r = 0; r < plan->rank_count; r++) {
        buffer_print(buffer, r ? ",\n  " : "\n  ");
        print_rank(buffer, &plan->ranks[r]);
    }
    buffer_print(buffer, "],\n \"schedule\":[");
    for (int r = 0; r < plan->rank_count; r++) {
        buffer_print(buffer, r ? ",\n  " : "\n  ");
        print_schedule(buffer, &plan->ranks[r]);
    }
    buffer_print(buffer, "],\n \"certificate\":");
    if (plan->certificate)
        certificate_print(plan->certificate, buffer);
    else
        buffer_print(buffer, "null");
    buffer_print(buffer, "}\n");
}
