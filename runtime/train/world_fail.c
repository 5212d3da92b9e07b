#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/train/world_parts.h"

enum { ABORT_SECONDS = 3 };

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

static int last_exit_code;

/* MPI_Abort waits for the launcher's answer, for ever if the launcher is gone. */
static void leave(int number)
{
    (void)number;
    _exit(last_exit_code);
}

/* "rank 2 (edge-1), step 17: MESSAGE" */
static const char *with_place(const World *world, const char *format, va_list arguments, Arena *arena)
{
    const char *text = arena_format_va(arena, format, arguments);
    const char *place =
        *world->step > 0 ? arena_format(arena, "step %lld", (long long)*world->step) : "before training";
    return arena_format(arena, "rank %d (%s), %s: %s", world->rank, world->device, place, text);
}

void world_warn(const World *world, const char *format, ...)
{
    FREED_WITH(arena_free) Arena arena = {0};
    va_list arguments;
    va_start(arguments, format);
    text_print(stderr, "skycc: warning: %s\n", with_place(world, format, arguments, &arena));
    va_end(arguments);
}

static _Noreturn void end_all(World *world, int exit_code, const char *format, va_list arguments)
{
    static bool ending; /* ending may fail, too */
    Arena arena = {0};
    const char *who = with_place(world, format, arguments, &arena);
    text_print(stderr, "skycc: error: %s\n", who);
    fflush(NULL);
    bool tells = world->sites && exit_code != EXIT_SITE_RETURNED && !ending;
    ending = true;
    if (tells) world->sites->bridge->fail(world, exit_code, who);
    last_words_await_reader();
    last_exit_code = exit_code;
    signal(SIGALRM, leave);
    alarm(ABORT_SECONDS);
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

_Noreturn void world_fail(World *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_all(world, EXIT_RUN_FAILED, format, arguments);
}

_Noreturn void world_diverged(World *world, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_all(world, EXIT_DIVERGED, format, arguments);
}

_Noreturn void world_end(World *world, int exit_code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    end_all(world, exit_code, format, arguments);
}
