/* Requests of a site that are no part of a meeting, and what is done about replies that are no answers. */
#include "federation/member/member.h"

static bool exchange(Member *member, Request *request, Buffer *bytes, Reply *reply)
{
    Buffer message = {0};
    buffer_free(bytes);
    request->place = member->place;
    request->branch = (uint64_t)member->start.branch;
    request->amended = (uint64_t)member->federation.compiled.amended;
    request_put(&message, request);
    bool ok = site_link_exchange(&member->link, &message, bytes) &&
              reply_get(reply, (const unsigned char *)bytes->bytes, bytes->size);
    buffer_free(&message);
    return ok;
}

bool member_ask(Member *member, Request *request, Buffer *bytes, Reply *reply)
{
    bool ok = exchange(member, request, bytes, reply), is_elsewhere = false;
    while (ok && !*member->ended && member_is_amended_by(member, reply)) ok = exchange(member, request, bytes, reply);
    if (ok && reply->kind == REPLY_TWICE) is_elsewhere = !reply_sends_away(reply);
    if (!*member->ended && !member->told_waiting && is_elsewhere)
        member_say(member, "this site also runs in another place, or did a moment ago: waiting until the coordinator "
                           "knows which of the two goes on, at most half a minute");
    else if (!*member->ended && !member->told_waiting && !ok)
        member_say(member, "the coordinator at %s does not answer: asking again until it does",
                   member->federation.address);
    member->told_waiting = !ok || is_elsewhere;
    return ok && !is_elsewhere;
}

bool member_sign_life(Member *member, Diagnostics *diagnostics)
{
    Request request = {.kind = REQUEST_ALIVE,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round};
    Buffer bytes = {0};
    Reply reply;
    member->link.patience = SITE_LINK_SHORT_PATIENCE;
    bool is_sent_away = exchange(member, &request, &bytes, &reply) && reply_sends_away(&reply);
    member->link.patience = SITE_LINK_PATIENCE;
    if (is_sent_away) member_refused(member, &reply, diagnostics);
    buffer_free(&bytes);
    return !is_sent_away;
}
