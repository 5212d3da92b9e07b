/* skycc tokenize: a table of texts becomes a data set of token ids. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "frontend/text/text_dataset.h"

static bool refuse(Diagnostics *diagnostics, const char *problem)
{
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "see skycc tokenize --help", "%s", problem);
}

static bool settle(const Options *options, DatasetOptions *dataset, Diagnostics *diagnostics)
{
    dataset->seed = options->seed;
    dataset->task = DATASET_COLUMNS;
    if (!options->task && !dataset->text_columns)
        return refuse(diagnostics, "which columns hold the texts? --text COL[,COL], or --task TASK, says it");
    if (options->task && !dataset_find_task(options->task, &dataset->task)) bug("task %s", options->task);
    if (dataset->task != DATASET_COLUMNS && dataset->task != DATASET_MLM && dataset->text_columns)
        return refuse(diagnostics, "--text and --task both say which columns hold the texts");
    if (dataset->task != DATASET_COLUMNS && dataset->label_column)
        return refuse(diagnostics, "--task says which column holds the labels: --label goes with --text");
    if (dataset->label_column == NULL && dataset->task == DATASET_COLUMNS &&
        (dataset->regression || dataset->labels_of))
        return refuse(diagnostics, "which column holds the labels? --label COL says it");
    if (dataset->regression && dataset->labels_of)
        return refuse(diagnostics, "--regression has no names of labels: leave out --labels-of");
    if (dataset->task != DATASET_COLUMNS && (dataset->regression || dataset->labels_of))
        return refuse(diagnostics, "--regression and --labels-of go with --text and --label");
    if (dataset->holdout > 0 && strcmp(options->output, "-") == 0)
        return refuse(diagnostics, "--holdout writes two files: standard output can take one");
    if (!options->vocabulary == !options->tokenizer)
        return refuse(diagnostics, options->tokenizer ? "--tokenizer and --vocab are two tokenizers: give one"
                                                      : "--tokenizer tokenizer.json or --vocab VOCAB.txt is missing");
    if (options->tokenizer && options->cased)
        return refuse(diagnostics, "tokenizer.json says whether capitals are kept: --cased goes with --vocab");
    return true;
}

static void print_summary(const Options *options, const DatasetOptions *dataset, const DatasetSummary *summary)
{
    text_print(stderr, "%s: %zu examples of %d tokens; %zu were cut; %zu of %zu pieces unknown\n", options->output,
               summary->examples - summary->held_out + summary->repeated, dataset->max_length, summary->truncated,
               summary->unknown, summary->tokens);
    if (dataset->balance) text_print(stderr, "balanced: %zu examples are copies\n", summary->repeated);
    if (summary->held_out) {
        char *path = dataset_holdout_path(options->output);
        text_print(stderr, "%s: %zu examples\n", path, summary->held_out);
        free(path);
    }
    if (summary->labels[0]) text_print(stderr, "labels: %s\n", summary->labels);
}

static bool tokenize(const Options *options, Diagnostics *diagnostics)
{
    DatasetOptions dataset = options->dataset;
    if (!settle(options, &dataset, diagnostics)) return false;
    Tokenizer *tokenizer = options->tokenizer ? tokenizer_open_json(options->tokenizer, diagnostics)
                                              : tokenizer_open(options->vocabulary, !options->cased, diagnostics);
    if (!tokenizer) return false;
    DatasetSummary summary;
    bool ok = dataset_tokenize(tokenizer, &dataset, options->table, options->output, &summary, diagnostics);
    if (ok && !options->quiet) print_summary(options, &dataset, &summary);
    tokenizer_free(tokenizer);
    return ok;
}

int tokenize_command(const Options *options, Diagnostics *diagnostics)
{
    return tokenize(options, diagnostics) ? EXIT_OK : diagnostics->exit_code;
}
