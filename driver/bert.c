/* skycc bert: a BERT graph of any size. */
#include <getopt.h>
#include <string.h>

#include "driver/commands.h"
#include "driver/options.h"
#include "models/bert.h"

static const char usage[] =
    "usage: skycc bert --layers L --hidden H --heads A [options] -o MODEL.onnx\n"
    "\n"
    "Writes a BERT as an ONNX graph (opset 17): inputs input_ids, attention_mask and token_type_ids, output logits.\n"
    "\n"
    "  --layers L            encoder layers\n"
    "  --hidden H            hidden size, a multiple of the heads\n"
    "  --heads A             attention heads\n"
    "  --intermediate N      inner size of the feed-forward part (default 4 H)\n"
    "  --head NAME           seqcls (default): classifies the sequence; mlm: predicts masked tokens\n"
    "  --classes N           of the sequence classifier (default 3)\n"
    "  --vocab N             size of the vocabulary (default 30522)\n"
    "  --positions N         longest sequence (default 512)\n"
    "  --batch N             fix the batch dimension (default: symbolic, 'batch')\n"
    "  --sequence N          fix the sequence dimension (default: symbolic, 'seq')\n"
    "  --weights KIND        seed (default): drawn, matrices normal with deviation 0.02, biases 0, gains 1;\n"
    "                        none: absent, to be drawn where the model is compiled or run\n"
    "  --seed N              of the weights (default 0)\n"
    "  -o, --output FILE     the model; weights of more than 64 MiB go into FILE.data\n"
    "  -h, --help            this text\n";

enum {
    OPTION_LAYERS = 256,
    OPTION_HIDDEN,
    OPTION_HEADS,
    OPTION_INTERMEDIATE,
    OPTION_HEAD,
    OPTION_CLASSES,
    OPTION_VOCABULARY,
    OPTION_POSITIONS,
    OPTION_BATCH,
    OPTION_SEQUENCE,
    OPTION_WEIGHTS,
    OPTION_SEED
};

static const struct option long_options[] = {
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"hidden", required_argument, NULL, OPTION_HIDDEN},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"intermediate", required_argument, NULL, OPTION_INTERMEDIATE},
    {"head", required_argument, NULL, OPTION_HEAD},
    {"classes", required_argument, NULL, OPTION_CLASSES},
    {"vocab", required_argument, NULL, OPTION_VOCABULARY},
    {"positions", required_argument, NULL, OPTION_POSITIONS},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"sequence", required_argument, NULL, OPTION_SEQUENCE},
    {"weights", required_argument, NULL, OPTION_WEIGHTS},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"output", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool parse_head(BertConfig *config, const char *text, Diagnostics *diagnostics)
{
    if (strcmp(text, "seqcls") == 0) return config->head = BERT_SEQUENCE_CLASSIFIER, true;
    if (strcmp(text, "mlm") == 0) return config->head = BERT_MASKED_LANGUAGE_MODEL, true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "write seqcls or mlm", "unknown head '%s'", text);
}

static bool parse_weights(BertConfig *config, const char *text, Diagnostics *diagnostics)
{
    if (strcmp(text, "seed") == 0) return config->weights = true;
    if (strcmp(text, "none") == 0) return config->weights = false, true;
    return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "write seed or none", "unknown weights '%s'", text);
}

static bool parse_option(BertConfig *config, int option, const char *text, Diagnostics *diagnostics)
{
    int64_t seed;
    switch (option) {
    case OPTION_LAYERS: return option_integer("--layers", text, 1, 10000, &config->layers, diagnostics);
    case OPTION_HIDDEN: return option_integer("--hidden", text, 1, 1 << 16, &config->hidden, diagnostics);
    case OPTION_HEADS: return option_integer("--heads", text, 1, 1 << 16, &config->heads, diagnostics);
    case OPTION_INTERMEDIATE:
        return option_integer("--intermediate", text, 1, 1 << 20, &config->intermediate, diagnostics);
    case OPTION_HEAD: return parse_head(config, text, diagnostics);
    case OPTION_CLASSES: return option_integer("--classes", text, 1, 1 << 20, &config->classes, diagnostics);
    case OPTION_VOCABULARY: return option_integer("--vocab", text, 1, 1 << 24, &config->vocabulary, diagnostics);
    case OPTION_POSITIONS: return option_integer("--positions", text, 1, 1 << 20, &config->positions, diagnostics);
    case OPTION_BATCH: return option_integer("--batch", text, 1, 1 << 20, &config->batch, diagnostics);
    case OPTION_SEQUENCE: return option_integer("--sequence", text, 1, 1 << 20, &config->sequence, diagnostics);
    case OPTION_WEIGHTS: return parse_weights(config, text, diagnostics);
    case OPTION_SEED:
        if (!option_integer("--seed", text, 0, INT64_MAX, &seed, diagnostics)) return false;
        config->seed = (uint64_t)seed;
        return true;
    default: return false;
    }
}

static bool check(BertConfig *config, const char *output, Diagnostics *diagnostics)
{
    const char *missing = !config->layers   ? "--layers"
                          : !config->hidden ? "--hidden"
                          : !config->heads  ? "--heads"
                          : !output         ? "-o MODEL.onnx"
                                            : NULL;
    if (missing)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc bert --help lists the options",
                                 "%s is missing", missing);
    if (config->hidden % config->heads)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, NULL,
                                 "a hidden size of %lld does not divide into %lld heads", (long long)config->hidden,
                                 (long long)config->heads);
    if (config->sequence > config->positions)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "raise --positions",
                                 "a sequence of %lld is longer than the %lld positions", (long long)config->sequence,
                                 (long long)config->positions);
    if (!config->intermediate) config->intermediate = 4 * config->hidden;
    return true;
}

int bert_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    BertConfig config = {.vocabulary = 30522, .positions = 512, .classes = 3, .weights = true};
    const char *output = NULL;
    optind = 1;
    bool ok = true;
    for (int option; ok && (option = getopt_long(argc, argv, "o:h", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("bert");
        if (option == 'o')
            output = optarg;
        else
            ok = parse_option(&config, option, optarg, &diagnostics);
    }
    if (ok && optind < argc)
        ok = diagnostics_error(&diagnostics, EXIT_USAGE, PLACE_NONE, "the model's name stands behind -o",
                               "unexpected argument '%s'", argv[optind]);
    ok = ok && check(&config, output, &diagnostics) && bert_write(&config, output, &diagnostics);
    diagnostics_print(&diagnostics, stderr);
    int code = ok ? EXIT_OK : diagnostics.exit_code;
    diagnostics_free(&diagnostics);
    return code;
}
