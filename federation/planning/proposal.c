#include "federation/planning/proposal.h"

#include "federation/aggregate/sum_messages.h"

enum { DAY_SECONDS = 86400 };

static void add_traffic(Candidate *candidate, int from, int to, double bytes)
{
    candidate->traffic[candidate->traffic_count++] = (SiteTraffic){from, to, bytes};
}

static void settle_traffic(Candidate *candidate, const MeetingRules *rules, int coordinator, Arena *arena)
{
    int replicas = candidate->grouping.count;
    size_t room = 2 * (size_t)replicas;
    for (int g = 0; g < replicas; g++) room += (size_t)candidate->groups[g]->traffic_count;
    candidate->traffic = arena_new_array(arena, SiteTraffic, room);
    double rounds = DAY_SECONDS / candidate->round_s, steps = candidate->steps ? (double)candidate->steps : 1;
    for (int g = 0; g < replicas; g++) {
        const GroupPlan *group = candidate->groups[g];
        if (replicas > 1) {
            add_traffic(candidate, group->lead, coordinator, rounds * (double)meeting_bytes_up(rules));
            add_traffic(candidate, coordinator, group->lead, rounds * (double)meeting_bytes_down(rules));
        }
        for (int t = 0; t < group->traffic_count; t++)
            add_traffic(candidate, group->traffic[t].from, group->traffic[t].to,
                        rounds * steps * group->traffic[t].bytes);
    }
}

static void settle_times(Candidate *candidate, const MeetingRules *rules, const Replica *replicas)
{
    int count = candidate->grouping.count;
    double rows = 0, busy = 0, devices = 0, steps = candidate->steps ? (double)candidate->steps : 1;
    for (int g = 0; g < count; g++) {
        rows += (double)candidate->groups[g]->rows * steps;
        busy += candidate->groups[g]->busy_s * steps;
        devices += candidate->groups[g]->devices;
    }
    candidate->round_s = round_seconds(rules, replicas, count > 1 ? candidate->steps : 1);
    candidate->meeting = round_meeting_share(rules, replicas, count > 1 ? candidate->steps : 1);
    candidate->slowest = round_slowest(rules, replicas, count > 1 ? candidate->steps : 1);
    candidate->row_s = candidate->round_s / rows;
    candidate->utilisation = busy / (devices * candidate->round_s);
}

static const char *group_name(const GroupPlan *group, const Federation *federation, Arena *arena)
{
    const char *name = federation->sites[group->sites[0]].name;
    return group->site_count > 1 ? arena_format(arena, "%s and %d more", name, group->site_count - 1) : name;
}

void candidate_settle(Candidate *candidate, const Federation *federation, const MeetingRules *rules, double share,
                      Arena *arena)
{
    int count = candidate->grouping.count;
    MeetingRules own = *rules;
    Replica *replicas = arena_new_array(arena, Replica, (size_t)count);
    own.members = count;
    for (int g = 0; g < count; g++) candidate->rows_leave |= candidate->groups[g]->site_count > 1;
    for (int g = 0; g < count && !candidate->why_not; g++) {
        if (candidate->groups[g]->why_not)
            candidate->why_not = arena_format(arena, "%s: %s", group_name(candidate->groups[g], federation, arena),
                                              candidate->groups[g]->why_not);
        replicas[g] = candidate->groups[g]->replica;
    }
    if (candidate->why_not) return;
    if (count > 1 && count < SUM_FEWEST_SITES && rules->secure) {
        candidate->why_not = "masks hide nothing in a sum of two replicas: aggregate: plain would do";
        return;
    }
    bool automatic = federation->local_steps == FEDERATION_STEPS_AUTO;
    if (count > 1) candidate->steps = automatic ? least_local_steps(&own, replicas, share) : federation->local_steps;
    if (candidate->steps == MOST_LOCAL_STEPS && automatic) {
        candidate->why_not = "no number of local steps leaves enough of the time for training";
        return;
    }
    settle_times(candidate, &own, replicas);
    settle_traffic(candidate, &own, federation->site_count, arena);
}

static int best_but(const Proposal *proposal, int but, bool keeping)
{
    int best = -1;
    for (int c = 0; c < proposal->count; c++) {
        const Candidate *candidate = &proposal->candidates[c];
        if (candidate->why_not || c == but || (keeping && candidate->rows_leave)) continue;
        if (best < 0 || candidate->row_s < proposal->candidates[best].row_s) best = c;
    }
    return best;
}

void proposal_choose(Proposal *proposal)
{
    proposal->fastest = best_but(proposal, -1, false);
    proposal->keeping = best_but(proposal, -1, true);
    proposal->proposed = proposal->keeping >= 0 ? proposal->keeping : proposal->fastest;
    proposal->why = "nothing fits";
    if (proposal->proposed < 0) return;
    const Candidate *best = &proposal->candidates[proposal->proposed];
    int next = best_but(proposal, proposal->proposed, proposal->keeping >= 0);
    if (next < 0)
        proposal->why = proposal->keeping >= 0 ? "all rows stay at their sites" : "nothing else fits";
    else
        proposal->why =
            arena_format(&proposal->arena, "it takes the least time a row, %.3g%% less than %s",
                         100 * (1 - best->row_s / proposal->candidates[next].row_s),
                         candidate_name(&proposal->candidates[next], proposal->federation, &proposal->arena));
}
