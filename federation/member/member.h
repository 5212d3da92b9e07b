/* A site of a federation while it trains: local steps by the site's stage programs, meetings with the others, and the
 * checkpoint between the two.
 *
 * Stage programs end before every meeting and are started again behind it, from their checkpoint; what that costs is the
 * time to start, read and write. The checkpoint directory also holds global.safetensors, the model that this site took
 * last: the start of its round. Killed at any point, a site that is started again goes on: with its round if that is not
 * over, else with the model of the federation. */
#ifndef FEDERATION_MEMBER_MEMBER_H
#define FEDERATION_MEMBER_MEMBER_H

#include <signal.h>

#include "federation/connect/site_link.h"
#include "federation/member/feedback.h"
#include "federation/member/site_checkpoint.h"

/* What `DIR/SITE/train --join` was told. */
typedef struct MemberOptions {
    const char *directory;  /* DIR/SITE */
    const char *checkpoint; /* directory */
    const char *key;        /* file of the secret key; NULL: SITE.key, or what SKYCC_SITE_KEY names */
    const char *data, *log; /* files; log NULL: in the checkpoint directory */
    uint64_t seed;
    bool no_shuffle, quiet;
    char **passed; /* arguments for stage programs, as they were given; NULL behind the last */
} MemberOptions;

typedef struct Member {
    Arena arena;
    const MemberOptions *options;
    Federation federation;
    WireKeys wire_keys;
    MeetingKeys keys;
    SiteLink link;
    GlobalModel start; /* of the round; start.step: the site's step then */
    TiedNames tied;
    Feedback feedback; /* where updates are coded */
    const char *start_path, *log_path;
    int64_t current; /* the coordinator's round, as it last said */
    int64_t counted; /* and how many rounds there were when this site last was in one */
    int steps_lock;  /* which stage programs inherit */
    bool told_waiting;
    const volatile sig_atomic_t *ended;
} Member;

/* Reads what lies in the site's directory and its checkpoints; connects. Free it in any case. */
bool member_open(Member *member, const MemberOptions *options, const volatile sig_atomic_t *ended,
                 Diagnostics *diagnostics);
void member_free(Member *member);

/* Trains and meets until the federation's last round. EXIT_OK; what training ended with; or that of an error that was
 * reported. */
int member_run(Member *member, Diagnostics *diagnostics);

/* member_train.c: runs DIR/SITE/train with what was passed, from the checkpoint up to the step, or for `deadline` seconds
 * (0: however long it takes), and then a step may be cut off that is not saved. What it ended with. */
int member_train(const Member *member, int64_t until, double deadline, Diagnostics *diagnostics);
/* The mean loss of steps behind `after` up to `until` in the log; false: it does not say. */
bool member_mean_loss(const char *log, int64_t after, int64_t until, double *loss);

#endif
