/* What follows from the tables of commands and options: parts of the manual page and of the completions of shells. */
#ifndef DRIVER_OPTIONS_DOCUMENTATION_H
#define DRIVER_OPTIONS_DOCUMENTATION_H

#include "driver/options/options.h"

/* Something that takes options: a command of skycc, or the last one, DIR/train. */
typedef struct Documented {
    const char *name; /* "plan"; "train" */
    OptionSet options;
    bool is_command; /* else a program of its own */
} Documented;

enum { DOCUMENTED_COUNT = COMMAND_COUNT + 1 };

/* For the manual page, as roff: the heading of the section about one of them with its description; its options and examples. */
void man_heading(const Documented *one);
void man_options(const Documented *one);

/* For the completions: words, branches of `case`, or calls of `complete`, of all of them. */
void bash_commands(const Documented all[static DOCUMENTED_COUNT]);
void bash_options(const Documented all[static DOCUMENTED_COUNT]);
void bash_values(const Documented all[static DOCUMENTED_COUNT]);
void zsh_commands(const Documented all[static DOCUMENTED_COUNT]);
void zsh_options(const Documented all[static DOCUMENTED_COUNT]);
void fish_completions(const Documented all[static DOCUMENTED_COUNT]);

#endif
