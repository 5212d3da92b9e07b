#include "federation/outer_optimizer.h"

#include <math.h>

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

bool outer_step(const OuterRule *rule, float *values, float *momentum, float *variance, const float *mean, size_t count)
{
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        double step = mean[i];
        if (rule->kind == OUTER_NESTEROV) {
            momentum[i] = (float)(rule->momentum * (double)momentum[i] + step);
            step += rule->momentum * (double)momentum[i];
        } else if (outer_moments(rule->kind) == 2) {
            step = adaptive_step(rule, &momentum[i], &variance[i], step);
        }
        values[i] = (float)((double)values[i] - rule->rate * step);
        finite &= isfinite(values[i]) && isfinite(step);
    }
    return finite;
}
