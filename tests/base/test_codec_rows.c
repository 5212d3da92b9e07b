/* Codecs against their definition in double precision, and what they cost in precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "base/codec_rows.h"

enum { COLUMNS = 300, ROWS = 200, MOST_BYTES = 4 * COLUMNS + 256 };

static const CodecRounding nearest = {0};

static float bfloat(const uint8_t *bytes)
{
    uint32_t bits = (uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The entry of H64 / 8. */
static double hadamard(int row, int column)
{
    return __builtin_popcount((unsigned)(row & column)) % 2 ? -0.125 : 0.125;
}

static double rotated(const float *tile, int count, int channel)
{
    double sum = 0;
    for (int i = 0; i < count; i++) sum += hadamard(channel, i) * (double)tile[i];
    return sum;
}

static int code_at(Codec codec, const uint8_t *tile, int channel)
{
    int code = 0;
    for (int bit = 0; bit < codec_bits(codec); bit++)
        code |= (tile[2 + 8 * bit + channel / 8] >> channel % 8 & 1) << bit;
    return code - codec_levels(codec);
}

static void check_tile(Codec codec, const float *tile, int count, const uint8_t *bytes, const float *decoded)
{
    double largest = 0, scale = (double)bfloat(bytes), levels = codec_levels(codec), q[CODEC_TILE];
    for (int i = 0; i < CODEC_TILE; i++) largest = fmax(largest, fabs(rotated(tile, count, i)));
    assert_true(scale >= largest * (1 - 1e-6) && scale <= largest * (1 + 1.0 / 128 + 1e-6));
    for (int i = 0; i < CODEC_TILE; i++) {
        double exact = rotated(tile, count, i) * levels / scale;
        q[i] = code_at(codec, bytes, i);
        assert_true(fabs(q[i]) <= levels && fabs(q[i] - exact) <= 0.5 + 1e-4);
    }
    for (int i = 0; i < count; i++) {
        double value = 0;
        for (int k = 0; k < CODEC_TILE; k++) value += hadamard(i, k) * q[k] * scale / levels;
        assert_true(fabs((double)decoded[i] - value) <= 1e-5 * scale);
    }
}

static void fill_normal(float *row, int64_t count, int number, bool outliers)
{
    RandomStream stream = random_stream((uint64_t)number, "codec");
    random_fill_normal(stream, 0, 1, row, (size_t)count);
    for (int64_t i = 0; i < count && outliers; i += 97) row[i] *= 30;
}

static void test_definition(void **state)
{
    (void)state;
    float row[COLUMNS], decoded[COLUMNS];
    uint8_t bytes[MOST_BYTES];
    for (int codec = CODEC_Q8; codec < CODEC_COUNT; codec++) {
        int64_t each = codec_row_bytes((Codec)codec, CODEC_TILE);
        assert_int_equal(codec_row_bytes((Codec)codec, COLUMNS), 5 * each);
        fill_normal(row, COLUMNS, codec, true);
        codec_encode_row((Codec)codec, row, COLUMNS, nearest, bytes);
        codec_decode_row((Codec)codec, bytes, COLUMNS, decoded);
        for (int t = 0; t < 5; t++) {
            int first = t * CODEC_TILE, count = COLUMNS - first < CODEC_TILE ? COLUMNS - first : CODEC_TILE;
            check_tile((Codec)codec, row + first, count, bytes + t * each, decoded + first);
        }
    }
}

/* Halves go to the even neighbour. One channel alone is the same eighth everywhere: nothing else is lost. */
static void test_ties(void **state)
{
    (void)state;
    float tile[CODEC_TILE] = {0}, decoded[CODEC_TILE];
    uint8_t bytes[MOST_BYTES];
    tile[0] = 8 * 3;      /* x' = 3 everywhere, */
    tile[1] = 8 * 1.5f;   /* + 1.5 and - 1.5 by turns: 4.5 and 1.5 */
    tile[2] = 8 * 122.5f; /* 127 is the largest, the scale 127 */
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    assert_true(bfloat(bytes) == 127);
    assert_int_equal(code_at(CODEC_Q8, bytes, 0), 127);
    assert_int_equal(code_at(CODEC_Q8, bytes, 1), 124);    /* 3 - 1.5 + 122.5 */
    assert_int_equal(code_at(CODEC_Q8, bytes, 2), -118);   /* 3 + 1.5 - 122.5 */
    assert_int_equal(code_at(CODEC_Q8, bytes, 3), -121);   /* 3 - 1.5 - 122.5 */
    tile[0] = 8 * 3.5f, tile[1] = 0, tile[2] = 8 * 123.5f; /* 127 and -120, by pairs */
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    assert_int_equal(code_at(CODEC_Q8, bytes, 2), -120);
    tile[0] = 8 * 4, tile[1] = 8 * 0.5f, tile[2] = 8 * 122.5f; /* 127, 126, -118, -119 */
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    assert_int_equal(code_at(CODEC_Q8, bytes, 3), -119);
    tile[0] = 8 * 127, tile[1] = tile[2] = 0, tile[3] = 0;
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    codec_decode_row(CODEC_Q8, bytes, CODEC_TILE, decoded);
    for (int i = 0; i < CODEC_TILE; i++) assert_true(decoded[i] == tile[i]);
    tile[0] = 8 * 63.75f, tile[1] = 8 * 63.25f; /* 127 and 0.5, which is a tie: to 0 */
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    assert_int_equal(code_at(CODEC_Q8, bytes, 0), 127);
    assert_int_equal(code_at(CODEC_Q8, bytes, 1), 0);
    tile[0] = 8 * 64.25f, tile[1] = 8 * 62.75f; /* 127 and 1.5: to 2 */
    codec_encode_row(CODEC_Q8, tile, CODEC_TILE, nearest, bytes);
    assert_int_equal(code_at(CODEC_Q8, bytes, 1), 2);
}

/* The root of the mean square of what is lost, by that of what was there. */
static double relative_error(Codec codec, bool outliers, bool stochastic)
{
    double lost = 0, all = 0;
    for (int r = 0; r < ROWS; r++) {
        float row[COLUMNS], decoded[COLUMNS];
        uint8_t bytes[MOST_BYTES];
        fill_normal(row, COLUMNS, r, outliers);
        CodecRounding rounding = {stochastic, 77, (uint64_t)r * COLUMNS};
        codec_encode_row(codec, row, COLUMNS, rounding, bytes);
        codec_decode_row(codec, bytes, COLUMNS, decoded);
        for (int i = 0; i < COLUMNS; i++) {
            lost += pow((double)decoded[i] - (double)row[i], 2);
            all += pow((double)row[i], 2);
        }
    }
    return sqrt(lost / all);
}

/* A normal variable in steps of s / L, s = 2.4 (the largest of 64): sqrt(1 / 12) s / L of its own size, and at most
 * twice that where rounding is stochastic. Outliers do not change it much: they are spread over the tile. */
static void test_precision(void **state)
{
    (void)state;
    static const double bound[CODEC_COUNT] = {0, 0.0017, 0.0061, 0.025, 0.110, 0.26};
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++) {
        for (int way = 0; way < 4; way++) {
            double error = relative_error((Codec)codec, way & 1, way & 2);
            printf("%s%s%s: %.5f\n", codec_name((Codec)codec), way & 1 ? ", outliers" : "",
                   way & 2 ? ", stochastic" : "", error);
            assert_true(error < bound[codec] * (way & 2 ? 2 : 1));
            assert_true(error > bound[codec] / 3);
        }
    }
}

/* Gradients far below the least float16 keep their precision. */
static void test_small_numbers(void **state)
{
    (void)state;
    float row[COLUMNS], decoded[COLUMNS];
    uint8_t bytes[MOST_BYTES];
    fill_normal(row, COLUMNS, 3, false);
    for (int i = 0; i < COLUMNS; i++) row[i] *= 1e-12f;
    codec_encode_row(CODEC_Q8, row, COLUMNS, nearest, bytes);
    codec_decode_row(CODEC_Q8, bytes, COLUMNS, decoded);
    for (int i = 0; i < COLUMNS; i++) assert_true(fabsf(decoded[i] - row[i]) < 5e-14f);
}

/* The mean over many draws is the number itself, for all codecs: within five of its standard deviations. */
static void test_stochastic_rounding_has_no_bias(void **state)
{
    (void)state;
    enum { DRAWS = 4000 };
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++) {
        float row[COLUMNS], decoded[COLUMNS];
        double mean[COLUMNS] = {0}, square[COLUMNS] = {0}, bias = 0, noise = 0;
        uint8_t bytes[MOST_BYTES];
        fill_normal(row, COLUMNS, 5, true);
        for (int draw = 0; draw < DRAWS; draw++) {
            CodecRounding rounding = {true, 1234567, (uint64_t)draw * COLUMNS};
            codec_encode_row((Codec)codec, row, COLUMNS, rounding, bytes);
            codec_decode_row((Codec)codec, bytes, COLUMNS, decoded);
            for (int i = 0; i < COLUMNS; i++) {
                double error = (double)decoded[i] - (double)row[i];
                mean[i] += error / DRAWS;
                square[i] += error * error / DRAWS;
            }
        }
        for (int i = 0; i < COLUMNS; i++) {
            double deviation = sqrt(square[i] / DRAWS);
            assert_true(fabs(mean[i]) <= 5 * deviation + 1e-5 * fabs((double)row[i]));
            bias += mean[i], noise += square[i] / DRAWS;
        }
        assert_true(fabs(bias) <= 5 * sqrt(noise));
    }
}

static void test_special_values(void **state)
{
    (void)state;
    float row[2 * CODEC_TILE] = {0}, decoded[2 * CODEC_TILE];
    uint8_t bytes[MOST_BYTES];
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++) {
        static const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f};
        for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
            memset(row, 0, sizeof row);
            row[70] = bad[k];
            codec_encode_row((Codec)codec, row, 2 * CODEC_TILE, nearest, bytes);
            codec_decode_row((Codec)codec, bytes, 2 * CODEC_TILE, decoded);
            for (int i = 0; i < CODEC_TILE; i++) assert_true(decoded[i] == 0);
            for (int i = CODEC_TILE; i < 2 * CODEC_TILE && codec != CODEC_BF16; i++) assert_true(isnan(decoded[i]));
            if (codec != CODEC_BF16) continue;
            assert_true(isnan(bad[k]) ? isnan(decoded[70]) : decoded[70] == bad[k] || decoded[70] / bad[k] > 0.99f);
        }
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int codec = 0; codec < CODEC_COUNT; codec++) {
        Codec found = CODEC_COUNT;
        assert_true(codec_from_name(codec_name((Codec)codec), &found) && found == (Codec)codec);
    }
    Codec found;
    assert_false(codec_from_name("q5", &found));
    assert_int_equal(codec_row_bytes(CODEC_NONE, 768), 3072);
    assert_int_equal(codec_row_bytes(CODEC_BF16, 768), 1536);
    assert_int_equal(codec_row_bytes(CODEC_Q8, 768), 792);
    assert_int_equal(codec_row_bytes(CODEC_Q6, 768), 600);
    assert_int_equal(codec_row_bytes(CODEC_Q4, 768), 408);
    assert_int_equal(codec_row_bytes(CODEC_Q3, 768), 312);
}

/* What a step loses comes in a later one: decoded values add up to what was to be sent. A NaN lasts one step. */
static void test_feedback(void **state)
{
    (void)state;
    enum { STEPS = 40 };
    for (Codec codec = CODEC_BF16; codec < CODEC_COUNT; codec++) {
        float residual[COLUMNS] = {0}, values[COLUMNS], sum[COLUMNS] = {0};
        uint8_t bytes[MOST_BYTES];
        for (int step = 0; step <= STEPS; step++) {
            for (int i = 0; i < COLUMNS; i++) values[i] = step ? (i % 64 ? 0.001F : 1) * (float)(i % 7 + 1) : NAN;
            codec_feed_back(codec, values, residual, residual, COLUMNS, 0, bytes);
            for (int i = 0; i < COLUMNS; i++) sum[i] += step ? values[i] : 0;
        }
        for (int i = 0; i < COLUMNS; i++) {
            double sent = STEPS * (i % 64 ? 0.001 : 1) * (i % 7 + 1);
            assert_float_equal(sum[i] + residual[i], sent, 1e-3);
            assert_true(fabsf(residual[i]) < 2);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_precision),
        cmocka_unit_test(test_small_numbers),
        cmocka_unit_test(test_stochastic_rounding_has_no_bias),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_feedback),
    };
    return cmocka_run_group_tests_name("codec_rows", tests, NULL, NULL);
}
