/* What a coordinator refuses, and sites that run in two places. */
#include <math.h>

#include "federation/aggregate/fixed_point.h"
#include "tests/federation/round_world.h"

static World world;

static void expect_refused(Site *site, const Buffer *request, const char *why)
{
    FREED_WITH(buffer_free) Buffer bytes = {0};
    Reply reply;
    assert_true(exchange(site, request, &bytes));
    assert_true(reply_get(&reply, (unsigned char *)bytes.bytes, bytes.size));
    assert_int_equal(reply.kind, REPLY_REFUSED);
    char text[128] = "";
    memcpy(text, reply.payload, reply.size < 127 ? reply.size : 127);
    assert_string_equal(text, why);
    fflush(site->world->console);
    assert_non_null(strstr(site->world->said, why));
}

static Request request_of(const World *of, RequestKind kind, SumPhase phase)
{
    Request request = {.kind = kind,
                       .phase = phase,
                       .federation = of->federation.compiled.identity,
                       .round = (uint64_t)of->coordinator.model.round};
    memcpy(request.session, of->coordinator.sum.session, SESSION_BYTES);
    return request;
}

static void send_odd(Site *site, Request request, const void *payload, size_t size, const char *why)
{
    FREED_WITH(buffer_free) Buffer bytes = {0};
    request.payload = payload;
    request.size = size;
    request_put(&bytes, &request);
    expect_refused(site, &bytes, why);
}

static void what_is_wrong_is_refused_and_the_round_goes_on(void **state)
{
    (void)state;
    bool in[2][MOST];
    unsigned char zeros[512] = {0};
    all_in(in, 2);
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    Site *site = &world.sites[1];
    expect_refused(site, &(Buffer){.bytes = "SKYG\1 what else", .size = 16},
                   "sent something that is not a message of a federation");
    Buffer answer = {0};
    assert_true(exchange(site, &(Buffer){.bytes = "SKYF\1 what else", .size = 16}, &answer));
    assert_int_equal(answer.bytes[4], 1); /* in its version, so that it can be read there */
    assert_non_null(memmem(answer.bytes, answer.size, "another version of skycc", 24));
    buffer_free(&answer);
    Request other = request_of(&world, REQUEST_ASK, SUM_OFFERS);
    other.federation.low++;
    send_odd(site, other, NULL, 0, "trains another model, or was compiled for another federation");
    for (int s = 0; s < 3; s++) step(&world.sites[s]); /* offers */
    for (int s = 0; s < 3; s++) step(&world.sites[s]); /* shares */
    step(&world.sites[0]);
    assert_int_equal(world.coordinator.sum.phase, SUM_VALUES);
    Request values = request_of(&world, REQUEST_ANSWER, SUM_VALUES);
    size_t bytes = UPDATE_PIECE_HEAD + 4 * PIECE;
    send_odd(site, values, zeros, bytes - 4, "sent an update of the wrong size");
    send_odd(site, values, zeros, bytes + 4 * FIXED_POINT_WEIGHT_WORDS, "sent an update of the wrong size");
    send_odd(site, values, zeros, UPDATE_PIECE_HEAD - 1, "sent an update of the wrong size");
    send_odd(&world.sites[0], values, zeros, bytes, "has sent this before");
    Request late = request_of(&world, REQUEST_ANSWER, SUM_OFFERS);
    send_odd(site, late, zeros, METRICS_BYTES + SUM_OFFER_BYTES, "is late");
    send_odd(site, late, zeros, 3, "sent invalid metrics");
    Request replayed = values;
    replayed.session[5] ^= 1;
    send_odd(site, replayed, zeros, bytes, "sent an answer of another session");
    replayed = values;
    replayed.round++;
    send_odd(site, replayed, zeros, bytes, "sent an update of another round");
    unsigned char piece[16];
    put_u64(piece, ELEMENTS - 1);
    put_u64(piece + 8, 2);
    send_odd(site, request_of(&world, REQUEST_MODEL, 0), piece, 16, "asked for elements that the model does not have");
    put_u64(piece, UINT64_MAX);
    send_odd(site, request_of(&world, REQUEST_MODEL, 0), piece, 16, "asked for elements that the model does not have");
    assert_true(site->world->coordinator.sites[1].refused >= 9);
    assert_non_null(strstr(world.said, "site 'oslo' is late: that message is ignored"));
    run(&world, 3);
    expect_model(&world, in);
    stop(&world);
}

/* What one site says when it ends is told the others, escaped, until it is back. */
static void why_a_site_has_ended_is_told_the_others(void **state)
{
    (void)state;
    static const char end[] = "\4rows.safetensors: cannot open\33[2J\n";
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    Request request = request_of(&world, REQUEST_ASK, SUM_OFFERS);
    request.payload = (const unsigned char *)end;
    for (int back = 0; back < 2; back++) {
        for (int asker = 1; asker >= 0; asker--) {
            Buffer bytes = {0}, answer = {0};
            request.size = asker && !back ? sizeof end - 1 : 0;
            request.round = asker ? 0 : ROUND_NONE; /* to which the answer is that it waits */
            request_put(&bytes, &request);
            assert_true(exchange(&world.sites[asker], &bytes, &answer));
            const char *told = memmem(answer.bytes, answer.size, "site 'oslo' has ended: rows.safetensors: cannot", 47);
            assert_true((told != NULL) == (asker == 0 && !back));
            if (told) assert_non_null(strstr(told, "open\\x1b[2J\\n"));
            buffer_free(&bytes);
            buffer_free(&answer);
        }
    }
    fflush(world.console);
    assert_non_null(strstr(world.said, "site 'oslo' has ended: rows.safetensors: cannot open\\x1b[2J\\n\n"));
    world.coordinator.sites[2].silent = true;
    char why[PRESENCE_TEXT];
    assert_string_equal(presence_absence(&world.coordinator, 2, why), "silent");
    assert_null(presence_absence(&world.coordinator, 1, why));
    stop(&world);
}

static void pieces_that_are_wrong_are_refused_and_the_others_count(void **state)
{
    (void)state;
    bool in[1][MOST];
    unsigned char piece[UPDATE_PIECE_HEAD + 4 * (PIECE + FIXED_POINT_WEIGHT_WORDS)] = {0};
    const size_t whole = UPDATE_PIECE_HEAD + 4 * PIECE;
    all_in(in, 1);
    send_two_pieces(&world, 3, true);
    Request values = request_of(&world, REQUEST_ANSWER, SUM_VALUES);
    put_u64(piece, 2);
    send_odd(&world.sites[1], values, piece, whole, "has sent this piece of its update before");
    for (uint64_t number = 4; number; number = number == 4 ? UINT64_MAX : 0) {
        put_u64(piece, number);
        send_odd(&world.sites[1], values, piece, whole, "left out a piece of its update");
    }
    put_u64(piece, 3);
    send_odd(&world.sites[1], values, piece, whole - 1, "sent an update of the wrong size");
    send_odd(&world.sites[1], values, piece, sizeof piece, "sent an update of the wrong size");
    run(&world, 5);
    put_u64(piece, 3);
    send_odd(&world.sites[1], values, piece, whole, "sent an update of another round");
    expect_model(&world, in);
    stop(&world);
}

static void a_site_of_another_model_is_told(void **state)
{
    (void)state;
    start(&world, 3, false, OUTER_AVERAGE, 1, 1);
    Site *site = &world.sites[2];
    site->federation.compiled.identity.high = 99;
    begin_meeting(site, 0);
    assert_int_equal(meeting_step(&site->meeting), MEETING_REFUSED);
    assert_non_null(strstr(site->meeting.problem.text, "trains another model"));
    stop(&world);
}

static void updates_that_are_not_finite_are_not_sent(void **state)
{
    (void)state;
    Meeting meeting;
    start(&world, 3, false, OUTER_AVERAGE, 1, 1);
    assert_false(meeting_open(&meeting, &world.federation, NULL, 0, (const float[]){1, NAN}, 2, 1));
    meeting_close(&meeting);
    stop(&world);
}

/* What a message from there is answered with; -1: nothing about two places, else what REPLY_TWICE says. */
static int ask_from(Site *site, uint64_t place, RequestKind kind)
{
    Buffer request = {0}, bytes = {0};
    Reply reply;
    Request alive = request_of(&world, kind, SUM_OFFERS);
    alive.place = place;
    request_put(&request, &alive);
    assert_true(exchange(site, &request, &bytes) && reply_get(&reply, (unsigned char *)bytes.bytes, bytes.size));
    int twice = reply.kind == REPLY_TWICE ? reply.payload[0] : -1;
    buffer_free(&request);
    buffer_free(&bytes);
    return twice;
}

/* Of two starts the first stays, while it is heard of. Messages of the other one change nothing. */
static void a_site_that_runs_in_two_places_keeps_its_first_start(void **state)
{
    (void)state;
    enum { FIRST = 7, SECOND = 8, THIRD = 9 };
    bool in[2][MOST];
    all_in(in, 2);
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    Site *site = &world.sites[1];
    assert_int_equal(ask_from(site, FIRST, REQUEST_ALIVE), -1);
    while (world.coordinator.sum.phase == SUM_OFFERS)
        for (int s = 0; s < 3; s++) {
            world.sites[s].meeting.place = s == 1 && world.sites[s].meets ? FIRST : 0;
            step(&world.sites[s]);
        }
    world.now += 3;
    assert_int_equal(ask_from(site, SECOND, REQUEST_ASK), 0); /* who knows whether the first lives */
    assert_int_equal(ask_from(site, THIRD, REQUEST_ASK), 0);
    assert_true(world.coordinator.sum.members[1].offered); /* the first is in the session still */
    world.now += 2;
    assert_int_equal(ask_from(site, FIRST, REQUEST_ALIVE), -1);
    for (int times = 0; times < 4; times++) /* in turn, as they would */
        assert_int_equal(ask_from(site, times % 2 ? THIRD : SECOND, REQUEST_ASK), 1);
    Meeting second = {.federation = &site->federation, .exchange = exchange, .context = site, .place = SECOND};
    assert_int_equal(meeting_step(&second), MEETING_REFUSED);
    assert_non_null(strstr(second.problem.text, "runs in two places"));
    fflush(world.console);
    assert_non_null(strstr(world.said, "site 'oslo' runs in two places: the one that came first stays"));
    assert_null(strstr(strstr(world.said, "two places") + 1, "two places")); /* said once */
    run(&world, 5);
    expect_model(&world, in);
    stop(&world);
}

/* A host that is gone does not keep its site out; when it comes back, the site is elsewhere. */
static void a_site_moves_when_nothing_is_heard_of_its_first_start(void **state)
{
    (void)state;
    enum { FIRST = 7, SECOND = 8 };
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    Site *site = &world.sites[1];
    assert_int_equal(ask_from(site, FIRST, REQUEST_ASK), -1);
    world.now += 100;
    int asked = 0;
    for (; ask_from(site, SECOND, REQUEST_ASK) == 0; asked++) world.now += 1;
    assert_in_range(asked, 25, 40);
    assert_int_equal(ask_from(site, SECOND, REQUEST_ASK), -1);
    assert_int_equal(ask_from(site, FIRST, REQUEST_ASK), 0);
    world.now += 2;
    assert_int_equal(ask_from(site, SECOND, REQUEST_ASK), -1);
    assert_int_equal(ask_from(site, FIRST, REQUEST_ASK), 1);
    fflush(world.console);
    assert_non_null(strstr(world.said, "site 'oslo' goes on in another place"));
    stop(&world);
}

static void a_model_that_is_not_finite_is_not_kept(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    GlobalModel kept;
    start(&world, 3, true, OUTER_SGD, 2, 1);
    world.federation.outer.rate = 1e60;
    for (int turn = 0; turn < 200 && !world.coordinator.diverged; turn++) {
        step(&world.sites[turn % 3]);
        coordinator_tick(&world.coordinator, world.now);
    }
    assert_true(world.coordinator.diverged);
    world.now += 1e9;
    coordinator_tick(&world.coordinator, world.now);
    assert_true(
        global_model_open_file(&kept, world.federation.compiled.identity, "model.safetensors", false, &diagnostics));
    assert_true(kept.round == 0 && kept.values[32] == 1);
    global_model_free(&kept);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(why_a_site_has_ended_is_told_the_others),
        TEST(pieces_that_are_wrong_are_refused_and_the_others_count),
        TEST(what_is_wrong_is_refused_and_the_round_goes_on),
        TEST(a_site_of_another_model_is_told),
        TEST(updates_that_are_not_finite_are_not_sent),
        TEST(a_site_that_runs_in_two_places_keeps_its_first_start),
        TEST(a_site_moves_when_nothing_is_heard_of_its_first_start),
        TEST(a_model_that_is_not_finite_is_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
