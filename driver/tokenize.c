/* skycc tokenize: a TSV file becomes a data set of token ids. */
#include <getopt.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/options.h"
#include "frontend/dataset.h"

static const char usage[] =
    "usage: skycc tokenize --vocab VOCAB.txt --task TASK TSV -o DATA.safetensors [options]\n"
    "\n"
    "Turns rows of text into padded token ids and labels for training. TSV may be - for standard input.\n"
    "\n"
    "  --vocab FILE          the model's WordPiece vocabulary, one piece per line\n"
    "  --task TASK           mnli, mrpc, sst2, pair or single (a label a row; pair and single take any labels),\n"
    "                        or mlm (masks tokens for the model to guess)\n"
    "  -o, --output FILE     where the data set goes: input_ids, attention_mask, token_type_ids, labels\n"
    "  --max-length N        tokens per example: shorter ones are padded, longer ones cut (default 128)\n"
    "  --cased               the vocabulary is cased: keep capitals and accents\n"
    "  --seed N              of masking (default 0)\n"
    "  -q, --quiet           no summary\n"
    "  -h, --help            this text\n"
    "\n"
    "Columns are found by name in the first line (sentence1, sentence2 or sentence; label or gold_label), else by the\n"
    "positions GLUE gives the task.\n";

typedef struct TokenizeOptions {
    const char *vocabulary, *tsv, *output;
    bool cased, quiet, has_task;
    DatasetOptions dataset;
} TokenizeOptions;

enum { OPTION_VOCAB = 256, OPTION_TASK, OPTION_MAX_LENGTH, OPTION_CASED, OPTION_SEED };

static const struct option long_options[] = {{"vocab", required_argument, NULL, OPTION_VOCAB},
                                             {"task", required_argument, NULL, OPTION_TASK},
                                             {"output", required_argument, NULL, 'o'},
                                             {"max-length", required_argument, NULL, OPTION_MAX_LENGTH},
                                             {"cased", no_argument, NULL, OPTION_CASED},
                                             {"seed", required_argument, NULL, OPTION_SEED},
                                             {"quiet", no_argument, NULL, 'q'},
                                             {"help", no_argument, NULL, 'h'},
                                             {0}};

static bool take_task(TokenizeOptions *options, const char *name, Diagnostics *diagnostics)
{
    if (dataset_find_task(name, &options->dataset.task)) return options->has_task = true;
    Arena arena = {0};
    const char *known = "the tasks are";
    for (int i = 0; i < DATASET_TASK_COUNT; i++)
        known = arena_format(&arena, "%s%s %s", known, i ? "," : "", dataset_task_name((DatasetTask)i));
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, known, "unknown task '%s'", name);
    arena_free(&arena);
    return false;
}

static bool take_option(TokenizeOptions *options, int option, const char *value, Diagnostics *diagnostics)
{
    int64_t number = 0;
    bool ok = true;
    switch (option) {
    case 1:
        if (options->tsv)
            return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                                     "one TSV file is expected, not also '%s'", value);
        options->tsv = value;
        break;
    case 'o': options->output = value; break;
    case 'q': options->quiet = true; break;
    case OPTION_VOCAB: options->vocabulary = value; break;
    case OPTION_TASK: return take_task(options, value, diagnostics);
    case OPTION_CASED: options->cased = true; break;
    case OPTION_MAX_LENGTH:
        ok = option_integer("--max-length", value, DATASET_LEAST_LENGTH, DATASET_MOST_LENGTH, &number, diagnostics);
        options->dataset.max_length = (int)number;
        break;
    case OPTION_SEED:
        ok = option_integer("--seed", value, 0, INT64_MAX, &number, diagnostics);
        options->dataset.seed = (uint64_t)number;
        break;
    default: break;
    }
    return ok;
}

/* The exit code if the command line already decides it, else -1. */
static int parse(TokenizeOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (TokenizeOptions){.dataset.max_length = 128};
    optind = 0; /* makes getopt start anew */
    for (int option; (option = getopt_long(argc, argv, "-o:qh", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("tokenize");
        if (!take_option(options, option, optarg, diagnostics)) return EXIT_USAGE;
    }
    for (; optind < argc; optind++) /* what follows "--" */
        if (!take_option(options, 1, argv[optind], diagnostics)) return EXIT_USAGE;
    const char *missing = !options->vocabulary ? "--vocab is missing"
                          : !options->has_task ? "--task is missing"
                          : !options->tsv      ? "the TSV file is missing"
                          : !options->output   ? "-o is missing"
                                               : NULL;
    if (!missing) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc tokenize --help lists the options", "%s", missing);
    return EXIT_USAGE;
}

static bool tokenize(const TokenizeOptions *options, Diagnostics *diagnostics)
{
    Tokenizer *tokenizer = tokenizer_open(options->vocabulary, !options->cased, diagnostics);
    if (!tokenizer) return false;
    DatasetSummary summary;
    bool ok = dataset_tokenize(tokenizer, &options->dataset, options->tsv, options->output, &summary, diagnostics);
    if (ok && !options->quiet)
        fprintf(stderr, "%s: %zu examples of %d tokens; %zu were cut; %zu of %zu pieces unknown\n", options->output,
                summary.examples, options->dataset.max_length, summary.truncated, summary.unknown, summary.tokens);
    tokenizer_free(tokenizer);
    return ok;
}

int tokenize_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    TokenizeOptions options;
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) code = tokenize(&options, &diagnostics) ? EXIT_OK : diagnostics.exit_code;
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    return code;
}
