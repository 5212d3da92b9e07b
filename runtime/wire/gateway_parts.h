/* What the files gateway*.c share. */
#ifndef RUNTIME_WIRE_GATEWAY_PARTS_H
#define RUNTIME_WIRE_GATEWAY_PARTS_H

#include <sys/types.h>

#include "runtime/wire/audit.h"
#include "runtime/wire/gateway.h"
#include "runtime/wire/sockets.h"

enum { WIRE_MOST_ROUTE = 256, WIRE_PLACE = 320, AUDIT_RESERVE = 8, MOST_RIVALS = 4 };

/* Where a ROUTER sends to. */
typedef struct Route {
    uint8_t bytes[WIRE_MOST_ROUTE];
    size_t size; /* 0: nowhere */
} Route;

/* The link to another site. */
typedef struct Link {
    WireGateway *gateway;
    WirePeer peer;
    const WireSite *site;
    bool connects;        /* it has a socket of its own; else the other site connects to the listener */
    void *socket, *watch; /* of a link that connects */
    Route route;          /* in the listener: of the newest connection that greeted */
    WireState state;
    double since;          /* when the state began */
    double heard, greeted; /* when a frame came last; when it was greeted last */
    double life_sign;      /* when it was told last that this site lives */
    int attempts;          /* to connect */
    double refused;        /* when it failed, to be tried with a new socket; 0: not since the socket was opened */
    int end_code;          /* WIRE_ENDED */
    bool finished;         /* its ranks are done */
    bool other_run;        /* it was said that it carries another run */
    struct {
        uint64_t incarnation; /* 0: none */
        double since;         /* when it was heard of first */
    } rivals[MOST_RIVALS];    /* other starts of that site, while the first is there */
    bool rival_said;
    char why[512]; /* WIRE_ENDED: as its rank said; else why its ranks are gone, "": unknown */
} Link;

/* A rank of this site. */
typedef struct LocalRank {
    Route route;
    bool joined, left;
    WireChunk **waiting; /* until it joins */
    size_t waiting_count, waiting_capacity;
} LocalRank;

/* What --audit asks for; unused without a path. */
typedef struct GatewayAudit {
    WireAudit counted;
    const char *path;
    bool is_new;                /* something was counted since the file was written */
    bool began_steps;           /* since the gateway started */
    double written;             /* when */
    bool is_late;               /* it was said that it cannot be written for now */
    int reserve[AUDIT_RESERVE]; /* descriptors that strangers do not get: given up while it is written */
    dev_t device;               /* and the next: of the file as it was written last */
    ino_t file;
} GatewayAudit;

struct WireGateway {
    WireGatewayOptions options;
    const WireSiteFile *file;
    uint64_t incarnation;
    void *context, *zap, *ranks, *listener, *listener_watch;
    Link *links;                                     /* per site; this one's own is unused */
    LocalRank *local;                                /* per rank of the run; those of other sites are unused */
    char place[WIRE_PLACE], ranks_place[WIRE_PLACE]; /* where listener and ranks are */
    int local_count, left_count, watches;
    bool failed;          /* a rank has ended the run, which all sites were told */
    bool sockets_changed; /* what the loop waits for is not all of them any more */
    GatewayAudit audit;
    uint64_t strangers, odd; /* handshakes that failed; frames of known sites or ranks that are none */
};

/* gateway_links.c */
bool wire_links_open(WireGateway *gateway, Diagnostics *diagnostics);
void wire_links_close(WireGateway *gateway);
/* Takes what has come in from other sites. */
void wire_links_work(WireGateway *gateway);
/* What is due by time, about twice a second. */
void wire_links_tick(WireGateway *gateway, double now);
/* Acknowledges what came in. */
void wire_links_acknowledge(WireGateway *gateway);

/* gateway_ranks.c */
bool wire_ranks_open(WireGateway *gateway, Diagnostics *diagnostics);
void wire_ranks_close(WireGateway *gateway);
void wire_ranks_work(WireGateway *gateway);
/* Takes over the chunk. */
void wire_ranks_deliver(WireGateway *gateway, int rank, WireChunk *chunk);
/* Tells all ranks of this site how a link is. */
void wire_ranks_tell(WireGateway *gateway, const Link *link);
/* Tells the other sites why ranks of this one have ended before they were done, if that was written down and no rank
 * has said it. */
void wire_ranks_tell_broken(WireGateway *gateway);

/* gateway_audit.c */
bool wire_gateway_audit_open(WireGateway *gateway, Diagnostics *diagnostics);
void wire_gateway_audit_close(WireGateway *gateway);
/* Counts a message: sent to another site, or come from there. */
void wire_gateway_audit_message(WireGateway *gateway, int from_site, int to_site, const WireFrame *message);
/* Counts a frame between gateways that is no message. */
void wire_gateway_audit_frame(WireGateway *gateway, int from_site, int to_site, const void *bytes, size_t size);
/* A rank begins a step or a batch. */
void wire_gateway_audit_note(WireGateway *gateway, const WireFrame *note);
/* Writes the file if that is due, and in any case in the end. */
void wire_gateway_audit_write(WireGateway *gateway, double now, bool is_end);

/* "skycc: site paris: ..." on standard error. */
void wire_gateway_say(const WireGateway *gateway, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
