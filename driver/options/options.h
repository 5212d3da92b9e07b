/* The command line of skycc: which commands there are, which options each takes, and what the user said.
 *
 * option_table.c has a row per option, command_table.c one per command. Parsing, --help, the manual page and the
 * completions follow from them. */
#ifndef DRIVER_OPTIONS_OPTIONS_H
#define DRIVER_OPTIONS_OPTIONS_H

#include "base/options.h"
#include "driver/federate/federation_plans.h"
#include "driver/compile/emit_programs.h"
#include "driver/compile/plan_model.h"
#include "driver/compile/weights.h"
#include "frontend/huggingface/head.h"
#include "frontend/text/text_dataset.h"
#include "models/bert.h"

typedef enum Command {
    COMMAND_CHECK,
    COMMAND_BERT,
    COMMAND_COMPILE,
    COMMAND_PROBE,
    COMMAND_PLAN,
    COMMAND_EXPLAIN,
    COMMAND_DIFF,
    COMMAND_VERIFY,
    COMMAND_PLOT,
    COMMAND_RUN,
    COMMAND_EXPORT,
    COMMAND_TOKENIZE,
    COMMAND_IMPORT,
    COMMAND_HEAD,
    COMMAND_PREDICT,
    COMMAND_KEY,
    COMMAND_FEDERATE,
    COMMAND_COORDINATE,
    COMMAND_DEPLOY,
    COMMAND_COUNT
} Command;

/* What the user said, for all commands: each reads the fields of the options that it takes. A path, name or text is
 * NULL where it was not given. */
typedef struct Options {
    Arena arena; /* of lists and of what readers make */
    bool help, help_all, verbose, quiet, json, force;
    bool alone; /* of compile for a federation: DIR goes to a site that lacks the model's file */
    /* Files: the model and what a command reads beside it, and what it writes. */
    const char *model, *checkpoint, *costs, *log, *trace, *table;
    const char *plans[2]; /* the one that is read; of diff the old and the new one */
    const char *output, *report, *depfile, *adapter;
    TextList inputs;
    /* The model and its training. */
    ModelOptions load;
    WeightInit init;
    uint64_t seed;
    bool gradients, interpret;
    int steps; /* of run; -1: no training */
    int threads;
    const char *target_cpu;
    const char *emit; /* the phase of compile to stop after; NULL: none */
    EmitForm form;    /* of the code that compile makes */
    PlanModelOptions plan;
    bool allow_unproven;
    TextList audits;   /* what crossed between sites, as train --audit wrote it */
    double fail_above; /* seconds; INFINITY: no limit */
    /* Commands that make models and data. */
    BertConfig bert;
    const char *folder; /* of Hugging Face: read by import, made by export */
    const char *source, *labels;
    Head head;
    const char *vocabulary, *tokenizer, *task;
    bool cased, multi_label;
    DatasetOptions dataset;
    /* What predict is asked for. */
    const char *texts[2], *data;
    const char *key;   /* the name of a pair of keys; of coordinate and probe the file of the secret one */
    const char *site;  /* of probe: whose links are measured; NULL: machines are */
    double patience_s; /* for other sites */
    const char *federation, *listen, *csv;
    const char *follows; /* the coordinator's directory of a federation that is gone on with */
    FederationWishes federation_wishes;
    /* Of deploy, which has `folder` and `data` too. */
    bool check;
    const char *destination, *ssh;
} Options;

typedef struct CommandText {
    const char *name, *summary; /* "plan", one line for skycc --help */
    const char *synopsis[4];    /* NULL after the last */
    const char *description;    /* sentences for --help and the manual page */
    const char *examples[4];    /* command lines; NULL after the last */
} CommandText;

extern const CommandText command_texts[COMMAND_COUNT];

/* The rows of option_table.c that the command takes. The hint is in the arena. */
OptionSet command_options(Command command, Arena *arena);
/* Free the options' arena in any case. Reports every problem (EXIT_USAGE) and returns false then; true if help is what
 * is wanted. */
bool command_options_read(Options *options, Command command, int argument_count, char **arguments,
                          Diagnostics *diagnostics);
/* One screen: what the command does, examples, its common options. `all`: all options, in groups. */
void command_print_help(Command command, bool all, FILE *stream);
/* Hints come from libraries that several commands share. One about an option that this command does not take is made to
 * name a command that does ("for skycc compile: ..."), in the diagnostics' arena. */
void command_fit_hints(Command command, Diagnostics *diagnostics);

#endif
