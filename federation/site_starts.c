#include "federation/site_starts.h"

static const double first_lives = 1;                       /* it was heard of this long after the other one came */
static const double first_is_gone = 6 * SITE_SIGN_SECONDS; /* nothing was heard of it for this long */
static const double rival_returns = 2 * SITE_SIGN_SECONDS; /* after such a silence it counts as a new one */

SiteVerdict site_starts_judge(SiteStarts *starts, uint64_t place, double now)
{
    if (!place || !starts->place || place == starts->place) {
        if (place) starts->place = place;
        starts->heard = now;
        return SITE_TAKES_PART;
    }
    if (starts->rival != place) starts->rival_said = false;
    if (starts->rival != place || now - starts->rival_heard > rival_returns) starts->rival_since = now;
    starts->rival = place;
    starts->rival_heard = now;
    if (starts->heard - starts->rival_since > first_lives) return SITE_TURNED_AWAY;
    double since = starts->heard > starts->rival_since ? starts->heard : starts->rival_since;
    if (now - since <= first_is_gone) return SITE_WAITS;
    *starts = (SiteStarts){.place = place, .heard = now};
    return SITE_TAKES_OVER;
}
