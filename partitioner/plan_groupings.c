#include "partitioner/plan_groupings.h"

#include <math.h>
#include <string.h>

#include "base/parts.h"

static void add_grouping(JsonWriter *json, const PlanGrouping *grouping)
{
    json_open(json_break(json, "\n  "), NULL, '{');
    json_add_integer(json, "replicas", grouping->count);
    plan_add_seconds(json, "step_s", grouping->step_ns);
    plan_add_seconds(json, "bound_s", grouping->bound_ns);
    json_open(json, "devices", '[');
    for (int g = 0; g < grouping->count; g++) {
        json_open(json, NULL, '[');
        for (int d = 0; d < grouping->device_count; d++)
            if (grouping->group[d] == g) json_add_string(json, NULL, grouping->device[d]);
        json_close(json, ']');
    }
    json_close(json, ']');
    json_close(json, '}');
}

void plan_groupings_print(const Plan *plan, JsonWriter *json)
{
    if (plan->grouping_count == 0) return;
    json_open(json_break(json, "\n "), "groupings", '{');
    json_add_integer(json, "tried", plan->groupings_tried);
    json_add_bool(json, "all", plan->groupings_all);
    json_open(json, "best", '[');
    for (int i = 0; i < plan->grouping_count; i++) add_grouping(json, &plan->groupings[i]);
    json_close(json, ']');
    json_close(json, '}');
}

static bool get_time(JsonReader json, const json_t *object, const char *path, const char *key, int64_t *nanoseconds)
{
    double seconds;
    if (!json_get_number(json, object, path, key, &seconds)) return false;
    *nanoseconds = seconds >= 0 && seconds <= 4e9 ? llround(seconds * 1e9) : -1;
    return *nanoseconds >= 0 || json_refuse(json, path, "has what is no time");
}

static bool add_device(Plan *plan, PlanGrouping *grouping, const char *name, int group)
{
    if (!name || word_index(name, grouping->device, (size_t)grouping->device_count) >= 0) return false;
    grouping->device[grouping->device_count] = arena_string(&plan->arena, name);
    grouping->group[grouping->device_count++] = group;
    return true;
}

static bool read_grouping(Plan *plan, JsonReader json, const json_t *object, PlanGrouping *grouping)
{
    static const char path[] = "groupings.best";
    json_t *groups;
    int64_t replicas;
    size_t devices = 0;
    if (!json_get_integer(json, object, path, "replicas", &replicas) ||
        !get_time(json, object, path, "step_s", &grouping->step_ns) ||
        !get_time(json, object, path, "bound_s", &grouping->bound_ns) ||
        !json_get_array(json, object, path, "devices", &groups))
        return false;
    grouping->count = (int)json_array_size(groups);
    if (grouping->count < 1 || replicas != grouping->count)
        return json_refuse(json, path, "has other groups than replicas");
    for (int g = 0; g < grouping->count; g++) devices += json_array_size(json_array_get(groups, (size_t)g));
    if (devices > COSTS_MAX_DEVICES) return json_refuse(json, path, "has too many devices");
    grouping->device = arena_new_array(&plan->arena, const char *, devices);
    grouping->group = arena_new_array(&plan->arena, int, devices);
    for (int g = 0; g < grouping->count; g++) {
        const json_t *names = json_array_get(groups, (size_t)g);
        if (json_array_size(names) == 0) return json_refuse(json, path, "has a group without devices");
        for (size_t d = 0; d < json_array_size(names); d++)
            if (!add_device(plan, grouping, json_string_value(json_array_get(names, d)), g))
                return json_refuse(json, path, "names a device twice, or none");
    }
    return true;
}

bool plan_groupings_read(Plan *plan, JsonReader json, const json_t *root)
{
    json_t *object, *best;
    int64_t tried;
    if (!json_object_get(root, "groupings")) return true;
    if (!json_get_object(json, root, "", "groupings", &object) ||
        !json_get_integer(json, object, "groupings", "tried", &tried) ||
        !json_get_array(json, object, "groupings", "best", &best))
        return false;
    if (tried < (int64_t)json_array_size(best) || tried > INT32_MAX || !json_is_boolean(json_object_get(object, "all")))
        return json_refuse(json, "groupings", "must say how many were tried, and whether these are all");
    plan->groupings_tried = (int)tried;
    plan->groupings_all = json_is_true(json_object_get(object, "all"));
    plan->groupings = arena_new_array(&plan->arena, PlanGrouping, json_array_size(best));
    for (size_t i = 0; i < json_array_size(best); i++)
        if (!read_grouping(plan, json, json_array_get(best, i), &plan->groupings[plan->grouping_count++])) return false;
    return true;
}
