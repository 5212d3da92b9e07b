#include "driver/compile/site_tensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "partitioner/site_crossings.h"
#include "runtime/program/message_tags.h"

typedef struct Listing {
    const StagePrograms *pipeline;
    const Plan *plan;
    MessageTags tags;
    JsonWriter *json;
    bool *taken; /* per crossing of the plan */
} Listing;

static void list(Listing *x, const PlanSiteCrossing *crossing, int from, int to, int64_t tag, int64_t tags)
{
    JsonWriter *json = x->json;
    json_open(json_break(json, "\n  "), NULL, '{');
    json_add_string(json, "tensor", crossing->tensor.name);
    json_add_string(json, "kind", site_crossing_kind_name(crossing->kind));
    if (crossing->from_stage >= 0) json_add_integer(json, "from_stage", crossing->from_stage);
    if (crossing->to_stage >= 0) json_add_integer(json, "to_stage", crossing->to_stage);
    json_add_integer(json, "from", from);
    json_add_integer(json, "to", to);
    json_add_integer(json, "tag", tag);
    json_add_integer(json, "tags", tags);
    json_close(json, '}');
}

/* ---- Between stages ---- */

static bool is_coded(const PlanSiteCrossing *crossing) { return crossing->wire_bytes != crossing->tensor.bytes; }

/* The plan lists the model's values. A stage sends coded values after the others; both kinds keep their order. */
static const PlanSiteCrossing *find_crossing(Listing *x, int from_stage, int to_stage, const SkyTensor *tensor)
{
    for (int i = 0; i < x->plan->site_crossing_count; i++) {
        const PlanSiteCrossing *crossing = &x->plan->site_crossings[i];
        bool same_dtype = crossing->tensor.dtype == (DType)tensor->dtype;
        if (x->taken[i] || crossing->kind > PLAN_CROSSING_GRADIENT || crossing->from_stage != from_stage ||
            crossing->to_stage != to_stage || crossing->wire_bytes != (int64_t)tensor->bytes ||
            same_dtype == is_coded(crossing))
            continue;
        x->taken[i] = true;
        return crossing;
    }
    bug("stage %d sends stage %d a tensor that the plan does not list", from_stage, to_stage);
}

static void list_boundary(Listing *x, int k, bool backward)
{
    int from = backward ? k + 1 : k, to = backward ? k : k + 1;
    int from_rank = x->plan->stages[from].rank, to_rank = x->plan->stages[to].rank;
    const SkyStage *stage = &x->pipeline->stages[from].stage;
    const SkyTensor *tensors = backward ? stage->send_backward : stage->send_forward;
    uint32_t count = backward ? stage->send_backward_count : stage->send_forward_count;
    for (uint32_t t = 0; t < count; t++)
        list(x, find_crossing(x, from, to, &tensors[t]), from_rank, to_rank,
             message_tag_of_tensor(&x->tags, (uint32_t)k, backward, t), x->tags.microbatches);
}

/* ---- Gradients of parameters that several ranks use ---- */

/* The rank's copy of the parameter that "gradient of ..." names; NULL: it has none. */
static const SkyParameter *find_use(const SkyProgram *program, const char *gradient)
{
    static const char prefix[] = "gradient of ";
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            const SkyParameter *parameter = &program->stages[s].parameters[p];
            if (parameter->use_count && strcmp(parameter->value.name, gradient + sizeof prefix - 1) == 0)
                return parameter;
        }
    return NULL;
}

static void list_shared(Listing *x, const PlanSiteCrossing *crossing)
{
    const StagePrograms *pipeline = x->pipeline;
    for (size_t a = 0; a < pipeline->rank_count; a++)
        for (size_t b = 0; b < pipeline->rank_count; b++) {
            const SkyParameter *parameter = find_use(&pipeline->programs[a], crossing->tensor.name);
            if (strcmp(pipeline->sites[pipeline->rank_sites[a]]->name, crossing->from_site) == 0 &&
                strcmp(pipeline->sites[pipeline->rank_sites[b]]->name, crossing->to_site) == 0 && parameter &&
                find_use(&pipeline->programs[b], crossing->tensor.name))
                list(x, crossing, (int)a, (int)b, message_tag_of_parameter(&x->tags, parameter->global_index), 1);
        }
}

void site_tensors_add(const StagePrograms *pipeline, const Plan *plan, JsonWriter *json)
{
    uint32_t most = 1;
    for (size_t r = 0; r < pipeline->rank_count; r++) {
        uint32_t tensors = message_most_tensors(&pipeline->programs[r]);
        if (tensors > most) most = tensors;
    }
    Listing x = {.pipeline = pipeline,
                 .plan = plan,
                 .tags = message_tags(&pipeline->programs[0], most),
                 .json = json,
                 .taken = memory_allocate((size_t)plan->site_crossing_count + 1)};
    json_add_string(json_break(json, "\n "), "plan", pipeline->programs[0].plan_hash);
    json_open(json_break(json, "\n "), "tensors", '[');
    for (int k = 0; k + 1 < plan->stage_count; k++)
        for (int backward = 0; backward < 2; backward++)
            if (pipeline->rank_sites[plan->stages[k].rank] != pipeline->rank_sites[plan->stages[k + 1].rank])
                list_boundary(&x, k, backward);
    for (int i = 0; i < plan->site_crossing_count; i++)
        if (plan->site_crossings[i].kind == PLAN_CROSSING_SHARED) list_shared(&x, &plan->site_crossings[i]);
    json_close(json, ']');
    free(x.taken);
}
