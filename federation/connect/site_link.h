/* A site's connection to the coordinator: to every request a reply, in this order, over ZeroMQ with CURVE. Both ends
 * prove their keys. */
#ifndef FEDERATION_CONNECT_SITE_LINK_H
#define FEDERATION_CONNECT_SITE_LINK_H

#include <signal.h>

#include "federation/meeting.h"
#include "runtime/wire/keys.h"

/* What patience is at first, and while the site trains. */
#define SITE_LINK_PATIENCE 30.0
#define SITE_LINK_SHORT_PATIENCE 2.0

typedef struct SiteLink {
    void *context, *socket;
    void *watch; /* says when the connection is lost */
    int opened;
    const Federation *federation;
    const WireKeys *keys;               /* the site's */
    const volatile sig_atomic_t *ended; /* a wait ends when this is not 0 */
    bool was_silent;                    /* a request had no reply */
    int waiting;                        /* requests that have none yet */
    size_t bytes_waiting;               /* and their bytes */
    double patience;                    /* seconds that a reply may take, and more for large requests */
} SiteLink;

/* Reports an address that is none. Close it in any case. */
bool site_link_open(SiteLink *link, const Federation *federation, const WireKeys *keys,
                    const volatile sig_atomic_t *ended, Diagnostics *diagnostics);
void site_link_close(SiteLink *link);
/* An Exchange (federation/meeting.h) whose context is a SiteLink. Waits for a reply for link->patience, and
 * longer for large requests, but no longer than the connection lasts; then connects anew. */
bool site_link_exchange(void *link, const Buffer *request, Buffer *reply);

/* What meetings need of the keys in this round: bytes. False if a text is no key. */
bool meeting_keys(MeetingKeys *keys, const WireKeys *own, const Federation *federation, int64_t round);
/* The keys have changed: the next request connects with the new ones. */
void site_link_renew(SiteLink *link);

#endif
