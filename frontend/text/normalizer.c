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

static bool replace(const NormalizerStep *step, const char *text, size_t length, Buffer *out)
{
    size_t taken = 0, start, end, used;
    for (size_t at = 0; at < length && !out->cut;) {
        PatternResult result = pattern_find(step->pattern, text, length, at, &start, &end);
        if (result == PATTERN_STUCK) return false;
        if (result == PATTERN_NONE) break;
        buffer_append(out, text + taken, start - taken);
        buffer_append(out, step->content, step->content_length);
        taken = at = end;
        if (end > start || end >= length) continue;
        unicode_read(text + end, length - end, &used);
        at += used;
    }
    buffer_append(out, text + taken, length - taken);
    return true;
}

static bool apply(const NormalizerStep *step, Buffer *buffer, Buffer *spare)
{
    const char *text = buffer_text(buffer);
    size_t length = buffer->size;
    switch (step->kind) {
    case NORMALIZER_BERT: apply_bert(step, buffer, spare); return true;
    case NORMALIZER_NFD: unicode_normalize(spare, text, length, UNICODE_NFD); break;
    case NORMALIZER_NFKD: unicode_normalize(spare, text, length, UNICODE_NFKD); break;
    case NORMALIZER_NFC: unicode_normalize(spare, text, length, UNICODE_NFC); break;
    case NORMALIZER_NFKC: unicode_normalize(spare, text, length, UNICODE_NFKC); break;
    case NORMALIZER_LOWERCASE: lower(text, length, spare); break;
    case NORMALIZER_STRIP_ACCENTS: drop(text, length, unicode_is_mark, spare); break;
    case NORMALIZER_STRIP: strip(step, text, length, spare); break;
    case NORMALIZER_REPLACE:
        if (!replace(step, text, length, spare)) return false;
        break;
    case NORMALIZER_PREPEND:
        if (length) buffer_append(spare, step->content, step->content_length);
        buffer_append(spare, text, length);
        break;
    case NORMALIZER_CHARSMAP: charsmap_apply(step->map, text, length, spare); break;
    }
    swap(buffer, spare);
    return true;
}

const char *normalizer_apply(Normalizer *normalizer, Buffer *text)
{
    Buffer *spare = &normalizer->spare;
    spare->size = 0;
    spare->limit = text->limit = NORMALIZER_LIMIT(text->size);
    spare->cut = text->cut = false;
    bool ok = true;
    for (size_t i = 0; i < normalizer->count && !text->cut && ok; i++) ok = apply(&normalizer->steps[i], text, spare);
    return !ok ? PATTERN_TOOK_LONG : text->cut || spare->cut ? TEXT_GREW : NULL;
}
