/* Wakes ranks of one host: a word of shared memory per rank, which a sender counts up and a waiting rank sleeps on
 * (futex). So ranks that share cores sleep long and still start within microseconds of a message. */
#ifndef RUNTIME_TRAIN_DOORBELL_H
#define RUNTIME_TRAIN_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct Bell {
    _Alignas(64) _Atomic uint32_t rings; /* a cache line each */
    _Atomic uint32_t sleeping;
    _Atomic uint32_t arrivals; /* of the first bell: at what all ranks take part in */
} Bell;

enum { DOORBELL_NAME = 64 };

/* A name that no other run uses. */
void doorbell_name(char name[DOORBELL_NAME]);
/* Maps `count` bells of that name, creating them for the first rank; NULL if the system refuses, or if they were
 * created in another container. */
Bell *doorbell_map(const char *name, int count, bool create);
/* The name is no longer needed once all have mapped it. */
void doorbell_unlink(const char *name);
void doorbell_unmap(Bell *bells, int count);

void doorbell_ring(Bell *bell);
/* Sleeps until the bell has rung since it showed `seen`, at most `seconds`. */
void doorbell_sleep(Bell *bell, uint32_t seen, double seconds);

#endif
