/* Which of two starts of one site takes part: two members with one key in two places. The first stays, as long as it is
 * heard of. */
#ifndef FEDERATION_SITE_STARTS_H
#define FEDERATION_SITE_STARTS_H

#include <stdbool.h>
#include <stdint.h>

/* A member tells at least this often that it lives, while it has nothing else to ask. */
#define SITE_SIGN_SECONDS 5.0

typedef struct SiteStarts {
    uint64_t place; /* of the start that takes part; 0: none */
    double heard;   /* of it, when */
    struct SiteRival {
        uint64_t place; /* 0: none */
        double since, heard;
    } rivals[4];     /* other starts */
    bool rival_said; /* that the site runs in two places, to the last of these that came */
} SiteStarts;

typedef enum SiteVerdict {
    SITE_TAKES_PART,
    SITE_TAKES_OVER,  /* from now on: nothing was heard of the first for long */
    SITE_WAITS,       /* until it is known whether the first is still there */
    SITE_TURNED_AWAY, /* it is */
} SiteVerdict;

/* A message has come from `place`: a number that all starts in one checkpoint directory share, of which only one can
 * run; 0: unknown, never turned away. */
SiteVerdict site_starts_judge(SiteStarts *starts, uint64_t place, double now);

#endif
