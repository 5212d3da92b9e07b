/* skycc probe --site: the links between sites, measured by all of them together. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/commands/commands.h"
#include "partitioner/report/report.h"
#include "profiler/costs/profile.h"
#include "profiler/probe/probe_sites.h"

static int find_site(const Cluster *cluster, const char *name)
{
    for (int s = 0; s < cluster->site_count; s++)
        if (strcmp(cluster->sites[s].name, name) == 0) return s;
    return -1;
}

static bool check(const Options *options, const Cluster *cluster, int *site, Diagnostics *diagnostics)
{
    if (options->model || !options->key)
        return diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE,
                                 "skycc probe --site NAME --key NAME.key -d CLUSTER.yaml -o PROFILE.json",
                                 options->model ? "--site measures links: a model is measured without it"
                                                : "--site needs the site's secret key (--key FILE)");
    *site = find_site(cluster, options->site);
    if (*site < 0 || cluster->site_count < 2)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(options->plan.cluster),
                                 "sites: [{name: ..., address: ..., key: ...}, ...]",
                                 *site < 0 ? "names no site '%s'" : "names no site but '%s'", options->site);
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
    printf("%s to %s: latency %.3g ms, %s there, %s back, %s and %s both at once%s; messages from %s on carry nine "
           "tenths of it\n",
           cluster->sites[link->sites[0]].name, cluster->sites[link->sites[1]].name, 1e3 * link->latency_s,
           rate(link->alone_Bps[0], text[0]), rate(link->alone_Bps[1], text[1]), rate(link->together_Bps[0], text[2]),
           rate(link->together_Bps[1], text[3]), shared ? " (as of a link that both share: duplex: half)" : "",
           report_bytes((int64_t)link->bend_bytes, text[4]));
}

static const ClusterDevice *first_device(const Cluster *cluster, int site)
{
    for (int d = 0; d < cluster->device_count; d++)
        if (cluster->devices[d].site == site) return &cluster->devices[d];
    return NULL; /* of the cluster, but of no run */
}

static bool joins(const LinkProfile *link, const Cluster *cluster, const SiteLink *measured)
{
    int ends[2];
    for (int i = 0; i < 2; i++) {
        int device = cluster_find_device(cluster, link->between[i]);
        ends[i] = device < 0 ? -1 : cluster->devices[device].site;
    }
    return (ends[0] == measured->sites[0] && ends[1] == measured->sites[1]) ||
           (ends[1] == measured->sites[0] && ends[0] == measured->sites[1]);
}

/* In the place of what the profile said of it. The slower direction counts for both. */
static void enter_link(Profile *profile, const Cluster *cluster, const SiteLink *measured)
{
    const ClusterDevice *from = first_device(cluster, measured->sites[0]),
                        *to = first_device(cluster, measured->sites[1]);
    size_t kept = 0;
    for (size_t l = 0; l < profile->link_count; l++)
        if (!joins(&profile->links[l], cluster, measured)) profile->links[kept++] = profile->links[l];
    profile->link_count = kept;
    if (!from || !to) return;
    profile->links[profile->link_count++] =
        (LinkProfile){{arena_string(&profile->arena, from->name), arena_string(&profile->arena, to->name)},
                      measured->latency_s,
                      fmin(measured->alone_Bps[0], measured->alone_Bps[1])};
}

/* A profile that is there keeps what it says of machines. */
static bool write_links(const Options *options, const Cluster *cluster, const SiteLink *links, size_t count,
                        Diagnostics *diagnostics)
{
    Profile profile = {.reference = {.target = "", .threads = 1}};
    if (access(options->output, F_OK) == 0 && !profile_read(&profile, options->output, diagnostics)) return false;
    LinkProfile *all = arena_new_array(&profile.arena, LinkProfile, profile.link_count + count);
    if (profile.link_count) memcpy(all, profile.links, profile.link_count * sizeof *all);
    profile.links = all;
    for (size_t l = 0; l < count; l++) enter_link(&profile, cluster, &links[l]);
    bool ok = profile_write(&profile, options->output, diagnostics);
    profile_free(&profile);
    return ok;
}

static bool probe(const Options *options, const Cluster *cluster, Diagnostics *diagnostics)
{
    WireKeys keys;
    int site = -1;
    if (!check(options, cluster, &site, diagnostics) || !wire_keys_read(&keys, options->key, diagnostics)) return false;
    size_t sites = (size_t)cluster->site_count, count = sites * (sites - 1) / 2;
    SiteLink *links = memory_allocate(count * sizeof *links);
    bool ok = probe_sites(&(SiteProbe){cluster, site, &keys, options->patience_s}, links, diagnostics);
    wire_keys_forget(&keys);
    for (size_t l = 0; l < count && ok; l++) print_link(cluster, &links[l]);
    ok = ok && write_links(options, cluster, links, count, diagnostics);
    free(links);
    return ok;
}

int probe_sites_command(const Options *options, Diagnostics *diagnostics)
{
    Cluster cluster;
    if (!cluster_read(&cluster, options->plan.cluster, diagnostics)) return diagnostics->exit_code;
    bool ok = probe(options, &cluster, diagnostics);
    cluster_free(&cluster);
    return ok ? EXIT_OK : diagnostics->exit_code;
}
