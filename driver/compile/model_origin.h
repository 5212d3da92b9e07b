/* What a model that was imported from a folder expects of data sets: the names of its labels, and its tokenizer. */
#ifndef DRIVER_COMPILE_MODEL_ORIGIN_H
#define DRIVER_COMPILE_MODEL_ORIGIN_H

#include "frontend/onnx/model.h"
#include "frontend/text/labels.h"
#include "runtime/storage/data_origin.h"

/* In the arena. The library's generic names (LABEL_0) are none; `called` is kept. */
DataOrigin model_origin(const OnnxModel *model, const char *called, Arena *arena);

/* What limits the texts of a model, or of a Hugging Face folder. */
typedef struct ModelTexts {
    const char *folder;     /* with the tokenizer, in the arena; NULL: not known */
    int64_t most_positions; /* INT64_MAX: not known */
} ModelTexts;
bool model_texts(ModelTexts *texts, const char *path, Arena *arena, Diagnostics *diagnostics);

/* The labels of a model that was trained with the data set at `path`: the model's own, if the data set's are among
 * them, because training kept these; else the data set's. */
bool model_labels(DataLabels *labels, const char *path, const DataOrigin *model, Arena *arena,
                  Diagnostics *diagnostics);

#endif
