/* Requests of a site that are no part of a meeting, and what is done about replies that are no answers. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "federation/member/member.h"

bool member_send(Member *member, Request *request)
{
    FREED_WITH(buffer_free) Buffer message = {0};
    request->place = member->place;
    request->branch = (uint64_t)member->start.branch;
    request->amended = (uint64_t)member->federation.compiled.amended;
    request_put(&message, request);
    return site_link_exchange(&member->link, &message, NULL);
}

bool member_receive(Member *member, Buffer *bytes, Reply *reply)
{
    buffer_free(bytes);
    bool ok = site_link_exchange(&member->link, NULL, bytes) &&
              reply_get(reply, (const unsigned char *)bytes->bytes, bytes->size);
    member->is_foreign = message_is_of_another_version((const unsigned char *)bytes->bytes, bytes->size);
    return ok;
}

static bool exchange(Member *member, Request *request, Buffer *bytes, Reply *reply)
{
    buffer_free(bytes);
    return member_send(member, request) && member_receive(member, bytes, reply);
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
        member_say(member, "the coordinator at %s %s: asking again until it does", member->federation.address,
                   member->is_foreign ? "comes from another version of skycc and does not answer this one"
                                      : "does not answer");
    member->told_waiting = !ok || is_elsewhere;
    return ok && !is_elsewhere;
}

bool member_sign_life(Member *member, Diagnostics *diagnostics)
{
    Request request = {.kind = REQUEST_ALIVE,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round};
    FREED_WITH(buffer_free) Buffer bytes = {0};
    Reply reply;
    member->link.patience = SITE_LINK_SHORT_PATIENCE;
    bool is_sent_away = exchange(member, &request, &bytes, &reply) && reply_sends_away(&reply);
    member->link.patience = SITE_LINK_PATIENCE;
    if (is_sent_away) member_refused(member, &reply, diagnostics);
    if (bytes.size && !is_sent_away) member_hear_news(member, &reply);
    return !is_sent_away;
}

/* ---- The end ---- */

static void describe_end(const Member *member, int code, const Diagnostics *diagnostics, Buffer *text)
{
    static const char *const kinds[] = {[EXIT_BAD_INPUT] = "something that it was given is wrong",
                                        [EXIT_USAGE] = "its command line is wrong",
                                        [EXIT_RUN_FAILED] = "its run failed",
                                        [EXIT_DIVERGED] = "its training diverged"};
    const Diagnostic *error = diagnostics->first;
    bool is_told = *member->ended, is_shown = !member->federation.hide_metrics;
    while (error && !error->is_error) error = error->next;
    if (is_told) {
        buffer_print(text, "%s", *member->ended == SIGINT ? "SIGINT" : "SIGTERM");
    } else if (is_shown && error) {
        if (error->place.file) text_format(text, "%s: ", error->place.file);
        text_format(text, error->hint ? "%s (%s)" : "%s", error->message, error->hint);
    } else if (is_shown && member->reason.size) {
        text_format(text, "%s", buffer_text(&member->reason));
    } else {
        bool is_known = code > 0 && (size_t)code < sizeof kinds / sizeof *kinds && kinds[code];
        buffer_print(text, "%s", is_known ? kinds[code] : "its stage programs ended");
    }
    buffer_print(text, is_told ? "; it goes on when it is started again"
                               : "; it goes on when that is mended and it is started again");
}

void member_tell_end(Member *member, int code, const Diagnostics *diagnostics)
{
    static const volatile sig_atomic_t goes_on;
    FREED_WITH(buffer_free) Buffer told = {.limit = 1 + ASK_MOST_REASON}, bytes = {0};
    Reply reply;
    if (!member->link.context || member->link.was_silent) return;
    buffer_append(&told, &(unsigned char){ASK_ENDS}, 1);
    describe_end(member, code, diagnostics, &told);
    Request request = {.kind = REQUEST_ASK,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round,
                       .payload = (const unsigned char *)told.bytes,
                       .size = told.size};
    member->link.ended = &goes_on;
    member->link.patience = SITE_LINK_SHORT_PATIENCE;
    exchange(member, &request, &bytes, &reply);
}
