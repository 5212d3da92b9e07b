#include "runtime/train/gradient_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/program/parallel.h"

#define NOT_HELD UINT32_MAX

enum { MOST_ELEMENTS = 1 << 21 }; /* of a piece, and of all pieces of a round: two rounds are under way at once */

/* What a rank tells of a parameter: its first stage there, and how large it is. */
typedef struct Holding {
    uint32_t stage, reserved;
    uint64_t elements;
} Holding;

/* A use that some rank holds, as ranks tell each other. */
typedef struct HeldUse {
    uint32_t global_index, number;
} HeldUse;

const SkyParameter *gradient_sums_held(const Execution *execution, uint32_t global_index, uint32_t *stage)
{
    for (; *stage < execution->program->stage_count; ++*stage) {
        const SkyStage *s = execution->stages[*stage].stage;
        for (uint32_t p = 0; p < s->parameter_count; p++)
            if (s->parameters[p].global_index == global_index) return &s->parameters[p];
    }
    return NULL;
}

/* Among replicas, a parameter that one layer uses is one that each of them uses. */
static uint32_t count_uses(const SkyProgram *program, const SkyParameter *parameter)
{
    return parameter->use_count || parameter->frozen || program->replica_count < 2 ? parameter->use_count : 1;
}

/* Writes what this rank has of each parameter. Returns the number of uses of those that are summed. */
static uint32_t list_held(const SkyProgram *program, Holding *mine)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < program->total_parameter_count; i++) mine[i] = (Holding){.stage = NOT_HELD};
    for (uint32_t s = 0; s < program->stage_count; s++)
        for (uint32_t p = 0; p < program->stages[s].parameter_count; p++) {
            const SkyParameter *parameter = &program->stages[s].parameters[p];
            uint32_t index = parameter->global_index;
            if (index >= program->total_parameter_count)
                bug("parameter %u of %u", index, program->total_parameter_count);
            if (parameter->frozen) continue;
            if (mine[index].stage == NOT_HELD)
                mine[index] =
                    (Holding){.stage = program->stages[s].index, .elements = parameter->value.bytes / sizeof(float)};
            uses += count_uses(program, parameter);
        }
    return uses;
}

/* What ranks have of each parameter, which the first rank that has it in the earliest stage owns: [parameter]. */
static Holding *settle_owners(GradientSums *sums, const Holding *mine)
{
    World *world = sums->world;
    uint32_t total = sums->execution->program->total_parameter_count;
    Holding *all = memory_allocate((size_t)world->size * total * sizeof *all);
    Holding *known = memory_allocate(total * sizeof *known);
    world_allgather(world, mine, total * sizeof *mine, all, "agreement on parameters");
    for (uint32_t i = 0; i < total; i++) {
        known[i].stage = sums->owner[i] = NOT_HELD;
        for (int r = 0; r < world->size; r++) {
            const Holding *here = &all[(size_t)r * total + i];
            if (here->stage >= known[i].stage) continue;
            known[i] = *here;
            sums->owner[i] = (uint32_t)r;
        }
    }
    free(all);
    return known;
}

/* The uses of all ranks, *each per rank; unused entries have the index NOT_HELD. */
static HeldUse *gather_uses(const GradientSums *sums, uint32_t mine, uint32_t *each)
{
    World *world = sums->world;
    const SkyProgram *program = sums->execution->program;
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
            for (uint32_t u = 0, uses = count_uses(program, parameter); u < uses; u++)
                own[count++] = (HeldUse){parameter->global_index, parameter->use_count ? parameter->uses[u].number : 0};
        }
    for (; count < *each; count++) own[count] = (HeldUse){NOT_HELD, 0};
    if (*each) world_allgather(world, own, *each * sizeof *own, all, "agreement on shared parameters");
    free(own);
    return all;
}

static int by_order(const void *a, const void *b)
{
    const GradientTerm *left = a, *right = b;
    if (left->replica != right->replica) return left->replica < right->replica ? -1 : 1;
    return left->number < right->number ? -1 : left->number > right->number;
}

/* Where this rank accumulates that use. */
static float *gradient_here(const Execution *execution, HeldUse use)
{
    uint32_t stage = 0;
    for (const SkyParameter *p; (p = gradient_sums_held(execution, use.global_index, &stage)); stage++) {
        if (!p->use_count) return execution_address(execution, stage, 0, p->gradient);
        for (uint32_t u = 0; u < p->use_count; u++)
            if (p->uses[u].number == use.number) return execution_address(execution, stage, 0, p->uses[u].gradient);
    }
    bug("parameter %u has no use %u here", use.global_index, use.number);
}

/* The terms of a parameter, and who holds them. */
static void list_terms(GradientSums *sums, GradientPiece *piece, const HeldUse *all, uint32_t each)
{
    size_t count = (size_t)sums->world->size * each;
    const Execution *execution = sums->execution;
    GradientTerm *terms = arena_new_array(&sums->arena, GradientTerm, count);
    int *holders = arena_new_array(&sums->arena, int, (size_t)sums->world->size);
    for (size_t u = 0; u < count; u++) {
        if (all[u].global_index != piece->global_index) continue;
        int rank = (int)(u / each);
        bool here = rank == sums->world->rank;
        if (!piece->holder_count || holders[piece->holder_count - 1] != rank) {
            if (here) piece->own = piece->holder_count;
            holders[piece->holder_count++] = rank;
        }
        terms[piece->term_count++] = (GradientTerm){sky_replica(execution->program, rank), all[u].number, rank,
                                                    here ? gradient_here(execution, all[u]) : NULL};
    }
    qsort(terms, (size_t)piece->term_count, sizeof *terms, by_order);
    piece->terms = terms;
    piece->holders = holders;
    piece->parts = arena_new_array(&sums->arena, float *, (size_t)piece->term_count);
}

/* The elements of the piece that a holder sums: with two holders, each sums all. */
static size_t part_begin(const GradientPiece *piece, int holder)
{
    enum { LINE = 16 };
    if (piece->holder_count < 3) return 0;
    if (holder == piece->holder_count) return piece->elements;
    return piece->elements * (size_t)holder / (size_t)piece->holder_count / LINE * LINE;
}

static size_t part_elements(const GradientPiece *piece, int holder)
{
    return piece->holder_count < 3 ? piece->elements : part_begin(piece, holder + 1) - part_begin(piece, holder);
}

/* Cuts what is held here into pieces, and numbers their rounds as all ranks do. Returns the most elements that are
 * received in a round. */
static size_t settle_pieces(GradientSums *sums, const Holding *known, const HeldUse *all, uint32_t each)
{
    const Execution *execution = sums->execution;
    size_t most = 0, received = 0, in_round = 0, capacity = 0;
    uint32_t round = 0, last_round = 0;
    GradientPiece *pieces = NULL;
    for (uint32_t i = 0; i < execution->program->total_parameter_count; i++) {
        uint32_t stage = 0;
        size_t elements = known[i].stage == NOT_HELD ? 0 : known[i].elements;
        const SkyParameter *parameter = elements ? gradient_sums_held(execution, i, &stage) : NULL;
        bool is_summed = parameter && count_uses(execution->program, parameter);
        GradientPiece piece = {.global_index = i};
        if (is_summed) {
            piece.target = execution_address(execution, stage, 0, parameter->gradient);
            list_terms(sums, &piece, all, each);
        }
        for (size_t first = 0; first < elements; first += piece.elements) {
            piece.first = first;
            piece.elements = elements - first < MOST_ELEMENTS ? elements - first : MOST_ELEMENTS;
            if (in_round && in_round + piece.elements > MOST_ELEMENTS) in_round = 0, round++;
            in_round += piece.elements;
            piece.round = round;
            if (!is_summed) continue;
            if (round != last_round) received = 0, last_round = round;
            for (int t = 0; t < piece.term_count; t++)
                received += piece.terms[t].gradient ? 0 : part_elements(&piece, piece.own);
            most = received > most ? received : most;
            size_t count = (size_t)sums->piece_count++;
            array_push(pieces, count, capacity, piece);
        }
    }
    if (pieces) sums->pieces = arena_copy(&sums->arena, pieces, (size_t)sums->piece_count * sizeof *pieces);
    free(pieces);
    return most;
}

bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    uint32_t total = program->total_parameter_count, each;
    *sums = (GradientSums){.world = pipeline->world,
                           .execution = pipeline->execution,
                           .tags = pipeline->tags,
                           .planned_s = pipeline->emulate_links && program->replica_count > 1 ? program->sum_s : 0};
    sums->owner = arena_new_array(&sums->arena, uint32_t, total);
    sums->begun = arena_new_array(&sums->arena, double, program->rank_count);
    Holding *mine = memory_allocate(total * sizeof *mine);
    uint32_t uses = list_held(program, mine);
    Holding *known = settle_owners(sums, mine);
    HeldUse *all = gather_uses(sums, uses, &each);
    size_t received = settle_pieces(sums, known, all, each);
    free(all);
    free(known);
    free(mine);
    sums->half = received;
    return memory_map(&sums->received, 2 * received * sizeof(float), 1, "gradients of other ranks", diagnostics);
}

void gradient_sums_close(GradientSums *sums)
{
    arena_free(&sums->arena);
    memory_unmap(&sums->received);
}

/* ---- Summing ---- */

static int tag_of(const GradientSums *sums, const GradientPiece *piece)
{
    return (int)message_tag_of_parameter(&sums->tags, piece->global_index);
}

/* Sends each holder its part of this rank's terms, and receives this rank's part of the others'. */
static void exchange_terms(GradientSums *sums, GradientPiece *piece, float **received, int *pending)
{
    size_t begin = part_begin(piece, piece->own), elements = part_elements(piece, piece->own);
    for (int t = 0; t < piece->term_count; t++) {
        const GradientTerm *term = &piece->terms[t];
        piece->parts[t] = term->gradient ? term->gradient + piece->first + begin : *received;
        if (term->gradient || !elements) continue;
        world_receive(sums->world, *received, elements * sizeof(float), term->rank, tag_of(sums, piece), pending);
        *received += elements;
    }
    for (int h = 0; h < piece->holder_count; h++)
        for (int t = 0; t < piece->term_count && h != piece->own && part_elements(piece, h); t++)
            if (piece->terms[t].gradient)
                world_send(sums->world, piece->terms[t].gradient + piece->first + part_begin(piece, h),
                           part_elements(piece, h) * sizeof(float), piece->holders[h], tag_of(sums, piece), pending);
}

/* Of three or more holders: each sends its sum to the others. */
static void exchange_sums(GradientSums *sums, const GradientPiece *piece, int *pending)
{
    if (piece->holder_count < 3) return;
    float *target = piece->target + piece->first;
    size_t own = part_elements(piece, piece->own);
    for (int h = 0; h < piece->holder_count; h++) {
        size_t elements = part_elements(piece, h);
        if (h == piece->own) continue;
        if (elements)
            world_receive(sums->world, target + part_begin(piece, h), elements * sizeof(float), piece->holders[h],
                          tag_of(sums, piece), pending);
        if (own)
            world_send(sums->world, target + part_begin(piece, piece->own), own * sizeof(float), piece->holders[h],
                       tag_of(sums, piece), pending);
    }
}

/* Adds up this rank's part, and makes its terms 0 for the next step. */
static void add(const GradientSums *sums, GradientPiece *piece)
{
    int threads = sums->execution->threads;
    parallel_add(threads, piece->target + piece->first + part_begin(piece, piece->own), piece->parts, piece->term_count,
                 part_elements(piece, piece->own));
    for (int t = 0; t < piece->term_count; t++)
        if (piece->terms[t].gradient && piece->terms[t].gradient != piece->target)
            parallel_zero(threads, piece->terms[t].gradient + piece->first, piece->elements * sizeof(float));
}

/* Copies the sum to the other stages of this rank that have the parameter. */
static void hand_out(const GradientSums *sums, const GradientPiece *piece)
{
    const Execution *execution = sums->execution;
    uint32_t stage = 0;
    for (const SkyParameter *p; (p = gradient_sums_held(execution, piece->global_index, &stage)); stage++) {
        float *to = execution_address(execution, stage, 0, p->gradient);
        if (to != piece->target)
            parallel_copy(execution->threads, to + piece->first, piece->target + piece->first,
                          piece->elements * sizeof(float));
    }
}

/* The pieces that this rank has of a round, and messages about them under way. */
typedef struct Round {
    GradientPiece *pieces;
    int count, terms, sums;
} Round;

static Round next_round(const GradientSums *sums, const Round *before)
{
    int first = before ? (int)(before->pieces - sums->pieces) + before->count : 0;
    Round round = {.pieces = &sums->pieces[first]};
    while (first + round.count < sums->piece_count && round.pieces[round.count].round == round.pieces->round)
        round.count++;
    return round;
}

static void await(GradientSums *sums, const Round *round, const int *pending)
{
    const GradientPiece *piece = round->pieces;
    int other = *pending ? piece->holders[piece->own == 0 && piece->holder_count > 1] : -1;
    if (*pending)
        world_wait(sums->world, pending, (WaitReason){other, -1, -1, "gradients of a parameter that it has, too"});
}

static void finish(GradientSums *sums, Round *round)
{
    await(sums, round, &round->sums);
    for (int i = 0; i < round->count; i++) hand_out(sums, &round->pieces[i]);
}

/* Terms of the next round are under way while those of this one are added up, and so are the sums of the one before. */
static void make_rounds(GradientSums *sums)
{
    Round rounds[3] = {next_round(sums, NULL)};
    for (int now = 0;; now++) {
        Round *round = &rounds[now % 3], *next = &rounds[(now + 1) % 3], *last = &rounds[(now + 2) % 3];
        for (int ahead = now > 0; ahead < 2; ahead++) {
            Round *posted = ahead ? next : round;
            float *received = (float *)sums->received.bytes; /* NULL of a pipeline that has no replica */
            if (received) received += (size_t)((now + ahead) % 2) * sums->half;
            if (ahead) *next = next_round(sums, round);
            for (int i = 0; i < posted->count; i++) exchange_terms(sums, &posted->pieces[i], &received, &posted->terms);
        }
        await(sums, round, &round->terms);
        for (int i = 0; i < round->count; i++) add(sums, &round->pieces[i]);
        for (int i = 0; i < round->count; i++) exchange_sums(sums, &round->pieces[i], &round->sums);
        if (now > 0) finish(sums, last);
        if (next->count > 0) continue;
        finish(sums, round);
        return;
    }
}

/* The sums last as planned from when the last rank began them. */
static void emulate(GradientSums *sums)
{
    double begin = 0;
    for (int r = 0; r < sums->world->size; r++)
        if (sums->begun[r] > begin) begin = sums->begun[r];
    world_sleep_until(sums->world, begin + sums->planned_s);
}

/* Brings the gradients that are summed to the host, or back to the device. */
static void move_terms(const Execution *execution, bool back)
{
    for (uint32_t s = 0; s < execution->program->stage_count; s++)
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++) {
            const SkyParameter *parameter = &execution->stages[s].stage->parameters[p];
            uint32_t uses = count_uses(execution->program, parameter);
            for (uint32_t u = 0; u < uses + 1 && uses; u++) { /* and the sum */
                SkyLocation at = u < parameter->use_count ? parameter->uses[u].gradient : parameter->gradient;
                if (back)
                    execution_hand(execution, s, 0, at, parameter->value.bytes);
                else
                    execution_fetch(execution, s, 0, at, parameter->value.bytes);
            }
        }
}

void gradient_sums_make(GradientSums *sums)
{
    double now = monotonic_seconds();
    if (sums->planned_s > 0) world_allgather(sums->world, &now, sizeof now, sums->begun, "the sums of gradients");
    if (sums->piece_count) {
        move_terms(sums->execution, false);
        make_rounds(sums);
        move_terms(sums->execution, true);
    }
    if (sums->planned_s > 0) emulate(sums);
}

/* ---- Values ---- */

/* A piece of the value (-1) or a state on this rank. */
static float *piece_of(const Execution *execution, uint32_t stage, const SkyParameter *parameter, int state,
                       const GradientPiece *piece)
{
    SkyLocation location = state < 0 ? parameter->value.location : parameter->states[state];
    return (float *)execution_address(execution, stage, 0, location) + piece->first;
}

static void spread(GradientSums *sums, const GradientPiece *piece)
{
    const Execution *execution = sums->execution;
    int pending = 0, owner = (int)sums->owner[piece->global_index], rank = sums->world->rank;
    uint32_t stage = 0, first = 0;
    const SkyParameter *parameter = gradient_sums_held(execution, piece->global_index, &first);
    size_t bytes = piece->elements * sizeof(float);
    for (int state = -1; state < (int)parameter->state_count; state++) {
        float *here = piece_of(execution, first, parameter, state, piece);
        for (int h = 0; h < piece->holder_count && rank == owner; h++)
            if (sky_replica(execution->program, piece->holders[h]) > 0)
                world_send(sums->world, here, bytes, piece->holders[h], tag_of(sums, piece), &pending);
        if (sky_replica(execution->program, rank) > 0)
            world_receive(sums->world, here, bytes, owner, tag_of(sums, piece), &pending);
    }
    if (pending) world_wait(sums->world, &pending, (WaitReason){-1, -1, -1, "parameters of the checkpoint"});
    for (stage = first + 1; (parameter = gradient_sums_held(execution, piece->global_index, &stage)); stage++)
        for (int state = -1; state < (int)parameter->state_count; state++) {
            uint32_t from = first;
            const SkyParameter *other = gradient_sums_held(execution, piece->global_index, &from);
            memcpy(piece_of(execution, stage, parameter, state, piece), piece_of(execution, first, other, state, piece),
                   bytes);
        }
}

void gradient_sums_spread_values(GradientSums *sums)
{
    for (int i = 0; i < sums->piece_count && sums->execution->program->replica_count > 1; i++)
        spread(sums, &sums->pieces[i]);
}
