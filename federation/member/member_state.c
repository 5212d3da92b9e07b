/* A site's state, for all files of a member. Nothing here calls the others. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "federation/member/member.h"

enum { LONGEST_PAUSE_MS = 1000 };

const char *member_end_path(Member *member)
{
    return arena_format(&member->arena, "%s/end.safetensors", member->options->checkpoint);
}

const char *member_first_path(Member *member)
{
    if (!member->options->eval_data || member->federation.overlap) return NULL;
    return arena_format(&member->arena, "%s/first-metrics", member->options->checkpoint);
}

bool member_has_end(const Member *member)
{
    return member->federation.overlap > 0 && member->end_round == member->start.round;
}

/* The value of an option in one spelling: 1e-2 is 0.01. */
static void list_value(Buffer *text, const char *name, const char *value)
{
    char *end;
    double number = strtod(value, &end);
    buffer_print(text, "%s%s ", text->size > 1 ? " " : "", name);
    if (end > value && !*end)
        buffer_print(text, "%.9g", number);
    else
        buffer_print(text, "%s", value);
}

void member_list_options(const Member *member, Buffer *text)
{
    static const char *const names[] = {"--clip",           "--lr",     "--lr-decay",    "--no-decay", "--schedule-lr",
                                        "--skip-nonfinite", "--warmup", "--weight-decay"};
    char *const *passed = member->options->passed;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; passed[i]; i++) {
            size_t length = strlen(names[n]);
            if (strncmp(passed[i], names[n], length) != 0) continue;
            if (passed[i][length] == '=') list_value(text, names[n], passed[i] + length + 1);
            if (!passed[i][length] && passed[i + 1]) list_value(text, names[n], passed[i + 1]);
        }
}

void member_hear(Member *member, const Reply *reply)
{
    if (reply->kind >= REPLY_KINDS) return;
    member->current = (int64_t)reply->round;
    member->branch = (int64_t)reply->branch;
    if ((int64_t)reply->rounds < member->federation.rounds && (int64_t)reply->rounds < member->rounds)
        member_say(member, "the federation ends after round %lld: no later one was better", (long long)reply->rounds);
    member->rounds =
        (int64_t)reply->rounds < member->federation.rounds ? (int64_t)reply->rounds : member->federation.rounds;
}

bool member_is_current(const Member *member)
{
    return member->current == member->start.round && member->branch == member->start.branch;
}

bool member_is_coded(const Member *member) { return member->federation.codec != CODEC_NONE; }

void member_pause(int *milliseconds)
{
    usleep((useconds_t)*milliseconds * 1000);
    *milliseconds = *milliseconds * 2 < LONGEST_PAUSE_MS ? *milliseconds * 2 : LONGEST_PAUSE_MS;
}

const char *member_name(const Member *member)
{
    const Federation *federation = &member->federation;
    return federation->sites[federation->compiled.site].name;
}

bool member_refused(const Member *member, const Reply *reply, Diagnostics *diagnostics)
{
    const Place place = {.object = member_name(member)};
    if (reply_sends_away(reply))
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place, REPLY_TWICE_HINT,
                                 "the coordinator says that this site " REPLY_TWICE_TEXT);
    enum { MOST = 600 };
    bool options = reply->size > 6 && memcmp(reply->payload, "trains with", 11) == 0;
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place,
                             options
                                 ? "start all sites with the same ones, or write own_options: true for this site in "
                                   "federation.yaml"
                                 : "compile all sites and the coordinator together",
                             "the coordinator refuses this site: it %.*s",
                             (int)(reply->size < MOST ? reply->size : MOST), (const char *)reply->payload);
}

static bool exchange(Member *member, Request *request, Buffer *bytes, Reply *reply)
{
    Buffer message = {0};
    buffer_free(bytes);
    request->place = member->place;
    request->branch = (uint64_t)member->start.branch;
    request_put(&message, request);
    bool ok = site_link_exchange(&member->link, &message, bytes) &&
              reply_get(reply, (const unsigned char *)bytes->bytes, bytes->size);
    buffer_free(&message);
    return ok;
}

bool member_ask(Member *member, Request *request, Buffer *bytes, Reply *reply)
{
    bool ok = exchange(member, request, bytes, reply), is_elsewhere = false;
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

void member_say(const Member *member, const char *format, ...)
{
    char text[512];
    va_list arguments;
    if (member->options->quiet) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_print(stderr, "%s: %s\n", member_name(member), text);
}
