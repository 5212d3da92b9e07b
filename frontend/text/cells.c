#include "frontend/text/cells.h"

#include <math.h>
#include <string.h>

#include "frontend/text/labels.h"

static bool is_space(char c) { return c && strchr(" \t\r\n", c); }

/* Copies the string literal at *text as a JSON string; false if it does not end. */
static bool copy_string(const char **text, const char *end, Buffer *json)
{
    const char *at = *text, quote = *at++;
    buffer_append(json, "\"", 1);
    for (; at < end && *at != quote; at++) {
        if (*at == '\\' && at + 1 < end) {
            at++;
            if (*at == 'x')
                buffer_append(json, "\\u00", 4); /* and the two digits that follow */
            else if (*at == '\'')
                buffer_append(json, "'", 1);
            else
                buffer_append(json, at - 1, 2);
        } else {
            if (*at == '"') buffer_append(json, "\\", 1);
            buffer_append(json, at, 1);
        }
    }
    buffer_append(json, "\"", 1);
    *text = at + 1;
    return at < end;
}

static void copy_word(const char *word, size_t length, Buffer *json)
{
    static const char *const words[][2] = {{"None", "null"}, {"nan", "null"},    {"null", "null"},  {"True", "true"},
                                           {"true", "true"}, {"False", "false"}, {"false", "false"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i][0]) == length && memcmp(words[i][0], word, length) == 0) {
            buffer_print(json, "%s", words[i][1]);
            return;
        }
    bool number = memchr("-0123456789", *word, 11);
    for (size_t i = 0; i < length; i++) number &= word[i] && strchr("+-.eE0123456789", word[i]);
    buffer_print(json, number ? "%.*s" : "\"%.*s\"", (int)length, word);
}

/* Python's literal as JSON. Items may stand without commas between, as NumPy prints them. */
static bool convert(const char *text, const char *end, Buffer *json)
{
    for (bool value = false; text < end;) {
        if (is_space(*text)) {
            text++;
            continue;
        }
        bool closes = strchr(")]}", *text), opens = strchr("([{", *text), mark = *text == ',' || *text == ':';
        if (*text == '\0') return false;
        if (value && !closes && !mark) buffer_append(json, ",", 1);
        value = !opens && !mark;
        if (*text == '\'' || *text == '"') {
            if (!copy_string(&text, end, json)) return false;
        } else if (opens || closes || mark) {
            char c = *text++;
            buffer_append(json, c == '(' ? "[" : c == ')' ? "]" : &c, 1);
        } else {
            const char *word = text;
            while (text < end && *text && !is_space(*text) && !strchr("()[]{},:'\"", *text)) text++;
            copy_word(word, (size_t)(text - word), json);
        }
    }
    return true;
}

json_t *cell_read(TableField field)
{
    const char *text = field.text, *end = text + field.length;
    while (text < end && is_space(*text)) text++;
    if (text >= end || (*text != '[' && *text != '{')) return NULL;
    json_t *value = json_loadb(text, (size_t)(end - text), 0, NULL);
    FREED_WITH(buffer_free) Buffer json = {0};
    if (!value && convert(text, end, &json)) value = json_loadb(buffer_text(&json), json.size, 0, NULL);
    return value;
}

json_t *cell_list(TableField field, const char *separators)
{
    json_t *list = cell_read(field);
    if (json_is_array(list)) return list;
    json_decref(list);
    if (list || field.nested) return NULL;
    list = json_array();
    const char *end = field.text + field.length;
    for (const char *at = field.text, *word; at < end;) {
        for (word = at; at < end && !(*at && strchr(separators, *at));) at++;
        while (word < at && *word == ' ') word++;
        size_t length = (size_t)(at - word);
        while (length && word[length - 1] == ' ') length--;
        if (length) json_array_append_new(list, json_stringn(word, length));
        if (at < end) at++;
    }
    return list;
}

json_t *cell_words(TableField field, TableFormat format)
{
    return field.text ? cell_list(field, format == TABLE_CONLL ? "\n" : " \t\r\n") : NULL;
}

const char *cell_item(const json_t *item, char number[static 32])
{
    if (json_is_string(item)) return json_string_value(item);
    if (json_is_integer(item))
        snprintf(number, 32, "%" JSON_INTEGER_FORMAT, json_integer_value(item));
    else if (json_is_real(item))
        snprintf(number, 32, "%.15g%s", json_real_value(item),
                 json_real_value(item) == (double)(long)json_real_value(item) ? ".0" : "");
    else
        return NULL;
    return number;
}

const char *cell_label(const json_t *item, char number[static 32])
{
    double value = json_real_value(item);
    if (json_is_boolean(item)) return json_is_true(item) ? "1" : "0";
    if (!json_is_real(item) || fabs(value) > 1e6 || value != floor(value)) return cell_item(item, number);
    snprintf(number, 32, "%.0f", value);
    return number;
}

void list_form_take(ListForm *form, const json_t *list)
{
    char text[32];
    size_t count = json_array_size(list);
    if (!form->rows++) form->width = count;
    form->uneven |= count != form->width;
    form->items += count;
    for (size_t i = 0; i < count; i++) {
        const char *item = cell_label(json_array_get(list, i), text);
        float number = 0;
        if (!item || !label_is_number(item, &number))
            form->words = true;
        else
            form->fractions |= number != floorf(number);
        if (number < form->least) form->least = number;
        if (number > form->most) form->most = number;
    }
}

bool list_form_is_vectors(const ListForm *form)
{
    return !form->uneven && !form->words && form->width > 1 &&
           (form->fractions || (form->least >= 0 && form->most <= 1));
}

size_t list_form_labels(const ListForm *form, size_t distinct)
{
    if (list_form_is_vectors(form)) return form->width;
    bool counts = !form->words && !form->fractions && form->least >= 0 && form->most >= (float)distinct;
    return counts ? (size_t)form->most + 1 : distinct;
}
