#include "base/parts.h"

#include <string.h>

bool text_has_part(const char *text, const char *part, const char *separators)
{
    size_t length = strlen(part);
    for (const char *at = text; length && (at = strstr(at, part)); at++)
        if ((at == text || strchr(separators, at[-1])) && (!at[length] || strchr(separators, at[length]))) return true;
    return false;
}
