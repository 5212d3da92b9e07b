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
    case PRETOKENIZER_PUNCTUATION:
        if (!unicode_is_punctuation(c)) return (Class){0, TOGETHER};
        return (Class){2, step->behavior == SPLIT_REMOVED      ? DROPPED
                          : step->behavior == SPLIT_CONTIGUOUS ? TOGETHER
                                                               : ALONE};
    case PRETOKENIZER_DIGITS:
        return unicode_is_number(c) ? (Class){2, step->single ? ALONE : TOGETHER} : (Class){0, TOGETHER};
    default: return (Class){0, TOGETHER};
    }
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

/* ---- cuts by patterns ---- */

/* Adds a part between matches, or a match, as the step's behavior says. *former: whether the part before it matched. */
static void add_part(const PretokenizerStep *step, size_t start, size_t end, bool matched, size_t first, bool *former,
                     Words *out)
{
    bool matches = matched != step->invert;
    Span *last = out->count > first ? &out->spans[out->count - 1] : NULL;
    bool joins = (step->behavior == SPLIT_MERGED_WITH_PREVIOUS && matches && !*former) ||
                 (step->behavior == SPLIT_MERGED_WITH_NEXT && !matches && *former) ||
                 (step->behavior == SPLIT_CONTIGUOUS && matches == *former);
    if (start == end && (!matched || step->behavior != SPLIT_CONTIGUOUS)) return;
    *former = matches;
    if (last && joins)
        last->length = end - last->start;
    else if (step->behavior != SPLIT_REMOVED || !matches)
        add_span(out, start, end);
}

/* False if the pattern takes too long. */
static bool cut_by_pattern(const PretokenizerStep *step, const char *text, Span span, Words *out)
{
    const char *part = text + span.start;
    size_t taken = 0, at = 0, start, end, first = out->count, used;
    bool former = false;
    while (at < span.length) {
        PatternResult result = pattern_find(step->pattern, part, span.length, at, &start, &end);
        if (result == PATTERN_STUCK) return false;
        if (result == PATTERN_NONE) break;
        add_part(step, span.start + taken, span.start + start, false, first, &former, out);
        add_part(step, span.start + start, span.start + end, true, first, &former, out);
        taken = at = end;
        if (end > start || end >= span.length) continue;
        unicode_read(part + end, span.length - end, &used);
        at += used;
    }
    add_part(step, span.start + taken, span.start + span.length, false, first, &former, out);
    return true;
}

/* ---- GPT-2's bytes ---- */

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

static bool cut_bytes(const PretokenizerStep *step, const char *text, size_t length, Buffer *scratch, Words *out)
{
    if (step->prefix && *text != ' ') {
        scratch->size = 0;
        buffer_append(scratch, " ", 1);
        buffer_append(scratch, text, length);
        text = buffer_text(scratch);
        length = scratch->size;
    }
    for (size_t at = 0, start, end = length; at < length; at = end) {
        if (step->pattern && pattern_find(step->pattern, text, length, at, &start, &end) != PATTERN_FOUND) return false;
        add_bytes(out, text + at, end - at);
    }
    return true;
}

/* ---- SentencePiece's marks ---- */

static void cut_at_marks(const PretokenizerStep *step, bool prefix, const char *text, size_t length, Words *out)
{
    size_t start = out->text.size;
    bool marked = length >= step->mark_length && memcmp(text, step->mark, step->mark_length) == 0;
    if (prefix && !marked && *text != ' ') buffer_append(&out->text, step->mark, step->mark_length);
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

static bool apply(const PretokenizerStep *step, bool begins, Words *words, Words *spare, Buffer *scratch)
{
    bool rewrites = step->kind == PRETOKENIZER_BYTE_LEVEL || step->kind == PRETOKENIZER_METASPACE, ok = true;
    spare->text.size = spare->count = 0;
    for (size_t i = 0; i < words->count && ok; i++) {
        const char *text = buffer_text(&words->text) + words->spans[i].start;
        if (step->kind == PRETOKENIZER_BYTE_LEVEL)
            ok = cut_bytes(step, text, words->spans[i].length, scratch, spare);
        else if (step->kind == PRETOKENIZER_METASPACE)
            cut_at_marks(step, step->prefix && (!step->first || (begins && i == 0)), text, words->spans[i].length,
                         spare);
        else if (step->kind == PRETOKENIZER_SPLIT)
            ok = cut_by_pattern(step, buffer_text(&words->text), words->spans[i], spare);
        else
            cut_by_class(step, buffer_text(&words->text), words->spans[i], spare);
    }
    Words former = *words;
    *words = *spare;
    *spare = former;
    if (rewrites) return ok;
    Buffer text = words->text; /* the text is the former one still */
    words->text = spare->text;
    spare->text = text;
    return ok;
}

const char *pretokenizer_apply(Pretokenizer *pretokenizer, const char *text, size_t length, size_t limit)
{
    Words *words = &pretokenizer->words, *spare = &pretokenizer->spare;
    FREED_WITH(buffer_free) Buffer scratch = {0};
    bool ok = true;
    words->text.size = words->count = 0;
    words->text.limit = spare->text.limit = limit;
    words->text.cut = spare->text.cut = false;
    buffer_append(&words->text, text, length);
    add_span(words, 0, words->text.size);
    for (size_t i = 0; i < pretokenizer->count && !words->text.cut && ok; i++)
        ok = apply(&pretokenizer->steps[i], pretokenizer->begins, words, spare, &scratch);
    return !ok ? PATTERN_TOOK_LONG : words->text.cut ? TEXT_GREW : NULL;
}
