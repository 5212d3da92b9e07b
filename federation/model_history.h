/* Models of past rounds on the coordinator's disk, to go back to: DIR/rounds/round-000012.safetensors, each as it was
 * written when its round ended. */
#ifndef FEDERATION_MODEL_HISTORY_H
#define FEDERATION_MODEL_HISTORY_H

#include "federation/federation.h"
#include "federation/global_model.h"

/* The path of a round's model; free() it. */
char *model_history_path(const char *directory, int64_t round);
/* Keeps DIR/model.safetensors, which is the model after `round`, and removes all but the last `keep` and those after
 * it. It takes no room until the model is replaced. Errors: the disk. */
bool model_history_keep(const char *directory, int64_t round, int64_t keep, Diagnostics *diagnostics);
/* Makes the model after `round` DIR/model.safetensors again, as a branch of its own. Errors: there is none, with those
 * that there are; it is the newest. */
bool model_history_go_back(const Federation *federation, const char *directory, int64_t round,
                           Diagnostics *diagnostics);
/* Writes to `path` the mean of the models after the last `rounds` rounds up to `round`, of those that are kept: sums of
 * float64, rounded once to float32. One that is there already stays. How many rounds are in it; -1: an error. */
int64_t model_history_average(const Federation *federation, const char *directory, int64_t round, int64_t rounds,
                              const char *path, Diagnostics *diagnostics);

#endif
