/* What a session of secure aggregation sends between a site and the coordinator, in this order, of `sites` sites in
 * all, numbered from 0. Every message has one size; numbers are little-endian; what stands for a site that is not there
 * is zero.
 *
 *   offer      to the coordinator   i32 exponent, public share key, public mask key
 *   roster     to each site         i32 exponent, then of every site: u8 present, public share key, public mask key
 *   shares     to the coordinator   commitment to the self seed, then for every other site: sealed shares
 *   delivery   to each site         of every site: u8 present, the shares that it sealed for this one
 *   values     to the coordinator   u32 masked words
 *   survivors  to each site         of every site: u8 whether its values are in the sum
 *   reveal     to the coordinator   of every site whose shares were delivered: a share of its self seed if its values
 *                                   are in the sum, else a share of its secret mask key; never both
 *
 * Without masks there are the offer (keys zero), the roster and the values. */
#ifndef FEDERATION_AGGREGATE_SUM_MESSAGES_H
#define FEDERATION_AGGREGATE_SUM_MESSAGES_H

#include <string.h>

#include "federation/aggregate/pair_keys.h"

enum {
    SUM_OFFER_BYTES = 4 + 2 * KEY_BYTES,
    SUM_ROSTER_HEAD = 4,
    SUM_ROSTER_ENTRY = 1 + 2 * KEY_BYTES,
    SUM_SHARES_HEAD = COMMITMENT_BYTES,
    SUM_DELIVERY_ENTRY = 1 + SEALED_BYTES
};

/* In the roster, of a site that is present with the lasting key that it had before. */
enum { SUM_ROSTER_PRESENT = 1, SUM_ROSTER_FORMER = 2 };

/* From how many sites on there is secure aggregation: of the sum of two each would know the other's part. */
enum { SUM_FEWEST_SITES = 3, SUM_MOST_SITES = 255 };

/* How many sites it takes to learn a sum, floor(2 sites / 3) + 1: coordinators that tell two stories about who survived
 * cannot have enough of them for both. */
static inline int sum_threshold(int sites) { return 2 * sites / 3 + 1; }

static inline size_t sum_roster_bytes(int sites) { return SUM_ROSTER_HEAD + (size_t)sites * SUM_ROSTER_ENTRY; }
static inline size_t sum_shares_bytes(int sites) { return SUM_SHARES_HEAD + (size_t)sites * SEALED_BYTES; }
static inline size_t sum_delivery_bytes(int sites) { return (size_t)sites * SUM_DELIVERY_ENTRY; }
static inline size_t sum_reveal_bytes(int sites) { return (size_t)sites * SHARE_BYTES; }

static inline void put_u32(unsigned char *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++) bytes[i] = (unsigned char)(value >> (8 * i));
}

static inline uint32_t get_u32(const unsigned char *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

#endif
