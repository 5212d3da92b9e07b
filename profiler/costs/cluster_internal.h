/* What the two halves of the cluster reader share: names found in the file, and which entry a device came from. */
#ifndef PROFILER_COSTS_CLUSTER_INTERNAL_H
#define PROFILER_COSTS_CLUSTER_INTERNAL_H

#include "base/yaml.h"
#include "profiler/costs/cluster.h"

/* From general to specific. A group is an entry of `devices` with `count`. */
typedef enum ClusterLevel { CLUSTER_REGION, CLUSTER_GROUP, CLUSTER_DEVICE } ClusterLevel;

typedef struct ClusterName {
    const char *name;
    ClusterLevel level;
    int id; /* of the region, the entry of `devices`, or the device; of a region while names are still collected: the
             * entry that names it */
    YamlNode *node;
} ClusterName;

typedef struct ClusterReader {
    YamlFile yaml;   /* the cluster file, or (while it is read) an added device */
    YamlFile *added; /* devices from the command line */
    int added_count;
    bool adding;
    Cluster *cluster;
    ClusterName *names; /* sorted and unique once cluster_sort_names was called; malloc'ed */
    size_t name_count, name_capacity;
    int *entry_region; /* per entry of `devices`: its region's id, -1 if none */
    int *device_entry; /* per device: the entry it came from; malloc'ed */
    size_t device_count, device_capacity;
} ClusterReader;

/* NULL if there is no such region, group or device. */
const ClusterName *cluster_find_name(const ClusterReader *reader, const char *name);
/* Reads `default_link` and `links` (NULL: absent), and fills in the cluster's zones and links. */
bool cluster_read_links(ClusterReader *reader, YamlNode *default_link, YamlNode *links);

#endif
