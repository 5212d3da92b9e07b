/* Evaluation: forward only, over a whole data set; a last partial batch is padded with rows that count for nothing. */
#ifndef RUNTIME_EVALUATE_H
#define RUNTIME_EVALUATE_H

#include "runtime/pipeline.h"

typedef struct EvaluationResult {
    double loss; /* mean over valid labels; over batches where the model computes its own loss */
    double
        accuracy;   /* share of valid labels that have the largest logit; -1 if the stage with the loss has no logits */
    int64_t labels; /* valid ones; rows where the model computes its own loss */
} EvaluationResult;

/* Rows that evaluation would use: all, or only whole batches where there are no labels to mark padding with. */
int64_t evaluation_rows(const SkyProgram *program, int64_t rows);

/* Collective. The result is valid on the rank that has the loss. Step scalars are overwritten. */
bool evaluate(Pipeline *pipeline, const Dataset *dataset, int64_t rows, int64_t step, EvaluationResult *result,
              Diagnostics *diagnostics);

#endif
