#include "profiler/costs/row_samples.h"

#include <string.h>

enum { MOST_STEPS = 1 << 10, MOST_EXTENT = 1 << 20 };

SampleCount *sample_counts(const int32_t *sorted, size_t count, int *kinds, Arena *arena)
{
    SampleCount *counts = arena_new_array(arena, SampleCount, count);
    *kinds = 0;
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || sorted[i] != sorted[i - 1]) counts[(*kinds)++].value = sorted[i];
        counts[*kinds - 1].times++;
    }
    return counts;
}

static int64_t sum_times(const SampleCount *counts, int kinds)
{
    int64_t sum = 0;
    for (int i = 0; i < kinds; i++) sum += counts[i].times;
    return sum;
}

static int64_t sum_values(const SampleCount *counts, int kinds)
{
    int64_t sum = 0;
    for (int i = 0; i < kinds; i++) sum += (int64_t)counts[i].times * counts[i].value;
    return sum;
}

int row_samples_steps(const RowSamples *samples)
{
    return (int)sum_times(samples->microbatches, samples->microbatch_kinds);
}

int64_t row_samples_microbatches(const RowSamples *samples)
{
    return sum_values(samples->microbatches, samples->microbatch_kinds);
}

int row_samples_worst(const RowSamples *samples)
{
    return samples->microbatch_kinds ? samples->microbatches[samples->microbatch_kinds - 1].value : 0;
}

double row_samples_mean(const RowSamples *samples)
{
    return (double)row_samples_microbatches(samples) / row_samples_steps(samples);
}

/* Lines of all sampled steps, if their micro-batches have as many as they can. */
static int64_t most_lines(const RowSamples *samples)
{
    return row_samples_microbatches(samples) * samples->packing.lines;
}

static int64_t tokens_computed(const RowSamples *samples)
{
    if (samples->tokens_computed) return samples->tokens_computed;
    return (samples->lines_computed ? samples->lines_computed : most_lines(samples)) * samples->packing.length;
}

double row_samples_share(const RowSamples *samples)
{
    if (!samples->lines_computed) return 1;
    return (double)tokens_computed(samples) / (double)(most_lines(samples) * samples->packing.length);
}

int64_t row_samples_whole(const RowSamples *samples, int64_t expected)
{
    int64_t tokens = tokens_computed(samples);
    if (!samples->lines_computed) return expected;
    return (int64_t)(((__int128)expected * most_lines(samples) * samples->packing.length + tokens - 1) / tokens);
}

double row_samples_padding(const RowSamples *samples)
{
    return 1 - (double)sum_values(samples->lengths, samples->length_kinds) / (double)tokens_computed(samples);
}

double row_samples_padded(const RowSamples *samples)
{
    double rows = (double)sum_times(samples->lengths, samples->length_kinds);
    return 1 - (double)sum_values(samples->lengths, samples->length_kinds) / (rows * samples->packing.longest);
}

int64_t row_samples_rounds(const RowSamples *samples, int microbatches, int64_t period)
{
    if (!samples->microbatch_kinds) return (microbatches - 1) * period;
    int64_t steps = row_samples_steps(samples), rounds = row_samples_microbatches(samples) - steps;
    return rounds / steps * period + (rounds % steps * period + steps - 1) / steps;
}

static bool counts_equal(const SampleCount *a, int a_kinds, const SampleCount *b, int b_kinds)
{
    return a_kinds == b_kinds && (!a_kinds || memcmp(a, b, (size_t)a_kinds * sizeof *a) == 0);
}

bool row_samples_equal(const RowSamples *a, const RowSamples *b)
{
    const SkyPacking *x = &a->packing, *y = &b->packing;
    return x->lines == y->lines && x->length == y->length && x->slots == y->slots && x->rows == y->rows &&
           x->longest == y->longest && a->lines_computed == b->lines_computed &&
           a->tokens_computed == b->tokens_computed &&
           counts_equal(a->microbatches, a->microbatch_kinds, b->microbatches, b->microbatch_kinds) &&
           counts_equal(a->lengths, a->length_kinds, b->lengths, b->length_kinds);
}

RowSamples row_samples_copy(const RowSamples *samples, Arena *arena)
{
    RowSamples copy = *samples;
    size_t microbatches = (size_t)samples->microbatch_kinds, lengths = (size_t)samples->length_kinds;
    if (microbatches) copy.microbatches = arena_copy(arena, samples->microbatches, microbatches * sizeof(SampleCount));
    if (lengths) copy.lengths = arena_copy(arena, samples->lengths, lengths * sizeof(SampleCount));
    return copy;
}

/* ---- checking ---- */

/* Ascending values from least to most, each there. */
static bool counts_sound(const SampleCount *counts, int kinds, int least, int most)
{
    for (int i = 0; i < kinds; i++)
        if (counts[i].value < (i ? counts[i - 1].value + 1 : least) || counts[i].value > most || counts[i].times < 1)
            return false;
    return kinds > 0;
}

const char *row_samples_fault(const RowSamples *samples, int microbatches)
{
    const SkyPacking *packing = &samples->packing;
    int64_t steps = sum_times(samples->microbatches, samples->microbatch_kinds);
    if (!samples->microbatch_kinds) return NULL;
    const uint32_t extents[] = {packing->rows, packing->lines, packing->length, packing->slots, packing->longest};
    for (size_t i = 0; i < sizeof extents / sizeof *extents; i++)
        if (extents[i] < 1 || extents[i] > MOST_EXTENT)
            return "batch, lines, length, slots and longest must be between 1 and 1048576";
    if (packing->longest > packing->length) return "lines must be as long as the longest row";
    if ((int64_t)(packing->rows + packing->lines - 1) / packing->lines != microbatches)
        return "microbatches must be those that the rows of a batch need at most";
    if (!counts_sound(samples->microbatches, samples->microbatch_kinds, 1, microbatches))
        return "microbatches must ascend, within what there is room for";
    int64_t others = (row_samples_microbatches(samples) - steps) * packing->lines; /* than the last of each step */
    if (samples->lines_computed &&
        (samples->lines_computed < others + steps || samples->lines_computed > others + steps * packing->lines))
        return "lines_computed must be what the micro-batches have, of which the last of a step alone may lack some";
    int64_t least = samples->lines_computed - row_samples_microbatches(samples); /* lines that are computed whole */
    if (samples->tokens_computed && (samples->tokens_computed <= least * packing->length ||
                                     samples->tokens_computed > samples->lines_computed * packing->length))
        return "tokens_computed must be those of lines_computed, of which the last of a micro-batch alone may lack "
               "some";
    if (steps > MOST_STEPS || (steps & (steps - 1)) != 0)
        return "the number of sampled steps must be a power of two, at most 1024";
    if (!counts_sound(samples->lengths, samples->length_kinds, 0, (int)packing->longest))
        return "lengths must ascend, up to the longest";
    if (sum_times(samples->lengths, samples->length_kinds) != steps * packing->rows)
        return "lengths must be those of all rows of the sampled steps";
    if ((double)sum_values(samples->lengths, samples->length_kinds) > (double)tokens_computed(samples))
        return "the rows have more tokens than the sampled steps compute";
    return NULL;
}

/* ---- files ---- */

static void add_counts(JsonWriter *json, const char *key, const SampleCount *counts, int kinds)
{
    json_open(json, key, '[');
    for (int i = 0; i < kinds; i++) json_add_raw(json, NULL, "[%d,%d]", counts[i].value, counts[i].times);
    json_close(json, ']');
}

void row_samples_add(const RowSamples *samples, JsonWriter *json)
{
    const SkyPacking *packing = &samples->packing;
    if (!samples->microbatch_kinds) return;
    json_open(json_break(json, "\n "), "rows", '{');
    json_add_integer(json, "batch", packing->rows);
    json_add_integer(json, "lines", packing->lines);
    json_add_integer(json, "length", packing->length);
    json_add_integer(json, "slots", packing->slots);
    json_add_integer(json, "longest", packing->longest);
    if (samples->lines_computed) json_add_integer(json, "lines_computed", samples->lines_computed);
    if (samples->tokens_computed) json_add_integer(json, "tokens_computed", samples->tokens_computed);
    add_counts(json, "microbatches", samples->microbatches, samples->microbatch_kinds);
    add_counts(json, "lengths", samples->lengths, samples->length_kinds);
    json_close(json, '}');
}

static bool read_extent(JsonReader reader, const json_t *object, const char *key, uint32_t *extent)
{
    int64_t value;
    if (!json_get_integer(reader, object, "rows", key, &value)) return false;
    *extent = value < 0 || value > MOST_EXTENT ? 0 : (uint32_t)value; /* which is refused */
    return true;
}

/* Where it is absent lines are as long as the longest row. */
static bool read_longest(JsonReader reader, const json_t *object, SkyPacking *packing)
{
    packing->longest = packing->length;
    return !json_object_get(object, "longest") || read_extent(reader, object, "longest", &packing->longest);
}

/* 0 where it is absent. */
static bool read_computed(JsonReader reader, const json_t *object, const char *key, int64_t *computed)
{
    if (!json_object_get(object, key)) return true;
    if (!json_get_integer(reader, object, "rows", key, computed)) return false;
    return *computed > 0 || json_refuse(reader, "rows", "what is computed must be positive");
}

static bool read_counts(JsonReader reader, const json_t *object, const char *key, SampleCount **counts, int *kinds,
                        Arena *arena)
{
    json_t *array;
    if (!json_get_array(reader, object, "rows", key, &array)) return false;
    size_t count = json_array_size(array);
    if (count < 1 || count > MOST_EXTENT + 1) return json_refuse(reader, "rows", "must have counts");
    *counts = arena_new_array(arena, SampleCount, count);
    *kinds = (int)count;
    for (size_t i = 0; i < count; i++) {
        const json_t *pair = json_array_get(array, i), *value = json_array_get(pair, 0),
                     *times = json_array_get(pair, 1);
        json_int_t a = json_integer_value(value), b = json_integer_value(times);
        if (json_array_size(pair) != 2 || !json_is_integer(value) || !json_is_integer(times) || a < 0 || b < 1 ||
            a > MOST_EXTENT || b > (json_int_t)MOST_EXTENT * MOST_STEPS)
            return json_refuse(reader, "rows", "must count by pairs of numbers");
        (*counts)[i] = (SampleCount){(int)a, (int)b};
    }
    return true;
}

bool row_samples_read(RowSamples *samples, JsonReader reader, const json_t *root, int microbatches, Arena *arena)
{
    json_t *rows;
    SkyPacking *packing = &samples->packing;
    if (!json_object_get(root, "rows")) return true;
    if (!json_get_object(reader, root, "", "rows", &rows) || !read_extent(reader, rows, "batch", &packing->rows) ||
        !read_extent(reader, rows, "lines", &packing->lines) ||
        !read_extent(reader, rows, "length", &packing->length) ||
        !read_extent(reader, rows, "slots", &packing->slots) || !read_longest(reader, rows, packing) ||
        !read_computed(reader, rows, "lines_computed", &samples->lines_computed) ||
        !read_computed(reader, rows, "tokens_computed", &samples->tokens_computed) ||
        !read_counts(reader, rows, "microbatches", &samples->microbatches, &samples->microbatch_kinds, arena) ||
        !read_counts(reader, rows, "lengths", &samples->lengths, &samples->length_kinds, arena))
        return false;
    const char *fault = row_samples_fault(samples, microbatches);
    return !fault || json_refuse(reader, "rows", fault);
}
