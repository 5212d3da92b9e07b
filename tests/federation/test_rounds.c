/* Rounds of a federation in one process, without connections: sites and the coordinator come and go, messages are lost,
 * sent again and made up, disks are full, and the model is what it should be. */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/random.h"
#include "federation/coded_model.h"
#include "tests/federation/round_world.h"

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
    codec_of_models = CODEC_Q4; /* what that leaves out is the same, too */
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
    codec_of_models = CODEC_NONE;
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

/* ---- The model in a codec ---- */

/* A site's question for `count` elements from `first` on; false: the change is not known. */
static bool ask_change(int64_t round, int64_t branch, size_t first, size_t count, Buffer *bytes, Reply *reply)
{
    unsigned char range[16];
    put_u64(range, first);
    put_u64(range + 8, count);
    Request request = {.kind = REQUEST_CHANGE,
                       .federation = world.federation.compiled.identity,
                       .round = (uint64_t)round,
                       .branch = (uint64_t)branch,
                       .payload = range,
                       .size = sizeof range};
    FREED_WITH(buffer_free) Buffer question = {0};
    buffer_free(bytes);
    request_put(&question, &request);
    assert_true(exchange(&world.sites[0], &question, bytes));
    assert_true(reply_get(reply, (const unsigned char *)bytes->bytes, bytes->size));
    return reply->kind == REPLY_CHANGE && reply->size > 0;
}

/* `model`, of the round before, becomes that of the coordinator; whether all of it came as a change. */
static bool follow_change(float *model, int64_t *bytes_sent)
{
    const Coordinator *coordinator = &world.coordinator;
    int64_t round = coordinator->model.round - 1;
    FragmentRange part = global_model_part(&coordinator->model, round, (size_t)world.federation.fragments);
    bool ok = true;
    for (size_t at = part.first, count; at < part.end && ok; at += count) {
        FREED_WITH(buffer_free) Buffer bytes = {0};
        Reply reply;
        count = part.end - at < CODEC_TILE ? part.end - at : CODEC_TILE;
        ok = ask_change(round, coordinator->model.branch, at, count, &bytes, &reply);
        if (ok)
            assert_int_equal(CHANGE_TAKEN, coded_model_take(row_rule_down(&world.federation), model + at, model + at,
                                                            count, reply.payload, reply.size));
        *bytes_sent += (int64_t)reply.size;
    }
    return ok;
}

/* Where nothing changes any more, what was left out is sent. */
static void expect_remainder_to_go_in(void)
{
    float old[ELEMENTS], values[ELEMENTS], remainder[ELEMENTS];
    FREED_WITH(buffer_free) Buffer bytes = {0};
    memcpy(values, final_values(&world), sizeof values);
    memcpy(remainder, world.coordinator.model.remainder, sizeof remainder);
    for (int round = 0; round < 10; round++) {
        memcpy(old, values, sizeof old);
        assert_true(coded_model_make(row_rule_down(&world.federation), old, values, remainder, ELEMENTS, &bytes));
    }
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(fabsf(remainder[i]) < 1e-6f);
}

/* In every codec, with masks and without: the bits of a site that follows changes are the coordinator's, which are the
 * same where it is started again in between, and nothing is lost for good. */
static void sites_that_follow_coded_changes_have_the_coordinators_bits(void **state)
{
    (void)state;
    enum { ROUNDS = 5 };
    bool in[ROUNDS][MOST];
    all_in(in, ROUNDS);
    for (codec_of_models = CODEC_BF16; codec_of_models < CODEC_COUNT; codec_of_models++) {
        float calm[ELEMENTS];
        int64_t fragments = codec_of_models == CODEC_Q4 ? 2 : 1;
        for (int restarts = 0; restarts < 2; restarts++) {
            float model[ELEMENTS], largest = 0;
            int64_t sent = 0, all = 0;
            start(&world, 3, codec_of_models % 2, OUTER_NESTEROV, ROUNDS, fragments);
            world.federation.least_change = codec_of_models == CODEC_Q3 ? 0.4 : 0;
            memcpy(model, final_values(&world), sizeof model);
            for (int64_t round = 1; round <= ROUNDS; round++) {
                FragmentRange part = global_model_part(&world.coordinator.model, round - 1, (size_t)fragments);
                until_round(round);
                bool forgets = restarts && round % 2; /* how it came to its model */
                if (forgets) restart(&world);
                assert_true(follow_change(model, &sent) == !forgets);
                if (forgets) memcpy(model, final_values(&world), sizeof model);
                assert_memory_equal(model, final_values(&world), sizeof model);
                all += (int64_t)(part.end - part.first);
            }
            expect_model(&world, in);
            for (size_t i = 0; i < ELEMENTS; i++) largest = fmaxf(largest, fabsf(world.coordinator.model.remainder[i]));
            assert_true(largest > 1e-6f && largest < 0.1f); /* something is left, of the size of one round's error */
            if (!restarts) expect_remainder_to_go_in();
            if (!restarts) assert_true(sent < 4 * all);
            if (restarts) assert_memory_equal(model, calm, sizeof calm);
            memcpy(calm, model, sizeof calm);
            stop(&world);
        }
    }
    codec_of_models = CODEC_NONE;
}

static void a_change_is_for_sites_that_have_the_model_before_it(void **state)
{
    (void)state;
    float model[ELEMENTS];
    Buffer bytes = {0};
    Reply reply;
    codec_of_models = CODEC_Q6;
    start(&world, 3, true, OUTER_AVERAGE, 4, 1);
    assert_false(ask_change(0, 0, 0, 64, &bytes, &reply)); /* nothing has changed yet */
    assert_int_equal(reply.kind, REPLY_CHANGE);
    until_round(2);
    assert_false(ask_change(0, 0, 0, 64, &bytes, &reply)); /* it lags */
    assert_false(ask_change(1, 1, 0, 64, &bytes, &reply)); /* another branch */
    assert_false(ask_change(2, 0, 0, 64, &bytes, &reply));
    assert_int_equal(reply.kind, REPLY_CHANGE);
    assert_int_equal(reply.round, 2);
    const size_t odd[][2] = {{1, 64}, {0, 63}, {64, 27}, {128, 1}, {0, 0}, {0, SIZE_MAX}, {SIZE_MAX - 63, 64}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_false(ask_change(1, 0, odd[i][0], odd[i][1], &bytes, &reply));
        assert_int_equal(reply.kind, REPLY_REFUSED);
    }
    memcpy(model, final_values(&world), sizeof model);
    until_round(3);
    assert_true(ask_change(2, 0, 64, 26, &bytes, &reply));
    unsigned char *sent = (unsigned char *)bytes.bytes + REPLY_HEAD;
    float other[ELEMENTS];
    memcpy(other, model, sizeof model);
    other[70] += 1e-6f;
    assert_int_equal(CHANGE_OF_ANOTHER_START,
                     coded_model_take((RowRule){CODEC_Q6, 0}, other + 64, other, 26, sent, reply.size));
    assert_int_equal(CHANGE_INVALID,
                     coded_model_take((RowRule){CODEC_Q6, 0}, model + 64, other, 26, sent, reply.size - 1));
    assert_int_equal(CHANGE_INVALID, coded_model_take((RowRule){CODEC_Q8, 0}, model + 64, other, 26, sent, reply.size));
    assert_int_equal(CHANGE_TAKEN, coded_model_take((RowRule){CODEC_Q6, 0}, model + 64, other, 26, sent, reply.size));
    assert_memory_equal(other, final_values(&world) + 64, 26 * sizeof *other);
    memcpy(sent + CODED_MODEL_HEAD, "\xff\x7f", 2); /* a scale that is no number */
    assert_int_equal(CHANGE_INVALID, coded_model_take((RowRule){CODEC_Q6, 0}, model + 64, other, 26, sent, reply.size));
    buffer_free(&bytes);
    world.federation.model_codec = CODEC_NONE; /* the federation that follows has none: what was left out goes in */
    restart(&world);
    until_round(4);
    bool in[4][MOST];
    all_in(in, 4);
    expect_model(&world, in);
    for (size_t i = 0; i < ELEMENTS; i++) assert_true(world.coordinator.model.remainder[i] == 0);
    stop(&world);
    codec_of_models = CODEC_NONE;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rounds_give_the_mean_of_sites_with_masks_and_without),
        TEST(a_coordinator_that_is_killed_anywhere_resumes),
        TEST(sites_that_are_killed_at_random_miss_rounds_and_come_back),
        TEST(fewer_than_the_quorum_wait_and_nothing_is_lost),
        TEST(a_site_that_is_started_again_holds_nobody_up),
        TEST(a_site_that_is_gone_costs_its_timeout_once),
        TEST(a_round_that_begins_anew_waits_for_nobody_again),
        TEST(a_full_disk_holds_the_round_up_and_loses_nothing),
        TEST(sites_that_follow_coded_changes_have_the_coordinators_bits),
        TEST(a_change_is_for_sites_that_have_the_model_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
