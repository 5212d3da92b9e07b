#include "driver/coordinate/status_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/input_files.h"
#include "base/json_writer.h"
#include "base/live_file.h"
#include "base/order.h"
#include "driver/plot/plot_drawing.h"
#include "partitioner/report/report_drawing.h"
#include "partitioner/report/report_style.h"

static const double often = 0.5, seldom = 5; /* seconds between two writings */

/* What both files show. */
typedef struct Status {
    const Coordinator *coordinator;
    const Evaluations *evaluations;
    bool ends;
    double now;
    double round_s, since; /* from one round's end to the next, the median; since the last one. NAN: not known yet */
    double bytes_in, bytes_out;
    bool logged; /* `rounds` has a loss */
    PlotLog rounds;
    Buffer *text;
} Status;

/* ---- What is known ---- */

/* The log's columns 5 and 6 are bytes in and out. */
static void count_bytes(Status *status, const char *log)
{
    FILE *file = fopen(log, "re");
    FREED char *line = NULL;
    size_t capacity = 0;
    double in, out;
    while (file && getline(&line, &capacity, file) > 0) {
        char *at = line;
        for (int column = 0; at && column < 4; column++) at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
        if (!at || sscanf(at, "%lf,%lf", &in, &out) != 2) continue;
        status->bytes_in += in;
        status->bytes_out += out;
    }
    if (file) fclose(file);
}

static void time_rounds(Status *status, const StatusPage *page)
{
    double seconds[STATUS_TIMED_ROUNDS];
    int here = page->rounds_seen < STATUS_TIMED_ROUNDS ? page->rounds_seen : STATUS_TIMED_ROUNDS, count = 0;
    for (int i = page->rounds_seen - here + 1; i < page->rounds_seen; i++)
        seconds[count++] = page->ended[i % STATUS_TIMED_ROUNDS] - page->ended[(i - 1) % STATUS_TIMED_ROUNDS];
    status->round_s = median(seconds, (size_t)count);
    status->since = here ? status->now - page->ended[(page->rounds_seen - 1) % STATUS_TIMED_ROUNDS] : NAN;
}

/* A pipe would be waited for, and what is in it belongs to another reader. */
static void read_log(Status *status, const char *log)
{
    FREED_WITH(diagnostics_free) Diagnostics ignored = {0};
    struct stat found;
    if (stat(log, &found) != 0 || !S_ISREG(found.st_mode)) return;
    count_bytes(status, log);
    status->logged = plot_log_read(&status->rounds, log, &ignored);
    input_files_release_path(log);
}

/* In one of the words that status.json has for it; `text` becomes the same for people. */
static const char *state_of(const Status *status, int s, char text[static PRESENCE_TEXT])
{
    static const char *const sent[] = {"has met, and waits for the others", "has sent its shares",
                                       "has sent its update", "has sent its shares", "has met"};
    const Coordinator *coordinator = status->coordinator;
    const KnownSite *site = &coordinator->sites[s];
    const SumRound *sum = &coordinator->sum;
    bool in = sum_round_is_in(sum, s), answered = sum_round_has_answered(sum, s);
    const char *word = "training", *said = "trains", *absence = presence_absence(coordinator, s, text);
    if (coordinator->federation->sites[s].left)
        word = "removed", said = "left";
    else if (coordinator_is_done(coordinator))
        word = site->has_final ? "done" : "lacks-model", said = site->has_final ? "done" : "lacks the last model";
    else if (absence)
        return absence;
    else if (site->heard <= 0)
        word = "unknown", said = "not heard of yet";
    else if (in && answered)
        word = "met", said = sent[sum->phase];
    else if (sum->phase == SUM_OFFERS && !presence_is_drawn(coordinator, s))
        word = "not-drawn", said = "not drawn for this round";
    else if (sum->phase != SUM_OFFERS)
        word = in ? "meeting" : "missed", said = in ? "in the meeting" : "came too late for this round";
    snprintf(text, PRESENCE_TEXT, "%s", said);
    return word;
}

static const char *state_words(const Status *status)
{
    const Coordinator *coordinator = status->coordinator;
    if (coordinator->diverged) return "Ended: a model that is not finite";
    if (coordinator_is_done(coordinator))
        return coordinator->rounds < coordinator->federation->rounds ? "Finished early: no later round was better"
                                                                     : "Finished";
    return status->ends                ? "Stopped: skycc coordinate goes on"
           : coordinator->said_waiting ? "Waiting for sites"
                                       : "Running";
}

/* Seconds until the round that is under way, and the last one, may end; NAN: not known. */
static double seconds_left(const Status *status, int64_t rounds)
{
    const Coordinator *coordinator = status->coordinator;
    if (coordinator_is_done(coordinator) || status->ends || coordinator->said_waiting) return NAN;
    return fmax(status->round_s * (double)rounds - status->since, 0);
}

static double epsilon_now(const Status *status)
{
    const FederationPrivacy *privacy = &status->coordinator->federation->privacy;
    return privacy->clip > 0 ? coordinator_epsilon(status->coordinator) : NAN;
}

/* ---- For other tools ---- */

static void add_known(JsonWriter *json, const char *key, double value)
{
    if (isfinite(value))
        json_add_number(json, key, value);
    else
        json_add_null(json, key);
}

static void print_site_json(const Status *status, JsonWriter *json, int s)
{
    const KnownSite *site = &status->coordinator->sites[s];
    char text[PRESENCE_TEXT];
    json_open(json, NULL, '{');
    json_add_string(json, "name", status->coordinator->federation->sites[s].name);
    json_add_string(json, "state", state_of(status, s, text));
    json_add_string(json, "said", text);
    json_add_integer(json, "last_round", status->coordinator->model.counted[s]);
    json_add_integer(json, "joined", status->coordinator->federation->sites[s].joined); /* rounds; 0: never */
    json_add_integer(json, "left", status->coordinator->federation->sites[s].left);
    json_add_integer(json, "rekeyed", status->coordinator->federation->sites[s].rekeyed);
    json_add_integer(json, "missed", site->missed);
    add_known(json, "loss", site->last.has_loss ? site->last.loss : NAN);
    add_known(json, "rows", site->last.has_rows ? (double)site->last.rows : NAN);
    add_known(json, "heard_s_ago", site->heard > 0 ? status->now - site->heard : NAN);
    json_add_integer(json, "refused", site->refused);
    json_add_string(json, "refusal", site->refusal);
    json_add_string(json, "warning", *site->warning ? site->warning : NULL);
    json_close(json, '}');
}

static void print_evaluation_json(JsonWriter *json, const char *key, const Evaluation *evaluation)
{
    json_open(json, key, '{');
    json_add_integer(json, "round", evaluation->round);
    for (int m = 0; m < EVALUATION_METRICS; m++)
        if (!isnan(evaluation->values[m])) json_add_number(json, evaluation_metrics[m], evaluation->values[m]);
    json_close(json, '}');
}

static void print_json(const Status *status)
{
    const Coordinator *coordinator = status->coordinator;
    const Evaluations *evaluations = status->evaluations;
    JsonWriter json = {.buffer = status->text, .indent = 1};
    json_open(&json, NULL, '{');
    json_add_string(&json, "format", "skycc.federation-status/1");
    json_add_string(&json, "state", state_words(status));
    json_add_integer(&json, "round", coordinator->model.round);
    json_add_integer(&json, "rounds", coordinator->rounds);
    json_add_integer(&json, "branch", coordinator->model.branch);
    add_known(&json, "round_s", status->round_s);
    add_known(&json, "next_round_s", seconds_left(status, 1));
    add_known(&json, "end_s", seconds_left(status, coordinator->rounds - coordinator->model.round));
    json_add_number(&json, "bytes_in", status->bytes_in);
    json_add_number(&json, "bytes_out", status->bytes_out);
    add_known(&json, "epsilon", epsilon_now(status));
    if (evaluations->count)
        print_evaluation_json(&json, "best", &evaluations->items[evaluations->best]);
    else
        json_add_null(&json, "best");
    if (evaluations->averaged.round) print_evaluation_json(&json, "averaged", &evaluations->averaged);
    json_open(&json, "sites_evaluation", '{'); /* of the model before the last round */
    json_add_integer(&json, "rows", coordinator->evaluated.rows);
    add_known(&json, "loss", coordinator->evaluated.rows ? coordinator->evaluated.loss : NAN);
    add_known(&json, "accuracy", coordinator->evaluated.right_of ? coordinator->evaluated.accuracy : NAN);
    json_close(&json, '}');
    json_open(&json, "evaluations", '[');
    for (size_t i = 0; i < evaluations->count; i++) print_evaluation_json(&json, NULL, &evaluations->items[i]);
    json_close(&json, ']');
    json_open(&json, "sites", '[');
    for (int s = 0; s < coordinator->federation->site_count; s++) print_site_json(status, &json, s);
    json_close(&json, ']');
    json_close(&json, '}');
    buffer_print(status->text, "\n");
}

/* ---- For people ---- */

static void print_time(const Status *status, const char *name, double seconds)
{
    if (!isfinite(seconds)) return;
    if (seconds < 60)
        drawing_fact(status->text, name, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    else if (seconds < 3600)
        drawing_fact(status->text, name, "%.0f:%02.0f min", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        drawing_fact(status->text, name, "%.0f:%02.0f h", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60));
}

static void print_head(const Status *status)
{
    const Coordinator *coordinator = status->coordinator;
    buffer_print(status->text, "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n<meta name=viewport "
                               "content=\"width=device-width,initial-scale=1\">\n<link rel=icon href=\"data:,\">\n");
    if (!status->ends) buffer_print(status->text, "<meta http-equiv=refresh content=4>\n");
    buffer_print(status->text, "<title>Federation: round %" PRId64 " of %" PRId64 "</title>\n<style>\n%s%s",
                 coordinator->model.round, coordinator->rounds, drawing_colours, html_style);
    buffer_print(status->text,
                 ".long{white-space:normal;min-width:12rem}</style>\n</head>\n<body>\n<main>\n"
                 "<h1>Federation of %d sites</h1>\n<p class=\"proof%s\" role=status><strong>",
                 federation_present(coordinator->federation), coordinator->said_waiting ? " open" : "");
    drawing_text(status->text, state_words(status));
    buffer_print(status->text, "</strong>, %" PRId64 " of %" PRId64 " rounds made.</p>\n", coordinator->model.round,
                 coordinator->rounds);
}

static void print_metrics(const Status *status, const Evaluation *evaluation, const char *whose)
{
    for (int m = 0; m < EVALUATION_METRICS; m++) {
        char name[64];
        if (isnan(evaluation->values[m])) continue;
        snprintf(name, sizeof name, "%s%s", m == EVALUATION_LOSS ? "evaluation loss" : evaluation_metrics[m], whose);
        drawing_fact(status->text, name, m == EVALUATION_ACCURACY ? "%.2f%%" : "%.4f",
                     (m == EVALUATION_ACCURACY ? 100 : 1) * evaluation->values[m]);
    }
}

static void print_summary(const Status *status)
{
    const Coordinator *coordinator = status->coordinator;
    const Evaluations *evaluations = status->evaluations;
    buffer_print(status->text, "<dl>\n");
    if (evaluations->count) {
        print_metrics(status, &evaluations->items[evaluations->count - 1], "");
        drawing_fact(status->text, "best round", "%" PRId64, evaluations->items[evaluations->best].round);
    }
    if (evaluations->averaged.round) print_metrics(status, &evaluations->averaged, " of the averaged model");
    if (coordinator->evaluated.rows)
        drawing_fact(status->text, "loss on the sites' rows", "%.4f", coordinator->evaluated.loss);
    if (coordinator->evaluated.right_of)
        drawing_fact(status->text, "accuracy on the sites' rows", "%.2f%%", 100 * coordinator->evaluated.accuracy);
    for (size_t i = status->logged ? status->rounds.count : 0; i-- > 0;)
        if (!isnan(plot_value(&status->rounds, i, LOSS))) {
            drawing_fact(status->text, "training loss", "%.4g", plot_value(&status->rounds, i, LOSS));
            break;
        }
    print_time(status, "a round takes", status->round_s);
    if (coordinator->rounds - coordinator->model.round > 1)
        print_time(status, "next round in, about", seconds_left(status, 1));
    print_time(status, "time left, about", seconds_left(status, coordinator->rounds - coordinator->model.round));
    drawing_fact(status->text, "received", "%.3g MB", status->bytes_in / 1e6);
    drawing_fact(status->text, "sent", "%.3g MB", status->bytes_out / 1e6);
    if (!isnan(epsilon_now(status))) drawing_fact(status->text, "epsilon", "%.3g", epsilon_now(status));
    buffer_print(status->text, "</dl>\n");
}

static void print_sites(const Status *status)
{
    static const char *const heads[] = {"site", "state", "#last round", "#missed in a row", "#loss", "#rows"};
    const Coordinator *coordinator = status->coordinator;
    buffer_print(status->text, "<h2>Sites</h2>\n");
    drawing_open_table(status->text, "One row per site; loss and rows are those of its last round", 0, heads, 6);
    for (int s = 0; s < coordinator->federation->site_count; s++) {
        const KnownSite *site = &coordinator->sites[s];
        char text[PRESENCE_TEXT];
        state_of(status, s, text);
        buffer_print(status->text, "<tr><th>");
        drawing_text(status->text, coordinator->federation->sites[s].name);
        buffer_print(status->text, "</th><td class=long>");
        drawing_text(status->text, text);
        if (site->refusal && !*site->ended) {
            buffer_print(status->text, "; refused: it ");
            drawing_text(status->text, site->refusal);
        }
        if (*site->warning) buffer_print(status->text, "; <strong>warning</strong>: ");
        drawing_text(status->text, site->warning);
        buffer_print(status->text, "</td><td class=n>%" PRId64 "</td><td class=n>%" PRId64 "</td>",
                     coordinator->model.counted[s], site->missed);
        if (site->last.has_loss)
            buffer_print(status->text, "<td class=n>%.4f</td>", site->last.loss);
        else
            buffer_print(status->text, "<td class=n></td>");
        if (site->last.has_rows)
            buffer_print(status->text, "<td class=n>%" PRId64 "</td></tr>\n", site->last.rows);
        else
            buffer_print(status->text, "<td class=n></td></tr>\n");
    }
    drawing_close_table(status->text);
}

static void print_amendments(const Status *status)
{
    const Federation *federation = status->coordinator->federation;
    if (!federation->compiled.amended) return;
    buffer_print(status->text, "<h2>Amendments</h2>\n<ul>\n");
    for (int s = 0; s < federation->site_count; s++) {
        const FederationSite *site = &federation->sites[s];
        const struct {
            int64_t round;
            const char *what;
        } events[] = {{site->joined, "joined"}, {site->rekeyed, "has a new key"}, {site->left, "left"}};
        for (size_t e = 0; e < sizeof events / sizeof *events; e++) {
            if (!events[e].round) continue;
            buffer_print(status->text, "<li>Site ");
            drawing_text(status->text, site->name);
            buffer_print(status->text, " %s %s round %" PRId64 ".</li>\n", events[e].what, e == 1 ? "from" : "in",
                         events[e].round);
        }
    }
    buffer_print(status->text, "</ul>\n");
}

static void print_evaluations(const Status *status)
{
    enum { MOST = 20 };
    const Evaluations *evaluations = status->evaluations;
    const char *heads[EVALUATION_METRICS + 1] = {"after round"};
    if (!evaluations->count) return;
    const Evaluation *last = &evaluations->items[evaluations->count - 1];
    int columns = 1;
    static const char *const marked[EVALUATION_METRICS] = {"#loss",     "#accuracy", "#f1",
                                                           "#matthews", "#pearson",  "#spearman"};
    for (int m = 0; m < EVALUATION_METRICS; m++)
        if (!isnan(last->values[m])) heads[columns++] = marked[m];
    buffer_print(status->text, "<h2>The global model on %s</h2>\n",
                 status->coordinator->federation->steering.data ? "the coordinator's data" : "the sites' rows");
    drawing_open_table(status->text, "One row per evaluation, the newest first; the best is bold", 0, heads, columns);
    for (size_t i = evaluations->count; i-- > 0 && evaluations->count - i <= MOST;) {
        const Evaluation *evaluation = &evaluations->items[i];
        buffer_print(status->text, "<tr%s><th>%" PRId64 "</th>", i == evaluations->best ? " class=best" : "",
                     evaluation->round);
        for (int m = 0; m < EVALUATION_METRICS; m++)
            if (!isnan(last->values[m])) buffer_print(status->text, "<td class=n>%.4f</td>", evaluation->values[m]);
        buffer_print(status->text, "</tr>\n");
    }
    drawing_close_table(status->text);
}

static void print_page(const Status *status)
{
    print_head(status);
    print_summary(status);
    print_sites(status);
    print_amendments(status);
    if (status->logged) plot_draw_in_page(status->text, "Losses of local steps", &status->rounds, NAN);
    print_evaluations(status);
    buffer_print(status->text, "</main>\n</body>\n</html>\n");
}

/* ---- Writing ---- */

void status_page_open(StatusPage *page, const char *directory, const char *log)
{
    *page = (StatusPage){.log = log, .seen = -1, .round = -1, .state = -1, .written = -INFINITY};
    page->html = arena_format(&page->arena, "%s/status.html", directory);
    page->json = arena_format(&page->arena, "%s/status.json", directory);
}

void status_page_free(StatusPage *page) { arena_free(&page->arena); }

static void write_both(StatusPage *page, Status *status)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    FREED_WITH(buffer_free) Buffer html = {0}, json = {0};
    status->text = &html;
    print_page(status);
    status->text = &json;
    print_json(status);
    bool ok = live_file_write(page->html, html.bytes, html.size, &diagnostics) &&
              live_file_write(page->json, json.bytes, json.size, &diagnostics);
    if (!ok && !page->failed && status->coordinator->console)
        diagnostics_print(&diagnostics, status->coordinator->console);
    page->failed = !ok;
}

void status_page_update(StatusPage *page, const Coordinator *coordinator, const Evaluations *evaluations, double now)
{
    int state = (int)coordinator->sum.phase * 4096 + sum_round_answers(&coordinator->sum) * 8 + coordinator->holds * 4 +
                coordinator->said_waiting * 2 + coordinator_is_done(coordinator);
    bool changed = state != page->state || coordinator->model.round != page->round;
    if (coordinator->model.round != page->seen) page->ended[page->rounds_seen++ % STATUS_TIMED_ROUNDS] = now;
    page->seen = coordinator->model.round;
    if (!page->ends && now - page->written < (changed ? often : seldom)) return;
    Status status = {.coordinator = coordinator, .evaluations = evaluations, .ends = page->ends, .now = now};
    read_log(&status, page->log);
    time_rounds(&status, page);
    write_both(page, &status);
    plot_log_free(&status.rounds);
    page->state = state;
    page->round = coordinator->model.round;
    page->written = now;
}
