/* The parts of loss.c: what a specification says, which outputs there are, and the terms as nodes. */
#ifndef GRAPH_PASSES_LOSS_INTERNAL_H
#define GRAPH_PASSES_LOSS_INTERNAL_H

#include "graph/ops/add_node.h"

/* One term of a specification: KIND[:NAME ...][,OPTION ...]. */
typedef struct LossTerm {
    const char *text, *kind;
    const char *names[4]; /* as they follow the colons; NULL: no further one */
    int output_count;     /* how many of them are outputs; labels come next */
    const float *weights; /* of classes, `weight_count` of them; NULL: not given */
    int64_t weight_count;
    double smoothing, temperature, factor;
    bool shift;
} LossTerm;

/* ---- loss_outputs.c ---- */

ValueId loss_find_output(const Graph *graph, const char *name); /* 0 if there is none */
/* The output called logits, or else the only one of a float type with more than one element; 0 if it is not clear. */
ValueId loss_default_output(const Graph *graph);
bool loss_is_scalar(const Graph *graph, ValueId id); /* a float value of one element; not 0 */
/* Reports, with a hint that lists the outputs and the losses that fit each; returns 0. */
ValueId loss_refuse(const Builder *b, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- loss_terms.c: each returns the scaled scalar, 0 after reporting ---- */

ValueId loss_cross_entropy(const Builder *b, const LossTerm *term);
ValueId loss_squared_error(const Builder *b, const LossTerm *term);
ValueId loss_binary_cross_entropy(const Builder *b, const LossTerm *term);
ValueId loss_cosine(const Builder *b, const LossTerm *term);
ValueId loss_contrastive(const Builder *b, const LossTerm *term);

#endif
