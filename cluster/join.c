#include "cluster/join.h"

#include <math.h>

static void copy_devices(Cluster *joined, const ClusterPart *part, int site, int first_zone)
{
    Arena *arena = &joined->arena;
    for (int d = 0; d < part->cluster->device_count; d++) {
        ClusterDevice device = part->cluster->devices[d];
        device.name = arena_format(arena, "%s/%s", part->name, device.name);
        device.host = arena_string(arena, device.host);
        if (device.region) device.region = arena_format(arena, "%s/%s", part->name, device.region);
        device.target = 0;
        device.site = site;
        device.zone += first_zone;
        joined->devices[joined->device_count++] = device;
    }
}

static void copy_zones(Cluster *joined, const ClusterPart *part)
{
    for (int z = 0; z < part->cluster->zone_count; z++) {
        const char *name = part->cluster->zone_names[z];
        joined->zone_names[joined->zone_count++] =
            arena_format(&joined->arena, *name ? "%s/%s" : "%s", part->name, name);
    }
}

/* Part and zone in it of a zone of all. */
static int part_of_zone(const ClusterPart *parts, int *zone)
{
    int part = 0;
    for (; *zone >= parts[part].cluster->zone_count; part++) *zone -= parts[part].cluster->zone_count;
    return part;
}

static void fill_links(Cluster *joined, const ClusterPart *parts, int count, const ClusterLink *links)
{
    int zones = joined->zone_count;
    joined->links = arena_new_array(&joined->arena, ClusterLink, (size_t)zones * (size_t)zones);
    for (int a = 0; a < zones; a++)
        for (int b = 0; b < zones; b++) {
            int from = a, to = b, part = part_of_zone(parts, &from), other = part_of_zone(parts, &to);
            const Cluster *cluster = parts[part].cluster;
            ClusterLink *link = &joined->links[a * zones + b];
            if (part != other)
                *link = links[part * count + other];
            else if (cluster->has_links)
                *link = cluster->links[from * cluster->zone_count + to];
            else
                *link = (ClusterLink){.bandwidth_Bps = INFINITY};
        }
}

bool cluster_join(Cluster *joined, const ClusterPart *parts, int count, const ClusterLink *links)
{
    int devices = 0, zones = 0;
    *joined = (Cluster){.keep_inputs = -1, .keep_labels = -1, .keep_inputs_site = -1, .keep_labels_site = -1};
    for (int p = 0; p < count; p++) {
        devices += parts[p].cluster->device_count;
        zones += parts[p].cluster->zone_count;
        if (devices > CLUSTER_MAX_DEVICES || zones > CLUSTER_MAX_ZONES) return false;
    }
    Arena *arena = &joined->arena;
    joined->targets = arena_new_array(arena, ClusterTarget, 1);
    joined->targets[joined->target_count++] = (ClusterTarget){"native", "", "", "", "", "", "", ""};
    joined->devices = arena_new_array(arena, ClusterDevice, (size_t)devices);
    joined->zone_names = arena_new_array(arena, const char *, (size_t)zones);
    joined->sites = arena_new_array(arena, ClusterSite, (size_t)count);
    joined->has_links = true;
    for (int p = 0; p < count; p++) {
        joined->sites[joined->site_count++] = (ClusterSite){.name = arena_string(arena, parts[p].name)};
        copy_devices(joined, &parts[p], p, joined->zone_count);
        copy_zones(joined, &parts[p]);
    }
    fill_links(joined, parts, count, links);
    return true;
}
