/* Values as words modulo 2^32, so that sums are exact and the same in whatever order they are made.
 *
 * All sites use one public scale 2^exponent, no less than any of their weighted values: a value becomes round(weight *
 * value / 2^exponent * limit), limit = floor((2^31 - 1) / sites), so that no sum of `sites` of them wraps. With 50
 * sites that are 25 bits, more than a float32 has. What is beyond the scale, where a rule allows it, becomes the limit
 * with its sign. */
#ifndef FEDERATION_AGGREGATE_FIXED_POINT_H
#define FEDERATION_AGGREGATE_FIXED_POINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FIXED_POINT_LEAST = -256,
    FIXED_POINT_MOST = 256,
    FIXED_POINT_WEIGHT_WORDS = 3,
    FIXED_POINT_EVALUATION_WORDS = 4 * FIXED_POINT_WEIGHT_WORDS,
    FIXED_POINT_TAIL_WORDS = FIXED_POINT_WEIGHT_WORDS + FIXED_POINT_EVALUATION_WORDS /* that follow an update */
};

/* The least exponent that suits the values with this weight, in FIXED_POINT_LEAST ... FIXED_POINT_MOST. False if a
 * value is not finite. */
bool fixed_point_exponent(const float *values, size_t count, int64_t weight, int *exponent);
void fixed_point_encode(uint32_t *words, const float *values, size_t count, int64_t weight, int exponent, int sites);
/* The weighted mean, from sums; total_weight > 0. */
void fixed_point_mean(float *mean, const uint32_t *sums, size_t count, int64_t total_weight, int exponent, int sites);

/* A weight, 0 ... 2^48 - 1, as words whose sums are that of the weights: at most 2^8 sites. -1: no sum of weights. */
void fixed_point_put_weight(uint32_t words[FIXED_POINT_WEIGHT_WORDS], int64_t weight);
int64_t fixed_point_get_weight(const uint32_t words[FIXED_POINT_WEIGHT_WORDS]);

/* How good a model is for rows: sums of these words are those of all the rows. */
typedef struct RowsEvaluation {
    int64_t rows, right_of; /* rows, and those of them for which there is an accuracy */
    double loss, accuracy;  /* means */
} RowsEvaluation;

/* A loss counts as at most 1024, and one that is not finite as that. Resolution: 2^-16 of a row. */
void fixed_point_put_evaluation(uint32_t words[FIXED_POINT_EVALUATION_WORDS], const RowsEvaluation *evaluation);
/* rows 0: there is none, or no sum of such words. */
RowsEvaluation fixed_point_get_evaluation(const uint32_t words[FIXED_POINT_EVALUATION_WORDS]);

#endif
