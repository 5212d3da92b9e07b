/* A site's gateway: joins the ranks of its site with the gateways of the other sites, and never looks into a message.
 *
 * What can go wrong between sites is its matter: whatever comes in that is not a message of this run is dropped and
 * counted, what a broken connection lost is sent again (peer.h), and ranks are told when a site is gone, back, or back
 * with nothing of what was (WireState of frame.h). The connection between rank and gateway is not repaired: who loses
 * it ends, and the site starts again. */
#ifndef RUNTIME_WIRE_GATEWAY_H
#define RUNTIME_WIRE_GATEWAY_H

#include "runtime/wire/site_file.h"

typedef struct WireGatewayOptions {
    const WireSiteFile *file;
    const WireKeys *keys;
    const char *local; /* where the site's ranks connect: ipc://PATH, or with CURVE tcp://HOST:PORT, :FIRST-LAST, :* */
    const char *bind;  /* where it listens for other sites: ADDRESS:PORT (address.h); NULL: as its address says */
    double site_timeout; /* seconds after which ranks are told that a site is given up; 0: never */
    const char *audit;   /* the file that says what crossed (audit.h), gone on with if it is there; NULL: none */
    const char *why;     /* the file in which it may be written why ranks are gone that did not say so; NULL: none */
} WireGatewayOptions;

typedef struct WireGateway WireGateway;

/* NULL after reporting: addresses that cannot be bound (EXIT_RUN_FAILED), keys that are not this site's,
 * an audit that is another run's or cannot be written (EXIT_BAD_INPUT). The options outlive the gateway. */
WireGateway *wire_gateway_open(const WireGatewayOptions *options, Diagnostics *diagnostics);
/* Works until `stop_descriptor` can be read; then what was sent is given some seconds to be acknowledged. Changes of
 * state, and the counters in the end, go to standard error, a line each. An audit that cannot be written is tried
 * again; one that somebody else writes to is given up. Both are said, and neither ends a run. */
void wire_gateway_run(WireGateway *gateway, int stop_descriptor);
/* Where it listens for other sites: tcp://ADDRESS:PORT; "": nowhere. */
const char *wire_gateway_place(const WireGateway *gateway);
/* Where its ranks connect, with the port that was free. */
const char *wire_gateway_ranks_place(const WireGateway *gateway);
void wire_gateway_close(WireGateway *gateway);

#endif
