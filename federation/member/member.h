/* A site of a federation while it trains: local steps by the site's stage programs, meetings with the others, and the
 * checkpoint between the two.
 *
 * Stage programs write a checkpoint at the end of a round and wait. After the meeting they take the values that the
 * member has written into it, and go on up to the step that `next-round` names (--go-on). Where that does not do, they
 * end and are started again after the meeting, or with overlap during it. They end, too, when the member does. The
 * checkpoint directory also holds global.safetensors, the model that this site took last: the start of its round; with
 * overlap end.safetensors, where its steps ended (late_result.h). Killed at any point, a site that is started again
 * goes on: with its round if that is not over, else with the model of the federation. */
#ifndef FEDERATION_MEMBER_MEMBER_H
#define FEDERATION_MEMBER_MEMBER_H

#include <signal.h>
#include <sys/types.h>

#include "federation/connect/site_link.h"
#include "federation/member/control_variates.h"
#include "federation/member/feedback.h"
#include "federation/member/own_evaluation.h"
#include "federation/member/protection.h"
#include "federation/member/site_checkpoint.h"

/* What `DIR/SITE/train --join` was told. */
typedef struct MemberOptions {
    const char *directory;              /* DIR/SITE */
    const char *checkpoint;             /* directory */
    const char *key;                    /* file of the secret key; NULL: SITE.key, or what SKYCC_SITE_KEY names */
    const char *data, *eval_data, *log; /* files; log NULL: in the checkpoint directory */
    uint64_t seed;
    bool no_shuffle, quiet;
    char **passed; /* arguments for stage programs, as they were given; NULL after the last */
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
    float *update;           /* room for one; NULL: none was made yet */
    Feedback feedback;       /* where updates are coded */
    ControlVariates control; /* where the federation has them */
    NoiseSeed noise_seed;    /* where they are private */
    const char *key_path;    /* of the site's secret key */
    int64_t withheld;        /* the amendment for which consent is lacking, as was said; -1: none */
    Buffer spoilt;           /* why an amendment cannot be taken, as text */
    const char *start_path, *log_path;
    int64_t current, branch;     /* the coordinator's round and branch, as it last said */
    int64_t rounds;              /* and after how many rounds the federation ends */
    bool spared;                 /* and that the round goes without this site */
    int64_t counted;             /* and how many rounds there were when this site last was in one */
    OwnEvaluation evaluation;    /* of the model that the round began with */
    int64_t end_round, end_step; /* with overlap: of which round the end is on disk (-1: of none), and its step */
    float *early;                /* the next model's part, fetched while steps were made; NULL: it was not */
    int64_t early_round;         /* the round of that model */
    uint64_t place;              /* where it runs (site_starts.h) */
    int steps_lock;              /* which stage programs inherit */
    pid_t stages;                /* stage programs that live through meetings; 0: there are none */
    char *stage_options;         /* what they were started with */
    int stage_errors;            /* from where what they write on standard error is passed on; -1: from nowhere */
    Buffer stage_line, reason;   /* the line that is under way; the first error, with its hint */
    bool reason_is_old;          /* the start that told it has ended */
    bool reason_is_last;         /* line of all, so that the next one may be its hint */
    bool is_foreign;             /* the coordinator's last reply was of another version */
    Buffer news;                 /* which sites are absent and why, as was said last */
    int64_t news_round;          /* and in which round */
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

/* member_state.c: where the round's local steps ended, next to the checkpoints, if that is known. */
const char *member_name(const Member *member);
/* The options of local steps that change what is learned, in one spelling, after a byte in `text`. */
void member_list_options(const Member *member, Buffer *text);
/* Which content a file has, by what the file system says of it, as a line; "" without the file. */
typedef struct FileCard {
    char line[100];
} FileCard;
FileCard member_file_card(const char *path);
const char *member_end_path(Member *member);
bool member_has_end(const Member *member);
bool member_is_coded(const Member *member);
/* Waits; longer each time. */
enum { MEMBER_FIRST_PAUSE_MS = 5 };
void member_pause(int *milliseconds);
/* Reports why the coordinator does not answer it. False. */
bool member_refused(const Member *member, const Reply *reply, Diagnostics *diagnostics);
/* Takes round, branch and number of rounds from a reply. */
void member_hear(Member *member, const Reply *reply);
/* Says which other sites a reply calls absent, and why; member_hear does that, too. */
void member_hear_news(Member *member, const Reply *reply);
/* Whether the coordinator's round is the one that this site has the model of. */
bool member_is_current(const Member *member);
/* On the console, with the site's name. */
void member_say(const Member *member, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* member_ask.c: sends one request and takes a valid reply; false: none came, so ask again. */
bool member_ask(Member *member, Request *request, Buffer *bytes, Reply *reply);
/* The same in two parts, so that requests may be sent ahead of replies; the reply may be of any kind. */
bool member_send(Member *member, Request *request);
bool member_receive(Member *member, Buffer *bytes, Reply *reply);
/* Tells the coordinator that this site lives; whether it may stay. */
bool member_sign_life(Member *member, Diagnostics *diagnostics);
/* Tells it, for the other sites, why this one ends with the exit code. With hide_metrics only of which kind it is,
 * because messages quote losses, rows and paths. */
void member_tell_end(Member *member, int code, const Diagnostics *diagnostics);

/* member_amend.c: whether the request is to be sent again: the reply had an amendment instead of an answer, which was
 * taken, if its owner signed it and this site consents, for which it waits; or it was about the key, and the key's
 * file has become the right one. The reply is a refusal otherwise; of an amendment, member->spoilt says why. */
bool member_is_amended_by(Member *member, Reply *reply);
/* Whether the next amendment, which lies in the site's folder, gives the site the key that it was started with. */
bool member_key_is_amended(Member *member);

/* Where stage programs write how good it is before the first step; NULL: this site has no rows for that. */
const char *member_first_path(Member *member);

/* member_fetch.c: fetches elements of one round's model into `values`; *round becomes that round, and *part all
 * elements where this site has another model than the others had. False: refused or ended. */
bool member_fetch(Member *member, FragmentRange *part, float *values, int64_t *round, Diagnostics *diagnostics);
/* Fetches the round's fragment during the local steps, so that they need not wait for it. After missed rounds the whole
 * model is fetched later instead. */
bool member_fetch_early(Member *member, Diagnostics *diagnostics);
/* Takes elements of the model of *round or a later round, which *round becomes. Uses a fragment fetched early once. */
bool member_take_values(Member *member, FragmentRange *part, int64_t *round, Diagnostics *diagnostics);

/* member_meet.c: meets with the update of the steps up to `step`, until the round is over. False: refused (reported),
 * or ended. */
bool member_join_round(Member *member, int64_t step, Diagnostics *diagnostics);
/* Where this site's update was in the sum, what the codec left out of it is what is left out now, and the site's
 * control variates have changed. Written before the checkpoint is, from which it could be made again. */
bool member_keep_update(Member *member, int64_t step, Diagnostics *diagnostics);
/* Whether the model of the round is as good for this site's own rows as it should be; says it if it is not. Keeps it in
 * good.safetensors. False: it is not, or an error was reported. */
bool member_judge_model(Member *member, Diagnostics *diagnostics);

/* member_train.c: starts DIR/SITE/train with what was passed, from the checkpoint up to the step; -1: it cannot be. */
pid_t member_train_begin(Member *member, int64_t until);
/* Waits for it, and tells it to save and end after `deadline` seconds: then a step may be cut off that is not saved.
 * What it ended with. */
#define MEMBER_NO_DEADLINE (-1.0)
#define MEMBER_AT_ONCE 0.0
int member_train_end(Member *member, pid_t child, double deadline, Diagnostics *diagnostics);
/* Whether stage programs wait for the next round and take its values from member->start_path. They do not read the
 * files of proximal terms and control variates again; with overlap they run during meetings. */
bool member_stages_live(const Member *member);
/* Tells stage programs that wait for the next round to end, and waits for that. */
void member_train_stop(Member *member);
/* Makes the round's local steps, up to the step or to the federation's deadline, and one at least. *step becomes that
 * of the newest checkpoint. Stage programs may go on to live, and wait for the next round. */
int member_make_steps(Member *member, int64_t until, int64_t *step, Diagnostics *diagnostics);
/* Whether they have been made already. */
bool member_steps_are_made(Member *member, int64_t step, int64_t until);
/* The mean loss of the steps after `after`, up to `until` in the log; false: it does not say. */
bool member_mean_loss(const char *log, int64_t after, int64_t until, double *loss);

#endif
