/* User-facing diagnostics: collected, printed with their place and a hint, and counted.
 *
 * A function that can fail on user input takes a Diagnostics *, reports there and returns false. The caller passes the
 * failure on; main() turns it into the exit code. Only a compiler bug calls internal_error(). */
#ifndef BASE_DIAGNOSTICS_H
#define BASE_DIAGNOSTICS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/exit_codes.h"

typedef struct Place {
    const char *file; /* NULL: none */
    int line, column; /* 0: none */
    /* What inside the file is meant, such as "node '/encoder/MatMul' (MatMul, opset 17)"; NULL: none. */
    const char *object;
} Place;

typedef struct Diagnostic {
    struct Diagnostic *next; /* in the order of reporting */
    bool is_error;
    Place place;
    const char *message, *hint; /* hint may be NULL */
    const char *quoted;         /* what another program said of it, in lines; NULL: nothing */
} Diagnostic;

typedef struct Diagnostics {
    Arena arena;
    Diagnostic *first, *last;
    int errors, warnings;
    int exit_code; /* of the first error; EXIT_OK while there is none */
} Diagnostics;

/* Records an error with the exit code it implies. `hint` may be NULL; strings are copied. Always returns false, so that
 * `return diagnostics_error(...)` reads well. */
bool diagnostics_error(Diagnostics *diagnostics, int exit_code, Place place, const char *hint, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void diagnostics_warning(Diagnostics *diagnostics, Place place, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Quotes what another program said, below the message that was reported last. */
void diagnostics_quote(Diagnostics *diagnostics, const char *text);
/* Appends all reports of `from` to `to`. Each of several threads reports into its own; the caller appends these in an
 * order that does not depend on the threads. */
void diagnostics_append(Diagnostics *to, const Diagnostics *from);
/* The same, but replaces the file name `path` by `called` everywhere: users do not know the names of intermediate
 * files. */
void diagnostics_append_as(Diagnostics *to, const Diagnostics *from, const char *path, const char *called);
/* Prints what was collected, in order, as "FILE:LINE:COLUMN: error: OBJECT: MESSAGE" and an indented hint, each escaped
 * into one line (base/text.h). */
void diagnostics_print(const Diagnostics *diagnostics, FILE *stream);
void diagnostics_free(Diagnostics *diagnostics);

#define PLACE_NONE ((Place){0})
#define PLACE_FILE(path) ((Place){.file = (path)})

/* The most common errors: a wrong command line, a file that cannot be used, and a run that cannot go on. */
#define usage_error(diagnostics, hint, ...) diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, hint, __VA_ARGS__)
#define run_error(diagnostics, hint, ...) diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_NONE, hint, __VA_ARGS__)
#define input_error(diagnostics, path, hint, ...)                                                                      \
    diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), hint, __VA_ARGS__)

/* A bug in skycc: prints the place in skycc's source and ends with EXIT_INTERNAL. */
_Noreturn void internal_error(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...) internal_error(__FILE__, __LINE__, __VA_ARGS__)

#endif
