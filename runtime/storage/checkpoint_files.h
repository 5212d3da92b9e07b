/* Checkpoints as files. DIR/step-00000100/ holds one safetensors file per rank that wrote it (float32, tensors by
 * parameter name: NAME, and adam.m/NAME, adam.v/NAME or momentum/NAME) and MANIFEST.json, which is written last: a step
 * without one does not exist. Nothing says which rank must read what: whoever resumes looks its parameters up by name.
 */
#ifndef RUNTIME_STORAGE_CHECKPOINT_FILES_H
#define RUNTIME_STORAGE_CHECKPOINT_FILES_H

#include "base/safetensors.h"
#include "runtime/device/execute.h"
#include "runtime/storage/checkpoint_manifest.h"

/* The name of a tensor of this rank, value or optimiser state, that is not finite, and its stage; NULL if all are. */
const char *checkpoint_not_finite(const Execution *execution, Arena *arena, uint32_t *stage);
/* Whether a rank writes a file: replicas hold the same values, so the first writes for all. */
static inline bool checkpoint_writes(const SkyProgram *program)
{
    return sky_replica(program, (int)program->rank) == 0;
}
/* What a checkpoint has of this rank, bytes: values and optimiser states. */
size_t checkpoint_copy_bytes(const Execution *execution);
/* Copies that to `copy`, one tensor after another. */
void checkpoint_copy(const Execution *execution, unsigned char *copy);
/* Writes the parameters of all stages of this rank, as they are or (not NULL) as `copy` has them, and fills *file,
 * which has no name where this rank writes none.
 * From a copy any thread may write, while training goes on. */
bool checkpoint_write_file(const Execution *execution, const unsigned char *copy, const char *directory, int64_t step,
                           int rank, CheckpointFile *file, Diagnostics *diagnostics);
/* Reports a file that is not the one which the manifest lists; all of it is read. */
bool checkpoint_verify_file(const SafeTensors *file, const CheckpointFile *entry, const char *path,
                            Diagnostics *diagnostics);
/* Reads every parameter of this rank's stages, with its optimiser state, from whichever file has it; files are checked
 * against their hashes before anything is used. Of what the first replica writes, other replicas may see no file. */
bool checkpoint_load(Execution *execution, const CheckpointManifest *manifest, const char *directory,
                     Diagnostics *diagnostics);
/* Reads the values that a federation's round begins with, from the model that the site's member has written: of this
 * rank's trained parameters, those that its metadata `met` names, or all. *found: the model is of this step; else
 * nothing is read. */
bool checkpoint_load_start(Execution *execution, const char *path, int64_t step, bool *found, Diagnostics *diagnostics);

#endif
