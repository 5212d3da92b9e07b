/* Checkpoints of a run: all ranks write and read together.
 *
 * At several sites each site has a directory of its own, with the files of its ranks and a copy of the manifest, which
 * is written last. A step exists if every site has it. A rank reads from its own site's directory only. */
#ifndef RUNTIME_TRAIN_CHECKPOINT_H
#define RUNTIME_TRAIN_CHECKPOINT_H

#include "runtime/storage/checkpoint_files.h"
#include "runtime/train/world.h"

/* Collective; call it before anything is read or written there. Creates the directory. Waits some seconds for a run
 * that is just ending. A run that goes on is an error with EXIT_RUN_FAILED: starting again may help.
 *
 * The lowest rank of every host takes a lock for its host, and rank 0 (the lowest of a site) one for the run. So two
 * runs on one directory are found on one host always, and over NFS if the server keeps locks. */
bool checkpoint_lock_directory(World *world, const SkyProgram *program, const char *directory, Diagnostics *diagnostics,
                               int *exit_code);

/* Collective. `manifest` has everything but the files. Ends the run if a rank cannot write, or holds a value that is
 * not finite; then nothing was written. Every host removes all but the `keep` newest steps (0: none). */
void checkpoint_save(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest,
                     int64_t keep);

/* Collective. The same in `directory`, which is created on every host; all other steps are removed from it. */
void checkpoint_save_only(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest);

/* Collective. Loads the newest checkpoint that is whole, as rank 0 (and each site's lowest rank) sees the directory.
 * Warns of damaged ones by name. *manifest says where it stands (manifest->files is NULL). *found is false if there is
 * none. Errors: another model or optimiser; all of them damaged. */
bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics);

#endif
