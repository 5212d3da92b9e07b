/* Links of a cluster file: who is joined by what, boiled down to a matrix over zones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/reader.h"

typedef struct LinkEnd {
    ClusterLevel level;
    int id;
} LinkEnd;

typedef struct Link {
    LinkEnd ends[2]; /* the smaller first */
    ClusterLink link;
    YamlNode *node;
} Link;

typedef struct Links {
    ClusterReader *reader;
    Link *items; /* malloc'ed */
    size_t count, capacity;
    int *zone_device;           /* per zone: one of its devices */
    bool *zone_alone;           /* per zone: it is that one device, named by a link */
    unsigned char *specificity; /* per pair of zones: of the link found so far; 0: none */
} Links;

static bool read_end(ClusterReader *reader, YamlNode *node, LinkEnd *end)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, "link", "between", &text)) return false;
    const ClusterName *name = cluster_find_name(reader, text);
    if (!name)
        return yaml_error(&reader->yaml, node, "link", "regions are those that devices name with 'region'",
                          "unknown %sregion or device '%s'", reader->cluster->site_count ? "site, " : "", text);
    *end = (LinkEnd){name->level, name->id};
    return true;
}

static int compare_ends(LinkEnd a, LinkEnd b) { return a.level != b.level ? (int)a.level - (int)b.level : a.id - b.id; }

static bool read_ends(ClusterReader *reader, YamlNode *node, Link *link)
{
    size_t count;
    if (!yaml_sequence(&reader->yaml, node, "between", &count)) return false;
    if (count != 2) return yaml_error(&reader->yaml, node, "link", NULL, "'between' must name two regions or devices");
    bool ok = true;
    for (size_t i = 0; i < 2; i++) ok &= read_end(reader, yaml_item(&reader->yaml, node, i), &link->ends[i]);
    if (!ok) return false;
    int order = compare_ends(link->ends[0], link->ends[1]);
    if (order == 0 && link->ends[0].level == CLUSTER_DEVICE)
        return yaml_error(&reader->yaml, node, "link", NULL, "joins a device with itself");
    if (order > 0) {
        LinkEnd first = link->ends[0];
        link->ends[0] = link->ends[1];
        link->ends[1] = first;
    }
    return true;
}

static bool read_links(Links *links, YamlNode *node)
{
    const YamlFile *yaml = &links->reader->yaml;
    size_t count;
    if (!yaml_sequence(yaml, node, "links", &count)) return false;
    bool ok = true;
    for (size_t i = 0; i < count; i++) {
        Link link = {.node = yaml_item(yaml, node, i)};
        YamlMember members[] = {LINK_RATE_MEMBERS, [LINK_MEMBERS] = {"between", true, NULL}};
        bool complete = yaml_members(yaml, link.node, "link", members, LINK_MEMBERS + 1);
        if (link.node->type == YAML_MAPPING_NODE) {
            complete &= link_rate_read(yaml, members, "link", &link.link);
            if (members[LINK_MEMBERS].value) complete &= read_ends(links->reader, members[LINK_MEMBERS].value, &link);
        }
        if (complete) array_push(links->items, links->count, links->capacity, link);
        ok &= complete;
    }
    return ok;
}

static int by_ends(const void *a, const void *b)
{
    const Link *left = a, *right = b;
    for (int i = 0; i < 2; i++) {
        int order = compare_ends(left->ends[i], right->ends[i]);
        if (order) return order;
    }
    return left->node->start_mark.index < right->node->start_mark.index ? -1 : 1;
}

static bool refuse_repeated(Links *links)
{
    bool ok = true;
    FREED Link *sorted = memory_allocate(links->count * sizeof *sorted);
    if (links->count) {
        memcpy(sorted, links->items, links->count * sizeof *sorted);
        qsort(sorted, links->count, sizeof *sorted, by_ends);
    }
    for (size_t i = 1; i < links->count; i++)
        if (compare_ends(sorted[i - 1].ends[0], sorted[i].ends[0]) == 0 &&
            compare_ends(sorted[i - 1].ends[1], sorted[i].ends[1]) == 0)
            ok = yaml_error(&links->reader->yaml, sorted[i].node, NULL, NULL,
                            "this pair is linked already, at line %zu", sorted[i - 1].node->start_mark.line + 1);
    return ok;
}

static int region_of(const Links *links, int device)
{
    return links->reader->entry_region[links->reader->device_entry[device]];
}

/* The most specific name of the device that a link uses; a region, or without one a site (or none: -1), in any case. */
static LinkEnd zone_key(const Links *links, const bool *device_named, const bool *entry_named, int device)
{
    int entry = links->reader->device_entry[device];
    if (device_named[device]) return (LinkEnd){CLUSTER_DEVICE, device};
    if (entry_named[entry]) return (LinkEnd){CLUSTER_GROUP, entry};
    int region = region_of(links, device), site = links->reader->cluster->devices[device].site;
    return region < 0 && site >= 0 ? (LinkEnd){CLUSTER_SITE, site} : (LinkEnd){CLUSTER_REGION, region};
}

static const char *zone_name(const Links *links, LinkEnd key, int device)
{
    const ClusterDevice *devices = links->reader->cluster->devices;
    if (key.level == CLUSTER_DEVICE) return devices[device].name;
    if (key.level == CLUSTER_SITE) return links->reader->cluster->sites[key.id].name;
    if (key.level == CLUSTER_REGION) return key.id < 0 ? "" : devices[device].region;
    const char *dot = strrchr(devices[device].name, '.'); /* the group's name is its devices' without the number */
    return arena_string_n(&links->reader->cluster->arena, devices[device].name, (size_t)(dot - devices[device].name));
}

static bool make_zones(Links *links)
{
    Cluster *cluster = links->reader->cluster;
    FREED_WITH(arena_free) Arena scratch = {0};
    bool *device_named = arena_new_array(&scratch, bool, (size_t)cluster->device_count);
    bool *entry_named = arena_new_array(&scratch, bool, (size_t)cluster->device_count);
    LinkEnd *keys = arena_new_array(&scratch, LinkEnd, CLUSTER_MAX_ZONES);
    cluster->zone_names = arena_new_array(&cluster->arena, const char *, CLUSTER_MAX_ZONES);
    for (size_t i = 0; i < links->count; i++)
        for (int e = 0; e < 2; e++) {
            LinkEnd end = links->items[i].ends[e];
            if (end.level == CLUSTER_DEVICE) device_named[end.id] = true;
            if (end.level == CLUSTER_GROUP) entry_named[end.id] = true;
        }
    bool ok = true;
    for (int d = 0; d < cluster->device_count && ok; d++) {
        device_named[d] |= cluster->devices[d].opencl_device != NULL; /* what crosses its links is copied first */
        LinkEnd key = zone_key(links, device_named, entry_named, d);
        int zone = 0;
        while (zone < cluster->zone_count && compare_ends(keys[zone], key) != 0) zone++;
        if (zone == CLUSTER_MAX_ZONES) {
            ok = yaml_error(&links->reader->yaml, links->reader->yaml.root, NULL, NULL,
                            "more than %d regions, and devices that links name, together", CLUSTER_MAX_ZONES);
        } else if (zone == cluster->zone_count) {
            keys[zone] = key;
            links->zone_device[zone] = d;
            links->zone_alone[zone] = key.level == CLUSTER_DEVICE;
            cluster->zone_names[zone] = zone_name(links, key, d);
            cluster->zone_count++;
        }
        cluster->devices[d].zone = zone;
    }
    return ok;
}

static bool zone_is_within(const Links *links, int zone, LinkEnd end)
{
    int device = links->zone_device[zone];
    switch (end.level) {
    case CLUSTER_SITE: return links->reader->cluster->devices[device].site == end.id;
    case CLUSTER_REGION: return region_of(links, device) == end.id;
    case CLUSTER_GROUP: return links->reader->device_entry[device] == end.id;
    case CLUSTER_DEVICE: return links->zone_alone[zone] && device == end.id;
    }
    return false;
}

/* Enters one link for every pair of zones it joins, unless a more specific one is there. */
static void apply_link(Links *links, const Link *link)
{
    Cluster *cluster = links->reader->cluster;
    int count = cluster->zone_count;
    bool inside = compare_ends(link->ends[0], link->ends[1]) == 0;
    unsigned char specificity = (unsigned char)(1 + link->ends[0].level + link->ends[1].level);
    for (int a = 0; a < count; a++) {
        if (!zone_is_within(links, a, link->ends[0])) continue;
        for (int b = 0; b < count; b++) {
            if (!zone_is_within(links, b, link->ends[1]) || (a == b && !inside)) continue;
            if (links->specificity[a * count + b] > specificity) continue;
            links->specificity[a * count + b] = links->specificity[b * count + a] = specificity;
            cluster->links[a * count + b] = cluster->links[b * count + a] = link->link;
        }
    }
}

/* Some links are given, but none for these: most likely forgotten. */
static void warn_of_unlinked(const Links *links)
{
    const Cluster *cluster = links->reader->cluster;
    int count = cluster->zone_count;
    for (int a = 0; a < count; a++)
        for (int b = a + 1; b < count; b++) {
            if (links->specificity[a * count + b]) continue;
            YamlNode *root = links->reader->yaml.root;
            diagnostics_warning(
                links->reader->yaml.diagnostics,
                (Place){.file = links->reader->yaml.path, .line = (int)root->start_mark.line + 1},
                "add the link, or a default_link", "no link joins %s and %s: planned as if it took no time",
                cluster->devices[links->zone_device[a]].name, cluster->devices[links->zone_device[b]].name);
            return;
        }
}

static void fill_matrix(Links *links, YamlNode *default_link, ClusterLink fallback)
{
    Cluster *cluster = links->reader->cluster;
    size_t pairs = (size_t)cluster->zone_count * (size_t)cluster->zone_count;
    cluster->links = arena_new_array(&cluster->arena, ClusterLink, pairs);
    links->specificity = memory_allocate(pairs);
    for (size_t i = 0; i < pairs; i++) cluster->links[i] = fallback;
    for (size_t i = 0; i < links->count; i++) apply_link(links, &links->items[i]);
    cluster->has_links = default_link || links->count;
    if (!default_link && links->count) warn_of_unlinked(links);
    free(links->specificity);
}

bool cluster_read_links(ClusterReader *reader, YamlNode *default_link, YamlNode *node)
{
    Links links = {.reader = reader};
    ClusterLink fallback = {.bandwidth_Bps = INFINITY};
    bool ok = true;
    if (default_link) {
        YamlMember members[] = {LINK_RATE_MEMBERS};
        ok &= yaml_members(&reader->yaml, default_link, "default_link", members, LINK_MEMBERS);
        if (default_link->type == YAML_MAPPING_NODE)
            ok &= link_rate_read(&reader->yaml, members, "default_link", &fallback);
    }
    if (node) ok &= read_links(&links, node);
    if (ok) ok = refuse_repeated(&links);
    if (ok) {
        links.zone_device = memory_allocate(CLUSTER_MAX_ZONES * sizeof *links.zone_device);
        links.zone_alone = memory_allocate(CLUSTER_MAX_ZONES * sizeof *links.zone_alone);
        ok = make_zones(&links);
        if (ok) fill_matrix(&links, default_link, fallback);
        free(links.zone_device);
        free(links.zone_alone);
    }
    free(links.items);
    return ok;
}
