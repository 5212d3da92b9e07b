/* How ranks start: launch files, and whether they belong together. The toy program of toy_program.c under mpiexec. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/link/launch.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"
#include "tests/runtime/train/toy_runs.h"

/* ---- Do the ranks belong together? ---- */

static void ranks_of_different_plans_do_not_train(void **state)
{
    (void)state;
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='plan 2 0'", "--data data"), 6);
    assert_printed("rank 2 (toy) was compiled for another plan than rank 0");
    assert_int_equal(train("0,1,2,3", "TOY_FAULT='recipe 2 0'", "--data data"), 6);
    assert_printed("rank 2 (toy) was compiled with --dropout 0.1, but rank 0 (toy) with --dropout off");
    assert_int_equal(train("0,1", "TOY_FAULT='weights 0 0'", "--data data"), 6);
    assert_printed("rank 1 (toy) was compiled with other initial weights than rank 0");
    assert_int_equal(run("TOY_STAGES=0,1,2 mpiexec.mpich -n 2 %s --data data", TOY_PROGRAM), 6);
    assert_printed("rank 1 (toy) was compiled for 3 ranks, but 2 were started");
    assert_int_equal(run("TOY_STAGES=0,1 TOY_RANK=1 mpiexec.mpich -n 2 %s --data data", TOY_PROGRAM), 6);
    assert_printed("rank 0 (toy) runs the program of rank 1");
}

/* Otherwise they would train nonsense, or wait for each other for ever. */
static void ranks_that_were_told_otherwise_do_not_train(void **state)
{
    (void)state;
    static const char *const others[][2] = {{"--seed 2", "--seed"},       {"--steps 4", "--steps"},
                                            {"--lr 3", "--lr"},           {"--trace trace", "--trace"},
                                            {"--lr 'layer.*=3'", "--lr"}, {"--no-decay none", "--no-decay"},
                                            {"--warmup 10%", "--warmup"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *usual = i == 1 ? "" : "--steps 3";
        assert_int_equal(run("TOY_STAGES=0,1 timeout 300 mpiexec.mpich -n 1 %s --data data --steps 3 --quiet : "
                             "-n 1 %s --data data %s %s --quiet",
                             TOY_PROGRAM, TOY_PROGRAM, usual, others[i][0]),
                         2);
        char message[96];
        snprintf(message, sizeof message, "rank 1 (toy) was started with another %s than rank 0 (toy)", others[i][1]);
        assert_printed(message);
    }
}

/* What a rank was told that would be lost, or lie apart, without a word. */
static void ranks_that_were_told_other_places_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *first, *folder, *second;
        int code;
        const char *message; /* NULL: nothing */
    } cases[] = {
        {"--checkpoint a", ".", "--checkpoint b", 2,
         "rank 1 (toy) was started with --checkpoint b, but rank 0 (toy) with --checkpoint a"},
        {"--checkpoint a", "folder", "--checkpoint a", 0, "so --checkpoint a leads each to its own place"},
        {"--checkpoint a", "folder", "--checkpoint ../folder/../a", 0, NULL},
        {"", ".", "--log b", 2, "rank 1 (toy) was started with --log b, but only rank 0 (toy) writes one"},
        {"--log c", ".", "--log b", 0, "warning: rank 1 (toy) was started with --log b, but only rank 0 (toy)"},
        {"--trace c", ".", "--trace b", 0, "warning: rank 1 (toy) was started with --trace b, but only rank 0 (toy)"},
        {"--help", ".", "", 0, "usage: train"},
        {"--retr 3", ".", "", 2, "unrecognized option '--retr'"},
        {"--join", ".", "--join", 2, "--join is an option of the train script"},
        {"--retries 3", ".", "--retries 3", 0, "--retries: only the train script starts a failed run again"},
    };
    assert_int_equal(run("mkdir folder && cp data folder"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run("TOY_STAGES=0,1 timeout 300 mpiexec.mpich -n 1 %s --data data --steps 2 --quiet %s : "
                             "-n 1 -wdir %s %s --data data --steps 2 --quiet %s",
                             TOY_PROGRAM, cases[i].first, cases[i].folder, TOY_PROGRAM, cases[i].second),
                         cases[i].code);
        if (cases[i].message)
            assert_printed(cases[i].message);
        else
            assert_null(strstr(printed, "rank 1"));
        assert_int_equal(run("test ! -e b && rm -rf folder/a"), 0);
        assert_int_equal(run("test -e a && rm -r a") == 0, cases[i].code == 0 && strstr(cases[i].first, "point"));
    }
}

/* Two ranks, each with its own file. */
static int train_on(const char *first, const char *second, const char *environment)
{
    return run("TOY_STAGES=0,1 %s timeout 300 mpiexec.mpich -n 1 %s --data %s --steps 3 --quiet --log log : "
               "-n 1 %s --data %s --steps 3 --quiet",
               environment, TOY_PROGRAM, first, TOY_PROGRAM, second);
}

static void what_several_ranks_read_must_be_the_same(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 3");
    write_data("wide", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .wide = true});
    write_data("other-labels", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_label = 2});
    write_data("other-ids", (Data){.rows = ROWS, .label_rows = ROWS, .length = LENGTH, .bad_id = 1});
    assert_int_equal(train_on("data", "other-ids", "TOY_READS=1"), 1);
    assert_printed("data: error: tensor 'input_ids' is not the same for rank 1 as for rank 0");
    assert_int_equal(train_on("data", "other-ids", ""), 0); /* rank 1 reads no ids, */
    assert_printed("data: warning: rank 1 reads another file than rank 0, with the same tensors and other contents");
    assert_int_equal(train_on("other-labels", "data", "TOY_READS=1"), 0); /* and rank 0 no labels */
    assert_losses("log", expected);
    assert_int_equal(train_on("data", "wide", "TOY_READS=1"), 0);
    assert_losses("log", expected);
}

static void programs_may_start_in_any_order(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 3");
    const char *options = "--data data --steps 3 --quiet --log log";
    assert_int_equal(
        run("TOY_STAGES=0,1,2 mpiexec.mpich -n 1 -env TOY_RANK 2 %s %s : -n 1 -env TOY_RANK 0 %s %s : -n 1 "
            "-env TOY_RANK 1 %s %s",
            TOY_PROGRAM, options, TOY_PROGRAM, options, TOY_PROGRAM, options),
        0);
    assert_losses("log", expected);
}

/* ---- Launch files ---- */

static void launch_files_work_from_anywhere(void **state)
{
    (void)state;
    FREED char *expected = reference("", "--data data --steps 5");
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
    /* What others put in the place of the lock is neither followed nor waited for. */
    assert_int_equal(run("XDG_RUNTIME_DIR=$PWD MPIEXEC=$PWD/echo-first; export XDG_RUNTIME_DIR MPIEXEC; "
                         "lock=skycc-bind-$(id -u); rmdir $lock; mkfifo $lock; timeout 60 'a place/bound'; rm $lock; "
                         "ln -s victim $lock; timeout 60 'a place/bound'; rm $lock; test ! -e victim"),
                     0);
    assert_string_equal(printed, "first -bind-to\nfirst -bind-to\n");
    assert_int_equal(run("sh -n 'a place/run.sbatch' && cat 'a place/run.conf'"), 0);
    assert_string_equal(printed, "0 ./stage-00\n1 ./stage-01\n");
    assert_int_equal(run("'a place/train' --help"), 0);
    assert_printed("usage: train");
    assert_int_equal(run("TOY_STAGES=0,1 'a place/train' --data 'no data'"), 1);
    assert_printed("no data: error: cannot open");
    assert_int_equal(run("SKYCC_SUBNET=240.0.0.0/30 TOY_STAGES=0,1 'a place/train' --data data --steps 1"), 1);
    assert_printed("error: 240.0.0.0/30: this host has no interface in this subnet");
    assert_int_equal(run("SKYCC_FOLDER=$PWD/nowhere TOY_STAGES=0,1 'a place/train' --data data --steps 1"), 1);
    assert_printed("/nowhere: error: train was started here, where host ");
    assert_int_equal(run("TOY_STAGES=0,1 'a place/train' --data data --steps none"), 2);
    assert_int_equal(run("MPIEXEC=no-mpiexec 'a place/train' --data data"), 6);
    assert_printed("no-mpiexec is not installed");
}

#define FAR                                                                                                            \
    "HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$PWD/launcher UCX_TLS=tcp,self UCX_NET_DEVICES=lo TOY_STAGES=0,1 "         \
    "SKYCC_KEEP=TOY_STAGES timeout 300 far/train --data $PWD/data "

/* Two hosts, as far as mpiexec knows: a script in the place of ssh runs everything here. Once mpiexec has started a
 * program on a host in `silent`, that host says nothing any more. */
static void launch_files_reach_other_hosts(void **state)
{
    (void)state;
    char *expected = reference("", "--data data --steps 3");
    write_launch_files("far", "one.example", "two.example");
    assert_int_equal(
        run("cat >launcher <<'END' && chmod +x launcher && sed -i \"s|@HERE@|$PWD|\" launcher\n"
            "#!/bin/sh\n"
            "while :; do case $1 in -o) shift 2 ;; -x) x=1; shift ;; -N) n=1; shift ;; *) break ;; esac; done\n"
            "here=@HERE@ host=$1; shift\n"
            "if [ -n \"$x\" ] && [ -e $here/silent ]; then touch $here/silent.$host; fi\n"
            "while [ -n \"$n\" ] && [ ! -e $here/silent.two.example ]; do sleep 0.1; done\n"
            "if [ -e $here/silent.$host ] && [ -z \"$x\" ]; then\n"
            "  echo \"ssh: connect to host $host port 22: Connection timed out\" >&2; exit 255\n"
            "fi\n"
            "exec sh -c \"$*\"\n"
            "END"),
        0);
    assert_int_equal(run(FAR "--steps 3 --log $PWD/log"), 0);
    assert_losses("log", expected);
    free(expected);
    assert_int_equal(run("touch silent; " FAR "--steps 1000000 --quiet"), 6);
    assert_printed("train: host two.example does not answer any more: ssh: connect to host two.example port 22: "
                   "Connection timed out");
}

static void hosts_that_no_launcher_understands_are_refused(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    const LaunchRank bad[] = {{"stage-00", "a;b", 1, NULL}, {"stage-00", "-x", 1, NULL}, {"stage-00", NULL, 1, "a'b"}};
    for (int i = 0; i < 3; i++)
        assert_false(launch_files_write(&(LaunchPlan){.ranks = &bad[i], .rank_count = 1}, ".", &diagnostics));
    assert_int_equal(diagnostics.errors, 3);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    diagnostics_free(&diagnostics);
    const LaunchRank far[] = {{"stage-00", "one.example", 4, NULL}, {"stage-01", NULL, 0, "emulator -x"}};
    assert_true(launch_files_write(&(LaunchPlan){.ranks = far, .rank_count = 2}, ".", &diagnostics));
    assert_int_equal(run("cat run.mpi train"), 0);
    assert_printed(
        "-hosts one.example:1,localhost:1 -n 1 -env OMP_NUM_THREADS 4 ./stage-00\n-n 1 emulator -x ./stage-01\n");
    assert_printed("emulator -x \"$directory\"/stage-01 \"$@\"");
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_different_plans_do_not_train),
        cmocka_unit_test(ranks_that_were_told_otherwise_do_not_train),
        cmocka_unit_test(ranks_that_were_told_other_places_are_named),
        cmocka_unit_test(what_several_ranks_read_must_be_the_same),
        cmocka_unit_test(programs_may_start_in_any_order),
        cmocka_unit_test(launch_files_work_from_anywhere),
        cmocka_unit_test(launch_files_reach_other_hosts),
        cmocka_unit_test(hosts_that_no_launcher_understands_are_refused),
    };
    return cmocka_run_group_tests(tests, toy_set_up, scratch_folder_leave);
}
