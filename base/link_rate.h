/* How fast a link is, as files in YAML say it: {latency: 110ms, bandwidth: 600Mbit, duplex: half}. */
#ifndef BASE_LINK_RATE_H
#define BASE_LINK_RATE_H

#include "base/yaml.h"

typedef struct LinkRate {
    double latency_s;     /* one way */
    double bandwidth_Bps; /* bytes per second in each direction; INFINITY where communication is free */
    bool half_duplex;     /* both directions share the bandwidth */
} LinkRate;

/* The members of such a mapping, in this order; a file's further members follow them. */
enum { LINK_LATENCY, LINK_BANDWIDTH, LINK_DUPLEX, LINK_MEMBERS };

#define LINK_RATE_MEMBERS                                                                                              \
    [LINK_LATENCY] = {"latency", true, NULL}, [LINK_BANDWIDTH] = {"bandwidth", true, NULL},                            \
    [LINK_DUPLEX] = {"duplex", false, NULL}

/* Reads what yaml_members found; an absent member does not change its field. Reports every wrong value with its
 * place. */
bool link_rate_read(const YamlFile *yaml, const YamlMember *members, const char *object, LinkRate *rate);

#endif
