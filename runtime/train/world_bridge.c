/* The wire as World uses it. Only programs of several sites link this file; others find world_bridge NULL. */
#include <stdlib.h>

#include "runtime/train/world_parts.h"
#include "runtime/wire/client.h"

static WireClient *open_bridge(const SkyProgram *program, const char *gateway, Diagnostics *diagnostics)
{
    const WireClientOptions options = {.gateway = gateway,
                                       .key = getenv("SKYCC_SITE_KEY"),
                                       .rank = (int)program->rank,
                                       .rank_count = (int)program->rank_count,
                                       .site = (int)program->site,
                                       .site_count = (int)program->site_count};
    return wire_client_open(&options, diagnostics);
}

static void send_far(World *world, const void *bytes, size_t size, int peer, int tag)
{
    wire_client_send(world->sites->client, peer, tag, bytes, size);
}

static void receive_far(World *world, void *bytes, size_t size, int peer, int tag, int *pending)
{
    wire_client_receive(world->sites->client, peer, tag, bytes, size, pending);
}

static void take(void *context, int from, int tag, const void *bytes, size_t size)
{
    World *world = context;
    (void)bytes, (void)size;
    if (from < 0 || from >= world->size) return;
    if (tag == WIRE_QUESTION) wire_client_send(world->sites->client, from, WIRE_ANSWER, NULL, 0);
    if (tag == WIRE_ANSWER) world->sites->answers[from]++;
}

/* Ends the run if that site asks for it. */
static void heed(World *world, int site)
{
    const WireSiteState *state = wire_client_state(world->sites->client, site);
    const char *name = world->sites->names[site];
    if (state->state == WIRE_RETURNED)
        world_end(world, EXIT_SITE_RETURNED, "site %s began anew, and so must this one", name);
    if (state->state == WIRE_GIVEN_UP)
        world_fail(world, "site %s has been away for longer than --site-timeout%s%s", name, *state->why ? ": " : "",
                   state->why);
    if (state->state == WIRE_ENDED)
        world_end(world, state->exit_code > 0 && state->exit_code < 256 ? state->exit_code : EXIT_RUN_FAILED,
                  "site %s ended the run: %s", name, state->why);
}

static void progress_far(World *world)
{
    WireClient *client = world->sites->client;
    wire_client_progress(client, take, world);
    for (int s = 0; s < world->sites->count; s++)
        if (s != world->sites->site) heed(world, s);
    if (wire_client_is_lost(client))
        world_end(world, EXIT_SITE_RETURNED, "the gateway of site %s is gone", world->sites->names[world->sites->site]);
}

static void sleep_far(World *world, double seconds) { wire_client_sleep(world->sites->client, seconds); }

static uint64_t ask_far(World *world, int peer)
{
    wire_client_send(world->sites->client, peer, WIRE_QUESTION, NULL, 0);
    return world->sites->answers[peer];
}

static const char *silent_far(const World *world, int peer, uint64_t answers)
{
    int site = (int)world->sites->rank_sites[peer];
    if (!wire_client_has_joined(world->sites->client)) return "the gateway of this site";
    bool is_up = wire_client_state(world->sites->client, site)->state == WIRE_UP;
    return is_up && world->sites->answers[peer] == answers ? "" : NULL;
}

static void fail_far(World *world, int exit_code, const char *why)
{
    wire_client_fail(world->sites->client, exit_code, why);
}

static void note_far(World *world, bool evaluation, int64_t number, uint32_t microbatches)
{
    wire_client_note(world->sites->client, evaluation ? WIRE_NOTE_EVALUATION : WIRE_NOTE_STEP, number, microbatches);
}

extern const WorldBridge world_bridge;
const WorldBridge world_bridge = {.open = open_bridge,
                                  .close = wire_client_close,
                                  .send = send_far,
                                  .receive = receive_far,
                                  .progress = progress_far,
                                  .sleep = sleep_far,
                                  .ask = ask_far,
                                  .silent = silent_far,
                                  .fail = fail_far,
                                  .note = note_far};
