/* Checkpoints as files. DIR/step-00000100/ holds one safetensors file per rank that wrote it (float32, tensors by
 * parameter name: NAME, and adam.m/NAME, adam.v/NAME or momentum/NAME) and MANIFEST.json, which is written last: a step
 * without one does not exist. Nothing says which rank must read what: whoever resumes looks its parameters up by name.
 */
#ifndef RUNTIME_CHECKPOINT_FILES_H
#define RUNTIME_CHECKPOINT_FILES_H

#include "base/hash.h"
#include "runtime/dataset.h"
#include "runtime/execute.h"

typedef struct CheckpointFile {
    char name[32];
    int64_t bytes;
    Hash hash; /* of the whole file */
} CheckpointFile;

typedef struct CheckpointManifest {
    int64_t step; /* updates that were made */
    DataCursor cursor;
    int64_t rows; /* of the training data */
    uint64_t seed;
    bool shuffled;
    char model_hash[65], plan_hash[65];
    uint32_t optimizer; /* SkyOptimizerKind */
    int file_count;
    CheckpointFile *files; /* malloc'ed */
} CheckpointManifest;

/* "DIR/step-00000100"; free() it. */
char *checkpoint_path(const char *directory, int64_t step);
/* The newest step that has a manifest; -1 if there is none. */
int64_t checkpoint_newest(const char *directory);

/* Creates the directory if it is missing; an error if nothing can be written there. */
bool checkpoint_check_directory(const char *directory, Diagnostics *diagnostics);
/* Makes room for a step: creates its directory, or empties what an interrupted run left there. */
bool checkpoint_prepare(const char *directory, int64_t step, Diagnostics *diagnostics);
/* Writes the parameters of all stages of this rank and fills *file. */
bool checkpoint_write_file(const Execution *execution, const char *directory, int64_t step, int rank,
                           CheckpointFile *file, Diagnostics *diagnostics);
bool checkpoint_write_manifest(const CheckpointManifest *manifest, const char *directory, Diagnostics *diagnostics);
/* Removes complete steps beyond the `keep` newest, and incomplete ones older than the newest. */
void checkpoint_prune(const char *directory, int64_t keep);

/* Checks every member; names of files are plain. On success free manifest->files. */
bool checkpoint_read_manifest(CheckpointManifest *manifest, const char *directory, int64_t step,
                              Diagnostics *diagnostics);
/* Reads every parameter of this rank's stages, with its optimiser state, from whichever file has it; files are checked
 * against their hashes before anything is used. */
bool checkpoint_load(Execution *execution, const CheckpointManifest *manifest, const char *directory,
                     Diagnostics *diagnostics);

#endif
