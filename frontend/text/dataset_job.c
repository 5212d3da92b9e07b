#include "frontend/text/dataset_job.h"

#include <stdlib.h>

#include "base/random.h"

/* Chooses 15% of an example's text tokens, at least one, for a model to guess. It replaces 80% of these by [MASK], 10%
 * by any piece, and keeps the rest (Devlin et al. 2018). Special tokens are never chosen, even if they stand in a
 * text. */
static void mask_tokens(const Job *job, int32_t *ids, int32_t *labels, size_t count)
{
    RandomStream row =
        random_substream(random_stream(job->options->seed, "tokenize/mask"), (uint64_t)job->examples.count);
    RandomStream choices = random_substream(row, 1), replacements = random_substream(row, 2);
    uint32_t *positions = memory_allocate(2 * count * sizeof *positions), *order = positions + count;
    size_t candidates = 0;
    for (size_t i = 0; i < count; i++)
        if (job->is_text[i] && !tokenizer_is_special(job->tokenizer, ids[i])) positions[candidates++] = (uint32_t)i;
    random_permutation(row, order, candidates);
    size_t masked = (candidates * 15 + 50) / 100;
    if (masked == 0 && candidates) masked = 1;
    for (size_t i = 0; i < masked; i++) {
        uint32_t at = positions[order[i]];
        labels[at] = ids[at];
        float choice = random_uniform(choices, i);
        if (choice < 0.8f)
            ids[at] = tokenizer_specials(job->tokenizer)->mask;
        else if (choice < 0.9f)
            ids[at] = (int32_t)random_below(replacements, i, (uint64_t)tokenizer_size(job->tokenizer));
    }
    free(positions);
}

bool job_encode(Job *job, int which, const char *text, size_t length)
{
    TokenIds *ids = &job->texts[which];
    size_t before = ids->count;
    const char *problem = tokenizer_encode(job->tokenizer, text, length, ids);
    if (problem) table_error(&job->reader, NULL, "the text %s", problem);
    job->summary->tokens += ids->count - before;
    for (size_t i = before; i < ids->count; i++)
        job->summary->unknown += ids->items[i] == tokenizer_specials(job->tokenizer)->unknown;
    return !problem;
}

static int32_t frame(Job *job, const TokenIds texts[2], bool pair, bool second, size_t begin[2])
{
    TokenRow row = examples_room(&job->examples, second);
    size_t kept[2];
    bool cut;
    row.is_text = job->is_text;
    size_t count = tokenizer_frame(job->tokenizer, texts, pair, &row, &cut);
    tokenizer_find_texts(job->tokenizer, texts, pair, row.ids, row.length, begin, kept);
    job->summary->truncated += cut;
    return (int32_t)count;
}

void job_add_example(Job *job, const TokenIds texts[2], bool pair, size_t begin[2])
{
    Examples *examples = &job->examples;
    bool apart = job->options->task == DATASET_PAIRS;
    int32_t count = frame(job, texts, pair && !apart, false, begin);
    if (apart) {
        const TokenIds second[2] = {texts[1]};
        int32_t other = frame(job, second, false, true, begin);
        if (other > count) count = other;
    }
    *examples_at(examples, PART_LENGTHS, examples->count) = count;
    if (job->options->task == DATASET_MLM) {
        int32_t *labels = examples_at(examples, PART_TOKENS, examples->count);
        for (size_t i = 0; i < examples->length; i++) labels[i] = DATASET_IGNORED_LABEL;
        mask_tokens(job, examples_at(examples, PART_IDS, examples->count), labels, (size_t)count);
    }
    examples->count++;
}
