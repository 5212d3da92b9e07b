#include "driver/predict/worst_rows.h"

#include <string.h>

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

RowTokens row_tokens(const TextRows *rows, int64_t row, Tokenizer *tokenizer)
{
    RowTokens tokens = {.tokenizer = tokenizer};
    const RowTensor *tensor = text_rows_find(rows, "input_ids"), *mask = text_rows_find(rows, "attention_mask");
    if (!tensor || tensor->dtype != DTYPE_I32) return tokens;
    tokens.ids = (const int32_t *)tensor->data + row * rows->width;
    while (tokens.count < rows->width &&
           (!mask || element_as_integer(mask->dtype, mask->data, row * rows->width + tokens.count)))
        tokens.count++;
    tokens.spelling = token_spelling(tokenizer);
    return tokens;
}

void tokens_text(Buffer *text, const RowTokens *row, const int32_t *ids, int64_t count)
{
    const TokenizerSpecials *specials = tokenizer_specials(row->tokenizer);
    bool between = false;
    for (int64_t t = 0; t < count; t++) {
        FREED_WITH(buffer_free) Buffer piece = {0}, own = {0};
        bool stands_for_word = ids[t] == specials->mask || ids[t] == specials->unknown;
        if (tokenizer_is_special(row->tokenizer, ids[t]) && !stands_for_word) {
            between = text->size > 0;
        } else if (tokenizer_piece(row->tokenizer, ids[t], &piece)) {
            token_text_append(between ? &own : text, row->spelling, buffer_text(&piece), piece.size);
            bool blank = strspn(buffer_text(&own), " \n") == own.size; /* as between two messages */
            while (between && !blank && strchr(" \n", text->bytes[text->size - 1])) text->size--;
            if (between && !blank) buffer_print(text, " / %s", buffer_text(&own) + strspn(buffer_text(&own), " \n"));
            between &= blank;
        }
    }
    while (text->size && text->bytes[text->size - 1] == '\n') text->size--;
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
