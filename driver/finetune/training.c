#include "driver/finetune/training.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/child.h"
#include "base/file.h"

enum { WATCH_EVERY_MS = 3000, WATCH_FIRST_MS = 1000, LOOK_EVERY_MS = 50 };

static volatile sig_atomic_t signals_taken, last_signal;

static void note_signal(int number)
{
    last_signal = number;
    signals_taken++;
}

/* In the child: ended when this process is killed. In a group of its own Ctrl-C reaches it once, from here. */
_Noreturn static void start(const SingleCommand *command, const char *more, pid_t parent)
{
    char *words[SINGLE_COMMAND_WORDS + 1];
    memcpy(words, command->words, sizeof command->words);
    words[command->count] = (char *)more;
    words[command->count + (more != NULL)] = NULL;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent) execv(words[0], words);
    _exit(127);
}

static int await(pid_t child, WatchTraining *watch, void *context)
{
    int status, passed = 0;
    for (int waited = 0;; waited += LOOK_EVERY_MS) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) break;
        if (ended < 0 && errno != EINTR) return 127;
        for (; passed < signals_taken; passed++) kill(child, last_signal);
        if (watch && waited % WATCH_EVERY_MS == WATCH_FIRST_MS) watch(context, false);
        nanosleep(&(struct timespec){0, LOOK_EVERY_MS * 1000000L}, NULL);
    }
    if (watch) watch(context, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int training_run(const SingleCommand *command, const char *more, WatchTraining *watch, void *context,
                 Diagnostics *diagnostics)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction former[3], noted = {.sa_handler = note_signal};
    fflush(NULL);
    signals_taken = 0;
    for (int i = 0; i < 3; i++) {
        sigaction(numbers[i], NULL, &former[i]);
        if (former[i].sa_handler != SIG_IGN) sigaction(numbers[i], &noted, NULL);
    }
    pid_t parent = getpid(), child = child_fork();
    if (child == 0) start(command, more, parent);
    int code = child < 0 ? 127 : await(child, watch, context);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &former[i], NULL);
    if (code == 127) file_error(diagnostics, command->words[0], "cannot start");
    return code;
}
