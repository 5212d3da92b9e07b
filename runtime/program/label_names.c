#include "runtime/program/label_names.h"

#include "base/json.h"

void label_names_print(Buffer *list, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buffer_append(list, i ? "," : "[", 1);
        json_print_string(list, names[i]);
    }
    buffer_append(list, "]", 1);
}

const char *const *label_names_read(const char *list, Arena *arena, size_t *count)
{
    json_auto_t *items = list ? json_loads(list, 0, NULL) : NULL;
    size_t size = json_is_array(items) ? json_array_size(items) : 0;
    const char **names = size ? arena_new_array(arena, const char *, size) : NULL;
    for (*count = 0; *count < size; ++*count) {
        const char *name = json_string_value(json_array_get(items, *count));
        if (!name) break;
        names[*count] = arena_string(arena, name);
    }
    if (*count == size) return names;
    *count = 0;
    return NULL;
}

const char *label_names_some(const char *const *names, size_t count, Arena *arena)
{
    enum { SHOWN = 12 };
    const char *text = count ? names[0] : "";
    for (size_t i = 1; i < count && i < SHOWN; i++) text = arena_format(arena, "%s, %s", text, names[i]);
    return count > SHOWN ? arena_format(arena, "%s and %zu more", text, count - SHOWN) : text;
}
