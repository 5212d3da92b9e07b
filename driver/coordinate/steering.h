/* What a coordinator does with the models of its rounds besides making them: evaluates them on its own data, keeps the
 * best, ends when none gets better, writes the mean of the last, and shows where things stand (status_page.h). */
#ifndef DRIVER_COORDINATE_STEERING_H
#define DRIVER_COORDINATE_STEERING_H

#include "driver/coordinate/evaluator.h"
#include "driver/coordinate/status_page.h"
#include "federation/coordinator.h"
#include "federation/evaluations.h"

typedef struct Steering {
    Coordinator *coordinator;
    const char *directory, *log; /* log: of rounds */
    Arena arena;
    const char *evaluations_path, *best_path, *averaged_path;
    Evaluations evaluations;
    Evaluator evaluator;
    int64_t evaluating; /* the round; with no process the last one that was tried, -1: none */
    bool said_nothing_known;
    bool has_averaged; /* the last rounds' models, or tried to: what is evaluated from then on is their mean */
    StatusPage page;
} Steering;

/* Reads what was evaluated so far and observes the coordinator from now on. Free it in any case. */
bool steering_open(Steering *steering, Coordinator *coordinator, const char *log, Diagnostics *diagnostics);
/* Waits for an evaluation that is being made, and shows the end. */
void steering_close(Steering *steering, double now);

#endif
