#include "federation/aggregate/sum_site.h"

#include <sodium.h>
#include <stdlib.h>

#include "base/diagnostics.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/shamir.h"

typedef enum SumSiteState { SITE_NEW, SITE_OFFERED, SITE_SHARED, SITE_DELIVERED, SITE_MASKED, SITE_ENDED } SumSiteState;

/* What this site knows about another site or itself. */
typedef struct Peer {
    bool listed, delivered, survived;
    unsigned char lasting[KEY_BYTES], former[KEY_BYTES], share_public[KEY_BYTES], mask_public[KEY_BYTES];
    unsigned char seal_key[KEY_BYTES];
    unsigned char self_share[SHARE_BYTES], mask_share[SHARE_BYTES];
} Peer;

struct SumSite {
    int site, sites, threshold, exponent; /* exponent: the least that fits this site's values */
    bool secure, cuts, revealed;
    SumSiteState state;
    unsigned char session[SESSION_BYTES], lasting_secret[KEY_BYTES], self_seed[MASK_SEED_BYTES];
    KeyPair share_pair, mask_pair;
    Mask *masks; /* room for one per site, made with the first words to mask */
    size_t mask_count;
    Peer peers[]; /* of every site, itself too */
};

static size_t site_bytes(int sites) { return sizeof(SumSite) + (size_t)sites * sizeof(Peer); }

SumSite *sum_site_open(const SumSetup *setup)
{
    if (sodium_init() < 0) bug("libsodium finds no random numbers");
    SumSite *site = memory_allocate(site_bytes(setup->sites));
    site->site = setup->site;
    site->sites = setup->sites;
    site->secure = setup->secure;
    site->cuts = setup->cuts;
    site->threshold = setup->threshold ? setup->threshold : sum_threshold(setup->sites);
    memcpy(site->session, setup->session, SESSION_BYTES);
    if (!setup->secure) return site;
    memcpy(site->lasting_secret, setup->lasting_secret, KEY_BYTES);
    for (int i = 0; i < setup->sites; i++) {
        memcpy(site->peers[i].lasting, setup->lasting_publics + (size_t)i * KEY_BYTES, KEY_BYTES);
        if (setup->former_publics)
            memcpy(site->peers[i].former, setup->former_publics + (size_t)i * KEY_BYTES, KEY_BYTES);
    }
    key_pair_draw(&site->share_pair);
    key_pair_draw(&site->mask_pair);
    randombytes_buf(site->self_seed, MASK_SEED_BYTES);
    return site;
}

void sum_site_close(SumSite *site)
{
    if (!site) return;
    if (site->masks) sodium_memzero(site->masks, (size_t)site->sites * sizeof *site->masks);
    free(site->masks);
    sodium_memzero(site, site_bytes(site->sites));
    free(site);
}

static bool blame(SumSite *site, SumProblem *problem, int who, const char *text)
{
    site->state = SITE_ENDED;
    *problem = (SumProblem){who, text};
    return false;
}

void sum_site_offer(SumSite *site, int exponent, unsigned char offer[SUM_OFFER_BYTES])
{
    if (site->state > SITE_OFFERED) bug("an offer comes first");
    site->state = SITE_OFFERED;
    site->exponent = exponent;
    put_u32(offer, (uint32_t)exponent);
    memcpy(offer + 4, site->share_pair.public_key, KEY_BYTES);
    memcpy(offer + 4 + KEY_BYTES, site->mask_pair.public_key, KEY_BYTES);
}

/* ---- Roster and shares ---- */

static bool same_key_twice(const SumSite *site, int at)
{
    const Peer *peer = &site->peers[at];
    for (int i = 0; i < at; i++)
        if (site->peers[i].listed && (memcmp(site->peers[i].mask_public, peer->mask_public, KEY_BYTES) == 0 ||
                                      memcmp(site->peers[i].share_public, peer->share_public, KEY_BYTES) == 0))
            return true;
    return false;
}

static bool read_roster(SumSite *site, const unsigned char *entry, SumProblem *problem)
{
    int listed = 0;
    for (int i = 0; i < site->sites; i++, entry += SUM_ROSTER_ENTRY) {
        Peer *peer = &site->peers[i];
        peer->listed = *entry != 0;
        if (!peer->listed) continue;
        if (*entry == SUM_ROSTER_FORMER) memcpy(peer->lasting, peer->former, KEY_BYTES);
        listed++;
        memcpy(peer->share_public, entry + 1, KEY_BYTES);
        memcpy(peer->mask_public, entry + 1 + KEY_BYTES, KEY_BYTES);
        if (site->secure && same_key_twice(site, i)) return blame(site, problem, i, "has the keys of another site");
    }
    const Peer *own = &site->peers[site->site];
    if (!own->listed || memcmp(own->mask_public, site->mask_pair.public_key, KEY_BYTES) != 0 ||
        memcmp(own->share_public, site->share_pair.public_key, KEY_BYTES) != 0)
        return blame(site, problem, -1, "the roster lacks this site's keys");
    if (site->secure && listed < site->threshold)
        return blame(site, problem, -1, "the roster has fewer sites than a sum needs");
    return true;
}

static bool seal_for(SumSite *site, int to, const unsigned char *self_share, const unsigned char *mask_share,
                     unsigned char *sealed)
{
    Peer *peer = &site->peers[to];
    PairContext context = {site->session, site->site, to};
    if (!pair_share_key(context, site->lasting_secret, peer->lasting, site->share_pair.secret, peer->share_public,
                        peer->seal_key))
        return false;
    unsigned char plain[SEALED_PLAIN_BYTES];
    memcpy(plain, self_share, SHARE_BYTES);
    memcpy(plain + SHARE_BYTES, mask_share, SHARE_BYTES);
    memcpy(plain + 2 * SHARE_BYTES, site->mask_pair.public_key, KEY_BYTES);
    share_seal(peer->seal_key, site->site, plain, sealed);
    sodium_memzero(plain, sizeof plain);
    return true;
}

/* Splits one secret for all sites; `shares` are sites * SHARE_BYTES. */
static void split(const SumSite *site, const unsigned char *secret, unsigned char *shares)
{
    int threshold = site->threshold;
    unsigned char random[SUM_MOST_SITES * SHARE_BYTES];
    randombytes_buf(random, (size_t)threshold * SHARE_BYTES);
    shamir_split(secret, SHARE_BYTES, threshold, site->sites, random, shares);
    sodium_memzero(random, sizeof random);
}

static bool make_shares(SumSite *site, unsigned char *message, SumProblem *problem)
{
    unsigned char self_shares[SUM_MOST_SITES * SHARE_BYTES], mask_shares[SUM_MOST_SITES * SHARE_BYTES];
    split(site, site->self_seed, self_shares);
    split(site, site->mask_pair.secret, mask_shares);
    memset(message, 0, sum_shares_bytes(site->sites));
    seed_commitment(site->session, site->site, site->self_seed, message);
    int bad = -1;
    for (int i = 0; i < site->sites && bad < 0; i++) {
        Peer *peer = &site->peers[i];
        const unsigned char *self_share = self_shares + i * SHARE_BYTES, *mask_share = mask_shares + i * SHARE_BYTES;
        if (i == site->site) {
            memcpy(peer->self_share, self_share, SHARE_BYTES);
            memcpy(peer->mask_share, mask_share, SHARE_BYTES);
        } else if (peer->listed &&
                   !seal_for(site, i, self_share, mask_share, message + SUM_SHARES_HEAD + (size_t)i * SEALED_BYTES)) {
            bad = i;
        }
    }
    sodium_memzero(self_shares, sizeof self_shares);
    sodium_memzero(mask_shares, sizeof mask_shares);
    return bad < 0 || blame(site, problem, bad, "has an invalid key");
}

bool sum_site_roster(SumSite *site, const unsigned char *roster, size_t bytes, int *exponent, unsigned char *shares,
                     SumProblem *problem)
{
    if (site->state != SITE_OFFERED) return blame(site, problem, -1, "the roster came at the wrong time");
    if (bytes != sum_roster_bytes(site->sites)) return blame(site, problem, -1, "the roster has the wrong size");
    *exponent = (int)(int32_t)get_u32(roster);
    if ((*exponent < site->exponent && !site->cuts) || *exponent < FIXED_POINT_LEAST || *exponent > FIXED_POINT_MOST)
        return blame(site, problem, -1, "the scale is too small for this site's values");
    if (!read_roster(site, roster + SUM_ROSTER_HEAD, problem)) return false;
    site->state = site->secure ? SITE_SHARED : SITE_DELIVERED;
    return !site->secure || make_shares(site, shares, problem);
}

/* ---- Delivery and masks ---- */

static bool open_from(SumSite *site, int from, const unsigned char *sealed)
{
    Peer *peer = &site->peers[from];
    unsigned char plain[SEALED_PLAIN_BYTES];
    bool ok = share_open(peer->seal_key, from, sealed, plain) &&
              memcmp(plain + 2 * SHARE_BYTES, peer->mask_public, KEY_BYTES) == 0;
    if (ok) {
        memcpy(peer->self_share, plain, SHARE_BYTES);
        memcpy(peer->mask_share, plain + SHARE_BYTES, SHARE_BYTES);
    }
    sodium_memzero(plain, sizeof plain);
    return ok;
}

bool sum_site_delivery(SumSite *site, const unsigned char *delivery, size_t bytes, SumProblem *problem)
{
    if (site->state != SITE_SHARED) return blame(site, problem, -1, "shares came at the wrong time");
    if (bytes != sum_delivery_bytes(site->sites)) return blame(site, problem, -1, "shares have the wrong size");
    int delivered = 0;
    for (int i = 0; i < site->sites; i++, delivery += SUM_DELIVERY_ENTRY) {
        Peer *peer = &site->peers[i];
        if (!*delivery) continue;
        if (!peer->listed) return blame(site, problem, i, "gave shares and was not in the roster");
        if (i != site->site && !open_from(site, i, delivery + 1))
            return blame(site, problem, i, "sent shares that are not sealed with its key");
        peer->delivered = true;
        delivered++;
    }
    if (!site->peers[site->site].delivered) return blame(site, problem, -1, "this site's shares were left out");
    if (delivered < site->threshold) return blame(site, problem, -1, "fewer sites gave shares than a sum needs");
    site->state = SITE_DELIVERED;
    return true;
}

static void make_masks(SumSite *site)
{
    site->masks = memory_allocate((size_t)site->sites * sizeof *site->masks);
    for (int i = 0; i < site->sites; i++) {
        Mask *mask = &site->masks[site->mask_count];
        if (!site->peers[i].delivered) continue;
        if (i == site->site) {
            memcpy(mask->seed, site->self_seed, MASK_SEED_BYTES);
            mask->subtract = false;
        } else if (!pair_mask((PairContext){site->session, site->site, i}, site->mask_pair.secret,
                              site->peers[i].mask_public, mask)) {
            bug("the key of site %d was taken", i);
        }
        site->mask_count++;
    }
}

void sum_site_mask(SumSite *site, uint32_t *words, size_t first, size_t count)
{
    if (site->state != SITE_DELIVERED && site->state != SITE_MASKED) bug("words are masked after the delivery");
    site->state = SITE_MASKED;
    if (!site->secure) return;
    if (!site->masks) make_masks(site);
    masks_apply(words, first, count, site->masks, site->mask_count);
}

/* ---- Survivors ---- */

static bool take_survivors(SumSite *site, const unsigned char *survivors, SumProblem *problem)
{
    int count = 0;
    for (int i = 0; i < site->sites; i++) {
        bool survived = survivors[i] != 0;
        if (site->revealed && survived != site->peers[i].survived)
            return blame(site, problem, i, "is reported both present and gone");
        if (survived && !site->peers[i].delivered)
            return blame(site, problem, i, "is reported present, but gave no shares");
        count += survived;
    }
    if (!survivors[site->site]) return blame(site, problem, -1, "this site's values were left out");
    if (count < site->threshold) return blame(site, problem, -1, "fewer sites are left than a sum needs");
    for (int i = 0; i < site->sites; i++) site->peers[i].survived = survivors[i] != 0;
    return true;
}

bool sum_site_reveal(SumSite *site, const unsigned char *survivors, size_t bytes, unsigned char *reveal,
                     SumProblem *problem)
{
    if (!site->secure || site->state != SITE_MASKED)
        return blame(site, problem, -1, "the list of sites in the sum came at the wrong time");
    if (bytes != (size_t)site->sites)
        return blame(site, problem, -1, "the list of sites in the sum has the wrong size");
    if (!take_survivors(site, survivors, problem)) return false;
    site->revealed = true;
    for (int i = 0; i < site->sites; i++, reveal += SHARE_BYTES) {
        const Peer *peer = &site->peers[i];
        if (!peer->delivered)
            memset(reveal, 0, SHARE_BYTES);
        else
            memcpy(reveal, peer->survived ? peer->self_share : peer->mask_share, SHARE_BYTES);
    }
    return true;
}
