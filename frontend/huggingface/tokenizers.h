/* The tokenizers of a folder: which ones make the tokens of its model, and the copy that an imported model keeps. */
#ifndef FRONTEND_HUGGINGFACE_TOKENIZERS_H
#define FRONTEND_HUGGINGFACE_TOKENIZERS_H

#include "base/arena.h"
#include "base/diagnostics.h"

/* Hashes of the tokenizers in the folder, with spaces between, in the arena; "" if none can be read. Data sets that
 * others made are refused. */
const char *folder_tokenizers(const char *folder, Arena *arena);

/* Copies the files of the folder's tokenizers into the directory `to`, and counts them. */
bool tokenizer_copy(const char *source, const char *to, size_t *copied, Diagnostics *diagnostics);

/* Copies the tokenizer of the folder `source` next to an imported model: MODEL.tokenizer next to MODEL.onnx. The model
 * is of use without it: if there is none, nothing is made, and what fails is a warning. */
void tokenizer_keep(const char *source, const char *model, Diagnostics *diagnostics);
/* The folder with the tokenizer of a model: its copy, else the folder that the model was imported from, else the one
 * that the model is in; NULL: not known. Of none that has a tokenizer, the second, which may be gone. In the arena. */
const char *tokenizer_folder(const char *model, const char *recorded, Arena *arena);

#endif
