/* A round's result on top of what was made meanwhile: once, however often a site is killed over it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "federation/member/late_result.h"
#include "federation/member/own_model.h"
#include "runtime/storage/checkpoint_directory.h"
#include "tests/common/scratch.h"

enum { ELEMENTS = 12 };

static void take(const Federation *federation, const GlobalModel *result, FragmentRange part)
{
    Diagnostics diagnostics = {0};
    GlobalModel end;
    TiedNames tied = {0};
    assert_true(own_model_open(&end, &federation->compiled, "end.safetensors", &diagnostics));
    assert_int_equal(end.round, 4);
    assert_int_equal(end.step, 0);
    assert_true(late_result_take("at", 0, federation, result, &end, part, &tied, &diagnostics));
    global_model_free(&end);
}

static void a_result_is_added_once(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    Federation federation = {.compiled = {.identity = {1, 2}, .model_hash = "abc", .low_rank = "", .states = 1}};
    const char *const names[] = {"a", "b"};
    const Shape shapes[] = {{1, {8}}, {1, {4}}};
    GlobalModel model;
    TiedNames tied = {0};
    float end[ELEMENTS], local[ELEMENTS], found[ELEMENTS];
    const FragmentRange all = {0, ELEMENTS}, part = {8, ELEMENTS};
    global_model_open(&model, federation.compiled.identity, names, shapes, 2, false);
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = end[i] = (float)i;
    model.round = 4;
    assert_true(checkpoint_check_directory("at", &diagnostics));
    assert_true(site_checkpoint_begin("at", &federation, &model, &tied, (CheckpointManifest){.rows = 3}, &diagnostics));
    assert_true(round_end_write("end.safetensors", "at", 0, &federation, &model, &diagnostics));
    model.round = 3; /* what stage programs would write is no model of round 5 either */
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = local[i] = (float)i + 0.5F;
    assert_true(site_checkpoint_replace("at", 0, &model, all, &tied, &diagnostics));
    model.round = 5;
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = 100 - (float)i;
    for (int again = 0; again < 2; again++) {
        take(&federation, &model, part);
        assert_true(site_checkpoint_read("at", 0, &federation, &model, found, &diagnostics));
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(found[i] == (i < part.first ? local[i] : model.values[i] + (local[i] - end[i])));
    }
    global_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_result_is_added_once, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
