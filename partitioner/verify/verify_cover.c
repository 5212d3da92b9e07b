#include "partitioner/verify/verify_cover.h"

/* ---- intervals ---- */

static void find_longest(const Rules *r, int64_t *period, int64_t *update)
{
    *period = *update = 0;
    for (int d = 0; d < r->devices; d++) {
        if (r->left_out[d]) continue;
        if (r->work[d][r->layers] > *period) *period = r->work[d][r->layers];
        if (r->update[d][r->layers] > *update) *update = r->update[d][r->layers];
    }
    for (int cut = 1; cut < r->layers; cut++)
        for (int i = 0; i < r->regions * r->regions; i++) {
            int64_t busy = rules_link_period(r, cut, i / r->regions, i % r->regions);
            if (busy > *period) *period = busy;
        }
}

bool covers_plans(const Rules *r, const Certificate *proof, int first, int count, bool step)
{
    const CertificateInterval *last = NULL;
    int64_t period, update;
    find_longest(r, &period, &update);
    if (!step && count != 1) return false;
    for (int i = first; i < first + count; i++) {
        const CertificateInterval *now = &proof->intervals[i];
        if (last && last->low > 0) { /* the same updates, the next periods */
            if (now->high != last->low || now->update_low != last->update_low || now->update_high != last->update_high)
                return false;
        } else { /* the next updates, all periods */
            if (last ? now->update_high != last->update_low : now->update_high < update) return false;
            if (now->high < (step || r->plan->infeasible ? period : proof->bound_ns - 1)) return false;
        }
        last = now;
    }
    return last && last->low == 0 && last->update_low == -1;
}

/* ---- one device with the first stage and the last ---- */

/* All layers in one stage of the device, which no branch is about. */
static bool check_alone(Rules *r, const Certificate *proof, int keeper)
{
    StageMemory memory = {0};
    for (int l = 0; l < r->layers; l++) {
        if (!rules_allow(r, l, keeper)) return true;
        rules_add_layer(r, &memory, l);
    }
    int64_t limit = r->costs->devices[keeper].memory_bytes, work = r->work[keeper][r->layers];
    if (r->left_out[keeper] || rules_least_bytes(r, &memory, 0, r->layers, rules_in_flight(r, 1)) > limit) return true;
    int64_t step = work + rules_rounds(r, work) + r->update[keeper][r->layers];
    if (r->plan->infeasible || (r->plan->objective == PLAN_OBJECTIVE_STEP ? step : work) < proof->bound_ns)
        return rules_refuse(r, "certificate", "'%s' alone is a better plan", r->costs->devices[keeper].name);
    return true;
}

/* Cut by cut, and for each range of them count by count. */
bool covers_keepers(Rules *r, const Certificate *proof, int keeper)
{
    int least = rules_in_flight(r, 2), most = rules_in_flight(r, r->usable + 1), cut = 1, flights = least;
    if (!check_alone(r, proof, keeper)) return false;
    for (int i = 0; i < proof->branch_count; i++) {
        const CertificateBranch *now = &proof->branches[i];
        bool follows = now->end_low == cut && now->end_high >= cut && now->flights_low == flights;
        if (!follows || (flights > least && now->end_high != now[-1].end_high) || now->end_high >= r->layers ||
            now->flights_high < flights || now->flights_high > most)
            return rules_refuse(r, "certificate.branches", "leave plans out, or overlap");
        flights = now->flights_high + 1;
        if (flights <= most) continue;
        cut = now->end_high + 1;
        flights = least;
    }
    return (cut >= r->layers && flights == least) || rules_refuse(r, "certificate.branches", "leave plans out");
}

int64_t least_held(const Rules *r, const CertificateBranch *branch)
{
    StageMemory memory = {0};
    int64_t least = COSTS_NO_LIMIT;
    for (int end = 1; end <= branch->end_high; end++) {
        rules_add_layer(r, &memory, end - 1);
        int64_t bytes = rules_least_bytes(r, &memory, 0, end, branch->flights_low);
        if (end >= branch->end_low && bytes < least) least = bytes;
    }
    return least;
}
