/* config.json of a Hugging Face folder: the kind of model and its sizes. */
#ifndef FRONTEND_HUGGINGFACE_CONFIG_H
#define FRONTEND_HUGGINGFACE_CONFIG_H

#include "frontend/huggingface/config_types.h"

/* Reads the file. Sizes are limited so that products of two do not overflow. Reports an unknown model_type with the
 * list of those there are (EXIT_UNSUPPORTED_OPERATOR), and every other problem. Texts live in the arena. */
bool config_read(HuggingFaceConfig *config, const char *path, Arena *arena, Diagnostics *diagnostics);
/* The same from text; messages call it `path`. */
bool config_parse(HuggingFaceConfig *config, const char *text, const char *path, Arena *arena,
                  Diagnostics *diagnostics);
void config_free(HuggingFaceConfig *config);
/* Whether tokens see those before them only. */
bool config_is_decoder(const HuggingFaceConfig *config);
/* The longest sequence for which the encoder has positions. */
int64_t encoder_most_positions(const HuggingFaceConfig *config);

/* The names of id2label in the text of a config.json, by number; in the arena. */
const char *const *config_labels(const char *source, Arena *arena, size_t *count);

/* The configuration of the same encoder with this head, as the library writes it: class, labels, kind of problem, and
 * float32 as the type of the tensors. */
void config_print(const HuggingFaceConfig *config, const Head *head, Buffer *buffer);

/* Any configuration, in the order of its members and with indents. */
void config_print_json(const json_t *root, Buffer *buffer);

#endif
