#include "federation/planning/probed_links.h"

#include <string.h>

#include "profiler/costs/profile.h"

static int end_of(const Federation *federation, const char *name)
{
    return strcmp(name, "coordinator") == 0 ? federation->site_count : federation_find_site(federation, name);
}

bool probed_links_take(Federation *federation, const char *path, Diagnostics *diagnostics)
{
    FREED_WITH(profile_free) Profile profile = {0};
    size_t taken = 0;
    if (!path) return true;
    if (!profile_read(&profile, path, diagnostics)) return false;
    for (size_t l = 0; l < profile.link_count; l++) {
        const LinkProfile *link = &profile.links[l];
        int from = end_of(federation, link->between[0]), to = end_of(federation, link->between[1]);
        if (from < 0 || to < 0 || from == to) continue;
        federation_set_link(federation, from, to, (LinkRate){link->latency_s, link->bandwidth_Bps, false});
        taken++;
    }
    return taken || input_error(diagnostics, path, "skycc probe --federation FEDERATION.yaml --site NAME measures them",
                                "has no link between the federation's sites and coordinator");
}
