/* Predictions about parts of texts: labels of words, answers to questions, words for masks. */
#include <stdlib.h>
#include <string.h>

#include "driver/predict/predictions.h"
#include "driver/predict/text_words.h"

enum { MOST_ANSWER_TOKENS = 30, MOST_GUESSES = 5 };

/* The words of a row's texts, and where their tokens are in the row. */
typedef struct RowWords {
    TextWords texts[2];
    size_t begin[2], count[2]; /* of the tokens that remain after cutting */
} RowWords;

static void find_words(RowWords *words, const Predictions *predictions, int64_t row)
{
    const TextRows *rows = predictions->rows;
    const char *const *texts = rows->texts[row];
    const RowTensor *tensor = &rows->tensors[0];
    *words = (RowWords){0};
    for (int t = 0; t < 2 && texts[t]; t++)
        if (rows->words)
            text_words_take(&words->texts[t], predictions->tokenizer, texts[t], rows->words[row].ends,
                            rows->words[row].count);
        else
            text_words_find(&words->texts[t], predictions->tokenizer, texts[t]);
    FREED int32_t *tokens = memory_allocate((size_t)rows->width * sizeof *tokens);
    for (int64_t i = 0; i < rows->width; i++)
        tokens[i] = (int32_t)element_as_integer(tensor->dtype, tensor->data, row * rows->width + i);
    const TokenIds ids[2] = {words->texts[0].ids, words->texts[1].ids};
    tokenizer_find_texts(predictions->tokenizer, ids, texts[1] != NULL, tokens, (size_t)rows->width, words->begin,
                         words->count);
}

static void free_words(RowWords *words)
{
    for (int t = 0; t < 2; t++) text_words_free(&words->texts[t]);
}

static void print_span(Predictions *predictions, const char *text, size_t begin, size_t end)
{
    FREED char *copy = memory_allocate(end - begin + 1);
    memcpy(copy, text + begin, end - begin);
    predictions_field(predictions, copy);
}

bool predictions_words(Predictions *predictions, int64_t row, Diagnostics *diagnostics)
{
    (void)diagnostics;
    RowWords words;
    int number = 0;
    find_words(&words, predictions, row);
    for (int t = 0; t < 2; t++)
        for (size_t w = 0; w < words.texts[t].count; w++, number++) {
            const TextWord *word = &words.texts[t].words[w];
            if (word->first == word->after || word->first >= words.count[t]) continue; /* without tokens, or cut off */
            buffer_print(&predictions->table, "%lld,%d,", (long long)row, number);
            print_span(predictions, words.texts[t].text, word->begin, word->end);
            buffer_append(&predictions->table, ",", 1);
            predictions_scores(predictions,
                               predictions->values + (int64_t)(words.begin[t] + word->first) * predictions->classes);
        }
    free_words(&words);
    return true;
}

/* Characters, not bytes, as other tools count. */
static size_t characters(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* The likeliest span of at most MOST_ANSWER_TOKENS tokens; the first one if several are equal. */
static double find_answer(const double *starts, const double *ends, size_t count, size_t *first, size_t *last)
{
    double best = -1;
    for (size_t s = 0; s < count; s++)
        for (size_t e = s; e < count && e < s + MOST_ANSWER_TOKENS; e++) {
            if (starts[s] * ends[e] <= best) continue;
            best = starts[s] * ends[e];
            *first = s, *last = e;
        }
    return best;
}

bool predictions_answer(Predictions *predictions, int64_t row, Diagnostics *diagnostics)
{
    RowWords words;
    find_words(&words, predictions, row);
    const char *text = words.texts[1].text;
    size_t count = words.count[1], first = 0, last = 0, begin, end;
    double *starts = predictions->values + words.begin[1], *ends = predictions->end_values + words.begin[1];
    bool any = count > 0 && words.texts[1].count > 0;
    if (any) {
        predictions_softmax(starts, (int64_t)count);
        predictions_softmax(ends, (int64_t)count);
        double score = find_answer(starts, ends, count, &first, &last);
        text_words_span(&words.texts[1], first, last, &begin, &end);
        buffer_print(&predictions->table, "%lld,", (long long)row);
        print_span(predictions, text, begin, end);
        buffer_print(&predictions->table, ",%.7g,%zu,%zu", score, characters(text, begin), characters(text, end));
        predictions_end_line(predictions);
    }
    free_words(&words);
    return any || input_error(diagnostics, predictions->rows->file, NULL,
                              "row %lld has no text that could hold an answer", (long long)row);
}

static void print_guesses(Predictions *predictions, int64_t row, int mask, double *values)
{
    int64_t count = predictions->classes;
    predictions_softmax(values, count);
    for (int rank = 1; rank <= MOST_GUESSES && rank <= count; rank++) {
        FREED_WITH(buffer_free) Buffer piece = {0};
        int64_t best = 0;
        for (int64_t i = 1; i < count; i++)
            if (values[i] > values[best]) best = i;
        if (!tokenizer_piece(predictions->tokenizer, (int32_t)best, &piece))
            buffer_print(&piece, "%lld",
                         (long long)best); /* the model's table may have more rows than the tokenizer has pieces */
        buffer_print(&predictions->table, "%lld,%d,%d,", (long long)row, mask, rank);
        predictions_field(predictions, buffer_text(&piece));
        buffer_print(&predictions->table, ",%.7g", values[best]);
        predictions_end_line(predictions);
        values[best] = -1;
    }
}

bool predictions_masks(Predictions *predictions, int64_t row, Diagnostics *diagnostics)
{
    const TextRows *rows = predictions->rows;
    const RowTensor *tensor = &rows->tensors[0];
    int32_t mask = tokenizer_specials(predictions->tokenizer)->mask;
    int found = 0;
    for (int64_t i = 0; mask >= 0 && i < predictions->predictor->width; i++)
        if (element_as_integer(tensor->dtype, tensor->data, row * rows->width + i) == mask)
            print_guesses(predictions, row, found++, predictions->values + i * predictions->classes);
    return found || input_error(diagnostics, rows->file,
                                "write the tokenizer's mask, such as [MASK] or <mask>, in place of a word",
                                "row %lld has no mask to fill", (long long)row);
}
