/* The training graph for micro-batches of one size or, where rows have several lengths, of one packing; and what a step
 * of these takes. */
#ifndef DRIVER_COMPILE_MICROBATCH_FORMS_H
#define DRIVER_COMPILE_MICROBATCH_FORMS_H

#include "driver/compile/plan_model.h"
#include "partitioner/planner/packing.h"
#include "partitioner/solve/replan.h"

typedef struct MicrobatchForms {
    PlannedModel *planned; /* its model was imported: once, where rows are packed */
    const PlanModelOptions *options;
    bool packed;        /* rows have several lengths */
    RowLengths lengths; /* then */
    PackingWish wish;   /* then, without its rows */
    int64_t rows;       /* of a step that is to be cut; 0: the micro-batch is given */
    /* Of the form whose step was asked for last: */
    bool unmeasured; /* it is not in the profile */
    Replanned found; /* what its plan takes */
} MicrobatchForms;

enum { MICROBATCH_FORMS_MOST = 32 };

/* Numbers of micro-batches, ascending: micro-batches of rows of one length have equally many rows; packed ones have as
 * many as go in, and 1, 2, 3, 4, 6, 8, 12 ... of them are listed. Of very many numbers those that are half as much
 * again as the one before. */
int microbatch_form_counts(const MicrobatchForms *forms, int counts[MICROBATCH_FORMS_MOST]);

/* Chooses the packing for steps of at least `microbatches` micro-batches on average. */
void microbatch_form_choose(MicrobatchForms *forms, int microbatches, bool whole);
/* Before any of them is made: imports planned->model, and reads the lengths of rows, which are the caller's to free. */
bool microbatch_forms_import(MicrobatchForms *forms, Diagnostics *diagnostics);
/* Makes planned->model for them; it is imported again where its rows are others. Warnings of such an import were
 * reported the first time. */
bool microbatch_form_make(MicrobatchForms *forms, int microbatches, Diagnostics *diagnostics);
/* Options for plans that are compared: the allocation asked for, or the heuristic's in place of the optimum. */
PlanModelOptions microbatch_form_quick(const PlanModelOptions *options);
/* Makes it, and says what a step takes by a plan for it, or `quickly` by one that is compared (microbatch_form_quick):
 * simulated, unless an allocation or the period was asked for. 0: nothing was found that fits. Errors are not
 * reported. */
int64_t microbatch_form_step_ns(MicrobatchForms *forms, int microbatches, bool quickly);

#endif
