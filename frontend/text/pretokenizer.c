#include "frontend/text/pretokenizer.h"

#include <string.h>

#include "base/arena.h"
#include "frontend/text/unicode.h"

/* Adds a word that stands in the same text. */
static void add_span(Words *words, size_t start, size_t end)
{
    Span span = {start, end - start};
    if (end > start) array_push(words->spans, words->count, words->capacity, span);
}

/* ---- cuts between characters ---- */

/* Characters of a class stay together, are dropped, or become single words. */
typedef enum Way { TOGETHER, DROPPED, ALONE } Way;

typedef struct Class {
    int number;
    Way way;
} Class;

static Class classify(const PretokenizerStep *step, int32_t c)
{
    switch (step->kind) {
    case PRETOKENIZER_BERT:
        if (unicode_is_space(c)) return (Class){1, DROPPED};
        return unicode_is_punctuation(c) ? (Class){2, ALONE} : (Class){0, TOGETHER};
    case PRETOKENIZER_WHITESPACE:
        if (unicode_is_word(c)) return (Class){0, TOGETHER};
        return unicode_is_space(c) ? (Class){1, DROPPED} : (Class){2, TOGETHER};
    case PRETOKENIZER_WHITESPACE_SPLIT: return unicode_is_space(c) ? (Class){1, DROPPED} : (Class){0, TOGETHER};
    case PRETOKENIZER_PUNCTUATION: return unicode_is_punctuation(c) ? (Class){2, ALONE} : (Class){0, TOGETHER};
    case PRETOKENIZER_DIGITS:
        return unicode_is_number(c) ? (Class){2, step->single ? ALONE : TOGETHER} : (Class){0, TOGETHER};
    case PRETOKENIZER_BYTE_LEVEL:
    case PRETOKENIZER_METASPACE: break;
    }
    return (Class){0, TOGETHER};
}

static void cut_by_class(const PretokenizerStep *step, const char *text, Span span, Words *out)
{
    size_t start = span.start, end = span.start + span.length;
    Class former = {0, TOGETHER};
    for (size_t at = start, used; at < end; at += used) {
        Class class = classify(step, unicode_read(text + at, end - at, &used));
        if (at == start) former = class;
        if (class.number == former.number && class.way == TOGETHER) continue;
        if (former.way != DROPPED) add_span(out, start, at);
        start = at;
        former = class;
    }
    if (former.way != DROPPED) add_span(out, start, end);
}

/* ---- GPT-2's pattern ---- */

typedef enum Sort { LETTER, NUMBER, SPACE, OTHER } Sort;

static Sort sort_of(const char *text, size_t length, size_t *used)
{
    int32_t c = unicode_read(text, length, used);
    if (unicode_is_letter(c)) return LETTER;
    if (unicode_is_number(c)) return NUMBER;
    return unicode_is_space(c) ? SPACE : OTHER;
}

/* 's 't 're 've 'm 'll 'd */
static size_t contraction(const char *text, size_t length)
{
    if (length < 2 || *text != '\'') return 0;
    if (strchr("stmd", text[1]) && text[1]) return 2;
    if (length < 3) return 0;
    bool two = memcmp(text + 1, "re", 2) == 0 || memcmp(text + 1, "ve", 2) == 0 || memcmp(text + 1, "ll", 2) == 0;
    return two ? 3 : 0;
}

/* The bytes of the next match of 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ in text
 * that is not empty. It always matches. */
static size_t next_match(const char *text, size_t length)
{
    size_t used, at = contraction(text, length), last = 0;
    if (at) return at;
    Sort sort = sort_of(text, length, &used);
    if (sort == SPACE && *text == ' ' && length > 1) { /* a blank before a word belongs to it */
        Sort following = sort_of(text + 1, length - 1, &used);
        at = 1;
        if (following != SPACE) sort = following;
    }
    if (sort == SPACE) at = 0;
    while (at < length && sort_of(text + at, length - at, &used) == sort) last = used, at += used;
    /* The last white space before a word belongs to the word. */
    return sort == SPACE && at < length && at > last ? at - last : at;
}

/* The character that GPT-2 writes for a byte: itself where it is printable, else one from 256 on. */
static int32_t byte_character(unsigned char byte)
{
    if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae) return byte;
    if (byte <= ' ') return 256 + byte;
    return byte == 0xad ? 256 + 67 : 256 + 33 + byte - 0x7f;
}

static void add_bytes(Words *out, const char *text, size_t length)
{
    size_t start = out->text.size;
    for (size_t i = 0; i < length; i++) unicode_append(&out->text, byte_character((unsigned char)text[i]));
    add_span(out, start, out->text.size);
}

static void cut_bytes(const PretokenizerStep *step, const char *text, size_t length, Buffer *scratch, Words *out)
{
    if (step->prefix && *text != ' ') {
        scratch->size = 0;
        buffer_append(scratch, " ", 1);
        buffer_append(scratch, text, length);
        text = buffer_text(scratch);
        length = scratch->size;
    }
    for (size_t at = 0, used; at < length; at += used) {
        used = step->split ? next_match(text + at, length - at) : length;
        add_bytes(out, text + at, used);
    }
}

/* ---- SentencePiece's marks ---- */

static void cut_at_marks(const PretokenizerStep *step, const char *text, size_t length, Words *out)
{
    size_t start = out->text.size;
    bool marked = length >= step->mark_length && memcmp(text, step->mark, step->mark_length) == 0;
    if (step->prefix && !marked && *text != ' ') buffer_append(&out->text, step->mark, step->mark_length);
    for (size_t at = 0; at < length; at++) {
        bool mark = length - at >= step->mark_length && memcmp(text + at, step->mark, step->mark_length) == 0;
        if (text[at] != ' ' && !mark) {
            buffer_append(&out->text, text + at, 1);
            continue;
        }
        if (step->split) {
            add_span(out, start, out->text.size);
            start = out->text.size;
        }
        buffer_append(&out->text, step->mark, step->mark_length);
        if (mark) at += step->mark_length - 1;
    }
    add_span(out, start, out->text.size);
}

static void apply(const PretokenizerStep *step, Words *words, Words *spare, Buffer *scratch)
{
    bool rewrites = step->kind == PRETOKENIZER_BYTE_LEVEL || step->kind == PRETOKENIZER_METASPACE;
    spare->text.size = spare->count = 0;
    for (size_t i = 0; i < words->count; i++) {
        const char *text = buffer_text(&words->text) + words->spans[i].start;
        if (step->kind == PRETOKENIZER_BYTE_LEVEL)
            cut_bytes(step, text, words->spans[i].length, scratch, spare);
        else if (step->kind == PRETOKENIZER_METASPACE)
            cut_at_marks(step, text, words->spans[i].length, spare);
        else
            cut_by_class(step, buffer_text(&words->text), words->spans[i], spare);
    }
    Words former = *words;
    *words = *spare;
    *spare = former;
    if (rewrites) return;
    Buffer text = words->text; /* the text is the former one still */
    words->text = spare->text;
    spare->text = text;
}

bool pretokenizer_apply(Pretokenizer *pretokenizer, const char *text, size_t length, size_t limit)
{
    Words *words = &pretokenizer->words, *spare = &pretokenizer->spare;
    Buffer scratch = {0};
    words->text.size = words->count = 0;
    words->text.limit = spare->text.limit = limit;
    words->text.cut = spare->text.cut = false;
    buffer_append(&words->text, text, length);
    add_span(words, 0, words->text.size);
    for (size_t i = 0; i < pretokenizer->count && !words->text.cut; i++)
        apply(&pretokenizer->steps[i], words, spare, &scratch);
    buffer_free(&scratch);
    return !words->text.cut;
}
