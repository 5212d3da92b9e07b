/* The ranks that compute losses, one for each replica, and what they bring to the first of them. */
#ifndef RUNTIME_TRAIN_LOSS_RANKS_H
#define RUNTIME_TRAIN_LOSS_RANKS_H

#include "runtime/train/world.h"

typedef struct LossRanks {
    World *world;
    int *ranks; /* ascending */
    int count;
    bool here; /* this rank is one of them */
    char *received;
    size_t capacity;
} LossRanks;

/* Collective. */
void loss_ranks_open(LossRanks *losses, World *world, const SkyProgram *program);
void loss_ranks_close(LossRanks *losses);
/* Brings bytes, as many as each rank has, to the first, where `take` gets those of the others in the order of the
 * ranks. Does nothing on ranks without a loss. */
void loss_ranks_bring(LossRanks *losses, const void *mine, size_t size,
                      void (*take)(void *context, const void *bytes, size_t size), void *context);
/* Adds numbers up: the first rank gets the sum. */
void loss_ranks_add(LossRanks *losses, double *numbers, size_t count);
void loss_ranks_count(LossRanks *losses, int64_t *numbers, size_t count);

#endif
