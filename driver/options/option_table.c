/* The options of all commands, one row each: name, letter or 0, argument or NULL, commands that take it, kind (with
 * least and greatest of a number), field; then by name what not all rows have (struct Option, base/options.h).
 *
 * To add one: a row here and, if no field fits, one in Options (options.h) or in the structure of the library that
 * reads it; the command reads the field. Parsing, --help, the manual page and the completions of bash, zsh and fish
 * follow. For instance, one that may be repeated, with a field `TextList frozen` in ModelOptions:
 *
 *     {"freeze", 0, "GLOB", TRAINING, OPTION_TEXT, FIELD(load.frozen), .repeated = true,
 *      .help = "do not train parameters whose names match (may be repeated)"},
 *
 * Rows of one name are fine where commands mean different things by it. `help` is a phrase for --help; `detail` says
 * more in the manual page, in whole sentences with *literal words* and _placeholders_. A value that is more than a
 * number, a word or a choice, or that counts in its order among other options, has a reader (option_readers.h). The
 * options of DIR/train stand in runtime/train/training_options.c. */
#include <math.h>

#include "driver/options/option_readers.h"
#include "driver/options/options.h"

#define FIELD(field) OPTION_FIELD(Options, field)

enum {
    CHECK = 1 << COMMAND_CHECK,
    BERT = 1 << COMMAND_BERT,
    COMPILE = 1 << COMMAND_COMPILE,
    PROBE = 1 << COMMAND_PROBE,
    PLAN = 1 << COMMAND_PLAN,
    EXPLAIN = 1 << COMMAND_EXPLAIN,
    DIFF = 1 << COMMAND_DIFF,
    VERIFY = 1 << COMMAND_VERIFY,
    PLOT = 1 << COMMAND_PLOT,
    RUN = 1 << COMMAND_RUN,
    EXPORT = 1 << COMMAND_EXPORT,
    TOKENIZE = 1 << COMMAND_TOKENIZE,
    IMPORT = 1 << COMMAND_IMPORT,
    HEAD = 1 << COMMAND_HEAD,
    PREDICT = 1 << COMMAND_PREDICT,
    KEY = 1 << COMMAND_KEY,
    FEDERATE = 1 << COMMAND_FEDERATE,
    COORDINATE = 1 << COMMAND_COORDINATE,
    DEPLOY = 1 << COMMAND_DEPLOY,
    PLANNING = COMPILE | PLAN | FEDERATE,
    TRAINING = COMPILE | PROBE | PLAN | RUN | FEDERATE, /* those that derive a training program */
    EVERY = (1 << COMMAND_COUNT) - 1
};

static const Option rows[] = {
    /* Arguments without a name in front */
    {"model", 0, "MODEL.onnx", CHECK | TRAINING | EXPORT | HEAD, OPTION_FILE, FIELD(model), .positional = true,
     .required = CHECK | COMPILE | RUN | EXPORT | HEAD | FEDERATE},
    {"model", 0, "MODEL", PREDICT, OPTION_FILE, FIELD(model), .positional = true, .required = PREDICT},
    {"checkpoint", 0, "CHECKPOINT", EXPORT | PREDICT, OPTION_FILE, FIELD(checkpoint), .positional = true,
     .required = EXPORT,
     .help = "a directory of checkpoints (its newest step), one step of it, or a safetensors file with tensors by "
             "parameter name, such as skycc run writes after training"},
    {"plan", 0, "PLAN.json", EXPLAIN | VERIFY, OPTION_FILE, FIELD(plans[0]), .positional = true,
     .required = EXPLAIN | VERIFY},
    {"old plan", 0, "OLD.json", DIFF, OPTION_FILE, FIELD(plans[0]), .positional = true, .required = DIFF},
    {"new plan", 0, "NEW.json", DIFF, OPTION_FILE, FIELD(plans[1]), .positional = true, .required = DIFF},
    {"log", 0, "LOG.csv", PLOT, OPTION_FILE, FIELD(log), .positional = true, .required = PLOT},
    {"table", 0, "TABLE", TOKENIZE, OPTION_FILE, FIELD(table), .positional = true, .required = TOKENIZE},
    {"inputs", 0, "FILE", RUN, OPTION_FILE, FIELD(inputs), .positional = true, .repeated = true},
    {"folder", 0, "FOLDER", IMPORT, OPTION_DIRECTORY, FIELD(folder), .positional = true, .required = IMPORT},
    {"name", 0, "NAME", KEY, OPTION_TEXT, FIELD(key), .positional = true, .required = KEY},

    /* The size of a BERT */
    {"layers", 0, "L", BERT, OPTION_INTEGER, 1, 10000, FIELD(bert.layers), .required = BERT, .help = "encoder layers"},
    {"hidden", 0, "H", BERT, OPTION_INTEGER, 1, 1 << 16, FIELD(bert.hidden), .required = BERT,
     .help = "hidden size, a multiple of the heads"},
    {"heads", 0, "A", BERT, OPTION_INTEGER, 1, 1 << 16, FIELD(bert.heads), .required = BERT, .help = "attention heads"},
    {"intermediate", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.intermediate),
     .help = "inner size of the feed-forward part (default 4 H)"},
    {"head", 0, "NAME", BERT, OPTION_CHOICE, FIELD(bert.head), .initial = "seqcls",
     .choices = OPTION_WORDS("seqcls", "mlm"), .help = "seqcls: classifies the sequence; mlm: predicts masked tokens",
     .detail = "*seqcls* classifies the sequence, *mlm* predicts masked tokens."},
    {"classes", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.classes), .initial = "3",
     .help = "classes of the sequence classifier"},
    {"vocab", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 24, FIELD(bert.vocabulary), .initial = "30522",
     .help = "size of the vocabulary"},
    {"positions", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.positions), .initial = "512",
     .help = "longest sequence"},
    {"batch", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.batch),
     .help = "fix the batch dimension (default: symbolic, 'batch')"},
    {"sequence", 0, "N", BERT, OPTION_INTEGER, 1, 1 << 20, FIELD(bert.sequence),
     .help = "fix the sequence dimension (default: symbolic, 'seq')"},
    {"weights", 0, "KIND", BERT, OPTION_CHOICE, FIELD(bert.weights), .initial = "seed",
     .choices = OPTION_WORDS("none", "seed"),
     .help = "seed: drawn, matrices normal with deviation 0.02, biases 0, gains 1; none: absent, to be drawn where the "
             "model is compiled or run",
     .detail = "*seed*: drawn by parameter name, matrices normal with standard deviation 0.02, biases 0, gains 1; "
               "*none*: absent, for *skycc compile --init normal:0.02*."},

    /* Heads of imported models */
    {"head", 0, "HEAD", IMPORT, OPTION_TEXT, .choices = OPTION_WORDS(HEAD_WORDS), .read = read_head,
     .help = "seqcls:N, regression, tokcls:N, qa, mlm, embedding:mean or embedding:cls (default: that of the "
             "checkpoint); tensors that are not there are drawn",
     .detail = "*seqcls:*_N_ and *tokcls:*_N_ classify sequences and tokens into _N_ labels, *regression* gives "
               "sequences a number, *qa* finds where an answer begins and ends, *mlm* predicts masked tokens, "
               "*embedding:mean* and *embedding:cls* give sequences a vector. By default the model has the head of the "
               "checkpoint. Tensors that the folder lacks, or has in another shape, are drawn from the seed: normal "
               "with the deviation that the folder names, biases 0, gains 1."},

    {"head", 0, "HEAD", HEAD, OPTION_TEXT, .choices = OPTION_WORDS(HEAD_WORDS), .read = read_head, .required = HEAD,
     .help = "seqcls:N, regression, tokcls:N, qa, mlm, embedding:mean or embedding:cls, with new weights",
     .detail =
         "As *skycc import* has it, with new weights: normal with deviation 0.02, or what the folder names, biases "
         "0. Classifiers of sequences read _pooler_output_ where there is one."},

    /* Data sets */
    {"vocab", 0, "FILE", TOKENIZE, OPTION_FILE, FIELD(vocabulary),
     .help = "the model's WordPiece vocabulary, one piece per line"},
    {"tokenizer", 0, "FILE", TOKENIZE, OPTION_FILE, FIELD(tokenizer),
     .help = "the model's tokenizer.json, instead of --vocab",
     .detail =
         "The model's _tokenizer.json_, instead of *--vocab*: WordPiece, byte-level BPE or Unigram with what goes "
         "with them in BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT, ELECTRA, ALBERT, MPNet, ModernBERT and "
         "DeBERTa. Ids are those of Hugging Face's library; what a file asks for that is not there is an error."},
    {"text", 0, "COL[,COL]", TOKENIZE, OPTION_TEXT, FIELD(dataset.text_columns),
     .help = "the column of texts, or the two columns of pairs, by name"},
    {"tokenizer", 0, "FILE", PREDICT, OPTION_FILE, FIELD(tokenizer),
     .help = "the model's tokenizer.json or vocabulary (default: that of the folder that the model comes from)",
     .detail = "The model's _tokenizer.json_, or, by another suffix, a WordPiece vocabulary. By default that of the "
               "folder that the model comes from: its _tokenizer.json_, else its _vocab.txt_, which is cased if "
               "_tokenizer_config.json_ says so. Data sets need none."},
    {"text", 0, "TEXT", PREDICT, OPTION_TEXT, FIELD(texts[0]),
     .help = "the text; with --data TABLE the column of texts, or the two columns of pairs, by name"},
    {"text2", 0, "TEXT", PREDICT, OPTION_TEXT, FIELD(texts[1]),
     .help = "the second text of a pair; the one to answer from; the one to compare embeddings with"},
    {"data", 0, "FILE", PREDICT, OPTION_FILE, FIELD(data),
     .help = "a data set of skycc tokenize (.safetensors), or a table: .csv, .jsonl, else TSV"},
    {"labels", 0, "DATA", PREDICT, OPTION_FILE, FIELD(labels),
     .help = "a data set of skycc tokenize whose names of labels are the model's (default: those of the folder that it "
             "comes from)"},
    {"multi-label", 0, NULL, PREDICT, OPTION_FLAG, FIELD(multi_label),
     .help = "a text has any number of labels (trained with --loss bce): each its own probability (default: what the "
             "folder's config.json says)",
     .detail = "A text has any number of labels, as after training with *--loss bce*: each label has a probability of "
               "its own, and those above a half are the text's, with semicolons between them. By default where the "
               "_config.json_ of the folder that the model comes from says _multi_label_classification_."},
    {"label", 0, "COL[,COL...]", TOKENIZE, OPTION_TEXT, FIELD(dataset.label_column),
     .help = "the column of labels: whole numbers are classes, other numbers values, all else names of classes, "
             "numbered in byte order; several columns: 0 or 1 each, for --loss bce",
     .detail = "The column of labels. Whole numbers are classes, and other numbers values, as for regression. All else "
               "are names of classes, which are numbered in byte order. Several columns are labels that a row may have "
               "or not, 0 or 1 each, named by the columns (train with *--loss bce*); with *--regression*, values."},
    {"regression", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.regression),
     .help = "labels are values (float32), whole numbers too"},
    {"labels-of", 0, "DATA", TOKENIZE, OPTION_FILE, FIELD(dataset.labels_of),
     .help = "number labels as in this data set (the one that is trained on); others are errors"},
    {"holdout", 0, "P%|N", TOKENIZE, OPTION_TEXT, FIELD(dataset.holdout), .read = read_holdout,
     .help = "write that share, or number, of the rows, drawn from --seed, to a second file, DATA.holdout.safetensors",
     .detail = "Write that share, or number, of the rows to a second file, _DATA_*.holdout.safetensors*, and only the "
               "others to _DATA_*.safetensors*. Which ones is drawn from *--seed*; both keep their order."},
    {"balance", 0, NULL, TOKENIZE, OPTION_FLAG, FIELD(dataset.balance),
     .help = "repeat rows of the rarer labels until every label has as many rows as the most frequent one",
     .detail =
         "Repeat rows of the rarer labels until every label has as many rows as the most frequent one; which rows "
         "are repeated once more than others is drawn from *--seed*. Rows held out are not repeated. For sites of "
         "a federation whose labels are distributed differently, and for labels that are rare."},
    {"format", 0, "FORMAT", TOKENIZE, OPTION_CHOICE, FIELD(dataset.format), .initial = "suffix",
     .choices = OPTION_WORDS("suffix", "tsv", "csv", "jsonl"),
     .help = "tsv (no quoting), csv (RFC 4180) or jsonl (default: by the suffix, else tsv)",
     .detail =
         "*tsv* (fields between tabs, quotes are text), *csv* (RFC 4180), *jsonl* (an object per line), or by the "
         "file's *suffix*: .csv, .jsonl, .json, .ndjson, all else TSV."},
    {"task", 0, "TASK", TOKENIZE, OPTION_CHOICE, FIELD(task),
     .choices = OPTION_WORDS("mnli", "mrpc", "sst2", "pair", "single", "mlm"),
     .help = "instead of --text: mnli, mrpc, sst2, pair or single (a label a row; pair and single take any labels), or "
             "mlm, also with it (masks tokens for the model to guess)",
     .detail = "Instead of *--text*: *mnli*, *mrpc*, *sst2*, *pair* or *single* (a label a row; the last two take any "
               "labels). Also with it: *mlm* (masks tokens for the model to guess)."},
    {"max-length", 0, "N", TOKENIZE | PREDICT, OPTION_INTEGER, DATASET_LEAST_LENGTH, DATASET_MOST_LENGTH,
     FIELD(dataset.max_length), .initial = "128",
     .help = "tokens per example: shorter ones are padded, longer ones cut"},
    {"cased", 0, NULL, TOKENIZE | PREDICT, OPTION_FLAG, FIELD(cased),
     .help = "the vocabulary is cased: keep capitals and accents"},

    /* Federations */
    {"federation", 'c', "FILE", FEDERATE | PLAN | PROBE, OPTION_FILE, FIELD(federation), .required = FEDERATE,
     .help = "the sites, their cluster files and how they meet (federation.yaml)",
     .detail =
         "The sites, their cluster files and how they meet; see *FILES*. *skycc plan* compares then what these "
         "sites may do: one pipeline over all, a replica at each, groups of sites that are replicas. *skycc probe "
         "--site* measures with it the links that sites have with the coordinator, which is the site _coordinator_ "
         "and takes one after the other."},
    {"from", 0, "DIR", FEDERATE, OPTION_DIRECTORY, FIELD(follows),
     .help = "go on with the model of this coordinator's directory, with sites that have joined or left",
     .detail =
         "Go on with the model, the momentum and the round of this directory of a coordinator that was ended, with the "
         "sites that _federation.yaml_ has now. Sites take their new directories and keep their checkpoints; those "
         "that "
         "are new take the model."},
    {"rounds", 0, "N", FEDERATE, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.rounds),
     .help = "meetings, whatever federation.yaml says"},
    {"local-steps", 0, "N|auto", FEDERATE | PLAN, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.local_steps),
     .choices = OPTION_WORDS("auto"), .read = read_local_steps,
     .help = "steps of each site between two meetings, whatever federation.yaml says; auto: as few as leave 95% of the "
             "time for training",
     .detail =
         "Steps of each site between two meetings, whatever _federation.yaml_ says. *auto* takes the fewest with at "
         "most 5% of the time on meeting, as the steps of the sites are planned and by the links that "
         "_federation.yaml_ gives. What was decided, and why, is printed and kept in the _federation.yaml_ of every "
         "site."},
    {"overlap", 0, "N|all", FEDERATE | PLAN, OPTION_INTEGER, 1, 1e12, FIELD(federation_wishes.overlap),
     .choices = OPTION_WORDS("all"), .read = read_overlap,
     .help = "steps that a site makes while a round is met, before it takes the result",
     .detail =
         "Whatever _federation.yaml_ says, a site goes on with the first _N_ steps of its next round, or with all of "
         "them, "
         "while its update and the model cross, and takes the result behind them: on top of what they made, and always "
         "behind the same step, whenever it arrives."},
    {"clip-update", 0, "C", FEDERATE, OPTION_NUMBER, 1e-30, 1e30, FIELD(federation_wishes.clip_update),
     .help = "the largest norm of a site's update, whatever federation.yaml says"},
    {"dp", 0, "clip=C,noise=SIGMA", FEDERATE, OPTION_TEXT, .read = read_privacy,
     .help = "differential privacy of sites, whatever federation.yaml says (also delta=D, default 1e-5)"},
    {"hide-metrics", 0, NULL, FEDERATE, OPTION_FLAG, FIELD(federation_wishes.hide_metrics),
     .help = "the coordinator sees neither rows nor losses of a site"},
    {"directory", 0, "DIR", COORDINATE | DEPLOY, OPTION_DIRECTORY, FIELD(folder), .positional = true,
     .required = COORDINATE | DEPLOY},
    {"key", 0, "FILE", COORDINATE, OPTION_FILE, FIELD(key),
     .help = "the coordinator's secret key (default: coordinator.key here)"},
    {"site", 0, "NAME", PROBE, OPTION_TEXT, FIELD(site),
     .help = "measure the links between the sites of the cluster file, as site NAME; all sites at the same time",
     .detail =
         "Measure the links between the sites of the cluster file, as site _NAME_, with its key. All sites do so at "
         "the same time, and pairs of them take turns: latency, and bandwidth one way, back, and both at once, "
         "through what a run between them uses. What is found goes into the profile beside what it says already."},
    {"key", 0, "FILE", PROBE, OPTION_FILE, FIELD(key), .help = "with --site: the site's secret key"},
    {"timeout", 0, "SECONDS", PROBE, OPTION_NUMBER, 1, 1e9, FIELD(patience_s), .initial = "60",
     .help = "with --site: how long to wait for other sites"},
    {"listen", 0, "HOST:PORT", COORDINATE, OPTION_TEXT, FIELD(listen),
     .help = "where to listen, if that is not the address that sites connect to",
     .detail = "Where to listen, if that is not the address that sites connect to, as behind a router: 0.0.0.0:_PORT_ "
               "is every address of this host."},
    {"check", 0, NULL, DEPLOY, OPTION_FLAG, FIELD(check), .help = "copy nothing; say what each host lacks for a run",
     .detail =
         "Copy nothing, and say what each host lacks for a run: whether ssh gets there; programs, weights and data "
         "with the right hashes; the MPICH that is here; a processor with the features that the programs were "
         "compiled for, and the libraries that they need; memory for what the plan puts there, disk for what is "
         "missing, free ports of those that the cluster file names; a clock within 5 seconds of this one."},
    {"data", 0, "FILE", DEPLOY, OPTION_FILE, FIELD(data), .help = "the data set, which all ranks read",
     .detail = "The data set, which all ranks read. It goes to the same path there, or, with *--to*, into _PATH_."},
    {"to", 0, "PATH", DEPLOY, OPTION_TEXT, FIELD(destination),
     .help = "the folder there, an absolute path (default: the same as here)",
     .detail = "The folder there, an absolute path, the same on all hosts; by default that of _DIR_ here. The run is "
               "then started on one of them, by _PATH/train_."},
    {"ssh", 0, "COMMAND", DEPLOY, OPTION_TEXT, FIELD(ssh), .initial = "ssh",
     .help = "what to run for ssh, with its options (default: ssh)",
     .detail =
         "What to run for *ssh*, as a command of the shell, such as *\"ssh -p 2222\"*. *mpiexec* does not see it: "
         "what it needs to get there too stands better in _~/.ssh/config_."},
    {"log", 0, "FILE", COORDINATE, OPTION_FILE, FIELD(csv),
     .help = "write a line of CSV for every round, below those that are there"},

    /* What is read beside the model */
    {"cluster", 'd', "FILE", COMPILE | PLAN | PROBE, OPTION_FILE, FIELD(plan.cluster), .required = COMPILE,
     .help = "the devices and links (cluster.yaml)", .detail = "The devices and links; see *FILES*."},
    {"profile", 0, "FILE", COMPILE | PLAN | FEDERATE, OPTION_FILE, FIELD(plan.profile),
     .help = "times measured by skycc probe; without: estimated from the device specifications",
     .detail = "Times measured by *skycc probe*. Without it they are estimated from the device specifications. Of a "
               "federation only links are taken from it: those of *skycc probe --federation*."},
    {"costs", 0, "FILE", PLAN, OPTION_FILE, FIELD(costs),
     .help = "times and sizes of the layers and devices, instead of a model and a cluster"},
    {"costs", 0, "FILE", VERIFY, OPTION_FILE, FIELD(costs), .required = VERIFY,
     .help = "the costs that the plan was made from (compile leaves costs.json beside it)",
     .detail = "The costs that the plan was made from: *skycc compile* leaves _costs.json_ beside it."},
    {"trace", 0, "FILE", EXPLAIN, OPTION_FILE, FIELD(trace),
     .help = "the trace of a run of this plan (DIR/train --trace writes it)"},
    {"inputs", 0, "FILE...", RUN, OPTION_FILE, FIELD(inputs), .repeated = true,
     .help =
         "safetensors with the graph's inputs by name (a leading in/ is dropped), .npy, .npz, or ONNX .pb tensors in "
         "the order of the inputs; their shapes bind symbolic dimensions; needed unless the model has no inputs",
     .detail =
         "Safetensors with the graph's inputs by name (a leading _in/_ is dropped, other tensors are ignored), .npy, "
         ".npz, or ONNX .pb tensors in the order of the inputs; needed unless the model has none. Integer widths "
         "are converted; shapes bind symbolic dimensions."},

    /* The model and its training */
    {"dim", 0, "NAME=VALUE", CHECK | TRAINING, OPTION_TEXT, .read = read_dimension,
     .help = "bind a symbolic dimension; the batch dimension is the micro-batch (may be repeated)",
     .detail =
         "Bind a symbolic dimension; the batch dimension is the micro-batch (may be repeated). Of *compile*, *plan* "
         "and "
         "*probe* the dimension of tokens may have several lengths, as in *seq=16,32,64,128*, or *seq=auto:128*, at "
         "most "
         "128: rows are packed then, several into one line of the largest length, so that short rows cost little. "
         "A step trains the same rows, with the same result, as if all of them were padded; its batch is _batch_ "
         "times *--microbatches*, too, but cut into micro-batches of lines. Models whose result depends on padding, or "
         "which mix rows or tokens in a way that packing does not know, are refused."},
    {"lengths", 0, "FILE", COMPILE | PLAN | PROBE, OPTION_FILE, FIELD(load.lengths.data),
     .help = "a data set whose rows are as long as those to come: for --dim NAME=auto:LONGEST",
     .detail =
         "A data set whose rows are as long as those to come (its tensor _lengths_, or its attention mask). From it "
         "follows how many lines a micro-batch has, and how many rows a line has room for. With "
         "*--dim* _NAME_*=auto:*_LONGEST_, or a list of lengths."},
    {"loss", 0, "SPEC", TRAINING, OPTION_TEXT, FIELD(load.loss),
     .choices = OPTION_WORDS("cross-entropy", "mse", "bce", "cosine:", "contrastive:", "output:"),
     .help =
         "cross-entropy, mse or bce, each with [:OUTPUT[:LABELS]], cosine:A:B[:LABELS], contrastive:A:B[:TEMPERATURE] "
         "or output:NAME, joined by +",
     .detail = "What training makes small; see *SPECIFICATIONS*."},
    {"optimizer", 0, "SPEC", TRAINING, OPTION_TEXT, FIELD(load.optimizer),
     .choices = OPTION_WORDS("sgd", "momentum", "adam", "adamw", "lamb"),
     .help = "sgd, momentum, adam, adamw or lamb, with :key=value,... (default adamw)",
     .detail =
         "How weights are updated; see *SPECIFICATIONS*. Without a learning rate, *DIR/train* takes 5e-5 for *adam* "
         "and *adamw*; *skycc run* does not."},
    {"dropout", 0, "P|off", CHECK | TRAINING, OPTION_TEXT, .choices = OPTION_WORDS("off"), .read = read_dropout,
     .help = "drop elements with probability P in training, where BERT does, or never",
     .detail =
         "Drop elements at random in training, with probability _P_: where a train-mode export says, or else at the "
         "places where BERT does (the embeddings, attention probabilities, what a block's two parts add to its "
         "input, and what the classifier reads). _P_ is rounded to a multiple of 1/65536. *off* takes out the "
         "dropout of a train-mode export. Evaluation drops nothing."},
    {"precision", 0, "f32|bf16", TRAINING, OPTION_CHOICE, FIELD(load.bf16), .initial = "f32",
     .choices = OPTION_WORDS("f32", "bf16"),
     .help = "bf16: round the factors of matrix products, add up in f32; all else is f32",
     .detail =
         "With *bf16*, the factors of every matrix product are rounded to bfloat16 (to nearest, ties to even) and "
         "their products added up in float32. Everything else stays float32: weights, gradients, the optimiser, "
         "softmax, normalisation, losses, what stages send each other, checkpoints. Processors with AMX or AVX-512 "
         "BF16 instructions multiply several times faster so; for others the same results are computed with "
         "float32 instructions, slower than in float32, and a warning says so. Targets round alike but add in "
         "different orders, and those instructions take subnormal numbers for 0. With *f32* on a processor with "
         "AMX, larger products run there too: every factor is split into three bfloat16 numbers that add up to it "
         "exactly, and the result is at least as exact as that of float32 instructions; an infinite factor makes "
         "NaN. The feature *-amx-bf16* of a target turns that off."},
    {"no-prune", 0, NULL, TRAINING, OPTION_FLAG, FIELD(load.no_pruning),
     .help = "compute what nobody reads too (the last block for all tokens, not only the one read)",
     .detail = "Compute what nobody reads too: the last encoder block for all tokens, not only for the one that a "
               "classifier reads."},
    {"freeze", 0, "GLOB", CHECK | TRAINING, OPTION_TEXT, .read = read_freeze,
     .help = "do not train the parameters whose name the pattern matches (may be repeated)",
     .detail =
         "Do not train the parameters whose name, or whose place in the model, the pattern matches: they keep their "
         "values. May be repeated, and mixed with *--train*: the last one that matches a name decides. *skycc check* "
         "lists what is trained."},
    {"no-gradient-row", 0, "NAME=INDEX", TRAINING, OPTION_TEXT, FIELD(load.no_gradient_rows), .repeated = true,
     .help = "looking up this row of an embedding table passes it no gradient: padding_idx (may be repeated)",
     .detail =
         "Looking up row _INDEX_ of the table _NAME_ passes no gradient to it, as _padding_idx_ of PyTorch's "
         "Embedding has it. ONNX does not say which table had one, so to train as PyTorch does, name what the "
         "model's code gives a padding_idx: of BERT and what derives from it the word embeddings, of RoBERTa the "
         "positions too, with the padding token's id. It makes a difference only where padded positions reach the "
         "loss, that is where a mask does not keep all of them out. What is computed stays the same, and other uses "
         "of the table, as a decoder that is tied to it, pass gradients to the row as ever; optimisers treat the row "
         "like others, so that weight decay makes it smaller, in PyTorch too. May be repeated."},
    {"train", 0, "GLOB", CHECK | COMPILE | PROBE | PLAN | FEDERATE, OPTION_TEXT, .read = read_train,
     .help = "train what the pattern matches, also where its use does not make it a parameter (may be repeated)",
     .detail =
         "Train the initializers whose name, or whose place in the model, the pattern matches, although *--freeze* or "
         "the way they are used says otherwise. May be repeated."},
    {"lora", 0, "SPEC", CHECK | TRAINING, OPTION_TEXT, .read = read_low_rank,
     .help = "train branches of low rank beside the weights of products: r=8,alpha=16,targets=query,value",
     .detail =
         "Train branches of low rank beside the weights of matrix products, and freeze the model: for instance "
         "*r=8,alpha=16,targets=query,value,dropout=0.05*. The result of a product gets _alpha_/_r_ times the input, "
         "with that share of its elements dropped in training, times A times B, where A is drawn from *--seed* and B "
         "starts as zeros. A target is a pattern of weights' names, or of their places in the model; one without "
         "wildcards means names with such a component between dots. An item without *=* continues the list before it. "
         "_alpha_ is _r_ unless given. Of the model only heads whose names end in *classifier*, *score* or "
         "*qa_outputs* are still trained, as the PEFT library does it; *--train* and *--freeze* say otherwise. "
         "Frozen weights have no gradients and no optimiser state, and are not in checkpoints."},
    {"keep-ties", 0, NULL, CHECK | TRAINING, OPTION_FLAG, FIELD(load.import.keep_ties),
     .help = "train constant initializers that an exporter merged as one parameter",
     .detail =
         "Train constant initializers that an exporter merged as one parameter. What is one parameter stays equal "
         "wherever it is used, also on several devices."},
    {"untie", 0, NULL, CHECK | TRAINING, OPTION_FLAG, FIELD(load.import.untie),
     .help = "train every use of a shared initializer apart"},
    {"init", 0, "HOW", COMPILE | RUN | FEDERATE, OPTION_TEXT, .choices = OPTION_WORDS("none", "normal:0.02"),
     .read = read_init, .help = "normal:STD draws the initial weights instead of taking the model's; none: the model's",
     .detail =
         "*normal:*_STD_ draws the initial weights, by parameter name, instead of taking the model's, which may then "
         "be absent: matrices are normal with that standard deviation, vectors 0, except those that scale (the "
         "gains of normalisations), which are 1; *none* takes the model's (default)."},
    {"seed", 0, "N", BERT | COMPILE | PLAN | FEDERATE | RUN | TOKENIZE | IMPORT | HEAD, OPTION_INTEGER, 0, INFINITY,
     FIELD(seed), .initial = "0",
     .help = "seed of what is drawn at random: initial weights, dropout, masks, rows held out"},
    {"clip", 0, "X", COMPILE | PLAN | FEDERATE, OPTION_NUMBER, 0, 1e30, FIELD(plan.clip), .initial = "1",
     .help = "what DIR/train clips the norm of the gradient at (default 1; 0: not at all)",
     .detail =
         "At what norm of the whole gradient *DIR/train* scales it down, unless its own *--clip* says otherwise; 0: "
         "never. Default 1. Unless it is 0, all ranks agree on that norm before every update, which the simulated step "
         "counts (_norm_ of plan.json) and *--emulate* takes; of costs.json its own _norm_bytes_ say so."},
    {"target-cpu", 0, "NAME", COMPILE | PROBE | RUN | FEDERATE, OPTION_TEXT, FIELD(target_cpu),
     .help = "generate code for this CPU on native targets (default: this machine's)"},

    /* Plans */
    {"microbatches", 0, "N|auto", PLANNING, OPTION_INTEGER, 1, COSTS_MAX_MICROBATCHES, FIELD(plan.request.microbatches),
     .choices = OPTION_WORDS("auto"), .read = read_microbatches,
     .help = "micro-batches per step (default 8), or as many as pay",
     .detail =
         "Micro-batches per step (default 8); the batch is the micro-batch times _N_. *auto* takes the smallest power "
         "of two after which twice as many would train less than 10% more rows a second (about 4.5 for each of "
         "equal stages), at most 256 and at most what fits; the report says what doubling would bring. With "
         "*--lengths* "
         "it chooses how many rows are packed into a step, planning for each number anew. Their number "
         "changes nothing but rounding: a loss is normalised by the valid labels of the whole batch."},
    {"allocate", 0, "HOW", PLANNING, OPTION_CHOICE, FIELD(plan.request.allocate), .initial = "optimal",
     .choices = OPTION_WORDS("even", "sky", "heuristic", "optimal"),
     .help = "even, sky (the heuristic of Sky Computing), heuristic or optimal",
     .detail = "Which layers go to which device: *even*, *sky* (the heuristic of Sky Computing), *heuristic* or "
               "*optimal*. How "
               "far others are from the optimum is only searched for with *--time-limit*, or where they do not fit."},
    {"objective", 0, "WHAT", PLANNING, OPTION_CHOICE, FIELD(plan.request.objective), .initial = "step",
     .choices = OPTION_WORDS("step", "period"),
     .help = "what is smallest: step, or period, the time between two micro-batches",
     .detail = "What is smallest: *step*, or *period*, the time between two micro-batches."},
    {"time-limit", 0, "SECONDS", PLANNING, OPTION_NUMBER, 0, 1e9, FIELD(plan.request.time_limit_s),
     .help = "limit of planning, proof and advice included; default: a fixed amount of work",
     .detail =
         "Limit of all planning, to within a second: proof and advice included. A search that is cut short "
         "reports how far from the bound it ended, and another run may give another plan. Without a limit a fixed "
         "amount of work decides, about that of half a minute, and the plan has the same bytes on every machine, "
         "however busy it is."},
    {"schedule", 0, "HOW", PLANNING, OPTION_CHOICE, FIELD(plan.request.schedule), .initial = "auto",
     .choices = OPTION_WORDS("gpipe", "1f1b", "zb", "searched", "auto"),
     .help = "gpipe, 1f1b, searched, zb (backward split) or auto: the fastest in simulation",
     .detail =
         "The order of forwards and backwards on every device. *gpipe* runs all forwards first; *1f1b* keeps as many "
         "micro-batches in flight as there are stages to the end; *zb* splits backward: gradients of a stage's own "
         "parameters wait until the device has nothing else to do. *searched* leaves backward whole. For both a "
         "simulation searches the order, and how many micro-batches are in flight, as far as memory allows. *auto* "
         "takes 1f1b, or searched where that is more than 0.1% faster, or zb where that is more than 2% faster "
         "still. Where "
         "nothing fits the memory that 1f1b needs, it keeps as few micro-batches fewer in flight as it takes, down "
         "to one per stage. The losses are the same to the last digit whatever the schedule."},
    {"recompute", 0, "WHEN", PLANNING, OPTION_CHOICE, FIELD(plan.request.recompute), .initial = "auto",
     .choices = OPTION_WORDS("auto", "never", "always"),
     .help = "run forward again instead of keeping its results: auto (where memory is short), never, always",
     .detail =
         "Whether a stage drops what forward leaves for backward, keeps its inputs alone, and runs forward again "
         "before backward: *auto* where it does not fit its device otherwise, if that makes a better plan; *never* "
         "or *always*. The losses are the same to the last digit."},
    {"codec", 0, "WHAT", COMPILE | PLAN, OPTION_TEXT, .read = read_codec,
     .help = "what may be lost on links: lossless (default), q8 and the like, or auto:q6 and the like",
     .detail =
         "How activations and gradients travel between devices. *lossless*, the default: as they are. *bf16*, *q8*, "
         "*q6*, *q4* or *q3*: so coded on every link, at half, or 8, 6, 4 or 3 bits a number and a scale for every 64. "
         "*auto:q6* and the like: as on each link, and in each direction, makes the best plan, with any from lossless "
         "down to that one. The losses depend on codecs, and on where the plan cuts the model: *skycc run --plan* "
         "reproduces them."},
    {"without", 0, "DEVICE", COMPILE | PLAN, OPTION_TEXT, FIELD(plan.without), .repeated = true,
     .help = "leave a device out (may be repeated)"},
    {"audit", 0, "FILE", VERIFY, OPTION_FILE, FIELD(audits), .repeated = true,
     .help = "compare what crossed between sites with the plan (DIR/SITE/train --audit writes it; may be repeated)",
     .detail =
         "Compare what crossed between sites, as *DIR/SITE/train --audit* _FILE_ wrote it, with the plan: what "
         "is not in the plan, was sent more often than its steps need, or had another size is named, and the exit "
         "code is 1. May be repeated, for the audits of several sites."},
    {"allow-unproven", 0, NULL, VERIFY, OPTION_FLAG, FIELD(allow_unproven),
     .help = "accept a plan that calls itself proven optimal without the proof"},
    {"add", 0, "SPEC", COMPILE | PLAN | VERIFY, OPTION_TEXT, FIELD(plan.added), .repeated = true,
     .help = "one device more, such as name=x,memory=8GiB,gflops=100 or name=x,like=DEVICE (may be repeated)",
     .detail =
         "One device more, written as in a cluster file: *{name: x, memory: 8GiB, gflops: 100}* or shorter "
         "*name=x,memory=8GiB,gflops=100*. *like=*_DEVICE_ takes from another device what is not given. With *skycc "
         "plan --costs* a device has *name*, *like*, *slowdown*, *memory*, *region* and *count*, and *skycc verify* "
         "is told of it too. May be repeated."},
    {"pin", 0, "LAYERS=DEVICE", COMPILE | PLAN, OPTION_TEXT, FIELD(plan.pins), .repeated = true,
     .help =
         "keep layers on a device: a name, the beginning of names, or FIRST-LAST by name or number (may be repeated)"},
    {"fail-above", 0, "SECONDS", COMPILE | PLAN | DIFF, OPTION_NUMBER, 0, 1e9, FIELD(fail_above),
     .help = "exit 1 if the (new) plan's step, or period if that is the objective, is longer"},
    {"emit", 0, "PHASE", COMPILE, OPTION_TEXT, .read = read_emit,
     .choices = OPTION_WORDS("graph", "train", "costs", "plan", "llvm", "asm", "obj"),
     .help = "stop after a phase and write its text to the output: graph (graph:after:PASS: behind that pass), train, "
             "costs, plan; llvm, asm or obj write one file per device into the output directory",
     .detail =
         "Stop after a phase and write its text to the output: *graph*, *train*, *costs* or *plan*; *llvm*, *asm* or "
         "*obj* write one file per device into the output directory. *graph:after:*_PASS_ is the graph behind one of "
         "the passes on it; an unknown one is answered with their names."},

    /* What run does */
    {"grad", 0, NULL, RUN, OPTION_FLAG, FIELD(gradients), .help = "write grad/PARAMETER for every parameter"},
    {"train", 0, "N|GLOB", RUN, OPTION_TEXT, .read = read_steps_or_train,
     .help = "do N steps on this one batch; write train/loss (N + 1 values) and param/PARAMETER; or as for compile",
     .detail =
         "Do _N_ steps on this one batch; write _train/loss_ (one value before each step and one after the last) and "
         "_param/PARAMETER_. What is no number is a pattern of names: train the initializers that it matches, although "
         "*--freeze* or the way they are used says otherwise."},
    {"plan", 0, "PLAN.json", RUN, OPTION_FILE, FIELD(plans[0]), .help = "code what this plan codes on its links",
     .detail =
         "Code activations and gradients as the plan does on its links: the numbers are those of its pipeline, to "
         "the last digit."},
    {"interpret", 0, NULL, RUN, OPTION_FLAG, FIELD(interpret), .help = "run by the interpreter instead of compiling"},
    {"threads", 0, "N", RUN | PREDICT, OPTION_INTEGER, 1, 4096, FIELD(threads),
     .help = "threads to use (default: all processors)"},

    /* What is written */
    {"no-weights", 0, NULL, CHECK, OPTION_FLAG, FIELD(load.import.no_weights),
     .help = "the files with the weights need not be there"},
    {"json", 0, NULL, CHECK, OPTION_FLAG, FIELD(json), .help = "print JSON, errors and warnings included"},
    {"output", 'o', "DIR", FEDERATE, OPTION_DIRECTORY, FIELD(output), .required = FEDERATE,
     .help = "the directory to make: a folder for every site, by its name, and coordinator",
     .detail = "The directory to make: a folder for every site, by its name, and _coordinator_. A former output is "
               "replaced."},
    {"output", 'o', "DIR", COMPILE, OPTION_DIRECTORY, FIELD(output), .required = COMPILE,
     .help = "the directory to make (with --emit: the file, - for standard output)",
     .detail =
         "The directory to make. A former output of skycc is replaced: the files that its _.skycc-files_ lists. A "
         "directory that holds anything else is refused, unless with *--force*. With *--emit*: the file."},
    {"force", 0, NULL, COMPILE | FEDERATE, OPTION_FLAG, FIELD(force),
     .help = "write into a directory that also holds other files; these stay as they are"},
    {"output", 'o', "FILE", BERT | EXPORT | IMPORT | HEAD, OPTION_FILE, FIELD(output), .required = BERT | IMPORT | HEAD,
     .help = "the model to write; large weights go into FILE.data"},
    {"folder", 0, "DIR", EXPORT, OPTION_DIRECTORY, FIELD(folder),
     .help = "the Hugging Face folder to make, of a model that skycc import made",
     .detail = "The Hugging Face folder to make, of a model that *skycc import* made: _model.safetensors_ under the "
               "library's names, _config.json_ with the class and the labels of its head, and the tokenizer's files of "
               "the folder that was imported, if they are still there."},
    {"source", 0, "FOLDER", EXPORT, OPTION_DIRECTORY, FIELD(source),
     .help = "with --folder: where the tokenizer's files are (default: in the folder that was imported)"},
    {"labels", 0, "DATA", EXPORT, OPTION_FILE, FIELD(labels),
     .help =
         "with --folder: a data set of skycc tokenize whose names of labels go into config.json, and whether a text "
         "may have several"},
    {"adapter", 0, "DIR", EXPORT, OPTION_DIRECTORY, FIELD(adapter),
     .help = "the directory to make with what was trained by --lora, as the PEFT library loads it",
     .detail = "The directory to make with what was trained by *--lora*, as the PEFT library loads it: "
               "_adapter_model.safetensors_ and _adapter_config.json_. Weights that were trained beside the branches, "
               "as those of the head, are among its modules to save."},
    {"output", 'o', "FILE", PROBE | RUN | TOKENIZE, OPTION_FILE, FIELD(output), .required = PROBE | RUN | TOKENIZE,
     .help = "where the result goes"},
    {"output", 'o', "FILE", PLAN, OPTION_FILE, FIELD(output), .help = "write the plan there, as JSON"},
    {"output", 'o', "FILE", PLOT, OPTION_FILE, FIELD(output), .help = "the picture (default: standard output)"},
    {"output", 'o', "FILE", PREDICT, OPTION_FILE, FIELD(output),
     .help = "where the predictions go (default: standard output); embeddings to .jsonl as lines of JSON"},
    {"report", 0, "FILE", COMPILE, OPTION_FILE, FIELD(report),
     .help = "also write the plan report: .html, .json, else text",
     .detail = "Also write the plan report: HTML, JSON or text, by the file's suffix."},
    {"report", 0, "FORM", PLAN, OPTION_CHOICE, FIELD(report), .choices = OPTION_WORDS("text", "json", "html"),
     .help = "what to print: text (default), json or html"},
    {"depfile", 0, "FILE", COMPILE, OPTION_FILE, FIELD(depfile),
     .help = "write the files that this compilation read, for make and ninja",
     .detail = "Write the files that this compilation read, for *make* and *ninja*."},
    {"verbose", 'v', NULL, CHECK, OPTION_FLAG, FIELD(verbose), .help = "list every parameter"},
    {"verbose", 'v', NULL, COMPILE | RUN, OPTION_FLAG, FIELD(verbose),
     .help = "say what is done and how long it takes"},
    {"quiet", 'q', NULL, COMPILE | FEDERATE | COORDINATE | DEPLOY | VERIFY | TOKENIZE | IMPORT | HEAD, OPTION_FLAG,
     FIELD(quiet), .help = "print nothing but errors and warnings"},
    {"help", 'h', NULL, EVERY, OPTION_FLAG, FIELD(help), .help = "this text"},
};

OptionSet command_options(Command command, Arena *arena)
{
    return (OptionSet){rows, sizeof rows / sizeof *rows, 1u << command,
                       arena_format(arena, "skycc %s --help lists the options", command_texts[command].name)};
}
