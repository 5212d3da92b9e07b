#include "runtime/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "runtime/launch/command_line.h"
#include "runtime/launch/pmi.h"

static const double last_words_time = 0.5; /* seconds that what is left of a rank has to say why it ends */
static const double interrupt_time = 2;    /* and that ranks have to end after the second interrupt */
static const double reaping_time = 3;      /* and that killed processes take to be gone */

typedef struct Rank {
    pid_t process; /* leads a session of its own; not waited for before the end, so that its number stays its own */
    int socket;    /* -1: closed */
    size_t length; /* of what is in `line` */
    char line[PMI_LINE];
    bool joined, left; /* the other ranks; see PMI_JOINED, PMI_GOODBYE */
    bool ended;
    double ended_at;
} Rank;

typedef struct Run {
    LaunchCommand command;
    PmiServer server;
    Rank *ranks;
    int count, ended, exit_code;
    int interrupts;
    bool failed; /* a rank ended in bad order: all others are killed */
    double kill_at;
} Run;

/* ---- Starting ---- */

/* What a rank is to be told of; its program takes these signals when it is ready for them. */
static sigset_t passed_on(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGUSR1);
    return set;
}

static void set_number(const char *name, int number)
{
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

static _Noreturn void become(const Run *run, int rank, int socket)
{
    const LaunchedProgram *program = &run->command.programs[rank];
    sigset_t set = passed_on();
    sigprocmask(SIG_SETMASK, &set, NULL);
    setsid(); /* its own group, to be killed whole; its own share of busy cores, where sessions share them equally */
    int silence = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(silence, STDIN_FILENO);
    fcntl(socket, F_SETFD, 0);
    set_number("PMI_FD", socket);
    set_number("PMI_RANK", rank);
    set_number("PMI_SIZE", run->count);
    set_number("MPI_LOCALRANKID", rank);
    set_number("MPI_LOCALNRANKS", run->count);
    if (program->folder && chdir(program->folder) != 0) _exit(EXIT_RUN_FAILED);
    if (program->variable_name) setenv(program->variable_name, program->variable, 1);
    if (run->command.cores > 0) launch_bind(rank, run->count, run->command.cores);
    execvp(program->words[0], program->words);
    fprintf(stderr, "train: cannot run %s: %s\n", program->words[0], strerror(errno));
    _exit(EXIT_RUN_FAILED);
}

static bool start_rank(Run *run, int r)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
    pid_t process = fork();
    if (process == 0) become(run, r, ends[1]);
    close(ends[1]);
    run->ranks[r].socket = ends[0];
    if (process < 0) return false;
    run->ranks[r].process = process;
    return true;
}

/* ---- Ending ---- */

static void kill_rank(const Rank *rank)
{
    if (rank->process > 0 && kill(-rank->process, SIGKILL) != 0) kill(rank->process, SIGKILL); /* just forked */
}

static void fail(Run *run, int exit_code)
{
    if (run->failed) return;
    run->failed = true;
    run->exit_code = exit_code;
    for (int r = 0; r < run->count; r++)
        if (!run->ranks[r].ended) kill_rank(&run->ranks[r]);
}

static void rank_ended(Run *run, int r, const siginfo_t *how)
{
    Rank *rank = &run->ranks[r];
    bool by_signal = how->si_code != CLD_EXITED;
    int code = by_signal ? EXIT_RUN_FAILED : how->si_status;
    rank->ended = true;
    rank->ended_at = monotonic_seconds();
    run->ended++;
    if (run->failed) return;
    if (by_signal)
        fprintf(stderr, "train: signal %d (%s) ended rank %d\n", how->si_status, strsignal(how->si_status), r);
    if (rank->joined && !rank->left)
        fail(run, code ? code : EXIT_RUN_FAILED);
    else if (code && !rank->left)
        fail(run, code);
    else if (code && !run->exit_code)
        run->exit_code = code;
}

static void find_ended(Run *run)
{
    for (int r = 0; r < run->count; r++) {
        siginfo_t how = {0};
        if (run->ranks[r].ended || run->ranks[r].process <= 0) continue;
        if (waitid(P_PID, (id_t)run->ranks[r].process, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid)
            rank_ended(run, r, &how);
    }
}

/* Until all are gone that ranks started, too: what comes next may want their files. */
static void reap(Run *run)
{
    double start = monotonic_seconds();
    bool killed = false;
    while (monotonic_seconds() - start < reaping_time) {
        if (!killed && (!run->failed || monotonic_seconds() - start > last_words_time)) {
            for (int r = 0; r < run->count; r++) kill_rank(&run->ranks[r]);
            killed = true;
        }
        pid_t process = killed ? waitpid(-1, NULL, WNOHANG) : 0;
        if (process < 0) break;
        if (process == 0) poll(NULL, 0, 10);
    }
}

/* ---- Talking to the ranks ---- */

static void say(Rank *rank, const char *text)
{
    if (rank->socket >= 0 && send(rank->socket, text, strlen(text), MSG_NOSIGNAL) < 0) {
        close(rank->socket); /* it has ended, as is seen elsewhere */
        rank->socket = -1;
    }
}

static void take_line(Run *run, Rank *rank, const char *line)
{
    char answer[PMI_LINE];
    int exit_code = EXIT_RUN_FAILED;
    PmiEvent event = pmi_take(&run->server, line, answer, &exit_code);
    rank->joined |= event == PMI_JOINED;
    rank->left |= event == PMI_GOODBYE;
    if (event == PMI_ABORT || event == PMI_NO_MESSAGE)
        fail(run, exit_code);
    else if (event == PMI_RELEASE)
        for (int r = 0; r < run->count; r++) say(&run->ranks[r], answer);
    else if (event != PMI_WAIT)
        say(rank, answer);
}

static void listen_to(Run *run, Rank *rank)
{
    ssize_t length = read(rank->socket, rank->line + rank->length, sizeof rank->line - rank->length - 1);
    if (length < 0 && errno == EINTR) return;
    if (length <= 0) {
        close(rank->socket);
        rank->socket = -1;
        return;
    }
    rank->length += (size_t)length;
    rank->line[rank->length] = '\0';
    char *line = rank->line;
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        take_line(run, rank, line);
    }
    rank->length = strlen(line);
    memmove(rank->line, line, rank->length + 1);
    if (rank->length == sizeof rank->line - 1) fail(run, EXIT_RUN_FAILED); /* longer than any message */
}

static void pass_on(Run *run, int number)
{
    if (number == SIGINT && ++run->interrupts == 2) run->kill_at = monotonic_seconds() + interrupt_time;
    for (int r = 0; r < run->count; r++)
        if (!run->ranks[r].ended) kill(run->ranks[r].process, number);
}

static void take_signals(Run *run, int signals)
{
    struct signalfd_siginfo information;
    while (read(signals, &information, sizeof information) == sizeof information)
        if (information.ssi_signo == SIGCHLD)
            find_ended(run);
        else
            pass_on(run, information.ssi_signo == SIGHUP ? SIGTERM : (int)information.ssi_signo);
}

static void watch(Run *run, int signals)
{
    FREED struct pollfd *polled = memory_allocate((size_t)(run->count + 1) * sizeof *polled);
    while (run->ended < run->count) {
        polled[run->count] = (struct pollfd){.fd = signals, .events = POLLIN};
        for (int r = 0; r < run->count; r++) polled[r] = (struct pollfd){.fd = run->ranks[r].socket, .events = POLLIN};
        poll(polled, (nfds_t)run->count + 1, run->kill_at > 0 ? 100 : -1);
        for (int r = 0; r < run->count; r++)
            if (polled[r].revents && run->ranks[r].socket >= 0) listen_to(run, &run->ranks[r]);
        if (polled[run->count].revents) take_signals(run, signals);
        if (run->kill_at > 0 && monotonic_seconds() > run->kill_at) fail(run, 128 + SIGINT);
    }
}

int launch_ranks(int argument_count, char **arguments)
{
    Run run = {0};
    if (!launch_command_read(&run.command, argument_count, arguments)) {
        fprintf(stderr, "train: --launch is for the script 'train', which names the programs to start\n");
        return EXIT_USAGE;
    }
    launch_unbind();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid(); /* Ctrl-C reaches the ranks once, from here */
    sigset_t set = passed_on();
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    kill(getppid(), SIGURG); /* now nothing is lost, see train.sh; whoever does not wait for it ignores it */
    run.count = run.command.count;
    run.ranks = memory_allocate((size_t)run.count * sizeof *run.ranks);
    pmi_open(&run.server, run.count);
    int started = 0;
    while (started < run.count && start_rank(&run, started)) started++;
    if (signals < 0 || started < run.count) {
        fprintf(stderr, "train: cannot start rank %d: %s\n", started, strerror(errno));
        fail(&run, EXIT_RUN_FAILED);
    } else {
        watch(&run, signals);
    }
    reap(&run);
    pmi_close(&run.server);
    free(run.ranks);
    free(run.command.programs);
    return run.exit_code;
}
