#include "driver/federate/federation_steps.h"

#include <string.h>

#include "federation/coded_row.h"
#include "partitioner/plan.h"

const char *federation_cluster(Arena *arena, const char *file, const char *cluster)
{
    const char *slash = strrchr(file, '/');
    if (*cluster == '/' || !slash) return cluster;
    return arena_format(arena, "%.*s/%s", (int)(slash - file), file, cluster);
}

static bool settle_rows(FederationSite *site, const char *file, int64_t rows, int microbatches,
                        Diagnostics *diagnostics)
{
    if (!site->rows_per_step && microbatches < 1)
        return input_error(diagnostics, file, "set rows_per_step for the site, or --microbatches N for all sites",
                           "site '%s' has no rows_per_step", site->name);
    if (site->rows_per_step % rows)
        return input_error(diagnostics, file, "set the micro-batch size with --dim batch=N",
                           "rows_per_step of site '%s' is %lld, not a multiple of the micro-batch size %lld",
                           site->name, (long long)site->rows_per_step, (long long)rows);
    if (!site->rows_per_step) site->rows_per_step = rows * microbatches;
    return true;
}

bool federation_settle_rows(Federation *federation, const char *file, int64_t rows, int microbatches,
                            Diagnostics *diagnostics)
{
    bool said = microbatches < 1;
    for (int s = 0; s < federation->site_count; s++) {
        said |= !federation->sites[s].rows_per_step;
        if (!settle_rows(&federation->sites[s], file, rows, microbatches, diagnostics)) return false;
    }
    return said || usage_error(diagnostics, "leave it out, or leave out rows_per_step at the sites that should use it",
                               "--microbatches changes nothing: every site of %s has rows_per_step", file);
}

MeetingRules federation_meeting_rules(const Federation *federation, int64_t elements, int64_t states)
{
    MeetingRules rules = {.members = federation->site_count,
                          .secure = federation->secure,
                          .elements = elements,
                          .states = states,
                          .fragments = federation->fragments,
                          .overlap =
                              federation->overlap == FEDERATION_OVERLAP_ALL ? MEETING_OVERLAP_ALL : federation->overlap,
                          .coordinator_Bps = federation->coordinator_Bps,
                          .costs = meeting_costs_default};
    rules.costs.word_bytes[0] = coded_row_value_bytes(row_rule_up(federation));
    rules.costs.word_bytes[1] = coded_row_value_bytes(row_rule_down(federation));
    rules.met = federation->control_variates ? 2 : 1;
    rules.restarts = federation->control_variates || federation->proximal > 0;
    return rules;
}

static bool read_replica(Replica *replica, const Federation *federation, int site, const char *directory, Arena *arena,
                         Diagnostics *diagnostics)
{
    FREED_WITH(plan_free) Plan plan = {0};
    const LinkRate *link = federation_link(federation, site, federation->site_count);
    const char *path = arena_format(arena, "%s/%s/plan.json", directory, federation->sites[site].name);
    if (!plan_read(&plan, path, diagnostics)) return false;
    *replica = (Replica){.step_s = (double)plan.simulated_step_ns / 1e9,
                         .latency_s = link->latency_s,
                         .bandwidth_Bps = link->bandwidth_Bps};
    return true;
}

static const char *reason(Federation *federation, const MeetingRules *rules, const Replica *replicas, int64_t steps)
{
    int slowest = round_slowest(rules, replicas, steps);
    const Replica *replica = &replicas[slowest];
    int64_t overlap = meeting_overlap(rules, steps);
    const char *meanwhile =
        overlap ? arena_format(&federation->arena, "; %lld steps of the next round are computed during that time",
                               (long long)overlap)
                : "";
    return arena_format(
        &federation->arena,
        "%lld is the smallest number that spends at most %g%% of the time on exchanging updates (%.2g%%). The slowest "
        "site is %s: a step is planned to take %.3g s and an exchange %.3g s (%.3g MB up and %.3g MB down over %g ms "
        "and %.4g MB/s). All sites wait another %.3g s for phases and the coordinator%s",
        (long long)steps, 100 * MEETING_SHARE, 100 * round_meeting_share(rules, replicas, steps),
        federation->sites[slowest].name, replica->step_s, meeting_own_s(rules, replica),
        (double)meeting_bytes_up(rules) / 1e6, (double)meeting_bytes_down(rules) / 1e6, replica->latency_s * 1e3,
        replica->bandwidth_Bps / 1e6, meeting_common_s(rules, replicas), meanwhile);
}

bool federation_settle_steps(Federation *federation, int64_t elements, const char *directory, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena scratch = {0};
    MeetingRules rules = federation_meeting_rules(federation, elements, federation->compiled.states);
    Replica *replicas = arena_new_array(&scratch, Replica, (size_t)federation->site_count);
    bool ok = true;
    if (federation->local_steps != FEDERATION_STEPS_AUTO) return true;
    for (int s = 0; s < federation->site_count && ok; s++)
        ok = read_replica(&replicas[s], federation, s, directory, &scratch, diagnostics);
    if (ok) {
        federation->local_steps = least_local_steps(&rules, replicas, MEETING_SHARE);
        federation->compiled.why_steps = reason(federation, &rules, replicas, federation->local_steps);
        if (federation->local_steps == MOST_LOCAL_STEPS)
            ok = diagnostics_error(diagnostics, EXIT_NO_PLAN, PLACE_NONE, "give local_steps a number",
                                   "no number of local steps leaves 95%% of the time for training");
        ok = ok && federation_settle_overlap(federation, diagnostics);
    }
    return ok;
}
