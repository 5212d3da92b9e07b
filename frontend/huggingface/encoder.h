/* Encoders: from token ids to last_hidden_state. Internal to the folder. */
#ifndef FRONTEND_HUGGINGFACE_ENCODER_H
#define FRONTEND_HUGGINGFACE_ENCODER_H

#include "frontend/huggingface/network.h"

/* Adds the graph's inputs and the encoder of the configured family; returns its result, (batch, seq, hidden). */
const char *encoder_build(Network *network);

/* The parts of the families. */

/* Inputs input_ids, attention_mask and, where there are several types, token_type_ids; the mask and positions. */
void encoder_add_inputs(Network *network);
/* The sum of the embeddings, normalised, and projected to the hidden size: (batch, seq, hidden). */
const char *encoder_embed(Network *network);
/* Adds them to a sum, from SCOPE.position_embeddings and SCOPE.token_type_embeddings. */
const char *encoder_add_positions(Network *network, const char *scope, const char *sum);
const char *encoder_add_types(Network *network, const char *scope, const char *sum);
/* (seq, seq), int64: table[query - key], where `table` has 2 most - 1 numbers, of the distances from 1 - most on. */
const char *encoder_relative(Network *network, const char *scope, const int64_t *table, int64_t most);

/* DeBERTa: what relative positions add to the scores of a block, (batch, heads, seq, seq). */
typedef struct DebertaPositions {
    const char *embeddings;        /* (1, 2 span, hidden) */
    const char *by_key, *by_query; /* (seq, seq): which embedding */
    int64_t span;
} DebertaPositions;

DebertaPositions deberta_positions(Network *network);
/* Queries and keys are split into heads; `scale` is what all scores are divided by. */
const char *deberta_position_scores(Network *network, const DebertaPositions *positions, const char *scope,
                                    const char *queries, const char *keys, const char *scale);
/* The convolution parallel to the first block, whose result is `attended`. */
const char *deberta_convolve(Network *network, const char *input, const char *attended);

/* BERT's distances: which row of a block's table, SCOPE.distance_embedding, is that of two tokens; what the rows add to
 * the products of queries and keys, which are split into heads. */
typedef struct Distances {
    const char *by_query, *by_key; /* (seq, seq); NULL: not in use */
} Distances;

Distances distances_share(Network *network, const char *scope);
const char *distance_scores(Network *network, const Distances *distances, const char *scope, const char *queries,
                            const char *keys);

/* MPNet and T5: what relative positions add to the scores of a block, (1, heads, seq, seq): rows of the table SCOPE,
 * [buckets, heads]. Keys at the distance `most` and beyond share a bucket. */
const char *encoder_bucket_scores(Network *network, const char *scope, int64_t buckets, int64_t most);

const char *decoder_build(Network *network);
/* ModernBERT's, on tokens or pooled states: a product, an activation, a norm. */
const char *prediction_head(Network *network, const char *scope, const char *x);
/* Of a decoder's hidden states: scores of the next token (batch, seq, vocabulary); the last token that the mask lets
 * through (batch, hidden). */
const char *decoder_predict(Network *network, const char *x);
const char *decoder_last_token(Network *network, const char *x);

#endif
