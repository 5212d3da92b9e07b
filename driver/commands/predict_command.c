/* skycc predict: labels and scores of texts, by a model that was trained. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/directory.h"
#include "driver/commands/commands.h"
#include "driver/compile/local_program.h"
#include "driver/compile/text_rows.h"
#include "driver/compile/trained_values.h"
#include "frontend/huggingface/config.h"
#include "frontend/huggingface/import_folder.h"
#include "frontend/text/labels.h"
#include "runtime/program/execute.h"
#include "runtime/program/parallel.h"

enum { MOST_BATCH = 32 };

typedef struct Prediction {
    const Options *options;
    Arena arena;
    OutputDirectory directory; /* of models made on the way, which go when the command ends; temporary NULL: none yet */
    const char *path;          /* the model that is run */
    /* What the model says. */
    const char *folder; /* that it comes from, or NULL */
    const char *const *labels;
    size_t label_count;   /* 0: they have no names */
    int64_t batch, width; /* 0: open */
    int64_t most_width;   /* for how many tokens it has positions, as far as is known */
    bool has_mask;
    TextRows rows;
    /* The program for a batch of rows. */
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool running;
    Buffer table;
} Prediction;

/* ---- The model ---- */

/* Where to put a file that is needed until the command ends; NULL after reporting. */
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
    const char *path = scratch_place(prediction, "model.onnx", diagnostics);
    const Head head = {.kind = HEAD_FROM_FOLDER};
    if (!path || !folder_import(prediction->path, path, &head, 0, NULL, diagnostics)) return false;
    prediction->path = path;
    return true;
}

static bool refuse(const Prediction *prediction, const char *hint, const char *problem, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(prediction->options->model), hint, "%s", problem);
}

static bool check_head(const Prediction *prediction, const OnnxModel *model, Diagnostics *diagnostics)
{
    const char *hint = "labels and scores are of heads seqcls:N and regression; skycc run gives the outputs of others";
    const char *text = onnx_model_property(model, PROPERTY_HEAD);
    Head head;
    if (text && (!head_parse(text, &head) || (head.kind != HEAD_SEQUENCE && head.kind != HEAD_REGRESSION)))
        return diagnostics_error(
            diagnostics, EXIT_BAD_INPUT, PLACE_FILE(prediction->options->model), hint,
            strcmp(text, "none") == 0 ? "has no head" : "has the head %s, which gives texts no labels", text);
    const Onnx__GraphProto *graph = model->proto->graph;
    for (size_t i = 0; i < graph->n_output; i++)
        if (graph->output[i]->name && strcmp(graph->output[i]->name, "logits") == 0) return true;
    return refuse(prediction, hint, "has no output 'logits'", diagnostics);
}

/* The names of labels. */
static void read_labels(Prediction *prediction, const json_t *names)
{
    size_t count = json_object_size(names);
    const char **labels = arena_new_array(&prediction->arena, const char *, count);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        snprintf(key, sizeof key, "%zu", i);
        const char *name = json_string_value(json_object_get(names, key));
        labels[i] = arena_string(&prediction->arena, name ? name : key);
    }
    prediction->labels = labels, prediction->label_count = count;
}

/* The configuration that the model was imported with. */
static bool read_config(Prediction *prediction, const char *text, Diagnostics *diagnostics)
{
    HuggingFaceConfig config = {0};
    bool ok = config_parse(&config, text, prediction->options->model, &prediction->arena, diagnostics);
    if (ok) {
        prediction->most_width = encoder_most_positions(&config);
        read_labels(prediction, json_object_get(config.json, "id2label"));
        const char *problem = json_string_value(json_object_get(config.json, "problem_type"));
        ok = !problem || strcmp(problem, "multi_label_classification") != 0 ||
             refuse(prediction, "skycc run gives its logits",
                    "gives a text several labels at once (multi_label_classification)", diagnostics);
    }
    config_free(&config);
    return ok;
}

/* What the graph's input says of a dimension; 0: it is open. */
static int64_t fixed_dimension(const Onnx__ValueInfoProto *input, size_t dimension)
{
    const Onnx__TypeProto *type = input->type;
    if (!type || type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || !type->tensor_type->shape) return 0;
    const Onnx__TensorShapeProto *shape = type->tensor_type->shape;
    if (shape->n_dim != 2) return 0; /* the import refuses the rows */
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
        if (strcmp(input->name, "input_ids") != 0) continue;
        takes_ids = true;
        prediction->batch = fixed_dimension(input, 0);
        prediction->width = fixed_dimension(input, 1);
    }
    return takes_ids || refuse(prediction, "skycc run feeds any inputs", "has no input 'input_ids'", diagnostics);
}

static bool read_model(Prediction *prediction, Diagnostics *diagnostics)
{
    OnnxModel model;
    if (!onnx_model_open(&model, prediction->path, true, diagnostics)) return false;
    const char *config = onnx_model_property(&model, PROPERTY_CONFIG);
    const char *folder = onnx_model_property(&model, PROPERTY_FOLDER);
    bool ok = check_head(prediction, &model, diagnostics) && read_inputs(prediction, &model, diagnostics) &&
              (!config || read_config(prediction, config, diagnostics));
    if (folder) prediction->folder = arena_string(&prediction->arena, folder);
    onnx_model_close(&model);
    return ok;
}

/* The model with the values of the checkpoint. */
static bool write_trained(Prediction *prediction, TrainedValues *values, Diagnostics *diagnostics)
{
    const char *path = scratch_place(prediction, "trained.onnx", diagnostics);
    if (!path) return false;
    bool ok;
    if (trained_values_low_rank(values)) {
        MergedWeights merged = {0};
        ok = trained_values_merge(&merged, values, prediction->path, diagnostics) &&
             export_onnx(prediction->path, path, merged_weights_find, &merged, diagnostics);
        merged_weights_free(&merged);
    } else {
        ok = export_onnx(prediction->path, path, trained_values_find, values, diagnostics);
    }
    if (ok) prediction->path = path;
    return ok;
}

static bool take_checkpoint(Prediction *prediction, Diagnostics *diagnostics)
{
    const char *checkpoint = prediction->options->checkpoint;
    if (!checkpoint) return true;
    TrainedValues values = {0};
    bool ok = trained_values_open(&values, checkpoint, diagnostics) && write_trained(prediction, &values, diagnostics);
    trained_values_free(&values);
    return ok;
}

/* ---- The rows ---- */

static bool is_data_set(const char *path)
{
    const char *suffix = strrchr(path, '.');
    return suffix && strcmp(suffix, ".safetensors") == 0;
}

static bool check_options(const Options *options, Diagnostics *diagnostics)
{
    const char *problem = NULL;
    if (!options->data && !options->texts[0])
        problem = "nothing is given to judge (--text TEXT, or --data FILE)";
    else if (options->data && options->texts[1])
        problem = "--text2 goes with --text alone: of a table, --text COL,COL says where pairs are";
    else if (options->data && is_data_set(options->data) && options->texts[0])
        problem = "--text says which columns of a table hold the texts: a data set has token ids";
    else if (options->data && !is_data_set(options->data) && !options->texts[0])
        problem = "which columns of the table hold the texts? --text COL[,COL] says it";
    return !problem ||
           diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "see skycc predict --help", "%s", problem);
}

static bool tokenize_table(Prediction *prediction, Tokenizer *tokenizer, int max_length, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    const char *path = scratch_place(prediction, "rows.safetensors", diagnostics);
    const DatasetOptions dataset = {
        .task = DATASET_COLUMNS, .max_length = max_length, .text_columns = options->texts[0], .unlabelled = true};
    DatasetSummary summary;
    if (!path || !dataset_tokenize(tokenizer, &dataset, options->data, path, &summary, diagnostics) ||
        !text_rows_open(&prediction->rows, path, diagnostics))
        return false;
    prediction->rows.file = options->data;
    if (summary.truncated)
        diagnostics_warning(diagnostics, PLACE_FILE(options->data), "--max-length says how many may be read",
                            "%zu rows are cut to %d tokens", summary.truncated, max_length);
    return true;
}

static bool read_rows(Prediction *prediction, Diagnostics *diagnostics)
{
    const Options *options = prediction->options;
    if (options->data && is_data_set(options->data))
        return text_rows_open(&prediction->rows, options->data, diagnostics);
    Tokenizer *tokenizer =
        options->tokenizer ? text_tokenizer_open(options->tokenizer, options->cased, diagnostics)
                           : text_tokenizer_of_folder(prediction->folder, options->model, options->cased, diagnostics);
    if (!tokenizer) return false;
    int most = options->dataset.max_length;
    if (most > prediction->most_width) most = (int)prediction->most_width;
    bool ok =
        options->data
            ? tokenize_table(prediction, tokenizer, prediction->width ? (int)prediction->width : most, diagnostics)
            : text_rows_encode(&prediction->rows, tokenizer, options->texts, prediction->width, most, diagnostics);
    tokenizer_free(tokenizer);
    return ok;
}

/* How many tokens the program is for: without a mask, padding would be read as text. */
static bool settle_width(Prediction *prediction, Diagnostics *diagnostics)
{
    const TextRows *rows = &prediction->rows;
    if (!prediction->batch) prediction->batch = rows->count < MOST_BATCH ? rows->count : MOST_BATCH;
    if (!prediction->width) prediction->width = prediction->has_mask ? rows->longest : rows->width;
    if (prediction->width > prediction->most_width)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(rows->file),
                                 "skycc tokenize --max-length cuts longer ones",
                                 "has rows of %lld tokens, but the model has positions for %lld",
                                 (long long)prediction->width, (long long)prediction->most_width);
    return (prediction->width >= rows->longest && prediction->width <= rows->width) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(rows->file), "skycc tokenize --max-length says it",
                             "has rows of %lld tokens, but the model takes %lld", (long long)rows->width,
                             (long long)prediction->width);
}

/* ---- The program ---- */

static bool load(Prediction *prediction, Diagnostics *diagnostics)
{
    const Shape shape = {2, {prediction->batch, prediction->width}};
    InputShape shapes[3];
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        if (prediction->rows.tensors[i].data)
            shapes[count++] = (InputShape){prediction->rows.tensors[i].name, shape, DTYPE_I64, NULL};
    const ModelOptions options = {.import = {.input_shapes = shapes, .input_shape_count = count}};
    return training_model_load(&prediction->model, prediction->path, &options, diagnostics);
}

static void build(Prediction *prediction)
{
    Graph *graph = &prediction->model.graph;
    StageIndex *index = stage_index_create(graph, false);
    stage_build_indexed(&prediction->code, index, 0, graph->layer_count - 1, STAGE_PLAIN);
    stage_index_free(index);
    prediction->code.stage.slot_count = 1;
    local_program_create(&prediction->program, &prediction->model, &prediction->code);
}

static bool start(Prediction *prediction, Diagnostics *diagnostics)
{
    int threads = prediction->options->threads ? prediction->options->threads : parallel_threads(0);
    if (!local_program_compile(&prediction->program, NULL, diagnostics)) return false;
    prediction->running =
        execution_open(&prediction->execution, &prediction->program.program, threads, NULL, diagnostics);
    return prediction->running;
}

static void fill_parameters(Prediction *prediction)
{
    const SkyStage *stage = &prediction->code.stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const Value *value = graph_value(&prediction->model.graph, prediction->code.parameter_values[i]);
        if (value->data)
            memcpy(execution_address(&prediction->execution, 0, 0, stage->parameters[i].value.location), value->data,
                   stage->parameters[i].value.bytes);
    }
}

/* Rows from `first` on; the last one again where there are no more. */
static bool fill_input(Prediction *prediction, const SkyTensor *input, int64_t first, Diagnostics *diagnostics)
{
    const TextRows *rows = &prediction->rows;
    const RowTensor *tensor = text_rows_find(rows, input->name);
    int64_t batch = prediction->batch, width = prediction->width, limit = input->value_limit;
    if (!tensor || input->rank != 2 || input->dim[0] != batch || input->dim[1] != width)
        return diagnostics_error(
            diagnostics, EXIT_BAD_INPUT, (Place){.file = prediction->options->model, .object = input->name},
            "skycc run feeds any inputs",
            tensor ? "is not of shape [batch, tokens]" : "is an input that the rows have no values of");
    void *destination = execution_address(&prediction->execution, 0, 0, input->location);
    for (int64_t i = 0; i < batch * width; i++) {
        int64_t row = first + i / width;
        if (row >= rows->count) row = rows->count - 1;
        int64_t value = element_as_integer(tensor->dtype, tensor->data, row * rows->width + i % width);
        if (limit && (value < 0 || value >= limit))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = rows->file, .object = input->name},
                                     "is the tokenizer the model's?",
                                     "row %lld has %lld, outside the model's table of %lld rows", (long long)row,
                                     (long long)value, (long long)limit);
        if (dtype_is_float((DType)input->dtype))
            element_store_double((DType)input->dtype, destination, i, (double)value);
        else
            element_store_integer((DType)input->dtype, destination, i, value);
    }
    return true;
}

/* ---- What is printed ---- */

/* A field of RFC 4180. */
static void print_field(Buffer *table, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        buffer_print(table, "%s", text);
        return;
    }
    buffer_append(table, "\"", 1);
    for (; *text; text++) buffer_append(table, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    buffer_append(table, "\"", 1);
}

static bool name_labels(Prediction *prediction, int64_t classes, Diagnostics *diagnostics)
{
    const char *file = prediction->options->labels;
    if (file) {
        prediction->labels = label_names_of_data(file, &prediction->arena, &prediction->label_count, diagnostics);
        if (!prediction->labels) return false;
    }
    if ((int64_t)prediction->label_count != classes && (file || prediction->label_count))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(file ? file : prediction->options->model),
                                 file ? "are they of the data that the model was trained with?" : NULL,
                                 "has names of %zu labels, but the model has %lld", prediction->label_count,
                                 (long long)classes);
    if (prediction->label_count) return true;
    const char **numbers = arena_new_array(&prediction->arena, const char *, (size_t)classes);
    for (int64_t i = 0; i < classes; i++) numbers[i] = arena_format(&prediction->arena, "%lld", (long long)i);
    prediction->labels = numbers, prediction->label_count = (size_t)classes;
    return true;
}

static void print_header(Prediction *prediction, int64_t classes)
{
    buffer_print(&prediction->table, classes == 1 ? "row,value" : "row,label,score");
    for (int64_t i = 0; classes > 1 && i < classes; i++) {
        buffer_append(&prediction->table, ",", 1);
        print_field(&prediction->table, prediction->labels[i]);
    }
    buffer_append(&prediction->table, "\r\n", 2);
}

/* `scores`: room for a row. */
static bool print_row(Prediction *prediction, int64_t row, const SkyTensor *output, double *scores,
                      Diagnostics *diagnostics)
{
    Buffer *table = &prediction->table;
    int64_t classes = output->dim[1], best = 0;
    const void *logits = execution_address(&prediction->execution, 0, 0, output->location);
    double sum = 0;
    for (int64_t i = 0; i < classes; i++) {
        scores[i] = element_as_double((DType)output->dtype, logits, row % prediction->batch * classes + i);
        if (!isfinite(scores[i]))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(prediction->options->model),
                                     "did its training diverge?", "gives row %lld no finite logits", (long long)row);
        if (scores[i] > scores[best]) best = i;
    }
    buffer_print(table, "%lld,", (long long)row);
    if (classes == 1) {
        buffer_print(table, "%.9g\r\n", scores[0]);
        return true;
    }
    double largest = scores[best];
    for (int64_t i = 0; i < classes; i++) sum += scores[i] = exp(scores[i] - largest);
    print_field(table, prediction->labels[best]);
    buffer_print(table, ",%.7g", scores[best] / sum);
    for (int64_t i = 0; i < classes; i++) buffer_print(table, ",%.7g", scores[i] / sum);
    buffer_append(table, "\r\n", 2);
    return true;
}

static const SkyTensor *find_logits(const Prediction *prediction, Diagnostics *diagnostics)
{
    const SkyStage *stage = &prediction->code.stage;
    for (uint32_t i = 0; i < stage->output_count; i++) {
        const SkyTensor *output = &stage->outputs[i];
        if (strcmp(output->name, "logits") == 0 && output->rank == 2 && output->dim[0] == prediction->batch &&
            output->dim[1] > 0 && dtype_is_float((DType)output->dtype))
            return output;
    }
    refuse(prediction, "skycc run gives it as it is", "its output 'logits' has no shape [batch, labels]", diagnostics);
    return NULL;
}

static bool predict_batch(Prediction *prediction, int64_t first, const SkyTensor *output, double *scores,
                          Diagnostics *diagnostics)
{
    const SkyStage *stage = &prediction->code.stage;
    for (uint32_t i = 0; i < stage->input_count; i++)
        if (!fill_input(prediction, &stage->inputs[i], first, diagnostics)) return false;
    if (!execution_run(&prediction->execution, 0, SKY_LIST_FORWARD, 0, diagnostics)) return false;
    for (int64_t r = first; r < first + prediction->batch && r < prediction->rows.count; r++)
        if (!print_row(prediction, r, output, scores, diagnostics)) return false;
    return true;
}

static bool predict(Prediction *prediction, Diagnostics *diagnostics)
{
    build(prediction);
    const SkyTensor *output = find_logits(prediction, diagnostics);
    if (!output || (output->dim[1] > 1 && !name_labels(prediction, output->dim[1], diagnostics)) ||
        !start(prediction, diagnostics))
        return false;
    fill_parameters(prediction);
    print_header(prediction, output->dim[1]);
    double *scores = arena_new_array(&prediction->arena, double, (size_t)output->dim[1]);
    for (int64_t first = 0; first < prediction->rows.count; first += prediction->batch)
        if (!predict_batch(prediction, first, output, scores, diagnostics)) return false;
    const char *file = prediction->options->output;
    return file_write_all(file ? file : "-", prediction->table.bytes, prediction->table.size, diagnostics);
}

static void prediction_free(Prediction *prediction)
{
    if (prediction->running) execution_close(&prediction->execution);
    local_program_free(&prediction->program);
    stage_free(&prediction->code);
    training_model_free(&prediction->model);
    text_rows_free(&prediction->rows);
    if (prediction->directory.temporary) directory_abandon(&prediction->directory);
    buffer_free(&prediction->table);
    arena_free(&prediction->arena);
}

int predict_command(const Options *options, Diagnostics *diagnostics)
{
    Prediction prediction = {.options = options, .most_width = INT64_MAX};
    bool ok = check_options(options, diagnostics) && import_model(&prediction, diagnostics) &&
              read_model(&prediction, diagnostics) && take_checkpoint(&prediction, diagnostics) &&
              read_rows(&prediction, diagnostics) && settle_width(&prediction, diagnostics) &&
              load(&prediction, diagnostics) && predict(&prediction, diagnostics);
    prediction_free(&prediction);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
