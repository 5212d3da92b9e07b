#include "cluster/cluster.h"

#include <string.h>

void cluster_free(Cluster *cluster)
{
    arena_free(&cluster->arena);
    *cluster = (Cluster){0};
}

int cluster_find_site(const Cluster *cluster, const char *name)
{
    for (int s = 0; s < cluster->site_count; s++)
        if (strcmp(cluster->sites[s].name, name) == 0) return s;
    return -1;
}

int cluster_find_device(const Cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->device_count; i++)
        if (strcmp(cluster->devices[i].name, name) == 0) return i;
    return -1;
}

int cluster_memory_sharers(const Cluster *cluster, const ClusterDevice *device)
{
    int count = 0;
    for (int d = 0; d < cluster->device_count; d++) {
        const ClusterDevice *other = &cluster->devices[d];
        count += other->memory_bytes == CLUSTER_MEMORY_OF_DEVICE && strcmp(other->host, device->host) == 0 &&
                 strcmp(other->opencl_platform, device->opencl_platform) == 0 &&
                 strcmp(other->opencl_device, device->opencl_device) == 0;
    }
    return count;
}
