/* A head on an encoder that is an ONNX model: one that skycc import made gets the head of its family under the
 * library's names, any other one BERT's. */
#ifndef FRONTEND_HUGGINGFACE_ADD_HEAD_H
#define FRONTEND_HUGGINGFACE_ADD_HEAD_H

#include <stdio.h>

#include "frontend/huggingface/head.h"

/* Reads `path`, whose output last_hidden_state, or only one of three dimensions, is (batch, seq, hidden) in float32,
 * and writes `output`, whose outputs are those of the head. Of other encoders, classifiers of sequences read
 * pooler_output where there is one. Weights are drawn as by folder_import; `summary`, which may be NULL, gets the list
 * of new ones. */
bool head_add(const char *path, const char *output, const Head *head, uint64_t seed, FILE *summary,
              Diagnostics *diagnostics);

#endif
