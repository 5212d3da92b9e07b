/* cluster.yaml, and every link that follows from it. */
#include "cluster/cluster.h"
#include "tests/fuzz/fuzz.h"

static void visit(const Cluster *cluster)
{
    enum { MOST = 64 };
    int count = cluster->device_count < MOST ? cluster->device_count : MOST;
    for (int from = 0; from < count; from++) {
        if (cluster_find_device(cluster, cluster->devices[from].name) != from) bug("a device is not found by its name");
        for (int to = 0; to < count; to++) {
            int pair = cluster->devices[from].zone * cluster->zone_count + cluster->devices[to].zone;
            const ClusterLink *link = &cluster->links[pair];
            if (from != to && !(link->latency_s + 1 / link->bandwidth_Bps >= 0)) bug("a transfer that takes no time");
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    Diagnostics diagnostics = {0};
    Cluster cluster;
    fuzz_file("cluster.yaml", data, size);
    bool ok = cluster_read(&cluster, "cluster.yaml", &diagnostics);
    if (ok) {
        visit(&cluster);
        cluster_free(&cluster);
    }
    fuzz_end(ok, &diagnostics);
    return 0;
}
