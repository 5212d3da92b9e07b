#include "federation/member/member.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input_files.h"
#include "base/owned_files.h"
#include "federation/member/late_result.h"
#include "federation/member/own_model.h"
#include "runtime/storage/checkpoint_directory.h"

enum { FAREWELLS = 2 };

/* ---- Opening ---- */

static const char *key_path(Member *member)
{
    const char *given = member->options->key, *named = getenv("SKYCC_SITE_KEY");
    return given ? given : named && *named ? named : arena_format(&member->arena, "%s.key", member_name(member));
}

static bool open_keys(Member *member, Diagnostics *diagnostics)
{
    const Federation *federation = &member->federation;
    const char *path = key_path(member);
    if (!wire_keys_read(&member->wire_keys, path, diagnostics)) return false;
    const FederationSite *site = &federation->sites[federation->compiled.site];
    member->key_path = path;
    if (strcmp(member->wire_keys.public_key, site->key) == 0 || member_key_is_amended(member)) return true;
    return (site->former_key && strcmp(member->wire_keys.public_key, site->former_key) == 0) ||
           input_error(diagnostics, path, "--key FILE names it",
                       "is not the key that federation.yaml has for site '%s'", member_name(member));
}

static bool read_federation(Member *member, Diagnostics *diagnostics)
{
    const char *path = arena_format(&member->arena, "%s/federation.yaml", member->options->directory);
    if (!federation_read_compiled(&member->federation, path, diagnostics)) return false;
    return member->federation.compiled.site >= 0 || input_error(diagnostics, path, NULL, "is not that of a site");
}

/* Stage programs write the log, long after the site joined: what they read is no place for it, and neither is what the
 * site keeps. */
static bool log_spares_others(Member *member, Diagnostics *diagnostics)
{
    const MemberOptions *options = member->options;
    if (options->data) input_files_note_path(options->data);
    if (options->eval_data) input_files_note_path(options->eval_data);
    input_files_note_path(arena_format(&member->arena, "%s/start.safetensors", options->directory));
    return !options->log || (input_files_spare(options->log, diagnostics) &&
                             owned_state_spares(options->checkpoint, options->log, diagnostics));
}

/* Stage programs hold the lock `steps` while they run. They outlive a killed member, and would then write the
 * checkpoint of an old round into the files that this member uses. */
static bool await_stages(Member *member, Diagnostics *diagnostics)
{
    const char *directory = member->options->checkpoint;
    CheckpointLock lock;
    bool said = false;
    while ((lock = checkpoint_lock(directory, "steps", &member->steps_lock, diagnostics)) == CHECKPOINT_LOCK_HELD &&
           !*member->ended) {
        if (!said)
            member_say(member, "waiting for stage programs that were started before and still write to %s", directory);
        said = true;
        usleep(100000);
    }
    return lock != CHECKPOINT_LOCK_FAILED && diagnostics->errors == 0;
}

/* Opens the parameters from the end of a round whose result was not taken yet, if there are any. */
static bool open_end(Member *member, Diagnostics *diagnostics)
{
    FREED_WITH(global_model_free) GlobalModel end = {0};
    const char *path = member_end_path(member);
    member->end_round = -1;
    if (access(path, F_OK) != 0) return true;
    if (!own_model_open(&end, &member->federation.compiled, path, diagnostics)) return false;
    member->end_round = end.round;
    member->end_step = end.step;
    return true;
}

static const char *control_path(Member *member)
{
    return arena_format(&member->arena, "%s/control.safetensors", member->options->checkpoint);
}

static const char *feedback_path(Member *member)
{
    return arena_format(&member->arena, "%s/feedback.safetensors", member->options->checkpoint);
}

/* Starts in one directory of checkpoints share their place: the lock lets one of them run. */
static uint64_t place_of(const char *checkpoint)
{
    struct {
        dev_t device;
        ino_t file;
        char boot[40];
    } place = {0};
    struct stat status;
    FREED_WITH(stream_close) FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (stat(checkpoint, &status) == 0) place.device = status.st_dev, place.file = status.st_ino;
    if (!boot || !fgets(place.boot, sizeof place.boot, boot)) gethostname(place.boot, sizeof place.boot - 1);
    return hash_bytes(&place, sizeof place).low | 1;
}

/* The global metric over all sites' rows lacks those of federations whose updates have no place for it. */
static void say_what_is_not_measured(const Member *member)
{
    const char *why = member->federation.overlap        ? "with overlap, a site has steps of its own in its model"
                      : member->federation.hide_metrics ? "hide_metrics says so"
                                                        : NULL;
    if (member->options->eval_data && why)
        member_say(
            member,
            "what --eval-data measures stays at this site: %s. evaluate: {data: FILE} in federation.yaml has the "
            "coordinator measure the global model on rows of its own",
            why);
}

bool member_open(Member *member, const MemberOptions *options, const volatile sig_atomic_t *ended,
                 Diagnostics *diagnostics)
{
    *member = (Member){.options = options, .ended = ended, .current = -1, .withheld = -1, .stage_errors = -1};
    if (!read_federation(member, diagnostics) || !open_keys(member, diagnostics) ||
        !log_spares_others(member, diagnostics) || !checkpoint_check_directory(options->checkpoint, diagnostics))
        return false;
    switch (checkpoint_lock(options->checkpoint, "member", NULL, diagnostics)) {
    case CHECKPOINT_LOCKED: break;
    case CHECKPOINT_LOCK_HELD:
        return diagnostics_error(diagnostics, EXIT_RUN_FAILED, PLACE_FILE(options->checkpoint), NULL,
                                 "is in use by another process that has joined");
    default: return diagnostics->errors == 0;
    }
    const Federation *federation = &member->federation;
    member->place = place_of(options->checkpoint);
    say_what_is_not_measured(member);
    if (!site_link_open(&member->link, federation, &member->wire_keys, ended, diagnostics)) return false;
    if (!await_stages(member, diagnostics)) return false;
    checkpoint_drop_retired(options->checkpoint); /* of a process that was killed */
    member->start_path = arena_format(&member->arena, "%s/global.safetensors", options->checkpoint);
    member->log_path = options->log ? options->log : arena_format(&member->arena, "%s/log.csv", options->checkpoint);
    bool began = access(member->start_path, F_OK) == 0;
    const char *path =
        began ? member->start_path : arena_format(&member->arena, "%s/start.safetensors", options->directory);
    if (!began && checkpoint_newest(options->checkpoint) >= 0)
        return input_error(diagnostics, options->checkpoint, "name another --checkpoint directory",
                           "holds checkpoints of a run that is not this site's of the federation");
    if (!own_model_open(&member->start, &federation->compiled, path, diagnostics)) return false;
    tied_names_read(&member->tied, &member->start);
    global_model_keep_control(&member->start, federation->control_variates);
    if (!federation->control_variates)
        unlink(control_path(member)); /* what a federation before this one had */
    else if (began &&
             !control_variates_open(&member->control, &member->start, federation, control_path(member), diagnostics))
        return false;
    if (began && member_is_coded(member) &&
        !feedback_open(&member->feedback, federation, feedback_path(member), diagnostics))
        return false;
    if (federation->overlap && !open_end(member, diagnostics)) return false;
    path = arena_format(&member->arena, "%s/noise.seed", options->checkpoint);
    return !(federation->privacy.clip > 0) || noise_seed_open(&member->noise_seed, began, path, diagnostics);
}

void member_free(Member *member)
{
    site_link_close(&member->link);
    wire_keys_forget(&member->wire_keys);
    explicit_bzero(&member->keys, sizeof member->keys);
    explicit_bzero(&member->noise_seed, sizeof member->noise_seed);
    arena_free(&member->tied.arena);
    feedback_free(&member->feedback);
    buffer_free(&member->spoilt);
    buffer_free(&member->stage_line);
    free(member->stage_options);
    buffer_free(&member->reason);
    buffer_free(&member->news);
    control_variates_free(&member->control);
    free(member->early);
    free(member->update);
    if (member->options) checkpoint_drop_retired(member->options->checkpoint);
    global_model_free(&member->start);
    federation_free(&member->federation);
    arena_free(&member->arena);
}

/* ---- Requests ---- */

/* Asks until there is an answer which round it is; with `refuses`, tells that this site does not take its model. False:
 * refused (reported) or ended. */
static bool learn_round(Member *member, bool refuses, Diagnostics *diagnostics)
{
    FREED_WITH(buffer_free) Buffer told = {0}, bytes = {0};
    buffer_append(&told, &(unsigned char){refuses ? ASK_REFUSES : ASK_OPTIONS}, 1);
    if (!refuses) member_list_options(member, &told);
    Request request = {.kind = REQUEST_ASK,
                       .federation = member->federation.compiled.identity,
                       .round = refuses ? (uint64_t)member->start.round : ROUND_NONE,
                       .payload = (const unsigned char *)told.bytes,
                       .size = told.size};
    Reply reply;
    int pause = MEMBER_FIRST_PAUSE_MS;
    bool got = false, ok = true;
    while (!got && !*member->ended && ok) {
        got = member_ask(member, &request, &bytes, &reply);
        if (!got) member_pause(&pause);
        if (got && (reply.kind == REPLY_REFUSED || reply.kind == REPLY_TWICE))
            ok = member_refused(member, &reply, diagnostics);
        if (got) member_hear(member, &reply);
        if (got) member->counted = reply_counted(&reply);
        if (got) member->spared = reply_spares(&reply);
    }
    return got && ok;
}

/* ---- Taking the model ---- */

/* What updates leave at a site begins with the model that it has taken. */
static bool begin_remainders(Member *member, Diagnostics *diagnostics)
{
    const char *path = feedback_path(member);
    if (member->start.control)
        return control_variates_begin(&member->control, &member->start, &member->federation, control_path(member),
                                      diagnostics);
    if (!member_is_coded(member)) return true;
    feedback_free(&member->feedback);
    return feedback_begin(&member->start, path, diagnostics) &&
           feedback_open(&member->feedback, &member->federation, path, diagnostics);
}

/* member->start is the model; the checkpoint has steps after the end of the round that led to it. */
static bool take_late(Member *member, int64_t step, FragmentRange part, Diagnostics *diagnostics)
{
    FREED_WITH(global_model_free) GlobalModel end = {0};
    return own_model_open(&end, &member->federation.compiled, member_end_path(member), diagnostics) &&
           late_result_take(member->options->checkpoint, step, &member->federation, &member->start, &end, part,
                            &member->tied, diagnostics);
}

/* The coordinator has gone back to an earlier round: takes its model, without what this site's steps have led to. Those
 * that no other step depends on go first, so that a site that is killed goes back again. */
static bool go_back(Member *member, int64_t step, Diagnostics *diagnostics)
{
    GlobalModel *start = &member->start;
    FragmentRange whole = {0, global_model_taken(start)};
    int64_t round = member->current;
    member_say(member,
               "the coordinator has gone back to the model after round %" PRId64
               ": this site takes it and drops its optimiser's state",
               round);
    member_train_stop(member); /* they have that state */
    free(member->early);
    member->early = NULL;
    member->end_round = -1;
    unlink(member_end_path(member));
    unlink(arena_format(&member->arena, "%s/last-step", member->options->checkpoint));
    if (!member_fetch(member, &whole, start->values, &round, diagnostics)) return false;
    global_model_note_met(start, whole, true);
    start->round = round;
    start->branch = member->branch;
    start->step = step;
    return begin_remainders(member, diagnostics) &&
           site_checkpoint_restart(member->options->checkpoint, step, start, &member->tied, diagnostics) &&
           global_model_write(start, member->start_path, diagnostics);
}

/* Goes on with the coordinator's model from the checkpoint of `step` (-1: makes the first one). That is the round's
 * fragment, or the whole model after missed rounds. */
static bool take_model(Member *member, int64_t step, CheckpointManifest first, Diagnostics *diagnostics)
{
    const MemberOptions *options = member->options;
    GlobalModel *start = &member->start;
    int64_t round = member->current;
    FragmentRange part = global_model_part(start, start->round, (size_t)member->federation.fragments);
    FragmentRange whole = {0, global_model_taken(start)};
    if (step >= 0 && member->branch != start->branch) return go_back(member, step, diagnostics);
    if (step < 0 || round != start->round + 1) part = whole;
    bool has_it = round == start->round && member->branch == start->branch;
    if (!has_it && !member_take_values(member, &part, &round, diagnostics)) return false;
    if (step >= 0 && member->branch != start->branch) return go_back(member, step, diagnostics); /* meanwhile */
    if (round > member->current && part.end - part.first < whole.end) { /* the fragment of one round, of two */
        member->current = round;
        part = whole;
        if (!member_fetch(member, &part, start->values, &round, diagnostics)) return false;
    }
    bool is_late = member_has_end(member) && step > member->end_step && round == start->round + 1;
    global_model_note_met(start, part, start->step != step);
    member->current = start->round = round;
    start->branch = member->branch;
    start->step = step < 0 ? 0 : is_late ? member->end_step : step;
    if (is_late)
        return take_late(member, step, part, diagnostics) && global_model_write(start, member->start_path, diagnostics);
    if (step < 0) /* first, because the model shows that checkpoints are this federation's */
        return begin_remainders(member, diagnostics) && global_model_write(start, member->start_path, diagnostics) &&
               site_checkpoint_begin(options->checkpoint, &member->federation, start, &member->tied, first,
                                     diagnostics);
    if (start->control && !control_variates_follow(&member->control, start, &member->federation, diagnostics))
        return false;
    bool writes = !member_stages_live(member) || round >= member->rounds; /* the last one, for who reads checkpoints */
    return (!writes || site_checkpoint_exchange(options->checkpoint, step, start, whole, &member->tied, diagnostics)) &&
           global_model_write(start, member->start_path, diagnostics);
}

static bool count_rows(const char *path, int64_t *rows, Diagnostics *diagnostics)
{
    FREED_WITH(safetensors_close) SafeTensors file = {0};
    if (!safetensors_open(&file, path, diagnostics)) return false;
    for (size_t i = 0; i < file.count; i++)
        if (file.tensors[i].shape.rank > 0) *rows = file.tensors[i].shape.dim[0];
    return true;
}

/* Makes the first checkpoint if there is none. */
static bool begin(Member *member, Diagnostics *diagnostics)
{
    const MemberOptions *options = member->options;
    CheckpointManifest first = {.seed = options->seed, .shuffled = !options->no_shuffle};
    if (checkpoint_newest(options->checkpoint) >= 0) return true;
    return (!options->data || count_rows(options->data, &first.rows, diagnostics)) &&
           take_model(member, -1, first, diagnostics);
}

/* ---- Rounds ---- */

/* Tells the coordinator that this site has the last model, so that the coordinator can end; hears where it is. Repeats
 * that if it does not answer, because it may be restarting. It does not matter if it has ended already. */
static int say_farewell(Member *member)
{
    Request request = {.kind = REQUEST_ASK,
                       .federation = member->federation.compiled.identity,
                       .round = (uint64_t)member->start.round};
    FREED_WITH(buffer_free) Buffer bytes = {0};
    Reply reply;
    member->told_waiting = true;
    bool heard = false;
    for (int times = 0; times < FAREWELLS && !heard && !*member->ended; times++) {
        member->told_waiting = true;
        heard = member_ask(member, &request, &bytes, &reply);
    }
    if (heard && reply.kind == REPLY_WAIT) member_hear(member, &reply);
    return *member->ended ? 128 + *member->ended : EXIT_OK;
}

/* With overlap, writes where the round's steps ended to disk before the next steps. */
static bool note_end(Member *member, int64_t step, Diagnostics *diagnostics)
{
    if (!member->federation.overlap || member_has_end(member)) return true;
    if (!round_end_write(member_end_path(member), member->options->checkpoint, step, &member->federation,
                         &member->start, diagnostics))
        return false;
    member->end_round = member->start.round;
    member->end_step = step;
    return true;
}

/* Waits while the coordinator's round goes without this site. */
static bool await_draw(Member *member, Diagnostics *diagnostics)
{
    int pause = MEMBER_FIRST_PAUSE_MS;
    if (!member->federation.sample) return true;
    bool ok = learn_round(member, false, diagnostics); /* what it knows is of the round before */
    if (ok && member->spared && member_is_current(member))
        member_say(member, "round %" PRId64 " is made without this site: waiting for the next one",
                   member->current + 1);
    while (ok && member->spared && member_is_current(member) && member->rounds > member->current && !*member->ended) {
        member_pause(&pause);
        ok = learn_round(member, false, diagnostics);
    }
    return ok && !*member->ended;
}

/* The step up to which to train during the meeting, and at least before taking its result; -1: none. No steps follow
 * the last round, and a site that has missed rounds starts again. */
static int64_t ahead_until(const Member *member)
{
    const Federation *federation = &member->federation;
    int64_t next = member->start.round + 1;
    return member_has_end(member) && next < member->rounds && member->current <= next
               ? member->end_step + federation->overlap
               : -1;
}

/* Runs the round's meeting, if it is not over, and steps at the same time. *step becomes that of the newest checkpoint.
 */
static int meet_and_train(Member *member, bool is_current, int64_t *step, Diagnostics *diagnostics)
{
    int64_t ahead = ahead_until(member), end = member_has_end(member) ? member->end_step : *step;
    bool trains = *step < ahead;
    pid_t child = trains ? member_train_begin(member, ahead) : 0;
    bool ok = !is_current || member_join_round(member, end, diagnostics);
    if (trains) {
        ok = ok && member_fetch_early(member, diagnostics);
        int code = member_train_end(member, child, ok ? MEMBER_NO_DEADLINE : MEMBER_AT_ONCE, diagnostics);
        *step = checkpoint_newest(member->options->checkpoint);
        if (ok && (code != EXIT_OK || *member->ended)) return code;
        if (ok && *step != ahead) return EXIT_RUN_FAILED;
    }
    ok = ok && member_keep_update(member, end, diagnostics);
    ok = ok && (!trains || learn_round(member, false, diagnostics)); /* rounds go on without slow sites */
    ok = ok && take_model(member, *step, (CheckpointManifest){0}, diagnostics);
    return ok ? EXIT_OK : *member->ended ? 128 + *member->ended : diagnostics->exit_code;
}

/* Waits while the coordinator has nothing but the model that this site does not take. */
static bool await_another_model(Member *member, Diagnostics *diagnostics)
{
    int pause = MEMBER_FIRST_PAUSE_MS;
    bool ok = learn_round(member, true, diagnostics);
    while (ok && member_is_current(member) && member->rounds > member->current && !*member->ended) {
        member_pause(&pause);
        ok = learn_round(member, true, diagnostics);
    }
    return ok && !*member->ended;
}

/* Local steps, where the round is still on and has not been trained for; then the meeting. */
static int make_round(Member *member, Diagnostics *diagnostics)
{
    const char *checkpoint = member->options->checkpoint;
    int64_t step = checkpoint_newest(checkpoint);
    int64_t until = member->start.step + member->federation.local_steps;
    bool ok = await_draw(member, diagnostics), is_current = member_is_current(member) && !member->spared;
    if (step < 0) return input_error(diagnostics, checkpoint, NULL, "has lost its checkpoints"), diagnostics->exit_code;
    if (ok && is_current && member->rounds > member->current && !member_steps_are_made(member, step, until)) {
        int code = member_make_steps(member, until, &step, diagnostics);
        if (code != EXIT_OK || *member->ended) return code;
        ok = learn_round(member, false, diagnostics); /* rounds go on without slow sites */
        is_current = member_is_current(member) && !member->spared;
    }
    if (ok && is_current && !member_judge_model(member, diagnostics)) {
        ok = diagnostics->errors == 0 && await_another_model(member, diagnostics);
        is_current = false;
    }
    if (ok && member_is_current(member) && member->rounds <= member->current) return EXIT_OK;
    ok = ok && (!is_current || note_end(member, step, diagnostics));
    if (ok) return meet_and_train(member, is_current, &step, diagnostics);
    return *member->ended ? 128 + *member->ended : diagnostics->exit_code;
}

static int make_rounds(Member *member, Diagnostics *diagnostics)
{
    member->rounds = member->federation.rounds;
    member->branch = member->start.branch;
    member->current = member->start.round;
    if (member->start.round >= member->rounds) {
        int code = say_farewell(member);
        if (code != EXIT_OK || member_is_current(member)) return code; /* else it has gone back */
    }
    bool ok = learn_round(member, false, diagnostics) && begin(member, diagnostics);
    while (ok && !*member->ended && (!member_is_current(member) || member->start.round < member->rounds)) {
        int code = make_round(member, diagnostics);
        if (code != EXIT_OK) return code;
    }
    if (ok) return say_farewell(member);
    return *member->ended ? 128 + *member->ended : diagnostics->exit_code;
}

int member_run(Member *member, Diagnostics *diagnostics)
{
    int code = make_rounds(member, diagnostics);
    member_train_stop(member);
    return code;
}
