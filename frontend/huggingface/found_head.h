/* Which head an ONNX graph has, whoever exported it: by the names and shapes of its outputs. */
#ifndef FRONTEND_HUGGINGFACE_FOUND_HEAD_H
#define FRONTEND_HUGGINGFACE_FOUND_HEAD_H

#include "frontend/huggingface/head.h"
#include "frontend/onnx/model.h"

/* Strings live in the arena. */
typedef struct FoundHead {
    /* HEAD_NONE: an encoder alone; HEAD_FROM_FOLDER: none of these. names: of the labels; NULL: there are none, or only
     * the library's generic ones. */
    Head head;
    const char *outputs[2]; /* that the head has, in the order of own_outputs */
    const char *all;        /* the names of all outputs, with commas */
    const char *states;     /* hidden states, (batch, seq, hidden) in float32; NULL: not one, or it has a head */
    const char *pooled;     /* pooler_output; NULL: there is none */
    int64_t hidden;
    const char *table; /* the parameter whose rows input_ids choose, (vocabulary, width); NULL: not found */
    int64_t vocabulary, width;
    int64_t positions; /* rows of its table; INT64_MAX: not found */
    int64_t opset;
    bool imported;      /* by skycc import, and every initializer is one parameter */
    const char *config; /* text of the config.json that it was imported with, or that is next to it; NULL: none */
} FoundHead;

/* Imports the model without its weights. A head whose outputs are probabilities is refused: losses take scores. */
bool found_head_read(FoundHead *found, const char *path, Arena *arena, Diagnostics *diagnostics);
/* Whether the graph has this head. A text's labels may be one or several, and tokens masked or the next ones. */
bool found_head_is(const FoundHead *found, const Head *head);
/* What skycc calls the outputs of such a head; the second NULL if it has one. */
void head_outputs(const Head *head, const char *names[2]);

#endif
