#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static double seconds_on(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

double monotonic_seconds(void) { return seconds_on(CLOCK_MONOTONIC); }

double thread_seconds(void) { return seconds_on(CLOCK_THREAD_CPUTIME_ID); }

double process_seconds(void) { return seconds_on(CLOCK_PROCESS_CPUTIME_ID); }

const char *seconds_format(double seconds, char text[static 32])
{
    snprintf(text, 32, seconds < 99.95 ? "%#.3g s" : "%.0f s", seconds);
    return text;
}
