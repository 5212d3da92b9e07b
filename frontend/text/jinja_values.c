#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/jinja_run.h"
#include "frontend/text/unicode.h"

enum { MOST_BYTES = 1 << 26, MOST_STEPS = 1 << 22 };

json_t *jinja_fail(JinjaRun *run, const char *format, ...)
{
    va_list arguments;
    if (run->failed) return NULL;
    run->failed = true;
    buffer_print(&run->result->problem, "line %d: ", run->template->tokens[run->at].line);
    va_start(arguments, format);
    buffer_print_va(&run->result->problem, format, arguments);
    va_end(arguments);
    return NULL;
}

void jinja_step(JinjaRun *run)
{
    if (++run->steps > MOST_STEPS || run->out->size > MOST_BYTES)
        jinja_fail(run, "the template takes too long or writes too much");
}

/* ---- Making values ---- */

bool jinja_is_namespace(const JinjaRun *run, const json_t *value)
{
    for (size_t i = run->namespace_count; json_is_object(value) && i-- > 0;)
        if (run->namespaces[i] == value) return true;
    return false;
}

json_t *jinja_keep(JinjaRun *run, json_t *value, size_t bytes)
{
    if (!value) return jinja_fail(run, "a text is not UTF-8");
    array_push(run->kept, run->kept_count, run->kept_capacity, value);
    run->bytes += bytes + 64;
    return run->bytes > MOST_BYTES ? jinja_fail(run, "the template needs too much memory") : value;
}

json_t *jinja_string(JinjaRun *run, const char *text, size_t length)
{
    return jinja_keep(run, json_stringn(text, length), length);
}

json_t *jinja_take(JinjaRun *run, Buffer *text)
{
    json_t *value = jinja_string(run, buffer_text(text), text->size);
    buffer_free(text);
    return value;
}

json_t *jinja_integer(JinjaRun *run, json_int_t value) { return jinja_keep(run, json_integer(value), 0); }

json_t *jinja_array(JinjaRun *run) { return jinja_keep(run, json_array(), 0); }

void jinja_push(JinjaRun *run, json_t *array, json_t *value)
{
    run->bytes += sizeof value;
    if (jinja_is_namespace(run, value)) jinja_fail(run, "keeps a namespace in a list, which is not supported");
    if (array && !run->failed) json_array_append_new(array, value ? json_incref(value) : json_null());
}

/* ---- Comparing ---- */

bool jinja_truth(const json_t *value)
{
    switch (value ? json_typeof(value) : JSON_NULL) {
    case JSON_OBJECT: return json_object_size(value) > 0;
    case JSON_ARRAY: return json_array_size(value) > 0;
    case JSON_STRING: return json_string_length(value) > 0;
    case JSON_INTEGER: return json_integer_value(value) != 0;
    case JSON_REAL: return json_real_value(value) != 0;
    case JSON_TRUE: return true;
    default: return false;
    }
}

/* Numbers, and true and false, which are 1 and 0. */
static bool number_of(const json_t *value, double *number)
{
    *number = json_is_true(value) ? 1 : json_number_value(value);
    return json_is_number(value) || json_is_boolean(value);
}

/* Of lists or objects with as many elements, not all of which are there if one is NULL. */
static bool equal_elements(JinjaRun *run, const json_t *a, const json_t *b)
{
    const char *key;
    json_t *element;
    size_t i;
    bool same = true;
    json_array_foreach(a, i, element) if (same) same = jinja_equal(run, element, json_array_get(b, i));
    json_object_foreach((json_t *)a, key, element) if (same) same = jinja_equal(run, element, json_object_get(b, key));
    return same;
}

bool jinja_equal(JinjaRun *run, const json_t *a, const json_t *b)
{
    double x, y;
    if (!a || !b) return a == b;
    if (number_of(a, &x) && number_of(b, &y)) return x == y;
    if (json_typeof(a) != json_typeof(b) || json_is_string(a) || a == b) return json_equal(a, b);
    size_t size = json_object_size(a) + json_array_size(a);
    if (size != json_object_size(b) + json_array_size(b)) return false;
    jinja_step(run);
    if (run->failed || ++run->depth > JINJA_MOST_DEPTH) return jinja_fail(run, "lists are too deep") != NULL;
    bool same = equal_elements(run, a, b);
    run->depth--;
    return same;
}

int jinja_compare(JinjaRun *run, const json_t *a, const json_t *b)
{
    double x, y;
    if (number_of(a, &x) && number_of(b, &y)) return (x > y) - (x < y);
    if (json_is_string(a) && json_is_string(b)) return strcmp(json_string_value(a), json_string_value(b));
    jinja_fail(run, "compares values that have no order");
    return 0;
}

bool jinja_contains(JinjaRun *run, const json_t *container, const json_t *item)
{
    if (json_is_string(container) && json_is_string(item))
        return memmem(json_string_value(container), json_string_length(container), json_string_value(item),
                      json_string_length(item)) != NULL;
    if (json_is_object(container))
        return json_is_string(item) && json_object_get(container, json_string_value(item)) != NULL;
    if (container && !json_is_array(container)) return jinja_fail(run, "looks for an item in what has none") != NULL;
    run->steps += json_array_size(container);
    for (size_t i = 0; i < json_array_size(container); i++)
        if (jinja_equal(run, json_array_get(container, i), item)) return true;
    return false;
}

/* ---- Items ---- */

size_t jinja_length(JinjaRun *run, const json_t *value)
{
    if (json_is_array(value)) return json_array_size(value);
    if (json_is_object(value)) return json_object_size(value);
    if (value && !json_is_string(value)) jinja_fail(run, "takes the length of a value that has none");
    size_t count = 0;
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; text[i]; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

json_t *jinja_list(JinjaRun *run, const json_t *value)
{
    if (json_is_array(value)) return (json_t *)value;
    json_t *list = jinja_array(run), *member;
    const char *key;
    if (value && !json_is_object(value) && !json_is_string(value)) return jinja_fail(run, "has no items to go through");
    json_object_foreach((json_t *)value, key, member) jinja_push(run, list, jinja_string(run, key, strlen(key)));
    size_t size = json_is_string(value) ? json_string_length(value) : 0, used;
    for (size_t at = 0; at < size && !run->failed; at += used) {
        (void)unicode_read(json_string_value(value) + at, size - at, &used);
        jinja_push(run, list, jinja_string(run, json_string_value(value) + at, used));
    }
    return list;
}

json_t *jinja_member(JinjaRun *run, const json_t *value, const json_t *key)
{
    if (!value) return jinja_fail(run, "takes a member of an undefined value");
    if (json_is_string(key)) return json_object_get(value, json_string_value(key));
    if (!json_is_integer(key) || !(json_is_array(value) || json_is_string(value))) return NULL;
    json_int_t at = json_integer_value(key), count = (json_int_t)jinja_length(run, value);
    at += at < 0 ? count : 0;
    if (at < 0 || at >= count) return NULL;
    return json_array_get(jinja_list(run, value), (size_t)at);
}

/* A bound of a slice, within its items. */
static json_int_t bound(const json_t *given, json_int_t count, bool backward, bool end)
{
    json_int_t least = backward ? -1 : 0, most = backward ? count - 1 : count;
    if (!given || json_is_null(given)) return end != backward ? most : least;
    json_int_t at = json_integer_value(given);
    at += at < 0 ? count : 0;
    return at < least ? least : at > most ? most : at;
}

json_t *jinja_slice(JinjaRun *run, const json_t *value, json_t *const bounds[static 3])
{
    if (!json_is_string(value) && !json_is_array(value))
        return jinja_fail(run, "takes a slice of a value that has none");
    json_int_t count = (json_int_t)jinja_length(run, value);
    json_int_t step = bounds[2] ? json_integer_value(bounds[2]) : 1;
    if (step != 1 && step != -1) return jinja_fail(run, "takes a slice of steps other than 1 and -1");
    json_t *items = jinja_list(run, value), *slice = jinja_array(run);
    Buffer text = {0};
    json_int_t begin = bound(bounds[0], count, step < 0, false), end = bound(bounds[1], count, step < 0, true);
    for (json_int_t i = begin; (end - i) * step > 0 && !run->failed; i += step) {
        const json_t *item = json_array_get(items, (size_t)i);
        if (json_is_string(value))
            buffer_append(&text, json_string_value(item), json_string_length(item));
        else
            jinja_push(run, slice, (json_t *)item);
    }
    return json_is_string(value) ? jinja_take(run, &text) : slice;
}

/* ---- Printing ---- */

/* As Python's repr() writes it. */
static void print_real(Buffer *out, double value)
{
    char text[40];
    int digits = 0, exponent = 0;
    do snprintf(text, sizeof text, "%.*e", digits++, value);
    while (strtod(text, NULL) != value);
    exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16) { /* of the exponent at least two digits, as printf writes them */
        buffer_print(out, "%s", text);
        return;
    }
    int decimals = digits - 1 - exponent;
    buffer_print(out, "%.*f", decimals < 1 ? 1 : decimals, value);
}

/* As Python's repr() does. */
static void print_quoted(Buffer *out, const char *text, size_t length)
{
    char quote = memchr(text, '\'', length) && !memchr(text, '"', length) ? '"' : '\'';
    buffer_append(out, &quote, 1);
    for (size_t at = 0, used; at < length; at += used) {
        int32_t c = unicode_read(text + at, length - at, &used);
        bool plain = c < 0x80 ? c >= 0x20 && c < 0x7f : !unicode_is_control(c) && !unicode_is_space(c);
        if (c == quote || c == '\\')
            buffer_print(out, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            buffer_print(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (plain)
            buffer_append(out, text + at, used);
        else
            buffer_print(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    }
    buffer_append(out, &quote, 1);
}

/* A list or an object as Python's str() prints it. */
static void print_items(JinjaRun *run, Buffer *out, const json_t *value, int depth)
{
    const char *key;
    json_t *member;
    size_t count = 0;
    bool object = json_is_object(value);
    jinja_step(run);
    if (depth > JINJA_MOST_DEPTH) jinja_fail(run, "lists are too deep");
    if (run->failed) return;
    if (json_is_string(value)) {
        print_quoted(out, json_string_value(value), json_string_length(value));
        return;
    }
    if (!object && !json_is_array(value)) {
        jinja_print(run, out, value);
        return;
    }
    buffer_append(out, object ? "{" : "[", 1);
    json_object_foreach((json_t *)value, key, member)
    {
        if (count++) buffer_print(out, ", ");
        print_quoted(out, key, strlen(key));
        buffer_print(out, ": ");
        print_items(run, out, member, depth + 1);
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        if (i) buffer_print(out, ", ");
        print_items(run, out, json_array_get(value, i), depth + 1);
    }
    buffer_append(out, object ? "}" : "]", 1);
}

void jinja_print(JinjaRun *run, Buffer *out, const json_t *value)
{
    if (!value) return;
    switch (json_typeof(value)) {
    case JSON_STRING: buffer_append(out, json_string_value(value), json_string_length(value)); break;
    case JSON_INTEGER: buffer_print(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value)); break;
    case JSON_REAL: print_real(out, json_real_value(value)); break;
    case JSON_TRUE: buffer_print(out, "True"); break;
    case JSON_FALSE: buffer_print(out, "False"); break;
    case JSON_NULL: buffer_print(out, "None"); break;
    default: print_items(run, out, value, 0);
    }
}

/* As Python's json.dumps(ensure_ascii=False) does. */
static void print_string(Buffer *out, const char *text, size_t length)
{
    static const char special[] = "\b\t\n\f\r\"\\", letters[] = "btnfr\"\\";
    buffer_append(out, "\"", 1);
    for (size_t i = 0; i < length; i++) {
        const char *found = text[i] ? strchr(special, text[i]) : NULL;
        if (found)
            buffer_append(out, (char[]){'\\', letters[found - special]}, 2);
        else if ((unsigned char)text[i] < 0x20)
            buffer_print(out, "\\u%04x", (unsigned)text[i]);
        else
            buffer_append(out, text + i, 1);
    }
    buffer_append(out, "\"", 1);
}

/* Before the item of that number, or with `end` before the bracket. */
static void print_gap(Buffer *out, size_t item, int indent, int depth)
{
    if (item) buffer_print(out, indent < 0 ? ", " : ",");
    if (indent >= 0) buffer_print(out, "\n%*s", indent * depth, "");
}

void jinja_print_json(JinjaRun *run, Buffer *out, const json_t *value, int indent, int depth)
{
    const char *key;
    json_t *member;
    size_t count = 0;
    bool object = json_is_object(value);
    jinja_step(run);
    if (run->failed) return;
    if (!value || depth > JINJA_MOST_DEPTH) {
        jinja_fail(run, value ? "lists are too deep" : "tojson of an undefined value");
    } else if (object || json_is_array(value)) {
        buffer_append(out, object ? "{" : "[", 1);
        json_object_foreach((json_t *)value, key, member)
        {
            print_gap(out, count++, indent, depth + 1);
            print_string(out, key, strlen(key));
            buffer_print(out, ": ");
            jinja_print_json(run, out, member, indent, depth + 1);
        }
        for (size_t i = 0; i < json_array_size(value); i++) {
            print_gap(out, count++, indent, depth + 1);
            jinja_print_json(run, out, json_array_get(value, i), indent, depth + 1);
        }
        if (count) print_gap(out, 0, indent, depth);
        buffer_append(out, object ? "}" : "]", 1);
    } else if (json_is_string(value)) {
        print_string(out, json_string_value(value), json_string_length(value));
    } else if (json_is_number(value)) {
        jinja_print(run, out, value);
    } else {
        buffer_print(out, "%s", json_is_null(value) ? "null" : json_is_true(value) ? "true" : "false");
    }
}
