#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/launch/peers.h"
#include "runtime/program/parallel.h"
#include "runtime/train/world_parts.h"

static World *failing_world; /* MPI error handlers carry no context */

static void on_mpi_error(MPI_Comm *communicator, int *code, ...)
{
    (void)communicator;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(*code, text, &length);
    world_fail(failing_world, "communication failed: %.*s", length, text);
}

/* All ranks, in the order of their programs, which the launcher need not keep. */
static MPI_Comm ordered(const SkyProgram *program, MPI_Errhandler handler)
{
    MPI_Comm communicator;
    MPI_Comm_split(MPI_COMM_WORLD, 0, (int)program->rank, &communicator);
    MPI_Comm_set_errhandler(communicator, handler);
    return communicator;
}

void world_open(World *world, const SkyProgram *program, double timeout, volatile int64_t *step)
{
    *world = (World){.device = program->device_name,
                     .has_replicas = program->replica_count > 1,
                     .timeout = timeout,
                     .step = step,
                     .shares_cores = true};
    failing_world = world;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_mpi_error, &handler);
    world->data = ordered(program, handler);
    world->control = ordered(program, handler);
    MPI_Errhandler_free(&handler);
    MPI_Comm_rank(world->data, &world->rank);
    MPI_Comm_size(world->data, &world->size);
    world_await_question(world);
    prctl(PR_SET_TIMERSLACK, 1000UL); /* the default adds 50 us to every short sleep */
}

/* ---- Hosts ---- */

enum { MOST_ADDRESSES = 16 };

typedef struct RankPlace {
    struct RankName name;
    char bells[DOORBELL_NAME];
    int threads, processors;            /* of this rank; those that it may use */
    cpu_set_t mask;                     /* these processors; empty if this thread is bound to some of them */
    uint32_t addresses[MOST_ADDRESSES]; /* of its host, IPv4; 0: none */
} RankPlace;

static void note_addresses(RankPlace *place)
{
    Peers own = {.count = 0};
    peers_add_own(&own);
    for (size_t a = 0; a < own.count && a < MOST_ADDRESSES; a++) place->addresses[a] = own.subnets[a].address;
}

/* From now on only hosts of this run can connect to this process. MPI refuses foreign messages too, but only after they
 * connect. */
static void keep_strangers_out(const World *world, const RankPlace *places)
{
    Peers peers = {.count = 0};
    bool all = true;
    for (int r = 0; r < world->size; r++)
        for (int a = 0; a < MOST_ADDRESSES && places[r].addresses[a] && !world_is_far(world, r); a++)
            all = peers_add_subnet(&peers, (Subnet){places[r].addresses[a], UINT32_MAX}) && all;
    if (all) peers_guard_own(&peers);
    peers_close_launcher();
}

/* Whether `mine` holds on all ranks of this host. */
static bool all_near(World *world, bool mine)
{
    FREED bool *all = memory_allocate((size_t)world->size);
    world_allgather(world, &mine, sizeof mine, all, "agreement on shared memory");
    for (int r = 0; r < world->size; r++)
        if (!all[r] && world->near[r]) return false;
    return true;
}

/* The first rank of each host makes its bells. */
static void hang_bells(World *world, const RankPlace *places)
{
    int first = world->first_here;
    const char *name = places[first].bells;
    Bell *bells = first == world->rank ? doorbell_map(name, world->size, true) : NULL;
    world_barrier(world, "shared memory");
    if (first != world->rank) bells = doorbell_map(name, world->size, false);
    bool hung = all_near(world, bells != NULL);
    if (first == world->rank) doorbell_unlink(name);
    if (hung && world->shares_cores)
        world->bells = bells;
    else
        doorbell_unmap(bells, world->size);
}

static void note_processors(RankPlace *place)
{
    place->processors = parallel_processors();
    if (sched_getaffinity(0, sizeof place->mask, &place->mask) != 0 || CPU_COUNT(&place->mask) != place->processors)
        CPU_ZERO(&place->mask);
}

/* The number of processors that the ranks of this host may use together. */
static long count_cores(const World *world, const RankPlace *places)
{
    cpu_set_t all;
    long bound = 0, online = sysconf(_SC_NPROCESSORS_ONLN);
    CPU_ZERO(&all);
    for (int r = 0; r < world->size; r++) {
        if (!world->near[r]) continue;
        if (CPU_COUNT(&places[r].mask))
            CPU_OR(&all, &all, &places[r].mask);
        else
            bound += places[r].processors;
    }
    return CPU_COUNT(&all) + bound < online ? CPU_COUNT(&all) + bound : online;
}

void world_meet_hosts(World *world, int threads)
{
    RankPlace mine = {.threads = threads};
    FREED RankPlace *all = memory_allocate((size_t)world->size * sizeof *all);
    gethostname(mine.name.host, sizeof mine.name.host - 1);
    snprintf(mine.name.device, sizeof mine.name.device, "%s", world->device);
    doorbell_name(mine.bells);
    note_addresses(&mine);
    note_processors(&mine);
    world_allgather(world, &mine, sizeof mine, all, "hosts");
    long here = 0;
    world->one_host = true;
    world->near = memory_allocate((size_t)world->size * sizeof *world->near);
    world->names = memory_allocate((size_t)world->size * sizeof *world->names);
    for (int r = 0; r < world->size; r++) {
        world->names[r] = all[r].name;
        world->near[r] = !world_is_far(world, r) && strcmp(all[r].name.host, mine.name.host) == 0;
        if (world->near[r]) here += all[r].threads;
        world->one_host = world->one_host && world->near[r];
    }
    while (!world->near[world->first_here]) world->first_here++;
    /* Messages between sites take long, so whoever waits for them leaves the cores to others. */
    world->shares_cores = here > count_cores(world, all) || world->sites || parallel_waits_passively();
    hang_bells(world, all);
    keep_strangers_out(world, all);
}

/* Nobody waits for the answer to a last question: a rank that is stopped or gone by now does not hold up this one. */
static void finish_answers(World *world)
{
    double start = monotonic_seconds();
    while (world->request_count > 1 && (world->timeout <= 0 || world->last_progress - start < world->timeout))
        world_progress(world);
}

void world_close(World *world)
{
    world_barrier(world, "the end of the run");
    finish_answers(world);
    if (world->request_count == 1) {
        MPI_Cancel(&world->requests[0]); /* the receive of questions, which end here */
        MPI_Request_free(&world->requests[0]);
    }
    world_leave_sites(world);
    MPI_Comm_free(&world->data);
    MPI_Comm_free(&world->control);
    doorbell_unmap(world->bells, world->size);
    free(world->near);
    free(world->names);
    free(world->requests);
    free(world->pending);
    free(world->is_send);
    free(world->completed);
    world->request_count = 0;
}
