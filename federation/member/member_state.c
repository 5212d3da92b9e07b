/* A site's state, for all files of a member. Nothing here calls the others. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "federation/member/member.h"

enum { LONGEST_PAUSE_MS = 1000 };

const char *member_end_path(Member *member)
{
    return arena_format(&member->arena, "%s/end.safetensors", member->options->checkpoint);
}

FileCard member_file_card(const char *path)
{
    FileCard card = {""};
    struct stat now;
    if (stat(path, &now) == 0)
        snprintf(card.line, sizeof card.line, "%lld %lld %lld.%09ld\n", (long long)now.st_ino, (long long)now.st_size,
                 (long long)now.st_mtim.tv_sec, now.st_mtim.tv_nsec);
    return card;
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
    static const char *const names[] = {"--clip",           "--lr",          "--lr-decay",
                                        "--no-decay",       "--schedule-lr", "--schedule-steps",
                                        "--skip-nonfinite", "--warmup",      "--weight-decay"};
    char *const *passed = member->options->passed;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (size_t i = 0; passed[i]; i++) {
            size_t length = strlen(names[n]);
            if (strncmp(passed[i], names[n], length) != 0) continue;
            if (passed[i][length] == '=') list_value(text, names[n], passed[i] + length + 1);
            if (!passed[i][length] && passed[i + 1]) list_value(text, names[n], passed[i + 1]);
        }
}

void member_hear_news(Member *member, const Reply *reply)
{
    if (reply->kind != REPLY_WAIT || reply->size < REPLY_WAIT_BYTES) return;
    size_t size = reply->size - REPLY_WAIT_BYTES < MOST_NEWS ? reply->size - REPLY_WAIT_BYTES : MOST_NEWS;
    const char *text = (const char *)reply->payload + REPLY_WAIT_BYTES;
    if (size == 0 && member->news_round < member->current) buffer_free(&member->news);
    if (size == 0 || (member->news.size == size && memcmp(member->news.bytes, text, size) == 0)) return;
    buffer_free(&member->news);
    buffer_append(&member->news, text, size);
    member->news_round = member->current;
    member_say(member, "%s", buffer_text(&member->news));
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
    member_hear_news(member, reply);
}

bool member_is_current(const Member *member)
{
    return member->current == member->start.round && member->branch == member->start.branch;
}

bool member_is_coded(const Member *member) { return member->federation.codec != CODEC_NONE; }

void member_pause(int *milliseconds)
{
    usleep((useconds_t)*milliseconds * 1000);
    int longer = *milliseconds + *milliseconds / 4 + 1; /* so that a fifth of the wait is lost at most */
    *milliseconds = longer < LONGEST_PAUSE_MS ? longer : LONGEST_PAUSE_MS;
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
    if (member->spoilt.size)
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place, "ask who owns the federation",
                                 "the coordinator passed on an amendment that cannot be taken: %s",
                                 buffer_text(&member->spoilt));
    static const char *const hints[][2] = {
        {"trains with",
         "start all sites with the same ones, or write own_options: true for this site in federation.yaml"},
        {"uses a key", "start the site with its new key: --key FILE"},
        {"was removed", "ask who owns the federation"},
        {"lacks an amendment", "bring the files of DIR/amendments back to the coordinator's directory"},
        {"has taken an", "start the coordinator that took it, or bring its directory back"},
        {"", "compile all sites and the coordinator together"}};
    enum { MOST = 600 };
    size_t h = 0;
    while (strlen(hints[h][0]) > reply->size || memcmp(reply->payload, hints[h][0], strlen(hints[h][0])) != 0) h++;
    return diagnostics_error(diagnostics, EXIT_RUN_FAILED, place, hints[h][1],
                             "the coordinator refuses this site: it %.*s",
                             (int)(reply->size < MOST ? reply->size : MOST), (const char *)reply->payload);
}

void member_say(const Member *member, const char *format, ...)
{
    char text[MOST_NEWS + 1];
    va_list arguments;
    if (member->options->quiet) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    text_print(stderr, "%s: %s\n", member_name(member), text);
}
