#include "tests/common/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/common/scratch.h"

char *printed;

static void read_printed(FILE *output)
{
    free(printed);
    long size = fseek(output, 0, SEEK_END) == 0 ? ftell(output) : -1;
    assert_true(size >= 0);
    printed = calloc((size_t)size + 1, 1);
    assert_non_null(printed);
    rewind(output);
    assert_int_equal(fread(printed, 1, (size_t)size, output), size);
    fclose(output);
}

/* An input that is empty and does not end as long as this process lives: mpiexec passes on the end of its input, and
 * fails if the programs have ended by then. */
static int silent_input(void)
{
    static int ends[2] = {-1, -1};
    if (ends[0] < 0) assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    return ends[0];
}

/* Output goes to a file, not a pipe, which what a command leaves running could keep open. */
static int run_line(const char *line)
{
    int status = -1;
    FILE *output = tmpfile();
    assert_non_null(output);
    int input = silent_input();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        /* The output comes first: if there was no standard input, it or the pipe may have become number 0. In the
         * latter case nothing else clears the pipe's flag. */
        if (dup2(fileno(output), STDOUT_FILENO) == 1 && dup2(STDOUT_FILENO, STDERR_FILENO) == 2 &&
            dup2(input, STDIN_FILENO) == 0 && fcntl(STDIN_FILENO, F_SETFD, 0) == 0)
            execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    read_printed(output);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *format_line(const char *format, va_list arguments)
{
    char *line;
    assert_true(vasprintf(&line, format, arguments) >= 0);
    return line;
}

int run(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    FREED char *line = format_line(format, arguments);
    va_end(arguments);
    int code = run_line(line);
    return code;
}

void must_run(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    FREED char *line = format_line(format, arguments);
    va_end(arguments);
    int code = run_line(line);
    if (code != 0) fail_msg("exit code %d: %s\n%s", code, line, printed);
}

void assert_printed(const char *part)
{
    if (!strstr(printed, part)) fail_msg("'%s' is not in: %s", part, printed);
}

void assert_ran(int found, int code, const char *const *parts)
{
    if (found != code) fail_msg("exit code %d instead of %d: %s", found, code, printed);
    for (; *parts; parts++) assert_printed(*parts);
}

void open_tensors(SafeTensors *file, const char *path)
{
    Diagnostics diagnostics = {0};
    if (!safetensors_open(file, path, &diagnostics)) fail_msg("%s", diagnostics_text(&diagnostics));
}
