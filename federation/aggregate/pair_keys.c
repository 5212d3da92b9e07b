#include "federation/aggregate/pair_keys.h"

#include <sodium.h>

/* The use of a hash, which goes into it so that no two uses give the same hash. */
static const unsigned char for_shares[] = "skycc shares", for_masks[] = "skycc mask", for_seeds[] = "skycc seed",
                           for_sender[] = "skycc sender";

static void begin(crypto_generichash_state *state, const unsigned char *purpose, size_t bytes)
{
    crypto_generichash_init(state, NULL, 0, 32);
    crypto_generichash_update(state, purpose, bytes);
}

static void add_number(crypto_generichash_state *state, int number)
{
    unsigned char bytes[4] = {(unsigned char)number, (unsigned char)(number >> 8), (unsigned char)(number >> 16),
                              (unsigned char)(number >> 24)};
    crypto_generichash_update(state, bytes, sizeof bytes);
}

static void add_context(crypto_generichash_state *state, PairContext context)
{
    bool first = context.own < context.peer;
    crypto_generichash_update(state, context.session, SESSION_BYTES);
    add_number(state, first ? context.own : context.peer);
    add_number(state, first ? context.peer : context.own);
}

void key_pair_draw(KeyPair *pair)
{
    randombytes_buf(pair->secret, KEY_BYTES);
    crypto_scalarmult_base(pair->public_key, pair->secret);
}

bool key_pair_fits(const unsigned char *secret, const unsigned char *public_key)
{
    unsigned char made[KEY_BYTES];
    crypto_scalarmult_base(made, secret);
    return sodium_memcmp(made, public_key, KEY_BYTES) == 0;
}

bool pair_share_key(PairContext context, const unsigned char *own_lasting_secret, const unsigned char *peer_lasting,
                    const unsigned char *own_secret, const unsigned char *peer_public, unsigned char key[KEY_BYTES])
{
    unsigned char common[2][KEY_BYTES];
    if (crypto_scalarmult(common[0], own_lasting_secret, peer_lasting) != 0 ||
        crypto_scalarmult(common[1], own_secret, peer_public) != 0)
        return false;
    crypto_generichash_state state;
    begin(&state, for_shares, sizeof for_shares);
    add_context(&state, context);
    crypto_generichash_update(&state, common[0], sizeof common);
    crypto_generichash_final(&state, key, KEY_BYTES);
    sodium_memzero(common, sizeof common);
    return true;
}

bool pair_mask(PairContext context, const unsigned char *own_secret, const unsigned char *peer_public, Mask *mask)
{
    unsigned char common[KEY_BYTES];
    if (crypto_scalarmult(common, own_secret, peer_public) != 0) return false;
    crypto_generichash_state state;
    begin(&state, for_masks, sizeof for_masks);
    add_context(&state, context);
    crypto_generichash_update(&state, common, sizeof common);
    crypto_generichash_final(&state, mask->seed, MASK_SEED_BYTES);
    sodium_memzero(common, sizeof common);
    mask->subtract = context.own > context.peer;
    return true;
}

/* A key for one direction. */
static void sender_key(const unsigned char *key, int sender, unsigned char one_way[KEY_BYTES])
{
    crypto_generichash_state state;
    begin(&state, for_sender, sizeof for_sender);
    add_number(&state, sender);
    crypto_generichash_update(&state, key, KEY_BYTES);
    crypto_generichash_final(&state, one_way, KEY_BYTES);
}

void share_seal(const unsigned char *key, int sender, const unsigned char *plain, unsigned char *sealed)
{
    unsigned char one_way[KEY_BYTES];
    sender_key(key, sender, one_way);
    randombytes_buf(sealed, crypto_secretbox_NONCEBYTES);
    crypto_secretbox_easy(sealed + crypto_secretbox_NONCEBYTES, plain, SEALED_PLAIN_BYTES, sealed, one_way);
    sodium_memzero(one_way, sizeof one_way);
}

bool share_open(const unsigned char *key, int sender, const unsigned char *sealed, unsigned char *plain)
{
    unsigned char one_way[KEY_BYTES];
    sender_key(key, sender, one_way);
    int failed = crypto_secretbox_open_easy(plain, sealed + crypto_secretbox_NONCEBYTES,
                                            SEALED_BYTES - crypto_secretbox_NONCEBYTES, sealed, one_way);
    sodium_memzero(one_way, sizeof one_way);
    return failed == 0;
}

void seed_commitment(const unsigned char *session, int site, const unsigned char *seed,
                     unsigned char commitment[COMMITMENT_BYTES])
{
    crypto_generichash_state state;
    begin(&state, for_seeds, sizeof for_seeds);
    crypto_generichash_update(&state, session, SESSION_BYTES);
    add_number(&state, site);
    crypto_generichash_update(&state, seed, MASK_SEED_BYTES);
    crypto_generichash_final(&state, commitment, COMMITMENT_BYTES);
}
