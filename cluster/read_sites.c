/* Sites of a cluster file: names, addresses and keys, and that they suit each other and the devices. */
#include <stdlib.h>
#include <string.h>

#include "cluster/reader.h"
#include "runtime/wire/address.h"
#include "runtime/wire/keys.h"

enum { MAX_SITE_NAME = 64 };

/* Whether two sites have the same in common; reports it. */
static bool differ(ClusterReader *reader, YamlNode *node, const char *object, const char *what, const char *one,
                   const ClusterSite *former, const char *other)
{
    if (!one || !other || strcmp(one, other) != 0) return true;
    return yaml_error(&reader->yaml, node, object, NULL, "%s '%s' is that of site '%s', too", what, one, former->name);
}

enum { SITE_NAME, SITE_ADDRESS, SITE_KEY, SITE_MEMBERS };

static bool read_members(ClusterReader *reader, const YamlMember *members, ClusterSite *site)
{
    const YamlFile *yaml = &reader->yaml;
    const char *object = "site", *text;
    bool ok = cluster_read_text(reader, members[SITE_NAME].value, object, "name", "._-", &site->name);
    if (ok) object = arena_format(&reader->cluster->arena, "site '%s'", site->name);
    if (ok && strlen(site->name) > MAX_SITE_NAME)
        ok = yaml_error(yaml, members[SITE_NAME].value, NULL, NULL, "the name of a site has at most %d characters",
                        MAX_SITE_NAME);
    if (!yaml_text(yaml, members[SITE_KEY].value, object, "key", &text))
        ok = false;
    else if (wire_key_is_valid(text))
        site->key = arena_string(&reader->cluster->arena, text);
    else
        ok = yaml_error(yaml, members[SITE_KEY].value, object, "skycc key NAME makes one; put quotes around it",
                        "key must be a public key of %d characters in Z85", WIRE_KEY_TEXT);
    YamlNode *address = members[SITE_ADDRESS].value;
    if (!address) return ok;
    if (!yaml_text(yaml, address, object, "address", &text)) return false;
    if (strcmp(text, "none") == 0) return ok;
    if (!wire_address_is_valid(text))
        return yaml_error(yaml, address, object, "leave it out if the others cannot reach the site",
                          "address '%s' is not HOST:PORT, with a port from 1 to 65535", text);
    site->address = arena_string(&reader->cluster->arena, text);
    return ok;
}

static bool read_site(ClusterReader *reader, YamlNode *node)
{
    Cluster *cluster = reader->cluster;
    YamlMember members[SITE_MEMBERS] = {[SITE_NAME] = {"name", true, NULL},
                                        [SITE_ADDRESS] = {"address", false, NULL},
                                        [SITE_KEY] = {"key", true, NULL}};
    ClusterSite *site = &cluster->sites[cluster->site_count];
    bool ok = yaml_members(&reader->yaml, node, "site", members, SITE_MEMBERS);
    if (!members[SITE_NAME].value || !members[SITE_KEY].value) return false;
    ok &= read_members(reader, members, site);
    if (!site->name) return false;
    const char *object = arena_format(&cluster->arena, "site '%s'", site->name);
    for (int s = 0; s < cluster->site_count; s++) {
        const ClusterSite *former = &cluster->sites[s];
        if (strcmp(former->name, site->name) == 0)
            return yaml_error(&reader->yaml, members[SITE_NAME].value, NULL, NULL, "two sites are named '%s'",
                              site->name);
        ok &= differ(reader, members[SITE_KEY].value, object, "key", site->key, former, former->key);
        ok &= differ(reader, members[SITE_ADDRESS].value, object, "address", site->address, former, former->address);
        /* Every two sites talk: agreement and checkpoints concern all. */
        if (ok && !site->address && !former->address)
            ok = yaml_error(&reader->yaml, node, object, "give one of them an address: HOST:PORT",
                            "has no address, nor has site '%s': neither can reach the other", former->name);
    }
    cluster_add_name(reader, site->name, CLUSTER_SITE, cluster->site_count, members[SITE_NAME].value);
    cluster->site_count++;
    return ok;
}

bool cluster_read_sites(ClusterReader *reader, YamlNode *node)
{
    size_t count = 0;
    if (!node) return true;
    if (!yaml_sequence(&reader->yaml, node, "sites", &count)) return false;
    if (!count)
        return yaml_error(&reader->yaml, node, NULL, "leave it out where there is one site", "'sites' is empty");
    if (count > CLUSTER_MAX_SITES)
        return yaml_error(&reader->yaml, node, NULL, NULL, "more than %d sites", CLUSTER_MAX_SITES);
    reader->cluster->sites = arena_new_array(&reader->cluster->arena, ClusterSite, count);
    bool ok = true;
    for (size_t i = 0; i < count; i++) ok &= read_site(reader, yaml_item(&reader->yaml, node, i));
    return ok;
}

bool cluster_read_site_name(ClusterReader *reader, YamlNode *node, const char *object, int *site)
{
    const Cluster *cluster = reader->cluster;
    const char *name;
    if (!yaml_text(&reader->yaml, node, object, "site", &name)) return false;
    *site = cluster_find_site(cluster, name);
    return *site >= 0 || yaml_error(&reader->yaml, node, object, "define it under 'sites'", "unknown site '%s'", name);
}

bool cluster_check_sites(ClusterReader *reader)
{
    const Cluster *cluster = reader->cluster;
    int *first = memory_allocate((size_t)cluster->device_count * sizeof *first); /* per region: device + 1, or 0 */
    bool ok = true;
    for (int d = 0; d < cluster->device_count && ok; d++) {
        int region = reader->entry_region[reader->device_entry[d]];
        if (region < 0) continue;
        if (!first[region]) first[region] = d + 1;
        const ClusterDevice *device = &cluster->devices[d], *former = &cluster->devices[first[region] - 1];
        if (former->site == device->site) continue;
        ok = yaml_error(&reader->yaml, cluster_find_name(reader, device->region)->node, NULL,
                        "give the devices of each site a region of their own, or none",
                        "region '%s' is in two sites: '%s' is in '%s', and '%s' in '%s'", device->region, former->name,
                        cluster->sites[former->site].name, device->name, cluster->sites[device->site].name);
    }
    free(first);
    return ok;
}
