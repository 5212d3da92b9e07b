/* The tokenizer of a folder as metadata of GGUF. Internal to the folder. */
#ifndef FRONTEND_HUGGINGFACE_GGUF_TOKENIZER_H
#define FRONTEND_HUGGINGFACE_GGUF_TOKENIZER_H

#include "frontend/huggingface/config_types.h"
#include "frontend/huggingface/gguf_file.h"

/* Adds tokens, merges, special tokens and the chat template. `folder` NULL, or without tokenizer.json: says that there
 * is no tokenizer, with a warning about `model`. Refuses tokenizers that llama.cpp does not have. */
bool gguf_add_tokenizer(GgufFile *file, const char *folder, const char *model, const HuggingFaceConfig *config,
                        Diagnostics *diagnostics);

#endif
