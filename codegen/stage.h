/* Stages: a run of layers of the training graph becomes lists of kernel calls over laid-out memory. */
#ifndef CODEGEN_STAGE_H
#define CODEGEN_STAGE_H

#include "graph/graph.h"
#include "graph/kernel.h"
#include "runtime/program.h"

/* A stage and all that its tables point to; freed with stage_free. Kernels stand in SkyCall.interpreted, one object for
 * all calls of the stage that share it; compiled code is filled in later. */
typedef struct StageCode {
    Arena arena;
    SkyStage stage;
    /* Of STAGE_PLAIN, what STAGE_SPLIT would do: which backward calls it puts off, and what the slot grows by. */
    const bool *puts_off;
    uint64_t split_bytes;
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

/* Builds the stage of layers first_layer ... last_layer (inclusive). Index and slot_count are the caller's to fill.
 * Without differentiation there are only forward calls. */
void stage_build_as(StageCode *code, Graph *graph, int first_layer, int last_layer, StageForm form);
void stage_build(StageCode *code, Graph *graph, int first_layer, int last_layer); /* STAGE_PLAIN */
void stage_free(StageCode *code);

/* For those who build many stages of a graph, which must not change in between. */
typedef struct StageIndex StageIndex;
StageIndex *stage_index_create(Graph *graph);
void stage_index_free(StageIndex *index);
void stage_build_indexed(StageCode *code, const StageIndex *index, int first_layer, int last_layer, StageForm form);

/* The bytes a rank needs for this stage with so many micro-batches in flight and threads. */
uint64_t stage_bytes(const SkyStage *stage, uint32_t slot_count, uint32_t threads);

#endif
