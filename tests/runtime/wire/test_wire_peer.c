/* Two peers over connections that break, lose what was handed to them, and are fed what does not belong there: every
 * message arrives once, whole and in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "runtime/wire/peer.h"

enum { RANKS = 4, MOST_FRAMES = 1 << 12, LARGEST = 3 * WIRE_CHUNK };

static const int rank_sites[RANKS] = {0, 1, 0, 1};
static const Hash run_hash = {1, 2};

/* One of two sites, and what is on its way to it. */
typedef struct Side {
    WirePeer peer;
    WireChunk *incoming[MOST_FRAMES];
    int incoming_count;
    int received; /* messages */
    int finished; /* for the gateway */
    struct Side *other;
} Side;

static bool send_to_other(void *context, int site, WireChunk *chunk)
{
    Side *side = context, *other = side->other;
    assert_int_equal(site, 1 - side->peer.place.own_site);
    assert_true(other->incoming_count < MOST_FRAMES);
    other->incoming[other->incoming_count++] = chunk;
    return true;
}

/* Message number n of a side: its size and bytes follow from the number. */
static size_t size_of(int number)
{
    static const size_t sizes[] = {0, 1, 100, WIRE_CHUNK - 1, WIRE_CHUNK, WIRE_CHUNK + 1, 2 * WIRE_CHUNK, LARGEST};
    return sizes[(unsigned)number % (sizeof sizes / sizeof *sizes)];
}

static void fill(uint8_t *bytes, int number)
{
    for (size_t i = 0; i < size_of(number); i++) bytes[i] = (uint8_t)((size_t)number * 31 + i);
}

static void deliver(void *context, int site, const WireFrame *message)
{
    static uint8_t expected[LARGEST];
    Side *side = context;
    (void)site;
    if (message->to == WIRE_GATEWAY) {
        side->finished++;
        return;
    }
    assert_int_equal(message->tag, side->received);
    assert_int_equal(message->size, size_of(side->received));
    fill(expected, side->received);
    if (message->size) assert_memory_equal(message->payload, expected, message->size);
    side->received++;
}

static void open_side(Side *side, Side *other, int site, uint64_t incarnation)
{
    const WirePeerPlace place = {.context = side,
                                 .site = 1 - site,
                                 .run = run_hash,
                                 .incarnation = incarnation,
                                 .largest_message = LARGEST,
                                 .rank_count = RANKS,
                                 .rank_sites = rank_sites,
                                 .own_site = site,
                                 .send = send_to_other,
                                 .deliver = deliver};
    *side = (Side){.other = other};
    wire_peer_open(&side->peer, &place);
}

static void forget_incoming(Side *side)
{
    for (int i = 0; i < side->incoming_count; i++) wire_chunk_release(side->incoming[i]);
    side->incoming_count = 0;
}

static void close_side(Side *side)
{
    forget_incoming(side);
    wire_peer_close(&side->peer);
}

/* Hands the first of what is on its way over. Site 0 listens. */
static WireEvent take_one(Side *side)
{
    WireChunk *chunk = side->incoming[0];
    side->incoming_count--;
    memmove(side->incoming, side->incoming + 1, (size_t)side->incoming_count * sizeof *side->incoming);
    WireEvent event = wire_peer_take(&side->peer, chunk->bytes, chunk->size, side->peer.place.own_site == 0);
    wire_chunk_release(chunk);
    return event;
}

static void settle(Side *sides)
{
    while (sides[0].incoming_count || sides[1].incoming_count)
        for (int s = 0; s < 2; s++) {
            if (sides[s].incoming_count) take_one(&sides[s]);
            wire_peer_acknowledge(&sides[s].peer, false);
        }
}

static void send_number(Side *side, int number)
{
    static uint8_t bytes[LARGEST];
    int site = side->peer.place.own_site;
    fill(bytes, number);
    wire_peer_send(&side->peer, site, 1 - site + 2 * (number % 2), number, bytes, size_of(number));
}

/* The connection breaks, and a new one is made. */
static void reconnect(Side *sides)
{
    for (int s = 0; s < 2; s++) {
        forget_incoming(&sides[s]);
        wire_peer_lost(&sides[s].peer);
    }
    wire_peer_greet(&sides[1].peer);
}

static void test_nothing_lost_by_cuts(void **state)
{
    (void)state;
    enum { SEEDS = 20, MESSAGES = 60 };
    int cuts = 0;
    uint64_t resent = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static Side sides[2];
        const RandomStream random = random_stream(seed, "cuts");
        uint64_t draw = 0;
        int sent[2] = {0, 0};
        open_side(&sides[0], &sides[1], 0, 11);
        open_side(&sides[1], &sides[0], 1, 22);
        while (sent[0] < MESSAGES || sent[1] < MESSAGES) {
            int s = (int)random_below(random, draw++, 2);
            switch (random_below(random, draw++, 8)) {
            case 0:
            case 1:
            case 2:
                if (sent[s] < MESSAGES) send_number(&sides[s], sent[s]++);
                break;
            case 3:
                if (random_below(random, draw++, 3) == 0) {
                    reconnect(sides);
                    cuts++;
                }
                break;
            case 4: wire_peer_acknowledge(&sides[s].peer, random_below(random, draw++, 2)); break;
            default:
                if (sides[s].incoming_count) take_one(&sides[s]);
            }
        }
        reconnect(sides);
        settle(sides);
        for (int s = 0; s < 2; s++) {
            const WireCounters *counters = &sides[s].peer.counters;
            assert_int_equal(sides[s].received, MESSAGES);
            assert_int_equal(counters->messages_received, MESSAGES);
            assert_int_equal(counters->kept_bytes, 0);
            assert_true(counters->most_kept_bytes > 0);
            assert_int_equal(sides[s].peer.acknowledged, sides[s].peer.next);
            assert_int_equal(counters->bytes_sent, sides[1 - s].peer.counters.bytes_received);
            resent += counters->frames_resent;
        }
        close_side(&sides[0]);
        close_side(&sides[1]);
    }
    assert_true(cuts > SEEDS);
    assert_true(resent > SEEDS);
}

static void connect_sides(Side *sides)
{
    open_side(&sides[0], &sides[1], 0, 11);
    open_side(&sides[1], &sides[0], 1, 22);
    reconnect(sides);
    settle(sides);
    assert_true(sides[0].peer.up && sides[1].peer.up);
}

static WireEvent take_frame(Side *side, WireFrame frame)
{
    WireChunk *chunk = wire_chunk_make(&frame);
    WireEvent event = wire_peer_take(&side->peer, chunk->bytes, chunk->size, true);
    wire_chunk_release(chunk);
    return event;
}

static void test_foreign_frames_are_dropped_and_counted(void **state)
{
    (void)state;
    static Side sides[2];
    static uint8_t bytes[LARGEST + 1];
    connect_sides(sides);
    Side *side = &sides[0];
    uint64_t *dropped = side->peer.counters.dropped;
    fill(bytes, 0);
    const WireFrame good = {.kind = WIRE_DATA,
                            .run = run_hash,
                            .incarnation = 22,
                            .from = 1,
                            .to = 0,
                            .tag = 0,
                            .total = 0,
                            .payload = bytes};
    WireFrame frame = good;
    frame.run.low++;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_RUN], 1);
    frame = good;
    frame.incarnation++;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_INCARNATION], 1);
    frame = good;
    frame.sequence = 1;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_EARLY], 1);
    wire_peer_take(&side->peer, "garbage", 7, true);
    wire_peer_take(&side->peer, bytes, sizeof bytes, true);
    frame = good;
    frame.kind = WIRE_JOIN;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_MALFORMED], 3);
    frame = (WireFrame){.kind = WIRE_ACKNOWLEDGE, .run = run_hash, .incarnation = 22, .sequence = 1};
    take_frame(side, frame); /* nothing was sent that it could have */
    assert_int_equal(dropped[WIRE_DROP_REPLAYED], 1);
    assert_int_equal(side->peer.expected, 0);
    assert_int_equal(side->received, 0);
    take_frame(side, good);
    assert_int_equal(side->received, 1);
    take_frame(side, good);
    assert_int_equal(side->received, 1);
    assert_int_equal(dropped[WIRE_DROP_REPLAYED], 2);
    /* What a gateway that is not as it should be sends in its turn is left out, and what follows arrives. */
    static const int ranks[][2] = {{0, 0}, {1, 1}, {-1, 0}, {RANKS, 0}, {1, RANKS}, {1, -2}};
    frame = good;
    frame.sequence = 1;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++, frame.sequence++) {
        frame.from = ranks[i][0];
        frame.to = ranks[i][1];
        take_frame(side, frame);
        assert_int_equal(dropped[WIRE_DROP_MISDIRECTED], i + 1);
    }
    frame.from = 1, frame.to = 0, frame.total = LARGEST + 1, frame.size = WIRE_CHUNK;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_LARGE], 1);
    frame.sequence++, frame.total = 10, frame.size = 9;
    take_frame(side, frame);
    frame.sequence++, frame.size = 10, frame.offset = 1;
    take_frame(side, frame);
    frame.sequence++, frame.offset = UINT64_MAX - 5;
    take_frame(side, frame);
    assert_int_equal(dropped[WIRE_DROP_MALFORMED], 6);
    assert_int_equal(side->received, 1);
    fill(bytes, 1);
    frame = good;
    frame.sequence = side->peer.expected, frame.tag = 1, frame.total = frame.size = size_of(1);
    take_frame(side, frame);
    assert_int_equal(side->received, 2);
    close_side(&sides[0]);
    close_side(&sides[1]);
}

/* A site that starts again is noticed by the one it had been with, which then starts again, too; no more than that. */
static void test_incarnations(void **state)
{
    (void)state;
    static Side sides[2];
    connect_sides(sides);
    send_number(&sides[0], 0);
    settle(sides);
    assert_int_equal(sides[1].received, 1);
    close_side(&sides[1]);
    open_side(&sides[1], &sides[0], 1, 33); /* site 1 has started again */
    forget_incoming(&sides[0]);
    wire_peer_greet(&sides[1].peer);
    assert_int_equal(take_one(&sides[0]), WIRE_NEW_INCARNATION);
    assert_int_equal(take_one(&sides[1]), WIRE_NOTHING); /* the answer is of an earlier run: it waits */
    assert_false(sides[1].peer.up || sides[1].peer.bound);
    wire_peer_greet(&sides[1].peer);
    assert_int_equal(take_one(&sides[0]), WIRE_NOTHING); /* said once */
    send_number(&sides[0], 1);                           /* goes nowhere */
    close_side(&sides[0]);
    open_side(&sides[0], &sides[1], 0, 44);
    forget_incoming(&sides[1]);
    wire_peer_greet(&sides[1].peer);
    assert_int_equal(take_one(&sides[0]), WIRE_GREETED);
    assert_int_equal(take_one(&sides[1]), WIRE_GREETED);
    send_number(&sides[0], 0);
    settle(sides);
    assert_int_equal(sides[1].received, 1);
    close_side(&sides[0]);
    close_side(&sides[1]);
}

static void test_messages_for_the_gateway(void **state)
{
    (void)state;
    static Side sides[2];
    connect_sides(sides);
    wire_peer_send(&sides[1].peer, 3, WIRE_GATEWAY, WIRE_FINISHED, NULL, 0);
    settle(sides);
    assert_int_equal(sides[0].finished, 1);
    assert_int_equal(sides[0].received, 0);
    close_side(&sides[0]);
    close_side(&sides[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_lost_by_cuts),
        cmocka_unit_test(test_foreign_frames_are_dropped_and_counted),
        cmocka_unit_test(test_incarnations),
        cmocka_unit_test(test_messages_for_the_gateway),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
