/* DIR/SITE/train --join: what DIR/SITE/train does once it has found --join. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "federation/member/member.h"

static volatile sig_atomic_t ended;

static void end(int signal) { ended = signal; }

/* The value of `--name VALUE` or `--name=VALUE` at *at, which moves to its last word; NULL: another option. */
static const char *value_of(char **arguments, int count, int *at, const char *name)
{
    const char *word = arguments[*at];
    size_t length = strlen(name);
    if (strncmp(word, name, length) != 0) return NULL;
    if (word[length] == '=') return word + length + 1;
    if (word[length] || *at + 1 == count) return NULL;
    return arguments[++*at];
}

static bool refuse_own(const char *word, Diagnostics *diagnostics)
{
    static const char *const own[] = {"--steps",          "--epochs",   "--resume",     "--stop-after",
                                      "--until-loss",     "--patience", "--eval-first", "--proximal",
                                      "--proximal-start", "--control",  "--go-on",      "--round-start"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strncmp(word, own[i], strlen(own[i])) == 0 && strchr("=", word[strlen(own[i])]))
            return usage_error(diagnostics, NULL, "%s: with --join, the federation says how long a site trains",
                               own[i]);
    return true;
}

static bool read_arguments(MemberOptions *options, int count, char **arguments, Diagnostics *diagnostics)
{
    int passed = 0;
    options->passed = memory_allocate((size_t)(count + 1) * sizeof *options->passed);
    for (int i = 1; i < count; i++) {
        int first = i;
        const char *value;
        if (strcmp(arguments[i], "--join") == 0) continue;
        if ((value = value_of(arguments, count, &i, "--key"))) {
            options->key = value;
            continue;
        }
        if ((value = value_of(arguments, count, &i, "--checkpoint"))) options->checkpoint = value;
        if ((value = value_of(arguments, count, &i, "--data"))) options->data = value;
        if ((value = value_of(arguments, count, &i, "--eval-data"))) options->eval_data = value;
        if ((value = value_of(arguments, count, &i, "--log"))) options->log = value;
        if ((value = value_of(arguments, count, &i, "--seed"))) options->seed = strtoull(value, NULL, 10);
        options->no_shuffle |= strcmp(arguments[i], "--no-shuffle") == 0;
        options->quiet |= strcmp(arguments[i], "--quiet") == 0;
        if (!refuse_own(arguments[first], diagnostics)) return false;
        for (int k = first; k <= i; k++) options->passed[passed++] = arguments[k];
    }
    return options->checkpoint || usage_error(diagnostics, NULL,
                                              "--join needs --checkpoint DIR: between its rounds a site is what "
                                              "lies there");
}

int main(int argument_count, char **arguments)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Member member = {0};
    FREED char *directory = file_program_directory();
    MemberOptions options = {.directory = directory};
    struct sigaction action = {.sa_handler = end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* training goes on when the reader of its output is gone */
    int code = EXIT_USAGE;
    if (read_arguments(&options, argument_count, arguments, &diagnostics)) {
        bool ok = member_open(&member, &options, &ended, &diagnostics);
        code = ok ? member_run(&member, &diagnostics) : diagnostics.exit_code;
        if (code != EXIT_OK) member_tell_end(&member, code, &diagnostics);
        member_free(&member);
    }
    diagnostics_print(&diagnostics, stderr);
    free(options.passed);
    return code;
}
