#include "driver/coordinate/steering.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/input_files.h"
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
    const Evaluations *evaluations = &steering->evaluations;
    if (access(steering->best_path, F_OK) != 0) return;
    int64_t best = evaluations->count ? evaluations->items[evaluations->best].round : -1;
    if (best >= 0 && global_model_file_says(steering->best_path, "round", best)) return;
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

static const char *metrics_text(Buffer *line, const Evaluation *evaluation)
{
    for (int m = 0; m < EVALUATION_METRICS; m++)
        if (!isnan(evaluation->values[m]))
            text_format(line, "%s%s %.4f", line->size ? ", " : "", evaluation_metrics[m], evaluation->values[m]);
    return buffer_text(line);
}

static void say_evaluation(const Steering *steering, const Evaluation *evaluation)
{
    const Evaluations *evaluations = &steering->evaluations;
    FREED_WITH(buffer_free) Buffer line = {0};
    bool best = evaluations->items[evaluations->best].round == evaluation->round;
    coordinator_say(steering->coordinator, "model after round %" PRId64 ": %s%s\n", evaluation->round,
                    metrics_text(&line, evaluation), best ? ": the best so far" : "");
}

static void add_evaluation(Steering *steering, const Evaluation *evaluation)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    evaluations_add(&steering->evaluations, evaluation);
    if (!evaluations_write(&steering->evaluations, steering->evaluations_path, &diagnostics) &&
        steering->coordinator->console)
        diagnostics_print(&diagnostics, steering->coordinator->console);
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

static void begin_evaluation(Steering *steering, const char *model)
{
    steering->evaluating = steering->coordinator->model.round;
    notice_other_data(steering);
    steering->evaluator = evaluator_begin(steering->directory, model, NULL);
}

/* ---- The mean of the last rounds' models ---- */

static void make_average(Steering *steering)
{
    FREED_WITH(diagnostics_free) Diagnostics diagnostics = {0};
    const Coordinator *coordinator = steering->coordinator;
    const FederationSteering *rules = rules_of(steering);
    int64_t averaged = model_history_average(coordinator->federation, steering->directory, coordinator->model.round,
                                             rules->average, steering->averaged_path, &diagnostics);
    steering->has_averaged = true;
    if (averaged > 0) {
        coordinator_say(coordinator, "%s: the mean of the models of %s%" PRId64 " rounds%s\n", steering->averaged_path,
                        averaged == rules->average ? "the last " : "", averaged,
                        averaged == rules->average ? "" : ": no more are kept");
        if (rules->data) begin_evaluation(steering, steering->averaged_path);
    } else {
        if (coordinator->console) diagnostics_print(&diagnostics, coordinator->console);
        coordinator_say(coordinator, "warning: %s is not written: start the coordinator again to try again\n",
                        steering->averaged_path);
    }
}

static void take_average(Steering *steering, bool ok, const Evaluation *evaluation)
{
    FREED_WITH(buffer_free) Buffer line = {0};
    if (!ok) {
        coordinator_say(steering->coordinator, "warning: %s could not be evaluated\n", steering->averaged_path);
        return;
    }
    steering->evaluations.averaged = *evaluation;
    steering->evaluations.averaged.round = steering->evaluating;
    coordinator_say(steering->coordinator, "averaged model: %s\n", metrics_text(&line, evaluation));
}

/* ---- Opening, and as time goes on ---- */

static void watch_evaluation(Steering *steering, bool waits)
{
    Evaluation evaluation;
    bool ok;
    if (steering->evaluator.process > 0 && evaluator_ended(&steering->evaluator, waits, &ok, &evaluation)) {
        if (steering->has_averaged)
            take_average(steering, ok, &evaluation);
        else
            take_evaluation(steering, ok, &evaluation);
    }
    if (steering->evaluator.process <= 0 && is_due(steering)) {
        FREED char *path = model_history_path(steering->directory, steering->coordinator->model.round);
        begin_evaluation(steering, path);
    } else if (steering->evaluator.process <= 0 && rules_of(steering)->average && !steering->has_averaged &&
               coordinator_is_done(steering->coordinator)) {
        make_average(steering);
    }
    steering->coordinator->holds = steering->evaluator.process > 0;
}

static void observe(void *observer, double now)
{
    Steering *steering = observer;
    watch_evaluation(steering, false);
    take_sites_evaluation(steering);
    status_page_update(&steering->page, steering->coordinator, &steering->evaluations, now);
}

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
    steering->averaged_path = arena_format(&steering->arena, "%s/averaged.safetensors", directory);
    status_page_open(&steering->page, directory, log);
    if (!evaluations_read(&steering->evaluations, steering->evaluations_path, coordinator->model.round - !rules->data,
                          diagnostics))
        return false;
    if (rules->best) settle_best(steering);
    end_early(steering);
    if (!coordinator_is_done(coordinator)) unlink(steering->averaged_path); /* it went back */
    coordinator->observe = observe;
    coordinator->observer = steering;
    return true;
}

void steering_close(Steering *steering, double now)
{
    if (!steering->coordinator) return;
    bool done = coordinator_is_done(steering->coordinator);
    if (steering->evaluator.process > 0 && !done)
        kill(steering->evaluator.process, SIGTERM); /* made again when it goes on */
    while (steering->evaluator.process > 0 && done) watch_evaluation(steering, true);
    steering->page.ends = true;
    status_page_update(&steering->page, steering->coordinator, &steering->evaluations, now);
    steering->coordinator->observe = NULL;
    status_page_free(&steering->page);
    evaluations_free(&steering->evaluations);
    arena_free(&steering->arena);
}
