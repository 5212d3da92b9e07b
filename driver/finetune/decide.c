#include "driver/finetune/decide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parts.h"
#include "base/text.h"
#include "driver/compile/packed_model.h"
#include "driver/finetune/decide_head.h"
#include "driver/finetune/table_check.h"
#include "frontend/text/dataset_options.h"
#include "graph/passes/pack_rows.h"

#define PATIENCE "3"
enum { BATCH = 32, MOST_LENGTH = 512, ANSWER_LENGTH = 384 };
#define HOLDOUT 0.1
#define KEPT_WHOLE 0.995

typedef struct Decision {
    const FinetuneOptions *options;
    Settings *settings;
    SourceModel model;
    TableSurvey survey;
    TaskColumns columns;
    size_t examples; /* of all rows */
    size_t train_rows;
    double padding; /* share of all tokens, if rows are padded */
    bool plain;     /* tables are texts, one document each */
} Decision;

/* Of what need not be there yet. */
static const char *under_root(Settings *settings, const char *path)
{
    FREED char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);
    return here ? arena_format(&settings->arena, "%s/%s", here, path) : path;
}

#define set(key, value, ...) settings_set(decision->settings, SETTING_##key, value, __VA_ARGS__)
#define text_of(...) arena_format(&decision->settings->arena, __VA_ARGS__)

/* ---- Data ---- */

/* All labels, however many there are; tags in texts with blanks between are as many as the words. */
static bool read_labels_whole(Decision *decision, Diagnostics *diagnostics)
{
    const FinetuneOptions *options = decision->options;
    TableSurvey *survey = &decision->survey;
    const TaskColumns *columns = &decision->columns;
    bool ok = true, cut = false;
    for (int texts = 1; texts >= 0; texts--)
        for (size_t i = 0; ok && i < (texts ? columns->text_count : columns->label_count); i++) {
            SurveyColumn *column = table_survey_column(survey, (texts ? columns->texts : columns->labels)[i]);
            cut = columns->task == TASK_TOKENS && column->lists < column->filled;
            if (cut || (!texts && columns->task != TASK_ANSWERS && column->distinct > column->most_values))
                ok = table_survey_whole(survey, &options->tables, options->given[SETTING_ENCODING], column, cut,
                                        diagnostics);
        }
    return ok && table_check(survey, columns, options->tables.items[0], diagnostics);
}

static bool decide_data(Decision *decision, Diagnostics *diagnostics)
{
    const FinetuneOptions *options = decision->options;
    Settings *settings = decision->settings;
    const char *wanted = options->given[SETTING_TASK];
    Task task = wanted ? task_find(wanted) : TASK_COUNT;
    if (wanted && task == TASK_COUNT)
        return usage_error(diagnostics,
                           "--task takes classes, regression, multi-label, ner, qa, pairs, mlm, chat or lm",
                           "there is no task '%s'", wanted);
    bool decoder = decision->model.decoder;
    decision->plain = task == TASK_NEXT || (decoder && task == TASK_COUNT);
    for (size_t i = 0; i < options->tables.count; i++)
        decision->plain &= text_ends_with(options->tables.items[i], ".txt");
    if (decision->plain)
        decision->columns = (TaskColumns){.task = TASK_NEXT, .reason = "files of plain text"};
    else if (!table_survey_read(&decision->survey, &options->tables, options->given[SETTING_ENCODING], diagnostics) ||
             !task_choose(&decision->columns, &decision->survey, options->given[SETTING_TEXT],
                          options->given[SETTING_LABEL], task, decoder, options->tables.items[0], diagnostics))
        return false;
    if (!decision->plain && !read_labels_whole(decision, diagnostics)) return false;
    const char **tables = arena_new_array(&settings->arena, const char *, options->tables.count);
    for (size_t i = 0; i < options->tables.count; i++) tables[i] = settings_path(settings, options->tables.items[i]);
    const TaskColumns *columns = &decision->columns;
    const TaskText *text = &task_texts[columns->task];
    set(TABLES, settings_list(settings, tables, options->tables.count), decision->plain ? NULL : "%zu rows",
        decision->survey.rows);
    set(ENCODING, options->given[SETTING_ENCODING], NULL);
    set(TASK, text->word, "%s: %s", text->does, columns->reason);
    if (!decision->plain)
        set(TEXT, settings_list(settings, columns->texts, columns->text_count),
            options->given[SETTING_TEXT] ? NULL : "by its name and contents; --text decides otherwise");
    if (columns->label_count)
        set(LABEL, settings_list(settings, columns->labels, columns->label_count),
            options->given[SETTING_LABEL] ? NULL : "by its name and contents; --label decides otherwise");
    return true;
}

/* ---- Length ---- */

/* Long texts of questions become windows of at most ANSWER_LENGTH tokens that share a part, documents windows that
 * share none. */
static void take_windows(Decision *decision, const uint32_t *lengths)
{
    bool shares = decision->columns.task == TASK_ANSWERS;
    int64_t most = shares ? ANSWER_LENGTH : MOST_LENGTH;
    if (decision->model.positions < most) most = decision->model.positions;
    const char *given = decision->options->given[SETTING_LENGTH];
    if (given) most = atoll(given);
    int64_t longest = lengths[decision->survey.rows - 1], length = longest < most ? longest : most;
    if (decision->model.width) length = decision->model.width;
    int64_t stride = shares ? dataset_stride((int)length) : 0;
    decision->examples = 0;
    for (size_t i = 0; i < decision->survey.rows; i++) /* about: questions take room in every window */
        decision->examples += lengths[i] <= length ? 1 : 1 + (lengths[i] - length + stride) / (length - stride);
    double tokens = 0;
    for (size_t i = 0; i < decision->survey.rows; i++) tokens += (double)lengths[i];
    tokens += (double)(decision->examples - decision->survey.rows) * (double)stride;
    decision->padding = fmax(0, 1 - tokens / ((double)decision->examples * (double)length));
    set(LENGTH, text_of("%lld", (long long)length), "tokens per window; about %zu windows of %zu %s",
        decision->examples, decision->survey.rows, decision->plain ? "files" : "rows");
    if (shares) set(STRIDE, text_of("%lld", (long long)stride), "tokens that two windows share");
}

static void take_length(Decision *decision, const uint32_t *lengths, int64_t least)
{
    size_t rows = decision->survey.rows, cut = 0;
    int64_t most = decision->model.positions < MOST_LENGTH ? decision->model.positions : MOST_LENGTH;
    int64_t wanted = lengths[(size_t)ceil(KEPT_WHOLE * (double)rows) - 1];
    const char *given = decision->options->given[SETTING_LENGTH];
    if (given) wanted = atoll(given), most = decision->model.positions;
    int64_t length = wanted < most ? wanted : most;
    if (length < least) length = least;
    if (decision->model.width) length = decision->model.width;
    double tokens = 0;
    for (size_t i = 0; i < rows; i++) {
        cut += lengths[i] > length;
        tokens += (double)(lengths[i] < length ? lengths[i] : length);
    }
    decision->padding = 1 - tokens / ((double)rows * (double)length);
    set(LENGTH, text_of("%lld", (long long)length), "tokens per row; %zu of %zu rows are cut (the longest has %u)%s",
        cut, rows, lengths[rows - 1], length < wanted ? ": the model has no more positions" : "");
}

/* Where the tokenizer is. */
static const char *tokenizer_folder(const Decision *decision)
{
    const char *file = decision->settings->of[SETTING_TOKENIZER].value, *slash = strrchr(file, '/');
    return slash ? text_of("%.*s", (int)(slash - file), file) : ".";
}

static bool decide_end_of_text(Decision *decision, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    const char *given = decision->options->given[SETTING_END_OF_TEXT];
    if (decision->columns.task != TASK_CHAT && decision->columns.task != TASK_NEXT)
        return !given || usage_error(diagnostics, "leave it out", "--end-of-text is for --task chat and --task lm");
    set(END_OF_TEXT, given, NULL);
    return chat_end_of_text(given, tokenizer_folder(decision), tokenizer, diagnostics) >= 0;
}

/* The column for which only the folder's own template has a place; NULL: there is none, or the folder has no
 * template. */
static const char *find_extra(Decision *decision)
{
    static const char *const names[] = {"tools", "documents", "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const SurveyColumn *column = table_survey_column(&decision->survey, names[i]);
        if (column && column->filled) return folder_template_is_there(tokenizer_folder(decision)) ? names[i] : NULL;
    }
    return NULL;
}

static bool decide_chat(Decision *decision, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    const char *given = decision->options->given[SETTING_CHAT_TEMPLATE];
    if (decision->columns.task != TASK_CHAT)
        return !given ||
               usage_error(diagnostics, "leave it out, or give --task chat", "--chat-template is for conversations");
    const char *extra = given ? NULL : find_extra(decision);
    if (extra || (given && strcmp(given, CHAT_TEMPLATE_FOLDER) == 0)) {
        FolderTemplate *own = folder_template_open(tokenizer_folder(decision), tokenizer, diagnostics);
        if (!own) return false;
        folder_template_free(own);
        set(CHAT_TEMPLATE, CHAT_TEMPLATE_FOLDER, extra ? "the table has '%s'" : NULL, extra);
    } else {
        const ChatTemplate *template = chat_template_choose(given, tokenizer, diagnostics);
        if (!template) return false;
        set(CHAT_TEMPLATE, chat_template_name(template), given ? NULL : "by the tokenizer's tokens");
    }
    set(TRAIN_ON, decision->options->given[SETTING_TRAIN_ON], NULL);
    return true;
}

/* Tokens of the template around a prompt and its response; of the folder's own, about so many. */
enum { AROUND_OWN = 32 };
static uint32_t tokens_of_template(const Decision *decision, Tokenizer *tokenizer)
{
    const char *name = decision->settings->of[SETTING_CHAT_TEMPLATE].value;
    if (strcmp(name, CHAT_TEMPLATE_FOLDER) == 0) return AROUND_OWN;
    const ChatTemplate *template = chat_template_choose(name, tokenizer, NULL);
    ChatMessage messages[3] = {{CHAT_USER, "", 0, false}, {CHAT_INPUT, "", 0, false}, {CHAT_ASSISTANT, "", 0, false}};
    bool input = decision->columns.text_count == 3;
    if (!input) messages[1] = messages[2];
    ChatSpan spans[3];
    FREED_WITH(buffer_free) Buffer text = {0};
    TokenIds ids = {0};
    chat_template_write(template, messages, input ? 3 : 2, " ", &text, spans);
    tokenizer_encode(tokenizer, buffer_text(&text), text.size, &ids);
    return (uint32_t)ids.count + 1; /* the token that ends a text */
    free(ids.items);
}

/* The tokens of every file, ascending; malloc'ed. NULL after reporting. */
static uint32_t *lengths_of_files(Decision *decision, Tokenizer *tokenizer, Diagnostics *diagnostics)
{
    const TextList *files = &decision->options->tables;
    const char *encoding = decision->options->given[SETTING_ENCODING];
    uint32_t *lengths = memory_allocate(files->count * sizeof *lengths);
    TokenIds ids = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < files->count; i++) {
        FREED_WITH(table_close) TableReader reader = {0};
        ids.count = 0;
        ok = table_open(&reader, files->items[i], TABLE_TSV, diagnostics) &&
             (!encoding || table_decode(&reader, encoding));
        if (!ok) break;
        tokenizer_encode(tokenizer, reader.bytes, reader.size, &ids); /* tokenize says what is wrong with it */
        size_t at = i;
        for (; at && lengths[at - 1] > ids.count + 1; at--) lengths[at] = lengths[at - 1];
        lengths[at] = (uint32_t)ids.count + 1;
    }
    free(ids.items);
    decision->survey.rows = files->count;
    if (!ok) free(lengths), lengths = NULL;
    return lengths;
}

static bool decide_length(Decision *decision, Diagnostics *diagnostics)
{
    const SourceModel *model = &decision->model;
    const char *given = decision->options->given[SETTING_LENGTH];
    if (model->width && given && atoll(given) != model->width)
        return usage_error(diagnostics, "leave --max-length out, or export the model with open dimensions",
                           "%s takes rows of %lld tokens, neither more nor fewer", model->path,
                           (long long)model->width);
    const TaskColumns *columns = &decision->columns;
    Tokenizer *tokenizer = tokenizer_open_named(model->tokenizer, !model->cased, diagnostics);
    if (!tokenizer) return false;
    set(TOKENIZER, model->tokenizer, NULL);
    set(CASED, model->cased ? "true" : NULL, NULL);
    if (!decide_end_of_text(decision, tokenizer, diagnostics) || !decide_chat(decision, tokenizer, diagnostics))
        return tokenizer_free(tokenizer), false;
    int64_t least = (int64_t)tokenizer_least_length(tokenizer, columns->text_count > 1);
    FREED uint32_t *lengths =
        decision->plain
            ? lengths_of_files(decision, tokenizer, diagnostics)
            : table_survey_lengths(&decision->survey, &decision->options->tables,
                                   decision->options->given[SETTING_ENCODING], columns->texts, columns->text_count,
                                   columns->task == TASK_PAIRS, tokenizer, diagnostics);
    decision->examples = decision->survey.rows;
    uint32_t around =
        columns->task == TASK_CHAT && columns->text_count > 1 ? tokens_of_template(decision, tokenizer) : 0;
    for (size_t i = 0; lengths && i < decision->survey.rows; i++) lengths[i] += around;
    if (lengths && (columns->task == TASK_ANSWERS || columns->task == TASK_NEXT))
        take_windows(decision, lengths);
    else if (lengths)
        take_length(decision, lengths, least > 4 ? least : 4);
    tokenizer_free(tokenizer);
    return lengths != NULL;
}

/* ---- Training ---- */

static bool decide_sets(Decision *decision, Diagnostics *diagnostics)
{
    const FinetuneOptions *options = decision->options;
    const char *evaluation = options->given[SETTING_EVAL], *test = options->given[SETTING_TEST];
    for (int i = 0; i < 2; i++) {
        const char *table = i ? test : evaluation;
        if (table && access(table, R_OK) != 0) return file_error(diagnostics, table, "cannot open");
    }
    bool windows = decision->columns.task == TASK_NEXT; /* held out by themselves */
    size_t rows = windows ? decision->examples : decision->survey.rows,
           held = evaluation ? 0 : (size_t)(HOLDOUT * (double)rows + 0.5);
    if (!evaluation && (held < 1 || rows - held < 1))
        return input_error(diagnostics, options->tables.items[0], "give another table to evaluate on with --eval FILE",
                           "has only %zu rows, too few to hold out some for evaluation", rows);
    decision->train_rows = (size_t)((double)decision->examples * (double)(rows - held) / (double)rows);
    set(EVAL, evaluation ? settings_path(decision->settings, evaluation) : NULL, NULL);
    if (!evaluation) set(HOLDOUT, "10%", "%zu rows to evaluate on, %zu to train on", held, rows - held);
    set(TEST, test ? settings_path(decision->settings, test) : NULL, "measured at the end");
    return true;
}

/* Why short rows of an ONNX graph cannot share sequences; NULL: they can. */
static const char *packing_problem(const Decision *decision, Arena *arena)
{
    const SourceModel *model = &decision->model;
    enum { TOKENS = 16, SLOTS = 3, ROWS = 4 };
    int64_t tokens = TOKENS;
    DimensionBinding dimension = {model->length, TOKENS};
    if (model->is_folder || model->found.imported) return NULL;
    if (!model->has_mask) return "it has no attention_mask";
    if (!model->batch || !model->length) return "its dimensions are fixed";
    ModelOptions load = {.import = {.no_weights = true,
                                    .dimensions = &dimension,
                                    .dimension_count = 1,
                                    .unbound_rows = PACKING_GRAPH_ROWS,
                                    .default_dimension = TOKENS},
                         .lengths = {.dimension = model->length, .list = &tokens, .count = 1},
                         .packing = {PACKING_GRAPH_ROWS, TOKENS, SLOTS, ROWS, TOKENS},
                         .last_pass = "pack"};
    FREED_WITH(training_model_free) TrainingModel packed = {0};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    bool read = packed_model_import(&packed, model->path, &load, &found);
    const char *problem = "its inputs do not share open dimensions and a mask";
    if (read) problem = training_model_make(&packed, &load, &found) ? NULL : arena_string(arena, found.last->message);
    return problem;
}

static void add_rules(ImportOptions *import, TrainingRule *rules, const TextList *globs, bool train)
{
    for (size_t i = 0; i < globs->count; i++)
        rules[import->rule_count++] = (TrainingRule){.glob = globs->items[i], .train = train};
}

/* What compile warns of when it imports an ONNX graph. Errors are left to it: these dimensions are only examples. */
static void warn_of_import(const Decision *decision, Diagnostics *diagnostics)
{
    enum { TOKENS = 16, ROWS = 4 };
    const FinetuneOptions *options = decision->options;
    const SourceModel *model = &decision->model;
    if (model->is_folder) return;
    FREED TrainingRule *rules = memory_allocate((options->freeze.count + options->trained.count + 1) * sizeof *rules);
    DimensionBinding dimension = {model->length, TOKENS};
    ImportOptions import = {.dimensions = &dimension,
                            .dimension_count = model->length != NULL,
                            .unbound_rows = ROWS,
                            .rules = rules,
                            .adapters = options->given[SETTING_LORA] != NULL};
    add_rules(&import, rules, &options->freeze, false);
    add_rules(&import, rules, &options->trained, true);
    FREED_WITH(graph_free) Graph graph = {0};
    FREED_WITH(imported_model_free) ImportedModel imported = {0};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    graph_init(&graph, model->path);
    if (import_onnx(&graph, &imported, model->path, &import, &found)) diagnostics_append(diagnostics, &found);
}

/* Without a mask, attention reads the padding like text, and another width of padding gives another output. */
static void warn_of_padding(const Decision *decision, Diagnostics *diagnostics)
{
    const SourceModel *model = &decision->model;
    if (!model->is_folder && !model->has_mask && decision->padding > 0)
        diagnostics_warning(diagnostics, PLACE_FILE(model->path),
                            "export it with an input attention_mask, by that name",
                            "has no attention_mask: it reads padding as if it were text (%.0f%% of all tokens); skycc "
                            "pads every row to %s tokens, also for predictions",
                            fmax(1, 100 * decision->padding), decision->settings->of[SETTING_LENGTH].value);
}

static void decide_batch(Decision *decision)
{
    const char *given = decision->options->given[SETTING_BATCH];
    int64_t batch = given ? atoll(given) : BATCH;
    bool fewer = batch > (int64_t)decision->train_rows;
    if (fewer) batch = (int64_t)decision->train_rows;
    set(BATCH, text_of("%lld", (long long)batch), "rows of a step%s; compile cuts them into micro-batches",
        fewer ? ": there are no more to train on" : "");
    const char *name = decision->model.length, *length = decision->settings->of[SETTING_LENGTH].value;
    bool packs = !task_texts[decision->columns.task].is_padded;
    const char *problem = packs ? packing_problem(decision, &decision->settings->arena) : NULL;
    packs &= !problem;
    if (name)
        set(DIMENSIONS, text_of("%s=%s%s", name, packs ? "auto:" : "", length), "%s",
            packs ? "short rows share packed sequences"
                  : text_of("rows cannot share sequences%s%s: about %.0f%% of the tokens computed are padding",
                            problem ? ", because " : "", problem ? problem : "", 100 * decision->padding));
}

/* What the user said, or else this value for this reason (NULL: none). */
static void set_given(Decision *decision, SettingKey key, const char *usual, const char *reason)
{
    const char *given = decision->options->given[key];
    settings_set(decision->settings, key, given ? given : usual, given || !reason ? NULL : "%s", reason);
}

static void decide_weights(Decision *decision)
{
    const FinetuneOptions *options = decision->options;
    const char *lora = options->given[SETTING_LORA];
    set(FREEZE, settings_list(decision->settings, options->freeze.items, options->freeze.count),
        "these keep their values");
    set(TRAINED, settings_list(decision->settings, options->trained.items, options->trained.count),
        "whatever freeze says");
    bool targets = !lora || strstr(lora, "targets="); /* else as Dettmers et al. 2023 */
    set(LORA, targets ? lora : text_of("%s,targets=%s", lora, decision->model.decoder ? "all-linear" : "*layer*"),
        targets ? "only low-rank branches and the head are trained"
                : "branches at every matrix of every block; only these and the head are trained");
    set(FROZEN, options->given[SETTING_FROZEN], "how matrices that are not trained are stored");
    double dropout = decision->model.dropout;
    set_given(decision, SETTING_DROPOUT, dropout > 0 ? text_of("%g", dropout) : "off",
              decision->model.is_folder || decision->model.found.config ? "as config.json says" : NULL);
    set(PRECISION, options->given[SETTING_PRECISION], "of matrix products");
    set(REPLICAS, options->given[SETTING_REPLICAS], "pipelines that share the rows of a step");
    set(LOGITS, options->given[SETTING_LOGITS], NULL);
}

static void decide_training(Decision *decision)
{
    const FinetuneOptions *options = decision->options;
    const char *seeds = options->given[SETTING_SEEDS], *events = options->given[SETTING_TENSORBOARD];
    int64_t batch = atoll(decision->settings->of[SETTING_BATCH].value);
    int64_t steps = ((int64_t)decision->train_rows + batch - 1) / batch;
    if (decision->columns.task == TASK_PAIRS)
        set(LOSS, "contrastive:embedding:embedding_2", "the partner is told from all others of the batch");
    decide_weights(decision);
    set(EPOCHS, options->given[SETTING_EPOCHS] ? options->given[SETTING_EPOCHS] : "3", "%lld steps each",
        (long long)steps);
    static const struct {
        SettingKey key;
        const char *usual, *reason;
    } recipe[] = {{SETTING_OPTIMIZER, "adamw", NULL},
                  {SETTING_LR, "5e-5", NULL},
                  {SETTING_WARMUP, "10%", NULL},
                  {SETTING_SCHEDULE, "linear", "to 0 at the last step"},
                  {SETTING_WEIGHT_DECAY, "0.01", NULL},
                  {SETTING_NO_DECAY, "bias,norm", "these have no weight decay"},
                  {SETTING_CLIP, "1", "the norm of the gradient"}};
    for (size_t i = 0; i < sizeof recipe / sizeof *recipe; i++)
        set_given(decision, recipe[i].key, recipe[i].usual, recipe[i].reason);
    set_given(decision, SETTING_EVAL_EVERY, text_of("%lld", (long long)((steps + 1) / 2)), "steps: twice an epoch");
    set_given(decision, SETTING_METRIC, task_texts[decision->columns.task].metric, "the best checkpoint is kept");
    set_given(decision, SETTING_PATIENCE, PATIENCE, "evaluations without improvement end training");
    set(SEED, text_of("%llu", (unsigned long long)options->seed), NULL);
    if (events) set(TENSORBOARD, under_root(decision->settings, events), "event files");
    if (options->no_texts) set(NO_TEXTS, "true", "the report shows no texts");
    if (seeds && atoll(seeds) > 1) set(SEEDS, seeds, "runs, for mean and standard error");
}

/* The rate and the decay have options of their own, which come last in the command line of compile. */
static bool check_optimizer(const FinetuneOptions *options, Diagnostics *diagnostics)
{
    const char *spec = options->given[SETTING_OPTIMIZER];
    return !spec || (!strstr(spec, "lr=") && !strstr(spec, "weight_decay=")) ||
           usage_error(diagnostics, "give them as --lr X and --weight-decay X",
                       "--optimizer %s has a learning rate or weight decay", spec);
}

bool finetune_decide_resume(Settings *settings, const FinetuneOptions *options, Diagnostics *diagnostics)
{
    for (SettingKey key = 0; key < SETTING_COUNT; key++) {
        const char *given = options->given[key], *kept = settings_joined(settings, key, ',');
        const char *name = key == SETTING_LENGTH ? "max-length" : setting_word(key);
        if (!given || (kept && (strcmp(given, kept) == 0 || strcmp(settings_path(settings, given), kept) == 0)))
            continue;
        if (key == SETTING_TRAIN_ON && !kept) continue; /* a default */
        if (key == SETTING_REPLICAS) continue;          /* a matter of devices */
        return usage_error(diagnostics, "leave it out to go on, or begin another run for it with -o",
                           "--resume goes on with %s%s, not with --%s %s",
                           kept ? arena_format(&settings->arena, "--%s ", name) : "the run as it was decided",
                           kept ? kept : "", name, given);
    }
    const char *more = options->freeze.count ? "--freeze" : options->trained.count ? "--train" : NULL;
    return !more || usage_error(diagnostics, "leave it out to go on, or begin another run for it with -o",
                                "--resume goes on with the run as it was decided, and takes no %s", more);
}

static bool check_tables(const FinetuneOptions *options, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < options->tables.count; i++)
        if (strcmp(options->tables.items[i], "-") == 0)
            return usage_error(diagnostics, "write it to a file: cat >table.csv",
                               "finetune reads its table several times, and standard input can be read once");
    return true;
}

bool finetune_decide(Settings *settings, const FinetuneOptions *options, Diagnostics *diagnostics)
{
    Decision decided = {.options = options, .settings = settings}, *decision = &decided;
    const HeadDecision head = {settings, &decision->model, &decision->survey, &decision->columns};
    set(FORMAT, RUN_FORMAT, NULL);
    bool ok = check_optimizer(options, diagnostics) && check_tables(options, diagnostics) &&
              finetune_decide_devices(settings, options->cluster, &options->without, diagnostics) &&
              source_model_read(&decision->model, options->source, options->given[SETTING_TOKENIZER], &settings->arena,
                                diagnostics);
    if (ok) set(MODEL, decision->model.path, "%s", decision->model.kind ? decision->model.kind : "an ONNX graph");
    ok = ok && decide_data(decision, diagnostics) &&
         task_check_metric(decision->columns.task, options->given[SETTING_METRIC], diagnostics);
    ok = ok && head_decide(&head, diagnostics) && decide_length(decision, diagnostics) &&
         decide_sets(decision, diagnostics);
    if (ok) {
        warn_of_padding(decision, diagnostics);
        decide_batch(decision);
        decide_training(decision);
        if (options->dry_run) warn_of_import(decision, diagnostics);
    }
    table_survey_free(&decision->survey);
    return ok;
}
