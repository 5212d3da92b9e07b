/* Finds initializers that hold the same numbers. Internal to the importer. */
#ifndef FRONTEND_ONNX_TIES_H
#define FRONTEND_ONNX_TIES_H

#include "frontend/onnx/importer.h"

/* TIE_ROWS: it holds rows of the other. */
typedef enum TieKind { TIE_NONE, TIE_EQUAL, TIE_TRANSPOSED, TIE_ROWS } TieKind;

typedef struct Tie {
    TieKind kind;
    size_t with; /* an earlier tensor (of rows: any) that is itself not tied */
} Tie;

/* Fills `ties` for the graph's initializers, all but TIE_ROWS. Those with a NULL entry or without data are tied to
 * nothing, nor are parameters that the exporter says are several. */
void find_ties(Importer *importer, const OnnxTensor *const *tensors, size_t count, Tie *ties);

/* Whether all elements are the same. */
bool tensor_is_constant(const OnnxTensor *tensor);

#endif
