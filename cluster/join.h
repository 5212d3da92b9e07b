/* Several clusters as one, for planning over all their devices. */
#ifndef CLUSTER_JOIN_H
#define CLUSTER_JOIN_H

#include "cluster/cluster.h"

typedef struct ClusterPart {
    const char *name; /* of the site that it becomes */
    const Cluster *cluster;
} ClusterPart;

/* Every part becomes a site of *joined, its devices are called PART/DEVICE. Links inside a part stay what they are,
 * free where the part names none; between parts a and b it is links[a * count + b]. What parts keep at a device is
 * not carried over. False: there would be too many devices or zones. Free it with cluster_free in any case; parts may
 * go before. */
bool cluster_join(Cluster *joined, const ClusterPart *parts, int count, const ClusterLink *links);

#endif
