/* Finds parameters that hold the same numbers. Internal to the importer. */
#ifndef FRONTEND_ONNX_TIES_H
#define FRONTEND_ONNX_TIES_H

#include "frontend/onnx/model.h"

/* Whether all elements are the same. */
bool tensor_is_constant(const OnnxTensor *tensor);

typedef enum TieKind { TIE_NONE, TIE_EQUAL, TIE_TRANSPOSED } TieKind;

typedef struct Tie {
    TieKind kind;
    size_t with; /* an earlier tensor that is itself not tied */
} Tie;

/* Fills `ties` for `count` tensors. Those with a NULL entry or without data are tied to nothing. */
void find_ties(const OnnxTensor *const *tensors, size_t count, Tie *ties);

#endif
