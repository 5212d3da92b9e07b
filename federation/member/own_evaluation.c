#include "federation/member/own_evaluation.h"

#include <math.h>
#include <stdio.h>

#include "base/file.h"

enum { COMPARED = 3 };

static const double worse_loss = 10, worse_accuracy = 0.5; /* times the worst of the last COMPARED */

static void read_first(OwnEvaluation *own, Evaluation *evaluation, const char *path)
{
    FREED_WITH(stream_close) FILE *file = fopen(path, "re");
    char name[32];
    double value;
    while (file && fscanf(file, "%31s %lf", name, &value) == 2) {
        int metric = evaluation_metric(name);
        if (metric >= 0) evaluation->values[metric] = value;
        if (metric < 0 && name[0] == 'l' && value > 0 && value < 0x1p40) own->rows.rows = (int64_t)value; /* labels */
    }
    own->rows.loss = evaluation->values[EVALUATION_LOSS];
    own->rows.accuracy = evaluation->values[EVALUATION_ACCURACY];
    if (!isnan(own->rows.accuracy)) own->rows.right_of = own->rows.rows;
}

/* Of accuracies on so many rows, how much lower one may be by chance: three standard errors. */
static double chance(double accuracy, int64_t rows)
{
    return 3 * sqrt(accuracy * (1 - accuracy) / fmax((double)rows, 1));
}

/* Much worse than in each of the rounds before, and worse than the model that all began with. */
static bool is_collapsed(const Evaluations *before, const Evaluation *now, int64_t rows)
{
    double loss = now->values[EVALUATION_LOSS], accuracy = now->values[EVALUATION_ACCURACY], highest = 0,
           lowest = INFINITY;
    size_t first = before->count > COMPARED ? before->count - COMPARED : 0;
    for (size_t i = first; i < before->count; i++) {
        highest = fmax(highest, before->items[i].values[EVALUATION_LOSS]);
        lowest = fmin(lowest, before->items[i].values[EVALUATION_ACCURACY]);
    }
    if (!before->count) return false;
    return !isfinite(loss) || (loss > worse_loss * highest && loss > before->items[0].values[EVALUATION_LOSS]) ||
           (isfinite(lowest) && accuracy < worse_accuracy * lowest && accuracy < lowest - chance(lowest, rows));
}

bool own_evaluation_read(OwnEvaluation *own, const char *path, const char *first, double step_loss, int64_t round,
                         Diagnostics *diagnostics)
{
    FREED_WITH(evaluations_free) Evaluations evaluations = {.metric = EVALUATION_LOSS};
    Evaluation now = {.round = round};
    for (int m = 0; m < EVALUATION_METRICS; m++) now.values[m] = NAN;
    *own = (OwnEvaluation){.collapsed = false};
    if (!evaluations_read(&evaluations, path, round - 1, diagnostics)) return false;
    if (first)
        read_first(own, &now, first);
    else
        now.values[EVALUATION_LOSS] = step_loss;
    own->loss = now.values[EVALUATION_LOSS];
    own->collapsed =
        (first ? own->rows.rows > 0 : !isnan(step_loss)) && is_collapsed(&evaluations, &now, own->rows.rows);
    if (!own->collapsed) evaluations_add(&evaluations, &now);
    return evaluations_write(&evaluations, path, diagnostics);
}
