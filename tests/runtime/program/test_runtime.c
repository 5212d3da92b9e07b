/* The parts of the runtime that need no other ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "runtime/device/execute.h"
#include "runtime/program/parallel.h"
#include "runtime/program/step.h"
#include "runtime/storage/parameters.h"
#include "runtime/train/training_options.h"
#include "tests/common/scratch.h"

/* ---- Schedules and scalars ---- */

static void learning_rates_rise_and_fall(void **state)
{
    (void)state;
    LearningRateSchedule s = {.base = 8, .kind = SCHEDULE_LINEAR, .warmup = 4, .total = 12};
    const double linear[] = {0, 2, 4, 6, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    for (int i = 0; i <= 12; i++) assert_true(fabs(learning_rate_at(&s, i) - linear[i]) < 1e-12);
    s.kind = SCHEDULE_COSINE;
    assert_true(fabs(learning_rate_at(&s, 4) - 8) < 1e-12);
    assert_true(fabs(learning_rate_at(&s, 8) - 4) < 1e-12);
    assert_true(learning_rate_at(&s, 11) > 0 && learning_rate_at(&s, 11) < 0.4);
    assert_true(learning_rate_at(&s, 12) == 0);
    s.kind = SCHEDULE_CONSTANT;
    assert_true(learning_rate_at(&s, 1000) == 8);
}

static void step_scalars_have_two_groups(void **state)
{
    (void)state;
    float scalars[SKY_STEP_SCALARS];
    SkyOptimizer adam = {SKY_ADAMW, 0, 1e-3, 0.9, 0.999, 1e-8, 0.01};
    step_scalars(scalars, &adam, 1e-3, 0.01, 0);
    assert_true(fabsf(scalars[SKY_STEP_CORRECTION1] - 10) < 1e-5f);
    assert_true(fabsf(scalars[SKY_STEP_CORRECTION2] * (1 - 0.999f) - 1) < 1e-6f); /* of the float beta */
    assert_true(scalars[SKY_STEP_WEIGHT_DECAY] == 0.01f);
    assert_true(scalars[SKY_STEP_GROUP + SKY_STEP_WEIGHT_DECAY] == 0);
    assert_true(scalars[SKY_STEP_GRADIENT_SCALE] == 1);
    step_scalars(scalars, &adam, 1e-3, 0.01, 1);
    assert_true(fabsf(scalars[SKY_STEP_CORRECTION1] - 1 / 0.19f) < 1e-5f);
    adam.kind = SKY_SGD;
    step_scalars(scalars, &adam, 1e-3, 0.01, 0);
    assert_true(scalars[SKY_STEP_CORRECTION1] == 1 && scalars[SKY_STEP_CORRECTION2] == 1);
}

static void losses_have_scales_of_their_own(void **state)
{
    (void)state;
    float scalars[SKY_STEP_SCALARS] = {0};
    const SkyProgram program = {.microbatch_count = 8, .label_count = 3};
    step_scalars_losses(scalars, &program, (LabelCount[SKY_MOST_LABELS]){{.weight = 4}, {.weight = 0}, {.weight = 2}},
                        16);
    assert_true(scalars[SKY_STEP_SHARE] == 0.125f);
    assert_true(scalars[SKY_STEP_ROW_SHARE] == 0.0625f);
    assert_true(scalars[loss_scale_element(0)] == 0.25f);
    assert_true(scalars[loss_scale_element(1)] == 0);
    assert_true(scalars[loss_scale_element(2)] == 0.5f);
}

/* ---- Execution ---- */

enum { UNITS = 10007 };

static void count_units(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    int32_t *counts = operands[0];
    int64_t *own = scratch;
    (void)limit;
    *own = begin;
    for (int64_t i = begin; i < end; i++) counts[i] += (uintptr_t)scratch % MEMORY_ALIGNMENT ? 100 : 1;
    if (*own != begin) counts[begin] = -1; /* somebody else's scratch */
}

static bool reject(const void *kernel, void *const *operands, int64_t block, int64_t limit)
{
    (void)operands, (void)block, (void)limit;
    return *(const int *)kernel != 13;
}

static void calls_run_on_threads_and_slots(void **state)
{
    (void)state;
    const SkyLocation operand = {.space = SKY_SPACE_SLOT, .offset = 64};
    const int fine = 12, bad = 13;
    const SkyCall forward[] = {{.kernel = count_units,
                                .operands = &operand,
                                .operand_count = 1,
                                .units = UNITS,
                                .nanoseconds = 1000000,
                                .name = "count"}};
    const SkyCall backward[] = {{.interpreted = &fine, .name = "fine"}, {.interpreted = &bad, .name = "the bad call"}};
    SkyStage stage = {.slot_count = 3,
                      .lists = {[SKY_LIST_FORWARD] = {.calls = forward, .count = 1},
                                [SKY_LIST_BACKWARD] = {.calls = backward, .count = 2}},
                      .thread_scratch_bytes = 8};
    stage.space_bytes[SKY_SPACE_SLOT] = 64 + UNITS * sizeof(int32_t);
    const SkyProgram program = {.stages = &stage, .stage_count = 1};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Execution execution;
    assert_true(execution_open(&execution, &program, 3, reject, &diagnostics));
    assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 1, &diagnostics));
    assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 1, &diagnostics));
    assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 2, &diagnostics));
    for (uint32_t slot = 0; slot < 3; slot++) {
        const int32_t *counts = execution_address(&execution, 0, slot, operand);
        assert_int_equal((uintptr_t)counts % MEMORY_ALIGNMENT, 0);
        const int expected[] = {0, 2, 1};
        for (int i = 0; i < UNITS; i++) assert_int_equal(counts[i], expected[slot]);
    }
    assert_false(execution_run(&execution, 0, SKY_LIST_BACKWARD, 0, &diagnostics));
    assert_int_equal(diagnostics.exit_code, EXIT_RUN_FAILED);
    execution_close(&execution);
}

enum { ELEMENTS = 840, PIECE_COUNTS = 6, WALKED = 600 };

/* to[i] = from[ELEMENTS - 1 - i] + 1, in as many pieces as the last operand says: wrong unless all of the last call is
 * done and seen, and every piece is computed once. */
static void mirror_and_add(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)scratch, (void)limit;
    const int32_t *from = operands[0], *pieces = operands[2];
    int32_t *to = operands[1];
    for (int64_t i = ELEMENTS * begin / *pieces; i < ELEMENTS * end / *pieces; i++)
        to[i] = to[i] > from[ELEMENTS - 1 - i] ? -1000000 : from[ELEMENTS - 1 - i] + 1;
}

/* On more threads than this machine may have processors, too; `fails`: an interpreted call in the middle. */
static void walk_on(int threads, bool fails)
{
    static const int32_t pieces[PIECE_COUNTS] = {ELEMENTS, 1, 7, 2, 1, 1};
    static const int bad = 13;
    static SkyLocation operands[WALKED][3];
    static SkyCall calls[WALKED];
    for (uint32_t i = 0; i < WALKED; i++) {
        uint32_t units = i * 7 / 3 % PIECE_COUNTS;
        operands[i][i % 2] = (SkyLocation){.space = SKY_SPACE_STATE};
        operands[i][1 - i % 2] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = ELEMENTS * sizeof(int32_t)};
        operands[i][2] = (SkyLocation){.space = SKY_SPACE_CONSTANT, .offset = units * sizeof(int32_t)};
        calls[i] = (SkyCall){.kernel = mirror_and_add,
                             .operands = operands[i],
                             .operand_count = 3,
                             .units = pieces[units],
                             .nanoseconds = i % 50 * 1000,
                             .name = "walked"};
    }
    if (fails) calls[WALKED / 2] = (SkyCall){.interpreted = &bad, .name = "the bad call"};
    SkyStage stage = {
        .slot_count = 1, .lists[SKY_LIST_FORWARD] = {.calls = calls, .count = WALKED}, .constants = pieces};
    stage.space_bytes[SKY_SPACE_STATE] = 2 * ELEMENTS * sizeof(int32_t);
    const SkyProgram program = {.stages = &stage, .stage_count = 1};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Execution execution;
    assert_true(execution_open(&execution, &program, threads, reject, &diagnostics));
    int32_t *values = execution_address(&execution, 0, 0, operands[0][0]);
    for (int round = 0; round < 5; round++) {
        memset(values, 0, 2 * ELEMENTS * sizeof *values);
        assert_true(execution_run(&execution, 0, SKY_LIST_FORWARD, 0, &diagnostics) != fails);
        int32_t expected = fails ? WALKED / 2 : WALKED;
        for (int i = 0; i < ELEMENTS; i++) assert_int_equal(values[i], expected);
        for (int i = 0; i < ELEMENTS; i++) assert_int_equal(values[ELEMENTS + i], expected - 1);
    }
    execution_close(&execution);
}

static void calls_wait_for_each_other(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 4; threads++) {
        if (threads == 4) setenv("OMP_WAIT_POLICY", "passive", 1);
        walk_on(threads, false);
        walk_on(threads, true);
    }
    unsetenv("OMP_WAIT_POLICY");
}

/* Of four lines of 32 tokens three, and of the last one half: calls whose units are of lines or tokens, that run for
 * each line, and that sum over lines or tokens. */
static void fewer_lines_take_less_time(void **state)
{
    (void)state;
    const SkyCall calls[] = {
        {.units = 8, .nanoseconds = 400, .line_axis = 1, .line_extent = 32, .unit_extent = 16, .unit_count = 1},
        {.units = 8, .nanoseconds = 400, .line_loops = 4},
        {.units = 8, .nanoseconds = 400, .line_axis = 3, .line_extent = 32, .sum_extent = 128},
        {.units = 8, .nanoseconds = 400},
        {.units = 8,
         .nanoseconds = 400,
         .line_axis = 1,
         .line_extent = 32,
         .token_extent = 1,
         .unit_extent = 16,
         .unit_count = 1},
        {.units = 8, .nanoseconds = 400, .line_axis = 3, .line_extent = 32, .token_extent = 1, .sum_extent = 128},
    };
    enum { CALLS = sizeof calls / sizeof *calls };
    const int64_t limits[CALLS] = {96, SKY_NO_LIMIT, 96, SKY_NO_LIMIT, 80, 80}, units[CALLS] = {6, 8, 8, 8, 5, 8},
                  times[CALLS] = {300, 300, 300, 400, 250, 250};
    const SkyPresent present = {3, 80};
    WaveList list;
    wave_list_make(&list, calls, CALLS, present, 1, true);
    for (int c = 0; c < CALLS; c++) {
        assert_int_equal(sky_work_limit(&calls[c], present), limits[c]);
        assert_int_equal(list.units[c], units[c]);
        assert_float_equal(list.nanoseconds[c], times[c], 0);
    }
    wave_list_free(&list);
}

/* OMP_PROC_BIND binds the first thread to one processor before main begins; libgomp reads it only then, so it takes
 * another process to see that a team of as many threads as processors still spins at its meetings. */
static void binding_takes_no_processors_away(void **state)
{
    (void)state;
    char command[64], line[32] = "";
    snprintf(command, sizeof command, "OMP_PROC_BIND=close /proc/%d/exe processors", (int)getpid());
    FILE *bound = popen(command, "r");
    assert_non_null(bound);
    assert_non_null(fgets(line, sizeof line, bound));
    assert_int_equal(pclose(bound), 0);
    assert_int_equal(atoi(line), parallel_processors());
}

static void read_decay(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)begin, (void)end, (void)scratch, (void)limit;
    *(float *)operands[0] = ((const float *)operands[1])[SKY_STEP_WEIGHT_DECAY];
}

enum { COUNT = 300000, PART = 1000 };

static void square_parts(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    const float *values = operands[0];
    double *parts = operands[1];
    (void)scratch, (void)limit;
    for (int64_t part = begin; part < end; part++) {
        parts[part] = 0;
        for (int64_t i = part * PART; i < (part + 1) * PART; i++) parts[part] += (double)values[i] * values[i];
    }
}

/* A parameter whose gradient, value and states stand one after another, next to one that is frozen. */
static void squares_are_summed_and_checked(void **state)
{
    (void)state;
    SkyLocation at[6];
    for (int i = 0; i < 6; i++) at[i] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = (uint64_t)i * 4 * COUNT};
    const SkyLocation operands[] = {at[0], at[5], at[1], at[2], at[3]};
    const SkyCall squares = {.kernel = square_parts,
                             .operands = operands,
                             .operand_count = 5,
                             .units = COUNT / PART,
                             .nanoseconds = 1000000,
                             .name = "squares"};
    SkyParameter parameters[2] = {{.frozen = 1}, {.square_parts = COUNT / PART, .state_count = 2}};
    parameters[0].value = parameters[1].value = (SkyTensor){.name = "weight", .rank = 1, .dim = {COUNT}};
    for (int p = 0; p < 2; p++) parameters[p].value.bytes = 4 * COUNT;
    parameters[0].value.location = at[4];
    parameters[1].value.location = at[1];
    parameters[1].states[0] = at[2], parameters[1].states[1] = at[3];
    SkyStage stage = {.parameters = parameters,
                      .parameter_count = 2,
                      .lists = {[SKY_LIST_SQUARES] = {.calls = &squares, .count = 1}},
                      .slot_count = 1};
    stage.space_bytes[SKY_SPACE_STATE] = 6 * 4 * COUNT;
    const SkyProgram program = {.stages = &stage, .stage_count = 1};
    Diagnostics diagnostics = {0};
    double found[2];
    for (int threads = 1; threads <= 2; threads++) {
        Execution execution;
        assert_true(execution_open(&execution, &program, threads, NULL, &diagnostics));
        float *tensor[5];
        for (int i = 0; i < 5; i++) tensor[i] = execution_address(&execution, 0, 0, at[i]);
        for (int i = 0; i < COUNT; i++) tensor[0][i] = 1e-3f * (float)(i % 977), tensor[1][i] = 1, tensor[2][i] = 1e30f;
        tensor[4][0] = NAN; /* frozen: it is what the user gave */
        found[threads - 1] = execution_squares(&execution, 0, EXECUTION_GRADIENT)[1];
        assert_true(execution_squares(&execution, 0, EXECUTION_GRADIENT)[0] == 0);
        assert_true(execution_squares(&execution, 0, EXECUTION_VALUE)[1] == COUNT);
        int which = 0;
        assert_null(execution_not_finite(&execution, 0, &which));
        tensor[3][COUNT - 1] = INFINITY;
        assert_ptr_equal(execution_not_finite(&execution, 0, &which), &parameters[1]);
        assert_int_equal(which, 1);
        tensor[1][COUNT - 1] = NAN;
        assert_ptr_equal(execution_not_finite(&execution, 0, &which), &parameters[1]);
        assert_int_equal(which, -1);
        assert_null(execution_spot_not_finite(&execution, 0));
        tensor[1][PART / 2] = NAN;
        assert_ptr_equal(execution_spot_not_finite(&execution, 0), &parameters[1]);
        for (int i = 0; i < COUNT; i++) tensor[0][i] = 1, tensor[1][i] = 2, tensor[2][i] = 3;
        parallel_add(threads, tensor[2], (float *[]){tensor[1], tensor[2], tensor[0]}, 3, COUNT);
        for (int i = 0; i < COUNT; i++) assert_true(tensor[2][i] == 6 && tensor[1][i] == 2 && tensor[0][i] == 1);
        execution_close(&execution);
    }
    double sum = 0;
    for (int i = 0; i < COUNT; i++) sum += pow(1e-3 * (i % 977), 2);
    assert_true(found[0] == found[1] && fabs(found[0] / sum - 1) < 1e-6);
}

static void parameters_start_and_decay_as_told(void **state)
{
    (void)state;
    const SkyLocation operands[] = {{.space = SKY_SPACE_STATE, .offset = 4 * COUNT},     {.space = SKY_SPACE_STEP},
                                    {.space = SKY_SPACE_STATE, .offset = 8 * COUNT},     {.space = SKY_SPACE_STEP},
                                    {.space = SKY_SPACE_STATE, .offset = 4 * COUNT + 4}, {.space = SKY_SPACE_STEP},
                                    {.space = SKY_SPACE_STATE, .offset = 8 * COUNT + 4}, {.space = SKY_SPACE_STEP}};
    const SkyCall update[] = {
        {.kernel = read_decay, .operands = operands, .operand_count = 2, .units = 1, .name = "a"},
        {.kernel = read_decay, .operands = operands + 2, .operand_count = 2, .units = 1, .name = "b"},
        {.kernel = read_decay, .operands = operands + 4, .operand_count = 2, .units = 1, .name = "a, later"},
        {.kernel = read_decay, .operands = operands + 6, .operand_count = 2, .units = 1, .name = "b, later"}};
    SkyParameter parameters[2] = {
        {.value = {.name = "weight", .dtype = DTYPE_F32, .rank = 1, .dim = {COUNT}, .bytes = 4 * COUNT},
         .update_stride = 2,
         .initial_deviation = 2},
        {.value = {.name = "bias", .dtype = DTYPE_F32, .rank = 1, .dim = {4}, .bytes = 16},
         .update = 1,
         .update_stride = 2,
         .decay_exempt_class = 1,
         .initial_mean = 0.5f}};
    parameters[0].value.location = parameters[0].gradient = (SkyLocation){.space = SKY_SPACE_STATE, .offset = 0};
    parameters[1].value.location = (SkyLocation){.space = SKY_SPACE_STATE, .offset = 12 * COUNT};
    SkyStage stage = {.parameters = parameters,
                      .parameter_count = 2,
                      .lists[SKY_LIST_UPDATE] = {.calls = update, .count = 4},
                      .slot_count = 1};
    stage.space_bytes[SKY_SPACE_STATE] = 12 * COUNT + 64;
    const SkyProgram program = {.stages = &stage, .stage_count = 1, .seed = 9};
    Diagnostics diagnostics = {0};
    Execution execution;
    assert_true(execution_open(&execution, &program, 1, NULL, &diagnostics));
    assert_true(parameters_initialize(&execution, ".", &diagnostics));
    static float drawn[COUNT];
    parameter_draw("weight", 9, 0, 2, drawn, COUNT);
    assert_memory_equal(drawn, execution_address(&execution, 0, 0, parameters[0].value.location), sizeof drawn);
    const float *bias = execution_address(&execution, 0, 0, parameters[1].value.location);
    for (int i = 0; i < 4; i++) assert_true(bias[i] == 0.5f);

    step_scalars(execution.step, &program.optimizer, 1, 0.5, 0);
    assert_true(execution_run(&execution, 0, SKY_LIST_UPDATE, 0, &diagnostics));
    assert_true(*(float *)execution_address(&execution, 0, 0, operands[2]) == 0.5f);
    execution_exempt_from_decay(&execution, 1u << 1);
    assert_true(execution_run(&execution, 0, SKY_LIST_UPDATE, 0, &diagnostics));
    for (int later = 0; later <= 4; later += 4) {
        assert_true(*(float *)execution_address(&execution, 0, 0, operands[later]) == 0.5f);
        assert_true(*(float *)execution_address(&execution, 0, 0, operands[later + 2]) == 0);
    }
    execution_close(&execution);
}

/* Bytes, of a line of /proc/self/status; 0 where there is none. */
static size_t own_memory(const char *line)
{
    size_t kilobytes = 0;
    char text[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (status && !kilobytes && fgets(text, sizeof text, status))
        if (strncmp(text, line, strlen(line)) == 0) kilobytes = strtoul(text + strlen(line), NULL, 10);
    if (status) fclose(status);
    return kilobytes << 10;
}

/* Lets VmHWM begin anew. */
static bool forget_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return false;
    bool ok = fputs("5", file) >= 0;
    return fclose(file) == 0 && ok;
}

/* Of a file with a large value, only a piece is resident at a time. */
static void initial_values_are_copied_in_pieces(void **state)
{
    (void)state;
    enum { BYTES = 96 << 20, MOST = 24 << 20 };
    if (!forget_peak() || !own_memory("VmHWM:")) {
        printf("this system does not say how much memory a process had at most\n");
        skip();
    }
    unsigned char *values = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) values[i] = (unsigned char)(i * 2654435761u >> 24);
    Scratch scratch = scratch_file(values, BYTES);
    SkyParameter parameter = {.value = {.name = "large", .rank = 1, .dim = {BYTES / 4}, .bytes = BYTES},
                              .initial_file = scratch.path,
                              .initial_check = hash_bytes(values, BYTES).low};
    parameter.value.location = parameter.gradient = (SkyLocation){.space = SKY_SPACE_STATE};
    SkyStage stage = {.parameters = &parameter, .parameter_count = 1, .slot_count = 1};
    stage.space_bytes[SKY_SPACE_STATE] = BYTES;
    const SkyProgram program = {.stages = &stage, .stage_count = 1};
    Diagnostics diagnostics = {0};
    Execution execution;
    assert_true(execution_open(&execution, &program, 1, NULL, &diagnostics));
    unsigned char *place = execution_address(&execution, 0, 0, parameter.value.location);
    memset(place, 1, BYTES);
    forget_peak();
    size_t before = own_memory("VmRSS:");
    assert_true(parameters_initialize(&execution, ".", &diagnostics));
    size_t most = own_memory("VmHWM:");
    if (most > before + MOST) fail_msg("%zu bytes more than the %zu before", most - before, before);
    assert_memory_equal(place, values, BYTES);
    execution_close(&execution);
    unlink(scratch.path);
    free(values);
}

static void decay(void *const *operands, int64_t begin, int64_t end, void *scratch, int64_t limit)
{
    (void)scratch, (void)limit;
    for (int64_t i = begin; i < end; i++) ((volatile float *)operands[0])[i] *= 0.9f;
}

/* Whoever calls keeps its own way with them. */
static void calls_leave_no_subnormal_numbers(void **state)
{
    (void)state;
    const SkyLocation operand = {.space = SKY_SPACE_STATE};
    const SkyCall call = {.kernel = decay,
                          .operands = &operand,
                          .operand_count = 1,
                          .units = UNITS,
                          .nanoseconds = 1000000,
                          .name = "decay"};
    SkyStage stage = {
        .lists = {[SKY_LIST_FORWARD] = {.calls = &call, .count = 1}, [SKY_LIST_UPDATE] = {.calls = &call, .count = 1}},
        .slot_count = 1};
    stage.space_bytes[SKY_SPACE_STATE] = UNITS * sizeof(float);
    const SkyProgram program = {.stages = &stage, .stage_count = 1};
    Diagnostics diagnostics = {0};
    Execution execution;
    assert_true(execution_open(&execution, &program, 2, NULL, &diagnostics));
    volatile float *moment = execution_address(&execution, 0, 0, operand);
    for (SkyListKind list = SKY_LIST_FORWARD; list <= SKY_LIST_UPDATE; list += SKY_LIST_UPDATE - SKY_LIST_FORWARD) {
        for (int i = 0; i < UNITS; i++) moment[i] = 0x1p-130F;
        assert_true(execution_run(&execution, 0, list, 0, &diagnostics));
        for (int i = 0; i < UNITS; i++) assert_true(moment[i] == 0);
    }
    volatile float least = 0x1p-126F;
    assert_true(least * 0.5F > 0);
    execution_close(&execution);
}

static void shares_cover_everything_once(void **state)
{
    (void)state;
    for (int threads = 1; threads < 9; threads++)
        for (int64_t count = 0; count < 40; count++) {
            assert_int_equal(parallel_begin(count, 0, threads), 0);
            assert_int_equal(parallel_begin(count, threads, threads), count);
            for (int t = 0; t < threads; t++) {
                int64_t size = parallel_begin(count, t + 1, threads) - parallel_begin(count, t, threads);
                assert_true(size == count / threads || size == count / threads + 1);
            }
        }
}

/* ---- Options ---- */

static void options_come_from_the_environment_too(void **state)
{
    (void)state;
    FREED_WITH(arena_free) Arena arena = {0};
    Diagnostics diagnostics = {0};
    TrainingOptions options;
    char *arguments[] = {"stage-00", "--steps", "7", "--warmup", "25%", NULL};
    int count = 5;
    setenv("SKYCC_OPTIONS", "--data\na file\n--steps\n3\n", 1);
    char **all = training_options_with_environment(&arena, &count, arguments);
    assert_true(training_options_parse(&options, count, all, &arena, &diagnostics));
    assert_string_equal(options.data, "a file");
    assert_int_equal(options.steps, 7); /* the command line has the last word */
    assert_true(options.warmup.share == 0.25);
    setenv("SKYCC_OPTIONS", "--data other --seed 18446744073709551615", 1);
    count = 1;
    all = training_options_with_environment(&arena, &count, arguments);
    assert_true(training_options_parse(&options, count, all, &arena, &diagnostics));
    assert_string_equal(options.data, "other");
    assert_true(options.seed == UINT64_MAX);
    for (int i = 0; i < 3; i++) { /* the Trainer's 0.1 is no number of steps */
        char *refused[] = {"stage-00", "--warmup", (char *[]){"0.1", "-1", "101%"}[i], NULL};
        assert_false(training_options_parse(&options, 3, refused, &arena, &diagnostics));
    }
    diagnostics_free(&diagnostics);
    unsetenv("SKYCC_OPTIONS");
}

static int set_up(void **state)
{
    unsetenv("OMP_NUM_THREADS");
    return scratch_folder_enter(state);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "processors") == 0) return printf("%d\n", parallel_processors()) < 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_have_scales_of_their_own),
        cmocka_unit_test(learning_rates_rise_and_fall),
        cmocka_unit_test(step_scalars_have_two_groups),
        cmocka_unit_test(calls_run_on_threads_and_slots),
        cmocka_unit_test(calls_wait_for_each_other),
        cmocka_unit_test(binding_takes_no_processors_away),
        cmocka_unit_test(squares_are_summed_and_checked),
        cmocka_unit_test(parameters_start_and_decay_as_told),
        cmocka_unit_test(initial_values_are_copied_in_pieces),
        cmocka_unit_test(calls_leave_no_subnormal_numbers),
        cmocka_unit_test(fewer_lines_take_less_time),
        cmocka_unit_test(shares_cover_everything_once),
        cmocka_unit_test(options_come_from_the_environment_too),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_folder_leave);
}
