/* That the plan lists what crosses between sites: all of it, in the order that plans have. */
#include <string.h>

#include "partitioner/verify/verify_lists.h"

typedef struct Listing {
    Rules *rules;
    int next; /* of the plan's list */
    bool equal;
} Listing;

static const char *site_with(const Rules *r, const char *device)
{
    return r->costs->sites.names[r->costs->devices[costs_find_device(r->costs, device)].site];
}

static void expect(Listing *x, PlanSiteCrossing wanted)
{
    const Plan *plan = x->rules->plan;
    const PlanSiteCrossing *found = x->next < plan->site_crossing_count ? &plan->site_crossings[x->next] : NULL;
    x->next++;
    x->equal &= found && strcmp(found->tensor.name, wanted.tensor.name) == 0 &&
                found->tensor.dtype == wanted.tensor.dtype && shape_equal(&found->tensor.shape, &wanted.tensor.shape) &&
                found->tensor.bytes == wanted.tensor.bytes && found->kind == wanted.kind &&
                found->codec == wanted.codec && found->wire_bytes == wanted.wire_bytes &&
                found->per_step == wanted.per_step && found->from_stage == wanted.from_stage &&
                found->to_stage == wanted.to_stage && strcmp(found->from_site, wanted.from_site) == 0 &&
                strcmp(found->to_site, wanted.to_site) == 0;
}

/* What the tensor takes on the wire: rows of float32 shrink, all else is sent as it is. */
static int64_t coded(const CostTensor *tensor, Codec codec)
{
    int last = tensor->shape.rank - 1;
    int64_t rows = 1;
    if (codec == CODEC_NONE || tensor->dtype != DTYPE_F32 || last < 0) return tensor->bytes;
    for (int i = 0; i < last; i++) rows *= tensor->shape.dim[i];
    return rows * (tensor->shape.dim[last] ? codec_row_bytes(codec, tensor->shape.dim[last]) : 0);
}

static void expect_cut(Listing *x, int k)
{
    const Rules *r = x->rules;
    const PlanStage *stage = &r->plan->stages[k];
    const char *here = site_with(r, stage->device), *there = site_with(r, stage[1].device);
    const CostCut *cut = &r->costs->sites.cuts[stage->last_layer];
    if (strcmp(here, there) == 0) return;
    for (int direction = 0; direction < 2; direction++)
        for (int i = 0; i < cut->count[direction]; i++) {
            const CostTensor *tensor = &cut->tensors[direction][i];
            Codec codec = r->plan->links[k].codecs[direction];
            bool back = direction == 1;
            expect(x, (PlanSiteCrossing){.tensor = *tensor,
                                         .kind = back ? PLAN_CROSSING_GRADIENT : PLAN_CROSSING_ACTIVATION,
                                         .codec = codec,
                                         .wire_bytes = coded(tensor, codec),
                                         .per_step = r->plan->microbatches,
                                         .from_stage = back ? k + 1 : k,
                                         .to_stage = back ? k : k + 1,
                                         .from_site = back ? there : here,
                                         .to_site = back ? here : there});
        }
}

/* Of a shared parameter: uses per rank, then what each pair of ranks exchanges, summed up by their sites. */
static void expect_shared(Listing *x, const CostShared *shared)
{
    Rules *r = x->rules;
    const Plan *plan = r->plan;
    int sites = r->costs->sites.count;
    int *uses = arena_new_array(&r->arena, int, (size_t)plan->rank_count);
    int64_t *sent = arena_new_array(&r->arena, int64_t, (size_t)sites * (size_t)sites);
    for (int u = 0; u < shared->layer_count; u++)
        for (int k = 0; k < plan->stage_count; k++)
            if (plan->stages[k].first_layer <= shared->layers[u] && shared->layers[u] <= plan->stages[k].last_layer)
                uses[plan->stages[k].rank]++;
    for (int a = 0; a < plan->rank_count; a++)
        for (int b = 0; b < plan->rank_count; b++) {
            int from = r->costs->devices[costs_find_device(r->costs, plan->ranks[a].device)].site;
            int to = r->costs->devices[costs_find_device(r->costs, plan->ranks[b].device)].site;
            if (from != to && uses[b]) sent[from * sites + to] += uses[a];
        }
    for (int pair = 0; pair < sites * sites; pair++)
        if (sent[pair])
            expect(x, (PlanSiteCrossing){.tensor = shared->tensor,
                                         .kind = PLAN_CROSSING_SHARED,
                                         .codec = CODEC_NONE,
                                         .wire_bytes = shared->tensor.bytes,
                                         .per_step = sent[pair],
                                         .from_stage = -1,
                                         .to_stage = -1,
                                         .from_site = r->costs->sites.names[pair / sites],
                                         .to_site = r->costs->sites.names[pair % sites]});
}

static void expect_inputs(Listing *x, int k)
{
    const Costs *costs = x->rules->costs;
    const PlanStage *stage = &x->rules->plan->stages[k];
    const char *here = site_with(x->rules, stage->device);
    for (int l = stage->first_layer; l <= stage->last_layer; l++)
        for (int i = 0; i < costs->layers[l].input_count; i++) {
            const CostInput *input = &costs->layers[l].inputs[i];
            bool label = !costs_read_input(costs, 0, costs->layer_count - 2, input->name);
            const char *device = label ? costs->keep_labels : costs->keep_inputs, *home = NULL;
            int site = label ? costs->sites.keep_labels : costs->sites.keep_inputs;
            if (site >= 0) home = costs->sites.names[site];
            if (device) home = site_with(x->rules, device);
            if (!home || strcmp(home, here) == 0 || costs_read_input(costs, stage->first_layer, l - 1, input->name))
                continue;
            expect(x, (PlanSiteCrossing){.tensor = {input->name, DTYPE_U8, {1, {input->bytes}}, input->bytes},
                                         .kind = PLAN_CROSSING_INPUT,
                                         .codec = CODEC_NONE,
                                         .wire_bytes = input->bytes,
                                         .from_stage = -1,
                                         .to_stage = k,
                                         .from_site = home,
                                         .to_site = here});
        }
}

bool verify_site_crossings(Rules *r)
{
    Listing x = {.rules = r, .equal = true};
    if (r->plan->has_sites != (r->costs->sites.count > 0))
        return rules_refuse(r, "crossings_between_sites",
                            r->plan->has_sites ? "the costs know no sites" : "is missing");
    if (!r->plan->has_sites) return true;
    for (int k = 0; k + 1 < r->plan->stage_count; k++) expect_cut(&x, k);
    for (int i = 0; i < r->costs->sites.shared_count; i++) expect_shared(&x, &r->costs->sites.shared[i]);
    for (int k = 0; k < r->plan->stage_count; k++) expect_inputs(&x, k);
    return (x.equal && x.next == r->plan->site_crossing_count) ||
           rules_refuse(r, "crossings_between_sites", "are not what crosses between sites");
}
