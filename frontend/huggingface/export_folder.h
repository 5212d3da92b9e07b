/* A model that was imported from a Hugging Face folder becomes a folder again, with trained weights: model.safetensors
 * under the library's names, config.json with the class and the labels of its head, and the tokenizer's files. */
#ifndef FRONTEND_HUGGINGFACE_EXPORT_FOLDER_H
#define FRONTEND_HUGGINGFACE_EXPORT_FOLDER_H

#include "frontend/onnx/export.h"

typedef struct FolderExport {
    const char *output;        /* the folder to make; a former one is replaced (base/directory.h) */
    const char *source;        /* where the tokenizer's files are; NULL: the folder that the model names */
    const char *const *labels; /* names of the labels, by number; NULL: those of the model */
    size_t label_count;
    bool as_is;          /* model.onnx instead of model.safetensors: of any model, with or without config.json */
    const char *problem; /* with labels: config.json's problem_type; NULL: what the model says */
} FolderExport;

/* Reports what is missing for a model that was not imported from a folder. Warns where no tokenizer was found. */
bool folder_export(const char *model, const FolderExport *wanted, FindTrained *find, void *context,
                   Diagnostics *diagnostics);

#endif
