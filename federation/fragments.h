/* Parameters in fragments that meet in turn: round r is the meeting of fragment r modulo their number, so that a round
 * sends a part of the model only (Streaming DiLoCo, arXiv 2501.18512). */
#ifndef FEDERATION_FRAGMENTS_H
#define FEDERATION_FRAGMENTS_H

#include <stddef.h>
#include <stdint.h>

typedef struct FragmentRange {
    size_t first, end; /* tensors */
} FragmentRange;

/* The most fragments that `tensors` tensors can be in, none of them empty: at least 1. */
size_t fragments_most(size_t tensors, size_t wanted);
/* Which tensors, in the model's order, are in fragment `fragment` of `count`: whole tensors that follow each other, of
 * elements[i] elements, in fragments of about one size. 1 <= count <= fragments_most(tensors, count). */
FragmentRange fragment_range(const size_t *elements, size_t tensors, size_t count, size_t fragment);

static inline size_t fragment_of_round(int64_t round, size_t count) { return (size_t)(round % (int64_t)count); }

#endif
