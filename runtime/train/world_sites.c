#include <stdlib.h>

#include "runtime/train/world_parts.h"

/* NULL in programs without the wire. */
#pragma weak world_bridge
extern const WorldBridge world_bridge;

static void find_leaders(WorldSites *sites, int rank_count)
{
    int here = 0;
    for (int s = 0; s < sites->count; s++) sites->leader[s] = -1;
    for (int r = 0; r < rank_count; r++) {
        int site = (int)sites->rank_sites[r];
        sites->local_rank[r] = site == sites->site ? here++ : -1;
        if (sites->leader[site] < 0) sites->leader[site] = r;
        sites->size[site]++;
    }
}

/* Collective. Whether the ranks started here are those of this site. */
static bool check_ranks(World *world, const SkyProgram *program, const WorldSites *sites, Diagnostics *diagnostics)
{
    static const char hint[] = "start it with the train script of the site";
    int expected = sites->size[sites->site], mine = (int)program->rank;
    if (world->size != expected)
        return run_error(diagnostics, hint, "site %s has %d ranks in this run, but %d were started",
                         sites->names[sites->site], expected, world->size);
    FREED int *all = memory_allocate((size_t)world->size * sizeof *all);
    world_allgather(world, &mine, sizeof mine, all, "the ranks of the site");
    bool ok = true;
    for (int i = 0; i < world->size && ok; i++) {
        bool known = all[i] >= 0 && (uint32_t)all[i] < program->rank_count && sites->local_rank[all[i]] == i;
        if (!known)
            ok =
                run_error(diagnostics, hint, "the program of rank %d is not this site's, or was started twice", all[i]);
    }
    return ok;
}

static WorldSites *make_sites(const SkyProgram *program)
{
    size_t ranks = program->rank_count, count = program->site_count;
    WorldSites *sites = memory_allocate(sizeof *sites);
    *sites = (WorldSites){.bridge = &world_bridge,
                          .site = (int)program->site,
                          .count = (int)count,
                          .names = program->site_names,
                          .rank_sites = program->rank_sites};
    sites->local_rank = arena_new_array(&sites->arena, int, ranks);
    sites->leader = arena_new_array(&sites->arena, int, count);
    sites->size = arena_new_array(&sites->arena, int, count);
    sites->answers = arena_new_array(&sites->arena, uint64_t, ranks);
    sites->uniting.received = arena_new_array(&sites->arena, uint32_t, count);
    find_leaders(sites, (int)ranks);
    return sites;
}

static void free_sites(WorldSites *sites)
{
    arena_free(&sites->arena);
    free(sites);
}

/* Reports an error if there is no wire to the gateway; the result is valid anyway. */
static WorldSites *open_sites(World *world, const SkyProgram *program, Diagnostics *diagnostics)
{
    const char *gateway = getenv("SKYCC_GATEWAY");
    if (!&world_bridge) bug("a program of several sites that was linked without the wire");
    WorldSites *sites = make_sites(program);
    if (!check_ranks(world, program, sites, diagnostics)) return sites;
    if (gateway)
        sites->client = sites->bridge->open(program, gateway, diagnostics);
    else
        run_error(diagnostics, "start it with the train script of the site",
                  "SKYCC_GATEWAY does not say where the gateway of the site is");
    return sites;
}

bool world_meet_sites(World *world, const SkyProgram *program, Diagnostics *diagnostics, int *exit_code)
{
    if (program->site_count < 2) return true;
    WorldSites *sites = open_sites(world, program, diagnostics);
    if (!world_agree(world, diagnostics, exit_code)) {
        if (sites->client) sites->bridge->close(sites->client);
        free_sites(sites);
        return false;
    }
    MPI_Comm_dup(world->control, &sites->uniting.communicator);
    world->sites = sites;
    world->rank = (int)program->rank;
    world->size = (int)program->rank_count;
    return true;
}

int world_site(const World *world) { return world->sites ? world->sites->site : -1; }

const char *world_site_name(const World *world, int site) { return world->sites ? world->sites->names[site] : NULL; }

bool world_speaks(const World *world) { return world->sites ? world_leads(world) : world->rank == 0; }

void world_note(World *world, bool evaluation, int64_t number, uint32_t microbatches)
{
    if (world_leads(world)) world->sites->bridge->note(world, evaluation, number, microbatches);
}

void world_leave_sites(World *world)
{
    if (!world->sites) return;
    world->sites->bridge->close(world->sites->client);
    MPI_Comm_free(&world->sites->uniting.communicator);
    free_sites(world->sites);
    world->sites = NULL;
}
