/* The command line of skycc: its commands, their options, and what the user said. option_table.c has a row per
 * option, command_table.c one per command. */
#ifndef DRIVER_OPTIONS_OPTIONS_H
#define DRIVER_OPTIONS_OPTIONS_H

#include "base/options.h"
#include "driver/federate/federation_plans.h"
#include "driver/compile/emit_programs.h"
#include "driver/compile/plan_model.h"
#include "driver/compile/weights.h"
#include "driver/finetune/decide.h"
#include "driver/predict/generate.h"
#include "frontend/huggingface/head.h"
#include "frontend/text/text_dataset.h"
#include "models/bert.h"

/* Every command once. `name` is that of its function, name_command (driver/commands/commands.h). */
#define SKYCC_COMMANDS(X)                                                                                              \
    X(FINETUNE, finetune)                                                                                              \
    X(CHECK, check)                                                                                                    \
    X(BERT, bert)                                                                                                      \
    X(COMPILE, compile)                                                                                                \
    X(PROBE, probe)                                                                                                    \
    X(PLAN, plan)                                                                                                      \
    X(EXPLAIN, explain)                                                                                                \
    X(DIFF, diff)                                                                                                      \
    X(VERIFY, verify)                                                                                                  \
    X(PLOT, plot)                                                                                                      \
    X(RUN, run)                                                                                                        \
    X(EXPORT, export)                                                                                                  \
    X(TOKENIZE, tokenize)                                                                                              \
    X(IMPORT, import)                                                                                                  \
    X(HEAD, head)                                                                                                      \
    X(PREDICT, predict)                                                                                                \
    X(EVALUATE, evaluate)                                                                                              \
    X(KEY, key)                                                                                                        \
    X(FEDERATE, federate)                                                                                              \
    X(COORDINATE, coordinate)                                                                                          \
    X(DEPLOY, deploy)

#define SKYCC_COMMAND_ENUMERATOR(NAME, name) COMMAND_##NAME,
typedef enum Command { SKYCC_COMMANDS(SKYCC_COMMAND_ENUMERATOR) COMMAND_COUNT } Command;

/* What the user said. Each command reads the fields of its own options. A path, name or text is NULL if it was not
 * given. */
typedef struct Options {
    Arena arena; /* of lists and of what readers make */
    bool help, help_all, verbose, quiet, json, force;
    bool alone; /* compile for a federation: DIR is copied to a site without the model's file */
    /* Files that a command reads and writes. */
    const char *model, *checkpoint, *costs, *trace;
    const char *plans[2]; /* the plan to read; for diff the old and the new one */
    const char *output, *report, *depfile, *adapter;
    TextList inputs, tables;
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
    int import_weights; /* a WeightSource */
    const char *folder; /* of Hugging Face: read by import, made by export */
    const char *source, *labels;
    const char *gguf, *gguf_type; /* of export; the type NULL: f16 */
    Head head;
    bool as_is; /* skycc head keeps the head that is there; export writes ONNX into the folder */
    const char *vocabulary, *tokenizer, *task;
    const char *chat_template, *end_of_text, *train_on; /* of conversations; NULL: by the tokenizer */
    bool cased, multi_label;
    DatasetOptions dataset;
    /* What predict is asked for. */
    const char *texts[2], *data;
    GenerateOptions generate; /* prompt NULL: nothing is generated */
    const char *key;          /* the name of a pair of keys; for coordinate and probe the secret key's file */
    const char *site;         /* for probe: whose links are measured; NULL: measure machines */
    bool lists_devices;       /* probe does nothing else */
    double patience_s;        /* for other sites */
    const char *federation, *listen, *csv;
    bool goes_back; /* skycc coordinate, to from_round */
    int64_t from_round;
    const char *amend;   /* a change to a federation that runs */
    const char *follows; /* the directory of the coordinator whose federation continues */
    FederationWishes federation_wishes;
    /* Of deploy, besides `folder` and `data`. */
    bool check;
    const char *destination, *collected, *ssh;
    FinetuneOptions finetune;
} Options;

typedef struct CommandText {
    const char *name, *summary; /* "plan", one line for skycc --help */
    const char *synopsis[5];    /* NULL after the last; --help prints three */
    const char *description;    /* sentences for --help, --help-all and the manual page */
    const char *examples[4];    /* command lines of at most 78 characters; NULL after the last */
    const char *more;           /* sentences after the description, not for --help; NULL: none */
} CommandText;

extern const CommandText command_texts[COMMAND_COUNT];

/* The rows of option_table.c that the command takes; the hint is in the arena. */
OptionSet command_options(Command command, Arena *arena);
/* Free the options' arena in any case. Returns true also if help is wanted; otherwise false after reporting every
 * error (EXIT_USAGE). */
bool command_options_read(Options *options, Command command, int argument_count, char **arguments,
                          Diagnostics *diagnostics);
/* One screen of 24 lines with description, examples and common options; `all`: all options, in groups. */
void command_print_help(Command command, bool all, FILE *stream);
/* Libraries that several commands share give hints. If one names an option that this command does not take, it is
 * prefixed with a command that does ("for skycc compile: ..."). */
void command_fit_hints(Command command, Diagnostics *diagnostics);

#endif
