#include "base/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"

bool option_taken(const OptionSet *set, const Option *option) { return option->takers & set->taker; }

/* ---- Values ---- */

static void print_wanted(Buffer *wanted, const Option *option)
{
    for (const char *const *word = option->choices; word && *word; word++)
        buffer_print(wanted, word == option->choices ? "%s" : word[1] ? ", %s" : " or %s", *word);
    if (option->kind != OPTION_INTEGER && option->kind != OPTION_NUMBER) return;
    bool integer = option->kind == OPTION_INTEGER;
    buffer_print(wanted, "%s%s", option->choices ? " or " : "", integer ? "an integer" : "a number");
    if (isfinite(option->greatest))
        buffer_print(wanted, integer ? " from %.0f to %.0f" : " from %.15g to %.15g", option->least, option->greatest);
    else if (isfinite(option->least))
        buffer_print(wanted, " of at least %.15g", option->least);
}

bool option_refuse(const OptionValue *value, const char *wanted)
{
    FREED_WITH(buffer_free) Buffer expected = {0};
    if (!wanted) print_wanted(&expected, value->option);
    usage_error(value->diagnostics, NULL, "--%s takes %s, not '%s'", value->option->name,
                wanted ? wanted : buffer_text(&expected), value->text);
    return false;
}

bool option_read_integer(const OptionValue *value, void *field)
{
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value->text, &end, 10);
    if (end == value->text || *end || errno || strchr(value->text, '-') || (double)number < value->option->least ||
        (double)number > value->option->greatest)
        return option_refuse(value, NULL);
    if (value->option->size == sizeof(int))
        *(int *)field = (int)number;
    else
        *(uint64_t *)field = number;
    return true;
}

static bool read_number(const OptionValue *value, void *field)
{
    char *end;
    double number = strtod(value->text, &end);
    if (end == value->text || *end || !isfinite(number) || number < value->option->least ||
        number > value->option->greatest)
        return option_refuse(value, NULL);
    *(double *)field = number;
    return true;
}

static bool read_choice(const OptionValue *value, void *field)
{
    const Option *option = value->option;
    int number = 0;
    while (option->choices[number] && strcmp(option->choices[number], value->text) != 0) number++;
    if (!option->choices[number]) return option_refuse(value, NULL);
    if (option->size == sizeof(bool))
        *(bool *)field = number;
    else if (option->size == sizeof(int))
        *(int *)field = number;
    else
        *(const char **)field = option->choices[number];
    return true;
}

/* A list doubles whenever it holds a power of two. */
static void text_list_push(TextList *list, Arena *arena, const char *text)
{
    if ((list->count & (list->count - 1)) == 0) {
        const char **items = arena_new_array(arena, const char *, list->count ? 2 * list->count : 1);
        if (list->count) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
    }
    list->items[list->count++] = text;
}

bool option_read_text(const OptionValue *value)
{
    void *field = (char *)value->values + value->option->offset;
    if (value->option->repeated)
        text_list_push(field, value->arena, value->text);
    else
        *(const char **)field = value->text;
    return true;
}

static bool read_value(const OptionValue *value)
{
    void *field = (char *)value->values + value->option->offset;
    if (value->option->read) return value->option->read(value);
    uint64_t checked;
    if (value->option->kept_as_text) {
        *(const char **)field = value->text;
        field = &checked;
    }
    switch (value->option->kind) {
    case OPTION_FLAG: return *(bool *)field = true;
    case OPTION_INTEGER: return option_read_integer(value, field);
    case OPTION_NUMBER: return read_number(value, field);
    case OPTION_CHOICE: return read_choice(value, field);
    case OPTION_TEXT:
    case OPTION_FILE:
    case OPTION_DIRECTORY: return option_read_text(value);
    }
    bug("option kind %d", (int)value->option->kind);
}

/* ---- Command lines ---- */

typedef struct Parser {
    const OptionSet *set;
    char **next, **end; /* arguments to come */
    void *values;
    Arena *arena;
    Diagnostics *diagnostics;
    bool *given;  /* per row */
    bool unknown; /* an option was not known: what follows may be its value */
} Parser;

static bool misuse(Parser *parser, const char *format, const char *text)
{
    return usage_error(parser->diagnostics, parser->set->hint, format, text);
}

static void take(Parser *parser, const Option *option, const char *text)
{
    parser->given[option - parser->set->rows] = true;
    read_value(&(OptionValue){option, text, parser->values, parser->arena, parser->diagnostics});
}

static void take_positional(Parser *parser, const char *text)
{
    const OptionSet *set = parser->set;
    for (size_t i = 0; i < set->count; i++) {
        const Option *option = &set->rows[i];
        if (!option->positional || !option_taken(set, option) || (parser->given[i] && !option->repeated)) continue;
        take(parser, option, text);
        return;
    }
    if (!parser->unknown) misuse(parser, "unexpected argument '%s'", text);
}

/* What to write instead of a name that nothing has: another tool's, or one with a slip of the pen. */
static const char *hint_for(Parser *parser, const char *name)
{
    const OptionSet *set = parser->set;
    char *spaced = arena_format(parser->arena, " %s ", name);
    for (char *c = spaced; *c; c++) *c = *c == '-' ? '_' : *c;
    for (const OptionHabit *habit = set->habits; habit && habit->names; habit++)
        if (strstr(habit->names, spaced)) return habit->hint;
    const char **names = arena_new_array(parser->arena, const char *, set->count);
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        if (option_taken(set, &set->rows[i]) && !set->rows[i].positional) names[count++] = set->rows[i].name;
    const char *nearest = text_nearest(name, names, count);
    return nearest ? arena_format(parser->arena, "did you mean --%s? %s", nearest, set->hint) : set->hint;
}

/* The option with this name or, for a prefix of `length` characters, the only one that begins with it. */
static const Option *find_name(Parser *parser, const char *name, size_t length)
{
    const Option *found = NULL;
    int count = 0;
    for (size_t i = 0; i < parser->set->count; i++) {
        const Option *option = &parser->set->rows[i];
        if (option->positional || !option_taken(parser->set, option) || strncmp(option->name, name, length) != 0)
            continue;
        if (!option->name[length]) return option;
        if (option->whole) continue;
        found = option;
        count++;
    }
    if (count == 1) return found;
    char *text = arena_format(parser->arena, "--%.*s", (int)length, name);
    parser->unknown = true;
    usage_error(parser->diagnostics, count ? parser->set->hint : hint_for(parser, text + 2),
                count ? "option '%s' is ambiguous" : "unrecognized option '%s'", text);
    return NULL;
}

static void take_value(Parser *parser, const Option *option, const char *text, const char *called)
{
    if (text || parser->next < parser->end)
        take(parser, option, text ? text : *parser->next++);
    else
        misuse(parser, "%s needs an argument", called);
}

/* A number after an option that may stand alone is meant as its value, and would be read as a file. */
static bool refuse_apart(Parser *parser, const Option *option)
{
    const char *next = option->implied && parser->next < parser->end ? *parser->next : "";
    if (!*next || next[strspn(next, "0123456789")]) return false;
    parser->next++;
    usage_error(parser->diagnostics,
                arena_format(parser->arena, "write --%s=%s, or ./%s for a file of this name", option->name, next, next),
                "the value of --%s follows a =, not a space", option->name);
    return true;
}

static void take_name(Parser *parser, char *argument)
{
    const char *equals = strchr(argument, '=');
    size_t length = equals ? (size_t)(equals - argument) : strlen(argument);
    const Option *option = find_name(parser, argument + 2, length - 2);
    if (!option || (!equals && refuse_apart(parser, option))) return;
    if (option->kind != OPTION_FLAG)
        take_value(parser, option, equals ? equals + 1 : option->implied, argument);
    else if (equals)
        misuse(parser, "--%s takes no argument", option->name);
    else
        take(parser, option, NULL);
}

static void take_letters(Parser *parser, const char *letters)
{
    for (; *letters; letters++) {
        const Option *option = NULL;
        for (size_t i = 0; i < parser->set->count && !option; i++)
            if (parser->set->rows[i].letter == *letters && option_taken(parser->set, &parser->set->rows[i]))
                option = &parser->set->rows[i];
        const char *called = arena_format(parser->arena, "-%c", *letters);
        if (!option) {
            parser->unknown = true;
            misuse(parser, "unrecognized option '%s'", called);
            return;
        }
        if (option->kind != OPTION_FLAG) {
            take_value(parser, option, letters[1] ? letters + 1 : NULL, called);
            return;
        }
        take(parser, option, NULL);
    }
}

static void read_defaults(Parser *parser)
{
    for (size_t i = 0; i < parser->set->count; i++) {
        const Option *option = &parser->set->rows[i];
        if (!option->initial || !option_taken(parser->set, option)) continue;
        take(parser, option, option->initial);
        parser->given[i] = false;
    }
}

static void require(Parser *parser)
{
    for (size_t i = 0; i < parser->set->count; i++)
        if (parser->given[i] && parser->set->rows[i].suffices & parser->set->taker) return;
    for (size_t i = 0; i < parser->set->count; i++) {
        const Option *option = &parser->set->rows[i];
        if (parser->given[i] || !(option->required & parser->set->taker)) continue;
        if (option->positional)
            misuse(parser, "no %s is named", option->name);
        else
            misuse(parser, "%s is missing",
                   arena_format(parser->arena, "no %s: --%s %s", option->name, option->name, option->argument));
    }
}

bool options_parse(const OptionSet *set, int argument_count, char **arguments, void *values, Arena *arena,
                   Diagnostics *diagnostics)
{
    Parser parser = {.set = set,
                     .next = arguments + 1,
                     .end = arguments + argument_count,
                     .values = values,
                     .arena = arena,
                     .diagnostics = diagnostics,
                     .given = arena_new_array(arena, bool, set->count)};
    int errors = diagnostics->errors;
    bool ended = false; /* by -- */
    read_defaults(&parser);
    while (parser.next < parser.end) {
        char *argument = *parser.next++;
        if (ended || argument[0] != '-' || !argument[1])
            take_positional(&parser, argument);
        else if (strcmp(argument, "--") == 0)
            ended = true;
        else if (argument[1] == '-')
            take_name(&parser, argument);
        else
            take_letters(&parser, argument + 1);
    }
    if (diagnostics->errors == errors) require(&parser);
    return diagnostics->errors == errors;
}

/* ---- Help ---- */

/* "-o, --output FILE": how a row is written. */
static const char *option_usage(const Option *option, Arena *arena)
{
    if (option->positional) return option->argument;
    const char *letter = option->letter ? arena_format(arena, "-%c, ", option->letter) : "";
    if (option->kind == OPTION_FLAG) return arena_format(arena, "%s--%s", letter, option->name);
    return arena_format(arena, option->implied ? "%s--%s[=%s]" : "%s--%s %s", letter, option->name, option->argument);
}

enum { WIDTH = 80, LEFT = 25 };

/* From column `indent` on, where the first line stands already, in lines of at most WIDTH characters. */
void options_print_wrapped(FILE *stream, const char *text, size_t indent)
{
    size_t column = indent;
    while (*text) {
        size_t length = strcspn(text, " ");
        if (column > indent && column + 1 + length > WIDTH)
            column = (size_t)fprintf(stream, "\n%*s", (int)indent, "") - 1;
        column += (size_t)fprintf(stream, "%s%.*s", column > indent ? " " : "", (int)length, text);
        text += length + strspn(text + length, " ");
    }
    fputc('\n', stream);
}

/* How much of the phrase fits one line, up to a semicolon or parentheses; all where there are none. */
static int short_length(const char *phrase, size_t room)
{
    int depth = 0, end = 0;
    if (strlen(phrase) <= room) return (int)strlen(phrase);
    for (size_t i = 0; i <= room; i++) {
        bool ends = phrase[i] == ';' || (phrase[i] == ' ' && phrase[i + 1] == '(');
        if (ends && !depth) end = (int)i;
        depth += (phrase[i] == '(') - (phrase[i] == ')');
    }
    return end ? end : (int)strlen(phrase);
}

static void print_option(const Option *option, bool whole, FILE *stream)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int length = fprintf(stream, "  %s", option_usage(option, &arena));
    fprintf(stream, length + 1 < LEFT ? "%*s" : "\n%*s", length + 1 < LEFT ? LEFT - length : LEFT, "");
    const char *initial = option->initial ? arena_format(&arena, " (default %s)", option->initial) : "";
    size_t room = whole ? SIZE_MAX : WIDTH - LEFT - strlen(initial);
    const char *text = arena_format(&arena, "%.*s%s", short_length(option->help, room), option->help, initial);
    options_print_wrapped(stream, text, LEFT);
}

int options_print_help(const OptionSet *set, bool all, FILE *stream)
{
    const char *heading = NULL, *separator = "";
    uint32_t common = 0;
    int left = 0;
    bool whole = all;
    for (size_t i = 0; i < set->count; i++) common |= set->rows[i].common & set->taker;
    if (!common) all = true;
    for (size_t i = 0; i < set->count; i++) {
        const Option *option = &set->rows[i];
        if (!option->takers) heading = option->help;
        if (!option->help || !option_taken(set, option)) continue;
        if (!all && !(option->common & set->taker)) {
            left++;
            continue;
        }
        if (all && common && heading) fprintf(stream, "%s%s\n", separator, heading);
        heading = NULL;
        separator = "\n";
        print_option(option, whole, stream);
    }
    return left;
}
