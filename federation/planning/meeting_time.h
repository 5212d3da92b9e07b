/* How long rounds of a federation take, and what crosses: replicas that train apart, and meet.
 *
 * A replica is what trains the model once: a site, or a group of sites that are one pipeline. In a round each makes
 * `steps` steps of step_s seconds, sends its update up, takes the model down and goes on; the next round's update waits
 * for the slowest:
 *
 *     round = common + the largest over replicas of (steps * step_s + own)
 *
 * own: checkpoints written and read, starting where stage programs end before the meeting, masks, and transfer over the
 * replica's link (its share of the coordinator's, if that is less); common: phases of the sum, in which all wait for
 * the longest latency, and the coordinator's own time. With overlap a replica makes the last `overlap` of its steps
 * while it waits for its sum: they are not in the way from one sum to the next, which is the formula's first term with
 * fewer steps, but stage programs end before the meeting, and once more in a round, before these steps are begun,
 * unless the overlap is all of them; and no round is shorter than
 *
 *     the largest over replicas of (steps * step_s + starting and checkpoints, twice or once)
 *
 * The time on meeting is what is left of a round without the slowest replica's steps. What waiting for a slower replica
 * costs a fast one is no meeting: more local steps do not change it. */
#ifndef FEDERATION_PLANNING_MEETING_TIME_H
#define FEDERATION_PLANNING_MEETING_TIME_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds, and seconds per byte of 32-bit words. The defaults were measured (docs/federation.md has the table) or,
 * where it says so, are taken as they are: nothing here measures a machine. */
typedef struct MeetingCosts {
    double start_s;       /* stage programs end and start again, where they do; assumed */
    double storage_Bps;   /* checkpoints and models, written or read; assumed */
    double update_s;      /* a site makes words of its update */
    double mask_s;        /* one mask, at a site or at the coordinator that takes it out */
    double sum_s;         /* the coordinator adds one site's words */
    double code_s;        /* a value is coded, and decoded for what that leaves out: in q6, whatever the codec */
    double decode_s;      /* one that comes is decoded */
    int round_trips;      /* of a phase: an answer, a question, and the pause between two questions */
    int plain_phases;     /* offers and updates */
    int secure_phases;    /* and shares before, reveals after them */
    int64_t piece_bytes;  /* the model comes down in pieces of so much float32 that are asked for one by one */
    double word_bytes[2]; /* a value up, and down */
} MeetingCosts;

extern const MeetingCosts meeting_costs_default;

enum { MEETING_OVERLAP_ALL = -1 };

typedef struct MeetingRules {
    int members;            /* replicas that meet; of one there is no meeting */
    bool secure;            /* masks */
    int64_t elements;       /* trained */
    int64_t states;         /* values that the inner optimiser keeps for each */
    int64_t fragments;      /* of which one meets in a round */
    int met;                /* values that meet for each element: 2 with control variates; 0 is 1 */
    bool restarts;          /* stage programs end before meetings, as they always do with overlap */
    int64_t overlap;        /* steps that are made while a round is met; MEETING_OVERLAP_ALL; 0 */
    double coordinator_Bps; /* what it gets through in each direction; 0: as much as comes */
    MeetingCosts costs;
} MeetingRules;

typedef struct Replica {
    double step_s;
    double latency_s, bandwidth_Bps; /* its link with the coordinator; latency one way */
    double gather_s; /* of a group: its sites' parts of the update come together, and the model goes back to them */
} Replica;

/* What a member sends, and gets, in a round, in bytes; without the framing of TCP and CURVE. */
int64_t meeting_bytes_up(const MeetingRules *rules);
int64_t meeting_bytes_down(const MeetingRules *rules);
/* The coordinator's time at its processor, `vanished` of the members having given shares but no update. */
double meeting_coordinator_s(const MeetingRules *rules, int vanished);
/* `own` of the comment above. */
double meeting_own_s(const MeetingRules *rules, const Replica *replica);
/* How many of so many steps are made while a round is met. */
int64_t meeting_overlap(const MeetingRules *rules, int64_t steps);
/* Of it, what a replica cannot train in whatever the overlap: what stage programs and member hand each other. */
double meeting_stop_s(const MeetingRules *rules);
double meeting_common_s(const MeetingRules *rules, const Replica *replicas);
double round_seconds(const MeetingRules *rules, const Replica *replicas, int64_t steps);
/* The time on meeting as a share of the round: it falls as steps grow, except for the one after as many as the overlap.
 * */
double round_meeting_share(const MeetingRules *rules, const Replica *replicas, int64_t steps);
/* The fewest steps, no fewer than the overlap, with at most `share` (0 ... 1, exclusive) on meeting; MOST_LOCAL_STEPS
 * if no fewer do. */
#define MOST_LOCAL_STEPS ((int64_t)1 << 40)
int64_t least_local_steps(const MeetingRules *rules, const Replica *replicas, double share);
/* The replica that rounds wait for: the one whose steps and own part take longest. */
int round_slowest(const MeetingRules *rules, const Replica *replicas, int64_t steps);

#endif
