/* Where a federation stands: DIR/status.html for a browser, one file without anything from elsewhere that loads itself
 * again while rounds are made, and DIR/status.json with the same for other tools. */
#ifndef DRIVER_COORDINATE_STATUS_PAGE_H
#define DRIVER_COORDINATE_STATUS_PAGE_H

#include "federation/coordinator.h"
#include "federation/evaluations.h"

enum { STATUS_TIMED_ROUNDS = 9 };

typedef struct StatusPage {
    Arena arena;
    const char *html, *json; /* paths */
    const char *log;         /* of rounds */
    bool ends;               /* no more is to come of this process */
    /* What was shown last, and when: */
    int64_t round;
    double ended[STATUS_TIMED_ROUNDS]; /* when rounds did that this process saw */
    int rounds_seen;
    int64_t seen; /* the last of them */
    int state;
    double written;
    bool failed; /* it is said once that it cannot be written */
} StatusPage;

void status_page_open(StatusPage *page, const char *directory, const char *log);
/* Writes both files if something has changed, or some seconds have gone by. */
void status_page_update(StatusPage *page, const Coordinator *coordinator, const Evaluations *evaluations, double now);
void status_page_free(StatusPage *page);

#endif
