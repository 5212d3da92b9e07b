/* Plans whose links may use codecs, against all plans with all codecs, straight from the words of partitioner/plan.h
 * and partitioner/problem.h; and the checker, which must accept them and nothing better. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "partitioner/planner/planner.h"
#include "partitioner/verify/verify.h"
#include "tests/common/limits.h"
#include "tests/partitioner/brute_costs.h"
#include "tests/partitioner/random_costs.h"

/* ---- random problems ---- */

static const char *const wishes[] = {"lossless", "q8", "bf16", "auto:q6", "auto:q3", "auto:q8"};

static void random_codings(Costs *costs, int seed)
{
    size_t regions = (size_t)costs->region_count;
    assert_true(codecs_parse(wishes[seed % 6], &costs->codecs));
    for (int l = 0; l < costs->layer_count; l++) {
        LayerCost *layer = &costs->layers[l];
        layer->output_bytes = 256 * (1 + draw(8));
        if (draw(2)) layer->output_backward_bytes = 256 * (1 + draw(8));
        for (int codec = 1; codec < CODEC_COUNT && draw(2); codec++)
            for (int d = 0; d < 2; d++) layer->wire_bytes[d][codec] = 1 + draw((int)layer->output_bytes);
    }
    for (size_t i = 0; i < regions * regions; i++) costs->bandwidth_Bps[i] = 2e11 / (1 + draw(12));
    costs->half_duplex = draw(2) ? arena_new_array(&costs->arena, bool, regions *regions + 1) : NULL;
    for (size_t i = 0; i < regions * regions && costs->half_duplex; i++) {
        size_t back = i % regions * regions + i / regions;
        costs->half_duplex[i] = back < i ? costs->half_duplex[back] : draw(2);
    }
    for (int codec = 1; codec < CODEC_COUNT; codec++)
        for (int k = 0; k < 2; k++) costs->coding_s[codec][k] = draw(5) * 4e-12;
    for (int d = 0; d < costs->device_count; d++) {
        DeviceCost *device = &costs->devices[d];
        if (device->memory_bytes != COSTS_NO_LIMIT) device->memory_bytes += 4000 * draw(9);
        for (int codec = 1; codec < CODEC_COUNT && draw(2); codec++)
            for (int k = 0; k < 2; k++) device->coding_s[codec][k] = draw(3) * 1e-11;
    }
}

/* ---- brute force ---- */

typedef struct Brute {
    const Costs *costs;
    PlanObjective objective;
    PlanSchedule schedule;
    bool used[8];
    int64_t best;
} Brute;

typedef struct Chain {
    int count, region;
    int64_t period, sum, update;
} Chain;

typedef struct BruteLink {
    int64_t period, sum;
    int codecs[2];
} BruteLink;

static int64_t bytes_with(const LayerCost *layer, int direction, int codec)
{
    int64_t bytes = direction && layer->output_backward_bytes ? layer->output_backward_bytes : layer->output_bytes;
    static const int64_t tile[] = {256, 128, 66, 50, 34, 26};
    if (codec == CODEC_NONE) return bytes;
    return layer->wire_bytes[direction][codec] ? layer->wire_bytes[direction][codec] : bytes / 256 * tile[codec];
}

static int64_t coding_ns(const Costs *costs, const LayerCost *layer, int direction, int codec, int region, int way)
{
    int64_t slowest = 0;
    for (int d = 0; d < costs->device_count && codec != CODEC_NONE; d++) {
        const DeviceCost *device = &costs->devices[d];
        double own = device->coding_s[codec][way] > 0 ? device->coding_s[codec][way]
                                                      : device->slowdown * costs->coding_s[codec][way];
        if (costs->region_count == 0 || device->region == region)
            slowest = brute_larger(slowest, brute_nanoseconds(own * (double)bytes_with(layer, direction, CODEC_NONE)));
    }
    return slowest;
}

static BruteLink link_with(const Costs *costs, int cut, int from, int to, const int codecs[2])
{
    const LayerCost *layer = &costs->layers[cut - 1];
    BruteLink link = {.codecs = {codecs[0], codecs[1]}};
    int n = costs->region_count, pair[2] = {from * n + to, to * n + from};
    int64_t busy = 0;
    for (int d = 0; d < 2; d++) {
        int64_t encoding = coding_ns(costs, layer, d, codecs[d], d ? to : from, 0);
        int64_t decoding = coding_ns(costs, layer, d, codecs[d], d ? from : to, 1), transfer = 0, latency = 0;
        if (n > 0) {
            transfer = brute_nanoseconds((double)bytes_with(layer, d, codecs[d]) / costs->bandwidth_Bps[pair[d]]);
            latency = brute_nanoseconds(costs->latency_s[pair[d]]);
        }
        busy += transfer;
        link.period = brute_larger(brute_larger(link.period, transfer), brute_larger(encoding, decoding));
        link.sum += latency + transfer + encoding + decoding;
    }
    if (n > 0 && costs->half_duplex && costs->half_duplex[pair[0]]) link.period = brute_larger(link.period, busy);
    return link;
}

static BruteLink best_link(const Costs *costs, PlanObjective objective, int cut, int from, int to)
{
    BruteLink best = {.period = INT64_MAX, .sum = INT64_MAX};
    for (int a = 0; a < CODEC_COUNT; a++)
        for (int b = 0; b < CODEC_COUNT; b++) {
            if (!(costs->codecs >> a & 1) || !(costs->codecs >> b & 1)) continue;
            BruteLink link = link_with(costs, cut, from, to, (int[]){a, b});
            bool less = objective == PLAN_OBJECTIVE_STEP
                            ? link.sum < best.sum || (link.sum == best.sum && link.period < best.period)
                            : link.period < best.period || (link.period == best.period && link.sum < best.sum);
            if (less) best = link;
        }
    return best;
}

static int64_t stage_bytes(const Brute *b, int start, int end, int to_end)
{
    const Costs *costs = b->costs;
    const LayerCost *layers = costs->layers;
    int n = costs->microbatches, in_flight = b->schedule == PLAN_GPIPE || n < to_end ? n : to_end;
    int cuts[2] = {start > 0 && !layers[start].resident ? start : 0,
                   end < costs->layer_count && !layers[end - 1].resident ? end : 0};
    int64_t bytes = 0, scratch = 0;
    for (int l = start; l < end; l++) {
        int64_t stash = layers[l].stash_bytes - (l + 1 < end ? layers[l].shared_bytes : 0);
        bytes += layers[l].memory_bytes + layers[l].state_bytes + in_flight * stash;
        if (layers[l].scratch_bytes > scratch) scratch = layers[l].scratch_bytes;
    }
    for (int k = 0; k < 2; k++) {
        if (!cuts[k]) continue;
        const LayerCost *layer = &layers[cuts[k] - 1];
        int64_t plain[2], most[2] = {0};
        for (int d = 0; d < 2; d++) {
            plain[d] = bytes_with(layer, d, CODEC_NONE);
            for (int codec = 1; codec < CODEC_COUNT; codec++)
                if (costs->codecs >> codec & 1) most[d] = brute_larger(most[d], bytes_with(layer, d, codec));
        }
        bytes += 4 * brute_larger(plain[0], plain[1]);
        if (costs->codecs != 1) bytes += plain[0] + plain[1] + in_flight * (most[0] + most[1] + 512);
    }
    return bytes + scratch;
}

static int64_t value_of(const Brute *b, const Chain *chain)
{
    if (b->objective == PLAN_OBJECTIVE_PERIOD) return chain->period;
    return chain->sum + brute_rounds(b->costs, chain->period) + chain->update;
}

static void enumerate(Brute *b, Chain later, int end)
{
    const Costs *costs = b->costs;
    if (value_of(b, &later) >= b->best) return;
    if (end == 0) b->best = value_of(b, &later);
    for (int d = 0; d < costs->device_count && end > 0; d++) {
        if (b->used[d]) continue;
        Chain chain = later;
        int64_t work = 0, update = 0;
        chain.count++;
        chain.region = costs->devices[d].region < 0 ? 0 : costs->devices[d].region;
        if (later.count > 0) {
            BruteLink link = best_link(costs, b->objective, end, chain.region, later.region);
            chain.period = brute_larger(chain.period, link.period);
            chain.sum += link.sum;
        }
        b->used[d] = true;
        for (int start = end - 1; start >= 0; start--) {
            work += brute_nanoseconds(costs_forward_s(costs, d, start)) +
                    brute_nanoseconds(costs_backward_s(costs, d, start));
            update += brute_nanoseconds(costs_update_s(costs, d, start));
            if (stage_bytes(b, start, end, chain.count) > costs->devices[d].memory_bytes) continue;
            Chain longer = chain;
            longer.sum += work;
            longer.period = brute_larger(longer.period, work);
            longer.update = brute_larger(longer.update, update);
            enumerate(b, longer, start);
        }
        b->used[d] = false;
    }
}

/* ---- checks ---- */

static bool verifies(const Plan *plan, const Costs *costs)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    Verified verified;
    bool ok = plan_verify(&verified, plan, costs, false, &diagnostics);
    return ok;
}

/* A link with another codec, or with less of what a codec costs, is refused. */
static void claim_too_much(Plan *plan, const Costs *costs, int seed)
{
    PlanLink *link = &plan->links[seed % plan->link_count], honest = *link;
    int d = seed & 1;
    link->codecs[d] = (Codec)((link->codecs[d] + 1) % CODEC_COUNT);
    assert_false(verifies(plan, costs));
    *link = honest;
    link->wire_bytes[d]--;
    assert_false(verifies(plan, costs));
    *link = honest;
    if (link->coding_ns[d][0] > 0) {
        link->coding_ns[d][0]--;
        assert_false(verifies(plan, costs));
        *link = honest;
    }
    link->half_duplex = !link->half_duplex;
    assert_false(verifies(plan, costs));
    *link = honest;
    unsigned codecs = plan->codecs; /* a bound among more codecs than were used */
    plan->codecs = codecs == CODECS_LOSSLESS ? 1u << CODEC_Q8 : CODECS_LOSSLESS;
    if (plan_link_is_coded(link) || codecs == CODECS_LOSSLESS) assert_false(verifies(plan, costs));
    plan->codecs = codecs;
    assert_true(verifies(plan, costs));
}

static void plans_with_codecs_match_brute_force(void **state)
{
    (void)state;
    enum { INSTANCES = 2400, STEP = ADDRESS_SANITIZER ? 8 : 1 };
    int coded = 0, mixed = 0, infeasible = 0, plans = 0, proven = 0;
    for (int seed = 0; seed < INSTANCES; seed += STEP) {
        Costs costs;
        Plan plan;
        FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
        random_costs_sized(&costs, seed / 2 % VARIANTS | (seed % 5 ? WITH_LINKS : 0), (uint64_t)seed + 5000, 7, 5);
        random_codings(&costs, seed / 3);
        PlanRequest request = PLAN_REQUEST_DEFAULT;
        request.objective = seed & 1 ? PLAN_OBJECTIVE_STEP : PLAN_OBJECTIVE_PERIOD;
        request.schedule = seed & 2 ? PLAN_GPIPE : PLAN_1F1B;
        request.recompute = PLAN_RECOMPUTE_NEVER;
        request.time_limit_s = 1e9;
        request.codecs = costs.codecs;
        Brute brute = {&costs, request.objective, request.schedule, {false}, INT64_MAX};
        enumerate(&brute, (Chain){0}, costs.layer_count);
        bool found = plan_make(&plan, &costs, &request, &diagnostics);
        if (found != (brute.best != INT64_MAX)) fail_msg("seed %d: %s", seed, found ? "infeasible" : "feasible");
        if (found) {
            if (plan_optimum_ns(&plan) != brute.best || plan.lower_bound_ns != brute.best)
                fail_msg("seed %d: %lld, not %lld", seed, (long long)plan_optimum_ns(&plan), (long long)brute.best);
            if (!verifies(&plan, &costs)) fail_msg("seed %d: not verified", seed);
            plans++;
            proven += plan.proven_optimal;
            for (int k = 0; k < plan.link_count; k++) {
                coded += plan_link_is_coded(&plan.links[k]);
                mixed += plan.links[k].codecs[0] != plan.links[k].codecs[1];
            }
            if (plan.link_count > 0) claim_too_much(&plan, &costs, seed);
        }
        infeasible += !found;
        plan_free(&plan);
        costs_free(&costs);
    }
    printf("%d plans, %d with a whole proof, %d infeasible; %d coded links, %d not alike in both directions\n", plans,
           proven, infeasible, coded, mixed);
    assert_true(proven > plans * 9 / 10);
    assert_true(coded > 100 / STEP && mixed > 10 / STEP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_with_codecs_match_brute_force)};
    return cmocka_run_group_tests_name("codecs", tests, NULL, NULL);
}
