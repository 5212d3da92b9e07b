/* plan.json, read and checked. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "partitioner/certificate.h"
#include "partitioner/plan.h"
#include "partitioner/plan_groupings.h"
#include "partitioner/plan_norm.h"
#include "partitioner/replica_sums.h"
#include "partitioner/replicas.h"
#include "partitioner/site_crossings.h"

enum { MOST_STAGES = 1 << 20 };

typedef struct PlanReading {
    JsonReader json;
    Plan *plan;
    Arena *arena;
    bool packed; /* rows are, of the plan that this is one pipeline of */
} PlanReading;

static bool get_int(const PlanReading *r, const json_t *object, const char *path, const char *key, int64_t low,
                    int64_t high, int *value)
{
    int64_t wide;
    if (!json_get_integer(r->json, object, path, key, &wide)) return false;
    if (wide < low || wide > high)
        return json_refuse(r->json, arena_format(r->arena, "%s.%s", path, key),
                           arena_format(r->arena, "must be between %lld and %lld", (long long)low, (long long)high));
    *value = (int)wide;
    return true;
}

/* Seconds in the file are nanoseconds / 1e9: rounding gives the very integer back below 2^53. */
static bool get_time(const PlanReading *r, const json_t *object, const char *path, const char *key,
                     int64_t *nanoseconds)
{
    double seconds;
    if (!json_get_number(r->json, object, path, key, &seconds)) return false;
    if (!(seconds >= 0 && seconds <= 4e9))
        return json_refuse(r->json, arena_format(r->arena, "%s.%s", path, key), "is not a time");
    *nanoseconds = (int64_t)llround(seconds * 1e9);
    return true;
}

static bool get_bytes(const PlanReading *r, const json_t *object, const char *path, const char *key, int64_t *bytes)
{
    if (!json_get_integer(r->json, object, path, key, bytes)) return false;
    return *bytes >= 0 || json_refuse(r->json, arena_format(r->arena, "%s.%s", path, key), "must not be negative");
}

static bool get_name(const PlanReading *r, const json_t *object, const char *path, const char *key, const char **name)
{
    if (!json_get_string(r->json, object, path, key, name)) return false;
    *name = arena_string(r->arena, *name);
    return true;
}

/* Which of the words that is; -1: none. */
static int index_of(const char *const *words, int count, const char *text, size_t length)
{
    int i = count - 1;
    while (i >= 0 && (strlen(words[i]) != length || memcmp(text, words[i], length) != 0)) i--;
    return i;
}

static bool get_word(const PlanReading *r, const json_t *object, const char *key, const char *const *words, int count,
                     int *index)
{
    const char *word;
    if (!json_get_string(r->json, object, "", key, &word)) return false;
    *index = index_of(words, count, word, strlen(word));
    return *index >= 0 || json_refuse(r->json, key, "is not known");
}

static bool has_time(const PlanReading *r, const json_t *object, const char *path, const char *key,
                     int64_t *nanoseconds)
{
    return !json_object_get(object, key) || get_time(r, object, path, key, nanoseconds);
}

/* Sum_s, absent without replicas; recompute and weight_gradient_s, a part of backward_s: absent where backward is
 * plain. */
static bool get_form(const PlanReading *r, const json_t *object, const char *path, PlanStage *stage)
{
    if (!has_time(r, object, path, "sum_s", &stage->sum_ns)) return false;
    stage->recompute = json_is_true(json_object_get(object, "recompute"));
    if (!json_object_get(object, "weight_gradient_s")) return true;
    if (!get_time(r, object, path, "weight_gradient_s", &stage->weight_gradient_ns)) return false;
    return stage->weight_gradient_ns <= stage->backward_ns ||
           json_refuse(r->json, arena_format(r->arena, "%s.weight_gradient_s", path), "is more than all of backward");
}

static bool read_stage(const PlanReading *r, const json_t *object, int k)
{
    PlanStage *stage = &r->plan->stages[k];
    const char *path = arena_format(r->arena, "stages[%d]", k);
    int last = r->plan->layer_count - 1;
    int first = k && r->plan->stages[k - 1].last_layer < last ? r->plan->stages[k - 1].last_layer + 1 : 0;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    stage->memory_limit_bytes = COSTS_NO_LIMIT;
    return get_name(r, object, path, "device", &stage->device) &&
           get_int(r, object, path, "rank", 0, r->plan->stage_count - 1, &stage->rank) &&
           get_int(r, object, path, "first_layer", first, first, &stage->first_layer) &&
           get_int(r, object, path, "last_layer", k + 1 == r->plan->stage_count ? last : first, last,
                   &stage->last_layer) &&
           get_time(r, object, path, "forward_s", &stage->forward_ns) &&
           get_time(r, object, path, "backward_s", &stage->backward_ns) &&
           get_time(r, object, path, "update_s", &stage->update_ns) && get_form(r, object, path, stage) &&
           get_bytes(r, object, path, "memory_bytes", &stage->memory_bytes) &&
           json_optional_integer(r->json, object, path, "memory_limit_bytes", &stage->memory_limit_bytes) &&
           get_int(r, object, path, "in_flight", 1, r->plan->microbatches, &stage->in_flight);
}

/* Of both directions in one, or [forward, backward]. */
static bool get_bytes_pair(const PlanReading *r, const json_t *object, const char *path, const char *key,
                           int64_t bytes[2])
{
    const json_t *pair = json_object_get(object, key);
    if (!json_is_array(pair)) {
        bool ok = get_bytes(r, object, path, key, &bytes[0]);
        bytes[1] = bytes[0];
        return ok;
    }
    bool ok = json_array_size(pair) == 2;
    for (size_t d = 0; ok && d < 2; d++) {
        const json_t *item = json_array_get(pair, d);
        bytes[d] = json_integer_value(item);
        ok = json_is_integer(item) && bytes[d] >= 0;
    }
    return ok || json_refuse(r->json, arena_format(r->arena, "%s.%s", path, key),
                             "must be bytes, or bytes forward and backward");
}

/* "identity", the name of a codec, or one for each direction. */
static bool get_codecs(const PlanReading *r, const json_t *object, const char *path, Codec codecs[2])
{
    const json_t *value = json_object_get(object, "codec");
    bool ok = json_is_string(value) || (json_is_array(value) && json_array_size(value) == 2);
    for (size_t d = 0; ok && d < 2; d++) {
        const char *name = json_string_value(json_is_array(value) ? json_array_get(value, d) : value);
        codecs[d] = CODEC_NONE;
        ok = name && (strcmp(name, "identity") == 0 || codec_from_name(name, &codecs[d]));
    }
    return ok || json_refuse(r->json, arena_format(r->arena, "%s.codec", path),
                             "must be a codec, or one forward and one backward");
}

static bool read_coding(const PlanReading *r, const json_t *object, const char *path, PlanLink *link)
{
    const char *duplex = "full";
    if (!json_optional_string(r->json, object, path, "duplex", &duplex)) return false;
    link->half_duplex = strcmp(duplex, "half") == 0;
    return !plan_link_is_coded(link) || (get_time(r, object, path, "encode_s", &link->coding_ns[0][0]) &&
                                         get_time(r, object, path, "decode_s", &link->coding_ns[0][1]) &&
                                         get_time(r, object, path, "backward_encode_s", &link->coding_ns[1][0]) &&
                                         get_time(r, object, path, "backward_decode_s", &link->coding_ns[1][1]));
}

/* `from`: the stage that it comes from. */
static bool read_link(const PlanReading *r, const json_t *object, int k, int from)
{
    PlanLink *link = &r->plan->links[k];
    const char *path = arena_format(r->arena, "links[%d]", k), *dtype;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    if (!get_int(r, object, path, "from", from, from, &link->from) ||
        !get_int(r, object, path, "to", from + 1, from + 1, &link->to) ||
        !get_bytes_pair(r, object, path, "logical_bytes", link->logical_bytes) ||
        !get_bytes_pair(r, object, path, "wire_bytes", link->wire_bytes) ||
        !json_get_string(r->json, object, path, "dtype", &dtype) || !get_codecs(r, object, path, link->codecs) ||
        !get_time(r, object, path, "latency_s", &link->latency_ns[0]) ||
        !get_time(r, object, path, "seconds", &link->transfer_ns[0]) ||
        !get_time(r, object, path, "backward_latency_s", &link->latency_ns[1]) ||
        !get_time(r, object, path, "backward_seconds", &link->transfer_ns[1]) || !read_coding(r, object, path, link))
        return false;
    for (int d = 1; d < DTYPE_COUNT; d++)
        if (strcmp(dtype, dtype_name((DType)d)) == 0) link->dtype = (DType)d;
    return link->dtype != DTYPE_NONE || json_refuse(r->json, path, "has an unknown dtype");
}

static bool read_crossing(const PlanReading *r, const json_t *object, int k)
{
    PlanCrossing *crossing = &r->plan->crossings[k];
    const char *path = arena_format(r->arena, "crossings[%d]", k);
    int last = r->plan->stage_count - 1;
    const json_t *raw = json_object_get(object, "raw");
    if (!json_is_object(object) || !json_is_boolean(raw))
        return json_refuse(r->json, path, "must be an object that says whether the tensor is raw");
    crossing->raw = json_is_true(raw);
    crossing->from_stage = -1;
    return get_name(r, object, path, "tensor", &crossing->tensor) &&
           get_bytes(r, object, path, "bytes", &crossing->bytes) &&
           (crossing->raw || get_int(r, object, path, "from_stage", 0, last, &crossing->from_stage)) &&
           get_int(r, object, path, "to_stage", 0, last, &crossing->to_stage) &&
           get_name(r, object, path, "from_region", &crossing->from_region) &&
           get_name(r, object, path, "to_region", &crossing->to_region);
}

static bool read_crossings(const PlanReading *r, const json_t *root)
{
    json_t *crossings;
    if (!json_object_get(root, "crossings")) return true;
    if (!json_get_array(r->json, root, "", "crossings", &crossings)) return false;
    if (json_array_size(crossings) > (1 << 24)) return json_refuse(r->json, "crossings", "too many");
    r->plan->crossing_count = (int)json_array_size(crossings);
    r->plan->crossings = arena_new_array(r->arena, PlanCrossing, (size_t)r->plan->crossing_count);
    for (int k = 0; k < r->plan->crossing_count; k++)
        if (!read_crossing(r, json_array_get(crossings, (size_t)k), k)) return false;
    return true;
}

static bool read_rank(const PlanReading *r, const json_t *object, int index)
{
    PlanRank *rank = &r->plan->ranks[index];
    const char *path = arena_format(r->arena, "ranks[%d]", index);
    json_t *stages;
    int64_t host = 0;
    if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
    if (!get_name(r, object, path, "device", &rank->device) ||
        !get_int(r, object, path, "replica", 0, r->plan->replica_count - 1, &rank->replica) ||
        !json_optional_integer(r->json, object, path, "process_bytes", &rank->process_bytes) ||
        !json_optional_integer(r->json, object, path, "host", &host) ||
        !json_optional_number(r->json, object, path, "cores", &rank->cores) ||
        !has_time(r, object, path, "sum_s", &rank->sum_ns) ||
        !has_time(r, object, path, "sum_latency_s", &rank->sum_latency_ns) ||
        !json_get_array(r->json, object, path, "stages", &stages))
        return false;
    if (host < 0 || host >= COSTS_MAX_DEVICES || !(rank->cores >= 0 && rank->cores <= 1e6))
        return json_refuse(r->json, path, "host or cores are no numbers of them");
    rank->host = (int)host;
    if (rank->process_bytes < 0 || rank->process_bytes > COSTS_MOST_PROCESS_BYTES)
        return json_refuse(r->json, path, "process_bytes must be 0 to 2^40");
    rank->stages = arena_new_array(r->arena, int, (size_t)r->plan->stage_count);
    for (int k = 0; k < r->plan->stage_count; k++)
        if (r->plan->stages[k].rank == index) {
            if (strcmp(r->plan->stages[k].device, rank->device) != 0)
                return json_refuse(r->json, path, "owns a stage of another device");
            rank->stages[rank->stage_count++] = k;
        }
    bool same = rank->stage_count > 0 && json_array_size(stages) == (size_t)rank->stage_count;
    for (int k = 0; same && k < rank->stage_count; k++) {
        const json_t *item = json_array_get(stages, (size_t)k);
        same = json_is_integer(item) && json_integer_value(item) == rank->stages[k];
    }
    if (!same) return json_refuse(r->json, path, "does not list the stages that name it");
    return true;
}

/* One of [op, stage of this rank, micro-batch, slot]. */
static bool read_instruction(const PlanReading *r, JsonScan *scan, int rank, PlanInstruction *instruction)
{
    const char *op;
    size_t length;
    int64_t number[3] = {0};
    bool ok = json_scan_mark(scan, '[') && json_scan_string(scan, &op, &length);
    for (int n = 0; n < 3; n++) ok = ok && json_scan_mark(scan, ',') && json_scan_integer(scan, &number[n]);
    int index = ok && json_scan_mark(scan, ']') ? index_of(plan_op_words, SKY_OP_COUNT, op, length) : -1;
    if (index < 0 || number[0] < 0 || number[0] >= r->plan->stage_count || r->plan->stages[number[0]].rank != rank)
        return false;
    if (index == SKY_REDUCE || index == SKY_UPDATE)
        ok = number[1] == -1 && number[2] == -1;
    else
        ok = number[1] >= 0 && number[1] < r->plan->microbatches && number[2] >= 0 &&
             number[2] < r->plan->stages[number[0]].in_flight;
    *instruction = (PlanInstruction){(SkyInstructionOp)index, (int)number[0], (int)number[1], (int)number[2]};
    return ok;
}

static bool read_instructions(const PlanReading *r, JsonScan *scan, int index)
{
    PlanRank *rank = &r->plan->ranks[index];
    FREED PlanInstruction *read = NULL;
    PlanInstruction instruction;
    int count = 0, capacity = 0;
    bool ok = json_scan_mark(scan, '[');
    if (!ok) return json_refuse(r->json, arena_format(r->arena, "schedule[%d]", index), "must be an array");
    while (ok && !json_scan_mark(scan, ']')) {
        ok = (count == 0 || json_scan_mark(scan, ',')) && count < (1 << 28) &&
             read_instruction(r, scan, index, &instruction);
        if (ok) array_push(read, count, capacity, instruction);
    }
    if (ok && count > 0) rank->instructions = arena_copy(r->arena, read, (size_t)count * sizeof *read);
    rank->instruction_count = ok ? count : 0;
    return ok || json_refuse(r->json, arena_format(r->arena, "schedule[%d][%d]", index, count),
                             "must be [op, stage of this rank, micro-batch, slot]");
}

/* An instruction list per rank. */
static bool read_schedule(const PlanReading *r, JsonScan scan)
{
    bool ok = json_scan_mark(&scan, '[');
    for (int k = 0; k < r->plan->rank_count && ok; k++) {
        ok = k == 0 || json_scan_mark(&scan, ',');
        if (ok && !read_instructions(r, &scan, k)) return false;
    }
    return (ok && json_scan_mark(&scan, ']')) ||
           json_refuse(r->json, "schedule", "must be one instruction list per rank");
}

/* Which layers are on which device. */
static bool read_pins(const PlanReading *r, const json_t *array, const char *key, PlanPin **pins, int *count)
{
    int last = r->plan->layer_count - 1;
    if (json_array_size(array) > COSTS_MAX_LAYERS) return json_refuse(r->json, key, "too many");
    *count = (int)json_array_size(array);
    *pins = arena_new_array(r->arena, PlanPin, (size_t)*count);
    for (int i = 0; i < *count; i++) {
        PlanPin *pin = &(*pins)[i];
        const json_t *object = json_array_get(array, (size_t)i);
        const char *path = arena_format(r->arena, "%s[%d]", key, i);
        if (!json_is_object(object)) return json_refuse(r->json, path, "must be an object");
        if (!get_name(r, object, path, "device", &pin->device) ||
            !get_int(r, object, path, "first_layer", 0, last, &pin->first_layer) ||
            !get_int(r, object, path, "last_layer", pin->first_layer, last, &pin->last_layer))
            return false;
    }
    return true;
}

static bool read_compared(const PlanReading *r, const json_t *root)
{
    json_t *compared;
    if (!json_get_object(r->json, root, "", "compared", &compared)) return false;
    for (int a = 0; a < PLAN_ALLOCATOR_COUNT; a++) {
        const char *allocator = plan_allocator_name((PlanAllocator)a);
        const char *path = arena_format(r->arena, "compared.%s", allocator);
        const json_t *entry = json_object_get(compared, allocator), *fits = json_object_get(entry, "fits");
        PlanComparison *c = &r->plan->compared[a];
        if (!entry || json_is_null(entry)) continue;
        if (!json_is_boolean(fits)) return json_refuse(r->json, path, "must be null, or say whether it fits");
        c->known = true;
        c->fits = json_is_true(fits);
        if (!get_time(r, entry, path, "period_s", &c->period_ns) || !get_time(r, entry, path, "step_s", &c->step_ns) ||
            !read_pins(r, json_object_get(entry, "stages"), arena_format(r->arena, "%s.stages", path), &c->stages,
                       &c->stage_count))
            return false;
    }
    return true;
}

static bool read_choices(const PlanReading *r, const json_t *root)
{
    Plan *plan = r->plan;
    const char *codecs = "lossless";
    if (!json_optional_string(r->json, root, "", "codecs", &codecs)) return false;
    if (!codecs_parse(codecs, &plan->codecs)) return json_refuse(r->json, "codecs", "is not known");
    int allocator, objective, schedule, recompute = PLAN_RECOMPUTE_NEVER;
    if (!get_word(r, root, "allocate", plan_allocator_words, PLAN_ALLOCATOR_COUNT, &allocator) ||
        !get_word(r, root, "objective", plan_objective_words, PLAN_OBJECTIVE_COUNT, &objective) ||
        !get_word(r, root, "schedule_kind", plan_schedule_words, PLAN_SCHEDULE_COUNT + 1, &schedule) ||
        (json_object_get(root, "recompute") &&
         !get_word(r, root, "recompute", plan_recompute_words, PLAN_RECOMPUTE_COUNT, &recompute)))
        return false;
    plan->allocator = (PlanAllocator)allocator;
    plan->objective = (PlanObjective)objective;
    plan->schedule = schedule == PLAN_AUTO ? PLAN_SEARCHED : (PlanSchedule)schedule; /* as older plans call it */
    plan->recompute = (PlanRecompute)recompute;
    return true;
}

static bool read_requests(const PlanReading *r, const json_t *root)
{
    Plan *plan = r->plan;
    json_t *without, *pins;
    if (!json_get_array(r->json, root, "", "without", &without) || !json_get_array(r->json, root, "", "pins", &pins))
        return false;
    if (json_array_size(without) > COSTS_MAX_DEVICES) return json_refuse(r->json, "without", "too many");
    plan->without_count = (int)json_array_size(without);
    plan->without = arena_new_array(r->arena, const char *, (size_t)plan->without_count);
    for (int i = 0; i < plan->without_count; i++) {
        const char *name = json_string_value(json_array_get(without, (size_t)i));
        if (!name) return json_refuse(r->json, "without", "must be an array of device names");
        plan->without[i] = arena_string(r->arena, name);
    }
    return read_pins(r, pins, "pins", &plan->pins, &plan->pin_count);
}

static bool get_truth(const PlanReading *r, const json_t *root, const char *key, bool *truth)
{
    const json_t *value = json_object_get(root, key);
    *truth = json_is_true(value);
    return json_is_boolean(value) || json_refuse(r->json, key, "must be true or false");
}

/* Which steps there are, and what the special ones take. */
static bool read_rows(const PlanReading *r, const json_t *root)
{
    Plan *plan = r->plan;
    if (!row_samples_read(&plan->rows, r->json, root, plan->microbatches, r->arena) ||
        !batch_choice_read(&plan->batch, r->json, root, r->packed || plan->rows.microbatch_kinds > 0, r->arena))
        return false;
    return !plan->rows.microbatch_kinds || (get_time(r, root, "", "worst_step_s", &plan->worst_step_ns) &&
                                            get_time(r, root, "", "padded_step_s", &plan->padded_step_ns));
}

static bool read_head(const PlanReading *r, const json_t *root)
{
    Plan *plan = r->plan;
    const char *format;
    if (!json_is_object(root)) return json_refuse(r->json, NULL, "must be a JSON object");
    if (!json_get_string(r->json, root, "", "format", &format)) return false;
    if (strcmp(format, "skycc.plan/1") != 0) return json_refuse(r->json, "format", "is not \"skycc.plan/1\"");
    return get_name(r, root, "", "name", &plan->name) && get_name(r, root, "", "model_hash", &plan->model_hash) &&
           get_name(r, root, "", "costs_hash", &plan->costs_hash) && read_choices(r, root) &&
           get_int(r, root, "", "microbatches", 1, COSTS_MAX_MICROBATCHES, &plan->microbatches) && read_rows(r, root) &&
           json_optional_number(r->json, root, "", "microbatches_gain", &plan->microbatches_gain) &&
           (!json_object_get(root, "in_flight_limit") ||
            get_int(r, root, "", "in_flight_limit", 1, COSTS_MAX_MICROBATCHES, &plan->in_flight_limit)) &&
           get_int(r, root, "", "layers", 1, COSTS_MAX_LAYERS, &plan->layer_count) &&
           (!json_object_get(root, "processors") ||
            get_int(r, root, "", "processors", 1, COSTS_MAX_DEVICES, &plan->processors)) &&
           has_time(r, root, "", "sum_s", &plan->sum_ns) && get_time(r, root, "", "period_s", &plan->period_ns) &&
           get_time(r, root, "", "step_s", &plan->step_ns) &&
           get_time(r, root, "", "simulated_step_s", &plan->simulated_step_ns) &&
           json_get_number(r->json, root, "", "bubble", &plan->bubble) &&
           get_time(r, root, "", "lower_bound_s", &plan->lower_bound_ns) &&
           json_get_number(r->json, root, "", "gap", &plan->gap) &&
           get_truth(r, root, "proven_optimal", &plan->proven_optimal) &&
           get_truth(r, root, "timed_out", &plan->timed_out) &&
           (!json_object_get(root, "infeasible") || get_truth(r, root, "infeasible", &plan->infeasible)) &&
           (!json_object_get(root, "schedule_forced") ||
            get_truth(r, root, "schedule_forced", &plan->schedule_forced)) &&
           read_requests(r, root);
}

static bool schedule_is_empty(JsonScan scan) { return json_scan_mark(&scan, '[') && json_scan_mark(&scan, ']'); }

static bool read_certificate(const PlanReading *r, const json_t *root)
{
    const json_t *object = json_object_get(root, "certificate");
    if (!object || json_is_null(object)) return true;
    if (!json_is_object(object)) return json_refuse(r->json, "certificate", "must be an object, or null");
    r->plan->certificate = arena_new(r->arena, Certificate);
    return certificate_read(r->plan->certificate, object, r->arena, r->json);
}

/* The ranges of the replicas, which follow from stages that begin with the first layer. */
static bool find_replicas(Plan *plan)
{
    int found = 0;
    for (int k = 0; k < plan->stage_count; k++) {
        const PlanStage *stage = &plan->stages[k];
        if (stage->first_layer == 0 && found == plan->replica_count) return false;
        PlanReplica *replica = &plan->replicas[found - (stage->first_layer > 0)];
        if (stage->first_layer == 0) {
            int first_rank = found ? replica[-1].first_rank + replica[-1].rank_count : 0;
            *replica = (PlanReplica){.first_rank = first_rank, .first_stage = k};
            found++;
        }
        replica->stage_count++;
        if (stage->rank < replica->first_rank || stage->rank > replica->first_rank + replica->rank_count) return false;
        replica->rank_count += stage->rank == replica->first_rank + replica->rank_count;
    }
    return found == plan->replica_count;
}

/* A pipeline that shares the step with others: its members are those of a plan. */
static bool read_pipeline(const PlanReading *r, const json_t *object, PlanReplica *replica)
{
    Plan *pipeline = replica->pipeline = arena_new(r->arena, Plan);
    json_t *members;
    PlanReading part = {r->json, pipeline, &pipeline->arena, r->plan->rows.microbatch_kinds > 0};
    part.json.file = arena_format(r->arena, "%s, replica %d", r->json.file, (int)(replica - r->plan->replicas));
    if (!json_get_object(r->json, object, "replicas", "plan", &members) || !read_head(&part, members) ||
        !read_compared(&part, members) || !read_certificate(&part, members))
        return false;
    if (pipeline->infeasible || pipeline->layer_count != r->plan->layer_count ||
        pipeline->microbatches != replica->microbatches || !plan_slice(r->plan, replica, pipeline))
        return json_refuse(part.json, "microbatches", "are not those of its schedule");
    plan_set_alone(pipeline, replica->rows);
    return plan_norm_read(pipeline, part.json, members);
}

static bool read_replica(const PlanReading *r, const json_t *object, int index)
{
    PlanReplica *replica = &r->plan->replicas[index];
    const char *path = arena_format(r->arena, "replicas[%d]", index);
    json_t *ranks;
    replica->rows = -1;
    if (!json_get_array(r->json, object, path, "ranks", &ranks) ||
        (!json_is_null(json_object_get(object, "rows")) &&
         !json_get_integer(r->json, object, path, "rows", &replica->rows)) ||
        !get_int(r, object, path, "microbatches", 1, r->plan->microbatches, &replica->microbatches))
        return false;
    bool same = json_array_size(ranks) == (size_t)replica->rank_count && replica->rows >= -1;
    for (int k = 0; same && k < replica->rank_count; k++)
        same = json_integer_value(json_array_get(ranks, (size_t)k)) == replica->first_rank + k &&
               r->plan->ranks[replica->first_rank + k].replica == index;
    if (!same) return json_refuse(r->json, path, "does not list the ranks that name it");
    return r->plan->replica_count == 1 || read_pipeline(r, object, replica);
}

/* Plans from before replicas do not name the one that they have. */
static bool read_replicas(const PlanReading *r, const json_t *array)
{
    int microbatches = 0;
    if (!array) return true;
    for (int k = 0; k < r->plan->replica_count; k++) {
        if (!read_replica(r, json_array_get(array, (size_t)k), k)) return false;
        microbatches += r->plan->replicas[k].microbatches;
    }
    return microbatches == r->plan->microbatches ||
           json_refuse(r->json, "replicas", "do not have all micro-batches of a step");
}

/* Reads the stages, and where the pipelines begin. */
static bool read_stages(const PlanReading *r, const json_t *stages, int replicas)
{
    Plan *plan = r->plan;
    plan->stages = arena_new_array(r->arena, PlanStage, (size_t)plan->stage_count);
    for (int k = 0; k < plan->stage_count; k++) {
        if (!read_stage(r, json_array_get(stages, (size_t)k), k)) return false;
        if (plan->stages[k].rank >= plan->rank_count)
            return json_refuse(r->json, "stages", "name a rank that does not exist");
    }
    if (replicas == 1) {
        plan_set_alone(plan, -1);
        return true;
    }
    plan->replicas = arena_new_array(r->arena, PlanReplica, (size_t)replicas);
    plan->replica_count = replicas;
    return find_replicas(plan) ||
           json_refuse(r->json, "replicas", "are not as many as there are pipelines of stages, one after another");
}

static bool read_root(const PlanReading *r, const JsonApart *file)
{
    const json_t *root = file->root;
    Plan *plan = r->plan;
    json_t *stages, *links, *ranks, *schedule;
    if (!read_head(r, root) || !read_compared(r, root) || !json_get_array(r->json, root, "", "stages", &stages) ||
        !json_get_array(r->json, root, "", "links", &links) || !json_get_array(r->json, root, "", "ranks", &ranks) ||
        !json_get_array(r->json, root, "", "schedule", &schedule))
        return false;
    size_t count = json_array_size(stages);
    if (plan->infeasible)
        return (count == 0 && json_array_size(links) == 0 && json_array_size(ranks) == 0 &&
                schedule_is_empty(file->text) && read_certificate(r, root)) ||
               json_refuse(r->json, "infeasible", "leaves no stages, links, ranks or schedule");
    const json_t *replicas = json_object_get(root, "replicas");
    size_t pipelines = replicas ? json_array_size(replicas) : 1;
    if (pipelines < 1 || pipelines > COSTS_MAX_DEVICES)
        return json_refuse(r->json, "replicas", "must be between 1 and the devices");
    if (count < pipelines || count > pipelines * (size_t)plan->layer_count || count > MOST_STAGES)
        return json_refuse(r->json, "stages", "must be between 1 and the layers, for each replica");
    if (json_array_size(links) != count - pipelines)
        return json_refuse(r->json, "links", "must be one between each two stages");
    if (json_array_size(ranks) < 1 || json_array_size(ranks) > count)
        return json_refuse(r->json, "ranks", "must be at least one, and no more than stages");
    plan->stage_count = (int)count;
    plan->rank_count = (int)json_array_size(ranks);
    plan->links = arena_new_array(r->arena, PlanLink, count);
    plan->ranks = arena_new_array(r->arena, PlanRank, (size_t)plan->rank_count);
    if (!read_stages(r, stages, (int)pipelines)) return false;
    for (int from = 0; from + 1 < plan->stage_count; from++) {
        size_t k = (size_t)plan->link_count;
        if (plan->stages[from].last_layer + 1 == plan->layer_count) continue;
        if (!read_link(r, json_array_get(links, k), plan->link_count++, from)) return false;
    }
    for (int k = 0; k < plan->rank_count; k++)
        if (!read_rank(r, json_array_get(ranks, (size_t)k), k)) return false;
    return read_schedule(r, file->text) && read_crossings(r, root) && site_crossings_read(plan, r->json, root) &&
           plan_norm_read(plan, r->json, root) && read_certificate(r, root) &&
           plan_groupings_read(plan, r->json, root) && read_replicas(r, replicas) &&
           replica_sums_read_order(plan, r->json, root);
}

bool plan_read_verdict(Plan *plan, const char *path, Diagnostics *diagnostics)
{
    memset(plan, 0, sizeof *plan);
    FREED_WITH(json_apart_free) JsonApart file = {0};
    if (!json_read_apart(&file, path, "schedule", diagnostics)) return false;
    PlanReading reading = {{path, diagnostics}, plan, &plan->arena, false};
    if (read_root(&reading, &file)) return true;
    plan_free(plan);
    return false;
}

bool plan_read(Plan *plan, const char *path, Diagnostics *diagnostics)
{
    if (!plan_read_verdict(plan, path, diagnostics)) return false;
    if (!plan->infeasible) return true;
    plan_free(plan);
    return diagnostics_error(diagnostics, EXIT_NO_PLAN, (Place){.file = path}, "skycc verify checks the proof of that",
                             "holds no plan: it says that nothing fits");
}
