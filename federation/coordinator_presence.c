/* Which sites a round waits for. */
#include <inttypes.h>

#include "base/random.h"
#include "base/text.h"
#include "federation/coordinator.h"

bool presence_is_dropped(const Coordinator *coordinator, int site)
{
    int64_t most = coordinator->federation->drop_after;
    return most > 0 && coordinator->sites[site].missed >= most;
}

/* A round does not wait for the offer of a site that is not there. */
static bool is_there(const Coordinator *coordinator, int number)
{
    const KnownSite *site = &coordinator->sites[number];
    return !coordinator->federation->sites[number].left && !site->withholds && !site->left_out && !site->silent &&
           !site->refuses && (!presence_is_dropped(coordinator, number) || site->returned);
}

static uint64_t place_of(const Coordinator *coordinator, int site)
{
    Hash identity = coordinator->federation->compiled.identity;
    RandomStream stream = random_stream(identity.high ^ identity.low, "sample");
    uint64_t word = random_word(random_substream(stream, (uint64_t)coordinator->session_round), (uint64_t)site);
    return word << 8 | (uint64_t)site;
}

bool presence_is_drawn(const Coordinator *coordinator, int site)
{
    const Federation *federation = coordinator->federation;
    int before = 0;
    if (!federation->sample || coordinator->sum.members[site].offered) return true;
    for (int s = 0; s < federation->site_count; s++) {
        if (s == site) continue;
        bool offered = coordinator->sum.members[s].offered;
        before += offered || (is_there(coordinator, s) && place_of(coordinator, s) < place_of(coordinator, site));
    }
    return before < federation->sample;
}

int presence_awaited(const Coordinator *coordinator)
{
    const SumRound *sum = &coordinator->sum;
    int awaited = 0;
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        bool offers = sum->phase == SUM_OFFERS && !sum_round_has_answered(sum, s);
        bool is_gone = offers && (!is_there(coordinator, s) || !presence_is_drawn(coordinator, s));
        awaited += !coordinator->sites[s].left_out && !is_gone && sum_round_is_in(sum, s);
    }
    return awaited;
}

void presence_note_silent(Coordinator *coordinator)
{
    for (int s = 0; s < coordinator->federation->site_count; s++)
        coordinator->sites[s].silent |=
            presence_is_drawn(coordinator, s) && !sum_round_has_answered(&coordinator->sum, s);
}

void presence_note_round(Coordinator *coordinator, int number, bool counted)
{
    KnownSite *site = &coordinator->sites[number];
    const char *name = coordinator->federation->sites[number].name;
    bool was_dropped = presence_is_dropped(coordinator, number);
    if (coordinator->federation->sites[number].left) return;
    if (counted) {
        if (was_dropped) coordinator_say(coordinator, "site '%s' is back: rounds wait for it again\n", name);
        site->missed = 0;
        site->returned = site->tried = false;
        return;
    }
    site->tried |= site->returned;
    site->returned = false;
    if (was_dropped || !(site->silent || presence_is_drawn(coordinator, number))) return;
    site->missed++;
    if (presence_is_dropped(coordinator, number))
        coordinator_say(coordinator,
                        "site '%s' has missed %" PRId64 " round%s: rounds do not wait for it until it is back\n", name,
                        site->missed, site->missed == 1 ? "" : "s");
}

void presence_keep_text(char *kept, size_t room, const unsigned char *text, size_t size)
{
    FREED_WITH(buffer_free) Buffer escaped = {.limit = room - 1};
    text_append(&escaped, (const char *)text, size);
    snprintf(kept, room, "%s", buffer_text(&escaped));
}

const char *presence_absence(const Coordinator *coordinator, int number, char text[static PRESENCE_TEXT])
{
    const KnownSite *site = &coordinator->sites[number];
    const struct {
        bool holds;
        const char *word, *said;
    } reasons[] = {{*site->ended, "ended", site->ended},
                   {site->left_out, "left-out", "is left out of this round: its secrets did not fit its shares"},
                   {site->withholds, "withholds", "withholds its consent to an amendment"},
                   {presence_is_dropped(coordinator, number) && !site->returned, "dropped", NULL},
                   {site->refuses, "refuses", "refuses the model: it has collapsed on the site's rows"},
                   {site->silent, "silent", "is absent: it did not answer in time (does train --join run there?)"}};
    size_t r = 0, count = sizeof reasons / sizeof *reasons;
    while (r < count && !reasons[r].holds) r++;
    if (r == count) return NULL;
    if (reasons[r].said)
        snprintf(text, PRESENCE_TEXT, "%s%s", *site->ended ? "has ended: " : "", reasons[r].said);
    else
        snprintf(text, PRESENCE_TEXT, "is absent: missed %" PRId64 " round%s, no longer waited for", site->missed,
                 site->missed == 1 ? "" : "s");
    return reasons[r].word;
}

void presence_tell_others(const Coordinator *coordinator, int number, Buffer *text)
{
    char why[PRESENCE_TEXT];
    size_t before = text->size;
    for (int s = 0; s < coordinator->federation->site_count && text->size - before < MOST_NEWS; s++)
        if (s != number && !coordinator->federation->sites[s].left && presence_absence(coordinator, s, why))
            text_format(text, "%ssite '%s' %s", text->size > before ? "; " : "", coordinator->federation->sites[s].name,
                        why);
    if (text->size - before > MOST_NEWS) text->size = before + MOST_NEWS;
}

const char *presence_compare_options(Coordinator *coordinator, int number, const unsigned char *text, size_t size)
{
    const Federation *federation = coordinator->federation;
    KnownSite *site = &coordinator->sites[number];
    presence_keep_text(site->options, sizeof site->options, text, size);
    site->says_options = true;
    for (int s = 0; s < federation->site_count && !federation->sites[number].own_options; s++) {
        const KnownSite *other = &coordinator->sites[s];
        if (s == number || !other->says_options || federation->sites[s].own_options) continue;
        if (strcmp(site->options, other->options) == 0) continue;
        site->says_options = false; /* it is no measure for others */
        snprintf(site->other_options, sizeof site->other_options, "trains with other options (%s) than site '%s' (%s)",
                 *site->options ? site->options : "none", federation->sites[s].name,
                 *other->options ? other->options : "none");
        return site->other_options;
    }
    return NULL;
}
