#include "federation/outer_optimizer.h"

#include <math.h>

const char *const outer_names[OUTER_KIND_COUNT] = {"average", "sgd", "nesterov"};

OuterRule outer_rule_default(OuterKind kind)
{
    return (OuterRule){kind, kind == OUTER_AVERAGE ? 1 : 0.7, kind == OUTER_NESTEROV ? 0.9 : 0};
}

bool outer_keeps_momentum(OuterKind kind) { return kind == OUTER_NESTEROV; }

bool outer_step(const OuterRule *rule, float *values, float *momentum, const float *mean, size_t count)
{
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        double step = mean[i];
        if (outer_keeps_momentum(rule->kind)) {
            momentum[i] = (float)(rule->momentum * (double)momentum[i] + step);
            step += rule->momentum * (double)momentum[i];
        }
        values[i] = (float)((double)values[i] - rule->rate * step);
        finite &= isfinite(values[i]) && isfinite(step);
    }
    return finite;
}
