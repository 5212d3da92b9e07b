/* The log of a run when its disk is full. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "runtime/train/training_log.h"
#include "tests/common/scratch.h"

enum { STEPS = 40 };

/* A limit on the size of files does what a full disk does. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void write_rows(TrainingLog *log, int64_t first, int64_t last)
{
    for (int64_t step = first; step <= last; step++)
        training_log_step(log, &(LogRow){.step = step, .loss = 1.0 / (double)step, .tokens_valid = -1});
}

/* The log as it is without any trouble; free() it. */
static char *undisturbed(void)
{
    TrainingLog log;
    Diagnostics diagnostics = {0};
    assert_true(training_log_open(&log, "undisturbed", 1, &diagnostics));
    write_rows(&log, 1, STEPS);
    assert_true(training_log_close(&log, &diagnostics));
    return read_text("undisturbed");
}

static void rows_are_written_when_there_is_room_again(void **state)
{
    (void)state;
    TrainingLog log;
    Diagnostics diagnostics = {0};
    FREED char *expected = undisturbed();
    assert_true(training_log_open(&log, "log", 1, &diagnostics));
    limit_files(300);
    write_rows(&log, 1, STEPS / 2);
    assert_true(log.error != 0);
    limit_files(RLIM_INFINITY);
    write_rows(&log, STEPS / 2 + 1, STEPS);
    assert_true(training_log_close(&log, &diagnostics));
    FREED char *text = read_text("log");
    assert_string_equal(text, expected);
}

static void rows_that_are_lost_are_an_error(void **state)
{
    (void)state;
    TrainingLog log;
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    assert_true(training_log_open(&log, "log", 1, &diagnostics));
    limit_files(300);
    write_rows(&log, 1, STEPS);
    assert_false(training_log_close(&log, &diagnostics));
    limit_files(RLIM_INFINITY);
    assert_int_equal(diagnostics.exit_code, EXIT_BAD_INPUT);
    assert_non_null(strstr(diagnostics.first->message, "cannot be written: File too large: the rows from step "));
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_written_when_there_is_room_again),
                                       cmocka_unit_test(rows_that_are_lost_are_an_error)};
    return cmocka_run_group_tests(tests, scratch_folder_enter, scratch_folder_leave);
}
