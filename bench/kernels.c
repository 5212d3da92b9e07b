/* Where the time of a training step goes, by kernel or by group of kernels that run block by block:
 *
 *   bench_kernels MODEL.onnx [NAME=VALUE ...]
 *
 *   batch=32 seq=128      bind symbolic dimensions
 *   --dropout=P           drops elements
 *   --precision=bf16      rounds factors of products
 *   --no-prune=1          also computes what nobody reads
 *   --steps=N             takes medians of N steps (10)
 *   --threads=N           threads (1)
 *   --data=FILE           packs the first rows of a data set over the dimension bound last
 *   --form=LINESxLENGTH   into packed sequences of this form
 *   --tokens=N            as if the micro-batch had rows in so many tokens
 *   --keep=1              as every micro-batch of a step but the first: weights are kept (codegen/stage/stage_kept.h)
 *   --waves=1             one row of the table is a wave of calls that do not wait for each other
 *
 * One row of the table is all calls that share a kernel, or groups that share all: milliseconds a step, share, calls,
 * GFLOP/s, and GB/s with every element counted once a kernel. The last line also has the median of whole steps. With
 * one thread CPU time counts, with more wall-clock time. While calls are timed, threads meet after every call or
 * group; in whole steps they meet after every wave. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "bench/peak.h"
#include "codegen/stage/stage_kept.h"
#include "driver/compile/local_program.h"
#include "driver/compile/packed_model.h"
#include "partitioner/planner/packing.h"
#include "runtime/storage/packed_batch.h"
#include "runtime/storage/row_lengths.h"

static int steps = 10, threads = 1, by_waves = 0, keeps_weights = 0;
static uint32_t tokens_wanted; /* of the micro-batch of a data set; 0: what the first batch has */

static uint32_t line_size(const SkyCall *call) { return by_waves ? sky_wave_size(call) : sky_group_size(call); }

typedef struct Timing {
    const SkyCall *call; /* or the first of a group */
    int calls;
    double seconds; /* a step: medians of the calls */
} Timing;

typedef struct Clock {
    double last;
    double *seconds; /* of the list that runs, `steps` per call */
    int step;
    uint32_t call;
} Clock;

static void tick(void *context, uint32_t calls)
{
    (void)calls;
    Clock *clock = context;
    clock->seconds[(size_t)clock->call++ * (size_t)steps + (size_t)clock->step] = bench_seconds(threads) - clock->last;
    clock->last = bench_seconds(threads);
}

static void start(Clock *clock, double *seconds)
{
    clock->call = 0;
    clock->seconds = seconds;
    clock->last = bench_seconds(threads);
}

static void fill_parameters(const Execution *execution, const SkyStage *stage, const StageCode *code,
                            const Graph *graph)
{
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const void *data = graph_value(graph, code->parameter_values[i])->data;
        void *to = execution_address(execution, 0, 0, stage->parameters[i].value.location);
        if (data) memcpy(to, data, stage->parameters[i].value.bytes);
    }
}

static bool same_kernels(const SkyCall *a, const SkyCall *b)
{
    if (line_size(a) != line_size(b)) return false;
    for (uint32_t i = 0; i < line_size(a); i++)
        if (a[i].interpreted != b[i].interpreted) return false;
    return true;
}

static void add_timings(Timing *timings, size_t *count, const SkyCall *calls, uint32_t call_count, double *seconds)
{
    for (uint32_t i = 0; i < call_count; i += line_size(&calls[i]), seconds += steps) {
        size_t t = 0;
        while (t < *count && !same_kernels(timings[t].call, &calls[i])) t++;
        if (t == *count) timings[(*count)++] = (Timing){.call = &calls[i]};
        timings[t].calls++;
        timings[t].seconds += median(seconds, (size_t)steps);
    }
}

static int compare_timings(const void *a, const void *b)
{
    double x = ((const Timing *)a)->seconds, y = ((const Timing *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_kernel(const Kernel *kernel, const char *before)
{
    printf("%s%s [", before, kernel->label);
    for (int axis = 0; axis < kernel->axis_count; axis++)
        printf("%s%lld", axis ? "," : "", (long long)kernel->extent[axis]);
    printf("]");
}

static void print_timings(Timing *timings, size_t count, double whole)
{
    double total = 0;
    for (size_t i = 0; i < count; i++) total += timings[i].seconds;
    qsort(timings, count, sizeof *timings, compare_timings);
    printf("%8s %6s %5s %8s %8s  kernel\n", "ms", "share", "calls", "GFLOP/s", "GB/s");
    for (size_t i = 0; i < count; i++) {
        const SkyCall *call = timings[i].call;
        double rate = 1e-9 * timings[i].calls / timings[i].seconds, flops = 0, bytes = 0;
        for (uint32_t k = 0; k < line_size(call); k++) {
            flops += kernel_flops(call[k].interpreted) * sky_call_runs(&call[k]);
            bytes += kernel_bytes(call[k].interpreted) * sky_call_runs(&call[k]);
        }
        printf("%8.3f %5.1f%% %5d %8.1f %8.1f  ", timings[i].seconds * 1e3, 100 * timings[i].seconds / total,
               timings[i].calls, flops * rate, bytes * rate);
        for (uint32_t k = 0; k < line_size(call); k++) {
            if (call[k].group_count) printf("%s%u blocks: ", k ? ", " : "", call[k].block_count);
            print_kernel(call[k].interpreted, k && !call[k].group_count ? ", " : "");
        }
        printf("\n");
    }
    printf("%8.3f ms a step; the median of whole steps %.3f\n", total * 1e3, whole * 1e3);
}

static bool run_step(Execution *execution, Clock *clock, double *seconds, Diagnostics *diagnostics)
{
    for (int list = 0; list < SKY_LIST_COUNT; list++) {
        start(clock, seconds);
        if (!execution_run(execution, 0, (SkyListKind)list, 0, diagnostics)) return false;
        seconds += (size_t)execution->program->stages[0].lists[list].count * (size_t)steps;
    }
    return true;
}

static bool measure(Execution *execution, const SkyStage *stage, Diagnostics *diagnostics)
{
    uint32_t total = sky_call_count(stage);
    FREED double *seconds = calloc((size_t)steps * (total + 1), sizeof *seconds);
    FREED double *whole = calloc((size_t)steps, sizeof *whole);
    FREED Timing *timings = calloc(total + 1, sizeof *timings);
    Clock clock = {0};
    bool ok = true;
    for (int step = 0; ok && step < steps; step++) {
        double began = bench_seconds(threads);
        execution->step[SKY_STEP_WEIGHTS_KEPT] = step > 0;
        ok = run_step(execution, &clock, seconds, diagnostics);
        whole[step] = bench_seconds(threads) - began;
    }
    if (!by_waves) execution_keep_apart(execution);
    execution->between = tick;
    execution->between_context = &clock;
    for (clock.step = 0; ok && clock.step < steps; clock.step++) ok = run_step(execution, &clock, seconds, diagnostics);
    size_t count = 0;
    double *of_list = seconds;
    for (int list = 0; list < SKY_LIST_COUNT; of_list += (size_t)stage->lists[list++].count * (size_t)steps)
        add_timings(timings, &count, stage->lists[list].calls, stage->lists[list].count, of_list);
    if (ok) print_timings(timings, count, median(whole, (size_t)steps));
    return ok;
}

/* Micro-batch 0 of the batch of the data set's first rows. */
static bool fill_packed(Execution *execution, const char *path, Diagnostics *diagnostics)
{
    SkyProgram whole = *execution->program, *program = &whole;
    whole.microbatch_count = packing_most_microbatches(&whole.packing);
    uint32_t rows = program->packing.rows;
    FREED_WITH(dataset_close) Dataset dataset = {0};
    FREED_WITH(row_lengths_free) RowLengths lengths = {0};
    if (!dataset_open(&dataset, path, program, NULL, diagnostics) ||
        !row_lengths_read(&lengths, &dataset.file, path, diagnostics))
        return false;
    FREED_WITH(packed_batch_close) PackedBatch batch = {0};
    packed_batch_open(&batch, program);
    FREED uint32_t *numbers = calloc(rows, sizeof *numbers);
    for (uint32_t i = 0; i < rows; i++) numbers[i] = i;
    packed_batch_place(&batch, lengths.lengths, numbers);
    const SkyStage *stage = &program->stages[0];
    for (uint32_t i = 0; i < stage->input_count; i++)
        packed_batch_fill(&batch, &dataset, program, &stage->inputs[i], numbers, 0,
                          execution_address(execution, 0, 0, stage->inputs[i].location));
    uint32_t tokens = tokens_wanted ? tokens_wanted : row_packer_tokens(&batch.packer, 0);
    if (program->lines_vary) execution_set_tokens(execution, 0, 0, tokens);
    printf("%u micro-batches of %ux%u, at most %u rows a line; measured with %u tokens\n", batch.microbatches,
           program->packing.lines, program->packing.length, program->packing.slots,
           program->lines_vary ? tokens : program->packing.lines * program->packing.length);
    return true;
}

/* Imports the model, and chooses options->packing. */
static bool choose_packing(TrainingModel *model, const char *path, ModelOptions *options, Arena *arena,
                           Diagnostics *diagnostics)
{
    FREED_WITH(row_lengths_free) RowLengths lengths = {0};
    if (!packed_model_import(model, path, options, diagnostics) ||
        !packed_lengths_read(&lengths, &options->lengths, diagnostics))
        return false;
    const PackingWish wish = {.lengths = lengths.lengths,
                              .count = lengths.rows,
                              .longest = (uint32_t)options->lengths.list[options->lengths.count - 1],
                              .rows = model->imported.batch_size};
    options->packing = packing_choose(&wish, 1, false, arena).packing;
    return true;
}

static bool run(const char *path, ModelOptions *options, Diagnostics *diagnostics)
{
    FREED_WITH(training_model_free) TrainingModel model = {0};
    Arena arena = {0};
    SkyPacking form = options->packing;
    const char *data = options->lengths.data;
    if (data && !choose_packing(&model, path, options, &arena, diagnostics)) return false;
    if (form.lines) {
        options->packing.lines = form.lines;
        options->packing.length = form.length;
    }
    if (!(data ? training_model_make(&model, options, diagnostics)
               : training_model_load(&model, path, options, diagnostics)))
        return false;
    FREED_WITH(stage_free) StageCode code = {0};
    FREED_WITH(local_program_free) LocalProgram program = {0};
    Execution execution;
    StageIndex *index = stage_index_create(&model.graph, model.precision);
    stage_build_indexed(&code, index, 0, model.graph.layer_count - 1, STAGE_PLAIN);
    stage_index_free(index);
    code.stage.slot_count = 1;
    if (code.needs_lines) printf("all lines are computed: %s needs them\n", code.needs_lines);
    if (keeps_weights) stage_keep_weights(&code.stage, &code.arena, UINT64_MAX);
    local_program_create(&program, &model, &code);
    bool ok = local_program_compile(&program, NULL, diagnostics) &&
              execution_open(&execution, &program.program, threads, local_program_interpret, diagnostics);
    if (ok) {
        program_make_up_inputs(&execution);
        ok = !data || fill_packed(&execution, data, diagnostics);
        fill_parameters(&execution, &code.stage, &code, &model.graph);
        for (int i = 0; i < SKY_STEP_SCALARS; i++) execution.step[i] = 1e-4F;
        ok = ok && measure(&execution, &code.stage, diagnostics);
        execution_close(&execution);
    }
    return ok;
}

/* One option --NAME=VALUE. False: there is no such option. */
static bool read_option(const char *name, const char *value, ModelOptions *options)
{
    int number = atoi(value);
    if (strcmp(name, "--precision") == 0)
        options->precision = strcmp(value, "bf16") == 0 ? PRODUCTS_BF16 : PRODUCTS_F32;
    else if (strcmp(name, "--dropout") == 0)
        options->import.dropout_given = true, options->import.dropout = atof(value);
    else if (strcmp(name, "--no-prune") == 0)
        options->no_pruning = number != 0;
    else if (strcmp(name, "--keep") == 0)
        keeps_weights = number;
    else if (strcmp(name, "--waves") == 0)
        by_waves = number;
    else if (strcmp(name, "--steps") == 0)
        steps = number < 1 ? 1 : number;
    else if (strcmp(name, "--threads") == 0)
        threads = number < 1 ? 1 : number;
    else if (strcmp(name, "--tokens") == 0)
        tokens_wanted = (uint32_t)number;
    else if (strcmp(name, "--data") == 0)
        options->lengths.data = value;
    else
        return strcmp(name, "--form") == 0 &&
               sscanf(value, "%ux%u", &options->packing.lines, &options->packing.length) == 2;
    return true;
}

int main(int argc, char **argv)
{
    DimensionBinding bindings[16];
    ModelOptions options = {.want_loss = true, .differentiate = true, .train = true};
    options.import.dimensions = bindings;
    bool ok = argc > 1 && argc < 18;
    for (int i = 2; i < argc && ok; i++) {
        char *equals = strchr(argv[i], '=');
        ok = equals != NULL;
        if (!ok) break;
        *equals = 0;
        if (argv[i][0] == '-')
            ok = read_option(argv[i], equals + 1, &options);
        else
            bindings[options.import.dimension_count++] = (DimensionBinding){argv[i], atoll(equals + 1)};
    }
    if (!ok) return fputs("usage: bench_kernels MODEL.onnx [NAME=VALUE ...]\n", stderr), EXIT_USAGE;
    int64_t longest = options.import.dimension_count ? bindings[options.import.dimension_count - 1].value : 0;
    if (options.lengths.data && longest) {
        options.lengths.dimension = bindings[options.import.dimension_count - 1].name;
        options.lengths.list = &longest;
        options.lengths.count = 1;
    }
    Diagnostics diagnostics = {0};
    run(argv[1], &options, &diagnostics);
    diagnostics_print(&diagnostics, stderr);
    return diagnostics.exit_code;
}
