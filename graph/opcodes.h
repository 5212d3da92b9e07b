/* The operator table: one row per operator, re-included for every use (enum, names, rules, traits).
 *
 * OPERATOR(Name, rules, least inputs, most inputs (-1: any), outputs, axes, traits)
 *
 * For each row the file of its family in graph/ops/ has a shape rule `infer_RULES`, a gradient rule
 * `differentiate_RULES`, a lowering `lower_RULES` and an axes rule `axes_AXES` (graph/ops/operator.h). Rows may share
 * rules. Traits are what passes ask of operators. Names of ONNX operators mean what the newest opset says, with axes
 * and shapes as attributes; the importer normalises older forms. An attribute called `shape` is always the result's
 * shape (what broadcasts to it, for Expand), and one called `positions` numbers the result's elements. */
#ifndef GRAPH_OPCODES_H
#define GRAPH_OPCODES_H

#include <stdbool.h>

/* clang-format off */
#define OPERATORS \
    /* elementwise.c: maps with numpy broadcasting */ \
    OPERATOR(Identity, unary, 1, 1, 1, broadcast, IS_MAP | IS_MOVEMENT | ZERO_OF_FIRST) \
    OPERATOR(Neg, unary, 1, 1, 1, broadcast, IS_MAP | ZERO_OF_FIRST) \
    OPERATOR(Abs, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Sign, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Exp, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Log, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Sqrt, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Reciprocal, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Sin, unary, 1, 1, 1, broadcast, IS_MAP | IS_WAVE) \
    OPERATOR(Cos, unary, 1, 1, 1, broadcast, IS_MAP | IS_WAVE) \
    OPERATOR(Erf, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Tanh, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Sigmoid, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Relu, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Not, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(IsNaN, unary, 1, 1, 1, broadcast, IS_MAP) \
    OPERATOR(Cast, cast, 1, 1, 1, broadcast, IS_MAP | CONVERTS | ZERO_OF_FIRST) /* to: a DType */ \
    OPERATOR(Add, binary, 2, 2, 1, broadcast, IS_MAP | IS_SUM | COMMUTES | ZERO_OF_ALL) \
    OPERATOR(Sub, binary, 2, 2, 1, broadcast, IS_MAP | IS_SUM | ZERO_OF_ALL) \
    OPERATOR(Mul, binary, 2, 2, 1, broadcast, IS_MAP | IS_SCALING | COMMUTES | ZERO_OF_ANY) \
    OPERATOR(Div, binary, 2, 2, 1, broadcast, IS_MAP | IS_SCALING | ZERO_OF_FIRST) \
    OPERATOR(Pow, binary, 2, 2, 1, broadcast, IS_MAP) \
    OPERATOR(Mod, binary, 2, 2, 1, broadcast, IS_MAP) /* fmod: 1 for the sign of the dividend */ \
    OPERATOR(Min, binary, 2, 2, 1, broadcast, IS_MAP | COMMUTES) \
    OPERATOR(Max, binary, 2, 2, 1, broadcast, IS_MAP | COMMUTES) \
    OPERATOR(And, binary, 2, 2, 1, broadcast, IS_MAP | COMMUTES) \
    OPERATOR(Or, binary, 2, 2, 1, broadcast, IS_MAP | COMMUTES) \
    OPERATOR(Equal, binary, 2, 2, 1, broadcast, IS_MAP | COMMUTES) \
    OPERATOR(Less, binary, 2, 2, 1, broadcast, IS_MAP) \
    OPERATOR(LessOrEqual, binary, 2, 2, 1, broadcast, IS_MAP) \
    OPERATOR(Greater, binary, 2, 2, 1, broadcast, IS_MAP) \
    OPERATOR(GreaterOrEqual, binary, 2, 2, 1, broadcast, IS_MAP) \
    OPERATOR(Where, where, 3, 3, 1, broadcast, IS_MAP | FILLS | ZERO_OF_ALL) \
    /* gelu.c */ \
    OPERATOR(Gelu, gelu, 1, 1, 1, broadcast, IS_MAP) /* tanh: 1 for the tanh approximation */ \
    OPERATOR(GeluDerivative, gelu_derivative, 1, 1, 1, broadcast, IS_MAP) /* at x; tanh */ \
    OPERATOR(Softsign, softsign, 1, 1, 1, broadcast, IS_MAP | ZERO_OF_FIRST) /* softsign.c */ \
    /* movement.c: the same elements seen otherwise, mostly free (views, see graph/ops/lower.h) */ \
    OPERATOR(Reshape, reshape, 1, 1, 1, reshape, IS_MOVEMENT | REGROUPS | ZERO_OF_FIRST) /* shape */ \
    OPERATOR(Transpose, transpose, 1, 1, 1, transpose, IS_MOVEMENT | REORDERS | ZERO_OF_FIRST) /* perm */ \
    OPERATOR(Expand, expand, 1, 1, 1, broadcast, IS_MOVEMENT | ZERO_OF_FIRST) /* shape */ \
    OPERATOR(Slice, slice, 1, 1, 1, slice, IS_MOVEMENT | SELECTS) \
        /* starts, steps, shape of the result: one entry per axis */ \
    OPERATOR(SliceGradient, slice_gradient, 1, 1, 1, slice, 0) \
        /* dy -> dx, zero outside; starts, steps, shape of dx */ \
    OPERATOR(Concat, concat, 1, -1, 1, concat, FILLS) /* axis */ \
    /* gather.c */ \
    OPERATOR(Gather, gather, 2, 2, 1, gather, IS_LOOKUP | SELECTS) \
        /* data, indices; axis, no_gradient: indices that pass none */ \
    OPERATOR(GatherGradient, gather_gradient, 2, 2, 1, gather_gradient, 0) \
        /* indices, dy -> ddata; axis, shape of ddata, no_gradient */ \
    OPERATOR(GatherElements, gather_elements, 2, 2, 1, none, IS_LOOKUP) /* data, indices; axis */ \
    OPERATOR(GatherND, gather_nd, 2, 2, 1, none, IS_LOOKUP) /* data, indices; batch_dims */ \
    /* scatter.c: reduction: none (the default), add, mul, max or min; data absent: zeros of `shape` */ \
    OPERATOR(ScatterElements, scatter_elements, 2, 3, 1, none, FILLS) \
        /* indices, updates, data; axis, reduction, shape */ \
    OPERATOR(ScatterND, scatter_nd, 2, 3, 1, none, FILLS) /* indices, updates, data; batch_dims, reduction, shape */ \
    /* reduce.c */ \
    OPERATOR(ReduceSum, reduce, 1, 1, 1, reduce, ADDS_UP) /* axes, keepdims */ \
    OPERATOR(ReduceMean, reduce, 1, 1, 1, reduce, 0) /* axes, keepdims */ \
    OPERATOR(ReduceMax, reduce, 1, 1, 1, reduce, 0) /* axes, keepdims */ \
    OPERATOR(ReduceMin, reduce, 1, 1, 1, reduce, 0) /* axes, keepdims */ \
    OPERATOR(ReduceProd, reduce, 1, 1, 1, reduce, 0) /* axes, keepdims */ \
    OPERATOR(ArgMax, arg_max, 1, 1, 1, arg_max, 0) /* axis, keepdims, select_last_index */ \
    /* matmul.c */ \
    OPERATOR(MatMul, matmul, 2, 2, 1, matmul, IS_PRODUCT | ADDS_UP) \
    /* softmax.c: along the last axis */ \
    OPERATOR(Softmax, softmax, 1, 1, 1, rows, NORMALISES) \
    OPERATOR(SoftmaxGradient, softmax_gradient, 2, 2, 1, rows, 0) /* y, dy -> dx */ \
    OPERATOR(LogSoftmax, log_softmax, 1, 1, 1, rows, 0) \
    OPERATOR(LogSoftmaxGradient, log_softmax_gradient, 2, 2, 1, rows, 0) /* y, dy -> dx */ \
    /* layer_norm.c: over the last axis */ \
    OPERATOR(LayerNormalization, layer_norm, 2, 3, 3, layer_norm, HAS_GAIN) \
        /* x, gain, bias -> y, mean, inverse deviation; epsilon */ \
    OPERATOR(LayerNormGradient, layer_norm_gradient, 5, 5, 1, layer_norm, 0) \
        /* x, gain, mean, inverse deviation, dy -> dx */ \
    OPERATOR(LayerNormGainGradient, layer_norm_gain_gradient, 4, 4, 1, layer_norm_gain, 0) \
        /* x, mean, inverse deviation, dy -> dgain */ \
    /* dropout.c */ \
    OPERATOR(Dropout, dropout, 3, 4, 1, dropout, IS_RANDOM) \
        /* x, key, scalars, first; ratio; row: elements of one row of the batch; positions: of the first element in \
        the whole tensor, then the stride of each axis. With `first`, int64 that broadcast to x, an element is `row` \
        times that further on, whatever the micro-batch */ \
    /* cross_entropy.c: logits [rows, classes], integer labels [rows], constant weights [classes] or []; ignore_index, \
       labels: number of the label input */ \
    OPERATOR(CrossEntropy, cross_entropy, 3, 3, 2, cross_entropy, IS_LOSS) \
        /* logits, labels, scalars -> scaled sum, log-sum-exp [rows, 2] */ \
    OPERATOR(CrossEntropyGradient, cross_entropy_gradient, 4, 4, 1, cross_entropy, 0) \
        /* logits, labels, log-sum-exp, scalars -> dlogits */ \
    OPERATOR(WeightedCrossEntropy, weighted_cross_entropy, 4, 4, 3, cross_entropy, IS_LOSS) \
        /* logits, labels, scalars, weights -> scaled sum, log-sum-exp [rows, 2], loss of each row; smoothing */ \
    OPERATOR(WeightedCrossEntropyGradient, weighted_cross_entropy_gradient, 5, 5, 1, cross_entropy, 0) \
        /* logits, labels, log-sum-exp, scalars, weights -> dlogits */ \
    OPERATOR(ScaleLoss, scale_loss, 2, 2, 1, scale_loss, 0) \
        /* x, scalars -> x / micro-batches; with labels: x / what those weigh */ \
    /* binary_cross_entropy.c */ \
    OPERATOR(BinaryCrossEntropy, binary_cross_entropy, 2, 2, 1, broadcast, IS_MAP) \
        /* logits, probabilities of the same shape */ \
    /* coding.c: rows of the last dimension; codec: its name (base/codec.h) */ \
    OPERATOR(Encode, encode, 1, 4, 1, coding, IS_RANDOM) \
        /* x, key, scalars, first -> bytes; with a key stochastically, elements numbered as Dropout's: row: elements \
        of one row of the batch, or `first`, int64 that broadcast to the rows of x: numbers of their first elements */ \
    OPERATOR(Decode, decode, 1, 1, 1, coding, 0) /* bytes -> x; columns */ \
    /* updates.c: effects on parameters and their state, in place */ \
    OPERATOR(AccumulateGradient, accumulate_gradient, 1, 1, 2, none, HAS_MEMORY) \
        /* contribution -> accumulated gradient, added to it; parts */ \
    OPERATOR(SgdUpdate, sgd_update, 3, 3, 0, none, 0) /* parameter, gradient, scalars */ \
    OPERATOR(MomentumUpdate, momentum_update, 4, 4, 0, none, 0) /* parameter, gradient, scalars, velocity */ \
    OPERATOR(AdamUpdate, adam_update, 5, 5, 0, none, 0) \
        /* parameter, gradient, scalars, m, v; decoupled: 1 for AdamW */ \
    OPERATOR(LambUpdate, lamb_update, 5, 5, 0, none, 0) /* parameter, gradient, scalars, m, v */
/* clang-format on */

typedef enum Opcode {
    OP_NONE, /* a dead node */
#define OPERATOR(name, rules, least, most, outputs, axes, traits) OP_##name,
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
