#include "runtime/train/gradient_sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/program/parallel.h"

#define NOT_HELD UINT32_MAX

enum { MOST_ELEMENTS = 1 << 21 }; /* of a piece, and of all pieces of a round: two that large are under way at once */

/* What a rank tells of a parameter: its first stage there, when its gradient is final, and how large it is. */
typedef struct Holding {
    uint32_t stage;
    uint32_t layer; /* whose backward finishes its gradient */
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

/* ---- When gradients are final ---- */

static bool is_inside(SkyLocation location, SkyLocation gradient, uint64_t bytes)
{
    return location.space == gradient.space && location.offset >= gradient.offset &&
           location.offset < gradient.offset + bytes;
}

static bool touches(const SkyCall *call, const SkyParameter *parameter)
{
    uint64_t bytes = parameter->value.bytes;
    for (uint32_t o = 0; o < call->operand_count; o++) {
        bool found = is_inside(call->operands[o], parameter->gradient, bytes);
        for (uint32_t u = 0; u < parameter->use_count && !found; u++)
            found = is_inside(call->operands[o], parameter->uses[u].gradient, bytes);
        if (found) return true;
    }
    return false;
}

/* The calls of the last list that adds to gradients. */
static const SkyCallList *ending_list(const SkyStage *stage)
{
    const SkyCallList *lists = stage->lists;
    return &lists[lists[SKY_LIST_WEIGHT_GRADIENT].count ? SKY_LIST_WEIGHT_GRADIENT : SKY_LIST_BACKWARD];
}

/* How many of them must be done: all that have anything to do with the gradient. */
static uint32_t calls_of(const SkyStage *stage, const SkyParameter *parameter)
{
    const SkyCallList *list = ending_list(stage);
    uint32_t calls = list->count;
    while (calls > 0 && !touches(&list->calls[calls - 1], parameter)) calls--;
    return calls;
}

static uint32_t layer_of(const SkyStage *stage, const SkyParameter *parameter)
{
    uint32_t calls = calls_of(stage, parameter);
    return calls ? ending_list(stage)->calls[calls - 1].layer : stage->last_layer;
}

/* A parameter that several stages of the rank have is final after everything. */
static void find_end(const Execution *execution, uint32_t stage, const SkyParameter *parameter, GradientPiece *piece)
{
    uint32_t next = stage + 1;
    piece->stage = stage;
    piece->calls = calls_of(execution->stages[stage].stage, parameter);
    if (gradient_sums_held(execution, piece->global_index, &next)) piece->calls = UINT32_MAX;
}

/* Where a parameter stands in the order of all ranks. */
typedef struct ParameterPlace {
    uint32_t layer, index;
} ParameterPlace;

static int by_end(const void *a, const void *b)
{
    const ParameterPlace *left = a, *right = b;
    if (left->layer != right->layer) return left->layer > right->layer ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* The last layer first. */
static ParameterPlace *sort_parameters(const Holding *known, uint32_t total)
{
    ParameterPlace *places = memory_allocate(total * sizeof *places);
    for (uint32_t i = 0; i < total; i++) places[i] = (ParameterPlace){known[i].layer, i};
    qsort(places, total, sizeof *places, by_end);
    return places;
}

/* ---- Who has what ---- */

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
                mine[index] = (Holding){.stage = program->stages[s].index,
                                        .layer = layer_of(&program->stages[s], parameter),
                                        .elements = parameter->value.bytes / sizeof(float)};
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

static size_t elements_received(const GradientRound *round)
{
    size_t elements = 0;
    for (int i = 0; i < round->count; i++)
        for (int t = 0; t < round->pieces[i].term_count; t++)
            elements += round->pieces[i].terms[t].gradient ? 0 : part_elements(&round->pieces[i], round->pieces[i].own);
    return elements;
}

/* Where a layer's gradients end, so that little waits for others; not after every small layer. */
static bool ends_round(size_t in_round, size_t elements, bool other_layer)
{
    enum { ENOUGH = MOST_ELEMENTS / 8 };
    return in_round && (in_round + elements > MOST_ELEMENTS || (other_layer && in_round >= ENOUGH));
}

/* Cuts what is held here into pieces, and numbers their rounds as all ranks do. */
static void settle_pieces(GradientSums *sums, const Holding *known, const HeldUse *all, uint32_t each)
{
    const Execution *execution = sums->execution;
    uint32_t total = execution->program->total_parameter_count, round = 0, last_layer = 0;
    size_t in_round = 0, capacity = 0;
    GradientPiece *pieces = NULL;
    ParameterPlace *places = sort_parameters(known, total);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t index = places[i].index, stage = 0;
        size_t elements = known[index].stage == NOT_HELD ? 0 : known[index].elements;
        const SkyParameter *parameter = elements ? gradient_sums_held(execution, index, &stage) : NULL;
        bool is_summed = parameter && count_uses(execution->program, parameter);
        GradientPiece piece = {.global_index = index};
        if (is_summed) {
            piece.target = execution_address(execution, stage, 0, parameter->gradient);
            find_end(execution, stage, parameter, &piece);
            list_terms(sums, &piece, all, each);
        }
        for (size_t first = 0; first < elements; first += piece.elements) {
            piece.first = first;
            piece.elements = elements - first < MOST_ELEMENTS ? elements - first : MOST_ELEMENTS;
            if (ends_round(in_round, piece.elements, known[index].layer != last_layer)) in_round = 0, round++;
            in_round += piece.elements;
            last_layer = known[index].layer;
            piece.round = round;
            size_t count = (size_t)sums->piece_count;
            if (!is_summed) continue;
            array_push(pieces, count, capacity, piece);
            sums->piece_count++;
        }
    }
    sums->whole_rounds = round + 1;
    if (pieces) sums->pieces = arena_copy(&sums->arena, pieces, (size_t)sums->piece_count * sizeof *pieces);
    free(pieces);
    free(places);
}

/* Gives every round a place in `received`, in turn. Returns the elements of all places. */
static size_t settle_rounds(GradientSums *sums)
{
    size_t most = 0, next = 0;
    sums->rounds = arena_new_array(&sums->arena, GradientRound, (size_t)sums->piece_count);
    for (int i = 0; i < sums->piece_count; i++) {
        GradientPiece *piece = &sums->pieces[i];
        if (i == 0 || piece->round != piece[-1].round)
            sums->rounds[sums->round_count++] = (GradientRound){.pieces = piece, .after = -1};
        GradientRound *round = &sums->rounds[sums->round_count - 1];
        round->count++;
        round->elements += piece->elements;
    }
    for (int i = 0; i < sums->round_count; i++)
        if (elements_received(&sums->rounds[i]) > most) most = elements_received(&sums->rounds[i]);
    for (int i = 0; i < sums->round_count; i++) {
        GradientRound *round = &sums->rounds[i];
        size_t elements = elements_received(round);
        if (next + elements > 2 * most) next = 0;
        round->first = next;
        next += elements;
        for (int j = i - 1; j >= 0 && round->after < 0; j--)
            if (sums->rounds[j].first < next &&
                round->first < sums->rounds[j].first + elements_received(&sums->rounds[j]))
                round->after = j;
    }
    return 2 * most;
}

bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    uint32_t total = program->total_parameter_count, each;
    *sums = (GradientSums){.world = pipeline->world,
                           .execution = pipeline->execution,
                           .tags = pipeline->tags,
                           .emulated = pipeline->emulate_links && program->replica_count > 1};
    sums->owner = arena_new_array(&sums->arena, uint32_t, total);
    sums->calls = arena_new_array(&sums->arena, uint32_t, program->stage_count);
    Holding *mine = memory_allocate(total * sizeof *mine);
    uint32_t uses = list_held(program, mine);
    Holding *known = settle_owners(sums, mine);
    HeldUse *all = gather_uses(sums, uses, &each);
    settle_pieces(sums, known, all, each);
    size_t received = settle_rounds(sums);
    free(all);
    free(known);
    free(mine);
    if (sums->emulated)
        sums->when = arena_new_array(&sums->arena, double, (program->rank_count + 1) * (size_t)sums->whole_rounds);
    return memory_map(&sums->received, received * sizeof(float), 1, "gradients of other ranks", diagnostics);
}

void gradient_sums_close(GradientSums *sums)
{
    arena_free(&sums->arena);
    memory_unmap(&sums->received);
}

/* ---- Summing ---- */

static int tag_of(const GradientSums *sums, const GradientPiece *piece, bool sum)
{
    return (int)message_tag_of_parameter(&sums->tags, piece->global_index, sum);
}

/* Sends each holder its part of this rank's terms, and receives this rank's part of the others'. */
static void exchange_terms(GradientSums *sums, GradientPiece *piece, float **received, int *pending)
{
    size_t begin = part_begin(piece, piece->own), elements = part_elements(piece, piece->own);
    for (int t = 0; t < piece->term_count; t++) {
        const GradientTerm *term = &piece->terms[t];
        piece->parts[t] = term->gradient ? term->gradient + piece->first + begin : *received;
        if (term->gradient || !elements) continue;
        world_receive(sums->world, *received, elements * sizeof(float), term->rank, tag_of(sums, piece, false),
                      pending);
        *received += elements;
    }
    for (int h = 0; h < piece->holder_count; h++)
        for (int t = 0; t < piece->term_count && h != piece->own && part_elements(piece, h); t++)
            if (piece->terms[t].gradient)
                world_send(sums->world, piece->terms[t].gradient + piece->first + part_begin(piece, h),
                           part_elements(piece, h) * sizeof(float), piece->holders[h], tag_of(sums, piece, false),
                           pending);
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
                          tag_of(sums, piece, true), pending);
        if (own)
            world_send(sums->world, target + part_begin(piece, piece->own), own * sizeof(float), piece->holders[h],
                       tag_of(sums, piece, true), pending);
    }
}

/* Adds up this rank's part, and makes its terms 0 for the next step. */
static void add(GradientPiece *piece, int threads)
{
    parallel_add(threads, piece->target + piece->first + part_begin(piece, piece->own), piece->parts, piece->term_count,
                 part_elements(piece, piece->own));
    for (int t = 0; t < piece->term_count; t++)
        if (piece->terms[t].gradient && piece->terms[t].gradient != piece->target)
            parallel_zero(threads, piece->terms[t].gradient + piece->first, piece->elements * sizeof(float));
}

/* Copies the sum to the other stages of this rank that have the parameter. */
static void hand_out(const GradientSums *sums, const GradientPiece *piece, int threads)
{
    const Execution *execution = sums->execution;
    uint32_t stage = 0;
    for (const SkyParameter *p; (p = gradient_sums_held(execution, piece->global_index, &stage)); stage++) {
        float *to = execution_address(execution, stage, 0, p->gradient);
        if (to != piece->target)
            parallel_copy(threads, to + piece->first, piece->target + piece->first, piece->elements * sizeof(float));
    }
}

static bool is_final(const GradientSums *sums, const GradientRound *round)
{
    for (int i = 0; i < round->count; i++)
        if (sums->calls[round->pieces[i].stage] < round->pieces[i].calls) return false;
    return true;
}

static void begin(GradientSums *sums, GradientRound *round, double when)
{
    float *received = (float *)sums->received.bytes; /* NULL where no other rank has anything */
    if (received) received += round->first;
    round->when = when;
    for (int i = 0; i < round->count; i++) exchange_terms(sums, &round->pieces[i], &received, &round->terms);
}

static void add_round(GradientSums *sums, GradientRound *round, int threads)
{
    for (int i = 0; i < round->count; i++) add(&round->pieces[i], threads);
    for (int i = 0; i < round->count; i++) exchange_sums(sums, &round->pieces[i], &round->sums);
}

/* Whatever can be done without waiting: terms of rounds are under way while those of an earlier one are added up, and
 * so are sums. */
static void advance(GradientSums *sums, double when, int threads)
{
    for (; sums->added < sums->begun && !sums->rounds[sums->added].terms; sums->added++)
        add_round(sums, &sums->rounds[sums->added], threads);
    for (; sums->begun < sums->round_count; sums->begun++) {
        GradientRound *round = &sums->rounds[sums->begun];
        if (round->after >= sums->added || !is_final(sums, round)) break;
        begin(sums, round, when);
    }
    for (; sums->finished < sums->added && !sums->rounds[sums->finished].sums; sums->finished++)
        for (int i = 0; i < sums->rounds[sums->finished].count; i++)
            hand_out(sums, &sums->rounds[sums->finished].pieces[i], threads);
}

void gradient_sums_advance(GradientSums *sums, uint32_t local_stage, uint32_t calls, double when)
{
    if (sums->execution->kind->fetch) return; /* a device's gradients are fetched all at once */
    sums->calls[local_stage] = calls;
    advance(sums, when, 1); /* the other threads compute */
}

/* Until the earliest round that is not finished goes on. */
static void await(GradientSums *sums)
{
    const GradientRound *round = &sums->rounds[sums->finished];
    const GradientPiece *piece = round->pieces;
    int other = piece->holders[piece->own == 0 && piece->holder_count > 1];
    world_wait(sums->world, sums->finished < sums->added ? &round->sums : &round->terms,
               (WaitReason){other, -1, -1, "gradients of a parameter that it has, too"});
}

/* The last rank that ends the gradients of a round lets its messages begin. They take this rank's links as long as
 * planned, one round after another. */
static void emulate(GradientSums *sums)
{
    const SkyProgram *program = sums->execution->program;
    StepPart before = step_clock_enter(&sums->world->clock, PART_WAITING);
    double *mine = &sums->when[program->rank_count * sums->whole_rounds], end = 0, all = 0;
    for (int i = 0; i < sums->round_count; i++) {
        mine[sums->rounds[i].pieces->round] = sums->rounds[i].when;
        all += (double)sums->rounds[i].elements;
    }
    world_allgather(sums->world, mine, sums->whole_rounds * sizeof *mine, sums->when, "the sums of gradients");
    for (int i = 0; i < sums->round_count; i++) {
        const GradientRound *round = &sums->rounds[i];
        for (int p = 0; p < round->count; p++)
            for (int h = 0; h < round->pieces[p].holder_count; h++)
                end = fmax(
                    end,
                    sums->when[(uint32_t)round->pieces[p].holders[h] * sums->whole_rounds + round->pieces[p].round]);
        end += program->sum_s * (double)round->elements / all;
    }
    world_sleep_until(sums->world, end + program->sum_latency_s);
    step_clock_leave(&sums->world->clock, before);
}

static void move(const Execution *execution, uint32_t stage, SkyLocation location, size_t bytes, bool back)
{
    if (back)
        execution_hand(execution, stage, 0, location, bytes);
    else
        execution_fetch(execution, stage, 0, location, bytes);
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
                move(execution, s, at, parameter->value.bytes, back);
            }
        }
}

void gradient_sums_make(GradientSums *sums)
{
    double now = monotonic_seconds();
    int threads = sums->execution->threads;
    for (uint32_t s = 0; s < sums->execution->program->stage_count; s++) sums->calls[s] = UINT32_MAX;
    move_terms(sums->execution, false);
    for (advance(sums, now, threads); sums->finished < sums->round_count; advance(sums, now, threads)) await(sums);
    move_terms(sums->execution, true);
    if (sums->emulated) emulate(sums);
    sums->begun = sums->added = sums->finished = 0;
    memset(sums->calls, 0, sums->execution->program->stage_count * sizeof *sums->calls);
}

/* ---- Values ---- */

/* A piece of the value (-1) or a state on this rank. */
static float *piece_of(const Execution *execution, uint32_t stage, const SkyParameter *parameter, int state,
                       const GradientPiece *piece)
{
    SkyLocation location = state < 0 ? parameter->value.location : parameter->states[state];
    return (float *)execution_address(execution, stage, 0, location) + piece->first;
}

/* Brings values and states that are spread to the host, or back to the device. */
static void move_values(const GradientSums *sums, bool back)
{
    const Execution *execution = sums->execution;
    for (uint32_t s = 0; s < execution->program->stage_count; s++)
        for (uint32_t p = 0; p < execution->stages[s].stage->parameter_count; p++) {
            const SkyParameter *parameter = &execution->stages[s].stage->parameters[p];
            for (int state = -1; state < (int)parameter->state_count; state++)
                move(execution, s, state < 0 ? parameter->value.location : parameter->states[state],
                     parameter->value.bytes, back);
        }
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
                world_send(sums->world, here, bytes, piece->holders[h], tag_of(sums, piece, false), &pending);
        if (sky_replica(execution->program, rank) > 0)
            world_receive(sums->world, here, bytes, owner, tag_of(sums, piece, false), &pending);
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
    if (sums->execution->program->replica_count < 2) return;
    move_values(sums, false);
    for (int i = 0; i < sums->piece_count; i++) spread(sums, &sums->pieces[i]);
    move_values(sums, true);
}
