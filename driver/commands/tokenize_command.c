/* skycc tokenize: turns a table of texts into a data set of token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/compile/model_origin.h"
#include "driver/predict/text_rows.h"
#include "frontend/text/text_dataset.h"

static bool wrong_options(Diagnostics *diagnostics, const char *problem)
{
    return usage_error(diagnostics, "skycc tokenize --help lists the options", "%s", problem);
}

static bool settle(const Options *options, DatasetOptions *dataset, Diagnostics *diagnostics)
{
    dataset->seed = options->seed;
    dataset->task = DATASET_COLUMNS;
    if (options->task && !dataset_find_task(options->task, &dataset->task)) bug("task %s", options->task);
    DatasetTask task = dataset->task;
    bool next = task == DATASET_CHAT || task == DATASET_LM;
    bool by_name = task >= DATASET_COLUMNS, usual = task == DATASET_NER || task == DATASET_QA || next;
    if (next && dataset->label_column)
        return wrong_options(diagnostics, "leave out --label: with --task chat and lm the tokens are the labels");
    if (options->chat_template && task != DATASET_CHAT)
        return wrong_options(diagnostics, "--chat-template goes with --task chat");
    if (options->end_of_text && !next)
        return wrong_options(diagnostics, "--end-of-text goes with --task chat and --task lm");
    if (by_name && !usual && !dataset->text_columns)
        return wrong_options(diagnostics, "name the columns that hold the texts: --text COL[,COL], or --task TASK");
    if (!by_name && task != DATASET_MLM && dataset->text_columns)
        return wrong_options(diagnostics, "give --text or --task: both name the columns with the texts");
    if (!by_name && dataset->label_column)
        return wrong_options(diagnostics, "--label goes with --text: --task already names the column with the labels");
    if (by_name && !usual && !dataset->label_column && (dataset->regression || dataset->labels_of))
        return wrong_options(diagnostics, "name the column that holds the labels: --label COL");
    if (dataset->regression && dataset->labels_of)
        return wrong_options(diagnostics, "leave out --labels-of: with --regression labels have no names");
    if ((!by_name && dataset->labels_of) || (task != DATASET_COLUMNS && dataset->regression))
        return wrong_options(diagnostics, "--regression and --labels-of go with --text and --label");
    if (task == DATASET_PAIRS && (dataset->label_column || !table_names_several(dataset->text_columns)))
        return wrong_options(diagnostics, "--task pairs takes two columns, --text A,B, and no labels");
    if (task == DATASET_MULTI_LABEL && !dataset->label_column)
        return wrong_options(diagnostics, "name the column with lists of labels: --label COL");
    if (dataset->holdout > 0 && strcmp(options->output, "-") == 0)
        return wrong_options(diagnostics, "--holdout writes two files: give a file with -o, not standard output");
    if (options->vocabulary ? options->tokenizer != NULL : !options->tokenizer && !options->model)
        return wrong_options(diagnostics,
                             options->tokenizer
                                 ? "give --tokenizer or --vocab, not both"
                                 : "give a tokenizer: --tokenizer tokenizer.json, --vocab VOCAB.txt or --model");
    if (options->tokenizer && options->cased)
        return wrong_options(diagnostics,
                             "--cased goes with --vocab: tokenizer.json already says whether capitals are kept");
    return true;
}

static void print_summary(const Options *options, const DatasetOptions *dataset, const DatasetSummary *summary)
{
    text_print(stderr, "%s: %zu rows of %d tokens; %zu were cut; %zu of %zu pieces are unknown\n", options->output,
               summary->examples - summary->held_out + summary->repeated, dataset->max_length, summary->truncated,
               summary->unknown, summary->tokens);
    if (dataset->balance) text_print(stderr, "balanced: %zu rows are copies\n", summary->repeated);
    if (summary->held_out) {
        FREED char *path = dataset_holdout_path(options->output);
        text_print(stderr, "%s: %zu rows\n", path, summary->held_out);
    }
    if (dataset->task == DATASET_QA)
        text_print(stderr, "windows: %zu of %zu rows; %zu have an answer\n", summary->examples, summary->rows,
                   summary->answered);
    if (summary->labels[0]) text_print(stderr, "labels: %s\n", summary->labels);
}

/* What conversations and documents need of the tokenizer. */
static bool settle_chat(const Options *options, DatasetOptions *dataset, Tokenizer *tokenizer, Arena *arena,
                        Diagnostics *diagnostics)
{
    if (dataset->task != DATASET_CHAT && dataset->task != DATASET_LM) return true;
    ModelTexts texts = {0};
    const char *given = options->tokenizer, *slash = given ? strrchr(given, '/') : NULL;
    const char *folder = slash ? arena_string_n(arena, given, (size_t)(slash - given)) : given ? "." : NULL;
    if (!given && options->model && model_texts(&texts, options->model, arena, diagnostics)) folder = texts.folder;
    dataset->learns_all = options->train_on && strcmp(options->train_on, "all") == 0;
    dataset->end_of_text = chat_end_of_text(options->end_of_text, folder, tokenizer, diagnostics);
    if (dataset->end_of_text < 0) return false;
    if (dataset->task == DATASET_LM) return true;
    if (options->chat_template && strcmp(options->chat_template, CHAT_TEMPLATE_FOLDER) == 0) {
        if (!folder)
            return wrong_options(diagnostics, "--chat-template folder needs --tokenizer FOLDER/tokenizer.json");
        dataset->folder_template = folder_template_open(folder, tokenizer, diagnostics);
        return dataset->folder_template != NULL;
    }
    dataset->chat_template = chat_template_choose(options->chat_template, tokenizer, diagnostics);
    if (dataset->chat_template && !options->chat_template && !options->quiet)
        text_print(stderr, "chat template: %s (another one: --chat-template)\n",
                   chat_template_name(dataset->chat_template));
    return dataset->chat_template != NULL;
}

/* The one that is given, or else the model's. Cuts rows to the model's positions. */
static Tokenizer *open_tokenizer(const Options *options, DatasetOptions *dataset, Arena *arena,
                                 Diagnostics *diagnostics)
{
    ModelTexts texts = {.most_positions = INT64_MAX};
    if (options->model && !model_texts(&texts, options->model, arena, diagnostics)) return NULL;
    if (dataset->max_length > texts.most_positions && texts.most_positions >= DATASET_LEAST_LENGTH) {
        diagnostics_warning(diagnostics, PLACE_FILE(options->model), NULL,
                            "has positions for %lld tokens: skycc takes --max-length %lld instead of %d",
                            (long long)texts.most_positions, (long long)texts.most_positions, dataset->max_length);
        dataset->max_length = (int)texts.most_positions;
    }
    if (dataset->stride < 0) dataset->stride = dataset_stride(dataset->max_length);
    if (options->tokenizer) return tokenizer_open_json(options->tokenizer, diagnostics);
    return options->vocabulary ? tokenizer_open(options->vocabulary, !options->cased, diagnostics)
                               : text_tokenizer_of_folder(texts.folder, options->model, options->cased, diagnostics);
}

bool tokenize_command(const Options *options, Diagnostics *diagnostics)
{
    DatasetOptions dataset = options->dataset;
    if (!settle(options, &dataset, diagnostics)) return false;
    FREED_WITH(arena_free) Arena arena = {0};
    Tokenizer *tokenizer = open_tokenizer(options, &dataset, &arena, diagnostics);
    const char **more = arena_new_array(&arena, const char *, options->tables.count);
    for (size_t i = 1; i < options->tables.count; i++) more[i - 1] = options->tables.items[i];
    dataset.more_tables = more;
    DatasetSummary summary;
    bool ok = tokenizer && settle_chat(options, &dataset, tokenizer, &arena, diagnostics) &&
              dataset_tokenize(tokenizer, &dataset, options->tables.items[0], options->output, &summary, diagnostics);
    if (ok && 4 * summary.unknown > summary.tokens)
        diagnostics_warning(diagnostics, PLACE_FILE(options->tables.items[0]),
                            "take a model whose tokenizer knows this language and writing",
                            "the tokenizer knows neither %zu of %zu words and characters, nor parts of them: all of "
                            "them become the same token",
                            summary.unknown, summary.tokens);
    if (ok) folder_template_tell(dataset.folder_template, diagnostics);
    if (ok && !options->quiet) print_summary(options, &dataset, &summary);
    folder_template_free(dataset.folder_template);
    tokenizer_free(tokenizer);
    return ok;
}
