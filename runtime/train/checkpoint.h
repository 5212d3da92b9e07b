/* Checkpoints of a run: all ranks write and read together.
 *
 * At several sites each site has a directory of its own, with the files of its ranks and a copy of the manifest, which
 * is written last. A step exists if every site has it. A rank reads from its own site's directory only.
 *
 * Where the devices have memory to spare, every rank copies what it saves and goes on with training, while a thread
 * writes the copy. The manifest is written when all ranks have agreed that their files are complete. */
#ifndef RUNTIME_TRAIN_CHECKPOINT_H
#define RUNTIME_TRAIN_CHECKPOINT_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/program/memory.h"
#include "runtime/storage/checkpoint_files.h"
#include "runtime/train/world.h"

/* Collective; call it before anything is read or written there. Creates the directory. Waits some seconds for a run
 * that is just ending. A run that goes on is an error with EXIT_RUN_FAILED: starting again may help.
 *
 * The lowest rank of every host takes a lock for its host, and rank 0 (the lowest of a site) one for the run. So two
 * runs on one directory are found on one host always, and over NFS if the server keeps locks. */
bool checkpoint_lock_directory(World *world, const SkyProgram *program, const char *directory, Diagnostics *diagnostics,
                               int *exit_code);

/* A checkpoint of a run that is being written; one at a time. */
typedef struct CheckpointWriter {
    World *world;
    const Execution *execution;
    bool in_background; /* all ranks have room for a copy of what they save; else training waits for checkpoints */
    MemoryRegion copy;
    bool retires;       /* files of steps that are removed are overwritten by later ones */
    bool begun, listed; /* and not finished; all ranks' files are complete, and the manifest is written */
    bool thread;        /* there is one that writes, or has written */
    pthread_t writing;
    atomic_bool written; /* what this rank writes is complete, or cannot be written */
    const char *directory;
    int64_t keep;
    CheckpointManifest manifest;
    CheckpointFile file;
    Diagnostics diagnostics; /* the thread's */
} CheckpointWriter;

/* Collective. `in_background`: with copies, if every rank has room for its own. */
bool checkpoint_writer_open(CheckpointWriter *writer, World *world, const Execution *execution, bool in_background,
                            Diagnostics *diagnostics);
void checkpoint_writer_close(CheckpointWriter *writer);
/* Collective; none has begun. Complete at once if not in the background. `manifest` has everything but the files.
 * Ends the run if a rank cannot write, or holds a value that is not finite; then nothing was written. */
void checkpoint_begin(CheckpointWriter *writer, const char *directory, CheckpointManifest manifest, int64_t keep);
/* Whether what this rank writes is not complete yet. */
bool checkpoint_is_being_written(const CheckpointWriter *writer);
/* Collective; does nothing if none has begun. To be called where no rank writes: goes on with the manifest, or
 * ends. Ends the run if a rank could not write. In the end every host removes all but the `keep` newest steps (0:
 * none). */
void checkpoint_advance(CheckpointWriter *writer);
/* Collective. Waits and advances until the checkpoint is complete. */
void checkpoint_finish(CheckpointWriter *writer);

/* Collective. Begins and finishes another checkpoint, of which nothing is copied, in `directory`, which is created
 * on every host; all other steps are removed from it. */
void checkpoint_save_only(World *world, const Execution *execution, const char *directory, CheckpointManifest manifest);

/* Collective. Loads the newest checkpoint that is whole, as rank 0 (and each site's lowest rank) sees the directory.
 * Warns of damaged ones by name. *manifest says where it stands (manifest->files is NULL). *found is false if there is
 * none. Errors: another model or optimiser; all of them damaged. */
bool checkpoint_resume(World *world, Execution *execution, const char *directory, CheckpointManifest *manifest,
                       bool *found, Diagnostics *diagnostics);

#endif
