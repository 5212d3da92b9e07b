#include "partitioner/planner/packing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "runtime/program/row_packer.h"

enum { PACKING_SAMPLES = 64 };

typedef struct Samples {
    int32_t *lengths; /* [sample][row] */
    int64_t rows, tokens;
} Samples;

/* Rows of batches, each drawn from all. */
static Samples draw_samples(const int32_t *lengths, int64_t count, int64_t rows)
{
    Samples samples = {.rows = rows};
    RandomStream stream = random_stream(0, "packing/samples");
    samples.lengths = memory_allocate((size_t)(rows * PACKING_SAMPLES) * sizeof *samples.lengths);
    for (int64_t i = 0; i < rows * PACKING_SAMPLES; i++) {
        samples.lengths[i] = lengths[random_below(stream, (uint64_t)i, (uint64_t)count)];
        samples.tokens += samples.lengths[i];
    }
    return samples;
}

/* What packing comes to. */
typedef struct Packed {
    int64_t all, tokens; /* lines of all samples together, and what is computed of these */
    uint32_t lines[PACKING_SAMPLES];
    uint32_t *filled; /* [sample][line]: tokens of rows, ascending; NULL: not wanted */
} Packed;

static int by_number(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return left < right ? -1 : left > right;
}

static void pack_samples(const Samples *samples, const SkyPacking *packing, Packed *packed)
{
    RowPacker packer;
    packed->all = packed->tokens = 0;
    row_packer_open(&packer, packing);
    for (int s = 0; s < PACKING_SAMPLES; s++) {
        row_packer_place(&packer, samples->lengths + s * samples->rows);
        packed->lines[s] = packer.lines;
        packed->all += packer.lines;
        packed->tokens += row_packer_all_tokens(&packer);
        if (!packed->filled) continue;
        uint32_t *filled = memcpy(packed->filled + s * samples->rows, packer.filled, packer.lines * sizeof *filled);
        qsort(filled, packer.lines, sizeof *filled, by_number);
    }
    row_packer_close(&packer);
}

static uint32_t microbatches_of(uint32_t lines, const SkyPacking *packing)
{
    return (lines + packing->lines - 1) / packing->lines;
}

/* The fewest slots with which lines are hardly more than with any number. */
static uint32_t choose_slots(const Samples *samples, SkyPacking packing)
{
    static const double tolerated = 1.002;
    Packed packed = {0};
    packing.slots = packing.length < samples->rows ? packing.length : (uint32_t)samples->rows;
    pack_samples(samples, &packing, &packed);
    int64_t least = packed.all;
    for (uint32_t slots = 2; slots < packing.slots; slots += slots < 8 ? 1 : slots / 4) {
        SkyPacking fewer = packing;
        fewer.slots = slots;
        pack_samples(samples, &fewer, &packed);
        if ((double)packed.all <= tolerated * (double)least) return slots;
    }
    return packing.slots;
}

/* The fixed cost of a micro-batch, in tokens: it reads and accumulates the weights once more. */
enum { MICROBATCH_TOKENS = 32 };

/* The most tokens of a micro-batch of several lines: with more, what one kernel hands to the next leaves the caches. */
enum { MOST_TOKENS = 768 };

/* The length of a line at which attention takes as long as everything else: it grows with the square. */
enum { ATTENTION_TOKENS = 1024 };

/* What a form comes to over the samples. */
typedef struct Rating {
    SkyPacking form;
    double cost;         /* in tokens */
    double padding;      /* the share of the tokens computed that no row has */
    double microbatches; /* of a step */
} Rating;

/* `packed`: with a line a micro-batch. Of several lines, the last ones are the emptiest (row_packer.h). */
static Rating rate_form(const Samples *samples, const Packed *packed, SkyPacking form, bool whole)
{
    double count = 0, tokens = 0;
    for (int s = 0; s < PACKING_SAMPLES; s++) {
        uint32_t microbatches = microbatches_of(packed->lines[s], &form);
        count += microbatches;
        tokens += (double)form.length * (whole ? microbatches * form.lines : packed->lines[s]);
        for (uint32_t m = 0; m < microbatches && !whole; m++)
            tokens -= form.length - packed->filled[s * samples->rows + m];
    }
    return (Rating){.form = form,
                    .cost = tokens * (1 + (double)form.length / ATTENTION_TOKENS) + count * MICROBATCH_TOKENS,
                    .padding = 1 - (double)samples->tokens / tokens,
                    .microbatches = count / PACKING_SAMPLES};
}

typedef struct Choice {
    double wanted;       /* micro-batches of a step, at least, so that there is something to be piped */
    Rating best, frugal; /* the least cost; and that of the forms with little padding */
    Rating most;         /* micro-batches, for where no form has as many as are wanted */
} Choice;

static void consider(Choice *choice, const Rating *rating)
{
    static const double little = 0.12;
    if (rating->microbatches > choice->most.microbatches) choice->most = *rating;
    if (rating->microbatches < choice->wanted) return;
    if (rating->cost < choice->best.cost) choice->best = *rating;
    if (rating->padding <= little && rating->cost < choice->frugal.cost) choice->frugal = *rating;
}

/* The form that costs the least; or one with little padding, if it costs hardly more: how much a micro-batch costs anew
 * is not known exactly. Lines are shorter than two of the longest rows: longer ones do what more lines do. */
static SkyPacking choose_form(const Samples *samples, SkyPacking form, int microbatches, bool whole)
{
    enum { LENGTHS = 16, TOKENS_APART = 8 };
    static const double hardly_more = 1.1;
    Choice choice = {.wanted = microbatches, .best.cost = INFINITY, .frugal.cost = INFINITY};
    uint32_t apart = (form.longest + LENGTHS * TOKENS_APART - 1) / (LENGTHS * TOKENS_APART) * TOKENS_APART;
    FREED uint32_t *filled = memory_allocate((size_t)(samples->rows * PACKING_SAMPLES) * sizeof *filled);
    Packed packed = {.filled = filled};
    for (form.length = form.longest; form.length < 2 * form.longest; form.length += apart - form.length % apart) {
        form.lines = 1;
        form.slots = form.length < form.rows ? form.length : form.rows;
        pack_samples(samples, &form, &packed);
        uint32_t most = form.length < MOST_TOKENS ? MOST_TOKENS / form.length : 1;
        for (; form.lines <= most && form.lines <= form.rows; form.lines++) {
            const Rating rating = rate_form(samples, &packed, form, whole);
            consider(&choice, &rating);
        }
    }
    const Rating *chosen = choice.frugal.cost <= hardly_more * choice.best.cost ? &choice.frugal : &choice.best;
    form = isfinite(chosen->cost) ? chosen->form : choice.most.form;
    form.slots = choose_slots(samples, form);
    return form;
}

/* Sorts the samples' lengths. */
static void count_samples(RowSamples *counted, const Samples *samples, bool whole, Arena *arena)
{
    Packed packed = {0};
    int32_t microbatches[PACKING_SAMPLES];
    size_t rows = (size_t)samples->rows * PACKING_SAMPLES;
    pack_samples(samples, &counted->packing, &packed);
    if (!whole) {
        counted->lines_computed = packed.all;
        counted->tokens_computed = packed.tokens;
    }
    for (int s = 0; s < PACKING_SAMPLES; s++)
        microbatches[s] = (int32_t)microbatches_of(packed.lines[s], &counted->packing);
    qsort(microbatches, PACKING_SAMPLES, sizeof *microbatches, by_number);
    qsort(samples->lengths, rows, sizeof *samples->lengths, by_number);
    counted->microbatches = sample_counts(microbatches, PACKING_SAMPLES, &counted->microbatch_kinds, arena);
    counted->lengths = sample_counts(samples->lengths, rows, &counted->length_kinds, arena);
}

RowSamples packing_choose(const PackingWish *wish, int microbatches, bool whole, Arena *arena)
{
    Samples samples = draw_samples(wish->lengths, wish->count, wish->rows);
    SkyPacking form = {.lines = 1, .rows = (uint32_t)samples.rows, .longest = wish->longest};
    RowSamples counted = {.packing = choose_form(&samples, form, microbatches, whole)};
    count_samples(&counted, &samples, whole, arena);
    free(samples.lengths);
    return counted;
}
