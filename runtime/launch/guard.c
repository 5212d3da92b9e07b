#include "runtime/launch/launch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/file.h"
#include "runtime/launch/command_line.h"
#include "runtime/launch/peers.h"

/* How long mpiexec may take until it listens, and how often it is looked at until then, and after that. */
static const double listening_time = 10;
enum { SOON_MILLISECONDS = 1, LATER_MILLISECONDS = 500 };

/* A socket of another process under a number of this one's; -1: it may not be had, as errno says. */
static int borrow(int process, int descriptor)
{
#if defined SYS_pidfd_open && defined SYS_pidfd_getfd
    FREED_WITH(descriptor_close) int handle = (int)syscall(SYS_pidfd_open, process, 0);
    return handle < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, handle, descriptor, 0);
#else
    (void)process, (void)descriptor;
    errno = ENOSYS;
    return -1;
#endif
}

/* Guards the sockets on which the process listens by now. Returns how many; -1: it cannot, as errno says. */
static int guard_sockets(pid_t process, const Peers *peers)
{
    char path[48], link[32];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)process);
    FREED_WITH(listing_close) DIR *descriptors = opendir(path);
    int count = 0;
    for (struct dirent *entry; count >= 0 && descriptors && (entry = readdir(descriptors));) {
        ssize_t length = readlinkat(dirfd(descriptors), entry->d_name, link, sizeof link - 1);
        if (length < 7 || strncmp(link, "socket:", 7) != 0) continue;
        int listens = 0, socket = borrow(process, atoi(entry->d_name));
        socklen_t size = sizeof listens;
        if (socket < 0)
            count = errno == EBADF ? count : -1; /* closed by now */
        else if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens)
            count = peers_guard(peers, socket) ? count + 1 : -1;
        if (socket >= 0) close(socket);
    }
    return count;
}

static void pass_on(int signals, pid_t process)
{
    struct signalfd_siginfo information;
    while (read(signals, &information, sizeof information) == sizeof information)
        if (information.ssi_signo != SIGCHLD) kill(process, (int)information.ssi_signo);
}

static int watch(pid_t process, int signals, const Peers *peers)
{
    double start = monotonic_seconds();
    bool done = false;
    int status;
    while (waitpid(process, &status, WNOHANG) == 0) {
        int guarded = done ? 0 : guard_sockets(process, peers);
        if (guarded < 0)
            fprintf(stderr, "train: warning: hosts that are not of this run can reach mpiexec's port: %s\n",
                    strerror(errno));
        done = done || guarded || monotonic_seconds() - start > listening_time;
        struct pollfd polled = {.fd = signals, .events = POLLIN};
        poll(&polled, 1, done ? LATER_MILLISECONDS : SOON_MILLISECONDS);
        pass_on(signals, process);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_peers(Peers *peers, char *addresses, const char *subnet)
{
    Peers around = {.count = 0};
    bool within = *subnet && peers_add(&around, subnet);
    for (char *rest = addresses, *word; (word = strtok_r(rest, " \n", &rest));) {
        if (!peers_add(peers, word)) fprintf(stderr, "train: warning: '%s' is no IPv4 address or subnet\n", word);
        const Subnet *last = &peers->subnets[peers->count ? peers->count - 1 : 0];
        within = within &&
                 (last->mask != UINT32_MAX || (last->address & around.subnets[0].mask) == around.subnets[0].address);
    }
    if (!within && around.count) peers_add(peers, subnet);
    peers_add_own(peers);
}

int guard_launcher(int argument_count, char **arguments)
{
    Peers peers = {.count = 0};
    if (argument_count < 3) return EXIT_USAGE;
    read_peers(&peers, arguments[0], arguments[1]);
    launch_unbind();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    setsid(); /* Ctrl-C reaches the launcher once, from `train` */
    sigset_t set, former;
    sigemptyset(&set);
    for (const int *number = (const int[]){SIGTERM, SIGINT, SIGUSR1, SIGCHLD, 0}; *number; number++)
        sigaddset(&set, *number);
    sigprocmask(SIG_BLOCK, &set, &former);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    kill(getppid(), SIGURG); /* now nothing is lost, see train.sh */
    pid_t process = fork();
    if (process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        signal(SIGINT, SIG_DFL); /* a shell's background process ignores it */
        sigprocmask(SIG_SETMASK, &former, NULL);
        execvp(arguments[2], arguments + 2);
        fprintf(stderr, "train: cannot run %s: %s\n", arguments[2], strerror(errno));
        _exit(EXIT_RUN_FAILED);
    }
    if (process < 0 || signals < 0) return EXIT_RUN_FAILED;
    return watch(process, signals, &peers);
}
