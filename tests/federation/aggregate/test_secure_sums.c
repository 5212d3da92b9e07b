/* Secure aggregation: sums are exact whoever vanishes and whatever comes first, and nothing but sums is given away. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_round.h"

enum { MOST_SITES = 50, VALUES = 300, WORDS = VALUES + FIXED_POINT_WEIGHT_WORDS };
#define NEVER SUM_DONE

/* A federation in one process: what each site has, and every message that it would send. */
typedef struct Federation {
    int sites;
    bool secure;
    KeyPair lasting[MOST_SITES];
    unsigned char publics[MOST_SITES * KEY_BYTES];
    float values[MOST_SITES][VALUES];
    int64_t weight[MOST_SITES];
    int exponent[MOST_SITES];
    SumPhase vanishes[MOST_SITES]; /* the phase that a site does not answer any more; NEVER: it stays */
    SumSite *site[MOST_SITES];
    Buffer sent[MOST_SITES][SUM_DONE]; /* by phase */
} Federation;

static void start(Federation *federation, int sites, bool secure, uint64_t seed)
{
    memset(federation, 0, sizeof *federation);
    federation->sites = sites;
    federation->secure = secure;
    for (int i = 0; i < sites; i++) {
        RandomStream stream = random_substream(random_stream(seed, "values"), (uint64_t)i);
        key_pair_draw(&federation->lasting[i]);
        memcpy(federation->publics + i * KEY_BYTES, federation->lasting[i].public_key, KEY_BYTES);
        random_fill_normal(stream, 0, 1e-3 * (i + 1), federation->values[i], VALUES);
        federation->weight[i] = 1 + (int64_t)random_below(stream, VALUES, 100000);
        assert_true(
            fixed_point_exponent(federation->values[i], VALUES, federation->weight[i], &federation->exponent[i]));
        federation->vanishes[i] = NEVER;
    }
}

/* New sites for a session, with nothing sent. */
static void join(Federation *federation, const SumRound *round)
{
    for (int i = 0; i < federation->sites; i++) {
        for (int phase = 0; phase < SUM_DONE; phase++) buffer_free(&federation->sent[i][phase]);
        sum_site_close(federation->site[i]);
        federation->site[i] = sum_site_open(&(SumSetup){.site = i,
                                                        .sites = federation->sites,
                                                        .secure = federation->secure,
                                                        .lasting_secret = federation->lasting[i].secret,
                                                        .lasting_publics = federation->publics,
                                                        .session = round->session});
    }
}

static void stop(Federation *federation)
{
    for (int i = 0; i < federation->sites; i++) {
        for (int phase = 0; phase < SUM_DONE; phase++) buffer_free(&federation->sent[i][phase]);
        sum_site_close(federation->site[i]);
    }
}

static void encode(const Federation *federation, int i, int exponent, uint32_t words[WORDS])
{
    fixed_point_encode(words, federation->values[i], VALUES, federation->weight[i], exponent, federation->sites);
    fixed_point_put_weight(words + VALUES, federation->weight[i]);
}

/* What site i answers to what it is told, in sent[i][phase]. False if it refuses. */
static bool answer(Federation *federation, const SumRound *round, int i, const Buffer *told, SumProblem *problem)
{
    SumSite *site = federation->site[i];
    const unsigned char *bytes = (const unsigned char *)told->bytes;
    unsigned char message[MOST_SITES * SEALED_BYTES + SUM_SHARES_HEAD];
    uint32_t words[WORDS];
    int exponent = round->exponent; /* as every site has it since the roster */
    size_t size = 0;
    switch (round->phase) {
    case SUM_OFFERS: sum_site_offer(site, federation->exponent[i], message), size = SUM_OFFER_BYTES; break;
    case SUM_SHARES:
        if (!sum_site_roster(site, bytes, told->size, &exponent, message, problem)) return false;
        size = sum_shares_bytes(federation->sites);
        break;
    case SUM_VALUES:
        if (!(federation->secure ? sum_site_delivery(site, bytes, told->size, problem)
                                 : sum_site_roster(site, bytes, told->size, &exponent, NULL, problem)))
            return false;
        encode(federation, i, exponent, words);
        for (size_t at = 0; at < WORDS; at += 2 * MASK_BLOCK_WORDS) /* by parts */
            sum_site_mask(site, words + at, at, WORDS - at < 2 * MASK_BLOCK_WORDS ? WORDS - at : 2 * MASK_BLOCK_WORDS);
        buffer_append(&federation->sent[i][SUM_VALUES], words, sizeof words);
        return true;
    default:
        if (!sum_site_reveal(site, bytes, told->size, message, problem)) return false;
        size = sum_reveal_bytes(federation->sites);
    }
    buffer_append(&federation->sent[i][round->phase], message, size);
    return true;
}

/* All sites that are still there answer the phase, in the order that `order` draws; what they sent before in this
 * session is sent again. */
static void gather(Federation *federation, SumRound *round, RandomStream order)
{
    uint32_t turn[MOST_SITES];
    SumPhase phase = round->phase;
    random_permutation(random_substream(order, phase), turn, (size_t)federation->sites);
    for (int k = 0; k < federation->sites; k++) {
        int i = (int)turn[k];
        Buffer told = {0}, *sent = &federation->sent[i][phase];
        SumProblem problem = {0};
        if (federation->vanishes[i] <= phase || !sum_round_is_in(round, i)) continue;
        sum_round_tell(round, i, &told);
        if (!sent->size && !answer(federation, round, i, &told, &problem))
            fail_msg("site %d refuses phase %d: %d %s", i, phase, problem.site, problem.text);
        if (!sum_round_take(round, i, phase, (unsigned char *)sent->bytes, sent->size, &problem))
            fail_msg("site %d is refused in phase %d: %s", i, phase, problem.text);
        buffer_free(&told);
    }
}

static void advance(SumRound *round)
{
    SumProblem problem = {0};
    if (!sum_round_advance(round, &problem)) fail_msg("phase %d: %d %s", round->phase, problem.site, problem.text);
}

static void run_session(Federation *federation, SumRound *round, RandomStream order)
{
    while (round->phase != SUM_DONE) {
        gather(federation, round, order);
        advance(round);
    }
}

/* The sum of the words of all sites that were there for the phase of values, one by one. */
static void expect_exact(const Federation *federation, const SumRound *round)
{
    uint32_t words[WORDS], sum[WORDS] = {0};
    for (int i = 0; i < federation->sites; i++) {
        if (federation->vanishes[i] <= SUM_VALUES) continue;
        encode(federation, i, round->exponent, words);
        for (int w = 0; w < WORDS; w++) sum[w] += words[w];
    }
    assert_memory_equal(round->words, sum, sizeof sum);
}

static void draw_vanishing(Federation *federation, int count, RandomStream stream)
{
    uint32_t order[MOST_SITES];
    random_permutation(stream, order, (size_t)federation->sites);
    for (int i = 0; i < federation->sites; i++) federation->vanishes[i] = NEVER;
    for (int k = 0; k < count; k++)
        federation->vanishes[order[k]] = (SumPhase)random_below(stream, (uint64_t)(1000 + k), SUM_DONE);
}

static Federation federation; /* too large for a stack */

static void sixteen_of_fifty_vanish_and_any_order_gives_the_exact_sum(void **state)
{
    (void)state;
    SumRound first;
    start(&federation, 50, true, 1);
    draw_vanishing(&federation, 16, random_stream(1, "vanishing"));
    sum_round_open(&first, 50, 1, true, WORDS);
    join(&federation, &first);
    run_session(&federation, &first, random_stream(1, "order"));
    expect_exact(&federation, &first);
    for (uint64_t again = 0; again < 100; again++) {
        SumRound round;
        sum_round_open(&round, 50, 1, true, WORDS);
        memcpy(round.session, first.session, SESSION_BYTES); /* so that what was sent is sent again */
        run_session(&federation, &round, random_substream(random_stream(2, "order"), again));
        assert_memory_equal(round.words, first.words, WORDS * sizeof *first.words);
        sum_round_close(&round);
    }
    sum_round_close(&first);
    stop(&federation);
}

static void any_sites_that_are_enough_give_the_exact_sum(void **state)
{
    (void)state;
    for (uint64_t trial = 0; trial < 40; trial++) {
        SumRound round;
        RandomStream stream = random_substream(random_stream(3, "trials"), trial);
        int sites = 3 + (int)random_below(stream, 0, 9), spare = sites - sum_threshold(sites);
        start(&federation, sites, true, trial);
        draw_vanishing(&federation, (int)random_below(stream, 1, (uint64_t)spare + 1), stream);
        sum_round_open(&round, sites, 1, true, WORDS);
        join(&federation, &round);
        run_session(&federation, &round, stream);
        expect_exact(&federation, &round);
        sum_round_close(&round);
        stop(&federation);
    }
}

static void masks_change_no_bit_and_the_mean_is_the_mean(void **state)
{
    (void)state;
    enum { SITES = 5 };
    uint32_t sums[2][WORDS];
    for (int secure = 0; secure < 2; secure++) {
        SumRound round;
        start(&federation, SITES, secure, 4);
        sum_round_open(&round, SITES, 1, secure, WORDS);
        join(&federation, &round);
        run_session(&federation, &round, random_stream(4, "order"));
        expect_exact(&federation, &round);
        memcpy(sums[secure], round.words, sizeof sums[secure]);
        int exponent = round.exponent;
        sum_round_close(&round);
        float mean[VALUES];
        int64_t weight = fixed_point_get_weight(sums[secure] + VALUES), expected_weight = 0;
        for (int i = 0; i < SITES; i++) expected_weight += federation.weight[i];
        assert_int_equal(weight, expected_weight);
        fixed_point_mean(mean, sums[secure], VALUES, weight, exponent, SITES);
        for (int v = 0; v < VALUES; v++) {
            double expected = 0;
            for (int i = 0; i < SITES; i++) expected += (double)federation.values[i][v] * (double)federation.weight[i];
            expected /= (double)expected_weight;
            /* half a word's unit for each site */
            assert_true(fabs(mean[v] - expected) <=
                        ldexp(SITES * SITES / 2.0 / INT32_MAX, exponent) / (double)weight + 1e-7 * fabs(expected));
        }
        stop(&federation);
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

/* ---- What is not given away ---- */

static void run_until(SumRound *round, int sites, SumPhase phase)
{
    start(&federation, sites, true, 5);
    sum_round_open(round, sites, 1, true, WORDS);
    join(&federation, round);
    while (round->phase != phase) {
        gather(&federation, round, random_stream(5, "order"));
        advance(round);
    }
}

enum { KEYED = 4, CHANGED = 2 }; /* sites, and the one whose key changes */

/* Sites of a session in which CHANGED still has its old secret, with offers made. */
static void offer_with_formers(SumRound *round, const unsigned char *formers)
{
    SumProblem problem = {0};
    join(&federation, round);
    for (int i = 0; i < KEYED; i++) {
        unsigned char offer[SUM_OFFER_BYTES];
        sum_site_close(federation.site[i]);
        federation.site[i] = sum_site_open(&(SumSetup){.site = i,
                                                       .sites = KEYED,
                                                       .secure = true,
                                                       .lasting_secret = federation.lasting[i].secret,
                                                       .lasting_publics = federation.publics,
                                                       .former_publics = formers,
                                                       .session = round->session});
        sum_site_offer(federation.site[i], federation.exponent[i], offer);
        assert_true(sum_round_take(round, i, SUM_OFFERS, offer, sizeof offer, &problem));
        round->members[i].former = i == CHANGED;
    }
    assert_true(sum_round_advance(round, &problem));
}

/* In the round in which keys change, a site may still have the old one. The others know which it uses, and no key
 * counts that they do not have as a former one. */
static void a_former_key_counts_where_the_roster_says_so(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        SumRound round;
        SumProblem problem = {0};
        KeyPair other;
        unsigned char formers[KEYED * KEY_BYTES] = {0}, shares[4096];
        int exponent;
        start(&federation, KEYED, true, 5);
        sum_round_open(&round, KEYED, 1, true, WORDS);
        key_pair_draw(&other);
        if (known) memcpy(formers + CHANGED * KEY_BYTES, federation.publics + CHANGED * KEY_BYTES, KEY_BYTES);
        memcpy(federation.publics + CHANGED * KEY_BYTES, other.public_key, KEY_BYTES);
        offer_with_formers(&round, formers);
        for (int i = 0; i < KEYED; i++) {
            FREED_WITH(buffer_free) Buffer told = {0};
            sum_round_tell(&round, i, &told);
            bool ok = sum_site_roster(federation.site[i], (unsigned char *)told.bytes, told.size, &exponent, shares,
                                      &problem);
            assert_int_equal(ok, known || i == CHANGED);
            assert_true(ok || problem.site == CHANGED);
            if (ok) assert_true(sum_round_take(&round, i, SUM_SHARES, shares, sum_shares_bytes(KEYED), &problem));
        }
        if (known) assert_true(sum_round_advance(&round, &problem));
        for (int i = 0; known && i < KEYED; i++) {
            FREED_WITH(buffer_free) Buffer told = {0};
            sum_round_tell(&round, i, &told);
            assert_true(sum_site_delivery(federation.site[i], (unsigned char *)told.bytes, told.size, &problem));
        }
        sum_round_close(&round);
        stop(&federation);
    }
}

static void a_site_reveals_one_kind_of_share_of_every_site(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    unsigned char survivors[6] = {1, 1, 1, 1, 1, 0}, first[6 * SHARE_BYTES], second[6 * SHARE_BYTES];
    run_until(&round, 6, SUM_REVEALS);
    assert_true(sum_site_reveal(federation.site[0], survivors, 6, first, &problem));
    assert_true(
        sum_site_reveal(federation.site[0], survivors, 6, second, &problem)); /* asked again, as after a restart */
    assert_memory_equal(first, second, sizeof first);
    survivors[5] = 1;
    memset(second, 0, sizeof second);
    assert_false(sum_site_reveal(federation.site[0], survivors, 6, second, &problem));
    assert_int_equal(problem.site, 5);
    assert_non_null(strstr(problem.text, "both present and gone"));
    for (size_t i = 0; i < sizeof second; i++) assert_int_equal(second[i], 0);
    survivors[5] = 0; /* and nothing more in this session */
    assert_false(sum_site_reveal(federation.site[0], survivors, 6, second, &problem));
    sum_round_close(&round);
    stop(&federation);
}

static void a_site_reveals_nothing_of_sums_of_few_or_without_it(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    unsigned char reveal[6 * SHARE_BYTES];
    run_until(&round, 6, SUM_REVEALS);
    assert_int_equal(sum_threshold(6), 5);
    assert_false(sum_site_reveal(federation.site[0], (const unsigned char[]){1, 1, 1, 1, 0, 0}, 6, reveal, &problem));
    assert_non_null(strstr(problem.text, "fewer sites are left"));
    assert_false(sum_site_reveal(federation.site[1], (const unsigned char[]){1, 0, 1, 1, 1, 1}, 6, reveal, &problem));
    assert_non_null(strstr(problem.text, "left out"));
    assert_false(sum_site_reveal(federation.site[2], (const unsigned char[]){1, 1, 1, 1, 1}, 5, reveal, &problem));
    assert_non_null(strstr(problem.text, "wrong size"));
    sum_round_close(&round);
    stop(&federation);
}

static void below_the_threshold_the_coordinator_learns_nothing(void **state)
{
    (void)state;
    for (SumPhase phase = SUM_OFFERS; phase < SUM_DONE; phase++) {
        SumRound round;
        SumProblem problem = {0};
        uint32_t words[WORDS], plain[WORDS] = {0};
        run_until(&round, 6, phase);
        federation.vanishes[1] = federation.vanishes[4] = phase;
        gather(&federation, &round, random_stream(6, "order"));
        assert_int_equal(sum_round_answers(&round), 4);
        assert_false(sum_round_advance(&round, &problem));
        assert_string_equal(problem.text, "too few sites have answered");
        assert_int_equal(round.phase, phase);
        for (int i = 0; i < 6; i++) {
            encode(&federation, i, round.exponent, words);
            for (int w = 0; w < WORDS; w++) plain[w] += words[w];
        }
        int same = 0;
        for (int w = 0; w < WORDS; w++) same += round.words[w] == plain[w];
        if (phase >= SUM_VALUES) assert_int_equal(same, 0); /* of words that are random, with a chance of 1e-7 */
        sum_round_close(&round);
        stop(&federation);
    }
}

/* The average of the highest bits of masked words, whose values are all small, is that of random bits. */
static void masked_words_look_random(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    FREED uint32_t *words = calloc(COUNT, sizeof *words);
    Mask mask = {.seed = "a seed of 32 bytes, known to all"};
    masks_apply(words, 0, COUNT, &mask, 1);
    int ones = 0;
    for (int i = 0; i < COUNT; i++) ones += words[i] >> 31;
    assert_true(abs(ones - COUNT / 2) < 1000); /* 8 standard deviations */
    mask.subtract = true;
    masks_apply(words, 0, COUNT, &mask, 1);
    for (int i = 0; i < COUNT; i++) assert_int_equal(words[i], 0);
}

/* ChaCha20 with key, nonce and counter zero: draft-agl-tls-chacha20poly1305-04, section 7. */
static void the_generator_is_chacha20(void **state)
{
    (void)state;
    uint32_t words[2] = {1, 0};
    masks_apply(words, 0, 2, &(Mask){.subtract = false}, 1);
    assert_int_equal(words[0], 0xade0b876 + 1);
    assert_int_equal(words[1], 0x903df1a0);
}

/* ---- What is refused ---- */

static void a_coordinator_that_passes_on_other_keys_is_found_out(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    Buffer roster = {0}, delivery = {0};
    unsigned char shares[4 * SEALED_BYTES + SUM_SHARES_HEAD];
    KeyPair own;
    int exponent;
    run_until(&round, 4, SUM_SHARES);
    key_pair_draw(&own);
    sum_round_tell(&round, 0, &roster);
    memcpy(roster.bytes + SUM_ROSTER_HEAD + 2 * SUM_ROSTER_ENTRY + 1 + KEY_BYTES, own.public_key, KEY_BYTES);
    /* Site 0 is told another mask key of site 2; all others, what is true. */
    assert_true(
        sum_site_roster(federation.site[0], (unsigned char *)roster.bytes, roster.size, &exponent, shares, &problem));
    buffer_append(&federation.sent[0][SUM_SHARES], shares, sum_shares_bytes(4));
    gather(&federation, &round, random_stream(7, "order"));
    advance(&round);
    sum_round_tell(&round, 0, &delivery);
    assert_false(sum_site_delivery(federation.site[0], (unsigned char *)delivery.bytes, delivery.size, &problem));
    assert_int_equal(problem.site, 2);
    assert_non_null(strstr(problem.text, "not sealed with its key"));
    buffer_free(&roster);
    buffer_free(&delivery);
    sum_round_close(&round);
    stop(&federation);
}

static void a_scale_that_lets_values_wrap_is_refused(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    FREED_WITH(buffer_free) Buffer roster = {0};
    unsigned char shares[4 * SEALED_BYTES + SUM_SHARES_HEAD];
    int exponent;
    run_until(&round, 4, SUM_SHARES);
    sum_round_tell(&round, 3, &roster);
    put_u32((unsigned char *)roster.bytes, (uint32_t)(federation.exponent[3] - 1));
    assert_false(
        sum_site_roster(federation.site[3], (unsigned char *)roster.bytes, roster.size, &exponent, shares, &problem));
    assert_string_equal(problem.text, "the scale is too small for this site's values");
    sum_round_close(&round);
    stop(&federation);
}

static void shares_that_were_changed_are_refused(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    FREED_WITH(buffer_free) Buffer delivery = {0};
    run_until(&round, 4, SUM_VALUES);
    sum_round_tell(&round, 1, &delivery);
    delivery.bytes[3 * SUM_DELIVERY_ENTRY + 60] ^= 1;
    assert_false(sum_site_delivery(federation.site[1], (unsigned char *)delivery.bytes, delivery.size, &problem));
    assert_int_equal(problem.site, 3);
    sum_round_close(&round);
    stop(&federation);
}

static void the_coordinator_refuses_what_is_wrong_late_or_sent_again(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    unsigned char bytes[WORDS * 4] = {0};
    run_until(&round, 4, SUM_VALUES);
    federation.vanishes[3] = SUM_VALUES;
    federation.vanishes[2] = SUM_VALUES;
    gather(&federation, &round, random_stream(8, "order"));
    const Buffer *sent = &federation.sent[0][SUM_VALUES];
    uint32_t before[WORDS];
    memcpy(before, round.words, sizeof before);
    assert_false(sum_round_take(&round, 0, SUM_VALUES, (unsigned char *)sent->bytes, sent->size, &problem));
    assert_string_equal(problem.text, "has sent this before");
    assert_false(sum_round_take(&round, 3, SUM_VALUES, bytes, sizeof bytes - 4, &problem));
    assert_string_equal(problem.text, "sent an update of the wrong size");
    assert_false(sum_round_take(&round, 3, SUM_OFFERS, bytes, SUM_OFFER_BYTES, &problem));
    assert_string_equal(problem.text, "is late");
    assert_false(sum_round_take(&round, 3, SUM_REVEALS, bytes, sum_reveal_bytes(4), &problem));
    assert_string_equal(problem.text, "is early");
    assert_memory_equal(round.words, before, sizeof before);
    federation.vanishes[2] = NEVER;
    federation.sent[0][SUM_VALUES].size = 0; /* sites 0 and 1 are in already */
    FREED_WITH(buffer_free) Buffer told = {0};
    sum_round_tell(&round, 2, &told);
    assert_true(answer(&federation, &round, 2, &told, &problem));
    sent = &federation.sent[2][SUM_VALUES];
    assert_true(sum_round_take(&round, 2, SUM_VALUES, (unsigned char *)sent->bytes, sent->size, &problem));
    advance(&round);
    /* Who has vanished cannot be counted any more: its mask key is about to be known. */
    assert_false(sum_round_take(&round, 3, SUM_VALUES, bytes, sizeof bytes, &problem));
    assert_string_equal(problem.text, "is late");
    assert_false(sum_round_take(&round, 3, SUM_REVEALS, bytes, sum_reveal_bytes(4), &problem));
    assert_string_equal(problem.text, "is not in this session");
    sum_round_close(&round);
    stop(&federation);
}

static void two_sites_with_one_key_are_refused(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    unsigned char offer[SUM_OFFER_BYTES] = {1, 0, 0, 0, 9, 9, 9};
    sum_round_open(&round, 3, 1, true, 1);
    assert_true(sum_round_take(&round, 0, SUM_OFFERS, offer, sizeof offer, &problem));
    assert_false(sum_round_take(&round, 2, SUM_OFFERS, offer, sizeof offer, &problem));
    assert_int_equal(problem.site, 2);
    assert_string_equal(problem.text, "offers the keys of another site");
    put_u32(offer, FIXED_POINT_MOST + 1);
    assert_false(sum_round_take(&round, 1, SUM_OFFERS, offer, sizeof offer, &problem));
    assert_string_equal(problem.text, "offers a scale that is out of range");
    sum_round_close(&round);
}

static void shares_that_do_not_fit_give_no_sum(void **state)
{
    (void)state;
    SumRound round;
    SumProblem problem = {0};
    uint32_t before[WORDS];
    run_until(&round, 4, SUM_REVEALS);
    gather(&federation, &round, random_stream(9, "order"));
    memcpy(before, round.words, sizeof before);
    round.members[1].shares[2 * SHARE_BYTES + 5] ^= 0x40;
    assert_false(sum_round_advance(&round, &problem));
    assert_int_equal(problem.site, 2);
    assert_string_equal(problem.text, "has secrets that the shares of the others do not give");
    assert_memory_equal(round.words, before, sizeof before);
    sum_round_close(&round);
    stop(&federation);
}

static void values_that_are_not_finite_have_no_scale(void **state)
{
    (void)state;
    int exponent;
    assert_false(fixed_point_exponent((const float[]){1, NAN}, 2, 1, &exponent));
    assert_false(fixed_point_exponent((const float[]){-INFINITY, 1}, 2, 1, &exponent));
    assert_true(fixed_point_exponent((const float[]){0, -0.f}, 2, 1, &exponent));
    assert_int_equal(exponent, FIXED_POINT_LEAST);
    assert_true(fixed_point_exponent((const float[]){0.5f, -1.f}, 2, 3, &exponent));
    assert_int_equal(exponent, 2);
    uint32_t words[3];
    for (int64_t weight = 1; weight < (int64_t)1 << 48; weight *= 3) {
        fixed_point_put_weight(words, weight);
        assert_int_equal(fixed_point_get_weight(words), weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_of_fifty_vanish_and_any_order_gives_the_exact_sum),
        cmocka_unit_test(any_sites_that_are_enough_give_the_exact_sum),
        cmocka_unit_test(masks_change_no_bit_and_the_mean_is_the_mean),
        cmocka_unit_test(a_former_key_counts_where_the_roster_says_so),
        cmocka_unit_test(a_site_reveals_one_kind_of_share_of_every_site),
        cmocka_unit_test(a_site_reveals_nothing_of_sums_of_few_or_without_it),
        cmocka_unit_test(below_the_threshold_the_coordinator_learns_nothing),
        cmocka_unit_test(masked_words_look_random),
        cmocka_unit_test(the_generator_is_chacha20),
        cmocka_unit_test(a_coordinator_that_passes_on_other_keys_is_found_out),
        cmocka_unit_test(a_scale_that_lets_values_wrap_is_refused),
        cmocka_unit_test(shares_that_were_changed_are_refused),
        cmocka_unit_test(the_coordinator_refuses_what_is_wrong_late_or_sent_again),
        cmocka_unit_test(two_sites_with_one_key_are_refused),
        cmocka_unit_test(shares_that_do_not_fit_give_no_sum),
        cmocka_unit_test(values_that_are_not_finite_have_no_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
