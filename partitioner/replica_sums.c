#include "partitioner/replica_sums.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"

/* How many different rows so many reads are expected to touch. Frequent rows one by one, others in blocks. */
static double rows_touched(int64_t rows, int64_t reads)
{
    enum { ONE_BY_ONE = 256, BLOCKS = 64 };
    double all = 0, touched = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 1, count; i <= rows; i += count) {
            count = i < ONE_BY_ONE ? 1 : i / BLOCKS;
            if (count > rows - i + 1) count = rows - i + 1;
            double weight = 1 / ((double)i + 0.5 * (double)(count - 1)), missed = 1;
            if (pass == 0) {
                all += (double)count * weight;
                continue;
            }
            double power = 1 - weight / all; /* missed = power ^ reads, by multiplications: alike on all machines */
            for (int64_t left = reads; left > 0; left >>= 1, power *= power)
                if (left & 1) missed *= power;
            touched += (double)count * (1 - missed);
        }
    return touched;
}

/* Two replicas send each other what each has read; of more, each sends that once in parts, and the sums. */
int64_t replica_sums_bytes(const LayerCost *layer, int replicas, int microbatches, int most, unsigned codecs)
{
    int64_t dense = layer->gradient_bytes - layer->table_rows * layer->table_row_bytes;
    if (layer->table_rows == 0 || codecs_of_sums(codecs) != CODEC_NONE) return layer->gradient_bytes;
    double rows = rows_touched(layer->table_rows, layer->table_reads * most);
    if (replicas > 2) rows = (rows + rows_touched(layer->table_rows, layer->table_reads * microbatches)) / 2;
    return dense + (int64_t)ceil(rows) * layer->table_row_bytes;
}

static int64_t layer_bytes(const Plan *plan, const Costs *costs, int layer)
{
    int most = 0;
    for (int r = 0; r < plan->replica_count; r++)
        if (plan->replicas[r].microbatches > most) most = plan->replicas[r].microbatches;
    return replica_sums_bytes(&costs->layers[layer], plan->replica_count, plan->microbatches, most, plan->codecs);
}

bool replica_sums_has(const Plan *plan, int rank, int layer)
{
    for (int k = 0; k < plan->ranks[rank].stage_count; k++) {
        const PlanStage *stage = &plan->stages[plan->ranks[rank].stages[k]];
        if (stage->first_layer <= layer && layer <= stage->last_layer) return true;
    }
    return false;
}

const int *replica_sums_regions(const Plan *plan, const Costs *costs, Arena *arena)
{
    int *regions = arena_new_array(arena, int, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++)
        regions[r] = costs->devices[costs_find_device(costs, plan->ranks[r].device)].region;
    return regions;
}

/* One message each to all other holders, one after another, once for the terms and once for the sums. */
int64_t replica_sums_layer_ns(const Plan *plan, const Costs *costs, const int *regions, int rank, int layer,
                              int64_t *latency_ns)
{
    double bytes = (double)layer_bytes(plan, costs, layer) * codecs_sum_share(plan->codecs), sent = 0;
    int n = costs->region_count;
    if (n == 0 || bytes == 0) return 0;
    for (int other = 0; other < plan->rank_count; other++) {
        if (plan->ranks[other].replica == plan->ranks[rank].replica || !replica_sums_has(plan, other, layer)) continue;
        int there = regions[rank] * n + regions[other], back = regions[other] * n + regions[rank];
        sent += bytes / plan->replica_count / fmin(costs->bandwidth_Bps[there], costs->bandwidth_Bps[back]);
        *latency_ns = larger(*latency_ns, (int64_t)ceil(fmax(costs->latency_s[there], costs->latency_s[back]) * 2e9));
    }
    return (int64_t)ceil(2e9 * sent);
}

void replica_sums_set(Plan *plan, const Costs *costs)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const int *regions = replica_sums_regions(plan, costs, &arena);
    plan->sum_ns = 0;
    for (int r = 0; r < plan->rank_count; r++) {
        PlanRank *rank = &plan->ranks[r];
        rank->sum_ns = rank->sum_latency_ns = rank->summed_bytes = 0;
        for (int l = 0; l < plan->layer_count && plan->replica_count > 1; l++) {
            if (!replica_sums_has(plan, r, l)) continue;
            rank->sum_ns += replica_sums_layer_ns(plan, costs, regions, r, l, &rank->sum_latency_ns);
            rank->summed_bytes += layer_bytes(plan, costs, l);
        }
        plan->sum_ns = larger(plan->sum_ns, rank->sum_ns + rank->sum_latency_ns);
    }
}

void replica_sums_print_order(const Plan *plan, JsonWriter *json)
{
    if (!plan->sum_order) return;
    json_open(json_break(json, "\n "), "sum_order", '[');
    for (int i = 0; i < plan->layer_count; i++) json_add_integer(json, NULL, plan->sum_order[i]);
    json_close(json, ']');
}

bool replica_sums_read_order(Plan *plan, JsonReader json, const json_t *root)
{
    json_t *layers;
    size_t count = (size_t)plan->layer_count;
    if (!json_object_get(root, "sum_order")) return true;
    if (!json_get_array(json, root, "", "sum_order", &layers)) return false;
    int *order = arena_new_array(&plan->arena, int, count);
    FREED bool *found = memory_allocate(count * sizeof *found);
    bool once = json_array_size(layers) == count && plan->replica_count > 1;
    memset(found, 0, count * sizeof *found);
    for (size_t i = 0; i < count && once; i++) {
        const json_t *layer = json_array_get(layers, i);
        int64_t l = json_is_integer(layer) ? json_integer_value(layer) : -1;
        once = l >= 0 && l < plan->layer_count && !found[l];
        if (once) found[order[i] = (int)l] = true;
    }
    plan->sum_order = order;
    return once || json_refuse(json, "sum_order", "must list each layer once, where there are several replicas");
}
