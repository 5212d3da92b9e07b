/* What the parts of the reader of cluster files share: names found in the file, and which entry a device came from. */
#ifndef CLUSTER_READER_H
#define CLUSTER_READER_H

#include "base/yaml.h"
#include "cluster/cluster.h"

/* From general to specific. A group is an entry of `devices` with `count`. */
typedef enum ClusterLevel { CLUSTER_SITE, CLUSTER_REGION, CLUSTER_GROUP, CLUSTER_DEVICE } ClusterLevel;

typedef struct ClusterName {
    const char *name;
    ClusterLevel level;
    int id; /* of the site, the region, the entry of `devices`, or the device; while names are still collected, a region
             * has that of the entry that names it */
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

/* Sorts the names, makes the entries of one region one, and refuses any other repetition. */
bool cluster_sort_names(ClusterReader *reader);
/* NULL if there is no such site, region, group or device. */
const ClusterName *cluster_find_name(const ClusterReader *reader, const char *name);
/* Where names become file names, arguments of mpiexec and words of a launch script, nothing may be special in them: a
 * letter or digit first, then letters, digits and any of `also`. NULL: anything printable. Copies the text. */
bool cluster_read_text(ClusterReader *reader, YamlNode *node, const char *object, const char *what, const char *also,
                       const char **value);
void cluster_add_name(ClusterReader *reader, const char *name, ClusterLevel level, int id, YamlNode *node);
/* Reads `sites` (NULL: absent), before any device. */
bool cluster_read_sites(ClusterReader *reader, YamlNode *sites);
/* A device's site by name. */
bool cluster_read_site_name(ClusterReader *reader, YamlNode *node, const char *object, int *site);
/* Once devices and regions are known: that no region is in two sites. */
bool cluster_check_sites(ClusterReader *reader);
/* Reads `interface` and `ports` (NULL: absent). */
bool cluster_read_network(ClusterReader *reader, YamlNode *interface, YamlNode *ports);
/* Reads `default_link` and `links` (NULL: absent), and fills in the cluster's zones and links. */
bool cluster_read_links(ClusterReader *reader, YamlNode *default_link, YamlNode *links);

#endif
