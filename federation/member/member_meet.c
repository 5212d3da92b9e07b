/* A site's meetings: its update, from the end of the round's steps, and the messages until the round is over. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/member/member.h"
#include "federation/member/own_model.h"
#include "federation/member/protection.h"
#include "runtime/storage/checkpoint_directory.h"
#include "runtime/storage/checkpoint_manifest.h"

static bool not_finite(int64_t round, Diagnostics *diagnostics)
{
    return diagnostics_error(diagnostics, EXIT_DIVERGED, PLACE_NONE, "a lower --lr, --warmup or --clip may help",
                             "the update of round %" PRId64 " is not finite: nothing of it is sent", round + 1);
}

static FragmentRange part_of(const Member *member)
{
    return global_model_part(&member->start, member->start.round, (size_t)member->federation.fragments);
}

/* Start minus end of the round's local steps. */
static bool read_change(Member *member, int64_t step, float *values, Diagnostics *diagnostics)
{
    const Federation *federation = &member->federation;
    const char *checkpoint = member->options->checkpoint;
    FREED_WITH(global_model_free) GlobalModel end = {0};
    if (!member_has_end(member))
        return site_checkpoint_read(checkpoint, step, member->stages != 0, federation, &member->start, true, values,
                                    diagnostics);
    if (!own_model_open(&end, &federation->compiled, member_end_path(member), diagnostics)) return false;
    for (size_t i = 0; i < end.elements; i++) values[i] = member->start.values[i] - end.values[i];
    return true;
}

/* Start minus end of the round's fragment, at its place in `values`, clipped and coded if the federation does that;
 * then the change of control variates. Depends only on the checkpoint. */
static bool make_update(Member *member, int64_t step, float *values, Diagnostics *diagnostics)
{
    const Federation *federation = &member->federation;
    const GlobalModel *start = &member->start;
    FragmentRange part = part_of(member);
    if (!read_change(member, step, values, diagnostics)) return false;
    if (start->control) {
        CheckpointManifest manifest;
        if (!checkpoint_read_manifest(&manifest, member->options->checkpoint, step, diagnostics)) return false;
        free(manifest.files);
        control_variates_change(values, start, manifest.rates);
    }
    if (member_is_coded(member))
        return feedback_code(&member->feedback, values + part.first, part, start->round, federation->clip_update) ||
               not_finite(start->round, diagnostics);
    return !(federation->clip_update > 0) ||
           isfinite(update_clip(values + part.first, part.end - part.first, federation->clip_update)) ||
           not_finite(start->round, diagnostics);
}

/* How many rows the steps after `from` up to `to` were made with: what is left of an epoch is a smaller batch. */
static int64_t rows_between(const Member *member, int64_t from, int64_t to)
{
    int64_t batch = member->federation.sites[member->federation.compiled.site].rows_per_step;
    const char *checkpoint = member->options->checkpoint;
    int64_t newest = checkpoint_newest(checkpoint); /* with overlap after `to` */
    CheckpointManifest manifest = {0};
    FREED_WITH(diagnostics_free) Diagnostics unread = {0};
    bool ok = newest >= to && checkpoint_read_manifest(&manifest, checkpoint, newest, &unread) && manifest.rows > 0;
    int64_t rows = ok ? data_order_rows_before(manifest.cursor, manifest.rows, batch, newest - from) -
                            data_order_rows_before(manifest.cursor, manifest.rows, batch, newest - to)
                      : (to - from) * batch;
    free(manifest.files);
    return rows;
}

/* This site's report of its round, with noise if the federation adds it. */
static bool open_meeting(Member *member, Meeting *meeting, int64_t step, float *values, Diagnostics *diagnostics)
{
    const Federation *federation = &member->federation;
    const GlobalModel *start = &member->start;
    FragmentRange part = part_of(member);
    size_t count = part.end - part.first;
    float *update = values + part.first;
    if (!make_update(member, step, values, diagnostics)) return false;
    int64_t rows = rows_between(member, start->step, step), weight = rows;
    bool is_private = federation->privacy.clip > 0;
    if (is_private) {
        if (!update_protect(update, count, federation, &member->noise_seed, start->round))
            return not_finite(start->round, diagnostics);
        weight = 1; /* the noise hides only equal weights */
    }
    if (!meeting_keys(&member->keys, &member->wire_keys, federation, start->round))
        bug("keys were checked when they were read");
    if (!meeting_open(meeting, federation, &member->keys, start->round, update, count, weight))
        return not_finite(start->round, diagnostics);
    if (member_is_coded(member)) meeting->coded = &member->feedback.bytes;
    if (is_private) meeting->exponent = protected_exponent(federation);
    meeting->exchange = site_link_exchange;
    meeting->context = &member->link;
    meeting->place = member->place;
    meeting->branch = start->branch;
    if (!federation->hide_metrics) {
        meeting->metrics = (SiteMetrics){.has_rows = true, .rows = rows};
        meeting->metrics.has_loss = member_mean_loss(member->log_path, start->step, step, &meeting->metrics.loss);
        meeting->evaluation = member->evaluation.rows;
    }
    return true;
}

static const char *who(const Member *member, int site)
{
    return site < 0 ? "the coordinator" : member->federation.sites[site].name;
}

/* Takes an amendment, or another key, instead of which the coordinator refuses to go on. False: that does not help. */
static bool settle(Member *member, Meeting *meeting, Diagnostics *diagnostics)
{
    Reply reply = meeting->said;
    meeting_forget_session(meeting);
    if (!member_is_amended_by(member, &reply)) return !*member->ended && member_refused(member, &reply, diagnostics);
    if (!meeting_keys(&member->keys, &member->wire_keys, &member->federation, meeting->round))
        bug("keys were checked when they were read");
    return true;
}

/* Runs until the round has ended. False: refused or ended. */
static bool meet(Member *member, Meeting *meeting, Diagnostics *diagnostics)
{
    int pause = MEMBER_FIRST_PAUSE_MS;
    const char *said = NULL;
    for (MeetingState state = MEETING_GOES_ON; state != MEETING_OVER && !*member->ended;) {
        state = meeting_step(meeting);
        member_hear(member, &meeting->said);
        if (state == MEETING_AMENDED || (state == MEETING_REFUSED && meeting->said.kind == REPLY_REFUSED)) {
            if (!settle(member, meeting, diagnostics)) return false;
            state = MEETING_GOES_ON;
        }
        if (state == MEETING_REFUSED)
            return diagnostics_error(diagnostics, EXIT_RUN_FAILED, (Place){.object = member_name(member)},
                                     meeting->hint, "the coordinator %s", meeting->problem.text);
        if (meeting->problem.text && meeting->problem.text != said)
            member_say(member, "%s %s", who(member, meeting->problem.site), meeting->problem.text);
        said = meeting->problem.text;
        if (state == MEETING_GOES_ON) pause = MEMBER_FIRST_PAUSE_MS;
        /* While the coordinator computes. */
        if (state != MEETING_OVER && meeting->has_answered && meeting->answered == SUM_VALUES &&
            member_is_coded(member) &&
            !feedback_prepare(&member->feedback, part_of(member), meeting->round + 1, diagnostics))
            return false;
        if (state == MEETING_WAITS) member_pause(&pause);
    }
    return !*member->ended;
}

/* The site's own line of a round. */
static void say_round(const Member *member, int64_t step, double seconds, bool in)
{
    const GlobalModel *start = &member->start;
    const OwnEvaluation *own = &member->evaluation;
    FREED_WITH(buffer_free) Buffer line = {0};
    double loss;
    buffer_print(&line, "round %" PRId64 " of %" PRId64 ": %" PRId64 " steps", start->round + 1, member->rounds,
                 step - start->step);
    if (member_mean_loss(member->log_path, start->step, step, &loss)) buffer_print(&line, ", loss %.4f", loss);
    if (own->rows.rows)
        buffer_print(&line, "; the model before them on %" PRId64 " held-out rows: loss %.4f", own->rows.rows,
                     own->rows.loss);
    if (own->rows.right_of) buffer_print(&line, ", accuracy %.4f", own->rows.accuracy);
    buffer_print(&line, "; %s; %.1f s in the meeting", in ? "in the sum" : "ended without this site", seconds);
    member_say(member, "%s", buffer_text(&line));
}

/* Kept between rounds: new memory costs more than what is done with it. */
static float *room_for_update(Member *member)
{
    if (!member->update) member->update = memory_allocate(global_model_taken(&member->start) * sizeof *member->update);
    return member->update;
}

bool member_join_round(Member *member, int64_t step, Diagnostics *diagnostics)
{
    Meeting meeting = {0};
    double since = monotonic_seconds();
    float *values = room_for_update(member);
    int64_t round = member->start.round;
    bool ok = open_meeting(member, &meeting, step, values, diagnostics) && meet(member, &meeting, diagnostics);
    bool in = meeting.counted > round;
    member->counted = meeting.counted;
    meeting_close(&meeting);
    if (ok && member->branch == member->start.branch && member->rounds > round)
        say_round(member, step, monotonic_seconds() - since, in);
    return ok;
}

bool member_keep_update(Member *member, int64_t step, Diagnostics *diagnostics)
{
    int64_t next = member->start.round + 1;
    Feedback *feedback = &member->feedback;
    bool ok = true, controlled = member->start.control && member->control.own.round != next;
    bool coded = member_is_coded(member) && feedback->left.round != next;
    if (member->counted != next || !(controlled || coded)) return true;
    if (controlled || !feedback->next || feedback->made_for != member->start.round) { /* else it was just made */
        float *values = room_for_update(member);
        ok = make_update(member, step, values, diagnostics) &&
             (!controlled || control_variates_keep(&member->control, values, &member->federation, next, diagnostics));
    }
    return ok && (!coded || feedback_keep(feedback, part_of(member), next, diagnostics));
}

/* Forgets what was measured on another file than --eval-data names now: a model is not worse for that. */
static void forget_other_rows(Member *member, const char *evaluations)
{
    const char *note = arena_format(&member->arena, "%s/evaluation-data", member->options->checkpoint);
    if (!member->options->eval_data) return;
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    FileCard now = member_file_card(member->options->eval_data), before = {""};
    if (!*now.line) return;
    FREED_WITH(stream_close) FILE *file = fopen(note, "re");
    bool known = file && fgets(before.line, sizeof before.line, file);
    if (known && strcmp(before.line, now.line) != 0) unlink(evaluations);
    if (strcmp(before.line, now.line) != 0) file_write_all(note, now.line, strlen(now.line), &unsaid);
}

bool member_judge_model(Member *member, Diagnostics *diagnostics)
{
    const char *checkpoint = member->options->checkpoint;
    OwnEvaluation *own = &member->evaluation;
    const GlobalModel *start = &member->start;
    double loss = NAN;
    if (member->federation.overlap) return true;
    if (!member_mean_loss(member->log_path, start->step, start->step + 1, &loss)) loss = NAN;
    const char *evaluations = arena_format(&member->arena, "%s/evaluations.csv", checkpoint);
    forget_other_rows(member, evaluations);
    if (!own_evaluation_read(own, evaluations, member_first_path(member), loss, start->round, diagnostics))
        return false;
    const char *good = arena_format(&member->arena, "%s/good.safetensors", checkpoint);
    const char *unfinished = arena_format(&member->arena, "%s.unfinished", good);
    if (own->collapsed) {
        member_say(member,
                   "the global model after round %lld is of no use for this site's rows: its loss is %.4g. This site "
                   "does not train on it and waits for another one; the last good one is in %s. skycc coordinate DIR "
                   "--from-round R goes back to an earlier round",
                   (long long)start->round, own->loss, good);
        return false;
    }
    unlink(unfinished);
    if (link(member->start_path, unfinished) == 0) rename(unfinished, good);
    unlink(unfinished);
    return true;
}
