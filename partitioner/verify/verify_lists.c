#include "partitioner/verify/verify_lists.h"

#include <string.h>

/* ---- instructions ---- */

/* How often a stage does it in a step. Between stages of one rank nothing is sent. */
static int expected_count(const Plan *plan, int stage, SkyInstructionOp op)
{
    const PlanStage *s = &plan->stages[stage];
    bool before = stage > 0 && plan->stages[stage - 1].rank != s->rank;
    bool next = stage + 1 < plan->stage_count && plan->stages[stage + 1].rank != s->rank;
    switch (op) {
    case SKY_RECEIVE_FORWARD:
    case SKY_SEND_BACKWARD: return before ? plan->microbatches : 0;
    case SKY_SEND_FORWARD:
    case SKY_RECEIVE_BACKWARD: return next ? plan->microbatches : 0;
    case SKY_FORWARD:
    case SKY_BACKWARD: return plan->microbatches;
    case SKY_WEIGHT_GRADIENT: return s->weight_gradient_ns > 0 ? plan->microbatches : 0;
    case SKY_REDUCE:
    case SKY_UPDATE: return 1;
    case SKY_OP_COUNT: break;
    }
    return 0;
}

/* Nothing is there twice, so that it is enough to count. */
static bool check_counts(Rules *r, int *counts)
{
    for (int k = 0; k < r->plan->stage_count; k++)
        for (int op = 0; op < SKY_OP_COUNT; op++) {
            int expected = expected_count(r->plan, k, (SkyInstructionOp)op), count = counts[k * SKY_OP_COUNT + op];
            if (count != expected)
                return rules_refuse(r, "schedule", "stage %d does '%s' %d times, not %d times", k,
                                    plan_op_name((SkyInstructionOp)op), expected, count);
        }
    return true;
}

bool verify_instructions(Rules *r)
{
    const Plan *plan = r->plan;
    size_t stages = (size_t)plan->stage_count, entries = stages * SKY_OP_COUNT;
    size_t places = entries * (size_t)plan->microbatches;
    int *counts = arena_new_array(&r->arena, int, entries);
    bool *done = arena_new_array(&r->arena, bool, places);
    int *slots = arena_new_array(&r->arena, int, stages *(size_t)plan->microbatches); /* + 1; 0: not known yet */
    int *most = arena_new_array(&r->arena, int, stages);                              /* slots */
    for (int rank = 0; rank < plan->rank_count; rank++)
        for (int k = 0; k < plan->ranks[rank].instruction_count; k++) {
            const PlanInstruction *i = &plan->ranks[rank].instructions[k];
            size_t entry = (size_t)i->stage * SKY_OP_COUNT + (size_t)i->op;
            bool *before = &done[entry * (size_t)plan->microbatches + (size_t)(i->microbatch < 0 ? 0 : i->microbatch)];
            if (*before)
                return rules_refuse(r, arena_format(&r->arena, "schedule[%d][%d]", rank, k), "'%s' is done already",
                                    plan_op_name(i->op));
            *before = true;
            counts[entry]++;
            if (i->microbatch < 0) continue;
            int *slot = &slots[(size_t)i->stage * (size_t)plan->microbatches + (size_t)i->microbatch];
            if (*slot > 0 && *slot != i->slot + 1)
                return rules_refuse(r, arena_format(&r->arena, "schedule[%d][%d]", rank, k),
                                    "the micro-batch is in slot %d of its stage, not in %d", *slot - 1, i->slot);
            *slot = i->slot + 1;
            if (most[i->stage] < *slot) most[i->stage] = *slot;
        }
    for (int k = 0; k < plan->stage_count; k++)
        if (most[k] != plan->stages[k].in_flight)
            return rules_refuse(r, arena_format(&r->arena, "stages[%d].in_flight", k), "the schedule uses %d slots",
                                most[k]);
    return check_counts(r, counts);
}

/* ---- crossings ---- */

typedef struct Crossings {
    Rules *rules;
    int next; /* of the plan's list */
    bool equal;
} Crossings;

static const char *region_name(const Rules *r, const char *device)
{
    int d = device ? costs_find_device(r->costs, device) : -1, region = d < 0 ? -1 : r->costs->devices[d].region;
    return region < 0 ? NULL : r->costs->region_names[region];
}

/* The plan's next crossing is this one, if it is one. */
static void expect(Crossings *x, PlanCrossing crossing)
{
    const Plan *plan = x->rules->plan;
    if (!crossing.from_region || !crossing.to_region || strcmp(crossing.from_region, crossing.to_region) == 0) return;
    const PlanCrossing *found = x->next < plan->crossing_count ? &plan->crossings[x->next] : NULL;
    x->next++;
    x->equal &= found && strcmp(found->tensor, crossing.tensor) == 0 && found->bytes == crossing.bytes &&
                found->raw == crossing.raw && found->from_stage == crossing.from_stage &&
                found->to_stage == crossing.to_stage && strcmp(found->from_region, crossing.from_region) == 0 &&
                strcmp(found->to_region, crossing.to_region) == 0;
}

/* Every stage reads each of its raw inputs once; what only the last layer of all reads are labels. */
static void expect_inputs(Crossings *x, int k)
{
    const Costs *costs = x->rules->costs;
    const PlanStage *stage = &x->rules->plan->stages[k];
    for (int l = stage->first_layer; l <= stage->last_layer; l++)
        for (int i = 0; i < costs->layers[l].input_count; i++) {
            const CostInput *input = &costs->layers[l].inputs[i];
            bool label = !costs_read_input(costs, 0, costs->layer_count - 2, input->name);
            if (costs_read_input(costs, stage->first_layer, l - 1, input->name)) continue;
            expect(x,
                   (PlanCrossing){.tensor = input->name,
                                  .bytes = input->bytes,
                                  .raw = true,
                                  .from_stage = -1,
                                  .to_stage = k,
                                  .from_region = region_name(x->rules, label ? costs->keep_labels : costs->keep_inputs),
                                  .to_region = region_name(x->rules, stage->device)});
        }
}

/* The activations of a cut, and their gradient back. */
static void expect_cut(Crossings *x, int k)
{
    Rules *r = x->rules;
    const PlanStage *stage = &r->plan->stages[k];
    const LayerCost *layer = &r->costs->layers[stage->last_layer];
    const char *here = region_name(r, stage->device), *there = region_name(r, stage[1].device);
    const char *name = layer->output ? layer->output : arena_format(&r->arena, "output of %s", layer->name);
    const char *gradient = arena_format(&r->arena, "gradient of %s", name);
    expect(x, (PlanCrossing){name, layer->output_bytes, false, k, k + 1, here, there});
    expect(x, (PlanCrossing){gradient, costs_output_bytes(layer, 1), false, k + 1, k, there, here});
}

bool verify_crossings(Rules *r)
{
    Crossings x = {.rules = r, .equal = true};
    for (int k = 0; k < r->plan->stage_count && r->costs->region_count > 0; k++) {
        expect_inputs(&x, k);
        if (k + 1 < r->plan->stage_count) expect_cut(&x, k);
    }
    return (x.equal && x.next == r->plan->crossing_count) ||
           rules_refuse(r, "crossings", "are not what crosses between regions");
}
