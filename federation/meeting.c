#include "federation/meeting.h"

#include <sodium.h>
#include <stdlib.h>

#include "federation/aggregate/fixed_point.h"

static const char text_unclear[] = "sent what is no message of a federation";

bool meeting_open(Meeting *meeting, const Federation *federation, const MeetingKeys *keys, int64_t round,
                  const float *update, size_t count, int64_t weight)
{
    *meeting = (Meeting){
        .federation = federation, .keys = keys, .round = round, .update = update, .count = count, .weight = weight};
    return fixed_point_exponent(update, count, weight, &meeting->exponent);
}

static void end_session(Meeting *meeting)
{
    sum_site_close(meeting->sum);
    buffer_free(&meeting->answer);
    meeting->sum = NULL;
    meeting->has_answered = false;
}

void meeting_close(Meeting *meeting) { end_session(meeting); }

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
                       .round = (uint64_t)meeting->round};
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
                      .lasting_secret = federation->secure ? meeting->keys->secret : NULL,
                      .lasting_publics = federation->secure ? meeting->keys->publics : NULL,
                      .session = session};
    unsigned char offer[SUM_OFFER_BYTES];
    end_session(meeting);
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
    unsigned char *shares = memory_allocate(bytes);
    bool ok =
        sum_site_roster(meeting->sum, told->payload, told->size, &meeting->shared_exponent, shares, &meeting->problem);
    begin_answer(meeting, SUM_SHARES);
    buffer_append(&meeting->answer, shares, bytes);
    free(shares);
    return ok;
}

static bool make_values(Meeting *meeting, const Reply *told)
{
    const Federation *federation = meeting->federation;
    bool ok = federation->secure ? sum_site_delivery(meeting->sum, told->payload, told->size, &meeting->problem)
                                 : sum_site_roster(meeting->sum, told->payload, told->size, &meeting->shared_exponent,
                                                   NULL, &meeting->problem);
    if (!ok) return false;
    if (meeting->coded) {
        uint32_t weight[FIXED_POINT_WEIGHT_WORDS];
        unsigned char bytes[sizeof weight];
        fixed_point_put_weight(weight, meeting->weight);
        for (int i = 0; i < FIXED_POINT_WEIGHT_WORDS; i++) put_u32(bytes + 4 * i, weight[i]);
        begin_answer(meeting, SUM_VALUES);
        buffer_append(&meeting->answer, bytes, sizeof bytes);
        buffer_append(&meeting->answer, meeting->coded->bytes, meeting->coded->size);
        return true;
    }
    size_t count = meeting->count + FIXED_POINT_WEIGHT_WORDS;
    uint32_t *words = memory_allocate(count * sizeof *words);
    fixed_point_encode(words, meeting->update, meeting->count, meeting->weight, meeting->shared_exponent,
                       federation->site_count);
    fixed_point_put_weight(words + meeting->count, meeting->weight);
    sum_site_mask(meeting->sum, words, count);
    begin_answer(meeting, SUM_VALUES);
    buffer_append(&meeting->answer, words, count * sizeof *words);
    free(words);
    return true;
}

static bool make_reveal(Meeting *meeting, const Reply *told)
{
    size_t bytes = sum_reveal_bytes(meeting->federation->site_count);
    unsigned char *reveal = memory_allocate(bytes);
    bool ok = sum_site_reveal(meeting->sum, told->payload, told->size, reveal, &meeting->problem);
    if (ok) begin_answer(meeting, SUM_REVEALS);
    if (ok) buffer_append(&meeting->answer, reveal, bytes);
    sodium_memzero(reveal, bytes);
    free(reveal);
    return ok;
}

/* What to answer, in meeting->answer; false: nothing. A site that finds something wrong stays out of the session. */
static bool make_answer(Meeting *meeting, const Reply *told)
{
    bool same = meeting->sum && memcmp(told->session, meeting->session, SESSION_BYTES) == 0, ok;
    if (same && meeting->has_answered && told->phase == meeting->answered) return true;
    if (told->phase == SUM_OFFERS) {
        make_offer(meeting, told->session);
        return true;
    }
    if (!same && !meeting->federation->secure && told->phase == SUM_VALUES) { /* it was started again since its offer */
        make_offer(meeting, told->session);
        same = true;
    }
    if (!same) return false;
    switch (told->phase) {
    case SUM_SHARES: ok = meeting->federation->secure && make_shares(meeting, told); break;
    case SUM_VALUES: ok = make_values(meeting, told); break;
    default: ok = make_reveal(meeting, told);
    }
    if (!ok) end_session(meeting);
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

static MeetingState send_answer(Meeting *meeting)
{
    Buffer bytes = {0};
    Reply reply;
    MeetingState state = MEETING_WAITS;
    if (ask(meeting, &bytes, &reply, &meeting->answer)) {
        state = reply.kind == REPLY_TAKEN ? MEETING_GOES_ON : MEETING_WAITS;
        if (reply.kind == REPLY_REFUSED) blame(meeting, state, -1, "refused an answer");
    }
    buffer_free(&bytes);
    return state;
}

static MeetingState follow(Meeting *meeting, const Reply *reply, int64_t *round)
{
    *round = (int64_t)reply->round;
    if (reply->kind == REPLY_REFUSED)
        return blame(meeting, MEETING_REFUSED, -1,
                     "says that this site trains another model, or was compiled for "
                     "another federation");
    meeting->counted = reply_counted(reply);
    if (*round != meeting->round) return MEETING_OVER;
    if (reply->kind == REPLY_WAIT || (reply->kind == REPLY_TELL && !make_answer(meeting, reply))) return MEETING_WAITS;
    return reply->kind == REPLY_TELL ? send_answer(meeting) : blame(meeting, MEETING_WAITS, -1, text_unclear);
}

MeetingState meeting_step(Meeting *meeting, int64_t *round)
{
    Request request = {
        .kind = REQUEST_ASK, .federation = meeting->federation->compiled.identity, .round = (uint64_t)meeting->round};
    Buffer question = {0}, bytes = {0};
    Reply reply;
    MeetingState state = MEETING_WAITS;
    memcpy(request.session, meeting->session, SESSION_BYTES); /* zeros before the first */
    meeting->problem = (SumProblem){-1, NULL};
    request_put(&question, &request);
    if (ask(meeting, &bytes, &reply, &question)) state = follow(meeting, &reply, round);
    buffer_free(&question);
    buffer_free(&bytes);
    return state;
}
