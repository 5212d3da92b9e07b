#ifndef BASE_EXIT_CODES_H
#define BASE_EXIT_CODES_H

/* Exit codes of skycc and of the programs it emits: part of the command-line contract. */
enum {
    EXIT_OK = 0,
    EXIT_BAD_INPUT = 1,            /* a bad input file, missing weights, or out of memory */
    EXIT_USAGE = 2,                /* the command line is wrong */
    EXIT_UNSUPPORTED_OPERATOR = 3, /* all of them are listed */
    EXIT_NO_PLAN = 4,              /* no plan fits the devices */
    EXIT_TOOLCHAIN = 5,            /* code generation or linking failed */
    EXIT_RUN_FAILED = 6,           /* a training run failed */
    EXIT_DIVERGED = 7,             /* a training run diverged: starting it again does not help */
    EXIT_SITE_RETURNED = 8,        /* another site of a run began anew: start again, from a checkpoint that all have */
    EXIT_INTERNAL = 70             /* a bug in skycc */
};

#endif
