#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

void cluster_free(Cluster *cluster)
{
    arena_free(&cluster->arena);
    *cluster = (Cluster){0};
}

int cluster_find_device(const Cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->device_count; i++)
        if (strcmp(cluster->devices[i].name, name) == 0) return i;
    return -1;
}

ClusterLink cluster_link(const Cluster *cluster, int from, int to)
{
    if (from == to) return (ClusterLink){.bandwidth_Bps = INFINITY};
    return cluster->links[cluster->devices[from].zone * cluster->zone_count + cluster->devices[to].zone];
}

double cluster_transfer_s(const Cluster *cluster, int from, int to, int64_t bytes)
{
    ClusterLink link = cluster_link(cluster, from, to);
    return link.latency_s + (double)bytes / link.bandwidth_Bps;
}
