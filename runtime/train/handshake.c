#include "runtime/train/handshake.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
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

/* What would change the numbers, or who waits for whom, if ranks had it otherwise. */
static const char *const told[] = {"--steps",
                                   "--epochs",
                                   "--until-loss",
                                   "--lr",
                                   "--lr",
                                   "--lr-decay",
                                   "--schedule-lr",
                                   "--warmup",
                                   "--warmup",
                                   "--weight-decay",
                                   "--no-decay",
                                   "--clip",
                                   "--skip-nonfinite",
                                   "--keep",
                                   "--seed",
                                   "--no-shuffle",
                                   "--checkpoint-every",
                                   "--resume",
                                   "--emulate",
                                   "--checkpoint",
                                   "--eval-data",
                                   "--trace",
                                   "--eval-every",
                                   "--metric",
                                   "--metric",
                                   "--keep-best",
                                   "--patience",
                                   "--schedule-steps",
                                   "--stop-after"};
enum { TOLD = sizeof told / sizeof *told };

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static int64_t bits_of_rates(const TrainingOptions *options)
{
    Buffer text = {0};
    for (size_t i = 0; i < options->rate_count; i++)
        buffer_print(&text, "%s=%a\n", options->rates[i].pattern, options->rates[i].rate);
    Hash hash = hash_bytes(buffer_text(&text), text.size);
    buffer_free(&text);
    return (int64_t)hash.low;
}

bool handshake_options(World *world, const SkyProgram *program, TrainingOptions *options, Diagnostics *diagnostics)
{
    bool several = program->site_count > 1;
    const int64_t mine[] = {options->steps,
                            options->epochs,
                            bits_of(options->until_loss),
                            bits_of(options->learning_rate),
                            bits_of_rates(options),
                            bits_of(options->lr_decay),
                            (int64_t)options->schedule,
                            options->warmup_steps,
                            bits_of(options->warmup_share),
                            bits_of(options->weight_decay),
                            options->no_decay,
                            bits_of(options->clip),
                            options->skip_nonfinite,
                            options->keep,
                            (int64_t)options->seed,
                            options->no_shuffle,
                            options->checkpoint_every,
                            options->resume,
                            options->emulate,
                            options->checkpoint != NULL,
                            options->eval_data != NULL,
                            options->trace != NULL,
                            options->eval_every,
                            options->metrics.metrics,
                            (int64_t)options->metrics.f1,
                            (int64_t)options->keep_best,
                            options->patience,
                            options->schedule_steps,
                            options->stop_after};
    _Static_assert(sizeof mine / sizeof *mine == TOLD, "a name for every value");
    int64_t *all = memory_allocate((size_t)world->size * sizeof mine);
    world_allgather(world, mine, sizeof mine, all, "agreement on options");
    bool ok = true;
    for (int r = 0; r < world->size; r++)
        for (int i = 0; i < TOLD; i++)
            if (several && strcmp(told[i], "--resume") == 0)
                options->resume |= all[r * TOLD + i] != 0;
            else if (all[r * TOLD + i] != all[i])
                ok = diagnostics_error(diagnostics, EXIT_USAGE, PLACE_NONE, "give all ranks the same options",
                                       "%s of rank %d is not that of rank 0", told[i], r);
    free(all);
    return ok;
}

/* A tensor of the data that a rank reads. */
typedef struct ReadTensor {
    Hash name, content;
    char label[64]; /* of the name, what fits */
} ReadTensor;

/* Adds what the rank reads to `list`, once each. */
static void list_read(const SkyProgram *program, const Dataset *dataset, ReadTensor *list)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t i = 0; i < program->stages[s].input_count; i++) {
            const SkyTensor *input = &program->stages[s].inputs[i];
            ReadTensor tensor = {.name = hash_text(input->name)};
            uint32_t former = 0;
            while (former < count && !hash_equal(list[former].name, tensor.name)) former++;
            if (former < count || !dataset_holds(input)) continue;
            tensor.content = dataset_hash(dataset, input);
            snprintf(tensor.label, sizeof tensor.label, "%s", input->name);
            list[count++] = tensor;
        }
}

/* Reports what tensor number `number` of all, `each` per rank, has otherwise than the first rank that reads it. */
static bool check_read(const ReadTensor *all, uint32_t each, size_t number, const char *path, Diagnostics *diagnostics)
{
    const ReadTensor *tensor = &all[number];
    for (size_t i = 0; tensor->label[0] && i < number; i++) {
        if (!all[i].label[0] || !hash_equal(all[i].name, tensor->name)) continue;
        if (hash_equal(all[i].content, tensor->content)) return true;
        return diagnostics_error(
            diagnostics, EXIT_BAD_INPUT, PLACE_FILE(path), "give all hosts the same rows, in the same order",
            "tensor '%s' is not the same for rank %zu as for rank %zu", tensor->label, number / each, i / each);
    }
    return true;
}

bool handshake_data(World *world, const SkyProgram *program, const Dataset *dataset, const char *path,
                    Diagnostics *diagnostics)
{
    uint32_t mine = 0, each = 1, *counts = memory_allocate((size_t)world->size * sizeof *counts);
    for (uint32_t s = 0; s < program->stage_count; s++) mine += program->stages[s].input_count;
    world_allgather(world, &mine, sizeof mine, counts, "agreement on data");
    for (int r = 0; r < world->size; r++)
        if (counts[r] > each) each = counts[r];
    free(counts);
    ReadTensor *read = memory_allocate(each * sizeof *read);
    ReadTensor *all = memory_allocate((size_t)world->size * each * sizeof *all);
    if (world->size > 1) list_read(program, dataset, read);
    world_allgather(world, read, each * sizeof *read, all, "agreement on data");
    bool ok = true;
    for (size_t i = 0; i < (size_t)world->size * each; i++) ok = check_read(all, each, i, path, diagnostics) && ok;
    free(read);
    free(all);
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
