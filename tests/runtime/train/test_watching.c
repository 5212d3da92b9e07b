/* Evaluations while training: what is measured, the best that is kept, the patience that ends. The toy program of
 * toy_program.c under mpiexec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/diagnostics.h"
#include "runtime/storage/checkpoint_files.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"
#include "tests/runtime/train/toy_runs.h"

/* As train(), but with what is said on the way. */
static int train_aloud(const char *stages, const char *options)
{
    return run("TOY_STAGES=%s timeout 300 mpiexec.mpich -n %d %s %s", stages, rank_count(stages), TOY_PROGRAM, options);
}

/* The step and all metrics of every step of the log. */
static char *metrics_of(const char *log)
{
    assert_int_equal(run("cut -d, -f1,8- %s", log), 0);
    return strdup(printed);
}

/* Updates that take 60 ms instead of 4 on each of two ranks, and steps that are as planned but for a few percent. */
static void the_largest_cause_of_another_step_time_is_named(void **state)
{
    (void)state;
    assert_int_equal(train_aloud("0,1", "--data data --steps 4"), 0);
    assert_printed("Largest cause: waiting for messages of stage ");
    assert_printed(" s a step instead of 0.400 s\n");
    setenv("TOY_WAIT", "0.06", 1);
    setenv("TOY_PLANNED", "0.02", 1);
    assert_int_equal(train_aloud("0,1", "--data data --steps 4"), 0);
    assert_printed("Largest cause: update of stage ");
    assert_printed(" on toy took ");
    assert_printed(" s a step instead of 0.00400 s\n");
    setenv("TOY_MICROBATCHES", "0.01", 1); /* so that what is planned for 4 of them takes longer than this */
    assert_int_equal(train_aloud("0,1", "--data data --steps 4"), 0);
    assert_printed("Largest cause: a step had 4.0 micro-batches on average instead of 0.0\n");
    unsetenv("TOY_MICROBATCHES");
    setenv("TOY_PLANNED", "0.5", 1); /* slower than planned for its first step alone, which no cause is about */
    setenv("TOY_FIRST", "2.5", 1);
    assert_int_equal(train_aloud("0,1", "--data data --steps 4"), 0);
    assert_printed("(planned 0.500 s, +");
    assert_null(strstr(printed, "Largest cause"));
    unsetenv("TOY_FIRST");
    setenv("TOY_PLANNED", "0", 1);
    assert_int_equal(train_aloud("0,1", "--data data --steps 4"), 0);
    assert_null(strstr(printed, "Largest cause"));
    unsetenv("TOY_WAIT");
    unsetenv("TOY_PLANNED");
}

static void metrics_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    const char *options = "--data data --eval-data data --steps 6 --eval-every 2 --log log";
    assert_int_equal(run("TOY_STAGES=0 %s %s", TOY_PROGRAM, options), 0);
    char *expected = metrics_of("log");
    assert_non_null(strstr(expected, "step,eval_loss,eval_accuracy,eval_f1,eval_matthews,eval_pearson,eval_spearman,"
                                     "eval_perplexity,eval_exact\n1,,,,,,,,\n2,"));
    assert_int_equal(train_aloud("0,1,2", options), 0);
    assert_printed("AdamW: learning rate 0.01 (1 warm-up step, linear decay to 0 at step 6), "
                   "weight decay 0.01 (not on biases and "
                   "norms), no gradient clipping\n");
    assert_printed("\nStep time ");
    assert_printed(" s (planned 0.500 s, -");
    assert_printed(", accuracy ");
    assert_printed("%, f1 ");
    assert_printed(", matthews ");
    char *have = metrics_of("log");
    assert_string_equal(have, expected);
    free(have);
    free(expected);
    assert_int_equal(
        run("TOY_STAGES=0 %s --data data --eval-data data --steps 2 --metric perplexity,f1-macro --log log",
            TOY_PROGRAM),
        0);
    assert_int_equal(run("tail -n 1 log | grep -E '^2,([^,]+,){5}[^,]*,[^,]+,,[^,]+,,,,[^,]+,$'"), 0);
}

static CheckpointManifest manifest_of(const char *directory, int64_t step)
{
    Diagnostics diagnostics = {0};
    CheckpointManifest manifest;
    assert_true(checkpoint_read_manifest(&manifest, directory, step, &diagnostics));
    free(manifest.files);
    return manifest;
}

/* The step of the greatest value of this column, the earliest of equals. */
static int best_in_log(const char *log, int column)
{
    assert_int_equal(run("awk -F, 'NR > 1 && $%d && $%d + 0 > most { best = $1; most = $%d } END { print best }' %s",
                         column, column, column, log),
                     0);
    return atoi(printed);
}

static void the_best_is_kept(void **state)
{
    (void)state;
    assert_int_equal(train_aloud("0,1", "--data data --eval-data data --steps 12 --eval-every 1 --checkpoint kept "
                                        "--checkpoint-every 3 --keep 1 --keep-best accuracy --log log"),
                     0);
    assert_printed("best accuracy: ");
    int best = best_in_log("log", 9);
    assert_true(best > 0);
    CheckpointManifest of_best = manifest_of("kept/best", best), last = manifest_of("kept", 12);
    assert_string_equal(of_best.best.metric, "accuracy");
    assert_int_equal(of_best.best.step, best);
    assert_int_equal(of_best.best.waited, 0);
    assert_int_equal(last.best.step, best);
    assert_int_equal(last.best.waited, 12 - best);
    assert_int_equal(run("ls kept kept/best | grep -c step-"), 0);
    assert_string_equal(printed, "2\n");
}

static void patience_ends_a_run_in_parts_as_one_run(void **state)
{
    (void)state;
    const char *rest = "--data data --eval-data data --eval-every 2 --patience 3 --lr 0 --log log";
    char options[200];
    snprintf(options, sizeof options, "%s --steps 100 --checkpoint one", rest);
    assert_int_equal(train_aloud("0,1", options), 0);
    assert_printed("ended by --patience: loss did not get better in 3 evaluations");
    assert_int_equal(manifest_of("one", 8).best.waited, 3);
    char *expected = metrics_of("log");
    for (int steps = 6; steps <= 100; steps += 94) {
        snprintf(options, sizeof options, "%s --steps %d --checkpoint two --resume", rest, steps);
        assert_int_equal(train_aloud("0,1", options), 0);
    }
    char *have = metrics_of("log");
    assert_string_equal(have, expected);
    free(have);
    free(expected);
    assert_int_equal(manifest_of("two", 8).best.step, 2);
    /* What other rows gave is not compared. */
    write_data("others", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_everywhere = 3});
    must_run("cp -r two three && TOY_STAGES=0 %s --data data --eval-data others --eval-every 2 --steps 10 --patience 3 "
             "--checkpoint three --resume --quiet",
             TOY_PROGRAM);
    assert_printed("the best loss until here says nothing about the best loss of others");
    assert_int_equal(manifest_of("three", 10).best.step, 10);
    must_run("TOY_STAGES=0 %s --data data --eval-data data --steps 11 --checkpoint three --resume --quiet",
             TOY_PROGRAM);
    assert_printed("data: warning: is not the evaluation data that the checkpoint was made with");
    /* Going on needs more patience. */
    snprintf(options, sizeof options, "%s --steps 10 --checkpoint two --resume --patience 9", rest);
    assert_int_equal(train_aloud("0,1", options), 0);
    assert_int_equal(manifest_of("two", 10).best.waited, 4);
}

static void what_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--eval-data data --metric spearman", "spearman cannot be measured with labels that are classes"},
        {"--eval-data data --metric f1-binary", "f1-binary is for two classes, but this model has 3"},
        {"--eval-data data --metric f1-macro,f1-binary", "--metric takes one of f1-macro, f1-binary and f1-micro"},
        {"--eval-data data --metric accuracy,f2", "not 'accuracy,f2'"},
        {"--eval-data data --checkpoint c --keep-best pearson", "pearson cannot be measured"},
        {"--eval-data data --checkpoint c --keep-best f2", "not 'f2'"},
        {"--eval-data data --keep-best f1", "--keep-best needs --checkpoint DIR"},
        {"--patience 2", "need --eval-data FILE"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 1 %s", TOY_PROGRAM, cases[i][0]), 2);
        assert_printed(cases[i][1]);
    }
    must_run("echo step,loss > other; mkdir -p there; TOY_STAGES=0 %s --data data --steps 1 --checkpoint there --quiet",
             TOY_PROGRAM);
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 2 --checkpoint there --resume --log other", TOY_PROGRAM),
                     1);
    assert_printed("other: error: is no log with the columns that this run writes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_cause_of_another_step_time_is_named),
        cmocka_unit_test(metrics_do_not_depend_on_the_cut),
        cmocka_unit_test(the_best_is_kept),
        cmocka_unit_test(patience_ends_a_run_in_parts_as_one_run),
        cmocka_unit_test(what_cannot_be_measured_is_refused),
    };
    return cmocka_run_group_tests(tests, toy_set_up, scratch_folder_leave);
}
