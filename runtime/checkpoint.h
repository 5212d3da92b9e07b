/* Checkpoints of a run: all ranks write and read together. */
#ifndef RUNTIME_CHECKPOINT_H
#define RUNTIME_CHECKPOINT_H

#include "runtime/checkpoint_files.h"
#include "runtime/world.h"

/* Collective. `manifest` gives everything but the files. Ends the run if any rank cannot write. */
void checkpoint_save(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest,
                     int64_t keep);

/* Collective. Loads the newest checkpoint of `directory`, which rank 0 chooses; *manifest tells where it stands
 * (manifest->files is NULL). *found is false, and nothing was loaded, if there is none. Errors: another model or
 * optimiser, a damaged or missing file. */
bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics);

#endif
