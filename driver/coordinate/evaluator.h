/* Measures a model of a federation on the coordinator's own data: a process of its own runs `skycc evaluate`, so that
 * sites are answered meanwhile and a model that cannot be run ends nothing else. */
#ifndef DRIVER_COORDINATE_EVALUATOR_H
#define DRIVER_COORDINATE_EVALUATOR_H

#include <sys/types.h>

#include "federation/evaluations.h"

/* What `skycc federate` leaves in the coordinator's directory for it. */
#define EVALUATOR_MODEL "model.onnx"
#define EVALUATOR_DATA "evaluate.safetensors"

/* Removes results that coordinators left that were killed. */
void evaluator_clean(const char *directory);
/* Begins with the model in `checkpoint`, on `data` (NULL: EVALUATOR_DATA); the process's id, -1: there is none to be
 * had. Errors that it finds go to standard error. */
pid_t evaluator_begin(const char *directory, const char *checkpoint, const char *data);
/* Whether it has ended, or with `waits` once it has: *ok and *evaluation (but its round) are set then. */
bool evaluator_ended(pid_t process, const char *directory, bool waits, bool *ok, Evaluation *evaluation);

#endif
