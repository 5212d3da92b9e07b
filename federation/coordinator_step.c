/* The end of a round: the outer step on the model with the mean of the sites' updates. */
#include <stdlib.h>
#include <string.h>

#include "federation/aggregate/fixed_point.h"
#include "federation/coded_model.h"
#include "federation/coordinator.h"
#include "federation/robust.h"

/* Of the mean change of control variates, how much the federation's own take: the share of all sites' rows that the
 * sum's sites have. */
static double control_share(const Coordinator *coordinator, int64_t weight)
{
    const Federation *federation = coordinator->federation;
    int64_t rows = 0;
    int missing = federation_present(federation);
    for (int s = 0; s < federation->site_count; s++) {
        if (!federation->sites[s].left) rows += federation->sites[s].rows_per_step * federation->local_steps;
        missing -= coordinator->sum.members[s].counted;
    }
    return missing <= 0 || weight >= rows ? 1 : (double)weight / (double)rows;
}

/* The outer step on `count` elements from `first` on; with model_codec, what sites get of it goes to `change`. */
static bool move_piece(Coordinator *coordinator, size_t first, const float *mean, size_t count, double share,
                       unsigned char *change)
{
    const Federation *federation = coordinator->federation;
    GlobalModel *model = &coordinator->model;
    if (!model->remainder) return global_model_move(model, &federation->outer, first, mean, count, share);
    FREED float *old = memory_allocate(count * sizeof *old);
    FREED_WITH(buffer_free) Buffer bytes = {0};
    memcpy(old, model->values + first, count * sizeof *old);
    bool finite = global_model_move(model, &federation->outer, first, mean, count, share);
    finite &= coded_model_make(row_rule_down(federation), old, model->values + first, model->remainder + first, count,
                               &bytes);
    if (bytes.size) memcpy(change, bytes.bytes, bytes.size);
    return finite;
}

/* Makes room for what sites get of `count` elements. */
static unsigned char *room_for_change(Coordinator *coordinator, size_t count)
{
    Codec codec = coordinator->federation->model_codec;
    bool coded = coordinator->model.remainder && codec != CODEC_NONE;
    coordinator->change.size = 0;
    return coded ? buffer_extend(&coordinator->change, (size_t)codec_row_bytes(codec, (int64_t)count)) : NULL;
}

/* A piece of the mean: that of the sites that are in the sum. Without any weight it is zero. */
static void find_mean(const Coordinator *coordinator, int64_t weight, size_t at, size_t count, float *mean)
{
    const Federation *federation = coordinator->federation;
    const SumRound *sum = &coordinator->sum;
    if (federation->robust)
        robust_combine(mean, sum, federation->robust, at, count);
    else if (weight > 0)
        fixed_point_mean(mean, sum->words + at, count, weight, sum->exponent, federation->site_count);
}

bool coordinator_step(Coordinator *coordinator, FragmentRange part, int64_t weight)
{
    Codec codec = coordinator->federation->model_codec;
    const int64_t count = (int64_t)(part.end - part.first), pieces = (count + UPDATE_PIECE - 1) / UPDATE_PIECE;
    double share = control_share(coordinator, weight);
    unsigned char *change = room_for_change(coordinator, (size_t)count);
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(& : finite) if (pieces > 1)
    for (int64_t p = 0; p < pieces; p++) {
        int64_t at = p * UPDATE_PIECE, here = count - at < UPDATE_PIECE ? count - at : UPDATE_PIECE;
        FREED float *mean = memory_allocate((size_t)here * sizeof *mean);
        find_mean(coordinator, weight, (size_t)at, (size_t)here, mean);
        finite &= move_piece(coordinator, part.first + (size_t)at, mean, (size_t)here, share,
                             change ? change + codec_row_bytes(codec, at) : NULL);
    }
    coordinator->model.round++;
    coordinator->model.spent++;
    return finite;
}
