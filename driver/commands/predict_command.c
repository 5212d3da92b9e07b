/* skycc predict: prints what a trained model predicts for texts. skycc evaluate: how good that is. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "base/parts.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/commands/run_options.h"
#include "driver/compile/model_origin.h"
#include "driver/finetune/single_commands.h"
#include "driver/predict/predictions.h"
#include "driver/predict/scores.h"
#include "driver/export/trained_values.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/huggingface/tokenizers.h"
#include "frontend/text/folder_template.h"
#include "frontend/text/table.h"
#include "runtime/program/label_names.h"

enum { MOST_BATCH = 32, MOST_ENDS = 8, USUAL_LENGTH = 128 /* the default of --max-length */ };

typedef struct Prediction {
    const Options *options;
    const char *run; /* what the user called the model */
    Arena arena;
    OutputDirectory directory; /* for intermediate models, removed at the end; temporary NULL: not made yet */
    const char *path;
    /* Read from the model: */
    const char *folder; /* it was imported from; NULL: not known */
    DataOrigin origin;
    const char *const *labels;
    size_t label_count;   /* 0: they have no names */
    int64_t batch, width; /* 0: open */
    int64_t most_width;   /* the most tokens it has positions for, if known */
    bool has_mask;
    bool twofold;            /* embeds two texts a row */
    HeadKind head;           /* HEAD_FROM_FOLDER: the model does not say */
    bool several;            /* labels per text, by its configuration */
    int64_t ends[MOST_ENDS]; /* tokens that end a text, by its configuration */
    size_t end_count;
    Tokenizer *tokenizer;                    /* NULL: the rows are a data set */
    bool measures;                           /* the rows have labels to compare with */
    bool lines;                              /* each line of standard input is a text */
    const char *columns;                     /* a run's, with the texts; NULL: it is no run's model */
    const char *chat_template, *end_of_text; /* how the run learned conversations, or the options; NULL: not given */
    TextRows rows;
    Predictor predictor;
    Predictions predictions;
} Prediction;

/* ---- The model ---- */

/* The path of a file that lives until the command ends; NULL after reporting. */
static const char *scratch_place(Prediction *prediction, const char *name, Diagnostics *diagnostics)
{
    if (!prediction->directory.temporary) {
        const char *folder = getenv("TMPDIR");
        const char *path = arena_format(&prediction->arena, "%s/skycc-predict-%ld", folder && *folder ? folder : "/tmp",
                                        (long)getpid());
        if (!directory_create(&prediction->directory, path, false, diagnostics)) {
            prediction->directory.temporary = NULL;
            return NULL;
        }
    }
    return arena_format(&prediction->arena, "%s/%s", prediction->directory.temporary, name);
}

static bool import_model(Prediction *prediction, Diagnostics *diagnostics)
{
    struct stat status;
    prediction->path = prediction->options->model;
    if (stat(prediction->path, &status) != 0 || !S_ISDIR(status.st_mode)) return true;
    const char *graph = arena_format(&prediction->arena, "%s/model.onnx", prediction->path);
    bool weighs = access(arena_format(&prediction->arena, "%s/model.safetensors", prediction->path), F_OK) == 0;
    if (!weighs && access(graph, F_OK) == 0) { /* what finetune leaves of a graph */
        prediction->path = graph;
        return true;
    }
    const char *path = scratch_place(prediction, "model.onnx", diagnostics);
    const Head head = {.kind = HEAD_FROM_FOLDER};
    if (!path || !folder_import(prediction->path, path, &head, WEIGHTS_FOLDER, 0, NULL, diagnostics)) return false;
    prediction->path = path;
    return true;
}

static bool check_head(Prediction *prediction, const OnnxModel *model, Diagnostics *diagnostics)
{
    static const char *const outputs[] = {"logits", "start_logits", "embedding"};
    const char *text = onnx_model_property(model, PROPERTY_HEAD);
    Head head = {0};
    if (text && (!head_parse(text, &head) || head.kind == HEAD_NONE))
        return input_error(diagnostics, prediction->options->model,
                           "add a head with skycc head, or print the raw outputs with skycc run", "has no head");
    prediction->head = head.kind, prediction->several = head.several;
    prediction->labels =
        label_names_read(onnx_model_property(model, PROPERTY_LABELS), &prediction->arena, &prediction->label_count);
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *name = graph->output[i]->name ? graph->output[i]->name : "";
        if (word_index(name, outputs, sizeof outputs / sizeof *outputs) >= 0) return true;
    }
    return input_error(diagnostics, prediction->options->model, "use skycc run to print its raw outputs",
                       "has no output 'logits', 'start_logits' or 'embedding'");
}

static bool is_embedding(const Prediction *prediction)
{
    return prediction->head == HEAD_MEAN || prediction->head == HEAD_FIRST;
}

/* eos_token_id: a number, or several. */
static void read_ends(Prediction *prediction, const json_t *found)
{
    for (size_t i = 0; i < (json_is_array(found) ? json_array_size(found) : 1); i++) {
        const json_t *end = json_is_array(found) ? json_array_get(found, i) : found;
        if (json_is_integer(end) && prediction->end_count < MOST_ENDS)
            prediction->ends[prediction->end_count++] = json_integer_value(end);
    }
}

/* Reads the configuration with which the model was imported. */
static bool read_config(Prediction *prediction, const char *text, Diagnostics *diagnostics)
{
    FREED_WITH(config_free) HuggingFaceConfig config = {0};
    if (!config_parse(&config, text, prediction->options->model, &prediction->arena, diagnostics)) return false;
    prediction->most_width = encoder_most_positions(&config);
    if (!prediction->labels) prediction->labels = config_labels(text, &prediction->arena, &prediction->label_count);
    const char *problem = json_string_value(json_object_get(config.json, "problem_type"));
    prediction->several |= problem && strcmp(problem, LABELS_SEVERAL) == 0;
    read_ends(prediction, json_object_get(config.json, "eos_token_id"));
    return true;
}

/* The size of a fixed dimension of the graph's input; 0: symbolic. */
static int64_t fixed_dimension(const Onnx__ValueInfoProto *input, size_t dimension)
{
    const Onnx__TensorShapeProto *shape = onnx_value_shape(input);
    if (!shape || shape->n_dim != 2) return 0; /* the import refuses the rows */
    const Onnx__TensorShapeProto__Dimension *found = shape->dim[dimension];
    bool fixed = found->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    return fixed && found->dim_value > 0 ? found->dim_value : 0;
}

static bool read_inputs(Prediction *prediction, const OnnxModel *model, Diagnostics *diagnostics)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    bool takes_ids = false;
    for (size_t i = 0; i < graph->n_input; i++) {
        const Onnx__ValueInfoProto *input = graph->input[i];
        if (!input->name) continue;
        if (strcmp(input->name, "attention_mask") == 0) prediction->has_mask = true;
        if (strcmp(input->name, "input_ids_2") == 0) prediction->twofold = true;
        if (strcmp(input->name, "input_ids") != 0) continue;
        takes_ids = true;
        prediction->batch = fixed_dimension(input, 0);
        prediction->width = fixed_dimension(input, 1);
    }
    return takes_ids || input_error(diagnostics, prediction->options->model, "use skycc run, which takes any inputs",
                                    "has no input 'input_ids'");
}

static bool read_model(Prediction *prediction, Diagnostics *diagnostics)
{
    FREED_WITH(onnx_model_close) OnnxModel model = {0};
    if (!onnx_model_open(&model, prediction->path, true, diagnostics)) return false;
    const char *config = onnx_model_property(&model, PROPERTY_CONFIG);
    const char *folder = onnx_model_property(&model, PROPERTY_FOLDER);
    bool ok = check_head(prediction, &model, diagnostics) && read_inputs(prediction, &model, diagnostics) &&
              (!config || read_config(prediction, config, diagnostics));
    prediction->origin = model_origin(&model, prediction->options->model, &prediction->arena);
    prediction->folder = tokenizer_folder(prediction->path, folder, &prediction->arena);
    return ok;
}

/* Writes the model with the values that the checkpoint was trained with: frozen ones, too. */
static bool write_trained(Prediction *prediction, TrainedValues *values, Diagnostics *diagnostics)
{
    const char *path = scratch_place(prediction, "trained.onnx", diagnostics);
    if (!path) return false;
    FREED_WITH(merged_weights_free) MergedWeights merged = {0};
    bool ok = trained_values_merge(&merged, values, prediction->path, diagnostics);
    merged.as_trained = true;
    ok = ok && export_onnx(prediction->path, path, merged_weights_find, &merged, diagnostics);
    if (ok) prediction->path = path;
    return ok;
}

static bool take_checkpoint(Prediction *prediction, Diagnostics *diagnostics)
{
    const char *checkpoint = prediction->options->checkpoint;
    if (!checkpoint) return true;
    FREED_WITH(trained_values_free) TrainedValues values = {0};
    return trained_values_open(&values, checkpoint, diagnostics) && write_trained(prediction, &values, diagnostics);
}

/* ---- The rows ---- */

static bool check_options(const Options *options, Diagnostics *diagnostics)
{
    const char *problem = NULL;
    const GenerateOptions *generates = &options->generate;
    if (generates->prompt && (options->data || options->texts[0] || options->texts[1]))
        problem = "--prompt goes without --text, --text2 and --data";
    else if (generates->top_p < 1 && generates->temperature <= 0)
        problem = "--top-p says what is drawn from: give --temperature, such as 1, too";
    else if (generates->temperature > 0 && !generates->prompt)
        problem = "--temperature and --top-p are for --prompt";
    else if (options->chat_template && !generates->prompt)
        problem = "--chat-template is for --prompt";
    else if (!options->data && !options->texts[0] && !generates->prompt)
        problem = "give a text (--text TEXT), a file (--data FILE), or a text to go on with "
                  "(--prompt TEXT)";
    else if (options->data && options->texts[1])
        problem = "--text2 does not go with --data: name both columns of a table with --text COL,COL";
    else if (options->data && text_ends_with(options->data, ".safetensors") && options->texts[0])
        problem = "--text names the columns of a table, but a data set holds token ids: leave --text out";
    else if (options->data && !text_ends_with(options->data, ".safetensors") && !options->texts[0])
        problem = "name the columns that hold the texts: --text COL[,COL]";
    return !problem || usage_error(diagnostics, "skycc predict --help lists the options", "%s", problem);
}

static bool tokenize_table(Prediction *prediction, int max_length, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    const char *path = scratch_place(prediction, "rows.safetensors", diagnostics);
    bool pair = table_names_several(options->texts[0]);
    bool listed = prediction->head == HEAD_TOKENS && !pair && !prediction->lines;
    const DatasetOptions dataset = {.task = listed ? DATASET_NER : DATASET_COLUMNS,
                                    .max_length = max_length,
                                    .text_columns = options->texts[0],
                                    .unlabelled = true};
    DatasetSummary summary;
    bool parts =
        prediction->head == HEAD_TOKENS || prediction->head == HEAD_QUESTION || prediction->head == HEAD_FROM_FOLDER;
    if (is_embedding(prediction) && pair)
        return usage_error(diagnostics, "give one column, --text COL", "an embedding takes one text, not a pair");
    if (!path || !dataset_tokenize(prediction->tokenizer, &dataset, options->data, path, &summary, diagnostics) ||
        !text_rows_open(&prediction->rows, path, diagnostics))
        return false;
    prediction->rows.file = options->data;
    if (summary.truncated)
        diagnostics_warning(diagnostics, PLACE_FILE(options->data), "raise --max-length to read more of them",
                            "%zu rows were cut to %d tokens", summary.truncated, max_length);
    return !parts || text_rows_read_texts(&prediction->rows, options->data, options->texts[0], listed, diagnostics);
}

/* A run's model was trained on one text a row, or on two. */
static void compare_texts(const Prediction *prediction, Diagnostics *diagnostics)
{
    const char *columns = prediction->columns, *const *texts = prediction->options->texts;
    if (!columns || !texts[0] || prediction->options->data || is_embedding(prediction)) return;
    bool two = strchr(columns, *LIST_SEPARATOR);
    if (two == (texts[1] != NULL)) return;
    diagnostics_warning(diagnostics, (Place){.object = prediction->run},
                        two ? "give the other one too: --text2 TEXT" : "leave --text2 out",
                        "learned from %s a row, not %s", two ? "two texts" : "one text", two ? "one" : "two");
}

static bool open_tokenizer(Prediction *prediction, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    prediction->tokenizer =
        options->tokenizer ? tokenizer_open_named(options->tokenizer, !options->cased, diagnostics)
                           : text_tokenizer_of_folder(prediction->folder, options->model, options->cased, diagnostics);
    return prediction->tokenizer;
}

static bool read_rows(Prediction *prediction, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    if (options->data && text_ends_with(options->data, ".safetensors")) {
        DataOrigin tokens = prediction->origin;
        tokens.labels = NULL;
        bool ok = text_rows_open(&prediction->rows, options->data, diagnostics);
        for (int i = ROW_TENSORS / 2; i < ROW_TENSORS && !prediction->twofold; i++)
            prediction->rows.tensors[i] = (RowTensor){0};
        return ok && data_origin_match(&prediction->rows.data, options->data, &tokens, NULL, diagnostics);
    }
    compare_texts(prediction, diagnostics);
    if (!open_tokenizer(prediction, diagnostics)) return false;
    if (prediction->head == HEAD_MASKED) tokenizer_take_masks(prediction->tokenizer);
    int most = options->dataset.max_length;
    if (most > prediction->most_width) {
        if (most != USUAL_LENGTH)
            diagnostics_warning(diagnostics, PLACE_FILE(options->model), NULL,
                                "has positions for %lld tokens: --max-length %d is too long",
                                (long long)prediction->most_width, most);
        most = (int)prediction->most_width;
    }
    return options->data ? tokenize_table(prediction, prediction->width ? (int)prediction->width : most, diagnostics)
                         : text_rows_encode(&prediction->rows, prediction->tokenizer, options->texts,
                                            is_embedding(prediction), prediction->width, most, diagnostics);
}

static void tell_template(const Prediction *prediction, const char *name)
{
    if (!prediction->options->chat_template)
        text_print(stderr,
                   "The prompt is written as a question of '%s', which '%s' learned (--chat-template plain: as "
                   "it stands).\n",
                   name, prediction->run);
}

/* A question by the template of the tokenizer's folder. */
static bool ask_in_own_template(Prediction *prediction, GenerateOptions *wanted, Diagnostics *diagnostics)
{
    const char *folder = prediction->folder ? prediction->folder : ".";
    FolderTemplate *template = folder_template_open(folder, prediction->tokenizer, diagnostics);
    FREED_WITH(buffer_free) Buffer text = {0}, problem = {0};
    if (!template) return false;
    int32_t end = folder_template_ask(template, wanted->prompt, &text, &problem);
    if (end < 0) usage_error(diagnostics, "--chat-template plain", "%s", buffer_text(&problem));
    if (end >= 0 && prediction->end_count < MOST_ENDS) prediction->ends[prediction->end_count++] = end;
    wanted->whole = true;
    if (end >= 0 && strcmp(buffer_text(&text), wanted->prompt) != 0) {
        wanted->question = wanted->prompt;
        tell_template(prediction, CHAT_TEMPLATE_FOLDER);
    }
    wanted->prompt = arena_string(&prediction->arena, buffer_text(&text));
    folder_template_free(template);
    return end >= 0;
}

/* What learned conversations answers the prompt only between the marks of a user's turn. */
static bool ask_in_template(Prediction *prediction, GenerateOptions *wanted, Diagnostics *diagnostics)
{
    const char *prompt = wanted->prompt, *given = prediction->options->chat_template;
    const char *name = given ? given : prediction->chat_template;
    if (!name) return true;
    if (strcmp(name, CHAT_TEMPLATE_FOLDER) == 0) return ask_in_own_template(prediction, wanted, diagnostics);
    const ChatTemplate *template = chat_template_choose(name, prediction->tokenizer, diagnostics);
    int32_t end = template ? chat_template_end(template, prediction->end_of_text, prediction->folder,
                                               prediction->tokenizer, diagnostics)
                           : -1;
    if (end < 0) return false;
    if (prediction->end_count < MOST_ENDS) prediction->ends[prediction->end_count++] = end;
    wanted->whole = chat_template_is_whole(template);
    const ChatMessage turns[] = {{.role = CHAT_USER, .text = prompt, .length = strlen(prompt)},
                                 {.role = CHAT_ASSISTANT, .text = ""}};
    ChatSpan answer[2];
    FREED_WITH(buffer_free) Buffer text = {0};
    chat_template_write(template, turns, 2, "", &text, answer);
    size_t length = answer[0].begin;
    while (length && text.bytes[length - 1] == ' ') length--; /* tokens of words have the blank before them */
    const char *turn = arena_string_n(&prediction->arena, buffer_text(&text), length);
    if (strcmp(turn, prompt) == 0 || (!given && chat_template_is_written(template, prompt))) return true;
    wanted->question = prompt, wanted->prompt = turn;
    tell_template(prediction, name);
    return true;
}

static bool go_on(Prediction *prediction, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    GenerateOptions wanted = options->generate;
    wanted.seed = (uint64_t)options->seed;
    wanted.positions = prediction->most_width;
    wanted.verbose = options->verbose;
    if (prediction->batch > 1)
        return input_error(diagnostics, options->model, "export it with a symbolic batch",
                           "takes %lld rows at a time, and --prompt is one", (long long)prediction->batch);
    const char *scratch = scratch_place(prediction, "steps", diagnostics);
    if (!scratch || !open_tokenizer(prediction, diagnostics)) return false;
    if (!ask_in_template(prediction, &wanted, diagnostics)) return false;
    FREED_WITH(buffer_free) Buffer text = {0}, shown = {0};
    bool to_file = options->output && strcmp(options->output, "-") != 0;
    bool ok = generate(&prediction->predictor, &wanted, prediction->tokenizer, prediction->path, options->model,
                       prediction->width, prediction->ends, prediction->end_count, scratch, options->threads, &text,
                       diagnostics);
    if (!to_file) text_append_lines(&shown, buffer_text(&text), text.size);
    return ok && file_write_all(to_file ? options->output : "-", to_file ? text.bytes : shown.bytes,
                                to_file ? text.size : shown.size, diagnostics);
}

/* Chooses the number of tokens per row. Without a mask, the model would read padding as text. */
static bool settle_width(Prediction *prediction, Diagnostics *diagnostics)
{
    const TextRows *rows = &prediction->rows;
    if (!prediction->batch) prediction->batch = rows->count < MOST_BATCH ? rows->count : MOST_BATCH;
    /* Losses of answers compare all tokens, padding too: those of training, whose width is the rows'. */
    bool all = !prediction->has_mask || (prediction->measures && prediction->head == HEAD_QUESTION);
    if (!prediction->width) prediction->width = all ? rows->width : rows->longest;
    if (prediction->width > prediction->most_width)
        return input_error(diagnostics, rows->file, "shorten the rows with skycc tokenize --max-length",
                           "has rows of %lld tokens, but the model takes at most %lld", (long long)prediction->width,
                           (long long)prediction->most_width);
    return (prediction->width >= rows->longest && prediction->width <= rows->width) ||
           input_error(diagnostics, rows->file, "set the length with skycc tokenize --max-length",
                       "has rows of %lld tokens, but the model takes %lld", (long long)rows->width,
                       (long long)prediction->width);
}

/* ---- Predictions ---- */

static bool read_labels_of(Prediction *prediction, Diagnostics *diagnostics)
{
    const char *file = prediction->options->labels;
    if (!file) return true;
    DataLabels labels;
    if (!model_labels(&labels, file, &prediction->origin, &prediction->arena, diagnostics)) return false;
    prediction->labels = labels.names, prediction->label_count = labels.count;
    if (labels.problem) prediction->several = strcmp(labels.problem, LABELS_SEVERAL) == 0;
    return true;
}

static bool measure(Prediction *prediction, Diagnostics *diagnostics)
{
    const char *output = prediction->options->output;
    FREED_WITH(buffer_free) Buffer text = {0}, json = {0};
    bool ok = scores_measure(&prediction->predictions, &text, &json, diagnostics) && file_inputs_unchanged(diagnostics);
    buffer_append(&json, "\n", 1);
    ok = ok && (!output || file_write_all(output, json.bytes, json.size, diagnostics));
    if (ok) fwrite(text.bytes, 1, text.size, stdout); /* main reports what cannot be printed, after finetune's end */
    return ok;
}

static bool predict(Prediction *prediction, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    if (prediction->measures && options->tokenizer && !open_tokenizer(prediction, diagnostics)) return false;
    if (!read_labels_of(prediction, diagnostics) ||
        !predictor_open(&prediction->predictor, prediction->path, options->model, &prediction->rows, prediction->batch,
                        prediction->width, options->threads, diagnostics))
        return false;
    Predictions *predictions = &prediction->predictions;
    *predictions =
        (Predictions){.called = options->model,
                      .head = prediction->head,
                      .labels_of = options->labels,
                      .labels = prediction->labels,
                      .label_count = prediction->label_count,
                      .json = options->output && text_ends_with(options->output, ".jsonl") && is_embedding(prediction),
                      .several = options->multi_label || (prediction->several && prediction->head == HEAD_SEQUENCE),
                      .compares = options->texts[1] && is_embedding(prediction),
                      .measures = prediction->measures,
                      .tokenizer = prediction->tokenizer,
                      .rows = &prediction->rows,
                      .predictor = &prediction->predictor,
                      .arena = &prediction->arena};
    if (!predictions_begin(predictions, diagnostics)) return false;
    if (prediction->measures) return measure(prediction, diagnostics);
    for (int64_t first = 0; first < prediction->rows.count; first += prediction->batch) {
        if (!predictor_run(&prediction->predictor, first, diagnostics)) return false;
        for (int64_t r = first; r < first + prediction->batch && r < prediction->rows.count; r++)
            if (!predictions_row(predictions, r, diagnostics)) return false;
    }
    if (!file_inputs_unchanged(diagnostics)) return false;
    return file_write_all(options->output ? options->output : "-", predictions->table.bytes, predictions->table.size,
                          diagnostics);
}

static void prediction_free(Prediction *prediction)
{
    predictor_free(&prediction->predictor);
    text_rows_free(&prediction->rows);
    tokenizer_free(prediction->tokenizer);
    if (prediction->directory.temporary) directory_abandon(&prediction->directory);
    buffer_free(&prediction->predictions.table);
    arena_free(&prediction->arena);
}

#define STANDARD_INPUT "standard input"

/* Reports errors in intermediate files under the names that the user gave. */
static void report(const Prediction *prediction, const Diagnostics *found, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    const char *const names[][2] = {{"input.jsonl", STANDARD_INPUT},    {"input.csv", STANDARD_INPUT},
                                    {"input.tsv", STANDARD_INPUT},      {"input.conll", STANDARD_INPUT},
                                    {"model.onnx", options->model},     {"trained.onnx", options->model},
                                    {"rows.safetensors", options->data}};
    enum { NAMES = sizeof names / sizeof *names };
    Diagnostics renamed[NAMES] = {{.errors = 0}};
    FREED_WITH(arena_free) Arena arena = {0};
    const char *folder = prediction->directory.temporary;
    for (int i = 0; i < NAMES; i++) {
        const char *path = folder && names[i][1] ? arena_format(&arena, "%s/%s", folder, names[i][0]) : NULL;
        diagnostics_append_as(&renamed[i], i ? &renamed[i - 1] : found, path, names[i][1]);
    }
    diagnostics_append(diagnostics, &renamed[NAMES - 1]);
    for (int i = 0; i < NAMES; i++) diagnostics_free(&renamed[i]);
}

/* Standard input becomes a file, which is read as often as it takes: --data - a table, with tabs between its columns,
 * commas or JSON; --text - a text per line. */
static bool keep_standard_input(Prediction *prediction, const Settings *settings, Options *options,
                                Diagnostics *diagnostics)
{
    bool lines = !options->data && options->texts[0] && strcmp(options->texts[0], "-") == 0;
    if (!lines && !(options->data && strcmp(options->data, "-") == 0)) return true;
    FREED_WITH(file_unmap) MappedFile file = {0};
    if (!file_map(&file, "-", diagnostics)) return false;
    const char *text = (const char *)file.bytes, *end = text + file.size;
    FREED_WITH(buffer_free) Buffer rows = {0};
    for (const char *line = text, *stop; lines && line < end; line = stop + 1) {
        stop = memchr(line, '\n', (size_t)(end - line));
        if (!stop) stop = end;
        JsonWriter json = {.buffer = &rows};
        FREED char *copy = strndup(line, (size_t)(stop - line));
        if (!copy) memory_exhausted();
        if (*copy) json_open(&json, NULL, '{'), json_add_string(&json, "text", copy), json_close(&json, '}');
        buffer_append(&rows, "\n", 1);
    }
    const char *task = settings->of[SETTING_TASK].value, *words = NULL;
    if (task && strcmp(task, "ner") == 0)
        words = options->texts[0] ? options->texts[0] : settings->of[SETTING_TEXT].value;
    const char *suffix = lines ? ".jsonl" : text_rows_suffix(text, file.size, words);
    options->data = scratch_place(prediction, arena_format(&prediction->arena, "input%s", suffix), diagnostics);
    prediction->lines = lines;
    if (lines) options->texts[0] = "text";
    return options->data &&
           file_write_all(options->data, lines ? buffer_text(&rows) : text, lines ? rows.size : file.size, diagnostics);
}

/* A table becomes a data set as the run's own did, with its numbers of labels. */
static bool tokenize_for_run(Prediction *prediction, Settings *settings, Options *options, Diagnostics *diagnostics)
{
    if (!settings->of[SETTING_FORMAT].value || text_ends_with(options->data, ".safetensors")) return true;
    SingleCommand command;
    Options tokenizing;
    const char *path = scratch_place(prediction, "rows.safetensors", diagnostics);
    if (!path) return false;
    single_command_tokenize(&command, settings, prediction->run, options->data, path);
    bool ok = command_options_read(&tokenizing, COMMAND_TOKENIZE, command.count, (char **)command.words, diagnostics) &&
              tokenize_command(&tokenizing, diagnostics);
    arena_free(&tokenizing.arena);
    options->data = path;
    return ok;
}

static bool run_prediction(const Options *given, bool measures, Diagnostics *diagnostics)
{
    FREED_WITH(settings_free) Settings settings = {0};
    Options completed, *options = &completed;
    if (!run_options_complete(&completed, given, &settings, "give a text with --text, a table with --data",
                              diagnostics))
        return false;
    FREED_WITH(prediction_free)
    Prediction prediction = {.options = options,
                             .run = given->model,
                             .measures = measures,
                             .most_width = INT64_MAX,
                             .chat_template = settings.of[SETTING_CHAT_TEMPLATE].value,
                             .columns = settings.of[SETTING_TEXT].value,
                             .end_of_text = settings.of[SETTING_END_OF_TEXT].value};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    if (measures) options->texts[0] = NULL;
    if (measures && settings.of[SETTING_FORMAT].value) { /* not the embedding of single texts */
        options->model = run_file(&settings.arena, given->model, "model.onnx");
        options->checkpoint = run_file(&settings.arena, given->model, "checkpoints");
    }
    bool ok =
        (measures || check_options(options, &found)) && keep_standard_input(&prediction, &settings, options, &found) &&
        (!measures || (tokenize_for_run(&prediction, &settings, options, &found) && check_options(options, &found))) &&
        import_model(&prediction, &found) && read_model(&prediction, &found) && take_checkpoint(&prediction, &found) &&
        (options->generate.prompt
             ? go_on(&prediction, &found)
             : read_rows(&prediction, &found) && settle_width(&prediction, &found) && predict(&prediction, &found));
    report(&prediction, &found, diagnostics);
    return ok;
}

bool predict_command(const Options *options, Diagnostics *diagnostics)
{
    return run_prediction(options, false, diagnostics);
}

/* RUN FILE, or MODEL CHECKPOINT DATA. */
bool evaluate_command(const Options *options, Diagnostics *diagnostics)
{
    Options given = *options;
    given.generate = (GenerateOptions){.top_p = 1};
    size_t files = given.inputs.count;
    if (files > 2 || !files || (files == 1) != is_run(given.model))
        return usage_error(
            diagnostics, "write skycc evaluate RUN FILE, or skycc evaluate MODEL CHECKPOINT DATA",
            is_run(given.model) ? "give one table to evaluate on" : "'%s' is not a run of skycc finetune", given.model);
    given.data = given.inputs.items[files - 1];
    if (files == 2) given.checkpoint = given.inputs.items[0];
    if (!is_run(given.model) && !text_ends_with(given.data, ".safetensors"))
        return input_error(diagnostics, given.data, "make it with skycc tokenize", "is not a data set (.safetensors)");
    return run_prediction(&given, true, diagnostics);
}
