#include "driver/coordinate/evaluator.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/input_files.h"
#include "base/json.h"

/* A file in memory, whichever number the process that reads or writes it has for it. */
static const char *result_path(Arena *arena, int file) { return arena_format(arena, "/dev/fd/%d", file); }

Evaluator evaluator_begin(const char *directory, const char *checkpoint, const char *data)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Evaluator evaluator = {.process = -1, .result = memfd_create("evaluation", MFD_CLOEXEC)};
    char *const words[] = {"skycc",
                           "evaluate",
                           arena_format(&arena, "%s/" EVALUATOR_MODEL, directory),
                           arena_string(&arena, checkpoint),
                           data ? arena_string(&arena, data) : arena_format(&arena, "%s/" EVALUATOR_DATA, directory),
                           "-o",
                           arena_string(&arena, result_path(&arena, evaluator.result)),
                           NULL};
    pid_t parent = getpid();
    if (evaluator.result < 0) return evaluator;
    evaluator.process = fork();
    if (evaluator.process == 0) {
        int nothing = open("/dev/null", O_RDWR);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever goes on from a coordinator that was killed evaluates anew */
        if (getppid() == parent && dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0 &&
            fcntl(evaluator.result, F_SETFD, 0) == 0)
            execv("/proc/self/exe", words);
        _exit(127);
    }
    if (evaluator.process < 0) close(evaluator.result);
    return evaluator;
}

static bool read_result(const char *path, Evaluation *evaluation)
{
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    json_auto_t *json = json_read(path, &unsaid);
    input_files_release_path(path);
    for (int m = 0; m < EVALUATION_METRICS; m++) {
        const json_t *value = json_object_get(json, evaluation_metrics[m]);
        evaluation->values[m] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    return json != NULL;
}

bool evaluator_ended(Evaluator *evaluator, bool waits, bool *ok, Evaluation *evaluation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int status;
    pid_t ended = waitpid(evaluator->process, &status, waits ? 0 : WNOHANG);
    if (ended == 0) return false;
    *ok = ended == evaluator->process && WIFEXITED(status) && WEXITSTATUS(status) == 0 &&
          read_result(result_path(&arena, evaluator->result), evaluation);
    close(evaluator->result);
    *evaluator = (Evaluator){0};
    return true;
}
