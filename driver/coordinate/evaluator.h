/* Measures a model of a federation on the coordinator's own data: a process of its own runs `skycc evaluate`, so that
 * sites are answered meanwhile and a model that cannot be run ends nothing else. */
#ifndef DRIVER_COORDINATE_EVALUATOR_H
#define DRIVER_COORDINATE_EVALUATOR_H

#include <sys/types.h>

#include "federation/evaluations.h"

/* What `skycc federate` leaves in the coordinator's directory for it. */
#define EVALUATOR_MODEL "model.onnx"
#define EVALUATOR_DATA "evaluate.safetensors"

typedef struct Evaluator {
    pid_t process; /* 0 or less: there is none */
    int result;    /* what it writes: in memory, because disks may be full */
} Evaluator;

/* Begins with the model in `checkpoint`, on `data` (NULL: EVALUATOR_DATA). Errors that it finds go to standard error.
 */
Evaluator evaluator_begin(const char *directory, const char *checkpoint, const char *data);
/* Whether it has ended, or with `waits` once it has: *ok and *evaluation (but its round) are set then. */
bool evaluator_ended(Evaluator *evaluator, bool waits, bool *ok, Evaluation *evaluation);

#endif
