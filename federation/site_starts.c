#include "federation/site_starts.h"

#include <stddef.h>

static const double first_lives = 1;                       /* it was heard of this long after the other one came */
static const double first_is_gone = 6 * SITE_SIGN_SECONDS; /* nothing was heard of it for this long */
static const double rival_returns = 2 * SITE_SIGN_SECONDS; /* after such a silence it counts as a new one */

/* Its entry, or that of the one which was heard of longest ago. */
static struct SiteRival *find_rival(SiteStarts *starts, uint64_t place)
{
    struct SiteRival *rivals = starts->rivals, *oldest = rivals;
    for (size_t i = 0; i < sizeof starts->rivals / sizeof *rivals; i++) {
        if (rivals[i].place == place) return &rivals[i];
        if (rivals[i].heard < oldest->heard) oldest = &rivals[i];
    }
    return oldest;
}

SiteVerdict site_starts_judge(SiteStarts *starts, uint64_t place, double now)
{
    if (!place || !starts->place || place == starts->place) {
        if (place) starts->place = place;
        starts->heard = now;
        return SITE_TAKES_PART;
    }
    struct SiteRival *rival = find_rival(starts, place);
    if (rival->place != place) starts->rival_said = false;
    if (rival->place != place || now - rival->heard > rival_returns) rival->since = now;
    rival->place = place;
    rival->heard = now;
    if (starts->heard - rival->since > first_lives) return SITE_TURNED_AWAY;
    double since = starts->heard > rival->since ? starts->heard : rival->since;
    if (now - since <= first_is_gone) return SITE_WAITS;
    *starts = (SiteStarts){.place = place, .heard = now};
    return SITE_TAKES_OVER;
}
