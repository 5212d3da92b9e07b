/* Collectives: MPI's inside a site; between sites the leaders exchange what they gathered. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "runtime/train/world_parts.h"

enum { PIECE = 1 << 20 }; /* a site passes messages on up to some size only */

static void await(World *world, MPI_Request request, const char *what)
{
    int pending = 0;
    world_add_request(world, request, &pending, false);
    world_arrive(world);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

static void check_size(size_t size)
{
    if (size > INT_MAX) bug("collective of %zu bytes", size);
}

/* ---- Among leaders ---- */

/* Sends one message even for no bytes, because the receiver waits for one. */
static void send_pieces(World *world, const void *bytes, size_t size, int peer, int tag)
{
    size_t done = 0;
    do {
        size_t piece = size - done < PIECE ? size - done : PIECE;
        world->sites->bridge->send(world, size ? (const char *)bytes + done : NULL, piece, peer, tag);
        done += piece;
    } while (done < size);
}

static void receive_pieces(World *world, void *bytes, size_t size, int peer, int tag, int *pending)
{
    size_t done = 0;
    do {
        size_t piece = size - done < PIECE ? size - done : PIECE;
        world->sites->bridge->receive(world, size ? (char *)bytes + done : NULL, piece, peer, tag, pending);
        done += piece;
    } while (done < size);
}

/* Every leader sends its bytes to every other leader; received[s] gets the sizes[s] bytes of site s. */
static void exchange(World *world, const void *mine, size_t size, void *const *received, const size_t *sizes, int tag,
                     const char *what)
{
    const WorldSites *sites = world->sites;
    int pending = 0;
    for (int s = 0; s < sites->count; s++) {
        if (s == sites->site) continue;
        receive_pieces(world, received[s], sizes[s], sites->leader[s], tag, &pending);
        send_pieces(world, mine, size, sites->leader[s], tag);
    }
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
}

/* Broadcasts within the site, from its leader (local rank 0). */
static void hand_out(World *world, void *bytes, size_t size, const char *what)
{
    MPI_Request request;
    check_size(size);
    MPI_Ibcast(bytes, (int)size, MPI_BYTE, 0, world->control, &request);
    await(world, request, what);
}

/* ---- All to all ---- */

static void gather_here(World *world, const void *mine, size_t size, void *all, const char *what)
{
    MPI_Request request;
    check_size(size);
    MPI_Iallgather(mine, (int)size, MPI_BYTE, all, (int)size, MPI_BYTE, world->control, &request);
    await(world, request, what);
}

/* Copies blocks from the order of sites to the order of ranks. */
static void put_in_order(const WorldSites *sites, const char *blocks, size_t size, int rank_count, char *all)
{
    size_t done = 0;
    for (int s = 0; s < sites->count; s++)
        for (int r = 0; r < rank_count; r++)
            if ((int)sites->rank_sites[r] == s) memcpy(all + (size_t)r * size, blocks + size * done++, size);
}

void world_allgather(World *world, const void *mine, size_t size, void *all, const char *what)
{
    const WorldSites *sites = world->sites;
    if (!sites) {
        gather_here(world, mine, size, all, what);
        return;
    }
    size_t total = (size_t)world->size * size, offset = 0;
    FREED char *blocks = memory_allocate(total);
    FREED void **block = memory_allocate((size_t)sites->count * sizeof *block);
    FREED size_t *sizes = memory_allocate((size_t)sites->count * sizeof *sizes);
    for (int s = 0; s < sites->count; s++) {
        block[s] = blocks + offset;
        sizes[s] = (size_t)sites->size[s] * size;
        offset += sizes[s];
    }
    gather_here(world, mine, size, block[sites->site], what);
    if (world_leads(world)) exchange(world, block[sites->site], sizes[sites->site], block, sizes, WIRE_GATHER, what);
    hand_out(world, blocks, total, what);
    put_in_order(sites, blocks, size, world->size, all);
}

void world_broadcast(World *world, int tag, void *bytes, size_t size, int root, const char *what)
{
    const WorldSites *sites = world->sites;
    bool here = !world_is_far(world, root);
    int pending = 0;
    check_size(size);
    if (here) {
        MPI_Request request;
        MPI_Ibcast(bytes, (int)size, MPI_BYTE, world_mpi_rank(world, root), world->control, &request);
        await(world, request, what);
        for (int s = 0; world_leads(world) && s < sites->count; s++)
            if (s != sites->site) send_pieces(world, bytes, size, sites->leader[s], tag);
        return;
    }
    if (world_leads(world)) {
        int from = sites->leader[sites->rank_sites[root]];
        receive_pieces(world, bytes, size, from, tag, &pending);
        world_wait(world, &pending, (WaitReason){from, -1, -1, what});
    }
    hand_out(world, bytes, size, what);
}

/* Adds the sites' values in the order of the sites. */
static void sum_sites(World *world, double *values, size_t count, const char *what)
{
    const WorldSites *sites = world->sites;
    FREED double *all = memory_allocate((size_t)sites->count * count * sizeof *all);
    FREED void **block = memory_allocate((size_t)sites->count * sizeof *block);
    FREED size_t *sizes = memory_allocate((size_t)sites->count * sizeof *sizes);
    for (int s = 0; s < sites->count; s++) {
        block[s] = all + (size_t)s * count;
        sizes[s] = count * sizeof *all;
    }
    memcpy(block[sites->site], values, count * sizeof *values);
    exchange(world, values, count * sizeof *values, block, sizes, WIRE_SUM, what);
    memset(values, 0, count * sizeof *values);
    for (int s = 0; s < sites->count; s++)
        for (size_t i = 0; i < count; i++) values[i] += all[(size_t)s * count + i];
}

void world_sum(World *world, double *values, size_t count, const char *what)
{
    int pending = 0;
    check_size(count * sizeof *values);
    for (size_t done = 0; done < count; done += SKY_NORM_PIECE) { /* all under way at once */
        MPI_Request request;
        int piece = (int)(count - done < SKY_NORM_PIECE ? count - done : SKY_NORM_PIECE);
        MPI_Iallreduce(MPI_IN_PLACE, values + done, piece, MPI_DOUBLE, MPI_SUM, world->control, &request);
        world_add_request(world, request, &pending, false);
    }
    world_arrive(world);
    world_wait(world, &pending, (WaitReason){-1, -1, -1, what});
    if (!world->sites) return;
    if (world_leads(world)) sum_sites(world, values, count, what);
    hand_out(world, values, count * sizeof *values, what);
}

static void meet_here(World *world, const char *what)
{
    MPI_Request request;
    MPI_Ibarrier(world->control, &request);
    await(world, request, what);
}

uint32_t world_largest(World *world, uint32_t mine, const char *what)
{
    FREED uint32_t *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, what);
    for (int r = 0; r < world->size; r++)
        if (all[r] > mine) mine = all[r];
    return mine;
}

void world_barrier(World *world, const char *what)
{
    meet_here(world, what);
    if (!world->sites) return;
    FREED void **nothing = memory_allocate((size_t)world->sites->count * sizeof *nothing);
    FREED size_t *sizes = memory_allocate((size_t)world->sites->count * sizeof *sizes);
    if (world_leads(world)) exchange(world, NULL, 0, nothing, sizes, WIRE_BARRIER, what);
    meet_here(world, what);
}

/* ---- Errors ---- */

enum { REASON_BYTES = 800 };

static void write_reason(char reason[REASON_BYTES], const Diagnostics *diagnostics)
{
    const Diagnostic *d = diagnostics->first;
    while (d && !d->is_error) d = d->next;
    if (!d) return;
    const char *file = d->place.file ? d->place.file : "", *object = d->place.object ? d->place.object : "";
    snprintf(reason, REASON_BYTES, "%s%s%s%s%s%s%s%s", file, *file ? ": " : "", object, *object ? ": " : "", d->message,
             d->hint ? " (" : "", d->hint ? d->hint : "", d->hint ? ")" : "");
}

/* Collective: every site reports why the run ends. A site without errors repeats those of rank `first`. Also says which
 * site has the ranks that messages name. */
static void say_at_sites(World *world, const Diagnostics *diagnostics, bool fails_here, int first)
{
    const WorldSites *sites = world->sites;
    char mine[REASON_BYTES] = "";
    FREED char *all = memory_allocate((size_t)world->size * REASON_BYTES);
    FREED_WITH(buffer_free) Buffer line = {0};
    if (world->rank == first) write_reason(mine, diagnostics);
    world_allgather(world, mine, sizeof mine, all, "agreement");
    if (world_leads(world) && !fails_here)
        text_print(stderr, "skycc: error: site %s ended the run: rank %d: %.*s\n",
                   sites->names[sites->rank_sites[first]], first, REASON_BYTES - 1, all + (size_t)first * REASON_BYTES);
    for (int r = 0; r < world->size; r++)
        text_format(&line, "%s %d %s", r ? "," : "skycc: ranks and their sites:", r,
                    sites->names[sites->rank_sites[r]]);
    if (world_leads(world)) text_print(stderr, "%s\n", buffer_text(&line));
}

/* The lowest rank of this site that has an error; -1: none. */
static int first_failing(const World *world, const int *codes)
{
    for (int r = 0; r < world->size; r++)
        if (!world_is_far(world, r) && codes[r] != EXIT_OK) return r;
    return -1;
}

bool world_agree(World *world, Diagnostics *diagnostics, int *exit_code)
{
    int mine = diagnostics->errors ? diagnostics->exit_code : EXIT_OK, first = -1;
    FREED int *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "agreement");
    for (int r = world->size - 1; r >= 0; r--)
        if (all[r] != EXIT_OK) first = r;
    int speaker = first < 0 ? 0 : first_failing(world, all);
    if (world->rank == speaker) diagnostics_print(diagnostics, stderr);
    if (first >= 0 && world->sites) say_at_sites(world, diagnostics, speaker >= 0, first);
    if (first >= 0) *exit_code = all[first];
    diagnostics_free(diagnostics);
    return first < 0;
}
