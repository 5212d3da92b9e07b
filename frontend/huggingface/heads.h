/* Heads of the families: from last_hidden_state to the graph's outputs. Internal to the folder. */
#ifndef FRONTEND_HUGGINGFACE_HEADS_H
#define FRONTEND_HUGGINGFACE_HEADS_H

#include "frontend/huggingface/network.h"

/* Adds the head and the outputs; `x` is what the encoder gives. `head` is not HEAD_FROM_FOLDER. */
/* Why a model of this kind cannot have the head; NULL: it can. */
const char *head_problem(const HuggingFaceConfig *config, const Head *head);

void head_build(Network *network, const Head *head, const char *x);

#endif
