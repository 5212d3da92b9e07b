#include "runtime/train/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/text.h"
#include "runtime/train/interrupts.h"
#include "runtime/train/world.h"

enum { FINALIZE_SECONDS = 3, EXIT_SECONDS = 30 };

/* Read by the leak sanitizer: what only MPI_Finalize would free. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:libuc\nleak:libmpich\n"; }

/* The connection to MPICH's launcher; -1 if there is no such launcher. */
static int launcher_descriptor(void)
{
    const char *descriptor = getenv("MPI_LOCALNRANKS") ? getenv("PMI_FD") : NULL; /* only MPICH sets the former */
    return descriptor ? atoi(descriptor) : -1;
}

/* Tells MPICH's launcher that this process ends in good order, as MPI_Finalize would: without it, the launcher takes
 * the exit for a crash and kills the others. One line of the PMI-1 protocol. False if there is no such launcher. On a
 * busy machine it may take seconds to answer, and MPI_Finalize would take a late answer for a failure. */
static bool leave_launcher(void)
{
    static const char farewell[] = "cmd=finalize\n";
    enum { ANSWER_MILLISECONDS = 20000 };
    struct pollfd launcher = {.fd = launcher_descriptor(), .events = POLLIN};
    char answer[64];
    return launcher.fd >= 0 && write(launcher.fd, farewell, sizeof farewell - 1) == sizeof farewell - 1 &&
           poll(&launcher, 1, ANSWER_MILLISECONDS) > 0 && read(launcher.fd, answer, sizeof answer) > 0;
}

/* Makes MPICH's launcher end all ranks. The launcher does not do that by itself if a rank dies before MPI_Init, where
 * the others would wait for ever. */
static void abort_launched(int exit_code)
{
    char message[48];
    int length = snprintf(message, sizeof message, "cmd=abort exitcode=%d\n", exit_code);
    last_words_await_reader();
    send(launcher_descriptor(), message, (size_t)length, MSG_NOSIGNAL); /* it may be gone */
}

_Noreturn void supervised_exit(RunState *state, int exit_code)
{
    interrupts_ignore();
    fflush(NULL);
    state->exit_code = exit_code;
    state->finished = true;
    /* Ends this process where MPI's libraries do not; its parent knows that it had finished. */
    alarm(EXIT_SECONDS);
    if (!leave_launcher()) {
        alarm(FINALIZE_SECONDS);
        MPI_Finalize();
    }
    exit(exit_code);
}

/* Text built in signal handlers, which may not call printf and strsignal. */
typedef struct Line {
    char text[800];
    size_t length;
} Line;

static void line_add(Line *line, const char *text)
{
    while (*text && line->length < sizeof line->text - 1) line->text[line->length++] = *text++;
}

/* A name from a file: escaped as everywhere where text leaves the program. */
static void line_add_name(Line *line, const char *name)
{
    char escaped[TEXT_LONGEST_ESCAPE];
    for (size_t used, left = strlen(name); left; name += used, left -= used) {
        text_escape(escaped, name, left, &used);
        line_add(line, escaped);
    }
}

static void line_add_number(Line *line, int64_t number) /* >= 0 */
{
    char digits[24], *first = digits + sizeof digits - 1;
    *first = '\0';
    do *--first = (char)('0' + number % 10);
    while (number /= 10);
    line_add(line, first);
}

/* For the gateway, which tells the other sites. */
static void note_why(const char *text, size_t size)
{
    const char *path = getenv("SKYCC_WHY");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1; /* the first counts */
    if (file < 0) return;
    if (write(file, text, size) < 0) unlink(path);
    close(file);
}

/* Reports how and where the work ended; `end` is not used if a file was lost. Async-signal-safe. */
static int report_end(const SkyProgram *program, const RunState *state, bool lost_file, const Line *end)
{
    static const char head[] = "skycc: error: ";
    Line line = {.length = 0};
    line_add(&line, head);
    line_add(&line, "rank ");
    line_add_number(&line, program->rank);
    line_add(&line, " (");
    line_add_name(&line, program->device_name);
    line_add(&line, state->step > 0 ? "), step " : "), before training");
    if (state->step > 0) line_add_number(&line, state->step);
    line_add(&line, ": ");
    if (lost_file)
        line_add_name(&line, state->lost_file);
    else
        line_add(&line, end->text);
    line_add(&line, lost_file ? " " FILE_LOST_TEXT "\n" : "\n");
    if (program->replica_count > 1) {
        line_add(&line, "    hint: the other replicas can go on: skycc compile ... --without ");
        line_add_name(&line, program->device_name);
        line_add(&line, " -o NEW, then NEW/train ... --resume\n");
    }
    note_why(line.text + strlen(head), strcspn(line.text + strlen(head), "\n"));
    if (write(STDERR_FILENO, line.text, line.length) < 0) return EXIT_RUN_FAILED; /* standard error is closed */
    return EXIT_RUN_FAILED;
}

static Line killed_by(int number, const char *name)
{
    Line end = {.length = 0};
    line_add(&end, "killed by signal ");
    line_add_number(&end, number);
    line_add(&end, " (");
    line_add(&end, name);
    line_add(&end, ")");
    return end;
}

static const SkyProgram *orphan_program;
static const RunState *orphan_state;

/* Runs in the worker when its parent was killed. */
static void on_orphaned(int number)
{
    (void)number;
    const Line end = killed_by(SIGKILL, "Killed");
    _exit(orphan_state->finished ? orphan_state->exit_code : report_end(orphan_program, orphan_state, false, &end));
}

static RunState *worker_state;

/* Leaves the name for the parent to report; the next read of the file ends the process. */
static void on_lost_file(int number, siginfo_t *information, void *context)
{
    (void)number, (void)context;
    const char *name = file_mapped_at(information->si_addr);
    if (name) strcpy(worker_state->lost_file, name);
}

/* ---- The process that watches ---- */

static volatile pid_t watched;

static void forward_signal(int number) { kill(watched, number); }

/* The signals that the parent forwards to the worker. */
static const int forwarded[] = {SIGUSR1, SIGTERM, SIGINT};
enum { FORWARDED = sizeof forwarded / sizeof *forwarded };

/* SIGCHLD too: watch() waits for it. */
static sigset_t watched_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < FORWARDED; i++) sigaddset(&set, forwarded[i]);
    return set;
}

/* Launchers set these. A program started by hand goes on when its shell ends. */
static bool is_launched(void) { return getenv("PMI_RANK") || getenv("PMIX_RANK") || getenv("SLURM_PROCID"); }

/* Whether the launcher's process on this host is gone; without it nobody ends this rank when another one fails. */
static bool is_abandoned(pid_t launcher) { return is_launched() && getppid() != launcher; }

/* Why to end the work; NULL: it goes on. `stopped` is when a signal stopped the worker, 0: it runs. MPI_Init and the
 * first collectives have no time-outs of their own. Nor has a worker that is stopped after all others are done. It gets
 * twice the time, because running workers notice first. */
static const char *why_to_end(pid_t launcher, double start, double stopped, const RunState *state)
{
    double now = monotonic_seconds();
    if (is_abandoned(launcher)) return "the launcher is gone";
    if (!state->joined && state->timeout > 0 && now - start > state->timeout)
        return "not all ranks have started within --timeout";
    bool late = stopped > 0 && state->timeout > 0 && now - stopped > 2 * state->timeout;
    return late ? "has not answered for twice --timeout: a signal stopped it" : NULL;
}

/* A user may have forgotten it, or not know that it was done. */
static void tell_of_stop(const SkyProgram *program, const RunState *state, pid_t worker)
{
    text_print(
        stderr,
        "skycc: warning: rank %u (%s), step %lld: a signal has stopped this process: 'kill -CONT %d' on its host "
        "lets it go on\n",
        program->rank, program->device_name, (long long)state->step, (int)worker);
}

static int watch(pid_t worker, pid_t launcher, const SkyProgram *program, const RunState *state)
{
    const struct timespec second = {.tv_sec = 1};
    const double start = monotonic_seconds();
    const char *reason = NULL;
    double stopped = 0;
    bool told = false;
    sigset_t child;
    int status;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;; sigtimedwait(&child, NULL, &second)) {
        pid_t changed = waitpid(worker, &status, WNOHANG | WUNTRACED | WCONTINUED);
        if (changed < 0 && errno != EINTR) return EXIT_RUN_FAILED;
        if (changed > 0 && (WIFEXITED(status) || WIFSIGNALED(status))) break;
        if (changed > 0) stopped = WIFSTOPPED(status) ? monotonic_seconds() : 0;
        if (changed > 0) told = false;
        if (stopped > 0 && !told && (told = monotonic_seconds() - stopped > world_patience(state->timeout)))
            tell_of_stop(program, state, worker);
        if (!reason && (reason = why_to_end(launcher, start, stopped, state))) kill(worker, SIGKILL);
    }
    if (WIFEXITED(status)) return WEXITSTATUS(status);
    /* A signal to a finished rank does not matter: launchers kill the last ones. */
    if (state->finished) return state->exit_code;
    int number = WTERMSIG(status);
    Line end = {.length = 0};
    if (reason)
        line_add(&end, reason);
    else
        end = killed_by(number, strsignal(number));
    return report_end(program, state, number == SIGBUS && state->lost_file[0], &end);
}

static _Noreturn void be_watcher(pid_t worker, pid_t launcher, const SkyProgram *program, const RunState *state)
{
    sigset_t set;
    sigemptyset(&set);
    watched = worker;
    for (int i = 0; i < FORWARDED; i++) {
        sigaction(forwarded[i], &(struct sigaction){.sa_handler = forward_signal, .sa_flags = SA_RESTART}, NULL);
        sigaddset(&set, forwarded[i]);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    int exit_code = watch(worker, launcher, program, state);
    if (!state->joined) abort_launched(exit_code);
    exit(exit_code);
}

RunState *supervise(const SkyProgram *program)
{
    RunState *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED) memory_exhausted();
    sigset_t set = watched_signals();
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t launcher = getppid(), parent = getpid(), worker = fork();
    if (worker > 0) be_watcher(worker, launcher, program, state);
    interrupts_catch(&state->step);
    if (worker == 0) { /* negative: no second process, so this one works alone */
        orphan_program = program;
        orphan_state = state;
        worker_state = state;
        signal(SIGUSR2, on_orphaned);
        sigaction(SIGBUS, &(struct sigaction){.sa_sigaction = on_lost_file, .sa_flags = SA_SIGINFO | SA_RESETHAND},
                  NULL);
        prctl(PR_SET_PDEATHSIG, SIGUSR2); /* a kill of the parent is meant for this process */
        if (getppid() != parent) exit(EXIT_RUN_FAILED);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    return state;
}
