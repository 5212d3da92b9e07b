/* Which round was the best, when none got better, and the file that a killed coordinator goes on from. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "federation/evaluations.h"
#include "tests/common/scratch.h"

static void add(Evaluations *evaluations, int64_t round, double loss, double accuracy)
{
    evaluations_add(evaluations, &(Evaluation){round, {loss, accuracy, NAN, NAN, NAN, NAN}});
}

static void the_best_round_is_known_and_patience_ends(void **state)
{
    (void)state;
    Evaluations evaluations = {.metric = evaluation_metric("accuracy"), .patience = 2};
    add(&evaluations, 0, 0.9, 0.5);
    add(&evaluations, 1, 0.8, NAN);
    add(&evaluations, 2, 0.7, 0.6);
    assert_int_equal(evaluations.items[evaluations.best].round, 2);
    add(&evaluations, 3, 0.5, 0.6); /* no better */
    assert_false(evaluations_are_over(&evaluations));
    add(&evaluations, 4, 0.4, 0.55);
    assert_true(evaluations_are_over(&evaluations));
    assert_int_equal(evaluations.items[evaluations.best].round, 2);
    assert_true(evaluations_of(&evaluations, 3)->values[EVALUATION_LOSS] == 0.5);
    assert_null(evaluations_of(&evaluations, 7));
    evaluations_free(&evaluations);
    evaluations = (Evaluations){.metric = EVALUATION_LOSS}; /* the lower the better, and without end */
    add(&evaluations, 0, 0.9, 0.5);
    add(&evaluations, 1, 0.7, 0.4);
    add(&evaluations, 2, 0.8, 0.6);
    assert_int_equal(evaluations.best, 1);
    assert_false(evaluations_are_over(&evaluations));
    evaluations_free(&evaluations);
    assert_int_equal(evaluation_metric("rouge"), -1);
}

static void what_was_evaluated_is_read_again(void **state)
{
    (void)state;
    Evaluations evaluations = {.metric = 1}, again = {.metric = 1}, back = {.metric = 1};
    Diagnostics diagnostics = {0};
    assert_true(evaluations_read(&again, "e.csv", 9, &diagnostics)); /* there is none yet */
    add(&evaluations, 0, 0.5, 0.25);
    add(&evaluations, 2, 0.25, 0.75);
    add(&evaluations, 4, 0.125, 0.5);
    assert_true(evaluations_write(&evaluations, "e.csv", &diagnostics));
    assert_true(evaluations_read(&again, "e.csv", 9, &diagnostics));
    assert_int_equal(again.count, 3);
    assert_int_equal(again.best, 1);
    assert_true(again.items[2].values[0] == 0.125 && isnan(again.items[2].values[4]));
    assert_true(evaluations_read(&back, "e.csv", 3, &diagnostics)); /* the coordinator went back to round 3 */
    assert_int_equal(back.count, 2);
    FILE *file = fopen("e.csv", "a");
    fputs("6,0.1,0.9", file); /* cut off */
    fclose(file);
    evaluations_free(&again);
    assert_true(evaluations_read(&again, "e.csv", 9, &diagnostics));
    assert_int_equal(again.count, 3);
    file = fopen("other.csv", "w");
    fputs("step,loss\n1,2\n", file);
    fclose(file);
    assert_false(evaluations_read(&back, "other.csv", 9, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "is not what a coordinator wrote");
    evaluations_free(&evaluations);
    evaluations_free(&again);
    evaluations_free(&back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_best_round_is_known_and_patience_ends, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(what_was_evaluated_is_read_again, scratch_folder_enter, scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
