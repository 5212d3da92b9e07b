/* The round on the norm of the gradient, worked out again: when a rank knows it follows from the definition, asked for
 * backwards from the end, and from the costs' links between the ranks' devices. */
#include "base/integers.h"
#include "partitioner/verify/verify_lists.h"

/* The ranks of a site, in their order. */
typedef struct NormSite {
    const Rules *rules;
    int *ranks;
    int count, power; /* the largest power of two that is not more */
} NormSite;

static int device_of(const Rules *r, int rank) { return costs_find_device(r->costs, r->plan->ranks[rank].device); }

static int64_t message_between(const Rules *r, int from, int to)
{
    int a = rules_region(r, device_of(r, from)), b = rules_region(r, device_of(r, to));
    return rules_latency(r, a, b) + rules_bytes_over(r, r->costs->norm_bytes, a, b);
}

/* The rank that meets others as `number`. Ranks beyond the power of two form pairs with the first ones, and the
 * second of each pair meets others. */
static int meets_as(const NormSite *site, int number)
{
    int pairs = site->count - site->power;
    return site->ranks[number < pairs ? 2 * number + 1 : number + pairs];
}

/* When it is through that many meetings, the k-th of which is with the one whose number differs in bit k. */
static int64_t through(const NormSite *site, int number, int meetings)
{
    int self = meets_as(site, number);
    if (meetings == 0)
        return number < site->count - site->power ? message_between(site->rules, site->ranks[2 * number], self) : 0;
    int other = number ^ 1 << (meetings - 1);
    return larger(through(site, number, meetings - 1),
                  through(site, other, meetings - 1) + message_between(site->rules, meets_as(site, other), self));
}

/* When the i-th of the site knows what its site has. */
static int64_t knows_site(const NormSite *site, int i)
{
    int pairs = site->count - site->power, meetings = 0;
    while (1 << meetings < site->power) meetings++;
    if (i >= 2 * pairs) return through(site, i - pairs, meetings);
    int64_t second = through(site, i / 2, meetings);
    return i % 2 ? second : second + message_between(site->rules, site->ranks[i | 1], site->ranks[i]);
}

/* When the i-th of the site knows all, whose first does at `first`. */
static int64_t knows_all(const NormSite *site, int i, int64_t first)
{
    if (i == 0) return first;
    int from = i & (i - 1);
    return larger(knows_site(site, i),
                  knows_all(site, from, first) + message_between(site->rules, site->ranks[from], site->ranks[i]));
}

static int64_t last_to_know(const NormSite *sites, int count)
{
    int64_t last = 0;
    for (int s = 0; s < count; s++) {
        int64_t first = knows_site(&sites[s], 0);
        for (int t = 0; t < count; t++)
            if (t != s)
                first = larger(first, knows_site(&sites[t], 0) +
                                          message_between(sites[s].rules, sites[t].ranks[0], sites[s].ranks[0]));
        for (int i = 0; i < sites[s].count; i++)
            last = larger(last, count > 1 ? knows_all(&sites[s], i, first) : knows_site(&sites[s], i));
    }
    return last;
}

static int site_number(const Rules *r, int rank)
{
    return r->costs->sites.count ? r->costs->devices[device_of(r, rank)].site : 0;
}

static int gather_sites(Rules *r, NormSite *sites)
{
    int count = 0, ranks = r->plan->rank_count;
    for (int rank = 0; rank < ranks; rank++) {
        int s = 0;
        while (s < count && site_number(r, sites[s].ranks[0]) != site_number(r, rank)) s++;
        if (s == count) sites[count++] = (NormSite){r, arena_new_array(&r->arena, int, (size_t)ranks), 0, 1};
        sites[s].ranks[sites[s].count++] = rank;
        if (sites[s].count >= 2 * sites[s].power) sites[s].power *= 2;
    }
    return count;
}

/* What the simulator counts with is what the costs say. */
static bool check_messages(Rules *r)
{
    const SkyNormRound *norm = r->plan->norm;
    for (int a = 0; a < r->plan->rank_count; a++)
        for (int b = 0; b < r->plan->rank_count; b++) {
            bool together = !norm->sites || norm->sites[a] == norm->sites[b];
            if (norm->message_ns[norm->zones[a] * norm->zone_count + norm->zones[b]] != message_between(r, a, b))
                return rules_refuse(r, "norm.message_s", "a message from rank %d to rank %d takes %lld ns", a, b,
                                    (long long)message_between(r, a, b));
            if (together != (site_number(r, a) == site_number(r, b)) ||
                (norm->sites && norm->sites[a] != (uint32_t)site_number(r, a)))
                return rules_refuse(r, "norm.sites", "ranks %d and %d are %s one site", a, b,
                                    together ? "not in" : "in");
        }
    return true;
}

/* Regions have the numbers in which ranks meet them. */
static bool check_zones(Rules *r)
{
    const SkyNormRound *norm = r->plan->norm;
    uint32_t zones = 0;
    for (int a = 0; a < r->plan->rank_count; a++) {
        int b = 0;
        while (b < a && rules_region(r, device_of(r, a)) != rules_region(r, device_of(r, b))) b++;
        uint32_t zone = b < a ? norm->zones[b] : zones++;
        if (norm->zones[a] != zone) return rules_refuse(r, "norm.zones", "rank %d is in zone %u", a, zone);
    }
    return norm->zone_count == zones || rules_refuse(r, "norm.message_s", "there are %u zones", zones);
}

bool verify_norm(Rules *r)
{
    const Plan *plan = r->plan;
    bool expected = r->costs->norm_bytes > 0 && plan->rank_count > 1;
    if (expected != (plan->norm != NULL))
        return rules_refuse(r, "norm",
                            expected ? "is missing: ranks agree on the norm of the gradient"
                                     : "is there, but by the costs ranks do not agree on it");
    if (!expected) return true;
    if (plan->norm_bytes != r->costs->norm_bytes)
        return rules_refuse(r, "norm.bytes", "are %lld in the costs", (long long)r->costs->norm_bytes);
    if (!check_messages(r) || !check_zones(r)) return false;
    NormSite *sites = arena_new_array(&r->arena, NormSite, (size_t)plan->rank_count);
    int count = gather_sites(r, sites);
    int64_t seconds = last_to_know(sites, count);
    return plan->norm_ns == seconds || rules_refuse(r, "norm.seconds", "the round takes %lld ns", (long long)seconds);
}
