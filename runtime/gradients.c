#include "runtime/gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/step.h"

#define NOT_HELD UINT32_MAX

typedef struct Holder {
    uint32_t stage;
    int rank;
} Holder;

static int by_stage(const void *a, const void *b)
{
    const Holder *left = a, *right = b;
    return left->stage < right->stage ? -1 : left->stage > right->stage;
}

/* The next parameter of this rank with that global index, from stage *stage on; NULL after the last. */
static const SkyParameter *held(const Execution *execution, uint32_t global_index, uint32_t *stage)
{
    for (; *stage < execution->program->stage_count; ++*stage) {
        const SkyStage *s = execution->stages[*stage].stage;
        for (uint32_t p = 0; p < s->parameter_count; p++)
            if (s->parameters[p].global_index == global_index) return &s->parameters[p];
    }
    return NULL;
}

static float *gradient_of(const Execution *execution, uint32_t stage, const SkyParameter *parameter)
{
    return execution_address(execution, stage, 0, parameter->gradient);
}

/* Writes the first stage that holds each parameter, or NOT_HELD; marks in `several` those with more than one here. */
static void list_held(const Execution *execution, uint32_t *first_stage, bool *several)
{
    const SkyProgram *program = execution->program;
    for (uint32_t i = 0; i < program->total_parameter_count; i++) first_stage[i] = NOT_HELD;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            uint32_t index = program->stages[s].parameters[p].global_index;
            if (index >= program->total_parameter_count)
                bug("parameter %u of %u", index, program->total_parameter_count);
            if (first_stage[index] == NOT_HELD)
                first_stage[index] = program->stages[s].index;
            else
                several[index] = true;
        }
}

/* Settles parameter `index` from every rank's list; returns the number of its holders. */
static int settle(Gradients *gradients, uint32_t index, const uint32_t *all, bool several_here, Holder *holders)
{
    World *world = gradients->world;
    uint32_t total = gradients->execution->program->total_parameter_count;
    int count = 0;
    bool here = all[(size_t)world->rank * total + index] != NOT_HELD;
    for (int r = 0; r < world->size; r++)
        if (all[(size_t)r * total + index] != NOT_HELD) holders[count++] = (Holder){all[(size_t)r * total + index], r};
    qsort(holders, (size_t)count, sizeof *holders, by_stage);
    gradients->owner[index] = count ? (uint32_t)holders[0].rank : NOT_HELD;
    if (!here || (count == 1 && !several_here)) return count;
    SharedParameter *shared = &gradients->shared[gradients->shared_count++];
    *shared = (SharedParameter){index, memory_allocate((size_t)count * sizeof *shared->ranks), count};
    for (int i = 0; i < count; i++) shared->ranks[i] = holders[i].rank;
    return count;
}

bool gradients_open(Gradients *gradients, const Pipeline *pipeline, double clip, Diagnostics *diagnostics)
{
    World *world = pipeline->world;
    uint32_t total = pipeline->program->total_parameter_count;
    *gradients = (Gradients){.world = world,
                             .execution = pipeline->execution,
                             .first_tag = pipeline_first_free_tag(pipeline),
                             .clip = clip,
                             .owner = memory_allocate(total * sizeof *gradients->owner),
                             .shared = memory_allocate(total * sizeof *gradients->shared),
                             .squares = memory_allocate(total * sizeof *gradients->squares)};
    uint32_t *mine = memory_allocate(total * sizeof *mine);
    uint32_t *all = memory_allocate((size_t)world->size * total * sizeof *all);
    bool *several = memory_allocate(total);
    Holder *holders = memory_allocate((size_t)world->size * sizeof *holders);
    list_held(pipeline->execution, mine, several);
    world_allgather(world, mine, total * sizeof *mine, all, "agreement on parameters");
    size_t largest = 0;
    for (uint32_t i = 0; i < total; i++) {
        int before = gradients->shared_count, count = settle(gradients, i, all, several[i], holders);
        if (gradients->shared_count == before) continue;
        uint32_t stage = 0;
        size_t bytes = held(pipeline->execution, i, &stage)->value.bytes * (size_t)(count - 1);
        if (bytes > largest) largest = bytes;
    }
    free(mine);
    free(all);
    free(several);
    free(holders);
    return memory_map(&gradients->received, largest, 1, "gradients of shared parameters", diagnostics);
}

void gradients_close(Gradients *gradients)
{
    for (int i = 0; i < gradients->shared_count; i++) free(gradients->shared[i].ranks);
    free(gradients->shared);
    free(gradients->owner);
    free(gradients->squares);
    memory_unmap(&gradients->received);
}

bool gradients_need_work(const Gradients *gradients) { return gradients->clip > 0 || gradients->shared_count > 0; }

/* The sum over this rank's stages is left in the first of them, whose gradient is returned. */
static float *sum_here(Execution *execution, uint32_t global_index, size_t *elements)
{
    uint32_t stage = 0;
    const SkyParameter *first = held(execution, global_index, &stage);
    float *sum = gradient_of(execution, stage, first);
    *elements = first->value.bytes / sizeof *sum;
    stage++;
    for (const SkyParameter *next; (next = held(execution, global_index, &stage)); stage++) {
        const float *other = gradient_of(execution, stage, next);
        for (size_t i = 0; i < *elements; i++) sum[i] += other[i];
    }
    return sum;
}

static void copy_to_others_here(Execution *execution, uint32_t global_index, const float *sum, size_t elements)
{
    uint32_t stage = 0;
    for (const SkyParameter *next; (next = held(execution, global_index, &stage)); stage++) {
        float *other = gradient_of(execution, stage, next);
        if (other != sum) memcpy(other, sum, elements * sizeof *sum);
    }
}

static void reduce(Gradients *gradients, const SharedParameter *shared)
{
    World *world = gradients->world;
    size_t elements;
    float *mine = sum_here(gradients->execution, shared->global_index, &elements);
    float *received = (float *)gradients->received.bytes;
    int tag = gradients->first_tag + (int)shared->global_index;
    for (int r = 0, other = 0; r < shared->rank_count; r++) {
        int pending = 0, peer = shared->ranks[r];
        if (peer == world->rank) continue;
        world_receive(world, received + (size_t)other++ * elements, elements * sizeof *mine, peer, tag, &pending);
        world_send(world, mine, elements * sizeof *mine, peer, tag, &pending);
        world_wait(world, &pending, (WaitReason){peer, -1, -1, "gradients of a shared parameter"});
    }
    for (size_t i = 0; i < elements; i++) {
        float sum = 0;
        for (int r = 0, other = 0; r < shared->rank_count; r++) {
            float term = shared->ranks[r] == world->rank ? mine[i] : received[(size_t)other++ * elements + i];
            sum = r == 0 ? term : sum + term;
        }
        mine[i] = sum;
    }
    copy_to_others_here(gradients->execution, shared->global_index, mine, elements);
}

void gradients_reduce(Gradients *gradients)
{
    for (int i = 0; i < gradients->shared_count; i++) reduce(gradients, &gradients->shared[i]);
}

void gradients_clip(Gradients *gradients)
{
    if (gradients->clip <= 0) return;
    Execution *execution = gradients->execution;
    uint32_t total = execution->program->total_parameter_count;
    memset(gradients->squares, 0, total * sizeof *gradients->squares);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t stage = 0;
        if (gradients->owner[i] != (uint32_t)gradients->world->rank) continue;
        const SkyParameter *parameter = held(execution, i, &stage);
        gradients->squares[i] = execution_gradient_square(execution, stage, parameter);
    }
    world_sum(gradients->world, gradients->squares, total, "the norm of the gradient"); /* one term each: exact */
    double square = 0;
    for (uint32_t i = 0; i < total; i++) square += gradients->squares[i];
    double scale = gradients->clip / (sqrt(square) + 1e-6); /* as PyTorch's clip_grad_norm_ */
    step_scalars_set(execution->step, SKY_STEP_GRADIENT_SCALE, scale < 1 ? scale : 1);
}
