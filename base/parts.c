#include "base/parts.h"

#include <fnmatch.h>
#include <string.h>

bool text_has_part(const char *text, const char *part, const char *separators)
{
    size_t length = strlen(part);
    for (const char *at = text; length && (at = strstr(at, part)); at++)
        if ((at == text || strchr(separators, at[-1])) && (!at[length] || strchr(separators, at[length]))) return true;
    return false;
}

bool text_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

size_t text_stem(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length > tail && text_ends_with(text, end) ? length - tail : length;
}

int word_index(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(words[i], word) == 0) return (int)i;
    return -1;
}

bool pattern_matches(const char *pattern, const char *name)
{
    if (!name) return false;
    return strpbrk(pattern, "*?[") ? fnmatch(pattern, name, 0) == 0 : text_has_part(name, pattern, ".");
}
