/* Local steps: the site's stage programs, as a process of their own. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "federation/member/member.h"

enum { FURTHER_ARGUMENTS = 10 };

static bool is_passed(const MemberOptions *options, const char *name)
{
    for (size_t i = 0; options->passed[i]; i++)
        if (strncmp(options->passed[i], name, strlen(name)) == 0) return true;
    return false;
}

static char **train_arguments(Arena *arena, const Member *member, int64_t until)
{
    const MemberOptions *options = member->options;
    size_t passed = 0, count = 0;
    while (options->passed[passed]) passed++;
    char **arguments = arena_new_array(arena, char *, passed + FURTHER_ARGUMENTS + 1);
    arguments[count++] = arena_format(arena, "%s/train", options->directory);
    for (size_t i = 0; i < passed; i++) arguments[count++] = options->passed[i];
    int64_t all = member->federation.rounds * member->federation.local_steps;
    arguments[count++] = "--resume";
    arguments[count++] = "--steps";
    arguments[count++] = arena_format(arena, "%" PRId64, all > until ? all : until);
    arguments[count++] = "--stop-after";
    arguments[count++] = arena_format(arena, "%" PRId64, until);
    if (!is_passed(options, "--retries")) { /* a round is not to be missed for what starting again repairs */
        arguments[count++] = "--retries";
        arguments[count++] = "3";
    }
    if (!options->log) {
        arguments[count++] = "--log";
        arguments[count++] = arena_string(arena, member->log_path);
    }
    return arguments;
}

/* Waits for the child; passes on, once, the signal that is to end it all. After `deadline` seconds (0: never) it is told
 * to save and end, which is no error. */
static int wait_for(const Member *member, pid_t child, double deadline)
{
    int status, passed_on = 0;
    double since = monotonic_seconds();
    bool is_over = false;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (*member->ended && *member->ended != passed_on) kill(child, passed_on = *member->ended);
        if (deadline > 0 && !is_over && monotonic_seconds() - since > deadline) is_over = kill(child, SIGTERM) == 0;
        usleep(20000);
    }
    if (is_over && WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM) return EXIT_OK;
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_RUN_FAILED;
}

int member_train(const Member *member, int64_t until, double deadline, Diagnostics *diagnostics)
{
    Arena arena = {0};
    char **arguments = train_arguments(&arena, member, until);
    pid_t child = fork();
    if (child == 0) {
        if (member->steps_lock >= 0) fcntl(member->steps_lock, F_SETFD, 0);
        execv(arguments[0], arguments);
        _exit(127);
    }
    int code = child < 0 ? EXIT_RUN_FAILED : wait_for(member, child, deadline);
    if (child < 0 || code == 127) {
        diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE(arguments[0]), NULL, "cannot be started: %s",
                          child < 0 ? strerror(errno) : "is it there?");
        code = EXIT_RUN_FAILED;
    }
    arena_free(&arena);
    return code;
}

bool member_mean_loss(const char *log, int64_t after, int64_t until, double *loss)
{
    FILE *file = fopen(log, "re");
    char *line = NULL;
    size_t capacity = 0;
    double sum = 0;
    int64_t count = 0;
    while (file && getline(&line, &capacity, file) > 0) {
        char *end, *value;
        long long step = strtoll(line, &end, 10);
        if (end == line || *end != ',' || step <= after || step > until) continue;
        double number = strtod(end + 1, &value);
        if (value == end + 1 || !isfinite(number)) continue;
        sum += number;
        count++;
    }
    free(line);
    if (file) fclose(file);
    if (count) *loss = sum / (double)count;
    return count > 0;
}
