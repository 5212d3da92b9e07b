/* MANIFEST.json of a checkpoint: how far training was, and which files there are, with their hashes; and the hash of
 * itself. */
#ifndef RUNTIME_STORAGE_CHECKPOINT_MANIFEST_H
#define RUNTIME_STORAGE_CHECKPOINT_MANIFEST_H

#include "base/buffer.h"
#include "base/hash.h"
#include "base/diagnostics.h"
#include "runtime/program/program.h"
#include "runtime/storage/data_order.h"

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
    Hash data;      /* of what was read of the evaluation data; zero: not known */
} CheckpointBest;

/* What sums were rounded by: a run that goes on with other micro-batches gives other last digits. */
typedef struct CheckpointMicrobatch {
    int64_t rows;   /* or lines of packed rows; 0: not known */
    int64_t length; /* of such lines; 0: rows are not packed */
} CheckpointMicrobatch;

typedef struct CheckpointManifest {
    int64_t step;    /* steps that were made */
    int64_t skipped; /* those of them that updated nothing: they do not count for Adam's bias correction */
    DataCursor cursor;
    int64_t rows; /* of the training data */
    Hash data;    /* of what was read of it; zero: not known */
    uint64_t seed;
    bool shuffled;
    char model_hash[65], plan_hash[65];
    Hash low_rank;      /* of SkyProgram.low_rank */
    uint32_t optimizer; /* SkyOptimizerKind */
    CheckpointMicrobatch microbatch;
    int64_t schedule_steps; /* of the learning rate; 0: without end */
    double rates; /* the sum of the learning rates of the steps since a federation's round began, where it has control
                     variates; 0 else */
    CheckpointBest best;
    Hash evaluation_data; /* of what was read of the evaluation data; zero: there was none, or it is not known */
    bool evaluation_due;  /* a signal ended the run before it evaluated this step: whoever goes on begins with that */
    int file_count;
    CheckpointFile *files; /* malloc'ed */
} CheckpointManifest;

/* Of the program's low-rank branches, for a manifest: 0 without. */
Hash checkpoint_low_rank(const SkyProgram *program);
CheckpointMicrobatch checkpoint_microbatch(const SkyProgram *program);

bool checkpoint_write_manifest(const CheckpointManifest *manifest, const char *directory, Diagnostics *diagnostics);
/* Ends a manifest's text, whose last brace is missing, with the hash of what it says. */
void checkpoint_seal_manifest(Buffer *text);
/* Checks its hash and every member; names of files are plain. On success free manifest->files. */
bool checkpoint_read_manifest(CheckpointManifest *manifest, const char *directory, int64_t step,
                              Diagnostics *diagnostics);

#endif
