/* skycc run: compiles the model for this machine (or interprets it) and runs it on given inputs. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/stage.h"
#include "driver/commands.h"
#include "driver/options.h"
#include "driver/program.h"
#include "driver/tensors.h"
#include "driver/training_model.h"
#include "driver/weights.h"
#include "runtime/execute.h"
#include "runtime/parallel.h"
#include "runtime/parameters.h"
#include "runtime/step.h"

static const char usage[] =
    "usage: skycc run MODEL.onnx --inputs FILE... -o OUT.safetensors [options]\n"
    "\n"
    "Compiles the model for this machine, runs it and writes out/NAME for every output of the graph.\n"
    "\n"
    "  --inputs FILE...      safetensors with the graph's inputs by name (a leading in/ is dropped), .npy, .npz,\n"
    "                        or ONNX .pb tensors in the order of the inputs; their shapes bind symbolic dimensions;\n"
    "                        needed unless the model has no inputs\n"
    "  -o, --output FILE     where the results go\n"
    "  --loss SPEC           write the loss: cross-entropy[:OUTPUT[:LABELS]] or output:NAME, joined by +\n"
    "  --grad                write grad/PARAMETER for every parameter\n"
    "  --train N             do N steps on this one batch; write train/loss (N + 1 values) and param/PARAMETER\n"
    "  --optimizer SPEC      sgd, momentum, adam, adamw or lamb, with :key=value,... (default adamw)\n"
    "  --dim NAME=VALUE      bind a symbolic dimension\n"
    "  --dropout P|off       drop elements with probability P (with --grad and --train), where BERT does, or never\n"
    "  --precision f32|bf16  bf16: round the factors of matrix products, add up in f32; all else is f32 (default)\n"
    "  --no-prune            compute every token of the last block, also where only one is read\n"
    "  --interpret           run by the interpreter instead of compiling\n"
    "  --init normal:STD     draw the weights instead of taking the model's; --init none: the model's\n"
    "  --seed N              of the drawn weights and of dropout (default 0)\n"
    "  --threads N           threads to use (default: all processors)\n"
    "  --target-cpu NAME     generate code for this CPU (default: native)\n"
    "  --keep-ties, --untie  how initializers that share bytes are trained\n"
    "  -v, --verbose         say what is done and how long it takes\n"
    "  -h, --help            this text\n";

typedef struct RunOptions {
    const char *model, *output, *target_cpu;
    const char **inputs;
    size_t input_count, input_capacity;
    ModelOptions load;
    DimensionBindings dimensions;
    bool gradients, interpret, verbose;
    int steps; /* -1: no training */
    int threads;
    WeightInit init;
    int64_t seed;
} RunOptions;

enum {
    OPTION_INPUTS = 256,
    OPTION_LOSS,
    OPTION_GRAD,
    OPTION_TRAIN,
    OPTION_OPTIMIZER,
    OPTION_DIM,
    OPTION_DROPOUT,
    OPTION_INTERPRET,
    OPTION_THREADS,
    OPTION_TARGET_CPU,
    OPTION_KEEP_TIES,
    OPTION_UNTIE,
    OPTION_NO_PRUNE,
    OPTION_PRECISION,
    OPTION_INIT,
    OPTION_SEED
};

static const struct option long_options[] = {
    {"inputs", required_argument, NULL, OPTION_INPUTS},
    {"output", required_argument, NULL, 'o'},
    {"loss", required_argument, NULL, OPTION_LOSS},
    {"grad", no_argument, NULL, OPTION_GRAD},
    {"train", required_argument, NULL, OPTION_TRAIN},
    {"optimizer", required_argument, NULL, OPTION_OPTIMIZER},
    {"dim", required_argument, NULL, OPTION_DIM},
    {"dropout", required_argument, NULL, OPTION_DROPOUT},
    {"interpret", no_argument, NULL, OPTION_INTERPRET},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"target-cpu", required_argument, NULL, OPTION_TARGET_CPU},
    {"keep-ties", no_argument, NULL, OPTION_KEEP_TIES},
    {"untie", no_argument, NULL, OPTION_UNTIE},
    {"no-prune", no_argument, NULL, OPTION_NO_PRUNE},
    {"init", required_argument, NULL, OPTION_INIT},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"precision", required_argument, NULL, OPTION_PRECISION},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

static bool add_input(RunOptions *options, const char *path)
{
    array_push(options->inputs, options->input_count, options->input_capacity, path);
    return true;
}

static bool parse_option(RunOptions *options, int option, char *argument, Diagnostics *diagnostics)
{
    int64_t number;
    switch (option) {
    case OPTION_INPUTS: return add_input(options, argument);
    case 'o': options->output = argument; return true;
    case OPTION_LOSS:
        options->load.loss = argument;
        options->load.want_loss = true;
        return true;
    case OPTION_GRAD: return options->gradients = options->load.differentiate = true;
    case OPTION_TRAIN:
        if (!option_integer("--train", argument, 0, 1000000, &number, diagnostics)) return false;
        options->steps = (int)number;
        return options->load.train = true;
    case OPTION_OPTIMIZER: options->load.optimizer = argument; return true;
    case OPTION_DIM: return option_dimension(&options->dimensions, argument, diagnostics);
    case OPTION_DROPOUT: return option_dropout(&options->load.import, argument, diagnostics);
    case OPTION_INTERPRET: return options->interpret = true;
    case OPTION_THREADS:
        if (!option_integer("--threads", argument, 1, 4096, &number, diagnostics)) return false;
        options->threads = (int)number;
        return true;
    case OPTION_TARGET_CPU: options->target_cpu = argument; return true;
    case OPTION_KEEP_TIES: return options->load.import.keep_ties = true;
    case OPTION_PRECISION: return option_precision(&options->load.bf16, argument, diagnostics);
    case OPTION_NO_PRUNE: return options->load.no_pruning = true;
    case OPTION_UNTIE: return options->load.import.untie = true;
    case OPTION_INIT:
        if (!weights_parse_init(&options->init, argument, diagnostics)) return false;
        options->load.import.no_weights = options->init.drawn;
        return true;
    case OPTION_SEED: return option_integer("--seed", argument, 0, INT64_MAX, &options->seed, diagnostics);
    case 'v': return options->verbose = true;
    default: return false;
    }
}

/* Whether the model has inputs; true also if it cannot be told, which its import will explain. */
static bool takes_inputs(const char *path)
{
    Diagnostics unread = {0};
    OnnxModel model;
    bool opened = strcmp(path, "-") != 0 && onnx_model_open(&model, path, true, &unread);
    bool takes = !opened || model.proto->graph->n_input > 0;
    if (opened) onnx_model_close(&model);
    diagnostics_free(&unread);
    return takes;
}

/* Whatever is not an option is the model, then further input files. */
static int parse(RunOptions *options, int argc, char **argv, Diagnostics *diagnostics)
{
    *options = (RunOptions){.steps = -1};
    optind = 1;
    for (int option; (option = getopt_long(argc, argv, "-o:vh", long_options, NULL)) != -1;) {
        if (option == 'h') return fputs(usage, stdout), EXIT_OK;
        if (option == '?') return option_refused("run");
        if (option == 1) {
            if (!options->model)
                options->model = optarg;
            else
                add_input(options, optarg);
        } else if (!parse_option(options, option, optarg, diagnostics)) {
            return EXIT_USAGE;
        }
    }
    for (; optind < argc; optind++) add_input(options, argv[optind]);
    if (options->model && options->output && (options->input_count || !takes_inputs(options->model))) return -1;
    diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "skycc run --help lists the options", "%s",
                      !options->model    ? "no model is named"
                      : !options->output ? "no output file is named (-o OUT.safetensors)"
                                         : "no inputs are named (--inputs FILE...)");
    return EXIT_USAGE;
}

typedef struct Run {
    const RunOptions *options;
    TrainingModel model;
    InputTensors inputs;
    StageCode code;
    Program program;
    Execution execution;
    bool open;
    double *losses; /* per step, and after the last */
    SafeTensorsWriter *writer;
    Arena arena;
} Run;

static bool load(Run *run, Diagnostics *diagnostics)
{
    const RunOptions *options = run->options;
    for (size_t i = 0; i < options->input_count; i++)
        if (!input_tensors_add(&run->inputs, options->inputs[i], diagnostics)) return false;
    ModelOptions load = options->load;
    load.import.dimensions = options->dimensions.items;
    load.import.dimension_count = options->dimensions.count;
    InputShape *shapes = arena_new_array(&run->arena, InputShape, run->inputs.count);
    for (size_t i = 0; i < run->inputs.count; i++) {
        const InputTensor *tensor = &run->inputs.tensors[i];
        shapes[i] = (InputShape){tensor->name, tensor->shape, tensor->dtype, tensor->data};
    }
    load.import.input_shapes = shapes;
    load.import.input_shape_count = run->inputs.count;
    return training_model_load(&run->model, options->model, &load, diagnostics);
}

static bool compile(Run *run, Diagnostics *diagnostics)
{
    Graph *graph = &run->model.graph;
    stage_build(&run->code, graph, 0, graph->layer_count - 1);
    run->code.stage.slot_count = 1;
    if (run->options->init.drawn) weights_draw(&run->code, graph, run->options->init.deviation);
    program_for_run(&run->program, &run->model, &run->code);
    run->program.program.seed = (uint64_t)run->options->seed;
    if (!run->options->interpret && !program_compile(&run->program, run->options->target_cpu, diagnostics))
        return false;
    int threads = run->options->threads ? run->options->threads : parallel_threads(0);
    run->open = execution_open(&run->execution, &run->program.program, threads, program_interpret, diagnostics);
    return run->open;
}

static bool fill_input(Run *run, const SkyTensor *input, size_t position, Diagnostics *diagnostics)
{
    const InputTensor *given = input_tensors_find(&run->inputs, input->name, position);
    char object[512];
    snprintf(object, sizeof object, "input '%.400s'", input->name);
    if (!given)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = run->options->model, .object = object},
                                 "name a file that holds it with --inputs", "no tensor is given for it");
    Shape shape = {.rank = (int)input->rank};
    memcpy(shape.dim, input->dim, sizeof shape.dim);
    char wanted[256], found[256];
    if (!shape_equal(&shape, &given->shape))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                 "has shape %s, but the model takes %s", shape_format(&given->shape, found),
                                 shape_format(&shape, wanted));
    bool is_bits = input->dtype == DTYPE_BF16 && given->dtype == DTYPE_U16; /* as ONNX's own old test data have it */
    if (!is_bits && dtype_is_float((DType)input->dtype) != dtype_is_float(given->dtype))
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                 "has element type %s, but the model takes %s", dtype_name(given->dtype),
                                 dtype_name((DType)input->dtype));
    DType dtype = is_bits ? DTYPE_BF16 : given->dtype;
    void *destination = execution_address(&run->execution, 0, 0, input->location);
    for (int64_t i = 0, n = shape_elements(&shape); i < n; i++) {
        if (dtype_is_float(dtype)) {
            element_store_double((DType)input->dtype, destination, i, element_as_double(dtype, given->data, i));
            continue;
        }
        int64_t value = element_as_integer(dtype, given->data, i), limit = input->value_limit;
        if (limit && (value < -limit || value >= limit)) /* negative ones count from the end */
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = given->file, .object = object}, NULL,
                                     "element %lld is %lld, outside the table of %lld rows that it indexes",
                                     (long long)i, (long long)value, (long long)limit);
        element_store_integer((DType)input->dtype, destination, i, value);
    }
    return true;
}

static bool check_labels(Run *run, uint32_t number, Diagnostics *diagnostics)
{
    const SkyProgram *program = &run->program.program;
    const SkyLabels *allowed = &program->labels[number];
    const SkyTensor *labels = program_labels(program, number);
    if (!labels || !allowed->classes) return true;
    const void *data = execution_address(&run->execution, 0, 0, labels->location);
    for (uint64_t i = 0, n = labels->bytes / dtype_size((DType)labels->dtype); i < n; i++) {
        int64_t label = element_as_integer((DType)labels->dtype, data, (int64_t)i);
        if (label != allowed->ignore_index && (label < 0 || label >= allowed->classes))
            return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(run->options->inputs[0]), NULL,
                                     "label %lld of row %llu of '%s' is not in 0 ... %lld", (long long)label,
                                     (unsigned long long)i, allowed->name, (long long)allowed->classes - 1);
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
    if (run->options->init.drawn) return parameters_initialize(&run->execution, ".", diagnostics);
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const Value *value = graph_value(&run->model.graph, run->code.parameter_values[i]);
        if (value->data)
            memcpy(execution_address(&run->execution, 0, 0, stage->parameters[i].value.location), value->data,
                   stage->parameters[i].value.bytes);
    }
    return true;
}

static void set_step(Run *run, int step)
{
    const SkyOptimizer *optimizer = &run->program.program.optimizer;
    int64_t valid[SKY_MOST_LABELS];
    program_valid_labels(&run->program.program, &run->execution, valid);
    step_scalars(run->execution.step, optimizer, optimizer->learning_rate, optimizer->weight_decay, step);
    step_scalars_losses(run->execution.step, &run->program.program, valid);
    if (run->options->gradients || run->options->steps >= 0)
        step_scalars_drop(run->execution.step, (uint64_t)run->options->seed, step);
}

static double loss_value(const Run *run)
{
    const SkyStage *stage = &run->code.stage;
    if (!stage->has_loss) return 0;
    const Value *loss = graph_value(&run->model.graph, run->model.graph.loss);
    return element_as_double(loss->dtype, execution_address(&run->execution, 0, 0, stage->loss), 0);
}

/* Names under which a parameter is written: one for itself and one for every initializer tied to it. */
static void write_parameter(Run *run, const char *prefix, ValueId id, const void *data)
{
    const Value *value = graph_value(&run->model.graph, id);
    const ImportedModel *imported = &run->model.imported;
    for (size_t i = 0; i < imported->parameter_count; i++) {
        const ImportedParameter *name = &imported->parameters[i];
        if (name->value != id) continue;
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
        safetensors_writer_add(run->writer, arena_format(&run->arena, "out/%s", output->name), (DType)output->dtype,
                               &shape, arena_copy(&run->arena, data, output->bytes));
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

static bool backward(Run *run, Diagnostics *diagnostics)
{
    if (!execution_backward(&run->execution, 0, 0, diagnostics)) return false;
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
        if (!execution_update(&run->execution, 0, diagnostics)) return false;
        set_step(run, step + 1);
        if (!execution_forward(&run->execution, 0, 0, diagnostics)) return false;
        if (run->options->verbose) fprintf(stderr, "step %d loss %.9g\n", step, run->losses[step]);
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
    set_step(run, 0);
    if (!execution_forward(&run->execution, 0, 0, diagnostics)) return false;
    run->writer = safetensors_writer();
    write_outputs(run);
    bool differentiates = run->options->gradients || run->options->steps >= 0;
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
    program_free(&run->program);
    stage_free(&run->code);
    training_model_free(&run->model);
    input_tensors_free(&run->inputs);
    arena_free(&run->arena);
}

int run_main(int argc, char **argv)
{
    Diagnostics diagnostics = {0};
    RunOptions options;
    int code = parse(&options, argc, argv, &diagnostics);
    if (code < 0) {
        Run run = {.options = &options};
        bool ok = load(&run, &diagnostics) && compile(&run, &diagnostics) && execute(&run, &diagnostics);
        code = ok ? EXIT_OK : diagnostics.exit_code;
        run_free(&run);
    }
    diagnostics_print(&diagnostics, stderr);
    diagnostics_free(&diagnostics);
    free(options.inputs);
    free(options.dimensions.items);
    return code;
}
