/* A small BERT, and its gradients as one stage computes them. */
#ifndef TESTS_CODEGEN_STAGE_STAGE_RUN_H
#define TESTS_CODEGEN_STAGE_STAGE_RUN_H

#include "codegen/stage/stage.h"
#include "driver/compile/training_model.h"

enum { SMALL_LAYERS = 2, SMALL_HEADS = 2, SMALL_BATCH = 3 };

/* With gradients and updates; free it with training_model_free. */
void small_bert_load(TrainingModel *model, int64_t sequence, double dropout, bool prune);

/* Builds the stage of all layers, has `change` change it (NULL: nothing), runs forward and backward, compiled or
 * interpreted. The parameters' gradients, one after another, to be freed. */
typedef void StageChange(SkyStage *stage);
float *stage_gradients(const TrainingModel *model, StageChange *change, bool interpreted, int threads, size_t *count);

/* The greatest difference between two arrays, over the greatest magnitude in the second. */
double greatest_difference(const float *a, const float *b, size_t count);

#endif
