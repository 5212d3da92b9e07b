/* The clock that a search goes by. With a time limit that is the monotonic clock, and what is found depends on the
 * machine and on what else it does. Without one it is the work done: every loop of the solvers counts its elementary
 * steps, and deadlines fall due after so many of them, in seconds of an imagined machine that is about as fast as a
 * real one. The same problem then gives the same bytes everywhere, however busy the machine and with any number of
 * threads: work done in parallel is added up, and what runs in parallel looks at no deadline of counted work. */
#ifndef PARTITIONER_WATCH_H
#define PARTITIONER_WATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Watch {
    bool counted;
    double limit;              /* of the monotonic clock: from then on every deadline has passed; 0: none */
    atomic_bool struck;        /* some deadline was found to have passed */
    atomic_int_least64_t work; /* counted so far, about nanoseconds */
} Watch;

/* Seconds since some moment long before the watch was made: 0 stands for no deadline. A NULL watch is the monotonic
 * clock. */
double watch_seconds(const Watch *watch);
/* Whether the deadline has passed, or the watch's limit; a deadline of 0 asks about the limit alone. */
bool watch_passed(Watch *watch, double deadline);
/* The moment at which `share` of what is left until the deadline has passed. */
double watch_share(const Watch *watch, double deadline, double share);

/* What is counted, and about how many nanoseconds one takes: fitted to CPU time on 30 problems of 40 to 2000 layers,
 * each of which they explain to within a fifth. */
enum {
    WATCH_STAGE = 3,  /* a stage looked at by a shortest path */
    WATCH_LANE = 7,   /* the same of eight classes at a time */
    WATCH_ARC = 2,    /* an arc, or a stage stretched as far as it goes */
    WATCH_ENTRY = 1,  /* an entry of the simplex's inverse that changes */
    WATCH_LABEL = 14, /* a partial plan extended by a stage */
    WATCH_KEPT = 200, /* a partial plan sorted in and looked up */
    WATCH_REACH = 2   /* an entry of a relaxation that is made */
};

/* `count` steps of a kind. */
static inline void watch_count(Watch *watch, int kind, int64_t count)
{
    if (watch && watch->counted) atomic_fetch_add_explicit(&watch->work, kind * count, memory_order_relaxed);
}

#endif
