#include "frontend/text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"

/* What a hostile expression may spend on one search. */
enum { MOST_MATCHES = 1 << 17, MOST_HEAP_KIB = 1 << 14, LONGEST_PATTERN = 1 << 14, MOST_PARENTHESES = 64 };

struct Pattern {
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* Classes of characters that differ, as parts of a bracket. */
static const char *class_of(char letter)
{
    switch (letter) {
    case 's': return "\\t-\\r\\x{85}\\p{Z}";
    case 'w': return "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}";
    case 'h': return "0-9a-fA-F";
    default: return NULL;
    }
}

/* Rewrites Ruby's expression for PCRE2; false if it has what PCRE2 would read differently. */
static bool translate(const char *text, Buffer *out)
{
    bool inside = false;
    for (; *text; text++) {
        if (*text == '\\' && text[1]) {
            bool negated = text[1] >= 'A' && text[1] <= 'Z';
            const char *class = class_of((char)(text[1] | 0x20));
            if (class && negated && inside) return false;
            text++;
            if (!class)
                buffer_append(out, text - 1, 2);
            else
                buffer_print(out, inside ? "%s%s%s" : "[%s%s%s", negated ? "^" : "", class, inside ? "" : "]");
            continue;
        }
        if (inside && ((*text == '[' && text[1] != ':') || strncmp(text, "&&", 2) == 0)) return false;
        if (strncmp(text, "(?m", 3) == 0) return false;
        if (inside && strncmp(text, "[:", 2) == 0) {
            const char *end = strstr(text, ":]");
            if (!end) return false;
            buffer_append(out, text, (size_t)(end + 1 - text));
            text = end + 1;
        }
        buffer_append(out, text, 1);
        if (*text == '[' && !inside) {
            inside = true;
            if (text[1] == '^') buffer_append(out, ++text, 1);
        } else if (*text == ']') {
            inside = false;
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
    Buffer translated = {0};
    bool known = literal || translate(text, &translated);
    uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
    if (!known) snprintf(problem, PATTERN_PROBLEM, "nested or negated classes in brackets, or (?m), are not supported");
    pcre2_code *code = known ? compile(literal ? text : buffer_text(&translated), options, problem) : NULL;
    buffer_free(&translated);
    if (!code) return NULL;
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    Pattern *pattern = memory_allocate(sizeof *pattern);
    *pattern = (Pattern){code, pcre2_match_data_create_from_pattern(code, NULL), pcre2_match_context_create(NULL)};
    if (!pattern->match || !pattern->limits) memory_exhausted();
    pcre2_set_match_limit(pattern->limits, MOST_MATCHES);
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
