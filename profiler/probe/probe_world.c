#include "profiler/probe/probe_world.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mpi.h>

#include "base/clock.h"
#include "runtime/launch/peers.h"

enum { TAG_TURN = 1, TAG_PING, TAG_PONG, TAG_RESULT, TAG_PROFILE };

void probe_world_open(ProbeWorld *world)
{
    *world = (ProbeWorld){.size = 1, .distributed = getenv("PMI_RANK") != NULL};
    if (!world->distributed) return;
    peers_note_inherited();
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &world->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world->size);
    MPI_Barrier(MPI_COMM_WORLD);
    peers_close_launcher();
}

void probe_world_close(ProbeWorld *world)
{
    if (world->distributed) MPI_Finalize();
}

/* MPICH waits by polling, which would disturb whoever measures on this host. */
static void wait_asleep(MPI_Request *request)
{
    for (int done = 0; MPI_Test(request, &done, MPI_STATUS_IGNORE), !done;)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

int probe_world_agree(const ProbeWorld *world, int code)
{
    if (!world->distributed) return code;
    int greatest;
    MPI_Request request;
    MPI_Iallreduce(&code, &greatest, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
    wait_asleep(&request);
    return greatest;
}

bool probe_world_speaks(const ProbeWorld *world, Hash said)
{
    if (!world->distributed) return true;
    FREED Hash *all = memory_allocate((size_t)world->size * sizeof *all);
    MPI_Request request;
    MPI_Iallgather(&said, sizeof said, MPI_BYTE, all, sizeof said, MPI_BYTE, MPI_COMM_WORLD, &request);
    wait_asleep(&request);
    bool alone = true;
    for (int rank = 0; rank < world->rank; rank++) alone = alone && !hash_equal(all[rank], said);
    return alone;
}

static void receive_asleep(void *data, int bytes, int from, int tag)
{
    MPI_Request request;
    MPI_Irecv(data, bytes, MPI_BYTE, from, tag, MPI_COMM_WORLD, &request);
    wait_asleep(&request);
}

static void send_asleep(const void *data, int bytes, int to, int tag)
{
    MPI_Request request;
    MPI_Isend(data, bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &request);
    wait_asleep(&request);
}

/* ---- Turns ---- */

static bool same_host(const Cluster *cluster, int a, int b)
{
    return strcmp(cluster->devices[a].host, cluster->devices[b].host) == 0;
}

void probe_world_begin_turn(const ProbeWorld *world, const Cluster *cluster)
{
    for (int before = world->rank - 1; before >= 0; before--)
        if (same_host(cluster, before, world->rank)) {
            receive_asleep(NULL, 0, before, TAG_TURN);
            return;
        }
}

void probe_world_end_turn(const ProbeWorld *world, const Cluster *cluster)
{
    for (int next = world->rank + 1; next < world->size; next++)
        if (same_host(cluster, next, world->rank)) {
            send_asleep(NULL, 0, next, TAG_TURN);
            return;
        }
}

/* ---- Machines ---- */

enum { TARGET_NAME = 64 };

typedef struct MachineMessage {
    char target[TARGET_NAME];
    int32_t threads, kernel_count;
    double gflops, bandwidth_Bps, copy_Bps[2], copy_latency_s;
    int64_t memory_bytes;
} MachineMessage;

void probe_world_gather(const ProbeWorld *world, const Cluster *cluster, const MachineProfile *own, Profile *profile)
{
    MachineMessage message = {.threads = own->threads,
                              .kernel_count = (int32_t)own->kernel_count,
                              .gflops = own->gflops,
                              .bandwidth_Bps = own->bandwidth_Bps,
                              .copy_Bps = {own->copy_Bps[0], own->copy_Bps[1]},
                              .copy_latency_s = own->copy_latency_s,
                              .memory_bytes = own->memory_bytes};
    snprintf(message.target, sizeof message.target, "%s", own->target);
    if (world->rank > 0) {
        send_asleep(&message, sizeof message, 0, TAG_PROFILE);
        send_asleep(own->kernels, (int)(own->kernel_count * sizeof *own->kernels), 0, TAG_PROFILE);
        return;
    }
    profile->devices = arena_new_array(&profile->arena, MachineProfile, (size_t)world->size);
    for (int rank = 0; rank < world->size; rank++) {
        MachineProfile *machine = &profile->devices[profile->device_count++];
        if (rank == 0) {
            *machine = *own;
        } else {
            receive_asleep(&message, sizeof message, rank, TAG_PROFILE);
            *machine = (MachineProfile){.target = arena_string(&profile->arena, message.target),
                                        .threads = message.threads,
                                        .gflops = message.gflops,
                                        .bandwidth_Bps = message.bandwidth_Bps,
                                        .copy_Bps = {message.copy_Bps[0], message.copy_Bps[1]},
                                        .copy_latency_s = message.copy_latency_s,
                                        .memory_bytes = message.memory_bytes,
                                        .kernel_count = (size_t)message.kernel_count};
            machine->kernels = arena_new_array(&profile->arena, KernelTime, machine->kernel_count);
            receive_asleep(machine->kernels, (int)(machine->kernel_count * sizeof(KernelTime)), rank, TAG_PROFILE);
        }
        machine->device = arena_string(&profile->arena, cluster->devices[rank].name);
    }
}

/* ---- Links ---- */

enum { PINGS = 31, LEAST_BYTES = 1 << 16, MOST_BYTES = 1 << 24, TRANSFERS = 5 };
static const double long_enough_s = 0.05; /* of a transfer: latency hardly matters */

/* Seconds from sending `bytes` until the answer of one byte is here. */
static double round_trip_s(int peer, void *data, int bytes)
{
    char answer;
    double start = monotonic_seconds();
    MPI_Send(data, bytes, MPI_BYTE, peer, TAG_PING, MPI_COMM_WORLD);
    MPI_Recv(&answer, 1, MPI_BYTE, peer, TAG_PONG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return monotonic_seconds() - start;
}

/* The least of several: whatever else happens on the machines only adds. */
static double least_round_trip_s(int peer, void *data, int bytes, int count)
{
    double least = round_trip_s(peer, data, bytes);
    for (int i = 1; i < count; i++) {
        double seconds = round_trip_s(peer, data, bytes);
        if (seconds < least) least = seconds;
    }
    return least;
}

static void measure_link(LinkProfile *link, int peer, void *data)
{
    double ping = least_round_trip_s(peer, data, 1, PINGS), transfer = 0;
    int bytes = LEAST_BYTES;
    for (;; bytes *= 2) {
        transfer = round_trip_s(peer, data, bytes);
        if (transfer > long_enough_s || bytes == MOST_BYTES) break;
    }
    transfer = least_round_trip_s(peer, data, bytes, TRANSFERS);
    MPI_Send(data, 0, MPI_BYTE, peer, TAG_PING, MPI_COMM_WORLD); /* nothing more to come */
    link->latency_s = ping / 2;
    link->bandwidth_Bps = bytes / (transfer > ping ? transfer - ping : transfer);
}

/* Answers until an empty message comes. */
static void answer_link(int peer, void *data)
{
    for (int bytes = 1; bytes > 0;) {
        MPI_Status status;
        MPI_Recv(data, MOST_BYTES, MPI_BYTE, peer, TAG_PING, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        if (bytes) MPI_Send(data, 1, MPI_BYTE, peer, TAG_PONG, MPI_COMM_WORLD);
    }
}

/* The first devices of the two zones that stand on different hosts. */
static bool representatives(const Cluster *cluster, int zone, int other, int pair[2])
{
    for (int a = 0; a < cluster->device_count; a++)
        for (int b = 0; b < cluster->device_count; b++)
            if (cluster->devices[a].zone == zone && cluster->devices[b].zone == other && !same_host(cluster, a, b))
                return pair[0] = a, pair[1] = b, true;
    return false;
}

static void measure_pair(const ProbeWorld *world, const Cluster *cluster, const int pair[2], void *data,
                         Profile *profile)
{
    LinkProfile link = {0};
    double result[2];
    if (world->rank == pair[1]) answer_link(pair[0], data);
    if (world->rank == pair[0]) {
        measure_link(&link, pair[1], data);
        result[0] = link.latency_s, result[1] = link.bandwidth_Bps;
        if (pair[0] != 0) send_asleep(result, sizeof result, 0, TAG_RESULT);
    }
    if (world->rank == 0) {
        if (pair[0] != 0) receive_asleep(result, sizeof result, pair[0], TAG_RESULT);
        link.latency_s = result[0], link.bandwidth_Bps = result[1];
        for (int i = 0; i < 2; i++) link.between[i] = arena_string(&profile->arena, cluster->devices[pair[i]].name);
        profile->links[profile->link_count++] = link;
    }
    MPI_Request everyone; /* one link at a time */
    MPI_Ibarrier(MPI_COMM_WORLD, &everyone);
    wait_asleep(&everyone);
}

void probe_world_measure_links(const ProbeWorld *world, const Cluster *cluster, Profile *profile)
{
    FREED void *data = memory_allocate(MOST_BYTES);
    size_t zones = (size_t)cluster->zone_count;
    profile->links = arena_new_array(&profile->arena, LinkProfile, zones * (zones + 1) / 2);
    for (int zone = 0; zone < cluster->zone_count; zone++)
        for (int other = zone, pair[2]; other < cluster->zone_count; other++)
            if (representatives(cluster, zone, other, pair)) measure_pair(world, cluster, pair, data, profile);
}
