#include "partitioner/verify/verify.h"

#include <math.h>
#include <string.h>

#include "base/integers.h"
#include "partitioner/certificate.h"
#include "partitioner/replicas.h"
#include "partitioner/schedule/simulate.h"
#include "partitioner/verify/verify_lists.h"
#include "partitioner/verify/verify_replicas.h"

/* What a stage whose backward is split puts off, and keeps per micro-batch until then. */
static int64_t split_off(const Rules *r, int device, int start, int end, int64_t *kept)
{
    const LayerCost *layers = r->costs->layers;
    bool known = false;
    double time = 0;
    for (int l = 0; l < r->layers && !known; l++) known = layers[l].weight_gradient_s > 0;
    for (int l = start; l < end; l++) {
        double share = !known ? 0.5 : layers[l].backward_s > 0 ? layers[l].weight_gradient_s / layers[l].backward_s : 0;
        time += floor(share * (double)rules_ns(costs_backward_s(r->costs, device, l)));
        *kept += layers[l].split_bytes;
    }
    return (int64_t)time;
}

static int64_t stage_bytes(const Rules *r, int start, int end, int flights, bool recompute)
{
    StageMemory memory = {0};
    for (int l = start; l < end; l++) rules_add_layer(r, &memory, l);
    return rules_bytes(r, &memory, start, end, flights, recompute);
}

static bool check_stage(Rules *r, int k, int device)
{
    const PlanStage *stage = &r->plan->stages[k];
    const char *object = arena_format(&r->arena, "stages[%d]", k);
    int start = stage->first_layer, end = stage->last_layer + 1, flights = rules_in_flight(r, r->plan->stage_count - k);
    if (plan_schedule_traits(r->plan->schedule).is_searched)
        flights = stage->in_flight; /* check_schedule sees whether they are enough */
    int64_t forward = 0, sum = 0, bytes = stage_bytes(r, start, end, flights, stage->recompute),
            limit = r->costs->devices[device].memory_bytes;
    for (int l = start; l < end; l++) {
        forward += rules_ns(costs_forward_s(r->costs, device, l));
        sum += rules_ns(costs_sum_s(r->costs, device, l));
        if (!rules_allow(r, l, device))
            return rules_refuse(r, object, "layer %d is pinned to another device, or site", l);
    }
    if (stage->recompute ? r->plan->recompute == PLAN_RECOMPUTE_NEVER : r->plan->recompute == PLAN_RECOMPUTE_ALWAYS)
        return rules_refuse(r, object, "recomputes %s", plan_recompute_name(r->plan->recompute));
    int64_t again = stage->recompute && r->plan->recompute != PLAN_RECOMPUTE_ALWAYS ? forward : 0;
    int64_t work = r->work[device][end] - r->work[device][start] + again,
            update = r->update[device][end] - r->update[device][start] - sum;
    if (stage->sum_ns != sum)
        return rules_refuse(r, object, "sums of its gradients take at least %lld ns", (long long)sum);
    if (stage->forward_ns != forward || stage->backward_ns != work - forward || stage->update_ns != update)
        return rules_refuse(r, object, "forward, backward and update take %lld, %lld and %lld ns", (long long)forward,
                            (long long)(work - forward), (long long)update);
    if (stage->weight_gradient_ns > 0) {
        int64_t kept = 0, later = split_off(r, device, start, end, &kept);
        if (k == 0 || !plan_schedule_traits(r->plan->schedule).splits_backward || stage->weight_gradient_ns != later)
            return rules_refuse(r, object, "%lld ns of backward can be put off", k > 0 ? (long long)later : 0);
        if (__builtin_mul_overflow(kept, flights, &kept) || __builtin_add_overflow(bytes, kept, &bytes))
            bytes = COSTS_NO_LIMIT - 1;
    }
    if (stage->in_flight != flights) return rules_refuse(r, object, "%d micro-batches are in flight", flights);
    if (stage->memory_bytes != bytes) return rules_refuse(r, object, "needs %lld bytes of memory", (long long)bytes);
    if (stage->memory_limit_bytes != limit)
        return rules_refuse(r, object, "the device's memory is %lld bytes", (long long)limit);
    if (bytes > limit)
        return rules_refuse(r, object, "needs %lld bytes, '%s' has %lld", (long long)bytes, stage->device,
                            (long long)limit);
    return true;
}

static bool check_link(Rules *r, int k, int from, int to)
{
    const PlanLink *link = &r->plan->links[k];
    int cut = r->plan->stages[k].last_layer + 1;
    const char *object = arena_format(&r->arena, "links[%d]", k);
    const LayerCost *layer = &r->costs->layers[cut - 1];
    RulesLink least = rules_link(r, cut, from, to);
    for (int d = 0; d < 2; d++) {
        int a = d ? to : from, b = d ? from : to;
        Codec codec = least.codecs[d];
        if (link->codecs[d] != codec)
            return rules_refuse(r, object, "%s costs least %s", codec_name(codec), d ? "backward" : "forward");
        if (link->wire_bytes[d] != costs_wire_bytes(layer, d, codec))
            return rules_refuse(r, object, "%lld bytes go over the wire, as %s makes them",
                                (long long)costs_wire_bytes(layer, d, codec), codec_name(codec));
        if (link->logical_bytes[d] != costs_output_bytes(layer, d) || link->latency_ns[d] != rules_latency(r, a, b) ||
            link->transfer_ns[d] != rules_transfer(r, cut, d, codec, a, b))
            return rules_refuse(r, object, "bytes, latency or transfer time are not those of the costs");
        if (link->coding_ns[d][0] != rules_coding(r, cut, d, codec, a, 0) ||
            link->coding_ns[d][1] != rules_coding(r, cut, d, codec, b, 1))
            return rules_refuse(r, object, "coding takes another time");
    }
    if (link->dtype != DTYPE_F32) return rules_refuse(r, object, "tensors between stages are f32");
    if (link->half_duplex != rules_half_duplex(r, from, to))
        return rules_refuse(r, object, "its directions do %sshare it", link->half_duplex ? "not " : "");
    return true;
}

/* One device has one stage; but where it keeps inputs and labels it has the first and the last, and fits both. */
static bool check_use(Rules *r, int k, int device, const bool *used)
{
    const PlanStage *first = &r->plan->stages[0], *stage = &r->plan->stages[k];
    const char *object = arena_format(&r->arena, "stages[%d]", k);
    bool keeps = device == rules_keeper(r) && strcmp(stage->device, first->device) == 0;
    if (r->left_out[device] || (used[device] && !(keeps && k + 1 == r->plan->stage_count)))
        return rules_refuse(r, object, "'%s' may not be used, or is already", stage->device);
    if (used[device] && stage->memory_bytes > stage->memory_limit_bytes - first->memory_bytes)
        return rules_refuse(r, object, "the first stage and the last do not fit together on '%s'", stage->device);
    return true;
}

/* The worst sampled step, and the one with every row padded, whose micro-batches have all lines; `sum`: what the first
 * micro-batch takes. */
static bool check_special_steps(Rules *r, int64_t sum, int64_t update)
{
    const Plan *plan = r->plan;
    const RowSamples *rows = &plan->rows;
    if (!rows->microbatch_kinds) return true;
    int64_t padded = rules_whole(r, sum + (plan->microbatches - 1) * plan->period_ns) + update;
    int64_t most = rows->microbatches[rows->microbatch_kinds - 1].value;
    int64_t worst = rules_whole(r, sum + (most - 1) * plan->period_ns) + update;
    if (plan->worst_step_ns != worst)
        return rules_refuse(r, "worst_step_s", "the worst sampled step is %lld ns", (long long)worst);
    return plan->padded_step_ns == padded ||
           rules_refuse(r, "padded_step_s", "the step of padded rows is %lld ns", (long long)padded);
}

static bool check_stages(Rules *r)
{
    const Plan *plan = r->plan;
    int64_t period = 0, sum = 0, update = 0;
    bool *used = arena_new_array(&r->arena, bool, (size_t)r->devices);
    for (int k = 0, before = -1; k < plan->stage_count; k++) {
        const char *object = arena_format(&r->arena, "stages[%d]", k);
        int device = costs_find_device(r->costs, plan->stages[k].device);
        if (device < 0) return rules_refuse(r, object, "no device is named '%s'", plan->stages[k].device);
        if (!check_use(r, k, device, used) || !check_stage(r, k, device)) return false;
        if (plan->ranks[plan->stages[k].rank].process_bytes != r->costs->devices[device].process_bytes)
            return rules_refuse(r, object, "its rank's process takes %lld bytes more",
                                (long long)r->costs->devices[device].process_bytes);
        const PlanRank *rank = &plan->ranks[plan->stages[k].rank];
        const DeviceCost *own = &r->costs->devices[device];
        bool shared = r->costs->processors > 0;
        if (plan->processors != r->costs->processors || (shared && rank->host != own->host) ||
            rank->cores != (shared ? own->cores : 0))
            return rules_refuse(r, "ranks", "another host, or cores, than that of '%s'", own->name);
        int64_t work = plan->stages[k].forward_ns + plan->stages[k].backward_ns;
        int64_t before_ns = used[device] ? plan->stages[0].forward_ns + plan->stages[0].backward_ns : 0;
        period = larger(period, work + before_ns);
        update = larger(update,
                        plan_stage_update(&plan->stages[k]) + (used[device] ? plan_stage_update(&plan->stages[0]) : 0));
        used[device] = true;
        sum += work;
        int to = rules_region(r, device), cut = plan->stages[k].first_layer;
        if (k > 0) {
            if (!check_link(r, k - 1, before, to)) return false;
            period = larger(period, rules_link_period(r, cut, before, to));
            sum += rules_link_sum(r, cut, before, to);
        }
        before = to;
    }
    int64_t step = sum + rules_rounds(r, period) + update;
    if (plan->period_ns != period) return rules_refuse(r, "period_s", "the period is %lld ns", (long long)period);
    if (plan->step_ns != step) return rules_refuse(r, "step_s", "the step is %lld ns", (long long)step);
    return check_special_steps(r, sum, update);
}

static bool check_schedule(Rules *r)
{
    int64_t step;
    double bubble;
    if (!plan_simulate_samples(r->plan, &step, &bubble, r->diagnostics)) return false;
    if (r->plan->simulated_step_ns != step)
        return rules_refuse(r, "simulated_step_s", "the schedule takes %lld ns", (long long)step);
    return bubble == r->plan->bubble || rules_refuse(r, "bubble", "the schedule leaves a share of %.17g idle", bubble);
}

static bool check_bound(Rules *r)
{
    const Plan *plan = r->plan;
    int64_t value = plan_value_ns(plan), bound = plan->lower_bound_ns;
    double gap = value > 0 ? (double)(value - bound) / (double)value : 0;
    if (bound > value) return rules_refuse(r, "lower_bound_s", "is above the plan's own value");
    if (plan->proven_optimal && bound != value)
        return rules_refuse(r, "proven_optimal", "does not agree with the bound");
    if (plan->gap != gap) return rules_refuse(r, "gap", "is %.17g", gap);
    return true;
}

static bool check_infeasible(Rules *r)
{
    const Plan *plan = r->plan;
    if (!plan->certificate) return rules_refuse(r, "certificate", "is missing: nothing proves that no plan fits");
    bool empty = !plan->period_ns && !plan->step_ns && !plan->worst_step_ns && !plan->padded_step_ns &&
                 !plan->simulated_step_ns && plan->bubble == 0 && !plan->lower_bound_ns && plan->gap == 0 &&
                 !plan->proven_optimal && !plan->crossing_count && !plan->site_crossing_count && !plan->norm;
    return empty || rules_refuse(r, "infeasible", "nothing fits, but the plan has numbers");
}

static bool check_numbers(Rules *r)
{
    const Plan *plan = r->plan;
    if (plan->infeasible) return check_infeasible(r);
    if (!check_stages(r) || !verify_crossings(r) || !verify_site_crossings(r) || !verify_norm(r) ||
        !check_schedule(r) || !verify_instructions(r) || !check_bound(r))
        return false;
    bool above =
        plan->certificate && (plan->certificate->bound_ns < 0 || plan->certificate->bound_ns > plan_value_ns(plan));
    return !above || rules_refuse(r, "certificate", "its bound is above the plan's value");
}

/* What is called proven has its proof with it. */
static bool check_claims(Rules *r, int64_t certified, bool allow_unproven)
{
    const Plan *plan = r->plan;
    if (plan->infeasible) return verify_compared(r, certified);
    if (!plan->proven_optimal && plan->certificate && certified == plan_value_ns(plan))
        return rules_refuse(r, "proven_optimal", "is false, but the certificate goes as far");
    if (plan->proven_optimal && certified != plan_value_ns(plan) && !allow_unproven)
        return rules_refuse(r, "proven_optimal", "is claimed without a certificate that goes as far");
    return verify_compared(r, certified);
}

static bool verify_pipeline(Verified *verified, const Plan *plan, const Costs *costs, bool allow_unproven,
                            Diagnostics *diagnostics)
{
    FREED_WITH(rules_free) Rules rules = {0};
    int leaves = 0;
    int64_t certified = plan->certificate ? plan->certificate->bound_ns : 0;
    bool ok = rules_create(&rules, plan, costs, diagnostics) && check_numbers(&rules) &&
              (!plan->certificate || verify_proof(&rules, &leaves)) && check_claims(&rules, certified, allow_unproven);
    *verified = (Verified){ok ? certified : 0, leaves};
    return ok;
}

/* Each pipeline, as it was asked for; what is certified of the one that cannot be done sooner holds for all. */
bool plan_verify(Verified *verified, const Plan *plan, const Costs *costs, bool allow_unproven,
                 Diagnostics *diagnostics)
{
    *verified = (Verified){0, 0};
    if (!verify_rows(plan, costs, diagnostics)) return false;
    if (plan->replica_count <= 1)
        return verify_pipeline(verified, plan, costs, allow_unproven, diagnostics) &&
               verify_groupings(plan, costs, diagnostics);
    FREED_WITH(arena_free) Arena arena = {0};
    int *group_of = arena_new_array(&arena, int, (size_t)costs->device_count);
    int *microbatches = arena_new_array(&arena, int, (size_t)plan->replica_count);
    for (int r = 0; r < plan->replica_count; r++) microbatches[r] = plan->replicas[r].microbatches;
    bool ok = verify_replicas(plan, costs, group_of, diagnostics);
    for (int r = 0; r < plan->replica_count && ok; r++) {
        Verified one;
        Costs own = replica_costs(costs, group_of, microbatches, plan->replica_count, r, plan->codecs, &arena);
        ok = verify_pipeline(&one, plan_pipeline(plan, r), &own, allow_unproven, diagnostics);
        bool of_step = plan->objective == PLAN_OBJECTIVE_STEP && !plan->rows.microbatch_kinds;
        if (ok && of_step && one.certified_ns > verified->certified_ns) verified->certified_ns = one.certified_ns;
        if (ok) verified->leaves += one.leaves;
    }
    ok = ok && verify_groupings(plan, costs, diagnostics);
    if (!ok) *verified = (Verified){0, 0};
    return ok;
}
