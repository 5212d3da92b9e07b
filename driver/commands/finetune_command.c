/* skycc finetune: from a model and a table to a trained model, by the single commands. */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/finetune/single_commands.h"
#include "driver/finetune/training.h"

typedef struct Finetuning {
    const Options *options;
    const char *run;
    Settings settings;
    SingleCommands commands;
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

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
    (void)status, (void)type, (void)place;
    return remove(path);
}

static bool prepare_run(Finetuning *finetuning, Diagnostics *diagnostics)
{
    static const char *const made[] = {"settings.yaml", "model.onnx",  "model.onnx.data", "cluster.yaml", "data",
                                       "programs",      "checkpoints", "model",           "adapter",      "log.csv"};
    const char *run = finetuning->run;
    Arena *arena = &finetuning->settings.arena;
    struct stat status;
    if (lstat(run, &status) == 0 && !finetuning->options->finetune.resume) {
        if (!finetuning->options->force || !is_run(run))
            return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(run),
                                     is_run(run) ? "go on with it with --resume, replace it with --force, or name "
                                                   "another directory with -o"
                                                 : "name another directory with -o",
                                     is_run(run) ? "is an earlier run" : "exists and is not a run of skycc finetune");
        for (size_t i = 0; i < sizeof made / sizeof *made; i++)
            nftw(run_file(arena, run, made[i]), remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    if (mkdir(run, 0777) != 0 && errno != EEXIST) return file_error(diagnostics, run, "cannot create");
    const char *data = run_file(arena, run, "data");
    if (mkdir(data, 0777) != 0 && errno != EEXIST) return file_error(diagnostics, data, "cannot create");
    const char *cluster = finetune_this_machine(&finetuning->settings);
    const char *place = run_file(arena, run, "cluster.yaml");
    return settings_write(&finetuning->settings, run, diagnostics) &&
           (access(place, F_OK) == 0 || file_write_all(place, cluster, strlen(cluster), diagnostics));
}

/* ---- The whole ---- */

static void print_script(Finetuning *finetuning)
{
    const char *run = finetuning->run;
    settings_print(&finetuning->settings, "# ", stdout);
    printf("mkdir -p %s/data\n", run);
    if (finetuning->settings.of[SETTING_CLUSTER].value[0] != '/')
        printf("echo '%.*s' >%s/cluster.yaml\n", (int)strcspn(finetune_this_machine(&finetuning->settings), "\n"),
               finetune_this_machine(&finetuning->settings), run);
    for (int i = 0; i < finetuning->commands.count; i++) single_command_print(&finetuning->commands.items[i], stdout);
}

static bool train(const Finetuning *finetuning, const SingleCommand *command, Diagnostics *diagnostics)
{
    int code = training_run(command, "--resume", NULL, NULL, diagnostics);
    if (code == 0) return true;
    if (diagnostics->errors) return false;
    Arena arena = {0};
    diagnostics_error(diagnostics, code, PLACE_FILE(finetuning->run),
                      arena_format(&arena, "go on with skycc finetune --resume %s", finetuning->run),
                      code >= 128 ? "training was interrupted" : "training failed");
    arena_free(&arena);
    return false;
}

static bool run_all(Finetuning *finetuning, Diagnostics *diagnostics)
{
    bool ok = true;
    for (int i = 0; ok && i < finetuning->commands.count; i++) {
        const SingleCommand *command = &finetuning->commands.items[i];
        if (command->makes && access(command->makes, F_OK) == 0) continue;
        ok = is_training(command) ? train(finetuning, command, diagnostics) : run_single(command, false, diagnostics);
        if (!ok) break;
        command_fit_hints(COMMAND_FINETUNE, diagnostics);
        diagnostics_print(diagnostics, stderr); /* warnings now, not after training */
        diagnostics_free(diagnostics);
    }
    return ok;
}

static bool decide(Finetuning *finetuning, Diagnostics *diagnostics)
{
    const Options *options = finetuning->options;
    FinetuneOptions wanted = options->finetune;
    if (wanted.resume) {
        finetuning->run = wanted.resume;
        return settings_read(&finetuning->settings, wanted.resume, diagnostics);
    }
    if (!wanted.source || !wanted.tables.count)
        return usage_error(diagnostics, "skycc finetune --help shows examples",
                           wanted.source ? "give a table to train on"
                                         : "give a model and a table: skycc finetune "
                                           "FOLDER TABLE");
    finetuning->run = wanted.run;
    wanted.text = options->dataset.text_columns, wanted.label = options->dataset.label_column;
    wanted.tokenizer = options->tokenizer, wanted.cluster = options->plan.cluster, wanted.seed = options->seed;
    wanted.without = options->plan.without;
    return finetune_decide(&finetuning->settings, &wanted, diagnostics);
}

bool finetune_command(const Options *options, Diagnostics *diagnostics)
{
    Finetuning finetuning = {.options = options};
    bool ok = decide(&finetuning, diagnostics);
    if (ok) single_commands_list(&finetuning.commands, &finetuning.settings, finetuning.run);
    for (int i = 0; ok && i < finetuning.commands.count; i++)
        if (!is_training(&finetuning.commands.items[i]))
            ok = run_single(&finetuning.commands.items[i], true, diagnostics);
    if (ok && options->finetune.dry_run) {
        print_script(&finetuning);
    } else if (ok) {
        ok = prepare_run(&finetuning, diagnostics);
        if (ok) settings_print(&finetuning.settings, "", stdout);
        ok = ok && run_all(&finetuning, diagnostics);
        if (ok) text_print(stdout, "model         %s/model\n", finetuning.run);
    }
    arena_free(&finetuning.settings.arena);
    return ok;
}
