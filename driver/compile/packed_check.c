#include "driver/compile/packed_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "driver/compile/local_program.h"
#include "graph/passes/pack_rows.h"
#include "runtime/program/step.h"
#include "runtime/storage/packed_batch.h"

/* One row of length s fills a line, three others the second. As many padded rows are a micro-batch, so that most
 * kernels of both models are the same. */
enum {
    LINES = PACKING_GRAPH_ROWS,
    MICROBATCHES = 2,
    ROWS = MICROBATCHES * LINES,
    SLOTS = 3,
    LENGTH = 12,
    LEAST_LENGTH = 3
};

/* The tokens after the end of a row. Models without a mask input take a certain token for padding. */
typedef enum Padding { PADDING_ZEROS, PADDING_ONES, PADDING_DRAWN, PADDING_COUNT } Padding;

/* The model, padded or packed, ready to be run. Micro-batches have a slot each. */
typedef struct Trial {
    uint32_t microbatches;
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool built, opened;
} Trial;

typedef struct Check {
    Arena arena;
    const char *path;
    int64_t length, line_length;
    int32_t lengths[ROWS];
    Trial padded, packed; /* models of one import: of `packed`, only the graph is its own */
    bool loaded;
    Dataset data;
    uint32_t rows[ROWS];
    PackedBatch batch;
    double difference; /* the largest, relative to an output's largest element */
    const char *worst; /* what differs most */
} Check;

/* ---- Setting up ---- */

/* Both graphs, of one import. What there is to say about the model is said where it is loaded as a whole. */
static bool load_trials(Check *check, const ModelOptions *load, SkyPacking packing)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    ModelOptions options = *load;
    DimensionBinding *all = arena_new_array(&check->arena, DimensionBinding, options.import.dimension_count);
    for (size_t i = 0; i < options.import.dimension_count; i++) {
        all[i] = options.import.dimensions[i];
        if (strcmp(all[i].name, load->lengths.dimension) == 0) all[i].value = check->length;
    }
    options.import.dimensions = all;
    options.import.dropout_given = false;
    options.import.dropout_off = true;
    options.packing = (SkyPacking){0};
    options.want_loss = true;
    options.train = options.differentiate = false;
    options.precision = PRODUCTS_F32;
    options.last_pass = NULL;
    options.logits = LOGITS_WHOLE; /* to compare */
    check->padded.microbatches = MICROBATCHES;
    check->packed.microbatches = 1;
    check->loaded = true;
    bool ok = packed_model_import(&check->padded.model, check->path, &options, &ignored) &&
              training_model_make(&check->padded.model, &options, &ignored);
    options.packing = packing;
    check->packed.model = check->padded.model;
    check->packed.model.graph = (Graph){0};
    return ok && training_model_make(&check->packed.model, &options, &ignored);
}

static int64_t count_parameters(const Graph *graph)
{
    int64_t count = 0;
    for (ValueId v = 1; v < graph->value_count; v++)
        if (graph_value(graph, v)->role == ROLE_PARAMETER && shared_parameter(graph, v) == v)
            count += shape_elements(&graph_value(graph, v)->shape);
    return count;
}

/* Vectors around 0.7, matrices such that what they make is about as large as what they take. */
static void draw_parameter(const SkyParameter *parameter, float *values)
{
    uint64_t state = hash_bytes(parameter->value.name, strlen(parameter->value.name)).low;
    int64_t count = (int64_t)(parameter->value.bytes / sizeof(float)), rows = parameter->value.dim[0];
    bool vector = parameter->value.rank < 2;
    double scale = vector ? 0.3 : 1.7 / sqrt((double)(rows < 1024 ? rows : 1024)), middle = vector ? 0.7 : 0;
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(middle + scale * (double)(int32_t)(random_draw(&state) >> 32) / 2147483648.0);
}

static bool open_trial(Trial *trial, Diagnostics *diagnostics)
{
    enum { FEW_PARAMETERS = 100000 };
    Graph *graph = &trial->model.graph;
    stage_build(&trial->code, graph, 0, graph->layer_count - 1);
    trial->code.stage.slot_count = trial->microbatches;
    local_program_create(&trial->program, &trial->model, &trial->code);
    trial->program.program.microbatch_count = trial->microbatches;
    trial->built = true;
    if (count_parameters(graph) > FEW_PARAMETERS && !local_program_compile(&trial->program, NULL, diagnostics))
        return false;
    trial->opened = execution_open(&trial->execution, &trial->program.program, 1, local_program_interpret, diagnostics);
    if (!trial->opened) return false;
    const SkyStage *stage = &trial->code.stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++)
        if (stage->parameters[i].value.dtype == DTYPE_F32)
            draw_parameter(&stage->parameters[i],
                           execution_address(&trial->execution, 0, 0, stage->parameters[i].value.location));
    return true;
}

static void close_trial(Trial *trial)
{
    if (trial->opened) execution_close(&trial->execution);
    if (trial->built) {
        local_program_free(&trial->program);
        stage_free(&trial->code);
    }
}

/* ---- Data ---- */

/* Element `i` of an input of the padded model. Ids below 2 are what models take for padding. */
static double draw_element(const SkyTensor *input, const SkyLabels *labels, uint64_t *state)
{
    uint64_t drawn = random_draw(state) >> 33;
    if (labels && labels->kind == SKY_LABELS_CLASSES)
        return labels->classes > 0 ? (double)(drawn % (uint64_t)labels->classes) : 0;
    if (dtype_is_float((DType)input->dtype)) return (double)drawn / 2147483648.0;
    uint64_t limit = input->value_limit > 0 ? (uint64_t)input->value_limit : 2;
    return (double)(limit > 4 ? 2 + drawn % (limit - 2) : drawn % limit);
}

static SafeTensor make_tensor(Check *check, const SkyTensor *input, Padding padding)
{
    const SkyLabels *labels = labels_of_input(&check->padded.program.program, input->name, NULL);
    SafeTensor tensor = {.name = input->name, .dtype = (DType)input->dtype, .shape = {.rank = (int)input->rank}};
    for (int i = 0; i < tensor.shape.rank; i++) tensor.shape.dim[i] = input->dim[i] * (i ? 1 : MICROBATCHES);
    int64_t elements = shape_elements(&tensor.shape), per_row = elements / ROWS;
    int64_t per_token = input->rank > 1 && input->dim[1] == check->length ? per_row / check->length : 0;
    bool is_mask = strstr(input->name, "mask");
    uint64_t state = hash_bytes(input->name, strlen(input->name)).low;
    tensor.bytes = (size_t)elements * dtype_size(tensor.dtype);
    void *data = arena_new_array(&check->arena, unsigned char, tensor.bytes);
    tensor.data = data;
    for (int64_t i = 0; i < elements; i++) {
        double value = draw_element(input, labels, &state);
        bool padded = per_token && i % per_row / per_token >= check->lengths[i / per_row];
        if (padded && labels)
            labels_ignore(labels, tensor.dtype, data, i, 1);
        else if (is_mask)
            element_store_double(tensor.dtype, data, i, !padded);
        else
            element_store_double(tensor.dtype, data, i, !padded || padding == PADDING_DRAWN ? value : padding);
    }
    return tensor;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const SafeTensor *const *)a)->name, (*(const SafeTensor *const *)b)->name);
}

static void make_data(Check *check, Padding padding)
{
    const SkyStage *stage = &check->padded.code.stage;
    const SkyProgram *program = &check->padded.program.program;
    SafeTensor *tensors = arena_new_array(&check->arena, SafeTensor, stage->input_count);
    const SafeTensor **named = arena_new_array(&check->arena, const SafeTensor *, stage->input_count);
    check->data = (Dataset){.rows = ROWS};
    for (uint32_t i = 0; i < stage->input_count; i++) {
        tensors[i] = make_tensor(check, &stage->inputs[i], padding);
        named[i] = &tensors[i];
        for (const SkyLabels *l = NULL; (l = labels_of_input(program, stage->inputs[i].name, l));)
            check->data.labels[l - program->labels] = &tensors[i];
    }
    qsort(named, stage->input_count, sizeof *named, by_name);
    check->data.file.tensors = tensors;
    check->data.file.by_name = named;
    check->data.file.count = stage->input_count;
}

/* ---- Running and comparing ---- */

static void fill_inputs(Check *check, Trial *trial, const PackedBatch *batch, uint32_t microbatch)
{
    const SkyProgram *program = &trial->program.program;
    const SkyStage *stage = &trial->code.stage;
    for (uint32_t i = 0; i < stage->input_count; i++) {
        void *to = execution_address(&trial->execution, 0, microbatch, stage->inputs[i].location);
        packed_batch_fill(batch, &check->data, program, &stage->inputs[i], check->rows, microbatch, to);
    }
}

static bool run_trial(Check *check, Trial *trial, const PackedBatch *batch, Diagnostics *diagnostics)
{
    const SkyProgram *program = &trial->program.program;
    LabelCount labels[SKY_MOST_LABELS];
    dataset_count_labels(&check->data, program, check->rows, ROWS, labels);
    step_scalars(trial->execution.step, &program->optimizer, 0, 0, 0);
    step_scalars_losses(trial->execution.step, program, labels, ROWS);
    for (uint32_t m = 0; m < trial->microbatches; m++) {
        fill_inputs(check, trial, batch, m);
        if (!execution_run(&trial->execution, 0, SKY_LIST_FORWARD, m, diagnostics)) return false;
    }
    return true;
}

static void note_difference(Check *check, const char *name, double difference, double largest)
{
    double relative = difference / (largest + 1e-30);
    if (!isfinite(difference) || !isfinite(largest)) relative = INFINITY;
    if (relative <= check->difference) return;
    check->difference = relative;
    check->worst = name;
}

/* Element number of the packed output where token `token` of the row (or the row) begins; -1: it has no such place. */
static int64_t packed_element(const Check *check, const SkyTensor *output, bool of_tokens, int row, int64_t token)
{
    const RowPlace *place = &check->batch.packer.places[row];
    int64_t elements = (int64_t)(output->bytes / dtype_size((DType)output->dtype));
    if (of_tokens)
        return (place->line * check->line_length + place->offset + token) * (elements / (LINES * check->line_length));
    return (place->line * SLOTS + place->slot) * (elements / (LINES * SLOTS));
}

static void compare_output(Check *check, const SkyTensor *padded, const SkyTensor *packed)
{
    int64_t all = (int64_t)(padded->bytes / dtype_size((DType)padded->dtype));
    int64_t packed_all = (int64_t)(packed->bytes / dtype_size((DType)packed->dtype));
    bool of_tokens = all % (LINES * check->length) == 0 && packed_all * check->length == all * check->line_length;
    bool of_rows = all % LINES == 0 && packed_all == all * SLOTS;
    if (!dtype_is_float((DType)padded->dtype) || !(of_tokens || of_rows) || !padded->rank) return;
    bool rows_first =
        packed->dim[0] == LINES || packed->dim[0] == LINES * SLOTS || packed->dim[0] == LINES * check->line_length;
    bool tokens_next = packed->rank > 1 && packed->dim[0] == LINES && packed->dim[1] == check->line_length;
    if (!rows_first || (of_tokens && packed->dim[0] == LINES && !tokens_next)) return;
    const void *b = execution_address(&check->packed.execution, 0, 0, packed->location);
    int64_t each = of_tokens ? all / (LINES * check->length) : all / LINES;
    double largest = 0, difference = 0;
    for (int row = 0; row < ROWS; row++) {
        const void *a = execution_address(&check->padded.execution, 0, (uint32_t)row / LINES, padded->location);
        int row_in_batch = row % LINES;
        for (int64_t token = 0; token < (of_tokens ? check->lengths[row] : 1); token++) {
            int64_t from = (of_tokens ? row_in_batch * check->length + token : row_in_batch) * each;
            int64_t to = packed_element(check, packed, of_tokens, row, token);
            for (int64_t i = 0; i < each; i++) {
                double x = element_as_double((DType)padded->dtype, a, from + i);
                double y = element_as_double((DType)packed->dtype, b, to + i);
                largest = fmax(largest, fabs(x));
                difference = isfinite(x) && isfinite(y) ? fmax(difference, fabs(x - y)) : INFINITY;
            }
        }
    }
    note_difference(check, padded->name, difference, largest);
}

static double loss_of(const Trial *trial)
{
    double loss = 0;
    for (uint32_t m = 0; m < trial->microbatches; m++)
        loss += *(const float *)execution_address(&trial->execution, 0, m, trial->code.stage.loss);
    return loss;
}

static void compare(Check *check)
{
    const SkyStage *padded = &check->padded.code.stage, *packed = &check->packed.code.stage;
    check->difference = 0;
    check->worst = NULL;
    for (uint32_t i = 0; i < padded->output_count; i++)
        for (uint32_t k = 0; k < packed->output_count; k++)
            if (strcmp(padded->outputs[i].name, packed->outputs[k].name) == 0)
                compare_output(check, &padded->outputs[i], &packed->outputs[k]);
    if (!padded->has_loss) return;
    double a = loss_of(&check->padded), b = loss_of(&check->packed);
    note_difference(check, "loss", fabs(a - b), fabs(a));
}

/* ---- The whole ---- */

static void choose_rows(Check *check, const ModelOptions *load)
{
    const SkyPacking *packing = &load->packing;
    int64_t longest = packing->longest;
    check->length = longest < LEAST_LENGTH ? LEAST_LENGTH : longest < LENGTH ? longest : LENGTH;
    check->line_length = check->length + (packing->length > packing->longest ? check->length / 2 : 0);
    int32_t part = check->length >= 8 ? (int32_t)check->length / 4 : 1;
    const int32_t lengths[ROWS] = {(int32_t)check->length, (int32_t)check->length - 2 * part, part, part};
    memcpy(check->lengths, lengths, sizeof lengths);
    for (uint32_t i = 0; i < ROWS; i++) check->rows[i] = i;
}

static bool not_tried(const Check *check, const char *why, Diagnostics *diagnostics)
{
    diagnostics_warning(diagnostics, PLACE_FILE(check->path),
                        "to compare them, compile once with fewer layers or tokens",
                        "packed rows were not compared with padded ones: %s", why);
    return true;
}

static bool run_check(Check *check, const ModelOptions *load, Diagnostics *diagnostics)
{
    static const double tolerated = 1e-4;
    const SkyPacking packing = {LINES, (uint32_t)check->line_length, SLOTS, ROWS, (uint32_t)check->length};
    double least = INFINITY;
    const char *worst = NULL;
    if (!load_trials(check, load, packing))
        return not_tried(check, "the model does not take rows as short as the check needs", diagnostics);
    if (count_parameters(&check->padded.model.graph) > CHECK_MOST_PARAMETERS)
        return not_tried(check, "the model is too large", diagnostics);
    if (!open_trial(&check->padded, diagnostics) || !open_trial(&check->packed, diagnostics)) return false;
    packed_batch_open(&check->batch, &check->packed.program.program);
    packed_batch_place(&check->batch, check->lengths, check->rows);
    for (Padding padding = 0; padding < PADDING_COUNT && !(least <= tolerated); padding++) {
        make_data(check, padding);
        if (!run_trial(check, &check->padded, NULL, diagnostics) ||
            !run_trial(check, &check->packed, &check->batch, diagnostics))
            return false;
        compare(check);
        if (check->difference < least || !worst) least = check->difference, worst = check->worst;
    }
    return least <= tolerated ||
           input_error(diagnostics, check->path, "bind the dimension to one length, to which all rows are padded",
                       "rows of several lengths cannot be packed: padding changes '%s', by %.2g relative to its size",
                       worst, least);
}

bool packed_model_check(const ModelOptions *load, const char *path, Diagnostics *diagnostics)
{
    Check check = {.path = path};
    choose_rows(&check, load);
    bool ok = run_check(&check, load, diagnostics);
    packed_batch_close(&check.batch);
    close_trial(&check.padded);
    close_trial(&check.packed);
    if (check.packed.model.graph.values) graph_free(&check.packed.model.graph);
    if (check.loaded) training_model_free(&check.padded.model);
    arena_free(&check.arena);
    return ok;
}
