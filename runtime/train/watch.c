#include "runtime/train/watch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void watch_open(Watch *watch, Metric metric, int64_t patience, Hash data)
{
    *watch = (Watch){.metric = metric, .patience = patience, .best = {.value = NAN, .data = data}};
    snprintf(watch->best.metric, sizeof watch->best.metric, "%s", metric_name(metric));
}

bool watch_continue(Watch *watch, const CheckpointBest *best)
{
    if (!best->metric[0]) return true;
    const Hash data = watch->best.data;
    bool known = !hash_equal(best->data, (Hash){0});
    if (strcmp(best->metric, watch->best.metric) != 0 || (known && !hash_equal(best->data, data))) return false;
    watch->best = *best;
    watch->best.data = data;
    return true;
}

bool watch_take(Watch *watch, int64_t step, double value)
{
    CheckpointBest *best = &watch->best;
    if (isfinite(value) && (!best->step || metric_is_better(watch->metric, value, best->value))) {
        best->step = step;
        best->value = value;
        best->waited = 0;
        return true;
    }
    best->waited++;
    return false;
}

bool watch_is_over(const Watch *watch) { return watch->patience && watch->best.waited >= watch->patience; }
