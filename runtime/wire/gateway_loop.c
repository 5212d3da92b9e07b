#include "runtime/wire/gateway.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/wire/gateway_parts.h"
#include "runtime/wire/zap.h"

static const double tick_period = 0.5, last_patience = 10; /* seconds */

static uint64_t draw_incarnation(void)
{
    uint64_t number = 0;
    while (number == 0)
        if (getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
    return number;
}

/* Fewer would end the gateway later, and with it the run. Other sites and strangers need more. */
static bool has_descriptors(const WireSiteFile *file, Diagnostics *diagnostics)
{
    enum { MOST = 32 + 4 * WIRE_MOST_SITES };
    int taken[MOST], count = 0, needed = 32 + 4 * file->site_count;
    while (count < needed && (taken[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) count++;
    bool ok = count == needed ||
              run_error(diagnostics, "raise it with ulimit -n",
                        "the limit of open files leaves the gateway %d; it needs at least %d", count, needed);
    while (count) close(taken[--count]);
    return ok;
}

WireGateway *wire_gateway_open(const WireGatewayOptions *options, Diagnostics *diagnostics)
{
    const WireSiteFile *file = options->file;
    const WireSite *own = &file->sites[file->site];
    if (strcmp(own->key, options->keys->public_key) != 0) {
        diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE,
                          "--key names the file that skycc key made for this site",
                          "the key is not that of site %s: its public key is %s, the run expects %s", own->name,
                          options->keys->public_key, own->key);
        return NULL;
    }
    wire_sockets_allow_many();
    if (!has_descriptors(file, diagnostics)) return NULL;
    WireGateway *gateway = memory_allocate(sizeof *gateway);
    gateway->options = *options;
    gateway->file = file;
    gateway->incarnation = draw_incarnation();
    gateway->context = zmq_ctx_new();
    if (!gateway->context) bug("no context: %s", zmq_strerror(zmq_errno()));
    zmq_ctx_set(gateway->context, ZMQ_MAX_SOCKETS, 4 * WIRE_MOST_SITES);
    gateway->zap = wire_zap_open(gateway->context);
    if (!gateway->zap) bug("two handlers of handshakes");
    if (wire_gateway_audit_open(gateway, diagnostics) && wire_links_open(gateway, diagnostics) &&
        wire_ranks_open(gateway, diagnostics))
        return gateway;
    if (gateway->audit.counted.running) wire_gateway_audit_write(gateway, monotonic_seconds(), true);
    wire_gateway_close(gateway);
    return NULL;
}

const char *wire_gateway_place(const WireGateway *gateway) { return gateway->place; }

const char *wire_gateway_ranks_place(const WireGateway *gateway) { return gateway->ranks_place; }

void wire_gateway_close(WireGateway *gateway)
{
    wire_ranks_close(gateway);
    wire_links_close(gateway);
    wire_gateway_audit_close(gateway);
    zmq_close(gateway->zap);
    zmq_ctx_term(gateway->context);
    free(gateway);
}

/* ---- The loop ---- */

/* All that there may be something from; the descriptor first. */
static int list_sources(const WireGateway *gateway, int stop_descriptor, zmq_pollitem_t *items)
{
    int count = 0;
    items[count++] = (zmq_pollitem_t){.fd = stop_descriptor, .events = ZMQ_POLLIN};
    items[count++] = (zmq_pollitem_t){.socket = gateway->zap, .events = ZMQ_POLLIN};
    items[count++] = (zmq_pollitem_t){.socket = gateway->ranks, .events = ZMQ_POLLIN};
    if (gateway->listener) {
        items[count++] = (zmq_pollitem_t){.socket = gateway->listener, .events = ZMQ_POLLIN};
        items[count++] = (zmq_pollitem_t){.socket = gateway->listener_watch, .events = ZMQ_POLLIN};
    }
    for (int s = 0; s < gateway->file->site_count; s++) {
        if (!gateway->links[s].socket) continue;
        items[count++] = (zmq_pollitem_t){.socket = gateway->links[s].socket, .events = ZMQ_POLLIN};
        if (gateway->links[s].watch)
            items[count++] = (zmq_pollitem_t){.socket = gateway->links[s].watch, .events = ZMQ_POLLIN};
    }
    return count;
}

/* Whether the other site may still need something of this one. */
static bool is_owed(const Link *link)
{
    const WirePeer *peer = &link->peer;
    bool may_come = peer->up || (peer->bound && !peer->returned && !link->finished && link->state != WIRE_ENDED);
    return may_come && peer->acknowledged != peer->next;
}

static bool is_all_acknowledged(const WireGateway *gateway)
{
    for (int s = 0; s < gateway->file->site_count; s++)
        if (s != gateway->file->site && is_owed(&gateway->links[s])) return false;
    return true;
}

static void say_counters(const WireGateway *gateway)
{
    for (int s = 0; s < gateway->file->site_count; s++) {
        if (s == gateway->file->site) continue;
        const WireCounters *counters = &gateway->links[s].peer.counters;
        FREED_WITH(buffer_free) Buffer text = {0};
        buffer_print(
            &text,
            "sent to %s: %llu messages (%llu bytes), received: %llu (%llu bytes); %llu connections, %llu frames sent "
            "again, at most %llu bytes unacknowledged",
            gateway->links[s].site->name, (unsigned long long)counters->messages_sent,
            (unsigned long long)counters->bytes_sent, (unsigned long long)counters->messages_received,
            (unsigned long long)counters->bytes_received, (unsigned long long)counters->connections,
            (unsigned long long)counters->frames_resent, (unsigned long long)counters->most_kept_bytes);
        const char *separator = "; dropped: ";
        for (int d = 0; d < WIRE_DROP_COUNT; d++) {
            if (!counters->dropped[d]) continue;
            buffer_print(&text, "%s%llu %s", separator, (unsigned long long)counters->dropped[d],
                         wire_drop_name((WireDrop)d));
            separator = ", ";
        }
        wire_gateway_say(gateway, "%s", buffer_text(&text));
    }
    if (gateway->strangers || gateway->odd)
        wire_gateway_say(gateway, "turned away: %llu connections without a known key, %llu malformed frames",
                         (unsigned long long)gateway->strangers, (unsigned long long)gateway->odd);
}

void wire_gateway_run(WireGateway *gateway, int stop_descriptor)
{
    FREED zmq_pollitem_t *items = memory_allocate((5 + 2 * (size_t)gateway->file->site_count) * sizeof *items);
    double ticked = 0, stop_asked = 0;
    bool is_told = false;
    int count = list_sources(gateway, stop_descriptor, items);
    for (double now;;) {
        bool stopping = stop_asked > 0; /* the descriptor is not looked at any more */
        if (gateway->sockets_changed) count = list_sources(gateway, stop_descriptor, items);
        gateway->sockets_changed = false;
        bool quiet = zmq_poll(items + stopping, count - stopping, stopping ? 50 : (long)(1e3 * tick_period)) == 0;
        now = monotonic_seconds();
        if (!stopping && items[0].revents) stop_asked = now;
        wire_zap_answer(gateway->zap, gateway->file);
        wire_links_work(gateway);
        wire_ranks_work(gateway);
        wire_links_acknowledge(gateway);
        if (now - ticked > tick_period) {
            wire_links_tick(gateway, now);
            wire_gateway_audit_write(gateway, now, false);
            ticked = now;
        }
        /* What ranks said before the stop may still be on its way, also that they leave: first all must be quiet. */
        if (stopping && quiet && !is_told) {
            wire_ranks_tell_broken(gateway);
            is_told = true;
            continue;
        }
        bool is_done = stopping && quiet && is_all_acknowledged(gateway);
        if (is_done || (stopping && now - stop_asked > last_patience)) break;
    }
    say_counters(gateway);
    wire_gateway_audit_write(gateway, monotonic_seconds(), true);
}
