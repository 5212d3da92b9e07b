#include "runtime/supervise.h"

#include <errno.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/diagnostics.h"
#include "base/file.h"

enum { FINALIZE_SECONDS = 20 };

/* Read by the leak sanitizer: what only MPI_Finalize would free. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libuc\nleak:libmpich\n"; }

/* Tells MPICH's launcher that this process ends in good order, as MPI_Finalize would: without it, the launcher takes
 * the exit for a crash and kills the others. One line of the PMI-1 protocol. False if there is no such launcher. */
static bool leave_launcher(void)
{
    static const char farewell[] = "cmd=finalize\n";
    enum { ANSWER_MILLISECONDS = 5000 };
    const char *descriptor = getenv("MPI_LOCALNRANKS") ? getenv("PMI_FD") : NULL; /* the former is its own */
    if (!descriptor) return false;
    struct pollfd launcher = {.fd = atoi(descriptor), .events = POLLIN};
    char answer[64];
    return write(launcher.fd, farewell, sizeof farewell - 1) == sizeof farewell - 1 &&
           poll(&launcher, 1, ANSWER_MILLISECONDS) > 0 && read(launcher.fd, answer, sizeof answer) > 0;
}

_Noreturn void supervised_exit(RunState *state, int exit_code)
{
    fflush(NULL);
    state->exit_code = exit_code;
    state->finished = true;
    if (!leave_launcher()) {
        alarm(FINALIZE_SECONDS); /* ends this process; its parent knows that it had finished */
        MPI_Finalize();
    }
    exit(exit_code);
}

static int report_signal(const SkyProgram *program, const RunState *state, int number)
{
    char place[48] = "before training", what[600], line[800];
    if (state->step > 0) snprintf(place, sizeof place, "step %lld", (long long)state->step);
    if (number == SIGBUS && state->lost_file[0])
        snprintf(what, sizeof what, "%s " FILE_LOST_TEXT, state->lost_file);
    else
        snprintf(what, sizeof what, "killed by signal %d (%s)", number, strsignal(number));
    int length = snprintf(line, sizeof line, "skycc: error: rank %u (%s), %s: %s\n", program->rank,
                          program->device_name, place, what);
    if (length >= (int)sizeof line) length = (int)sizeof line - 1;
    if (write(STDERR_FILENO, line, (size_t)length) < 0) return EXIT_RUN_FAILED; /* nobody listens */
    return EXIT_RUN_FAILED;
}

static const SkyProgram *orphan_program;
static const RunState *orphan_state;

/* In the worker, when its parent was killed. */
static void on_orphaned(int number)
{
    (void)number;
    _exit(orphan_state->finished ? orphan_state->exit_code : report_signal(orphan_program, orphan_state, SIGKILL));
}

static RunState *worker_state;

/* Leaves the name for the parent to tell; reading again ends the process. */
static void on_lost_file(int number, siginfo_t *information, void *context)
{
    (void)number, (void)context;
    const char *name = file_mapped_at(information->si_addr);
    if (name) strcpy(worker_state->lost_file, name);
}

static int watch(pid_t worker, const SkyProgram *program, const RunState *state)
{
    int status;
    while (waitpid(worker, &status, 0) < 0)
        if (errno != EINTR) return EXIT_RUN_FAILED;
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    /* What a signal does to a rank that is done does not matter: launchers kill the last ones. */
    return state->finished ? state->exit_code : report_signal(program, state, WTERMSIG(status));
}

RunState *supervise(const SkyProgram *program)
{
    RunState *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) memory_exhausted();
    pid_t parent = getpid(), worker = fork();
    if (worker > 0) exit(watch(worker, program, state));
    if (worker == 0) { /* else no second process could be made: work alone */
        orphan_program = program;
        orphan_state = state;
        worker_state = state;
        signal(SIGUSR2, on_orphaned);
        sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_lost_file, .sa_flags = SA_SIGINFO | SA_RESETHAND},
                  NULL);
        prctl(PR_SET_PDEATHSIG, SIGUSR2); /* who kills the parent means this process */
        if (getppid() != parent) exit(EXIT_RUN_FAILED);
    }
    return state;
}
