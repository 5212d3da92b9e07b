/* The parts of the manual page and of the shell completions that follow from the tables. */
#ifndef DRIVER_OPTIONS_DOCUMENTATION_H
#define DRIVER_OPTIONS_DOCUMENTATION_H

#include "driver/options/options.h"

/* A command of skycc, or, last, DIR/train. */
typedef struct Documented {
    const char *name; /* "plan"; "train" */
    OptionSet options;
    bool is_command; /* else a program of its own */
} Documented;

enum { DOCUMENTED_COUNT = COMMAND_COUNT + 1 };

/* For the manual page, as roff: the section's heading and description; its options and examples. */
void man_heading(const Documented *one);
void man_options(const Documented *one);

/* For the completions: words, branches of `case`, or calls of `complete`, for all commands. */
void bash_commands(const Documented all[static DOCUMENTED_COUNT]);
void bash_options(const Documented all[static DOCUMENTED_COUNT]);
void bash_values(const Documented all[static DOCUMENTED_COUNT]);
void zsh_commands(const Documented all[static DOCUMENTED_COUNT]);
void zsh_options(const Documented all[static DOCUMENTED_COUNT]);
void fish_completions(const Documented all[static DOCUMENTED_COUNT]);

#endif
