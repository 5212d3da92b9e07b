/* Internal to the importer: initializers that hold copies of a parameter. With fixed shapes exporters fold what a model
 * looks up with constants: token types for every token, one vector for every row of the batch, distances between
 * positions for every pair of tokens. Trained apart, the copies would become different. */
#ifndef FRONTEND_ONNX_COPIES_H
#define FRONTEND_ONNX_COPIES_H

#include "frontend/onnx/import.h"

/* Finds equal vectors in a tensor with elements and 2 dimensions or more. Vectors of one number throughout are copies
 * only of those in other rows of a batch. If there are copies, `distinct` becomes the tensor that holds one of each:
 * [vectors, width], or [1, ...] where whole rows of a batch are equal and nothing else is. NULL: none, and for masks
 * and what is computed of positions. The result and the elements are in the arena. */
const ParameterCopies *find_copies(const OnnxTensor *tensor, Arena *arena, OnnxTensor *distinct);

/* The same, with the vectors found among the rows of `table`, [rows, width]; NULL if one is not there, or if all are of
 * one number throughout. `copies`: what find_copies found in the tensor, or NULL. */
const ParameterCopies *find_rows(const OnnxTensor *tensor, const ParameterCopies *copies, const OnnxTensor *table,
                                 Arena *arena);

#endif
