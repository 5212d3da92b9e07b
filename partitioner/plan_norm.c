#include "partitioner/plan_norm.h"

#include <math.h>
#include <stdlib.h>

#include "base/integers.h"

static const int64_t longest_ns = (int64_t)1e15; /* as of links */

static int64_t message_ns(const Costs *costs, int from, int to)
{
    if (!costs->region_count) return 0;
    int pair = from * costs->region_count + to;
    double transfer = ceil((double)costs->norm_bytes / costs->bandwidth_Bps[pair] * 1e9);
    return (int64_t)ceil(costs->latency_s[pair] * 1e9) + (transfer < 1e15 ? (int64_t)transfer : longest_ns);
}

/* The zone of each rank: the regions that are used, numbered as ranks meet them, which `regions` lists. */
static uint32_t *number_zones(Plan *plan, const Costs *costs, int *regions, uint32_t *count)
{
    uint32_t *zones = arena_new_array(&plan->arena, uint32_t, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++) {
        int region = costs->region_count ? costs->devices[costs_find_device(costs, plan->ranks[r].device)].region : 0;
        for (zones[r] = 0; zones[r] < *count && regions[zones[r]] != region;) zones[r]++;
        if (zones[r] == *count) regions[(*count)++] = region;
    }
    return zones;
}

/* NULL where all ranks are in one. */
static uint32_t *number_sites(Plan *plan, const Costs *costs)
{
    bool several = false;
    if (!costs->sites.count) return NULL;
    uint32_t *sites = arena_new_array(&plan->arena, uint32_t, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++) {
        sites[r] = (uint32_t)costs->devices[costs_find_device(costs, plan->ranks[r].device)].site;
        several |= sites[r] != sites[0];
    }
    return several ? sites : NULL;
}

/* What the round takes if all ranks begin it together. */
static int64_t alone_ns(const Plan *plan)
{
    size_t ranks = (size_t)plan->rank_count;
    FREED int64_t *times = memory_allocate((2 * ranks + NORM_ROUND_SCRATCH(ranks)) * sizeof *times);
    int64_t most = 0;
    norm_round(plan->norm, times, times + ranks, times + 2 * ranks);
    for (size_t r = 0; r < ranks; r++) most = larger(most, times[ranks + r]);
    return most;
}

void plan_norm_set(Plan *plan, const Costs *costs)
{
    if (costs->norm_bytes <= 0 || plan->rank_count < 2) return;
    uint32_t zones = 0;
    FREED int *regions = memory_allocate((size_t)plan->rank_count * sizeof *regions);
    SkyNormRound *norm = arena_new(&plan->arena, SkyNormRound);
    norm->rank_count = (uint32_t)plan->rank_count;
    norm->zones = number_zones(plan, costs, regions, &zones);
    norm->sites = number_sites(plan, costs);
    norm->zone_count = zones;
    norm->pair_count = zones * zones;
    int64_t *messages = arena_new_array(&plan->arena, int64_t, norm->pair_count);
    for (uint32_t from = 0; from < zones; from++)
        for (uint32_t to = 0; to < zones; to++)
            messages[from * zones + to] = message_ns(costs, regions[from], regions[to]);
    norm->message_ns = messages;
    plan->norm = norm;
    plan->norm_bytes = costs->norm_bytes;
    plan->norm_ns = alone_ns(plan);
}

/* ---- plan.json ---- */

static void add_numbers(JsonWriter *json, const char *key, const uint32_t *numbers, uint32_t count)
{
    json_open(json, key, '[');
    for (uint32_t i = 0; i < count; i++) json_add_integer(json, NULL, numbers[i]);
    json_close(json, ']');
}

void plan_norm_print(const Plan *plan, JsonWriter *json)
{
    const SkyNormRound *norm = plan->norm;
    if (!norm) return;
    json_open(json_break(json, "\n "), "norm", '{');
    json_add_integer(json, "bytes", plan->norm_bytes);
    plan_add_seconds(json, "seconds", plan->norm_ns);
    add_numbers(json, "zones", norm->zones, norm->rank_count);
    if (norm->sites) add_numbers(json, "sites", norm->sites, norm->rank_count);
    json_open(json, "message_s", '[');
    for (uint32_t i = 0; i < norm->pair_count; i++) plan_add_seconds(json, NULL, norm->message_ns[i]);
    json_close(json, ']');
    json_close(json, '}');
}

/* Of every rank a number below `limit`. */
static bool read_numbers(Plan *plan, JsonReader json, const json_t *object, const char *key, uint32_t limit,
                         const uint32_t **numbers)
{
    json_t *array;
    if (!json_get_array(json, object, "norm", key, &array)) return false;
    if (json_array_size(array) != (size_t)plan->rank_count) return json_refuse(json, "norm", "is not of these ranks");
    uint32_t *all = arena_new_array(&plan->arena, uint32_t, (size_t)plan->rank_count);
    for (int r = 0; r < plan->rank_count; r++) {
        const json_t *item = json_array_get(array, (size_t)r);
        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) >= limit)
            return json_refuse(json, "norm", "numbers what is not there");
        all[r] = (uint32_t)json_integer_value(item);
    }
    *numbers = all;
    return true;
}

static bool is_time(double seconds) { return seconds >= 0 && seconds <= 4e9; }

static bool read_messages(Plan *plan, JsonReader json, const json_t *object, SkyNormRound *norm)
{
    json_t *array;
    if (!json_get_array(json, object, "norm", "message_s", &array)) return false;
    while ((size_t)norm->zone_count * norm->zone_count < json_array_size(array)) norm->zone_count++;
    norm->pair_count = norm->zone_count * norm->zone_count;
    if (norm->pair_count != json_array_size(array) || norm->zone_count < 1 || norm->zone_count > norm->rank_count)
        return json_refuse(json, "norm.message_s", "is no square of at most the ranks");
    int64_t *messages = arena_new_array(&plan->arena, int64_t, norm->pair_count);
    for (size_t i = 0; i < norm->pair_count; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_number(item) || !is_time(json_number_value(item)))
            return json_refuse(json, "norm.message_s", "holds what is no time");
        messages[i] = llround(json_number_value(item) * 1e9);
    }
    norm->message_ns = messages;
    return true;
}

bool plan_norm_read(Plan *plan, JsonReader json, const json_t *root)
{
    json_t *object;
    double seconds;
    if (!json_object_get(root, "norm")) return true;
    SkyNormRound *norm = arena_new(&plan->arena, SkyNormRound);
    norm->rank_count = (uint32_t)plan->rank_count;
    if (!json_get_object(json, root, "", "norm", &object) ||
        !json_get_integer(json, object, "norm", "bytes", &plan->norm_bytes) ||
        !json_get_number(json, object, "norm", "seconds", &seconds) || !read_messages(plan, json, object, norm) ||
        !read_numbers(plan, json, object, "zones", norm->zone_count, &norm->zones) ||
        (json_object_get(object, "sites") &&
         !read_numbers(plan, json, object, "sites", COSTS_MAX_DEVICES, &norm->sites)))
        return false;
    if (!is_time(seconds)) return json_refuse(json, "norm.seconds", "is not a time");
    plan->norm_ns = llround(seconds * 1e9);
    plan->norm = norm;
    return true;
}
