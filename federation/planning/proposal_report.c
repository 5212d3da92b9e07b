/* Proposals for people, and as JSON ("skycc.federation-plan/1"). */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "federation/planning/proposal.h"

enum { NAME_BYTES = 60 };

const char *candidate_name(const Candidate *candidate, const Federation *federation, Arena *arena)
{
    Buffer name = {0};
    for (int g = 0; g < candidate->grouping.count && name.size < NAME_BYTES; g++) {
        if (g) buffer_print(&name, " | ");
        for (int s = 0, before = 0; s < federation->site_count && name.size < NAME_BYTES; s++)
            if (candidate->grouping.group[s] == g)
                buffer_print(&name, "%s%s", before++ ? "+" : "", federation->sites[s].name);
    }
    const char *text = name.size < NAME_BYTES ? arena_string(arena, buffer_text(&name))
                                              : arena_format(arena, "%.*s... (%d replicas)", NAME_BYTES,
                                                             buffer_text(&name), candidate->grouping.count);
    buffer_free(&name);
    return text;
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
                candidate->rows_leave ? " (rows leave their sites)" : "");
}

static void text_links(const Proposal *proposal, Buffer *buffer)
{
    const Candidate *candidate = &proposal->candidates[proposal->proposed];
    text_format(buffer, "\nwhat crosses then, in a day:\n");
    for (int t = 0; t < candidate->traffic_count; t++)
        text_format(buffer, "%12.4g GB  %s -> %s\n", candidate->traffic[t].bytes / 1e9,
                    end_name(proposal->federation, candidate->traffic[t].from),
                    end_name(proposal->federation, candidate->traffic[t].to));
}

static void text_groups(const Proposal *proposal, Buffer *buffer)
{
    const Candidate *candidate = &proposal->candidates[proposal->proposed];
    text_format(buffer, "\nits replicas:\n");
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
        text_format(buffer, "considered: every way to divide the sites whose groups links join (%d)\n",
                    proposal->count);
    else
        text_format(
            buffer,
            "considered: %d ways to divide the sites, of those that links suggest: groups joined by links of at least "
            "some speed%s\n",
            proposal->count, proposal->left_out ? ", of many speeds those between which they differ most" : "");
    bool any_short = false;
    for (int c = 0; c < proposal->count; c++) any_short |= proposal->candidates[c].why_not != NULL;
    if (!proposal->all_tried && any_short)
        text_format(buffer,
                    "and, if the model is too large for a site: sites that need each other, by the fastest links\n");
}

static void proposal_text(const Proposal *proposal, Buffer *buffer)
{
    Arena arena = {0};
    text_format(buffer, "%s: %lld trained values, %lld rows a micro-batch, %s aggregation, %lld fragment%s\n",
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
        if (best->rows_leave && proposal->keeping >= 0)
            text_format(buffer,
                        "  its groups train on rows that leave their sites; where these may not: %s, %.3g%% more time "
                        "a row\n",
                        candidate_name(&proposal->candidates[proposal->keeping], proposal->federation, &arena),
                        100 * (proposal->candidates[proposal->keeping].row_s / best->row_s - 1));
        else if (best->rows_leave)
            text_format(buffer, "  its groups train on rows that leave their sites\n");
        text_format(buffer,
                    "  a row trained apart may teach less than one of a larger common batch: not counted here\n");
        text_groups(proposal, buffer);
        if (best->traffic_count) text_links(proposal, buffer);
    } else {
        text_format(buffer, "\nproposed: none, %s\n", proposal->why);
    }
    arena_free(&arena);
}

/* ---- JSON ---- */

static const char *truth(bool value) { return value ? "true" : "false"; }

static void json_number(Buffer *buffer, const char *key, double value)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_number(buffer, value);
}

static void json_text(Buffer *buffer, const char *key, const char *value)
{
    buffer_print(buffer, ",\"%s\":", key);
    json_print_string(buffer, value);
}

static void json_names(Buffer *buffer, const Federation *federation, const GroupPlan *group)
{
    buffer_print(buffer, "[");
    for (int s = 0; s < group->site_count; s++) {
        if (s) buffer_print(buffer, ",");
        json_print_string(buffer, federation->sites[group->sites[s]].name);
    }
    buffer_print(buffer, "]");
}

static void json_group(Buffer *buffer, const Federation *federation, const GroupPlan *group)
{
    buffer_print(buffer, "{\"sites\":");
    json_names(buffer, federation, group);
    buffer_print(buffer, ",\"fits\":%s", truth(!group->why_not));
    if (group->why_not) {
        json_text(buffer, "why_not", group->why_not);
    } else {
        buffer_print(buffer, ",\"rows\":%lld,\"devices\":%d,\"used\":%d,\"proven_optimal\":%s", (long long)group->rows,
                     group->devices, group->used, truth(group->proven));
        json_number(buffer, "step_s", group->step_s);
    }
    buffer_print(buffer, "}");
}

static void json_links(Buffer *buffer, const Federation *federation, const Candidate *candidate)
{
    buffer_print(buffer, ",\"links\":[");
    for (int t = 0; t < candidate->traffic_count; t++) {
        buffer_print(buffer, "%s{\"from\":", t ? "," : "");
        json_print_string(buffer, end_name(federation, candidate->traffic[t].from));
        json_text(buffer, "to", end_name(federation, candidate->traffic[t].to));
        json_number(buffer, "bytes_per_day", candidate->traffic[t].bytes);
        buffer_print(buffer, "}");
    }
    buffer_print(buffer, "]");
}

static void json_candidate(Buffer *buffer, const Proposal *proposal, const Candidate *candidate)
{
    buffer_print(buffer, "{\"replicas\":[");
    for (int g = 0; g < candidate->grouping.count; g++) {
        if (g) buffer_print(buffer, ",");
        json_group(buffer, proposal->federation, candidate->groups[g]);
    }
    buffer_print(buffer, "],\"fits\":%s,\"rows_leave\":%s", truth(!candidate->why_not), truth(candidate->rows_leave));
    if (candidate->why_not) {
        json_text(buffer, "why_not", candidate->why_not);
    } else {
        if (candidate->steps)
            buffer_print(buffer, ",\"local_steps\":%lld", (long long)candidate->steps);
        else
            buffer_print(buffer, ",\"local_steps\":null");
        json_number(buffer, "round_s", candidate->round_s);
        json_number(buffer, "row_s", candidate->row_s);
        json_number(buffer, "meeting_share", candidate->meeting);
        json_number(buffer, "utilisation", candidate->utilisation);
        buffer_print(buffer, ",\"slowest\":%d", candidate->slowest);
        json_links(buffer, proposal->federation, candidate);
    }
    buffer_print(buffer, "}");
}

static void json_assumed(Buffer *buffer, const MeetingCosts *costs)
{
    buffer_print(buffer, ",\n \"assumed\":{\"round_trips\":%d,\"plain_phases\":%d,\"secure_phases\":%d",
                 costs->round_trips, costs->plain_phases, costs->secure_phases);
    json_number(buffer, "start_s", costs->start_s);
    json_number(buffer, "storage_Bps", costs->storage_Bps);
    json_number(buffer, "update_s_per_byte", costs->update_s);
    json_number(buffer, "mask_s_per_byte", costs->mask_s);
    json_number(buffer, "sum_s_per_byte", costs->sum_s);
    json_number(buffer, "value_bytes_up", costs->word_bytes[0]);
    json_number(buffer, "value_bytes_down", costs->word_bytes[1]);
    buffer_print(buffer, "}");
}

static void json_place(Buffer *buffer, const char *key, int place)
{
    if (place >= 0)
        buffer_print(buffer, ",\n \"%s\":%d", key, place);
    else
        buffer_print(buffer, ",\n \"%s\":null", key);
}

static void proposal_json(const Proposal *proposal, Buffer *buffer)
{
    buffer_print(buffer, "{\"format\":\"skycc.federation-plan/1\",\n \"model\":");
    json_print_string(buffer, proposal->model);
    buffer_print(
        buffer,
        ",\n \"elements\":%lld,\"microbatch_rows\":%lld,\"aggregate\":\"%s\",\"fragments\":%lld,\n \"all_tried\":%s,"
        "\"speeds_left_out\":%d",
        (long long)proposal->elements, (long long)proposal->microbatch_rows,
        proposal->rules.secure ? "secure" : "plain", (long long)proposal->rules.fragments, truth(proposal->all_tried),
        proposal->left_out);
    json_assumed(buffer, &proposal->rules.costs);
    buffer_print(buffer, ",\n \"candidates\":[");
    for (int c = 0; c < proposal->count; c++) {
        buffer_print(buffer, "%s\n  ", c ? "," : "");
        json_candidate(buffer, proposal, &proposal->candidates[c]);
    }
    buffer_print(buffer, "]");
    json_place(buffer, "proposed", proposal->proposed);
    json_place(buffer, "rows_stay", proposal->keeping);
    json_text(buffer, "why", proposal->why);
    buffer_print(buffer, "}\n");
}

void proposal_print(const Proposal *proposal, const char *form, Buffer *buffer)
{
    if (strcmp(form, "json") == 0)
        proposal_json(proposal, buffer);
    else
        proposal_text(proposal, buffer);
}
