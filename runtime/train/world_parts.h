/* What the files world_*.c share. */
#ifndef RUNTIME_TRAIN_WORLD_PARTS_H
#define RUNTIME_TRAIN_WORLD_PARTS_H

#include "runtime/train/world.h"

/* How ranks of other sites are reached. Programs of a run in one site are linked without it, and so without libzmq:
 * `world_bridge` is a weak reference then, and absent. Wire tags are those of the world, shifted. */
typedef struct WorldBridge {
    struct WireClient *(*open)(const SkyProgram *program, const char *gateway, Diagnostics *diagnostics);
    void (*close)(struct WireClient *client);
    void (*send)(World *world, const void *bytes, size_t size, int peer, int tag); /* copies */
    void (*receive)(World *world, void *bytes, size_t size, int peer, int tag, int *pending);
    void (*progress)(World *world); /* ends the run where a site asks for it */
    void (*sleep)(World *world, double seconds);
    /* Asks whether it lives; how often it has answered so far. */
    uint64_t (*ask)(World *world, int peer);
    /* Who has not answered since: "" the peer itself, else whoever stands between. NULL: it has, or its site is away
     * and is waited for. */
    const char *(*silent)(const World *world, int peer, uint64_t answers);
    void (*fail)(World *world, int exit_code, const char *why);
    void (*note)(World *world, bool evaluation, int64_t number, uint32_t microbatches);
} WorldBridge;

/* world_unite on its way: within the site, among leaders, within the site. It has a communicator of its own, because
 * other collectives come and go meanwhile, and those of one communicator must begin in the same order everywhere. */
typedef struct WorldUnion {
    enum { UNION_NONE, UNION_GATHERING, UNION_EXCHANGING, UNION_HANDING_OUT } stage;
    MPI_Comm communicator;
    uint32_t *bits;
    int *whole; /* what its caller waits for */
    int pending;
    uint32_t *received; /* per site */
} WorldUnion;

typedef struct WorldSites {
    Arena arena;
    const WorldBridge *bridge;
    struct WireClient *client;
    int site, count;
    const char *const *names;   /* per site */
    const uint32_t *rank_sites; /* per rank */
    int *local_rank;            /* per rank: its number in this site's communicators; -1: of another site */
    int *leader, *size;         /* per site: its first rank, how many it has */
    uint64_t *answers;          /* per rank of another site: how often it said that it is alive */
    WorldUnion uniting;
} WorldSites;

static inline bool world_is_far(const World *world, int rank)
{
    return world->sites && world->sites->local_rank[rank] < 0;
}
static inline int world_mpi_rank(const World *world, int rank)
{
    return world->sites ? world->sites->local_rank[rank] : rank;
}
static inline bool world_leads(const World *world)
{
    return world->sites && world->sites->leader[world->sites->site] == world->rank;
}

/* To be called where a rank begins to wait for a collective: the last one of this host wakes the others. Where ranks
 * run ahead of each other it may do so too early; then they sleep a little longer. */
void world_arrive(const World *world);
/* Notes a request of MPI, and adds 1 to *pending. */
void world_add_request(World *world, MPI_Request request, int *pending, bool is_send);
/* Answers the first question whether this rank lives. */
void world_await_question(World *world);
/* Tells the gateway that this rank is done, if there are sites. */
void world_leave_sites(World *world);

#endif
