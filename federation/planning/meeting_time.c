#include "federation/planning/meeting_time.h"

#include <math.h>

#include "federation/coded_model.h"
#include "federation/messages.h"
#include "federation/update_pieces.h"

const MeetingCosts meeting_costs_default = {.start_s = 1,
                                            .storage_Bps = 1e9,
                                            .update_s = 1.1e-9,
                                            .mask_s = 6.4e-10,
                                            .sum_s = 3.9e-10,
                                            .code_s = 8e-10,
                                            .decode_s = 9e-10,
                                            .round_trips = 3,
                                            .plain_phases = 2,
                                            .secure_phases = 4,
                                            .piece_bytes = (int64_t)MODEL_PIECE * 4,
                                            .word_bytes = {4, 4}};

static double fragment_values(const MeetingRules *rules)
{
    return ceil((double)rules->elements / (double)rules->fragments) * (rules->met ? rules->met : 1);
}

/* As 32-bit words, the form in which they are added up. */
static double fragment_bytes(const MeetingRules *rules) { return 4 * fragment_values(rules); }

/* Whether what goes up (0), or comes down (1), is in a codec. */
static bool is_coded(const MeetingRules *rules, int way) { return rules->costs.word_bytes[way] < 4; }

/* In which the model comes, whatever its codec. */
static double pieces_down(const MeetingRules *rules)
{
    return ceil(fragment_bytes(rules) / (double)rules->costs.piece_bytes);
}

int64_t meeting_bytes_up(const MeetingRules *rules)
{
    int64_t pieces = (int64_t)update_pieces((size_t)fragment_values(rules), UPDATE_PIECE);
    /* In a codec every piece has a weight. */
    int64_t tail = is_coded(rules, 0) ? pieces * FIXED_POINT_WEIGHT_WORDS : FIXED_POINT_TAIL_WORDS;
    double values = fragment_values(rules) * rules->costs.word_bytes[0];
    int64_t bytes = REQUEST_HEAD + METRICS_BYTES + SUM_OFFER_BYTES + pieces * (REQUEST_HEAD + UPDATE_PIECE_HEAD) +
                    4 * tail + (int64_t)ceil(values);
    if (rules->members < 2) return 0;
    if (rules->secure)
        bytes += 2 * REQUEST_HEAD + (int64_t)(sum_shares_bytes(rules->members) + sum_reveal_bytes(rules->members));
    return bytes;
}

int64_t meeting_bytes_down(const MeetingRules *rules)
{
    int64_t values = (int64_t)ceil(fragment_values(rules) * rules->costs.word_bytes[1]);
    int64_t pieces = (int64_t)pieces_down(rules), hashes = is_coded(rules, 1) ? pieces : 0;
    int64_t bytes = values + (pieces + 2) * REPLY_HEAD + hashes * CODED_MODEL_HEAD + UPDATE_PIECE_HEAD +
                    (int64_t)sum_roster_bytes(rules->members);
    if (rules->members < 2) return 0;
    if (rules->secure) bytes += 2 * REPLY_HEAD + (int64_t)sum_delivery_bytes(rules->members) + rules->members;
    return bytes;
}

/* Removes the survivors' own masks and every vanished site's masks with all survivors (Bonawitz et al. 2017). */
double meeting_coordinator_s(const MeetingRules *rules, int vanished)
{
    double bytes = fragment_bytes(rules), survivors = rules->members - vanished;
    double masks = rules->secure ? survivors + vanished * survivors : 0;
    double model = 8 * (double)rules->elements / rules->costs.storage_Bps; /* values and momentum */
    double coding = is_coded(rules, 0) * survivors * rules->costs.decode_s + is_coded(rules, 1) * rules->costs.code_s;
    return bytes * (survivors * rules->costs.sum_s + masks * rules->costs.mask_s) + fragment_values(rules) * coding +
           model;
}

static double transfer_s(const MeetingRules *rules, const Replica *replica, int64_t bytes)
{
    double share = rules->coordinator_Bps > 0 ? rules->coordinator_Bps / rules->members : INFINITY;
    return (double)bytes / fmin(replica->bandwidth_Bps, share);
}

double meeting_stop_s(const MeetingRules *rules)
{
    /* Stage programs write all; values are read for the update, those of the model are written, and read by stage
     * programs; what a codec leaves out is written. Where programs end, the member reads all for its hash, and takes
     * the model into a copy; they begin by reading and comparing all. */
    bool restarts = rules->restarts || rules->overlap;
    double all = 4 * (double)rules->elements * (double)(1 + rules->states), values = 4 * (double)rules->elements;
    double bytes = (restarts ? 4 : 1) * all + ((restarts ? 2 : 3) + is_coded(rules, 0)) * values;
    return rules->members < 2 ? 0 : restarts * rules->costs.start_s + bytes / rules->costs.storage_Bps;
}

double meeting_own_s(const MeetingRules *rules, const Replica *replica)
{
    const MeetingCosts *costs = &rules->costs;
    if (rules->members < 2) return 0;
    double masks = rules->secure ? rules->members * costs->mask_s : 0;
    double coding = is_coded(rules, 0) * costs->code_s + is_coded(rules, 1) * costs->decode_s;
    int64_t up = meeting_bytes_up(rules), down = meeting_bytes_down(rules);
    return meeting_stop_s(rules) + fragment_bytes(rules) * (costs->update_s + masks) + fragment_values(rules) * coding +
           transfer_s(rules, replica, up) + transfer_s(rules, replica, down) +
           2 * pieces_down(rules) * replica->latency_s + replica->gather_s;
}

double meeting_common_s(const MeetingRules *rules, const Replica *replicas)
{
    const MeetingCosts *costs = &rules->costs;
    int phases = rules->secure ? costs->secure_phases : costs->plain_phases;
    double latency = 0;
    if (rules->members < 2) return 0;
    for (int r = 0; r < rules->members; r++) latency = fmax(latency, replicas[r].latency_s);
    return 2 * latency * costs->round_trips * phases + meeting_coordinator_s(rules, 0);
}

int64_t meeting_overlap(const MeetingRules *rules, int64_t steps)
{
    return rules->overlap == MEETING_OVERLAP_ALL || rules->overlap > steps ? steps : rules->overlap;
}

/* The replica's time from one sum to the next. */
static double replica_seconds(const MeetingRules *rules, const Replica *replica, int64_t steps)
{
    return (double)(steps - meeting_overlap(rules, steps)) * replica->step_s + meeting_own_s(rules, replica);
}

/* The replica's time for a round without waiting. */
static double busy_seconds(const MeetingRules *rules, const Replica *replica, int64_t steps)
{
    int stops = meeting_overlap(rules, steps) > 0 && meeting_overlap(rules, steps) < steps ? 2 : 1;
    return (double)steps * replica->step_s + stops * meeting_stop_s(rules);
}

static double round_of(const MeetingRules *rules, const Replica *replica, int64_t steps, double common)
{
    return fmax(common + replica_seconds(rules, replica, steps), busy_seconds(rules, replica, steps));
}

int round_slowest(const MeetingRules *rules, const Replica *replicas, int64_t steps)
{
    double common = meeting_common_s(rules, replicas);
    int slowest = 0;
    for (int r = 1; r < rules->members; r++)
        if (round_of(rules, &replicas[r], steps, common) > round_of(rules, &replicas[slowest], steps, common))
            slowest = r;
    return slowest;
}

double round_seconds(const MeetingRules *rules, const Replica *replicas, int64_t steps)
{
    const Replica *slowest = &replicas[round_slowest(rules, replicas, steps)];
    return round_of(rules, slowest, steps, meeting_common_s(rules, replicas));
}

double round_meeting_share(const MeetingRules *rules, const Replica *replicas, int64_t steps)
{
    double slowest = 0, round = round_seconds(rules, replicas, steps);
    for (int r = 0; r < rules->members; r++) slowest = fmax(slowest, replicas[r].step_s);
    return round > 0 ? (round - (double)steps * slowest) / round : 0;
}

int64_t least_local_steps(const MeetingRules *rules, const Replica *replicas, double share)
{
    int64_t low = 0, high = 1; /* low: too few or none; high: enough */
    if (rules->overlap > 0) {
        low = high = rules->overlap;
        if (round_meeting_share(rules, replicas, high) <= share) return high;
        high++;
    }
    while (round_meeting_share(rules, replicas, high) > share) {
        low = high;
        high *= 2;
        if (high >= MOST_LOCAL_STEPS) return MOST_LOCAL_STEPS;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (round_meeting_share(rules, replicas, middle) > share)
            low = middle;
        else
            high = middle;
    }
    return high;
}
