/* The options of stage programs, one row each (base/options.h). To add one, add a row here and a field in
 * TrainingOptions. The manual page and the completions of DIR/train use this table too. */
#include "runtime/train/training_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define FIELD(field) OPTION_FIELD(TrainingOptions, field)

/* The values of --metric and --keep-best. */
#define METRICS                                                                                                        \
    OPTION_WORDS("loss", "accuracy", "f1", "f1-macro", "f1-binary", "f1-micro", "matthews", "pearson", "spearman",     \
                 "perplexity", "exact")

enum { TRAIN = 1 }; /* the only command */
#define MOST 0x1p53 /* steps, epochs, checkpoints: exact in doubles */

static bool read_warmup(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    char *end;
    double number = strtod(value->text, &end);
    bool percent = end != value->text && strcmp(end, "%") == 0;
    options->warmup.share = percent ? number / 100 : 0;
    options->warmup.steps = 0;
    if (percent && number >= 0 && number <= 100) return true;
    if (!percent && end != value->text && !*end && number >= 0 && number == floor(number))
        return option_read_integer(value, &options->warmup.steps);
    return option_refuse(value, "a number of steps, or a share of them such as 10%");
}

enum { BIAS = 1, NORM = 2 }; /* SkyParameter.decay_exempt_class */

static bool read_no_decay(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    options->no_decay = 0;
    if (strcmp(value->text, "none") == 0) return true;
    for (const char *item = value->text; *item;) {
        size_t length = strcspn(item, ",");
        if (length == 4 && memcmp(item, "bias", 4) == 0)
            options->no_decay |= 1u << BIAS;
        else if (length == 4 && memcmp(item, "norm", 4) == 0)
            options->no_decay |= 1u << NORM;
        else
            return option_refuse(value, "a list of bias and norm, or none");
        item += length;
        if (*item == ',') item++;
    }
    return true;
}

static bool read_rate(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    const char *equals = strrchr(value->text, '=');
    char *end;
    double rate = strtod(equals ? equals + 1 : value->text, &end);
    bool read = end != (equals ? equals + 1 : value->text) && !*end && rate >= 0 && rate <= 1e30;
    if (!read || equals == value->text) return option_refuse(value, "a number from 0 on, or PATTERN=NUMBER");
    if (!equals) {
        options->lr.base = rate;
        return true;
    }
    RateRule *all = arena_new_array(value->arena, RateRule, options->rate_count + 1);
    if (options->rate_count) memcpy(all, options->rates, options->rate_count * sizeof *all);
    const char *pattern = arena_string_n(value->arena, value->text, (size_t)(equals - value->text));
    all[options->rate_count++] = (RateRule){pattern, rate};
    const Hash rules = hash_extend((Hash){0, options->lr.rules}, pattern, strlen(pattern));
    options->lr.rules = hash_extend(rules, &rate, sizeof rate).low;
    options->rates = all;
    return true;
}

static bool read_metrics(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    F1Kind *f1 = &options->metrics.f1, before = F1_BY_CLASSES;
    for (const char *item = value->text; *item;) {
        size_t length = strcspn(item, ",");
        Metric metric = metric_find(item, length, f1);
        if (metric == METRIC_COUNT) return option_refuse(value, "a list of metrics that --help names");
        if (before != F1_BY_CLASSES && *f1 != before)
            return option_refuse(value, "one of f1-macro, f1-binary and f1-micro");
        before = *f1;
        options->metrics.metrics |= 1u << metric;
        item += length;
        if (*item == ',') item++;
    }
    return true;
}

static bool read_keep_best(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    F1Kind f1 = F1_BY_CLASSES;
    options->keep_best = metric_find(value->text, strlen(value->text), &f1);
    if (options->keep_best == METRIC_COUNT) return option_refuse(value, NULL);
    if (f1 != F1_BY_CLASSES && options->metrics.f1 != F1_BY_CLASSES && options->metrics.f1 != f1)
        return option_refuse(value, "one of f1-macro, f1-binary and f1-micro");
    if (f1 != F1_BY_CLASSES) options->metrics.f1 = f1;
    return true;
}

static bool read_seed(const OptionValue *value)
{
    TrainingOptions *options = value->values;
    options->seed_given = true;
    return option_read_integer(value, &options->seed);
}

static const Option rows[] = {
    {"data", 0, "FILE", TRAIN, OPTION_FILE, FIELD(data), .required = TRAIN,
     .help = "training data (safetensors, as `skycc tokenize` writes it)",
     .detail = "Training data, as *skycc tokenize* writes it."},
    {"eval-data", 0, "FILE", TRAIN, OPTION_FILE, FIELD(eval_data), .agreed = true,
     .help = "evaluate on this data after every epoch and at the end",
     .detail =
         "Evaluate on this data after every epoch and at the end. If an evaluation is not finite, the run ends with "
         "exit code 7 after it has saved. Its labels are compared with those of *--data* by their names; if they "
         "are numbered otherwise, skycc takes the numbers of *--data*."},
    {"eval-every", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(eval_every), .agreed = true,
     .help = "evaluate after every N steps instead, and at the end"},
    {"proximal", 0, "X", TRAIN, OPTION_NUMBER, 0, 1e6, FIELD(proximal), .agreed = true,
     .help = "add X times the way from --proximal-start to gradients (FedProx; a federation says it to its sites)"},
    {"proximal-start", 0, "FILE", TRAIN, OPTION_FILE, FIELD(proximal_start), .agreed = true, .path = OPTION_PATH_HOST,
     .help = "the parameters near which --proximal keeps the steps (safetensors)"},
    {"control", 0, "FILE", TRAIN, OPTION_FILE, FIELD(control), .agreed = true, .path = OPTION_PATH_HOST,
     .help = "correct steps by this control variate and that of --proximal-start (a federation says it to its sites)"},
    {"eval-first", 0, "FILE", TRAIN, OPTION_FILE, FIELD(eval_first), .agreed = true, .path = OPTION_PATH_FIRST,
     .help = "evaluate before the first step too, and write to FILE what was measured",
     .detail =
         "Evaluate before the first step too, and write to _FILE_ a line for each metric: its name and its value. "
         "A site of a federation knows by it how good the model of the round is for its own rows."},
    {"metric", 0, "LIST", TRAIN, OPTION_TEXT, FIELD(metrics), .agreed = true, .read = read_metrics, .choices = METRICS,
     .help = "metrics besides the loss: accuracy, f1, f1-macro, f1-binary, f1-micro, matthews, pearson, spearman, "
             "perplexity, exact (default: as the labels suggest)",
     .detail =
         "Metrics besides the loss, separated by commas. For labels that are classes: *accuracy*, *f1* (of class 1 "
         "with "
         "two classes, else the mean over the classes that occur), *f1-macro* (always that mean), *f1-binary*, "
         "*f1-micro* (from the counts of all classes together), *matthews*, *perplexity* (e to the loss). For numbers: "
         "*pearson* and *spearman* (with several numbers a row, the mean over them). With *--loss bce*, a label is "
         "predicted where its probability is above a half: with one label a row *accuracy*, *f1*, *f1-macro*, "
         "*f1-binary*, *f1-micro* and *matthews* are those of two classes; with several, *accuracy* is the share of "
         "rows "
         "with all labels right, *f1* is *f1-micro*, and *f1-macro* is the mean over all labels. All labels count "
         "alike, "
         "whatever their weight in the loss. Where labels are tags of entities (*B-PER*, *I-PER*, *O*), *f1* is that "
         "of "
         "whole entities. For answers of *skycc tokenize --task qa*, *exact* is the share of questions whose best "
         "answer "
         "over all windows is a right one, and *f1* the mean over questions of the F1 of its words, as SQuAD's script "
         "has them. For two embeddings a row, *accuracy* is the share of rows whose partner is the nearest of its "
         "batch. "
         "Default: all that apply, but *perplexity* only with more than 256 classes "
         "(words), *f1* and *matthews* only with at most 256."},
    {"keep-best", 0, "METRIC", TRAIN, OPTION_TEXT, FIELD(keep_best), .agreed = true, .read = read_keep_best,
     .choices = METRICS, .help = "keep the checkpoint of the best evaluation in DIR/best of --checkpoint",
     .detail =
         "After each evaluation in which _METRIC_ is better than ever before, write a checkpoint to the directory "
         "*best* inside that of *--checkpoint*. It replaces the one before; *--keep* does not touch it."},
    {"patience", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(patience), .agreed = true,
     .help = "end after N evaluations in a row without a better --keep-best METRIC (without it: loss)",
     .detail =
         "End after _N_ evaluations in a row in which the metric of *--keep-best* (without that option: the loss) "
         "is not better than ever before. *--resume* goes on counting, unless *--eval-data* has other content than "
         "before: then the next evaluation is the first."},
    {"steps", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(steps), .agreed = true, .help = "train for N steps"},
    {"epochs", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(epochs), .agreed = true,
     .help = "train for N passes over the data (default 1)",
     .detail = "Train for _N_ passes over the data (default 1). The last batch of a pass may have fewer rows than the "
               "others."},
    {"until-loss", 0, "X", TRAIN, OPTION_NUMBER, -INFINITY, INFINITY, FIELD(until_loss), .agreed = true,
     .help = "stop after the first step whose loss is at most X"},
    {"lr", 0, "[PATTERN=]X", TRAIN, OPTION_TEXT, FIELD(lr), .agreed = true, .read = read_rate,
     .help = "learning rate (default: as compiled), or that of parameters whose name matches",
     .detail =
         "Learning rate (default: as compiled). With a pattern: the rate of parameters whose name, or place in the "
         "model, matches. A pattern without wildcards means one or more components between dots. May be repeated: "
         "the last pattern that matches counts. All rates follow the same schedule."},
    {"lr-decay", 0, "X", TRAIN, OPTION_NUMBER, 0, 1, FIELD(lr_decay), .agreed = true, .initial = "1",
     .help = "multiply the learning rate of a block by X for every block after it",
     .detail = "Multiply the learning rate of a block by _X_ for every block after it, and for the head. With 0.9 and "
               "twelve blocks the last block gets 0.9 times the rate, and the embeddings get 0.9 to the power of 13."},
    {"schedule-lr", 0, "KIND", TRAIN, OPTION_CHOICE, FIELD(schedule), .agreed = true,
     .choices = OPTION_WORDS("constant", "linear", "cosine"),
     .help = "constant, linear or cosine decay to 0 at the last step (default linear)",
     .detail =
         "*constant*, or *linear* or *cosine* decay to 0 at the last step. Default: *linear*; with *--until-loss* "
         "and neither *--steps* nor *--epochs*: *constant*."},
    {"schedule-steps", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(schedule_steps), .agreed = true,
     .help = "the learning rate reaches its end after N steps, whenever training ends",
     .detail =
         "The learning rate reaches its end after _N_ steps, whenever training ends. Default: the last step; after "
         "*--resume* the step in the checkpoint."},
    {"stop-after", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(stop_after), .agreed = true,
     .help = "save and end after step N; --resume goes on as if nothing had happened",
     .detail =
         "Save and end after step _N_, without the evaluation of a last step. The same options with *--resume* go "
         "on: both parts together give the bits of one run."},
    {"go-on", 0, "FILE", TRAIN, OPTION_FILE, FIELD(go_on), .agreed = true,
     .help = "do not end after --stop-after: wait for the next round (a federation says it to its sites)",
     .detail =
         "Do not end after *--stop-after*. Wait until _FILE_ has a line with two numbers: a step, which this run has "
         "reached, and a later one. Then take the values of *--round-start*, and train up to the later step. Two "
         "numbers that are -1 end the run. A federation says this to its sites."},
    {"round-start", 0, "FILE", TRAIN, OPTION_FILE, FIELD(round_start), .agreed = true, .path = OPTION_PATH_HOST,
     .help = "the values that a round begins with, if they are of this step (a federation says it to its sites)"},
    {"warmup", 0, "N|P%", TRAIN, OPTION_INTEGER, 0, MOST, FIELD(warmup), .agreed = true, .read = read_warmup,
     .help = "raise the learning rate over the first N steps, or P percent of them (default 10%)",
     .detail =
         "Raise the learning rate over the first _N_ steps, or _P_ percent of the schedule's, rounded up. Step 1 has "
         "rate 0 then, and step _N_ + 1 the full rate, as in the Hugging Face Trainer. Default: 10%; with "
         "*--until-loss* and neither *--steps* nor *--epochs*: 100 steps."},
    {"weight-decay", 0, "X", TRAIN, OPTION_NUMBER, 0, INFINITY, FIELD(weight_decay), .agreed = true,
     .help = "weight decay (default: as compiled)"},
    {"no-decay", 0, "LIST", TRAIN, OPTION_TEXT, FIELD(no_decay), .agreed = true, .read = read_no_decay,
     .choices = OPTION_WORDS("bias", "norm", "bias,norm", "none"),
     .help = "parameters without weight decay: bias, norm, none (default bias,norm)",
     .detail = "Parameters without weight decay: *bias*, *norm*, both with a comma (default), or *none*."},
    {"clip", 0, "X", TRAIN, OPTION_NUMBER, 0, INFINITY, FIELD(clip), .agreed = true,
     .help = "clip the norm of the whole gradient at X; 0: do not clip (default: as compiled, else 1)"},
    {"skip-nonfinite", 0, "N", TRAIN, OPTION_INTEGER, 0, MOST, FIELD(skip_nonfinite), .agreed = true,
     .help = "skip steps whose gradient is not finite, at most N in a row (default 0)",
     .detail =
         "If the gradient of a step is not finite, update nothing on any rank, warn and go on. After _N_ such steps "
         "in a row the next one ends training with exit code 7. A skipped step uses up its rows and its place in "
         "the learning rate's schedule, and its loss is in the log; Adam's bias correction does not count it. "
         "*--resume* counts from 0 again. Default 0: the first one ends training."},
    {"seed", 0, "N", TRAIN, OPTION_INTEGER, 0, INFINITY, FIELD(seed), .agreed = true, .read = read_seed,
     .help = "seed of the order of the data and of dropout (default 0)"},
    {"no-shuffle", 0, NULL, TRAIN, OPTION_FLAG, FIELD(no_shuffle), .agreed = true,
     .help = "use the rows in the order of the file"},
    {"checkpoint", 0, "DIR", TRAIN, OPTION_DIRECTORY, FIELD(checkpoint), .agreed = true, .path = OPTION_PATH_HOST,
     .help = "write a checkpoint to DIR at the end",
     .detail =
         "Write a checkpoint to _DIR_ at the end. Without this option nothing of the training is kept. The directory "
         "is locked during the run: a second run there is "
         "refused after some seconds. All ranks of a host must name the same directory. If the two runs have no host "
         "in common, this needs a file system that shares "
         "locks, such as NFS."},
    {"checkpoint-every", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(checkpoint_every), .agreed = true,
     .help = "and after every N steps",
     .detail =
         "And after every _N_ steps. Training goes on while such a checkpoint is written, from a copy, if the memory "
         "limit of every device leaves room for it: values and optimiser states once more. It is complete a few "
         "steps later. Without that room training waits for it, as it does at the end."},
    {"keep", 0, "N", TRAIN, OPTION_INTEGER, 1, MOST, FIELD(keep), .agreed = true,
     .help = "keep only the N newest checkpoints", .detail = "Keep only the _N_ newest checkpoints, on every host."},
    {"resume", 0, NULL, TRAIN, OPTION_FLAG, FIELD(resume), .agreed = true,
     .help = "go on from the newest checkpoint in the --checkpoint directory, if there is one",
     .detail =
         "Go on from the newest checkpoint in the *--checkpoint* directory, if there is one. Damaged ones are named "
         "and passed over. The checkpoint may come from another plan. If the data is not what it was made with, a "
         "warning says so, and the data is used from its beginning."},
    {"log", 0, "FILE", TRAIN, OPTION_FILE, FIELD(log), .path = OPTION_PATH_FIRST,
     .help = "write loss and speed of every step as CSV",
     .detail = "Write a CSV row per step: loss, learning rate, time, throughput, tokens computed with padding, tokens "
               "without padding (empty if the data does not say), and the metrics of the evaluation after the step, if "
               "there was one. Rows that cannot be written are kept and written later; if rows are lost, the exit code "
               "is 1. See *skycc plot*."},
    {"tensorboard", 0, "DIR", TRAIN, OPTION_DIRECTORY, FIELD(tensorboard), .path = OPTION_PATH_FIRST,
     .help = "write losses, rates, speed and metrics for TensorBoard to DIR",
     .detail = "Write an event file for TensorBoard to _DIR_: loss, learning rate and throughput of every step (as "
               "*train/...*), the metrics of every evaluation (as *eval/...*). A run that is resumed adds a file."},
    {"trace", 0, "FILE", TRAIN, OPTION_FILE, FIELD(trace), .agreed = true, .path = OPTION_PATH_FIRST,
     .help = "write what every rank did when (Chrome trace JSON)",
     .detail =
         "Write what every rank did when, as Chrome trace JSON, and the parts of every step, which add up to all of "
         "its time; see *skycc explain*. A trace has room for 4194304 events a rank, or as many as the environment "
         "variable *SKYCC_TRACE_EVENTS* says; one that becomes full says so."},
    {"emulate", 0, NULL, TRAIN, OPTION_FLAG, FIELD(emulate), .agreed = true,
     .help = "take as long as the devices' slowdown and the plan's links say",
     .detail =
         "Take as long as the devices' slowdown says and, with all ranks on one host, the plan's links. With too few "
         "cores for that, the end of the run says how late it was."},
    {"timeout", 0, "SECONDS", TRAIN, OPTION_NUMBER, 0, INFINITY, FIELD(timeout), .initial = "600",
     .help = "end the run if a rank does not answer for so long; 0: never",
     .detail = "End the run if a rank does not answer for so long; 0: never. It is named after 30 seconds of silence "
               "(after half of _SECONDS_ below a minute), and ever more rarely after that. Another host that does not "
               "answer ssh for about 20 seconds ends the run at once, with its name."},
    {"retries", 0, "N", TRAIN, OPTION_INTEGER, 0, MOST, FIELD(retries), .whole = true,
     .help = "start a failed run again up to N times, from its newest checkpoint"},
    {"join", 0, NULL, TRAIN, OPTION_FLAG, FIELD(join), .whole = true,
     .help = "of a site of a federation: train and meet the others until its last round; needs --checkpoint",
     .detail =
         "For a site of a federation (*skycc federate*): train on this site's data and meet the other sites until "
         "the last round. Needs *--checkpoint*. The federation says how long to train and from where. A site that "
         "is started again goes on."},
    {"key", 0, "FILE", TRAIN, OPTION_FILE, FIELD(key), .whole = true,
     .help = "of several sites: this one's secret key (default: SITE.key here, or what SKYCC_SITE_KEY names)",
     .detail =
         "With several sites: the secret key of this one, made by *skycc key*. Default: _SITE.key_ in the current "
         "directory, or the file that the environment variable *SKYCC_SITE_KEY* names."},
    {"site-timeout", 0, "SECONDS", TRAIN, OPTION_NUMBER, 0, INFINITY, FIELD(site_timeout), .whole = true,
     .help = "of several sites: end when another has been away for so long; 0: wait for it (default)"},
    {"audit", 0, "FILE", TRAIN, OPTION_FILE, FIELD(audit), .whole = true,
     .help = "of several sites: write to FILE what crossed between this one and the others",
     .detail =
         "With several sites: write to _FILE_ what crossed between this one and the others, as its gateway counted "
         "it: every tensor of the plan, and everything else by class. A _FILE_ from an earlier start of the same "
         "compilation is continued. *skycc verify --audit* compares it with the plan."},
    {"insecure", 0, NULL, TRAIN, OPTION_FLAG, FIELD(insecure), .whole = true,
     .help = "start ranks on hosts with public addresses too, although nothing that they send is encrypted",
     .detail = "Start ranks on hosts with public addresses too, although nothing that they send is encrypted: whoever "
               "is between the hosts can read and change it."},
    {"quiet", 0, NULL, TRAIN, OPTION_FLAG, FIELD(quiet), .help = "print nothing but errors"},
    {"help", 0, NULL, TRAIN, OPTION_FLAG, FIELD(help), .help = "print this"},
};

const OptionSet training_option_set = {rows, sizeof rows / sizeof *rows, TRAIN, "--help lists all options", NULL};

void training_options_print_help(FILE *stream)
{
    fputs("usage: train --data FILE [options]\n", stream);
    options_print_help(&training_option_set, true, stream);
}

char **training_options_with_environment(Arena *arena, int *argument_count, char **arguments)
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

/* Refuses combinations that make no sense. */
static bool check(const TrainingOptions *options, Diagnostics *diagnostics)
{
    const char *problem = NULL;
    bool watches = options->keep_best != METRIC_COUNT;
    bool decays = options->schedule == SCHEDULE_LINEAR || options->schedule == SCHEDULE_COSINE;
    if (options->steps && options->epochs)
        problem = "give --steps or --epochs, not both";
    else if (!options->checkpoint && (options->checkpoint_every || options->keep || options->resume))
        problem = "--checkpoint-every, --keep and --resume need --checkpoint DIR";
    else if ((options->proximal > 0 || options->control) != (options->proximal_start != NULL))
        problem = "--proximal X or --control FILE go with --proximal-start FILE";
    else if (!options->eval_data &&
             (options->eval_every || options->eval_first || options->metrics.metrics || watches || options->patience))
        problem = "--eval-every, --eval-first, --metric, --keep-best and --patience need --eval-data FILE";
    else if (watches && !options->checkpoint)
        problem = "--keep-best needs --checkpoint DIR";
    else if ((decays || options->warmup.share > 0) && !isnan(options->until_loss) && !options->steps &&
             !options->epochs && !options->schedule_steps)
        problem = "a learning rate that depends on the last step needs --steps, --epochs or --schedule-steps besides "
                  "--until-loss";
    else if (options->stop_after && !options->checkpoint)
        problem = "--stop-after needs --checkpoint DIR, to go on from";
    else if (options->go_on && (!options->stop_after || !options->round_start))
        problem = "--go-on FILE needs --stop-after N and --round-start FILE";
    else if (options->round_start && !options->resume)
        problem = "--round-start FILE needs --resume: it is for the step of a checkpoint";
    if (!problem) return true;
    return usage_error(diagnostics, "--help lists all options", "%s", problem);
}

bool training_options_suit(const TrainingOptions *options, const SkyProgram *program, Diagnostics *diagnostics)
{
    if (options->join)
        return usage_error(diagnostics, "start DIR/SITE/train --join",
                           "--join is an option of the train script, not of the programs that it starts");
    if (options->retries && !getenv("SKYCC_TERMINAL")) /* which the script sets */
        diagnostics_warning(
            diagnostics, PLACE_NONE, "start DIR/train",
            "--retries: only the train script starts a failed run again, and it did not start this one");
    if (program->site_count < 2) {
        const char *given = options->key                ? "--key"
                            : options->site_timeout > 0 ? "--site-timeout"
                            : options->audit            ? "--audit"
                                                        : NULL;
        return !given || usage_error(diagnostics, "the cluster file names sites",
                                     "%s needs several sites, and these programs are of one", given);
    }
    return (options->checkpoint && options->checkpoint_every) ||
           usage_error(diagnostics, "when a site is lost, all go on from the newest checkpoint that every site has",
                       "several sites need --checkpoint DIR and --checkpoint-every N");
}

bool training_options_parse(TrainingOptions *options, int argument_count, char **arguments, Arena *arena,
                            Diagnostics *diagnostics)
{
    *options = (TrainingOptions){.until_loss = NAN,
                                 .lr.base = NAN,
                                 .weight_decay = NAN,
                                 .keep_best = METRIC_COUNT,
                                 .clip = NAN,
                                 .schedule = SCHEDULE_COUNT,
                                 .warmup.steps = -1,
                                 .no_decay = 1u << BIAS | 1u << NORM};
    bool ok = options_parse(&training_option_set, argument_count, arguments, options, arena, diagnostics) &&
              check(options, diagnostics);
    if (options->help) diagnostics_free(diagnostics);
    return ok || options->help;
}
