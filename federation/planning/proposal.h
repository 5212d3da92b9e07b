/* Ways to train on the sites of a federation, side by side: how fast each trains, what crosses, and which is proposed.
 * */
#ifndef FEDERATION_PLANNING_PROPOSAL_H
#define FEDERATION_PLANNING_PROPOSAL_H

#include "base/buffer.h"
#include "federation/federation.h"
#include "federation/planning/groupings.h"
#include "federation/planning/meeting_time.h"
#include "federation/planning/meeting_time.h"

/* Between two sites of a group, in one direction. */
typedef struct SiteTraffic {
    int from, to; /* sites; site_count: the coordinator */
    double bytes; /* of a step; of a candidate: of a day */
} SiteTraffic;

/* Sites that are one replica: how their devices together train it. */
typedef struct GroupPlan {
    const int *sites; /* ascending */
    int site_count;
    const char *why_not; /* NULL: there is a plan, and what follows holds */
    int64_t rows;        /* of a step */
    double step_s;       /* as simulated */
    double busy_s;       /* of a step, all devices' seconds of computing together */
    int devices, used;
    bool proven; /* the plan is proven optimal */
    const SiteTraffic *traffic;
    int traffic_count;
    Replica replica; /* at the coordinator, by the link of `lead` */
    int lead;
} GroupPlan;

typedef struct Candidate {
    Grouping grouping;
    const GroupPlan **groups;
    const char *why_not;  /* NULL: everything that follows holds */
    bool rows_leave;      /* sites of a group train on each other's rows */
    int64_t steps;        /* of a replica between meetings; 0: there is one replica, which meets nobody */
    double round_s;       /* of one replica: its step */
    double row_s;         /* seconds for a row, all replicas together */
    double meeting;       /* the share of a round */
    double utilisation;   /* the share of the time of all devices in which they compute */
    int slowest;          /* the group that rounds wait for */
    SiteTraffic *traffic; /* a day's */
    int traffic_count;
} Candidate;

typedef struct Proposal {
    Arena arena;
    const Federation *federation;
    const char *model;
    int64_t elements, microbatch_rows;
    MeetingRules rules; /* of a replica per site */
    Candidate *candidates;
    int count;
    bool all_tried; /* groupings.h */
    int left_out;
    int proposed;    /* -1: nothing fits */
    int keeping;     /* the best of those in which no row leaves its site; -1: none fits */
    int fastest;     /* of all; -1: nothing fits */
    const char *why; /* of what is proposed, or why nothing is */
} Proposal;

/* Fills in what follows from grouping and groups; local_steps of the federation is a number, or FEDERATION_STEPS_AUTO:
 * the fewest with at most `share` of the time on meeting. */
void candidate_settle(Candidate *candidate, const Federation *federation, const MeetingRules *rules, double share,
                      Arena *arena);
/* Proposes the candidate with the least time a row, of those in which every row stays at its site if there are any; of
 * several the first. Sets why. */
void proposal_choose(Proposal *proposal);

/* proposal_report.c: `form` is "json" (docs/federation.md says what is in it) or else text. */
void proposal_print(const Proposal *proposal, const char *form, Buffer *buffer);
/* "paris | oslo+lima", "paris | oslo (without lima)"; cut where it gets long. */
const char *candidate_name(const Candidate *candidate, const Federation *federation, Arena *arena);

#endif
