#include "driver/options/options.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

bool command_options_read(Options *options, Command command, int argument_count, char **arguments,
                          Diagnostics *diagnostics)
{
    *options = (Options){.steps = -1,
                         .finetune.serve = -1,
                         .dataset.stride = -1,
                         .fail_above = INFINITY,
                         .plan.request.time_limit_s = INFINITY};
    OptionSet set = command_options(command, &options->arena);
    bool ok = options_parse(&set, argument_count, arguments, options, &options->arena, diagnostics);
    bool packs = command == COMMAND_COMPILE || command == COMMAND_PLAN || command == COMMAND_PROBE;
    if (options->load.lengths.dimension && !packs)
        ok = usage_error(diagnostics, "give one length; only compile, plan and probe take several",
                         "--dim %s has several lengths", options->load.lengths.dimension);
    options->load.coded_cuts = options->plan.request.codecs & ~CODECS_LOSSLESS;
    options->help |= options->help_all;
    if (options->help) diagnostics_free(diagnostics);
    return ok || options->help;
}

void command_print_help(Command command, bool all, FILE *stream)
{
    enum { FIRST = 3 };
    FREED_WITH(arena_free) Arena arena = {0};
    OptionSet set = command_options(command, &arena);
    const CommandText *text = &command_texts[command];
    for (int i = 0; text->synopsis[i] && (all || i < FIRST); i++) {
        fprintf(stream, "%s ", i ? "      " : "usage:");
        options_print_wrapped(stream, text->synopsis[i], strlen("usage: "));
    }
    fputc('\n', stream);
    options_print_wrapped(stream, text->description, 0);
    if (all && text->more) options_print_wrapped(stream, text->more, 0);
    fputc('\n', stream);
    for (int i = 0; text->examples[i]; i++) fprintf(stream, "  %s\n", text->examples[i]);
    fputc('\n', stream);
    int left = options_print_help(&set, all, stream);
    if (!all && left) fprintf(stream, "\nskycc %s --help-all lists %d more options.\n", text->name, left);
    if (!all && !left) fprintf(stream, "\nskycc %s --help-all explains them in full.\n", text->name);
}

static bool takes(Command command, const char *name, size_t length, Arena *arena)
{
    OptionSet set = command_options(command, arena);
    for (size_t i = 0; i < set.count; i++)
        if (option_taken(&set, &set.rows[i]) && !set.rows[i].positional && strlen(set.rows[i].name) == length &&
            memcmp(set.rows[i].name, name, length) == 0)
            return true;
    return false;
}

static bool has_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += length)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length])) return true;
    return false;
}

/* The command whose option the hint means: this one if it takes the option or the hint names a command that does;
 * otherwise the first that takes it, preferably `compile`, and one step rather than all (`finetune`). */
static Command command_meant(Command command, const char *hint, const char *name, size_t length, Arena *arena)
{
    Command meant = COMMAND_COUNT;
    for (Command c = 0; c < COMMAND_COUNT; c++) {
        if (!takes(c, name, length, arena)) continue;
        if (c == command || has_word(hint, command_texts[c].name)) return command;
        if (meant == COMMAND_COUNT || meant == COMMAND_FINETUNE || c == COMMAND_COMPILE) meant = c;
    }
    return meant == COMMAND_COUNT ? command : meant; /* an option of DIR/train or another program */
}

void command_fit_hints(Command command, Diagnostics *diagnostics)
{
    Arena *arena = &diagnostics->arena;
    for (Diagnostic *d = diagnostics->first; d; d = d->next)
        for (const char *at = d->hint; at && (at = strstr(at, "--"));) {
            size_t length = strspn(at += 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
            Command meant = length ? command_meant(command, d->hint, at, length, arena) : command;
            if (meant == command) continue;
            static const char or_give[] = ", or give --";
            const char *other = strstr(d->hint, or_give); /* what stands before it helps here as well */
            d->hint = other && other + sizeof or_give - 1 == at
                          ? arena_string_n(arena, d->hint, (size_t)(other - d->hint))
                          : arena_format(arena, "for skycc %s: %s", command_texts[meant].name, d->hint);
            break;
        }
}
