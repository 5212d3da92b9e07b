/* The command line of stage programs: every rank gets the same one. */
#ifndef RUNTIME_TRAIN_TRAINING_OPTIONS_H
#define RUNTIME_TRAIN_TRAINING_OPTIONS_H

#include "base/options.h"
#include "runtime/program/step.h"
#include "runtime/train/metrics.h"

/* --lr PATTERN=X */
typedef struct RateRule {
    const char *pattern; /* of names where it has one of * ? [, else one or several components between dots */
    double rate;
} RateRule;

typedef struct TrainingOptions {
    const char *data, *eval_data, *eval_first, *checkpoint, *log, *tensorboard, *trace; /* NULL: not given */
    int64_t steps, epochs;                                                              /* 0: not given */
    double until_loss;                                                                  /* NAN: not given */
    double proximal;                                                                    /* 0: none */
    const char *proximal_start, *control;                                               /* NULL: not given */
    double weight_decay;                                                                /* NAN: as compiled */
    struct {
        double base;    /* NAN: as compiled */
        uint64_t rules; /* a hash of `rates` */
    } lr;
    RateRule *rates; /* the last one that matches a parameter counts */
    size_t rate_count;
    double lr_decay;                 /* from a block to the one before it; 1: none */
    ScheduleKind schedule;           /* SCHEDULE_COUNT: not given */
    int64_t schedule_steps;          /* after which the schedule is at its end; 0: not given */
    int64_t stop_after;              /* step; 0: not given */
    const char *go_on, *round_start; /* NULL: not given */
    struct {
        int64_t steps; /* -1: not given */
        double share;  /* of all steps, when given as a percentage; else 0 */
    } warmup;
    uint32_t no_decay;      /* bit 1 << decay_exempt_class for each class that does not decay */
    double clip;            /* largest norm of the whole gradient; 0: no clipping; NAN: as compiled */
    int64_t skip_nonfinite; /* steps in a row that may be skipped; 0: the first one ends the run */
    bool seed_given;
    uint64_t seed;
    int64_t checkpoint_every, keep; /* 0: only at the end; all */
    int64_t eval_every;             /* steps; 0: after every epoch */
    MetricChoice metrics;           /* none: as the model suggests */
    Metric keep_best;               /* METRIC_COUNT: none */
    int64_t patience;               /* evaluations; 0: without end */
    int64_t retries;                /* DIR/train's own matter: programs only check it */
    bool resume, emulate, quiet, help, no_shuffle, insecure;
    double timeout;  /* seconds; 0: wait for ever */
    bool join;       /* what the launcher does, which then passes it on no more */
    const char *key; /* and the next two: DIR/SITE/train's own matter */
    const char *audit;
    double site_timeout; /* seconds; 0: wait for ever */
} TrainingOptions;

/* The words of the environment variable SKYCC_OPTIONS go before the command line; they are separated by newlines if it
 * has one, else by blanks. For launchers that take no arguments (mpiexec -configfile, srun --multi-prog). */
char **training_options_with_environment(Arena *arena, int *argument_count, char **arguments);
extern const OptionSet training_option_set;
/* Reports every problem with EXIT_USAGE; `arguments` are kept, not copied. True, too, if only help is wanted. */
bool training_options_parse(TrainingOptions *options, int argument_count, char **arguments, Arena *arena,
                            Diagnostics *diagnostics);
/* Whether they are options for this program: some are for one of several sites, which in turn need some. EXIT_USAGE. */
bool training_options_suit(const TrainingOptions *options, const SkyProgram *program, Diagnostics *diagnostics);
void training_options_print_help(FILE *stream);

#endif
