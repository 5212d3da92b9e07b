#include "runtime/launch/peers.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

bool peers_add_subnet(Peers *peers, Subnet subnet)
{
    subnet.address &= subnet.mask;
    for (size_t p = 0; p < peers->count; p++)
        if (peers->subnets[p].address == subnet.address && peers->subnets[p].mask == subnet.mask) return true;
    if (peers->count == PEERS_MOST) return false;
    peers->subnets[peers->count++] = subnet;
    return true;
}

bool peers_add(Peers *peers, const char *text)
{
    char address[INET_ADDRSTRLEN];
    struct in_addr read;
    size_t length = strcspn(text, "/");
    long bits = 32;
    if (length >= sizeof address) return false;
    memcpy(address, text, length);
    address[length] = '\0';
    if (text[length]) {
        char *end;
        bits = strtol(text + length + 1, &end, 10);
        if (end == text + length + 1 || *end || bits < 0 || bits > 32) return false;
    }
    return inet_pton(AF_INET, address, &read) == 1 &&
           peers_add_subnet(peers, (Subnet){ntohl(read.s_addr), bits ? UINT32_MAX << (32 - bits) : 0});
}

void peers_add_own(Peers *peers)
{
    struct ifaddrs *interfaces = NULL;
    if (getifaddrs(&interfaces) != 0) return;
    for (const struct ifaddrs *i = interfaces; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET)
            peers_add_subnet(peers,
                             (Subnet){ntohl(((const struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr), UINT32_MAX});
    freeifaddrs(interfaces);
}

bool peers_guard(const Peers *peers, int socket)
{
    enum { SOURCE = 12, EACH = 4 }; /* where an IPv4 header has the sender; instructions */
    struct sock_filter program[EACH * PEERS_MOST + 1];
    size_t count = 0;
    for (size_t p = 0; p < peers->count; p++) {
        program[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)SKF_NET_OFF + SOURCE);
        program[count++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, peers->subnets[p].mask);
        program[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, peers->subnets[p].address, 0, 1);
        program[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, UINT32_MAX); /* all of the packet */
    }
    program[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0); /* nothing of it */
    const struct sock_fprog filter = {.len = (unsigned short)count, .filter = program};
    return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0;
}

void peers_guard_all(const Peers *peers)
{
    DIR *own = opendir("/proc/self/fd");
    for (struct dirent *entry; own && (entry = readdir(own));) {
        int descriptor = atoi(entry->d_name), listens = 0, family = 0;
        socklen_t size = sizeof listens;
        if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
        size = sizeof family;
        if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_INET)
            peers_guard(peers, descriptor);
    }
    if (own) closedir(own);
}
