/* skycc finetune: from a model and a table to a trained model, by the single commands. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/input_files.h"
#include "base/json.h"
#include "base/owned_files.h"
#include "base/pending.h"
#include "base/string_map.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/commands/run_options.h"
#include "driver/finetune/model_card.h"
#include "driver/finetune/report_server.h"
#include "driver/finetune/run_report.h"
#include "driver/finetune/single_commands.h"
#include "driver/finetune/source_model.h"
#include "driver/finetune/table_check.h"
#include "driver/finetune/training.h"

typedef struct Finetuning {
    const Options *options;
    const char *run, *part; /* `part`: where the current seed's files are */
    int64_t seeds;
    bool changed;        /* programs are made anew */
    Buffer former;       /* settings.yaml before that */
    const char *dealing; /* of the former ones; NULL: there were none */
    bool trained;        /* there may be a checkpoint to go on from */
    bool unreported;     /* the page could not be written */
    StringMap warned;    /* what was warned of */
    Settings settings;
    SingleCommands commands; /* of the current seed */
} Finetuning;

/* ---- Single commands in this process ---- */

static const struct {
    Command command;
    RunCommand *run;
} runners[] = {{COMMAND_IMPORT, import_command},     {COMMAND_HEAD, head_command},
               {COMMAND_TOKENIZE, tokenize_command}, {COMMAND_COMPILE, compile_command},
               {COMMAND_EXPORT, export_command},     {COMMAND_DEPLOY, deploy_command},
               {COMMAND_EVALUATE, evaluate_command}};

/* Reads the command line and, unless it is only checked, does what it says. */
static bool run_single(const SingleCommand *command, bool only_check, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < sizeof runners / sizeof *runners; i++) {
        Options options;
        Command which = runners[i].command;
        if (strcmp(command_texts[which].name, command->words[0]) != 0) continue;
        bool ok = command_options_read(&options, which, command->count, (char **)command->words, diagnostics) &&
                  (only_check || runners[i].run(&options, diagnostics));
        arena_free(&options.arena);
        return ok;
    }
    bug("no command %s", command->words[0]);
}

/* ---- The directory ---- */

static int is_seed(const struct dirent *entry)
{
    const char *number = entry->d_name + 5;
    return strncmp(entry->d_name, "seed-", 5) == 0 && !number[strspn(number, "0123456789")];
}

/* What a former run left, or this one if it fails before it trains. Other files in the directory stay. */
static void remove_run(Finetuning *finetuning)
{
    Arena *arena = &finetuning->settings.arena;
    for (const char *const *part = run_parts; *part; part++) remove_tree(run_file(arena, finetuning->run, *part));
    FREED struct dirent **parts = NULL;
    int count = scandir(finetuning->run, &parts, is_seed, NULL);
    for (int i = 0; i < count; i++) {
        remove_tree(run_file(arena, finetuning->run, parts[i]->d_name));
        free(parts[i]);
    }
    rmdir(finetuning->run); /* unless it holds something else */
}

/* Whether the file, or a file of the folder, lies in the directory `real`, also by a link. */
static bool lies_in(const char *path, const char *real)
{
    FREED char *resolved = realpath(path, NULL);
    bool inside = resolved && path_inside(resolved, real);
    DIR *folder = inside ? NULL : opendir(path);
    for (struct dirent *entry; folder && !inside && (entry = readdir(folder));) {
        FREED char *file = directory_join(path, entry->d_name), *target = realpath(file, NULL);
        inside = target && strcmp(entry->d_name, "..") != 0 && path_inside(target, real);
    }
    if (folder) closedir(folder);
    return inside;
}

/* --force removes the former run: it must not hold what this one reads. */
static bool check_inputs(Finetuning *finetuning, Diagnostics *diagnostics)
{
    FREED char *run = realpath(finetuning->run, NULL);
    bool ok = true;
    static const SettingKey keys[] = {SETTING_MODEL, SETTING_TABLES,  SETTING_EVAL,
                                      SETTING_TEST,  SETTING_CLUSTER, SETTING_TOKENIZER};
    for (size_t i = 0; run && ok && i < sizeof keys / sizeof *keys; i++)
        for (const char *at = finetuning->settings.of[keys[i]].value; ok && at && *at; at += *at == *LIST_SEPARATOR) {
            size_t length = strcspn(at, LIST_SEPARATOR);
            const char *path = arena_string_n(&finetuning->settings.arena, at, length);
            if (lies_in(path, run))
                ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(finetuning->run),
                                       "name another directory with -o", "holds '%s', which this run reads", path);
            at += length;
        }
    return ok;
}

/* Where event files go must be, or can become, a folder that is no part of the run. */
static bool check_events(const Finetuning *finetuning, Diagnostics *diagnostics)
{
    const char *events = finetuning->settings.of[SETTING_TENSORBOARD].value;
    if (!events) return true;
    FREED char *place = path_resolve(events), *run = path_resolve(finetuning->run);
    const char *part = path_inside(place, run);
    bool ok = !part || !names_run_part(part) ||
              diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(events), "name another folder with --tensorboard",
                                "is where this run keeps a part of its own");
    struct stat status;
    while (ok && stat(place, &status) != 0 && strrchr(place, '/') > place) *strrchr(place, '/') = '\0';
    if (ok && stat(place, &status) == 0 && !S_ISDIR(status.st_mode))
        ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(events), "name another folder with --tensorboard",
                               "cannot be made a folder: %s is a file", place);
    return ok;
}

static bool check_run(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const char *run = finetuning->run;
    struct stat status;
    if (lstat(run, &status) != 0 || finetuning->options->finetune.resume) return true;
    if (!is_run(run))
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(run), "name another directory with -o",
                                 "exists and is not a run of skycc finetune");
    if (!finetuning->options->force)
        return diagnostics_error(
            diagnostics, EXIT_USAGE, PLACE_FILE(run),
            "go on with it with --resume, replace it with --force, or name another directory with -o",
            "is an earlier run");
    return check_inputs(finetuning, diagnostics);
}

static bool make_directory(const char *path, Diagnostics *diagnostics)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST || file_error(diagnostics, path, "cannot create");
}

static const char *settings_file(Finetuning *finetuning)
{
    return run_file(&finetuning->settings.arena, finetuning->run, "settings.yaml");
}

static bool read_file(const char *path, Buffer *bytes, Diagnostics *diagnostics)
{
    MappedFile file;
    if (!file_map(&file, path, diagnostics)) return false;
    buffer_append(bytes, file.bytes, file.size);
    file_unmap(&file);
    input_files_release_path(path);
    return true;
}

static bool prepare_run(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const char *run = finetuning->run;
    Arena *arena = &finetuning->settings.arena;
    bool begins = !finetuning->options->finetune.resume;
    if (begins && !source_model_remember(&finetuning->settings, diagnostics)) return false;
    if (begins && finetuning->options->force) remove_run(finetuning);
    if (!make_directory(run, diagnostics) || !make_directory(run_file(arena, run, "data"), diagnostics)) return false;
    const char *cluster = finetune_this_machine(&finetuning->settings);
    const char *place = run_file(arena, run, "cluster.yaml");
    bool decided = begins || finetuning->changed;
    if (finetuning->changed && !read_file(settings_file(finetuning), &finetuning->former, diagnostics)) return false;
    bool ok = (!decided || settings_write(&finetuning->settings, run, diagnostics)) &&
              (access(place, F_OK) == 0 || file_write_all(place, cluster, strlen(cluster), diagnostics));
    if (!ok && begins) remove_run(finetuning);
    return ok;
}

/* ---- One seed ---- */

/* The page is for people who watch: training goes on without it. */
static void report(Finetuning *finetuning, RunState state)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    bool written = run_report_write(&finetuning->settings, finetuning->run, finetuning->part, state, &diagnostics);
    if (!written && !finetuning->unreported)
        text_print(stderr, "skycc: warning: %s/report.html: %s; training goes on, and it is tried again\n",
                   finetuning->run, diagnostics.last ? diagnostics.last->message : "cannot be written");
    finetuning->unreported = !written;
}

static void watch(void *finetuning, bool ended)
{
    if (!ended) report(finetuning, RUN_TRAINS);
}

static bool train(Finetuning *finetuning, const SingleCommand *command, Diagnostics *diagnostics)
{
    int code = training_run(command, "--resume", watch, finetuning, diagnostics);
    if (code == 0) return true;
    if (diagnostics->errors) return false;
    FREED_WITH(arena_free) Arena arena = {0};
    if (code == EXIT_DIVERGED)
        return diagnostics_error(diagnostics, code, PLACE_FILE(finetuning->run),
                                 "train again with a lower --lr or a longer --warmup, and --force to replace this run",
                                 "training diverged");
    diagnostics_error(diagnostics, code, PLACE_FILE(finetuning->run),
                      code > EXIT_USAGE ? arena_format(&arena, "go on with skycc finetune --resume %s",
                                                       text_word(&arena, finetuning->run))
                                        : NULL,
                      code >= 128 ? "training was interrupted" : "training failed");
    return false;
}

/* How the plan deals the rows of a step, on which the last digits of losses depend; NULL: there is no plan. */
static const char *read_dealing(Finetuning *finetuning)
{
    Arena *arena = &finetuning->settings.arena;
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    json_t *plan = json_read(run_file(arena, finetuning->part, "programs/plan.json"), &unread), *replica;
    const char *dealing = NULL;
    size_t i;
    json_array_foreach(json_object_get(plan, "replicas"), i, replica)
    {
        long long rows = json_integer_value(json_object_get(replica, "rows")),
                  count = json_integer_value(json_object_get(replica, "microbatches"));
        dealing = arena_format(arena, "%s%s%lld in %lld micro-batch%s", dealing ? dealing : "", dealing ? " + " : "",
                               rows, count, count == 1 ? "" : "es");
    }
    json_decref(plan);
    return dealing;
}

static bool has_programs(Finetuning *finetuning)
{
    return access(run_file(&finetuning->settings.arena, finetuning->part, "programs/plan.json"), F_OK) == 0;
}

static void compare_dealing(Finetuning *finetuning)
{
    const char *dealing = read_dealing(finetuning);
    if (dealing && finetuning->dealing && strcmp(dealing, finetuning->dealing) != 0)
        text_print(stdout,
                   "dealing       rows of a step: %s, before: %s; from here on losses differ in their last digits from "
                   "those on the former devices (--replicas decides)\n",
                   dealing, finetuning->dealing);
}

/* Of what the command made, and of what it held out. */
static void check_overlap(Finetuning *finetuning, const SingleCommand *command, Diagnostics *diagnostics)
{
    Settings *settings = &finetuning->settings;
    const char *train = run_file(&settings->arena, finetuning->run, "data/train.safetensors"), *made = command->makes;
    const char *held_out = run_file(&settings->arena, finetuning->run, "data/train.holdout.safetensors");
    if (strcmp(settings->of[SETTING_TASK].value, "mlm") == 0) return; /* masks make rows differ */
    bool trains = strcmp(made, train) == 0;
    if (!trains || settings->of[SETTING_HOLDOUT].value)
        data_overlap_check(train, trains ? held_out : made, command->words[command->count - 1], diagnostics);
}

/* Several commands read the same model, and each seed has its own. */
static void forget_repeated(Finetuning *finetuning, Diagnostics *diagnostics)
{
    Arena *arena = &finetuning->settings.arena;
    Diagnostic *last = NULL;
    for (Diagnostic **at = &diagnostics->first, *one; (one = *at);) {
        const char *file = one->place.file ? one->place.file : "", *own = path_inside(file, finetuning->part);
        const char *text = arena_format(arena, "%s\n%s\n%s", own ? own : file,
                                        one->place.object ? one->place.object : "", one->message);
        if (string_map_add(&finetuning->warned, text, 0))
            at = &(last = one)->next;
        else
            *at = one->next;
    }
    diagnostics->last = last;
}

/* Now, not after training. */
static void print_warnings(Finetuning *finetuning, Diagnostics *diagnostics)
{
    forget_repeated(finetuning, diagnostics);
    command_fit_hints(COMMAND_FINETUNE, diagnostics);
    diagnostics_print(diagnostics, stderr);
    diagnostics_free(diagnostics);
}

/* Pairs of a step are compared with each other, so compile cannot cut them into micro-batches. */
static void hint_smaller_batch(const Finetuning *finetuning, Diagnostics *diagnostics)
{
    Diagnostic *last = diagnostics->last;
    if (diagnostics->exit_code == EXIT_NO_PLAN && last &&
        strcmp(finetuning->settings.of[SETTING_TASK].value, "pairs") == 0)
        last->hint =
            arena_format(&diagnostics->arena, "%s%sa --batch smaller than %s needs less", last->hint ? last->hint : "",
                         last->hint ? "; or " : "", finetuning->settings.of[SETTING_BATCH].value);
}

static bool run_all(Finetuning *finetuning, Diagnostics *diagnostics)
{
    bool ok = true;
    for (int i = 0; ok && i < finetuning->commands.count; i++) {
        const SingleCommand *command = &finetuning->commands.items[i];
        if (command->makes && access(command->makes, F_OK) == 0) continue;
        bool trains = is_training(command), reads = command->words[1] == finetuning->settings.of[SETTING_MODEL].value;
        if (reads && !source_model_check(&finetuning->settings, true, diagnostics)) return false;
        if (command->title) text_print(stdout, "\n%s, by the best checkpoint:\n", command->title);
        ok = trains ? train(finetuning, command, diagnostics) : run_single(command, false, diagnostics);
        finetuning->trained |= trains && (ok || diagnostics->exit_code > EXIT_USAGE);
        if (!ok) break;
        if (strcmp(command->words[0], "tokenize") == 0) check_overlap(finetuning, command, diagnostics);
        print_warnings(finetuning, diagnostics);
    }
    if (!ok) hint_smaller_batch(finetuning, diagnostics);
    return ok;
}

static void list_commands(Finetuning *finetuning, int64_t number)
{
    Settings *settings = &finetuning->settings;
    uint64_t seed = strtoull(settings->of[SETTING_SEED].value, NULL, 10) + (uint64_t)number;
    finetuning->part = finetuning->seeds == 1
                           ? finetuning->run
                           : arena_format(&settings->arena, "%s/seed-%llu", finetuning->run, (unsigned long long)seed);
    single_commands_list(&finetuning->commands, settings, finetuning->run, finetuning->part, seed);
}

/* ---- Several seeds ---- */

static double read_metric(const char *path, const char *name, Diagnostics *diagnostics)
{
    json_auto_t *root = json_read(path, diagnostics);
    return root ? json_number_value(json_object_get(root, name)) : NAN;
}

/* RUN/NAME of the best seed, as RUN has it after a single one. */
static void link_best(const Finetuning *finetuning, const char *part)
{
    static const char *const names[] = {"model",       "model.onnx", "embedding.onnx", "adapter",
                                        "checkpoints", "log.csv",    "metrics.json",   "test.json"};
    FREED_WITH(arena_free) Arena arena = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *link = run_file(&arena, finetuning->run, names[i]);
        unlink(link);
        if (access(run_file(&arena, part, names[i]), F_OK) == 0)
            (void)!symlink(arena_format(&arena, "%s/%s", strrchr(part, '/') + 1, names[i]), link);
    }
}

/* Mean and standard error over the seeds; the best one's files become the run's. */
static bool compare_seeds(Finetuning *finetuning, const char *file, Diagnostics *diagnostics)
{
    const char *metric = finetuning->settings.of[SETTING_METRIC].value, *best = NULL;
    const char *shown = finetuning->part; /* in the report: the best in evaluation */
    double sum = 0, squares = 0, best_value = NAN, count = (double)finetuning->seeds;
    for (int64_t i = 0; i < finetuning->seeds; i++) {
        list_commands(finetuning, i);
        const char *path = run_file(&finetuning->settings.arena, finetuning->part, file);
        double value = read_metric(path, metric, diagnostics);
        if (diagnostics->errors) return false;
        sum += value, squares += value * value;
        if (isnan(best_value) || (strcmp(metric, "loss") == 0 ? value < best_value : value > best_value))
            best_value = value, best = finetuning->part;
    }
    double mean = sum / count, variance = fmax(squares - sum * mean, 0) / (count - 1);
    text_print(stdout, "%s of %lld seeds: %s %.4f, standard error %.4f; best %.4f (%s)\n",
               file[0] == 't' ? "test" : "evaluation", (long long)finetuning->seeds, metric, mean,
               sqrt(variance / count), best_value, best);
    if (file[0] != 't') link_best(finetuning, shown = best);
    finetuning->part = shown;
    return true;
}

/* ---- The whole ---- */

static void print_script(Finetuning *finetuning)
{
    Arena *arena = &finetuning->settings.arena;
    const char *run = text_word(arena, finetuning->run), *cluster = finetune_this_machine(&finetuning->settings);
    settings_print(&finetuning->settings, "# ", stdout);
    printf("mkdir -p %s/data\n", run);
    if (finetuning->settings.of[SETTING_CLUSTER].value[0] != '/')
        printf("echo '%.*s' >%s/cluster.yaml\n", (int)strcspn(cluster, "\n"), cluster, run);
    for (int64_t s = 0; s < finetuning->seeds; s++) {
        list_commands(finetuning, s);
        if (finetuning->seeds > 1) printf("mkdir -p %s\n", text_word(arena, finetuning->part));
        for (int i = 0; i < finetuning->commands.count; i++)
            if (!s || strcmp(finetuning->commands.items[i].words[0], "tokenize") != 0)
                single_command_print(&finetuning->commands.items[i], stdout);
    }
}

/* -d, --without and --replicas: programs for other devices. */
static bool change_devices(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const PlanModelOptions *plan = &finetuning->options->plan;
    const char *former = finetuning->settings.of[SETTING_CLUSTER].value;
    const char *cluster = plan->cluster ? plan->cluster : former && former[0] == '/' ? former : NULL;
    const char *replicas = finetuning->options->finetune.given[SETTING_REPLICAS];
    finetuning->changed = plan->cluster || plan->without.count || replicas;
    if (replicas) settings_set(&finetuning->settings, SETTING_REPLICAS, replicas, NULL);
    return !finetuning->changed || finetune_decide_devices(&finetuning->settings, cluster, &plan->without, diagnostics);
}

static bool decide(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const Options *options = finetuning->options;
    FinetuneOptions wanted = options->finetune;
    wanted.given[SETTING_TEXT] = options->dataset.text_columns;
    wanted.given[SETTING_LABEL] = options->dataset.label_column;
    wanted.given[SETTING_TOKENIZER] = options->tokenizer;
    wanted.given[SETTING_CHAT_TEMPLATE] = options->chat_template;
    wanted.given[SETTING_TRAIN_ON] = options->train_on;
    wanted.given[SETTING_END_OF_TEXT] = options->end_of_text;
    wanted.cluster = options->plan.cluster, wanted.without = options->plan.without, wanted.seed = options->seed;
    if (wanted.resume) {
        finetuning->run = wanted.resume;
        if (wanted.source)
            return usage_error(diagnostics, "change devices with -d and --without; all else stays as it was decided",
                               "--resume takes no model and no table");
        if (!settings_read(&finetuning->settings, wanted.resume, diagnostics) ||
            !source_model_check(&finetuning->settings, false, diagnostics) ||
            !finetune_decide_resume(&finetuning->settings, &wanted, diagnostics))
            return false;
        run_find_tokenizer(&finetuning->settings, wanted.resume);
        return change_devices(finetuning, diagnostics);
    }
    if (!wanted.source || !wanted.tables.count)
        return usage_error(diagnostics, "skycc finetune --help shows examples",
                           wanted.source ? "give a table to train on"
                                         : "give a model and a table: skycc finetune "
                                           "FOLDER TABLE");
    finetuning->run = wanted.run;
    return finetune_decide(&finetuning->settings, &wanted, diagnostics);
}

/* Whether every single command is one that can be run: nothing is made before. */
static bool check_commands(Finetuning *finetuning, Diagnostics *diagnostics)
{
    bool ok = true;
    const char *seeds = finetuning->settings.of[SETTING_SEEDS].value;
    finetuning->seeds = seeds ? atoll(seeds) : 1;
    list_commands(finetuning, 0);
    for (int i = 0; ok && i < finetuning->commands.count; i++)
        if (!is_training(&finetuning->commands.items[i]))
            ok = run_single(&finetuning->commands.items[i], true, diagnostics);
    return ok;
}

/* Programs for other devices. If there can be none, the run stays as it was, and can go on as before. */
static bool change_programs(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const char *plan = run_file(&finetuning->settings.arena, finetuning->part, "programs/plan.json");
    FREED_WITH(buffer_free) Buffer former = {0};
    finetuning->dealing = read_dealing(finetuning);
    if (!read_file(plan, &former, diagnostics)) return false;
    unlink(plan);
    const SingleCommand *compile = finetuning->commands.items;
    while (strcmp(compile->words[0], "compile") != 0) compile++;
    bool ok = run_single(compile, false, diagnostics);
    if (ok) {
        compare_dealing(finetuning);
        print_warnings(finetuning, diagnostics);
    } else if (diagnostics->exit_code <= EXIT_NO_PLAN && finetuning->former.size) {
        file_write_all(plan, former.bytes, former.size, diagnostics);
        file_write_all(settings_file(finetuning), finetuning->former.bytes, finetuning->former.size, diagnostics);
    }
    return ok;
}

static bool run_seeds(Finetuning *finetuning, Diagnostics *diagnostics)
{
    for (int64_t s = 0; s < finetuning->seeds; s++) {
        list_commands(finetuning, s);
        if (finetuning->seeds > 1) text_print(stdout, "\n== %s\n", finetuning->part);
        if (!make_directory(finetuning->part, diagnostics)) return false;
        if (finetuning->changed && has_programs(finetuning) && !change_programs(finetuning, diagnostics)) return false;
        buffer_free(&finetuning->former); /* from here on the run has changed */
        if (!run_all(finetuning, diagnostics)) return false;
    }
    return finetuning->seeds == 1 ||
           (compare_seeds(finetuning, "metrics.json", diagnostics) &&
            (!finetuning->settings.of[SETTING_TEST].value || compare_seeds(finetuning, "test.json", diagnostics)));
}

static void print_next(Finetuning *finetuning)
{
    const char *run = text_word(&finetuning->settings.arena, finetuning->run);
    const Setting *texts = &finetuning->settings.of[SETTING_TEXT];
    if (strcmp(finetuning->settings.of[SETTING_HEAD].value, "lm") == 0) {
        text_print(stdout, "next          skycc predict %s --prompt \"...\"\n", run);
        return;
    }
    text_print(stdout, "next          skycc predict %s --text \"...\"%s\n", run,
               texts->value && strchr(texts->value, *LIST_SEPARATOR) ? " --text2 \"...\"" : "");
}

/* With the report to look at. The port is tried before an earlier run is replaced. */
static bool run_watched(Finetuning *finetuning, Diagnostics *diagnostics)
{
    ReportServer server = {0};
    const char *run = finetuning->run;
    int port = finetuning->options->finetune.serve;
    if ((port >= 0 && !report_server_start(&server, run, port, diagnostics)) || !prepare_run(finetuning, diagnostics)) {
        report_server_end(&server);
        return false;
    }
    settings_print(&finetuning->settings, "", stdout);
    report(finetuning, RUN_PREPARES);
    if (server.process)
        text_print(stdout, "report        http://127.0.0.1:%d/   until this command ends; then %s/report.html\n",
                   server.port, run);
    else
        text_print(stdout, "report        %s/report.html   open it in a browser: it follows training\n", run);
    fflush(stdout);
    bool ok = run_seeds(finetuning, diagnostics) && model_card_write(&finetuning->settings, run, diagnostics);
    report(finetuning, ok ? RUN_ENDED : diagnostics->exit_code == EXIT_DIVERGED ? RUN_DIVERGED : RUN_BROKE_OFF);
    report_server_end(&server);
    if (!ok && !finetuning->trained && !finetuning->options->finetune.resume) remove_run(finetuning);
    return ok;
}

bool finetune_command(const Options *options, Diagnostics *diagnostics)
{
    Finetuning finetuning = {.options = options};
    bool ok = decide(&finetuning, diagnostics) && check_commands(&finetuning, diagnostics) &&
              check_events(&finetuning, diagnostics) &&
              (options->finetune.dry_run || check_run(&finetuning, diagnostics));
    if (ok && options->finetune.dry_run) {
        print_script(&finetuning);
    } else if (ok) {
        signal(SIGPIPE, SIG_IGN); /* training goes on when the reader of the output is gone; main reports it */
        ok = run_watched(&finetuning, diagnostics);
        if (ok) text_print(stdout, "model         %s/model\n", finetuning.run);
        if (ok) print_next(&finetuning);
    }
    buffer_free(&finetuning.former);
    string_map_free(&finetuning.warned);
    arena_free(&finetuning.settings.arena);
    return ok;
}
