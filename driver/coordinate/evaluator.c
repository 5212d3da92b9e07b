#include "driver/coordinate/evaluator.h"

#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/input_files.h"
#include "base/json.h"

static const char *result_path(Arena *arena, const char *directory)
{
    return arena_format(arena, "%s/evaluation.json", directory);
}

pid_t evaluator_begin(const char *directory, const char *checkpoint)
{
    Arena arena = {0};
    pid_t process = -1;
    posix_spawn_file_actions_t actions;
    char *const words[] = {"skycc",
                           "evaluate",
                           arena_format(&arena, "%s/" EVALUATOR_MODEL, directory),
                           arena_string(&arena, checkpoint),
                           arena_format(&arena, "%s/" EVALUATOR_DATA, directory),
                           "-o",
                           arena_string(&arena, result_path(&arena, directory)),
                           NULL};
    unlink(result_path(&arena, directory));
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&process, "/proc/self/exe", &actions, NULL, words, environ) != 0) process = -1;
    posix_spawn_file_actions_destroy(&actions);
    arena_free(&arena);
    return process;
}

static bool read_result(const char *path, Evaluation *evaluation)
{
    Diagnostics unsaid = {0};
    json_t *json = json_read(path, &unsaid);
    input_files_release_path(path);
    for (int m = 0; m < EVALUATION_METRICS; m++) {
        const json_t *value = json_object_get(json, evaluation_metrics[m]);
        evaluation->values[m] = json_is_number(value) ? json_number_value(value) : NAN;
    }
    bool ok = json != NULL;
    json_decref(json);
    diagnostics_free(&unsaid);
    return ok;
}

bool evaluator_ended(pid_t process, const char *directory, bool waits, bool *ok, Evaluation *evaluation)
{
    Arena arena = {0};
    int status;
    pid_t ended = waitpid(process, &status, waits ? 0 : WNOHANG);
    if (ended == 0) return false;
    const char *path = result_path(&arena, directory);
    *ok = ended == process && WIFEXITED(status) && WEXITSTATUS(status) == 0 && read_result(path, evaluation);
    unlink(path);
    arena_free(&arena);
    return true;
}
