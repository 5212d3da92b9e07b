/* The links of federation.yaml: between sites, and from each to the coordinator. */
#include <string.h>

#include "federation/federation.h"

static LinkRate *rate_of(const Federation *federation, int from, int to)
{
    return &federation->rates[from * (federation->site_count + 1) + to];
}

const LinkRate *federation_link(const Federation *federation, int from, int to)
{
    if (!federation->rates) return NULL;
    const LinkRate *rate = rate_of(federation, from, to);
    return rate->bandwidth_Bps > 0 ? rate : NULL;
}

void federation_set_link(Federation *federation, int from, int to, LinkRate rate)
{
    size_t ends = (size_t)federation->site_count + 1;
    if (!federation->rates) federation->rates = arena_new_array(&federation->arena, LinkRate, ends * ends);
    rate.half_duplex |= rate_of(federation, from, to)->half_duplex;
    *rate_of(federation, from, to) = *rate_of(federation, to, from) = rate;
}

bool federation_check_links(const Federation *federation, const char *path, const char *what, Diagnostics *diagnostics)
{
    for (int s = 0; s < federation->site_count; s++)
        if (!federation_link(federation, s, federation->site_count))
            return input_error(diagnostics, path, "add default_link: {latency: 50ms, bandwidth: 100Mbit}, or links:",
                               "%s needs the link of site '%s' with the coordinator", what, federation->sites[s].name);
    return true;
}

static bool read_end(const YamlFile *yaml, const Federation *federation, YamlNode *node, int *end)
{
    const char *name;
    if (!yaml_text(yaml, node, "link", "between", &name)) return false;
    *end = strcmp(name, "coordinator") == 0 ? federation->site_count : federation_find_site(federation, name);
    return *end >= 0 || yaml_error(yaml, node, "link", "links join sites, and sites with coordinator",
                                   "'%s' is none of the sites", name);
}

static bool read_ends(const YamlFile *yaml, const Federation *federation, YamlNode *node, int ends[2])
{
    size_t count;
    if (!yaml_sequence(yaml, node, "between", &count)) return false;
    if (count != 2) return yaml_error(yaml, node, "link", NULL, "'between' must name two of sites and coordinator");
    bool ok = true;
    for (size_t i = 0; i < 2; i++) ok &= read_end(yaml, federation, yaml_item(yaml, node, i), &ends[i]);
    return ok && (ends[0] != ends[1] ||
                  yaml_error(yaml, node, "link", "what joins the devices of a site stands in its cluster file",
                             "joins what has one name with itself"));
}

/* `named` marks the pairs of earlier links. */
static bool read_link(const YamlFile *yaml, Federation *federation, YamlNode *node, bool *named)
{
    YamlMember members[] = {LINK_RATE_MEMBERS, [LINK_MEMBERS] = {"between", true, NULL}};
    LinkRate rate = {0};
    int ends[2] = {0}, width = federation->site_count + 1;
    bool ok = yaml_members(yaml, node, "link", members, LINK_MEMBERS + 1);
    if (node->type != YAML_MAPPING_NODE) return false;
    ok &= link_rate_read(yaml, members, "link", &rate);
    ok = members[LINK_MEMBERS].value && read_ends(yaml, federation, members[LINK_MEMBERS].value, ends) && ok;
    if (!ok) return false;
    if (named[ends[0] * width + ends[1]]) return yaml_error(yaml, node, "link", NULL, "these two have a link already");
    named[ends[0] * width + ends[1]] = named[ends[1] * width + ends[0]] = true;
    *rate_of(federation, ends[0], ends[1]) = (LinkRate){0}; /* default_link's */
    federation_set_link(federation, ends[0], ends[1], rate);
    return true;
}

bool federation_read_links(Federation *federation, const YamlFile *yaml, YamlNode *default_link, YamlNode *links)
{
    YamlMember members[] = {LINK_RATE_MEMBERS};
    LinkRate fallback = {0};
    size_t pairs = (size_t)(federation->site_count + 1) * (size_t)(federation->site_count + 1), count = 0;
    bool ok = true;
    for (int s = 0; s < federation->site_count; s++)
        if (!federation->sites[s].name) return false; /* reported */
    if (!default_link && !links) return true;
    if (default_link) {
        ok = yaml_members(yaml, default_link, "default_link", members, LINK_MEMBERS);
        if (default_link->type == YAML_MAPPING_NODE) ok &= link_rate_read(yaml, members, "default_link", &fallback);
    }
    federation->rates = arena_new_array(&federation->arena, LinkRate, pairs);
    for (size_t i = 0; i < pairs; i++) federation->rates[i] = fallback;
    if (!links || !yaml_sequence(yaml, links, "links", &count)) return ok && !links;
    FREED_WITH(arena_free) Arena scratch = {0};
    bool *named = arena_new_array(&scratch, bool, pairs);
    for (size_t i = 0; i < count; i++) ok &= read_link(yaml, federation, yaml_item(yaml, links, i), named);
    return ok;
}
