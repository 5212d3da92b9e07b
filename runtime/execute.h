/* Executes the call lists of a program's stages: memory spaces, resolution of operands, threads. Knows nothing of other
 * ranks. Used by stage programs and, in memory, by `skycc run`. */
#ifndef RUNTIME_EXECUTE_H
#define RUNTIME_EXECUTE_H

#include "base/diagnostics.h"
#include "runtime/memory.h"
#include "runtime/program.h"
#include "runtime/waves.h"

/* Runs one whole kernel, or one block of it, over its operands where a call names a description instead of code; false
 * if an index left its buffer. A pointer, so that emitted programs do not contain the interpreter. */
enum { EXECUTE_ALL_BLOCKS = -1 };
typedef bool ExecuteInterpreter(const void *kernel, void *const *operands, int64_t block);

typedef enum ExecutionList {
    EXECUTION_FORWARD,
    EXECUTION_BACKWARD,
    EXECUTION_WEIGHT_GRADIENT,
    EXECUTION_UPDATE,
    EXECUTION_LISTS
} ExecutionList;

typedef struct StageSpaces {
    const SkyStage *stage;
    WaveList lists[EXECUTION_LISTS];
    MemoryRegion state, slots;
    size_t slot_stride;    /* bytes from one slot to the next */
    uint32_t *step_offset; /* per update call: 0 or SKY_STEP_GROUP, elements */
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

/* From now on threads meet after every call or group, and `between` is called there: for those who time them. */
void execution_keep_apart(Execution *execution);

/* `stage` counts the stages of this rank; `slot` matters for SKY_SPACE_SLOT only. */
void *execution_address(const Execution *execution, uint32_t stage, uint32_t slot, SkyLocation location);

/* Each runs one call list; false, after reporting the call, if an interpreted kernel was given an index out of range.
 */
bool execution_forward(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics);
bool execution_backward(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics);
bool execution_weight_gradient(Execution *execution, uint32_t stage, uint32_t slot, Diagnostics *diagnostics);
bool execution_update(Execution *execution, uint32_t stage, Diagnostics *diagnostics);

/* Exempts the parameters of the classes in `classes` (bit 1 << decay_exempt_class) from weight decay: their update
 * calls read the second group of step scalars. */
void execution_exempt_from_decay(Execution *execution, uint32_t classes);
/* Where the stage has all layers: sums the uses of its shared parameters, as the runtime does across stages. */
void execution_sum_uses(const Execution *execution, uint32_t stage);
/* Sum of squares of a parameter's accumulated gradient: in double, in an order that threads do not change. */
double execution_gradient_square(const Execution *execution, uint32_t stage, const SkyParameter *parameter);

#endif
