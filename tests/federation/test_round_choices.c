/* Who is in a round and what becomes of the updates: samples, sites that are started again, rules that one site cannot
 * spoil, rounds gone back over, and warnings. */
#include <math.h>

#include "federation/jumps.h"
#include "federation/model_history.h"
#include "tests/federation/round_world.h"

static World world;

static void turns_until(int64_t round)
{
    for (int turn = 0; world.coordinator.model.round < round; turn++) {
        if (turn > 100000) fail_msg("no round %d: %s", (int)round, world.said);
        step(&world.sites[turn % world.federation.site_count]);
        world.now += 0.01;
        coordinator_tick(&world.coordinator, world.now);
    }
    fflush(world.console);
}

/* Which sites were in the round that has ended last. */
static int counted_in(int64_t round, bool in[][MOST])
{
    int count = 0;
    for (int s = 0; s < world.federation.site_count; s++) {
        in[round - 1][s] = world.coordinator.model.counted[s] == round;
        count += in[round - 1][s];
    }
    return count;
}

static void each_round_has_its_sample(void **state)
{
    (void)state;
    enum { ROUNDS = 12 };
    for (int secure = 0; secure < 2; secure++) {
        bool in[ROUNDS][MOST] = {{false}};
        int times[MOST] = {0};
        start(&world, 6, secure, OUTER_AVERAGE, ROUNDS, 1);
        world.federation.sample = secure ? 5 : 2;
        world.federation.least = secure ? 5 : 2;
        world.coordinator.sum.least = world.federation.least;
        for (int64_t round = 1; round <= ROUNDS; round++) {
            turns_until(round);
            assert_int_equal(counted_in(round, in), world.federation.sample);
            for (int s = 0; s < 6; s++) times[s] += in[round - 1][s];
        }
        expect_model(&world, in);
        for (int s = 0; s < 6; s++) assert_true(times[s] > 0 && (secure || times[s] < ROUNDS));
        for (int s = 0; s < 6; s++)
            assert_int_equal(world.coordinator.sites[s].missed, 0); /* not drawn is not missed */
        stop(&world);
    }
}

static bool is_spared(int site)
{
    Buffer message = {0}, answer = {0};
    Reply reply;
    Request request = {.kind = REQUEST_ASK, .federation = world.federation.compiled.identity, .round = ROUND_NONE};
    request_put(&message, &request);
    assert_true(exchange(&world.sites[site], &message, &answer));
    assert_true(reply_get(&reply, (unsigned char *)answer.bytes, answer.size));
    bool spared = reply_spares(&reply);
    buffer_free(&message);
    buffer_free(&answer);
    return spared;
}

/* In whatever phase it asks: else it would make steps that no round is to have. */
static void a_site_that_is_not_drawn_is_told_so(void **state)
{
    (void)state;
    start(&world, 6, true, OUTER_AVERAGE, 1, 1);
    world.federation.sample = 5;
    int away = -1;
    for (int s = 0; s < 6; s++)
        if (is_spared(s)) away = s;
    assert_true(away >= 0);
    for (SumPhase phase = SUM_OFFERS; phase < SUM_DONE; phase++) {
        for (int turn = 0; world.coordinator.sum.phase < phase; turn++) step(&world.sites[turn % 6]);
        assert_int_equal(world.coordinator.sum.phase, phase);
        for (int s = 0; s < 6; s++) assert_int_equal(is_spared(s), s == away);
    }
    stop(&world);
}

/* One that is drawn and not there costs its timeout; then another one is drawn instead. */
static void another_site_is_drawn_for_one_that_is_gone(void **state)
{
    (void)state;
    start(&world, 4, false, OUTER_AVERAGE, 1, 1);
    world.federation.sample = world.federation.least = world.coordinator.sum.least = 2;
    for (int s = 0; s < 4; s++) step(&world.sites[s]);
    int drawn[2], count = 0;
    for (int s = 0; s < 4; s++)
        if (world.coordinator.sum.members[s].offered && count < 2) drawn[count++] = s;
    assert_int_equal(count, 2);
    stop(&world);
    start(&world, 4, false, OUTER_AVERAGE, 1, 1);
    world.federation.sample = world.federation.least = world.coordinator.sum.least = 2;
    world.sites[drawn[0]].gone = true;
    double since = world.now;
    turns_until(1);
    assert_true(world.now - since > 60 && world.now - since < 70);
    assert_int_equal(world.coordinator.model.counted[drawn[0]], 0);
    assert_int_equal(world.coordinator.model.counted[drawn[1]], 1);
    stop(&world);
}

/* Killed after its shares and started again at once: it is in the sum, as one that was only slow would be. */
static void a_site_that_is_started_again_in_a_meeting_is_in_the_round(void **state)
{
    (void)state;
    bool in[1][MOST];
    all_in(in, 1);
    start(&world, 4, true, OUTER_AVERAGE, 1, 1);
    while (world.coordinator.sum.phase < SUM_VALUES)
        for (int s = 0; s < 4; s++) step(&world.sites[s]);
    meeting_close(&world.sites[2].meeting);
    world.sites[2].meets = false;
    step(&world.sites[2]);
    fflush(world.console);
    assert_non_null(strstr(world.said, "round 1 begins anew: site 'lima' was started again"));
    turns_until(1);
    expect_model(&world, in);
    stop(&world);
}

/* One of five sends nonsense, whose scale would leave nothing of what the others send. */
static void one_site_does_not_spoil_a_robust_step(void **state)
{
    (void)state;
    for (RobustRule rule = ROBUST_MEDIAN; rule <= ROBUST_TRIMMED; rule++) {
        start(&world, 5, false, OUTER_AVERAGE, 1, 1);
        world.federation.robust = rule;
        sum_round_keep(&world.coordinator.sum);
        for (int s = 0; s < 5; s++) {
            world.sites[s].federation.robust = rule;
            begin_meeting(&world.sites[s], 0);
            for (int i = 0; i < ELEMENTS; i++) world.sites[s].update[i] = s == 3 ? 1e30f : (float)(s + 1) / 16;
            assert_true(fixed_point_exponent(world.sites[s].update, ELEMENTS, world.sites[s].meeting.weight,
                                             &world.sites[s].meeting.exponent));
        }
        turns_until(1);
        /* 1, 2, 3, 5 sixteenths and 1e30: the median is 3 sixteenths; without the lowest and the highest (2 + 3 + 5) /
         * 3. */
        float expected = rule == ROBUST_MEDIAN ? 3.0f / 16 : 10.0f / 3 / 16;
        for (int i = 0; i < ELEMENTS; i++)
            assert_true(fabsf((float)i / 32 - final_values(&world)[i] - expected) < 1e-5f);
        stop(&world);
    }
}

/* Back to a round that is kept: sites that were beyond it take its model, and the rounds are those of the branch. */
static void a_coordinator_goes_back_to_a_round_that_it_kept(void **state)
{
    (void)state;
    Diagnostics diagnostics = {0};
    float after_two[ELEMENTS], straight[ELEMENTS];
    codec_of_models = CODEC_Q4; /* what it leaves out is that of the round */
    start(&world, 3, true, OUTER_NESTEROV, 6, 1);
    turns_until(6);
    memcpy(straight, final_values(&world), sizeof straight);
    stop(&world);
    start(&world, 3, true, OUTER_NESTEROV, 6, 1);
    world.federation.steering.keep = 3;
    turns_until(2);
    memcpy(after_two, final_values(&world), sizeof after_two);
    turns_until(4);
    coordinator_free(&world.coordinator);
    assert_false(model_history_go_back(&world.federation, ".", 1, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "has no model after round 1 any more");
    diagnostics = (Diagnostics){0};
    assert_false(model_history_go_back(&world.federation, ".", 1, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "rounds kept: 2, 3, 4");
    diagnostics = (Diagnostics){0};
    assert_false(model_history_go_back(&world.federation, ".", 4, &diagnostics));
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "there is nothing to go back over");
    diagnostics = (Diagnostics){0};
    assert_true(model_history_go_back(&world.federation, ".", 2, &diagnostics));
    assert_true(coordinator_open(&world.coordinator, &world.federation, ".", world.console, NULL, &diagnostics));
    assert_int_equal(world.coordinator.model.round, 2);
    assert_int_equal(world.coordinator.model.branch, 1);
    assert_int_equal(world.coordinator.model.spent, 4); /* privacy is spent on all of them */
    assert_memory_equal(final_values(&world), after_two, sizeof after_two);
    turns_until(6);
    assert_int_equal(world.coordinator.model.spent, 8);
    assert_memory_equal(final_values(&world), straight, sizeof straight);
    stop(&world);
    codec_of_models = CODEC_NONE;
}

static void expect_average(int64_t round, int64_t rounds, const char *path, float models[][ELEMENTS], int64_t count)
{
    Diagnostics diagnostics = {0};
    GlobalModel averaged;
    assert_int_equal(model_history_average(&world.federation, ".", round, rounds, path, &diagnostics), count);
    assert_true(global_model_open_file(&averaged, world.federation.compiled.identity, path, 0, &diagnostics));
    assert_int_equal(averaged.round, round);
    assert_true(!averaged.momentum && !averaged.remainder);
    for (size_t i = 0; i < ELEMENTS; i++) {
        double sum = 0;
        for (int64_t r = round - count + 1; r <= round; r++) sum += models[r][i];
        float mean = (float)(sum / (double)count);
        assert_memory_equal(&averaged.values[i], &mean, sizeof mean);
    }
    global_model_free(&averaged);
}

/* Of those that are kept; momentum and what a codec left out are no part of it. */
static void the_mean_of_the_last_models_is_that_of_their_values(void **state)
{
    (void)state;
    enum { ROUNDS = 4 };
    float models[ROUNDS + 1][ELEMENTS];
    Diagnostics diagnostics = {0};
    codec_of_models = CODEC_Q6;
    start(&world, 3, true, OUTER_NESTEROV, ROUNDS, 1);
    world.federation.steering.keep = 3;
    assert_true(global_model_write(&world.coordinator.model, "model.safetensors", &diagnostics));
    assert_true(model_history_keep(".", 0, 3, &diagnostics));
    for (int64_t round = 1; round <= ROUNDS; round++) {
        turns_until(round);
        memcpy(models[round], world.coordinator.model.values, sizeof models[round]);
        if (round == 2)
            expect_average(2, 5, "early.safetensors", models, 2); /* the model that has made no round is none */
    }
    expect_average(ROUNDS, 3, "three.safetensors", models, 3);
    expect_average(ROUNDS, 2, "two.safetensors", models, 2);
    expect_average(ROUNDS, 4, "four.safetensors", models, 3);
    FREED char *last = model_history_path(".", ROUNDS), *second = model_history_path(".", 2);
    unlink(last);
    expect_average(ROUNDS, 2, "two.safetensors", models, 2); /* what is there stays */
    FILE *file = fopen(second, "r+e");
    uint64_t header = 0; /* its length, before the values */
    assert_true(file && fread(&header, sizeof header, 1, file) == 1);
    assert_true(fseek(file, (long)header, SEEK_CUR) == 0 && fputc(0x55, file) == 0x55 && fclose(file) == 0);
    assert_int_equal(model_history_average(&world.federation, ".", 4, 3, "bad.safetensors", &diagnostics), -1);
    expect_complaint(&diagnostics, EXIT_BAD_INPUT, "round-000002.safetensors");
    assert_int_not_equal(access("bad.safetensors", F_OK), 0);
    stop(&world);
    codec_of_models = CODEC_NONE;
}

/* A site that was away while the coordinator went back is at the same round of another branch: it offers nothing. */
static void a_round_of_another_branch_is_another_round(void **state)
{
    (void)state;
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    world.coordinator.model.branch = 1;
    begin_meeting(&world.sites[0], 0);
    assert_int_equal(meeting_step(&world.sites[0].meeting), MEETING_OVER);
    assert_int_equal(world.sites[0].meeting.said.branch, 1);
    assert_false(world.coordinator.sum.members[0].offered);
    world.sites[0].meeting.branch = 1;
    assert_int_equal(meeting_step(&world.sites[0].meeting), MEETING_GOES_ON);
    stop(&world);
}

/* Rounds that no other one is better than are the last ones: sites learn it wherever they are. */
static void a_federation_that_ends_early_ends_for_all(void **state)
{
    (void)state;
    start(&world, 3, true, OUTER_AVERAGE, 5, 1);
    turns_until(2);
    for (int s = 0; s < 3; s++) begin_meeting(&world.sites[s], 2);
    world.coordinator.rounds = 2;
    assert_true(coordinator_is_done(&world.coordinator));
    assert_int_equal(meeting_step(&world.sites[1].meeting), MEETING_OVER);
    assert_int_equal(world.sites[1].meeting.said.rounds, 2);
    stop(&world);
}

/* While it is not known how good the last model is, no other round ends. */
static void a_round_waits_for_what_is_learned_of_the_last(void **state)
{
    (void)state;
    for (int secure = 0; secure < 2; secure++) {
        start(&world, 3, secure, OUTER_AVERAGE, 1, 1);
        world.coordinator.holds = true;
        for (int turn = 0; turn < 300; turn++) step(&world.sites[turn % 3]);
        assert_int_equal(world.coordinator.model.round, 0);
        world.coordinator.holds = false;
        turns_until(1);
        assert_false(world.coordinator.holds);
        stop(&world);
    }
}

/* Each has its rows; what the coordinator learns is their mean, under masks as without. */
static void evaluations_of_sites_are_added_up(void **state)
{
    (void)state;
    for (int secure = 0; secure < 2; secure++) {
        start(&world, 3, secure, OUTER_AVERAGE, 1, 1);
        for (int s = 0; s < 3; s++) {
            begin_meeting(&world.sites[s], 0);
            if (s < 2)
                world.sites[s].meeting.evaluation = (RowsEvaluation){30 + 10 * s, s ? 40 : 0, 0.25 * (s + 1), 0.75};
        }
        turns_until(1);
        RowsEvaluation all = world.coordinator.evaluated;
        assert_true(all.rows == 70 && all.right_of == 40);
        assert_true(fabs(all.loss - (30 * 0.25 + 40 * 0.5) / 70) < 1e-6 && fabs(all.accuracy - 0.75) < 1e-6);
        assert_non_null(strstr(world.said, "model after round 0 on 70 rows held out at the sites: loss 0.3929"));
        stop(&world);
    }
}

static void who_refuses_a_model_is_not_waited_for(void **state)
{
    (void)state;
    start(&world, 4, true, OUTER_AVERAGE, 2, 1);
    Request request = {.kind = REQUEST_ASK,
                       .federation = world.federation.compiled.identity,
                       .payload = &(unsigned char){1},
                       .size = 1};
    Buffer message = {0}, answer = {0};
    request_put(&message, &request);
    assert_true(exchange(&world.sites[2], &message, &answer));
    world.sites[2].gone = true;
    double since = world.now;
    turns_until(1);
    assert_true(world.now - since < 10);
    assert_non_null(strstr(world.said, "site 'lima' refuses the model after round 0"));
    assert_int_equal(world.coordinator.model.counted[2], 0);
    buffer_free(&message);
    buffer_free(&answer);
    stop(&world);
}

static ReplyKind ask_with(int site, const char *options, char why[static 512])
{
    Buffer message = {0}, answer = {0}, payload = {0};
    Reply reply;
    buffer_append(&payload, &(unsigned char){ASK_OPTIONS}, 1);
    buffer_append(&payload, options, strlen(options));
    Request request = {.kind = REQUEST_ASK,
                       .federation = world.federation.compiled.identity,
                       .round = ROUND_NONE,
                       .payload = (unsigned char *)payload.bytes,
                       .size = payload.size};
    request_put(&message, &request);
    assert_true(exchange(&world.sites[site], &message, &answer));
    assert_true(reply_get(&reply, (unsigned char *)answer.bytes, answer.size));
    snprintf(why, 512, "%.*s", (int)reply.size, reply.kind == REPLY_REFUSED ? (const char *)reply.payload : "");
    buffer_free(&payload);
    buffer_free(&message);
    buffer_free(&answer);
    return reply.kind;
}

static void sites_train_with_the_same_options_or_may_not(void **state)
{
    (void)state;
    char why[512], longest[400];
    start(&world, 3, true, OUTER_AVERAGE, 2, 1);
    assert_int_equal(ask_with(0, "--lr 0.01", why), REPLY_WAIT);
    assert_int_equal(ask_with(1, "--lr 1000", why), REPLY_REFUSED);
    assert_string_equal(why, "trains with other options (--lr 1000) than site 'paris' (--lr 0.01)");
    assert_int_equal(ask_with(2, "--lr 0.01", why), REPLY_WAIT); /* the one that was refused is no measure */
    assert_int_equal(ask_with(1, "", why), REPLY_REFUSED);
    world.members[1].own_options = true;
    assert_int_equal(ask_with(1, "--lr 1000", why), REPLY_WAIT);
    assert_int_equal(ask_with(0, "--lr 0.01", why), REPLY_WAIT);
    memset(longest, 'x', sizeof longest);
    longest[399] = '\0';
    assert_int_equal(ask_with(2, longest, why), REPLY_REFUSED);
    stop(&world);
}

static void what_jumps_is_named(void **state)
{
    (void)state;
    JumpWatch watch = {.count = 0};
    const double calm[] = {1, 1.2, 0.9, 1.1};
    for (int i = 0; i < 4; i++) assert_true(jump_watch(&watch, NULL, 0, calm[i]) == 0);
    assert_true(jump_watch(&watch, calm, 4, 9) == 0);
    double times = jump_watch(&watch, calm, 4, 110);
    assert_true(fabs(times - 100) < 1e-9);                  /* the median of 0.9, 1, 1.1, 1.2 and 9 is 1.1 */
    assert_true(jump_watch(&watch, calm, 4, 110) == times); /* it is no measure for the next */
    watch = (JumpWatch){.count = 0};
    assert_true(jump_watch(&watch, calm, 1, 110) == 0); /* one other site may be the one that is wrong */
    watch.count = 0;
    times = jump_watch(&watch, calm, 2, 110);
    assert_true(fabs(times - 100) < 1e-9 && watch.count == 0);
    start(&world, 3, true, OUTER_AVERAGE, 6, 1);
    for (int64_t round = 0; round < 5; round++) {
        for (int s = 0; s < 3; s++) {
            begin_meeting(&world.sites[s], round);
            if (round == 0 && s == 1) world.sites[s].meeting.exponent += 6;
            if (round == 4 && s == 1) world.sites[s].meeting.metrics.loss = 77;
            if (round == 4 && s == 2) world.sites[s].meeting.exponent += 5;
        }
        turns_until(round + 1);
    }
    const char *first = strstr(world.said, "warning: round 1: the largest change of site 'oslo' is about ");
    assert_non_null(first);
    assert_non_null(strstr(first, " times the median of the other sites\n"));
    assert_non_null(strstr(world.said, "warning: round 5: the loss of site 'oslo' is 77, 128 times the median"));
    assert_non_null(strstr(world.said, "warning: round 5: the largest change of site 'lima' is about 32 times"));
    assert_null(strstr(world.said, "site 'paris' is"));
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_round_has_its_sample),
        TEST(a_site_that_is_not_drawn_is_told_so),
        TEST(another_site_is_drawn_for_one_that_is_gone),
        TEST(a_site_that_is_started_again_in_a_meeting_is_in_the_round),
        TEST(one_site_does_not_spoil_a_robust_step),
        TEST(a_coordinator_goes_back_to_a_round_that_it_kept),
        TEST(the_mean_of_the_last_models_is_that_of_their_values),
        TEST(a_round_of_another_branch_is_another_round),
        TEST(a_federation_that_ends_early_ends_for_all),
        TEST(a_round_waits_for_what_is_learned_of_the_last),
        TEST(evaluations_of_sites_are_added_up),
        TEST(who_refuses_a_model_is_not_waited_for),
        TEST(sites_train_with_the_same_options_or_may_not),
        TEST(what_jumps_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
