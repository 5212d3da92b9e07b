/* Trained parameters from a checkpoint or a file of skycc run, as a FindTrained (frontend/onnx/export.h). */
#ifndef DRIVER_EXPORT_TRAINED_VALUES_H
#define DRIVER_EXPORT_TRAINED_VALUES_H

#include "base/safetensors.h"
#include "driver/export/merged_weights.h"

typedef struct TrainedValues {
    Arena arena;
    const char *path; /* for messages */
    SafeTensors *files;
    size_t count, capacity;
    struct FrozenValue *frozen; /* by name; NULL: not listed yet */
    size_t frozen_count;
} TrainedValues;

/* Opens a directory of checkpoints (DIR/best if it belongs to the run, else its newest step), one step of it, or a
 * safetensors file. `path` must outlive the values. Free them in any case. */
bool trained_values_open(TrainedValues *values, const char *path, Diagnostics *diagnostics);
void trained_values_free(TrainedValues *values);

/* A FindTrained whose context is a TrainedValues. */
bool trained_values_find(void *context, const char *name, TrainedTensor *trained);

/* --lora of the training; NULL: without. */
const char *trained_values_low_rank(const TrainedValues *values);
/* The model's weights with the trained low-rank branches merged, if there are any. Every trained branch must match a
 * weight of the model, so that none is lost. `values` must outlive `merged`; free it in any case. */
bool trained_values_merge(MergedWeights *merged, TrainedValues *values, const char *model, Diagnostics *diagnostics);

#endif
