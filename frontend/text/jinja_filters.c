#include <stdlib.h>
#include <string.h>

#include "base/parts.h"
#include "frontend/text/jinja_run.h"
#include "frontend/text/unicode.h"

json_t *jinja_argument(const JinjaArguments *arguments, size_t position, const char *name)
{
    size_t positional = 0;
    for (size_t i = 0; i < arguments->count; i++)
        if (arguments->names[i] ? strcmp(arguments->names[i], name) == 0 : positional++ == position)
            return arguments->values[i];
    return NULL;
}

/* ---- Strings ---- */

typedef struct Text {
    const char *bytes;
    size_t size;
} Text;

static Text text_of(const json_t *value)
{
    return json_is_string(value) ? (Text){json_string_value(value), json_string_length(value)} : (Text){"", 0};
}

/* White space, and the four separators that Python counts as such; or one of the characters of `set`. */
static bool is_stripped(int32_t c, const json_t *set)
{
    if (!json_is_string(set)) return unicode_is_space(c) || (c >= 0x1c && c <= 0x1f);
    size_t size = json_string_length(set), used;
    for (size_t at = 0; at < size; at += used)
        if (unicode_read(json_string_value(set) + at, size - at, &used) == c) return true;
    return false;
}

static json_t *strip(JinjaRun *run, const json_t *value, const json_t *set, bool left, bool right)
{
    Text text = text_of(value);
    size_t begin = text.size, end = 0, used;
    for (size_t at = 0; at < text.size; at += used) {
        if (is_stripped(unicode_read(text.bytes + at, text.size - at, &used), set)) continue;
        if (begin == text.size) begin = at;
        end = at + used;
    }
    if (!left) begin = 0;
    if (!right) end = text.size;
    return jinja_string(run, text.bytes + begin, end > begin ? end - begin : 0);
}

typedef enum Letters { LOWER, UPPER, CAPITAL, TITLE } Letters;

static json_t *change_case(JinjaRun *run, const json_t *value, Letters letters)
{
    Text text = text_of(value);
    Buffer changed = {0};
    bool first = true;
    if (!unicode_is_ascii(text.bytes, text.size))
        return jinja_fail(run, "changes the case of letters that are not ASCII, which is not supported");
    for (size_t i = 0; i < text.size; i++) {
        char c = text.bytes[i];
        bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z', raises = letters == UPPER || first;
        if (letters == LOWER) raises = false;
        if ((lower && raises) || (upper && !raises)) c ^= 0x20;
        buffer_append(&changed, &c, 1);
        first = letters == TITLE && !lower && !upper;
    }
    return jinja_take(run, &changed);
}

/* At most `most` replacements; below 0: all. */
static json_t *replace(JinjaRun *run, Text text, Text old, Text new, json_int_t most)
{
    Buffer out = {0};
    if (!old.size) return jinja_fail(run, "replaces an empty text");
    for (const char *found; most && (found = memmem(text.bytes, text.size, old.bytes, old.size)); most--) {
        buffer_append(&out, text.bytes, (size_t)(found - text.bytes));
        buffer_append(&out, new.bytes, new.size);
        text.size -= (size_t)(found - text.bytes) + old.size;
        text.bytes = found + old.size;
        if (out.size > (1 << 26)) break;
    }
    buffer_append(&out, text.bytes, text.size);
    return jinja_take(run, &out);
}

static json_t *split(JinjaRun *run, Text text, const json_t *separator, json_int_t most)
{
    json_t *parts = jinja_array(run);
    Text mark = text_of(separator);
    if (!mark.size) return jinja_fail(run, "splits without a separator, which is not supported");
    for (const char *found; most && (found = memmem(text.bytes, text.size, mark.bytes, mark.size)); most--) {
        jinja_push(run, parts, jinja_string(run, text.bytes, (size_t)(found - text.bytes)));
        text.size -= (size_t)(found - text.bytes) + mark.size;
        text.bytes = found + mark.size;
    }
    jinja_push(run, parts, jinja_string(run, text.bytes, text.size));
    return parts;
}

/* Whether it starts, or ends, with the mark, or one of several. */
static bool is_marked(Text text, const json_t *mark, bool end)
{
    for (size_t i = 0; i < json_array_size(mark); i++)
        if (is_marked(text, json_array_get(mark, i), end)) return true;
    Text wanted = text_of(mark);
    return json_is_string(mark) && wanted.size <= text.size &&
           memcmp(text.bytes + (end ? text.size - wanted.size : 0), wanted.bytes, wanted.size) == 0;
}

static json_t *join(JinjaRun *run, const json_t *list, const json_t *between)
{
    Buffer text = {0};
    json_t *items = jinja_list(run, list);
    for (size_t i = 0; i < json_array_size(items); i++) {
        if (i) jinja_print(run, &text, between);
        jinja_print(run, &text, json_array_get(items, i));
    }
    return jinja_take(run, &text);
}

/* All lines but the first (with `first`: it too) that are not empty. */
static json_t *indent(JinjaRun *run, Text text, const JinjaArguments *arguments)
{
    json_t *given = jinja_argument(arguments, 0, "width");
    int width = given ? (int)json_integer_value(given) & 255 : 4;
    bool indented = !jinja_truth(jinja_argument(arguments, 1, "first"));
    Buffer out = {0};
    for (size_t i = 0; i < text.size; i++) {
        if (!indented && text.bytes[i] != '\n') buffer_print(&out, "%*s", width, "");
        indented = text.bytes[i] != '\n';
        buffer_append(&out, text.bytes + i, 1);
    }
    return jinja_take(run, &out);
}

json_t *jinja_method(JinjaRun *run, const char *name, json_t *value, const JinjaArguments *arguments)
{
    static const char *const words[] = {"strip",   "lstrip",     "rstrip", "upper", "lower",    "title",
                                        "replace", "startswith", "split",  "items", "endswith", "capitalize"};
    json_t *first = jinja_argument(arguments, 0, ""), *second = jinja_argument(arguments, 1, ""),
           *third = jinja_argument(arguments, 2, "");
    bool object = json_is_object(value);
    if (object && strcmp(name, "get") == 0) {
        json_t *member = json_is_string(first) ? json_object_get(value, json_string_value(first)) : NULL;
        return member ? member : second ? second : json_null();
    }
    if (object && strcmp(name, "keys") == 0) return jinja_list(run, value);
    if (object && (strcmp(name, "items") == 0 || strcmp(name, "values") == 0))
        return jinja_filter(run, name, value, &(JinjaArguments){.count = 0});
    Text text = text_of(value);
    int method = json_is_string(value) ? word_index(name, words, sizeof words / sizeof *words) : -1;
    switch (method) {
    case 0: return strip(run, value, first, true, true);
    case 1: return strip(run, value, first, true, false);
    case 2: return strip(run, value, first, false, true);
    case 3: return change_case(run, value, UPPER);
    case 4: return change_case(run, value, LOWER);
    case 5: return change_case(run, value, TITLE);
    case 6: return replace(run, text, text_of(first), text_of(second), third ? json_integer_value(third) : -1);
    case 7: return json_boolean(is_marked(text, first, false));
    case 8: return split(run, text, first, second ? json_integer_value(second) : -1);
    case 10: return json_boolean(is_marked(text, first, true));
    case 11: return change_case(run, value, CAPITAL);
    default: return jinja_fail(run, "calls .%.40s(), which skycc does not know for such a value", name);
    }
}

/* ---- Tests ---- */

bool jinja_test(JinjaRun *run, const char *name, json_t *value, json_t *argument)
{
    static const char *const words[] = {"defined", "undefined", "none",  "string",  "mapping", "iterable", "sequence",
                                        "number",  "integer",   "float", "boolean", "true",    "false",    "odd",
                                        "even",    "equalto",   "eq",    "in",      "ne",      "sameas",   "callable"};
    bool items = !value || json_is_string(value) || json_is_array(value) || json_is_object(value);
    switch (word_index(name, words, sizeof words / sizeof *words)) {
    case 0: return value;
    case 1: return !value;
    case 2: return json_is_null(value);
    case 3: return json_is_string(value);
    case 4: return json_is_object(value);
    case 5:
    case 6: return items;
    case 7: return json_is_number(value) || json_is_boolean(value);
    case 8: return json_is_integer(value);
    case 9: return json_is_real(value);
    case 10: return json_is_boolean(value);
    case 11: return json_is_true(value);
    case 12: return json_is_false(value);
    case 13: return json_integer_value(value) % 2 != 0;
    case 14: return json_integer_value(value) % 2 == 0;
    case 15:
    case 16: return jinja_equal(run, value, argument);
    case 17: return jinja_contains(run, argument, value);
    case 18: return !jinja_equal(run, value, argument);
    case 19: return value == argument;
    default: return jinja_fail(run, "'is %.40s' is not supported", name) != NULL;
    }
}

/* ---- Filters ---- */

/* Items for which the test says `wanted`; of `attribute`, where filters of members ask. */
static json_t *choose(JinjaRun *run, json_t *list, const JinjaArguments *arguments, bool members, bool wanted)
{
    json_t *items = jinja_list(run, list), *chosen = jinja_array(run);
    json_t *key = members ? jinja_argument(arguments, 0, "") : NULL, *test = jinja_argument(arguments, members, ""),
           *argument = jinja_argument(arguments, members + 1u, "");
    for (size_t i = 0; i < json_array_size(items) && !run->failed; i++) {
        json_t *item = json_array_get(items, i), *value = members ? jinja_member(run, item, key) : item;
        bool is = test ? jinja_test(run, text_of(test).bytes, value, argument) : jinja_truth(value);
        if (is == wanted) jinja_push(run, chosen, item);
    }
    return chosen;
}

/* A member of every item, or every item by a filter. */
static json_t *map(JinjaRun *run, json_t *list, const JinjaArguments *arguments)
{
    json_t *items = jinja_list(run, list), *mapped = jinja_array(run);
    json_t *key = jinja_argument(arguments, JINJA_MOST_ARGUMENTS, "attribute"),
           *name = jinja_argument(arguments, 0, "");
    const JinjaArguments none = {.count = 0};
    if (!key == !name || arguments->count > 1) return jinja_fail(run, "map takes one attribute or one filter");
    for (size_t i = 0; i < json_array_size(items) && !run->failed; i++) {
        json_t *item = json_array_get(items, i);
        json_t *value = key ? jinja_member(run, item, key) : jinja_filter(run, text_of(name).bytes, item, &none);
        jinja_push(run, mapped, value);
    }
    return mapped;
}

static json_t *pairs(JinjaRun *run, const json_t *object, bool values)
{
    json_t *list = jinja_array(run), *member;
    const char *key;
    if (object && !json_is_object(object)) return jinja_fail(run, "takes the items of a value that has none");
    json_object_foreach((json_t *)object, key, member)
    {
        json_t *pair = values ? member : jinja_array(run);
        if (!values) jinja_push(run, pair, jinja_string(run, key, strlen(key)));
        if (!values) jinja_push(run, pair, member);
        jinja_push(run, list, pair);
    }
    return list;
}

static int compare_keys(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;
    return strcasecmp(text_of(json_array_get(*x, 0)).bytes, text_of(json_array_get(*y, 0)).bytes);
}

static json_t *sort(JinjaRun *run, const json_t *object)
{
    json_t *list = pairs(run, object, false), *sorted = jinja_array(run);
    size_t count = json_array_size(list);
    FREED json_t **items = memory_allocate((count + 1) * sizeof *items);
    for (size_t i = 0; i < count; i++) items[i] = json_array_get(list, i);
    qsort(items, count, sizeof *items, compare_keys);
    for (size_t i = 0; i < count; i++) jinja_push(run, sorted, items[i]);
    return sorted;
}

static json_t *to_json(JinjaRun *run, const json_t *value, const JinjaArguments *arguments)
{
    Buffer out = {0};
    json_t *width = jinja_argument(arguments, 1, "indent"), *ascii = jinja_argument(arguments, 0, "ensure_ascii");
    if (arguments->count > (size_t)(width != NULL) + (ascii != NULL) || jinja_truth(ascii))
        return jinja_fail(run, "tojson takes only indent");
    jinja_print_json(run, &out, value, json_is_integer(width) ? (int)json_integer_value(width) & 255 : -1, 0);
    return jinja_take(run, &out);
}

static json_t *text_filter(JinjaRun *run, int filter, json_t *value, const JinjaArguments *arguments)
{
    Buffer printed = {0};
    jinja_print(run, &printed, value);
    json_t *text = jinja_take(run, &printed), *first = jinja_argument(arguments, 0, ""),
           *second = jinja_argument(arguments, 1, "");
    switch (filter) {
    case 0: return strip(run, text, first, true, true);
    case 1: return change_case(run, text, UPPER);
    case 2: return change_case(run, text, LOWER);
    case 3: return change_case(run, text, CAPITAL);
    case 4: return change_case(run, text, TITLE);
    case 5: return replace(run, text_of(text), text_of(first), text_of(second), -1);
    case 6: return indent(run, text_of(text), arguments);
    default: return text;
    }
}

json_t *jinja_filter(JinjaRun *run, const char *name, json_t *value, const JinjaArguments *arguments)
{
    static const char *const texts[] = {"trim",    "upper",  "lower",  "capitalize", "title",
                                        "replace", "indent", "string", "safe"};
    static const char *const words[] = {"tojson", "length", "count",  "default", "d",          "join",       "items",
                                        "values", "list",   "first",  "last",    "reverse",    "dictsort",   "map",
                                        "select", "reject", "select", "reject",  "selectattr", "rejectattr", "int"};
    int text = word_index(name, texts, sizeof texts / sizeof *texts);
    if (text >= 0) return text_filter(run, text, value, arguments);
    json_t *first = jinja_argument(arguments, 0, "");
    bool takes_empty = jinja_truth(jinja_argument(arguments, 1, "boolean"));
    json_t *const backward[3] = {NULL, NULL, jinja_integer(run, -1)};
    switch (word_index(name, words, sizeof words / sizeof *words)) {
    case 0: return to_json(run, value, arguments);
    case 1:
    case 2: return jinja_integer(run, (json_int_t)jinja_length(run, value));
    case 3:
    case 4: return value && (!takes_empty || jinja_truth(value)) ? value : first ? first : jinja_string(run, "", 0);
    case 5: return join(run, value, first);
    case 6: return pairs(run, value, false);
    case 7: return pairs(run, value, true);
    case 8: return jinja_list(run, value);
    case 9: return json_array_get(jinja_list(run, value), 0);
    case 10: return json_array_get(jinja_list(run, value), json_array_size(jinja_list(run, value)) - 1);
    case 11: return jinja_slice(run, value, backward);
    case 12: return sort(run, value);
    case 13: return map(run, value, arguments);
    case 14:
    case 15: return choose(run, value, arguments, false, strcmp(name, "select") == 0);
    case 18:
    case 19: return choose(run, value, arguments, true, strcmp(name, "selectattr") == 0);
    case 20:
        return jinja_integer(run, json_is_string(value) ? atoll(json_string_value(value))
                                                        : (json_int_t)json_number_value(value));
    default: return jinja_fail(run, "the filter '%.40s' is not supported", name);
    }
}
