#include "frontend/text/normalizer.h"

#include <string.h>

#include "frontend/text/unicode.h"

/* Cleans text of control characters and sets blanks for white space and around ideographs. */
static void clean(const NormalizerStep *step, const char *text, size_t length, Buffer *out)
{
    for (size_t at = 0, used; at < length; at += used) {
        int32_t c = unicode_read(text + at, length - at, &used);
        bool blank = c == '\t' || c == '\n' || c == '\r';
        if (step->clean && !blank && (c == 0 || c == 0xfffd || unicode_is_control(c))) continue;
        if (step->clean && (blank || unicode_is_space(c))) {
            buffer_append(out, " ", 1);
        } else if (step->ideographs && unicode_is_ideograph(c)) {
            buffer_append(out, " ", 1);
            buffer_append(out, text + at, used);
            buffer_append(out, " ", 1);
        } else {
            buffer_append(out, text + at, used);
        }
    }
}

static void lower(const char *text, size_t length, Buffer *out)
{
    for (size_t at = 0, used; at < length; at += used) {
        int32_t c = unicode_read(text + at, length - at, &used);
        if (c >= 0x80)
            unicode_append_lower(out, c);
        else
            buffer_append(out, &(char){(char)(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c)}, 1);
    }
}

static void drop(const char *text, size_t length, bool (*dropped)(int32_t), Buffer *out)
{
    for (size_t at = 0, used; at < length; at += used)
        if (!dropped(unicode_read(text + at, length - at, &used))) buffer_append(out, text + at, used);
}

static void swap(Buffer *a, Buffer *b)
{
    Buffer kept = *a;
    *a = *b;
    *b = kept;
    b->size = 0;
}

static void apply_bert(const NormalizerStep *step, Buffer *text, Buffer *spare)
{
    if (step->clean || step->ideographs) {
        clean(step, buffer_text(text), text->size, spare);
        swap(text, spare);
    }
    if (step->strip_accents && !unicode_is_ascii(buffer_text(text), text->size)) {
        unicode_normalize(spare, buffer_text(text), text->size, UNICODE_NFD);
        swap(text, spare);
        drop(buffer_text(text), text->size, unicode_is_nonspacing, spare);
        swap(text, spare);
    }
    if (step->lowercase) {
        lower(buffer_text(text), text->size, spare);
        swap(text, spare);
    }
}

static void strip(const NormalizerStep *step, const char *text, size_t length, Buffer *out)
{
    size_t start = 0, end = 0, used;
    bool leading = true;
    for (size_t at = 0; at < length; at += used) {
        bool space = unicode_is_space(unicode_read(text + at, length - at, &used));
        leading &= space;
        if (leading) start = at + used;
        if (!space) end = at + used;
    }
    if (!step->left) start = 0;
    if (!step->right) end = length;
    if (start < end) buffer_append(out, text + start, end - start);
}

static void replace(const NormalizerStep *step, const char *text, size_t length, Buffer *out)
{
    while (length) {
        const char *found = memmem(text, length, step->pattern, step->pattern_length);
        size_t before = found ? (size_t)(found - text) : length;
        buffer_append(out, text, before);
        if (!found) return;
        buffer_append(out, step->content, step->content_length);
        text = found + step->pattern_length;
        length -= before + step->pattern_length;
    }
}

/* The bytes at `text` of one repetition of the pattern; 0: there is none. */
static size_t repetition(const NormalizerStep *step, const char *text, size_t length)
{
    size_t used;
    if (step->any_space) return unicode_is_space(unicode_read(text, length, &used)) ? used : 0;
    bool same = length >= step->pattern_length && memcmp(text, step->pattern, step->pattern_length) == 0;
    return same ? step->pattern_length : 0;
}

static void replace_runs(const NormalizerStep *step, const char *text, size_t length, Buffer *out)
{
    for (size_t at = 0; at < length;) {
        size_t end = at, more, count = 0;
        while (end < length && (more = repetition(step, text + end, length - end))) end += more, count++;
        if (count == 0) unicode_read(text + at, length - at, &more), end = at + more;
        if (count >= step->least)
            buffer_append(out, step->content, step->content_length);
        else
            buffer_append(out, text + at, end - at);
        at = end;
    }
}

static void apply(const NormalizerStep *step, Buffer *buffer, Buffer *spare)
{
    const char *text = buffer_text(buffer);
    size_t length = buffer->size;
    switch (step->kind) {
    case NORMALIZER_BERT: apply_bert(step, buffer, spare); return;
    case NORMALIZER_NFD: unicode_normalize(spare, text, length, UNICODE_NFD); break;
    case NORMALIZER_NFKD: unicode_normalize(spare, text, length, UNICODE_NFKD); break;
    case NORMALIZER_NFC: unicode_normalize(spare, text, length, UNICODE_NFC); break;
    case NORMALIZER_NFKC: unicode_normalize(spare, text, length, UNICODE_NFKC); break;
    case NORMALIZER_LOWERCASE: lower(text, length, spare); break;
    case NORMALIZER_STRIP_ACCENTS: drop(text, length, unicode_is_mark, spare); break;
    case NORMALIZER_STRIP: strip(step, text, length, spare); break;
    case NORMALIZER_REPLACE: replace(step, text, length, spare); break;
    case NORMALIZER_REPLACE_RUNS: replace_runs(step, text, length, spare); break;
    case NORMALIZER_PREPEND:
        if (length) buffer_append(spare, step->content, step->content_length);
        buffer_append(spare, text, length);
        break;
    case NORMALIZER_CHARSMAP: charsmap_apply(step->map, text, length, spare); break;
    }
    swap(buffer, spare);
}

bool normalizer_apply(Normalizer *normalizer, Buffer *text)
{
    Buffer *spare = &normalizer->spare;
    spare->size = 0;
    spare->limit = text->limit = NORMALIZER_LIMIT(text->size);
    spare->cut = text->cut = false;
    for (size_t i = 0; i < normalizer->count && !text->cut; i++) apply(&normalizer->steps[i], text, spare);
    return !text->cut && !spare->cut;
}
