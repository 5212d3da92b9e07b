/* The operator table: one row per operator, re-included for every use (enum, names, rules, traits).
 *
 * OPERATOR(Name, shape, gradient, lowering, axes, least inputs, most inputs (-1: any), outputs, traits)
 *
 * For each row the file of its family in graph/ops/ has a shape rule `infer_SHAPE`, a gradient rule
 * `differentiate_GRADIENT` (none: it has no gradient), a lowering `lower_LOWERING` and an axes rule `axes_AXES`
 * (graph/ops/operator.h). Rows may share rules. Traits are what passes ask of operators. Names of ONNX operators mean
 * what the newest opset says, with axes and shapes as attributes; the importer normalises older forms. An attribute
 * called `shape` is always the result's shape (what broadcasts to it, for Expand), and one called `positions` numbers
 * the result's elements. */
#ifndef GRAPH_OPCODES_H
#define GRAPH_OPCODES_H

#include <stdbool.h>

/* clang-format off */
#define OPERATORS \
    /* elementwise.c: maps with numpy broadcasting */ \
    OPERATOR(Identity, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP | IS_MOVEMENT | ZERO_OF_FIRST) \
    OPERATOR(Neg, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP | ZERO_OF_FIRST) \
    OPERATOR(Abs, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Sign, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Exp, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Log, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Sqrt, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Reciprocal, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Sin, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP | IS_WAVE) \
    OPERATOR(Cos, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP | IS_WAVE) \
    OPERATOR(Erf, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Tanh, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Sigmoid, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Relu, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Not, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(IsNaN, unary, unary, unary, broadcast, 1, 1, 1, IS_MAP) \
    OPERATOR(Cast, cast, cast, cast, broadcast, 1, 1, 1, IS_MAP | CONVERTS | ZERO_OF_FIRST) /* to: a DType */ \
    OPERATOR(Add, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | IS_SUM | COMMUTES | ZERO_OF_ALL) \
    OPERATOR(Sub, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | IS_SUM | ZERO_OF_ALL) \
    OPERATOR(Mul, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | IS_SCALING | COMMUTES | ZERO_OF_ANY) \
    OPERATOR(Div, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | IS_SCALING | ZERO_OF_FIRST) \
    OPERATOR(Pow, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) \
    OPERATOR(Mod, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) /* fmod: 1 for the sign of the dividend */ \
    OPERATOR(Min, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | COMMUTES) \
    OPERATOR(Max, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | COMMUTES) \
    OPERATOR(And, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | COMMUTES) \
    OPERATOR(Or, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | COMMUTES) \
    OPERATOR(Equal, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP | COMMUTES) \
    OPERATOR(Less, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) \
    OPERATOR(LessOrEqual, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) \
    OPERATOR(Greater, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) \
    OPERATOR(GreaterOrEqual, binary, binary, binary, broadcast, 2, 2, 1, IS_MAP) \
    OPERATOR(Where, where, where, where, broadcast, 3, 3, 1, IS_MAP | FILLS | ZERO_OF_ALL) \
    /* gelu.c */ \
    OPERATOR(Gelu, float_same, gelu, gelu, broadcast, 1, 1, 1, IS_MAP) /* tanh: 1 for the tanh approximation */ \
    OPERATOR(GeluDerivative, float_same, none, gelu, broadcast, 1, 1, 1, IS_MAP) /* at x; tanh */ \
    OPERATOR(Softsign, float_same, softsign, softsign, broadcast, 1, 1, 1, IS_MAP | ZERO_OF_FIRST) /* softsign.c */ \
    /* movement.c: the same elements seen otherwise, mostly free (views, see graph/ops/lower.h) */ \
    OPERATOR(Reshape, reshape, reshape, movement, reshape, 1, 1, 1, IS_MOVEMENT | REGROUPS | ZERO_OF_FIRST) \
        /* shape */ \
    OPERATOR(Transpose, transpose, transpose, movement, transpose, 1, 1, 1, IS_MOVEMENT | REORDERS | ZERO_OF_FIRST) \
        /* perm */ \
    OPERATOR(Expand, expand, expand, movement, broadcast, 1, 1, 1, IS_MOVEMENT | ZERO_OF_FIRST) /* shape */ \
    OPERATOR(Slice, slice, placed, movement, slice, 1, 1, 1, IS_MOVEMENT | SELECTS) \
        /* starts, steps, shape of the result: one entry per axis */ \
    OPERATOR(SliceGradient, slice_gradient, placed, slice_gradient, slice, 1, 1, 1, 0) \
        /* dy -> dx, zero outside; starts, steps, shape of dx */ \
    OPERATOR(Concat, concat, concat, concat, concat, 1, -1, 1, FILLS) /* axis */ \
    /* gather.c */ \
    OPERATOR(Gather, gather, gather, gather, gather, 2, 2, 1, IS_LOOKUP | SELECTS) \
        /* data, indices; axis, no_gradient: indices that pass none */ \
    OPERATOR(GatherGradient, gather_gradient, gather_gradient, gather_gradient, gather_gradient, 2, 2, 1, 0) \
        /* indices, dy -> ddata; axis, shape of ddata, no_gradient */ \
    OPERATOR(GatherElements, gather_elements, gather_elements, gather_elements, none, 2, 2, 1, IS_LOOKUP) \
        /* data, indices; axis */ \
    OPERATOR(GatherND, gather_nd, gather_nd, gather_nd, none, 2, 2, 1, IS_LOOKUP) /* data, indices; batch_dims */ \
    /* scatter.c: reduction: none (the default), add, mul, max or min; data absent: zeros of `shape` */ \
    OPERATOR(ScatterElements, scatter_elements, scatter_elements, scatter_elements, none, 2, 3, 1, FILLS) \
        /* indices, updates, data; axis, reduction, shape */ \
    OPERATOR(ScatterND, scatter_nd, scatter_nd, scatter_nd, none, 2, 3, 1, FILLS) \
        /* indices, updates, data; batch_dims, reduction, shape */ \
    /* reduce.c */ \
    OPERATOR(ReduceSum, reduce, reduce, reduce, reduce, 1, 1, 1, ADDS_UP) /* axes, keepdims */ \
    OPERATOR(ReduceMean, reduce, reduce, reduce, reduce, 1, 1, 1, 0) /* axes, keepdims */ \
    OPERATOR(ReduceMax, reduce, reduce, reduce, reduce, 1, 1, 1, 0) /* axes, keepdims */ \
    OPERATOR(ReduceMin, reduce, reduce, reduce, reduce, 1, 1, 1, 0) /* axes, keepdims */ \
    OPERATOR(ReduceProd, reduce, reduce, reduce, reduce, 1, 1, 1, 0) /* axes, keepdims */ \
    OPERATOR(ArgMax, arg_max, none, arg_max, arg_max, 1, 1, 1, 0) /* axis, keepdims, select_last_index */ \
    /* matmul.c */ \
    OPERATOR(MatMul, matmul, matmul, matmul, matmul, 2, 2, 1, IS_PRODUCT | ADDS_UP) \
    /* softmax.c: along the last axis */ \
    OPERATOR(Softmax, rows, rows, softmax, rows, 1, 1, 1, NORMALISES) \
    OPERATOR(SoftmaxGradient, rows, none, softmax_gradient, rows, 2, 2, 1, 0) /* y, dy -> dx */ \
    OPERATOR(LogSoftmax, rows, rows, log_softmax, rows, 1, 1, 1, 0) \
    OPERATOR(LogSoftmaxGradient, rows, none, log_softmax_gradient, rows, 2, 2, 1, 0) /* y, dy -> dx */ \
    /* layer_norm.c: over the last axis */ \
    OPERATOR(LayerNormalization, layer_norm, layer_norm, layer_norm, layer_norm, 2, 3, 3, HAS_GAIN) \
        /* x, gain, bias -> y, mean, inverse deviation; epsilon */ \
    OPERATOR(LayerNormGradient, layer_norm_gradient, none, layer_norm_gradient, layer_norm, 5, 5, 1, 0) \
        /* x, gain, mean, inverse deviation, dy -> dx */ \
    OPERATOR(LayerNormGainGradient, layer_norm_gain_gradient, none, layer_norm_gain_gradient, layer_norm_gain, 4, 4, \
             1, 0) \
        /* x, mean, inverse deviation, dy -> dgain */ \
    /* dropout.c */ \
    OPERATOR(Dropout, dropout, dropout, dropout, dropout, 3, 4, 1, IS_RANDOM) \
        /* x, key, scalars, first; ratio; row: elements of one row of the batch; positions: of the first element in \
        the whole tensor, then the stride of each axis. With `first`, int64 that broadcast to x, an element is `row` \
        times that further on, whatever the micro-batch */ \
    /* cross_entropy.c: logits [rows, classes], integer labels [rows], constant weights [classes] or []; ignore_index, \
       labels: number of the label input */ \
    OPERATOR(CrossEntropy, cross_entropy, cross_entropy, cross_entropy, cross_entropy, 3, 3, 2, IS_LOSS) \
        /* logits, labels, scalars -> scaled sum, log-sum-exp [rows, 2] */ \
    OPERATOR(CrossEntropyGradient, cross_entropy_gradient, none, cross_entropy_gradient, cross_entropy, 4, 4, 1, 0) \
        /* logits, labels, log-sum-exp, scalars -> dlogits */ \
    OPERATOR(WeightedCrossEntropy, weighted_cross_entropy, cross_entropy, weighted_cross_entropy, cross_entropy, 4, \
             4, 3, IS_LOSS) \
        /* logits, labels, scalars, weights -> scaled sum, log-sum-exp [rows, 2], loss of each row; smoothing */ \
    OPERATOR(WeightedCrossEntropyGradient, weighted_cross_entropy_gradient, none, cross_entropy_gradient, \
             cross_entropy, 5, 5, 1, 0) \
        /* logits, labels, log-sum-exp, scalars, weights -> dlogits */ \
    /* sliced_cross_entropy.c: of hidden [rows, size] times a table of classes, as above; slice: how many classes at a \
       time; columns: the classes are the table's columns, else its rows */ \
    OPERATOR(SlicedCrossEntropy, sliced_cross_entropy, sliced_cross_entropy, sliced_cross_entropy, \
             sliced_cross_entropy, 4, 4, 4, IS_LOSS | IS_PRODUCT) \
        /* hidden, table, labels, scalars -> scaled sum, what was seen of rows, pull of all classes (pull: 0 if nobody \
        wants it), a slice of logits */ \
    OPERATOR(SlicedCrossEntropyGradient, sliced_cross_entropy_gradient, none, sliced_cross_entropy_gradient, \
             sliced_cross_entropy, 7, 7, 3, IS_PRODUCT | HAS_MEMORY) \
        /* hidden, table, labels, seen, pull, scalars, dy -> dhidden, dtable, a slice of logits; of_hidden, of_table: \
        which of the two are made; accumulate: dtable is added to what it was */ \
    OPERATOR(ScaleLoss, scale_loss, scale_loss, scale_loss, scale_loss, 2, 2, 1, 0) \
        /* x, scalars -> x / micro-batches; with labels: x / what those weigh */ \
    /* binary_cross_entropy.c */ \
    OPERATOR(BinaryCrossEntropy, binary_cross_entropy, binary_cross_entropy, binary_cross_entropy, broadcast, 2, 2, \
             1, IS_MAP) \
        /* logits, probabilities of the same shape */ \
    /* coding.c: rows of the last dimension; codec: its name (base/codec.h) */ \
    OPERATOR(Encode, encode, none, encode, coding, 1, 4, 1, IS_RANDOM) \
        /* x, key, scalars, first -> bytes; with a key stochastically, elements numbered as Dropout's: row: elements \
        of one row of the batch, or `first`, int64 that broadcast to the rows of x: numbers of their first elements */ \
    OPERATOR(Decode, decode, none, decode, coding, 1, 1, 1, 0) /* bytes -> x; columns */ \
    /* updates.c: effects on parameters and their state, in place */ \
    OPERATOR(AccumulateGradient, accumulate_gradient, none, accumulate_gradient, none, 1, 1, 2, HAS_MEMORY) \
        /* contribution -> accumulated gradient, added to it; parts */ \
    OPERATOR(SgdUpdate, update, none, sgd_update, none, 3, 3, 0, 0) /* parameter, gradient, scalars */ \
    OPERATOR(MomentumUpdate, update, none, momentum_update, none, 4, 4, 0, 0) \
        /* parameter, gradient, scalars, velocity */ \
    OPERATOR(AdamUpdate, update, none, adam_update, none, 5, 5, 0, 0) \
        /* parameter, gradient, scalars, m, v; decoupled: 1 for AdamW */ \
    OPERATOR(LambUpdate, lamb_update, none, lamb_update, none, 5, 5, 1, 0) /* parameter, gradient, scalars, m, v */
/* clang-format on */

typedef enum Opcode {
    OP_NONE, /* a dead node */
#define OPERATOR(name, shape, gradient, lowering, axes, least, most, outputs, traits) OP_##name,
    OPERATORS
#undef OPERATOR
        OP_COUNT
} Opcode;

typedef enum Traits {
    IS_MAP = 1 << 0,      /* computes each element from those in the same place of its inputs, which broadcast */
    IS_MOVEMENT = 1 << 1, /* shows the elements of its one input otherwise, mostly for free (a view) ... */
    REORDERS = 1 << 2,    /* ... in another order */
    REGROUPS = 1 << 3,    /* ... in dimensions that are split and merged */
    CONVERTS = 1 << 4,    /* changes the type of elements, not what they mean */
    SELECTS = 1 << 5,     /* may read one part of its first input (operator_selects) */
    IS_LOOKUP = 1 << 6,   /* takes elements of its first input from where the second says */
    FILLS = 1 << 7,       /* puts elements of several inputs next to or in place of each other */
    IS_SUM = 1 << 8,      /* of its two inputs, or their difference */
    IS_SCALING = 1 << 9,  /* multiplies or divides */
    COMMUTES = 1 << 10,   /* its two inputs may change places */
    IS_WAVE = 1 << 11,    /* a sine or cosine */
    IS_PRODUCT = 1 << 12, /* of matrices: where most of the work is */
    ADDS_UP = 1 << 13,    /* over the axes that its result lacks: zeros do not count there */
    NORMALISES = 1 << 14, /* the last axis of the result adds up to 1 */
    HAS_GAIN = 1 << 15,   /* inputs from the second on are gain and bias of a normalisation */
    IS_RANDOM = 1 << 16,  /* depends on numbers that are drawn anew in every step */
    IS_LOSS = 1 << 17,    /* adds up over rows, of which its labels say whether they count */
    HAS_MEMORY = 1 << 18, /* adds to what it made before */
    /* 0 wherever such inputs are; an input of type bool is a condition and does not count. */
    ZERO_OF_FIRST = 1 << 19,
    ZERO_OF_ANY = 1 << 20,
    ZERO_OF_ALL = 1 << 21
} Traits;

/* A row of the table. */
typedef struct OpcodeForm {
    const char *name;
    int least_inputs, most_inputs, outputs; /* most_inputs -1: any number */
    unsigned traits;
} OpcodeForm;

extern const OpcodeForm opcodes[OP_COUNT]; /* graph/graph.c */

/* Whether the operator has any of the traits. */
static inline bool operator_has(Opcode op, unsigned traits) { return opcodes[op].traits & traits; }

#endif
