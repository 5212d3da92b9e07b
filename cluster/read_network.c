/* How the hosts of one run of mpiexec reach each other. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/reader.h"

enum { LEAST_PORT = 1024, MOST_PORT = 65535, LEAST_PORTS = 16, LONGEST_INTERFACE = 15 };

/* ADDRESS/BITS, IPv4. */
static bool is_subnet(const char *text)
{
    const char *slash = strchr(text, '/');
    char address[INET_ADDRSTRLEN];
    struct in_addr read;
    if (!slash || slash - text >= INET_ADDRSTRLEN) return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = 0;
    size_t digits = strspn(slash + 1, "0123456789");
    return inet_pton(AF_INET, address, &read) == 1 && digits >= 1 && digits <= 2 && !slash[1 + digits] &&
           strtol(slash + 1, NULL, 10) <= 32;
}

static bool read_interface(ClusterReader *reader, YamlNode *node)
{
    const char *text;
    if (!cluster_read_text(reader, node, NULL, "interface", "._-/", &text)) return false;
    if (strchr(text, '/') ? !is_subnet(text) : strlen(text) > LONGEST_INTERFACE)
        return yaml_error(&reader->yaml, node, NULL, "eth0, or the subnet that it is in, such as 10.1.0.0/16",
                          "interface '%s' is neither a name nor an IPv4 subnet", text);
    reader->cluster->network.interface = text;
    return true;
}

static bool read_ports(ClusterReader *reader, YamlNode *node)
{
    const char *text;
    if (!yaml_text(&reader->yaml, node, NULL, "ports", &text)) return false;
    char *end, *last_end;
    long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &last_end, 10) : 0;
    if (*end != '-' || last_end == end + 1 || *last_end || first < LEAST_PORT || last > MOST_PORT ||
        last - first + 1 < LEAST_PORTS)
        return yaml_error(&reader->yaml, node, NULL, "for instance 20000-20999",
                          "ports '%s' are not a range of at least %d ports from %d to %d", text, LEAST_PORTS,
                          LEAST_PORT, MOST_PORT);
    reader->cluster->network.first_port = (int)first;
    reader->cluster->network.last_port = (int)last;
    return true;
}

bool cluster_read_network(ClusterReader *reader, YamlNode *interface, YamlNode *ports)
{
    bool ok = !interface || read_interface(reader, interface);
    return (!ports || read_ports(reader, ports)) && ok;
}
