/* Updates in codecs: what they come to, with what is left out kept. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/aggregate/sum_messages.h"
#include "federation/coded_update.h"
#include "federation/member/feedback.h"
#include "federation/messages.h"
#include "federation/update_pieces.h"
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
            Buffer bytes = {0};
            for (size_t i = 0; i < ELEMENTS; i++) all[i] += values[i] = update_of(1, round, i);
            assert_true(coded_update_make(codecs[c], values, left, ELEMENTS, &bytes));
            assert_int_equal(bytes.size, codec_row_bytes(codecs[c], ELEMENTS));
            for (size_t i = 0; i < ELEMENTS; i++) sent[i] += values[i];
            buffer_free(&bytes);
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
            assert_true(coded_update_make(codecs[c], values[s], left, ELEMENTS, &messages[s]));
            assert_true(fixed_point_exponent(values[s], ELEMENTS, 10 + s, &own));
            exponent = own > exponent ? own : exponent;
        }
        for (int s = 0; s < SITES; s++) {
            const unsigned char *bytes = (const unsigned char *)messages[s].bytes;
            assert_int_equal(messages[s].size, coded_update_bytes(codecs[c], ELEMENTS));
            assert_true(coded_update_read(codecs[c], bytes, messages[s].size, ELEMENTS, exponent, SITES, words));
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
    Buffer message = {0};
    unsigned char head[UPDATE_PIECE_HEAD], none[4 * FIXED_POINT_EVALUATION_WORDS] = {0};
    size_t first = number * PIECE, count = MANY - first < PIECE ? MANY - first : PIECE;
    put_u64(head, number);
    buffer_append(&message, head, sizeof head);
    put_weight(&message, weight);
    buffer_append(&message, row->bytes + codec_row_bytes(federation->codec, (int64_t)first),
                  (size_t)codec_row_bytes(federation->codec, (int64_t)count));
    if (first + count == MANY) buffer_append(&message, none, sizeof none);
    ArrivalState state =
        arriving_take(update, federation, sum, 1, "coded", (const unsigned char *)message.bytes, message.size, problem);
    buffer_free(&message);
    return state;
}

/* They wait as they came, and are in the sum with the last: what the row says, in fixed point. */
static void pieces_are_the_update(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        const Federation federation = {.codec = codecs[c], .update_piece = PIECE};
        float values[MANY], left[MANY] = {0};
        uint32_t words[MANY];
        Buffer row = {0};
        SumRound sum;
        SumProblem problem;
        ArrivingUpdate update = {0};
        for (size_t i = 0; i < MANY; i++) values[i] = update_of(1, 0, i);
        assert_true(coded_update_make(codecs[c], values, left, MANY, &row));
        sum_round_open(&sum, SITES, 1, false, MANY + FIXED_POINT_TAIL_WORDS);
        assert_true(fixed_point_exponent(values, MANY, 7, &sum.exponent));
        for (size_t number = 0; number * PIECE < MANY; number++) {
            bool is_last = (number + 1) * PIECE >= MANY;
            assert_int_equal(sum.words[0], 0);
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
        buffer_free(&row);
    }
}

static void expect_refused(const Buffer *message, size_t size, int exponent)
{
    uint32_t words[ELEMENTS + FIXED_POINT_WEIGHT_WORDS];
    const unsigned char *bytes = (const unsigned char *)message->bytes;
    assert_false(coded_update_read(CODEC_Q4, bytes, size, ELEMENTS, exponent, SITES, words));
}

static void what_is_no_update_is_refused(void **state)
{
    (void)state;
    float values[ELEMENTS], left[ELEMENTS] = {0};
    Buffer message = {0}, unused = {0};
    int exponent;
    for (size_t i = 0; i < ELEMENTS; i++) values[i] = update_of(0, 0, i);
    put_weight(&message, 4);
    assert_true(coded_update_make(CODEC_Q4, values, left, ELEMENTS, &message));
    assert_true(fixed_point_exponent(values, ELEMENTS, 4, &exponent));
    expect_refused(&message, message.size - 1, exponent);
    expect_refused(&message, message.size, exponent - 1); /* its words would wrap */
    message.bytes[2] = 1;                                 /* a weight word of 17 bits */
    expect_refused(&message, message.size, FIXED_POINT_MOST);
    message.bytes[2] = 0;
    message.bytes[4 * FIXED_POINT_WEIGHT_WORDS] = (char)0xc0; /* a scale that is not a number */
    message.bytes[4 * FIXED_POINT_WEIGHT_WORDS + 1] = 0x7f;
    expect_refused(&message, message.size, FIXED_POINT_MOST);
    values[3] = NAN;
    assert_false(coded_update_make(CODEC_Q4, values, left, ELEMENTS, &unused));
    buffer_free(&message);
    buffer_free(&unused);
}

/* A site's rounds, of which some end without it; killed: it reads its file before every step, as one does that is
 * started again, and may have made the update before. What it sent goes to `sent`. */
static void run_site(const Federation *federation, const GlobalModel *start, bool killed, float *sent)
{
    Diagnostics diagnostics = {0};
    Feedback feedback;
    const FragmentRange part = {8, ELEMENTS};
    size_t count = part.end - part.first;
    assert_true(feedback_begin(start, "feedback.safetensors", &diagnostics));
    assert_true(feedback_open(&feedback, federation, "feedback.safetensors", &diagnostics));
    for (int round = 0; round < ROUNDS; round++) {
        float update[ELEMENTS];
        for (int again = 0; again <= killed; again++) {
            for (size_t i = 0; i < count; i++) update[i] = update_of(0, round, part.first + i);
            assert_true(feedback_code(&feedback, update, part, round, 0));
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
        assert_int_equal(feedback.left.round, round + 1);
    }
    feedback_free(&feedback);
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
    run_site(&federation, &start, false, calm);
    run_site(&federation, &start, true, killed);
    assert_memory_equal(calm, killed, sizeof calm);
    double all = 0, worst = 0; /* and not merely what each round alone comes to */
    Feedback fresh = {.codec = CODEC_Q4};
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
        cmocka_unit_test(what_is_no_update_is_refused),
        cmocka_unit_test_setup_teardown(a_site_that_is_started_again_sends_the_same_bits, scratch_folder_enter,
                                        scratch_folder_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
