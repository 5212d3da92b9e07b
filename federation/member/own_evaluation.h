/* How good the global model of each round is for a site's own rows: those held out (--eval-data), measured before the
 * local steps, else the loss of the first of these. A model that has collapsed is not trained on, and the last good one
 * is kept. With overlap a site never trains on the global model as it is: then nothing is known. */
#ifndef FEDERATION_MEMBER_OWN_EVALUATION_H
#define FEDERATION_MEMBER_OWN_EVALUATION_H

#include "federation/aggregate/fixed_point.h"
#include "federation/evaluations.h"

typedef struct OwnEvaluation {
    RowsEvaluation rows; /* of those held out; rows 0: there are none */
    double loss;         /* of them, or of the first step; NAN: not known */
    bool collapsed;
} OwnEvaluation;

/* Reads what stage programs wrote to `first` (--eval-first), or `step_loss` where there is no such file, and adds it to
 * the CSV of evaluations at `path`. Errors: the CSV. */
bool own_evaluation_read(OwnEvaluation *evaluation, const char *path, const char *first, double step_loss,
                         int64_t round, Diagnostics *diagnostics);

#endif
