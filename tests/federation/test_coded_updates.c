/* Updates in codecs: what they come to, with what is left out kept. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec_rows.h"
#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_messages.h"
#include "federation/coded_row.h"
#include "federation/coded_update.h"
#include "federation/member/feedback.h"
#include "federation/member/own_model.h"
#include "federation/messages.h"
#include "federation/update_pieces.h"
#include "tests/common/command.h"
#include "tests/common/scratch.h"

enum { ELEMENTS = 200, ROUNDS = 40, SITES = 3 };

static const Codec codecs[] = {CODEC_BF16, CODEC_Q8, CODEC_Q6, CODEC_Q4, CODEC_Q3};

static float update_of(int site, int round, size_t element)
{
    RandomStream stream = random_substream(random_stream(5, "update"), (uint64_t)(round * SITES + site));
    return (float)(0.01 * (1 + site) * random_normal(stream, element));
}

static void put_weight(Buffer *message, int64_t weight)
{
    uint32_t words[FIXED_POINT_WEIGHT_WORDS];
    unsigned char bytes[4];
    fixed_point_put_weight(words, weight);
    for (int i = 0; i < FIXED_POINT_WEIGHT_WORDS; i++) {
        put_u32(bytes, words[i]);
        buffer_append(message, bytes, 4);
    }
}

/* All that was sent and what is left are all that there was, in double precision. */
static void what_is_sent_and_what_is_left_are_everything(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        float left[ELEMENTS] = {0}, values[ELEMENTS];
        double sent[ELEMENTS] = {0}, all[ELEMENTS] = {0}, worst = 0, largest = 0;
        for (int round = 0; round < ROUNDS; round++) {
            FREED_WITH(buffer_free) Buffer bytes = {0};
            for (size_t i = 0; i < ELEMENTS; i++) all[i] += values[i] = update_of(1, round, i);
            assert_true(coded_row_make((RowRule){codecs[c], 0}, values, left, left, ELEMENTS, &bytes));
            assert_int_equal(bytes.size, codec_row_bytes(codecs[c], ELEMENTS));
            for (size_t i = 0; i < ELEMENTS; i++) sent[i] += values[i];
        }
        for (size_t i = 0; i < ELEMENTS; i++) {
            worst = fmax(worst, fabs(sent[i] + left[i] - all[i]));
            largest = fmax(largest, fabsf(left[i]));
        }
        assert_true(worst < 1e-6);
        assert_true(largest > 1e-6 && largest < 0.1); /* something is left, of the size of one round's error */
    }
}

/* The sum of sites, at the coordinator, is that of what the sites say that they sent. */
static void sums_are_those_of_decoded_updates(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        float values[SITES][ELEMENTS], left[ELEMENTS], mean[ELEMENTS];
        uint32_t words[ELEMENTS + FIXED_POINT_WEIGHT_WORDS], sum[ELEMENTS + FIXED_POINT_WEIGHT_WORDS] = {0};
        Buffer messages[SITES] = {{0}};
        int exponent = FIXED_POINT_LEAST;
        for (int s = 0; s < SITES; s++) {
            int own;
            memset(left, 0, sizeof left);
            for (size_t i = 0; i < ELEMENTS; i++) values[s][i] = update_of(s, 0, i);
            put_weight(&messages[s], 10 + s);
            assert_true(coded_row_make((RowRule){codecs[c], 0}, values[s], left, left, ELEMENTS, &messages[s]));
            assert_true(fixed_point_exponent(values[s], ELEMENTS, 10 + s, &own));
            exponent = own > exponent ? own : exponent;
        }
        for (int s = 0; s < SITES; s++) {
            const unsigned char *bytes = (const unsigned char *)messages[s].bytes;
            assert_int_equal(messages[s].size, coded_update_bytes(codecs[c], ELEMENTS));
            assert_true(coded_update_read(codecs[c], bytes, messages[s].size, ELEMENTS, exponent, false, SITES, words));
            for (size_t i = 0; i < ELEMENTS + FIXED_POINT_WEIGHT_WORDS; i++) sum[i] += words[i];
        }
        int64_t weight = fixed_point_get_weight(sum + ELEMENTS);
        assert_int_equal(weight, 33);
        fixed_point_mean(mean, sum, ELEMENTS, weight, exponent, SITES);
        for (size_t i = 0; i < ELEMENTS; i++) {
            double expected = 0;
            for (int s = 0; s < SITES; s++) expected += (10 + s) * (double)values[s][i] / 33;
            assert_true(fabs(mean[i] - expected) < 1e-8);
        }
        for (int s = 0; s < SITES; s++) buffer_free(&messages[s]);
    }
}

enum { MANY = 9000, PIECE = 5120 }; /* more values than are decoded at once */

/* A piece of the row, as a site sends it; after the last one what it has measured, which is nothing. */
static ArrivalState send_piece(ArrivingUpdate *update, const Federation *federation, SumRound *sum, const Buffer *row,
                               size_t number, int64_t weight, SumProblem *problem)
{
    FREED_WITH(buffer_free) Buffer message = {0};
    unsigned char head[UPDATE_PIECE_HEAD], none[4 * FIXED_POINT_EVALUATION_WORDS] = {0};
    size_t first = number * PIECE, count = MANY - first < PIECE ? MANY - first : PIECE;
    put_u64(head, number);
    buffer_append(&message, head, sizeof head);
    put_weight(&message, weight);
    coded_row_put(row_rule_up(federation), row->bytes + codec_row_bytes(federation->codec, (int64_t)first), count,
                  &message);
    if (first + count == MANY) buffer_append(&message, none, sizeof none);
    ArrivalState state =
        arriving_take(update, federation, sum, 1, "coded", (const unsigned char *)message.bytes, message.size, problem);
    return state;
}

/* They are added as they come, in fixed point: what the row says. Before the last they can be taken back. */
static void pieces_are_the_update(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        const Federation federation = {.codec = codecs[c], .least_change = c % 2 ? 0.3 : 0, .update_piece = PIECE};
        float values[MANY], left[MANY] = {0};
        uint32_t words[MANY];
        FREED_WITH(buffer_free) Buffer row = {0};
        SumRound sum;
        SumProblem problem;
        ArrivingUpdate update = {0};
        for (size_t i = 0; i < MANY; i++) values[i] = update_of(1, 0, i);
        assert_true(coded_row_make(row_rule_up(&federation), values, left, left, MANY, &row));
        sum_round_open(&sum, SITES, 1, false, MANY + FIXED_POINT_TAIL_WORDS);
        assert_true(fixed_point_exponent(values, MANY, 7, &sum.exponent));
        assert_int_equal(send_piece(&update, &federation, &sum, &row, 0, 6, &problem), ARRIVAL_GOES_ON);
        assert_true(sum.words[0]);
        assert_true(arriving_take_back(&update, &federation, &sum));
        for (size_t i = 0; i < sum.word_count; i++) assert_int_equal(sum.words[i], 0);
        for (size_t number = 0; number * PIECE < MANY; number++) {
            bool is_last = (number + 1) * PIECE >= MANY;
            if (number) {
                assert_int_equal(send_piece(&update, &federation, &sum, &row, number, 6, &problem), ARRIVAL_REFUSED);
                assert_string_equal(problem.text, "sent pieces of one update with several weights");
            }
            assert_int_equal(send_piece(&update, &federation, &sum, &row, number, 7, &problem),
                             is_last ? ARRIVAL_WHOLE : ARRIVAL_GOES_ON);
        }
        for (size_t i = 0; i < MANY; i++)
            words[i] = (uint32_t)(int32_t)nearbyint(ldexp(7 * (double)values[i], -sum.exponent) * (INT32_MAX / SITES));
        assert_memory_equal(words, sum.words, sizeof words);
        assert_int_equal(fixed_point_get_weight(sum.words + MANY), 7);
        assert_true(sum.members[1].counted);
        sum_round_close(&sum);
    }
}

/* Of every three tiles, one in which nothing changes, and one that changes by a hundredth as much as the third. */
static float sparse_value(size_t i)
{
    const float share[] = {1, 0, 0.004f};
    return share[i / CODEC_TILE % 3] * update_of(2, 0, i);
}

static bool takes(RowRule rule, const Buffer *wire, size_t size, size_t count, Buffer *row)
{
    buffer_free(row);
    return coded_row_take(rule, (const unsigned char *)wire->bytes, size, count, row);
}

/* Tiles in which little changes wait until it is much, and cost a bit, as those do in which nothing changes; the row at
 * the other end is the same, to the last byte. */
static void tiles_that_barely_change_cost_a_bit(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        enum { TILES = (MANY + CODEC_TILE - 1) / CODEC_TILE };
        float values[MANY], left[MANY] = {0};
        size_t tile = (size_t)codec_row_bytes(codecs[c], CODEC_TILE), marks = (TILES + 7) / 8;
        const RowRule rule = {codecs[c], 0.01f};
        bool has_tiles = codec_bits(codecs[c]) > 0, was_sent = false;
        for (int round = 0; round < ROUNDS; round++) {
            Buffer row = {0}, wire = {0}, back = {0};
            size_t sent = 0;
            for (size_t i = 0; i < MANY; i++) values[i] = sparse_value(i);
            coded_row_make(rule, values, left, left, MANY, &row);
            coded_row_put(rule, row.bytes, MANY, &wire);
            assert_true(takes(rule, &wire, wire.size, MANY, &back));
            assert_int_equal(row.size, back.size);
            assert_memory_equal(row.bytes, back.bytes, row.size);
            for (size_t t = 0, end; t < TILES; t++) {
                end = (t + 1) * CODEC_TILE < MANY ? (t + 1) * CODEC_TILE : MANY;
                sent += codec_largest(values + t * CODEC_TILE, (int64_t)(end - t * CODEC_TILE)) > 0;
            }
            if (has_tiles) assert_int_equal(wire.size, marks + sent * tile);
            if (has_tiles && !round)
                assert_true(sent == (TILES + 2) / 3 && left[2 * CODEC_TILE] == sparse_value(2 * CODEC_TILE));
            was_sent |= codec_largest(values + 2 * CODEC_TILE, CODEC_TILE) > 0;
            assert_false(takes(rule, &wire, wire.size - 1, MANY, &back));
            if (has_tiles) wire.bytes[0] ^= 2; /* a tile that is not there */
            if (has_tiles) assert_false(takes(rule, &wire, wire.size, MANY, &back));
            if (has_tiles) wire.bytes[0] ^= 2, wire.bytes[marks - 1] |= (char)0x80; /* beyond the last */
            if (has_tiles) assert_false(takes(rule, &wire, wire.size, MANY, &back));
            assert_false(takes(rule, &wire, marks - 1, MANY, &back));
            buffer_free(&row), buffer_free(&wire), buffer_free(&back);
        }
        assert_true(was_sent);
    }
}

static void expect_refused(const Buffer *message, size_t size, int exponent)
{
    uint32_t words[ELEMENTS + FIXED_POINT_WEIGHT_WORDS];
    const unsigned char *bytes = (const unsigned char *)message->bytes;
    assert_false(coded_update_read(CODEC_Q4, bytes, size, ELEMENTS, exponent, false, SITES, words));
}

/* What is beyond the scale counts as the scale. */
static void expect_cut(const Buffer *message, int exponent)
{
    uint32_t words[ELEMENTS + FIXED_POINT_WEIGHT_WORDS];
    const unsigned char *bytes = (const unsigned char *)message->bytes;
    int32_t most = 0;
    assert_true(coded_update_read(CODEC_Q4, bytes, message->size, ELEMENTS, exponent, true, SITES, words));
    for (size_t i = 0; i < ELEMENTS; i++)
        if (abs((int32_t)words[i]) > most) most = abs((int32_t)words[i]);
    assert_int_equal(most, INT32_MAX / SITES);
}

static void what_is_no_update_is_refused(void **state)
{
    (void)state;
    float values[ELEMENTS], left[ELEMENTS] = {0};
    Buffer message = {0}, unused = {0};
    int exponent;
    for (size_t i = 0; i < ELEMENTS; i++) values[i] = update_of(0, 0, i);
    put_weight(&message, 4);
    assert_true(coded_row_make((RowRule){CODEC_Q4, 0}, values, left, left, ELEMENTS, &message));
    assert_true(fixed_point_exponent(values, ELEMENTS, 4, &exponent));
    expect_refused(&message, message.size - 1, exponent);
    expect_refused(&message, message.size, exponent - 1); /* its words would wrap */
    expect_cut(&message, exponent - 8);
    message.bytes[2] = 1; /* a weight word of 17 bits */
    expect_refused(&message, message.size, FIXED_POINT_MOST);
    message.bytes[2] = 0;
    message.bytes[4 * FIXED_POINT_WEIGHT_WORDS] = (char)0xc0; /* a scale that is not a number */
    message.bytes[4 * FIXED_POINT_WEIGHT_WORDS + 1] = 0x7f;
    expect_refused(&message, message.size, FIXED_POINT_MOST);
    values[3] = NAN;
    assert_false(coded_row_make((RowRule){CODEC_Q4, 0}, values, left, left, ELEMENTS, &unused));
    buffer_free(&message);
    buffer_free(&unused);
}

/* A site's rounds, of which some end without it; killed: it reads its file before every step, as one does that is
 * started again, and may have made the update before. Some wait long enough to write ahead. What it sent goes to
 * `sent`. */
static void run_site(const Federation *federation, const GlobalModel *start, bool killed, FragmentRange part,
                     float *sent)
{
    Diagnostics diagnostics = {0};
    Feedback feedback;
    size_t count = part.end - part.first;
    assert_true(feedback_begin(start, "feedback.safetensors", &diagnostics));
    assert_true(feedback_open(&feedback, federation, "feedback.safetensors", &diagnostics));
    for (int round = 0; round < ROUNDS; round++) {
        float update[ELEMENTS];
        for (int again = 0; again <= killed; again++) {
            for (size_t i = 0; i < count; i++) update[i] = update_of(0, round, part.first + i);
            assert_true(feedback_code(&feedback, update, part, round, 0));
            if (round % 2) assert_true(feedback_prepare(&feedback, part, round + 1, &diagnostics));
            if (killed) feedback_free(&feedback);
            if (killed) assert_true(feedback_open(&feedback, federation, "feedback.safetensors", &diagnostics));
        }
        memcpy(sent + (size_t)round * ELEMENTS, update, count * sizeof *update);
        if (round % 5 == 3) continue; /* the sum is without it */
        if (killed) {
            for (size_t i = 0; i < count; i++) update[i] = update_of(0, round, part.first + i);
            assert_true(feedback_code(&feedback, update, part, round, 0));
        }
        assert_true(feedback_keep(&feedback, part, round + 1, &diagnostics));
        GlobalModel kept;
        assert_true(own_model_open(&kept, &federation->compiled, "feedback.safetensors", &diagnostics));
        assert_int_equal(kept.round, round + 1);
        assert_memory_equal(kept.values, feedback.left.values, ELEMENTS * sizeof *kept.values);
        global_model_free(&kept);
    }
    feedback_free(&feedback);
    must_run("! ls -A | grep ^feedback.safetensors.next");
}

static void a_site_that_is_started_again_sends_the_same_bits(void **state)
{
    (void)state;
    static float calm[ROUNDS * ELEMENTS], killed[ROUNDS * ELEMENTS];
    const char *const names[] = {"a"};
    const Shape shapes[] = {{1, {ELEMENTS}}};
    Federation federation = {.codec = CODEC_Q4, .compiled = {.identity = {1, 2}}};
    GlobalModel start;
    global_model_open(&start, federation.compiled.identity, names, shapes, 1, false);
    for (size_t first = 0; first <= 8; first += 8) {
        const FragmentRange part = {first, ELEMENTS};
        run_site(&federation, &start, false, part, calm);
        run_site(&federation, &start, true, part, killed);
        assert_memory_equal(calm, killed, sizeof calm);
    }
    double all = 0, worst = 0; /* and not merely what each round alone comes to */
    Feedback fresh = {.rule = {CODEC_Q4, 0}};
    fresh.left = start;
    float update[ELEMENTS];
    for (size_t i = 0; i < ELEMENTS; i++) update[i] = update_of(0, 20, i);
    assert_true(feedback_code(&fresh, update, (FragmentRange){0, ELEMENTS}, 20, 0));
    for (size_t i = 8; i < ELEMENTS; i++) {
        worst = fmax(worst, fabsf(update[i] - calm[20 * ELEMENTS + i - 8]));
        all += fabsf(update[i]);
    }
    assert_true(worst > 0 && all > 0);
    fresh.left = (GlobalModel){0};
    feedback_free(&fresh);
    global_model_free(&start);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_and_what_is_left_are_everything),
        cmocka_unit_test(sums_are_those_of_decoded_updates),
        cmocka_unit_test(pieces_are_the_update),
        cmocka_unit_test(tiles_that_barely_change_cost_a_bit),
        cmocka_unit_test(what_is_no_update_is_refused),
        cmocka_unit_test_setup_teardown(a_site_that_is_started_again_sends_the_same_bits, scratch_folder_enter,
                                        scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
