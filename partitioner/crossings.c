#include "partitioner/crossings.h"

#include <string.h>

static const char *region_of(const Costs *costs, const char *device)
{
    int index = device ? costs_find_device(costs, device) : -1;
    return index < 0 || costs->devices[index].region < 0 ? NULL : costs->region_names[costs->devices[index].region];
}

static void add(Plan *plan, int *capacity, PlanCrossing crossing)
{
    if (!crossing.from_region || !crossing.to_region || strcmp(crossing.from_region, crossing.to_region) == 0) return;
    if (plan->crossing_count == *capacity) {
        PlanCrossing *grown = arena_new_array(&plan->arena, PlanCrossing, 2 * (size_t)*capacity + 8);
        if (*capacity) memcpy(grown, plan->crossings, (size_t)*capacity * sizeof *grown);
        plan->crossings = grown;
        *capacity = 2 * *capacity + 8;
    }
    crossing.tensor = arena_string(&plan->arena, crossing.tensor);
    crossing.from_region = arena_string(&plan->arena, crossing.from_region);
    crossing.to_region = arena_string(&plan->arena, crossing.to_region);
    plan->crossings[plan->crossing_count++] = crossing;
}

/* Labels are what the last layer alone reads; the raw inputs are the others. */
static const char *home_of(const Costs *costs, const char *input)
{
    return costs_read_input(costs, 0, costs->layer_count - 2, input) ? costs->keep_inputs : costs->keep_labels;
}

static void add_inputs(Plan *plan, const Costs *costs, int stage, int *capacity)
{
    const PlanStage *s = &plan->stages[stage];
    for (int l = s->first_layer; l <= s->last_layer; l++)
        for (int i = 0; i < costs->layers[l].input_count; i++) {
            const CostInput *input = &costs->layers[l].inputs[i];
            if (!costs_read_input(costs, s->first_layer, l - 1, input->name))
                add(plan, capacity,
                    (PlanCrossing){input->name, input->bytes, true, -1, stage,
                                   region_of(costs, home_of(costs, input->name)), region_of(costs, s->device)});
        }
}

void crossings_fill(Plan *plan, const Costs *costs)
{
    int capacity = 0;
    FREED_WITH(arena_free) Arena scratch = {0};
    plan->crossing_count = 0;
    for (int k = 0; k < plan->stage_count && costs->region_count > 0; k++) {
        add_inputs(plan, costs, k, &capacity);
        if (k == plan->link_count) break;
        const LayerCost *layer = &costs->layers[plan->stages[k].last_layer];
        const char *from = region_of(costs, plan->stages[k].device), *to = region_of(costs, plan->stages[k + 1].device);
        const char *name = layer->output ? layer->output : arena_format(&scratch, "output of %s", layer->name);
        const char *gradient = arena_format(&scratch, "gradient of %s", name);
        add(plan, &capacity, (PlanCrossing){name, layer->output_bytes, false, k, k + 1, from, to});
        add(plan, &capacity, (PlanCrossing){gradient, costs_output_bytes(layer, 1), false, k + 1, k, to, from});
    }
}

static bool rank_reads(const Plan *plan, const Costs *costs, int rank, const char *input)
{
    for (int i = 0; i < plan->ranks[rank].stage_count; i++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[i]];
        if (costs_read_input(costs, stage->first_layer, stage->last_layer, input)) return true;
    }
    return false;
}

/* Devices other than `home`, or of other sites than that, that read the input. */
static int count_readers(const Plan *plan, const Costs *costs, const char *input, const char *home, bool is_site)
{
    int readers = 0;
    for (int r = 0; r < plan->rank_count; r++) {
        const char *device = plan->ranks[r].device, *place = is_site ? costs_site_of(costs, device) : device;
        readers += strcmp(place, home) != 0 && rank_reads(plan, costs, r, input);
    }
    return readers;
}

/* The site that `keep` names for an input; NULL: none. */
static const char *home_site_of(const Costs *costs, const char *input)
{
    bool label = !costs_read_input(costs, 0, costs->layer_count - 2, input);
    int site = label ? costs->sites.keep_labels : costs->sites.keep_inputs;
    return costs->sites.count && site >= 0 ? costs->sites.names[site] : NULL;
}

int crossings_strays(const Plan *plan, const Costs *costs, StrayInput *strays, int most)
{
    int count = 0;
    for (int l = 0; l < costs->layer_count; l++)
        for (int i = 0; i < costs->layers[l].input_count && count < most; i++) {
            const char *name = costs->layers[l].inputs[i].name, *home = home_of(costs, name);
            const char *site = home_site_of(costs, name);
            if (site) home = site;
            bool known = !home;
            for (int before = 0; before < count && !known; before++) known = strcmp(strays[before].name, name) == 0;
            int readers = known ? 0 : count_readers(plan, costs, name, home, site != NULL);
            if (readers > 0) strays[count++] = (StrayInput){name, home, readers};
        }
    return count;
}
