/* A head on an encoder that is an ONNX model: one that skycc import made gets the head of its family under the
 * library's names, any other one BERT's. */
#ifndef FRONTEND_HUGGINGFACE_ADD_HEAD_H
#define FRONTEND_HUGGINGFACE_ADD_HEAD_H

#include <stdio.h>

#include "frontend/huggingface/found_head.h"

/* Reads `path`, whose output last_hidden_state, or only one of three dimensions, is (batch, seq, hidden) in float32,
 * and writes `output`, whose outputs are those of the head. Of other encoders, classifiers of sequences read
 * pooler_output where there is one. Weights are drawn as by folder_import; `summary`, which may be NULL, gets the list
 * of new ones. */
bool head_add(const char *path, const char *output, const Head *head, uint64_t seed, FILE *summary,
              Diagnostics *diagnostics);

/* Writes the model, which has this head, as it is: only its outputs get the names that skycc knows, and the model says
 * which head it has, and what its labels are called: head->names, else as its configuration says. */
bool head_keep(const char *path, const char *output, const Head *head, Diagnostics *diagnostics);

/* Reports why head_add would refuse. */
bool head_can_be_added(const FoundHead *found, const Head *head, bool has_mask, const char *path, Arena *arena,
                       Diagnostics *diagnostics);

#endif
