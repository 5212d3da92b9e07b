/* A round's result on top of what was made meanwhile: once, however often a site is killed over it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

#define STEP "at/step-00000000/"
#define FIRST_FILE STEP "rank-00.m0000000.safetensors"

/* The first number of a tensor in the only file of the checkpoint. */
static float first_of(const char *path, const char *name)
{
    Diagnostics diagnostics = {0};
    SafeTensors file;
    float value;
    assert_true(safetensors_open(&file, path, &diagnostics));
    memcpy(&value, safetensors_find(&file, name)->data, sizeof value);
    safetensors_close(&file);
    return value;
}

static void a_checkpoint_is_the_former_or_the_new_one(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    Federation federation = {.compiled = {.identity = {1, 2}, .model_hash = "abc", .low_rank = "", .states = 1}};
    const char *const names[] = {"a", "b"};
    const Shape shapes[] = {{1, {8}}, {2, {2, 2}}};
    const TiedName other = {"bt", "b", true};
    const TiedNames tied = {.items = (TiedName *)&other, .count = 1};
    const FragmentRange b = {8, ELEMENTS};
    GlobalModel model;
    float found[ELEMENTS];
    global_model_open(&model, federation.compiled.identity, names, shapes, 2, false);
    assert_true(checkpoint_check_directory("at", &diagnostics));
    assert_true(site_checkpoint_begin("at", &federation, &model, &tied, (CheckpointManifest){.rows = 3}, &diagnostics));
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = 5;
    model.round = 1;
    assert_int_equal(system("ln " FIRST_FILE " former"), 0);
    assert_true(site_checkpoint_exchange("at", 0, &model, b, &tied, &diagnostics));
    assert_true(site_checkpoint_read("at", 0, false, &federation, &model, false, found, &diagnostics));
    assert_true(found[0] == 0 && found[8] == 5);
    assert_true(first_of(STEP "rank-00.m0000001.safetensors", "bt") == 5 && first_of("former", "b") == 0);
    assert_true(access(FIRST_FILE, F_OK) != 0);
    model.branch = 1;
    for (int again = 0; again < 2; again++) /* what a killed site has restarted is not in the way of its second try */
        assert_true(site_checkpoint_restart("at", 0, &model, &tied, &diagnostics));
    assert_true(site_checkpoint_read("at", 0, false, &federation, &model, false, found, &diagnostics) && found[0] == 5);
    assert_int_equal(system("for file in " STEP
                            "rank-*; do printf '\\300' | dd of=$file bs=1 seek=$(($(stat -c %s $file) "
                            "- 1)) conv=notrunc 2>damage; done"),
                     0);
    model.branch = 2;
    assert_false(site_checkpoint_restart("at", 0, &model, &tied, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "does not have the content that the checkpoint's manifest lists");
    global_model_free(&model);
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
    assert_true(site_checkpoint_exchange("at", 0, &model, all, &tied, &diagnostics));
    model.round = 5;
    for (size_t i = 0; i < ELEMENTS; i++) model.values[i] = 100 - (float)i;
    for (int again = 0; again < 2; again++) {
        take(&federation, &model, part);
        assert_true(site_checkpoint_read("at", 0, false, &federation, &model, false, found, &diagnostics));
        for (size_t i = 0; i < ELEMENTS; i++)
            assert_true(found[i] == (i < part.first ? local[i] : model.values[i] + (local[i] - end[i])));
    }
    global_model_free(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_checkpoint_is_the_former_or_the_new_one, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(a_result_is_added_once, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
