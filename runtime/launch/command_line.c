#include "runtime/launch/command_line.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static bool is(const char *word, const char *option) { return word && strcmp(word, option) == 0; }

/* One rank, up to a separator or the end. Returns what follows. */
static char **read_program(LaunchedProgram *program, char **words)
{
    if (!is(words[0], "-n") || !is(words[1], "1")) return NULL;
    words += 2;
    *program = (LaunchedProgram){0};
    if (is(words[0], "-wdir") && words[1]) {
        program->folder = words[1];
        words += 2;
    }
    if (is(words[0], "-env")) {
        if (!words[1] || !words[2]) return NULL;
        program->variable_name = words[1];
        program->variable = words[2];
        words += 3;
    }
    if (!*words || is(*words, ":")) return NULL;
    program->words = words;
    while (*words && !is(*words, ":")) words++;
    if (!*words) return words;
    *words = NULL;
    return words + 1;
}

bool launch_command_read(LaunchCommand *command, int argument_count, char **arguments)
{
    static const char core[] = "core:";
    char **words = arguments;
    *command = (LaunchCommand){.programs = memory_allocate((size_t)(argument_count + 1) * sizeof *command->programs)};
    if (is(words[0], "-bind-to") && words[1] && strncmp(words[1], core, strlen(core)) == 0) {
        command->cores = atoi(words[1] + strlen(core));
        words += 2;
    }
    while (words && *words) words = read_program(&command->programs[command->count++], words);
    if (words && command->count) return true;
    free(command->programs);
    return false;
}
