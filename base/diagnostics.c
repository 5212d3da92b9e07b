#include "base/diagnostics.h"

#include <stdlib.h>
#include <string.h>

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
    }
}

void diagnostics_append(Diagnostics *to, const Diagnostics *from) { diagnostics_append_as(to, from, NULL, NULL); }

/* Names come from files of strangers: control characters must not reach the terminal. */
static void print_clean(FILE *stream, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            fprintf(stream, "\\x%02x", c);
        else
            fputc(c, stream);
    }
}

static void print_one(const Diagnostic *d, FILE *stream)
{
    print_clean(stream, d->place.file ? d->place.file : "skycc");
    if (d->place.line > 0) fprintf(stream, ":%d", d->place.line);
    if (d->place.line > 0 && d->place.column > 0) fprintf(stream, ":%d", d->place.column);
    fputs(d->is_error ? ": error: " : ": warning: ", stream);
    if (d->place.object) {
        print_clean(stream, d->place.object);
        fputs(": ", stream);
    }
    print_clean(stream, d->message);
    fputc('\n', stream);
    if (d->hint) {
        fputs("    hint: ", stream);
        print_clean(stream, d->hint);
        fputc('\n', stream);
    }
}

void diagnostics_print(const Diagnostics *diagnostics, FILE *stream)
{
    for (const Diagnostic *d = diagnostics->first; d; d = d->next) {
        /* Standard error is not buffered, and several ranks share it: a message goes out whole, in one write, so that
         * messages of two ranks do not mix letter by letter. */
        char *text = NULL;
        size_t bytes = 0;
        FILE *whole = open_memstream(&text, &bytes);
        if (whole) print_one(d, whole);
        if (whole && fclose(whole) == 0)
            fwrite(text, 1, bytes, stream);
        else
            print_one(d, stream);
        free(text);
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
    fprintf(stderr, "skycc: internal error at %s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputs("\n    hint: this is a bug in skycc; please report it with the command line and the model\n", stderr);
    va_end(arguments);
    exit(EXIT_INTERNAL);
}
