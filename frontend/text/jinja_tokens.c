#include <stdlib.h>
#include <string.h>

#include "frontend/text/jinja_run.h"
#include "frontend/text/unicode.h"

typedef struct Lexer {
    JinjaTemplate *template;
    const char *at, *end;
    int line;
    bool line_starts; /* what stands before ended with a line break */
    Buffer *problem;
} Lexer;

static bool is_blank(char c) { return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f); }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool refuse(Lexer *lexer, const char *reason)
{
    buffer_print(lexer->problem, "line %d: %s", lexer->line, reason);
    return false;
}

static void add(Lexer *lexer, JinjaKind kind, const char *text, size_t length)
{
    JinjaTemplate *template = lexer->template;
    JinjaToken token = {kind, arena_string_n(&template->arena, text, length), length, lexer->line};
    array_push(template->tokens, template->count, template->capacity, token);
}

static void pass(Lexer *lexer, size_t count)
{
    for (; count; count--) lexer->line += *lexer->at++ == '\n';
}

static bool starts(const Lexer *lexer, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(lexer->end - lexer->at) >= length && memcmp(lexer->at, text, length) == 0;
}

/* The text up to the next mark; blanks before a tag or comment that is the first of its line are left out. */
static void read_text(Lexer *lexer)
{
    const char *begin = lexer->at, *mark = begin;
    while (mark < lexer->end && !(mark + 1 < lexer->end && *mark == '{' && mark[1] && strchr("{%#", mark[1]))) mark++;
    const char *kept = mark;
    char sign = mark + 2 < lexer->end ? mark[2] : 0;
    if (mark < lexer->end && sign == '-') {
        while (kept > begin && is_blank(kept[-1])) kept--;
    } else if (mark < lexer->end && sign != '+' && mark[1] != '{') {
        const char *line = mark;
        while (line > begin && line[-1] != '\n' && is_blank(line[-1])) line--;
        if (line > begin ? line[-1] == '\n' : lexer->line_starts) kept = line;
    }
    if (kept > begin) add(lexer, JINJA_TEXT, begin, (size_t)(kept - begin));
    pass(lexer, (size_t)(mark - begin));
}

/* The end of a tag, a comment ("%}", "#}") or what is printed ("}}"), and the white space that goes with it. */
static bool read_end(Lexer *lexer, const char *mark)
{
    bool strips = starts(lexer, "-"), signs = strips || (starts(lexer, "+") && *mark != '}');
    lexer->at += signs;
    if (!starts(lexer, mark)) return lexer->at -= signs, false;
    lexer->at += 2;
    const char *after = lexer->at;
    if (strips)
        while (lexer->at < lexer->end && is_blank(*lexer->at)) pass(lexer, 1);
    else if (!signs && *mark != '}' && starts(lexer, "\n"))
        pass(lexer, 1);
    lexer->line_starts = lexer->at > after && lexer->at[-1] == '\n';
    return true;
}

static uint32_t read_hex(Lexer *lexer, int digits)
{
    char text[9] = "";
    for (int i = 0; i < digits && lexer->at < lexer->end; i++) text[i] = *lexer->at++;
    return (uint32_t)strtoul(text, NULL, 16);
}

/* What follows a backslash, as Python reads it. */
static void read_escape(Lexer *lexer, Buffer *text)
{
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    char letter = *lexer->at;
    const char *known = strchr(letters, letter);
    pass(lexer, 1);
    if (letter && known) {
        buffer_append(text, &meanings[known - letters], 1);
    } else if (letter == 'x' || letter == 'u') {
        uint32_t c = read_hex(lexer, letter == 'x' ? 2 : 4);
        unicode_append(text, c >= 0xd800 && c < 0xe000 ? 0xfffd : (int32_t)c);
    } else if (letter != '\n') {
        buffer_append(text, (char[]){'\\', letter}, 2);
    }
}

static bool read_string(Lexer *lexer)
{
    char quote = *lexer->at++;
    FREED_WITH(buffer_free) Buffer text = {0};
    while (lexer->at < lexer->end && *lexer->at != quote) {
        char c = *lexer->at;
        pass(lexer, 1);
        if (c == '\\' && lexer->at < lexer->end)
            read_escape(lexer, &text);
        else
            buffer_append(&text, &c, 1);
    }
    bool ends = lexer->at < lexer->end;
    lexer->at += ends;
    add(lexer, JINJA_STRING, buffer_text(&text), text.size);
    return ends || refuse(lexer, "a string does not end");
}

static void read_number(Lexer *lexer)
{
    const char *begin = lexer->at;
    while (lexer->at < lexer->end && is_digit(*lexer->at)) lexer->at++;
    bool real = lexer->end - lexer->at > 1 && *lexer->at == '.' && is_digit(lexer->at[1]);
    if (real) lexer->at++;
    while (lexer->at < lexer->end && is_digit(*lexer->at)) lexer->at++;
    add(lexer, real ? JINJA_REAL : JINJA_INTEGER, begin, (size_t)(lexer->at - begin));
}

static bool read_sign(Lexer *lexer, int *depth)
{
    static const char *const pairs[] = {"==", "!=", "<=", ">=", "//"};
    char c = *lexer->at;
    size_t length = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (starts(lexer, pairs[i])) length = 2;
    if (length == 1 && (!c || !strchr("()[]{}.,:|=<>+-*/%~", c))) return refuse(lexer, "an unknown sign");
    *depth += c == '(' || c == '[' || c == '{';
    *depth -= c == ')' || c == ']' || c == '}';
    add(lexer, JINJA_SIGN, lexer->at, length);
    lexer->at += length;
    return true;
}

/* What stands in a tag or is printed, up to its end. */
static bool read_inside(Lexer *lexer, bool tag)
{
    int depth = 0;
    add(lexer, tag ? JINJA_TAG : JINJA_PRINT, "", 0);
    for (;;) {
        while (lexer->at < lexer->end && is_blank(*lexer->at)) pass(lexer, 1);
        if (lexer->at == lexer->end) return refuse(lexer, "a tag does not end");
        const char *begin = lexer->at;
        if (depth <= 0 && read_end(lexer, tag ? "%}" : "}}")) break;
        if (*begin == '"' || *begin == '\'') {
            if (!read_string(lexer)) return false;
        } else if (is_digit(*begin)) {
            read_number(lexer);
        } else if (is_name(*begin)) {
            while (lexer->at < lexer->end && (is_name(*lexer->at) || is_digit(*lexer->at))) lexer->at++;
            add(lexer, JINJA_NAME, begin, (size_t)(lexer->at - begin));
        } else if (!read_sign(lexer, &depth)) {
            return false;
        }
    }
    add(lexer, tag ? JINJA_TAG_END : JINJA_PRINT_END, "", 0);
    return true;
}

static bool read_comment(Lexer *lexer)
{
    while (lexer->at < lexer->end)
        if (read_end(lexer, "#}"))
            return true;
        else
            pass(lexer, 1);
    return refuse(lexer, "a comment does not end");
}

static bool read_all(Lexer *lexer)
{
    for (;;) {
        read_text(lexer);
        if (lexer->at == lexer->end) break;
        char kind = lexer->at[1];
        lexer->at += 2;
        if (lexer->at < lexer->end && (*lexer->at == '-' || (*lexer->at == '+' && kind != '{'))) lexer->at++;
        if (!(kind == '#' ? read_comment(lexer) : read_inside(lexer, kind == '%'))) return false;
    }
    add(lexer, JINJA_END, "", 0);
    return true;
}

JinjaTemplate *jinja_open(const char *source, size_t length, Buffer *problem)
{
    FREED_WITH(buffer_free) Buffer lines = {0};
    JinjaTemplate *template = memory_allocate(sizeof *template);
    *template = (JinjaTemplate){0};
    for (size_t i = 0; i < length; i++)
        if (source[i] != '\r')
            buffer_append(&lines, source + i, 1);
        else if (i + 1 == length || source[i + 1] != '\n')
            buffer_append(&lines, "\n", 1);
    if (lines.size && lines.bytes[lines.size - 1] == '\n') lines.size--;
    const char *text = buffer_text(&lines);
    Lexer lexer = {template, text, text + lines.size, 1, true, problem};
    bool ok = unicode_is_valid(text, lines.size) ? read_all(&lexer) : refuse(&lexer, "is not UTF-8");
    if (ok) return template;
    jinja_free(template);
    return NULL;
}

void jinja_free(JinjaTemplate *template)
{
    if (!template) return;
    free(template->tokens);
    arena_free(&template->arena);
    free(template);
}

bool jinja_names(const JinjaTemplate *template, const char *name)
{
    for (size_t i = 0; i < template->count; i++)
        if ((template->tokens[i].kind == JINJA_NAME || template->tokens[i].kind == JINJA_STRING) &&
            strcmp(template->tokens[i].text, name) == 0)
            return true;
    return false;
}
