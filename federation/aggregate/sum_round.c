#include "federation/aggregate/sum_round.h"

#include <sodium.h>
#include <stdlib.h>

#include "base/diagnostics.h"
#include "federation/aggregate/fixed_point.h"

void sum_round_open(SumRound *round, int sites, int least, bool secure, size_t word_count)
{
    if (sodium_init() < 0) bug("libsodium finds no random numbers");
    if (sites > SUM_MOST_SITES || sites < (secure ? SUM_FEWEST_SITES : 1)) bug("a sum of %d sites", sites);
    *round = (SumRound){.sites = sites, .secure = secure, .exponent = FIXED_POINT_LEAST, .word_count = word_count};
    sum_round_reduce(round, sites, least);
    randombytes_buf(round->session, SESSION_BYTES);
    round->members = memory_allocate((size_t)sites * sizeof *round->members);
    round->words = memory_allocate(word_count * sizeof *round->words);
}

void sum_round_reopen(SumRound *round, int sites, int least, bool secure, size_t word_count)
{
    bool fits = round->words && round->word_count == word_count;
    uint32_t *words = fits ? round->words : NULL;
    if (fits) round->words = NULL;
    sum_round_close(round);
    sum_round_open(round, sites, least, secure, fits ? 0 : word_count);
    if (!fits) return;
    free(round->words);
    round->words = memset(words, 0, word_count * sizeof *words);
    round->word_count = word_count;
}

void sum_round_reduce(SumRound *round, int members, int least)
{
    round->threshold = sum_threshold(members);
    round->least = round->secure && least < round->threshold ? round->threshold : least < 1 ? 1 : least;
}

void sum_round_close(SumRound *round)
{
    for (int i = 0; i < round->sites && round->members; i++) {
        if (round->members[i].shares) sodium_memzero(round->members[i].shares, sum_reveal_bytes(round->sites));
        free(round->members[i].shares);
        free(round->members[i].sealed);
        if (round->kept) free(round->kept[i]);
    }
    free(round->kept);
    free(round->members);
    free(round->words);
    *round = (SumRound){0};
}

void sum_round_keep(SumRound *round)
{
    if (round->secure) bug("masked words are of no use one by one");
    round->kept = memory_allocate((size_t)round->sites * sizeof *round->kept);
    round->keeps = true;
}

/* ---- Answers ---- */

static bool has_answered(const SumMember *member, SumPhase phase)
{
    switch (phase) {
    case SUM_OFFERS: return member->offered;
    case SUM_SHARES: return member->shared;
    case SUM_VALUES: return member->counted;
    case SUM_REVEALS: return member->revealed;
    default: return false;
    }
}

bool sum_round_has_answered(const SumRound *round, int site)
{
    return has_answered(&round->members[site], round->phase);
}

bool sum_round_is_in(const SumRound *round, int site)
{
    const SumMember *member = &round->members[site];
    if (member->lost && !has_answered(member, round->phase)) return false;
    switch (round->phase) {
    case SUM_OFFERS: return true;
    case SUM_SHARES: return member->offered;
    case SUM_VALUES: return round->secure ? member->shared : member->offered;
    default: return member->counted;
    }
}

void sum_round_forget(SumRound *round, int site)
{
    if (!round->secure && round->phase > SUM_OFFERS) return;
    if (round->phase == SUM_OFFERS)
        round->members[site].offered = false;
    else
        round->members[site].lost = true;
}

int sum_round_answers(const SumRound *round)
{
    int count = 0;
    for (int i = 0; i < round->sites; i++) count += sum_round_has_answered(round, i);
    return count;
}

static size_t answer_bytes(const SumRound *round, SumPhase phase)
{
    switch (phase) {
    case SUM_OFFERS: return SUM_OFFER_BYTES;
    case SUM_SHARES: return sum_shares_bytes(round->sites);
    case SUM_VALUES: return round->word_count * sizeof *round->words;
    default: return sum_reveal_bytes(round->sites);
    }
}

static bool blame_site(SumProblem *problem, int site, const char *text)
{
    *problem = (SumProblem){site, text};
    return false;
}

static unsigned char *copy(const unsigned char *bytes, size_t size)
{
    return memcpy(memory_allocate(size), bytes, size);
}

static bool take_offer(SumRound *round, int site, const unsigned char *bytes, SumProblem *problem)
{
    SumMember *member = &round->members[site];
    int exponent = (int)(int32_t)get_u32(bytes);
    if (exponent < FIXED_POINT_LEAST || exponent > FIXED_POINT_MOST)
        return blame_site(problem, site, "offers a scale that is out of range");
    for (int i = 0; i < round->sites && round->secure; i++)
        if (round->members[i].offered && (memcmp(round->members[i].share_public, bytes + 4, KEY_BYTES) == 0 ||
                                          memcmp(round->members[i].mask_public, bytes + 4 + KEY_BYTES, KEY_BYTES) == 0))
            return blame_site(problem, site, "offers the keys of another site");
    memcpy(member->share_public, bytes + 4, KEY_BYTES);
    memcpy(member->mask_public, bytes + 4 + KEY_BYTES, KEY_BYTES);
    if (exponent > round->exponent) round->exponent = exponent;
    member->exponent = exponent;
    member->offered = true;
    return true;
}

void sum_round_add(SumRound *round, int site, const uint32_t *words, size_t first, size_t count)
{
    if (first > round->word_count || count > round->word_count - first) bug("words beyond the sum");
    for (size_t i = 0; i < count; i++) round->words[first + i] += words[i];
    if (!round->keeps) return;
    if (!round->kept[site]) round->kept[site] = memory_allocate(round->word_count * sizeof **round->kept);
    memcpy(round->kept[site] + first, words, count * sizeof *words);
}

void sum_round_subtract(SumRound *round, const uint32_t *words, size_t first, size_t count)
{
    if (first > round->word_count || count > round->word_count - first) bug("words beyond the sum");
    for (size_t i = 0; i < count; i++) round->words[first + i] -= words[i];
}

void sum_round_count(SumRound *round, int site) { round->members[site].counted = true; }

static void take_values(SumRound *round, int site, const unsigned char *bytes)
{
    for (size_t i = 0; i < round->word_count; i++) {
        uint32_t word;
        memcpy(&word, bytes + 4 * i, 4);
        sum_round_add(round, site, &word, i, 1);
    }
    sum_round_count(round, site);
}

bool sum_round_expects(const SumRound *round, int site, SumPhase phase, SumProblem *problem)
{
    if (phase < round->phase) return blame_site(problem, site, "is late");
    if (phase != round->phase || phase == SUM_DONE) return blame_site(problem, site, "is early");
    if (!sum_round_is_in(round, site)) return blame_site(problem, site, "is not in this session");
    if (has_answered(&round->members[site], phase)) return blame_site(problem, site, "has sent this before");
    return true;
}

bool sum_round_take(SumRound *round, int site, SumPhase phase, const unsigned char *bytes, size_t size,
                    SumProblem *problem)
{
    SumMember *member = &round->members[site];
    if (!sum_round_expects(round, site, phase, problem)) return false;
    if (size != answer_bytes(round, phase)) return blame_site(problem, site, "sent an update of the wrong size");
    switch (phase) {
    case SUM_OFFERS: return take_offer(round, site, bytes, problem);
    case SUM_SHARES:
        memcpy(member->commitment, bytes, COMMITMENT_BYTES);
        member->sealed = copy(bytes + SUM_SHARES_HEAD, size - SUM_SHARES_HEAD);
        return member->shared = true;
    case SUM_VALUES: take_values(round, site, bytes); return true;
    default: member->shares = copy(bytes, size); return member->revealed = true;
    }
}

/* ---- The next phase ---- */

/* For rules that look at words one by one, one site's scale must not make the others' words too coarse: it counts as at
 * most 2^SCALE_MARGIN times the (upper) median of those that were offered. */
static int common_exponent(const SumRound *round)
{
    enum { SCALE_MARGIN = 8 };
    int sorted[SUM_MOST_SITES], count = 0;
    for (int s = 0; s < round->sites; s++) {
        if (!round->members[s].offered) continue;
        int at = count++;
        for (; at > 0 && sorted[at - 1] > round->members[s].exponent; at--) sorted[at] = sorted[at - 1];
        sorted[at] = round->members[s].exponent;
    }
    int most = count ? sorted[count / 2] + SCALE_MARGIN : round->exponent;
    return round->exponent < most ? round->exponent : most;
}

bool sum_round_advance(SumRound *round, SumProblem *problem)
{
    if (round->phase == SUM_DONE) bug("the sum is made");
    /* A sum needs `least` sites; the threshold of sites can remove the masks. */
    int needed = round->phase == SUM_REVEALS ? round->threshold : round->least;
    if (sum_round_answers(round) < needed) return blame_site(problem, -1, "too few sites have answered");
    if (round->phase == SUM_REVEALS && !sum_round_unmask(round, problem)) return false;
    if (round->phase == SUM_OFFERS && round->keeps) round->exponent = common_exponent(round);
    bool skips = !round->secure && (round->phase == SUM_OFFERS || round->phase == SUM_VALUES);
    round->phase += skips ? 2 : 1;
    return true;
}

static void tell_roster(const SumRound *round, Buffer *message)
{
    unsigned char head[SUM_ROSTER_HEAD];
    put_u32(head, (uint32_t)round->exponent);
    buffer_append(message, head, sizeof head);
    for (int i = 0; i < round->sites; i++) {
        const SumMember *member = &round->members[i];
        unsigned char entry[SUM_ROSTER_ENTRY] = {member->offered && member->former ? SUM_ROSTER_FORMER
                                                                                   : member->offered};
        memcpy(entry + 1, member->share_public, KEY_BYTES);
        memcpy(entry + 1 + KEY_BYTES, member->mask_public, KEY_BYTES);
        buffer_append(message, entry, sizeof entry);
    }
}

static void tell_delivery(const SumRound *round, int site, Buffer *message)
{
    for (int i = 0; i < round->sites; i++) {
        unsigned char entry[SUM_DELIVERY_ENTRY] = {round->members[i].shared};
        if (entry[0]) memcpy(entry + 1, round->members[i].sealed + (size_t)site * SEALED_BYTES, SEALED_BYTES);
        buffer_append(message, entry, sizeof entry);
    }
}

void sum_round_tell(const SumRound *round, int site, Buffer *message)
{
    if (round->phase == SUM_SHARES || (round->phase == SUM_VALUES && !round->secure))
        tell_roster(round, message);
    else if (round->phase == SUM_VALUES)
        tell_delivery(round, site, message);
    for (int i = 0; i < round->sites && round->phase == SUM_REVEALS; i++)
        buffer_append(message, &(unsigned char){round->members[i].counted}, 1);
}
