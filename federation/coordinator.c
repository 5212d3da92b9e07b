#include "federation/coordinator.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/directory.h"
#include "base/file.h"
#include "base/text.h"
#include "federation/aggregate/fixed_point.h"
#include "federation/coded_model.h"
#include "federation/model_history.h"

static const double retry_seconds = 2, look_seconds = 1;
/* The most round timeouts that a phase may take while pieces of updates arrive. */
enum { MOST_TIMEOUTS = 4 };

static const char *name_of(const Coordinator *coordinator, int site)
{
    return coordinator->federation->sites[site].name;
}

static FragmentRange part_of(const Coordinator *coordinator)
{
    return global_model_part(&coordinator->model, coordinator->model.round, (size_t)coordinator->federation->fragments);
}

/* Drops the pieces of updates that are not complete. */
static void drop_updates(Coordinator *coordinator)
{
    for (int s = 0; s < coordinator->federation->site_count && coordinator->sites; s++)
        arriving_drop(&coordinator->sites[s].arriving);
}

static void begin_session(Coordinator *coordinator)
{
    const Federation *federation = coordinator->federation;
    FragmentRange part = part_of(coordinator);
    drop_updates(coordinator);
    sum_round_reopen(&coordinator->sum, federation->site_count, federation->least, federation->secure,
                     part.end - part.first + FIXED_POINT_TAIL_WORDS);
    sum_round_reduce(&coordinator->sum, federation_present(federation), federation->least);
    if (federation->robust) sum_round_keep(&coordinator->sum);
    coordinator->session_round = coordinator->model.round;
    coordinator->phase_since = coordinator->round_since = INFINITY;
    coordinator->piece_at = -INFINITY;
    coordinator->said_waiting = coordinator->said_no_room = false;
}

static void begin_round(Coordinator *coordinator)
{
    drop_updates(coordinator);
    coordinator_take_amendments(coordinator);
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        KnownSite *site = &coordinator->sites[s];
        site->left_out = site->silent = site->restarted = site->refuses = site->said_ended = false;
        site->refusal = NULL;
        site->metrics = (SiteMetrics){0};
    }
    coordinator->round_bytes_in = coordinator->round_bytes_out = 0;
    begin_session(coordinator);
}

/* Rounds go on without it where the disk has no room. */
static void keep_round(Coordinator *coordinator)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    if (!model_history_keep(coordinator->directory, coordinator->model.round, coordinator->federation->steering.keep,
                            &diagnostics) &&
        coordinator->console)
        diagnostics_print(&diagnostics, coordinator->console);
}

void coordinator_begin(Coordinator *coordinator, Federation *federation, GlobalModel *model, const char *directory,
                       FILE *console, FILE *log)
{
    *coordinator = (Coordinator){.federation = federation,
                                 .model = *model,
                                 .model_path = directory_join(directory, "model.safetensors"),
                                 .console = console,
                                 .log = log,
                                 .rounds = federation->rounds,
                                 .durable = true};
    *model = (GlobalModel){0};
    if (federation->model_codec != CODEC_NONE) global_model_keep_remainder(&coordinator->model);
    coordinator->sites = memory_allocate((size_t)federation->site_count * sizeof *coordinator->sites);
    coordinator_fit_counted(coordinator);
    coordinator->directory = directory;
    file_drop_retired(coordinator->model_path); /* of a process that was killed */
    keep_round(coordinator);
    begin_round(coordinator);
}

bool coordinator_open(Coordinator *coordinator, Federation *federation, const char *directory, FILE *console, FILE *log,
                      Diagnostics *diagnostics)
{
    GlobalModel model;
    FREED char *path = directory_join(directory, "model.safetensors");
    int moments = outer_moments(federation->outer.kind);
    *coordinator = (Coordinator){0};
    bool ok = global_model_open_file(&model, federation->compiled.identity, path, moments, diagnostics);
    if (ok) global_model_keep_control(&model, federation->control_variates);
    if (ok) coordinator_begin(coordinator, federation, &model, directory, console, log);
    if (!ok) global_model_free(&model);
    return ok;
}

void coordinator_free(Coordinator *coordinator)
{
    if (coordinator->federation) drop_updates(coordinator);
    sum_round_close(&coordinator->sum);
    buffer_free(&coordinator->change);
    global_model_free(&coordinator->model);
    free(coordinator->sites);
    if (coordinator->model_path) file_drop_retired(coordinator->model_path);
    free(coordinator->model_path);
    *coordinator = (Coordinator){0};
}

bool coordinator_is_done(const Coordinator *coordinator)
{
    return coordinator->durable && coordinator->model.round >= coordinator->rounds;
}

bool coordinator_is_needless(const Coordinator *coordinator)
{
    bool all = coordinator_is_done(coordinator) && !coordinator->holds;
    for (int s = 0; s < coordinator->federation->site_count; s++)
        all = all && (coordinator->sites[s].has_final || coordinator->federation->sites[s].left);
    return all;
}

size_t coordinator_largest_request(const Coordinator *coordinator)
{
    const Federation *federation = coordinator->federation;
    size_t shares = sum_shares_bytes(federation->site_count), piece = update_piece_most_bytes(federation);
    return REQUEST_HEAD + METRICS_BYTES + SUM_OFFER_BYTES + (shares > piece ? shares : piece);
}

/* ---- The end of a round ---- */

static void try_to_write(Coordinator *coordinator, double now)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    coordinator->durable = global_model_write(&coordinator->model, coordinator->model_path, &diagnostics);
    if (coordinator->durable) {
        keep_round(coordinator);
        begin_round(coordinator);
    } else {
        if (coordinator->console) diagnostics_print(&diagnostics, coordinator->console);
        coordinator_say(coordinator, "the model of round %" PRId64 " is not on disk: trying again until it is\n",
                        coordinator->model.round);
        coordinator->retry_at = now + retry_seconds;
    }
}

static void give_up_session(Coordinator *coordinator, const char *why)
{
    coordinator_say(coordinator, "round %" PRId64 " begins anew: %s\n", coordinator->model.round + 1, why);
    begin_session(coordinator);
}

/* Takes what has arrived of an update that is not whole out of the sum. False: it cannot be read, and the session
 * begins anew. */
static bool take_back_update(Coordinator *coordinator, int site)
{
    bool ok = arriving_take_back(&coordinator->sites[site].arriving, coordinator->federation, &coordinator->sum);
    if (!ok) give_up_session(coordinator, "the pieces that arrived cannot be read back");
    return ok;
}

static void end_round(Coordinator *coordinator, double now)
{
    const Federation *federation = coordinator->federation;
    SumRound *sum = &coordinator->sum;
    size_t count = sum->word_count - FIXED_POINT_TAIL_WORDS;
    int64_t weight = fixed_point_get_weight(sum->words + count);
    int sites = 0;
    if (weight < 0) {
        give_up_session(coordinator, "a site sent an invalid weight");
        return;
    }
    coordinator->evaluated = fixed_point_get_evaluation(sum->words + count + FIXED_POINT_WEIGHT_WORDS);
    for (int s = 0; s < federation->site_count; s++) sites += sum->members[s].counted;
    if (!coordinator_step(coordinator, part_of(coordinator), weight)) { /* the file keeps the last model */
        coordinator->diverged = true;
        coordinator->durable = false;
        coordinator->retry_at = INFINITY;
        return;
    }
    for (int s = 0; s < federation->site_count; s++)
        if (sum->members[s].counted) {
            coordinator->model.counted[s] = coordinator->model.round;
            coordinator->sites[s].last = coordinator->sites[s].metrics;
        }
    coordinator_report_round(coordinator, sites, weight, now);
    coordinator_report_jumps(coordinator);
    for (int s = 0; s < federation->site_count; s++) presence_note_round(coordinator, s, sum->members[s].counted);
    try_to_write(coordinator, now);
}

/* ---- Phases ---- */

static const char *const phase_names[] = {"offers", "shares", "updates", "shares that remove the masks", ""};

/* All sites of the phase have answered: starts the next phase, or says why it cannot. */
static void leave_phase(Coordinator *coordinator, double now)
{
    SumRound *sum = &coordinator->sum;
    SumProblem problem = {-1, ""};
    if (!sum_round_advance(sum, &problem)) {
        if (problem.site >= 0) {
            coordinator->sites[problem.site].left_out = true;
            coordinator_say(coordinator, "site '%s' %s: it is left out of this round\n",
                            name_of(coordinator, problem.site), problem.text);
        }
        give_up_session(coordinator, "the masks do not come out");
        return;
    }
    coordinator->phase_since = now;
    for (int s = 0; s < coordinator->federation->site_count; s++) /* late ones */
        if (!take_back_update(coordinator, s)) return;
    if (sum->phase == SUM_DONE) end_round(coordinator, now);
}

static int answers_needed(const SumRound *sum) { return sum->phase == SUM_REVEALS ? sum->threshold : sum->least; }

/* A phase goes on while pieces of updates arrive, so that slow links do not start again. */
static bool phase_is_too_long(const Coordinator *coordinator, double now)
{
    double timeout = coordinator->federation->round_timeout_s, taken = now - coordinator->phase_since;
    return taken > timeout && (now - coordinator->piece_at > timeout || taken > MOST_TIMEOUTS * timeout);
}

static bool phase_times_out(Coordinator *coordinator, int answers, double now)
{
    SumRound *sum = &coordinator->sum;
    int needed = answers_needed(sum);
    if (!phase_is_too_long(coordinator, now)) return false;
    presence_note_silent(coordinator);
    if (answers >= needed) return true;
    if (sum->phase != SUM_OFFERS) {
        char why[128];
        snprintf(why, sizeof why, "only %d of the %d sites that a sum needs sent their %s in time", answers, needed,
                 phase_names[sum->phase]);
        give_up_session(coordinator, why);
    } else if (!coordinator->said_waiting) {
        coordinator->said_waiting = true;
        for (int s = 0; s < sum->sites; s++) coordinator->sites[s].left_out = false; /* wait for these, too */
        FREED_WITH(buffer_free) Buffer absent = {0};
        presence_tell_others(coordinator, -1, &absent);
        coordinator_say(coordinator, "round %" PRId64 ": waiting for %d more of the %d sites that a sum needs%s%s\n",
                        coordinator->model.round + 1, needed - answers, needed, absent.size ? ": " : "",
                        buffer_text(&absent));
    }
    return false;
}

/* The last phase in which sites send something. */
static bool is_last_phase(const SumRound *sum) { return sum->phase == (sum->secure ? SUM_REVEALS : SUM_VALUES); }

void coordinator_tick(Coordinator *coordinator, double now)
{
    if (coordinator->observe) coordinator->observe(coordinator->observer, now);
    if (!coordinator->durable && now >= coordinator->retry_at) try_to_write(coordinator, now);
    if (coordinator->durable && coordinator->sum.phase == SUM_OFFERS && now - coordinator->looked_at > look_seconds) {
        coordinator->looked_at = now;
        if (coordinator_take_amendments(coordinator)) begin_round(coordinator);
    }
    while (coordinator->durable && !coordinator_is_done(coordinator)) {
        SumRound *sum = &coordinator->sum;
        int answers = sum_round_answers(sum), awaited = presence_awaited(coordinator), needed = answers_needed(sum);
        bool complete = answers == awaited && answers >= needed;
        if (sum->phase != SUM_OFFERS && awaited < needed) {
            give_up_session(coordinator, "too few of its sites are left");
            continue;
        }
        if (!complete && !phase_times_out(coordinator, answers, now)) return;
        if (coordinator->holds && is_last_phase(sum)) return;
        leave_phase(coordinator, now);
    }
}

/* ---- Requests ---- */

static void put(Coordinator *coordinator, ReplyKind kind, const void *payload, size_t size, Buffer *reply)
{
    /* Sites never see a model that is not on disk. */
    uint64_t round = (uint64_t)coordinator->model.round - !coordinator->durable;
    Reply message = {.kind = kind,
                     .phase = coordinator->sum.phase,
                     .round = round,
                     .branch = (uint64_t)coordinator->model.branch,
                     .rounds = (uint64_t)coordinator->rounds,
                     .payload = payload,
                     .size = size};
    memcpy(message.session, coordinator->sum.session, SESSION_BYTES);
    reply_put(reply, &message);
}

static void refuse_request(Coordinator *coordinator, int site, const char *why, Buffer *reply)
{
    KnownSite *known = &coordinator->sites[site];
    known->refused++;
    if (known->refusal != why)
        coordinator_say(coordinator, "site '%s' %s: that message is ignored\n", name_of(coordinator, site), why);
    known->refusal = why;
    put(coordinator, REPLY_REFUSED, why, strlen(why), reply);
}

/* The site was started again. Before updates are in the sum, it gets the time that a silent one gets: the round begins
 * anew with it, once, and nothing was learned. Else it is out of the session. */
static void take_back(Coordinator *coordinator, int site)
{
    SumRound *sum = &coordinator->sum;
    KnownSite *known = &coordinator->sites[site];
    bool begins = sum->secure && (sum->phase == SUM_SHARES || sum->phase == SUM_VALUES) && !known->restarted &&
                  !sum_round_has_answered(sum, site);
    sum_round_forget(sum, site);
    known->restarted |= begins;
    if (!take_back_update(coordinator, site) || !begins) return;
    char why[128];
    snprintf(why, sizeof why, "site '%s' was started again", name_of(coordinator, site));
    give_up_session(coordinator, why);
}

/* Whether it is about the round that is under way. */
static bool is_current(const Coordinator *coordinator, const Request *request)
{
    const GlobalModel *model = &coordinator->model;
    return coordinator->durable && request->round == (uint64_t)model->round &&
           request->branch == (uint64_t)model->branch;
}

/* Its site does not train on the model. */
static void note_refusal(Coordinator *coordinator, int site)
{
    KnownSite *known = &coordinator->sites[site];
    if (!known->refuses)
        coordinator_say(coordinator,
                        "warning: site '%s' refuses the model after round %" PRId64
                        ": it has collapsed on its rows. --from-round R goes back to an earlier one\n",
                        name_of(coordinator, site), coordinator->model.round);
    known->refuses = true;
}

/* Why its member ends: for people, here and at the other sites. Rounds wait for it as for any site that is silent. */
static void note_end(Coordinator *coordinator, int site, const Request *request)
{
    KnownSite *known = &coordinator->sites[site];
    presence_keep_text(known->ended, sizeof known->ended, request->payload + 1, request->size - 1);
    if (!known->said_ended)
        coordinator_say(coordinator, "site '%s' has ended: %s\n", name_of(coordinator, site), known->ended);
    known->said_ended = true;
}

static void put_wait(Coordinator *coordinator, int site, bool spared, Buffer *reply)
{
    FREED_WITH(buffer_free) Buffer told = {0};
    unsigned char rounds[REPLY_WAIT_BYTES];
    put_u64(rounds, (uint64_t)coordinator->model.counted[site]);
    rounds[8] = coordinator->durable && spared;
    buffer_append(&told, rounds, sizeof rounds);
    if (!coordinator_is_done(coordinator)) presence_tell_others(coordinator, site, &told);
    put(coordinator, REPLY_WAIT, told.bytes, told.size, reply);
}

static void answer_ask(Coordinator *coordinator, int site, const Request *request, Buffer *reply)
{
    const SumRound *sum = &coordinator->sum;
    bool current = is_current(coordinator, request);
    const char *other = NULL;
    if (request->size && request->payload[0] == ASK_ENDS) {
        note_end(coordinator, site, request);
        put_wait(coordinator, site, false, reply);
        return;
    }
    if (request->size == 1 && request->payload[0] == ASK_REFUSES && current) note_refusal(coordinator, site);
    if (request->size && request->payload[0] == ASK_OPTIONS)
        other = presence_compare_options(coordinator, site, request->payload + 1, request->size - 1);
    if (other) {
        refuse_request(coordinator, site, other, reply);
        return;
    }
    FREED_WITH(buffer_free) Buffer told = {0};
    /* A restarted site has lost its random keys. */
    if (current && sum->members[site].offered && memcmp(request->session, sum->session, SESSION_BYTES) != 0)
        take_back(coordinator, site);
    /* A site that is not drawn need not train; nor one that is after its round's offers. */
    bool spared = coordinator->federation->sample &&
                  (sum->phase == SUM_OFFERS ? !presence_is_drawn(coordinator, site) : !sum_round_is_in(sum, site));
    if (current && coordinator_is_done(coordinator)) coordinator->sites[site].has_final = true;
    if (!current || coordinator_is_done(coordinator) || coordinator->sites[site].left_out ||
        !sum_round_is_in(sum, site) || sum_round_has_answered(sum, site) || spared ||
        coordinator->sites[site].refuses) {
        put_wait(coordinator, site, spared, reply);
        return;
    }
    if (sum->phase == SUM_VALUES) {
        unsigned char pieces[UPDATE_PIECE_HEAD];
        put_u64(pieces, coordinator->sites[site].arriving.pieces);
        buffer_append(&told, pieces, sizeof pieces);
    }
    sum_round_tell(sum, site, &told);
    put(coordinator, REPLY_TELL, told.bytes, told.size, reply);
}

static bool take_metrics(Coordinator *coordinator, int site, Request *request)
{
    SiteMetrics metrics;
    if (request->phase != SUM_OFFERS) return true;
    if (!metrics_get(&metrics, request->payload, request->size)) return false;
    coordinator->sites[site].metrics = metrics;
    request->payload += METRICS_BYTES;
    request->size -= METRICS_BYTES;
    return true;
}

static void take_values(Coordinator *coordinator, int site, const Request *request, double now, Buffer *reply)
{
    SumProblem problem;
    ArrivalState state = ARRIVAL_REFUSED;
    if (sum_round_expects(&coordinator->sum, site, SUM_VALUES, &problem))
        state = arriving_take(&coordinator->sites[site].arriving, coordinator->federation, &coordinator->sum, site,
                              coordinator->model_path, request->payload, request->size, &problem);
    if (state == ARRIVAL_NO_ROOM && !coordinator->said_no_room) {
        coordinator->said_no_room = true;
        coordinator_say(coordinator, "no room on disk for updates that arrive: sites wait until there is\n");
    }
    if (state == ARRIVAL_GOES_ON || state == ARRIVAL_WHOLE) coordinator->piece_at = now;
    switch (state) {
    case ARRIVAL_REFUSED: refuse_request(coordinator, site, problem.text, reply); break;
    case ARRIVAL_NO_ROOM: put(coordinator, REPLY_WAIT, NULL, 0, reply); break;
    default: put(coordinator, REPLY_TAKEN, NULL, 0, reply);
    }
}

static void take_other(Coordinator *coordinator, int site, Request *request, double now, Buffer *reply)
{
    SumRound *sum = &coordinator->sum;
    SumProblem problem;
    SiteMetrics before = coordinator->sites[site].metrics;
    if (!take_metrics(coordinator, site, request)) {
        refuse_request(coordinator, site, "sent invalid metrics", reply);
    } else if (!sum_round_take(sum, site, request->phase, request->payload, request->size, &problem)) {
        coordinator->sites[site].metrics = before;
        refuse_request(coordinator, site, problem.text, reply);
    } else {
        if (coordinator->phase_since == INFINITY) coordinator->phase_since = now;
        if (coordinator->round_since == INFINITY) coordinator->round_since = now;
        if (request->phase == SUM_OFFERS) sum->members[site].former = coordinator->sites[site].uses_former;
        put(coordinator, REPLY_TAKEN, NULL, 0, reply);
    }
}

static void take_answer(Coordinator *coordinator, int site, Request *request, double now, Buffer *reply)
{
    if (!is_current(coordinator, request))
        refuse_request(coordinator, site, "sent an update of another round", reply);
    else if (memcmp(request->session, coordinator->sum.session, SESSION_BYTES) != 0)
        refuse_request(coordinator, site, "sent an answer of another session", reply);
    else if (coordinator->sites[site].left_out)
        refuse_request(coordinator, site, "is left out of this round", reply);
    else if (request->phase == SUM_OFFERS && !presence_is_drawn(coordinator, site))
        refuse_request(coordinator, site, "is not drawn for this round", reply);
    else if (request->phase == SUM_VALUES)
        take_values(coordinator, site, request, now, reply);
    else
        take_other(coordinator, site, request, now, reply);
}

static void give_model(Coordinator *coordinator, int site, const Request *request, Buffer *reply)
{
    const GlobalModel *model = &coordinator->model;
    if (!coordinator->durable) {
        put(coordinator, REPLY_WAIT, NULL, 0, reply);
        return;
    }
    uint64_t first = request->size == 16 ? get_u64(request->payload) : UINT64_MAX;
    uint64_t count = request->size == 16 ? get_u64(request->payload + 8) : 0;
    size_t elements = global_model_taken(model);
    if (first > elements || count > elements - first || count > MODEL_PIECE)
        refuse_request(coordinator, site, "asked for elements that the model does not have", reply);
    else
        put(coordinator, REPLY_MODEL, model->values + first, count * sizeof *model->values, reply);
}

/* A site that lags, is on another branch, or asks after a restart of this program, takes the model instead. */
static void give_change(Coordinator *coordinator, int site, const Request *request, Buffer *reply)
{
    const GlobalModel *model = &coordinator->model;
    const Federation *federation = coordinator->federation;
    if (!coordinator->durable) {
        put(coordinator, REPLY_WAIT, NULL, 0, reply);
        return;
    }
    FREED_WITH(buffer_free) Buffer told = {0};
    FragmentRange part = {0};
    bool known = coordinator->change.size && request->round + 1 == (uint64_t)model->round &&
                 request->branch == (uint64_t)model->branch;
    if (known) part = global_model_part(model, model->round - 1, (size_t)federation->fragments);
    uint64_t first = request->size == 16 ? get_u64(request->payload) - part.first : UINT64_MAX;
    uint64_t count = request->size == 16 ? get_u64(request->payload + 8) : 0;
    if (known &&
        (count > MODEL_PIECE || !coded_model_put(row_rule_down(federation), model->values + part.first,
                                                 part.end - part.first, &coordinator->change, first, count, &told)))
        refuse_request(coordinator, site, "asked for elements that did not meet", reply);
    else
        put(coordinator, REPLY_CHANGE, told.bytes, told.size, reply);
}

/* Whether the message is of the site's start that takes part; else it is answered here. */
static bool is_first_start(Coordinator *coordinator, int site, const Request *request, double now, Buffer *reply)
{
    SiteStarts *starts = &coordinator->sites[site].starts;
    SiteVerdict verdict = site_starts_judge(starts, request->place, now);
    const char *name = name_of(coordinator, site);
    if (verdict == SITE_TAKES_OVER)
        coordinator_say(coordinator, "site '%s' goes on in another place: nothing was heard from the first\n", name);
    if (verdict == SITE_TAKES_PART || verdict == SITE_TAKES_OVER) return true;
    if (verdict == SITE_TURNED_AWAY && !starts->rival_said) {
        starts->rival_said = true;
        coordinator_say(coordinator,
                        "site '%s' runs in two places: the one that came first stays, the other is turned away\n",
                        name);
    }
    put(coordinator, REPLY_TWICE, &(unsigned char){verdict == SITE_TURNED_AWAY}, 1, reply);
    return false;
}

/* Answers a request of a site of this federation. */
static void answer_request(Coordinator *coordinator, int site, Request *request, double now, Buffer *reply)
{
    KnownSite *known = &coordinator->sites[site];
    const char *refusal = NULL;
    FREED_WITH(buffer_free) Buffer amendment = {0};
    if (coordinator_amends(coordinator, site, request, &refusal, &amendment)) {
        if (refusal)
            refuse_request(coordinator, site, refusal, reply);
        else
            put(coordinator, REPLY_AMEND, amendment.bytes, amendment.size, reply);
        return;
    }
    if (!is_first_start(coordinator, site, request, now, reply)) return;
    known->ended[0] = '\0';
    if (request->kind == REQUEST_ALIVE) { /* it may be too slow nevertheless: rounds do not wait for it */
        put_wait(coordinator, site, false, reply);
        return;
    }
    known->silent = false;
    known->heard = now;
    known->returned |= presence_is_dropped(coordinator, site) && !known->tried && coordinator->sum.phase == SUM_OFFERS;
    if (request->kind == REQUEST_ASK)
        answer_ask(coordinator, site, request, reply);
    else if (request->kind == REQUEST_MODEL)
        give_model(coordinator, site, request, reply);
    else if (request->kind == REQUEST_CHANGE)
        give_change(coordinator, site, request, reply);
    else
        take_answer(coordinator, site, request, now, reply);
}

void coordinator_handle(Coordinator *coordinator, int site, const unsigned char *bytes, size_t size, double now,
                        Buffer *reply)
{
    Request request;
    size_t before = reply->size;
    if (!request_get(&request, bytes, size)) {
        bool other = message_is_of_another_version(bytes, size);
        refuse_request(coordinator, site,
                       other ? "comes from another version of skycc than the coordinator"
                             : "sent something that is not a message of a federation",
                       reply);
        if (other) reply_set_version((unsigned char *)reply->bytes + before, bytes[4]);
        return;
    }
    Traffic *traffic = &coordinator->traffic[request.kind][request.phase];
    if (hash_equal(request.federation, coordinator->federation->compiled.identity))
        answer_request(coordinator, site, &request, now, reply);
    else
        refuse_request(coordinator, site, "trains another model, or was compiled for another federation", reply);
    traffic->messages++;
    traffic->bytes_in += (int64_t)size;
    traffic->bytes_out += (int64_t)(reply->size - before);
    coordinator->round_bytes_in += (int64_t)size;
    coordinator->round_bytes_out += (int64_t)(reply->size - before);
}
