/* What becomes of a run of layers: call lists over laid-out memory, and what they need besides. */
#ifndef CODEGEN_STAGE_STAGE_CODE_H
#define CODEGEN_STAGE_STAGE_CODE_H

#include "graph/graph.h"
#include "runtime/program/program.h"

/* A stage and all that its tables point to; freed with stage_free. Kernels stand in SkyCall.interpreted, one object for
 * all calls of the stage that share it; compiled code is filled in later. */
typedef struct StageCode {
    Arena arena;
    SkyStage stage;
    /* Of STAGE_PLAIN, what STAGE_SPLIT would do: which backward calls it puts off, and what the slot grows by. */
    const bool *puts_off;
    uint64_t split_bytes;
    bool lines_vary;         /* the stage does without the lines that a micro-batch lacks */
    bool tokens_vary;        /* and calls without tokens of its last line, in compiled code for CPUs */
    bool bears_zeros;        /* other stages may leave these tokens out of what they send, as 0 */
    const char *needs_lines; /* where it does not, though rows share lines: the first call that needs all of them */
    const ValueId *parameter_values; /* of stage.parameters (sharing.h: the shared ones); their initial_* fields are the
                                        caller's to fill */
} StageCode;

/* What a stage keeps of a micro-batch between forward and backward, and how backward runs. All forms compute the same
 * bits. */
typedef enum StageForm {
    STAGE_PLAIN,    /* the stash; one backward */
    STAGE_SPLIT,    /* backward computes what the stage before waits for, weight_gradient the rest (Qi et al. 2023) */
    STAGE_RECOMPUTE /* boundaries and inputs alone; backward begins with as much of forward as it needs (Chen et al.
                       2016) */
} StageForm;

void stage_free(StageCode *code);

/* The bytes a rank needs for this stage with so many micro-batches in flight and threads. */
uint64_t stage_bytes(const SkyStage *stage, uint32_t slot_count, uint32_t threads);

#endif
