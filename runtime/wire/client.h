/* What a rank has of the wire: messages to and from ranks of other sites, through the gateway of its own. Nothing here
 * waits, but wire_client_sleep. One thread uses it. */
#ifndef RUNTIME_WIRE_CLIENT_H
#define RUNTIME_WIRE_CLIENT_H

#include "base/diagnostics.h"
#include "runtime/wire/frame.h"

typedef struct WireClientOptions {
    const char *gateway; /* its --local */
    const char *key;     /* the site's secret key file, where `gateway` is tcp://; else NULL */
    int rank, rank_count, site, site_count;
} WireClientOptions;

/* Of another site. */
typedef struct WireSiteState {
    WireState state;
    int exit_code; /* WIRE_ENDED */
    char why[512]; /* WIRE_ENDED; WIRE_GIVEN_UP: why its ranks were gone, "": unknown */
} WireSiteState;

typedef struct WireClient WireClient;

/* NULL after reporting. The gateway need not be there yet. */
WireClient *wire_client_open(const WireClientOptions *options, Diagnostics *diagnostics);
/* Tells the gateway that this rank is done, and waits some seconds at most until it was told. */
void wire_client_close(WireClient *client);

/* The bytes are copied: they may be changed at once. Messages between two ranks arrive in order. */
void wire_client_send(WireClient *client, int to, int tag, const void *bytes, size_t size);
/* Adds 1 to *pending, which becomes 0 again once the next message of that rank and tag has been written to `bytes`. One
 * of another size is not written, and counted. */
void wire_client_receive(WireClient *client, int from, int tag, void *bytes, size_t size, int *pending);

/* Takes what has come in. Messages with a tag below 0 go to `take`, the others to their receives. */
typedef void WireTake(void *context, int from, int tag, const void *bytes, size_t size);
void wire_client_progress(WireClient *client, WireTake *take, void *context);
/* Sleeps until something comes in, at most `seconds`. */
void wire_client_sleep(WireClient *client, double seconds);

/* Whether the gateway has answered; whether it was there and is gone, for good. */
bool wire_client_has_joined(const WireClient *client);
bool wire_client_is_lost(const WireClient *client);
const WireSiteState *wire_client_state(const WireClient *client, int site);
/* Messages that were dropped, because their size was not that of the receive, or their number out of bounds. */
uint64_t wire_client_dropped(const WireClient *client);

/* Tells the gateway, for its audit, what is begun: the step of that number, or one of so many batches that are
 * evaluated. */
void wire_client_note(WireClient *client, WireNote note, int64_t number, uint32_t microbatches);

/* Has the ranks of all other sites end with that exit code. The process should live some tenths of a second longer. */
void wire_client_fail(WireClient *client, int exit_code, const char *why);

#endif
