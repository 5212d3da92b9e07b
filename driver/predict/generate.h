/* A text continued by a decoder, token by token. */
#ifndef DRIVER_PREDICT_GENERATE_H
#define DRIVER_PREDICT_GENERATE_H

#include "driver/predict/predictor.h"

typedef struct GenerateOptions {
    const char *prompt;
    const char *question; /* what the prompt was made of: the answer alone is printed; NULL: the prompt too */
    bool whole;           /* the prompt has its first tokens itself, without those of the tokenizer's frame */
    int64_t tokens;       /* at most so many are added */
    int64_t positions;    /* the most tokens that the model takes, if known; else INT64_MAX */
    double temperature;   /* logits are divided by it, and the token is drawn; 0: the most likely one */
    double top_p;         /* drawn from the fewest tokens whose probabilities add up to this (Holtzman et al. 2020) */
    uint64_t seed;
    bool verbose; /* tell on stderr how fast it was */
} GenerateOptions;

/* Appends prompt and continuation to `text`. Generation ends before a token of `ends`, and, with a warning,
 * where the model has no further position. A decoder from skycc import takes one token at a time, and keeps keys and
 * values of those before it; its graph and weights are written into the new directory `scratch`. Of other models, every
 * token runs the whole row again. `predictor` is opened here, from the file `path`, and is the caller's to free;
 * `width`: of a model of fixed shapes, 0 where it is open. */
bool generate(Predictor *predictor, const GenerateOptions *options, Tokenizer *tokenizer, const char *path,
              const char *called, int64_t width, const int64_t *ends, size_t end_count, const char *scratch,
              int threads, Buffer *text, Diagnostics *diagnostics);

#endif
