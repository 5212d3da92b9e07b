/* Rounds of many sites, simulated: how long they take and what they ask of the coordinator, when sites differ, lag and
 * vanish, with one coordinator or a tree of them.
 *
 * Sites are those given, in turn, as often as it takes. In a round every site's steps take what they are planned to, times
 * a factor drawn for the site (it is always so slow) and one drawn for the round. A site vanishes from a round with a
 * probability: before it offers anything, or, as often, behind its shares, so that its masks have to be taken out. Phases go
 * as the coordinator has them (coordinator.h): each waits for all of its sites, or until `timeout_s` for those that are
 * missing; if then there are fewer than two thirds of them and one (offers excepted, which wait for them), the round begins anew. Who is too
 * late for a round ends its steps and goes on from the newest model. With overlap a site makes the last of its steps before it
 * waits for the model. What is drawn depends on seed, site and round alone.
 *
 * Updates cross each site's link and the coordinator's own, which serves what is under way in equal parts; the
 * coordinator adds what has come while more comes, with one processor. Costs are those of meeting_time.h.
 *
 * In a tree, sites meet in parts of at most `branch`, each with a coordinator of its own whose link is like the top's,
 * and these send their sums to the next level, without masks: every coordinator learns sums over parts of many sites. */
#ifndef FEDERATION_PLANNING_SIMULATE_ROUNDS_H
#define FEDERATION_PLANNING_SIMULATE_ROUNDS_H

#include "federation/planning/meeting_time.h"

enum { SIMULATE_MOST_SITES = 5000, SIMULATE_MOST_ROUNDS = 1000 };

typedef struct SimulationRequest {
    int sites, rounds;
    uint64_t seed;
    double dropout;   /* 0 ... 0.3 */
    double spread;    /* standard deviation of the logarithm of both factors: 0 ... 2 */
    double timeout_s; /* of a phase */
    int branch;       /* at least 2; 0: one coordinator */
    int64_t steps;    /* local steps */
    bool secure;      /* masks at the sites' coordinators, instead of what rules say */
} SimulationRequest;

/* Means over rounds, but for the worst. Of several coordinators the busiest counts. */
typedef struct SimulatedRounds {
    SimulationRequest request;
    int coordinators, levels, most_members; /* of one coordinator */
    double round_s, worst_round_s;
    double training;            /* the share of the time that a site trains, mean over all sites */
    double lost;                /* updates that are in no sum, of those that could be */
    double restarts;            /* sessions that were begun anew, per round */
    double coordinator_s;       /* at the processor, per round */
    double line_share;          /* of the time that its link is in use, in the busier direction */
    double bytes_in, bytes_out; /* per round */
    double memory_bytes;        /* model, momentum, sum and the pieces that arrive; shares and seeds */
} SimulatedRounds;

/* `given` are `count` replicas; the members of rules do not matter. The coordinators' bandwidth is that of rules. */
void simulate_rounds(SimulatedRounds *result, const SimulationRequest *request, const MeetingRules *rules,
                     const Replica *given, int count);

/* When transfers of `bytes` each, that begin at start[] and go at most at cap[] bytes a second, end, over a line of
 * `line_Bps` (INFINITY: as fast as they like) that they share in equal parts, as far as they can use them. */
void share_line(const double *start, const double *cap, int count, double bytes, double line_Bps, double *end);

#endif
