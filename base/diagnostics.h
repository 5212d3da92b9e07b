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

/* Exit codes of skycc and of the programs it emits: part of the command-line contract. */
enum {
    EXIT_OK = 0,
    EXIT_BAD_INPUT = 1,            /* a bad input file, missing weights, or out of memory */
    EXIT_USAGE = 2,                /* the command line is wrong */
    EXIT_UNSUPPORTED_OPERATOR = 3, /* all of them are listed */
    EXIT_NO_PLAN = 4,              /* no plan fits the devices */
    EXIT_TOOLCHAIN = 5,            /* code generation or linking failed */
    EXIT_RUN_FAILED = 6,           /* a training run failed */
    EXIT_INTERNAL = 70             /* a bug in skycc */
};

typedef struct Place {
    const char *file; /* NULL: none */
    int line, column; /* 0: none */
    const char
        *object; /* what inside the file is meant, such as "node '/encoder/MatMul' (MatMul, opset 17)"; NULL: none */
} Place;

typedef struct Diagnostic {
    struct Diagnostic *next; /* in the order of reporting */
    bool is_error;
    Place place;
    const char *message, *hint; /* hint may be NULL */
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
/* Reports again, behind what `to` holds, what `from` holds: of work that was done side by side. */
void diagnostics_append(Diagnostics *to, const Diagnostics *from);
/* Prints what was collected, in order, as "FILE:LINE:COLUMN: error: OBJECT: MESSAGE" and an indented hint. */
void diagnostics_print(const Diagnostics *diagnostics, FILE *stream);
void diagnostics_free(Diagnostics *diagnostics);

#define PLACE_NONE ((Place){0})
#define PLACE_FILE(path) ((Place){.file = (path)})

/* A bug in skycc: prints the place in skycc's source and ends with EXIT_INTERNAL. */
_Noreturn void internal_error(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define bug(...) internal_error(__FILE__, __LINE__, __VA_ARGS__)

#endif
