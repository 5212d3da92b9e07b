/* What one hostile input may cost: two seconds of processor time and 256 MiB of memory. */
#ifndef TESTS_COMMON_LIMITS_H
#define TESTS_COMMON_LIMITS_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

#if defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ADDRESS_SANITIZER 1
#endif
#endif
#ifndef ADDRESS_SANITIZER
#define ADDRESS_SANITIZER 0
#endif

#define LIMIT_SECONDS 2.0
#define LIMIT_BYTES ((rlim_t)256 << 20)

typedef struct Limits {
    double started;
    struct rlimit former;
} Limits;

/* From now on an allocation or mapping that would exceed the limit fails, which ends the process: imports report
 * exhausted memory so. AddressSanitizer's shadow makes address space meaningless; its builds measure time alone. */
static inline Limits limits_begin(void)
{
    Limits limits;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1 || getrlimit(RLIMIT_AS, &limits.former) != 0) abort();
    fclose(file);
    struct rlimit limit = limits.former;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + LIMIT_BYTES;
    if (!ADDRESS_SANITIZER && setrlimit(RLIMIT_AS, &limit) != 0) abort();
    limits.started = process_seconds();
    return limits;
}

/* The seconds since limits_begin; memory is not limited any more. */
static inline double limits_end(const Limits *limits)
{
    double seconds = process_seconds() - limits->started;
    if (setrlimit(RLIMIT_AS, &limits->former) != 0) abort();
    return seconds;
}

#endif
