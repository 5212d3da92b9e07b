/* Ranks that are started without mpiexec: what PMI answers, and how runs of shells in the place of programs end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/exit_codes.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/pmi.h"
#include "tests/common/scratch.h"

static void assert_answer(PmiServer *server, const char *line, PmiEvent event, const char *expected)
{
    char answer[PMI_LINE];
    int exit_code = 0;
    assert_int_equal(pmi_take(server, line, answer, &exit_code), event);
    assert_string_equal(answer, expected);
}

static void processes_find_each_other(void **state)
{
    (void)state;
    PmiServer server;
    pmi_open(&server, 2);
    assert_answer(&server, "cmd=init pmi_version=1 pmi_subversion=1", PMI_JOINED,
                  "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    assert_answer(&server, "cmd=get kvsname=skycc key=PMI_process_mapping", PMI_ANSWER,
                  "cmd=get_result rc=0 msg=success value=(vector,(0,1,2))\n");
    assert_answer(&server, "cmd=put kvsname=skycc key=card-1 value=a=b#c", PMI_ANSWER,
                  "cmd=put_result rc=0 msg=success\n");
    assert_answer(&server, "cmd=get kvsname=skycc key=card-2", PMI_ANSWER,
                  "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    assert_answer(&server, "cmd=get kvsname=skycc key=card-1", PMI_ANSWER,
                  "cmd=get_result rc=0 msg=success value=a=b#c\n");
    for (int i = 0; i < 2; i++) {
        assert_answer(&server, "cmd=barrier_in", PMI_WAIT, "");
        assert_answer(&server, "cmd=barrier_in", PMI_RELEASE, "cmd=barrier_out\n");
    }
    assert_answer(&server, "cmd=finalize", PMI_GOODBYE, "cmd=finalize_ack\n");
    assert_answer(&server, "hello", PMI_NO_MESSAGE, "");
    char answer[PMI_LINE];
    int exit_code = 0;
    assert_int_equal(pmi_take(&server, "cmd=abort exitcode=7", answer, &exit_code), PMI_ABORT);
    assert_int_equal(exit_code, 7);
    pmi_close(&server);
}

/* Launches, in a process of its own, one rank per script; sends it the signals, in pauses of half a second. */
static int launched(const char *first, const char *second, const int *signals)
{
    const char *words[] = {"-n", "1",  "-env", "WORD", "one", "sh",   "-c", first,
                           ":",  "-n", "1",    "sh",   "-c",  second, NULL};
    pid_t launcher = fork();
    if (launcher == 0) _exit(launch_ranks((int)(sizeof words / sizeof *words) - 1, (char **)words));
    for (; signals && *signals; signals++) {
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        kill(launcher, *signals);
    }
    int status;
    assert_int_equal(waitpid(launcher, &status, 0), launcher);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ranks_know_who_they_are(void **state)
{
    (void)state;
    assert_int_equal(launched("test $PMI_RANK,$PMI_SIZE,$WORD = 0,2,one && read x || echo end >input",
                              "test $PMI_RANK,$PMI_SIZE,$WORD = 1,2,", NULL),
                     0);
    assert_int_equal(access("input", F_OK), 0); /* their input is empty */
}

static void the_first_failure_ends_all(void **state)
{
    (void)state;
    time_t start = time(NULL);
    assert_int_equal(launched("sleep 600", "exit 7", NULL), 7);
    assert_int_equal(launched("kill -SEGV $$", "sleep 600", NULL), EXIT_RUN_FAILED);
    assert_int_equal(launched("sleep 600", "printf 'cmd=abort exitcode=3\\n' >&$PMI_FD; sleep 600", NULL), 3);
    assert_int_equal(launched("sleep 600", "printf 'cmd=init\\n' >&$PMI_FD; exit 0", NULL), EXIT_RUN_FAILED);
    assert_int_equal(launched("sleep 600", "head -c 5000 /dev/zero | tr '\\0' x >&$PMI_FD; sleep 600", NULL),
                     EXIT_RUN_FAILED);
    assert_true(time(NULL) - start < 300);
    char *none[] = {"-n", "2", "true", NULL};
    assert_int_equal(launch_ranks(3, none), EXIT_USAGE);
}

/* What a rank leaves running is ended too, but has time for its last words. */
static void nothing_is_left_running(void **state)
{
    (void)state;
    assert_int_equal(launched("(sleep 0.1; echo said >words; exec sleep 600) & exit 6", "sleep 600", NULL), 6);
    assert_int_equal(access("words", F_OK), 0);
}

/* A signal that comes before waits until then. Those that never take any are killed after the second interrupt. */
static void signals_reach_programs_that_can_take_them(void **state)
{
    (void)state;
    const char *takes = "exec /usr/bin/python3 -c 'import signal, sys, time; time.sleep(1); "
                        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); "
                        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM]); signal.pause()'";
    assert_int_equal(launched(takes, takes, (int[]){SIGTERM, 0}), 5);
    assert_int_equal(launched("sleep 600", "sleep 600", (int[]){SIGINT, SIGINT, 0}), 128 + SIGINT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_find_each_other),
        cmocka_unit_test(ranks_know_who_they_are),
        cmocka_unit_test(the_first_failure_ends_all),
        cmocka_unit_test(nothing_is_left_running),
        cmocka_unit_test(signals_reach_programs_that_can_take_them),
    };
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
