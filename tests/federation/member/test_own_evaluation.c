/* Which global models a site takes, by its own rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <unistd.h>

#include "federation/member/own_evaluation.h"
#include "tests/common/scratch.h"

static OwnEvaluation judge(int64_t round, const char *first, double step_loss)
{
    OwnEvaluation own;
    Diagnostics diagnostics = {0};
    if (first) {
        FILE *file = fopen("first", "w");
        fputs(first, file);
        fclose(file);
    }
    assert_true(own_evaluation_read(&own, "e.csv", first ? "first" : NULL, step_loss, round, &diagnostics));
    return own;
}

static void a_model_that_has_collapsed_is_known(void **state)
{
    (void)state;
    OwnEvaluation own = judge(0, "labels 40\nloss 0.7\naccuracy 0.5\nf1 nan\n", NAN);
    assert_true(own.rows.rows == 40 && own.rows.right_of == 40 && own.rows.loss == 0.7 && !own.collapsed);
    assert_false(judge(1, "labels 40\nloss 0.5\naccuracy 0.8\n", NAN).collapsed);
    assert_false(judge(2, "labels 40\nloss 0.01\naccuracy 0.9\n", NAN).collapsed);
    assert_false(judge(3, "labels 40\nloss 0.6\naccuracy 0.8\n", NAN).collapsed); /* no worse than the first */
    assert_true(judge(4, "labels 40\nloss 80\naccuracy 0.8\n", NAN).collapsed);
    assert_true(judge(4, "labels 40\nloss 0.7\naccuracy 0.3\n", NAN).collapsed);
    assert_true(judge(4, "labels 40\nloss nan\naccuracy 0.8\n", NAN).collapsed);
    assert_false(judge(4, "labels 40\nloss 0.7\naccuracy 0.8\n", NAN).collapsed); /* those are no measure */
    assert_false(judge(2, "labels 40\nloss 0.4\naccuracy 0.8\n", NAN).collapsed); /* gone back */
}

/* Of five rows none may be right by chance where two were; of 500 that says something. */
static void few_rows_do_not_condemn_a_model(void **state)
{
    (void)state;
    judge(0, "labels 5\nloss 0.7\naccuracy 0.4\n", NAN);
    assert_false(judge(1, "labels 5\nloss 0.7\naccuracy 0\n", NAN).collapsed);
    unlink("e.csv");
    judge(0, "labels 500\nloss 0.7\naccuracy 0.4\n", NAN);
    assert_true(judge(1, "labels 500\nloss 0.7\naccuracy 0.1\n", NAN).collapsed);
}

static void without_rows_held_out_the_first_step_says_it(void **state)
{
    (void)state;
    OwnEvaluation own = judge(0, NULL, 0.7);
    assert_true(own.rows.rows == 0 && own.loss == 0.7 && !own.collapsed);
    assert_true(judge(1, NULL, 9).collapsed);
    assert_true(judge(1, NULL, INFINITY).collapsed);
    assert_false(judge(1, NULL, NAN).collapsed); /* the log does not say */
    assert_false(judge(1, NULL, 6.9).collapsed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_that_has_collapsed_is_known, scratch_folder_enter,
                                        scratch_folder_leave),
        cmocka_unit_test_setup_teardown(few_rows_do_not_condemn_a_model, scratch_folder_enter, scratch_folder_leave),
        cmocka_unit_test_setup_teardown(without_rows_held_out_the_first_step_says_it, scratch_folder_enter,
                                        scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
