#include "runtime/handshake.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

typedef struct Card {
    uint32_t version, rank, rank_count, total_stage_count, microbatch_count, microbatch_size;
    Hash plan, model;
    char device[64];
} Card;

static Hash hash_text(const char *text) { return hash_bytes(text, strlen(text)); }

/* What is wrong with rank r's card, or NULL. */
static const char *problem(const Card *cards, int r, int world_size, Arena *arena)
{
    const Card *card = &cards[r], *first = &cards[0];
    if (card->version != SKY_PROGRAM_VERSION)
        return arena_format(arena, "has a program of version %u, the runtime is version %d", card->version,
                            SKY_PROGRAM_VERSION);
    if (card->rank_count != (uint32_t)world_size)
        return arena_format(arena, "was compiled for %u ranks, but %d were started", card->rank_count, world_size);
    if (memcmp(&card->model, &first->model, sizeof card->model) != 0)
        return "was compiled from another model than rank 0";
    if (memcmp(&card->plan, &first->plan, sizeof card->plan) != 0 ||
        card->total_stage_count != first->total_stage_count || card->microbatch_count != first->microbatch_count ||
        card->microbatch_size != first->microbatch_size)
        return "was compiled for another plan than rank 0";
    if (card->rank != (uint32_t)r)
        return arena_format(arena, "runs the program of rank %u, which runs elsewhere too", card->rank);
    return NULL;
}

bool handshake(World *world, const SkyProgram *program, Diagnostics *diagnostics)
{
    Card mine = {.version = program->version,
                 .rank = program->rank,
                 .rank_count = program->rank_count,
                 .total_stage_count = program->total_stage_count,
                 .microbatch_count = program->microbatch_count,
                 .microbatch_size = program->microbatch_size,
                 .plan = hash_text(program->plan_hash),
                 .model = hash_text(program->model_hash)};
    strncpy(mine.device, program->device_name, sizeof mine.device - 1);
    Card *cards = memory_allocate((size_t)world->size * sizeof *cards);
    world_allgather(world, &mine, sizeof mine, cards, "the handshake");
    bool ok = true;
    for (int r = 0; r < world->size; r++) {
        Arena arena = {0};
        const char *what = problem(cards, r, world->size, &arena);
        if (what)
            ok = diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_NONE,
                                   "start all programs of one output directory with its train script or run.mpi",
                                   "rank %d (%s) %s", r, cards[r].device, what);
        arena_free(&arena);
    }
    free(cards);
    return ok;
}

void handshake_warm_up(World *world, const SkyProgram *program)
{
    enum { LARGE = 1 << 17 };
    char *buffers = memory_allocate(2 * (size_t)LARGE);
    for (uint32_t s = 0; s + 1 < program->total_stage_count; s++) {
        int from = (int)program->stage_rank[s], to = (int)program->stage_rank[s + 1], pending = 0;
        if (from == to || (from != world->rank && to != world->rank)) continue;
        int peer = from == world->rank ? to : from;
        world_receive(world, buffers, LARGE, peer, TAG_WARM_UP, &pending);
        world_send(world, buffers + LARGE, LARGE, peer, TAG_WARM_UP, &pending);
        world_wait(world, &pending, (WaitReason){peer, (int)(from == world->rank ? s + 1 : s), -1, "a first message"});
    }
    free(buffers);
    world_barrier(world, "the other links");
}
