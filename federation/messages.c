#include "federation/messages.h"

#include <math.h>

static const unsigned char mark[] = {'S', 'K', 'Y', 'F', 6};
enum { VERSION_AT = sizeof mark - 1 };

static void put_mark(unsigned char *head, int kind, SumPhase phase)
{
    memcpy(head, mark, sizeof mark);
    head[5] = (unsigned char)kind;
    head[6] = (unsigned char)phase;
    head[7] = 0;
}

static bool get_mark(const unsigned char *head, int kinds)
{
    return memcmp(head, mark, sizeof mark) == 0 && head[5] < kinds && head[6] <= SUM_DONE && head[7] == 0;
}

bool message_is_of_another_version(const unsigned char *message, size_t size)
{
    return size > sizeof mark && memcmp(message, mark, VERSION_AT) == 0 && message[VERSION_AT] != mark[VERSION_AT];
}

void reply_set_version(unsigned char *reply, unsigned char version) { reply[VERSION_AT] = version; }

void request_put(Buffer *message, const Request *request)
{
    unsigned char head[REQUEST_HEAD];
    put_mark(head, request->kind, request->phase);
    put_u64(head + 8, request->federation.high);
    put_u64(head + 16, request->federation.low);
    memcpy(head + 24, request->session, SESSION_BYTES);
    put_u64(head + 24 + SESSION_BYTES, request->round);
    put_u64(head + 32 + SESSION_BYTES, request->branch);
    put_u64(head + 40 + SESSION_BYTES, request->place);
    put_u64(head + 48 + SESSION_BYTES, request->amended);
    buffer_append(message, head, sizeof head);
    if (request->size) buffer_append(message, request->payload, request->size);
}

bool request_get(Request *request, const unsigned char *message, size_t size)
{
    if (size < REQUEST_HEAD || !get_mark(message, REQUEST_KINDS)) return false;
    *request = (Request){.kind = (RequestKind)message[5],
                         .phase = (SumPhase)message[6],
                         .federation = {get_u64(message + 8), get_u64(message + 16)},
                         .round = get_u64(message + 24 + SESSION_BYTES),
                         .branch = get_u64(message + 32 + SESSION_BYTES),
                         .place = get_u64(message + 40 + SESSION_BYTES),
                         .amended = get_u64(message + 48 + SESSION_BYTES),
                         .payload = message + REQUEST_HEAD,
                         .size = size - REQUEST_HEAD};
    memcpy(request->session, message + 24, SESSION_BYTES);
    return true;
}

void reply_put(Buffer *message, const Reply *reply)
{
    unsigned char head[REPLY_HEAD];
    put_mark(head, reply->kind, reply->phase);
    memcpy(head + 8, reply->session, SESSION_BYTES);
    put_u64(head + 8 + SESSION_BYTES, reply->round);
    put_u64(head + 16 + SESSION_BYTES, reply->branch);
    put_u64(head + 24 + SESSION_BYTES, reply->rounds);
    buffer_append(message, head, sizeof head);
    if (reply->size) buffer_append(message, reply->payload, reply->size);
}

bool reply_get(Reply *reply, const unsigned char *message, size_t size)
{
    if (size < REPLY_HEAD || !get_mark(message, REPLY_KINDS)) return false;
    *reply = (Reply){.kind = (ReplyKind)message[5],
                     .phase = (SumPhase)message[6],
                     .round = get_u64(message + 8 + SESSION_BYTES),
                     .branch = get_u64(message + 16 + SESSION_BYTES),
                     .rounds = get_u64(message + 24 + SESSION_BYTES),
                     .payload = message + REPLY_HEAD,
                     .size = size - REPLY_HEAD};
    memcpy(reply->session, message + 8, SESSION_BYTES);
    return true;
}

void metrics_put(Buffer *message, const SiteMetrics *metrics)
{
    unsigned char bytes[METRICS_BYTES];
    uint64_t loss;
    memcpy(&loss, &metrics->loss, sizeof loss);
    put_u32(bytes, (metrics->has_rows ? 1u : 0) | (metrics->has_loss ? 2u : 0));
    put_u64(bytes + 4, metrics->has_rows ? (uint64_t)metrics->rows : 0);
    put_u64(bytes + 12, metrics->has_loss ? loss : 0);
    buffer_append(message, bytes, sizeof bytes);
}

bool metrics_get(SiteMetrics *metrics, const unsigned char *bytes, size_t size)
{
    if (size < METRICS_BYTES || get_u32(bytes) > 3) return false;
    uint64_t loss = get_u64(bytes + 12), rows = get_u64(bytes + 4);
    *metrics = (SiteMetrics){.has_rows = get_u32(bytes) & 1, .has_loss = get_u32(bytes) & 2, .rows = (int64_t)rows};
    memcpy(&metrics->loss, &loss, sizeof loss);
    return rows < (uint64_t)1 << 48 && (!metrics->has_loss || isfinite(metrics->loss));
}
