/* Where parameters go: what a value shows of one, and how weights enter products. */
#ifndef GRAPH_ANALYSIS_PARAMETERS_H
#define GRAPH_ANALYSIS_PARAMETERS_H

#include "graph/graph.h"

/* The parameter that `value` is, or is a mere view of; 0 if it is something else. */
ValueId parameter_behind(const Graph *graph, ValueId value);

/* The same of every value, by its number, in linear time; free() it. */
ValueId *parameters_behind(const Graph *graph);

/* Warns where an output has a value for every row of an embedding table, but comes from other weights of that size: a
 * decoder that was tied to the embeddings before the export, perhaps. Of a forward graph. */
void warn_of_untied_decoders(const Graph *graph, Diagnostics *diagnostics);

/* How a weight enters products with what is computed from inputs, whose right factor is W [in, out]. */
typedef struct ProductWeight {
    int64_t in, out;     /* 0: it is in no such product, or has a problem */
    bool in_product;     /* of whatever form */
    bool transposed;     /* the parameter's elements stand as [out, in] */
    const char *problem; /* it is used in another way too, in which it cannot have a branch: a phrase; else NULL */
    NodeId node;         /* ... there */
} ProductWeight;

/* Of every value, by its number, what it is as a parameter; free() it. */
ProductWeight *product_weights(const Graph *graph);

#endif
