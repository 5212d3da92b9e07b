/* Option values that several subcommands share. Each reports a malformed value (EXIT_USAGE) and returns false. */
#ifndef DRIVER_OPTIONS_H
#define DRIVER_OPTIONS_H

#include "frontend/import.h"

typedef struct DimensionBindings {
    DimensionBinding *items;
    size_t count, capacity;
} DimensionBindings;

/* After getopt_long has said which argument it does not understand: names the way out and returns EXIT_USAGE. */
int option_refused(const char *command);
/* An argument that is no option, where none is expected any more. Returns false. */
bool option_unexpected(const char *argument, Diagnostics *diagnostics);

bool option_integer(const char *option, const char *text, int64_t least, int64_t greatest, int64_t *value,
                    Diagnostics *diagnostics);
bool option_number(const char *option, const char *text, double least, double greatest, double *value,
                   Diagnostics *diagnostics);
/* --dim NAME=VALUE. The name points into `text`, which is cut at '='. */
bool option_dimension(DimensionBindings *dimensions, char *text, Diagnostics *diagnostics);
/* --dropout off or a ratio */
bool option_dropout(ImportOptions *options, const char *text, Diagnostics *diagnostics);
/* --precision f32|bf16 */
bool option_precision(bool *bf16, const char *text, Diagnostics *diagnostics);

#endif
