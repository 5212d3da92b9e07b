#include "tests/codegen/stage/stage_run.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "driver/compile/local_program.h"
#include "models/bert.h"
#include "runtime/program/step.h"
#include "tests/common/scratch.h"

void small_bert_load(TrainingModel *model, int64_t sequence, double dropout, bool prune)
{
    const BertConfig config = {.layers = SMALL_LAYERS,
                               .hidden = 32,
                               .heads = SMALL_HEADS,
                               .intermediate = 128,
                               .vocabulary = 50,
                               .positions = sequence,
                               .classes = 3,
                               .batch = SMALL_BATCH,
                               .sequence = sequence,
                               .weights = true,
                               .seed = 1};
    const ModelOptions options = {
        .import = {.dropout_given = true, .dropout = dropout}, .want_loss = true, .train = true, .no_pruning = !prune};
    Diagnostics diagnostics = {0};
    Scratch file = scratch_text("");
    assert_true(bert_write(&config, file.path, &diagnostics));
    assert_true(training_model_load(model, file.path, &options, &diagnostics));
    unlink(file.path);
}

static void fill_parameters(const Execution *execution, const SkyStage *stage, const StageCode *code,
                            const Graph *graph)
{
    for (uint32_t i = 0; i < stage->parameter_count; i++)
        memcpy(execution_address(execution, 0, 0, stage->parameters[i].value.location),
               graph_value(graph, code->parameter_values[i])->data, stage->parameters[i].value.bytes);
}

float *stage_gradients(const TrainingModel *model, StageChange *change, bool interpreted, int threads, size_t *count)
{
    StageCode code;
    LocalProgram program;
    Execution execution;
    Diagnostics diagnostics = {0};
    stage_build(&code, (Graph *)&model->graph, 0, model->graph.layer_count - 1);
    code.stage.slot_count = 1;
    if (change) change(&code.stage);
    local_program_create(&program, model, &code);
    const SkyStage *stage = program.program.stages;
    if (!interpreted) assert_true(local_program_compile(&program, NULL, &diagnostics));
    assert_true(execution_open(&execution, &program.program, threads, local_program_interpret, &diagnostics));
    program_make_up_inputs(&execution);
    fill_parameters(&execution, stage, &code, &model->graph);
    step_scalars_drop(execution.step, 11, 5);
    execution.step[SKY_STEP_LOSS_SCALE] = 1;
    assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 0, &diagnostics));
    assert_true(execution_run(&execution, 0, SKY_LIST_BACKWARD, 0, &diagnostics));
    size_t bytes = 0;
    float *result = NULL;
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const SkyParameter *parameter = &stage->parameters[i];
        result = memory_resize(result, bytes + parameter->value.bytes, 1);
        memcpy((char *)result + bytes, execution_address(&execution, 0, 0, parameter->gradient),
               parameter->value.bytes);
        bytes += parameter->value.bytes;
    }
    execution_close(&execution);
    local_program_free(&program);
    stage_free(&code);
    *count = bytes / sizeof *result;
    return result;
}

double greatest_difference(const float *a, const float *b, size_t count)
{
    double greatest = 0, difference = 0;
    for (size_t i = 0; i < count; i++) {
        greatest = fmax(greatest, fabs(b[i]));
        difference = fmax(difference, fabs((double)a[i] - b[i]));
    }
    return greatest > 0 ? difference / greatest : INFINITY;
}
