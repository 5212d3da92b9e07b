#include "runtime/train/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Least significant byte last, as written. */
static uint32_t number_of(struct in_addr address) { return ntohl(address.s_addr); }

static bool read_subnet(const char *text, uint32_t *network, uint32_t *mask)
{
    char address[INET_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    struct in_addr read;
    if (!slash || slash - text >= INET_ADDRSTRLEN) return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = 0;
    long bits = strtol(slash + 1, NULL, 10);
    if (inet_pton(AF_INET, address, &read) != 1 || bits < 0 || bits > 32) return false;
    *mask = bits ? UINT32_MAX << (32 - bits) : 0;
    *network = number_of(read) & *mask;
    return true;
}

/* The name of an interface in the list; NULL: none. */
static const char *find_interface(const struct ifaddrs *all, uint32_t network, uint32_t mask)
{
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in address;
        memcpy(&address, one->ifa_addr, sizeof address);
        if ((number_of(address.sin_addr) & mask) == network) return one->ifa_name;
    }
    return NULL;
}

bool interface_choose(Diagnostics *diagnostics)
{
    const char *subnet = getenv("SKYCC_SUBNET");
    if (!subnet || getenv("UCX_NET_DEVICES")) return true;
    uint32_t network, mask;
    struct ifaddrs *all = NULL;
    bool is_subnet = read_subnet(subnet, &network, &mask);
    const char *name = is_subnet && getifaddrs(&all) == 0 ? find_interface(all, network, mask) : NULL;
    if (name) setenv("UCX_NET_DEVICES", name, 1);
    if (all) freeifaddrs(all);
    if (name) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = subnet},
                             "the cluster file's 'interface' names it", "this host has no interface in this subnet");
}
