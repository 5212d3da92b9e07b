/* Takes the federation's model from the coordinator, in pieces. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec_rows.h"
#include "federation/coded_model.h"
#include "federation/member/member.h"

static bool is_finite(const float *values, size_t count) { return isfinite(codec_largest(values, (int64_t)count)); }

/* Whether this site may ask how the fragment has changed since its own model, instead of the values. */
static bool is_coded_change(const Member *member, FragmentRange part, int64_t round)
{
    const GlobalModel *start = &member->start;
    FragmentRange met = global_model_part(start, start->round, (size_t)member->federation.fragments);
    return member->federation.model_codec != CODEC_NONE && round == start->round + 1 &&
           member->branch == start->branch && part.first == met.first && part.end == met.end;
}

/* What a reply says of values from `at` on. False: none that can be taken, with an error unless it is only that the
 * change is not known, or is that of another start: then *coded becomes false. */
static bool take_piece(Member *member, const Reply *reply, size_t at, size_t count, float *values, bool *coded,
                       FragmentRange *part, Diagnostics *diagnostics)
{
    if (!*coded) {
        memcpy(values + at, reply->payload, reply->size);
        return is_finite(values + at, count) ||
               diagnostics_error(diagnostics, EXIT_DIVERGED, PLACE_NONE, NULL,
                                 "the coordinator sent a model that is not finite: this site keeps the last one");
    }
    *coded = reply->size > 0;
    if (!*coded) return false;
    switch (coded_model_take(row_rule_down(&member->federation), member->start.values + at, values + at, count,
                             reply->payload, reply->size)) {
    case CHANGE_TAKEN: return true;
    case CHANGE_INVALID:
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_NONE, NULL,
                                 "the coordinator sent a change of the model that its codec does not make: this site "
                                 "keeps the last model");
    default: break;
    }
    member_say(member,
               "this site's model after round %" PRId64 " is not the coordinator's: taking the whole model anew",
               member->start.round);
    *part = (FragmentRange){0, global_model_taken(&member->start)};
    *coded = false;
    return false;
}

enum { MODEL_PIECES_AHEAD = 2 };

/* What was asked for and did not come is of no use any more; *asked becomes `at`. */
static void drop_pieces(Member *member, size_t *asked, size_t at)
{
    if (member->link.waiting) site_link_renew(&member->link);
    *asked = at;
}

/* Asks for a piece from `at` on and for the next ones, up to `end`, so that the coordinator makes them while this site
 * takes the first; and gets the first. *asked: from where on none has been asked for yet. */
static bool ask_for_pieces(Member *member, bool coded, size_t at, size_t end, size_t *asked, Buffer *bytes,
                           Reply *reply)
{
    unsigned char range[16];
    Request request = {.kind = coded ? REQUEST_CHANGE : REQUEST_MODEL,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round,
                       .payload = range,
                       .size = sizeof range};
    bool ok = true;
    for (; *asked < end && *asked < at + MODEL_PIECES_AHEAD * MODEL_PIECE && ok; *asked += MODEL_PIECE) {
        put_u64(range, *asked);
        put_u64(range + 8, end - *asked < MODEL_PIECE ? end - *asked : MODEL_PIECE);
        ok = member_send(member, &request);
    }
    if (ok && member_receive(member, bytes, reply) && reply->kind == (coded ? REPLY_CHANGE : REPLY_MODEL)) return true;
    drop_pieces(member, asked, at);
    put_u64(range, at);
    put_u64(range + 8, end - at < MODEL_PIECE ? end - at : MODEL_PIECE);
    ok = member_ask(member, &request, bytes, reply) && reply->kind != REPLY_WAIT;
    if (ok) *asked = at + MODEL_PIECE;
    return ok;
}

bool member_fetch(Member *member, FragmentRange *part, float *values, int64_t *round, Diagnostics *diagnostics)
{
    Buffer bytes = {0};
    Reply reply;
    int pause = MEMBER_FIRST_PAUSE_MS;
    bool ok = true, coded = is_coded_change(member, *part, *round);
    size_t asked = part->first;
    for (size_t at = part->first; at < part->end && ok && !*member->ended;) {
        size_t count = part->end - at < MODEL_PIECE ? part->end - at : MODEL_PIECE;
        if (!ask_for_pieces(member, coded, at, part->end, &asked, &bytes, &reply)) {
            member_pause(&pause);
            continue;
        }
        ok = coded ? reply.kind == REPLY_CHANGE : reply.kind == REPLY_MODEL && reply.size == count * sizeof *values;
        if (!ok) ok = member_refused(member, &reply, diagnostics);
        if (!ok) break;
        int64_t branch = member->branch;
        bool was_coded = coded;
        member_hear(member, &reply);
        if ((int64_t)reply.round != *round || member->branch != branch) { /* another round has ended since */
            *round = (int64_t)reply.round;
            coded = false;
        } else {
            ok = take_piece(member, &reply, at, count, values, &coded, part, diagnostics);
            if (ok) at += count;
            if (ok) continue;
            ok = was_coded && !coded;
        }
        at = part->first;
        drop_pieces(member, &asked, at);
    }
    drop_pieces(member, &asked, asked);
    buffer_free(&bytes);
    return ok && !*member->ended;
}

bool member_fetch_early(Member *member, Diagnostics *diagnostics)
{
    GlobalModel *start = &member->start;
    FragmentRange part = global_model_part(start, start->round, (size_t)member->federation.fragments);
    if (member->current != start->round + 1 || member->branch != start->branch) return true;
    float *values = memory_allocate(start->elements * sizeof *values);
    FragmentRange fetched = part;
    member->early_round = member->current;
    bool ok = member_fetch(member, &fetched, values, &member->early_round, diagnostics);
    if (fetched.end - fetched.first == part.end - part.first)
        member->early = values;
    else
        free(values); /* the whole model comes after the steps */
    return ok;
}

bool member_take_values(Member *member, FragmentRange *part, int64_t *round, Diagnostics *diagnostics)
{
    float *values = member->start.values, *early = member->early;
    bool is_early = early && member->early_round == *round && *round == member->start.round + 1;
    if (is_early) memcpy(values + part->first, early + part->first, (part->end - part->first) * sizeof *values);
    free(early);
    member->early = NULL;
    return is_early || member_fetch(member, part, values, round, diagnostics);
}
