#include "federation/meeting.h"

#include <sodium.h>
#include <stdlib.h>

#include "federation/coded_row.h"
#include "federation/update_pieces.h"

static const char text_unclear[] = "sent something that is not a message of a federation";

bool meeting_open(Meeting *meeting, const Federation *federation, const MeetingKeys *keys, int64_t round,
                  const float *update, size_t count, int64_t weight)
{
    *meeting = (Meeting){
        .federation = federation, .keys = keys, .round = round, .update = update, .count = count, .weight = weight};
    meeting->said.kind = REPLY_KINDS;
    return fixed_point_exponent(update, count, weight, &meeting->exponent);
}

void meeting_forget_session(Meeting *meeting)
{
    sum_site_close(meeting->sum);
    buffer_free(&meeting->answer);
    meeting->sum = NULL;
    meeting->has_answered = false;
}

void meeting_close(Meeting *meeting)
{
    meeting_forget_session(meeting);
    buffer_free(&meeting->told);
}

static MeetingState blame(Meeting *meeting, MeetingState state, int site, const char *text)
{
    meeting->problem = (SumProblem){site, text};
    return state;
}

/* ---- Answers ---- */

static void begin_answer(Meeting *meeting, SumPhase phase)
{
    Request request = {.kind = REQUEST_ANSWER,
                       .phase = phase,
                       .federation = meeting->federation->compiled.identity,
                       .round = (uint64_t)meeting->round,
                       .branch = (uint64_t)meeting->branch,
                       .place = meeting->place,
                       .amended = (uint64_t)meeting->federation->compiled.amended};
    memcpy(request.session, meeting->session, SESSION_BYTES);
    buffer_free(&meeting->answer);
    request_put(&meeting->answer, &request);
    meeting->answered = phase;
    meeting->has_answered = true;
}

static void make_offer(Meeting *meeting, const unsigned char *session)
{
    const Federation *federation = meeting->federation;
    SumSetup setup = {.site = federation->compiled.site,
                      .sites = federation->site_count,
                      .secure = federation->secure,
                      .cuts = federation->robust != 0,
                      .lasting_secret = federation->secure ? meeting->keys->secret : NULL,
                      .lasting_publics = federation->secure ? meeting->keys->publics : NULL,
                      .former_publics = federation->secure ? meeting->keys->formers : NULL,
                      .threshold = sum_threshold(federation_present(federation)),
                      .session = session};
    unsigned char offer[SUM_OFFER_BYTES];
    meeting_forget_session(meeting);
    memcpy(meeting->session, session, SESSION_BYTES);
    meeting->sum = sum_site_open(&setup);
    sum_site_offer(meeting->sum, meeting->exponent, offer);
    begin_answer(meeting, SUM_OFFERS);
    metrics_put(&meeting->answer, &meeting->metrics);
    buffer_append(&meeting->answer, offer, sizeof offer);
}

static bool make_shares(Meeting *meeting, const Reply *told)
{
    size_t bytes = sum_shares_bytes(meeting->federation->site_count);
    FREED unsigned char *shares = memory_allocate(bytes);
    bool ok =
        sum_site_roster(meeting->sum, told->payload, told->size, &meeting->shared_exponent, shares, &meeting->problem);
    begin_answer(meeting, SUM_SHARES);
    buffer_append(&meeting->answer, shares, bytes);
    return ok;
}

/* Prepares to send the update, from the first piece that the coordinator lacks. */
static bool begin_values(Meeting *meeting, Reply told)
{
    const Federation *federation = meeting->federation;
    bool ok = federation->secure ? sum_site_delivery(meeting->sum, told.payload, told.size, &meeting->problem)
                                 : sum_site_roster(meeting->sum, told.payload, told.size, &meeting->shared_exponent,
                                                   NULL, &meeting->problem);
    meeting->answered = SUM_VALUES;
    meeting->has_answered = ok;
    return ok;
}

/* The words of the weight and of the evaluation, which follow an update. */
static void put_tail(const Meeting *meeting, uint32_t words[FIXED_POINT_TAIL_WORDS])
{
    fixed_point_put_weight(words, meeting->weight);
    fixed_point_put_evaluation(words + FIXED_POINT_WEIGHT_WORDS, &meeting->evaluation);
}

static void append_coded(Meeting *meeting, size_t first, size_t values, bool is_last)
{
    enum { WEIGHT_BYTES = 4 * FIXED_POINT_WEIGHT_WORDS, EVALUATION_BYTES = 4 * FIXED_POINT_EVALUATION_WORDS };
    Codec codec = meeting->federation->codec;
    uint32_t words[FIXED_POINT_TAIL_WORDS];
    unsigned char tail[sizeof words];
    put_tail(meeting, words);
    for (int i = 0; i < FIXED_POINT_TAIL_WORDS; i++) put_u32(tail + 4 * i, words[i]);
    buffer_append(&meeting->answer, tail, WEIGHT_BYTES);
    coded_row_put(row_rule_up(meeting->federation), meeting->coded->bytes + codec_row_bytes(codec, (int64_t)first),
                  values, &meeting->answer);
    if (is_last) buffer_append(&meeting->answer, tail + WEIGHT_BYTES, EVALUATION_BYTES);
}

static void append_words(Meeting *meeting, size_t first, size_t values, bool is_last)
{
    size_t count = values + (is_last ? FIXED_POINT_TAIL_WORDS : 0);
    FREED uint32_t *words = memory_allocate(count * sizeof *words);
    fixed_point_encode(words, meeting->update + first, values, meeting->weight, meeting->shared_exponent,
                       meeting->federation->site_count);
    if (is_last) put_tail(meeting, words + values);
    sum_site_mask(meeting->sum, words, first, count);
    buffer_append(&meeting->answer, words, count * sizeof *words);
}

/* A piece of the update in meeting->answer (update_pieces.h). */
static void make_piece(Meeting *meeting, size_t number)
{
    size_t piece = update_piece_values(meeting->federation), first = number * piece;
    bool is_last = number + 1 == update_pieces(meeting->count, piece);
    size_t values = is_last ? meeting->count - first : piece;
    unsigned char head[UPDATE_PIECE_HEAD];
    begin_answer(meeting, SUM_VALUES);
    put_u64(head, number);
    buffer_append(&meeting->answer, head, sizeof head);
    if (meeting->coded)
        append_coded(meeting, first, values, is_last);
    else
        append_words(meeting, first, values, is_last);
}

static bool make_reveal(Meeting *meeting, const Reply *told)
{
    size_t bytes = sum_reveal_bytes(meeting->federation->site_count);
    FREED unsigned char *reveal = memory_allocate(bytes);
    bool ok = sum_site_reveal(meeting->sum, told->payload, told->size, reveal, &meeting->problem);
    if (ok) begin_answer(meeting, SUM_REVEALS);
    if (ok) buffer_append(&meeting->answer, reveal, bytes);
    sodium_memzero(reveal, bytes);
    return ok;
}

/* Writes meeting->answer; false: there is none. A site that finds an error stays out of the session. */
static bool make_answer(Meeting *meeting, const Reply *told)
{
    bool same = meeting->sum && memcmp(told->session, meeting->session, SESSION_BYTES) == 0, ok;
    Reply values = *told;
    if (told->phase == SUM_VALUES) {
        if (told->size < UPDATE_PIECE_HEAD) return false;
        meeting->pieces = get_u64(told->payload);
        values.payload += UPDATE_PIECE_HEAD;
        values.size -= UPDATE_PIECE_HEAD;
    }
    if (same && meeting->has_answered && told->phase == meeting->answered) return true;
    if (told->phase == SUM_OFFERS) {
        make_offer(meeting, told->session);
        return true;
    }
    if (!same && !meeting->federation->secure && told->phase == SUM_VALUES) { /* the site restarted after its offer */
        make_offer(meeting, told->session);
        same = true;
    }
    if (!same) return false;
    switch (told->phase) {
    case SUM_SHARES: ok = meeting->federation->secure && make_shares(meeting, told); break;
    case SUM_VALUES: ok = begin_values(meeting, values); break;
    default: ok = make_reveal(meeting, told);
    }
    if (!ok) meeting_forget_session(meeting);
    return ok;
}

/* ---- Questions ---- */

static bool ask(Meeting *meeting, Buffer *bytes, Reply *reply, const Buffer *request)
{
    if (!meeting->exchange(meeting->context, request, bytes)) return false;
    if (reply_get(reply, (const unsigned char *)bytes->bytes, bytes->size)) return true;
    blame(meeting, MEETING_WAITS, -1, text_unclear);
    return false;
}

/* The state after the reply to an answer or to a piece of one. */
static MeetingState learn(Meeting *meeting, const Reply *reply)
{
    MeetingState state = reply->kind == REPLY_TAKEN ? MEETING_GOES_ON : MEETING_WAITS;
    return reply->kind == REPLY_REFUSED ? blame(meeting, state, -1, "refused an answer") : state;
}

/* Keeps several pieces under way, so that a link with high latency is not idle. If the coordinator does not take one,
 * it says later where to start again. */
static MeetingState send_pieces(Meeting *meeting)
{
    size_t next = meeting->pieces, all = update_pieces(meeting->count, update_piece_values(meeting->federation));
    MeetingState state = MEETING_GOES_ON;
    for (int waiting = 0; waiting > 0 || (next < all && state == MEETING_GOES_ON); waiting--) {
        FREED_WITH(buffer_free) Buffer bytes = {0};
        Reply reply;
        for (; waiting < UPDATE_PIECES_AHEAD && next < all && state == MEETING_GOES_ON; waiting++) {
            make_piece(meeting, next++);
            if (!meeting->exchange(meeting->context, &meeting->answer, NULL)) return MEETING_WAITS;
        }
        if (!ask(meeting, &bytes, &reply, NULL)) return MEETING_WAITS;
        if (state == MEETING_GOES_ON) state = learn(meeting, &reply);
    }
    return state;
}

static MeetingState send_answer(Meeting *meeting)
{
    if (meeting->answered == SUM_VALUES) return send_pieces(meeting);
    FREED_WITH(buffer_free) Buffer bytes = {0};
    Reply reply;
    MeetingState state = MEETING_WAITS;
    if (ask(meeting, &bytes, &reply, &meeting->answer)) state = learn(meeting, &reply);
    return state;
}

static MeetingState follow(Meeting *meeting, const Reply *reply)
{
    meeting->said = *reply;
    buffer_free(&meeting->told);
    if (reply->kind == REPLY_AMEND || reply->kind == REPLY_REFUSED || reply->kind == REPLY_WAIT)
        buffer_append(&meeting->told, reply->payload, reply->size);
    meeting->said.payload = (const unsigned char *)meeting->told.bytes;
    meeting->said.size = meeting->told.size;
    meeting->hint = reply->kind == REPLY_TWICE ? REPLY_TWICE_HINT : "compile all sites and the coordinator together";
    if (reply->kind == REPLY_REFUSED)
        return blame(meeting, MEETING_REFUSED, -1,
                     "says that this site trains another model, or was compiled for "
                     "another federation");
    if (reply_sends_away(reply)) return blame(meeting, MEETING_REFUSED, -1, "says that this site " REPLY_TWICE_TEXT);
    if (reply->kind == REPLY_TWICE) return MEETING_WAITS;
    if (reply->kind == REPLY_AMEND) return MEETING_AMENDED;
    meeting->counted = reply_counted(reply);
    if ((int64_t)reply->round != meeting->round || (int64_t)reply->branch != meeting->branch ||
        (int64_t)reply->rounds <= meeting->round)
        return MEETING_OVER;
    if (reply->kind == REPLY_WAIT || (reply->kind == REPLY_TELL && !make_answer(meeting, reply))) return MEETING_WAITS;
    return reply->kind == REPLY_TELL ? send_answer(meeting) : blame(meeting, MEETING_WAITS, -1, text_unclear);
}

MeetingState meeting_step(Meeting *meeting)
{
    Request request = {.kind = REQUEST_ASK,
                       .federation = meeting->federation->compiled.identity,
                       .round = (uint64_t)meeting->round,
                       .branch = (uint64_t)meeting->branch,
                       .place = meeting->place,
                       .amended = (uint64_t)meeting->federation->compiled.amended};
    FREED_WITH(buffer_free) Buffer question = {0}, bytes = {0};
    Reply reply;
    MeetingState state = MEETING_WAITS;
    memcpy(request.session, meeting->session, SESSION_BYTES); /* zeros before the first */
    meeting->problem = (SumProblem){-1, NULL};
    request_put(&question, &request);
    if (ask(meeting, &bytes, &reply, &question)) state = follow(meeting, &reply);
    return state;
}
