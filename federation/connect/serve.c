#include "federation/connect/serve.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "federation/connect/sockets.h"
#include "runtime/wire/address.h"
#include "runtime/wire/zap.h"

static bool is_known(const WireSiteFile *known, const char *key)
{
    for (int i = 0; i < known->site_count; i++)
        if (strcmp(known->sites[i].key, key) == 0) return true;
    return false;
}

/* Adds the keys of the federation that are not known yet. An entry stays for good, because messages of a connection
 * carry its number: former keys and those of sites that have left may connect, and the coordinator says why it refuses
 * them. */
static void know_sites(WireSiteFile *known, const Federation *federation)
{
    size_t room = (size_t)(known->site_count + 2 * federation->site_count);
    WireSite *sites = arena_new_array(&known->arena, WireSite, room);
    if (known->site_count) memcpy(sites, known->sites, (size_t)known->site_count * sizeof *sites);
    known->sites = sites;
    for (int s = 0; s < federation->site_count; s++) {
        const FederationSite *site = &federation->sites[s];
        const char *keys[] = {site->key, site->former_key};
        for (int k = 0; k < 2; k++) {
            if (!keys[k] || is_known(known, keys[k])) continue;
            WireSite *entry = &sites[known->site_count++];
            entry->name = site->name;
            snprintf(entry->key, sizeof entry->key, "%s", keys[k]);
        }
    }
}

bool server_open(Server *server, Coordinator *coordinator, const WireKeys *keys, const char *address,
                 Diagnostics *diagnostics)
{
    wire_sockets_allow_many();
    *server = (Server){.context = zmq_ctx_new(), .coordinator = coordinator};
    WireSiteFile *known = server->known = memory_allocate(sizeof *known);
    known->site = -1; /* the coordinator is not a site */
    know_sites(known, coordinator->federation);
    server->zap = wire_zap_open(server->context);
    if (!server->zap) bug("another handler of handshakes");
    server->socket = wire_socket(server->context, ZMQ_REP);
    federation_socket_options(server->socket, (int64_t)coordinator_largest_request(coordinator));
    wire_socket_guard(server->socket, keys, WIRE_ZAP_SITES);
    return wire_socket_listen(server->socket, address) ||
           diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.object = address},
                             "--listen 0.0.0.0:PORT listens at every address of this host",
                             "skycc cannot listen there: %s", zmq_strerror(zmq_errno()));
}

void server_close(Server *server)
{
    if (server->socket) zmq_close(server->socket);
    if (server->zap) zmq_close(server->zap);
    if (server->context) zmq_ctx_term(server->context);
    WireSiteFile *known = server->known;
    if (known) arena_free(&known->arena);
    free(known);
    *server = (Server){0};
}

/* The site with the key of the handshake. */
static int site_of(Server *server, zmq_msg_t *message)
{
    const char *user = zmq_msg_gets(message, "User-Id");
    const WireSiteFile *known = server->known;
    const Federation *federation = server->coordinator->federation;
    int entry = user && *user ? atoi(user) : -1;
    if (entry < 0 || entry >= known->site_count) return -1;
    int site = federation_find_site(federation, known->sites[entry].name);
    if (site >= 0)
        server->coordinator->sites[site].uses_former =
            strcmp(known->sites[entry].key, federation->sites[site].key) != 0;
    return site;
}

static void answer(Server *server)
{
    zmq_msg_t message, rest;
    FREED_WITH(buffer_free) Buffer reply = {0};
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, server->socket, ZMQ_DONTWAIT) < 0) return;
    size_t size = zmq_msg_size(&message);
    for (bool more = zmq_msg_more(&message); more;) { /* sites never send several parts */
        zmq_msg_init(&rest);
        size = 0;
        more = zmq_msg_recv(&rest, server->socket, ZMQ_DONTWAIT) >= 0 && zmq_msg_more(&rest);
        zmq_msg_close(&rest);
    }
    int site = site_of(server, &message);
    if (site >= 0)
        coordinator_handle(server->coordinator, site, zmq_msg_data(&message), size, monotonic_seconds(), &reply);
    zmq_send(server->socket, reply.bytes, reply.size, ZMQ_DONTWAIT);
    zmq_msg_close(&message);
}

void server_run(Server *server, double linger, const volatile sig_atomic_t *ended)
{
    zmq_pollitem_t items[] = {{.socket = server->zap, .events = ZMQ_POLLIN},
                              {.socket = server->socket, .events = ZMQ_POLLIN}};
    double asked = monotonic_seconds();
    int64_t amended = server->coordinator->federation->compiled.amended;
    while (!*ended && !server->coordinator->diverged && !coordinator_is_needless(server->coordinator) &&
           !(coordinator_is_done(server->coordinator) && monotonic_seconds() - asked > linger)) {
        zmq_poll(items, 2, 200);
        if (items[0].revents & ZMQ_POLLIN) wire_zap_answer(server->zap, server->known);
        if (items[1].revents & ZMQ_POLLIN) {
            answer(server);
            asked = monotonic_seconds();
        }
        items[0].revents = items[1].revents = 0;
        coordinator_tick(server->coordinator, monotonic_seconds());
        if (server->coordinator->federation->compiled.amended == amended) continue;
        amended = server->coordinator->federation->compiled.amended;
        know_sites(server->known, server->coordinator->federation);
    }
}
