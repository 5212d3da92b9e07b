/* Codecs on cuts: what crosses a cut between layers is coded at the end of one layer and decoded at the start of the
 * next, forward and backward (base/codec.h lists the codecs).
 *
 * Run it on the training graph, when all else is done: the gradients stay those of the graph without codecs, as if what
 * is decoded were what was coded (straight through). The graph computes the same then whether stages end at the cut or
 * not, and wherever else it is cut.
 *
 * Coded are float32 tensors of the layer at the cut that the layer on the other side alone reads. Others go as they
 * are: integers and masks, and what several blocks read, which would be coded anew at every cut. Gradients are rounded
 * stochastically, by numbers that depend on the step, the cut, and the element's row and place in the batch alone. */
#ifndef GRAPH_PASSES_CODE_CUTS_H
#define GRAPH_PASSES_CODE_CUTS_H

#include "base/codec.h"
#include "graph/graph.h"

typedef struct CutCodec {
    int cut;         /* before this layer: 1 ... layers - 1 */
    Codec codecs[2]; /* forward, backward */
} CutCodec;

/* `cuts` ascending, no cut twice. */
void cuts_code(Graph *graph, const CutCodec *cuts, int count);

#endif
