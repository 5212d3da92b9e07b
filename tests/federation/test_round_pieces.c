/* Updates of a federation's sites in pieces: cut, slow, wrong, and without room on disk. */
#include <signal.h>
#include <sys/resource.h>

#include "tests/federation/round_world.h"

static World world;

static int64_t messages_of_updates(void) { return world.coordinator.traffic[REQUEST_ANSWER][SUM_VALUES].messages; }

static void an_update_that_is_cut_goes_on_where_it_was(void **state)
{
    (void)state;
    bool in[1][MOST];
    all_in(in, 1);
    for (int secure = 0; secure < 2; secure++) {
        send_two_pieces(&world, 3, secure);
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
        send_two_pieces(&world, 4, !comes_back);
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
    send_two_pieces(&world, 3, false);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_update_that_is_cut_goes_on_where_it_was),
        TEST(half_an_update_is_none),
        TEST(a_phase_goes_on_while_pieces_arrive),
        TEST(updates_wait_for_room_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
