/* The outer step of a federation: from the round's start and the mean of what sites changed to the next round's start.
 *
 * A pseudo-gradient is the start of a round minus its end at a site. Plain averaging subtracts the mean of them, which
 * gives the mean of the sites' models. SGD subtracts it times a rate. Nesterov's momentum (as PyTorch has it) is what
 * DiLoCo uses with rate 0.7 and momentum 0.9: Douillard et al., "DiLoCo: distributed low-communication training of
 * language models", arXiv 2311.08105. Adam and Yogi divide by the root of a second moment, without correcting the bias:
 * Reddi et al., "Adaptive federated optimization", arXiv 2003.00295. With their `epsilon` equal to the rate, a mean
 * much smaller than that is subtracted as it is, and no element moves by much more than the rate. */
#ifndef FEDERATION_OUTER_OPTIMIZER_H
#define FEDERATION_OUTER_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum OuterKind { OUTER_AVERAGE, OUTER_SGD, OUTER_NESTEROV, OUTER_ADAM, OUTER_YOGI, OUTER_KIND_COUNT } OuterKind;

extern const char *const outer_names[OUTER_KIND_COUNT]; /* "average", "sgd", ... */

typedef struct OuterRule {
    OuterKind kind;
    double rate, momentum, beta2, epsilon; /* those that the kind uses; momentum is beta1 of Adam and Yogi */
} OuterRule;

/* Rate 1 for average, 0.7 for sgd and nesterov, 1e-3 for Adam and Yogi; 0.9, 0.99, 1e-3. */
OuterRule outer_rule_default(OuterKind kind);
/* How many moments it keeps: 0; 1, the momentum; 2, the mean of squares too. */
int outer_moments(OuterKind kind);
/* In place; `momentum` and `variance` start as zeros and may be NULL where they are not kept. One rounding to float32
 * for each result. False: one of them is not finite. */
bool outer_step(const OuterRule *rule, float *values, float *momentum, float *variance, const float *mean,
                size_t count);

#endif
