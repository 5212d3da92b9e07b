#include "tests/runtime/train/toy_runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/safetensors.h"
#include "codegen/link/launch.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

int rank_count(const char *stages)
{
    int most = 0;
    for (const char *s = stages; *s; s++)
        if (*s != ',' && *s - '0' > most) most = *s - '0';
    return most + 1;
}

int train(const char *stages, const char *environment, const char *options)
{
    return run("TOY_STAGES=%s %s timeout 300 mpiexec.mpich -n %d %s --quiet %s", stages, environment,
               rank_count(stages), TOY_PROGRAM, options);
}

char *losses(const char *log)
{
    char *text = read_text(log);
    char *out = text;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) next++;
        int commas = 0;
        for (char *c = line; c < next; c++) {
            commas += *c == ',';
            if (commas < 3) *out++ = *c;
        }
        if (commas >= 3) *out++ = '\n';
    }
    *out = '\0';
    return text;
}

void assert_losses(const char *log, const char *expected)
{
    FREED char *have = losses(log);
    assert_string_equal(have, expected);
}

void write_data(const char *name, Data data)
{
    int32_t ids[ROWS * 2 * LENGTH], labels[ROWS];
    uint64_t random = 1;
    for (int i = 0; i < ROWS * 2 * LENGTH; i++) ids[i] = (int32_t)random_draw_below(&random, VOCABULARY);
    for (int i = 0; i < ROWS; i++) labels[i] = ids[i * LENGTH] % CLASSES;
    labels[7] = -100; /* not counted in the loss */
    for (int i = 0; i < data.unlabelled; i++) labels[i] = -100;
    for (int i = 0; i < ROWS * 2 * LENGTH && data.bad_everywhere; i++) ids[i] = data.bad_everywhere;
    if (data.bad_id) ids[3 * LENGTH + 1] = data.bad_id;
    if (data.bad_label) labels[9] = data.bad_label;
    Diagnostics diagnostics = {0};
    SafeTensorsWriter *writer = safetensors_writer();
    Shape id_shape = {2, {data.rows, data.length}}, label_shape = {1, {data.label_rows}};
    int64_t wide[ROWS * 2 * LENGTH];
    for (int i = 0; i < ROWS * 2 * LENGTH; i++) wide[i] = ids[i];
    safetensors_writer_add(writer, "input_ids", data.wide ? DTYPE_I64 : DTYPE_I32, &id_shape,
                           data.wide ? (void *)wide : ids);
    if (!data.without_labels) safetensors_writer_add(writer, "labels", DTYPE_I32, &label_shape, labels);
    assert_true(safetensors_write(writer, name, &diagnostics));
}

int toy_set_up(void **state)
{
    if (scratch_folder_enter(state) != 0) return -1;
    write_data("data", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH});
    return 0;
}

char *reference(const char *environment, const char *options)
{
    assert_int_equal(run("TOY_STAGES=0 %s %s --quiet --log reference %s", environment, TOY_PROGRAM, options), 0);
    return losses("reference");
}

void write_launch_files(const char *name, const char *first_host, const char *second_host)
{
    Diagnostics diagnostics = {0};
    const LaunchRank ranks[] = {{"stage-00", first_host, 1, NULL}, {"stage-01", second_host, 1, ""}};
    assert_int_equal(
        run("mkdir '%s' && cp %s '%s/stage-00' && cp %s '%s/stage-01'", name, TOY_PROGRAM, name, TOY_PROGRAM, name), 0);
    assert_true(launch_files_write(&(LaunchPlan){.ranks = ranks, .rank_count = 2}, name, &diagnostics));
}
