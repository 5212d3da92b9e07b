#include "driver/predict/worst_rows.h"

#include <string.h>

#include "base/text.h"

bool worst_rows_take(const WorstRows *worst, double loss)
{
    return worst->count < MOST_WORST_ROWS || loss > worst->items[worst->count - 1].loss;
}

void worst_rows_add(WorstRows *worst, WorstRow row)
{
    int at = worst->count < MOST_WORST_ROWS ? worst->count++ : MOST_WORST_ROWS;
    for (; at > 0 && worst->items[at - 1].loss < row.loss; at--)
        if (at < MOST_WORST_ROWS) worst->items[at] = worst->items[at - 1];
    if (at < MOST_WORST_ROWS) worst->items[at] = row;
}

static bool starts_with(const char *piece, const char *mark) { return strncmp(piece, mark, strlen(mark)) == 0; }

/* Byte-level tokenizers (Radford et al. 2019) write bytes that are no printable Latin-1 characters as U+0100 and on. */
static unsigned char byte_of(int32_t character)
{
    if (character < 0x100) return (unsigned char)character;
    int number = character - 0x100;
    for (int byte = 0; byte < 256; byte++) {
        bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        if (!printable && number-- == 0) return (unsigned char)byte;
    }
    return '?';
}

static const char byte_level_space[] = "\u0120", sentence_space[] = "\u2581";

static void append_piece(Buffer *text, const char *piece, Spelling spelling)
{
    size_t size = strlen(piece), used;
    if (spelling == SPELLING_WORDS) {
        bool inside = starts_with(piece, "##");
        buffer_print(text, "%s%s", inside || !text->size ? "" : " ", piece + (inside ? 2 : 0));
        return;
    }
    for (; size; piece += used, size -= used) {
        int32_t character = text_character(piece, size, &used);
        if (spelling == SPELLING_BYTES && character >= 0)
            buffer_append(text, &(unsigned char){byte_of(character)}, 1);
        else if (starts_with(piece, sentence_space))
            buffer_append(text, " ", 1);
        else
            buffer_append(text, piece, used);
    }
}

static Spelling spelling_of(const int32_t *ids, int64_t count, const Tokenizer *tokenizer)
{
    Spelling spelling = SPELLING_WORDS;
    for (int64_t t = 0; t < count && spelling == SPELLING_WORDS; t++) {
        Buffer piece = {0};
        if (!tokenizer_is_special(tokenizer, ids[t]) && tokenizer_piece(tokenizer, ids[t], &piece))
            spelling = starts_with(buffer_text(&piece), byte_level_space) ? SPELLING_BYTES
                       : starts_with(buffer_text(&piece), sentence_space) ? SPELLING_SENTENCE
                                                                          : SPELLING_WORDS;
        buffer_free(&piece);
    }
    return spelling;
}

RowTokens row_tokens(const TextRows *rows, int64_t row, const Tokenizer *tokenizer)
{
    RowTokens tokens = {.tokenizer = tokenizer};
    const RowTensor *tensor = text_rows_find(rows, "input_ids"), *mask = text_rows_find(rows, "attention_mask");
    if (!tensor || tensor->dtype != DTYPE_I32) return tokens;
    tokens.ids = (const int32_t *)tensor->data + row * rows->width;
    while (tokens.count < rows->width &&
           (!mask || element_as_integer(mask->dtype, mask->data, row * rows->width + tokens.count)))
        tokens.count++;
    tokens.spelling = spelling_of(tokens.ids, tokens.count, tokenizer);
    return tokens;
}

void tokens_text(Buffer *text, const RowTokens *row, const int32_t *ids, int64_t count)
{
    int32_t hidden = tokenizer_specials(row->tokenizer)->mask; /* stands for a word */
    bool between = false;
    for (int64_t t = 0; t < count; t++) {
        Buffer piece = {0};
        if (tokenizer_is_special(row->tokenizer, ids[t]) && ids[t] != hidden) {
            between = text->size > 0;
        } else if (tokenizer_piece(row->tokenizer, ids[t], &piece)) {
            if (between) buffer_print(text, row->spelling == SPELLING_WORDS ? " /" : " / ");
            between = false;
            append_piece(text, buffer_text(&piece), row->spelling);
        }
        buffer_free(&piece);
    }
}

void shortened_text(Buffer *text, const char *whole, size_t begin, size_t end)
{
    enum { AROUND = 200 }; /* bytes */
    size_t length = strlen(whole);
    end = end < length ? end : length;
    begin = begin < end ? begin : end;
    size_t first = begin > AROUND ? begin - AROUND : 0;
    size_t last = length - end > AROUND ? end + AROUND : length;
    while (first < begin && ((unsigned char)whole[first] & 0xc0) == 0x80) first++; /* inside a character */
    while (last > end && ((unsigned char)whole[last] & 0xc0) == 0x80) last--;
    buffer_print(text, "%s", first ? "..." : "");
    buffer_append(text, whole + first, last - first);
    buffer_print(text, "%s", last < length ? "..." : "");
}
