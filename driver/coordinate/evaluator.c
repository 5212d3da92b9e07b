#include "driver/coordinate/evaluator.h"

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/input_files.h"
#include "base/json.h"

/* One that outlived its coordinator would write another's result. */
static const char *result_path(Arena *arena, const char *directory)
{
    return arena_format(arena, "%s/evaluation-%ld.json", directory, (long)getpid());
}

void evaluator_clean(const char *directory)
{
    FREED_WITH(arena_free) Arena arena = {0};
    glob_t found;
    if (glob(arena_format(&arena, "%s/evaluation-*.json", directory), 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
        globfree(&found);
    }
}

pid_t evaluator_begin(const char *directory, const char *checkpoint, const char *data)
{
    FREED_WITH(arena_free) Arena arena = {0};
    char *const words[] = {"skycc",
                           "evaluate",
                           arena_format(&arena, "%s/" EVALUATOR_MODEL, directory),
                           arena_string(&arena, checkpoint),
                           data ? arena_string(&arena, data) : arena_format(&arena, "%s/" EVALUATOR_DATA, directory),
                           "-o",
                           arena_string(&arena, result_path(&arena, directory)),
                           NULL};
    pid_t parent = getpid();
    unlink(result_path(&arena, directory));
    pid_t process = fork();
    if (process == 0) {
        int nothing = open("/dev/null", O_RDWR);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever goes on from a coordinator that was killed evaluates anew */
        if (getppid() == parent && dup2(nothing, STDIN_FILENO) >= 0 && dup2(nothing, STDOUT_FILENO) >= 0)
            execv("/proc/self/exe", words);
        _exit(127);
    }
    return process;
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

bool evaluator_ended(pid_t process, const char *directory, bool waits, bool *ok, Evaluation *evaluation)
{
    FREED_WITH(arena_free) Arena arena = {0};
    int status;
    pid_t ended = waitpid(process, &status, waits ? 0 : WNOHANG);
    if (ended == 0) return false;
    const char *path = result_path(&arena, directory);
    *ok = ended == process && WIFEXITED(status) && WEXITSTATUS(status) == 0 && read_result(path, evaluation);
    unlink(path);
    return true;
}
