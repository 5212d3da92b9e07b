/* Rounds of a federation in one process, without connections: sites and the coordinator come and go, messages are lost,
 * sent again and made up, disks are full, and the model is what it should be. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/coordinator.h"
#include "federation/meeting.h"
#include "federation/update_pieces.h"
#include "tests/common/scratch.h"

enum { MOST = 6, ELEMENTS = 90, PIECE = 16, PIECES = 6 };

static const char *const names[] = {"embeddings", "layer", "head"};
static const Shape shapes[] = {{2, {4, 9}}, {1, {30}}, {1, {24}}};

/* A site that makes up its updates: a function of site, round and element, whatever the model. */
typedef struct Site {
    struct World *world;
    int number;
    Federation federation; /* its own copy says which site it is */
    MeetingKeys keys;
    Meeting meeting;
    float update[ELEMENTS];
    bool meets, gone;
    int64_t round; /* of the meeting */
    int64_t late;  /* rounds that ended without it */
    Buffer replies[UPDATE_PIECES_AHEAD + 1];
    int reply_count;
} Site;

typedef struct World {
    Federation federation;
    FederationSite members[MOST];
    Coordinator coordinator;
    Site sites[MOST];
    double now;
    FILE *console, *log;
    char *said;
    size_t said_bytes;
    int64_t handled, kill_at; /* messages so far; after which one the coordinator ends without a word */
    bool killed;
    int cut_site, cut_in; /* of a site, how many more messages arrive and are answered: 0: all */
} World;

static int64_t weight_of(int site) { return 10 + 7 * site; }

static float update_of(int site, int64_t round, size_t element)
{
    RandomStream stream = random_substream(random_stream(77, "update"), (uint64_t)(round * MOST + site));
    return (float)(0.01 * random_normal(stream, element));
}

static void open_coordinator(World *world)
{
    Diagnostics diagnostics = {0};
    if (!coordinator_open(&world->coordinator, &world->federation, ".", world->console, world->log, &diagnostics)) {
        diagnostics_print(&diagnostics, stderr);
        fail();
    }
    world->killed = false;
}

static void write_start(const World *world)
{
    GlobalModel model;
    Diagnostics diagnostics = {0};
    global_model_open(&model, world->federation.compiled.identity, names, shapes, 3, false);
    for (size_t i = 0; i < model.elements; i++) model.values[i] = (float)i / 32;
    assert_true(global_model_write(&model, "model.safetensors", &diagnostics));
    global_model_free(&model);
}

static size_t piece_of_updates = PIECE; /* elements */

static void start(World *world, int sites, bool secure, OuterKind outer, int64_t rounds, int64_t fragments)
{
    static const char *const site_names[MOST] = {"paris", "oslo", "lima", "kyoto", "accra", "quito"};
    KeyPair pairs[MOST];
    memset(world, 0, sizeof *world);
    for (int s = 0; s < sites; s++) {
        world->members[s] = (FederationSite){.name = site_names[s], .key = site_names[s], .rows_per_step = 4};
        key_pair_draw(&pairs[s]);
    }
    int least = secure ? sum_threshold(sites) : 2;
    world->federation = (Federation){.site_count = sites,
                                     .sites = world->members,
                                     .rounds = rounds,
                                     .local_steps = 5,
                                     .outer = outer_rule_default(outer),
                                     .secure = secure,
                                     .least = least,
                                     .round_timeout_s = 60,
                                     .drop_after = 1,
                                     .fragments = fragments,
                                     .update_piece = piece_of_updates,
                                     .compiled = {.identity = {3, 4}, .site = -1}};
    world->console = open_memstream(&world->said, &world->said_bytes);
    world->kill_at = -1;
    for (int s = 0; s < sites; s++) {
        Site *site = &world->sites[s];
        site->world = world;
        site->number = s;
        site->federation = world->federation;
        site->federation.compiled.site = s;
        memcpy(site->keys.secret, pairs[s].secret, KEY_BYTES);
        for (int i = 0; i < sites; i++) memcpy(site->keys.publics + i * KEY_BYTES, pairs[i].public_key, KEY_BYTES);
    }
    write_start(world);
    open_coordinator(world);
}

static void stop(World *world)
{
    for (int s = 0; s < world->federation.site_count; s++) meeting_close(&world->sites[s].meeting);
    coordinator_free(&world->coordinator);
    fclose(world->console);
    free(world->said);
}

static void drop_replies(Site *site)
{
    while (site->reply_count) buffer_free(&site->replies[--site->reply_count]);
}

/* Replies wait in `replies` until they are asked for. */
static bool exchange(void *context, const Buffer *request, Buffer *reply)
{
    Site *site = context;
    World *world = site->world;
    if (world->killed) drop_replies(site);
    if (world->killed) return false;
    if (request) {
        Buffer *answer = &site->replies[site->reply_count++];
        assert_true(site->reply_count <= UPDATE_PIECES_AHEAD);
        coordinator_handle(&world->coordinator, site->number, (const unsigned char *)request->bytes, request->size,
                           world->now, answer);
        if (world->handled++ == world->kill_at) world->killed = true; /* taken, not answered, and nothing follows */
        if (!world->killed) coordinator_tick(&world->coordinator, world->now);
    }
    if (world->cut_in && world->cut_site == site->number && !reply && !--world->cut_in) {
        drop_replies(site);
        return false;
    }
    if (world->killed) drop_replies(site);
    if (reply && !world->killed) {
        assert_true(site->reply_count > 0);
        buffer_append(reply, site->replies[0].bytes, site->replies[0].size);
        buffer_free(&site->replies[0]);
        memmove(site->replies, site->replies + 1, (size_t)--site->reply_count * sizeof *site->replies);
        site->replies[site->reply_count] = (Buffer){0};
    }
    return !world->killed;
}

static void begin_meeting(Site *site, int64_t round)
{
    World *world = site->world;
    FragmentRange part = global_model_part(&world->coordinator.model, round, (size_t)world->federation.fragments);
    meeting_close(&site->meeting);
    for (size_t i = part.first; i < part.end; i++) site->update[i] = update_of(site->number, round, i);
    assert_true(meeting_open(&site->meeting, &site->federation, &site->keys, round, site->update + part.first,
                             part.end - part.first, weight_of(site->number)));
    site->meeting.exchange = exchange;
    site->meeting.context = site;
    site->meeting.metrics = (SiteMetrics){true, true, weight_of(site->number), 0.5 + 0.1 * site->number};
    site->meets = true;
    site->round = round;
}

/* One step of a site that is there, which begins the next round when one is over. */
static void step(Site *site)
{
    int64_t round = -1;
    if (site->gone) return;
    if (!site->meets) begin_meeting(site, site->round);
    MeetingState state = meeting_step(&site->meeting, &round);
    assert_true(state != MEETING_REFUSED);
    if (state != MEETING_OVER) return;
    if (!site->meeting.has_answered || site->meeting.answered < SUM_VALUES) site->late++;
    site->meets = false;
    site->round = round;
}

static void run(World *world, uint64_t seed)
{
    RandomStream stream = random_stream(seed, "turns");
    for (uint64_t turn = 0; !coordinator_is_done(&world->coordinator); turn++) {
        if (turn > 1000000) fail_msg("the federation does not end: %s", world->said);
        if (world->killed) {
            coordinator_free(&world->coordinator);
            open_coordinator(world);
        }
        step(&world->sites[random_below(stream, turn, (uint64_t)world->federation.site_count)]);
        world->now += 0.01;
        if (!world->killed) coordinator_tick(&world->coordinator, world->now);
    }
}

static float *final_values(World *world) { return world->coordinator.model.values; }

/* What the model must be, in double precision; in[r][s]: site s was in round r. */
static void expect_model(World *world, bool in[][MOST])
{
    double values[ELEMENTS], momentum[ELEMENTS] = {0};
    const OuterRule *rule = &world->federation.outer;
    for (size_t i = 0; i < ELEMENTS; i++) values[i] = (double)i / 32;
    for (int64_t round = 0; round < world->federation.rounds; round++) {
        FragmentRange part = global_model_part(&world->coordinator.model, round, (size_t)world->federation.fragments);
        for (size_t i = part.first; i < part.end; i++) {
            double mean = 0, weight = 0;
            for (int s = 0; s < world->federation.site_count; s++) {
                if (!in[round][s]) continue;
                mean += (double)weight_of(s) * update_of(s, round, i);
                weight += (double)weight_of(s);
            }
            mean /= weight;
            momentum[i] = rule->momentum * momentum[i] + mean;
            values[i] -= rule->rate * (rule->kind == OUTER_NESTEROV ? mean + rule->momentum * momentum[i] : mean);
        }
    }
    for (size_t i = 0; i < ELEMENTS; i++)
        if (fabs(values[i] - final_values(world)[i]) > 2e-6)
            fail_msg("element %zu is %.9g, not %.9g", i, (double)final_values(world)[i], values[i]);
}

static void all_in(bool in[][MOST], int rounds)
{
    for (int r = 0; r < rounds; r++)
        for (int s = 0; s < MOST; s++) in[r][s] = true;
}

static World world;

static void rounds_give_the_mean_of_sites_with_masks_and_without(void **state)
{
    (void)state;
    bool in[4][MOST];
    all_in(in, 4);
    for (OuterKind outer = 0; outer < OUTER_KIND_COUNT; outer++) {
        float plain[ELEMENTS];
        for (int secure = 0; secure < 2; secure++) {
            start(&world, 4, secure, outer, 4, outer == OUTER_SGD ? 3 : 1);
            if (secure) world.federation.update_piece = 0; /* whole */
            for (int s = 0; s < 4; s++) world.sites[s].federation.update_piece = world.federation.update_piece;
            run(&world, 1 + (uint64_t)secure); /* in another order */
            expect_model(&world, in);
            if (secure) assert_memory_equal(plain, final_values(&world), sizeof plain);
            memcpy(plain, final_values(&world), sizeof plain);
            assert_int_equal(world.sites[2].late, 0);
            fflush(world.console);
            assert_non_null(strstr(world.said, "round 4 of 4: 4 of 4 sites, loss 0.6927 ("));
            assert_non_null(strstr(world.said, "paris 0.5000, oslo 0.6000"));
            stop(&world);
        }
    }
}

/* Killed after any message there is: the model is the same, to the last bit. */
static void a_coordinator_that_is_killed_anywhere_resumes(void **state)
{
    (void)state;
    float expected[ELEMENTS];
    start(&world, 3, true, OUTER_NESTEROV, 2, 1);
    run(&world, 5);
    memcpy(expected, final_values(&world), sizeof expected);
    int64_t messages = world.handled;
    stop(&world);
    for (int64_t kill_at = 0; kill_at < messages; kill_at += 1 + kill_at / 40) {
        start(&world, 3, true, OUTER_NESTEROV, 2, 1);
        world.kill_at = kill_at;
        run(&world, 5);
        assert_int_equal(world.coordinator.model.round, 2);
        assert_memory_equal(final_values(&world), expected, sizeof expected);
        stop(&world);
    }
}

/* Which sites each round had, by the log. */
static void read_log(FILE *log, bool in[][MOST], int sites, int rounds)
{
    char line[512];
    int next = 0;
    rewind(log);
    while (fgets(line, sizeof line, log)) {
        char *at = line;
        int round = atoi(line) - 1;
        if (round < 0) continue;
        assert_int_equal(round, next++);
        for (int column = 0; column < 8; column++) at = strchr(at, ',') + 1;
        for (int s = 0; s < sites; s++) {
            in[round][s] = *at != ',';
            at = strchr(at, ',') + 1;
            at = s + 1 < sites ? strchr(at, ',') + 1 : at;
        }
    }
    assert_int_equal(next, rounds);
}

static void sites_that_are_killed_at_random_miss_rounds_and_come_back(void **state)
{
    (void)state;
    enum { ROUNDS = 30, SITES = 6 };
    bool in[ROUNDS][MOST] = {{false}};
    RandomStream stream = random_stream(9, "kills");
    int kills = 0, missed = 0;
    start(&world, SITES, true, OUTER_NESTEROV, ROUNDS, 2);
    world.log = world.coordinator.log = tmpfile();
    for (uint64_t turn = 0; !coordinator_is_done(&world.coordinator); turn++) {
        if (turn > 1000000) fail_msg("the federation does not end: %s", world.said);
        Site *site = &world.sites[random_below(stream, 3 * turn, SITES)];
        if (random_below(stream, 3 * turn + 1, 50) ==
            0) { /* ends without a word; what it knew of the session is lost */
            meeting_close(&site->meeting);
            site->meets = false;
            site->gone = true;
            kills++;
        } else if (site->gone && random_below(stream, 3 * turn + 2, 8) == 0) {
            site->gone = false;
        }
        step(site);
        world.now += 1;
        coordinator_tick(&world.coordinator, world.now);
    }
    read_log(world.log, in, SITES, ROUNDS);
    for (int r = 0; r < ROUNDS; r++) {
        int here = 0;
        for (int s = 0; s < SITES; s++) here += in[r][s];
        assert_true(here >= sum_threshold(SITES));
        missed += SITES - here;
    }
    expect_model(&world, in);
    assert_true(kills > 20 && missed > 0);
    fclose(world.log);
    stop(&world);
}

static void fewer_than_the_quorum_wait_and_nothing_is_lost(void **state)
{
    (void)state;
    bool in[2][MOST] = {{false}};
    start(&world, 4, true, OUTER_AVERAGE, 2, 1);
    world.log = world.coordinator.log = tmpfile();
    world.sites[1].gone = world.sites[3].gone = true;
    for (int turn = 0; turn < 1000; turn++) {
        step(&world.sites[turn % 4]);
        world.now += 1;
        coordinator_tick(&world.coordinator, world.now);
    }
    assert_int_equal(world.coordinator.model.round, 0);
    fflush(world.console);
    assert_non_null(strstr(world.said, "round 1: waiting for 1 more of the 3 sites that a sum needs"));
    assert_null(strstr(strstr(world.said, "waiting") + 1, "waiting")); /* said once */
    world.sites[1].gone = world.sites[3].gone = false;
    run(&world, 11);
    read_log(world.log, in, 4, 2);
    expect_model(&world, in);
    assert_true(in[0][0] && in[0][2]); /* those that had waited */
    fclose(world.log);
    stop(&world);
}

/* Without the time moving at all: in whatever phase it was, nobody waits for what it has forgotten, and it is in. */
static void start_again_in_every_phase(bool secure)
{
    bool in[2][MOST];
    all_in(in, 2);
    for (SumPhase phase = SUM_OFFERS; phase < SUM_DONE; phase++) {
        if (!secure && (phase == SUM_SHARES || phase == SUM_REVEALS)) continue;
        start(&world, 3, secure, OUTER_AVERAGE, 2, 1);
        for (int turn = 0; world.coordinator.sum.phase != phase || turn % 3 != 1; turn++) step(&world.sites[turn % 3]);
        step(&world.sites[1]); /* it has answered this phase, and the coordinator waits for others */
        assert_int_equal(world.coordinator.sum.phase, phase);
        meeting_close(&world.sites[1].meeting);
        world.sites[1].meets = false;
        for (int turn = 0; turn < 1000 && !coordinator_is_done(&world.coordinator); turn++)
            step(&world.sites[turn % 3]);
        assert_true(coordinator_is_done(&world.coordinator));
        expect_model(&world, in);
        stop(&world);
    }
}

static void a_site_that_is_started_again_holds_nobody_up(void **state)
{
    (void)state;
    start_again_in_every_phase(true);
    start_again_in_every_phase(false);
}

/* ---- Updates in pieces ---- */

/* To the phase of updates, and of site 1 two pieces; then its connection is cut. */
static void send_two_pieces(int sites, bool secure)
{
    start(&world, sites, secure, OUTER_AVERAGE, 1, 1);
    for (int turn = 0; world.coordinator.sum.phase != SUM_VALUES; turn++) step(&world.sites[turn % sites]);
    world.cut_site = 1;
    world.cut_in = 3;
    step(&world.sites[1]);
    assert_int_equal(world.coordinator.sites[1].arriving.pieces, 3); /* the last was taken and not answered */
    assert_int_equal(world.sites[1].meeting.pieces, 0);
}

static int64_t messages_of_updates(void) { return world.coordinator.traffic[REQUEST_ANSWER][SUM_VALUES].messages; }

static void an_update_that_is_cut_goes_on_where_it_was(void **state)
{
    (void)state;
    bool in[1][MOST];
    all_in(in, 1);
    for (int secure = 0; secure < 2; secure++) {
        send_two_pieces(3, secure);
        int64_t others = messages_of_updates() - 3;
        run(&world, 5);
        assert_int_equal(messages_of_updates(), others + (3 - others / PIECES) * PIECES); /* none of them twice */
        expect_model(&world, in);
        stop(&world);
    }
}

/* What it sent is not in the sum, not even in part, and is not gone on with by who does not know what it was. */
static void half_an_update_is_none(void **state)
{
    (void)state;
    bool in[1][MOST];
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        all_in(in, 1);
        send_two_pieces(4, !comes_back);
        in[0][1] = comes_back;
        meeting_close(&world.sites[1].meeting);
        world.sites[1].meets = false;
        world.sites[1].gone = !comes_back;
        int64_t before = messages_of_updates();
        if (comes_back) step(&world.sites[1]);
        if (comes_back) assert_int_equal(messages_of_updates(), before + PIECES);
        for (int turn = 0; !coordinator_is_done(&world.coordinator) && turn < 100; turn++) {
            step(&world.sites[turn % 4]);
            world.now += 10;
            coordinator_tick(&world.coordinator, world.now);
        }
        assert_true(coordinator_is_done(&world.coordinator));
        expect_model(&world, in);
        stop(&world);
    }
}

/* Of site 1 pieces arrive now and then, its connection being cut each time; the others have given theirs. */
static void give_pieces_slowly(int times)
{
    send_two_pieces(3, false);
    for (int other = 0; other < 3; other += 2)
        while (!sum_round_has_answered(&world.coordinator.sum, other)) step(&world.sites[other]);
    for (int i = 0; i < times; i++) {
        world.now += 50;
        coordinator_tick(&world.coordinator, world.now);
        assert_false(coordinator_is_done(&world.coordinator));
        uint64_t before = world.coordinator.sites[1].arriving.pieces;
        world.cut_in = 2;
        step(&world.sites[1]);
        assert_true(world.coordinator.sites[1].arriving.pieces > before);
    }
}

/* Longer than the round's timeout of 60, but not for ever. */
static void a_phase_goes_on_while_pieces_arrive(void **state)
{
    (void)state;
    bool in[1][MOST];
    piece_of_updates = PIECE / 4;
    for (int too_slow = 0; too_slow < 2; too_slow++) {
        all_in(in, 1);
        in[0][1] = !too_slow;
        give_pieces_slowly(4);
        world.now += too_slow ? 50 : 1;
        coordinator_tick(&world.coordinator, world.now);
        assert_int_equal(coordinator_is_done(&world.coordinator), too_slow);
        run(&world, 5);
        expect_model(&world, in);
        stop(&world);
    }
    piece_of_updates = PIECE;
}

static void updates_wait_for_room_on_disk(void **state)
{
    (void)state;
    bool in[1][MOST];
    struct rlimit limit;
    all_in(in, 1);
    start(&world, 3, true, OUTER_AVERAGE, 1, 1);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit little = {2 * 4 * PIECE + 10, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    for (int turn = 0; turn < 60; turn++) step(&world.sites[turn % 3]);
    assert_int_equal(world.coordinator.sum.phase, SUM_VALUES);
    for (int s = 0; s < 3; s++) assert_int_equal(world.coordinator.sites[s].arriving.pieces, 2);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fflush(world.console);
    assert_non_null(strstr(world.said, "no room on disk for updates that arrive"));
    assert_null(strstr(strstr(world.said, "no room") + 1, "no room")); /* said once */
    run(&world, 5);
    expect_model(&world, in);
    stop(&world);
}

/* ---- What is refused ---- */

static void expect_refused(Site *site, const Buffer *request, const char *why)
{
    Buffer bytes = {0};
    Reply reply;
    assert_true(exchange(site, request, &bytes));
    assert_true(reply_get(&reply, (unsigned char *)bytes.bytes, bytes.size));
    assert_int_equal(reply.kind, REPLY_REFUSED);
    char text[128] = "";
    memcpy(text, reply.payload, reply.size < 127 ? reply.size : 127);
    assert_string_equal(text, why);
    fflush(site->world->console);
    assert_non_null(strstr(site->world->said, why));
    buffer_free(&bytes);
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
    Buffer bytes = {0};
    request.payload = payload;
    request.size = size;
    request_put(&bytes, &request);
    expect_refused(site, &bytes, why);
    buffer_free(&bytes);
}

static void what_is_wrong_is_refused_and_the_round_goes_on(void **state)
{
    (void)state;
    bool in[2][MOST];
    unsigned char zeros[512] = {0};
    all_in(in, 2);
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    Site *site = &world.sites[1];
    expect_refused(site, &(Buffer){.bytes = "SKYF\1 what else", .size = 16},
                   "sent something that is not a message of a federation");
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

static void pieces_that_are_wrong_are_refused_and_the_others_count(void **state)
{
    (void)state;
    bool in[1][MOST];
    unsigned char piece[UPDATE_PIECE_HEAD + 4 * (PIECE + FIXED_POINT_WEIGHT_WORDS)] = {0};
    const size_t whole = UPDATE_PIECE_HEAD + 4 * PIECE;
    all_in(in, 1);
    send_two_pieces(3, true);
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
    int64_t round;
    start(&world, 3, false, OUTER_AVERAGE, 1, 1);
    Site *site = &world.sites[2];
    site->federation.compiled.identity.high = 99;
    begin_meeting(site, 0);
    assert_int_equal(meeting_step(&site->meeting, &round), MEETING_REFUSED);
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

/* The coordinator's model cannot be written, later it can: the round ends once, with the right model. */
static void a_full_disk_holds_the_round_up_and_loses_nothing(void **state)
{
    (void)state;
    bool in[1][MOST];
    struct rlimit limit, none;
    all_in(in, 1);
    start(&world, 3, true, OUTER_NESTEROV, 1, 1);
    world.federation.update_piece = 0; /* the model alone needs room */
    for (int s = 0; s < 3; s++) world.sites[s].federation.update_piece = 0;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    none = (struct rlimit){64, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    for (int turn = 0; turn < 200 && world.coordinator.durable; turn++) {
        step(&world.sites[turn % 3]);
        coordinator_tick(&world.coordinator, world.now);
    }
    assert_false(world.coordinator.durable);
    for (int s = 0; s < 3; s++) step(&world.sites[s]); /* are told to wait */
    assert_int_equal(world.sites[0].round, 0);
    world.now += 10;
    coordinator_tick(&world.coordinator, world.now);
    assert_false(world.coordinator.durable);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    fflush(world.console);
    assert_non_null(strstr(world.said, "is not on disk: trying again until it is"));
    world.now += 10;
    coordinator_tick(&world.coordinator, world.now);
    assert_true(coordinator_is_done(&world.coordinator));
    expect_model(&world, in);
    stop(&world);
}

/* Turns of all sites, until the model of that round is there; how long that took. */
static double until_round(int64_t round)
{
    double since = world.now;
    for (int turn = 0; world.coordinator.model.round < round; turn++) {
        if (turn > 100000) fail_msg("no round %d: %s", (int)round, world.said);
        step(&world.sites[turn % world.federation.site_count]);
        world.now += 0.01;
        coordinator_tick(&world.coordinator, world.now);
    }
    fflush(world.console);
    return world.now - since;
}

static void a_site_that_is_gone_costs_its_timeout_once(void **state)
{
    (void)state;
    for (int secure = 0; secure < 2; secure++)
        for (int after = 1; after <= 2; after++) {
            start(&world, 4, secure, OUTER_AVERAGE, 9, 1);
            world.federation.drop_after = after;
            world.sites[3].gone = true;
            for (int round = 1; round <= after; round++) assert_true(until_round(round) > 60);
            assert_true(until_round(after + 1) < 10 && until_round(after + 2) < 10);
            assert_non_null(strstr(world.said, after == 1 ? "site 'kyoto' has missed 1 round: rounds do not wait"
                                                          : "site 'kyoto' has missed 2 rounds: rounds do not wait"));
            world.sites[3].gone = false; /* it is there again, and rounds wait for it, however long it takes */
            step(&world.sites[3]);
            until_round(after + 4);
            assert_true(world.coordinator.sites[3].missed == 0);
            assert_non_null(strstr(world.said, "site 'kyoto' is back"));
            world.sites[3].gone = true;
            assert_true(until_round(after + 5) > 60);
            stop(&world);
        }
}

/* Of two that vanish in a session, none is waited for again where the round begins anew. */
static void a_round_that_begins_anew_waits_for_nobody_again(void **state)
{
    (void)state;
    start(&world, 4, true, OUTER_AVERAGE, 1, 1);
    while (world.coordinator.sum.phase == SUM_OFFERS)
        for (int s = 0; s < 4; s++) step(&world.sites[s]);
    world.sites[2].gone = world.sites[3].gone = true;
    world.now += 61;
    for (int turn = 0; turn < 100; turn++) {
        step(&world.sites[turn % 4]);
        coordinator_tick(&world.coordinator, world.now);
    }
    fflush(world.console);
    assert_non_null(strstr(world.said, "begins anew"));
    world.sites[2].gone = false;
    assert_true(until_round(1) < 10);
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
    enum { FIRST = 7, SECOND = 8 };
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
    assert_true(world.coordinator.sum.members[1].offered);    /* the first is in the session still */
    world.now += 2;
    assert_int_equal(ask_from(site, FIRST, REQUEST_ALIVE), -1);
    for (int times = 0; times < 2; times++) assert_int_equal(ask_from(site, SECOND, REQUEST_ASK), 1);
    Meeting second = {.federation = &site->federation, .exchange = exchange, .context = site, .place = SECOND};
    int64_t round = 0;
    assert_int_equal(meeting_step(&second, &round), MEETING_REFUSED);
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

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_folder_enter, scratch_folder_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rounds_give_the_mean_of_sites_with_masks_and_without),
        TEST(a_coordinator_that_is_killed_anywhere_resumes),
        TEST(sites_that_are_killed_at_random_miss_rounds_and_come_back),
        TEST(fewer_than_the_quorum_wait_and_nothing_is_lost),
        TEST(a_site_that_is_started_again_holds_nobody_up),
        TEST(an_update_that_is_cut_goes_on_where_it_was),
        TEST(half_an_update_is_none),
        TEST(a_phase_goes_on_while_pieces_arrive),
        TEST(updates_wait_for_room_on_disk),
        TEST(pieces_that_are_wrong_are_refused_and_the_others_count),
        TEST(what_is_wrong_is_refused_and_the_round_goes_on),
        TEST(a_site_of_another_model_is_told),
        TEST(updates_that_are_not_finite_are_not_sent),
        TEST(a_site_that_is_gone_costs_its_timeout_once),
        TEST(a_round_that_begins_anew_waits_for_nobody_again),
        TEST(a_site_that_runs_in_two_places_keeps_its_first_start),
        TEST(a_site_moves_when_nothing_is_heard_of_its_first_start),
        TEST(a_model_that_is_not_finite_is_not_kept),
        TEST(a_full_disk_holds_the_round_up_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
