#include "driver/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int option_refused(const char *command)
{
    fprintf(stderr, "    hint: skycc %s --help lists the options\n", command);
    return EXIT_USAGE;
}

bool option_unexpected(const char *argument, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "unexpected argument '%s'", argument);
}

bool option_integer(const char *option, const char *text, int64_t least, int64_t greatest, int64_t *value,
                    Diagnostics *diagnostics)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < least || number > greatest)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                                 "%s takes an integer from %lld to %lld, not '%s'", option, (long long)least,
                                 (long long)greatest, text);
    *value = number;
    return true;
}

bool option_number(const char *option, const char *text, double least, double greatest, double *value,
                   Diagnostics *diagnostics)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number >= least && number <= greatest))
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "%s takes a number from %g to %g, not '%s'",
                                 option, least, greatest, text);
    *value = number;
    return true;
}

bool option_dimension(DimensionBindings *dimensions, char *text, Diagnostics *diagnostics)
{
    char *equals = strchr(text, '=');
    if (!equals || equals == text)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "write for instance --dim batch=8",
                                 "malformed dimension '%s'", text);
    int64_t value;
    char option[128];
    snprintf(option, sizeof option, "--dim %.*s=", (int)(equals - text), text);
    if (!option_integer(option, equals + 1, 1, INT32_MAX, &value, diagnostics)) return false;
    *equals = '\0';
    DimensionBinding binding = {text, value};
    array_push(dimensions->items, dimensions->count, dimensions->capacity, binding);
    return true;
}

bool option_dropout(ImportOptions *options, const char *text, Diagnostics *diagnostics)
{
    char *end;
    options->dropout_off = strcmp(text, "off") == 0;
    options->dropout_given = !options->dropout_off;
    if (options->dropout_off) return true;
    options->dropout = strtod(text, &end);
    if (end != text && !*end && options->dropout >= 0 && options->dropout < 1) return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                             "--dropout takes off or a number from 0 to below 1, not '%s'", text);
}

bool option_precision(bool *bf16, const char *text, Diagnostics *diagnostics)
{
    *bf16 = strcmp(text, "bf16") == 0;
    if (*bf16 || strcmp(text, "f32") == 0) return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "--precision takes f32 or bf16, not '%s'",
                             text);
}
