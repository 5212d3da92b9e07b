/* A site's part in a round, from its update to the round's end: what to ask the coordinator, what to answer. The caller
 * brings messages there and back. */
#ifndef FEDERATION_MEETING_H
#define FEDERATION_MEETING_H

#include "federation/aggregate/fixed_point.h"
#include "federation/federation.h"
#include "federation/messages.h"

/* Sends a request, unless it is NULL, and appends the reply to the oldest that has none yet, unless `reply` is NULL: so
 * requests may be sent ahead of replies. False if there is none for now, which is no error; then requests that have no
 * reply will get none. */
typedef bool Exchange(void *context, const Buffer *request, Buffer *reply);

typedef struct MeetingKeys {
    unsigned char secret[KEY_BYTES];
    unsigned char publics[SUM_MOST_SITES * KEY_BYTES]; /* of all sites; zeros of those that have left */
    unsigned char formers[SUM_MOST_SITES * KEY_BYTES]; /* the ones before, where they count in this round, too */
} MeetingKeys;

typedef struct Meeting {
    const Federation *federation; /* compiled.site is this one */
    const MeetingKeys *keys;      /* without masks unused */
    Exchange *exchange;
    void *context;
    int64_t round, branch; /* branch: of the model that the round began with */
    uint64_t place;        /* of this site (site_starts.h) */
    const float *update;   /* pseudo-gradient of the round's fragment, finite; lives as long as the meeting */
    size_t count;
    int64_t weight; /* 0 ... 2^48 - 1 */
    const Buffer
        *coded; /* what coded_row_make made, of which `update` is what it is at the other end; NULL: no codec */
    SiteMetrics metrics;
    RowsEvaluation evaluation; /* of the model that the round began with; rows 0: none */
    int exponent;              /* the least that suits the update */
    /* Of the session that goes on. */
    SumSite *sum;
    unsigned char session[SESSION_BYTES];
    int shared_exponent;
    Buffer answer; /* the last one, which is sent again if it did not arrive; of an update the piece that is sent */
    size_t pieces; /* of the update that the coordinator has, as it last said */
    SumPhase answered;
    bool has_answered;
    Reply said;      /* the coordinator's last reply, without its payload */
    int64_t counted; /* after the round: the number of the last one that this site was in */
    /* The last thing that went wrong, for the user: what another site, or the coordinator (-1), is to blame for. */
    SumProblem problem;
    Buffer told;      /* the text of an amendment, or why the coordinator refuses this site */
    const char *hint; /* where it is refused: what to do */
} Meeting;

typedef enum MeetingState {
    MEETING_WAITS,   /* ask again in a while */
    MEETING_GOES_ON, /* ask again at once */
    MEETING_AMENDED, /* the federation is to be amended first: `told` has the text */
    MEETING_OVER,    /* the round has ended, with this update or without */
    MEETING_REFUSED  /* the coordinator will never take this site's updates: problem says why */
} MeetingState;

/* False if the update is not finite: nothing is sent. Close it in any case. */
bool meeting_open(Meeting *meeting, const Federation *federation, const MeetingKeys *keys, int64_t round,
                  const float *update, size_t count, int64_t weight);
void meeting_close(Meeting *meeting);
/* Between two steps: the federation or its keys have changed, so that the session begins anew. */
void meeting_forget_session(Meeting *meeting);
/* One question and what follows from it. meeting->problem.text is set where something was wrong. meeting->said has the
 * coordinator's round, branch and number of rounds once it has said them (kind REPLY_KINDS before). */
MeetingState meeting_step(Meeting *meeting);

#endif
