/* The coordinator of a federation: rounds, from offers of sites to the next global model on disk. It knows nothing of
 * connections: requests and the time come in, replies go out (serve.h).
 *
 * A round is a session of aggregation over the fragment whose turn it is. A phase ends when all sites that are in it
 * have answered, or after the round's timeout with those that have, if they are enough; while pieces of updates arrive
 * it may take four times as long, and no longer, so that one site cannot hold up all others. If they are not enough,
 * offers wait for more, and any later phase begins the round anew, with new keys: nothing was learned from what came.
 * The next round begins once the model is on disk; a disk that is full is tried again. What is wrong with a message is
 * answered with the reason, and the round goes on. */
#ifndef FEDERATION_COORDINATOR_H
#define FEDERATION_COORDINATOR_H

#include <stdio.h>

#include "federation/aggregate/fixed_point.h"
#include "federation/federation.h"
#include "federation/jumps.h"
#include "federation/messages.h"
#include "federation/global_model.h"
#include "federation/site_starts.h"
#include "federation/update_pieces.h"

/* What the coordinator knows of a site. */
typedef struct KnownSite {
    SiteMetrics last;        /* of the last round that it was in */
    SiteMetrics metrics;     /* of this round's offer */
    ArrivingUpdate arriving; /* of its update, what is here */
    bool left_out;           /* of this round: its secrets did not fit its shares */
    bool silent;             /* it let a phase of this round run out, and has not been heard of since */
    int64_t missed;          /* rounds in a row that waited for it in vain */
    bool returned, tried;    /* dropped, and heard of since: a round waits for it once more; that round has been */
    char ended[ASK_MOST_REASON + 1];    /* why, as it says; "": it has not, or nothing is known of it */
    bool said_ended;                    /* in this round, so that no site can fill the console */
    char options[ASK_MOST_OPTIONS + 1]; /* with which it trains, as it says */
    bool says_options;
    char other_options[3 * ASK_MOST_OPTIONS]; /* why it is refused for them */
    bool withholds;                           /* its consent to the amendments that it has not taken */
    bool uses_former;                         /* key: the one before, as whoever brings its messages says */
    bool refuses;                             /* the model of this round, which has collapsed on its rows */
    bool restarted;                           /* in this round, which began anew for it */
    double heard;                             /* when it last was, 0: not yet */
    JumpWatch losses, scales; /* of its rounds: losses, and the powers of two above its largest changes */
    char warning[192];        /* of the last jump; "": there was none */
    bool has_final;           /* it has said that it has the model of the last round */
    SiteStarts starts;        /* who of those that came with its key is it */
    int64_t refused;          /* requests, in all */
    const char *refusal;      /* the last that was said on the console in this round, so that no site can fill it */
} KnownSite;

typedef struct Traffic {
    int64_t messages, bytes_in, bytes_out;
} Traffic;

typedef struct Coordinator {
    Federation *federation; /* amendments change it between rounds */
    GlobalModel model;      /* model.round is the current round while `durable` */
    SumRound sum;           /* of the current round */
    KnownSite *sites;
    Traffic traffic[REQUEST_KINDS][SUM_DONE + 1]; /* since the start, by what it was for */
    char *model_path;
    const char *directory;           /* of the model */
    const char *log_path;            /* of the log; NULL: not known */
    double looked_at;                /* when the directory was last looked through for an amendment */
    uint64_t said_problem;           /* the hash of what was said to be wrong with an amendment; 0: nothing */
    FILE *console, *log;             /* console may be NULL; log: CSV, may be NULL */
    double round_since, phase_since; /* when the first offer came, when the phase began */
    double piece_at;                 /* when the last piece of an update came */
    double retry_at;                 /* while the model is not on disk */
    int64_t round_bytes_in, round_bytes_out;
    bool durable, said_waiting, said_no_room;
    int64_t rounds;        /* after how many it ends: the federation's, or fewer when none gets better */
    int64_t session_round; /* which round the session is of */
    Buffer change;         /* of the last round, as coded_model_make made it; empty after a start, or without codec */
    bool holds;            /* what was learned of the last round's model is to be known before another one ends */
    /* Called whenever time may have brought something about; NULL: nobody looks. */
    void (*observe)(void *observer, double now);
    void *observer;
    RowsEvaluation evaluated; /* by the sites of the last round, of the model that it began with, on rows of theirs */
    bool diverged;            /* a round would have made the model infinite: there are no more */
} Coordinator;

/* Reads DIR/model.safetensors, which must be the federation's, and begins its next round. `federation`, `console` and
 * `log` must outlive it. Free it in any case. */
bool coordinator_open(Coordinator *coordinator, Federation *federation, const char *directory, FILE *console, FILE *log,
                      Diagnostics *diagnostics);
/* The same with a model at hand, which it takes over and writes to that place. */
void coordinator_begin(Coordinator *coordinator, Federation *federation, GlobalModel *model, const char *directory,
                       FILE *console, FILE *log);
void coordinator_free(Coordinator *coordinator);

/* Replies to a request of a site, whose number its key has proved; time in seconds. Appends the reply. */
void coordinator_handle(Coordinator *coordinator, int site, const unsigned char *bytes, size_t size, double now,
                        Buffer *reply);
/* What time alone brings about. Call it now and then, and after every request. */
void coordinator_tick(Coordinator *coordinator, double now);
/* All rounds have been, and their model is on disk. */
bool coordinator_is_done(const Coordinator *coordinator);
/* And every site has it. */
bool coordinator_is_needless(const Coordinator *coordinator);
/* The greatest request that is not refused for its size. */
size_t coordinator_largest_request(const Coordinator *coordinator);

/* coordinator_amend.c: takes the amendments in DIR/amendments whose round has come, one after the other, into
 * DIR/federation.yaml; whether there were any. Only where no session is under way. */
bool coordinator_take_amendments(Coordinator *coordinator);
/* Every site has a number in model.counted. */
void coordinator_fit_counted(Coordinator *coordinator);
/* What the site's message is answered with instead: the amendment that it lacks, or, of one that has left or whose key
 * was replaced, a refusal. False: it may be answered. *refusal is NULL unless it is refused. */
bool coordinator_amends(Coordinator *coordinator, int site, const Request *request, const char **refusal,
                        Buffer *amendment);

/* coordinator_presence.c: which sites a round waits for: those that are drawn, have not been silent and were not
 * dropped. */

/* Rounds do not wait for a site that has missed `drop_after` in a row. */
bool presence_is_dropped(const Coordinator *coordinator, int site);
/* Whether the site may be in this round: with `sample`, it is among that many of those that are there, in an order that
 * the federation's identity and the round give; or it has offered already. */
bool presence_is_drawn(const Coordinator *coordinator, int site);
/* The number of sites that have answered the phase or that it waits for. */
int presence_awaited(const Coordinator *coordinator);
/* Marks the sites that did not answer in time: if the round starts again, it does not wait for them. */
void presence_note_silent(Coordinator *coordinator);
/* Copies what a site has written, escaped, as far as there is room. */
void presence_keep_text(char *kept, size_t room, const unsigned char *text, size_t size);
/* Notes the options with which the site trains. Not NULL: why it may not take part, because another site trains with
 * others. */
const char *presence_compare_options(Coordinator *coordinator, int number, const unsigned char *text, size_t size);
enum { PRESENCE_TEXT = ASK_MOST_REASON + 32 };
/* Why the site takes no part: one of the words that status.json has for it, with `text` for people. NULL: it does. */
const char *presence_absence(const Coordinator *coordinator, int number, char text[static PRESENCE_TEXT]);
/* Appends which sites besides this one (-1: all) are absent, and why; nothing where all are there. */
void presence_tell_others(const Coordinator *coordinator, int number, Buffer *text);
/* A round has ended: with this site's update in it, or without. */
void presence_note_round(Coordinator *coordinator, int number, bool counted);

/* coordinator_step.c: makes the outer step with the mean of the updates that are in the sum, in pieces, which needs no
 * buffer for all of it. False: the model would not be finite. */
bool coordinator_step(Coordinator *coordinator, FragmentRange part, int64_t weight);

/* coordinator_report.c: what rounds so far have cost of privacy; NAN without. */
double coordinator_epsilon(const Coordinator *coordinator);
/* A line on the console. */
void coordinator_say(const Coordinator *coordinator, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Warns of a site whose loss or update is far from those of its last rounds, or, in its first, of the other sites. */
void coordinator_report_jumps(Coordinator *coordinator);
/* The line of a round that has ended, on console and log; and what crossed, by kind. */
void coordinator_report_round(Coordinator *coordinator, int sites, int64_t weight, double now);
void coordinator_report_traffic(const Coordinator *coordinator);
/* The log's first line; appends it. */
void coordinator_print_header(const Federation *federation, Buffer *text);
void coordinator_log_header(const Federation *federation, FILE *log);
/* Gives the log at `path` the columns of sites that joined since, if it lacks them. A log of other sites stays as it
 * is. */
bool coordinator_widen_log(const Federation *federation, const char *path, Diagnostics *diagnostics);

#endif
