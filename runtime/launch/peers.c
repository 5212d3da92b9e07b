#include "runtime/launch/peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"

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

/* ---- Sockets of this process ---- */

enum { MOST_INHERITED = 64, MOST_ANCESTORS = 8, COMMAND_NAME = 16, LINK_NAME = 32 };

static int inherited[MOST_INHERITED]; /* descriptors */
static size_t inherited_count;

static bool listens(int descriptor)
{
    int listening = 0, family = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || !listening) return false;
    size = sizeof family;
    return getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_INET;
}

static bool is_inherited(int descriptor)
{
    for (size_t i = 0; i < inherited_count; i++)
        if (inherited[i] == descriptor) return true;
    return false;
}

void peers_note_inherited(void)
{
    FREED_WITH(listing_close) DIR *own = opendir("/proc/self/fd");
    inherited_count = 0;
    for (struct dirent *entry; own && inherited_count < MOST_INHERITED && (entry = readdir(own));)
        if (listens(atoi(entry->d_name))) inherited[inherited_count++] = atoi(entry->d_name);
}

void peers_guard_own(const Peers *peers)
{
    FREED_WITH(listing_close) DIR *own = opendir("/proc/self/fd");
    for (struct dirent *entry; own && (entry = readdir(own));) {
        int descriptor = atoi(entry->d_name);
        if (listens(descriptor) && !is_inherited(descriptor)) peers_guard(peers, descriptor);
    }
}

/* The ancestor of this process that is mpiexec; 0: there is none. */
static int find_mpiexec(void)
{
    int process = getppid();
    for (int i = 0; i < MOST_ANCESTORS && process > 1; i++) {
        char path[48], name[COMMAND_NAME + 1] = "";
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", process);
        FREED_WITH(stream_close) FILE *status = fopen(path, "r");
        bool read = status && fscanf(status, "%*d (%16[^)]) %*c %d", name, &parent) == 2;
        if (read && strncmp(name, "mpiexec", strlen("mpiexec")) == 0) return process;
        process = read ? parent : 0;
    }
    return 0;
}

/* "socket:[NUMBER]" of a process's descriptor; process 0: this one. */
static bool socket_name(int process, const char *descriptor, char name[LINK_NAME])
{
    char path[64], who[16] = "self";
    if (process) snprintf(who, sizeof who, "%d", process);
    snprintf(path, sizeof path, "/proc/%s/fd/%.16s", who, descriptor);
    ssize_t length = readlink(path, name, LINK_NAME - 1);
    if (length <= 0) return false;
    name[length] = '\0';
    return true;
}

static bool holds(int process, const char *socket)
{
    char path[48], name[LINK_NAME];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    FREED_WITH(listing_close) DIR *descriptors = opendir(path);
    for (struct dirent *entry; descriptors && !found && (entry = readdir(descriptors));)
        found = socket_name(process, entry->d_name, name) && strcmp(name, socket) == 0;
    return found;
}

void peers_close_launcher(void)
{
    int mpiexec = find_mpiexec();
    const Peers nobody = {.count = 0};
    for (size_t i = 0; mpiexec && i < inherited_count; i++) {
        char descriptor[16], name[LINK_NAME];
        snprintf(descriptor, sizeof descriptor, "%d", inherited[i]);
        if (socket_name(0, descriptor, name) && holds(mpiexec, name)) peers_guard(&nobody, inherited[i]);
    }
}
