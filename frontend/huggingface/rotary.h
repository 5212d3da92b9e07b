/* Rotary positions (Su et al., "RoFormer", 2021), and the ways to stretch them to longer sequences that the library
 * has. Internal to the folder. */
#ifndef FRONTEND_HUGGINGFACE_ROTARY_H
#define FRONTEND_HUGGINGFACE_ROTARY_H

#include "frontend/huggingface/network.h"

typedef struct Rotation {
    const char *cosine, *sine; /* (1, 1, seq, width) */
    int64_t width, head_width; /* the first `width` elements of a head are turned */
} Rotation;

/* Cosines and sines of the network's positions, in float32 as the library computes them. */
Rotation rotary_add(Network *network, const char *scope, const RotaryConfig *config, int64_t head_width);

/* The angle by which a pair turns from one position to the next; of LONGROPE for short sequences. */
float rotary_frequency(const RotaryConfig *config, int64_t pair);

/* x cos + (-x2, x1) sin, where x1 and x2 are the halves of what is turned of a head; x is (..., seq, head_width). */
const char *rotary_turn(Network *network, const char *scope, const char *x, const Rotation *rotation);

#endif
