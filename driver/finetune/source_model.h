/* What skycc finetune has to know of a model before anything is made of it. */
#ifndef DRIVER_FINETUNE_SOURCE_MODEL_H
#define DRIVER_FINETUNE_SOURCE_MODEL_H

#include "base/arena.h"
#include "base/diagnostics.h"
#include "driver/finetune/settings.h"
#include "frontend/huggingface/found_head.h"

typedef struct SourceModel {
    const char *path; /* absolute */
    bool is_folder;
    const char *kind;           /* "bert, 6 layers, hidden size 384" */
    const char *tokenizer;      /* absolute path of tokenizer.json or of a vocabulary */
    bool cased;                 /* the vocabulary is */
    bool decoder;               /* it predicts the next token */
    int64_t positions;          /* INT64_MAX: not known */
    double dropout;             /* in training, as its configuration says; 0: none */
    const char *batch, *length; /* names of the dimensions; NULL: fixed */
    int64_t rows, width;        /* what they are fixed to; 0: they are not */
    bool has_mask;              /* tells padding from text */
    FoundHead found;            /* of an ONNX file */
} SourceModel;

/* Reads a Hugging Face folder or an ONNX file; `tokenizer` (NULL: the folder's) is a path. Strings are in the arena.
 */
bool source_model_read(SourceModel *model, const char *path, const char *tokenizer, Arena *arena,
                       Diagnostics *diagnostics);

/* Keeps in SETTING_MODEL_HASH which model the run begins with: a hash of what is read of it, and one of its path. */
bool source_model_remember(Settings *settings, Diagnostics *diagnostics);
/* Refuses another model in the place of that one: under another name and, if the model will be read again (`reads`),
 * under the same. */
bool source_model_check(const Settings *settings, bool reads, Diagnostics *diagnostics);

#endif
