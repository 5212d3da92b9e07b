/* A step of several replicas, computed in one process: micro-batch by micro-batch as they are dealt, with gradients
 * summed as replicas sum them, so that the bits are those of their run. */
#ifndef DRIVER_COMPILE_DEALT_STEP_H
#define DRIVER_COMPILE_DEALT_STEP_H

#include "partitioner/plan.h"
#include "runtime/device/execute.h"

typedef struct DealtStep {
    Arena arena;
    int replica_count, microbatches; /* in all; 0: one batch as a whole, and nothing is dealt */
    int *shares;                     /* [replica] micro-batches */
    uint32_t **dealt;                /* [replica][micro-batch of the replica]: which of the step's it is */
    Codec codec;                     /* of gradients that are summed */
    float ***residuals;              /* [parameter][replica * uses + use] where there is a codec; last, of the sum */
    uint8_t *coded;                  /* scratch */
    float **terms;                   /* [parameter] copies of the gradients of earlier replicas, one after another */
    double *losses;                  /* [micro-batch of the step] */
} DealtStep;

/* What the caller does for each micro-batch. */
typedef struct DealtCalls {
    /* Fills inputs and row scalars before forward, for micro-batch `number` of the step. */
    bool (*begin)(void *context, uint32_t number, Diagnostics *diagnostics);
    void (*forward_done)(void *context, uint32_t number); /* the slot has its outputs and its loss */
    void *context;
} DealtCalls;

/* Deals as the plan does if it has several replicas. */
void dealt_step_open(DealtStep *step, const Plan *plan);
void dealt_step_close(DealtStep *step);
/* Runs forward and, if asked, backward of every micro-batch; leaves the sums where updates read them. */
bool dealt_step_run(DealtStep *step, Execution *execution, bool backward, const DealtCalls *calls,
                    Diagnostics *diagnostics);

#endif
