/* What two sites have in common: a key under which one sends the other shares of its secrets, and the seed of the mask
 * that one of them adds and the other subtracts.
 *
 * Both follow by BLAKE2b from X25519 with keys that are drawn for one session and forgotten after it. The key for
 * shares also follows from the sites' own lasting keys, which are pinned: who cannot prove to be that site cannot read
 * or make shares, and what crossed cannot be read later by someone who steals a lasting key. */
#ifndef FEDERATION_AGGREGATE_PAIR_KEYS_H
#define FEDERATION_AGGREGATE_PAIR_KEYS_H

#include <stdbool.h>

#include "federation/aggregate/masks.h"

enum {
    KEY_BYTES = 32, /* of X25519, public or secret */
    SESSION_BYTES = 16,
    SHARE_BYTES = 32,
    COMMITMENT_BYTES = 32,
    /* What is sealed for a peer: a share of the self seed, one of the secret mask key, and the public mask key, which
     * vouches for that which the coordinator passed on. */
    SEALED_PLAIN_BYTES = 2 * SHARE_BYTES + KEY_BYTES,
    SEALED_BYTES = 24 + 16 + SEALED_PLAIN_BYTES /* nonce and authenticator of XSalsa20-Poly1305 in front */
};

typedef struct KeyPair {
    unsigned char public_key[KEY_BYTES], secret[KEY_BYTES];
} KeyPair;

/* A pair of sites in a session; both compute the same from it, whichever is `own`. */
typedef struct PairContext {
    const unsigned char *session; /* SESSION_BYTES */
    int own, peer;                /* numbers of the sites */
} PairContext;

void key_pair_draw(KeyPair *pair);
bool key_pair_fits(const unsigned char *secret, const unsigned char *public_key);

/* false: a public key is none that gives a common secret. */
bool pair_share_key(PairContext context, const unsigned char *own_lasting_secret, const unsigned char *peer_lasting,
                    const unsigned char *own_secret, const unsigned char *peer_public, unsigned char key[KEY_BYTES]);
bool pair_mask(PairContext context, const unsigned char *own_secret, const unsigned char *peer_public, Mask *mask);

/* Under a key of pair_share_key. `sender` is authenticated, so that nothing can be sent back to whom it came from. */
void share_seal(const unsigned char *key, int sender, const unsigned char *plain, unsigned char *sealed);
bool share_open(const unsigned char *key, int sender, const unsigned char *sealed, unsigned char *plain);

/* By which a seed that was put together from shares is known to be the right one; of a random seed it tells nothing. */
void seed_commitment(const unsigned char *session, int site, const unsigned char *seed,
                     unsigned char commitment[COMMITMENT_BYTES]);

#endif
