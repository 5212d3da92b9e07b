#include "frontend/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"

/* What a hostile expression may spend on one search, with a little more for each byte of the text. */
enum {
    MOST_MATCHES = 1 << 17,
    MATCHES_PER_BYTE = 4,
    MOST_HEAP_KIB = 1 << 14,
    LONGEST_PATTERN = 1 << 14,
    MOST_PARENTHESES = 64
};

struct Pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* Classes as parts of a bracket, where those of PCRE2 hold other characters. */
#define SPACE "\\t-\\r\\x{85}\\p{Z}"
#define WORD "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}"
#define BARE_WORD WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe" /* outside of brackets, Oniguruma adds these */

static const char *class_of(char letter, bool inside)
{
    switch (letter) {
    case 's': return SPACE;
    case 'w': return inside ? WORD : BARE_WORD;
    case 'h': return "0-9a-fA-F";
    default: return NULL;
    }
}

/* What `\\b` or `\\B` is for these words. */
static const char *boundary(bool negated)
{
    return negated ? "(?:(?<=[" BARE_WORD "])(?=[" BARE_WORD "])|(?<![" BARE_WORD "])(?![" BARE_WORD "]))"
                   : "(?:(?<=[" BARE_WORD "])(?![" BARE_WORD "])|(?<![" BARE_WORD "])(?=[" BARE_WORD "]))";
}

/* Rewrites an escape, and moves to its last character; false if PCRE2 would read it differently. */
static bool translate_escape(const char **text, bool inside, Buffer *out)
{
    const char *escape = *text, letter = escape[1];
    bool negated = letter >= 'A' && letter <= 'Z', braced = escape[2] == '{' && strchr("pPx", letter);
    const char *class = class_of((char)(letter | 0x20), inside), *end = braced ? strchr(escape, '}') : escape + 1;
    if (!end || strchr("QEVX", letter) || (strchr("pP", letter) && !braced) || (class && negated && inside))
        return false;
    *text = end;
    if (class)
        buffer_print(out, inside ? "%s%s%s" : "[%s%s%s", negated ? "^" : "", class, inside ? "" : "]");
    else if ((letter | 0x20) == 'b' && !inside)
        buffer_print(out, "%s", boundary(negated));
    else if (letter == 'v')
        buffer_print(out, "\\x0b");
    else
        buffer_append(out, escape, (size_t)(end + 1 - escape));
    return true;
}

/* Rewrites [:NAME:], and moves to its last character; false if it is another class than PCRE2's. */
static bool translate_named(const char **text, Buffer *out)
{
    static const char *const names[][2] = {{"[:alpha:]", "\\p{Alphabetic}"},
                                           {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
                                           {"[:upper:]", "\\p{Uppercase}"},
                                           {"[:lower:]", "\\p{Lowercase}"},
                                           {"[:punct:]", "\\p{P}\\p{S}"},
                                           {"[:space:]", SPACE},
                                           {"[:blank:]", "\\t\\p{Zs}"},
                                           {"[:word:]", WORD},
                                           {"[:digit:]", "\\d"},
                                           {"[:xdigit:]", "0-9a-fA-F"},
                                           {"[:cntrl:]", "\\p{Cc}"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t length = strlen(names[i][0]);
        if (strncmp(*text, names[i][0], length) != 0) continue;
        buffer_print(out, "%s", names[i][1]);
        return *text += length - 1;
    }
    return false;
}

/* Moves past {n}, {n,}, {,n} or {n,m}; `text` itself if it is none. */
static const char *skip_interval(const char *text)
{
    size_t length = *text == '{' ? strspn(text + 1, "0123456789,") : 0;
    return length && text[length + 1] == '}' ? text + length + 2 : text;
}

/* Rewrites Oniguruma's expression for PCRE2; false if it has what PCRE2 would read differently. */
static bool translate(const char *text, Buffer *out)
{
    int depth = 0; /* of brackets: those within others add to them */
    for (; *text; text++) {
        if (*text == '\\' && text[1]) {
            if (!translate_escape(&text, depth > 0, out)) return false;
        } else if (!depth) {
            const char *after = skip_interval(text);
            if (strncmp(text, "(?m", 3) == 0 || (after != text && (*after == '+' || *after == '?'))) return false;
            buffer_append(out, text, 1);
            depth = *text == '[';
            if (depth && text[1] == '^') buffer_append(out, ++text, 1);
            if (depth && text[1] == ']') buffer_append(out, ++text, 1);
            if (after != text && text[1] == ',') buffer_append(out, "0", 1);
        } else if (strncmp(text, "&&", 2) == 0 || strncmp(text, "[^", 2) == 0 || strncmp(text, "-[", 2) == 0) {
            return false;
        } else if (strncmp(text, "[:", 2) == 0) {
            if (!translate_named(&text, out)) return false;
        } else {
            depth += (*text == '[') - (*text == ']');
            if (*text != '[' && !(*text == ']' && depth)) buffer_append(out, text, 1);
        }
    }
    return true;
}

static pcre2_code *compile(const char *text, uint32_t options, char problem[static PATTERN_PROBLEM])
{
    int error;
    PCRE2_SIZE offset;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_set_max_pattern_length(context, LONGEST_PATTERN);
    pcre2_set_parens_nest_limit(context, MOST_PARENTHESES);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &error, &offset, context);
    if (!code) pcre2_get_error_message(error, (PCRE2_UCHAR *)problem, PATTERN_PROBLEM);
    pcre2_compile_context_free(context);
    return code;
}

Pattern *pattern_compile(const char *text, bool literal, char problem[static PATTERN_PROBLEM])
{
    FREED_WITH(buffer_free) Buffer translated = {0};
    bool known = literal || translate(text, &translated);
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    if (!known)
        snprintf(problem, PATTERN_PROBLEM,
                 "PCRE2 reads a part of it differently: a negated class in brackets, &&, (?m), {n}+, \\p without {}, "
                 "\\Q, \\X");
    pcre2_code *code = known ? compile(literal ? text : buffer_text(&translated), options, problem) : NULL;
    if (!code) return NULL;
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    Pattern *pattern = memory_allocate(sizeof *pattern);
    *pattern = (Pattern){code, pcre2_match_data_create_from_pattern(code, NULL), pcre2_match_context_create(NULL)};
    if (!pattern->match || !pattern->limits) memory_exhausted();
    pcre2_set_heap_limit(pattern->limits, MOST_HEAP_KIB);
    return pattern;
}

void pattern_free(Pattern *pattern)
{
    if (!pattern) return;
    pcre2_match_context_free(pattern->limits);
    pcre2_match_data_free(pattern->match);
    pcre2_code_free(pattern->code);
    free(pattern);
}

PatternResult pattern_find(const Pattern *pattern, const char *text, size_t length, size_t from, size_t *start,
                           size_t *end)
{
    uint32_t options = PCRE2_NO_UTF_CHECK;
    size_t limit = MOST_MATCHES + MATCHES_PER_BYTE * length;
    pcre2_set_match_limit(pattern->limits, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    int found = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from, options, pattern->match, pattern->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pattern->code, (PCRE2_SPTR)text, length, from, options | PCRE2_NO_JIT, pattern->match,
                            pattern->limits);
    if (found == PCRE2_ERROR_NOMATCH) return PATTERN_NONE;
    if (found < 0) return PATTERN_STUCK;
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(pattern->match);
    *start = places[0], *end = places[1];
    return *start >= from && *end >= *start ? PATTERN_FOUND : PATTERN_STUCK; /* \K may set the start after the end */
}
