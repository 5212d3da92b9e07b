/* bench/federation --aggregate: what secure aggregation costs a site and the coordinator in a round, compared with
 * the same sum without masks.
 *
 *   bench/federation --aggregate [MILLIONS OF PARAMETERS [SITES ...]]        default: 110 and 5 20 50
 *
 * As many sites vanish as may, after they gave their shares. That is the most expensive case: the masks of each with
 * all survivors are made again. Times are CPU times over all threads, and grow with the parameters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_round.h"

typedef struct Times {
    double site, taking,
        finishing; /* seconds: a site's update; all updates at the coordinator; the masks out of the sum */
} Times;

typedef struct Session {
    SumRound round;
    SumSite *sites[SUM_MOST_SITES];
    KeyPair pairs[SUM_MOST_SITES];
    unsigned char publics[SUM_MOST_SITES * KEY_BYTES];
} Session;

static void must(bool ok, const SumProblem *problem)
{
    if (ok) return;
    fprintf(stderr, "site %d %s\n", problem->site, problem->text);
    exit(1);
}

/* One phase of all sites but that of values. */
static void answer_all(Session *session, int from, int exponent)
{
    SumRound *round = &session->round;
    SumPhase phase = round->phase;
    FREED unsigned char *message = malloc(sum_delivery_bytes(round->sites) + SUM_SHARES_HEAD + SUM_OFFER_BYTES);
    for (int s = from; s < round->sites; s++) {
        FREED_WITH(buffer_free) Buffer told = {0};
        SumProblem problem = {-1, ""};
        size_t size = SUM_OFFER_BYTES;
        sum_round_tell(round, s, &told);
        const unsigned char *bytes = (const unsigned char *)told.bytes;
        if (phase == SUM_OFFERS) sum_site_offer(session->sites[s], exponent, message);
        if (phase == SUM_SHARES) {
            must(sum_site_roster(session->sites[s], bytes, told.size, &exponent, message, &problem), &problem);
            size = sum_shares_bytes(round->sites);
        }
        if (phase == SUM_REVEALS) {
            must(sum_site_reveal(session->sites[s], bytes, told.size, message, &problem), &problem);
            size = sum_reveal_bytes(round->sites);
        }
        must(sum_round_take(round, s, phase, message, size, &problem), &problem);
    }
}

static void open_session(Session *session, int sites, bool secure, size_t words)
{
    sum_round_open(&session->round, sites, 1, secure, words);
    for (int s = 0; s < sites; s++) {
        key_pair_draw(&session->pairs[s]);
        memcpy(session->publics + s * KEY_BYTES, session->pairs[s].public_key, KEY_BYTES);
    }
    for (int s = 0; s < sites; s++)
        session->sites[s] = sum_site_open(&(SumSetup){.site = s,
                                                      .sites = sites,
                                                      .secure = secure,
                                                      .lasting_secret = session->pairs[s].secret,
                                                      .lasting_publics = session->publics,
                                                      .session = session->round.session});
}

/* Sites `from` on send their updates. That of the last is made and timed; the others send the same words, since only
 * the time counts here: the sum is checked by the tests. */
static void send_values(Session *session, int from, const float *values, size_t count, Times *times)
{
    SumRound *round = &session->round;
    FREED uint32_t *words = malloc((count + FIXED_POINT_WEIGHT_WORDS) * sizeof *words);
    SumProblem problem = {-1, ""};
    int exponent = round->exponent;
    for (int s = from; s < round->sites; s++) {
        FREED_WITH(buffer_free) Buffer told = {0};
        sum_round_tell(round, s, &told);
        const unsigned char *bytes = (const unsigned char *)told.bytes;
        must(round->secure ? sum_site_delivery(session->sites[s], bytes, told.size, &problem)
                           : sum_site_roster(session->sites[s], bytes, told.size, &exponent, NULL, &problem),
             &problem);
        if (s > from) sum_site_mask(session->sites[s], words, 0, 0);
    }
    double before = process_seconds();
    fixed_point_encode(words, values, count, 1, exponent, round->sites);
    fixed_point_put_weight(words + count, 1);
    sum_site_mask(session->sites[from], words, 0, count + FIXED_POINT_WEIGHT_WORDS);
    times->site = process_seconds() - before;
    before = process_seconds();
    for (int s = from; s < round->sites; s++)
        must(sum_round_take(round, s, SUM_VALUES, (const unsigned char *)words, round->word_count * 4, &problem),
             &problem);
    times->taking = process_seconds() - before;
}

static Times run(int sites, bool secure, const float *values, size_t count)
{
    static Session session;
    Times times = {0};
    SumProblem problem = {-1, ""};
    int exponent, vanished = secure ? sites - sum_threshold(sites) : 0;
    if (!fixed_point_exponent(values, count, 1, &exponent)) exit(1);
    open_session(&session, sites, secure, count + FIXED_POINT_WEIGHT_WORDS);
    for (; session.round.phase < SUM_VALUES; must(sum_round_advance(&session.round, &problem), &problem))
        answer_all(&session, 0, exponent);
    send_values(&session, vanished, values, count, &times);
    must(sum_round_advance(&session.round, &problem), &problem);
    double before = process_seconds();
    if (secure) {
        answer_all(&session, vanished, exponent);
        must(sum_round_advance(&session.round, &problem), &problem);
    }
    times.finishing = process_seconds() - before;
    for (int s = 0; s < sites; s++) sum_site_close(session.sites[s]);
    sum_round_close(&session.round);
    return times;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--aggregate") != 0) {
        fprintf(stderr, "usage: bench/federation --aggregate [MILLIONS OF PARAMETERS [SITES ...]]\n");
        return 2;
    }
    static const int usual[] = {5, 20, 50};
    double millions = argc > 2 ? atof(argv[2]) : 110;
    int runs = argc > 3 ? argc - 3 : 3;
    size_t count = (size_t)(millions * 1e6);
    FREED float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = (float)sin((double)i) * 1e-3f;
    printf("%zu parameters, seconds of processor time in a round\n", count);
    printf("sites  vanished          a site          coordinator: taking, finishing        secure / plain\n");
    for (int r = 0; r < runs; r++) {
        int sites = argc > 3 ? atoi(argv[3 + r]) : usual[r];
        if (sites < SUM_FEWEST_SITES || sites > SUM_MOST_SITES) return 2;
        Times plain = run(sites, false, values, count), secure = run(sites, true, values, count);
        printf(
            "%5d  %8d  plain %6.2f secure %6.2f  plain %6.2f %6.2f secure %6.2f %7.2f  site %5.1f coordinator %5.1f\n",
            sites, sites - sum_threshold(sites), plain.site, secure.site, plain.taking, plain.finishing, secure.taking,
            secure.finishing, secure.site / plain.site,
            (secure.taking + secure.finishing) / (plain.taking + plain.finishing));
        fflush(stdout);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak memory %.0f MB: the values, a site's words and the coordinator's sum are %.0f MB\n",
           (double)usage.ru_maxrss / 1024 * 1.048576, 3 * 4 * (double)count / 1e6);
    return 0;
}
