#include "cluster/cluster.h"

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
