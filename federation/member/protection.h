/* Differential privacy at a site: its update is clipped, and its share of the noise is added (privacy.h).
 *
 * The noise depends on the site's seed, the round and the update, and on nothing else: a site that was killed sends the
 * same again. Fresh noise for the same update would let the coordinator average it away. The seed is a secret file
 * among the site's checkpoints. */
#ifndef FEDERATION_MEMBER_PROTECTION_H
#define FEDERATION_MEMBER_PROTECTION_H

#include "federation/federation.h"
#include "federation/privacy.h"

typedef struct NoiseSeed {
    unsigned char bytes[NOISE_KEY_BYTES];
} NoiseSeed;

/* Reads the seed; at a site that has not begun, draws it where there is none and writes it, for its owner alone. */
bool noise_seed_open(NoiseSeed *seed, bool began, const char *path, Diagnostics *diagnostics);

/* False, and leaves the update as it is, where a value is not finite. */
bool update_protect(float *update, size_t count, const Federation *federation, const NoiseSeed *seed, int64_t round);
/* One scale serves all updates (fixed_point.h), whatever is in them: it tells nothing of any. */
int protected_exponent(const Federation *federation);

#endif
