#include "runtime/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_SECONDS = 600 };

typedef enum OptionId {
    OPTION_DATA = 1,
    OPTION_EVAL_DATA,
    OPTION_STEPS,
    OPTION_EPOCHS,
    OPTION_UNTIL_LOSS,
    OPTION_LEARNING_RATE,
    OPTION_SCHEDULE,
    OPTION_WARMUP,
    OPTION_WEIGHT_DECAY,
    OPTION_NO_DECAY,
    OPTION_CLIP,
    OPTION_SEED,
    OPTION_NO_SHUFFLE,
    OPTION_CHECKPOINT,
    OPTION_CHECKPOINT_EVERY,
    OPTION_KEEP,
    OPTION_RESUME,
    OPTION_LOG,
    OPTION_TRACE,
    OPTION_EMULATE,
    OPTION_TIMEOUT,
    OPTION_RETRIES,
    OPTION_QUIET,
    OPTION_HELP
} OptionId;

static const struct {
    OptionId id;
    const char *name, *argument, *help;
} table[] = {
    {OPTION_DATA, "data", "FILE", "training data (safetensors, as `skycc tokenize` writes it)"},
    {OPTION_EVAL_DATA, "eval-data", "FILE", "evaluate on this data after every epoch and at the end"},
    {OPTION_STEPS, "steps", "N", "train for N steps"},
    {OPTION_EPOCHS, "epochs", "N", "train for N passes over the data (default 1)"},
    {OPTION_UNTIL_LOSS, "until-loss", "X", "stop after the first step whose loss is at most X"},
    {OPTION_LEARNING_RATE, "lr", "X", "learning rate (default: as compiled)"},
    {OPTION_SCHEDULE, "schedule-lr", "KIND", "constant (default), linear or cosine decay to 0 at the last step"},
    {OPTION_WARMUP, "warmup", "N|P%", "raise the learning rate over the first N steps, or P percent of them"},
    {OPTION_WEIGHT_DECAY, "weight-decay", "X", "weight decay (default: as compiled)"},
    {OPTION_NO_DECAY, "no-decay", "LIST", "classes of parameters that do not decay: bias, norm, or both with a comma"},
    {OPTION_CLIP, "clip", "X", "scale gradients so that the norm of all of them is at most X"},
    {OPTION_SEED, "seed", "N", "seed of the order of the data and of dropout (default 0)"},
    {OPTION_NO_SHUFFLE, "no-shuffle", NULL, "use the rows in the order of the file"},
    {OPTION_CHECKPOINT, "checkpoint", "DIR", "write a checkpoint to DIR at the end"},
    {OPTION_CHECKPOINT_EVERY, "checkpoint-every", "N", "and after every N steps"},
    {OPTION_KEEP, "keep", "N", "keep only the N newest checkpoints"},
    {OPTION_RESUME, "resume", NULL, "go on from the newest checkpoint in the --checkpoint directory, if there is one"},
    {OPTION_LOG, "log", "FILE", "write loss and speed of every step as CSV"},
    {OPTION_TRACE, "trace", "FILE", "write what every rank did when (Chrome trace JSON)"},
    {OPTION_EMULATE, "emulate", NULL, "take as long as the devices' slowdown and the plan's links say"},
    {OPTION_TIMEOUT, "timeout", "SECONDS",
     "fail when another rank does not answer for so long (default 600, 0: never)"},
    {OPTION_RETRIES, "retries", "N", "start a failed run again up to N times, from its newest checkpoint"},
    {OPTION_QUIET, "quiet", NULL, "print nothing but errors"},
    {OPTION_HELP, "help", NULL, "print this"},
};
enum { OPTION_COUNT = sizeof table / sizeof *table };

void options_print_help(FILE *stream)
{
    fputs("usage: train --data FILE [options]\n", stream);
    for (int i = 0; i < OPTION_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        fprintf(stream, "  %-24s %s\n", left, table[i].help);
    }
}

static const char *name_of(OptionId id)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (table[i].id == id) return table[i].name;
    bug("option %d has no name", (int)id);
}

static bool misuse(OptionId id, const char *value, const char *wanted, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL, "--%s %s: %s is wanted", name_of(id), value,
                             wanted);
}

static bool read_integer(OptionId id, const char *text, int64_t least, int64_t *value, Diagnostics *diagnostics)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || number < least)
        return misuse(id, text, least > 0 ? "a positive integer" : "an integer of at least 0", diagnostics);
    *value = number;
    return true;
}

static bool read_number(OptionId id, const char *text, bool may_be_negative, double *value, Diagnostics *diagnostics)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number) || (number < 0 && !may_be_negative))
        return misuse(id, text, may_be_negative ? "a number" : "a number of at least 0", diagnostics);
    *value = number;
    return true;
}

static bool read_schedule(const char *text, ScheduleKind *kind, Diagnostics *diagnostics)
{
    for (ScheduleKind k = SCHEDULE_CONSTANT; k < SCHEDULE_COUNT; k++)
        if (strcmp(text, schedule_name(k)) == 0) {
            *kind = k;
            return true;
        }
    return misuse(OPTION_SCHEDULE, text, "constant, linear or cosine", diagnostics);
}

static bool read_warmup(const char *text, RunOptions *options, Diagnostics *diagnostics)
{
    char *end;
    double percent = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0)
        return read_integer(OPTION_WARMUP, text, 0, &options->warmup_steps, diagnostics);
    if (!(percent >= 0 && percent <= 100)) return misuse(OPTION_WARMUP, text, "0% to 100%", diagnostics);
    options->warmup_share = percent / 100;
    return true;
}

static bool read_no_decay(const char *text, uint32_t *classes, Diagnostics *diagnostics)
{
    enum { BIAS = 1, NORM = 2 }; /* SkyParameter.decay_exempt_class */
    for (const char *item = text; *item;) {
        size_t length = strcspn(item, ",");
        if (length == 4 && memcmp(item, "bias", 4) == 0)
            *classes |= 1u << BIAS;
        else if (length == 4 && memcmp(item, "norm", 4) == 0)
            *classes |= 1u << NORM;
        else
            return misuse(OPTION_NO_DECAY, text, "a list of bias and norm", diagnostics);
        item += length;
        if (*item == ',') item++;
    }
    return true;
}

static bool read_seed(const char *text, RunOptions *options, Diagnostics *diagnostics)
{
    char *end;
    errno = 0;
    options->seed = strtoull(text, &end, 10);
    options->seed_given = true;
    if (errno || end == text || *end || strchr(text, '-'))
        return misuse(OPTION_SEED, text, "an integer of at least 0", diagnostics);
    return true;
}

static bool accept(RunOptions *o, OptionId id, const char *text, Diagnostics *diagnostics)
{
    int64_t ignored; /* retries are the launcher's */
    switch (id) {
    case OPTION_DATA: o->data = text; return true;
    case OPTION_EVAL_DATA: o->eval_data = text; return true;
    case OPTION_STEPS: return read_integer(id, text, 1, &o->steps, diagnostics);
    case OPTION_EPOCHS: return read_integer(id, text, 1, &o->epochs, diagnostics);
    case OPTION_UNTIL_LOSS: return read_number(id, text, true, &o->until_loss, diagnostics);
    case OPTION_LEARNING_RATE: return read_number(id, text, false, &o->learning_rate, diagnostics);
    case OPTION_SCHEDULE: return read_schedule(text, &o->schedule, diagnostics);
    case OPTION_WARMUP: return read_warmup(text, o, diagnostics);
    case OPTION_WEIGHT_DECAY: return read_number(id, text, false, &o->weight_decay, diagnostics);
    case OPTION_NO_DECAY: return read_no_decay(text, &o->no_decay, diagnostics);
    case OPTION_CLIP: return read_number(id, text, false, &o->clip, diagnostics);
    case OPTION_SEED: return read_seed(text, o, diagnostics);
    case OPTION_NO_SHUFFLE: o->no_shuffle = true; return true;
    case OPTION_CHECKPOINT: o->checkpoint = text; return true;
    case OPTION_CHECKPOINT_EVERY: return read_integer(id, text, 1, &o->checkpoint_every, diagnostics);
    case OPTION_KEEP: return read_integer(id, text, 1, &o->keep, diagnostics);
    case OPTION_RESUME: o->resume = true; return true;
    case OPTION_LOG: o->log = text; return true;
    case OPTION_TRACE: o->trace = text; return true;
    case OPTION_EMULATE: o->emulate = true; return true;
    case OPTION_TIMEOUT: return read_number(id, text, false, &o->timeout, diagnostics);
    case OPTION_RETRIES: return read_integer(id, text, 0, &ignored, diagnostics);
    case OPTION_QUIET: o->quiet = true; return true;
    case OPTION_HELP: o->help = true; return true;
    }
    bug("option %d is not handled", (int)id);
}

char **options_with_environment(Arena *arena, int *argument_count, char **arguments)
{
    const char *environment = getenv("SKYCC_OPTIONS");
    if (!environment) return arguments;
    char *words = arena_string(arena, environment);
    const char *separators = strchr(words, '\n') ? "\n" : " \t";
    char **all = arena_new_array(arena, char *, strlen(words) + (size_t)*argument_count + 1);
    int count = 0;
    all[count++] = arguments[0];
    for (char *word = strtok(words, separators); word; word = strtok(NULL, separators)) all[count++] = word;
    for (int i = 1; i < *argument_count; i++) all[count++] = arguments[i];
    *argument_count = count;
    return all;
}

/* Combinations that cannot be meant. */
static bool check(const RunOptions *options, Diagnostics *diagnostics)
{
    const char *problem = NULL;
    if (!options->data)
        problem = "--data FILE is missing";
    else if (options->steps && options->epochs)
        problem = "give --steps or --epochs, not both";
    else if (!options->checkpoint && (options->checkpoint_every || options->keep || options->resume))
        problem = "--checkpoint-every, --keep and --resume need --checkpoint DIR";
    else if ((options->schedule != SCHEDULE_CONSTANT || options->warmup_share > 0) && !isnan(options->until_loss) &&
             !options->steps && !options->epochs)
        problem = "a learning rate that depends on the last step needs --steps or --epochs besides --until-loss";
    if (!problem) return true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "--help lists all options", "%s", problem);
}

bool options_parse(RunOptions *options, int argument_count, char **arguments, Diagnostics *diagnostics)
{
    *options =
        (RunOptions){.until_loss = NAN, .learning_rate = NAN, .weight_decay = NAN, .timeout = DEFAULT_TIMEOUT_SECONDS};
    struct option long_options[OPTION_COUNT + 1] = {0};
    for (int i = 0; i < OPTION_COUNT; i++)
        long_options[i] =
            (struct option){table[i].name, table[i].argument ? required_argument : no_argument, NULL, table[i].id};
    opterr = 0; /* every rank parses: main prints once */
    optind = 0;
    bool ok = true;
    for (int id; (id = getopt_long(argument_count, arguments, ":", long_options, NULL)) != -1;) {
        if (id == '?' || id == ':') /* the argument at fault is the one just passed */
            ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "--help lists all options",
                                   id == '?' ? "%s: no such option" : "%s needs an argument", arguments[optind - 1]);
        else
            ok = accept(options, (OptionId)id, optarg, diagnostics) && ok;
    }
    if (ok && optind < argument_count) /* else it may belong to the option at fault */
        ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "--help lists all options", "'%s' is not an option",
                               arguments[optind]);
    if (options->help) return true;
    return ok && check(options, diagnostics);
}
