/* The options of all commands, one row each: name, letter or 0, argument or NULL, commands that take it, kind (with
 * the least and greatest number), field; then by name what not all rows have (struct Option, base/options.h). Rows
 * without a name are the headings of --help-all.
 *
 * To add an option, add a row here and, if no field fits, one in Options (options.h) or in the structure of the
 * library that reads it. Parsing, --help, the manual page and the completions follow. An example with a field
 * `TextList frozen` in ModelOptions:
 *
 *     {"freeze", 0, "GLOB", TRAINING, OPTION_TEXT, FIELD(load.frozen), .repeated = true,
 *      .help = "do not train parameters whose names match (may be repeated)"},
 *
 * Two commands may have rows of one name with different meanings. `help` is a phrase for --help. `detail`, in whole
 * sentences with *literal words* and _placeholders_, replaces it in the manual page. A value that is more than a
 * number, a word or a choice has a reader (option_readers.h). The options of DIR/train are in
 * runtime/train/training_options.c. */
#include <math.h>

#include "driver/options/habits.h"
#include "driver/options/option_readers.h"
#include "driver/finetune/task.h"
#include "driver/options/options.h"

#define FIELD(field) OPTION_FIELD(Options, field)
#define GIVEN(setting) FIELD(finetune.given[SETTING_##setting])

#define COMMAND_BIT(NAME, name) NAME = 1 << COMMAND_##NAME,
enum {
    SKYCC_COMMANDS(COMMAND_BIT) PLANNING = COMPILE | PLAN | FEDERATE,
    TRAINING = COMPILE | PROBE | PLAN | RUN | FEDERATE, /* those that derive a training program */
    SHORT = COMPILE | PROBE | PLAN | RUN | FEDERATE | TOKENIZE | FINETUNE | PREDICT | CHECK |
            BERT, /* those with so many that --help shows the ten common ones */
    EVERY = (1 << COMMAND_COUNT) - 1
};

static const Option rows[] = {
    {.help = "Arguments"},
    {"model", 0, "MODEL.onnx", CHECK | TRAINING | HEAD, OPTION_FILE, FIELD(model), .positional = true,
     .required = CHECK | COMPILE | RUN | HEAD | FEDERATE},
    {"model", 0, "MODEL.onnx|RUN", EXPORT, OPTION_FILE, FIELD(model), .positional = true, .required = EXPORT},
    {"model", 0, "MODEL|RUN", PREDICT | EVALUATE, OPTION_FILE, FIELD(model), .positional = true,
     .required = PREDICT | EVALUATE},
    {"files", 0, "FILE...", EVALUATE, OPTION_FILE, FIELD(inputs), .positional = true, .repeated = true},
    {"checkpoint", 0, "CHECKPOINT", EXPORT | PREDICT, OPTION_FILE, FIELD(checkpoint), .positional = true,
     .common = PREDICT,
     .help = "trained weights: a directory of checkpoints (the best if training kept it, else the newest), one step of "
             "it, or a safetensors file with tensors by parameter name, such as skycc run writes after training"},
    {"plan", 0, "PLAN|RUN", EXPLAIN | VERIFY, OPTION_FILE, FIELD(plans[0]), .positional = true,
     .required = EXPLAIN | VERIFY, .read = read_plan_place},
    {"old plan", 0, "OLD", DIFF, OPTION_FILE, FIELD(plans[0]), .positional = true, .required = DIFF,
     .read = read_plan_place},
    {"new plan", 0, "NEW", DIFF, OPTION_FILE, FIELD(plans[1]), .positional = true, .required = DIFF,
     .read = read_plan_place},
    {"log", 0, "LOG|RUN", PLOT, OPTION_FILE, FIELD(inputs), .positional = true, .repeated = true, .required = PLOT,
     .read = read_log_place},
    {"table", 0, "TABLE...", TOKENIZE, OPTION_FILE, FIELD(tables), .positional = true, .repeated = true,
     .required = TOKENIZE},
    {"inputs", 0, "FILE", RUN, OPTION_FILE, FIELD(inputs), .positional = true, .repeated = true},
    {"folder", 0, "FOLDER", IMPORT, OPTION_DIRECTORY, FIELD(folder), .positional = true, .required = IMPORT},
    {"name", 0, "NAME", KEY, OPTION_TEXT, FIELD(key), .positional = true, .required = KEY},
    {"model", 0, "FOLDER|MODEL.onnx", FINETUNE, OPTION_FILE, FIELD(finetune.source), .positional = true},
    {"table", 0, "TABLE...", FINETUNE, OPTION_FILE, FIELD(finetune.tables), .positional = true, .repeated = true},

    {.help = "Fine-tuning"},
    {"text", 0, "COL[,COL]", FINETUNE, OPTION_TEXT, FIELD(dataset.text_columns), .common = FINETUNE,
     .help = "the column with the texts, or two columns (default: by their names and contents)",
     .detail = "The column with the texts, or two columns. Default: by their names and contents. A comma that belongs "
               "to a name is written as '\\,'."},
    {"label", 0, "COL[,COL...]", FINETUNE, OPTION_TEXT, FIELD(dataset.label_column), .common = FINETUNE,
     .help = "the column with the labels; several columns of 0 and 1: several labels per text"},
    {"task", 0, "TASK", FINETUNE, OPTION_TEXT, GIVEN(TASK), .choices = OPTION_WORDS(TASK_OPTION_WORDS),
     .common = FINETUNE,
     .help = "the task (default: the columns and the model decide); classes, regression, multi-label, ner, qa, pairs, "
             "mlm, chat or lm"},
    {"eval", 0, "FILE", FINETUNE, OPTION_FILE, GIVEN(EVAL), .common = FINETUNE,
     .help = "a table to evaluate on (default: 10% of the rows, held out)"},
    {"test", 0, "FILE", FINETUNE, OPTION_FILE, GIVEN(TEST), .common = FINETUNE,
     .help = "a table that is only measured at the end"},
    {"output", 'o', "RUN", FINETUNE, OPTION_DIRECTORY, FIELD(finetune.run), .initial = "run", .common = FINETUNE,
     .help = "the directory to make"},
    {"cluster", 'd', "FILE", FINETUNE, OPTION_FILE, FIELD(plan.cluster), .common = FINETUNE,
     .help = "train on the devices of this cluster.yaml (default: this machine)"},
    {"without", 0, "DEVICE", FINETUNE, OPTION_TEXT, FIELD(plan.without), .repeated = true,
     .help = "leave a device out (may be repeated)"},
    {"resume", 0, "RUN", FINETUNE, OPTION_DIRECTORY, FIELD(finetune.resume), .common = FINETUNE,
     .help = "go on with an interrupted run; with -d or --without on other devices"},
    {"epochs", 0, "N", FINETUNE, OPTION_INTEGER, 1, 1e6, GIVEN(EPOCHS), .kept_as_text = true, .common = FINETUNE,
     .help = "passes over the rows (default 3)"},
    {"batch", 0, "ROWS", FINETUNE, OPTION_INTEGER, 1, 1 << 20, GIVEN(BATCH), .kept_as_text = true,
     .help = "rows of an optimiser step (default 32)"},
    {"lr", 0, "X", FINETUNE, OPTION_NUMBER, 0, 1e30, GIVEN(LR), .kept_as_text = true, .common = FINETUNE,
     .help = "learning rate (default 5e-5)"},
    {"warmup", 0, "N|P%", FINETUNE, OPTION_TEXT, GIVEN(WARMUP), .read = read_warmup_text,
     .help = "steps, or a share of all steps, in which the learning rate rises from 0 (default 10%)"},
    {"schedule-lr", 0, "constant|linear|cosine", FINETUNE, OPTION_CHOICE, GIVEN(SCHEDULE),
     .choices = OPTION_WORDS("constant", "linear", "cosine"),
     .help = "how the learning rate falls to 0 after that (default linear)"},
    {"optimizer", 0, "SPEC", FINETUNE, OPTION_TEXT, GIVEN(OPTIMIZER),
     .choices = OPTION_WORDS("sgd", "momentum", "adam", "adamw", "lamb"),
     .help = "sgd, momentum, adam, adamw or lamb, with :key=value,... such as adamw:beta2=0.98 (default adamw)"},
    {"weight-decay", 0, "X", FINETUNE, OPTION_NUMBER, 0, 1e30, GIVEN(WEIGHT_DECAY), .kept_as_text = true,
     .help = "weight decay, not of biases and norms (default 0.01)"},
    {"clip", 0, "X", FINETUNE, OPTION_NUMBER, 0, 1e30, GIVEN(CLIP), .kept_as_text = true,
     .help = "gradient norm at which gradients are clipped; 0: no clipping (default 1)"},
    {"eval-every", 0, "N", FINETUNE, OPTION_INTEGER, 1, INT32_MAX, GIVEN(EVAL_EVERY), .kept_as_text = true,
     .help = "evaluate after every N steps (default: twice an epoch)"},
    {"keep-best", 0, "METRIC", FINETUNE, OPTION_CHOICE, GIVEN(METRIC),
     .choices = OPTION_WORDS("loss", "accuracy", "f1", "f1-macro", "f1-binary", "f1-micro", "matthews", "pearson",
                             "spearman", "perplexity", "exact"),
     .help = "the metric that decides which checkpoint is the best (default: as the task suggests)"},
    {"patience", 0, "N", FINETUNE, OPTION_INTEGER, 0, INT32_MAX, GIVEN(PATIENCE), .kept_as_text = true,
     .help = "evaluations without improvement that end training; 0: train all epochs (default 3)"},
    {"precision", 0, "f32|bf16|bf16x3", FINETUNE, OPTION_CHOICE, GIVEN(PRECISION),
     .choices = OPTION_WORDS("f32", "bf16", "bf16x3"),
     .help = "precision of matrix products (default f32; bf16: round factors and stored activations to bfloat16)"},
    {"replicas", 0, "N|auto", FINETUNE, OPTION_TEXT, GIVEN(REPLICAS), .choices = OPTION_WORDS("auto"),
     .help = "pipelines that share the rows of a step (default auto: more than one where that is faster)"},
    {"logits", 0, "auto|whole|sliced", FINETUNE, OPTION_CHOICE, GIVEN(LOGITS),
     .choices = OPTION_WORDS("whole", "auto", "sliced"),
     .help = "sliced: compute the logits of a large vocabulary some classes at a time (default auto)"},
    {"lora", 0, "SPEC", FINETUNE, OPTION_TEXT, GIVEN(LORA),
     .help = "train low-rank branches instead of all weights, such as r=8,alpha=16,targets=query,value"},
    {"frozen-weights", 0, "f32|bf16|int8|int4", FINETUNE, OPTION_CHOICE, GIVEN(FROZEN),
     .choices = OPTION_WORDS("f32", "bf16", "int8", "int4"),
     .help = "how matrices that are not trained are stored (default: as the model has them)"},
    {"freeze", 0, "GLOB", FINETUNE, OPTION_TEXT, FIELD(finetune.freeze), .repeated = true,
     .help = "do not train parameters whose name matches, such as embeddings (may be repeated)"},
    {"train", 0, "GLOB", FINETUNE, OPTION_TEXT, FIELD(finetune.trained), .repeated = true,
     .help = "train parameters whose name matches, whatever --freeze says (may be repeated)"},
    {"dropout", 0, "P|off", FINETUNE, OPTION_TEXT, GIVEN(DROPOUT),
     .help = "dropout probability in training (default: as config.json says)"},
    {"max-length", 0, "N", FINETUNE, OPTION_INTEGER, DATASET_LEAST_LENGTH, DATASET_MOST_LENGTH, GIVEN(LENGTH),
     .kept_as_text = true, .help = "tokens per row (default: what 99.5% of the rows need, at most 512)"},
    {"tokenizer", 0, "FILE", FINETUNE, OPTION_FILE, FIELD(tokenizer),
     .help = "tokenizer.json or a vocabulary (default: the folder's)"},
    {"encoding", 0, "NAME", FINETUNE, OPTION_TEXT, GIVEN(ENCODING),
     .help = "how the tables are encoded, such as cp1252 (default: UTF-8)"},
    {"seeds", 0, "N", FINETUNE, OPTION_INTEGER, 1, 1000, GIVEN(SEEDS), .kept_as_text = true,
     .help = "train N times with different seeds, for mean and standard error of the metrics"},
    {"serve", 0, "PORT", FINETUNE, OPTION_INTEGER, 0, 65535, FIELD(finetune.serve), .implied = "0",
     .help = "serve the report to browsers of this machine, at the address that is printed (default: a free port)"},
    {"tensorboard", 0, "DIR", FINETUNE, OPTION_DIRECTORY, GIVEN(TENSORBOARD),
     .help = "also write what the log has for TensorBoard, to DIR"},
    {"no-texts", 0, NULL, FINETUNE, OPTION_FLAG, FIELD(finetune.no_texts),
     .help = "leave the texts of the worst errors out of report.html and metrics.json"},
    {"dry-run", 0, NULL, FINETUNE, OPTION_FLAG, FIELD(finetune.dry_run),
     .help = "only print the decisions, and the single commands that do the same"},
    {"force", 0, NULL, FINETUNE, OPTION_FLAG, FIELD(force), .help = "replace an earlier run"},

    {.help = "Size of the BERT"},
    {"layers", 0, "L", BERT, OPTION_INTEGER, 1, 10000, FIELD(bert.layers), .required = BERT, .common = BERT,
     .help = "encoder layers"},
    {"hidden", 0, "H", BERT, OPTION_INTEGER, 1, 1 << 16, FIELD(bert.hidden), .required = BERT, .common = BERT,
     .help = "hidden size, a multiple of the number of heads"},
    {"heads", 0, "A", BERT, OPTION_INTEGER, 1, 1 << 16, FIELD(bert.heads), .required = BERT, .common = BERT,
     .help = "attention heads"},
    {"intermediate", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.intermediate),
     .help = "inner size of the feed-forward part (default: 4 times the hidden size)"},
    {"head", 0, "NAME", BERT, OPTION_CHOICE, FIELD(bert.head), .initial = "seqcls", .common = BERT,
     .choices = OPTION_WORDS("seqcls", "mlm"), .help = "seqcls or mlm (classify sequences or predict masked tokens)",
     .detail = "*seqcls* classifies the sequence, *mlm* predicts masked tokens."},
    {"classes", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.classes), .initial = "3", .common = BERT,
     .help = "classes of the sequence classifier"},
    {"vocab", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 24, FIELD(bert.vocabulary), .initial = "30522", .common = BERT,
     .help = "size of the vocabulary"},
    {"positions", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.positions), .initial = "512",
     .help = "longest sequence"},
    {"batch", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.batch), .common = BERT,
     .help = "fix the batch dimension (default: symbolic, 'batch')"},
    {"sequence", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.sequence), .common = BERT,
     .help = "fix the sequence dimension (default: symbolic, 'seq')"},
    {"weights", 0, "KIND", BERT, OPTION_CHOICE, FIELD(bert.weights), .initial = "seed", .common = BERT,
     .choices = OPTION_WORDS("none", "seed"),
     .help = "seed draws the weights; none leaves them out, for compile --init",
     .detail = "*seed* draws the weights by parameter name: matrices normal with standard deviation 0.02, biases 0, "
               "gains 1. *none* leaves them out, for *skycc compile --init normal:0.02*."},

    {"weights", 0, "SOURCE", IMPORT, OPTION_CHOICE, FIELD(import_weights), .initial = "folder",
     .choices = OPTION_WORDS("none", "seed", "folder"),
     .help = "folder, seed or none (the folder's, drawn, or left out)",
     .detail =
         "*folder* takes the folder's. *seed* draws all of them, so that *config.json* alone makes a "
         "new model: matrices normal with its *initializer_range*, biases 0, gains 1. *none* leaves them out, for "
         "plans, and for *--init*."},

    {.help = "Heads"},
    {"head", 0, "HEAD", IMPORT, OPTION_TEXT, .choices = OPTION_WORDS(HEAD_WORDS), .read = read_head,
     .help =
         "the new head, such as seqcls:3 (default: the folder's own): seqcls:N, multilabel:N, regression, tokcls:N, "
         "qa, mlm, lm, embedding:mean, embedding:cls, pairs:mean or pairs:cls; missing tensors are drawn at random",
     .detail = "The head of the model; by default the folder's own. *seqcls:*_N_ classifies sequences into _N_ labels "
               "and *tokcls:*_N_ tokens; with *multilabel:*_N_ a sequence has any number of them. *regression* gives "
               "each sequence a number. *qa* finds where an answer begins "
               "and ends. *mlm* predicts masked tokens, and *lm*, of decoders, the next one. *embedding:mean* and "
               "*embedding:cls* give each sequence a "
               "vector, *pairs:mean* and *pairs:cls* each of the two sequences of a row, by the same weights. Tensors "
               "that the folder lacks, or has in another shape, are drawn from *--seed*: matrices "
               "normal with the folder's standard deviation, biases 0, gains 1."},

    {"head", 0, "HEAD", HEAD, OPTION_TEXT, .choices = OPTION_WORDS(HEAD_WORDS), .read = read_head, .required = HEAD,
     .help = "the new head, such as seqcls:3, with new weights (seqcls:N, multilabel:N, regression, tokcls:N, qa, mlm, "
             "lm, embedding:mean, embedding:cls, pairs:mean or pairs:cls)",
     .detail = "The same heads as for *skycc import*. The weights are new: matrices normal with standard deviation "
               "0.02, or the folder's, and biases 0. Sequence classifiers read _pooler_output_ if the model has it."},
    {"as-is", 0, NULL, HEAD, OPTION_FLAG, FIELD(as_is),
     .help = "the model has this head already (keep it, with its weights, and only write down which head it is, and "
             "what its labels are called: --labels, else config.json next to the model)"},
    {"labels", 0, "DATA", IMPORT | HEAD, OPTION_FILE, FIELD(labels),
     .help = "name the labels as in this data set of skycc tokenize; the folder's numbers stay if its names are the "
             "same"},

    {.help = "Texts and data sets"},
    {"vocab", 0, "FILE", TOKENIZE, OPTION_FILE, FIELD(vocabulary), .common = TOKENIZE,
     .help = "the model's WordPiece vocabulary, one piece per line"},
    {"tokenizer", 0, "FILE", TOKENIZE, OPTION_FILE, FIELD(tokenizer), .common = TOKENIZE,
     .help = "the model's tokenizer.json, instead of --vocab",
     .detail = "The model's _tokenizer.json_, instead of *--vocab*: WordPiece, byte-level BPE or Unigram, as BERT, "
               "RoBERTa, XLM-R, CamemBERT, DistilBERT, ELECTRA, ALBERT, MPNet, ModernBERT and DeBERTa use them. Token "
               "ids equal those of the Hugging Face library. A file that needs anything else is an error."},
    {"text", 0, "COL[,COL]", TOKENIZE, OPTION_TEXT, FIELD(dataset.text_columns), .common = TOKENIZE,
     .help = "the column with the texts, or two with pairs, by name; for ner the column with lists of words, for qa "
             "question,context"},
    {"tokenizer", 0, "FILE", PREDICT, OPTION_FILE, FIELD(tokenizer), .common = PREDICT,
     .help = "the model's tokenizer.json or vocabulary (default: in the folder that the model was imported from)",
     .detail = "The model's _tokenizer.json_, or, with another suffix, a WordPiece vocabulary. By default skycc looks "
               "into the folder that the model was imported from: for _tokenizer.json_, then for _vocab.txt_, which is "
               "cased if _tokenizer_config.json_ says so. Data sets need no tokenizer."},
    {"text", 0, "TEXT", PREDICT, OPTION_TEXT, FIELD(texts[0]), .common = PREDICT,
     .help = "the text (-: one per line of standard input); with --data TABLE: the column with the texts (for tokcls "
             "also lists of words), or the two columns with pairs, by name"},
    {"text2", 0, "TEXT", PREDICT, OPTION_TEXT, FIELD(texts[1]), .common = PREDICT,
     .help = "the second text of a pair (the text to answer from, or to compare embeddings with)"},
    {"prompt", 0, "TEXT", PREDICT, OPTION_TEXT, FIELD(generate.prompt), .common = PREDICT,
     .help = "continue this text with a decoder; a run that learned conversations answers it",
     .detail =
         "Prints the text and how a decoder continues it, until its end-of-text token, *--tokens*, or its last "
         "position; of a run that learned conversations, the answer alone (see *--chat-template*). A decoder of *skycc "
         "import* takes one token at a time; of another model each token runs the "
         "whole text again. On standard output control characters are escaped; *-o FILE* gets the text as it is."},
    {"tokens", 0, "N", PREDICT, OPTION_INTEGER, 1, 1 << 20, FIELD(generate.tokens), .common = PREDICT, .initial = "64",
     .help = "how many tokens --prompt adds at most"},
    {"temperature", 0, "X", PREDICT, OPTION_NUMBER, 0, 100, FIELD(generate.temperature), .initial = "0",
     .help = "draw tokens of --prompt, from logits divided by X; 0 takes the most likely"},
    {"top-p", 0, "P", PREDICT, OPTION_NUMBER, 1e-6, 1, FIELD(generate.top_p), .initial = "1",
     .help = "with --temperature: draw from the most likely tokens, whose probabilities add up to P"},
    {"data", 0, "FILE", PREDICT, OPTION_FILE, FIELD(data), .common = PREDICT,
     .help = "a data set of skycc tokenize, or a table (.safetensors; .csv, .jsonl, else TSV; - is standard input)"},
    {"labels", 0, "DATA", PREDICT | EVALUATE, OPTION_FILE, FIELD(labels), .common = PREDICT,
     .help = "a data set of skycc tokenize with the label names (default: the imported folder's names)"},
    {"multi-label", 0, NULL, PREDICT | EVALUATE, OPTION_FLAG, FIELD(multi_label),
     .help = "a text may have several labels, as after training with --loss bce (default: what config.json says)",
     .detail = "A text may have several labels, as after training with *--loss bce*. Each label gets a probability of "
               "its own; those above 0.5 are printed, with semicolons between them. This is the default if the "
               "imported folder's _config.json_ says _multi_label_classification_."},
    {"label", 0, "COL[,COL...]", TOKENIZE, OPTION_TEXT, FIELD(dataset.label_column), .common = TOKENIZE,
     .help = "the column with the labels (whole numbers are classes, other numbers are values, anything else names "
             "classes, numbered in byte order); lists, or several columns of 0 and 1, are for --loss bce",
     .detail = "The column with the labels. Whole numbers are classes. Other numbers are values, for regression. "
               "Anything else names classes, which are numbered in byte order. Several columns, each 0 or 1, are "
               "labels that a row may have or not, named after the columns: train with *--loss bce*. So are lists of "
               "labels in one column, such as [\"rude\", \"long\"]. With *--regression* several columns are values. "
               "*--task ner* takes lists of tags, *--task qa* answers."},
    {"regression", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.regression),
     .help = "labels are values (float32), also whole numbers"},
    {"labels-of", 0, "DATA", TOKENIZE, OPTION_FILE, FIELD(dataset.labels_of), .common = TOKENIZE,
     .help = "number the labels as in this data set; other labels are errors (usually the training set)"},
    {"holdout", 0, "P%|N", TOKENIZE, OPTION_TEXT, FIELD(dataset.holdout), .read = read_holdout, .common = TOKENIZE,
     .help = "hold out this share or number of rows (drawn from --seed; written to DATA.holdout.safetensors)",
     .detail = "Write this share or number of the rows to a second file, _DATA_*.holdout.safetensors*, and only the "
               "others to _DATA_*.safetensors*. The rows are drawn from *--seed*. Both files keep the order of the "
               "rows."},
    {"stratified", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.stratified),
     .help = "with --holdout: the same share of every class"},
    {"classes", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.classes),
     .help = "labels are names of classes, also if all are numbers; numbers are ordered as such"},
    {"balance", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.balance),
     .help = "repeat rows of the rarer labels until every label has as many rows as the most frequent one",
     .detail = "Repeat rows of the rarer labels until every label has as many rows as the most frequent one. *--seed* "
               "decides which rows are repeated once more than others. Held-out rows are not repeated. Use it for rare "
               "labels, and for sites of a federation whose labels are distributed differently."},
    {"format", 0, "FORMAT", TOKENIZE, OPTION_CHOICE, FIELD(dataset.format), .initial = "suffix",
     .choices = OPTION_WORDS("suffix", "tsv", "csv", "jsonl", "conll"),
     .help = "tsv (no quoting), csv (RFC 4180), jsonl, conll, or what the suffix says (else tsv)",
     .detail = "*tsv*: fields between tabs, quotes are text. *csv*: RFC 4180. *jsonl*: one object per line. *conll*: a "
               "word per line with its tag in the last column, and empty lines between sentences. *suffix*: what the "
               "file's suffix says (.csv; .jsonl, .json, .ndjson; .conll, .bio, .iob2; anything else is TSV)."},
    {"task", 0, "TASK", TOKENIZE, OPTION_CHOICE, FIELD(task),
     .choices = OPTION_WORDS("mnli", "mrpc", "sst2", "pair", "single", "mlm", "ner", "qa", "pairs", "multi-label",
                             "chat", "lm"),
     .common = TOKENIZE,
     .help = "mlm, ner, qa, pairs, multi-label, chat or lm; or, instead of --text, mnli, mrpc, sst2, pair or single",
     .detail =
         "Instead of *--text*: *mnli*, *mrpc*, *sst2*, *pair* or *single*, with one label a row (*pair* and "
         "*single* take any labels). The others may be given with *--text* and *--label*. *mlm* masks tokens for "
         "the model to guess. *ner* reads lists of words and tags (columns _tokens_ and _ner_tags_, or a file in "
         "CoNLL's form): the first token of a word has its tag, the others -100. *qa* reads _question_, "
         "_context_ and _answers_: the answer's text, {\"text\", \"answer_start\"} or lists of these (or two "
         "columns, *--label* TEXT,START); long contexts become several windows. *pairs* keeps the two texts "
         "apart, in _input_ids_ and _input_ids_2_. *multi-label* reads lists of labels. *chat* reads _messages_, "
         "[{\"role\": \"user\", \"content\": ...}, ...], or the columns *--text* PROMPT,RESPONSE or "
         "PROMPT,INPUT,RESPONSE, for a model to learn the responses. *lm* reads documents, the column *--text* COL "
         "or whole files of plain text, and cuts them into windows of *--max-length* tokens."},
    {"chat-template", 0, "NAME", TOKENIZE | FINETUNE | PREDICT, OPTION_CHOICE, FIELD(chat_template),
     .choices = OPTION_WORDS(CHAT_TEMPLATE_WORDS, CHAT_TEMPLATE_FOLDER),
     .help = "how conversations are written: chatml, llama3, gemma, mistral, alpaca, plain, or folder, as the "
             "tokenizer's folder says (default: the one whose tokens the tokenizer has, else alpaca; of a run: its "
             "own)",
     .detail =
         "*folder* is chat_template.jinja next to the tokenizer, or that of tokenizer_config.json: it also writes "
         "tools (a column _tools_), calls of them, and documents. *skycc finetune* takes it by itself for a table "
         "with such columns. *skycc predict RUN --prompt QUESTION* writes the question as the run learned "
         "conversations, and prints the answer. A prompt that has marks of the template stands as it is; with "
         "*--chat-template plain* any "
         "prompt does."},
    {"train-on", 0, "WHAT", TOKENIZE | FINETUNE, OPTION_CHOICE, FIELD(train_on), .initial = "responses",
     .choices = OPTION_WORDS("responses", "all"),
     .help = "of conversations: learn the responses alone, or questions too"},
    {"end-of-text", 0, "TOKEN", TOKENIZE | FINETUNE, OPTION_TEXT, FIELD(end_of_text),
     .help = "the token that ends a text (default: what tokenizer_config.json says, or the usual one)"},
    {"encoding", 0, "NAME", TOKENIZE, OPTION_TEXT, FIELD(dataset.encoding),
     .help = "how the table is encoded, if it is not UTF-8: cp1252, utf-16, latin1 or any name that iconv knows"},
    {"model", 0, "MODEL", TOKENIZE, OPTION_FILE, FIELD(model), .common = TOKENIZE,
     .help = "the imported model or its folder (gives the tokenizer and limits --max-length to its positions)"},
    {"stride", 0, "N", TOKENIZE, OPTION_INTEGER, 0, DATASET_MOST_LENGTH, FIELD(dataset.stride),
     .help = "with --task qa: tokens that two windows of a long context share (default: 128, at most a third of "
             "--max-length)"},
    {"max-length", 0, "N", TOKENIZE | PREDICT, OPTION_INTEGER, DATASET_LEAST_LENGTH, DATASET_MOST_LENGTH,
     FIELD(dataset.max_length), .initial = "128", .common = TOKENIZE | PREDICT,
     .help = "tokens per row (shorter texts are padded, longer ones cut)"},
    {"cased", 0, NULL, TOKENIZE | PREDICT, OPTION_FLAG, FIELD(cased),
     .help = "the vocabulary is cased: keep capitals and accents"},

    {.help = "Federations and hosts"},
    {"federation", 'c', "FILE", FEDERATE | PLAN | PROBE, OPTION_FILE, FIELD(federation), .required = FEDERATE,
     .common = FEDERATE | PLAN | PROBE, .help = "sites, their cluster files, and rounds (federation.yaml)",
     .detail = "The sites, their cluster files and the rounds; see *FILES*. *skycc plan* compares what these sites can "
               "do: one pipeline over all of them, one replica per site, or groups of sites as replicas. *skycc probe "
               "--site* measures the link between each site and the coordinator, one site after another; the "
               "coordinator takes part as the site _coordinator_."},
    {"from", 0, "DIR", FEDERATE, OPTION_DIRECTORY, FIELD(follows), .common = FEDERATE,
     .help = "continue with the model of this coordinator (its directory), with sites that have joined or left",
     .detail = "Continue with the model, momentum and round in the directory of a coordinator that has ended, with the "
               "sites that _federation.yaml_ has now. Sites use their new directories and keep their checkpoints; new "
               "sites start from the model."},
    {"amend", 0, "CHANGE.yaml", FEDERATE, OPTION_FILE, FIELD(amend), .common = FEDERATE, .suffices = FEDERATE,
     .help = "sign a change to a federation that runs (sites that leave, join or get another key)",
     .detail = "Sign a change to the federation in *-o* _DIR_, which runs on: _remove: [NAME]_, _keys: [{name, key}]_, "
               "_add: [{name, cluster, key, rows_per_step}]_ and, if it matters, _from_round_. The amendment is put "
               "into _DIR/amendments_ and where the coordinator takes it from. For a site that joins, name the model "
               "and the options again, and its folder is made."},
    {"rounds", 0, "N", FEDERATE, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.rounds), .common = FEDERATE,
     .help = "number of rounds, instead of federation.yaml's"},
    {"local-steps", 0, "N|auto", FEDERATE | PLAN, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.local_steps),
     .choices = OPTION_WORDS("auto"), .read = read_number_or_word, .common = FEDERATE,
     .help = "steps of each site per round (instead of federation.yaml's); auto: as few as leave 95% of the time for "
             "training",
     .detail = "Steps of each site per round, instead of _federation.yaml_'s. *auto* takes the fewest that leave at "
               "least 95% of the time for training. It uses the planned step times of the sites and the links in "
               "_federation.yaml_. The number and the reason are printed and kept in the _federation.yaml_ of every "
               "site."},
    {"overlap", 0, "N|all", FEDERATE | PLAN, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.overlap),
     .choices = OPTION_WORDS("all"), .read = read_number_or_word,
     .help = "steps that a site computes while a round's updates travel, instead of federation.yaml's",
     .detail = "Instead of _federation.yaml_'s: a site computes the first _N_ steps of its next round, or all of them, "
               "while its update and the new model travel. It then adds the result to what these steps made, always "
               "after the same step, whenever the result arrives."},
    {"clip-update", 0, "C", FEDERATE, OPTION_NUMBER, 1e-30, 1e30, FIELD(federation_wishes.clip_update),
     .help = "the largest norm of a site's update, instead of federation.yaml's"},
    {"dp", 0, "clip=C,noise=SIGMA", FEDERATE, OPTION_TEXT, .read = read_privacy, .common = FEDERATE,
     .help = "differential privacy of sites (instead of federation.yaml's; also delta=D, default 1e-5)"},
    {"hide-metrics", 0, NULL, FEDERATE, OPTION_FLAG, FIELD(federation_wishes.hide_metrics),
     .help = "the coordinator sees neither row counts nor losses of a site"},
    {"directory", 0, "DIR", COORDINATE | DEPLOY, OPTION_DIRECTORY, FIELD(folder), .positional = true,
     .required = COORDINATE | DEPLOY},
    {"key", 0, "FILE", COORDINATE, OPTION_FILE, FIELD(key),
     .help = "the coordinator's secret key (default: coordinator.key in the current directory)"},
    {"devices", 0, NULL, PROBE, OPTION_FLAG, FIELD(lists_devices), .suffices = PROBE,
     .help = "list what this host can compute with, its processor and OpenCL devices, as cluster files name them"},
    {"site", 0, "NAME", PROBE, OPTION_TEXT, FIELD(site), .common = PROBE,
     .help = "measure the links between sites, as site NAME; run it at all sites at the same time",
     .detail = "Measure the links between the sites of the cluster file, as site _NAME_, with its key. Run it at all "
               "sites at the same time; pairs of sites take turns. Latency and bandwidth (one way, back, and both at "
               "once) are measured through the same connection that a run uses. The results are added to the profile."},
    {"key", 0, "FILE", PROBE, OPTION_FILE, FIELD(key), .common = PROBE, .help = "with --site: the site's secret key"},
    {"timeout", 0, "SECONDS", PROBE, OPTION_NUMBER, 1, 1e9, FIELD(patience_s), .initial = "60", .common = PROBE,
     .help = "with --site: how long to wait for other sites"},
    {"listen", 0, "HOST:PORT", COORDINATE, OPTION_TEXT, FIELD(listen),
     .help = "where to listen (if it differs from the address that sites connect to)",
     .detail = "Where to listen, if it differs from the address that sites connect to, for example if a router "
               "forwards the port. 0.0.0.0:_PORT_ means every address of this host."},
    {"check", 0, NULL, DEPLOY, OPTION_FLAG, FIELD(check), .help = "copy nothing; list what each host lacks for a run",
     .detail = "Copy nothing, and list what each host lacks for a run. Checked are: the ssh connection; programs, "
               "weights and data (by hash); the version of MPICH; the processor features and libraries that the "
               "programs need; memory for the planned stages; disk space for missing files; free ports in the cluster "
               "file's range; and a clock within 5 seconds of this host's."},
    {"data", 0, "FILE", DEPLOY, OPTION_FILE, FIELD(data), .help = "the data set, which all ranks read",
     .detail = "The data set, which all ranks read. It is copied to the same path on each host, or with *--to* into "
               "_PATH_."},
    {"to", 0, "PATH", DEPLOY, OPTION_TEXT, FIELD(destination),
     .help = "the folder on the hosts, an absolute path (default: the same path as here)",
     .detail = "The folder on all hosts, an absolute path; by default the path of _DIR_ here. Start the run on one of "
               "the hosts with _PATH/train_."},
    {"collect", 0, "FOLDER", DEPLOY, OPTION_DIRECTORY, FIELD(collected),
     .help = "copy back what FOLDER has on the hosts and not here (such as checkpoints)",
     .detail = "Instead of copying to the hosts, copy from them what _FOLDER_ has there, under the same path, and not "
               "here. Without a shared file system every rank writes its part of a checkpoint where it runs; "
               "*skycc export* and *skycc evaluate* need all parts."},
    {"ssh", 0, "COMMAND", DEPLOY, OPTION_TEXT, FIELD(ssh), .initial = "ssh",
     .help = "the ssh command with its options (such as 'ssh -p 2222')",
     .detail = "The ssh command with its options, such as *\"ssh -p 2222\"*; the shell runs it. *mpiexec* does not use "
               "it: put what mpiexec needs as well into _~/.ssh/config_."},
    {"log", 0, "FILE", COORDINATE, OPTION_FILE, FIELD(csv),
     .help = "append a line of CSV for every round (default: rounds.csv in DIR)"},
    {"from-round", 0, "R", COORDINATE, OPTION_INTEGER, 0, 1e15, FIELD(from_round), .read = read_from_round,
     .help = "go back to the model after round R (which federation.yaml's keep: N has kept)",
     .detail = "Go back to the model after round _R_ and continue from it. *keep: N* in _federation.yaml_ keeps the "
               "models of the last _N_ rounds (default 3) in DIR/rounds. Sites take that model and drop their "
               "optimisers' states. Epsilon goes on counting the rounds that are gone back over."},

    {.help = "Other inputs"},
    {"cluster", 'd', "FILE", COMPILE | PLAN | PROBE, OPTION_FILE, FIELD(plan.cluster), .required = COMPILE,
     .common = COMPILE | PLAN | PROBE, .help = "the devices and links (cluster.yaml)",
     .detail = "The devices and links; see *FILES*."},
    {"profile", 0, "FILE", COMPILE | PLAN | FEDERATE, OPTION_FILE, FIELD(plan.profile), .common = COMPILE | PLAN,
     .help = "times measured by skycc probe (default: estimates from the device specifications)",
     .detail = "Times measured by *skycc probe*. Without it, times are estimated from the device specifications. For a "
               "federation only link times are used, those that *skycc probe --federation* measured."},
    {"costs", 0, "FILE", PLAN, OPTION_FILE, FIELD(costs), .common = PLAN,
     .help = "times and sizes, instead of a model and a cluster"},
    {"costs", 0, "FILE", VERIFY, OPTION_FILE, FIELD(costs),
     .help = "the costs that the plan was made from (default: costs.json next to it, where compile leaves them)"},
    {"trace", 0, "FILE", EXPLAIN, OPTION_FILE, FIELD(trace),
     .help = "the trace of a run of this plan (DIR/train --trace writes it)"},
    {"inputs", 0, "FILE...", RUN, OPTION_FILE, FIELD(inputs), .repeated = true, .common = RUN,
     .help = "the model's inputs: safetensors by name (a leading in/ is dropped), .npy, .npz, or ONNX .pb tensors in "
             "the order of the inputs; their shapes bind symbolic dimensions",
     .detail = "The model's inputs; needed unless it has none. Safetensors hold them by name (a leading _in/_ is "
               "dropped, other tensors are ignored); .npy, .npz and ONNX .pb files are taken too, .pb tensors in the "
               "order of the inputs. Integer widths are converted. Shapes bind symbolic dimensions."},

    {.help = "The model and its training"},
    {"dim", 0, "NAME=VALUE", CHECK | TRAINING, OPTION_TEXT, .read = read_dimension, .common = CHECK | TRAINING,
     .help = "bind a symbolic dimension; the batch dimension is the micro-batch size (may be repeated)",
     .detail = "Bind a symbolic dimension; the batch dimension is the micro-batch size. May be repeated; "
               "of several for one dimension, the last one counts. *compile*, "
               "*plan* and *probe* take several lengths for the token dimension, as in *seq=16,32,64,128*, or "
               "*seq=auto:128* for at most 128 tokens. Rows are then packed: several short rows share one packed "
               "sequence, so that padding costs little. A step trains the same rows with the same result as padded "
               "rows would. skycc refuses models whose "
               "result depends on padding, or which mix rows or tokens in a way that packing does not know."},
    {"lengths", 0, "FILE", COMPILE | PLAN | PROBE, OPTION_FILE, FIELD(load.lengths.data),
     .help = "a data set with typical row lengths, for --dim NAME=auto:LONGEST",
     .detail = "A data set with typical row lengths (its tensor _lengths_, or its attention mask). It decides how many "
               "packed sequences a micro-batch has and how many rows fit into one. Use it with *--dim* "
               "_NAME_*=auto:*_LONGEST_ or a list of lengths."},
    {"loss", 0, "SPEC", TRAINING, OPTION_TEXT, FIELD(load.loss),
     .choices = OPTION_WORDS("cross-entropy", "mse", "bce", "cosine:", "contrastive:", "output:"),
     .common = COMPILE | RUN,
     .help = "what training minimises (cross-entropy, mse or bce, each with [:OUTPUT[:LABELS]], cosine:A:B[:LABELS], "
             "contrastive:A:B[:TEMPERATURE] or output:NAME, joined by +)",
     .detail = "What training minimises; see *SPECIFICATIONS*."},
    {"optimizer", 0, "SPEC", TRAINING, OPTION_TEXT, FIELD(load.optimizer),
     .choices = OPTION_WORDS("sgd", "momentum", "adam", "adamw", "lamb"), .common = COMPILE | RUN,
     .help = "sgd, momentum, adam, adamw or lamb (default: adamw); with :key=value,...",
     .detail = "How weights are updated; see *SPECIFICATIONS*. Without a learning rate, *DIR/train* takes 5e-5 for "
               "*adam* and *adamw*; *skycc run* does not."},
    {"dropout", 0, "P|off", CHECK | TRAINING, OPTION_TEXT, .choices = OPTION_WORDS("off"), .read = read_dropout,
     .common = CHECK, .help = "dropout probability in training, at BERT's places; off: no dropout",
     .detail = "Drop elements at random in training with probability _P_, rounded to a multiple of 1/65536. The places "
               "are those of a train-mode export, else BERT's: embeddings, attention probabilities, the outputs of "
               "both parts of a block, and the classifier's input. *off* removes the dropout of a train-mode export. "
               "Evaluation drops nothing."},
    {"precision", 0, "f32|bf16|bf16x3", TRAINING, OPTION_CHOICE, FIELD(load.precision), .initial = "f32",
     .choices = OPTION_WORDS("f32", "bf16", "bf16x3"), .common = COMPILE,
     .help = "precision of matrix products (bf16: round factors and stored activations to bfloat16; bf16x3: products "
             "to 2^-16)",
     .detail = "With *bf16*, the factors of every matrix product are rounded to bfloat16 (to nearest, ties to even) "
               "and their products added up in float32. Activations that wait for the backward pass are stored as "
               "bfloat16. So are gradients that are factors: the gradient of a bias adds up the rounded numbers. So "
               "are activations and their gradients between layers, which stages send each other "
               "(unless *--codec* compresses them otherwise). All are rounded wherever the plan cuts the model: "
               "losses do not depend on the plan. Everything else stays float32: weights, their gradients, the "
               "optimiser, softmax, normalisation, losses, checkpoints. Processors with AMX or AVX-512 BF16 "
               "instructions multiply several times faster this way. Other processors compute the same results with "
               "float32 instructions, slower than *f32*, and skycc warns. All targets round alike but add in "
               "different orders, and the BF16 instructions treat subnormal numbers as 0. With *f32* on a processor "
               "with AMX, large products run on AMX too: every factor is split into three bfloat16 numbers whose sum "
               "is exact. The result is at least as exact as with float32 instructions, but an infinite factor gives "
               "NaN. The target feature *-amx-bf16* turns this off. With *bf16x3*, large products on AMX take two "
               "bfloat16 numbers of every factor and add up three products instead of six, twice as fast: each product "
               "of two numbers is wrong by 2^-17 on average and 3 * 2^-16 at most (of tf32, which GPUs use, by 2^-10). "
               "Nothing is stored as bfloat16. Processors without AMX multiply float32 faster than three times "
               "bfloat16: they compute as with *f32*, and skycc says so."},
    {"logits", 0, "auto|whole|sliced", TRAINING, OPTION_CHOICE, FIELD(load.logits), .initial = "auto",
     .choices = OPTION_WORDS("whole", "auto", "sliced"),
     .help = "whether cross-entropy of a large vocabulary computes the logits some classes at a time",
     .detail =
         "Where the logits are a product with the vocabulary that only a cross-entropy (without class weights and "
         "smoothing) reads, *sliced* computes them some classes at a time, forward and backward, so that they "
         "are never in memory as a whole. Where the vocabulary is trained, the backward pass computes them again. "
         "Evaluation then reports the loss, and no accuracy. *auto* slices logits of 64 MiB and more for a micro-batch "
         "(next to a frozen vocabulary of 16 MiB and more), but not for *skycc run*, which writes all outputs."},
    {"frozen-weights", 0, "f32|bf16|int8|int4", TRAINING | CHECK, OPTION_TEXT, .read = read_frozen_weights,
     .choices = OPTION_WORDS("f32", "bf16", "int8", "int4"), .common = CHECK,
     .help = "how matrices that are not trained are stored (default: as the model has them)",
     .detail =
         "Weights that *--freeze* or *--lora* keep as they are need only be read. *bf16* rounds them to bfloat16. "
         "*int8* and *int4* store blocks of 32 neighbouring numbers, along the axis that products sum over, as "
         "integers times one scale: 8.5 and 4.5 bits a number. A number is then at most 1/252 (int8) or 1/13.9 "
         "(int4) of the largest of its block from what it was. Matrices stay in that form in memory; products "
         "decode what they read. Vectors, and weights that are trained, stay as they are. Without this option, "
         "*--precision bf16* stores as bfloat16 the matrices that only products read, which changes no result: "
         "products round them anyway. *skycc export* merges low-rank branches into the original weights, and prints "
         "by how much that changes logits."},
    {"no-prune", 0, NULL, TRAINING, OPTION_FLAG, FIELD(load.no_pruning),
     .help = "also compute what nothing reads (the last block for all tokens, not only the one that is read)"},
    {"freeze", 0, "GLOB", CHECK | TRAINING, OPTION_TEXT, .read = read_freeze, .common = CHECK,
     .help = "do not train parameters that match (a pattern of names; may be repeated)",
     .detail = "Do not train parameters whose name, or place in the model, matches the pattern: they keep their "
               "values. Without wildcards it matches names that have it as a component between dots. May be repeated "
               "and mixed with *--train*; the last pattern that matches a name decides. *skycc "
               "check* lists what is trained."},
    {"no-gradient-row", 0, "NAME=INDEX", TRAINING, OPTION_TEXT, FIELD(load.no_gradient_rows), .repeated = true,
     .help = "lookups of this row of an embedding table give it no gradient, as padding_idx in PyTorch (may be "
             "repeated)",
     .detail =
         "Lookups of row _INDEX_ of table _NAME_ give it no gradient, as _padding_idx_ of PyTorch's Embedding "
         "does. Models that *skycc import* made leave out these rows by themselves. Of what PyTorch's default "
         "exporter made a warning names them. The TorchScript exporter does not record _padding_idx_: a warning names "
         "the only row of zeros of a table, else tables with several such rows or with more than 100 rows. It is the "
         "padding token's id, for BERT and its relatives of the word embeddings, for RoBERTa of the positions too. It "
         "makes a difference only if padded positions reach the loss. The outputs stay the same. Other uses of "
         "the table, such as a tied decoder, still give the row gradients, and weight decay still shrinks it, "
         "as in PyTorch. May be repeated, for at most 16 rows of a table."},
    {"train", 0, "GLOB", CHECK | COMPILE | PROBE | PLAN | FEDERATE, OPTION_TEXT, .read = read_train, .common = CHECK,
     .help = "train what matches the pattern (whatever --freeze says; may be repeated)"},
    {"lora", 0, "SPEC", CHECK | TRAINING, OPTION_TEXT, .read = read_low_rank, .common = CHECK | COMPILE | FEDERATE,
     .help = "train low-rank branches and freeze the rest (such as r=8,alpha=16,targets=query,value)",
     .detail =
         "Train low-rank branches next to the weights of matrix products and freeze the model, for example "
         "*r=8,alpha=16,targets=query,value,dropout=0.05*. A branch adds _alpha_/_r_ times x A B to the result "
         "of a product, where x is its input (with dropout in training), A is drawn from *--seed* and B starts "
         "as zeros. _alpha_ is _r_ unless given. A target is a pattern for weight names or places in the model; "
         "without wildcards it matches names that have it as a component between dots; *all-linear* means all but "
         "embeddings and heads, as in the PEFT library. An item without *=* "
         "continues the list before it. Heads whose names end in *classifier*, *score* or *qa_outputs* are still "
         "trained, as in the PEFT library; *--train* and *--freeze* change that. Frozen weights have no "
         "gradients and no optimiser state, and are not in checkpoints."},
    {"keep-ties", 0, NULL, CHECK | TRAINING, OPTION_FLAG, FIELD(load.import.keep_ties),
     .help = "train constant initializers that an exporter merged as one parameter"},
    {"untie", 0, NULL, CHECK | TRAINING, OPTION_FLAG, FIELD(load.import.untie),
     .help = "train every use of a shared initializer as a parameter of its own"},
    {"init", 0, "HOW", COMPILE | RUN | FEDERATE, OPTION_TEXT, .choices = OPTION_WORDS("none", "normal:0.02"),
     .read = read_init, .help = "normal:STD draws the initial weights; none takes the model's (the default)",
     .detail = "*normal:*_STD_ draws the initial weights by parameter name; the model's own may then be absent. "
               "Matrices are normal with that standard deviation, vectors 0, and gains of normalisations 1. *none*, "
               "the default, takes the model's weights."},
    {"seed", 0, "N", BERT | COMPILE | PLAN | FEDERATE | RUN | TOKENIZE | IMPORT | HEAD | FINETUNE | PREDICT,
     OPTION_INTEGER, 0, INFINITY, FIELD(seed), .initial = "0", .common = RUN,
     .help = "seed of everything random (initial weights, dropout, masks, held-out rows)"},
    {"clip", 0, "X", COMPILE | PLAN | FEDERATE, OPTION_NUMBER, 0, 1e30, FIELD(plan.clip), .initial = "1",
     .help = "gradient norm at which DIR/train clips; 0: no clipping",
     .detail = "Gradient norm at which *DIR/train* clips, unless its own *--clip* says otherwise; 0: no clipping. "
               "Clipping needs the norm over all ranks before every update. The simulated step time includes that "
               "(_norm_ in plan.json), and so does *--emulate*; a costs.json says so by _norm_bytes_."},
    {"target-cpu", 0, "NAME", COMPILE | PROBE | RUN | FEDERATE, OPTION_TEXT, FIELD(target_cpu), .common = PROBE,
     .help = "generate code for this CPU on native targets (default: this machine's)"},

    {.help = "Plans"},
    {"batch", 0, "ROWS", COMPILE | PLAN | PROBE, OPTION_INTEGER, 1, 1 << 20, FIELD(plan.batch),
     .common = COMPILE | PLAN | PROBE,
     .help = "rows of an optimiser step (default: 32); skycc chooses how many micro-batches they are cut into",
     .detail = "Rows of an optimiser step, the global batch (default: 32). skycc tries every micro-batch size that "
               "divides it, and takes the one with the quickest step that fits into memory; the report says what was "
               "tried. *--microbatches* _N_ or *--dim* with the batch dimension sets the size instead: _ROWS_ / _N_ "
               "rows, or _ROWS_ / *batch* micro-batches. A model with a fixed batch dimension keeps its own "
               "micro-batch. If *--microbatches* or *--dim* for the batch dimension is given without *--batch*, the "
               "global batch is their product. Another micro-batch size changes the rounding of sums, nothing else."},
    {"microbatches", 0, "N|auto", PLANNING, OPTION_INTEGER, 1, COSTS_MAX_MICROBATCHES, FIELD(plan.request.microbatches),
     .choices = OPTION_WORDS("auto"), .read = read_number_or_word, .common = FEDERATE,
     .help = "micro-batches per step; auto: as many as pay (default: chosen, see --batch; 8 with --dim batch=)",
     .detail = "Micro-batches per step. With *--batch*, they have equally many rows; without it, the global batch is "
               "the micro-batch size times _N_. The default is chosen as *--batch* says, and 8 where *--dim* gives the "
               "batch dimension without *--batch*, or for a federation. Without *--batch*, *auto* takes "
               "the smallest power of two after which doubling would train less than 10% more rows per second (about "
               "4.5 micro-batches per equal stage), at most 256 and at most what fits into memory; the report says "
               "what doubling would bring. With *--lengths* it chooses how many rows are packed into a step. The "
               "number of micro-batches changes only rounding: a loss is normalised by the valid labels of the whole "
               "global batch."},
    {"replicas", 0, "N|auto", COMPILE | PLAN, OPTION_INTEGER, 1, PLAN_MOST_REPLICAS, FIELD(plan.request.replicas),
     .choices = OPTION_WORDS("auto"), .read = read_number_or_word,
     .help = "pipelines that share the rows of a step, each on devices of its own (default: auto, which is 1 unless "
             "more make steps more than 3% shorter)",
     .detail =
         "Pipelines that share the rows of a step. Each has its own devices, cuts and schedule, and gets "
         "micro-batches in proportion to its speed. Gradients are summed over all pipelines before the update, so "
         "the result is that of one pipeline up to rounding. Needs at least _N_ micro-batches. *auto*, the default, "
         "chooses their number: one, unless more make a step more than 3% shorter. It is one with *keep:* in the "
         "cluster file, several sites, lossy codecs, *--pin*, *--objective period*, another *--allocate* than "
         "*optimal*, losses that compare all rows, and costs without *gradient_bytes*."},
    {"allocate", 0, "HOW", PLANNING, OPTION_CHOICE, FIELD(plan.request.allocate), .initial = "optimal",
     .choices = OPTION_WORDS("even", "sky", "heuristic", "optimal"),
     .help = "even, sky (the heuristic of Sky Computing), heuristic or optimal",
     .detail = "How layers are allocated to devices: *even*, *sky* (the heuristic of Sky Computing), *heuristic* or "
               "*optimal*. For the first three, the gap to the optimum is searched for only with *--time-limit*, or if "
               "nothing fits."},
    {"objective", 0, "WHAT", PLANNING, OPTION_CHOICE, FIELD(plan.request.objective), .initial = "step",
     .choices = OPTION_WORDS("step", "period"),
     .help = "what to minimise: step, the time of a step, or period, the time between two micro-batches"},
    {"time-limit", 0, "SECONDS", PLANNING, OPTION_NUMBER, 0, 1e9, FIELD(plan.request.time_limit_s), .common = PLAN,
     .help = "limit for planning, including proof and advice (default: a fixed amount of work)",
     .detail = "Limit for all planning, including proof and advice, to within a second. A search that is cut short "
               "reports how far it ended from the bound, and another run may give another plan. Without a limit a "
               "fixed amount of work is done, about half a minute of it, and the plan has the same bytes on every "
               "machine, however busy it is."},
    {"schedule", 0, "HOW", PLANNING, OPTION_CHOICE, FIELD(plan.request.schedule), .initial = "auto",
     .choices = OPTION_WORDS("gpipe", "1f1b", "zb", "searched", "auto"),
     .help = "gpipe, 1f1b, searched, zb (zero-bubble: backward is split) or auto: the fastest in simulation",
     .detail =
         "The order of forward and backward passes on every device. *gpipe* runs all forward passes first. *1f1b* "
         "keeps as many micro-batches in flight as there are stages to the end. *zb* (zero-bubble) splits the backward "
         "pass: weight gradients wait until the device is idle. *searched* keeps the backward pass whole. For *zb* and "
         "*searched* a simulation searches the order and the number of micro-batches in flight, as far as memory "
         "allows. *auto* takes 1f1b, or searched if that is more than 0.1% faster, or zb if that is more than 2% "
         "faster still. If 1f1b does not fit into memory, *auto* keeps fewer micro-batches in flight, down to one per "
         "stage. The losses are the same to the last digit with every schedule."},
    {"recompute", 0, "WHEN", PLANNING, OPTION_CHOICE, FIELD(plan.request.recompute), .initial = "auto",
     .choices = OPTION_WORDS("auto", "never", "always", "layers"),
     .help = "repeat the forward pass instead of keeping its results: auto (where memory is short), never, always (all "
             "stages) or layers (one layer at a time)",
     .detail = "Whether a stage keeps only its inputs and repeats the forward pass before the backward pass. *auto* "
               "does so where a stage does not fit its device otherwise and the plan gets better. *never* and *always* "
               "apply to all stages. With *layers* every layer keeps only its inputs, and backward repeats the "
               "forward pass layer by layer, so that a process needs room for the results of one layer. *auto* takes "
               "*layers* if nothing fits otherwise. The losses are the same to the last digit."},
    {"codec", 0, "WHAT", COMPILE | PLAN, OPTION_TEXT, .read = read_codec,
     .help = "compress messages between devices: lossless (the default), bf16, q8, q6, q4, q3, or auto:q6 and the like",
     .detail = "How activations and gradients are compressed between devices. *lossless*, the default, sends them as "
               "they are. *bf16*, *q8*, *q6*, *q4* and *q3* compress them on every link to 16, 8, 6, 4 or 3 bits a "
               "number, plus a scale for every 64 numbers. *auto:q6* and the like choose for each link and direction, "
               "from lossless down to that codec, what makes the best plan. The losses depend on the codecs and on "
               "where the plan cuts the model; *skycc run --plan* reproduces them."},
    {"without", 0, "DEVICE", COMPILE | PLAN, OPTION_TEXT, FIELD(plan.without), .repeated = true,
     .common = COMPILE | PLAN, .help = "leave a device out (may be repeated)"},
    {"audit", 0, "FILE", VERIFY, OPTION_FILE, FIELD(audits), .repeated = true,
     .help = "compare what crossed between sites with the plan (DIR/SITE/train --audit writes it; may be repeated)",
     .detail = "Compare what crossed between sites, as *DIR/SITE/train --audit* _FILE_ wrote it, with the plan. "
               "Messages that are not in the plan, that were sent more often than its steps need, or that had another "
               "size are named, and the exit code is 1. May be repeated, for the audits of several sites."},
    {"allow-unproven", 0, NULL, VERIFY, OPTION_FLAG, FIELD(allow_unproven),
     .help = "accept a plan that calls itself optimal without a proof"},
    {"add", 0, "SPEC", COMPILE | PLAN | VERIFY, OPTION_TEXT, FIELD(plan.added), .repeated = true,
     .help = "add a device, such as name=x,memory=8GiB,gflops=100 or name=x,like=DEVICE (may be repeated)",
     .detail = "Add a device, written as in a cluster file: *{name: x, memory: 8GiB, gflops: 100}*, or shorter: "
               "*name=x,memory=8GiB,gflops=100*. *like=*_DEVICE_ takes what is not given from another device. With "
               "*skycc plan --costs* a device has *name*, *like*, *slowdown*, *memory*, *region* and *count*; give "
               "*skycc verify* the same option. May be repeated."},
    {"pin", 0, "LAYERS=DEVICE", COMPILE | PLAN, OPTION_TEXT, FIELD(plan.pins), .repeated = true,
     .help = "keep layers on a device: a name, the beginning of names, or FIRST-LAST by name or number (may be "
             "repeated)"},
    {"fail-above", 0, "SECONDS", COMPILE | PLAN | DIFF, OPTION_NUMBER, 0, 1e9, FIELD(fail_above),
     .help = "exit with 1 if the (new) plan's step is longer; or its period, if that is the objective"},
    {"emit", 0, "PHASE", COMPILE, OPTION_TEXT, .read = read_emit,
     .choices = OPTION_WORDS("graph", "train", "costs", "plan", "llvm", "asm", "obj"),
     .help = "stop after a phase and write its output: graph, graph:after:PASS, train, costs or plan to a file; llvm, "
             "asm or obj as one file per device in the output directory",
     .detail = "Stop after a phase and write its output. *graph*, *train*, *costs* and *plan* are written to the "
               "output file; *llvm*, *asm* and *obj* give one file per device in the output directory. "
               "*graph:after:*_PASS_ is the graph after one of the passes; an unknown pass is answered with the list "
               "of names."},

    {.help = "Running"},
    {"grad", 0, NULL, RUN, OPTION_FLAG, FIELD(gradients), .common = RUN,
     .help = "write grad/PARAMETER for every parameter"},
    {"train", 0, "N|GLOB", RUN, OPTION_TEXT, .read = read_steps_or_train, .common = RUN,
     .help = "do N steps on this one batch (and write train/loss, N + 1 values, and param/PARAMETER); or a pattern, as "
             "for compile",
     .detail = "Do _N_ steps on this one batch, and write _train/loss_ (one value before each step and one after the "
               "last) and _param/PARAMETER_. Anything but a number is a pattern of names, as for *skycc compile*."},
    {"plan", 0, "PLAN.json", RUN, OPTION_FILE, FIELD(plans[0]),
     .help = "compute as this plan does: compressed links, replicas",
     .detail =
         "Compress activations and gradients as the plan does on its links. If the plan has several replicas, the "
         "inputs are the rows of a step: they are cut into micro-batches and dealt, and gradients are summed, as "
         "the replicas do. The results are those of the plan's programs, to the last digit."},
    {"interpret", 0, NULL, RUN, OPTION_FLAG, FIELD(interpret), .common = RUN, .help = "interpret instead of compiling"},
    {"threads", 0, "N", RUN | PREDICT | EVALUATE, OPTION_INTEGER, 1, 4096, FIELD(threads), .common = RUN,
     .help = "threads to use (default: all processors)"},

    {.help = "Output"},
    {"no-weights", 0, NULL, CHECK, OPTION_FLAG, FIELD(load.import.no_weights), .common = CHECK,
     .help = "do not require the files with the weights"},
    {"json", 0, NULL, CHECK, OPTION_FLAG, FIELD(json), .common = CHECK,
     .help = "print JSON, including errors and warnings"},
    {"output", 'o', "DIR", FEDERATE, OPTION_DIRECTORY, FIELD(output), .required = FEDERATE, .common = FEDERATE,
     .help = "the directory to make: a folder for every site, by its name, and coordinator",
     .detail = "The directory to make: a folder for every site, by its name, and _coordinator_. An earlier output is "
               "replaced."},
    {"output", 'o', "DIR", COMPILE, OPTION_DIRECTORY, FIELD(output), .required = COMPILE, .common = COMPILE,
     .help = "the directory to make (with --emit: the file, or - for standard output)",
     .detail = "The directory to make. An earlier output of skycc is replaced: the files that its _.skycc-files_ "
               "lists. skycc refuses a directory that holds anything else, unless *--force* is given. With *--emit*: "
               "the file."},
    {"force", 0, NULL, COMPILE | FEDERATE, OPTION_FLAG, FIELD(force),
     .help = "write into a directory that also holds other files; they stay as they are"},
    {"output", 'o', "FILE", BERT | EXPORT | IMPORT | HEAD, OPTION_FILE, FIELD(output), .required = BERT | IMPORT | HEAD,
     .common = BERT, .help = "the model to write; large weights go into FILE.data"},
    {"folder", 0, "DIR", EXPORT, OPTION_DIRECTORY, FIELD(folder),
     .help = "the Hugging Face folder to make (for a model that skycc import made)",
     .detail = "The Hugging Face folder to make, for a model that *skycc import* made: _model.safetensors_ under the "
               "library's names, _config.json_ with the class and label names of the head, and the tokenizer's files "
               "if the imported folder still has them."},
    {"as-is", 0, NULL, EXPORT, OPTION_FLAG, FIELD(as_is),
     .help = "with --folder: write model.onnx, not weights (for models of any exporter)"},
    {"gguf", 0, "FILE", EXPORT, OPTION_FILE, FIELD(gguf),
     .help = "the file for llama.cpp to write (for a decoder that skycc import made)",
     .detail = "The file for llama.cpp to write, for a decoder that *skycc import* made, with its tokenizer and chat "
               "template. Models and tokenizers that llama.cpp does not have are refused."},
    {"gguf-type", 0, "f16|q8_0", EXPORT, OPTION_CHOICE, FIELD(gguf_type), .choices = OPTION_WORDS("f16", "q8_0"),
     .help = "how --gguf stores matrices (f16, the default: 16-bit numbers; q8_0: 8 bits with a scale per 32)"},
    {"source", 0, "FOLDER", EXPORT, OPTION_DIRECTORY, FIELD(source),
     .help = "the tokenizer's folder, for --folder and --gguf (default: the imported folder)"},
    {"labels", 0, "DATA", EXPORT, OPTION_FILE, FIELD(labels),
     .help = "with --folder: the data set that names the labels (of skycc tokenize; its label names, and whether a "
             "text may have several labels, go into config.json)"},
    {"adapter", 0, "DIR", EXPORT, OPTION_DIRECTORY, FIELD(adapter),
     .help = "the adapter to make with what --lora trained (a directory, as the PEFT library loads it)",
     .detail = "The directory to make with what *--lora* trained, as the PEFT library loads it: "
               "_adapter_model.safetensors_ and _adapter_config.json_. Other trained weights, such as those of the "
               "head, are among its modules to save."},
    {"output", 'o', "FILE", PROBE | RUN | TOKENIZE, OPTION_FILE, FIELD(output), .required = PROBE | RUN | TOKENIZE,
     .common = PROBE | RUN | TOKENIZE, .help = "the file to write"},
    {"output", 'o', "FILE", PLAN, OPTION_FILE, FIELD(output), .common = PLAN,
     .help = "write the plan to this file, as JSON"},
    {"output", 'o', "FILE", PLOT, OPTION_FILE, FIELD(output), .help = "the picture (default: standard output)"},
    {"tokenizer", 0, "FILE", EVALUATE, OPTION_FILE, FIELD(tokenizer),
     .help = "tokenizer.json or a vocabulary: write the texts of the twenty worst errors into -o FILE too"},
    {"output", 'o', "FILE", EVALUATE, OPTION_FILE, FIELD(output),
     .help = "also write the metrics to this file, as JSON"},
    {"output", 'o', "FILE", PREDICT, OPTION_FILE, FIELD(output), .common = PREDICT,
     .help = "the file to write (default: standard output); .jsonl writes embeddings as lines of JSON"},
    {"report", 0, "FILE", COMPILE, OPTION_FILE, FIELD(report),
     .help = "also write the plan report: .html, .json, .svg (a picture), else text"},
    {"report", 0, "FORM", PLAN, OPTION_CHOICE, FIELD(report), .choices = OPTION_WORDS("text", "json", "html", "svg"),
     .common = PLAN, .help = "what to print: text (the default), json, html or svg (a picture)"},
    {"report", 0, "FORM", EXPLAIN, OPTION_CHOICE, FIELD(report), .choices = OPTION_WORDS("text", "svg"),
     .help = "what to print: text (the default) or svg (a picture)"},
    {"depfile", 0, "FILE", COMPILE, OPTION_FILE, FIELD(depfile),
     .help = "write the list of files that this compilation read, for make and ninja"},
    {"verbose", 'v', NULL, CHECK, OPTION_FLAG, FIELD(verbose), .common = CHECK, .help = "list every parameter"},
    {"verbose", 'v', NULL, COMPILE | RUN | PREDICT, OPTION_FLAG, FIELD(verbose), .help = "print progress and times"},
    {"quiet", 'q', NULL, COMPILE | FEDERATE | COORDINATE | DEPLOY | VERIFY | TOKENIZE | IMPORT | HEAD, OPTION_FLAG,
     FIELD(quiet), .help = "print only errors and warnings"},
    {"help-all", 0, NULL, EVERY, OPTION_FLAG, FIELD(help_all), .help = "print all options"},
    {"help", 'h', NULL, EVERY, OPTION_FLAG, FIELD(help), .help = "print this text"},
};

OptionSet command_options(Command command, Arena *arena)
{
    return (OptionSet){rows, sizeof rows / sizeof *rows, 1u << command,
                       arena_format(arena, "skycc %s --help%s lists the options", command_texts[command].name,
                                    SHORT & 1u << command ? "-all" : ""),
                       command == COMMAND_FINETUNE ? finetune_habits : NULL};
}
