#include "driver/finetune/single_commands.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "base/parts.h"
#include "base/text.h"

#define MODEL "model.onnx"
#define EMBEDDING "embedding.onnx"
#define TOWER "tower.onnx" /* embeds single texts, before training */
#define TRAIN "data/train.safetensors"
#define HELD_OUT "data/train.holdout.safetensors"
#define EVALUATION "data/eval.safetensors"
#define TEST "data/test.safetensors"

static void add_words(SingleCommand *command, ...)
{
    va_list words;
    va_start(words, command);
    for (const char *word; (word = va_arg(words, const char *));) {
        if (command->count + 1 == SINGLE_COMMAND_WORDS) bug("more than %d words", SINGLE_COMMAND_WORDS);
        command->words[command->count++] = word;
    }
    va_end(words);
}
#define add(...) add_words(command, __VA_ARGS__, NULL)

static SingleCommand *begin(SingleCommands *commands, const char *makes)
{
    if (commands->count == MOST_SINGLE_COMMANDS) bug("more than %d commands", MOST_SINGLE_COMMANDS);
    SingleCommand *command = &commands->items[commands->count++];
    *command = (SingleCommand){.makes = makes};
    return command;
}

/* What all commands of a run share. */
typedef struct Listing {
    Settings *settings;
    const char *run, *part, *seed;
    SingleCommands *commands;
} Listing;

static const char *value(const Listing *listing, SettingKey key) { return listing->settings->of[key].value; }

static const char *file(const Listing *listing, const char *name)
{
    return run_file(&listing->settings->arena, listing->run, name);
}

static const char *part_file(const Listing *listing, const char *name)
{
    return run_file(&listing->settings->arena, listing->part, name);
}

/* --NAME VALUE, if the setting has one; `option` NULL: as the setting is called. */
static void add_setting(SingleCommand *command, const Listing *listing, const char *option, SettingKey key)
{
    const char *text = settings_joined(listing->settings, key, ',');
    if (text) add(arena_format(&listing->settings->arena, "--%s", option ? option : setting_word(key)), text);
}

/* --NAME ITEM for each. */
static void add_each(SingleCommand *command, const Listing *listing, const char *option, SettingKey key)
{
    char *rest = (char *)settings_joined(listing->settings, key, *LIST_SEPARATOR);
    for (char *item; rest && (item = strsep(&rest, LIST_SEPARATOR));) add(option, item);
}

/* Of a folder, or of an encoder that was imported without a head. */
static void make_model(const Listing *listing)
{
    struct stat status;
    SingleCommand *command = begin(listing->commands, part_file(listing, MODEL));
    bool is_file = stat(value(listing, SETTING_MODEL), &status) == 0 && S_ISREG(status.st_mode);
    add(is_file ? "head" : "import", value(listing, SETTING_MODEL), "--head", value(listing, SETTING_HEAD), "--seed",
        listing->seed, "-o", part_file(listing, MODEL), "-q");
    const char *kept = value(listing, SETTING_AS_IS);
    if (kept) add("--as-is");
    if (settings_name_labels(listing->settings) && !(kept && strcmp(kept, KEPT_NAMES) == 0))
        add("--labels", file(listing, TRAIN));
}

static bool is_task(const Listing *listing, const char *task)
{
    return strcmp(value(listing, SETTING_TASK), task) == 0;
}

static bool has_one_label(const Listing *listing)
{
    const char *label = value(listing, SETTING_LABEL);
    return label && !strchr(label, *LIST_SEPARATOR);
}

static void tokenize(SingleCommand *command, const Listing *listing, const char *output)
{
    const char *tokenizer = value(listing, SETTING_TOKENIZER);
    bool lists = is_task(listing, "multi-label") && has_one_label(listing), words = is_task(listing, "ner");
    add("tokenize", text_ends_with(tokenizer, ".json") ? "--tokenizer" : "--vocab", tokenizer);
    if (value(listing, SETTING_CASED)) add("--cased");
    if (words || lists || is_task(listing, "qa") || is_task(listing, "pairs") || is_task(listing, "mlm") ||
        is_task(listing, "chat") || is_task(listing, "lm"))
        add("--task", value(listing, SETTING_TASK));
    add_setting(command, listing, NULL, SETTING_TEXT);
    add_setting(command, listing, NULL, SETTING_LABEL);
    if (is_task(listing, "regression")) add("--regression");
    if (is_task(listing, "classes") || words) add("--classes");
    add_setting(command, listing, "max-length", SETTING_LENGTH);
    add_setting(command, listing, NULL, SETTING_STRIDE);
    add_setting(command, listing, NULL, SETTING_CHAT_TEMPLATE);
    add_setting(command, listing, NULL, SETTING_TRAIN_ON);
    add_setting(command, listing, NULL, SETTING_END_OF_TEXT);
    add_setting(command, listing, NULL, SETTING_ENCODING);
    add("--seed", value(listing, SETTING_SEED), "-q", "-o", output);
}

/* Of another table than the training data's. */
static void tokenize_other(SingleCommand *command, const Listing *listing, const char *table, const char *output)
{
    tokenize(command, listing, output);
    if (settings_name_labels(listing->settings) && has_one_label(listing)) add("--labels-of", file(listing, TRAIN));
    add(table);
}

static void tokenize_sets(const Listing *listing)
{
    SingleCommand *command = begin(listing->commands, file(listing, TRAIN));
    tokenize(command, listing, file(listing, TRAIN));
    add_setting(command, listing, NULL, SETTING_HOLDOUT);
    if (value(listing, SETTING_HOLDOUT) && is_task(listing, "classes")) add("--stratified");
    char *rest = (char *)settings_joined(listing->settings, SETTING_TABLES, *LIST_SEPARATOR);
    for (char *table; (table = strsep(&rest, LIST_SEPARATOR));) add(table);
    const struct {
        SettingKey key;
        const char *name;
    } others[] = {{SETTING_EVAL, EVALUATION}, {SETTING_TEST, TEST}};
    for (int i = 0; i < 2; i++) {
        const char *table = value(listing, others[i].key), *output = file(listing, others[i].name);
        if (table) tokenize_other(begin(listing->commands, output), listing, table, output);
    }
}

static const char *cluster_file(const Listing *listing)
{
    const char *cluster = value(listing, SETTING_CLUSTER);
    return cluster[0] == '/' ? cluster : file(listing, "cluster.yaml");
}

static void compile(const Listing *listing)
{
    SingleCommand *command = begin(listing->commands, part_file(listing, "programs/plan.json"));
    add("compile", part_file(listing, MODEL), "-d", cluster_file(listing), "-o", part_file(listing, "programs"), "-q");
    add_each(command, listing, "--without", SETTING_WITHOUT);
    add_each(command, listing, "--dim", SETTING_DIMENSIONS);
    add_setting(command, listing, NULL, SETTING_BATCH);
    const char *dimensions = value(listing, SETTING_DIMENSIONS), *optimizer = value(listing, SETTING_OPTIMIZER);
    if (dimensions && strstr(dimensions, "auto:")) add("--lengths", file(listing, TRAIN));
    add("--optimizer", arena_format(&listing->settings->arena, "%s%clr=%s,weight_decay=%s", optimizer,
                                    strchr(optimizer, ':') ? ',' : ':', value(listing, SETTING_LR),
                                    value(listing, SETTING_WEIGHT_DECAY)));
    static const SettingKey keys[] = {SETTING_LOSS,   SETTING_CLIP,      SETTING_DROPOUT, SETTING_LORA,
                                      SETTING_FROZEN, SETTING_PRECISION, SETTING_LOGITS,  SETTING_REPLICAS};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) add_setting(command, listing, NULL, keys[i]);
    add_each(command, listing, "--freeze", SETTING_FREEZE);
    add_each(command, listing, "--train", SETTING_TRAINED);
    add("--seed", listing->seed);
}

static const char *evaluation_data(const Listing *listing)
{
    return file(listing, value(listing, SETTING_EVAL) ? EVALUATION : HELD_OUT);
}

/* To hosts other than this one. */
static void deploy(const Listing *listing)
{
    const char *data[] = {file(listing, TRAIN), evaluation_data(listing)};
    for (int i = 0; i < 2; i++) {
        SingleCommand *command = begin(listing->commands, NULL);
        add("deploy", part_file(listing, "programs"), "--data", data[i], "-q");
    }
}

static void train(const Listing *listing)
{
    SingleCommand *command = begin(listing->commands, NULL);
    add(part_file(listing, "programs/train"), "--data", file(listing, TRAIN), "--eval-data", evaluation_data(listing));
    static const SettingKey keys[] = {SETTING_EPOCHS,   SETTING_LR,         SETTING_WARMUP, SETTING_SCHEDULE,
                                      SETTING_NO_DECAY, SETTING_EVAL_EVERY, SETTING_METRIC, SETTING_PATIENCE};
    const char *patience = value(listing, SETTING_PATIENCE);
    bool endless = patience && strcmp(patience, "0") == 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i] != SETTING_PATIENCE || !endless) add_setting(command, listing, NULL, keys[i]);
    add("--seed", listing->seed, "--checkpoint", part_file(listing, "checkpoints"));
    add_setting(command, listing, "checkpoint-every", SETTING_EVAL_EVERY);
    add("--keep", "1", "--log", part_file(listing, "log.csv"));
    const char *events = value(listing, SETTING_TENSORBOARD);
    bool several = value(listing, SETTING_SEEDS) != NULL; /* each seed is a run of its own in TensorBoard */
    if (events)
        add("--tensorboard",
            several ? arena_format(&listing->settings->arena, "%s/seed-%s", events, listing->seed) : events);
}

/* What other hosts wrote of the checkpoints. */
static void collect(const Listing *listing)
{
    SingleCommand *command = begin(listing->commands, NULL);
    add("deploy", part_file(listing, "programs"), "--collect", part_file(listing, "checkpoints"), "-q");
}

static void evaluate(const Listing *listing, const char *title, const char *data, const char *output)
{
    SingleCommand *command = begin(listing->commands, NULL);
    command->title = title;
    add("evaluate", part_file(listing, MODEL), part_file(listing, "checkpoints"), data, "-o",
        part_file(listing, output));
    if (!value(listing, SETTING_NO_TEXTS)) add("--tokenizer", value(listing, SETTING_TOKENIZER));
}

static void export(const Listing *listing)
{
    SingleCommand *command = begin(listing->commands, NULL);
    add("export", part_file(listing, MODEL), part_file(listing, "checkpoints"), "--folder",
        part_file(listing, "model"));
    const char *tokenizer = value(listing, SETTING_TOKENIZER), *slash = strrchr(tokenizer, '/');
    if (value(listing, SETTING_RESULT))
        add("--as-is", "--source",
            slash ? arena_format(&listing->settings->arena, "%.*s", (int)(slash - tokenizer), tokenizer) : ".");
    if (value(listing, SETTING_LORA)) add("--adapter", part_file(listing, "adapter"));
}

/* The trained model, for single texts. */
static void embed(const Listing *listing)
{
    bool imports = !value(listing, SETTING_RESULT);
    const char *tower = part_file(listing, imports ? EMBEDDING : TOWER);
    SingleCommand *command = begin(listing->commands, NULL);
    add(imports ? "import" : "head", imports ? part_file(listing, "model") : value(listing, SETTING_MODEL), "--head",
        "embedding:mean", "-q", "-o", tower);
    if (imports) return;
    command = begin(listing->commands, NULL);
    add("export", tower, part_file(listing, "checkpoints"), "-o", part_file(listing, EMBEDDING));
}

void single_commands_list(SingleCommands *commands, Settings *settings, const char *run, const char *part,
                          uint64_t seed)
{
    const char *text = arena_format(&settings->arena, "%llu", (unsigned long long)seed);
    const Listing listing = {settings, run, part, text, commands};
    commands->count = 0;
    tokenize_sets(&listing);
    make_model(&listing);
    compile(&listing);
    if (value(&listing, SETTING_HOSTS)) deploy(&listing);
    train(&listing);
    if (value(&listing, SETTING_HOSTS)) collect(&listing);
    export(&listing);
    if (is_task(&listing, "pairs")) embed(&listing);
    evaluate(&listing, "Evaluation set", evaluation_data(&listing), "metrics.json");
    if (value(&listing, SETTING_TEST)) evaluate(&listing, "Test set", file(&listing, TEST), "test.json");
}

void single_command_tokenize(SingleCommand *command, Settings *settings, const char *run, const char *table,
                             const char *output)
{
    const Listing listing = {settings, run, run, NULL, NULL};
    *command = (SingleCommand){.count = 0};
    tokenize_other(command, &listing, table, output);
}

bool is_training(const SingleCommand *command) { return strchr(command->words[0], '/') != NULL; }

void single_command_print(const SingleCommand *command, FILE *stream)
{
    FREED_WITH(buffer_free) Buffer line = {0};
    if (!is_training(command)) buffer_print(&line, "skycc ");
    for (int i = 0; i < command->count; i++) {
        if (i) buffer_print(&line, " ");
        text_append_word(&line, command->words[i]);
    }
    fprintf(stream, "%s\n", buffer_text(&line));
}
