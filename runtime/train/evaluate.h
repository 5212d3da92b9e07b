/* Evaluation: forward only, over a whole data set; a last partial batch is padded with rows that count for nothing, or
 * filled up with rows from the beginning where the loss needs whole batches. */
#ifndef RUNTIME_TRAIN_EVALUATE_H
#define RUNTIME_TRAIN_EVALUATE_H

#include "runtime/train/metrics.h"
#include "runtime/train/loss_ranks.h"
#include "runtime/train/pipeline.h"

typedef struct EvaluationResult {
    double
        values[METRIC_COUNT]; /* NaN: not measured. The loss is the mean over labels, as they weigh; over batches where
                                    the model computes its own loss. Every other metric counts valid labels alike */
    int64_t labels;           /* valid ones; rows where the model computes its own loss */
    int64_t rows;             /* of the data set; questions where answers are texts */
} EvaluationResult;

/* Chooses what is measured: `wanted` if that names anything, else what labels and outputs suggest; always the loss and
 * the bits of `besides`. A metric that cannot be measured is an error (EXIT_USAGE) on the rank with the loss; other
 * ranks do not know. */
bool evaluation_choose(Pipeline *pipeline, const Dataset *dataset, const MetricChoice *wanted, uint32_t besides,
                       MetricChoice *choice, Diagnostics *diagnostics);

/* What evaluation goes through. */
typedef struct EvaluationRows {
    int64_t count;
    const int32_t *lengths; /* of each; needed where rows share lines, as is */
    PackedBatch *packed;    /* room for where they stand */
} EvaluationRows;

/* Collective. The result is valid on the first rank that has a loss. Step scalars are overwritten. */
bool evaluate(Pipeline *pipeline, LossRanks *losses, const Dataset *dataset, const EvaluationRows *rows, int64_t step,
              const MetricChoice *choice, EvaluationResult *result, Diagnostics *diagnostics);

#endif
