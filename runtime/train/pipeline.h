/* Runs one rank's instructions for one batch: receives are posted early, sends completed late, and messages are kept
 * moving between kernels.
 *
 * A receive is posted once its buffer is free, at most a few instructions before it is needed: activations when the
 * slot's last micro-batch is done and its gradient sent, gradients when the micro-batch's forward is done. A send is
 * waited for only before its buffer is overwritten.
 *
 * The last batch of an epoch may need fewer micro-batches than the list has, and so may packed sequences. All ranks
 * leave out the instructions of the others. */
#ifndef RUNTIME_TRAIN_PIPELINE_H
#define RUNTIME_TRAIN_PIPELINE_H

#include "runtime/device/execute.h"
#include "runtime/storage/packed_batch.h"
#include "runtime/train/emulation.h"
#include "runtime/train/trace.h"
#include "runtime/train/world.h"

/* A list of instructions and, for its receives, when they may be posted. */
typedef struct InstructionList {
    SkyInstruction *items;
    int count;
    int *receives; /* numbers of the instructions that receive, in order */
    int *ready;    /* per receive: the last instruction that must be done before it is posted; -1: none */
    int *pending;  /* per receive: its messages under way */
    bool *posted;  /* per receive */
    double *due;   /* per receive: when an emulated link delivers */
    int receive_count;
} InstructionList;

typedef struct SlotSends {
    int forward, backward;            /* messages under way from this slot, unsent ones as one */
    double forward_due, backward_due; /* what they carry where links are emulated */
} SlotSends;

/* When work began: by the clock, of this thread's processor time, and on the device that is emulated. */
typedef struct Stopwatch {
    double wall, processor, device;
} Stopwatch;

typedef struct Pipeline {
    Arena arena;
    World *world;
    Execution *execution;
    const SkyProgram *program;
    Trace *trace;
    int *local;        /* per stage of the pipeline: its number on this rank, or -1 */
    uint32_t *slot_of; /* [stage on this rank][micro-batch] */
    SlotSends **sends; /* [stage on this rank][slot] */
    MessageTags tags;  /* settled with all ranks */
    /* A send whose tensors a device is still copying to the host, of that batch; NULL: none. */
    const SkyInstruction *unsent;
    const struct PipelineBatch *unsent_batch;
    InstructionList training, evaluation;
    bool emulate, emulate_links;
    EmulatedTime emulated;
    double *link_free;  /* [2 * boundary + direction]: until when messages sent from here occupy an emulated link */
    bool *weights_kept; /* [stage on this rank][SkyListKind]: a micro-batch of this batch has run the list */
    /* [micro-batch of the step], of the stage with the loss; zeros elsewhere, and where there are no rows. */
    double *losses;
    /* The list that is under way, if it is the last one that adds to the gradients of a stage. */
    struct PipelineEnding {
        const struct PipelineBatch *batch; /* NULL: it is not */
        uint32_t local;
        Stopwatch start;
    } ending;
} Pipeline;

/* What one batch needs. */
typedef struct PipelineBatch {
    const Dataset *dataset;
    const uint32_t *rows;      /* sky_batch_rows of them, DATASET_NO_ROW after the last */
    int64_t row_count;         /* that there are */
    const PackedBatch *packed; /* where they stand, if they share lines; else NULL */
    int64_t step;              /* for the trace */
    /* Called after the forward of every stage, before anything overwrites its outputs; may be NULL. */
    void (*after_forward)(void *context, uint32_t local_stage, uint32_t microbatch, uint32_t slot);
    /* Called between the kernels of the last list that adds to the gradients of a stage: so many of its calls are
     * done at `when`, which is later than now on an emulated device. May be NULL. */
    void (*gradients_grow)(void *context, uint32_t local_stage, uint32_t calls, double when);
    /* Called once, after everything else, instead of running SKY_REDUCE and SKY_UPDATE; NULL to run updates where they
     * stand. */
    bool (*finish)(void *context, Diagnostics *diagnostics);
    void *context;
} PipelineBatch;

/* Collective: ranks settle tags. Reports tags that do not fit. */
bool pipeline_open(Pipeline *pipeline, World *world, Execution *execution, Trace *trace, bool emulate,
                   Diagnostics *diagnostics);
void pipeline_close(Pipeline *pipeline);

/* How many a batch of so many rows has. `packed` NULL: no rows share lines. */
uint32_t pipeline_microbatches(const Pipeline *pipeline, const PackedBatch *packed, int64_t row_count);

/* Forward, backward and update. The step scalars are set and gradients are zero. */
bool pipeline_train(Pipeline *pipeline, const PipelineBatch *batch, Diagnostics *diagnostics);
/* Forward only. */
bool pipeline_evaluate(Pipeline *pipeline, const PipelineBatch *batch, Diagnostics *diagnostics);
/* execution_squares of the stage's gradients, which take their time on an emulated device, too. */
const double *pipeline_squares(Pipeline *pipeline, uint32_t local_stage);
/* Runs the optimiser of one stage of this rank: for `finish`. Ends the run if a spot check finds a parameter that is
 * not finite (execution_spot_not_finite). */
bool pipeline_update(Pipeline *pipeline, uint32_t local_stage, int64_t step, Diagnostics *diagnostics);

#endif
