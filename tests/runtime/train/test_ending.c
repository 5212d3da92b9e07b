/* How runs end that do not reach their last step, by what goes wrong or because somebody wants it: the toy program of
 * toy_program.c under mpiexec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/common/command.h"
#include "tests/common/scratch.h"
#include "tests/runtime/train/toy_runs.h"

/* ---- What goes wrong on the way ---- */

/* Whoever kills ranks that are left must not decide whether a last word is read: ranks write theirs to a file. Returns
 * the exit code; `attempts` tenths of a second are waited for the word. */
static int run_to_last_word(const char *stages, const char *fault, const char *options, const char *word, int attempts)
{
    return run("rm -f errors; TOY_STAGES=%s TOY_FAULT='%s' timeout 300 mpiexec.mpich -n %d sh -c "
               "'exec %s --quiet %s 2>>errors'; code=$?; "
               "for i in $(seq %d); do grep -F '%s' errors && break; sleep 0.1; done; cat errors; exit $code",
               stages, fault, rank_count(stages), TOY_PROGRAM, options, attempts, word);
}

static void assert_last_word(const char *stages, const char *fault, const char *options, const char *word)
{
    assert_int_not_equal(run_to_last_word(stages, fault, options, word, 600), 0);
    assert_printed(word);
}

/* Rank 1 hangs: the others name it. On a busy machine a short time-out may be over before ranks that are well have
 * started, or have answered: then it is tried with a longer one. */
static void assert_named_for_hanging(int timeout)
{
    char options[64], of_stage[96], of_rank[96], warned[96];
    snprintf(options, sizeof options, "--data data --steps 5 --timeout %d", timeout);
    snprintf(of_stage, sizeof of_stage, "rank 1 (toy, stage 1) has not answered for %d seconds; waited for ", timeout);
    snprintf(of_rank, sizeof of_rank, "rank 1 (toy) has not answered for %d seconds; waited for ", timeout);
    snprintf(warned, sizeof warned, "has not answered for %d seconds; waiting for ", timeout / 2);
    int code = run_to_last_word("0,1,2,3", "hang 1 2", options, "; waited for", 20);
    if ((strstr(printed, of_stage) || strstr(printed, of_rank)) && strstr(printed, warned))
        assert_int_equal(code, 6);
    else if (timeout < 50)
        assert_named_for_hanging(5 * timeout);
    else
        fail_msg("rank 1 is not named: %s", printed);
}

static void a_rank_that_dies_is_named(void **state)
{
    (void)state;
    assert_last_word("0,1,2,3", "kill 1 3", "--data data --steps 5", "rank 1 (toy), step 3: killed by signal 9");
    assert_last_word("0,1,2,3", "orphan 2 4", "--data data --steps 5",
                     "rank 2 (toy), step 4: killed by signal 9 (Killed)");
    assert_null(strstr(printed, "rank 1 (toy)"));
}

static void a_file_that_is_cut_short_while_it_is_read_is_named(void **state)
{
    (void)state;
    assert_int_equal(run("cp data cut"), 0);
    assert_last_word("0,1", "cut 0 3", "--data cut --steps 5", /* whichever rank reads it first */
                     " (toy), step 4: cut was cut short, or could not be read, while it was in use");
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    assert_named_for_hanging(2);
}

/* When the other ranks are done, or there is none, nobody waits for it but the process that watches it. */
static void a_rank_that_is_stopped_does_not_stay_for_ever(void **state)
{
    (void)state;
    assert_int_equal(run("TOY_STAGES=0 timeout 60 %s --data data --steps 1000000 --quiet --timeout 1 & watcher=$!; "
                         "until worker=$(pgrep -P $(pgrep -P $watcher)); do sleep 0.1; done; sleep 0.5; "
                         "kill -STOP $worker; wait $watcher",
                         TOY_PROGRAM),
                     6);
    assert_printed("has not answered for twice --timeout: a signal stopped it");
    assert_printed("skycc: warning: rank 0 (toy), step ");
    assert_printed("a signal has stopped this process: 'kill -CONT ");
}

/* Ranks that have done their work wait for a launcher that answers late, as on a busy machine. */
static void a_launcher_may_answer_late(void **state)
{
    (void)state;
    assert_int_equal(run("export TOY_STAGES=0; mpiexec.mpich -n 1 %s --data data --steps 200 --log late --quiet & "
                         "launcher=$!; until grep -qs '^1,' late; do sleep 0.02; done; proxy=$(pgrep -P $launcher); "
                         "kill -STOP $proxy; sleep 2.5; kill -CONT $proxy; wait $launcher",
                         TOY_PROGRAM),
                     0);
}

/* A launcher takes no notice of what dies before it has called MPI_Init, where the others wait without a limit. */
static void a_rank_that_never_starts_ends_the_run(void **state)
{
    (void)state;
    assert_last_word("0,1,2,3", "kill-early 1 0", "--data data --steps 5", "rank 1 (toy), before training: killed");
    assert_int_equal(train("0,1", "TOY_FAULT='kill-early 0 0'", "--data data --steps 5"), 6);
    assert_last_word("0,1", "hang-early 1 0", "--data data --steps 5 --timeout 2",
                     "(toy), before training: not all ranks have started within --timeout");
}

/* MPICH over TCP often does not get out of MPI_Finalize. */
static void a_run_over_tcp_ends(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 3");
    assert_int_equal(train("0,1,2,3", "UCX_TLS=tcp,self UCX_NET_DEVICES=lo", "--data data --steps 3 --log log"), 0);
    assert_losses("log", expected);
    assert_int_equal(train("0,1", "UCX_TLS=tcp,self UCX_NET_DEVICES=lo", "--data absent"), 1);
}

/* ---- Divergence ---- */

static void a_loss_that_is_no_number_ends_the_run(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='surge 3 2'", "--data data --steps 5"), 7);
    assert_printed("rank 3 (toy), step 2: the loss is nan");
}

/* In the step in which it happens, by the rank that has it, though nothing is saved and no norm is computed. */
static void an_update_to_what_is_no_number_ends_the_run(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='nan 1 2'", "--data data --steps 5"), 7);
    assert_printed("rank 1 (toy), step 2: 'layer.2.weight' (stage 1) is not finite after the update");
}

static void steps_without_a_finite_gradient_can_be_skipped(void **state)
{
    (void)state;
    const char *options = "--data data --steps 8 --skip-nonfinite 2 --log log";
    char *expected = reference("TOY_FAULT='spoil 0 3 2'", "--data data --steps 8 --skip-nonfinite 2");
    char *other = reference("", "--data data --steps 8");
    assert_string_not_equal(expected, other);
    free(other);
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='spoil 2 3 2'", options), 0);
    assert_printed(
        "rank 2 (toy), step 4: the gradient of 'layer.4.weight' (stage 2) is not finite: the step is skipped "
        "(2 of at most 2 in a row)");
    assert_losses("log", expected);
    /* Clipping at a norm that no gradient has changes nothing. */
    assert_int_equal(
        train("0,1", "TOY_FAULT='spoil 1 3 2'", "--data data --steps 8 --skip-nonfinite 2 --clip 1e9 --log log"), 0);
    assert_losses("log", expected);
    free(expected);
    /* Nor does the loss of a skipped step end the run. */
    assert_int_equal(train("0,1", "TOY_FAULT='surge 0 3 2'", options), 0);
    assert_int_equal(run("grep -c nan log"), 0);
    assert_string_equal(printed, "2\n");
    assert_int_equal(train("0,1", "TOY_FAULT='spoil 1 3 3'", options), 7);
    assert_printed(
        "rank 1 (toy), step 5: the gradient of 'layer.4.weight' (stage 1) is not finite, nor were those of the "
        "2 steps before, which were skipped");
}

static void what_diverged_replaces_no_checkpoint(void **state)
{
    (void)state;
    const char *options = "--data data --steps 5 --checkpoint good --checkpoint-every 1 --keep 1";
    assert_int_equal(train("0,1,2,3", "TOY_SPARE=0 TOY_FAULT='nan 2 3'", options), 7); /* writes before it goes on */
    assert_printed("rank 2 (toy), step 3: 'layer.4.weight' (stage 2) is not finite");
    assert_int_equal(run("ls -d good/step-*/MANIFEST.json"), 0);
    assert_string_equal(printed, "good/step-00000002/MANIFEST.json\n");
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='spoil 2 3'", "--data data --steps 5 --clip 1"), 7);
    assert_printed("step 3: the gradient of 'layer.4.weight' (stage 2) is not finite;");
    /* Starting again does not help. */
    write_launch_files("diverging", NULL, NULL);
    assert_int_equal(run("TOY_STAGES=0,1 TOY_FAULT='nan 1 2' diverging/train --data data --steps 5 --retries 3"), 7);
    assert_null(strstr(printed, "starting it again"));
}

/* What is frozen has no gradient that could be set to 0. */
static void a_run_with_frozen_layers_diverges_like_any_other(void **state)
{
    (void)state;
    assert_int_equal(
        train("0,1", "TOY_FROZEN=1 TOY_FAULT='spoil 1 3'", "--data data --steps 5 --clip 1 --checkpoint frozen"), 7);
    assert_printed("step 3: the gradient of 'layer.4.weight' (stage 1) is not finite;");
    assert_int_equal(train("0,1", "TOY_FROZEN=1 TOY_FAULT='spoil 1 3'", "--data data --steps 5 --skip-nonfinite 1"), 0);
    write_launch_files("freezing", NULL, NULL);
    assert_int_equal(run("TOY_STAGES=0,1 TOY_FROZEN=1 TOY_FAULT='spoil 0 2' freezing/train --data data --steps 5 "
                         "--clip 1 --retries 3"),
                     7);
    assert_null(strstr(printed, "starting it again"));
}

/* ---- Steps that update nothing ---- */

/* With the same rows in every step, the steps after one that was skipped are those of a run that began there: Adam's
 * bias correction counts updates. So it does after resuming. */
static void skipped_steps_do_not_count_for_bias_correction(void **state)
{
    (void)state;
    const char *common = "--data eight --no-shuffle --schedule-lr constant --warmup 0 --lr 0.05 --clip 1e9";
    char options[256];
    write_data("eight", (Data){.rows = 8, .label_rows = 8, .length = LENGTH});
    snprintf(options, sizeof options, "%s --steps 5", common);
    FREED char *undisturbed = reference("", options);
    snprintf(options, sizeof options, "%s --steps 6 --skip-nonfinite 1", common);
    FREED char *skipped = reference("TOY_FAULT='spoil 0 1 1'", options);
    /* Of each row the loss: those of steps 2 ... 6 are those of 1 ... 5. */
    int step, other;
    char loss[32], other_loss[32];
    const char *mine = strchr(strchr(skipped, '\n') + 1, '\n') + 1, *others = strchr(undisturbed, '\n') + 1;
    for (int i = 1; i <= 5; i++) {
        assert_int_equal(sscanf(mine, "%d,%31[^,]", &step, loss), 2);
        assert_int_equal(sscanf(others, "%d,%31[^,]", &other, other_loss), 2);
        assert_int_equal(step, other + 1);
        assert_string_equal(loss, other_loss);
        mine = strchr(mine, '\n') + 1;
        others = strchr(others, '\n') + 1;
    }
    snprintf(options, sizeof options, "%s --steps 6 --skip-nonfinite 1 --checkpoint skips --log log", common);
    must_run("rm -f log");
    assert_int_equal(run("TOY_STAGES=0 TOY_FAULT='spoil 0 1 1' %s --quiet %s --stop-after 3", TOY_PROGRAM, options), 0);
    assert_int_equal(run("TOY_STAGES=0 %s --quiet %s --resume", TOY_PROGRAM, options), 0);
    assert_losses("log", skipped);
}

/* Of 16 rows the first eight have no label that counts: every other step has nothing to learn from. */
static void steps_without_labels_update_nothing(void **state)
{
    (void)state;
    write_data("some", (Data){.rows = 16, .label_rows = 16, .length = LENGTH, .unlabelled = 8});
    char *expected = reference("", "--data some --no-shuffle --steps 4");
    assert_printed("warning: step 1: no row has a label that counts: the step updates nothing");
    assert_int_equal(train("0,1,2,3", "", "--data some --no-shuffle --steps 4 --log log"), 0);
    assert_losses("log", expected);
    assert_non_null(strstr(expected, "\n1,nan,"));
    assert_null(strstr(expected, "\n2,nan,"));
    assert_non_null(strstr(expected, "\n3,nan,"));
    free(expected);
    /* A loss that is none reaches nothing. */
    assert_int_equal(train("0,1", "", "--data some --no-shuffle --until-loss 100 --log log"), 0);
    assert_int_equal(run("tail -n 1 log | cut -d, -f1"), 0);
    assert_string_equal(printed, "2\n");
    write_data("none", (Data){.rows = 16, .label_rows = 16, .length = LENGTH, .unlabelled = 16});
    assert_int_equal(train("0,1", "", "--data none --steps 4"), 1);
    assert_printed("none: error: no row has a label that counts");
    assert_int_equal(train("0,1", "", "--data data --eval-data none --steps 4"), 1);
    assert_printed("none: error: no row has a label that counts");
}

/* The evaluation comes after the fifth step, in the place of the sixth. */
static void an_evaluation_that_is_not_finite_is_never_the_best(void **state)
{
    (void)state;
    const char *options = "--data data --eval-data data --steps 5 --checkpoint watched --keep-best accuracy --log log";
    assert_int_equal(
        run("TOY_STAGES=0,1 TOY_FAULT='surge 0 6 2' timeout 300 mpiexec.mpich -n 2 %s %s", TOY_PROGRAM, options), 7);
    assert_printed("the evaluation after step 5 was not finite");
    assert_null(strstr(printed, "accuracy"));
    assert_int_equal(run("ls watched/step-00000005/MANIFEST.json && ! ls watched/best/step-*"), 0);
}

/* ---- Data that are overwritten ---- */

/* Runs until the log has that many rows, overwrites `data` in place, and waits. */
#define OVERWRITE(with, link, rows)                                                                                    \
    "cp data intact; rm -f log; TOY_STAGES=0,1 TOY_LINK=" link " timeout --foreground 300 over/train --data data "     \
    "--steps 100000 --emulate --log log --quiet & guard=$!; until [ -f log ] && [ $(wc -l <log) -gt " rows " ] || "    \
    "! kill -0 $guard; do sleep 0.02; done; dd if=" with " of=data conv=notrunc 2>/dev/null; wait $guard; code=$?; "   \
    "dd if=intact of=data conv=notrunc 2>/dev/null; exit $code"

static void data_that_are_overwritten_end_the_run(void **state)
{
    (void)state;
    write_launch_files("over", NULL, NULL);
    write_data("ids", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_everywhere = VOCABULARY + 9});
    assert_int_equal(run(OVERWRITE("ids", "0.005", "3")), 1);
    assert_printed("was overwritten while it was in use"); /* before it uses them, or after a step that did not */
    write_data("others", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_everywhere = 3});
    assert_int_equal(run(OVERWRITE("others", "0.005", "3")), 1);
    assert_printed("data: error: was overwritten while it was in use");
    /* An epoch has six steps: it is seen before its end. */
    assert_int_equal(run(OVERWRITE("others", "0.1", "1")), 1);
    assert_printed("data: error: was overwritten while it was in use");
    must_run("[ $(wc -l <log) -lt 6 ]");
    /* Written again with the same content they are as good as before. */
    assert_int_equal(run("cp data intact; rm -f log; TOY_STAGES=0,1 TOY_LINK=0.005 over/train --data data --steps 30 "
                         "--emulate --log log --quiet & guard=$!; until [ -f log ] && [ $(wc -l <log) -gt 3 ] || "
                         "! kill -0 $guard; do sleep 0.02; done; dd if=intact of=data conv=notrunc 2>/dev/null; "
                         "wait $guard"),
                     0);
    /* Resuming says that they are others, and begins with them. */
    must_run("TOY_STAGES=0 %s --data data --steps 3 --checkpoint other --quiet", TOY_PROGRAM);
    assert_int_equal(run("TOY_STAGES=0 %s --data others --steps 5 --checkpoint other --resume --quiet", TOY_PROGRAM),
                     0);
    assert_printed("warning: the checkpoint was made with other data than others: starting at its beginning");
}

/* ---- Outputs that fail ---- */

/* Trains with the shell's redirections; what it ends with, and says on standard error unless that is redirected, is
 * printed. */
static void assert_goes_on(const char *redirections, const char *said)
{
    must_run("rm -rf log errors code through");
    must_run("{ TOY_STAGES=0,1 unread/train --data data --steps 12 --checkpoint through --log log; echo $? >code; } "
             "2>errors %s; cat errors; [ $(cat code) = 0 ] && [ $(wc -l <log) = 13 ] && "
             "ls through/step-00000012/MANIFEST.json",
             redirections);
    if (said) assert_printed(said);
}

static void training_goes_on_without_its_output(void **state)
{
    (void)state;
    const char *said = "standard output cannot be written";
    write_launch_files("unread", NULL, NULL);
    must_run("mkfifo gone");
    for (int by_mpiexec = 0; by_mpiexec < 2; by_mpiexec++) {
        if (by_mpiexec) setenv("MPIEXEC", "mpiexec.mpich", 1);
        assert_goes_on("3<>gone 4>gone 3<&- >&4 4>&-", said); /* a pipe that nobody reads */
        assert_goes_on("| head -n 1", NULL);                  /* which may end before or after the run */
        assert_goes_on(">/dev/full", said);
        assert_goes_on(">&-", NULL);
        assert_goes_on("2>/dev/full", NULL);
        assert_goes_on("2>&-", NULL);
        assert_goes_on("2>&1 | head -n 1", NULL);
        assert_goes_on(">&- 2>&-", NULL);
    }
    unsetenv("MPIEXEC");
    /* Programs that no script starts. */
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 12 --log log >/dev/full", TOY_PROGRAM), 0);
    assert_printed("warning: standard output cannot be written: No space left on device; training goes on without it");
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 12 --log log >&- 2>&-", TOY_PROGRAM), 0);
    must_run("[ $(wc -l <log) = 13 ] && ! grep -q AdamW log");
}

static void outputs_that_cannot_be_written_are_errors(void **state)
{
    (void)state;
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 4 --log /dev/full --quiet", TOY_PROGRAM), 1);
    assert_printed("/dev/full: error: cannot be written: No space left on device");
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 4 --trace /dev/full --quiet", TOY_PROGRAM), 1);
    assert_printed("/dev/full: error: cannot write: No space left on device");
}

/* ---- Starting again ---- */

static void a_failed_run_is_started_again(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 8");
    write_launch_files("again", NULL, NULL);
    const char *options = "--data data --steps 8 --checkpoint saved --checkpoint-every 1 --log log --quiet";
    assert_int_equal(run("TOY_SPARE=0 TOY_STAGES=0,1 TOY_FAULT='kill 1 3' again/train %s --retries=2", options), 6);
    assert_printed("rank 1 (toy), step 7: killed by signal 9");
    assert_printed("starting it again (2 of 2)");
    assert_int_equal(
        run("TOY_SPARE=0 TOY_STAGES=0,1 TOY_FAULT='kill 1 3' again/train %s --resume --retries 1", options), 0);
    assert_losses("log", expected);
}

/* ---- Ending early ---- */

/* A shell's words: begins a long run in `name`, whose steps take 20 ms and more, waits until it trains, and leaves the
 * launcher's number in $train. */
#define BEGIN(name, environment, options)                                                                              \
    "rm -f log; " environment " TOY_STAGES=0,1 TOY_LINK=0.005 timeout --foreground 300 " name                          \
    "/train --data data --steps 100000 --emulate --log log --quiet " options " & guard=$!; "                           \
    "until [ -f log ] && [ $(wc -l <log) -gt 3 ] || ! kill -0 $guard; do sleep 0.02; done; train=$(pgrep -P $guard); "

static void signals_save_and_end(void **state)
{
    (void)state;
    write_launch_files("ends", NULL, NULL);
    assert_int_equal(
        run(BEGIN("ends", "", "--checkpoint asked") "kill -USR1 $train; "
                                                    "until ls asked/step-*/MANIFEST.json || ! kill -0 $train; "
                                                    "do sleep 0.02; done; kill -TERM $train; wait $guard"),
        143);
    assert_int_equal(run("test $(ls asked | wc -l) = 2 && ls asked/step-*/MANIFEST.json | wc -l"), 0);
    assert_string_equal(printed, "2\n");
    /* What was done counts: nothing is lost between the two parts. */
    assert_int_equal(run("tail -n 1 log | cut -d, -f1 && ls asked | sed -n '2s/step-0*//p'"), 0);
    int rows, step;
    assert_int_equal(sscanf(printed, "%d %d", &rows, &step), 2);
    assert_int_equal(rows, step);
    char options[128];
    snprintf(options, sizeof options, "--data data --steps %d --schedule-steps 100000", step + 5);
    char *expected = reference("", options);
    snprintf(options, sizeof options, "--data data --steps %d --checkpoint asked --resume --log log", step + 5);
    assert_int_equal(train("0,1,2,3", "", options), 0);
    assert_losses("log", expected);
    free(expected);
    assert_int_equal(run(BEGIN("ends", "", "--checkpoint interrupted") "kill -INT $train; wait $guard"), 130);
    assert_int_equal(run("ls interrupted/step-*/MANIFEST.json"), 0);
    assert_int_equal(run(BEGIN("ends", "", "") "kill -TERM $train; wait $guard"), 143);
}

/* A signal ends a run before it evaluates a step; who goes on evaluates it first, so that what is watched and the log
 * are those of a run that nobody ended. */
static void an_evaluation_that_a_signal_puts_off_is_made_up_for(void **state)
{
    (void)state;
    const char *options = "--eval-data data --eval-every 1 --keep-best accuracy --schedule-steps 100000 --checkpoint";
    int step;
    write_launch_files("put-off", NULL, NULL);
    assert_int_equal(run(BEGIN("put-off", "", "%s off") "kill -TERM $train; wait $guard", options), 143);
    must_run("tail -n 1 log | cut -d, -f1");
    assert_int_equal(sscanf(printed, "%d", &step), 1);
    must_run("grep -q '\"evaluation_due\": true' off/step-%08d/MANIFEST.json && tail -n 1 log | grep -q ',,,,,,,$'",
             step);
    must_run("TOY_STAGES=0 %s --data data --quiet --steps %d --resume --log log %s off", TOY_PROGRAM, step + 3,
             options);
    must_run("TOY_STAGES=0 %s --data data --quiet --steps %d --log whole %s on", TOY_PROGRAM, step + 3, options);
    must_run(
        "for log in log whole; do cut -d, -f1-3,8- $log >$log.columns; done; cmp log.columns whole.columns; "
        "for run in off on; do grep '\"best\"' $run/step-%08d/MANIFEST.json >$run.best; done; cmp off.best on.best",
        step + 3);
}

/* A shell's words: starts a long run in `folder`, waits for some seconds, and sends its launcher the signal. */
static int end_early(const char *folder, double seconds, const char *signal)
{
    return run("TOY_STAGES=0,1 TOY_LINK=0.005 timeout --foreground -k 1 60 %s/train --data data --steps 100000 "
               "--emulate --quiet & guard=$!; until train=$(pgrep -P $guard); do :; done; sleep %.2f; "
               "kill -%s $train; wait $guard",
               folder, seconds, signal);
}

/* Wherever the launchers are on their way, nobody has to say it twice. mpiexec may fail of it before it has started. */
static void what_is_to_end_before_it_has_started_ends(void **state)
{
    (void)state;
    write_launch_files("soon", NULL, NULL);
    for (int i = 0; i < 8; i++) {
        int code = end_early("soon", i * 0.05, "TERM");
        if (code != 143 && code != 6) fail_msg("told to end after %d ms, it ended with %d: %s", i * 50, code, printed);
    }
    /* Signals that come before the launcher takes any are lost: here they are for as long as its program waits. */
    must_run("cd soon && mv stage-00 stage-00-itself && printf '%%s\\n' '#!/bin/sh' \"trap '' TERM INT\" "
             "'[ \"$1\" != --launch ] || sleep 0.5' 'exec \"$0-itself\" \"$@\"' >stage-00 && chmod +x stage-00");
    assert_int_equal(end_early("soon", 0.2, "TERM"), 143);
    assert_int_equal(end_early("soon", 0.2, "INT"), 130);
}

/* A rank that hangs agrees to nothing. Further interrupts do no harm: two that come too fast are taken for one. */
static void the_second_interrupt_ends_at_once(void **state)
{
    (void)state;
    write_launch_files("twice", NULL, NULL);
    assert_int_equal(run(BEGIN("twice", "TOY_FAULT='hang 1 5'", "") "while kill -INT $train; do sleep 0.5; done; "
                                                                    "wait $guard"),
                     130);
    /* The launcher may return before the last of them has died. */
    assert_int_equal(run("for i in $(seq 600); do pgrep -f ^$PWD/twice/stage || exit 9; sleep 0.1; done"), 9);
}

/* Whoever of those above the ranks is killed, they are soon gone. */
static void no_rank_survives_its_launcher(void **state)
{
    (void)state;
    static const char *const victims[] = {"$train", "$(pgrep -P $train)", "$(pgrep -P $(pgrep -P $train))"};
    write_launch_files("orphans", NULL, NULL);
    for (int i = 0; i < 3; i++) {
        int code = run(
            BEGIN("orphans", "", "") "kill -KILL %s; for i in $(seq 600); do pgrep -f ^$PWD/orphans/stage || exit 9; "
                                     "sleep 0.1; done; pkill -KILL -f ^$PWD/orphans/stage; exit 8",
            victims[i]);
        if (code != 9) fail_msg("ranks outlive %s: %s", victims[i], printed);
    }
}

/* Of two runs on one directory the second waits for a while, as for one that is about to end, and is refused. How long
 * the first takes to end is up to the machine: the second is started until it is let in. */
static void two_runs_do_not_share_their_checkpoints(void **state)
{
    (void)state;
    write_launch_files("first", NULL, NULL);
    const char *second = "--data data --steps 3 --checkpoint shared";
    assert_int_equal(
        run(BEGIN("first", "",
                  "--checkpoint shared") "begin=$(date +%%s); TOY_STAGES=0 %s %s --quiet; code=$?; "
                                         "[ $(($(date +%%s) - begin)) -ge 5 ] || exit 98; "
                                         "(sleep 1; kill -TERM $train) & "
                                         "for i in $(seq 20); do TOY_STAGES=0 %s %s --quiet && break; done; "
                                         "wait $guard; exit $code",
            TOY_PROGRAM, second, TOY_PROGRAM, second),
        6);
    assert_printed("shared: error: another run is using this directory for its checkpoints");
    must_run("ls shared/step-00000003/MANIFEST.json; mkdir piped; mkfifo piped/.lock-run");
    assert_int_equal(train("0,1", "", "--data data --steps 3 --checkpoint piped"), 1);
    assert_printed("piped/.lock-run: error: cannot be made a lock: it is no regular file");
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_file_that_is_cut_short_while_it_is_read_is_named),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_rank_that_is_stopped_does_not_stay_for_ever),
        cmocka_unit_test(a_launcher_may_answer_late),
        cmocka_unit_test(a_rank_that_never_starts_ends_the_run),
        cmocka_unit_test(a_run_over_tcp_ends),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run),
        cmocka_unit_test(an_update_to_what_is_no_number_ends_the_run),
        cmocka_unit_test(steps_without_a_finite_gradient_can_be_skipped),
        cmocka_unit_test(what_diverged_replaces_no_checkpoint),
        cmocka_unit_test(a_run_with_frozen_layers_diverges_like_any_other),
        cmocka_unit_test(skipped_steps_do_not_count_for_bias_correction),
        cmocka_unit_test(steps_without_labels_update_nothing),
        cmocka_unit_test(an_evaluation_that_is_not_finite_is_never_the_best),
        cmocka_unit_test(data_that_are_overwritten_end_the_run),
        cmocka_unit_test(training_goes_on_without_its_output),
        cmocka_unit_test(outputs_that_cannot_be_written_are_errors),
        cmocka_unit_test(a_failed_run_is_started_again),
        cmocka_unit_test(signals_save_and_end),
        cmocka_unit_test(an_evaluation_that_a_signal_puts_off_is_made_up_for),
        cmocka_unit_test(what_is_to_end_before_it_has_started_ends),
        cmocka_unit_test(the_second_interrupt_ends_at_once),
        cmocka_unit_test(no_rank_survives_its_launcher),
        cmocka_unit_test(two_runs_do_not_share_their_checkpoints),
    };
    return cmocka_run_group_tests(tests, toy_set_up, scratch_folder_leave);
}
