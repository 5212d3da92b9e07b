/* Amendments at a site: what the coordinator passes on is checked as if the coordinator had made it up. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "federation/amendment.h"
#include "federation/member/member.h"

static const char *consent_path(Member *member, Arena *arena, int64_t number)
{
    return amendment_path(arena, member->options->directory, number);
}

/* Whether the same bytes lie in the site's folder. */
static bool has_consent(Member *member, const Amendment *amendment, const unsigned char *text, size_t size)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(file_unmap) MappedFile file = {0};
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    const char *path = consent_path(member, &arena, amendment->number);
    return access(path, F_OK) == 0 && file_map(&file, path, &unsaid) && file.size == size &&
           memcmp(file.bytes, text, size) == 0;
}

static void say_withheld(Member *member, const Amendment *amendment)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(buffer_free) Buffer what = {0};
    if (member->withheld == amendment->number) return;
    member->withheld = amendment->number;
    amendment_describe(amendment, &what);
    member_say(member,
               "amendment %" PRId64 "%s: this site takes part again when whoever runs it consents to the new keys by "
               "putting the amendment's file at %s",
               amendment->number, buffer_text(&what), consent_path(member, &arena, amendment->number));
}

/* Tells the coordinator that it need not wait for this site; its answer is of no interest. */
static void withhold(Member *member)
{
    Request request = {.kind = REQUEST_ASK,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round,
                       .branch = (uint64_t)member->start.branch,
                       .place = member->place,
                       .amended = (uint64_t)member->federation.compiled.amended,
                       .payload = &(const unsigned char){ASK_WITHHOLDS},
                       .size = 1};
    FREED_WITH(buffer_free) Buffer message = {0}, reply = {0};
    request_put(&message, &request);
    site_link_exchange(&member->link, &message, &reply);
}

/* The key that the site has now, if its file has become another one; whether it has. */
static bool renew_key(Member *member)
{
    const FederationSite *site = &member->federation.sites[member->federation.compiled.site];
    WireKeys keys;
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    bool renewed = strcmp(member->wire_keys.public_key, site->key) != 0 &&
                   wire_keys_read(&keys, member->key_path, &unsaid) && strcmp(keys.public_key, site->key) == 0;
    if (renewed) member->wire_keys = keys;
    if (renewed) site_link_renew(&member->link);
    explicit_bzero(&keys, sizeof keys);
    return renewed;
}

static bool take(Member *member, const Amendment *amendment, Diagnostics *diagnostics)
{
    Federation *federation = &member->federation;
    FREED_WITH(buffer_free) Buffer what = {0};
    bool ok = federation_amend(federation, amendment, "the amendment", diagnostics) &&
              federation_write(federation, member->options->directory, diagnostics);
    const FederationSite *own = &federation->sites[federation->compiled.site];
    amendment_describe(amendment, &what);
    if (ok)
        member_say(member, "amendment %" PRId64 " from round %" PRId64 " on:%s", amendment->number,
                   amendment->from_round, buffer_text(&what));
    if (ok && strcmp(own->key, member->wire_keys.public_key) != 0 && !renew_key(member))
        member_say(member, "this site has a new key from round %" PRId64 " on: put its secret half at %s in that round",
                   own->rekeyed, member->key_path);
    return ok;
}

static bool amend(Member *member, const unsigned char *text, size_t size)
{
    FREED_WITH(amendment_free) Amendment amendment = {0};
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    int pause = MEMBER_FIRST_PAUSE_MS;
    bool ok = amendment_open(&amendment, &member->federation, "the amendment", (const char *)text, size, &diagnostics);
    bool needs = ok && member->federation.secure && amendment_has_new_keys(&amendment);
    while (needs && !*member->ended && !has_consent(member, &amendment, text, size)) {
        say_withheld(member, &amendment);
        withhold(member);
        member_pause(&pause);
    }
    ok = ok && !*member->ended && take(member, &amendment, &diagnostics);
    buffer_free(&member->spoilt);
    if (diagnostics.errors) buffer_print(&member->spoilt, "it %s", diagnostics.last->message);
    return ok;
}

bool member_key_is_amended(Member *member)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(amendment_free) Amendment amendment = {0};
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    const Federation *federation = &member->federation;
    bool is_own = false;
    const char *path = consent_path(member, &arena, federation->compiled.amended + 1);
    if (amendment_open_file(&amendment, federation, path, &unsaid))
        for (size_t i = 0; i < amendment.count && !is_own; i++)
            is_own = amendment.changes[i].kind == CHANGE_KEY &&
                     strcmp(amendment.changes[i].site.name, member_name(member)) == 0 &&
                     strcmp(amendment.changes[i].site.key, member->wire_keys.public_key) == 0;
    return is_own;
}

bool member_is_amended_by(Member *member, Reply *reply)
{
    static const char replaced[] = "uses a key";
    if (reply->kind == REPLY_AMEND) {
        bool ok = amend(member, reply->payload, reply->size);
        if (!ok) reply->kind = REPLY_REFUSED;
        return ok;
    }
    return reply->kind == REPLY_REFUSED && reply->size > sizeof replaced &&
           memcmp(reply->payload, replaced, sizeof replaced - 1) == 0 && renew_key(member);
}
