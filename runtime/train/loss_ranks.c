#include "runtime/train/loss_ranks.h"

#include <stdlib.h>

void loss_ranks_open(LossRanks *losses, World *world, const SkyProgram *program)
{
    uint32_t mine = 0;
    FREED uint32_t *all = memory_allocate((size_t)world->size * sizeof *all);
    for (uint32_t s = 0; s < program->stage_count; s++) mine += program->stages[s].has_loss;
    *losses = (LossRanks){
        .world = world, .ranks = memory_allocate((size_t)world->size * sizeof *losses->ranks), .here = mine > 0};
    world_allgather(world, &mine, sizeof mine, all, "agreement on the loss");
    for (int r = 0; r < world->size; r++)
        if (all[r]) losses->ranks[losses->count++] = r;
    if (losses->count != (program->replica_count ? (int)program->replica_count : 1) || mine > 1)
        bug("%d ranks compute the loss", losses->count);
}

void loss_ranks_close(LossRanks *losses)
{
    free(losses->ranks);
    free(losses->received);
}

static void receive(LossRanks *losses, void *bytes, size_t size, int from)
{
    int pending = 0;
    if (!size) return;
    world_receive(losses->world, bytes, size, from, TAG_REPORT, &pending);
    world_wait(losses->world, &pending, (WaitReason){from, -1, -1, "the losses of its replica"});
}

void loss_ranks_bring(LossRanks *losses, const void *mine, size_t size,
                      void (*take)(void *context, const void *bytes, size_t size), void *context)
{
    int first = losses->ranks[0], pending = 0;
    uint64_t bytes = size;
    if (!losses->here) return;
    if (losses->world->rank != first) {
        world_send(losses->world, &bytes, sizeof bytes, first, TAG_REPORT, &pending);
        if (size) world_send(losses->world, mine, size, first, TAG_REPORT, &pending);
        world_wait(losses->world, &pending, (WaitReason){first, -1, -1, "its receipt of losses"});
        return;
    }
    for (int i = 1; i < losses->count; i++) {
        receive(losses, &bytes, sizeof bytes, losses->ranks[i]);
        if (bytes > losses->capacity)
            losses->received = memory_resize(losses->received, losses->capacity = bytes, sizeof *losses->received);
        receive(losses, losses->received, bytes, losses->ranks[i]);
        take(context, losses->received, bytes);
    }
}

static void add(void *context, const void *bytes, size_t size)
{
    double *sum = context;
    const double *numbers = bytes;
    for (size_t i = 0; i < size / sizeof *numbers; i++) sum[i] += numbers[i];
}

static void count_all(void *context, const void *bytes, size_t size)
{
    int64_t *sum = context;
    const int64_t *numbers = bytes;
    for (size_t i = 0; i < size / sizeof *numbers; i++) sum[i] += numbers[i];
}

void loss_ranks_add(LossRanks *losses, double *numbers, size_t count)
{
    loss_ranks_bring(losses, numbers, count * sizeof *numbers, add, numbers);
}

void loss_ranks_count(LossRanks *losses, int64_t *numbers, size_t count)
{
    loss_ranks_bring(losses, numbers, count * sizeof *numbers, count_all, numbers);
}
