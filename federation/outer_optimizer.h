/* The outer step of a federation: from the round's start and the mean of what sites changed to the next round's start.
 *
 * A pseudo-gradient is the start of a round minus its end at a site. Plain averaging subtracts the mean of them, which
 * gives the mean of the sites' models. SGD subtracts it times a rate. Nesterov's momentum (as PyTorch has it) is what
 * DiLoCo uses with rate 0.7 and momentum 0.9: Douillard et al., "DiLoCo: distributed low-communication training of
 * language models", arXiv 2311.08105. */
#ifndef FEDERATION_OUTER_OPTIMIZER_H
#define FEDERATION_OUTER_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>

typedef enum OuterKind { OUTER_AVERAGE, OUTER_SGD, OUTER_NESTEROV, OUTER_KIND_COUNT } OuterKind;

extern const char *const outer_names[OUTER_KIND_COUNT]; /* "average", "sgd", "nesterov" */

typedef struct OuterRule {
    OuterKind kind;
    double rate, momentum; /* those that the kind uses */
} OuterRule;

/* 1 for average, 0.7 else; 0.9. */
OuterRule outer_rule_default(OuterKind kind);
bool outer_keeps_momentum(OuterKind kind);
/* In place; `momentum` starts as zeros and may be NULL where it is not kept. One rounding to float32 for each result.
 * False: one of them is not finite. */
bool outer_step(const OuterRule *rule, float *values, float *momentum, const float *mean, size_t count);

#endif
