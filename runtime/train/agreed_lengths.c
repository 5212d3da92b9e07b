#include "runtime/train/agreed_lengths.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

typedef struct LengthsCard {
    int64_t rows; /* 0: the rank has no file, or its file has no lengths */
    Hash hash;
    int64_t longest, irregular;
} LengthsCard;

/* The rank whose lengths all ranks use; -1: no rank has lengths, -2: they differ. */
static int choose_source(const LengthsCard *cards, int count)
{
    int source = -1;
    for (int r = 0; r < count; r++) {
        if (!cards[r].rows) continue;
        if (source < 0) source = r;
        if (cards[r].rows != cards[source].rows || cards[r].hash.high != cards[source].hash.high ||
            cards[r].hash.low != cards[source].hash.low)
            return -2;
    }
    return source;
}

/* Whether every row has as many tokens as its length says. */
static bool check_width(const LengthsCard *card, const SkyProgram *program, const Dataset *dataset, const char *path,
                        Diagnostics *diagnostics)
{
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count; i++) {
            const SkyTensor *input = &program->stages[s].inputs[i];
            if (input->fill != SKY_FILL_TOKENS) continue;
            int64_t width = safetensors_find(&dataset->file, input->name)->shape.dim[1];
            if (width < card->longest)
                return input_error(diagnostics, path, NULL, "has rows of %lld tokens, but '%s' holds %lld of each",
                                   (long long)card->longest, input->name, (long long)width);
        }
    return true;
}

static bool is_per_token(const SkyProgram *program, const char *input)
{
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count; i++)
            if (strcmp(program->stages[s].inputs[i].name, input) == 0)
                return program->stages[s].inputs[i].fill == SKY_FILL_TOKENS;
    return false;
}

/* Packing leaves padding out, so labels there would be lost. */
static bool check_padding(const RowLengths *lengths, const SkyProgram *program, const Dataset *dataset,
                          const char *path, Diagnostics *diagnostics)
{
    const Shape one = {1, {1}};
    for (uint32_t l = 0; l < program->label_count; l++) {
        const SkyLabels *labels = &program->labels[l];
        const SafeTensor *tensor = dataset->labels[l];
        if (!tensor || !is_per_token(program, labels->name)) continue;
        int64_t width = tensor->shape.dim[1], each = shape_elements(&tensor->shape) / (tensor->shape.dim[0] * width);
        for (int64_t r = 0; r < lengths->rows; r++)
            for (int64_t i = lengths->lengths[r] * each; i < width * each; i++) {
                LabelCount count = {0};
                labels_count(labels, tensor->dtype, &one, tensor->data, r * width * each + i, 1, &count);
                if (count.count)
                    return diagnostics_error(
                        diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = "tensor 'labels'"},
                        "set it to the index that is ignored (-100), or compile for rows of one length",
                        "row %lld has a label on token %lld, but its %d tokens end before: padding is left out where "
                        "rows are packed",
                        (long long)r, (long long)(i / each), lengths->lengths[r]);
            }
    }
    return true;
}

static bool check(const LengthsCard *card, const SkyProgram *program, const char *path, int64_t rows,
                  Diagnostics *diagnostics)
{
    if (card->rows != rows)
        return input_error(diagnostics, path, NULL, "has %lld lengths for %lld rows", (long long)card->rows,
                           (long long)rows);
    if (program->packing.slots && card->longest > program->packing.longest)
        return input_error(diagnostics, path, "tokenise with that --max-length, or compile with another --dim",
                           "has rows of %lld tokens, but the program was compiled for at most %u",
                           (long long)card->longest, program->packing.longest);
    return true;
}

static void take_from(RowLengths *lengths, World *world, const LengthsCard *card, int source)
{
    if (world->rank != source) {
        row_lengths_free(lengths);
        lengths->lengths = memory_resize(NULL, (size_t)card->rows + 1, sizeof *lengths->lengths);
        lengths->rows = card->rows;
        lengths->longest = card->longest;
    }
    enum { PIECE = 1 << 20 };
    for (int64_t first = 0; first < card->rows; first += PIECE) {
        int64_t count = card->rows - first < PIECE ? card->rows - first : PIECE;
        world_broadcast(world, WIRE_LENGTHS, lengths->lengths + first, (size_t)count * sizeof *lengths->lengths, source,
                        "the lengths of rows");
    }
}

bool agreed_lengths_open(RowLengths *lengths, World *world, const SkyProgram *program, const Dataset *dataset,
                         const char *path, int64_t rows, Diagnostics *diagnostics)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0}; /* padded rows need lengths only to count padding */
    bool needed = program->packing.slots, ok = true;
    *lengths = (RowLengths){0};
    if (dataset->rows) ok = row_lengths_read(lengths, &dataset->file, path, needed ? diagnostics : &ignored);
    LengthsCard mine = {.rows = lengths->rows, .longest = lengths->longest, .irregular = lengths->irregular};
    if (lengths->lengths) mine.hash = hash_bytes(lengths->lengths, (size_t)lengths->rows * sizeof *lengths->lengths);
    FREED LengthsCard *cards = memory_allocate((size_t)world->size * sizeof *cards);
    world_allgather(world, &mine, sizeof mine, cards, "agreement on lengths");
    int source = choose_source(cards, world->size);
    if (!needed && (source < 0 || cards[source].rows != rows)) {
        row_lengths_free(lengths);
        return true;
    }
    if (source == -2)
        ok = input_error(diagnostics, path, "give all hosts the same file",
                         "does not have the same lengths of rows for all ranks");
    else if (source < 0)
        ok = input_error(diagnostics, path, "`skycc tokenize` writes both",
                         "has neither lengths nor an attention_mask, but rows are to be packed by their length");
    else
        ok = check(&cards[source], program, path, rows, diagnostics) &&
             check_width(&cards[source], program, dataset, path, diagnostics) && ok;
    if (source >= 0) take_from(lengths, world, &cards[source], source);
    if (needed && ok) ok = check_padding(lengths, program, dataset, path, diagnostics);
    if (ok && needed && world->rank == 0 && cards[source].irregular)
        diagnostics_warning(diagnostics, PLACE_FILE(path), NULL,
                            "the masks of %lld rows are not ones followed by zeros: these rows take their full length",
                            (long long)cards[source].irregular);
    return ok;
}

int64_t agreed_lengths_sum(const RowLengths *lengths, const uint32_t *rows, int64_t count)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        if (rows[i] != DATASET_NO_ROW) sum += lengths->lengths[rows[i]];
    return sum;
}
