#include "driver/coordinate/steering.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/input_files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "driver/coordinate/evaluator.h"
#include "federation/model_history.h"

static const FederationSteering *rules_of(const Steering *steering)
{
    return &steering->coordinator->federation->steering;
}

/* ---- The best round ---- */

static void keep_best(Steering *steering)
{
    const Evaluations *evaluations = &steering->evaluations;
    if (!rules_of(steering)->best || !evaluations->count) return;
    FREED char *path = model_history_path(steering->directory, evaluations->items[evaluations->best].round);
    const char *unfinished = arena_format(&steering->arena, "%s.unfinished", steering->best_path);
    unlink(unfinished);
    if (link(path, unfinished) != 0 || rename(unfinished, steering->best_path) != 0)
        coordinator_say(steering->coordinator, "warning: %s cannot be written\n", steering->best_path);
    unlink(unfinished);
}

/* After going back, the best that is left is another one; if it is no longer kept, there is none. */
static void settle_best(Steering *steering)
{
    SafeTensors file;
    Diagnostics unsaid = {0};
    const Evaluations *evaluations = &steering->evaluations;
    if (access(steering->best_path, F_OK) != 0) return;
    int64_t best = evaluations->count ? evaluations->items[evaluations->best].round : -1;
    bool ok = safetensors_open(&file, steering->best_path, &unsaid);
    const char *round = ok ? safetensors_metadata(&file, "round") : NULL;
    bool same = round && strtoll(round, NULL, 10) == best;
    if (ok) safetensors_close(&file);
    diagnostics_free(&unsaid);
    input_files_release_path(steering->best_path);
    if (same) return;
    unlink(steering->best_path);
    FREED char *path = model_history_path(steering->directory, best);
    if (access(path, F_OK) == 0) keep_best(steering);
}

static void end_early(Steering *steering)
{
    Coordinator *coordinator = steering->coordinator;
    const Evaluations *evaluations = &steering->evaluations;
    if (!evaluations_are_over(evaluations) || coordinator->rounds <= coordinator->model.round) return;
    coordinator->rounds = coordinator->model.round;
    coordinator_say(coordinator,
                    "the federation ends after round %" PRId64 ": the %s has not been better than after round %" PRId64
                    " in %" PRId64 " evaluations\n",
                    coordinator->rounds, evaluation_metrics[evaluations->metric],
                    evaluations->items[evaluations->best].round, evaluations->patience);
}

/* ---- Evaluations ---- */

static void say_evaluation(const Steering *steering, const Evaluation *evaluation)
{
    const Evaluations *evaluations = &steering->evaluations;
    FREED_WITH(buffer_free) Buffer line = {0};
    for (int m = 0; m < EVALUATION_METRICS; m++)
        if (!isnan(evaluation->values[m]))
            text_format(&line, "%s%s %.4f", line.size ? ", " : "", evaluation_metrics[m], evaluation->values[m]);
    bool best = evaluations->items[evaluations->best].round == evaluation->round;
    coordinator_say(steering->coordinator, "model after round %" PRId64 ": %s%s\n", evaluation->round,
                    buffer_text(&line), best ? ": the best so far" : "");
}

static void add_evaluation(Steering *steering, const Evaluation *evaluation)
{
    Diagnostics diagnostics = {0};
    evaluations_add(&steering->evaluations, evaluation);
    if (!evaluations_write(&steering->evaluations, steering->evaluations_path, &diagnostics) &&
        steering->coordinator->console)
        diagnostics_print(&diagnostics, steering->coordinator->console);
    diagnostics_free(&diagnostics);
    if (rules_of(steering)->data) say_evaluation(steering, evaluation);
    if (steering->evaluations.items[steering->evaluations.best].round == evaluation->round) keep_best(steering);
    end_early(steering);
}

static void take_evaluation(Steering *steering, bool ok, Evaluation *evaluation)
{
    evaluation->round = steering->evaluating;
    if (ok)
        add_evaluation(steering, evaluation);
    else
        coordinator_say(steering->coordinator, "warning: the model after round %" PRId64 " could not be evaluated\n",
                        evaluation->round);
}

/* What the sites of the last round have measured: the model with which it began. The coordinator has said it. */
static void take_sites_evaluation(Steering *steering)
{
    const Coordinator *coordinator = steering->coordinator;
    const FederationSteering *rules = rules_of(steering);
    const RowsEvaluation *sites = &coordinator->evaluated;
    Evaluation evaluation = {.round = coordinator->model.round - 1};
    if (rules->data || !coordinator->durable || evaluation.round <= steering->evaluating) return;
    steering->evaluating = evaluation.round;
    for (int m = 0; m < EVALUATION_METRICS; m++) evaluation.values[m] = NAN;
    evaluation.values[EVALUATION_LOSS] = sites->loss;
    if (sites->right_of) evaluation.values[EVALUATION_ACCURACY] = sites->accuracy;
    if (sites->rows && !evaluations_of(&steering->evaluations, evaluation.round)) add_evaluation(steering, &evaluation);
    if (!steering->evaluations.count && (rules->best || rules->patience) && !steering->said_nothing_known)
        coordinator_say(coordinator,
                        "warning: keep_best and patience have nothing to go by: no site has --eval-data\n");
    steering->said_nothing_known = true;
}

static bool hash_of(const char *path, char hash[static 33])
{
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    MappedFile file;
    bool ok = file_map(&file, path, &unsaid);
    if (ok) hash_format(hash_bytes(file.bytes, file.size), hash);
    if (ok) file_unmap(&file);
    input_files_release_path(path);
    return ok;
}

/* What was measured on other rows does not compare. evaluations.data holds the hash of those that were measured on. */
static void notice_other_data(const Steering *steering)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics unsaid = {0};
    char now[33], before[33];
    const char *data = arena_format(&arena, "%s/" EVALUATOR_DATA, steering->directory);
    const char *known = arena_format(&arena, "%s/evaluations.data", steering->directory);
    FILE *file = fopen(known, "re");
    bool is_known = file && fgets(before, sizeof before, file);
    if (file) fclose(file);
    if (hash_of(data, now) && !(is_known && strcmp(now, before) == 0)) {
        if (is_known && steering->evaluations.count)
            coordinator_say(steering->coordinator,
                            "warning: %s is not the evaluation data that former models were measured on: "
                            "the numbers do not compare, nor does the best round\n",
                            data);
        file_write_all(known, now, strlen(now), &unsaid);
    }
}

static bool is_due(const Steering *steering)
{
    const Coordinator *coordinator = steering->coordinator;
    int64_t round = coordinator->model.round;
    return rules_of(steering)->data && coordinator->durable && steering->evaluating != round &&
           (round % rules_of(steering)->every == 0 || round >= coordinator->rounds) &&
           !evaluations_of(&steering->evaluations, round);
}

static void watch_evaluation(Steering *steering, bool waits)
{
    Evaluation evaluation;
    bool ok;
    if (steering->process > 0 && evaluator_ended(steering->process, steering->directory, waits, &ok, &evaluation)) {
        steering->process = 0;
        take_evaluation(steering, ok, &evaluation);
    }
    if (steering->process <= 0 && is_due(steering)) {
        FREED char *path = model_history_path(steering->directory, steering->coordinator->model.round);
        steering->evaluating = steering->coordinator->model.round;
        notice_other_data(steering);
        steering->process = evaluator_begin(steering->directory, path, NULL);
    }
    steering->coordinator->holds = steering->process > 0;
}

static void observe(void *observer, double now)
{
    Steering *steering = observer;
    watch_evaluation(steering, false);
    take_sites_evaluation(steering);
    status_page_update(&steering->page, steering->coordinator, &steering->evaluations, now);
}

/* ---- Opening ---- */

bool steering_open(Steering *steering, Coordinator *coordinator, const char *log, Diagnostics *diagnostics)
{
    const char *directory = coordinator->directory;
    const FederationSteering *rules = &coordinator->federation->steering;
    *steering = (Steering){.coordinator = coordinator, .directory = directory, .log = log};
    steering->evaluating = rules->data ? -1 : coordinator->model.round - 1;
    steering->evaluations.metric = rules->best ? evaluation_metric(rules->best) : EVALUATION_LOSS;
    steering->evaluations.patience = rules->patience;
    steering->evaluations_path = arena_format(&steering->arena, "%s/evaluations.csv", directory);
    steering->best_path = arena_format(&steering->arena, "%s/best.safetensors", directory);
    evaluator_clean(directory);
    status_page_open(&steering->page, directory, log);
    if (!evaluations_read(&steering->evaluations, steering->evaluations_path, coordinator->model.round - !rules->data,
                          diagnostics))
        return false;
    if (rules->best) settle_best(steering);
    end_early(steering);
    coordinator->observe = observe;
    coordinator->observer = steering;
    return true;
}

void steering_close(Steering *steering, double now)
{
    if (!steering->coordinator) return;
    bool done = coordinator_is_done(steering->coordinator);
    if (steering->process > 0 && !done) kill(steering->process, SIGTERM); /* made again when it goes on */
    if (steering->process > 0 && done) watch_evaluation(steering, true);
    steering->page.ends = true;
    status_page_update(&steering->page, steering->coordinator, &steering->evaluations, now);
    steering->coordinator->observe = NULL;
    status_page_free(&steering->page);
    evaluations_free(&steering->evaluations);
    arena_free(&steering->arena);
}
