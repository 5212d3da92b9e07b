/* Removes the masks from a sum: sum_round_unmask. */
#include <sodium.h>
#include <stdlib.h>

#include "base/arena.h"
#include "federation/aggregate/shamir.h"
#include "federation/aggregate/sum_round.h"

typedef struct MaskList {
    Mask *masks;
    size_t count, capacity;
} MaskList;

static void join_shares(const SumRound *round, int of, unsigned char *secret)
{
    unsigned char numbers[SUM_MOST_SITES];
    const unsigned char *shares[SUM_MOST_SITES];
    int count = 0, threshold = round->threshold;
    for (int i = 0; i < round->sites && count < threshold; i++) {
        if (!round->members[i].revealed) continue;
        numbers[count] = (unsigned char)(i + 1);
        shares[count++] = round->members[i].shares + (size_t)of * SHARE_BYTES;
    }
    shamir_join(numbers, shares, count, SHARE_BYTES, secret);
}

static bool list_self_mask(const SumRound *round, int of, MaskList *list)
{
    unsigned char commitment[COMMITMENT_BYTES];
    Mask mask = {.subtract = true};
    join_shares(round, of, mask.seed);
    seed_commitment(round->session, of, mask.seed, commitment);
    bool ok = memcmp(commitment, round->members[of].commitment, COMMITMENT_BYTES) == 0;
    if (ok) array_push(list->masks, list->count, list->capacity, mask);
    sodium_memzero(&mask, sizeof mask);
    return ok;
}

/* A vanished site would have subtracted what the survivors added for it, and added what they subtracted. So its own
 * masks remove those of the survivors. */
static bool list_pair_masks(const SumRound *round, int vanished, MaskList *list)
{
    unsigned char secret[KEY_BYTES];
    join_shares(round, vanished, secret);
    bool ok = key_pair_fits(secret, round->members[vanished].mask_public);
    for (int i = 0; i < round->sites && ok; i++) {
        Mask mask;
        if (!round->members[i].counted) continue;
        ok = pair_mask((PairContext){round->session, vanished, i}, secret, round->members[i].mask_public, &mask);
        if (ok) array_push(list->masks, list->count, list->capacity, mask);
        sodium_memzero(&mask, sizeof mask);
    }
    sodium_memzero(secret, sizeof secret);
    return ok;
}

bool sum_round_unmask(SumRound *round, SumProblem *problem)
{
    MaskList list = {0};
    int bad = -1;
    for (int i = 0; i < round->sites && bad < 0; i++) {
        const SumMember *member = &round->members[i];
        if (member->shared && !(member->counted ? list_self_mask(round, i, &list) : list_pair_masks(round, i, &list)))
            bad = i;
    }
    if (bad < 0)
        masks_apply(round->words, 0, round->word_count, list.masks, list.count);
    else
        *problem = (SumProblem){bad, "has secrets that the shares of the others do not give"};
    if (list.count) sodium_memzero(list.masks, list.count * sizeof *list.masks);
    free(list.masks);
    return bad < 0;
}
