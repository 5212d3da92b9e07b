/* Checkpoints as files. DIR/step-00000100/ holds one safetensors file per rank that wrote it (float32, tensors by
 * parameter name: NAME, and adam.m/NAME, adam.v/NAME or momentum/NAME) and MANIFEST.json, which is written last: a step
 * without one does not exist. Nothing says which rank must read what: whoever resumes looks its parameters up by name.
 */
#ifndef RUNTIME_STORAGE_CHECKPOINT_FILES_H
#define RUNTIME_STORAGE_CHECKPOINT_FILES_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/safetensors.h"
#include "runtime/program/execute.h"
#include "runtime/storage/dataset.h"

typedef struct CheckpointFile {
    char name[32];
    int64_t bytes;
    Hash hash; /* of the whole file */
} CheckpointFile;

/* What evaluations had come to by then (runtime/train/watch.h). */
typedef struct CheckpointBest {
    char metric[16]; /* "": nothing was watched */
    int64_t step;    /* after which the metric was best; 0: it was not measured yet */
    double value;
    int64_t waited; /* evaluations since then */
} CheckpointBest;

typedef struct CheckpointManifest {
    int64_t step; /* updates that were made */
    DataCursor cursor;
    int64_t rows; /* of the training data */
    uint64_t seed;
    bool shuffled;
    char model_hash[65], plan_hash[65];
    Hash low_rank;          /* of SkyProgram.low_rank */
    uint32_t optimizer;     /* SkyOptimizerKind */
    int64_t schedule_steps; /* of the learning rate; 0: without end */
    CheckpointBest best;
    int file_count;
    CheckpointFile *files; /* malloc'ed */
} CheckpointManifest;

/* "DIR/step-00000100"; free() it. */
char *checkpoint_path(const char *directory, int64_t step);
/* The newest step below `before` (INT64_MAX: of all) that has a manifest; -1 if there is none. */
int64_t checkpoint_newest(const char *directory, int64_t before);

/* Of the program's low-rank branches, for a manifest: 0 without. */
Hash checkpoint_low_rank(const SkyProgram *program);

/* Removes every step but this one. */
void checkpoint_remove_others(const char *directory, int64_t step);

/* Creates the directory if it is missing; an error if nothing can be written there. */
bool checkpoint_check_directory(const char *directory, Diagnostics *diagnostics);
/* Takes a lock on the directory, of this name, for as long as the process lives; whatever ends the process ends the lock.
 * The lock is a file DIRECTORY/.lock-NAME that stays there and says nothing by itself. CHECKPOINT_LOCK_HELD: another
 * process has it, on this host or, if the file system shares locks (NFS does), on another. Warns of file systems that
 * have no locks. *descriptor, unless it is NULL, becomes what holds the lock (-1: none does): programs that are
 * started do not inherit it; where one does, the lock lasts until that one has ended, too. */
typedef enum CheckpointLock { CHECKPOINT_LOCKED, CHECKPOINT_LOCK_HELD, CHECKPOINT_LOCK_FAILED } CheckpointLock;
CheckpointLock checkpoint_lock(const char *directory, const char *name, int *descriptor, Diagnostics *diagnostics);
/* The name of a tensor of this rank, value or optimiser state, that is not finite, and its stage; NULL if all are. */
const char *checkpoint_not_finite(const Execution *execution, Arena *arena, uint32_t *stage);
/* Makes room for a step: creates its directory, or empties what an interrupted run left there. */
bool checkpoint_prepare(const char *directory, int64_t step, Diagnostics *diagnostics);
/* Writes the parameters of all stages of this rank and fills *file. */
bool checkpoint_write_file(const Execution *execution, const char *directory, int64_t step, int rank,
                           CheckpointFile *file, Diagnostics *diagnostics);
bool checkpoint_write_manifest(const CheckpointManifest *manifest, const char *directory, Diagnostics *diagnostics);
/* Ends a manifest's text, whose last brace is missing, with the hash of what it says. */
void checkpoint_seal_manifest(Buffer *text);
/* The newest complete steps, at most `most`, newest first; free() them. */
int64_t *checkpoint_newest_steps(const char *directory, int64_t most, size_t *count);
/* Removes steps older than the first of `kept`, which is the newest, that are not in it. `spare_complete`: not those that
 * have a manifest. Steps of a run that other hosts have in directories of their own have none there. */
void checkpoint_prune(const char *directory, const int64_t *kept, size_t count, bool spare_complete);

/* Checks its hash and every member; names of files are plain. On success free manifest->files. */
bool checkpoint_read_manifest(CheckpointManifest *manifest, const char *directory, int64_t step,
                              Diagnostics *diagnostics);
/* Reports a file that is not the one which the manifest lists; all of it is read. */
bool checkpoint_verify_file(const SafeTensors *file, const CheckpointFile *entry, const char *path,
                            Diagnostics *diagnostics);
/* Reads every parameter of this rank's stages, with its optimiser state, from whichever file has it; files are checked
 * against their hashes before anything is used. */
bool checkpoint_load(Execution *execution, const CheckpointManifest *manifest, const char *directory,
                     Diagnostics *diagnostics);

#endif
