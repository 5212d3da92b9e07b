/* What cross-entropies share, whole (cross_entropy.c) and in slices of classes (sliced_cross_entropy.c). */
#ifndef GRAPH_OPS_CROSS_ENTROPY_H
#define GRAPH_OPS_CROSS_ENTROPY_H

#include "graph/ops/lower.h"
#include "graph/ops/operator.h"

/* How many classes the loss tells apart; 0: the node is no cross-entropy. */
int64_t cross_entropy_classes(const Graph *graph, const Node *node);

/* Whether input `i` holds the scalars of the step; reports if not. */
bool infer_scalars(InferContext *context, int i);

/* The label of a row; the strides are in rows. */
Register load_label(Lowering *lowering, const Node *node, int64_t stride0, int64_t stride1);
Register is_valid(Kernel *kernel, const Node *node, Register label);
/* Which scalar of the step scales the loss, and its value. */
int scale_element(const Node *node);
Register load_scale(Lowering *lowering, ValueId scalars, int element, DType type);

/* One column of a value [rows, columns]. */
View column_of(const View *pairs, int column);
/* The largest logit of a row and log(sum(exp(row - it))), along axis 0 of the kernel, as registers of a type. */
typedef struct LogSum {
    Register maximum, logarithm;
} LogSum;
LogSum load_log_sum(Lowering *lowering, const View *pairs, DType type);
/* Of the class with this logit: -log of its probability (F64), and its probability. */
Register missed(Kernel *kernel, const LogSum *log_sum, Register logit);
Register probability_of(Kernel *kernel, const LogSum *log_sum, Register logit);

#endif
