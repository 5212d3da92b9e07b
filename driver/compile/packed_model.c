#include "driver/compile/packed_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "graph/passes/pack_rows.h"
#include "runtime/program/row_packer.h"
#include "runtime/storage/row_lengths.h"

/* ---- Lengths ---- */

static bool read_lengths(RowLengths *lengths, const LengthOptions *options, Diagnostics *diagnostics)
{
    SafeTensors file;
    int64_t longest = options->list[options->count - 1];
    Place place = PLACE_FILE(options->data);
    if (!safetensors_open(&file, options->data, diagnostics)) return false;
    bool ok = row_lengths_read(lengths, &file, options->data, diagnostics);
    safetensors_close(&file);
    if (!ok) return false;
    if (!lengths->rows)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "`skycc tokenize` writes both",
                                 "has no rows with lengths or an attention_mask");
    if (lengths->longest > longest)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, place, "bind the dimension to at least that",
                                 "has rows of %lld tokens, more than --dim %s=%lld", (long long)lengths->longest,
                                 options->dimension, (long long)longest);
    if (lengths->irregular)
        diagnostics_warning(diagnostics, place, NULL,
                            "the masks of %lld rows are not ones followed by zeros: these rows take their full length",
                            (long long)lengths->irregular);
    return true;
}

/* Without data: the lengths of the list, one as often as the other. */
static void spread_lengths(RowLengths *lengths, const LengthOptions *options)
{
    *lengths = (RowLengths){.rows = (int64_t)options->count, .longest = options->list[options->count - 1]};
    lengths->lengths = memory_allocate(options->count * sizeof *lengths->lengths);
    for (size_t i = 0; i < options->count; i++) lengths->lengths[i] = (int32_t)options->list[i];
}

/* ---- Samples ---- */

enum { PACKING_SAMPLES = 64 };

typedef struct Samples {
    int32_t *lengths; /* [sample][row] */
    int64_t rows, tokens;
} Samples;

/* Rows of batches, each drawn from all. */
static Samples draw_samples(const RowLengths *lengths, int64_t rows)
{
    Samples samples = {.rows = rows};
    RandomStream stream = random_stream(0, "packing/samples");
    samples.lengths = memory_allocate((size_t)(rows * PACKING_SAMPLES) * sizeof *samples.lengths);
    for (int64_t i = 0; i < rows * PACKING_SAMPLES; i++) {
        samples.lengths[i] = lengths->lengths[random_below(stream, (uint64_t)i, (uint64_t)lengths->rows)];
        samples.tokens += samples.lengths[i];
    }
    return samples;
}

/* Lines of all samples together, and of each. */
static int64_t count_lines(const Samples *samples, const SkyPacking *packing, uint32_t lines[PACKING_SAMPLES])
{
    RowPacker packer;
    int64_t all = 0;
    row_packer_open(&packer, packing);
    for (int s = 0; s < PACKING_SAMPLES; s++) {
        row_packer_place(&packer, samples->lengths + s * samples->rows);
        lines[s] = packer.lines;
        all += packer.lines;
    }
    row_packer_close(&packer);
    return all;
}

static uint32_t microbatches_of(uint32_t lines, const SkyPacking *packing)
{
    return (lines + packing->lines - 1) / packing->lines;
}

static int by_number(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return left < right ? -1 : left > right;
}

/* ---- Choice ---- */

/* The fewest slots with which lines are hardly more than with any number. */
static uint32_t choose_slots(const Samples *samples, SkyPacking packing)
{
    static const double tolerated = 1.002;
    uint32_t lines[PACKING_SAMPLES];
    packing.slots = packing.length < samples->rows ? packing.length : (uint32_t)samples->rows;
    int64_t least = count_lines(samples, &packing, lines);
    for (uint32_t slots = 2; slots < packing.slots; slots += slots < 8 ? 1 : slots / 4) {
        SkyPacking fewer = packing;
        fewer.slots = slots;
        if ((double)count_lines(samples, &fewer, lines) <= tolerated * (double)least) return slots;
    }
    return packing.slots;
}

/* What a micro-batch costs beside its tokens, in tokens: reading and accumulating weights once more. */
enum { MICROBATCH_TOKENS = 32 };

/* Of a micro-batch, where that is at least a line: of more, what one kernel hands on to the next leaves the caches. */
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

static Rating rate_form(const Samples *samples, const uint32_t *lines, SkyPacking form, bool whole)
{
    double count = 0, all = 0;
    for (int s = 0; s < PACKING_SAMPLES; s++) {
        count += microbatches_of(lines[s], &form);
        all += whole ? microbatches_of(lines[s], &form) * form.lines : lines[s];
    }
    double tokens = all * form.length;
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
    for (form.length = form.longest; form.length < 2 * form.longest; form.length += apart - form.length % apart) {
        uint32_t lines[PACKING_SAMPLES];
        form.lines = 1;
        form.slots = form.length < form.rows ? form.length : form.rows;
        count_lines(samples, &form, lines);
        uint32_t most = form.length < MOST_TOKENS ? MOST_TOKENS / form.length : 1;
        for (; form.lines <= most && form.lines <= form.rows; form.lines++) {
            const Rating rating = rate_form(samples, lines, form, whole);
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
    uint32_t lines[PACKING_SAMPLES];
    int32_t microbatches[PACKING_SAMPLES];
    size_t rows = (size_t)samples->rows * PACKING_SAMPLES;
    int64_t all = count_lines(samples, &counted->packing, lines);
    if (counted->packing.lines > 1 && !whole) counted->lines_computed = all;
    for (int s = 0; s < PACKING_SAMPLES; s++) microbatches[s] = (int32_t)microbatches_of(lines[s], &counted->packing);
    qsort(microbatches, PACKING_SAMPLES, sizeof *microbatches, by_number);
    qsort(samples->lengths, rows, sizeof *samples->lengths, by_number);
    counted->microbatches = sample_counts(microbatches, PACKING_SAMPLES, &counted->microbatch_kinds, arena);
    counted->lengths = sample_counts(samples->lengths, rows, &counted->length_kinds, arena);
}

bool packing_choose(RowSamples *counted, const LengthOptions *options, int64_t rows, int microbatches, Arena *arena,
                    Diagnostics *diagnostics)
{
    enum { MOST_ROWS = 1 << 20, MOST_LENGTH = 1 << 20 };
    RowLengths lengths = {0};
    if (!options->data && options->count == 1)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "--lengths DATA.safetensors",
                                 "--dim %s=auto: needs a data set to say how long rows are", options->dimension);
    if (rows > MOST_ROWS || options->list[options->count - 1] > MOST_LENGTH)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "too many rows, or too long ones, to pack");
    if (!options->data)
        spread_lengths(&lengths, options);
    else if (!read_lengths(&lengths, options, diagnostics))
        return row_lengths_free(&lengths), false;
    Samples samples = draw_samples(&lengths, rows);
    SkyPacking *packing = &counted->packing;
    *counted = (RowSamples){0};
    uint32_t longest = (uint32_t)options->list[options->count - 1];
    *packing = choose_form(&samples, (SkyPacking){.lines = 1, .rows = (uint32_t)rows, .longest = longest}, microbatches,
                           options->whole);
    count_samples(counted, &samples, options->whole, arena);
    free(samples.lengths);
    row_lengths_free(&lengths);
    return true;
}

/* ---- The model ---- */

/* The batch dimension's name and what it is bound to. */
static bool find_batch(const ModelOptions *load, const char *path, Arena *arena, const char **name, int64_t *size,
                       Diagnostics *diagnostics)
{
    Graph graph;
    ImportedModel model;
    Diagnostics warnings = {0}; /* come again when the model is loaded */
    graph_init(&graph, path);
    bool ok = import_onnx(&graph, &model, path, &load->import, &warnings);
    diagnostics_free(&warnings);
    if (!ok) {
        graph_free(&graph);
        imported_model_free(&model);
        graph_init(&graph, path);
        import_onnx(&graph, &model, path, &load->import, diagnostics);
    }
    *name = ok && model.batch_dimension ? arena_string(arena, model.batch_dimension) : NULL;
    bool has_length = false;
    for (size_t i = 0; ok && i < model.dimension_count; i++) {
        if (*name && strcmp(model.dimensions[i].name, *name) == 0) *size = model.dimensions[i].value;
        has_length |= strcmp(model.dimensions[i].name, load->lengths.dimension) == 0;
    }
    graph_free(&graph);
    imported_model_free(&model);
    if (ok && (!*name || !has_length || strcmp(*name, load->lengths.dimension) == 0))
        ok = diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path),
                               "export it with open dimensions for rows and tokens",
                               "rows of several lengths cannot be packed: %s",
                               *name ? "the model has no such open dimension for tokens"
                                     : "the first dimension of its first input is fixed");
    return ok;
}

static void bind_lines(ModelOptions *load, const char *name, Arena *arena)
{
    ImportOptions *import = &load->import;
    DimensionBinding *all = arena_new_array(arena, DimensionBinding, import->dimension_count + 1);
    all[0] = (DimensionBinding){name, PACKING_GRAPH_ROWS};
    size_t count = 1;
    for (size_t i = 0; i < import->dimension_count; i++)
        if (strcmp(import->dimensions[i].name, name) != 0) all[count++] = import->dimensions[i];
    import->dimensions = all;
    import->dimension_count = count;
}

bool packed_model_prepare(ModelOptions *load, RowSamples *samples, const char *path, int microbatches, Arena *arena,
                          Diagnostics *diagnostics)
{
    const char *name;
    int64_t rows = 0;
    if (strcmp(path, "-") == 0)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "write the model to a file",
                                 "with several lengths the model is read twice, which standard input cannot be");
    if (!find_batch(load, path, arena, &name, &rows, diagnostics) ||
        !packing_choose(samples, &load->lengths, rows * microbatches, microbatches, arena, diagnostics))
        return false;
    load->packing = samples->packing;
    load->lengths.batch = name;
    bind_lines(load, name, arena);
    return true;
}
