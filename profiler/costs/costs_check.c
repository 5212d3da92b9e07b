/* What costs may be, whoever made them. */
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "profiler/costs/costs_members.h"

/* Larger times would overflow 64-bit nanoseconds once multiplied by the number of micro-batches. */
static const double MAX_SECONDS = 1e6;
static const double MAX_BYTES = 1e18;

typedef struct Checking {
    const char *file;
    Diagnostics *diagnostics;
    Arena scratch;
} Checking;

static bool wrong(Checking *c, const char *object, const char *reason)
{
    return diagnostics_error(c->diagnostics, EXIT_BAD_INPUT, (Place){.file = c->file, .object = object}, NULL, "%s",
                             reason);
}

static bool check_seconds(Checking *c, const char *object, const char *what, double value)
{
    if (value >= 0 && value <= MAX_SECONDS) return true; /* false for NaN */
    return wrong(c, object, arena_format(&c->scratch, "%s must be between 0 and 1e6 seconds", what));
}

static bool check_bytes(Checking *c, const char *object, const char *what, int64_t value)
{
    if (value >= 0 && (double)value <= MAX_BYTES) return true;
    return wrong(c, object, arena_format(&c->scratch, "%s must be between 0 and 1e18 bytes", what));
}

static bool check_layer(Checking *c, const Costs *costs, int i)
{
    const LayerCost *l = &costs->layers[i];
    const char *object = arena_format(&c->scratch, "layers[%d] '%s'", i, l->name);
    for (const CostMember *m = layer_members; m->key; m++)
        if (m->is_bytes ? !check_bytes(c, object, m->key, *layer_bytes(m, l))
                        : !check_seconds(c, object, m->key, *layer_seconds(m, l)))
            return false;
    if (l->weight_gradient_s > l->backward_s)
        return wrong(c, object, "weight_gradient_s must not be more than backward_s");
    if (l->table_reads > UINT32_MAX ||
        (l->table_rows > 0 && (l->table_row_bytes < 1 || l->table_rows > l->gradient_bytes / l->table_row_bytes)))
        return wrong(c, object, "a table has rows of a byte or more, at most gradient_bytes, and less than 2^32 reads");
    return !l->shared_bytes ||
           (i + 1 < costs->layer_count && l->shared_bytes <= l->stash_bytes && l->shared_bytes <= l[1].stash_bytes) ||
           wrong(c, object, "shared_bytes must not be more than the stash of the layer or of the next");
}

/* A second for a byte: beyond that 64 bits might not hold what a tensor takes. */
static bool check_coding(Checking *c, const char *object, const double coding_s[CODEC_COUNT][2])
{
    for (int codec = 0; codec < CODEC_COUNT; codec++)
        for (int way = 0; way < 2; way++)
            if (!(coding_s[codec][way] >= 0 && coding_s[codec][way] <= 1))
                return wrong(c, object, "coding_s must be between 0 and 1 second a byte");
    return true;
}

static bool check_own_times(Checking *c, const char *object, const char *what, const double *times, int count)
{
    for (int i = 0; times && i < count; i++)
        if (!check_seconds(c, object, what, times[i])) return false;
    return true;
}

static bool check_device(Checking *c, const Costs *costs, int i)
{
    const DeviceCost *d = &costs->devices[i];
    const char *object = arena_format(&c->scratch, "devices[%d] '%s'", i, d->name);
    if (!(d->cores >= 0 && d->cores <= 1e6)) return wrong(c, object, "cores must be between 0 and 1e6");
    if (!(d->slowdown > 0 && d->slowdown <= 1e9)) return wrong(c, object, "slowdown must be above 0 and at most 1e9");
    if (d->memory_bytes < 0) return wrong(c, object, "memory_bytes must not be negative");
    if (d->process_bytes < 0 || d->process_bytes > COSTS_MOST_PROCESS_BYTES)
        return wrong(c, object, "process_bytes must be 0 to 2^40");
    if (costs->region_count > 0 && d->region < 0) return wrong(c, object, "must name its region, as there are links");
    for (const CostMember *m = device_times; m->key; m++)
        if (!check_own_times(c, object, m->key, *own_times(m, d), costs->layer_count)) return false;
    return check_coding(c, object, d->coding_s);
}

static bool check_unique(Checking *c, const char **names, int count, const char *what)
{
    const char **sorted = arena_copy(&c->scratch, names, (size_t)count * sizeof *names);
    qsort(sorted, (size_t)count, sizeof *sorted, order_texts);
    for (int i = 1; i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return wrong(c, what, arena_format(&c->scratch, "the name '%s' is used twice", sorted[i]));
    return true;
}

static bool check_links(Checking *c, const Costs *costs)
{
    for (int i = 0; i < costs->region_count * costs->region_count; i++) {
        const char *object =
            arena_format(&c->scratch, "links from '%s' to '%s'", costs->region_names[i / costs->region_count],
                         costs->region_names[i % costs->region_count]);
        if (!check_seconds(c, object, "latency", costs->latency_s[i])) return false;
        int back = i % costs->region_count * costs->region_count + i / costs->region_count;
        if (costs->half_duplex && costs->half_duplex[i] != costs->half_duplex[back])
            return wrong(c, object, "half_duplex is not the same in both directions");
        if (!(costs->bandwidth_Bps[i] > 0 && costs->bandwidth_Bps[i] <= 1e18))
            return wrong(c, object, "bandwidth must be above 0 and at most 1e18 bytes per second");
    }
    return check_unique(c, costs->region_names, costs->region_count, "links.regions");
}

static bool check_keep(Checking *c, const Costs *costs, const char *device)
{
    if (!device || costs_find_device(costs, device) >= 0) return true;
    return wrong(c, "keep", arena_format(&c->scratch, "no device is named '%s'", device));
}

static bool check_sites(Checking *c, const Costs *costs)
{
    const SiteCosts *sites = &costs->sites;
    for (int d = 0; d < costs->device_count && sites->count; d++)
        if (costs->devices[d].site < 0 || costs->devices[d].site >= sites->count)
            return wrong(c, "sites",
                         arena_format(&c->scratch, "device '%s' is in none: make it like a device of its site",
                                      costs->devices[d].name));
    return check_unique(c, sites->names, sites->count, "sites.names");
}

static bool check_all(Checking *c, const Costs *costs)
{
    if (costs->layer_count < 1) return wrong(c, "layers", "there is none");
    if (costs->device_count < 1) return wrong(c, "devices", "there is none");
    if (costs->microbatches < 1 || costs->microbatches > COSTS_MAX_MICROBATCHES)
        return wrong(c, "microbatches", "must be between 1 and 1048576");
    const char *fault = row_samples_fault(&costs->rows, costs->microbatches);
    if (fault) return wrong(c, "rows", fault);
    for (int i = 0; i < costs->layer_count; i++)
        if (!check_layer(c, costs, i)) return false;
    for (int i = 0; i < costs->device_count; i++)
        if (!check_device(c, costs, i)) return false;
    if (!check_sites(c, costs) || !check_bytes(c, "norm_bytes", "norm_bytes", costs->norm_bytes)) return false;
    if (costs->microbatch_rows < 0 || costs->microbatch_rows > INT32_MAX)
        return wrong(c, "microbatch_rows", "must be between 0 and 2^31-1");
    const char **names = arena_new_array(&c->scratch, const char *, (size_t)costs->device_count);
    for (int i = 0; i < costs->device_count; i++) names[i] = costs->devices[i].name;
    return check_unique(c, names, costs->device_count, "devices") && check_links(c, costs) &&
           check_coding(c, "coding_s", costs->coding_s) && check_keep(c, costs, costs->keep_inputs) &&
           check_keep(c, costs, costs->keep_labels);
}

bool costs_check(const Costs *costs, const char *path, Diagnostics *diagnostics)
{
    Checking checking = {path, diagnostics, {0}};
    bool ok = check_all(&checking, costs);
    arena_free(&checking.scratch);
    return ok;
}
