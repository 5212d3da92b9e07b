/* Regular expressions of tokenizer.json, which are Oniguruma's (Ruby's), by PCRE2. */
#ifndef FRONTEND_TEXT_PATTERN_H
#define FRONTEND_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Pattern Pattern;

/* What steps on a text may end with, to come after its name. */
#define TEXT_GREW "becomes more than 64 times as long by the rules of the tokenizer"
#define PATTERN_TOOK_LONG "takes a regular expression of the tokenizer too long"

enum { PATTERN_PROBLEM = 160 };

/* `literal`: the text itself. NULL after saying why in `problem`: it is malformed, or means something else to PCRE2. */
Pattern *pattern_compile(const char *text, bool literal, char problem[static PATTERN_PROBLEM]);
void pattern_free(Pattern *pattern);

typedef enum PatternResult { PATTERN_NONE, PATTERN_FOUND, PATTERN_STUCK } PatternResult;

/* The first match in UTF-8 text at `from` or after it; it may be empty. STUCK: it took too much work to find out. */
PatternResult pattern_find(const Pattern *pattern, const char *text, size_t length, size_t from, size_t *start,
                           size_t *end);

#endif
