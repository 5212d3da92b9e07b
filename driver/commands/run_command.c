/* skycc run: compiles (or interprets) the model on this machine and runs it on given inputs. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/text.h"
#include "driver/commands/commands.h"
#include "driver/compile/dealt_step.h"
#include "driver/compile/input_tensors.h"
#include "driver/compile/local_program.h"
#include "driver/compile/plan_codecs.h"
#include "driver/compile/training_model.h"
#include "driver/compile/weights.h"
#include "runtime/device/execute.h"
#include "runtime/program/parallel.h"
#include "runtime/program/step.h"
#include "runtime/storage/parameters.h"
#include "graph/analysis/parameter_values.h"

/* Whether the model has inputs; true also if it cannot be read, which the import explains later. */
static bool takes_inputs(const char *path)
{
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    OnnxModel model;
    bool opened = strcmp(path, "-") != 0 && onnx_model_open(&model, path, true, &unread);
    bool takes = !opened || model.proto->graph->n_input > 0;
    if (opened) onnx_model_close(&model);
    return takes;
}

typedef struct Run {
    const Options *options;
    TrainingModel model;
    InputTensors inputs;
    StageCode code;
    LocalProgram program;
    Execution execution;
    bool open;
    DealtStep dealt;    /* of a plan with replicas */
    int64_t microbatch; /* that inputs are filled for */
    char **outputs;     /* of all micro-batches that were dealt */
    double *losses;     /* per step, and after the last */
    SafeTensorsWriter *writer;
    Arena arena;
} Run;

/* Whether a plan given with --plan has codecs, and how it deals micro-batches. */
static bool read_choices(Run *run, bool *coded, Diagnostics *diagnostics)
{
    const char *path = run->options->plans[0];
    FREED_WITH(plan_free) Plan plan = {0};
    if (!path) return true;
    if (!plan_read(&plan, path, diagnostics)) return false;
    *coded = plan.codecs & ~CODECS_LOSSLESS;
    dealt_step_open(&run->dealt, &plan);
    return true;
}

/* --plan */
static bool code_links(Run *run, Diagnostics *diagnostics)
{
    const char *path = run->options->plans[0];
    FREED_WITH(plan_free) Plan plan = {0};
    if (!path) return true;
    if (!plan_read(&plan, path, diagnostics)) return false;
    return plan_codecs_apply(&run->model, &plan, path, diagnostics);
}

/* The part of an input that a micro-batch has: all of it, unless a step's are dealt. */
static Shape microbatch_shape(const Run *run, const InputTensor *tensor)
{
    Shape shape = tensor->shape;
    if (run->dealt.microbatches && shape.rank) shape.dim[0] /= run->dealt.microbatches;
    return shape;
}

static bool check_rows(const Run *run, const InputTensor *tensor, Diagnostics *diagnostics)
{
    int count = run->dealt.microbatches;
    if (!count || !tensor->shape.rank || tensor->shape.dim[0] % count == 0) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = tensor->file, .object = tensor->name},
                             "give the rows of a whole step",
                             "has %lld rows, which the plan cannot deal in %d micro-batches",
                             (long long)tensor->shape.dim[0], count);
}

static bool load(Run *run, Diagnostics *diagnostics)
{
    const Options *options = run->options;
    if (!options->inputs.count && takes_inputs(options->model))
        return usage_error(diagnostics, "skycc run --help lists the options",
                           "give the model's inputs with --inputs FILE...");
    for (size_t i = 0; i < options->inputs.count; i++)
        if (!input_tensors_add(&run->inputs, options->inputs.items[i], diagnostics)) return false;
    ModelOptions load = options->load;
    load.seed = options->seed;
    load.want_loss = load.loss;
    load.differentiate = options->gradients;
    load.train = options->steps >= 0;
    if (load.logits == LOGITS_AUTO) load.logits = LOGITS_WHOLE; /* outputs are written */
    if (!read_choices(run, &load.coded_cuts, diagnostics)) return false;
    InputShape *shapes = arena_new_array(&run->arena, InputShape, run->inputs.count);
    for (size_t i = 0; i < run->inputs.count; i++) {
        const InputTensor *tensor = &run->inputs.tensors[i];
        if (!check_rows(run, tensor, diagnostics)) return false;
        shapes[i] = (InputShape){tensor->name, microbatch_shape(run, tensor), tensor->dtype, tensor->data};
    }
    load.import.input_shapes = shapes;
    load.import.input_shape_count = run->inputs.count;
    return training_model_load(&run->model, options->model, &load, diagnostics) && code_links(run, diagnostics);
}

static bool compile(Run *run, Diagnostics *diagnostics)
{
    local_program_build(&run->program, &run->code, &run->model);
    if (run->options->init.drawn) weights_draw(&run->code, &run->model.graph, run->options->init.deviation);
    run->program.program.seed = run->options->seed;
    if (run->dealt.microbatches) run->program.program.microbatch_count = (uint32_t)run->dealt.microbatches;
    if (!run->options->interpret && !local_program_compile(&run->program, run->options->target_cpu, diagnostics))
        return false;
    int threads = run->options->threads ? run->options->threads : parallel_threads(0);
    run->open = execution_open(&run->execution, &run->program.program, threads, local_program_interpret, diagnostics);
    return run->open;
}

static bool fill_input(Run *run, const SkyTensor *input, size_t position, Diagnostics *diagnostics)
{
    const InputTensor *given = input_tensors_find(&run->inputs, input->name, position);
    char object[512];
    snprintf(object, sizeof object, "input '%.400s'", input->name);
    if (!given)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = run->options->model, .object = object},
                                 "give a file that holds it with --inputs", "no file holds a tensor for it");
    Shape shape = {.rank = (int)input->rank};
    memcpy(shape.dim, input->dim, sizeof shape.dim);
    char wanted[256], found[256];
    const Shape found_shape = microbatch_shape(run, given);
    if (!shape_equal_but_column(&shape, &found_shape))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                 "has shape %s, but the model takes %s", shape_format(&found_shape, found),
                                 shape_format(&shape, wanted));
    bool is_bits =
        input->dtype == DTYPE_BF16 && given->dtype == DTYPE_U16; /* old test data of ONNX store bf16 this way */
    bool widens = dtype_is_integer(given->dtype) && labels_of_input(&run->program.program, input->name, NULL);
    if (!is_bits && dtype_is_float((DType)input->dtype) != dtype_is_float(given->dtype) && !widens)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                 "has element type %s, but the model takes %s", dtype_name(given->dtype),
                                 dtype_name((DType)input->dtype));
    DType dtype = is_bits ? DTYPE_BF16 : given->dtype;
    void *destination = execution_address(&run->execution, 0, 0, input->location);
    for (int64_t i = 0, n = shape_elements(&shape), first = run->microbatch * n; i < n; i++) {
        if (dtype_is_float(dtype) || dtype_is_float((DType)input->dtype)) {
            element_store_double((DType)input->dtype, destination, i, element_as_double(dtype, given->data, first + i));
            continue;
        }
        int64_t value = element_as_integer(dtype, given->data, first + i), limit = input->value_limit;
        if (limit && (value < -limit || value >= limit)) /* negative ones count from the end */
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                     "element %lld is %lld, but the table it indexes has %lld rows", (long long)i,
                                     (long long)value, (long long)limit);
        element_store_integer((DType)input->dtype, destination, i, value);
    }
    return true;
}

static bool check_labels(Run *run, uint32_t number, Diagnostics *diagnostics)
{
    const SkyProgram *program = &run->program.program;
    const SkyLabels *allowed = &program->labels[number];
    const SkyTensor *labels = program_labels(program, number);
    if (!labels) return true;
    const void *data = execution_address(&run->execution, 0, 0, labels->location);
    for (uint64_t i = 0, n = labels->bytes / dtype_size((DType)labels->dtype); i < n; i++) {
        if (label_is_valid(allowed, (DType)labels->dtype, data, (int64_t)i)) continue;
        const LabelText text = label_describe(allowed, (DType)labels->dtype, data, (int64_t)i);
        return input_error(diagnostics, run->options->inputs.items[0], NULL, "label %s of row %llu of '%s' is not %s",
                           text.value, (unsigned long long)i, allowed->name, text.range);
    }
    return true;
}

static bool fill_inputs(Run *run, Diagnostics *diagnostics)
{
    const Graph *graph = &run->model.graph;
    const SkyStage *stage = &run->code.stage;
    bool ok = true;
    for (size_t g = 0; g < graph->input_count; g++)
        for (uint32_t i = 0; i < stage->input_count; i++)
            if (strcmp(stage->inputs[i].name, graph_value(graph, graph->inputs[g])->name) == 0)
                ok &= fill_input(run, &stage->inputs[i], g, diagnostics);
    for (uint32_t l = 0; ok && l < run->program.program.label_count; l++) ok = check_labels(run, l, diagnostics);
    return ok;
}

static bool fill_parameters(Run *run, Diagnostics *diagnostics)
{
    const SkyStage *stage = &run->code.stage;
    bool drawn = run->options->init.drawn;
    if (drawn && !parameters_initialize(&run->execution, ".", diagnostics)) return false;
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const Value *value = graph_value(&run->model.graph, run->code.parameter_values[i]);
        if (parameter_has_values(value) && (!drawn || is_low_rank(&run->model, run->code.parameter_values[i])))
            parameter_copy_values(value, execution_address(&run->execution, 0, 0, stage->parameters[i].value.location));
    }
    return true;
}

/* What the rows of the whole step have. */
static bool count_labels(Run *run, LabelCount labels[SKY_MOST_LABELS], Diagnostics *diagnostics)
{
    program_count_labels(&run->program.program, &run->execution, labels);
    for (run->microbatch = 1; run->microbatch < run->dealt.microbatches; run->microbatch++) {
        LabelCount more[SKY_MOST_LABELS];
        if (!fill_inputs(run, diagnostics)) return false;
        program_count_labels(&run->program.program, &run->execution, more);
        for (uint32_t l = 0; l < run->program.program.label_count; l++) {
            labels[l].count += more[l].count;
            labels[l].weight += more[l].weight;
        }
    }
    run->microbatch = 0;
    return true;
}

/* Needs the first micro-batch's inputs. */
static bool set_step(Run *run, int step, Diagnostics *diagnostics)
{
    const SkyProgram *program = &run->program.program;
    const SkyOptimizer *optimizer = &program->optimizer;
    LabelCount labels[SKY_MOST_LABELS];
    if (!count_labels(run, labels, diagnostics)) return false;
    step_scalars(run->execution.step, optimizer, optimizer->learning_rate, optimizer->weight_decay, step);
    step_scalars_losses(run->execution.step, program, labels,
                        (int64_t)program->microbatch_size * program->microbatch_count);
    step_scalars_rows(run->execution.step, 0, program->microbatch_size);
    if (run->options->gradients || run->options->steps >= 0)
        step_scalars_drop(run->execution.step, (uint64_t)run->options->seed, step);
    return true;
}

static double slot_loss(const Run *run)
{
    const SkyStage *stage = &run->code.stage;
    if (!stage->has_loss) return 0;
    const Value *loss = graph_value(&run->model.graph, run->model.graph.loss);
    return element_as_double(loss->dtype, execution_address(&run->execution, 0, 0, stage->loss), 0);
}

static double loss_value(const Run *run)
{
    double loss = run->dealt.microbatches ? 0 : slot_loss(run);
    for (int m = 0; m < run->dealt.microbatches; m++) loss += run->dealt.losses[m];
    return loss;
}

/* ---- Replicas in one process ---- */

static bool begin_microbatch(void *context, uint32_t number, Diagnostics *diagnostics)
{
    Run *run = context;
    int64_t rows = run->program.program.microbatch_size;
    run->microbatch = number;
    step_scalars_rows(run->execution.step, number * rows, rows);
    return fill_inputs(run, diagnostics);
}

/* Outputs are those of the first step. */
static void take_microbatch(void *context, uint32_t number)
{
    Run *run = context;
    const SkyStage *stage = &run->code.stage;
    run->dealt.losses[number] = slot_loss(run);
    for (uint32_t i = 0; i < stage->output_count && !run->writer; i++)
        memcpy(run->outputs[i] + number * stage->outputs[i].bytes,
               execution_address(&run->execution, 0, 0, stage->outputs[i].location), stage->outputs[i].bytes);
}

static bool run_dealt(Run *run, bool backward, Diagnostics *diagnostics)
{
    const SkyStage *stage = &run->code.stage;
    const DealtCalls calls = {begin_microbatch, take_microbatch, run};
    if (!run->outputs) {
        run->outputs = arena_new_array(&run->arena, char *, stage->output_count);
        for (uint32_t i = 0; i < stage->output_count; i++)
            run->outputs[i] =
                arena_new_array(&run->arena, char, stage->outputs[i].bytes *(size_t)run->dealt.microbatches);
    }
    bool ok = dealt_step_run(&run->dealt, &run->execution, backward, &calls, diagnostics);
    run->microbatch = 0;
    return ok && fill_inputs(run, diagnostics);
}

/* Writes a parameter under its own name and under those of initializers tied to it. */
static void write_parameter(Run *run, const char *prefix, ValueId id, const void *data)
{
    const Value *value = graph_value(&run->model.graph, id);
    const ImportedModel *imported = &run->model.imported;
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const ImportedParameter *name = &imported->parameters[i];
        if (name->value != id || dtype_in_blocks(value->dtype)) continue; /* stored in blocks: frozen */
        Shape shape = value->shape;
        size_t size = dtype_size(value->dtype), bytes = (size_t)shape_elements(&shape) * size;
        char *copy = arena_copy(&run->arena, data, bytes);
        if (name->transposed) {
            int64_t rows = shape.dim[0], columns = shape.dim[1];
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++)
                    memcpy(copy + (size_t)(c * rows + r) * size, (const char *)data + (size_t)(r * columns + c) * size,
                           size);
            shape.dim[0] = columns, shape.dim[1] = rows;
        }
        if (name->copies) {
            shape = name->copies->shape;
            copy = arena_allocate_array(&run->arena, (size_t)shape_elements(&shape), size);
            parameter_copies_expand(name->copies, size, data, copy);
        }
        safetensors_writer_add(run->writer, arena_format(&run->arena, "%s/%s", prefix, name->name), value->dtype,
                               &shape, copy);
    }
}

static void write_outputs(Run *run)
{
    const SkyStage *stage = &run->code.stage;
    for (uint32_t i = 0; i < stage->output_count; i++) {
        const SkyTensor *output = &stage->outputs[i];
        Shape shape = {.rank = (int)output->rank};
        memcpy(shape.dim, output->dim, sizeof shape.dim);
        const void *data = execution_address(&run->execution, 0, 0, output->location);
        size_t parts = run->dealt.microbatches && shape.rank ? (size_t)run->dealt.microbatches : 1;
        if (parts > 1) shape.dim[0] *= run->dealt.microbatches, data = run->outputs[i];
        safetensors_writer_add(run->writer, arena_format(&run->arena, "out/%s", output->name), (DType)output->dtype,
                               &shape, arena_copy(&run->arena, data, output->bytes * parts));
    }
    if (stage->has_loss) {
        float *loss = arena_new(&run->arena, float);
        *loss = (float)loss_value(run);
        safetensors_writer_add(run->writer, "loss", DTYPE_F32, &(Shape){0}, loss);
    }
}

static void write_gradients(Run *run)
{
    const SkyStage *stage = &run->code.stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++)
        if (graph_gradient(&run->model.graph, run->code.parameter_values[i]))
            write_parameter(run, "grad", run->code.parameter_values[i],
                            execution_address(&run->execution, 0, 0, stage->parameters[i].gradient));
}

/* Lists frozen parameters, one per line: skycc export takes their values from the model. */
static void note_frozen(Run *run)
{
    FREED_WITH(buffer_free) Buffer names = {0};
    for (size_t i = 0; i < run->model.imported.parameter_count; i++)
        if (run->model.imported.parameters[i].frozen)
            buffer_print(&names, "%s%s", names.size ? "\n" : "", run->model.imported.parameters[i].name);
    if (names.size) safetensors_writer_metadata(run->writer, "frozen", arena_string(&run->arena, buffer_text(&names)));
}

/* The forward pass of a step, whose inputs are filled. Dealt micro-batches run backward at once
 * if that is asked for. */
static bool forward(Run *run, int step, bool and_backward, Diagnostics *diagnostics)
{
    if (!set_step(run, step, diagnostics)) return false;
    if (!run->dealt.microbatches) return execution_run(&run->execution, 0, SKY_LIST_FORWARD, 0, diagnostics);
    return fill_inputs(run, diagnostics) && run_dealt(run, and_backward, diagnostics);
}

static bool backward(Run *run, Diagnostics *diagnostics)
{
    if (run->dealt.microbatches) return true;
    if (!execution_run(&run->execution, 0, SKY_LIST_BACKWARD, 0, diagnostics)) return false;
    execution_sum_uses(&run->execution, 0);
    return true;
}

static bool train(Run *run, Diagnostics *diagnostics)
{
    int steps = run->options->steps;
    run->losses = arena_new_array(&run->arena, double, (size_t)steps + 1);
    for (int step = 0; step < steps; step++) {
        run->losses[step] = loss_value(run);
        if (step > 0 && !backward(run, diagnostics)) return false;
        if (!execution_run(&run->execution, 0, SKY_LIST_UPDATE, 0, diagnostics)) return false;
        if (!forward(run, step + 1, step + 1 < steps, diagnostics)) return false;
        if (run->options->verbose) text_print(stderr, "step %d loss %.9g\n", step, run->losses[step]);
    }
    run->losses[steps] = loss_value(run);
    safetensors_writer_add(run->writer, "train/loss", DTYPE_F64, &(Shape){1, {steps + 1}}, run->losses);
    const SkyStage *stage = &run->code.stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++)
        write_parameter(run, "param", run->code.parameter_values[i],
                        execution_address(&run->execution, 0, 0, stage->parameters[i].value.location));
    return true;
}

static bool execute(Run *run, Diagnostics *diagnostics)
{
    if (!fill_parameters(run, diagnostics) || !fill_inputs(run, diagnostics)) return false;
    bool differentiates = run->options->gradients || run->options->steps >= 0;
    if (!forward(run, 0, differentiates, diagnostics)) return false;
    run->writer = safetensors_writer();
    if (!run->options->init.drawn) note_frozen(run); /* drawn values differ from the model's */
    if (run->model.low_rank_text) safetensors_writer_metadata(run->writer, "lora", run->model.low_rank_text);
    write_outputs(run);
    if (differentiates && !backward(run, diagnostics)) return false;
    if (run->options->gradients) write_gradients(run);
    if (run->options->steps >= 0 && !train(run, diagnostics)) return false;
    SafeTensorsWriter *writer = run->writer;
    run->writer = NULL;
    return safetensors_write(writer, run->options->output, diagnostics);
}

static void run_free(Run *run)
{
    if (run->open) execution_close(&run->execution);
    local_program_free(&run->program);
    stage_free(&run->code);
    training_model_free(&run->model);
    input_tensors_free(&run->inputs);
    dealt_step_close(&run->dealt);
    arena_free(&run->arena);
}

bool run_command(const Options *options, Diagnostics *diagnostics)
{
    FREED_WITH(run_free) Run run = {.options = options};
    return load(&run, diagnostics) && compile(&run, diagnostics) && execute(&run, diagnostics);
}
