/* The single commands that a run of skycc finetune consists of. */
#ifndef DRIVER_FINETUNE_SINGLE_COMMANDS_H
#define DRIVER_FINETUNE_SINGLE_COMMANDS_H

#include <stdint.h>

#include "driver/finetune/settings.h"

enum { SINGLE_COMMAND_WORDS = 64, MOST_SINGLE_COMMANDS = 16 };

typedef struct SingleCommand {
    const char
        *words[SINGLE_COMMAND_WORDS]; /* "import", ... of skycc; or a program with its path. NULL after the last */
    int count;
    const char *makes; /* a file that is there once it is done; NULL: it is run in any case */
    const char *title; /* of what it prints; NULL: it has none */
} SingleCommand;

typedef struct SingleCommands {
    SingleCommand items[MOST_SINGLE_COMMANDS];
    int count;
} SingleCommands;

/* Words are in the settings' arena. `part`: the folder in which the seed's model and programs are; RUN itself, or one
 * of several (--seeds). */
void single_commands_list(SingleCommands *commands, Settings *settings, const char *run, const char *part,
                          uint64_t seed);
/* That for another table of the run, with the numbers of its labels. */
void single_command_tokenize(SingleCommand *command, Settings *settings, const char *run, const char *table,
                             const char *output);
/* A file of the run, in the arena. */
#define run_file(arena, run, name) arena_format(arena, "%s/%s", run, name)
bool is_training(const SingleCommand *command); /* RUN/programs/train */
/* As a shell reads it. */
void single_command_print(const SingleCommand *command, FILE *stream);

#endif
