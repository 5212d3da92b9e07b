/* A decoder that was imported from a Hugging Face folder becomes a GGUF file, as llama.cpp loads it: with the names,
 * layouts and metadata of one of its architectures, and the tokenizer. */
#ifndef FRONTEND_HUGGINGFACE_EXPORT_GGUF_H
#define FRONTEND_HUGGINGFACE_EXPORT_GGUF_H

#include "frontend/onnx/export.h"

typedef struct GgufExport {
    const char *output;
    const char *source; /* where the tokenizer's files are; NULL: the folder that the model names */
    bool q8;            /* matrices as Q8_0, where rows are multiples of 32, instead of f16 */
} GgufExport;

/* Refuses, by name, models that compute what no architecture of llama.cpp does, and tokenizers that it does not have.
 * Warns where the model has no tokenizer, and where the file says less than the model. */
bool gguf_export(const char *model, const GgufExport *wanted, FindTrained *find, void *context,
                 Diagnostics *diagnostics);

#endif
