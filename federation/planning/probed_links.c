#include "federation/planning/probed_links.h"

#include <string.h>

#include "profiler/costs/profile.h"

static int end_of(const Federation *federation, const char *name)
{
    return strcmp(name, "coordinator") == 0 ? federation->site_count : federation_find_site(federation, name);
}

bool probed_links_take(Federation *federation, const char *path, Diagnostics *diagnostics)
{
    Profile profile;
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
    profile_free(&profile);
    return taken || diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path),
                                      "skycc probe --federation FEDERATION.yaml --site NAME measures them",
                                      "has no link between the federation's sites and coordinator");
}
