#include "runtime/train/gradients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "runtime/program/norm_round.h"
#include "runtime/program/parallel.h"
#include "runtime/program/step.h"

#define NOT_HELD UINT32_MAX

/* A use that some rank holds, as ranks tell each other. */
typedef struct HeldUse {
    uint32_t global_index, number;
} HeldUse;

/* The next parameter of this rank with that global index, starting at stage *stage; NULL after the last. */
static const SkyParameter *held(const Execution *execution, uint32_t global_index, uint32_t *stage)
{
    for (; *stage < execution->program->stage_count; ++*stage) {
        const SkyStage *s = execution->stages[*stage].stage;
        for (uint32_t p = 0; p < s->parameter_count; p++)
            if (s->parameters[p].global_index == global_index) return &s->parameters[p];
    }
    return NULL;
}

/* Writes the first stage of each trained parameter, or NOT_HELD. Returns the number of uses of shared parameters. */
static uint32_t list_held(const SkyProgram *program, uint32_t *first_stage)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < program->total_parameter_count; i++) first_stage[i] = NOT_HELD;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            const SkyParameter *parameter = &program->stages[s].parameters[p];
            uint32_t index = parameter->global_index;
            if (index >= program->total_parameter_count)
                bug("parameter %u of %u", index, program->total_parameter_count);
            if (parameter->frozen) continue;
            if (first_stage[index] == NOT_HELD) first_stage[index] = program->stages[s].index;
            uses += parameter->use_count;
        }
    return uses;
}

/* A parameter belongs to the rank that has it in the earliest stage. */
static void settle_owners(Gradients *gradients, const uint32_t *mine)
{
    World *world = gradients->world;
    uint32_t total = gradients->execution->program->total_parameter_count;
    uint32_t *all = memory_allocate((size_t)world->size * total * sizeof *all);
    world_allgather(world, mine, total * sizeof *mine, all, "agreement on parameters");
    for (uint32_t i = 0; i < total; i++) {
        uint32_t first = NOT_HELD;
        gradients->owner[i] = NOT_HELD;
        for (int r = 0; r < world->size; r++) {
            uint32_t stage = all[(size_t)r * total + i];
            if (stage >= first) continue;
            first = stage;
            gradients->owner[i] = (uint32_t)r;
        }
    }
    free(all);
}

/* The uses of all ranks, *each per rank; unused entries have the index NOT_HELD. */
static HeldUse *gather_uses(const Gradients *gradients, uint32_t mine, uint32_t *each)
{
    World *world = gradients->world;
    const SkyProgram *program = gradients->execution->program;
    uint32_t *counts = memory_allocate((size_t)world->size * sizeof *counts), count = 0;
    world_allgather(world, &mine, sizeof mine, counts, "agreement on shared parameters");
    *each = 0;
    for (int r = 0; r < world->size; r++)
        if (counts[r] > *each) *each = counts[r];
    free(counts);
    HeldUse *own = memory_allocate((*each + 1) * sizeof *own);
    HeldUse *all = memory_allocate((size_t)world->size * (*each + 1) * sizeof *all);
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            const SkyParameter *parameter = &program->stages[s].parameters[p];
            for (uint32_t u = 0; u < parameter->use_count; u++)
                own[count++] = (HeldUse){parameter->global_index, parameter->uses[u].number};
        }
    for (; count < *each; count++) own[count] = (HeldUse){NOT_HELD, 0};
    if (*each) world_allgather(world, own, *each * sizeof *own, all, "agreement on shared parameters");
    free(own);
    return all;
}

static int by_number(const void *a, const void *b)
{
    const SharedUse *left = a, *right = b;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Where this rank accumulates that use. */
static float *gradient_here(const Execution *execution, HeldUse use)
{
    uint32_t stage = 0;
    for (const SkyParameter *p; (p = held(execution, use.global_index, &stage)); stage++)
        for (uint32_t u = 0; u < p->use_count; u++)
            if (p->uses[u].number == use.number) return execution_address(execution, stage, 0, p->uses[u].gradient);
    bug("parameter %u has no use %u here", use.global_index, use.number);
}

/* Lists the uses of every shared parameter that this rank holds. Returns the most bytes received for one. */
static size_t settle_shared(Gradients *gradients, const uint32_t *first_stage, const HeldUse *all, uint32_t each)
{
    World *world = gradients->world;
    const Execution *execution = gradients->execution;
    size_t most = 0, count = (size_t)world->size * each;
    for (uint32_t i = 0; i < execution->program->total_parameter_count; i++) {
        uint32_t stage = 0;
        const SkyParameter *parameter = first_stage[i] == NOT_HELD ? NULL : held(execution, i, &stage);
        if (!parameter || !parameter->use_count) continue;
        SharedParameter *shared = &gradients->shared[gradients->shared_count++];
        *shared = (SharedParameter){.global_index = i,
                                    .uses = memory_allocate(count * sizeof *shared->uses),
                                    .terms = memory_allocate(count * sizeof *shared->terms),
                                    .elements = parameter->value.bytes / sizeof(float)};
        size_t received = 0;
        for (size_t u = 0; u < count; u++) {
            if (all[u].global_index != i) continue;
            int rank = (int)(u / each);
            float *here = rank == world->rank ? gradient_here(execution, all[u]) : NULL;
            shared->uses[shared->use_count++] = (SharedUse){all[u].number, rank, here};
            if (!here) received += parameter->value.bytes;
        }
        qsort(shared->uses, (size_t)shared->use_count, sizeof *shared->uses, by_number);
        if (received > most) most = received;
    }
    return most;
}

bool gradients_open(Gradients *gradients, const Pipeline *pipeline, double clip, int64_t most_skipped,
                    Diagnostics *diagnostics)
{
    uint32_t total = pipeline->program->total_parameter_count, ranks = pipeline->program->rank_count, each;
    *gradients =
        (Gradients){.world = pipeline->world,
                    .execution = pipeline->execution,
                    .trace = pipeline->trace,
                    .tags = pipeline->tags,
                    .clip = clip,
                    .most_skipped = most_skipped,
                    .owner = memory_allocate(total * sizeof *gradients->owner),
                    .shared = memory_allocate(total * sizeof *gradients->shared),
                    .emulated = pipeline->emulate_links ? pipeline->program->norm : NULL,
                    .squares = memory_allocate((total + ranks) * sizeof *gradients->squares),
                    .begun = memory_allocate((2 * ranks + NORM_ROUND_SCRATCH(ranks)) * sizeof *gradients->begun)};
    gradients->known = gradients->begun + ranks;
    uint32_t *first_stage = memory_allocate(total * sizeof *first_stage);
    uint32_t uses = list_held(pipeline->program, first_stage);
    settle_owners(gradients, first_stage);
    HeldUse *all = gather_uses(gradients, uses, &each);
    size_t received = settle_shared(gradients, first_stage, all, each);
    free(all);
    free(first_stage);
    return memory_map(&gradients->received, received, 1, "gradients of shared parameters", diagnostics);
}

void gradients_close(Gradients *gradients)
{
    for (int i = 0; i < gradients->shared_count; i++) {
        free(gradients->shared[i].uses);
        free(gradients->shared[i].terms);
    }
    free(gradients->shared);
    free(gradients->owner);
    free(gradients->squares);
    free(gradients->begun);
    memory_unmap(&gradients->received);
}

/* Whether the norm of the gradient is wanted. */
static bool measures(const Gradients *gradients) { return gradients->clip > 0 || gradients->most_skipped > 0; }

bool gradients_need_work(const Gradients *gradients) { return measures(gradients) || gradients->shared_count > 0; }

/* Whether an earlier use is on the same rank, to which a message is then under way. */
static bool is_repeated(const SharedParameter *shared, int use)
{
    for (int u = 0; u < use; u++)
        if (shared->uses[u].rank == shared->uses[use].rank) return true;
    return false;
}

/* Sends this rank's uses to all other holders and receives theirs. */
static void exchange(Gradients *gradients, const SharedParameter *shared)
{
    World *world = gradients->world;
    size_t bytes = shared->elements * sizeof(float);
    int pending = 0, tag = (int)message_tag_of_parameter(&gradients->tags, shared->global_index), peer = -1;
    float *received = (float *)gradients->received.bytes;
    for (int u = 0; u < shared->use_count; u++) {
        const SharedUse *use = &shared->uses[u];
        if (use->gradient) continue;
        world_receive(world, received, bytes, peer = use->rank, tag, &pending);
        received += shared->elements;
        for (int own = 0; own < shared->use_count && !is_repeated(shared, u); own++)
            if (shared->uses[own].gradient)
                world_send(world, shared->uses[own].gradient, bytes, use->rank, tag, &pending);
    }
    if (pending) world_wait(world, &pending, (WaitReason){peer, -1, -1, "gradients of a shared parameter"});
}

/* Adds all uses up in order, in the place of the first, and copies the sum to where updates read it. */
static void reduce(Gradients *gradients, const SharedParameter *shared)
{
    const Execution *execution = gradients->execution;
    float *received = (float *)gradients->received.bytes;
    uint32_t stage = 0;
    exchange(gradients, shared);
    for (int u = 0; u < shared->use_count; u++) {
        shared->terms[u] = shared->uses[u].gradient;
        if (shared->terms[u]) continue;
        shared->terms[u] = received;
        received += shared->elements;
    }
    const SkyParameter *parameter = held(execution, shared->global_index, &stage);
    execution_add_uses(execution, stage, parameter, shared->terms, shared->use_count);
    for (; (parameter = held(execution, shared->global_index, &stage)); stage++) {
        float *to = execution_address(execution, stage, 0, parameter->gradient);
        if (to != shared->terms[0]) parallel_copy(execution->threads, to, shared->terms[0], parameter->value.bytes);
    }
}

void gradients_reduce(Gradients *gradients)
{
    double begin = monotonic_seconds();
    for (int i = 0; i < gradients->shared_count; i++) reduce(gradients, &gradients->shared[i]);
    if (gradients->shared_count)
        trace_record_rank(gradients->trace, begin, gradients->world, gradients->execution->program, SKY_REDUCE);
}

/* The gradient of that parameter is not finite. Its owner reports that before any update, and ends the run unless the
 * step is to be skipped. */
static void tell_not_finite(const Gradients *gradients, uint32_t index, bool is_skipped)
{
    const World *world = gradients->world;
    uint32_t stage = 0;
    if (gradients->owner[index] != (uint32_t)world->rank) return;
    const SkyParameter *parameter = held(gradients->execution, index, &stage);
    Arena arena = {0};
    const char *what = arena_format(&arena, "the gradient of '%s' (stage %u) is not finite", parameter->value.name,
                                    gradients->execution->stages[stage].stage->index);
    if (!is_skipped)
        world_diverged(gradients->world, "%s%s; a lower --lr or --warmup may help", what,
                       gradients->skipped ? arena_format(&arena,
                                                         ", nor were those of the %lld steps before, which were "
                                                         "skipped",
                                                         (long long)gradients->skipped)
                                          : "");
    text_print(stderr,
               "skycc: warning: rank %d (%s), step %lld: %s: the step is skipped (%lld of at most %lld in a row)\n",
               world->rank, world->device, (long long)*world->step, what, (long long)gradients->skipped + 1,
               (long long)gradients->most_skipped);
    arena_free(&arena);
}

/* The step counts, but changes nothing. */
static void skip(Gradients *gradients)
{
    const Execution *execution = gradients->execution;
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        const SkyStage *stage = execution->stages[s].stage;
        for (uint32_t p = 0; p < stage->parameter_count; p++)
            if (!stage->parameters[p].frozen)
                parallel_zero(execution->threads, execution_address(execution, s, 0, stage->parameters[p].gradient),
                              stage->parameters[p].value.bytes);
    }
    gradients->skipped++;
    gradients->skipped_in_all++;
}

/* For every parameter of the model, the sum of the squares of its gradient. */
static void measure(Gradients *gradients)
{
    const Execution *execution = gradients->execution;
    uint32_t total = execution->program->total_parameter_count;
    uint32_t ranks = gradients->emulated ? execution->program->rank_count : 0, rank = execution->program->rank;
    double begin = monotonic_seconds();
    memset(gradients->squares, 0, (total + ranks) * sizeof *gradients->squares);
    for (uint32_t s = 0; s < execution->program->stage_count; s++) {
        const double *squares = execution_squares(execution, s, EXECUTION_GRADIENT);
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++) {
            uint32_t index = execution->stages[s].stage->parameters[p].global_index;
            if (gradients->owner[index] == (uint32_t)gradients->world->rank) gradients->squares[index] = squares[p];
        }
    }
    begin = trace_record_rank(gradients->trace, begin, gradients->world, execution->program, TRACE_NORM);
    if (ranks) gradients->squares[total + rank] = monotonic_seconds();
    world_sum(gradients->world, gradients->squares, total + ranks, "the norm of the gradient"); /* one term: exact */
    for (uint32_t r = 0; r < ranks; r++) gradients->begun[r] = (int64_t)(gradients->squares[total + r] * 1e9);
    if (ranks) {
        norm_round(gradients->emulated, gradients->begun, gradients->known, gradients->known + ranks);
        world_sleep_until(gradients->world, (double)gradients->known[rank] * 1e-9);
    }
    trace_record_rank(gradients->trace, begin, gradients->world, execution->program, TRACE_AGREEMENT);
}

bool gradients_clip(Gradients *gradients)
{
    if (!measures(gradients)) return true;
    uint32_t total = gradients->execution->program->total_parameter_count, wrong = 0;
    measure(gradients);
    while (wrong < total && isfinite(gradients->squares[wrong])) wrong++;
    if (wrong < total) {
        tell_not_finite(gradients, wrong, gradients->skipped < gradients->most_skipped);
        skip(gradients); /* unless the rank that reported it ends the run */
        return false;
    }
    gradients->skipped = 0;
    double square = 0;
    for (uint32_t i = 0; i < total; i++) square += gradients->squares[i];
    double scale = gradients->clip > 0 ? gradients->clip / (sqrt(square) + 1e-6) : 1; /* as PyTorch's clip_grad_norm_ */
    step_scalars_set(gradients->execution->step, SKY_STEP_GRADIENT_SCALE, scale < 1 ? scale : 1);
    return true;
}
