/* Checkpoints of a run: all ranks write and read together.
 *
 * Each of several sites has a directory of its own: the files of its ranks, and a copy of the manifest, written last by
 * all. A step counts where every site has it; what a rank reads must be in its own site's directory. */
#ifndef RUNTIME_TRAIN_CHECKPOINT_H
#define RUNTIME_TRAIN_CHECKPOINT_H

#include "runtime/storage/checkpoint_files.h"
#include "runtime/train/world.h"

/* Collective, before anything is read or written there; creates the directory. Waits some seconds for a run that is
 * just ending; then a run that goes on is an error with EXIT_RUN_FAILED: starting again may help.
 *
 * The lowest rank of every host locks for its host, and rank 0, or the lowest of a site, for the run, until they end.
 * Two runs on one directory are found out if they have a host in common, or if rank 0 of both sees the same locks: on
 * one host always, over NFS if the server keeps locks. */
bool checkpoint_lock_directory(World *world, const SkyProgram *program, const char *directory, Diagnostics *diagnostics,
                               int *exit_code);

/* Collective. `manifest` gives everything but the files. Ends the run if any rank cannot write
 * or, before anything is written, holds what is not finite. On every host, steps beyond the `keep` (0: all) newest are
 * removed. */
void checkpoint_save(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest,
                     int64_t keep);

/* Collective. Saves so in `directory`, which is created on every host, and removes all other steps from it. */
void checkpoint_save_only(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest);

/* Collective. Loads the newest checkpoint of `directory`, as rank 0 (and each site's lowest) sees it, that is whole:
 * those that are damaged are warned of by name. *manifest tells where it stands (manifest->files is NULL). *found is
 * false, and nothing was loaded, if there is none. Errors: another model or optimiser; damage in all of them. */
bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics);

#endif
