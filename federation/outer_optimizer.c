#include "federation/outer_optimizer.h"

#include <math.h>

#include "base/codec_rows.h"
#include "base/wide.h"

const char *const outer_names[OUTER_KIND_COUNT] = {"average", "sgd", "nesterov", "adam", "yogi"};

OuterRule outer_rule_default(OuterKind kind)
{
    if (outer_moments(kind) == 2) return (OuterRule){kind, 1e-3, 0.9, 0.99, 1e-3};
    return (OuterRule){kind, kind == OUTER_AVERAGE ? 1 : 0.7, kind == OUTER_NESTEROV ? 0.9 : 0, 0, 0};
}

int outer_moments(OuterKind kind) { return kind >= OUTER_ADAM ? 2 : kind == OUTER_NESTEROV; }

/* The step that Adam and Yogi make of a mean; updates both moments. */
static double adaptive_step(const OuterRule *rule, float *momentum, float *variance, double mean)
{
    double square = mean * mean, before = *variance, toward = square - before;
    if (rule->kind == OUTER_YOGI) toward = before > square ? -square : before < square ? square : 0;
    *momentum = (float)(rule->momentum * (double)*momentum + (1 - rule->momentum) * mean);
    *variance = (float)(before + (1 - rule->beta2) * toward);
    return (double)*momentum / (sqrt((double)*variance) + rule->epsilon);
}

WIDE static void step_straight(double rate, float *values, const float *mean, size_t count)
{
    for (size_t i = 0; i < count; i++) values[i] = (float)((double)values[i] - rate * (double)mean[i]);
}

WIDE static void step_nesterov(const OuterRule *rule, float *values, float *momentum, const float *mean, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        momentum[i] = (float)(rule->momentum * (double)momentum[i] + (double)mean[i]);
        double step = (double)mean[i] + rule->momentum * (double)momentum[i];
        values[i] = (float)((double)values[i] - rule->rate * step);
    }
}

bool outer_step(const OuterRule *rule, float *values, float *momentum, float *variance, const float *mean, size_t count)
{
    if (rule->kind == OUTER_NESTEROV)
        step_nesterov(rule, values, momentum, mean, count);
    else if (outer_moments(rule->kind) == 0)
        step_straight(rule->rate, values, mean, count);
    for (size_t i = 0; i < count && outer_moments(rule->kind) == 2; i++)
        values[i] = (float)((double)values[i] - rule->rate * adaptive_step(rule, &momentum[i], &variance[i], mean[i]));
    /* A step that is not finite leaves no finite value. */
    return isfinite(codec_largest(values, (int64_t)count));
}
