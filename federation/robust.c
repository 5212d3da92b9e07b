#include "federation/robust.h"

#include "federation/aggregate/fixed_point.h"

/* Few numbers. */
static void sort(float *values, int count)
{
    for (int i = 1; i < count; i++)
        for (int k = i; k > 0 && values[k] < values[k - 1]; k--) {
            float higher = values[k - 1];
            values[k - 1] = values[k];
            values[k] = higher;
        }
}

/* The mean of what is left without the `cut` lowest and highest: with all but one or two cut, the median. */
static float middle(float *values, int count, int cut)
{
    double sum = 0;
    sort(values, count);
    for (int i = cut; i < count - cut; i++) sum += values[i];
    return (float)(sum / (count - 2 * cut));
}

void robust_combine(float *result, const SumRound *round, RobustRule rule, size_t first, size_t count)
{
    float values[SUM_MOST_SITES];
    int members[SUM_MOST_SITES], here = 0;
    size_t weight_at = round->word_count - FIXED_POINT_TAIL_WORDS;
    int64_t weights[SUM_MOST_SITES];
    for (int s = 0; s < round->sites; s++) {
        if (!round->members[s].counted || !round->kept[s]) continue;
        weights[here] = fixed_point_get_weight(round->kept[s] + weight_at);
        if (weights[here] > 0) members[here++] = s;
    }
    int cut = rule == ROBUST_MEDIAN ? (here - 1) / 2 : (here + 1) / 4;
    for (size_t i = 0; i < count && here; i++) {
        for (int m = 0; m < here; m++)
            fixed_point_mean(&values[m], round->kept[members[m]] + first + i, 1, weights[m], round->exponent,
                             round->sites);
        result[i] = middle(values, here, cut);
    }
}
