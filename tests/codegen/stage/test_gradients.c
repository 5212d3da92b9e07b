/* What lies between backward and update: squares of gradients and sums of uses, compiled, agree with plain sums, and
 * neither threads nor the cut of the model into stages change a bit of them; nor of an update in several calls.
 *
 *     test_gradients TIED-MODEL.onnx */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "codegen/stage/stage.h"
#include "driver/compile/local_program.h"
#include "driver/compile/training_model.h"
#include "models/bert.h"
#include "runtime/program/step.h"
#include "tests/common/scratch.h"

enum { TENSORS = 4 }; /* gradient, value, two states */

static const char *tied_model;

/* Stages first ... last of the model, open. */
typedef struct Subject {
    StageCode code;
    LocalProgram program;
    Execution execution;
} Subject;

/* A model with tied weights; or, tall, one whose tables are long enough for a sum in many parts. */
static void load(TrainingModel *model, bool tall, const char *optimizer)
{
    DimensionBinding dimensions[] = {{"batch", 2}, {"seq", 16}};
    const ModelOptions options = {.import = {.dimensions = dimensions, .dimension_count = 2},
                                  .optimizer = optimizer,
                                  .want_loss = true,
                                  .train = true};
    const BertConfig config = {.layers = 2,
                               .hidden = 64,
                               .heads = 2,
                               .intermediate = 200,
                               .vocabulary = 600,
                               .positions = 16,
                               .classes = 3,
                               .batch = 2,
                               .sequence = 16,
                               .weights = true,
                               .seed = 1};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Scratch file = scratch_text("");
    assert_true(bert_write(&config, file.path, &diagnostics));
    assert_true(training_model_load(model, tall ? file.path : tied_model, &options, &diagnostics));
    unlink(file.path);
}

static void subject_open(Subject *subject, const TrainingModel *model, int first, int last, int threads)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    stage_build(&subject->code, (Graph *)&model->graph, first, last);
    subject->code.stage.slot_count = 1;
    local_program_create(&subject->program, model, &subject->code);
    if (threads) assert_true(local_program_compile(&subject->program, NULL, &diagnostics));
    if (!threads) threads = 1; /* interpreted */
    assert_true(
        execution_open(&subject->execution, &subject->program.program, threads, local_program_interpret, &diagnostics));
}

static void subject_close(Subject *subject)
{
    execution_close(&subject->execution);
    local_program_free(&subject->program);
    stage_free(&subject->code);
}

static float *tensor_of(const Subject *subject, uint32_t parameter, int tensor)
{
    const SkyParameter *p = &subject->code.stage.parameters[parameter];
    const SkyLocation *at = tensor == 0 ? &p->gradient : tensor == 1 ? &p->value.location : &p->states[tensor - 2];
    return execution_address(&subject->execution, 0, 0, *at);
}

static int64_t elements_of(const SkyParameter *parameter) { return (int64_t)(parameter->value.bytes / sizeof(float)); }

/* Numbers that depend on where they are in the model alone; second moments are not negative. */
static void fill(const Subject *subject)
{
    for (uint32_t p = 0; p < subject->code.stage.parameter_count; p++)
        for (int t = 0; t < TENSORS; t++) {
            const SkyParameter *parameter = &subject->code.stage.parameters[p];
            RandomStream stream =
                random_substream(random_stream(7, "fill"), parameter->global_index * TENSORS + (uint64_t)t);
            for (int64_t i = 0; i < elements_of(parameter); i++) {
                double number = random_uniform(stream, (uint64_t)i) - 0.5;
                tensor_of(subject, p, t)[i] = (float)(t == 3 ? number * number : number);
            }
        }
}

static void squares_depend_on_shapes_alone(void **state)
{
    (void)state;
    TrainingModel model;
    load(&model, true, NULL);
    int layers = model.graph.layer_count;
    double *seen = calloc(model.graph.value_count, sizeof *seen);
    const struct {
        int first, last, threads;
    } cases[] = {{0, layers - 1, 1}, {0, layers - 1, 2}, {0, 1, 2}, {2, layers - 1, 1}, {0, layers - 1, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Subject subject;
        subject_open(&subject, &model, cases[c].first, cases[c].last, cases[c].threads);
        fill(&subject);
        assert_true(subject.code.stage.parameter_count > 0);
        const SkyStage *stage = subject.program.program.stages;
        for (int t = 0; t < TENSORS; t++) {
            const double *squares = execution_squares(&subject.execution, 0, t ? EXECUTION_VALUE - 1 + t : 0);
            for (uint32_t p = 0; p < stage->parameter_count; p++) {
                double sum = 0, *first = &seen[stage->parameters[p].global_index * TENSORS + (uint32_t)t];
                for (int64_t i = 0; i < elements_of(&stage->parameters[p]); i++)
                    sum += pow(tensor_of(&subject, p, t)[i], 2);
                assert_true(sum > 0 && fabs(squares[p] / sum - 1) < 1e-13);
                if (*first && cases[c].threads) assert_true(squares[p] == *first);
                *first = squares[p];
            }
        }
        subject_close(&subject);
    }
    free(seen);
    training_model_free(&model);
}

static void uses_are_added_in_their_order(void **state)
{
    (void)state;
    TrainingModel model;
    load(&model, false, NULL);
    for (int threads = 0; threads <= 2; threads++) {
        Subject subject;
        subject_open(&subject, &model, 0, model.graph.layer_count - 1, threads);
        const SkyStage *stage = subject.program.program.stages;
        uint32_t p = 0;
        while (p < stage->parameter_count && stage->parameters[p].use_count != 2) p++;
        assert_true(p < stage->parameter_count);
        float *use[2];
        for (int u = 0; u < 2; u++) {
            use[u] = execution_address(&subject.execution, 0, 0, stage->parameters[p].uses[u].gradient);
            for (int64_t i = 0; i < elements_of(&stage->parameters[p]); i++) use[u][i] = (float)(i % 1000 + u);
        }
        assert_ptr_equal(use[0], tensor_of(&subject, p, 0));
        execution_sum_uses(&subject.execution, 0);
        for (int64_t i = 0; i < elements_of(&stage->parameters[p]); i++)
            assert_true(use[0][i] == (float)(2 * (i % 1000) + 1) && use[1][i] == 0);
        subject_close(&subject);
    }
    training_model_free(&model);
}

/* LAMB's calls of all parameters follow each other part by part, and every part is shared. */
static void long_updates_are_shared(void **state)
{
    (void)state;
    TrainingModel model;
    load(&model, true, "lamb");
    float *first = NULL;
    for (int threads = 1; threads <= 2; threads++) {
        Subject subject;
        Diagnostics diagnostics = {0};
        subject_open(&subject, &model, 0, model.graph.layer_count - 1, threads);
        const SkyStage *stage = subject.program.program.stages;
        uint32_t trained = stage->lists[SKY_LIST_SQUARES].count;
        assert_true(trained > 0 && stage->lists[SKY_LIST_UPDATE].count == 3 * trained);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(stage->lists[SKY_LIST_UPDATE].calls[i * trained].wave_count, trained);
        int64_t most = 0;
        for (uint32_t i = 0; i < trained; i++)
            if (stage->lists[SKY_LIST_UPDATE].calls[i].units > most)
                most = stage->lists[SKY_LIST_UPDATE].calls[i].units;
        assert_true(most > 1);
        fill(&subject);
        step_scalars(subject.execution.step, &model.optimizer.numbers, 0.01, 0.1, 0);
        execution_exempt_from_decay(&subject.execution, 1u << 1);
        assert_true(execution_run(&subject.execution, 0, SKY_LIST_UPDATE, 0, &diagnostics));
        size_t bytes = 0;
        for (uint32_t p = 0; p < stage->parameter_count; p++) {
            size_t size = stage->parameters[p].value.bytes;
            for (int64_t i = 0; i < elements_of(&stage->parameters[p]); i++)
                assert_true(tensor_of(&subject, p, 0)[i] == 0 && isfinite(tensor_of(&subject, p, 1)[i]));
            if (threads == 1) first = memory_resize(first, bytes + size, 1);
            if (threads == 1) memcpy((char *)first + bytes, tensor_of(&subject, p, 1), size);
            assert_memory_equal((char *)first + bytes, tensor_of(&subject, p, 1), size);
            bytes += size;
        }
        subject_close(&subject);
    }
    free(first);
    training_model_free(&model);
}

int main(int argc, char **argv)
{
    if (argc != 2) return 2;
    tied_model = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_depend_on_shapes_alone),
        cmocka_unit_test(uses_are_added_in_their_order),
        cmocka_unit_test(long_updates_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
