#include "runtime/train/gradient_pieces.h"

#include <stdlib.h>

#include "runtime/train/gradient_rows.h"

#define NOT_HELD UINT32_MAX

enum { MOST_ELEMENTS = 1 << 21 }; /* of a piece, and of all pieces of a round: two that large are under way at once */

/* What a rank tells of a parameter: its first stage there, when its gradient is final, and how large it is. */
typedef struct Holding {
    uint32_t stage;
    uint32_t layer;         /* whose backward finishes its gradient */
    uint64_t elements, row; /* row: GradientPiece.row */
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
uint32_t gradient_uses(const SkyProgram *program, const SkyParameter *parameter)
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
    uint32_t place, index; /* place: of its layer */
} ParameterPlace;

static int by_end(const void *a, const void *b)
{
    const ParameterPlace *left = a, *right = b;
    if (left->place != right->place) return left->place < right->place ? -1 : 1;
    return left->index < right->index ? -1 : left->index > right->index;
}

/* As the plan says, or the last layer first. */
static uint32_t place_of(const SkyProgram *program, uint32_t layer)
{
    if (!program->sum_places) return UINT32_MAX - layer;
    if (layer >= program->summed_layers) bug("layer %u of %u", layer, program->summed_layers);
    return program->sum_places[layer];
}

static ParameterPlace *sort_parameters(const SkyProgram *program, const Holding *known, uint32_t total)
{
    ParameterPlace *places = memory_allocate(total * sizeof *places);
    for (uint32_t i = 0; i < total; i++)
        places[i] = (ParameterPlace){known[i].stage == NOT_HELD ? UINT32_MAX : place_of(program, known[i].layer), i};
    qsort(places, total, sizeof *places, by_end);
    return places;
}

/* ---- Who has what ---- */

/* Coding with error feedback leaves no row 0. */
static size_t row_of(const SkyProgram *program, const SkyParameter *parameter)
{
    size_t elements = parameter->value.bytes / sizeof(float), row;
    if (!parameter->reads || program->sum_codec || program->replica_count < 2) return 0;
    row = elements / (size_t)parameter->value.dim[0];
    return row <= MOST_ELEMENTS ? row : 0;
}

/* Writes what this rank has of each parameter. Returns the number of uses of those that are summed. */
static uint32_t list_held(const SkyProgram *program, Holding *mine)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < program->total_parameter_count; i++) mine[i] = (Holding){.stage = NOT_HELD};
    for (SkyHeld held = {0}; sky_next_parameter(program, &held);) {
        const SkyParameter *parameter = held.parameter;
        uint32_t index = parameter->global_index;
        if (index >= program->total_parameter_count) bug("parameter %u of %u", index, program->total_parameter_count);
        if (parameter->frozen) continue;
        if (mine[index].stage == NOT_HELD)
            mine[index] = (Holding){.stage = program->stages[held.stage].index,
                                    .layer = layer_of(&program->stages[held.stage], parameter),
                                    .elements = parameter->value.bytes / sizeof(float),
                                    .row = row_of(program, parameter)};
        uses += gradient_uses(program, parameter);
    }
    return uses;
}

/* What ranks have of each parameter, which the first rank that has it in the earliest stage owns: [parameter]. */
static Holding *settle_owners(GradientSums *sums, const Holding *mine)
{
    World *world = sums->world;
    uint32_t total = sums->execution->program->total_parameter_count;
    FREED Holding *all = memory_allocate((size_t)world->size * total * sizeof *all);
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
    return known;
}

/* The uses of all ranks, *each per rank; unused entries have the index NOT_HELD. */
static HeldUse *gather_uses(const GradientSums *sums, uint32_t mine, uint32_t *each)
{
    World *world = sums->world;
    const SkyProgram *program = sums->execution->program;
    uint32_t count = 0;
    *each = world_largest(world, mine, "agreement on shared parameters");
    FREED HeldUse *own = memory_allocate((*each + 1) * sizeof *own);
    HeldUse *all = memory_allocate((size_t)world->size * (*each + 1) * sizeof *all);
    for (SkyHeld held = {0}; sky_next_parameter(program, &held);) {
        const SkyParameter *parameter = held.parameter;
        for (uint32_t u = 0, uses = gradient_uses(program, parameter); u < uses; u++)
            own[count++] = (HeldUse){parameter->global_index, parameter->use_count ? parameter->uses[u].number : 0};
    }
    for (; count < *each; count++) own[count] = (HeldUse){NOT_HELD, 0};
    if (*each) world_allgather(world, own, *each * sizeof *own, all, "agreement on shared parameters");
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
        terms[piece->term_count++] =
            (GradientTerm){sky_replica(execution->program, rank),          all[u].number, rank,
                           here ? gradient_here(execution, all[u]) : NULL, NULL,          NULL};
    }
    qsort(terms, (size_t)piece->term_count, sizeof *terms, by_order);
    piece->terms = terms;
    piece->holders = holders;
}

size_t gradient_part_begin(const GradientPiece *piece, int holder)
{
    if (piece->holder_count < 3) return 0;
    if (holder == piece->holder_count) return piece->elements;
    size_t whole = piece->row ? piece->row : CODEC_TILE;
    return piece->elements * (size_t)holder / (size_t)piece->holder_count / whole * whole;
}

size_t gradient_part_elements(const GradientPiece *piece, int holder)
{
    return piece->holder_count < 3 ? piece->elements
                                   : gradient_part_begin(piece, holder + 1) - gradient_part_begin(piece, holder);
}

size_t gradient_part_room(const GradientPiece *piece)
{
    size_t parts = piece->holder_count < 3 ? 1 : (size_t)piece->holder_count;
    if (piece->row) return gradient_rows_room((piece->elements / piece->row + parts - 1) / parts, piece->row);
    return memory_round_up(gradient_part_elements(piece, piece->own), CODEC_TILE);
}

static size_t elements_received(const GradientRound *round)
{
    size_t elements = 0;
    for (int i = 0; i < round->count; i++)
        for (int t = 0; t < round->pieces[i].term_count; t++)
            if (!round->pieces[i].terms[t].gradient) elements += gradient_part_room(&round->pieces[i]);
    return elements;
}

/* What coding needs in addition, for the whole parameter. */
static void make_coded(GradientSums *sums, GradientPiece *piece, size_t elements)
{
    size_t bytes = (size_t)codec_row_bytes(sums->codec, (int64_t)elements);
    GradientTerm *terms = arena_copy(&sums->arena, piece->terms, (size_t)piece->term_count * sizeof *terms);
    for (int t = 0; t < piece->term_count; t++) {
        if (!terms[t].gradient) continue;
        terms[t].residual = arena_new_array(&sums->arena, float, elements);
        terms[t].coded = arena_new_array(&sums->arena, uint8_t, bytes);
    }
    piece->terms = terms;
    if (!sums->codes_sums) return;
    piece->sum_residual = arena_new_array(&sums->arena, float, elements);
    piece->sum_coded = arena_new_array(&sums->arena, uint8_t, bytes);
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
    FREED GradientPiece *pieces = NULL;
    FREED ParameterPlace *places = sort_parameters(execution->program, known, total);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t index = places[i].index, stage = 0;
        size_t elements = known[index].stage == NOT_HELD ? 0 : known[index].elements;
        const SkyParameter *parameter = elements ? gradient_sums_held(execution, index, &stage) : NULL;
        bool is_summed = parameter && gradient_uses(execution->program, parameter);
        size_t row = known[index].row, most = row ? MOST_ELEMENTS / row * row : MOST_ELEMENTS;
        GradientPiece piece = {.global_index = index, .row = row};
        if (is_summed) {
            piece.target = execution_address(execution, stage, 0, parameter->gradient);
            find_end(execution, stage, parameter, &piece);
            list_terms(sums, &piece, all, each);
            if (sums->codec) make_coded(sums, &piece, elements);
        }
        for (size_t first = 0; first < elements; first += piece.elements) {
            piece.first = first;
            piece.elements = elements - first < most ? elements - first : most;
            if (ends_round(in_round, piece.elements, known[index].layer != last_layer)) in_round = 0, round++;
            in_round += piece.elements;
            last_layer = known[index].layer;
            piece.round = round;
            size_t count = (size_t)sums->piece_count;
            if (!is_summed) continue;
            piece.parts = arena_new_array(&sums->arena, float *, (size_t)piece.term_count); /* several are under way */
            array_push(pieces, count, capacity, piece);
            sums->piece_count++;
        }
    }
    sums->whole_rounds = round + 1;
    if (pieces) sums->pieces = arena_copy(&sums->arena, pieces, (size_t)sums->piece_count * sizeof *pieces);
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

size_t gradient_pieces_settle(GradientSums *sums)
{
    const SkyProgram *program = sums->execution->program;
    uint32_t total = program->total_parameter_count, each;
    FREED Holding *mine = memory_allocate(total * sizeof *mine);
    uint32_t uses = list_held(program, mine);
    FREED Holding *known = settle_owners(sums, mine);
    FREED HeldUse *all = gather_uses(sums, uses, &each);
    settle_pieces(sums, known, all, each);
    return settle_rounds(sums);
}
