/* The runtime as users meet it: the toy program of toy_program.c under mpiexec, with more ranks than cores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "runtime/checkpoint_files.h"
#include "runtime/launch.h"

enum { ROWS = 43, LENGTH = 6, VOCABULARY = 50, CLASSES = 3 };

static char directory[] = "/tmp/skycc-test-pipeline-XXXXXX";
static char printed[1 << 16]; /* what the last run printed, on both streams */

/* --- Helpers -------------------------------------------------------------------------------------------------------
 */

static void read_text(const char *name, char *text, size_t size)
{
    FILE *file = fopen(name, "r");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;
    text[length] = '\0';
    if (file) fclose(file);
}

/* Runs a shell command in the test's directory and returns its exit code. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int run(const char *format, ...)
{
    char command[4096], whole[4400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    snprintf(whole, sizeof whole, "{ %s ; } >printed 2>&1 </dev/null", command);
    int status = system(whole);
    read_text("printed", printed, sizeof printed);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int rank_count(const char *stages)
{
    int most = 0;
    for (const char *s = stages; *s; s++)
        if (*s != ',' && *s - '0' > most) most = *s - '0';
    return most + 1;
}

/* Trains with stage i on rank stages[i]; `environment` holds further settings of the toy. */
static int train(const char *stages, const char *environment, const char *options)
{
    return run("TOY_STAGES=%s %s timeout 120 mpiexec.mpich -n %d %s --quiet %s", stages, environment,
               rank_count(stages), TOY_PROGRAM, options);
}

/* The first three columns of a log: what must not depend on the plan. */
static char *losses(const char *log)
{
    static char text[1 << 16];
    read_text(log, text, sizeof text);
    char *out = text;
    for (char *line = text, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) next++;
        int commas = 0;
        for (char *c = line; c < next; c++) {
            commas += *c == ',';
            if (commas < 3) *out++ = *c;
        }
        *out++ = '\n';
    }
    *out = '\0';
    return strdup(text);
}

static void assert_losses(const char *log, const char *expected)
{
    char *have = losses(log);
    assert_string_equal(have, expected);
    free(have);
}

static void assert_printed(const char *part)
{
    if (!strstr(printed, part)) fail_msg("'%s' is not in: %s", part, printed);
}

typedef struct Data {
    int64_t rows, label_rows, length;
    int32_t bad_id, bad_label; /* 0: none; else put into one row */
    bool without_labels;
} Data;

static void write_data(const char *name, Data data)
{
    int32_t ids[ROWS * 2 * LENGTH], labels[ROWS];
    uint32_t random = 1;
    for (int i = 0; i < ROWS * 2 * LENGTH; i++) {
        random = random * 1664525u + 1013904223u;
        ids[i] = (int32_t)(random >> 16) % VOCABULARY;
    }
    for (int i = 0; i < ROWS; i++) labels[i] = ids[i * LENGTH] % CLASSES;
    labels[7] = -100; /* not counted in the loss */
    if (data.bad_id) ids[3 * LENGTH + 1] = data.bad_id;
    if (data.bad_label) labels[9] = data.bad_label;
    Diagnostics diagnostics = {0};
    SafeTensorsWriter *writer = safetensors_writer();
    Shape id_shape = {2, {data.rows, data.length}}, label_shape = {1, {data.label_rows}};
    safetensors_writer_add(writer, "input_ids", DTYPE_I32, &id_shape, ids);
    if (!data.without_labels) safetensors_writer_add(writer, "labels", DTYPE_I32, &label_shape, labels);
    assert_true(safetensors_write(writer, name, &diagnostics));
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(directory) || chdir(directory) != 0) return -1;
    write_data("data", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH});
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char remove_command[64];
    snprintf(remove_command, sizeof remove_command, "rm -r %s", directory);
    return chdir("/") != 0 || system(remove_command) != 0;
}

/* The log of a run on one rank with these options. */
static char *reference(const char *environment, const char *options)
{
    assert_int_equal(run("TOY_STAGES=0 %s %s --quiet --log reference %s", environment, TOY_PROGRAM, options), 0);
    return losses("reference");
}

/* --- The same training however it is cut ---------------------------------------------------------------------------
 */

static const char *const cuts[][2] = {
    {"0,1", "1f1b"},     {"0,1", "gpipe"},     {"0,1,2,3", "1f1b"}, {"0,1,2,3", "gpipe"}, {"0,1,2,3,4,5,6,7", "1f1b"},
    {"0,1,2,0", "1f1b"}, {"0,1,2,0", "gpipe"}, {"0,0,1,1", "1f1b"}, {"1,0,1,0", "gpipe"}, {"0,0,0,0", "1f1b"}};
enum { CUTS = sizeof cuts / sizeof *cuts };

/* Every `stride`-th cut. */
static void check_cuts(int stride, const char *options, const char *expected)
{
    for (int i = 0; i < CUTS; i += stride) {
        char settings[128], all[512];
        snprintf(settings, sizeof settings, "TOY_SCHEDULE=%s", cuts[i][1]);
        snprintf(all, sizeof all, "%s --log log", options);
        if (train(cuts[i][0], settings, all) != 0) fail_msg("%s %s: %s", cuts[i][0], cuts[i][1], printed);
        assert_losses("log", expected);
    }
}

static void losses_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 12");
    assert_non_null(strstr(expected, "\n12,"));
    check_cuts(1, "--data data --steps 12", expected);
    free(expected);
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
    char *whole = reference("TOY_TIED=1", "--data data --steps 12 --clip 0.5");
    char *untied = reference("", "--data data --steps 12 --clip 0.5");
    assert_int_equal(train("0,1", "TOY_TIED=1", options), 0);
    char *expected = losses("log");
    const char *const others[] = {"0,1,2,3", "0,1,2,0", "0,1,0,1"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(train(others[i], "TOY_TIED=1", options), 0);
        assert_losses("log", expected);
    }
    /* On one rank both uses add to one gradient in turn: only the rounding differs. */
    assert_true(fabs(last_loss(whole) - last_loss(expected)) < 1e-4);
    assert_true(fabs(last_loss(untied) - last_loss(expected)) > 1e-3);
    free(whole);
    free(untied);
    free(expected);
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
    int forwards = 0, updates = 0, processes = 0;
    double waited = 0; /* longest receive */
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        forwards += strcmp(name, "forward") == 0;
        double duration = json_number_value(json_object_get(event, "dur")) * 1e-6;
        if (strncmp(name, "receive", 7) == 0 && duration > waited) waited = duration;
        updates += strcmp(name, "update") == 0;
        processes += strcmp(name, "process_name") == 0;
    }
    assert_int_equal(forwards, 3 * 4 * 4); /* steps x stages x micro-batches */
    assert_int_equal(updates, 3 * 4);
    assert_int_equal(processes, 3);
    assert_true(waited > 0.01); /* emulated links cannot be faster than they are */
    json_decref(trace);
}

/* --- Checkpoints ---------------------------------------------------------------------------------------------------
 */

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
    char *expected = reference("", "--data data --steps 14 --checkpoint whole");
    const char *part = "--data data --steps 14 --checkpoint parts --checkpoint-every 4 --keep 2 --log log";
    assert_int_not_equal(train("0,1,2,3", "TOY_FAULT='kill 2 11'", part), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 14 --checkpoint parts --resume --log log"), 0);
    assert_losses("log", expected);
    assert_same_parameters("whole", "parts", 14);
    assert_int_equal(run("ls parts"), 0);
    assert_string_equal(printed, "step-00000004\nstep-00000008\nstep-00000014\n");
    /* Already at the end: nothing to do. */
    assert_int_equal(train("0,1,2,3", "", "--data data --steps 14 --checkpoint parts --keep 1 --resume"), 0);
    free(expected);
}

static void an_incomplete_checkpoint_does_not_exist(void **state)
{
    (void)state;
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint broken --checkpoint-every 2"), 0);
    assert_int_equal(run("rm broken/step-00000004/MANIFEST.json"), 0);
    assert_int_equal(run("TOY_STAGES=0 %s --data data --steps 5 --checkpoint broken --resume", TOY_PROGRAM), 0);
    assert_printed("resuming after step 2");
}

static void a_damaged_checkpoint_is_refused(void **state)
{
    (void)state;
    assert_int_equal(train("0,1", "", "--data data --steps 2 --checkpoint damaged"), 0);
    assert_int_equal(run("printf x | dd of=damaged/step-00000002/rank-01.safetensors bs=1 seek=5000 conv=notrunc"), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint damaged --resume"), 1);
    assert_printed("rank-01.safetensors: error: does not have the content");
    assert_int_equal(run("sed -i s/toy/other/ damaged/step-00000002/MANIFEST.json"), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint damaged --resume"), 1);
    assert_printed("made for another model");
    assert_int_equal(run("sed -i 's/\"step\"/\"stop\"/' damaged/step-00000002/MANIFEST.json"), 0);
    assert_int_equal(train("0,1", "", "--data data --steps 4 --checkpoint damaged --resume"), 1);
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

/* --- Evaluation ----------------------------------------------------------------------------------------------------
 */

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
    char *expected = evaluations();
    assert_non_null(strstr(expected, "evaluation after step 5: loss "));
    assert_non_null(strstr(expected, "evaluation after step 15: loss "));
    assert_non_null(strstr(expected, "(42 rows)")); /* of 43, one has no label; the last batch is partial */
    assert_non_null(strstr(expected, "accuracy "));
    for (int i = 0; i < CUTS; i += 3) {
        assert_int_equal(run("TOY_STAGES=%s TOY_SCHEDULE=%s mpiexec.mpich -n %d %s %s", cuts[i][0], cuts[i][1],
                             rank_count(cuts[i][0]), TOY_PROGRAM, options),
                         0);
        char *have = evaluations();
        assert_string_equal(have, expected);
        free(have);
    }
    free(expected);
}

static void training_stops_at_the_wanted_loss(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --until-loss 1.0");
    assert_true(last_loss(expected) <= 1.0);
    assert_null(strstr(expected, "\n1000,"));
    assert_int_equal(train("0,1,2,3", "", "--data data --until-loss 1.0 --log log"), 0);
    assert_losses("log", expected);
    free(expected);
}

/* --- What users get wrong ------------------------------------------------------------------------------------------
 */

static void bad_data_is_refused_before_training(void **state)
{
    (void)state;
    const struct {
        Data data;
        const char *message;
    } cases[] = {
        {{ROWS, ROWS, LENGTH, 0, 3, false}, "tensor 'labels': row 9 holds 3, which is not in 0 ... 2"},
        {{ROWS, ROWS, LENGTH, 0, -1, false}, "row 9 holds -1"},
        {{ROWS, ROWS, LENGTH, VOCABULARY, 0, false}, "tensor 'input_ids': row 3 holds 50, which is not in 0 ... 49"},
        {{ROWS, ROWS, 2 * LENGTH, 0, 0, false},
         "rows have 12 elements, but the program was compiled for sequences of 6"},
        {{ROWS, ROWS - 1, LENGTH, 0, 0, false}, "rows"},
        {{ROWS, ROWS, LENGTH, 0, 0, true}, "has no tensor 'labels'"},
        {{7, 7, LENGTH, 0, 0, false}, "has 7 rows, which do not fill one batch of 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_data("bad", cases[i].data);
        assert_int_equal(train("0,1,2,3", "", "--data bad --steps 1 --log bad-log"), 1);
        assert_printed(cases[i].message);
        assert_int_equal(run("test -e bad-log"), 1);
    }
    assert_int_equal(run("echo this is text > text"), 0);
    assert_int_equal(train("0,1", "", "--data text --steps 1"), 1);
    assert_printed("text: error: is no safetensors file");
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
                 {"--data data --step-size 3", "--step-size: no such option"},
                 {"--data data --steps", "--steps needs an argument"},
                 {"--data data --steps 0", "--steps 0: a positive integer is wanted"},
                 {"--data data --lr -1", "--lr -1: a number of at least 0 is wanted"},
                 {"--data data --no-decay all", "--no-decay all: a list of bias and norm is wanted"},
                 {"--data data --steps 1 --epochs 1", "not both"},
                 {"--data data --resume", "need --checkpoint DIR"},
                 {"data", "'data' is not an option"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(train("0,1", "", cases[i].options), 2);
        assert_printed(cases[i].message);
        const char *first = strstr(printed, "skycc: error");
        assert_null(strstr(first + 1, "skycc: error"));
    }
    assert_int_equal(run("TOY_STAGES=0 %s --help", TOY_PROGRAM), 0);
    assert_printed("--checkpoint-every N");
}

/* --- What goes wrong on the way ------------------------------------------------------------------------------------
 */

static void ranks_of_different_plans_do_not_train(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='plan 2 0'", "--data data"), 6);
    assert_printed("rank 2 (toy) was compiled for another plan than rank 0");
    assert_int_equal(run("TOY_STAGES=0,1,2 mpiexec.mpich -n 2 %s --data data", TOY_PROGRAM), 6);
    assert_printed("rank 1 (toy) was compiled for 3 ranks, but 2 were started");
    assert_int_equal(run("TOY_STAGES=0,1 TOY_RANK=1 mpiexec.mpich -n 2 %s --data data", TOY_PROGRAM), 6);
    assert_printed("rank 0 (toy) runs the program of rank 1");
}

static void programs_may_start_in_any_order(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 3");
    const char *options = "--data data --steps 3 --quiet --log log";
    assert_int_equal(
        run("TOY_STAGES=0,1,2 mpiexec.mpich -n 1 -env TOY_RANK 2 %s %s : -n 1 -env TOY_RANK 0 %s %s : -n 1 "
            "-env TOY_RANK 1 %s %s",
            TOY_PROGRAM, options, TOY_PROGRAM, options, TOY_PROGRAM, options),
        0);
    assert_losses("log", expected);
    free(expected);
}

static void a_rank_that_dies_is_named(void **state)
{
    (void)state;
    assert_int_not_equal(train("0,1,2,3", "TOY_FAULT='kill 1 3'", "--data data --steps 5"), 0);
    assert_printed("rank 1 (toy), step 3: killed by signal 9");
    assert_int_not_equal(train("0,1,2,3", "TOY_FAULT='orphan 2 4'", "--data data --steps 5"), 0);
    assert_printed("rank 2 (toy), step 4: killed by signal 9");
    assert_null(strstr(printed, "rank 1 (toy)"));
}

static void a_file_that_is_cut_short_while_it_is_read_is_named(void **state)
{
    (void)state;
    assert_int_equal(run("cp data cut"), 0);
    assert_int_not_equal(train("0,1", "TOY_FAULT='cut 0 3'", "--data cut --steps 5"), 0);
    assert_printed("rank 0 (toy), step 4: cut was cut short, or could not be read, while it was in use");
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='hang 1 2'", "--data data --steps 5 --timeout 1"), 6);
    assert_printed("rank 1");
    assert_printed("has not answered for 1 seconds; waited for ");
}

/* MPICH over TCP often does not get out of MPI_Finalize. */
static void a_run_over_tcp_ends(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 3");
    assert_int_equal(train("0,1,2,3", "UCX_TLS=tcp,self UCX_NET_DEVICES=lo", "--data data --steps 3 --log log"), 0);
    assert_losses("log", expected);
    assert_int_equal(train("0,1", "UCX_TLS=tcp,self UCX_NET_DEVICES=lo", "--data absent"), 1);
    free(expected);
}

static void a_loss_that_is_no_number_ends_the_run(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='nan 0 2'", "--data data --steps 5"), 6);
    assert_printed("rank 3 (toy), step 3: the loss is nan");
}

/* --- Launch files --------------------------------------------------------------------------------------------------
 */

static void write_launch_files(const char *name, const char *first_host, const char *second_host)
{
    Diagnostics diagnostics = {0};
    const LaunchRank ranks[] = {{"stage-00", first_host, 1, NULL}, {"stage-01", second_host, 1, ""}};
    assert_int_equal(
        run("mkdir '%s' && cp %s '%s/stage-00' && cp %s '%s/stage-01'", name, TOY_PROGRAM, name, TOY_PROGRAM, name), 0);
    assert_true(launch_files_write(&(LaunchPlan){ranks, 2}, name, &diagnostics));
}

static void launch_files_work_from_anywhere(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 5");
    write_launch_files("a place", NULL, "localhost");
    assert_int_equal(run("TOY_STAGES=0,1 'a place/train' --data data --steps 5 --log log"), 0);
    assert_losses("log", expected);
    assert_printed("step 5/5  loss ");
    assert_int_equal(run("cd 'a place' && TOY_STAGES=0,1 SKYCC_OPTIONS='--data ../data --steps 5 --log ../log --quiet' "
                         "mpiexec.mpich -configfile run.mpi"),
                     0);
    assert_losses("log", expected);
    /* Two runs at once: the second one leaves the first ones' cores alone. */
    assert_int_equal(
        run("XDG_RUNTIME_DIR=$PWD; export XDG_RUNTIME_DIR; sed 's/-le \"$(nproc)\"/-le 99/' 'a place/train' "
            ">'a place/bound' && printf '#!/bin/sh\\necho first $1\\n' >echo-first && chmod +x echo-first "
            "'a place/bound' && export MPIEXEC=$PWD/echo-first && 'a place/bound' && "
            "SKYCC_BIND=none 'a place/bound' && flock skycc-bind-$(id -u) 'a place/bound' && "
            "SKYCC_BIND=core flock skycc-bind-$(id -u) 'a place/bound'"),
        0);
    assert_string_equal(printed, "first -bind-to\nfirst -n\nfirst -n\nfirst -bind-to\n");
    assert_int_equal(run("sh -n 'a place/run.sbatch' && cat 'a place/run.conf'"), 0);
    assert_string_equal(printed, "0 ./stage-00\n1 ./stage-01\n");
    assert_int_equal(run("'a place/train' --help"), 0);
    assert_printed("usage: train");
    assert_int_equal(run("TOY_STAGES=0,1 'a place/train' --data 'no data'"), 1);
    assert_printed("no data: error: cannot open");
    assert_int_equal(run("TOY_STAGES=0,1 'a place/train' --data data --steps none"), 2);
    assert_int_equal(run("MPIEXEC=no-mpiexec 'a place/train' --data data"), 6);
    assert_printed("no-mpiexec is not installed");
    free(expected);
}

/* Two hosts, as far as mpiexec knows: a script in the place of ssh runs everything here. */
static void launch_files_reach_other_hosts(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 3");
    write_launch_files("far", "one.example", "two.example");
    assert_int_equal(run("printf '#!/bin/sh\\n[ $1 != -x ] || shift\\nshift\\nexec sh -c \"$*\"\\n' > launcher && "
                         "chmod +x launcher"),
                     0);
    assert_int_equal(run("HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$PWD/launcher UCX_TLS=tcp,self UCX_NET_DEVICES=lo "
                         "TOY_STAGES=0,1 timeout 120 far/train --data $PWD/data --steps 3 --log $PWD/log"),
                     0);
    assert_losses("log", expected);
    free(expected);
}

static void a_failed_run_is_started_again(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 8");
    write_launch_files("again", NULL, NULL);
    const char *options = "--data data --steps 8 --checkpoint saved --checkpoint-every 1 --log log --quiet";
    assert_int_equal(run("TOY_STAGES=0,1 TOY_FAULT='kill 1 3' again/train %s --retries=2", options), 6);
    assert_printed("rank 1 (toy), step 7: killed by signal 9");
    assert_printed("starting it again (2 of 2)");
    assert_int_equal(run("TOY_STAGES=0,1 TOY_FAULT='kill 1 3' again/train %s --resume --retries 1", options), 0);
    assert_losses("log", expected);
    free(expected);
}

static void hosts_that_no_launcher_understands_are_refused(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    const LaunchRank bad[] = {{"stage-00", "a;b", 1, NULL}, {"stage-00", "-x", 1, NULL}, {"stage-00", NULL, 1, "a'b"}};
    for (int i = 0; i < 3; i++) assert_false(launch_files_write(&(LaunchPlan){&bad[i], 1}, ".", &diagnostics));
    assert_int_equal(diagnostics.errors, 3);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    diagnostics_free(&diagnostics);
    const LaunchRank far[] = {{"stage-00", "one.example", 4, NULL}, {"stage-01", NULL, 0, "emulator -x"}};
    assert_true(launch_files_write(&(LaunchPlan){far, 2}, ".", &diagnostics));
    assert_int_equal(run("cat run.mpi train"), 0);
    assert_printed(
        "-hosts one.example:1,localhost:1 -n 1 -env OMP_NUM_THREADS 4 ./stage-00\n-n 1 emulator -x ./stage-01\n");
    assert_printed("emulator -x \"$directory\"/stage-01 \"$@\"");
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_do_not_depend_on_the_cut),
        cmocka_unit_test(clipping_and_schedules_do_not_depend_on_the_cut),
        cmocka_unit_test(weights_tied_across_stages_train_as_one),
        cmocka_unit_test(emulation_and_trace_change_nothing),
        cmocka_unit_test(resuming_continues_under_another_plan),
        cmocka_unit_test(an_incomplete_checkpoint_does_not_exist),
        cmocka_unit_test(a_damaged_checkpoint_is_refused),
        cmocka_unit_test(a_checkpoint_that_cannot_be_written_ends_the_run),
        cmocka_unit_test(evaluation_does_not_depend_on_the_cut),
        cmocka_unit_test(training_stops_at_the_wanted_loss),
        cmocka_unit_test(bad_data_is_refused_before_training),
        cmocka_unit_test(misuse_is_explained_once),
        cmocka_unit_test(ranks_of_different_plans_do_not_train),
        cmocka_unit_test(programs_may_start_in_any_order),
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(a_file_that_is_cut_short_while_it_is_read_is_named),
        cmocka_unit_test(a_rank_that_hangs_is_named),
        cmocka_unit_test(a_run_over_tcp_ends),
        cmocka_unit_test(a_loss_that_is_no_number_ends_the_run),
        cmocka_unit_test(launch_files_work_from_anywhere),
        cmocka_unit_test(launch_files_reach_other_hosts),
        cmocka_unit_test(a_failed_run_is_started_again),
        cmocka_unit_test(hosts_that_no_launcher_understands_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
