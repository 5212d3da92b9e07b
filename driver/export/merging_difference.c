#include "driver/export/merging_difference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/compile/local_program.h"
#include "graph/analysis/parameter_values.h"
#include "runtime/program/parallel.h"

enum { TOKENS = 32 };

typedef struct Comparison {
    MergedWeights *merged;
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool open;
    DType form;            /* of the rounded weights; DTYPE_NONE: none was rounded */
    double most, sum;      /* differences of outputs */
    double largest, count; /* of outputs */
} Comparison;

/* Whether the parameter was frozen in another form than the model's own, which is `stored` then. */
static bool find_rounded(const Comparison *comparison, const Value *value, Value *stored)
{
    TrainedTensor tensor;
    const MergedWeights *merged = comparison->merged;
    return value->data && merged->find(merged->context, value->name, &tensor) && !tensor.data && tensor.check &&
           parameter_form(value, tensor.check, stored) && stored->dtype != value->dtype;
}

/* Adds what rounding did to the parameter: branches are added to rounded weights in training. */
static void add_rounding(const Value *value, const Value *stored, const SkyTensor *tensor, void *data)
{
    FREED float *rounded = parameter_as_stored(value, stored);
    for (int64_t i = 0, n = shape_elements(&value->shape); i < n; i++) {
        double change = (double)rounded[i] - element_as_double(value->dtype, value->data, i);
        element_store_double((DType)tensor->dtype, data, i, element_as_double((DType)tensor->dtype, data, i) + change);
    }
}

/* The merged weights; `as_trained`: those that they were in training. */
static void fill(Comparison *comparison, bool as_trained)
{
    const SkyStage *stage = &comparison->code.stage;
    const Graph *graph = &comparison->model.graph;
    for (uint32_t p = 0; p < stage->parameter_count; p++) {
        const SkyTensor *tensor = &stage->parameters[p].value;
        const Value *value = graph_value(graph, shared_parameter(graph, comparison->code.parameter_values[p]));
        void *data = execution_address(&comparison->execution, 0, 0, tensor->location);
        Value stored;
        TrainedTensor trained = {0};
        if (!merged_weights_find(comparison->merged, value->name, &trained) || !trained.data)
            trained = (TrainedTensor){.dtype = value->dtype, .data = value->data};
        for (int64_t i = 0, n = shape_elements(&value->shape); i < n && trained.data; i++)
            element_store_double((DType)tensor->dtype, data, i, element_as_double(trained.dtype, trained.data, i));
        if (!as_trained || !find_rounded(comparison, value, &stored)) continue;
        add_rounding(value, &stored, tensor, data);
        if (!comparison->form || dtype_in_blocks(stored.dtype)) comparison->form = stored.dtype;
    }
}

static const void *output_data(const Comparison *comparison, uint32_t number)
{
    return execution_address(&comparison->execution, 0, 0, comparison->code.stage.outputs[number].location);
}

static void compare(Comparison *comparison, const SkyTensor *output, const char *merged, const void *trained)
{
    DType dtype = (DType)output->dtype;
    for (int64_t i = 0, n = (int64_t)(output->bytes / dtype_size(dtype)); dtype_is_float(dtype) && i < n; i++) {
        double value = element_as_double(dtype, trained, i);
        double difference = fabs(element_as_double(dtype, merged, i) - value);
        comparison->sum += difference;
        comparison->count++;
        comparison->most = fmax(comparison->most, difference);
        comparison->largest = fmax(comparison->largest, fabs(value));
    }
}

static bool run(Comparison *comparison, Diagnostics *diagnostics)
{
    const SkyStage *stage = &comparison->code.stage;
    FREED_WITH(arena_free) Arena arena = {0};
    char **kept = arena_new_array(&arena, char *, stage->output_count);
    fill(comparison, false);
    program_make_up_inputs(&comparison->execution);
    bool ok = execution_run(&comparison->execution, 0, SKY_LIST_FORWARD, 0, diagnostics);
    for (uint32_t i = 0; i < stage->output_count; i++)
        kept[i] = arena_copy(&arena, output_data(comparison, i), stage->outputs[i].bytes);
    fill(comparison, true);
    ok = ok && execution_run(&comparison->execution, 0, SKY_LIST_FORWARD, 0, diagnostics);
    for (uint32_t i = 0; ok && i < stage->output_count; i++)
        compare(comparison, &stage->outputs[i], kept[i], output_data(comparison, i));
    return ok;
}

/* A machine that may swap is no place for a model of this size. */
static bool check_memory(const Comparison *comparison, const char *path, int threads, Diagnostics *diagnostics)
{
    double needed = (double)stage_bytes(&comparison->code.stage, 1, (uint32_t)threads);
    double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    return needed < there / 2 ||
           input_error(diagnostics, path, NULL, "needs %.1f GiB of memory, and this machine has %.1f", needed / 0x1p30,
                       there / 0x1p30);
}

static bool measure(Comparison *comparison, const char *path, Diagnostics *diagnostics)
{
    const ModelOptions options = {.import = {.unbound_rows = 1, .default_dimension = TOKENS}};
    int threads = parallel_threads(0);
    if (!training_model_load(&comparison->model, path, &options, diagnostics)) return false;
    local_program_build(&comparison->program, &comparison->code, &comparison->model);
    if (!check_memory(comparison, path, threads, diagnostics) ||
        !local_program_compile(&comparison->program, NULL, diagnostics))
        return false;
    comparison->open = execution_open(&comparison->execution, &comparison->program.program, threads, NULL, diagnostics);
    return comparison->open && run(comparison, diagnostics);
}

static bool was_rounded(const Comparison *comparison)
{
    const Graph *graph = &comparison->merged->graph;
    Value stored;
    for (size_t i = 0; i < comparison->merged->count; i++)
        if (find_rounded(comparison, graph_value(graph, comparison->merged->branches[i].branch.weight), &stored))
            return true;
    return false;
}

void merging_difference_print(MergedWeights *merged, const char *path, FILE *stream)
{
    Comparison comparison = {.merged = merged};
    FREED_WITH(diagnostics_free) Diagnostics found = {0};
    if (!was_rounded(&comparison)) return;
    if (!measure(&comparison, path, &found)) {
        const Diagnostic *error = found.first;
        while (error && !error->is_error) error = error->next;
        fprintf(stream,
                "The branches were trained with rounded weights and are merged into the original ones. The difference "
                "in logits was not measured: the model %s.\n",
                error ? error->message : "cannot be run");
    } else if (comparison.form) {
        fprintf(stream,
                "The branches were trained with %s weights and are merged into the original ones. Logits of %d made-up "
                "tokens differ by at most %.3g, on average by %.3g (largest logit: %.4g).\n",
                dtype_name(comparison.form), TOKENS, comparison.most, comparison.sum / fmax(comparison.count, 1),
                comparison.largest);
    }
    if (comparison.open) execution_close(&comparison.execution);
    local_program_free(&comparison.program);
    stage_free(&comparison.code);
    training_model_free(&comparison.model);
}
