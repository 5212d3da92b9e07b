/* The graph that makes the next token of a text from what is kept of the tokens before it. */
#ifndef FRONTEND_HUGGINGFACE_STEP_MODEL_H
#define FRONTEND_HUGGINGFACE_STEP_MODEL_H

#include "base/arena.h"

/* Writes the graph of folder_import_step for the model in the file `model` into the new directory `folder`, with its
 * weights. Returns the graph's path, in the arena; NULL, without a report, where there is none for this model: it is no
 * decoder from skycc import, or cannot be written. *original: once the text is longer, all its tokens have other keys
 * (LongRoPE); INT64_MAX: they never have. */
const char *step_model_write(const char *model, const char *folder, int64_t room, int64_t *original, Arena *arena);

#endif
