#include "profiler/probe/probe_sites.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "runtime/wire/client.h"
#include "runtime/wire/gateway.h"

/* What messages are; both ends of a pair run the same steps in the same order. */
enum { TAG_PING, TAG_BURST, TAG_DATA, TAG_RATE, TAG_LINK };

enum { PINGS = 12, LEAST_MESSAGES = 8, LEAST_BYTES = 4 << 10, FIRST_BYTES = 64 << 10, MOST_BYTES = 4 << 20 };

/* A burst lasts so long, and sizes of which a burst would last longer than most_s are left out. */
static const double burst_s = 0.4, most_s = 2, most_burst_bytes = 256e6;

/* Announces so many messages of a size; 0: no more bursts. */
typedef struct Burst {
    int64_t messages, bytes;
} Burst;

/* What a sender found of its direction. */
typedef struct Way {
    double Bps, bend_bytes;
} Way;

typedef struct Meeting {
    const SiteProbe *probe;
    WireClient *client;
    unsigned char *out, *in; /* MOST_BYTES each */
    char why[600];           /* what went wrong; empty: nothing */
} Meeting;

static const char *name_of(const Meeting *meeting, int site) { return meeting->probe->cluster->sites[site].name; }

static void take_nothing(void *context, int from, int tag, const void *bytes, size_t size)
{
    (void)context, (void)from, (void)tag, (void)bytes, (void)size;
}

static bool fail(Meeting *meeting, const char *what, int site)
{
    if (!*meeting->why) snprintf(meeting->why, sizeof meeting->why, "site %s %s", name_of(meeting, site), what);
    return false;
}

/* Whether all that is known of the others lets this go on. */
static bool is_well(Meeting *meeting)
{
    const SiteProbe *probe = meeting->probe;
    if (wire_client_is_lost(meeting->client)) return fail(meeting, "has lost its gateway", probe->site);
    for (int s = 0; s < probe->cluster->site_count; s++) {
        const WireSiteState *state = wire_client_state(meeting->client, s);
        if (s == probe->site) continue;
        if (state->state == WIRE_RETURNED) return fail(meeting, "began anew", s);
        if (state->state == WIRE_ENDED) return fail(meeting, "ended", s);
    }
    return true;
}

/* Until *pending is 0, or `site` has been silent for too long. */
static bool wait_for(Meeting *meeting, const int *pending, int site)
{
    double until = monotonic_seconds() + meeting->probe->patience_s;
    while (*pending) {
        wire_client_progress(meeting->client, take_nothing, NULL);
        if (!*pending) break;
        if (!is_well(meeting)) return false;
        if (monotonic_seconds() > until) return fail(meeting, "does not answer", site);
        wire_client_sleep(meeting->client, 0.05);
    }
    return true;
}

static void send_to(Meeting *meeting, int site, int tag, const void *bytes, size_t size)
{
    wire_client_send(meeting->client, site, tag, bytes, size);
}

static bool receive_from(Meeting *meeting, int site, int tag, void *bytes, size_t size)
{
    int pending = 0;
    wire_client_receive(meeting->client, site, tag, bytes, size, &pending);
    return wait_for(meeting, &pending, site);
}

/* ---- One direction ---- */

static bool ping(Meeting *meeting, int other, bool begins, double *latency_s)
{
    unsigned char mark = 0;
    *latency_s = INFINITY;
    for (int i = 0; i < PINGS; i++) {
        double start = monotonic_seconds();
        if (begins) send_to(meeting, other, TAG_PING, &mark, 1);
        if (!receive_from(meeting, other, TAG_PING, &mark, 1)) return false;
        if (!begins) send_to(meeting, other, TAG_PING, &mark, 1);
        *latency_s = fmin(*latency_s, (monotonic_seconds() - start) / 2);
    }
    return true;
}

static void send_burst(Meeting *meeting, int other, Burst burst)
{
    send_to(meeting, other, TAG_BURST, &burst, sizeof burst);
    for (int64_t i = 0; i < burst.messages; i++) send_to(meeting, other, TAG_DATA, meeting->out, (size_t)burst.bytes);
}

/* At what rate the messages after the first one came; the first one came with the latency, the others with what the
 * link carries. */
static bool receive_burst(Meeting *meeting, int other, Burst burst, double *Bps)
{
    double first = 0, last = 0;
    for (int64_t i = 0; i < burst.messages; i++) {
        if (!receive_from(meeting, other, TAG_DATA, meeting->in, (size_t)burst.bytes)) return false;
        last = monotonic_seconds();
        if (i == 0) first = last;
    }
    *Bps = (double)(burst.messages - 1) * (double)burst.bytes / fmax(last - first, 1e-6);
    return true;
}

/* Has the other site measure a burst from here. */
static bool try_burst(Meeting *meeting, int other, Burst burst, double *Bps)
{
    send_burst(meeting, other, burst);
    return receive_from(meeting, other, TAG_RATE, Bps, sizeof *Bps);
}

static Burst burst_of(double Bps, int64_t bytes, double seconds)
{
    double messages = fmin(Bps * seconds, most_burst_bytes) / (double)bytes;
    return (Burst){messages > LEAST_MESSAGES ? (int64_t)messages : LEAST_MESSAGES, bytes};
}

/* First bursts that double until they last, in which TCP finds its window; then all sizes that do not take too long. */
static bool send_way(Meeting *meeting, int other, Way *way)
{
    Burst burst = {LEAST_MESSAGES, FIRST_BYTES};
    double Bps = 0, rates[32];
    int sizes = 0;
    for (;; burst.messages *= 2) {
        if (!try_burst(meeting, other, burst, &Bps)) return false;
        double bytes = (double)burst.messages * (double)burst.bytes;
        if (bytes > Bps * burst_s || bytes > most_burst_bytes) break;
    }
    *way = (Way){Bps, FIRST_BYTES};
    for (int64_t bytes = LEAST_BYTES; bytes <= MOST_BYTES; bytes *= 4, sizes++) {
        rates[sizes] = 0;
        if (bytes > FIRST_BYTES && (double)(LEAST_MESSAGES * bytes) > way->Bps * most_s) continue;
        if (!try_burst(meeting, other, burst_of(way->Bps, bytes, burst_s), &rates[sizes])) return false;
        way->Bps = fmax(way->Bps, rates[sizes]);
    }
    for (int i = sizes; i-- > 0;)
        if (rates[i] >= 0.9 * way->Bps) way->bend_bytes = ldexp(LEAST_BYTES, 2 * i);
    send_to(meeting, other, TAG_BURST, &(Burst){0, 0}, sizeof(Burst));
    return true;
}

/* Nobody is kept longer than by the longest burst that there is: the first ones double until they are as long. */
static bool is_burst(const Burst *burst)
{
    return burst->messages > 1 && burst->bytes > 0 && burst->bytes <= MOST_BYTES &&
           burst->messages <= (int64_t)(2 * most_burst_bytes) / burst->bytes;
}

static bool receive_way(Meeting *meeting, int other)
{
    for (;;) {
        Burst burst;
        double Bps;
        if (!receive_from(meeting, other, TAG_BURST, &burst, sizeof burst)) return false;
        if (burst.messages == 0) return true;
        if (!is_burst(&burst)) return fail(meeting, "is confused", other);
        if (!receive_burst(meeting, other, burst, &Bps)) return false;
        send_to(meeting, other, TAG_RATE, &Bps, sizeof Bps);
    }
}

/* ---- Two sites ---- */

/* Both send at once, for a second, and tell each other how fast it came. */
static bool both_ways(Meeting *meeting, int other, bool begins, double own_Bps, double Bps[2])
{
    Burst burst;
    unsigned char mark = 0;
    if (begins) send_to(meeting, other, TAG_PING, &mark, 1);
    if (!begins && !receive_from(meeting, other, TAG_PING, &mark, 1)) return false;
    send_burst(meeting, other, burst_of(own_Bps, FIRST_BYTES, 1));
    if (!receive_from(meeting, other, TAG_BURST, &burst, sizeof burst)) return false;
    if (!is_burst(&burst)) return fail(meeting, "is confused", other);
    if (!receive_burst(meeting, other, burst, &Bps[1])) return false;
    send_to(meeting, other, TAG_RATE, &Bps[1], sizeof Bps[1]);
    return receive_from(meeting, other, TAG_RATE, &Bps[0], sizeof Bps[0]);
}

/* The second site has its own half to tell. */
static bool measure_link(Meeting *meeting, SiteLink *link)
{
    bool begins = link->sites[0] == meeting->probe->site;
    int other = link->sites[begins];
    double seen;
    Way way, back;
    if (!ping(meeting, other, begins, begins ? &link->latency_s : &seen)) return false;
    if (begins ? !send_way(meeting, other, &way) || !receive_way(meeting, other)
               : !receive_way(meeting, other) || !send_way(meeting, other, &way))
        return false;
    double together[2];
    if (!both_ways(meeting, other, begins, way.Bps, together)) return false;
    if (!begins) {
        send_to(meeting, other, TAG_LINK, &way, sizeof way);
        return true;
    }
    if (!receive_from(meeting, other, TAG_LINK, &back, sizeof back)) return false;
    link->alone_Bps[0] = way.Bps, link->alone_Bps[1] = back.Bps;
    link->bend_bytes = way.bend_bytes;
    memcpy(link->together_Bps, together, sizeof together);
    return true;
}

/* What another site says may be anything: names are looked up by `sites`, and numbers go into the profile. */
static bool is_link(const SiteLink *link, int a, int b)
{
    const double numbers[] = {link->latency_s,       link->alone_Bps[0],    link->alone_Bps[1],
                              link->together_Bps[0], link->together_Bps[1], link->bend_bytes};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!(numbers[i] > 0 && numbers[i] < 1e15)) return false;
    return link->sites[0] == a && link->sites[1] == b;
}

/* Who measured a link tells all others. */
static bool measure_links(Meeting *meeting, SiteLink *links)
{
    int sites = meeting->probe->cluster->site_count, own = meeting->probe->site;
    for (int a = 0; a < sites; a++)
        for (int b = a + 1; b < sites; b++, links++) {
            *links = (SiteLink){.sites = {a, b}};
            if ((a == own || b == own) && !measure_link(meeting, links)) return false;
            if (a == own && !is_link(links, a, b)) return fail(meeting, "is confused", b);
            for (int s = 0; s < sites && a == own; s++)
                if (s != own) send_to(meeting, s, TAG_LINK, links, sizeof *links);
            if (a != own && !receive_from(meeting, a, TAG_LINK, links, sizeof *links)) return false;
            if (!is_link(links, a, b)) return fail(meeting, "is confused", a);
        }
    return true;
}

static bool meet(Meeting *meeting)
{
    double until = monotonic_seconds() + meeting->probe->patience_s;
    for (int s = 0; s < meeting->probe->cluster->site_count; s++)
        while (s != meeting->probe->site && wire_client_state(meeting->client, s)->state != WIRE_UP) {
            wire_client_progress(meeting->client, take_nothing, NULL);
            if (!is_well(meeting)) return false;
            if (monotonic_seconds() > until) return fail(meeting, "has not come", s);
            wire_client_sleep(meeting->client, 0.05);
        }
    return true;
}

/* ---- The gateway ---- */

typedef struct Gateway {
    WireGateway *gateway;
    pthread_t thread;
    int stop;
} Gateway;

static void *serve(void *context)
{
    Gateway *gateway = context;
    wire_gateway_run(gateway->gateway, gateway->stop);
    return NULL;
}

/* All that a run would have in site.json, with one rank a site. */
static WireSiteFile describe(const SiteProbe *probe, Arena *arena)
{
    const Cluster *cluster = probe->cluster;
    size_t count = (size_t)cluster->site_count;
    WireSite *sites = arena_new_array(arena, WireSite, count);
    int *ranks = arena_new_array(arena, int, count);
    FREED_WITH(buffer_free) Buffer text = {0};
    buffer_print(&text, "probe");
    for (size_t s = 0; s < count; s++) {
        const ClusterSite *site = &cluster->sites[s];
        sites[s].name = site->name;
        sites[s].address = site->address;
        snprintf(sites[s].key, sizeof sites[s].key, "%s", site->key);
        ranks[s] = (int)s;
        buffer_print(&text, "\n%s %s %s", site->name, site->key, site->address ? site->address : "");
    }
    Hash run = hash_bytes(text.bytes, text.size);
    return (WireSiteFile){.run = run,
                          .site = probe->site,
                          .site_count = (int)count,
                          .rank_count = (int)count,
                          .sites = sites,
                          .rank_sites = ranks,
                          .largest_message_bytes = WIRE_LEAST_LIMIT};
}

static bool run_client(Meeting *meeting, const char *local, SiteLink *links, Diagnostics *diagnostics)
{
    int sites = meeting->probe->cluster->site_count;
    WireClientOptions options = {.gateway = local,
                                 .rank = meeting->probe->site,
                                 .rank_count = sites,
                                 .site = meeting->probe->site,
                                 .site_count = sites};
    meeting->client = wire_client_open(&options, diagnostics);
    if (!meeting->client) return false;
    bool ok = meet(meeting) && measure_links(meeting, links);
    if (!ok) {
        diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_NONE,
                          "skycc probe --site runs at all sites at once, each with its own key", "%s", meeting->why);
        wire_client_fail(meeting->client, EXIT_RUN_FAILED, meeting->why);
        usleep(300000); /* for the gateway to pass it on */
    }
    wire_client_close(meeting->client);
    return ok;
}

static bool run(const SiteProbe *probe, const char *local, SiteLink *links, Arena *arena, Diagnostics *diagnostics)
{
    WireSiteFile file = describe(probe, arena);
    const WireGatewayOptions options = {.file = &file, .keys = probe->keys, .local = local};
    Gateway gateway = {.gateway = wire_gateway_open(&options, diagnostics)};
    if (!gateway.gateway) return false;
    gateway.stop = eventfd(0, EFD_CLOEXEC);
    if (gateway.stop < 0) memory_exhausted();
    if (pthread_create(&gateway.thread, NULL, serve, &gateway) != 0) memory_exhausted();
    Meeting meeting = {.probe = probe, .out = memory_allocate(MOST_BYTES), .in = memory_allocate(MOST_BYTES)};
    bool ok = run_client(&meeting, local, links, diagnostics);
    while (eventfd_write(gateway.stop, 1) != 0 && errno == EINTR) continue;
    pthread_join(gateway.thread, NULL);
    wire_gateway_close(gateway.gateway);
    close(gateway.stop);
    free(meeting.out);
    free(meeting.in);
    return ok;
}

bool probe_sites(const SiteProbe *probe, SiteLink *links, Diagnostics *diagnostics)
{
    char folder[] = "/tmp/skycc-XXXXXX"; /* the path of a socket must be short */
    FREED_WITH(arena_free) Arena arena = {0};
    if (!mkdtemp(folder))
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE("/tmp"), NULL, "cannot make a folder: %s",
                                 strerror(errno));
    bool ok = run(probe, arena_format(&arena, "ipc://%s/gateway", folder), links, &arena, diagnostics);
    unlink(arena_format(&arena, "%s/gateway", folder));
    rmdir(folder);
    return ok;
}
