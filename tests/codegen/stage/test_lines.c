/* A micro-batch with fewer lines than there is room for, or fewer tokens in the last one: what is computed of it does
 * not depend on what memory holds where the absent ones would be, and is what comes out where they are computed too,
 * without rows.
 *
 *     test_lines MODEL.onnx ... */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "codegen/stage/stage.h"
#include "driver/compile/local_program.h"
#include "driver/compile/training_model.h"
#include "graph/ops/add_node.h"
#include "graph/passes/code_cuts.h"
#include "graph/passes/pack_rows.h"
#include "runtime/program/step.h"
#include "runtime/storage/packed_batch.h"

enum { LINES = 4, LENGTH = 24, SLOTS = 4, ROWS = 8, LONGEST = 16 };

static SkyPacking packing = {LINES, LENGTH, SLOTS, ROWS, LONGEST};
static char **models;
static int model_count;

static void load_model(TrainingModel *model, const char *path)
{
    DimensionBinding dimensions[] = {{"batch", PACKING_GRAPH_ROWS}, {"seq", LONGEST}};
    const int64_t longest = LONGEST;
    const ModelOptions options = {.import = {.dimensions = dimensions, .dimension_count = 2},
                                  .lengths = {.dimension = "seq", .list = &longest, .count = 1},
                                  .packing = packing,
                                  .loss = strstr(path, "-qa-") ? "cross-entropy:start_logits" : NULL,
                                  .want_loss = true,
                                  .train = true};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    if (!training_model_load(model, path, &options, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        fail();
    }
}

/* ---- Data ---- */

typedef struct Rows {
    Arena arena;
    Dataset data;
    PackedBatch batch;
    uint32_t numbers[ROWS];
} Rows;

static SafeTensor draw_tensor(Rows *rows, const SkyProgram *program, const SkyTensor *input)
{
    SafeTensor tensor = {.name = input->name, .dtype = (DType)input->dtype, .shape = {.rank = (int)input->rank}};
    const SkyLabels *labels = labels_of_input(program, input->name, NULL);
    for (int i = 0; i < tensor.shape.rank; i++) tensor.shape.dim[i] = input->dim[i];
    tensor.shape.dim[0] = ROWS;
    if (input->fill == SKY_FILL_TOKENS) tensor.shape.dim[1] = LONGEST;
    int64_t elements = shape_elements(&tensor.shape);
    uint64_t state = hash_bytes(input->name, strlen(input->name)).low;
    uint64_t limit = labels && labels->classes > 0 ? (uint64_t)labels->classes : (uint64_t)input->value_limit;
    void *data = arena_allocate(&rows->arena, (size_t)elements * dtype_size(tensor.dtype));
    for (int64_t i = 0; i < elements; i++)
        element_store_double(tensor.dtype, data, i,
                             strstr(input->name, "mask") ? 1 : (double)(random_draw(&state) % (limit ? limit : 2)));
    tensor.data = data;
    tensor.bytes = (size_t)elements * dtype_size(tensor.dtype);
    return tensor;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const SafeTensor *const *)a)->name, (*(const SafeTensor *const *)b)->name);
}

/* Rows that take `lines` lines, drawn as the model's inputs need them. */
static void make_rows(Rows *rows, const SkyProgram *program, uint32_t lines)
{
    static const int32_t lengths[LINES][ROWS] = {
        {9, 1, 3}, {16, 16, 4, 7}, {16, 15, 9, 8, 7, 4}, {16, 16, 16, 16, 5, 4, 3, 8}};
    const SkyStage *stage = program->stages;
    *rows = (Rows){0};
    SafeTensor *tensors = arena_new_array(&rows->arena, SafeTensor, stage->input_count);
    const SafeTensor **named = arena_new_array(&rows->arena, const SafeTensor *, stage->input_count);
    rows->data = (Dataset){.rows = ROWS};
    for (uint32_t i = 0; i < stage->input_count; i++) {
        const SkyTensor *input = &stage->inputs[i];
        if (!dataset_holds(input)) continue;
        size_t number = rows->data.file.count++;
        tensors[number] = draw_tensor(rows, program, input);
        named[number] = &tensors[number];
        for (const SkyLabels *l = NULL; (l = labels_of_input(program, input->name, l));)
            rows->data.labels[l - program->labels] = &tensors[number];
    }
    qsort(named, rows->data.file.count, sizeof *named, by_name);
    rows->data.file.tensors = tensors;
    rows->data.file.by_name = named;
    for (uint32_t r = 0; r < ROWS; r++) rows->numbers[r] = lengths[lines - 1][r] ? r : DATASET_NO_ROW;
    packed_batch_open(&rows->batch, program);
    packed_batch_place(&rows->batch, lengths[lines - 1], rows->numbers);
    assert_int_equal(rows->batch.microbatches, 1);
    assert_int_equal(row_packer_lines(&rows->batch.packer, 0), lines);
}

static void free_rows(Rows *rows)
{
    packed_batch_close(&rows->batch);
    arena_free(&rows->arena);
}

/* ---- Running ---- */

typedef struct Result {
    float loss;
    float *gradients; /* of all parameters, one after another */
    size_t count;
} Result;

static void poison(const MemoryRegion *region, size_t bytes)
{
    if (region->bytes) memset(region->bytes, 0xff, bytes); /* of any type of float no number */
}

static void fill_parameters(const Execution *execution, const StageCode *code, const Graph *graph)
{
    const SkyStage *stage = &code->stage;
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const void *from = graph_value(graph, code->parameter_values[i])->data;
        memcpy(execution_address(execution, 0, 0, stage->parameters[i].value.location), from,
               stage->parameters[i].value.bytes);
    }
}

static Result collect(const Execution *execution, const SkyStage *stage)
{
    Result result = {.loss = *(const float *)execution_address(execution, 0, 0, stage->loss)};
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const SkyParameter *parameter = &stage->parameters[i];
        if (parameter->frozen) continue;
        size_t count = parameter->value.bytes / sizeof(float);
        result.gradients = memory_resize(result.gradients, result.count + count, sizeof(float));
        memcpy(result.gradients + result.count, execution_address(execution, 0, 0, parameter->gradient),
               parameter->value.bytes);
        result.count += count;
    }
    return result;
}

/* Of the rows' micro-batch, as if it had so many tokens. */
static Result run(const LocalProgram *program, const StageCode *code, const Graph *graph, Rows *rows, uint32_t tokens,
                  int threads)
{
    Execution execution;
    Diagnostics diagnostics = {0};
    const SkyStage *stage = program->program.stages;
    LabelCount labels[SKY_MOST_LABELS];
    assert_true(execution_open(&execution, &program->program, threads, local_program_interpret, &diagnostics));
    poison(&execution.stages[0].slots, execution.stages[0].slot_stride);
    poison(&execution.scratch, stage->space_bytes[SKY_SPACE_SCRATCH]);
    poison(&execution.thread_scratch, execution.thread_scratch_stride * (size_t)threads);
    fill_parameters(&execution, code, graph);
    for (uint32_t i = 0; i < stage->input_count; i++)
        packed_batch_fill(&rows->batch, &rows->data, &program->program, &stage->inputs[i], rows->numbers, 0,
                          execution_address(&execution, 0, 0, stage->inputs[i].location));
    dataset_count_labels(&rows->data, &program->program, rows->numbers, ROWS, labels);
    step_scalars(execution.step, &program->program.optimizer, 0, 0, 0);
    step_scalars_losses(execution.step, &program->program, labels, 1);
    step_scalars_drop(execution.step, 11, 5);
    execution_set_tokens(&execution, 0, 0, tokens);
    for (int list = 0; list < SKY_LIST_UPDATE; list++)
        assert_true(execution_run(&execution, 0, (SkyListKind)list, 0, &diagnostics));
    Result result = collect(&execution, stage);
    execution_close(&execution);
    return result;
}

static void expect_same(const Result *a, const Result *b)
{
    bool moved = false;
    assert_true(isfinite(a->loss) && a->loss == b->loss && a->count == b->count && a->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_true(isfinite(a->gradients[i]) && a->gradients[i] == b->gradients[i]);
        moved |= a->gradients[i] != 0;
    }
    assert_true(moved);
}

static void try_program(const LocalProgram *program, const StageCode *code, const Graph *graph, int threads)
{
    for (uint32_t lines = 1; lines <= packing.lines; lines++) {
        Rows rows;
        make_rows(&rows, &program->program, lines);
        Result all = run(program, code, graph, &rows, packing.lines * LENGTH, threads);
        /* A line, or a token after the last row of a line, is absent or not. */
        uint32_t least = row_packer_tokens(&rows.batch.packer, 0);
        for (uint32_t taken = least; taken < packing.lines * LENGTH; taken = (taken / LENGTH + 1) * LENGTH) {
            Result some = run(program, code, graph, &rows, taken, threads);
            expect_same(&some, &all);
            free(some.gradients);
        }
        free(all.gradients);
        free_rows(&rows);
    }
}

/* Calls leave out tokens, and some of what they leave out is read. */
static bool cuts_tokens(const SkyStage *stage)
{
    bool cuts = false, tails = false;
    for (uint32_t c = 0; c < sky_call_count(stage); c++) {
        cuts |= sky_call(stage, c)->token_extent > 0;
        tails |= sky_call(stage, c)->tail_count > 0;
    }
    return cuts && tails;
}

/* Whether gradients of weights are sums of one call that ends with the lines. */
static bool limits_sums(const SkyStage *stage)
{
    bool limits = false;
    for (uint32_t c = 0; c < sky_call_count(stage); c++) limits |= sky_call(stage, c)->sum_extent > 0;
    return limits;
}

/* codec: of what crosses the middle of the model. */
static void try_model(const char *path, StageForm form, Codec codec)
{
    TrainingModel model;
    StageCode code;
    LocalProgram program;
    Diagnostics diagnostics = {0};
    load_model(&model, path);
    const CutCodec cut = {model.graph.layer_count / 2, {codec, codec}};
    if (codec) cuts_code(&model.graph, &cut, 1);
    stage_build_as(&code, &model.graph, 0, model.graph.layer_count - 1, form);
    if (code.needs_lines) print_error("%s: %s\n", path, code.needs_lines);
    assert_true(code.lines_vary && !code.needs_lines && cuts_tokens(&code.stage));
    assert_true(limits_sums(&code.stage));
    code.stage.slot_count = 1;
    local_program_create(&program, &model, &code);
    if (form == STAGE_PLAIN) try_program(&program, &code, &model.graph, 1);
    assert_true(local_program_compile(&program, NULL, &diagnostics));
    try_program(&program, &code, &model.graph, 1);
    try_program(&program, &code, &model.graph, 2);
    local_program_free(&program);
    stage_free(&code);
    training_model_free(&model);
}

static void test_absent_lines(void **state)
{
    (void)state;
    for (int i = 0; i < model_count; i++) try_model(models[i], STAGE_PLAIN, CODEC_NONE);
}

static void test_absent_tokens_of_one_line(void **state)
{
    (void)state;
    packing.lines = 1;
    for (int i = 0; i < model_count; i++) try_model(models[i], STAGE_PLAIN, CODEC_NONE);
    packing.lines = LINES;
}

static void test_forms(void **state)
{
    (void)state;
    try_model(models[0], STAGE_SPLIT, CODEC_NONE);
    try_model(models[0], STAGE_RECOMPUTE, CODEC_NONE);
    try_model(models[0], STAGE_PLAIN, CODEC_Q8);
}

/* ---- Stages that divide ---- */

static ValueId add(Graph *graph, int layer, Opcode op, ValueId a, ValueId b, Attribute attribute)
{
    static int number;
    ValueId result;
    Diagnostics diagnostics = {0};
    NodeOrigin origin = {.name = arena_format(&graph->arena, "node %d", number++), .layer = layer};
    assert_true(graph_add_node(graph, op, origin, (ValueId[]){a, b}, b ? 2 : 1, &attribute, attribute.name != NULL,
                               &result, 1, &diagnostics));
    return result;
}

static void expect_tokens(Graph *graph, int first, int last, bool vary, bool bears)
{
    StageCode code;
    stage_build(&code, graph, first, last);
    assert_true(code.lines_vary);
    assert_int_equal(code.tokens_vary, vary);
    assert_int_equal(code.bears_zeros, bears);
    stage_free(&code);
}

/* The second layer divides what the first one sends by its absolute value, head by head, where tokens do not stand one
 * after the other. */
static void test_division(void **state)
{
    (void)state;
    for (int harmless = 0; harmless < 2; harmless++) {
        Graph graph;
        graph_init(&graph, "division");
        graph.packing = packing;
        ValueId x = graph_add_input(&graph, "x", DTYPE_F32, &(Shape){4, {LINES, LENGTH, 2, 3}});
        graph_value(&graph, x)->line_axis = 1;
        graph_value(&graph, x)->by_token = true;
        ValueId sent = add(&graph, 0, OP_Tanh, x, 0, (Attribute){0});
        ValueId heads = add(&graph, 1, OP_Transpose, sent, 0, attribute_integers("perm", (int64_t[]){0, 2, 1, 3}, 4));
        ValueId divisor = add(&graph, 1, harmless ? OP_Exp : OP_Abs, heads, 0, (Attribute){0});
        graph_add_output(&graph, "y", add(&graph, 1, OP_Div, heads, divisor, (Attribute){0}));
        graph.layer_count = 2;
        graph.layer_names = (const char *[]){"first", "second"};
        expect_tokens(&graph, 0, 0, true, true);
        expect_tokens(&graph, 1, 1, true, harmless);
        expect_tokens(&graph, 0, 1, harmless, true);
        graph_free(&graph);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_absent_lines),
                                       cmocka_unit_test(test_absent_tokens_of_one_line), cmocka_unit_test(test_forms),
                                       cmocka_unit_test(test_division)};
    models = argv + 1;
    model_count = argc - 1;
    if (!model_count) return fputs("usage: test_lines MODEL.onnx ...\n", stderr), 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
