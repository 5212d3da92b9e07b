/* The model of a link, in time that the test makes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/network/link.h"

enum { MILLISECOND = 1000000 };

/* 1000 bytes take a millisecond. */
static const LinkSettings slow = {.latency_ns = 20 * MILLISECOND, .bandwidth = 1e6, .queue_bytes = 10000};

static void send_at(Link *link, FramePool *pool, int64_t now, uint32_t bytes, uint8_t mark)
{
    Frame *frame = frame_take(pool);
    frame->bytes = frame->link_bytes = bytes;
    frame->segments = 1;
    frame->data[0] = mark;
    link_send(link, pool, frame, now);
}

/* The mark of what arrives, exactly at `due` and no nanosecond before. */
static int arrives(Link *link, FramePool *pool, int64_t due)
{
    assert_int_equal(link_next_due(link), due);
    assert_null(link_arrived(link, due - 1));
    Frame *frame = link_arrived(link, due);
    assert_non_null(frame);
    int mark = frame->data[0];
    frame_give_back(pool, frame);
    return mark;
}

static void test_latency_and_bandwidth(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link link;
    link_initialize(&link, slow, 1);
    assert_int_equal(link_next_due(&link), INT64_MAX);
    send_at(&link, &pool, 0, 1000, 1);
    send_at(&link, &pool, 0, 2000, 2);                /* waits for the first */
    send_at(&link, &pool, 10 * MILLISECOND, 1000, 3); /* finds the link free */
    assert_int_equal(arrives(&link, &pool, 21 * MILLISECOND), 1);
    assert_int_equal(arrives(&link, &pool, 23 * MILLISECOND), 2);
    assert_int_equal(arrives(&link, &pool, 31 * MILLISECOND), 3);
    assert_int_equal(link.carried.frames, 3);
    assert_int_equal(link.carried.bytes, 4000);
    frame_pool_free(&pool);
}

static void test_queue(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link link;
    link_initialize(&link, slow, 1);
    for (int i = 0; i < 15; i++) send_at(&link, &pool, 0, 1000, 0);
    assert_int_equal(link.full.frames, 5);
    send_at(&link, &pool, 2 * MILLISECOND, 1000, 0); /* two have left it: room for two more */
    send_at(&link, &pool, 2 * MILLISECOND, 1000, 0);
    send_at(&link, &pool, 2 * MILLISECOND, 1000, 0);
    assert_int_equal(link.full.frames, 6);
    link_cut(&link, &pool);
    assert_int_equal(link.severed.frames, 12);
    frame_pool_free(&pool);
}

static void test_shared(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link there, back;
    link_initialize(&there, slow, 1);
    link_initialize(&back, slow, 2);
    back.is_free_at = there.is_free_at;
    send_at(&there, &pool, 0, 3000, 1);
    send_at(&back, &pool, 0, 1000, 2);
    assert_int_equal(arrives(&there, &pool, 23 * MILLISECOND), 1);
    assert_int_equal(arrives(&back, &pool, 24 * MILLISECOND), 2);
    frame_pool_free(&pool);
}

static void test_cut(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link link;
    link_initialize(&link, slow, 1);
    send_at(&link, &pool, 0, 1000, 1);
    link_cut(&link, &pool);
    send_at(&link, &pool, 0, 1000, 2);
    assert_int_equal(link_next_due(&link), INT64_MAX);
    assert_int_equal(link.severed.frames, 2);
    link.cut = false;
    send_at(&link, &pool, 50 * MILLISECOND, 1000, 3);
    assert_int_equal(arrives(&link, &pool, 71 * MILLISECOND), 3);
    frame_pool_free(&pool);
}

static void test_loss(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link link;
    LinkSettings settings = {.bandwidth = 1e12, .queue_bytes = FRAME_BYTES, .loss = 0.1};
    link_initialize(&link, settings, 7);
    for (int i = 0; i < 10000; i++) {
        send_at(&link, &pool, i * (int64_t)MILLISECOND, 100, 0);
        Frame *frame = link_arrived(&link, i * (int64_t)MILLISECOND + MILLISECOND / 2);
        if (frame) frame_give_back(&pool, frame);
    }
    assert_in_range(link.lost.frames, 900, 1100);
    assert_int_equal(link.lost.frames + link.carried.frames, 10000);
    frame_pool_free(&pool);
}

/* A link that became shorter lets nothing overtake. */
static void test_shorter(void **state)
{
    (void)state;
    FramePool pool = {0};
    Link link;
    link_initialize(&link, slow, 1);
    send_at(&link, &pool, 0, 1000, 1);
    link.settings.latency_ns = 0;
    send_at(&link, &pool, 0, 1000, 2);
    assert_int_equal(arrives(&link, &pool, 21 * MILLISECOND), 1);
    assert_int_equal(arrives(&link, &pool, 21 * MILLISECOND), 2);
    frame_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latency_and_bandwidth),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
