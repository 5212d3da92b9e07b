#include "driver/predict/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/program/parallel.h"
#include "graph/analysis/parameter_values.h"

static bool load(Predictor *predictor, const char *path, Diagnostics *diagnostics)
{
    const Shape shape = {2, {predictor->batch, predictor->width}};
    InputShape shapes[ROW_TENSORS];
    size_t count = 0;
    for (int i = 0; i < ROW_TENSORS; i++)
        if (predictor->rows->tensors[i].data)
            shapes[count++] = (InputShape){predictor->rows->tensors[i].name, shape, DTYPE_I64, NULL};
    const ModelOptions options = {.import = {.input_shapes = shapes, .input_shape_count = count}};
    return training_model_load(&predictor->model, path, &options, diagnostics);
}

static void fill_parameters(Predictor *predictor)
{
    const SkyStage *stage = &predictor->code.stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const Value *value = graph_value(&predictor->model.graph, predictor->code.parameter_values[i]);
        if (parameter_has_values(value))
            parameter_copy_values(value,
                                  execution_address(&predictor->execution, 0, 0, stage->parameters[i].value.location));
    }
}

bool predictor_open(Predictor *predictor, const char *path, const char *called, const TextRows *rows, int64_t batch,
                    int64_t width, int threads, Diagnostics *diagnostics)
{
    *predictor = (Predictor){.called = called, .rows = rows, .batch = batch, .width = width};
    if (!load(predictor, path, diagnostics)) return false;
    local_program_build(&predictor->program, &predictor->code, &predictor->model);
    if (!local_program_compile(&predictor->program, NULL, diagnostics)) return false;
    predictor->running = execution_open(&predictor->execution, &predictor->program.program,
                                        threads ? threads : parallel_threads(0), NULL, diagnostics);
    if (predictor->running) fill_parameters(predictor);
    return predictor->running;
}

/* Rows from `first` on; the last row is repeated to fill the batch. */
static bool fill_input(Predictor *predictor, const SkyTensor *input, int64_t first, Diagnostics *diagnostics)
{
    const TextRows *rows = predictor->rows;
    const RowTensor *tensor = text_rows_find(rows, input->name);
    int64_t batch = predictor->batch, width = predictor->width, limit = input->value_limit;
    if (!tensor || input->rank != 2 || input->dim[0] != batch || input->dim[1] != width)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = predictor->called, .object = input->name},
                                 "use skycc run, which takes any inputs",
                                 tensor ? "is not of shape [batch, tokens]"
                                        : "is an input for which the rows hold no values");
    void *destination = execution_address(&predictor->execution, 0, 0, input->location);
    for (int64_t i = 0; i < batch * width; i++) {
        int64_t row = first + i / width;
        if (row >= rows->count) row = rows->count - 1;
        int64_t value = element_as_integer(tensor->dtype, tensor->data, row * rows->width + i % width);
        if (limit && (value < 0 || value >= limit))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = rows->file, .object = input->name},
                                     "use the model's own tokenizer",
                                     "row %lld has token %lld, but the model's vocabulary ends before %lld",
                                     (long long)row, (long long)value, (long long)limit);
        if (dtype_is_float((DType)input->dtype))
            element_store_double((DType)input->dtype, destination, i, (double)value);
        else
            element_store_integer((DType)input->dtype, destination, i, value);
    }
    return true;
}

static size_t tensor_bytes(const SkyTensor *tensor)
{
    Shape shape = {(int)tensor->rank, {0}};
    for (uint32_t i = 0; i < tensor->rank; i++) shape.dim[i] = tensor->dim[i];
    return (size_t)dtype_bytes((DType)tensor->dtype, shape_elements(&shape));
}

static const char *kept_name(const SkyTensor *input)
{
    return strncmp(input->name, "past_", 5) == 0 ? input->name + 5 : NULL;
}

void predictor_keep(Predictor *predictor)
{
    const SkyStage *stage = &predictor->code.stage;
    predictor->kept = memory_allocate(stage->output_count * sizeof *predictor->kept);
    for (uint32_t i = 0; i < stage->output_count; i++)
        for (uint32_t k = 0; k < stage->input_count; k++) {
            const char *name = kept_name(&stage->inputs[k]);
            if (name && strcmp(name, stage->outputs[i].name) == 0)
                predictor->kept[i] = memory_allocate(tensor_bytes(&stage->outputs[i]));
        }
}

/* What is kept of the output that the input continues; NULL: it continues none. */
static const void *kept_for(const Predictor *predictor, const SkyTensor *input)
{
    const SkyStage *stage = &predictor->code.stage;
    const char *name = kept_name(input);
    for (uint32_t i = 0; predictor->kept && name && i < stage->output_count; i++)
        if (predictor->kept[i] && strcmp(name, stage->outputs[i].name) == 0) return predictor->kept[i];
    return NULL;
}

bool predictor_run(Predictor *predictor, int64_t first, Diagnostics *diagnostics)
{
    const SkyStage *stage = &predictor->code.stage;
    Execution *execution = &predictor->execution;
    for (uint32_t i = 0; i < stage->input_count; i++) {
        const SkyTensor *input = &stage->inputs[i];
        const void *kept = kept_for(predictor, input);
        if (kept)
            memcpy(execution_address(execution, 0, 0, input->location), kept, tensor_bytes(input));
        else if (!fill_input(predictor, input, first, diagnostics))
            return false;
    }
    if (!execution_run(execution, 0, SKY_LIST_FORWARD, 0, diagnostics)) return false;
    for (uint32_t i = 0; predictor->kept && i < stage->output_count; i++)
        if (predictor->kept[i])
            memcpy(predictor->kept[i], execution_address(execution, 0, 0, stage->outputs[i].location),
                   tensor_bytes(&stage->outputs[i]));
    return true;
}

const SkyTensor *predictor_output(const Predictor *predictor, const char *name, uint32_t rank)
{
    const SkyStage *stage = &predictor->code.stage;
    for (uint32_t i = 0; i < stage->output_count; i++) {
        const SkyTensor *output = &stage->outputs[i];
        if (strcmp(output->name, name) == 0)
            return output->rank == rank && output->dim[0] == predictor->batch && output->dim[rank - 1] > 0 &&
                           dtype_is_float((DType)output->dtype)
                       ? output
                       : NULL;
    }
    return NULL;
}

int64_t predictor_row_values(const SkyTensor *output)
{
    int64_t count = 1;
    for (uint32_t i = 1; i < output->rank; i++) count *= output->dim[i];
    return count;
}

bool predictor_values(Predictor *predictor, const SkyTensor *output, int64_t row, double *values,
                      Diagnostics *diagnostics)
{
    int64_t count = predictor_row_values(output), base = row % predictor->batch * count;
    const void *from = execution_address(&predictor->execution, 0, 0, output->location);
    for (int64_t i = 0; i < count; i++) {
        values[i] = element_as_double((DType)output->dtype, from, base + i);
        if (!isfinite(values[i]))
            return input_error(diagnostics, predictor->called, "check whether its training diverged",
                               "gives row %lld no finite %s", (long long)row, output->name);
    }
    return true;
}

void predictor_free(Predictor *predictor)
{
    for (uint32_t i = 0; predictor->kept && i < predictor->code.stage.output_count; i++) free(predictor->kept[i]);
    free(predictor->kept);
    if (predictor->running) execution_close(&predictor->execution);
    local_program_free(&predictor->program);
    stage_free(&predictor->code);
    training_model_free(&predictor->model);
}
