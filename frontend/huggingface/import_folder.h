/* Makes an ONNX graph from the files of a Hugging Face folder alone: config.json and model.safetensors.
 *
 * The graph (opset 20) has symbolic dimensions "batch" and "seq", inputs input_ids, attention_mask and, where the model
 * tells several types of tokens apart, token_type_ids. Initializers have the library's names and layouts. Properties of
 * the model keep the configuration, with the class and labels of the head, so that a trained model can become a folder
 * again. */
#ifndef FRONTEND_HUGGINGFACE_IMPORT_FOLDER_H
#define FRONTEND_HUGGINGFACE_IMPORT_FOLDER_H

#include <stdio.h>

#include "frontend/huggingface/head.h"

/* Properties of the model. */
#define PROPERTY_CONFIG "huggingface.config"         /* config.json of the model with its head */
#define PROPERTY_FOLDER "huggingface.folder"         /* the folder that it was made from, as the user named it */
#define PROPERTY_TOKENIZERS "huggingface.tokenizers" /* hashes of the folder's tokenizers */
#define PROPERTY_HEAD "huggingface.head"             /* as --head says it, or "none" */
#define PROPERTY_LABELS "skycc.labels"               /* names of the labels, of a model that was not imported */

/* Where the weights come from: nowhere, so that the model lacks them; all of them from the seed; the folder's files. */
typedef enum WeightSource { WEIGHTS_NONE, WEIGHTS_SEED, WEIGHTS_FOLDER } WeightSource;

/* Writes `output`. HEAD_FROM_FOLDER takes the checkpoint's head, whose tensors must be there; of any other, tensors
 * that the folder lacks, or has in another shape, are drawn from `seed` by name: normal with the configured deviation,
 * biases 0, gains 1. `summary`, which may be NULL, gets the lists of new and of unused tensors. */
bool folder_import(const char *path, const char *output, const Head *head, WeightSource weights, uint64_t seed,
                   FILE *summary, Diagnostics *diagnostics);

/* Of a decoder's folder with the head of a language model: a graph for one token after up to `room` - 1 others. Its
 * inputs are input_ids and position [1, 1], the text's length [1, 1] if rotary positions depend on it, past_key.LAYER
 * and past_value.LAYER [1, heads of keys, room, width]; its outputs logits [1, 1, vocabulary], and key.LAYER and
 * value.LAYER, which the next token reads as past_*. */
bool folder_import_step(const char *path, const char *output, int64_t room, Diagnostics *diagnostics);

#endif
