#include "partitioner/site_crossings.h"

#include <string.h>

#include "base/parts.h"

static const char *const kind_names[PLAN_CROSSING_KINDS] = {
    [PLAN_CROSSING_ACTIVATION] = "activation",
    [PLAN_CROSSING_GRADIENT] = "gradient",
    [PLAN_CROSSING_SHARED] = "shared-gradient",
    [PLAN_CROSSING_INPUT] = "input",
};

const char *site_crossing_kind_name(PlanCrossingKind kind) { return kind_names[kind]; }

/* The bytes of a tensor after coding; codecs apply to float32 only. */
static int64_t site_crossing_bytes(const CostTensor *tensor, Codec codec)
{
    if (codec == CODEC_NONE || tensor->dtype != DTYPE_F32 || tensor->shape.rank == 0) return tensor->bytes;
    int64_t columns = tensor->shape.dim[tensor->shape.rank - 1];
    return columns ? shape_elements(&tensor->shape) / columns * codec_row_bytes(codec, columns) : 0;
}

/* ---- which ---- */

typedef struct Filling {
    Plan *plan;
    const Costs *costs;
    size_t capacity;
} Filling;

static const char *site_of_stage(const Filling *f, int stage)
{
    return costs_site_of(f->costs, f->plan->stages[stage].device);
}

static void add(Filling *f, PlanSiteCrossing crossing)
{
    Plan *plan = f->plan;
    if ((size_t)plan->site_crossing_count == f->capacity) {
        size_t capacity = 2 * f->capacity + 8;
        PlanSiteCrossing *grown = arena_new_array(&plan->arena, PlanSiteCrossing, capacity);
        if (f->capacity) memcpy(grown, plan->site_crossings, f->capacity * sizeof *grown);
        plan->site_crossings = grown;
        f->capacity = capacity;
    }
    crossing.tensor.name = arena_string(&plan->arena, crossing.tensor.name);
    crossing.from_site = arena_string(&plan->arena, crossing.from_site);
    crossing.to_site = arena_string(&plan->arena, crossing.to_site);
    plan->site_crossings[plan->site_crossing_count++] = crossing;
}

static void add_cut(Filling *f, int k)
{
    const Plan *plan = f->plan;
    const char *sites[2] = {site_of_stage(f, k), site_of_stage(f, k + 1)};
    const CostCut *cut = &f->costs->sites.cuts[plan->stages[k].last_layer];
    if (strcmp(sites[0], sites[1]) == 0) return;
    for (int direction = 0; direction < 2; direction++)
        for (int i = 0; i < cut->count[direction]; i++) {
            const CostTensor *tensor = &cut->tensors[direction][i];
            Codec codec = plan->links[k].codecs[direction];
            add(f, (PlanSiteCrossing){*tensor, direction ? PLAN_CROSSING_GRADIENT : PLAN_CROSSING_ACTIVATION, codec,
                                      site_crossing_bytes(tensor, codec), plan->microbatches, k + direction,
                                      k + !direction, sites[direction], sites[!direction]});
        }
}

static int rank_with(const Plan *plan, int layer)
{
    int stage = 0;
    while (plan->stages[stage].last_layer < layer) stage++;
    return plan->stages[stage].rank;
}

/* How many uses of the parameter a rank has. */
static int uses_of(const Plan *plan, const CostShared *shared, int rank)
{
    int uses = 0;
    for (int u = 0; u < shared->layer_count; u++) uses += rank_with(plan, shared->layers[u]) == rank;
    return uses;
}

/* Every rank that has uses sends each of them to every other rank that has any. */
static void add_shared(Filling *f, const CostShared *shared)
{
    const Plan *plan = f->plan;
    const SiteCosts *sites = &f->costs->sites;
    for (int from = 0; from < sites->count; from++)
        for (int to = 0; to < sites->count; to++) {
            int64_t count = 0;
            for (int a = 0; a < plan->rank_count && from != to; a++)
                for (int b = 0; b < plan->rank_count; b++)
                    if (strcmp(costs_site_of(f->costs, plan->ranks[a].device), sites->names[from]) == 0 &&
                        strcmp(costs_site_of(f->costs, plan->ranks[b].device), sites->names[to]) == 0 &&
                        uses_of(plan, shared, b) > 0)
                        count += uses_of(plan, shared, a);
            if (count > 0)
                add(f, (PlanSiteCrossing){shared->tensor, PLAN_CROSSING_SHARED, CODEC_NONE, shared->tensor.bytes, count,
                                          -1, -1, sites->names[from], sites->names[to]});
        }
}

/* The site that `keep` makes the home of an input: labels are what the last layer alone reads. NULL: any. */
static const char *home_of(const Costs *costs, const char *input)
{
    bool label = !costs_read_input(costs, 0, costs->layer_count - 2, input);
    const char *device = label ? costs->keep_labels : costs->keep_inputs;
    int site = label ? costs->sites.keep_labels : costs->sites.keep_inputs;
    return device ? costs_site_of(costs, device) : site >= 0 ? costs->sites.names[site] : NULL;
}

/* Read from the site's own copy of the data, not sent. */
static void add_inputs(Filling *f, int k)
{
    const Costs *costs = f->costs;
    const PlanStage *stage = &f->plan->stages[k];
    for (int l = stage->first_layer; l <= stage->last_layer; l++)
        for (int i = 0; i < costs->layers[l].input_count; i++) {
            const CostInput *input = &costs->layers[l].inputs[i];
            const char *home = home_of(costs, input->name), *here = site_of_stage(f, k);
            if (!home || strcmp(home, here) == 0 || costs_read_input(costs, stage->first_layer, l - 1, input->name))
                continue;
            CostTensor tensor = {input->name, DTYPE_U8, {1, {input->bytes}}, input->bytes};
            add(f, (PlanSiteCrossing){tensor, PLAN_CROSSING_INPUT, CODEC_NONE, input->bytes, 0, -1, k, home, here});
        }
}

void site_crossings_fill(Plan *plan, const Costs *costs)
{
    Filling f = {plan, costs, 0};
    plan->site_crossing_count = 0;
    plan->has_sites = costs->sites.count > 0;
    if (!plan->has_sites) return;
    for (int k = 0; k < plan->link_count; k++) add_cut(&f, k);
    for (int i = 0; i < costs->sites.shared_count; i++) add_shared(&f, &costs->sites.shared[i]);
    for (int k = 0; k < plan->stage_count; k++) add_inputs(&f, k);
}

/* ---- in plan.json ---- */

static void add_one(JsonWriter *json, const PlanSiteCrossing *crossing)
{
    json_open(json, NULL, '{');
    cost_tensor_add(&crossing->tensor, json);
    json_add_string(json, "kind", kind_names[crossing->kind]);
    json_add_string(json, "codec", codec_name(crossing->codec));
    json_add_integer(json, "wire_bytes", crossing->wire_bytes);
    json_add_integer(json, "per_step", crossing->per_step);
    if (crossing->from_stage >= 0) json_add_integer(json, "from_stage", crossing->from_stage);
    if (crossing->to_stage >= 0) json_add_integer(json, "to_stage", crossing->to_stage);
    json_add_string(json, "from_site", crossing->from_site);
    json_add_string(json, "to_site", crossing->to_site);
    json_close(json, '}');
}

void site_crossings_print(const Plan *plan, JsonWriter *json)
{
    if (!plan->has_sites) return;
    json_open(json_break(json, "\n "), "crossings_between_sites", '[');
    for (int i = 0; i < plan->site_crossing_count; i++) add_one(json_break(json, "\n  "), &plan->site_crossings[i]);
    json_close(json, ']');
}

static bool read_stage(JsonReader reader, const Plan *plan, const json_t *object, const char *path, const char *key,
                       int *stage)
{
    int64_t value = -1;
    if (!json_optional_integer(reader, object, path, key, &value)) return false;
    if (value < -1 || value >= plan->stage_count) return json_refuse(reader, path, "names a stage that does not exist");
    *stage = (int)value;
    return true;
}

static bool read_one(JsonReader reader, Plan *plan, const json_t *object, const char *path, PlanSiteCrossing *crossing)
{
    const char *kind, *codec, *from, *to;
    if (!cost_tensor_read(reader, object, path, &plan->arena, &crossing->tensor) ||
        !json_get_string(reader, object, path, "kind", &kind) ||
        !json_get_string(reader, object, path, "codec", &codec) ||
        !json_get_integer(reader, object, path, "wire_bytes", &crossing->wire_bytes) ||
        !json_get_integer(reader, object, path, "per_step", &crossing->per_step) ||
        !read_stage(reader, plan, object, path, "from_stage", &crossing->from_stage) ||
        !read_stage(reader, plan, object, path, "to_stage", &crossing->to_stage) ||
        !json_get_string(reader, object, path, "from_site", &from) ||
        !json_get_string(reader, object, path, "to_site", &to))
        return false;
    if (!codec_from_name(codec, &crossing->codec)) return json_refuse(reader, path, "has an unknown codec");
    if (crossing->wire_bytes < 0 || crossing->per_step < 0)
        return json_refuse(reader, path, "has negative bytes or counts");
    crossing->from_site = arena_string(&plan->arena, from);
    crossing->to_site = arena_string(&plan->arena, to);
    int number = word_index(kind, kind_names, PLAN_CROSSING_KINDS);
    if (number < 0) return json_refuse(reader, path, "has an unknown kind");
    crossing->kind = (PlanCrossingKind)number;
    return true;
}

bool site_crossings_read(Plan *plan, JsonReader reader, const json_t *root)
{
    json_t *array;
    if (!json_object_get(root, "crossings_between_sites")) return true;
    if (!json_get_array(reader, root, "", "crossings_between_sites", &array)) return false;
    if (json_array_size(array) > (1 << 24)) return json_refuse(reader, "crossings_between_sites", "too many");
    plan->has_sites = true;
    plan->site_crossings = arena_new_array(&plan->arena, PlanSiteCrossing, json_array_size(array));
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!read_one(reader, plan, json_array_get(array, i),
                      arena_format(&plan->arena, "crossings_between_sites[%zu]", i),
                      &plan->site_crossings[plan->site_crossing_count++]))
            return false;
    return true;
}
