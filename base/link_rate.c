#include "base/link_rate.h"

#include <string.h>

#include "base/units.h"

static bool read_duplex(const YamlFile *yaml, YamlNode *node, const char *object, bool *half)
{
    const char *text;
    if (!node) return true;
    if (!yaml_text(yaml, node, object, "duplex", &text)) return false;
    *half = strcmp(text, "half") == 0;
    return *half || strcmp(text, "full") == 0 ||
           yaml_error(yaml, node, object, NULL, "duplex must be full or half, not '%s'", text);
}

bool link_rate_read(const YamlFile *yaml, const YamlMember *members, const char *object, LinkRate *rate)
{
    YamlNode *latency = members[LINK_LATENCY].value, *bandwidth = members[LINK_BANDWIDTH].value;
    const char *text;
    bool ok = true;
    if (latency) {
        bool read = yaml_text(yaml, latency, object, "latency", &text);
        if (read && !units_parse_seconds(text, &rate->latency_s))
            read = yaml_error(yaml, latency, object, UNITS_SECONDS_HINT, "latency '%s' is not a time", text);
        ok &= read;
    }
    if (bandwidth) {
        bool read = yaml_text(yaml, bandwidth, object, "bandwidth", &text);
        if (read && !units_parse_bandwidth(text, &rate->bandwidth_Bps))
            read = yaml_error(yaml, bandwidth, object, UNITS_BANDWIDTH_HINT, "bandwidth '%s' is not a rate", text);
        ok &= read;
    }
    return read_duplex(yaml, members[LINK_DUPLEX].value, object, &rate->half_duplex) && ok;
}
