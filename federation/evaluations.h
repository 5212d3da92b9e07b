/* How good the global model was after which rounds: what the coordinator measured, which round was the best, and
 * whether there has been none better for long. The file is a CSV with a row per evaluation. */
#ifndef FEDERATION_EVALUATIONS_H
#define FEDERATION_EVALUATIONS_H

#include <stdint.h>

#include "base/diagnostics.h"

/* "loss", "accuracy", "f1", "matthews", "pearson", "spearman": the words of skycc evaluate, and the file's columns. */
enum { EVALUATION_METRICS = 6, EVALUATION_LOSS = 0, EVALUATION_ACCURACY = 1 };
extern const char *const evaluation_metrics[EVALUATION_METRICS];
#define EVALUATION_METRIC_WORDS "loss, accuracy, f1, matthews, pearson or spearman"

typedef struct Evaluation {
    int64_t round;                     /* after it */
    double values[EVALUATION_METRICS]; /* NAN: not measured */
} Evaluation;

typedef struct Evaluations {
    Evaluation *items; /* malloc'ed; rounds ascend */
    size_t count, capacity;
    int metric;          /* by which the best is known */
    int64_t patience;    /* 0: without end */
    size_t best;         /* index, where there are any */
    Evaluation averaged; /* of the mean of the last rounds' models, round 0: it was not measured; not in the file */
} Evaluations;

/* -1: there is none of that name. */
int evaluation_metric(const char *name);
/* Whether federations learn it from rows that sites hold out: the loss and the accuracy. */
static inline bool evaluation_at_sites(int metric) { return metric >= 0 && metric <= EVALUATION_ACCURACY; }
void evaluations_add(Evaluations *evaluations, const Evaluation *evaluation);
/* Whether the last `patience` evaluations were no better than one before. */
bool evaluations_are_over(const Evaluations *evaluations);
/* NULL: the round was not evaluated. */
const Evaluation *evaluations_of(const Evaluations *evaluations, int64_t round);
void evaluations_free(Evaluations *evaluations);

/* Reads what there is up to `round`; a file that does not exist, and a last line that was cut off, are nothing. Errors:
 * a file of something else. */
bool evaluations_read(Evaluations *evaluations, const char *path, int64_t round, Diagnostics *diagnostics);
/* Replaces the file, whole. */
bool evaluations_write(const Evaluations *evaluations, const char *path, Diagnostics *diagnostics);

#endif
