#include "federation/aggregate/fixed_point.h"

#include <math.h>
#include <string.h>

#include "base/codec_rows.h"
#include "base/wide.h"

/* The sum of 2^8 words of 16 bits. */
static const uint32_t most_weight_word = 0xffff << 8;

bool fixed_point_exponent(const float *values, size_t count, int64_t weight, int *exponent)
{
    float most = codec_largest(values, (int64_t)count);
    bool finite = isfinite(most);
    /* frexp says 2^(e - 1) <= x < 2^e of a positive x. */
    *exponent = FIXED_POINT_LEAST;
    if (finite && most > 0 && weight > 0) frexp((double)most * (double)weight, exponent);
    return finite;
}

static inline double limit_of(int sites) { return floor((double)INT32_MAX / sites); }

WIDE void fixed_point_encode(uint32_t *words, const float *values, size_t count, int64_t weight, int exponent,
                             int sites)
{
    double factor = ldexp((double)weight, -exponent), limit = limit_of(sites);
    for (size_t i = 0; i < count; i++) {
        double scaled = (double)values[i] * factor * limit;
        scaled = scaled > limit ? limit : scaled < -limit ? -limit : scaled;
        /* Added to a number below 2^31, this leaves the nearest whole one in the low bits: vectors lack nearbyint. */
        double rounded = scaled + 0x1.8p52;
        uint64_t bits;
        memcpy(&bits, &rounded, sizeof bits);
        words[i] = (uint32_t)bits;
    }
}

WIDE void fixed_point_mean(float *mean, const uint32_t *sums, size_t count, int64_t total_weight, int exponent,
                           int sites)
{
    double factor = ldexp(1 / limit_of(sites), exponent) / (double)total_weight;
    for (size_t i = 0; i < count; i++) mean[i] = (float)((double)(int32_t)sums[i] * factor);
}

void fixed_point_put_weight(uint32_t words[FIXED_POINT_WEIGHT_WORDS], int64_t weight)
{
    for (int i = 0; i < FIXED_POINT_WEIGHT_WORDS; i++) words[i] = (uint32_t)(weight >> (16 * i)) & 0xffff;
}

int64_t fixed_point_get_weight(const uint32_t words[FIXED_POINT_WEIGHT_WORDS])
{
    int64_t weight = 0;
    for (int i = 0; i < FIXED_POINT_WEIGHT_WORDS; i++) {
        if (words[i] > most_weight_word) return -1;
        weight += (int64_t)words[i] << (16 * i);
    }
    return weight;
}

static const double evaluation_unit = 65536, most_loss = 1024;
static const int64_t most_weight = ((int64_t)1 << 48) - 1;

static void put_mean(uint32_t *words, int64_t rows, double mean)
{
    double sum = nearbyint((double)rows * evaluation_unit * mean);
    fixed_point_put_weight(words, sum < (double)most_weight ? (int64_t)sum : most_weight);
}

void fixed_point_put_evaluation(uint32_t words[FIXED_POINT_EVALUATION_WORDS], const RowsEvaluation *evaluation)
{
    double loss = evaluation->loss < most_loss ? evaluation->loss : most_loss; /* NaN becomes that, too */
    fixed_point_put_weight(words, evaluation->rows);
    put_mean(words + FIXED_POINT_WEIGHT_WORDS, evaluation->rows, loss > 0 ? loss : 0);
    fixed_point_put_weight(words + 2 * FIXED_POINT_WEIGHT_WORDS, evaluation->right_of);
    put_mean(words + 3 * FIXED_POINT_WEIGHT_WORDS, evaluation->right_of,
             evaluation->right_of ? evaluation->accuracy : 0);
}

RowsEvaluation fixed_point_get_evaluation(const uint32_t words[FIXED_POINT_EVALUATION_WORDS])
{
    int64_t sums[4];
    for (int i = 0; i < 4; i++) {
        sums[i] = fixed_point_get_weight(words + i * FIXED_POINT_WEIGHT_WORDS);
        if (sums[i] < 0) return (RowsEvaluation){0};
    }
    return (RowsEvaluation){.rows = sums[0],
                            .right_of = sums[2],
                            .loss = sums[0] ? (double)sums[1] / evaluation_unit / (double)sums[0] : 0,
                            .accuracy = sums[2] ? (double)sums[3] / evaluation_unit / (double)sums[2] : 0};
}
