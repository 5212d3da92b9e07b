/* What crosses between a site and the coordinator: requests by the site and to each a reply, in order. Numbers are
 * little-endian.
 *
 *   request   "SKYF", u8 6, u8 kind, u8 phase, u8 0, 16 bytes federation, 16 bytes session, u64 round, u64 branch,
 *             u64 place, u64 amended, payload
 *   reply     "SKYF", u8 6, u8 kind, u8 phase, u8 0, 16 bytes session, u64 round, u64 branch, u64 rounds, payload
 *
 * The place says where the site runs (site_starts.h). Requests: ask (no payload; u8 1: the site does not take the
 * round's model; u8 2 and text: the options with which it trains; u8 4 and text: why it has ended; the session that the
 * site is in, so that one that was started again is known by it), answer (of a phase of aggregate/sum_messages.h; an
 * offer has the site's metrics in front, an update is as many answers as it has pieces, update_pieces.h), model (u64
 * first element, u64 count), alive (while the site trains), change (as for the model: how these elements changed in the
 * request's round). Replies: wait (to a question or a sign of life: u64 how many rounds there were when the site last
 * was in one, u8 1 if it is not drawn for this one, text which other sites are absent and why); tell (answer this
 * phase; payload what it takes, of updates with u64 how many pieces are there in front); taken; refused (payload why,
 * text); model (payload float32); change (payload coded_model.h; empty: not known, so ask for the model); twice (the
 * site runs elsewhere too; u8 1: and goes on there, 0: which is still to be learned). The round of a reply is the
 * coordinator's: a site that lags has missed a round, and takes the model. So does one that knows another branch: how
 * often the coordinator went back to an earlier round. `rounds` is after how many the federation ends. `amended` is how
 * many amendments the site has taken; a site that lacks one is told it (amend; payload its text) whatever it asks, and
 * asks again once it has taken it. Until it does, it says with a question (u8 3) that it withholds its consent, and
 * rounds do not wait for it. */
#ifndef FEDERATION_MESSAGES_H
#define FEDERATION_MESSAGES_H

#include <stdint.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hash.h"
#include "federation/aggregate/sum_round.h"

typedef enum RequestKind {
    REQUEST_ASK,
    REQUEST_ANSWER,
    REQUEST_MODEL,
    REQUEST_ALIVE,
    REQUEST_CHANGE,
    REQUEST_KINDS
} RequestKind;
typedef enum ReplyKind {
    REPLY_WAIT,
    REPLY_TELL,
    REPLY_TAKEN,
    REPLY_REFUSED,
    REPLY_MODEL,
    REPLY_TWICE,
    REPLY_AMEND,
    REPLY_CHANGE,
    REPLY_KINDS
} ReplyKind;

enum {
    REQUEST_HEAD = 8 + 16 + SESSION_BYTES + 4 * 8,
    REPLY_HEAD = 8 + SESSION_BYTES + 3 * 8,
    REPLY_WAIT_BYTES = 8 + 1, /* to a question, before the text */
    METRICS_BYTES = 4 + 8 + 8,
    MODEL_PIECE = 1 << 20 /* elements of a reply, at most */
};

enum { ASK_REFUSES = 1, ASK_OPTIONS = 2, ASK_WITHHOLDS = 3, ASK_ENDS = 4 };
enum { ASK_MOST_OPTIONS = 239, ASK_MOST_REASON = 399, MOST_NEWS = 999 /* bytes of text */ };

#define ROUND_NONE UINT64_MAX /* of a site that has no update */

typedef struct Request {
    RequestKind kind;
    SumPhase phase;
    Hash federation;
    unsigned char session[SESSION_BYTES];
    uint64_t round, branch, place, amended;
    const unsigned char *payload;
    size_t size;
} Request;

typedef struct Reply {
    ReplyKind kind;
    SumPhase phase;
    unsigned char session[SESSION_BYTES];
    uint64_t round, branch, rounds;
    const unsigned char *payload;
    size_t size;
} Reply;

/* What a site tells of a round besides its update. */
typedef struct SiteMetrics {
    bool has_rows, has_loss;
    int64_t rows;
    double loss;
} SiteMetrics;

/* Append; payloads are copied. */
void request_put(Buffer *message, const Request *request);
void reply_put(Buffer *message, const Reply *reply);
void metrics_put(Buffer *message, const SiteMetrics *metrics);
/* Makes a reply one of another version, so that a program of that version can read its kind and text. */
void reply_set_version(unsigned char *reply, unsigned char version);
/* Whether it is a message of another version of these. */
bool message_is_of_another_version(const unsigned char *message, size_t size);
/* False for what is none. Payloads point into the message. */
bool request_get(Request *request, const unsigned char *message, size_t size);
bool reply_get(Reply *reply, const unsigned char *message, size_t size);
bool metrics_get(SiteMetrics *metrics, const unsigned char *bytes, size_t size);

static inline void put_u64(unsigned char *bytes, uint64_t value)
{
    put_u32(bytes, (uint32_t)value);
    put_u32(bytes + 4, (uint32_t)(value >> 32));
}

static inline uint64_t get_u64(const unsigned char *bytes)
{
    return get_u32(bytes) | (uint64_t)get_u32(bytes + 4) << 32;
}

/* What a wait tells of the site, 0 if it does not. */
static inline int64_t reply_counted(const Reply *reply)
{
    return reply->kind == REPLY_WAIT && reply->size >= REPLY_WAIT_BYTES ? (int64_t)get_u64(reply->payload) : 0;
}

/* Whether it says that this round goes without the site, which then need not train for it. */
static inline bool reply_spares(const Reply *reply)
{
    return reply->kind == REPLY_WAIT && reply->size >= REPLY_WAIT_BYTES && reply->payload[8] == 1;
}

/* Whether the reply sends the site away, because it runs in another place. */
static inline bool reply_sends_away(const Reply *reply)
{
    return reply->kind == REPLY_TWICE && reply->size == 1 && reply->payload[0] == 1;
}

#define REPLY_TWICE_TEXT "runs in two places, and the one that came first stays"
#define REPLY_TWICE_HINT "end this one; a site that moves is ended first and then started elsewhere"

#endif
