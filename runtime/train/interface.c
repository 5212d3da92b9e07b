#include "runtime/train/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/peers.h"

/* The name of an interface in the list; NULL: none. */
static const char *find_interface(const struct ifaddrs *all, Subnet subnet)
{
    for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        struct sockaddr_in address;
        memcpy(&address, one->ifa_addr, sizeof address);
        if ((ntohl(address.sin_addr.s_addr) & subnet.mask) == subnet.address) return one->ifa_name;
    }
    return NULL;
}

bool interface_choose(Diagnostics *diagnostics)
{
    const char *subnet = getenv("SKYCC_SUBNET");
    if (!subnet || getenv("UCX_NET_DEVICES")) return true;
    struct ifaddrs *all = NULL;
    Peers read = {.count = 0};
    bool is_subnet = strchr(subnet, '/') && peers_add(&read, subnet);
    const char *name = is_subnet && getifaddrs(&all) == 0 ? find_interface(all, read.subnets[0]) : NULL;
    if (name) setenv("UCX_NET_DEVICES", name, 1);
    if (all) freeifaddrs(all);
    if (name) return true;
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = subnet},
                             "the cluster file's 'interface' names it", "this host has no interface in this subnet");
}
