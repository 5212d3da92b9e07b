/* Measures the links between the sites of a cluster through what a run between them uses: a gateway at every site,
 * pinned keys, encryption, acknowledged messages of which many are under way. Every site runs this at the same time;
 * pairs of sites take turns, so that only one link is measured at a time. */
#ifndef PROFILER_PROBE_PROBE_SITES_H
#define PROFILER_PROBE_PROBE_SITES_H

#include "cluster/cluster.h"
#include "runtime/wire/keys.h"

typedef struct SiteLink {
    int sites[2];           /* the first one listed first */
    double latency_s;       /* one way: half of the fastest round trip of an empty message */
    double alone_Bps[2];    /* of payload, from the first to the second, and back, while the other way is free */
    double together_Bps[2]; /* both ways at once */
    double bend_bytes;      /* from messages so large on, nine tenths of alone_Bps[0] are reached */
} SiteLink;

typedef struct SiteProbe {
    const Cluster *cluster;
    int site; /* this one */
    const WireKeys *keys;
    double patience_s; /* for the others to come, and for what they are to send next */
} SiteProbe;

/* Of every two sites a link, in the order of the file, to `links`, which has room for all of them. Reports errors: keys
 * that are not the site's (EXIT_BAD_INPUT); addresses that cannot be bound, sites that do not come or end
 * (EXIT_RUN_FAILED). */
bool probe_sites(const SiteProbe *probe, SiteLink *links, Diagnostics *diagnostics);

#endif
