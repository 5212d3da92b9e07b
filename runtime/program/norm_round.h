/* The messages by which ranks agree on the norm of the whole gradient, between the last backward and the update of a
 * step with clipping. They are modelled one by one, as World (runtime/train/) sends them:
 *
 * - inside a site MPI_Iallreduce, which MPICH does by recursive doubling (Thakur, Rabenseifner and Gropp 2005): ranks
 * meet in pairs at distances 1, 2, 4 ...; if their number is no power of two, every even one of the first ranks hands
 * over to the next, and gets the result back;
 *
 * - between sites the first rank of each sends to every other's;
 *
 * - then it hands the result out inside its site along a binomial tree.
 *
 * The compiler predicts with it, and --emulate takes as long. */
#ifndef RUNTIME_PROGRAM_NORM_ROUND_H
#define RUNTIME_PROGRAM_NORM_ROUND_H

#include <stddef.h>
#include <stdint.h>

/* Sums that are reduced at once: MPICH takes another way, of twice as many rounds, beyond 2 KiB. */
enum { SKY_NORM_PIECE = 256 };

typedef struct SkyNormRound {
    uint32_t rank_count, zone_count;
    uint32_t pair_count; /* zone_count squared */
    uint32_t reserved;
    const uint32_t *zones;     /* per rank */
    const uint32_t *sites;     /* per rank; NULL: there is one */
    const int64_t *message_ns; /* [zone that sends][zone that receives]: what a message takes */
} SkyNormRound;

/* From when each rank begins to when it knows the norm; ns, [rank_count] each, of any origin. Programs allocate nothing
 * while they run: `scratch` is [NORM_ROUND_SCRATCH(rank_count)]. */
#define NORM_ROUND_SCRATCH(ranks) (3 * ((size_t)(ranks) + 1))
void norm_round(const SkyNormRound *round, const int64_t *begin, int64_t *end, int64_t *scratch);

#endif
