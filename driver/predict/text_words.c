#include "driver/predict/text_words.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(char byte) { return byte && strchr(" \t\r\n\v\f", byte) != NULL; }

/* The number of tokens of the first `end` bytes, if they are tokenised the same within the whole text; else -1. */
static int64_t tokens_before(const TextWords *words, size_t end)
{
    size_t count;
    bool parts = tokenizer_parts_at(words->tokenizer, words->text, strlen(words->text), end, &words->ids, &count);
    return parts ? (int64_t)count : -1;
}

void text_words_find(TextWords *words, Tokenizer *tokenizer, const char *text)
{
    *words = (TextWords){.tokenizer = tokenizer, .text = text};
    size_t length = strlen(text), begin = 0, tokens = 0;
    tokenizer_encode(tokenizer, text, length, &words->ids);
    while (begin < length && is_space(text[begin])) begin++;
    for (size_t end = begin; end < length; end++) {
        if (is_space(text[end]) || (end + 1 < length && !is_space(text[end + 1]))) continue;
        int64_t before = tokens_before(words, end + 1);
        if (before < 0 && end + 1 < length) continue;
        size_t after = before < 0 ? words->ids.count : (size_t)before;
        if (after > tokens) { /* otherwise the word has no tokens */
            TextWord word = {begin, end + 1, tokens, after};
            array_push(words->words, words->count, words->capacity, word);
        }
        tokens = after;
        begin = end + 1;
        while (begin < length && is_space(text[begin])) begin++;
    }
}

void text_words_take(TextWords *words, Tokenizer *tokenizer, const char *text, const size_t *ends, size_t count)
{
    *words = (TextWords){.tokenizer = tokenizer, .text = text};
    for (size_t i = 0; i < count; i++) {
        TextWord word = {i ? ends[i - 1] + 1 : 0, ends[i], words->ids.count, 0};
        FREED char *spelled = tokenizer_spell_word(tokenizer, text + word.begin, word.end - word.begin);
        tokenizer_encode(tokenizer, spelled, strlen(spelled), &words->ids);
        word.after = words->ids.count;
        array_push(words->words, words->count, words->capacity, word);
    }
}

void text_words_free(TextWords *words)
{
    free(words->ids.items);
    free(words->words);
}

static const TextWord *word_of(const TextWords *words, size_t token)
{
    for (size_t i = 0; i < words->count; i++)
        if (token < words->words[i].after) return &words->words[i];
    return &words->words[words->count - 1];
}

/* The end of the first part of the word that gives exactly the tokens before `token`; `otherwise` if there is none. */
static size_t end_before(const TextWords *words, const TextWord *word, size_t token, size_t otherwise)
{
    for (size_t end = word->begin + 1; end < word->end; end++) {
        bool inside = ((unsigned char)words->text[end] & 0xc0) == 0x80; /* of a character */
        if (!inside && tokens_before(words, end) == (int64_t)token) return end;
    }
    return otherwise;
}

void text_words_span(const TextWords *words, size_t first, size_t last, size_t *begin, size_t *end)
{
    const TextWord *from = word_of(words, first), *to = word_of(words, last);
    *begin = first > from->first ? end_before(words, from, first, from->begin) : from->begin;
    *end = last + 1 < to->after ? end_before(words, to, last + 1, to->end) : to->end;
}
