#include "base/diagnostics.h"

#include <stdlib.h>
#include <string.h>

#include "base/pending.h"
#include "base/text.h"

static void record(Diagnostics *diagnostics, bool is_error, Place place, const char *hint, const char *format,
                   va_list arguments)
{
    Arena *arena = &diagnostics->arena;
    Diagnostic *diagnostic = arena_new(arena, Diagnostic);
    diagnostic->is_error = is_error;
    diagnostic->place = place;
    if (place.file) diagnostic->place.file = arena_string(arena, place.file);
    if (place.object) diagnostic->place.object = arena_string(arena, place.object);
    if (hint) diagnostic->hint = arena_string(arena, hint);
    diagnostic->message = arena_format_va(arena, format, arguments);
    if (diagnostics->last)
        diagnostics->last->next = diagnostic;
    else
        diagnostics->first = diagnostic;
    diagnostics->last = diagnostic;
}

bool diagnostics_error(Diagnostics *diagnostics, int exit_code, Place place, const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(diagnostics, true, place, hint, format, arguments);
    va_end(arguments);
    diagnostics->errors++;
    if (diagnostics->exit_code == EXIT_OK) diagnostics->exit_code = exit_code;
    return false;
}

void diagnostics_warning(Diagnostics *diagnostics, Place place, const char *hint, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(diagnostics, false, place, hint, format, arguments);
    va_end(arguments);
    diagnostics->warnings++;
}

void diagnostics_quote(Diagnostics *diagnostics, const char *text)
{
    if (diagnostics->last) diagnostics->last->quoted = arena_string(&diagnostics->arena, text);
}

/* The text with every `path` in it replaced; NULL stays NULL. */
static const char *renamed(Arena *arena, const char *text, const char *path, const char *called)
{
    const char *found = text && path && *path ? strstr(text, path) : NULL;
    if (!found) return text;
    const char *rest = renamed(arena, found + strlen(path), path, called);
    return arena_format(arena, "%.*s%s%s", (int)(found - text), text, called, rest);
}

void diagnostics_append_as(Diagnostics *to, const Diagnostics *from, const char *path, const char *called)
{
    for (const Diagnostic *d = from->first; d; d = d->next) {
        Place place = d->place;
        const char *message = renamed(&to->arena, d->message, path, called),
                   *hint = renamed(&to->arena, d->hint, path, called);
        place.file = renamed(&to->arena, place.file, path, called);
        if (d->is_error)
            diagnostics_error(to, from->exit_code, place, hint, "%s", message);
        else
            diagnostics_warning(to, place, hint, "%s", message);
        if (d->quoted) diagnostics_quote(to, d->quoted);
    }
}

void diagnostics_append(Diagnostics *to, const Diagnostics *from) { diagnostics_append_as(to, from, NULL, NULL); }

/* `more`: the next one has the same hint, which is printed there. */
static void print_one(const Diagnostic *d, bool more, Buffer *text)
{
    text_format(text, "%s", d->place.file ? d->place.file : "skycc");
    if (d->place.line > 0) text_format(text, ":%d", d->place.line);
    if (d->place.line > 0 && d->place.column > 0) text_format(text, ":%d", d->place.column);
    text_format(text, d->is_error ? ": error: " : ": warning: ");
    if (d->place.object) text_format(text, "%s: ", d->place.object);
    text_format(text, "%s\n", d->message);
    for (const char *line = d->quoted; line && *line;) {
        size_t length = strcspn(line, "\n");
        text_format(text, "    | %.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    if (d->hint && !more) text_format(text, "    hint: %s\n", d->hint);
}

/* Standard error is not buffered, and several ranks share it: each message goes out whole, in one write, so that
 * messages of two ranks do not mix letter by letter. */
void diagnostics_print(const Diagnostics *diagnostics, FILE *stream)
{
    pending_hold(); /* does not return where an interrupt removes files: what fails for that is not said */
    pending_release();
    for (const Diagnostic *d = diagnostics->first; d; d = d->next) {
        FREED_WITH(buffer_free) Buffer text = {0};
        print_one(d, d->next && d->hint && d->next->hint && strcmp(d->hint, d->next->hint) == 0, &text);
        fwrite(text.bytes, 1, text.size, stream);
    }
}

void diagnostics_free(Diagnostics *diagnostics)
{
    arena_free(&diagnostics->arena);
    memset(diagnostics, 0, sizeof *diagnostics);
}

_Noreturn void internal_error(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    text_print(stderr, "skycc: internal error at %s:%d: ", file, line);
    text_print_va(stderr, format, arguments);
    fputs("\n    hint: this is a bug in skycc; please report it with the command line and the model\n", stderr);
    va_end(arguments);
    exit(EXIT_INTERNAL);
}
