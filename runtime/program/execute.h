/* Executes the call lists of a program's stages: memory spaces, resolution of operands, threads. Knows nothing of other
 * ranks. Used by stage programs and, in memory, by `skycc run`. */
#ifndef RUNTIME_PROGRAM_EXECUTE_H
#define RUNTIME_PROGRAM_EXECUTE_H

#include "base/diagnostics.h"
#include "runtime/program/memory.h"
#include "runtime/program/program.h"
#include "runtime/program/waves.h"

/* Runs one whole kernel, or one block of it, over its operands where a call names a description instead of code; false
 * if an index left its buffer. A pointer, so that emitted programs do not contain the interpreter. */
enum { EXECUTE_ALL_BLOCKS = -1 };
typedef bool ExecuteInterpreter(const void *kernel, void *const *operands, int64_t block);

/* The step space as an update call sees it: made of a group of it before every update. */
typedef struct UpdateScalars {
    float values[SKY_STEP_GROUP];
    double rate; /* what its learning rate is multiplied with */
    bool exempt; /* from weight decay */
} UpdateScalars;

typedef struct StageSpaces {
    const SkyStage *stage;
    WaveList *lists;      /* [lines - 1][SkyListKind]: for every number of lines that a micro-batch may have */
    uint32_t *slot_lines; /* per slot: of the micro-batch there; at first as many as there can be */
    MemoryRegion state, slots;
    size_t slot_stride;     /* bytes from one slot to the next */
    UpdateScalars *updates; /* per update call */
    double *squares;        /* per parameter: what execution_squares found */
} StageSpaces;

typedef struct Execution {
    const SkyProgram *program;
    StageSpaces *stages;         /* as in program->stages */
    MemoryRegion scratch;        /* of all stages: dead between call lists */
    MemoryRegion thread_scratch; /* per thread: its kernels' scratch, then the space of blocks */
    size_t thread_scratch_stride, thread_block_offset;
    int threads;
    Team *team;                      /* of these threads */
    ExecuteInterpreter *interpreter; /* may be NULL */
    void (*between)(void *context);  /* called after every wave; may be NULL */
    void *between_context;
    _Alignas(MEMORY_ALIGNMENT) float step[SKY_STEP_SCALARS]; /* the step space: set it before running anything */
} Execution;

/* Allocates every space, zeroed. `threads` as from parallel_threads; `interpreter` may be NULL when no call needs it.
 * On failure nothing is left allocated. */
bool execution_open(Execution *execution, const SkyProgram *program, int threads, ExecuteInterpreter *interpreter,
                    Diagnostics *diagnostics);
void execution_close(Execution *execution);

/* From now on the micro-batch in the slot has so many lines (runtime/program/packing.h). */
void execution_set_lines(Execution *execution, uint32_t stage, uint32_t slot, uint32_t lines);

/* From now on threads meet after every call or group, and `between` is called there: for those who time them. */
void execution_keep_apart(Execution *execution);

/* `stage` counts the stages of this rank; `slot` matters for SKY_SPACE_SLOT only. */
void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location);

/* Runs one list of calls; subnormal numbers count as 0. An update touches no slot: any will do. False, after reporting
 * the call, if an interpreted kernel was given an index out of range. */
bool execution_run(Execution *execution, uint32_t stage, SkyListKind list, uint32_t slot, Diagnostics *diagnostics);

/* Exempts the parameters of the classes in `classes` (bit 1 << decay_exempt_class) from weight decay: their update
 * calls read the second group of step scalars. */
void execution_exempt_from_decay(Execution *execution, uint32_t classes);
/* Multiplies the learning rate of a parameter of that stage, one that has an update. */
void execution_set_rate(Execution *execution, uint32_t stage, const SkyParameter *parameter, double rate);
/* Where the stage has all layers: sums the uses of its shared parameters, as the runtime does across stages. */
void execution_sum_uses(const Execution *execution, uint32_t stage);

/* Of every trained parameter of the stage the sum of the squares of one tensor, in double, in an order that threads do
 * not change; 0 for frozen ones. Valid until it is called again for this stage. */
enum { EXECUTION_GRADIENT = 0, EXECUTION_VALUE = 2, EXECUTION_STATE = 3 /* + which */ };
const double *execution_squares(const Execution *execution, uint32_t stage, int tensor);

/* The first trained parameter of the stage whose value or any state of its optimiser is not finite: *state is which, -1
 * the value. NULL if all are finite. */
const SkyParameter *execution_not_finite(const Execution *execution, uint32_t stage, int *state);
/* The same for the first elements of every value, in a hundredth of the time. A NaN in activations or gradients soon is
 * in all elements of biases, and in the first row of matrices. */
const SkyParameter *execution_spot_not_finite(const Execution *execution, uint32_t stage);

#endif
