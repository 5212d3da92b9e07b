/* skycc probe --site: measures links between all sites of a cluster, or between a federation's sites and its
 * coordinator. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "driver/commands/commands.h"
#include "federation/federation.h"
#include "partitioner/report/report.h"
#include "profiler/costs/profile.h"
#include "profiler/probe/probe_sites.h"

/* Measured links, with the names that profiles have for their ends. */
typedef struct Findings {
    LinkProfile *links;
    size_t count;
} Findings;

static bool check(const Options *options, Diagnostics *diagnostics)
{
    if (!options->plan.cluster == !options->federation)
        return usage_error(diagnostics, NULL,
                           "--site needs --cluster FILE or --federation FILE, which lists the sites");
    if (options->model || !options->key)
        return usage_error(diagnostics, "skycc probe --site NAME --key NAME.key -d CLUSTER.yaml -o PROFILE.json",
                           options->model ? "--site measures links, not a model: leave the model out"
                                          : "--site needs the site's secret key (--key FILE)");
    return true;
}

static const char *rate(double Bps, char text[static REPORT_TEXT])
{
    snprintf(text, REPORT_TEXT, "%.3g MB/s", Bps / 1e6);
    return text;
}

static void print_link(const Cluster *cluster, const SiteLink *link)
{
    char text[5][REPORT_TEXT];
    double least = fmin(link->alone_Bps[0], link->alone_Bps[1]);
    bool shared = link->together_Bps[0] + link->together_Bps[1] < 1.3 * least;
    text_print(stdout,
               "%s to %s: latency %.3g ms; %s there, %s back, %s and %s in both directions at once%s; messages of %s "
               "and more reach 90%% of that\n",
               cluster->sites[link->sites[0]].name, cluster->sites[link->sites[1]].name, 1e3 * link->latency_s,
               rate(link->alone_Bps[0], text[0]), rate(link->alone_Bps[1], text[1]),
               rate(link->together_Bps[0], text[2]), rate(link->together_Bps[1], text[3]),
               shared ? " (the directions share the link: duplex: half)" : "",
               report_bytes((int64_t)link->bend_bytes, text[4]));
}

/* The slower direction counts for both. */
static LinkProfile profile_of(const SiteLink *measured, const char *from, const char *to)
{
    return (LinkProfile){{from, to}, measured->latency_s, fmin(measured->alone_Bps[0], measured->alone_Bps[1])};
}

/* Adds the links to an existing profile, replacing links between the same sites. `site_of` gives the site of a
 * link's end, -1: none. */
static bool write_links(const Options *options, const Findings *found, int (*site_of)(const void *, const char *),
                        const void *sites, Diagnostics *diagnostics)
{
    FREED_WITH(profile_free) Profile profile = {.reference = {.target = "", .threads = 1}};
    size_t kept = 0;
    if (access(options->output, F_OK) == 0 && !profile_read(&profile, options->output, diagnostics)) return false;
    LinkProfile *all = arena_new_array(&profile.arena, LinkProfile, profile.link_count + found->count);
    for (size_t l = 0; l < profile.link_count; l++) {
        const LinkProfile *link = &profile.links[l];
        int from = site_of(sites, link->between[0]), to = site_of(sites, link->between[1]);
        bool replaced = false;
        for (size_t f = 0; f < found->count; f++) {
            int ends[2] = {site_of(sites, found->links[f].between[0]), site_of(sites, found->links[f].between[1])};
            replaced |= (from == ends[0] && to == ends[1]) || (from == ends[1] && to == ends[0]);
        }
        if (!replaced) all[kept++] = *link;
    }
    for (size_t f = 0; f < found->count; f++) all[kept++] = found->links[f];
    profile.links = all;
    profile.link_count = kept;
    return profile_write(&profile, options->output, diagnostics);
}

/* ---- Sites of a cluster, all with each other ---- */

static const ClusterDevice *first_device(const Cluster *cluster, int site)
{
    for (int d = 0; d < cluster->device_count; d++)
        if (cluster->devices[d].site == site) return &cluster->devices[d];
    return NULL; /* the site has no devices */
}

static int site_of_device(const void *cluster, const char *name)
{
    int device = cluster_find_device(cluster, name);
    return device < 0 ? -1 : ((const Cluster *)cluster)->devices[device].site;
}

static bool probe_cluster(const Options *options, const Cluster *cluster, const WireKeys *keys,
                          Diagnostics *diagnostics)
{
    int site = cluster_find_site(cluster, options->site);
    if (site < 0 || cluster->site_count < 2)
        return input_error(diagnostics, options->plan.cluster,
                           "list the sites there: sites: [{name: ..., address: ..., key: ...}, ...]",
                           site < 0 ? "has no site '%s'" : "has no other site than '%s'", options->site);
    size_t sites = (size_t)cluster->site_count, count = sites * (sites - 1) / 2;
    FREED SiteLink *links = memory_allocate(count * sizeof *links);
    Findings found = {memory_allocate(count * sizeof *found.links), 0};
    bool ok = probe_sites(&(SiteProbe){cluster, site, keys, options->patience_s}, links, diagnostics);
    for (size_t l = 0; l < count && ok; l++) {
        const ClusterDevice *from = first_device(cluster, links[l].sites[0]),
                            *to = first_device(cluster, links[l].sites[1]);
        print_link(cluster, &links[l]);
        if (from && to) found.links[found.count++] = profile_of(&links[l], from->name, to->name);
    }
    ok = ok && write_links(options, &found, site_of_device, cluster, diagnostics);
    free(found.links);
    return ok;
}

/* ---- Sites of a federation, each with the coordinator ---- */

static int end_of(const void *federation, const char *name)
{
    const Federation *all = federation;
    return strcmp(name, "coordinator") == 0 ? all->site_count : federation_find_site(all, name);
}

/* The coordinator measures one site after the other; early sites wait. */
static bool probe_federation(const Options *options, const Federation *federation, const WireKeys *keys,
                             Diagnostics *diagnostics)
{
    int own = end_of(federation, options->site);
    bool is_coordinator = own == federation->site_count, ok = true;
    if (own < 0)
        return input_error(diagnostics, options->federation,
                           "give a site's name, or --site coordinator for the coordinator", "has no site '%s'",
                           options->site);
    Findings found = {memory_allocate((size_t)federation->site_count * sizeof *found.links), 0};
    for (int s = 0; s < federation->site_count && ok; s++) {
        if (!is_coordinator && s != own) continue;
        ClusterSite ends[] = {{.name = federation->sites[s].name, .key = federation->sites[s].key},
                              {"coordinator", federation->address, federation->key}};
        const Cluster pair = {.sites = ends, .site_count = 2};
        SiteLink link;
        ok = probe_sites(&(SiteProbe){&pair, is_coordinator, keys, options->patience_s}, &link, diagnostics);
        if (!ok) break;
        print_link(&pair, &link);
        found.links[found.count++] = profile_of(&link, ends[0].name, ends[1].name);
    }
    ok = ok && write_links(options, &found, end_of, federation, diagnostics);
    free(found.links);
    return ok;
}

/* ---- Either ---- */

static bool probe(const Options *options, const WireKeys *keys, Diagnostics *diagnostics)
{
    if (options->federation) {
        FREED_WITH(federation_free) Federation federation = {0};
        return federation_read(&federation, options->federation, NULL, diagnostics) &&
               probe_federation(options, &federation, keys, diagnostics);
    }
    FREED_WITH(cluster_free) Cluster cluster = {0};
    return cluster_read(&cluster, options->plan.cluster, diagnostics) &&
           probe_cluster(options, &cluster, keys, diagnostics);
}

bool probe_sites_command(const Options *options, Diagnostics *diagnostics)
{
    WireKeys keys;
    if (!check(options, diagnostics) || !wire_keys_read(&keys, options->key, diagnostics)) return false;
    bool ok = probe(options, &keys, diagnostics);
    wire_keys_forget(&keys);
    return ok;
}
