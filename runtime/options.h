/* The command line of stage programs: every rank gets the same one. */
#ifndef RUNTIME_OPTIONS_H
#define RUNTIME_OPTIONS_H

#include "base/diagnostics.h"
#include "runtime/step.h"

typedef struct RunOptions {
    const char *data, *eval_data, *checkpoint, *log, *trace; /* NULL: not given */
    int64_t steps, epochs;                                   /* 0: not given */
    double until_loss;                                       /* NAN: not given */
    double learning_rate, weight_decay;                      /* NAN: as compiled */
    ScheduleKind schedule;
    int64_t warmup_steps;
    double warmup_share; /* of all steps, when given as a percentage; else 0 */
    uint32_t no_decay;   /* bit 1 << decay_exempt_class for each class that does not decay */
    double clip;         /* largest norm of the whole gradient; 0: no clipping */
    bool seed_given;
    uint64_t seed;
    int64_t checkpoint_every, keep; /* 0: only at the end; all */
    bool resume, emulate, quiet, help, no_shuffle;
    double timeout; /* seconds; 0: wait for ever */
} RunOptions;

/* What the environment variable SKYCC_OPTIONS holds goes before the command line: words separated by blanks or, if it
 * has a newline, by newlines. For launchers that take no arguments (mpiexec -configfile, srun --multi-prog). */
char **options_with_environment(Arena *arena, int *argument_count, char **arguments);
/* Reports every problem with EXIT_USAGE; `arguments` are kept, not copied. */
bool options_parse(RunOptions *options, int argument_count, char **arguments, Diagnostics *diagnostics);
void options_print_help(FILE *stream);

#endif
