#include "base/child.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

pid_t child_fork(void)
{
    sigset_t all, former;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &former);
    pid_t child = fork();
    for (int number = 1; child == 0 && number < NSIG; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_IGN) signal(number, SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &former, NULL);
    return child;
}
