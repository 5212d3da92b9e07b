/* main() of every stage program. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/handshake.h"
#include "runtime/train.h"

/* The directory this program lies in, without a slash at the end; "." if the system does not tell. */
static char *program_directory(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    return strdup(slash ? path : ".");
}

static int run(const RunOptions *options, Diagnostics *diagnostics, volatile int64_t *step)
{
    World world;
    int exit_code = EXIT_OK;
    world_open(&world, &sky_program, options->timeout, step);
    bool ok = world_agree(&world, diagnostics, &exit_code); /* about the options */
    if (ok && options->help) {
        if (world.rank == 0) options_print_help(stdout);
    } else if (ok) {
        handshake(&world, &sky_program, diagnostics);
        if (world_agree(&world, diagnostics, &exit_code)) {
            char *directory = program_directory();
            exit_code = train(&world, &sky_program, options, directory);
            free(directory);
        }
    }
    world_close(&world);
    return exit_code;
}

static int run_rank(int argument_count, char **arguments, volatile int64_t *step)
{
    Diagnostics diagnostics = {0};
    Arena arena = {0};
    RunOptions options;
    arguments = options_with_environment(&arena, &argument_count, arguments);
    options_parse(&options, argument_count, arguments, &diagnostics);
    MPI_Init(NULL, NULL);
    int exit_code = run(&options, &diagnostics, step);
    MPI_Finalize();
    arena_free(&arena);
    return exit_code;
}

/* Waits for the process that does the work and passes its end on; if a signal ended it, says which rank was in which
 * step: nobody else would know. */
static int supervise(pid_t worker, volatile const int64_t *step)
{
    int status;
    while (waitpid(worker, &status, 0) < 0)
        if (errno != EINTR) return EXIT_RUN_FAILED;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    char place[48] = "before training";
    if (*step > 0) snprintf(place, sizeof place, "step %lld", (long long)*step);
    fprintf(stderr, "skycc: error: rank %u (%s), %s: killed by signal %d (%s)\n", sky_program.rank,
            sky_program.device_name, place, WTERMSIG(status), strsignal(WTERMSIG(status)));
    return EXIT_RUN_FAILED;
}

int main(int argument_count, char **arguments)
{
    volatile int64_t *step = mmap(NULL, sizeof *step, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (step == MAP_FAILED) memory_exhausted();
    setvbuf(stderr, NULL, _IOLBF, 0); /* whole lines: others print too */
    pid_t parent = getpid(), worker = fork();
    if (worker > 0) return supervise(worker, step);
    if (worker == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a launcher that kills the parent means this process */
        if (getppid() != parent) return EXIT_RUN_FAILED;
    }
    return run_rank(argument_count, arguments, step); /* also if no second process could be made */
}
