#include "driver/options/options.h"

#include <math.h>

bool command_options_read(Options *options, Command command, int argument_count, char **arguments,
                          Diagnostics *diagnostics)
{
    *options = (Options){.steps = -1, .fail_above = INFINITY, .plan.request.time_limit_s = INFINITY};
    OptionSet set = command_options(command, &options->arena);
    bool ok = options_parse(&set, argument_count, arguments, options, &options->arena, diagnostics);
    bool packs = command == COMMAND_COMPILE || command == COMMAND_PLAN || command == COMMAND_PROBE;
    if (options->load.lengths.dimension && !packs)
        ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "compile, plan and probe take several",
                               "--dim %s has several lengths", options->load.lengths.dimension);
    if (options->help) diagnostics_free(diagnostics);
    return ok || options->help;
}

void command_print_help(Command command, FILE *stream)
{
    Arena arena = {0};
    OptionSet set = command_options(command, &arena);
    const CommandText *text = &command_texts[command];
    for (int i = 0; text->synopsis[i]; i++) fprintf(stream, "%s %s\n", i ? "      " : "usage:", text->synopsis[i]);
    fprintf(stream, "\n%s\n", text->description);
    options_print_help(&set, stream);
    arena_free(&arena);
}
