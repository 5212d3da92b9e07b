#include "runtime/train/gradient_sums.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/program/parallel.h"
#include "runtime/train/gradient_rows.h"

static size_t bytes_of(Codec codec, size_t elements)
{
    return codec ? (size_t)codec_row_bytes(codec, (int64_t)elements) : elements * sizeof(float);
}

bool gradient_sums_open(GradientSums *sums, const Pipeline *pipeline, Diagnostics *diagnostics)
{
    const SkyProgram *program = pipeline->program;
    *sums = (GradientSums){.world = pipeline->world,
                           .execution = pipeline->execution,
                           .tags = pipeline->tags,
                           .codec = (Codec)program->sum_codec,
                           .codes_sums = program->sum_codec && program->replica_count > 2,
                           .emulated = pipeline->emulate_links && program->replica_count > 1};
    sums->owner = arena_new_array(&sums->arena, uint32_t, program->total_parameter_count);
    sums->calls = arena_new_array(&sums->arena, uint32_t, program->stage_count);
    size_t received = gradient_pieces_settle(sums);
    if (sums->emulated)
        sums->when = arena_new_array(&sums->arena, double, (program->rank_count + 1) * (size_t)sums->whole_rounds);
    size_t coded = sums->codec ? bytes_of(sums->codec, received) : 0;
    bool tables = false;
    for (int i = 0; i < sums->piece_count; i++) tables |= sums->pieces[i].row > 0;
    return memory_map(&sums->received, received * sizeof(float), 1, "gradients of other ranks", diagnostics) &&
           memory_map(&sums->packed, tables ? received * sizeof(float) : 0, 1, "rows of tables", diagnostics) &&
           memory_map(&sums->coded, coded, 1, "coded gradients of other ranks", diagnostics);
}

void gradient_sums_close(GradientSums *sums)
{
    arena_free(&sums->arena);
    memory_unmap(&sums->received);
    memory_unmap(&sums->packed);
    memory_unmap(&sums->coded);
}

/* ---- Summing ---- */

static int tag_of(const GradientSums *sums, const GradientPiece *piece, bool sum)
{
    return (int)message_tag_of_parameter(&sums->tags, piece->global_index, sum);
}

/* What is sent of a term, from that element of the piece on. */
static const void *term_at(const GradientSums *sums, const GradientPiece *piece, const GradientTerm *term, size_t at)
{
    at += piece->first;
    return sums->codec ? (const void *)(term->coded + bytes_of(sums->codec, at)) : (const void *)(term->gradient + at);
}

/* Where the coded form of what is received there arrives. */
static uint8_t *coded_at(const GradientSums *sums, const float *received)
{
    return (uint8_t *)sums->coded.bytes + bytes_of(sums->codec, (size_t)(received - (float *)sums->received.bytes));
}

static void code_terms(const GradientSums *sums, const GradientPiece *piece, int threads)
{
    for (int t = 0; t < piece->term_count && sums->codec; t++)
        if (piece->terms[t].gradient)
            parallel_code(threads, sums->codec, piece->terms[t].gradient + piece->first,
                          piece->terms[t].residual + piece->first, piece->elements,
                          piece->terms[t].coded + bytes_of(sums->codec, piece->first));
}

/* ---- Tables ---- */

static size_t part_rows(const GradientPiece *piece, int holder)
{
    return gradient_part_elements(piece, holder) / piece->row;
}

/* Where the message from the holder arrives, or the one to it leaves from. */
static float *message_at(const GradientPiece *piece, float *messages, int holder)
{
    return messages + gradient_part_room(piece) * (size_t)(holder - (holder > piece->own));
}

static void send_rows(GradientSums *sums, GradientPiece *piece, const float *message, size_t elements, int holder,
                      bool sum, int *pending)
{
    piece->moved[sum] += elements;
    world_send(sums->world, message, elements * sizeof *message, piece->holders[holder], tag_of(sums, piece, sum),
               pending);
}

static void receive_rows(GradientSums *sums, GradientPiece *piece, int holder, size_t rows, bool sum, int *pending)
{
    world_receive(sums->world, message_at(piece, piece->received, holder),
                  gradient_rows_room(rows, piece->row) * sizeof(float), piece->holders[holder],
                  tag_of(sums, piece, sum), pending);
}

/* A table has one term of each holder. */
static void exchange_row_terms(GradientSums *sums, GradientPiece *piece, float **received, int *pending)
{
    piece->received = *received;
    piece->packed = (float *)sums->packed.bytes + (*received - (float *)sums->received.bytes);
    piece->moved[0] = piece->moved[1] = 0;
    *received += gradient_part_room(piece) * (size_t)(piece->holder_count - 1);
    for (int h = 0; h < piece->holder_count; h++) {
        float *message = message_at(piece, piece->packed, h);
        if (h == piece->own) continue;
        if (part_rows(piece, piece->own)) receive_rows(sums, piece, h, part_rows(piece, piece->own), false, pending);
        if (!part_rows(piece, h)) continue;
        const float *from = piece->target + piece->first + gradient_part_begin(piece, h);
        send_rows(sums, piece, message, gradient_rows_pack(from, part_rows(piece, h), piece->row, message), h, false,
                  pending);
    }
}

static void add_rows(GradientPiece *piece)
{
    for (int t = 0; t < piece->term_count; t++) {
        int h = 0;
        while (piece->holders[h] != piece->terms[t].rank) h++;
        piece->parts[t] = h == piece->own ? NULL : message_at(piece, piece->received, h);
    }
    gradient_rows_add(piece->target + piece->first + gradient_part_begin(piece, piece->own),
                      (const float *const *)piece->parts, piece->term_count, part_rows(piece, piece->own), piece->row);
}

static void exchange_row_sums(GradientSums *sums, GradientPiece *piece, int *pending)
{
    size_t own = part_rows(piece, piece->own), elements = 0;
    if (own)
        elements = gradient_rows_pack(piece->target + piece->first + gradient_part_begin(piece, piece->own), own,
                                      piece->row, piece->packed);
    for (int h = 0; h < piece->holder_count; h++) {
        if (h == piece->own) continue;
        if (part_rows(piece, h)) receive_rows(sums, piece, h, part_rows(piece, h), true, pending);
        if (own) send_rows(sums, piece, piece->packed, elements, h, true, pending);
    }
}

static void unpack_sums(const GradientPiece *piece)
{
    for (int h = 0; h < piece->holder_count; h++)
        if (h != piece->own && part_rows(piece, h))
            gradient_rows_unpack(piece->target + piece->first + gradient_part_begin(piece, h), part_rows(piece, h),
                                 piece->row, message_at(piece, piece->received, h));
}

/* ---- All parameters ---- */

/* Sends each holder its part of this rank's terms, and receives this rank's part of the others'. */
static void exchange_terms(GradientSums *sums, GradientPiece *piece, float **received, int *pending)
{
    size_t begin = gradient_part_begin(piece, piece->own), elements = gradient_part_elements(piece, piece->own);
    if (piece->row) {
        exchange_row_terms(sums, piece, received, pending);
        return;
    }
    for (int t = 0; t < piece->term_count; t++) {
        const GradientTerm *term = &piece->terms[t];
        piece->parts[t] = term->gradient ? term->gradient + piece->first + begin : *received;
        if (term->gradient || !elements) continue;
        world_receive(sums->world, sums->codec ? (void *)coded_at(sums, *received) : *received,
                      bytes_of(sums->codec, elements), term->rank, tag_of(sums, piece, false), pending);
        *received += gradient_part_room(piece);
    }
    for (int h = 0; h < piece->holder_count; h++)
        for (int t = 0; t < piece->term_count && h != piece->own && gradient_part_elements(piece, h); t++)
            if (piece->terms[t].gradient)
                world_send(sums->world, term_at(sums, piece, &piece->terms[t], gradient_part_begin(piece, h)),
                           bytes_of(sums->codec, gradient_part_elements(piece, h)), piece->holders[h],
                           tag_of(sums, piece, false), pending);
}

/* What is sent of a sum. */
static void *sum_at(const GradientPiece *piece, Codec codec, int holder)
{
    size_t at = piece->first + gradient_part_begin(piece, holder);
    return codec ? (void *)(piece->sum_coded + bytes_of(codec, at)) : (void *)(piece->target + at);
}

/* Of three or more holders: each sends its sum to the others. */
static void exchange_sums(GradientSums *sums, GradientPiece *piece, int threads, int *pending)
{
    Codec codec = sums->codes_sums ? sums->codec : CODEC_NONE;
    size_t own = gradient_part_elements(piece, piece->own), at = piece->first + gradient_part_begin(piece, piece->own);
    if (piece->holder_count < 3) return;
    if (piece->row) {
        exchange_row_sums(sums, piece, pending);
        return;
    }
    if (codec)
        parallel_code(threads, codec, piece->target + at, piece->sum_residual + at, own,
                      sum_at(piece, codec, piece->own));
    for (int h = 0; h < piece->holder_count; h++) {
        size_t elements = gradient_part_elements(piece, h);
        if (h == piece->own) continue;
        if (elements)
            world_receive(sums->world, sum_at(piece, codec, h), bytes_of(codec, elements), piece->holders[h],
                          tag_of(sums, piece, true), pending);
        if (own)
            world_send(sums->world, sum_at(piece, codec, piece->own), bytes_of(codec, own), piece->holders[h],
                       tag_of(sums, piece, true), pending);
    }
}

static void decode_sums(const GradientSums *sums, const GradientPiece *piece, int threads)
{
    for (int h = 0; h < piece->holder_count && sums->codes_sums && piece->holder_count > 2; h++)
        if (h != piece->own)
            parallel_code(threads, sums->codec, piece->target + piece->first + gradient_part_begin(piece, h), NULL,
                          gradient_part_elements(piece, h), sum_at(piece, sums->codec, h));
}

/* Adds up this rank's part, and makes its terms 0 for the next step. */
static void add(const GradientSums *sums, GradientPiece *piece, int threads)
{
    if (piece->row) {
        add_rows(piece);
        return;
    }
    for (int t = 0; t < piece->term_count && sums->codec; t++)
        if (!piece->terms[t].gradient)
            parallel_code(threads, sums->codec, piece->parts[t], NULL, gradient_part_elements(piece, piece->own),
                          coded_at(sums, piece->parts[t]));
    parallel_add(threads, piece->target + piece->first + gradient_part_begin(piece, piece->own), piece->parts,
                 piece->term_count, gradient_part_elements(piece, piece->own));
    for (int t = 0; t < piece->term_count; t++)
        if (piece->terms[t].gradient && piece->terms[t].gradient != piece->target)
            parallel_zero(threads, piece->terms[t].gradient + piece->first, piece->elements * sizeof(float));
}

/* Copies the sum to the other stages of this rank that have the parameter. */
static void hand_out(const GradientSums *sums, const GradientPiece *piece, int threads)
{
    const Execution *execution = sums->execution;
    uint32_t stage = 0;
    decode_sums(sums, piece, threads);
    if (piece->row && piece->holder_count > 2) unpack_sums(piece);
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

static void begin(GradientSums *sums, GradientRound *round, double when, int threads)
{
    float *received = (float *)sums->received.bytes; /* NULL where no other rank has anything */
    if (received) received += round->first;
    round->when = when;
    for (int i = 0; i < round->count; i++) {
        code_terms(sums, &round->pieces[i], threads);
        exchange_terms(sums, &round->pieces[i], &received, &round->terms);
    }
}

static void add_round(GradientSums *sums, GradientRound *round, int threads)
{
    for (int i = 0; i < round->count; i++) add(sums, &round->pieces[i], threads);
    for (int i = 0; i < round->count; i++) exchange_sums(sums, &round->pieces[i], threads, &round->sums);
}

/* Whatever can be done without waiting: terms of rounds are under way while those of an earlier one are added up, and
 * so are sums. */
static void advance(GradientSums *sums, double when, int threads)
{
    for (; sums->added < sums->begun && !sums->rounds[sums->added].terms; sums->added++)
        add_round(sums, &sums->rounds[sums->added], threads);
    for (; sums->begun < sums->round_count; sums->begun++) {
        GradientRound *round = &sums->rounds[sums->begun];
        int free = sums->packed.bytes ? sums->finished : sums->added; /* sums of tables arrive there, too */
        if (round->after >= free || !is_final(sums, round)) break;
        begin(sums, round, when, threads);
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

/* Of a round, as replica_sums_bytes counts: a holder sends 2 (holders - 1) / holders of them. */
static double summed_bytes(const GradientRound *round)
{
    double elements = 0;
    for (int i = 0; i < round->count; i++) {
        const GradientPiece *piece = &round->pieces[i];
        double moved = (double)(piece->moved[0] + piece->moved[1]), holders = piece->holder_count;
        elements += piece->row ? moved * holders / (2 * (holders - 1)) : (double)piece->elements;
    }
    return elements * sizeof(float);
}

/* The last rank that ends the gradients of a round lets its messages begin. They take this rank's links as long as
 * planned, one round after another. */
static void emulate(GradientSums *sums)
{
    const SkyProgram *program = sums->execution->program;
    StepPart before = step_clock_enter(&sums->world->clock, PART_WAITING);
    double *mine = &sums->when[program->rank_count * sums->whole_rounds], end = 0;
    for (int i = 0; i < sums->round_count; i++) mine[sums->rounds[i].pieces->round] = sums->rounds[i].when;
    world_allgather(sums->world, mine, sums->whole_rounds * sizeof *mine, sums->when, "the sums of gradients");
    for (int i = 0; i < sums->round_count; i++) {
        const GradientRound *round = &sums->rounds[i];
        for (int p = 0; p < round->count; p++)
            for (int h = 0; h < round->pieces[p].holder_count; h++)
                end = fmax(
                    end,
                    sums->when[(uint32_t)round->pieces[p].holders[h] * sums->whole_rounds + round->pieces[p].round]);
        end += program->sum_s * summed_bytes(round);
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
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);) {
        const SkyParameter *parameter = held.parameter;
        uint32_t uses = gradient_uses(execution->program, parameter);
        for (uint32_t u = 0; u < uses + 1 && uses; u++) { /* and the sum */
            SkyLocation at = u < parameter->use_count ? parameter->uses[u].gradient : parameter->gradient;
            move(execution, held.stage, at, parameter->value.bytes, back);
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
    for (SkyHeld held = {0}; sky_next_parameter(execution->program, &held);)
        for (int state = -1; state < (int)held.parameter->state_count; state++)
            move(execution, held.stage, state < 0 ? held.parameter->value.location : held.parameter->states[state],
                 held.parameter->value.bytes, back);
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
