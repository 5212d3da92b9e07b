#include "runtime/train/last_words.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const double longest_wait = 3;      /* seconds, for a reader that has stopped */
static const double forwarding_time = 0.1; /* seconds: from a launcher's process on this host to the user's terminal */

static void sleep_for(double seconds) { nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL); }

void last_words_await_reader(void)
{
    struct stat status;
    int unread = 0;
    double start = monotonic_seconds();
    if (fstat(STDERR_FILENO, &status) == 0 && S_ISFIFO(status.st_mode))
        while (ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > 0 && monotonic_seconds() - start < longest_wait)
            sleep_for(1e-3);
    sleep_for(forwarding_time);
}
