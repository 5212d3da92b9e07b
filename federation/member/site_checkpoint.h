/* A site's newest checkpoint as a federation sees it: the parameters that all sites train, read from it, and, where
 * stage programs do not take them from the global model, written into it, next to the inner optimiser's state. */
#ifndef FEDERATION_MEMBER_SITE_CHECKPOINT_H
#define FEDERATION_MEMBER_SITE_CHECKPOINT_H

#include "federation/federation.h"
#include "federation/global_model.h"
#include "runtime/storage/checkpoint_files.h"

/* A parameter's other name in checkpoints. */
typedef struct TiedName {
    const char *name, *of;
    bool transposed;
} TiedName;

typedef struct TiedNames {
    Arena arena;
    TiedName *items;
    size_t count;
} TiedNames;

/* From a global model's `tied`. Free the arena. */
void tied_names_read(TiedNames *tied, const GlobalModel *model);

/* Copies the checkpoint's values of all tensors of `like` to `values`, which has its elements; with `changes`, `like`'s
 * own values minus these. `is_sound`: the files
 * need not be compared with the manifest, because stage programs that live wrote them, or this process has compared
 * them. Errors: a checkpoint that is damaged, of another model, or without one of the tensors; values that are not
 * finite (EXIT_DIVERGED). */
bool site_checkpoint_read(const char *directory, int64_t step, bool is_sound, const Federation *federation,
                          const GlobalModel *like, bool changes, float *values, Diagnostics *diagnostics);
/* Replaces the values of elements part.first ... part.end - 1 that have met in the checkpoint by those of the model, in
 * copies of its files: the checkpoint is the one before or the new one, whenever the process ends. */
bool site_checkpoint_exchange(const char *directory, int64_t step, const GlobalModel *model, FragmentRange part,
                              const TiedNames *tied, Diagnostics *diagnostics);
/* The same with the whole model and zeros for the state of the inner optimiser. */
bool site_checkpoint_restart(const char *directory, int64_t step, const GlobalModel *model, const TiedNames *tied,
                             Diagnostics *diagnostics);
/* Whether one of these has put this model into the checkpoint. */
bool site_checkpoint_has_model(const char *directory, int64_t step, const GlobalModel *model);
/* A checkpoint of step 0 with the model's values and no steps made; `start` is an empty manifest but for seed,
 * shuffled and rows. */
bool site_checkpoint_begin(const char *directory, const Federation *federation, const GlobalModel *model,
                           const TiedNames *tied, CheckpointManifest start, Diagnostics *diagnostics);

#endif
