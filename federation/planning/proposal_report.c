/* Proposals for people, and as JSON ("skycc.federation-plan/1"). */
#include <math.h>
#include <string.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "federation/planning/proposal.h"

enum { NAME_BYTES = 60 };

const char *candidate_name(const Candidate *candidate, const Federation *federation, Arena *arena)
{
    FREED_WITH(buffer_free) Buffer name = {0};
    for (int g = 0; g < candidate->grouping.count && name.size < NAME_BYTES; g++) {
        if (g) buffer_print(&name, " | ");
        for (int s = 0, before = 0; s < federation->site_count && name.size < NAME_BYTES; s++)
            if (candidate->grouping.group[s] == g)
                buffer_print(&name, "%s%s", before++ ? "+" : "", federation->sites[s].name);
    }
    for (int s = 0, before = 0; s < federation->site_count && name.size < NAME_BYTES; s++) {
        if (candidate->grouping.group[s] >= 0) continue;
        buffer_print(&name, "%s%s", before++ ? ", " : " (without ", federation->sites[s].name);
        bool more = false;
        for (int o = s + 1; o < federation->site_count; o++) more |= candidate->grouping.group[o] < 0;
        if (!more) buffer_print(&name, ")");
    }
    return name.size < NAME_BYTES ? arena_string(arena, buffer_text(&name))
                                  : arena_format(arena, "%.*s... (%d replicas)", NAME_BYTES, buffer_text(&name),
                                                 candidate->grouping.count);
}

static const char *end_name(const Federation *federation, int end)
{
    return end == federation->site_count ? "coordinator" : federation->sites[end].name;
}

/* ---- text ---- */

static void text_candidate(const Proposal *proposal, int number, Buffer *buffer, Arena *arena)
{
    const Candidate *candidate = &proposal->candidates[number];
    const char *name = candidate_name(candidate, proposal->federation, arena);
    double bytes = 0;
    text_format(buffer, "%c ", number == proposal->proposed ? '*' : ' ');
    if (candidate->why_not) {
        text_format(buffer, "%47s  %s: %s\n", "-", name, candidate->why_not);
        return;
    }
    for (int t = 0; t < candidate->traffic_count; t++) bytes += candidate->traffic[t].bytes;
    text_format(buffer, "%10.4g %10.4g", candidate->row_s * 1e3, 1 / candidate->row_s);
    if (candidate->steps)
        text_format(buffer, " %7lld %6.2g%%", (long long)candidate->steps, 100 * candidate->meeting);
    else
        text_format(buffer, " %7s %7s", "-", "-");
    text_format(buffer, " %5.3g%% %9.4g  %s%s\n", 100 * candidate->utilisation, bytes / 1e9, name,
                !candidate->rows_leave   ? ""
                : proposal->rules.secure ? " (rows leave their sites, despite aggregate: secure)"
                                         : " (rows leave their sites)");
}

static void text_links(const Proposal *proposal, Buffer *buffer)
{
    const Candidate *candidate = &proposal->candidates[proposal->proposed];
    text_format(buffer, "\ntraffic per day:\n");
    for (int t = 0; t < candidate->traffic_count; t++)
        text_format(buffer, "%12.4g GB  %s -> %s\n", candidate->traffic[t].bytes / 1e9,
                    end_name(proposal->federation, candidate->traffic[t].from),
                    end_name(proposal->federation, candidate->traffic[t].to));
}

static void text_groups(const Proposal *proposal, Buffer *buffer)
{
    const Candidate *candidate = &proposal->candidates[proposal->proposed];
    text_format(buffer, "\nreplicas:\n");
    for (int g = 0; g < candidate->grouping.count; g++) {
        const GroupPlan *group = candidate->groups[g];
        text_format(buffer, "  ");
        for (int s = 0; s < group->site_count; s++)
            text_format(buffer, "%s%s", s ? "+" : "", proposal->federation->sites[group->sites[s]].name);
        text_format(buffer, ": %lld rows in %.4g s on %d of %d devices%s%s\n", (long long)group->rows, group->step_s,
                    group->used, group->devices, group->proven ? ", proven optimal" : "",
                    candidate->grouping.count > 1 && g == candidate->slowest ? "; rounds wait for it" : "");
    }
}

static void text_considered(const Proposal *proposal, Buffer *buffer)
{
    if (proposal->all_tried)
        text_format(buffer, "compared: all %d ways to group the sites in which links connect every group\n",
                    proposal->count);
    else
        text_format(buffer, "compared: %d ways to group the sites, by links of at least some speed%s\n",
                    proposal->count, proposal->left_out ? " (of many speeds, those that differ most)" : "");
    bool any_short = false;
    for (int c = 0; c < proposal->count; c++) any_short |= proposal->candidates[c].why_not != NULL;
    if (!proposal->all_tried && any_short)
        text_format(buffer, "and, where the model is too large for one site, the smallest groups that hold it\n");
}

static void proposal_text(const Proposal *proposal, Buffer *buffer)
{
    FREED_WITH(arena_free) Arena arena = {0};
    text_format(buffer, "%s: %lld trained parameters, micro-batches of %lld rows, %s aggregation, %lld fragment%s\n",
                proposal->model, (long long)proposal->elements, (long long)proposal->microbatch_rows,
                proposal->rules.secure ? "secure" : "plain", (long long)proposal->rules.fragments,
                proposal->rules.fragments > 1 ? "s" : "");
    text_considered(proposal, buffer);
    text_format(buffer, "\n  %10s %10s %7s %7s %6s %9s  replicas\n", "ms/row", "rows/s", "steps", "meeting", "use",
                "GB/day");
    for (int c = 0; c < proposal->count; c++) text_candidate(proposal, c, buffer, &arena);
    if (proposal->proposed >= 0) {
        const Candidate *best = &proposal->candidates[proposal->proposed];
        text_format(buffer, "\nproposed: %s, for %s\n", candidate_name(best, proposal->federation, &arena),
                    proposal->why);
        if (proposal->fastest != proposal->proposed)
            text_format(buffer, "  if rows may leave their sites: %s, %.3g%% less time per row\n",
                        candidate_name(&proposal->candidates[proposal->fastest], proposal->federation, &arena),
                        100 * (1 - proposal->candidates[proposal->fastest].row_s / best->row_s));
        if (best->rows_leave) text_format(buffer, "  its groups train on rows that leave their sites\n");
        text_format(buffer, "  not compared: rows of a larger common batch may teach more than rows of replicas\n");
        text_groups(proposal, buffer);
        if (best->traffic_count) text_links(proposal, buffer);
    } else {
        text_format(buffer, "\nproposed: none, %s\n", proposal->why);
    }
}

/* ---- JSON ---- */

static void json_group(JsonWriter *json, const Federation *federation, const GroupPlan *group)
{
    json_open(json, NULL, '{');
    json_open(json, "sites", '[');
    for (int s = 0; s < group->site_count; s++) json_add_string(json, NULL, federation->sites[group->sites[s]].name);
    json_close(json, ']');
    json_add_bool(json, "fits", !group->why_not);
    if (group->why_not) {
        json_add_string(json, "why_not", group->why_not);
    } else {
        json_add_integer(json, "rows", group->rows);
        json_add_integer(json, "devices", group->devices);
        json_add_integer(json, "used", group->used);
        json_add_bool(json, "proven_optimal", group->proven);
        json_add_number(json, "step_s", group->step_s);
    }
    json_close(json, '}');
}

static void json_links(JsonWriter *json, const Federation *federation, const Candidate *candidate)
{
    json_open(json, "links", '[');
    for (int t = 0; t < candidate->traffic_count; t++) {
        json_open(json, NULL, '{');
        json_add_string(json, "from", end_name(federation, candidate->traffic[t].from));
        json_add_string(json, "to", end_name(federation, candidate->traffic[t].to));
        json_add_number(json, "bytes_per_day", candidate->traffic[t].bytes);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void json_candidate(JsonWriter *json, const Proposal *proposal, const Candidate *candidate)
{
    json_open(json, NULL, '{');
    json_open(json, "replicas", '[');
    for (int g = 0; g < candidate->grouping.count; g++) json_group(json, proposal->federation, candidate->groups[g]);
    json_close(json, ']');
    json_open(json, "left_out", '[');
    for (int s = 0; s < proposal->federation->site_count; s++)
        if (candidate->grouping.group[s] < 0) json_add_string(json, NULL, proposal->federation->sites[s].name);
    json_close(json, ']');
    json_add_bool(json, "fits", !candidate->why_not);
    json_add_bool(json, "rows_leave", candidate->rows_leave);
    if (candidate->why_not) {
        json_add_string(json, "why_not", candidate->why_not);
    } else {
        if (candidate->steps)
            json_add_integer(json, "local_steps", candidate->steps);
        else
            json_add_null(json, "local_steps");
        json_add_number(json, "round_s", candidate->round_s);
        json_add_number(json, "row_s", candidate->row_s);
        json_add_number(json, "meeting_share", candidate->meeting);
        json_add_number(json, "utilisation", candidate->utilisation);
        json_add_integer(json, "slowest", candidate->slowest);
        json_links(json, proposal->federation, candidate);
    }
    json_close(json, '}');
}

static void json_assumed(JsonWriter *json, const MeetingCosts *costs)
{
    json_open(json, "assumed", '{');
    json_add_integer(json, "round_trips", costs->round_trips);
    json_add_integer(json, "plain_phases", costs->plain_phases);
    json_add_integer(json, "secure_phases", costs->secure_phases);
    json_add_number(json, "start_s", costs->start_s);
    json_add_number(json, "storage_Bps", costs->storage_Bps);
    json_add_number(json, "update_s_per_byte", costs->update_s);
    json_add_number(json, "mask_s_per_byte", costs->mask_s);
    json_add_number(json, "code_s_per_value", costs->code_s);
    json_add_number(json, "decode_s_per_value", costs->decode_s);
    json_add_number(json, "sum_s_per_byte", costs->sum_s);
    json_add_number(json, "value_bytes_up", costs->word_bytes[0]);
    json_add_number(json, "value_bytes_down", costs->word_bytes[1]);
    json_close(json, '}');
}

static void json_place(JsonWriter *json, const char *key, int place)
{
    json_break(json, "\n ");
    if (place >= 0)
        json_add_integer(json, key, place);
    else
        json_add_null(json, key);
}

static void proposal_json(const Proposal *proposal, Buffer *buffer)
{
    JsonWriter json = {.buffer = buffer};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", "skycc.federation-plan/1");
    json_add_string(json_break(&json, "\n "), "model", proposal->model);
    json_add_integer(json_break(&json, "\n "), "elements", proposal->elements);
    json_add_integer(&json, "microbatch_rows", proposal->microbatch_rows);
    json_add_string(&json, "aggregate", proposal->rules.secure ? "secure" : "plain");
    json_add_integer(&json, "fragments", proposal->rules.fragments);
    json_add_bool(json_break(&json, "\n "), "all_tried", proposal->all_tried);
    json_add_integer(&json, "speeds_left_out", proposal->left_out);
    json_assumed(json_break(&json, "\n "), &proposal->rules.costs);
    json_open(json_break(&json, "\n "), "candidates", '[');
    for (int c = 0; c < proposal->count; c++) {
        json_candidate(json_break(&json, "\n  "), proposal, &proposal->candidates[c]);
    }
    json_close(&json, ']');
    json_place(&json, "proposed", proposal->proposed);
    json_place(&json, "rows_stay", proposal->keeping);
    json_place(&json, "fastest", proposal->fastest);
    json_add_string(&json, "why", proposal->why);
    json_close(&json, '}');
    buffer_append(buffer, "\n", 1);
}

void proposal_print(const Proposal *proposal, const char *form, Buffer *buffer)
{
    if (strcmp(form, "json") == 0)
        proposal_json(proposal, buffer);
    else
        proposal_text(proposal, buffer);
}
