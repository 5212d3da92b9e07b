/* A network in one process: hosts are network namespaces with a TAP device each, between every two of which there is a
 * link with latency, bandwidth, loss and a queue of its own (link.h). It routes IPv4 by destination, as the internet
 * would; nothing answers for a host that cannot be reached, and frames of any other kind are dropped.
 *
 *     network_switch SEED         reads commands, a line each, until its input ends; answers each with one line,
 *                                 "ok ..." or "error ..."
 *
 *     host NAME PID ADDRESS [large]   the network namespace of that process gets a device eth0; large: it hands over up
 *                                 to 64 KiB at once, as to a card that divides it, which takes far less of the
 *                                 processor. They cross links in their parts' time and bytes, and arrive when the last
 *                                 part does
 *     link A B NANOSECONDS BYTES_PER_SECOND QUEUE_BYTES LOSS     from A to B, which is infinitely fast before
 *     share A B                   what B sends to A waits for what A sends to B (half duplex)
 *     cut A B, heal A B           from A to B
 *     inward NAME yes|no          whether connections to it can be made from outside: no is a host behind NAT
 *     traffic A B                 frames and bytes of A to B that were: carried, lost, without room, severed; then
 *                                 frames that B does not let in
 *     capture FILE, capture       writes all that hosts send to a file (pcap), until the next such command
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/network/capture.h"

enum { MOST_HOSTS = 16, MOST_WORDS = 8, LINE_BYTES = 4096, AT_A_TIME = 64, ETHERNET_BYTES = 14, IP_BYTES = 20 };

typedef struct Host {
    char name[64];
    uint32_t address; /* as on the wire */
    int device;       /* -1: its namespace ended */
    bool closed;      /* to connections from outside */
    uint64_t refused; /* frames that were one */
} Host;

typedef struct Switch {
    Host hosts[MOST_HOSTS];
    int host_count;
    Link links[MOST_HOSTS][MOST_HOSTS]; /* from, to */
    FramePool pool;
    FILE *capture;
    int own_namespace;
    uint64_t seed;
} Switch;

static int64_t nanoseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- Devices ---- */

static int open_device(bool large)
{
    int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (device < 0) return -1;
    struct ifreq request = {.ifr_name = "eth0", .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    unsigned long offload = large ? TUN_F_CSUM | TUN_F_TSO4 : 0;
    if (ioctl(device, TUNSETIFF, &request) == 0 && ioctl(device, TUNSETOFFLOAD, offload) == 0) return device;
    close(device);
    return -1;
}

/* A TAP device belongs to the namespace in which it was made. -1: errno says why not. */
static int open_device_of(const Switch *net, const char *process, bool large)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.20s/ns/net", process);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0) return -1;
    int device = setns(namespace, CLONE_NEWNET) == 0 ? open_device(large) : -1;
    int error = errno;
    close(namespace);
    if (setns(net->own_namespace, CLONE_NEWNET) != 0) {
        perror("network_switch: cannot go back to its own namespace");
        exit(1);
    }
    errno = error;
    return device;
}

/* ---- Frames ---- */

static int host_of_address(const Switch *net, uint32_t address)
{
    for (int h = 0; h < net->host_count; h++)
        if (net->hosts[h].address == address) return h;
    return -1;
}

/* Whether an IPv4 packet begins something new, which NAT could not tell for whom it is: a TCP connection, a datagram or
 * an echo request. */
static bool begins(const uint8_t *packet, uint32_t bytes)
{
    uint32_t header = (packet[0] & 15) * 4u;
    switch (packet[9]) {
    case IPPROTO_TCP: return bytes < header + 14 || (packet[header + 13] & 0x12) == 0x02;
    case IPPROTO_ICMP: return bytes < header + 1 || packet[header] == 8;
    default: return true;
    }
}

/* As what it crosses the link: a large one as so many that have headers of their own. False: it is none. */
static bool measure(Frame *frame, ssize_t bytes)
{
    if (bytes < (ssize_t)sizeof frame->card) return false;
    frame->bytes = frame->link_bytes = (uint32_t)bytes - (uint32_t)sizeof frame->card;
    frame->segments = 1;
    const uint8_t *packet = frame->data + ETHERNET_BYTES;
    if (frame->card.gso_type != VIRTIO_NET_HDR_GSO_TCPV4 || frame->bytes < ETHERNET_BYTES + 2 * IP_BYTES) return true;
    uint32_t ip = (packet[0] & 15) * 4u, headers = ETHERNET_BYTES + ip + (packet[ip + 12] >> 4) * 4u;
    if (!frame->card.gso_size || headers >= frame->bytes) return true;
    frame->segments = (frame->bytes - headers + frame->card.gso_size - 1) / frame->card.gso_size;
    frame->link_bytes += (frame->segments - 1) * headers;
    return true;
}

/* Sends or drops it. */
static void route(Switch *net, int from, Frame *frame)
{
    const uint8_t *packet = frame->data + ETHERNET_BYTES;
    int64_t now = nanoseconds_now();
    if (net->capture) capture_frame(net->capture, frame, now);
    uint32_t destination = 0;
    bool is_ip = frame->bytes >= ETHERNET_BYTES + IP_BYTES && frame->data[12] == 8 && frame->data[13] == 0;
    if (is_ip) memcpy(&destination, packet + 16, sizeof destination);
    int to = is_ip ? host_of_address(net, destination) : -1;
    if (to < 0) {
        frame_give_back(&net->pool, frame);
    } else if (net->hosts[to].closed && begins(packet, frame->bytes - ETHERNET_BYTES)) {
        net->hosts[to].refused++;
        frame_give_back(&net->pool, frame);
    } else {
        link_send(&net->links[from][to], &net->pool, frame, now);
    }
}

static void read_device(Switch *net, int h)
{
    for (int i = 0; i < AT_A_TIME && net->hosts[h].device >= 0; i++) {
        Frame *frame = frame_take(&net->pool);
        struct iovec parts[] = {{&frame->card, sizeof frame->card}, {frame->data, sizeof frame->data}};
        ssize_t bytes = readv(net->hosts[h].device, parts, 2);
        if (!measure(frame, bytes)) {
            frame_give_back(&net->pool, frame);
            if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
            close(net->hosts[h].device);
            net->hosts[h].device = -1;
            return;
        }
        route(net, h, frame);
    }
}

/* Hands over what is due; returns when the next frame is. What a host has no room for it loses, as hosts do. */
static int64_t deliver(Switch *net)
{
    int64_t next = INT64_MAX;
    for (int from = 0; from < net->host_count; from++)
        for (int to = 0; to < net->host_count; to++) {
            Link *link = &net->links[from][to];
            Frame *frame;
            while ((frame = link_arrived(link, nanoseconds_now()))) {
                struct iovec parts[] = {{&frame->card, sizeof frame->card}, {frame->data, frame->bytes}};
                ssize_t written = writev(net->hosts[to].device, parts, 2);
                (void)written;
                frame_give_back(&net->pool, frame);
            }
            if (link_next_due(link) < next) next = link_next_due(link);
        }
    return next;
}

/* ---- Commands ---- */

static void answer_error(const char *text) { printf("error %s\n", text); }

static void answer_host(Switch *net, char **words)
{
    Host host = {.device = -1};
    if (net->host_count == MOST_HOSTS || strlen(words[1]) >= sizeof host.name ||
        inet_pton(AF_INET, words[3], &host.address) != 1) {
        answer_error("too many hosts, or no such name or address");
        return;
    }
    strcpy(host.name, words[1]);
    host.device = open_device_of(net, words[2], words[4] && strcmp(words[4], "large") == 0);
    if (host.device < 0) {
        printf("error no device: %s\n", strerror(errno));
        return;
    }
    net->hosts[net->host_count++] = host;
    printf("ok\n");
}

static int host_of_name(const Switch *net, const char *name)
{
    for (int h = 0; h < net->host_count; h++)
        if (strcmp(net->hosts[h].name, name) == 0) return h;
    return -1;
}

/* The link that words 1 and 2 name, or NULL after an answer. */
static Link *named_link(Switch *net, char **words)
{
    int from = host_of_name(net, words[1]), to = host_of_name(net, words[2]);
    if (from >= 0 && to >= 0) return &net->links[from][to];
    answer_error("no such host");
    return NULL;
}

static void answer_link(Switch *net, char **words)
{
    Link *link = named_link(net, words);
    if (!link) return;
    LinkSettings settings = {strtoll(words[3], NULL, 10), strtod(words[4], NULL), strtoll(words[5], NULL, 10),
                             strtod(words[6], NULL)};
    if (settings.latency_ns < 0 || !(settings.bandwidth >= 1) || settings.queue_bytes < FRAME_BYTES ||
        !(settings.loss >= 0 && settings.loss <= 1)) {
        answer_error("no such link is possible");
        return;
    }
    link->settings = settings;
    printf("ok\n");
}

static void answer_share(Switch *net, char **words)
{
    Link *link = named_link(net, words);
    if (!link) return;
    char *back[] = {words[0], words[2], words[1]};
    named_link(net, back)->is_free_at = link->is_free_at;
    printf("ok\n");
}

static void answer_cut(Switch *net, char **words)
{
    Link *link = named_link(net, words);
    if (!link) return;
    if (strcmp(words[0], "cut") == 0)
        link_cut(link, &net->pool);
    else
        link->cut = false;
    printf("ok\n");
}

static void answer_inward(Switch *net, char **words)
{
    int h = host_of_name(net, words[1]);
    if (h < 0) {
        answer_error("no such host");
        return;
    }
    net->hosts[h].closed = strcmp(words[2], "no") == 0;
    printf("ok\n");
}

static void answer_traffic(Switch *net, char **words)
{
    const Link *link = named_link(net, words);
    if (!link) return;
    const Traffic *all[] = {&link->carried, &link->lost, &link->full, &link->severed};
    printf("ok");
    for (int i = 0; i < 4; i++)
        printf(" %llu %llu", (unsigned long long)all[i]->frames, (unsigned long long)all[i]->bytes);
    printf(" %llu\n", (unsigned long long)net->hosts[host_of_name(net, words[2])].refused);
}

/* Everything that was captured is in the file when the answer comes. */
static void answer_capture(Switch *net, char **words)
{
    bool whole = !net->capture || fclose(net->capture) == 0;
    net->capture = NULL;
    if (words[1] && !(net->capture = capture_begin(words[1]))) whole = false;
    printf(whole ? "ok\n" : "error cannot write: %s\n", strerror(errno));
}

static const struct {
    const char *name;
    int least, most; /* words */
    void (*answer)(Switch *net, char **words);
} commands[] = {
    {"host", 4, 5, answer_host},       {"link", 7, 7, answer_link},       {"share", 3, 3, answer_share},
    {"cut", 3, 3, answer_cut},         {"heal", 3, 3, answer_cut},        {"inward", 3, 3, answer_inward},
    {"traffic", 3, 3, answer_traffic}, {"capture", 1, 2, answer_capture},
};

static void answer(Switch *net, char *line)
{
    char *words[MOST_WORDS + 1] = {NULL}, *rest = NULL;
    int count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word && count < MOST_WORDS; word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (count >= commands[i].least && count <= commands[i].most && strcmp(words[0], commands[i].name) == 0) {
            commands[i].answer(net, words);
            fflush(stdout);
            return;
        }
    answer_error("no such command");
    fflush(stdout);
}

/* Answers all whole lines of standard input; false at its end. */
static bool read_commands(Switch *net)
{
    static char text[LINE_BYTES];
    static size_t size;
    ssize_t bytes = read(STDIN_FILENO, text + size, sizeof text - 1 - size);
    if (bytes <= 0) return bytes < 0 && errno == EINTR;
    size += (size_t)bytes;
    text[size] = 0;
    char *line = text, *end;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        answer(net, line);
        line = end + 1;
    }
    size -= (size_t)(line - text);
    memmove(text, line, size);
    return size < sizeof text - 1;
}

/* ---- */

/* Waits until something can be read or the next frame is due; false when the input ended. */
static bool work(Switch *net)
{
    int64_t next = deliver(net), now = nanoseconds_now();
    int64_t wait = next > now ? next - now : 0;
    struct timespec limit = {wait / 1000000000, wait % 1000000000};
    struct pollfd waiting[MOST_HOSTS + 1] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    int hosts = net->host_count;
    for (int h = 0; h < hosts; h++) waiting[h + 1] = (struct pollfd){.fd = net->hosts[h].device, .events = POLLIN};
    if (ppoll(waiting, (nfds_t)hosts + 1, next == INT64_MAX ? NULL : &limit, NULL) <= 0) return true;
    for (int h = 0; h < hosts; h++)
        if (waiting[h + 1].revents) read_device(net, h);
    return !waiting[0].revents || read_commands(net);
}

int main(int count, char **arguments)
{
    static Switch net;
    net.seed = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    LinkSettings fast = {.bandwidth = 1e11, .queue_bytes = INT64_C(1) << 40};
    for (int from = 0; from < MOST_HOSTS; from++)
        for (int to = 0; to < MOST_HOSTS; to++)
            link_initialize(&net.links[from][to], fast, net.seed * MOST_HOSTS * MOST_HOSTS + from * MOST_HOSTS + to);
    net.own_namespace = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    /* Frames are to be handed over in time whatever else runs here; without the right to that they mostly are. */
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
    while (work(&net)) continue;
    bool whole = !net.capture || fclose(net.capture) == 0;
    for (int from = 0; from < MOST_HOSTS; from++)
        for (int to = 0; to < MOST_HOSTS; to++) link_cut(&net.links[from][to], &net.pool);
    frame_pool_free(&net.pool);
    return whole ? 0 : 1;
}
