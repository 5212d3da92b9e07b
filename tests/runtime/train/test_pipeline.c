/* The runtime as users meet it: the toy program of toy_program.c under mpiexec, with more ranks than cores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "runtime/storage/checkpoint_files.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"
#include "tests/runtime/train/toy_runs.h"

/* ---- The same training however it is cut ---- */

static const char *const cuts[][2] = {
    {"0,1", "1f1b"},     {"0,1", "gpipe"},     {"0,1,2,3", "1f1b"}, {"0,1,2,3", "gpipe"}, {"0,1,2,3,4,5,6,7", "1f1b"},
    {"0,1,2,0", "1f1b"}, {"0,1,2,0", "gpipe"}, {"0,0,1,1", "1f1b"}, {"1,0,1,0", "gpipe"}, {"0,0,0,0", "1f1b"}};
enum { CUTS = sizeof cuts / sizeof *cuts };

/* Every `stride`-th cut; the first one over MPICH's own shared memory. */
static void check_cuts(int stride, const char *options, const char *expected)
{
    for (int i = 0; i < CUTS; i += stride) {
        char settings[128], all[512];
        snprintf(settings, sizeof settings, "TOY_SCHEDULE=%s MPIR_CVAR_NOLOCAL=%d", cuts[i][1], i > 0);
        snprintf(all, sizeof all, "%s --log log", options);
        if (train(cuts[i][0], settings, all) != 0) fail_msg("%s %s: %s", cuts[i][0], cuts[i][1], printed);
        assert_losses("log", expected);
    }
}

static void losses_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 12");
    assert_non_null(strstr(expected, "\n12,"));
    check_cuts(1, "--data data --steps 12", expected);
}

static void clipping_and_schedules_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    const char *options = "--data data --epochs 2 --clip 0.2 --no-decay bias --weight-decay 0.1 --schedule-lr cosine "
                          "--warmup 20% --lr 0.02 --seed 3";
    char *plain = reference("", "--data data --epochs 2 --lr 0.02 --seed 3"), *expected = reference("", options);
    assert_string_not_equal(plain, expected);
    check_cuts(3, options, expected);
    free(plain);
    free(expected);
}

static double last_loss(const char *text)
{
    const char *line = strrchr(text, ',');
    while (line > text && line[-1] != ',') line--;
    return atof(line);
}

static void weights_tied_across_stages_train_as_one(void **state)
{
    (void)state;
    const char *options = "--data data --steps 12 --clip 0.5 --log log";
    FREED char *whole = reference("TOY_TIED=1", "--data data --steps 12 --clip 0.5");
    FREED char *untied = reference("", "--data data --steps 12 --clip 0.5");
    assert_int_equal(train("0,1", "TOY_TIED=1", options), 0);
    FREED char *expected = losses("log");
    const char *const others[] = {"0,1,2,3", "0,1,2,0", "0,1,0,1"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(train(others[i], "TOY_TIED=1", options), 0);
        assert_losses("log", expected);
    }
    /* On one rank both uses add to one gradient in turn: only the rounding differs. */
    assert_true(fabs(last_loss(whole) - last_loss(expected)) < 1e-4);
    assert_true(fabs(last_loss(untied) - last_loss(expected)) > 1e-3);
}

static void emulation_and_trace_change_nothing(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 3");
    assert_int_equal(
        train("0,1,2,0", "TOY_SLOWDOWN=2 TOY_LINK=0.01", "--data data --steps 3 --emulate --trace trace --log log"), 0);
    assert_losses("log", expected);
    free(expected);
    Diagnostics diagnostics = {0};
    json_t *trace = json_read("trace", &diagnostics), *event;
    assert_non_null(trace);
    size_t index;
    int forwards = 0, updates = 0, processes = 0, steps = 0;
    double waited = 0; /* longest receive */
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        forwards += strcmp(name, "forward") == 0;
        double duration = json_number_value(json_object_get(event, "dur")) * 1e-6;
        if (strncmp(name, "receive", 7) == 0 && duration > waited) waited = duration;
        updates += strcmp(name, "update") == 0;
        processes += strcmp(name, "process_name") == 0;
        if (strcmp(name, "step") != 0) continue;
        const char *part;
        json_t *time, *parts = json_object_get(json_object_get(event, "args"), "parts");
        double sum = 0, forward = json_number_value(json_object_get(parts, "forward"));
        json_object_foreach(parts, part, time) sum += json_number_value(time) * 1e-6;
        assert_true(fabs(sum - duration) < 1e-6 + 1e-4 * duration && forward > 0);
        steps++;
    }
    assert_int_equal(forwards, 3 * 4 * 4); /* steps x stages x micro-batches */
    assert_int_equal(updates, 3 * 4);
    assert_int_equal(processes, 3);
    assert_int_equal(steps, 3 * 3);
    assert_true(waited > 0.01); /* emulated links cannot be faster than they are */
    json_decref(trace);
}

static void a_full_trace_says_so(void **state)
{
    (void)state;
    assert_int_equal(train("0,1", "SKYCC_TRACE_EVENTS=40", "--data data --steps 5 --trace trace"), 0);
    assert_printed("skycc: warning: rank 1 (toy): the trace ends at step ");
    assert_printed("it has room for 40 events");
    FREED char *text = read_text("trace");
    assert_non_null(strstr(text, "\"name\":\"trace_full\",\"pid\":0"));
    assert_null(strstr(text, "\"step\":5"));
}

/* Four ranks on one core, which is enough for one of a device that is much slower. */
static void an_emulation_without_enough_cores_says_so(void **state)
{
    (void)state;
    const char *pinned = "taskset -c $(taskset -pc $$ | sed 's/.*: //; s/[,-].*//')";
    must_run("TOY_STAGES=0,1,2,3 TOY_WORK=0.02 %s mpiexec.mpich -n 4 %s --data data --steps 5 --emulate", pinned,
             TOY_PROGRAM);
    assert_printed("the emulation could not keep pace: for want of cores, rank ");
    must_run("TOY_STAGES=0 TOY_WORK=0.004 TOY_SLOWDOWN=500 %s %s --data data --steps 1 --emulate", pinned, TOY_PROGRAM);
    assert_null(strstr(printed, "keep pace"));
}

/* ---- Checkpoints ---- */

static void assert_same_parameters(const char *one_rank, const char *several, int64_t step)
{
    char path[256];
    Diagnostics diagnostics = {0};
    CheckpointManifest manifest;
    snprintf(path, sizeof path, "%s/step-%08lld/rank-00.safetensors", one_rank, (long long)step);
    assert_true(checkpoint_read_manifest(&manifest, several, step, &diagnostics));
    SafeTensors whole, part;
    assert_true(safetensors_open(&whole, path, &diagnostics));
    size_t found = 0;
    for (int f = 0; f < manifest.file_count; f++) {
        snprintf(path, sizeof path, "%s/step-%08lld/%s", several, (long long)step, manifest.files[f].name);
        assert_true(safetensors_open(&part, path, &diagnostics));
        for (size_t i = 0; i < part.count; i++, found++) {
            const SafeTensor *other = safetensors_find(&whole, part.tensors[i].name);
            assert_non_null(other);
            assert_memory_equal(other->data, part.tensors[i].data, other->bytes);
        }
        safetensors_close(&part);
    }
    assert_int_equal(found, whole.count);
    assert_int_equal(found, 3 * 8); /* values and two moments of 8 parameters */
    safetensors_close(&whole);
    free(manifest.files);
}

static void resuming_continues_under_another_plan(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 14 --checkpoint whole");
    const char *part = "--data data --steps 14 --checkpoint parts --checkpoint-every 4 --keep 2 --log log";
    assert_int_not_equal(train("0,1,2,3", "TOY_FAULT='kill 2 11'", part), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 14 --checkpoint parts --resume --log log"), 0);
    assert_losses("log", expected);
    assert_same_parameters("whole", "parts", 14);
    assert_int_equal(run("ls parts"), 0);
    assert_string_equal(printed, "step-00000004\nstep-00000008\nstep-00000014\n");
    /* Already at the end: nothing to do. */
    assert_int_equal(train("0,1,2,3", "", "--data data --steps 14 --checkpoint parts --keep 1 --resume"), 0);
}

/* Seconds of checkpoints in the steps of a trace but the last one. */
static double seconds_of_checkpoints(const char *path, int64_t last)
{
    Diagnostics diagnostics = {0};
    json_t *trace = json_read(path, &diagnostics), *event;
    size_t index;
    double seconds = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event)
    {
        json_t *args = json_object_get(event, "args");
        if (json_integer_value(json_object_get(event, "pid")) == 0 &&
            json_integer_value(json_object_get(args, "step")) != last)
            seconds += 1e-6 * json_number_value(json_object_get(json_object_get(args, "parts"), "checkpoint"));
    }
    json_decref(trace);
    return seconds;
}

/* A disk that takes 0.2 s for a file delays the last step only; without room for a copy, every step that saves. */
static void checkpoints_are_written_while_training_goes_on(void **state)
{
    (void)state;
    const char *options = "--data data --steps 30 --checkpoint-every 10 --keep 2 --trace trace --checkpoint";
    char blocking[128], background[128];
    snprintf(blocking, sizeof blocking, "%s blocking", options);
    snprintf(background, sizeof background, "%s background", options);
    assert_int_equal(train("0,1", "TOY_WAIT=0.08 TOY_SLOW_DISK=0.2 TOY_SPARE=0", blocking), 0);
    assert_true(seconds_of_checkpoints("trace", 30) > 0.7);
    assert_int_equal(train("0,1", "TOY_WAIT=0.08 TOY_SLOW_DISK=0.2", background), 0);
    assert_true(seconds_of_checkpoints("trace", 30) < 0.35);
    must_run("diff -r blocking background");
    must_run("ls background");
    assert_string_equal(printed, "step-00000020\nstep-00000030\n");
}

static void an_incomplete_checkpoint_does_not_exist(void **state)
{
    (void)state;
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint broken --checkpoint-every 2"), 0);
    assert_int_equal(run("rm broken/step-00000004/MANIFEST.json"), 0);
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 5 --checkpoint broken --resume", TOY_PROGRAM), 0);
    assert_printed("resuming after step 2");
    assert_printed("warning: the learning rate is 0 after step 4, where its schedule ends");
}

/* Damage is told by name, and the newest checkpoint without any is gone on from. */
static void a_damaged_checkpoint_is_passed_over(void **state)
{
    (void)state;
    const char *resume = "--data data --steps 8 --checkpoint damaged --resume --log log";
    char *expected = reference("", "--data data --steps 8");
    assert_int_equal(
        train("0,1", "", "--data data --steps 8 --stop-after 6 --checkpoint damaged --checkpoint-every 2 --log log"),
        0);
    assert_int_equal(run("cp log log-6; printf x | dd of=damaged/step-00000006/rank-01.safetensors bs=1 seek=5000 "
                         "conv=notrunc; cd damaged/step-00000004 && sed -i 's/\"offset\": [0-9]*/\"offset\": 8/' "
                         "MANIFEST.json"),
                     0);
    assert_int_equal(train("0,1", "", resume), 0);
    assert_printed("damaged/step-00000006/rank-01.safetensors: warning: does not have the content");
    assert_printed("damaged/step-00000004/MANIFEST.json: warning: does not have the content that it was written with");
    assert_losses("log", expected);
    free(expected);
    assert_int_equal(
        run("rm -r damaged/step-00000008; for step in damaged/step-*; do truncate -s -1 $step/rank-00*; done"), 0);
    assert_int_equal(train("0,1", "", resume), 1);
    assert_printed("damaged: error: holds no checkpoint that is whole");
    assert_int_equal(run("cd damaged/step-00000002 && ls -la && truncate -s 0 MANIFEST.json"), 0);
    assert_int_equal(train("0,1", "", resume), 1);
}

/* Each rank in a folder of its own, as on a host of its own. */
static void every_host_removes_its_old_checkpoints(void **state)
{
    (void)state;
    const char *expected = "host0/saved:\nstep-00000006\nstep-00000008\n\n"
                           "host1/saved:\nstep-00000003\nstep-00000006\nstep-00000008\n\n"
                           "host2/saved:\nstep-00000006\nstep-00000008\n";
    must_run("mkdir host0 host1 host2; mkdir -p host1/saved/step-00000003; "
             "touch host1/saved/step-00000003/MANIFEST.json"); /* some other run's */
    must_run("TOY_STAGES=0,1,2 TOY_HOST=host-%% timeout 300 mpiexec.mpich -n 3 sh -c 'cd host$PMI_RANK && exec %s "
             "--data ../data --steps 8 --checkpoint saved --checkpoint-every 2 --keep 2 --quiet'",
             TOY_PROGRAM);
    must_run("ls host0/saved host1/saved host2/saved");
    assert_string_equal(printed, expected);
}

static void a_checkpoint_of_another_model_is_refused(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    CheckpointManifest manifest;
    assert_int_equal(train("0,1", "", "--data data --steps 2 --checkpoint other"), 0);
    assert_true(checkpoint_read_manifest(&manifest, "other", 2, &diagnostics));
    strcpy(manifest.model_hash, "another");
    assert_true(checkpoint_write_manifest(&manifest, "other", &diagnostics));
    free(manifest.files);
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint other --resume"), 1);
    assert_printed("made for another model");
}

static void a_checkpoint_that_cannot_be_written_ends_the_run(void **state)
{
    (void)state;
    assert_int_equal(run("mkdir full && touch full/step-00000002"), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 2 --checkpoint full"), 6);
    assert_printed("full/step-00000002: error: cannot create");
    assert_printed("rank 0 (toy), step 2: the checkpoint cannot be written");
    /* What can be known before training is said before training. */
    assert_int_equal(train("0,1", "", "--data data --steps 2 --checkpoint data/inside"), 1);
    assert_printed("data/inside: error: cannot create");
    assert_int_equal(train("0,1", "", "--data data --steps 2 --trace nowhere/trace"), 1);
    assert_printed("nowhere/trace: error: cannot create");
}

/* ---- Evaluation ---- */

/* The lines of the last run that start with "evaluation". */
static char *evaluations(void)
{
    Buffer lines = {0};
    for (char *line = printed; *line;) {
        size_t length = strcspn(line, "\n");
        if (strncmp(line, "evaluation", 10) == 0) buffer_print(&lines, "%.*s\n", (int)length, line);
        line += length + (line[length] != '\0');
    }
    return lines.bytes;
}

static void evaluation_does_not_depend_on_the_cut(void **state)
{
    (void)state;
    const char *options = "--data data --epochs 3 --eval-data data";
    assert_int_equal(run("TOY_STAGES=0 %s %s", TOY_PROGRAM, options), 0);
    FREED char *expected = evaluations();
    assert_non_null(strstr(expected, "evaluation after step 6: loss "));
    assert_non_null(strstr(expected, "evaluation after step 18: loss "));
    assert_non_null(strstr(expected, "(43 rows)")); /* one of them has no label; the last batch is partial */
    assert_non_null(strstr(expected, "accuracy "));
    for (int i = 0; i < CUTS; i += 3) {
        assert_int_equal(run("TOY_STAGES=%s TOY_SCHEDULE=%s mpiexec.mpich -n %d %s %s", cuts[i][0], cuts[i][1],
                             rank_count(cuts[i][0]), TOY_PROGRAM, options),
                         0);
        FREED char *have = evaluations();
        assert_string_equal(have, expected);
    }
}

static void training_stops_at_the_wanted_loss(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --until-loss 1.0");
    assert_true(last_loss(expected) <= 1.0);
    assert_null(strstr(expected, "\n1000,"));
    assert_int_equal(train("0,1,2,3", "", "--data data --until-loss 1.0 --log log"), 0);
    assert_losses("log", expected);
}

/* ---- What users get wrong ---- */

static void bad_data_is_refused_before_training(void **state)
{
    (void)state;
    const struct {
        Data data;
        const char *message;
    } cases[] = {
        {{.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_label = 3},
         "tensor 'labels': row 9 holds 3, which is not in 0 ... 2"},
        {{.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_label = -1}, "row 9 holds -1"},
        {{.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_id = VOCABULARY},
         "tensor 'input_ids': row 3 holds 50, which is not in 0 ... 49"},
        {{.rows = ROWS, .label_rows = ROWS, .length = 2 * LENGTH},
         "rows have 12 elements, but the program was compiled for sequences of 6"},
        {{.rows = ROWS, .label_rows = ROWS - 1, .length = LENGTH}, "rows"},
        {{.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .without_labels = true}, "has no tensor 'labels'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_data("bad", cases[i].data);
        assert_int_equal(train("0,1,2,3", "", "--data bad --steps 1 --log bad-log"), 1);
        assert_printed(cases[i].message);
        assert_int_equal(run("test -e bad-log"), 1);
    }
    assert_int_equal(run("echo this is text > text"), 0);
    assert_int_equal(train("0,1", "", "--data text --steps 1"), 1);
    assert_printed("text: error: is not a safetensors file");
    assert_int_equal(train("0,1", "", "--data absent --steps 1"), 1);
    assert_printed("absent: error: cannot open");
    assert_int_equal(train("0,1", "TOY_INITIAL=absent.safetensors", "--data data --steps 1"), 1);
    assert_printed("absent.safetensors: error: cannot open");
    assert_int_equal(train("0,1", "TOY_INITIAL=$PWD/text", "--data data --steps 1"), 1);
    assert_printed("shorter than when the program was compiled");
}

static void misuse_is_explained_once(void **state)
{
    (void)state;
    static const struct {
        const char *options, *message;
    } cases[] = {{"", "--data FILE is missing"},
                 {"--data data --step-size 3", "unrecognized option '--step-size'"},
                 {"--data data --steps", "--steps needs an argument"},
                 {"--data data --steps 0", "--steps takes an integer from 1 to 9007199254740992, not '0'"},
                 {"--data data --lr -1", "--lr takes a number from 0 on, or PATTERN=NUMBER, not '-1'"},
                 {"--data data --no-decay all", "--no-decay takes a list of bias and norm, or none, not 'all'"},
                 {"--data data --steps 1 --epochs 1", "not both"},
                 {"--data data --resume", "need --checkpoint DIR"},
                 {"data", "unexpected argument 'data'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(train("0,1", "", cases[i].options), 2);
        assert_printed(cases[i].message);
        const char *first = strstr(printed, "skycc: error");
        assert_null(strstr(first + 1, "skycc: error"));
    }
    assert_int_equal(run("TOY_STAGES=0 %s --help", TOY_PROGRAM), 0);
    assert_printed("--checkpoint-every N");
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_do_not_depend_on_the_cut),
        cmocka_unit_test(clipping_and_schedules_do_not_depend_on_the_cut),
        cmocka_unit_test(weights_tied_across_stages_train_as_one),
        cmocka_unit_test(emulation_and_trace_change_nothing),
        cmocka_unit_test(a_full_trace_says_so),
        cmocka_unit_test(an_emulation_without_enough_cores_says_so),
        cmocka_unit_test(resuming_continues_under_another_plan),
        cmocka_unit_test(checkpoints_are_written_while_training_goes_on),
        cmocka_unit_test(an_incomplete_checkpoint_does_not_exist),
        cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
        cmocka_unit_test(every_host_removes_its_old_checkpoints),
        cmocka_unit_test(a_checkpoint_of_another_model_is_refused),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_ends_the_run),
        cmocka_unit_test(evaluation_does_not_depend_on_the_cut),
        cmocka_unit_test(training_stops_at_the_wanted_loss),
        cmocka_unit_test(bad_data_is_refused_before_training),
        cmocka_unit_test(misuse_is_explained_once),
    };
    return cmocka_run_group_tests(tests, toy_set_up, scratch_folder_leave);
}
