/* The operator table: one row per operator, re-included for every use (enum, names, dispatch).
 *
 * OPERATOR(Name, family function prefix, least inputs, most inputs (-1: any), outputs)
 *
 * Each row needs, in the file of its family: a shape rule `infer_PREFIX`, a gradient rule `differentiate_PREFIX` and a
 * lowering `lower_PREFIX` (see graph/ops/operator.h). Rows may share a prefix. Names of ONNX operators mean what the
 * newest opset says, with axes and shapes as attributes; the importer normalises older forms. */
#ifndef GRAPH_OPCODES_H
#define GRAPH_OPCODES_H

/* clang-format off */
#define OPERATORS \
    /* elementwise.c: maps with numpy broadcasting */ \
    OPERATOR(Identity, unary, 1, 1, 1) \
    OPERATOR(Neg, unary, 1, 1, 1) \
    OPERATOR(Abs, unary, 1, 1, 1) \
    OPERATOR(Sign, unary, 1, 1, 1) \
    OPERATOR(Exp, unary, 1, 1, 1) \
    OPERATOR(Log, unary, 1, 1, 1) \
    OPERATOR(Sqrt, unary, 1, 1, 1) \
    OPERATOR(Reciprocal, unary, 1, 1, 1) \
    OPERATOR(Sin, unary, 1, 1, 1) \
    OPERATOR(Cos, unary, 1, 1, 1) \
    OPERATOR(Erf, unary, 1, 1, 1) \
    OPERATOR(Tanh, unary, 1, 1, 1) \
    OPERATOR(Sigmoid, unary, 1, 1, 1) \
    OPERATOR(Relu, unary, 1, 1, 1) \
    OPERATOR(Not, unary, 1, 1, 1) \
    OPERATOR(IsNaN, unary, 1, 1, 1) \
    OPERATOR(Cast, cast, 1, 1, 1) /* to: a DType */ \
    OPERATOR(Add, binary, 2, 2, 1) \
    OPERATOR(Sub, binary, 2, 2, 1) \
    OPERATOR(Mul, binary, 2, 2, 1) \
    OPERATOR(Div, binary, 2, 2, 1) \
    OPERATOR(Pow, binary, 2, 2, 1) \
    OPERATOR(Mod, binary, 2, 2, 1) /* fmod: 1 for the sign of the dividend */ \
    OPERATOR(Min, binary, 2, 2, 1) \
    OPERATOR(Max, binary, 2, 2, 1) \
    OPERATOR(And, binary, 2, 2, 1) \
    OPERATOR(Or, binary, 2, 2, 1) \
    OPERATOR(Equal, binary, 2, 2, 1) \
    OPERATOR(Less, binary, 2, 2, 1) \
    OPERATOR(LessOrEqual, binary, 2, 2, 1) \
    OPERATOR(Greater, binary, 2, 2, 1) \
    OPERATOR(GreaterOrEqual, binary, 2, 2, 1) \
    OPERATOR(Where, where, 3, 3, 1) \
    /* gelu.c */ \
    OPERATOR(Gelu, gelu, 1, 1, 1) /* tanh: 1 for the tanh approximation */ \
    OPERATOR(GeluDerivative, gelu_derivative, 1, 1, 1) /* at x; tanh */ \
    /* movement.c: the same elements seen otherwise, mostly free (views, see graph/ops/lower.h) */ \
    OPERATOR(Reshape, reshape, 1, 1, 1) /* shape */ \
    OPERATOR(Transpose, transpose, 1, 1, 1) /* perm */ \
    OPERATOR(Expand, expand, 1, 1, 1) /* shape */ \
    OPERATOR(Slice, slice, 1, 1, 1) /* starts, steps, shape of the result: one entry per axis */ \
    OPERATOR(SliceGradient, slice_gradient, 1, 1, 1) /* dy -> dx, zero outside; starts, steps, shape of dx */ \
    OPERATOR(Concat, concat, 1, -1, 1) /* axis */ \
    /* gather.c */ \
    OPERATOR(Gather, gather, 2, 2, 1) /* data, indices; axis, no_gradient: indices that pass none */ \
    OPERATOR(GatherGradient, gather_gradient, 2, 2, 1) /* indices, dy -> ddata; axis, shape of ddata, no_gradient */ \
    OPERATOR(GatherElements, gather_elements, 2, 2, 1) /* data, indices; axis */ \
    OPERATOR(GatherND, gather_nd, 2, 2, 1) /* data, indices; batch_dims */ \
    /* scatter.c: reduction: none (the default), add, mul, max or min; data absent: zeros of `shape` */ \
    OPERATOR(ScatterElements, scatter_elements, 2, 3, 1) /* indices, updates, data; axis, reduction, shape */ \
    OPERATOR(ScatterND, scatter_nd, 2, 3, 1) /* indices, updates, data; batch_dims, reduction, shape */ \
    /* reduce.c */ \
    OPERATOR(ReduceSum, reduce, 1, 1, 1) /* axes, keepdims */ \
    OPERATOR(ReduceMean, reduce, 1, 1, 1) /* axes, keepdims */ \
    OPERATOR(ReduceMax, reduce, 1, 1, 1) /* axes, keepdims */ \
    OPERATOR(ReduceMin, reduce, 1, 1, 1) /* axes, keepdims */ \
    OPERATOR(ReduceProd, reduce, 1, 1, 1) /* axes, keepdims */ \
    OPERATOR(ArgMax, arg_max, 1, 1, 1) /* axis, keepdims, select_last_index */ \
    /* matmul.c */ \
    OPERATOR(MatMul, matmul, 2, 2, 1) \
    /* softmax.c: along the last axis */ \
    OPERATOR(Softmax, softmax, 1, 1, 1) \
    OPERATOR(SoftmaxGradient, softmax_gradient, 2, 2, 1) /* y, dy -> dx */ \
    OPERATOR(LogSoftmax, log_softmax, 1, 1, 1) \
    OPERATOR(LogSoftmaxGradient, log_softmax_gradient, 2, 2, 1) /* y, dy -> dx */ \
    /* layer_norm.c: over the last axis */ \
    OPERATOR(LayerNormalization, layer_norm, 2, 3, 3) /* x, gain, bias -> y, mean, inverse deviation; epsilon */ \
    OPERATOR(LayerNormGradient, layer_norm_gradient, 5, 5, 1) /* x, gain, mean, inverse deviation, dy -> dx */ \
    OPERATOR(LayerNormGainGradient, layer_norm_gain_gradient, 4, 4, 1) /* x, mean, inverse deviation, dy -> dgain */ \
    /* dropout.c */ \
    OPERATOR(Dropout, dropout, 3, 4, 1) /* x, key, scalars, first; ratio; row: elements of one row of the batch; \
        positions: of the first element in the whole tensor, then the stride of each axis. With `first`, int64 that \
        broadcast to x, an element stands `row` times that further on, whatever the micro-batch */ \
    /* cross_entropy.c: logits [rows, classes], integer labels [rows], constant weights [classes] or []; ignore_index, \
       labels: number of the label input */ \
    OPERATOR(CrossEntropy, cross_entropy, 3, 3, 2) /* logits, labels, scalars -> scaled sum, log-sum-exp [rows] */ \
    OPERATOR(CrossEntropyGradient, cross_entropy_gradient, 4, 4, 1) /* logits, labels, log-sum-exp, scalars -> dlogits */ \
    OPERATOR(WeightedCrossEntropy, weighted_cross_entropy, 4, 4, 3) /* logits, labels, scalars, weights -> scaled sum, \
        log-sum-exp [rows], loss of each row; smoothing */ \
    OPERATOR(WeightedCrossEntropyGradient, weighted_cross_entropy_gradient, 5, 5, 1) /* logits, labels, log-sum-exp, \
        scalars, weights -> dlogits */ \
    OPERATOR(ScaleLoss, scale_loss, 2, 2, 1) /* x, scalars -> x / micro-batches; with labels: x / what those weigh */ \
    /* binary_cross_entropy.c */ \
    OPERATOR(BinaryCrossEntropy, binary_cross_entropy, 2, 2, 1) /* logits, probabilities of the same shape */ \
    /* coding.c: rows of the last dimension; codec: its name (base/codec.h) */ \
    OPERATOR(Encode, encode, 1, 4, 1) /* x, key, scalars, first -> bytes; with a key stochastically, elements numbered as \
        Dropout's: row: elements of one row of the batch, or `first`, int64 that broadcast to the rows of x: the numbers \
        of their first elements */ \
    OPERATOR(Decode, decode, 1, 1, 1) /* bytes -> x; columns */ \
    /* optimizer.c: effects on parameters and their state, in place */ \
    OPERATOR(AccumulateGradient, accumulate_gradient, 1, 1, 2) /* contribution -> accumulated gradient, added to it; parts */ \
    OPERATOR(SgdUpdate, sgd_update, 3, 3, 0) /* parameter, gradient, scalars */ \
    OPERATOR(MomentumUpdate, momentum_update, 4, 4, 0) /* parameter, gradient, scalars, velocity */ \
    OPERATOR(AdamUpdate, adam_update, 5, 5, 0) /* parameter, gradient, scalars, m, v; decoupled: 1 for AdamW */ \
    OPERATOR(LambUpdate, lamb_update, 5, 5, 0) /* parameter, gradient, scalars, m, v */
/* clang-format on */

typedef enum Opcode {
    OP_NONE, /* a dead node */
#define OPERATOR(name, prefix, least, most, outputs) OP_##name,
    OPERATORS
#undef OPERATOR
        OP_COUNT
} Opcode;

/* A row of the table. */
typedef struct OpcodeForm {
    const char *name;
    int least_inputs, most_inputs, outputs; /* most_inputs -1: any number */
} OpcodeForm;

extern const OpcodeForm opcodes[OP_COUNT]; /* graph/graph.c */

#endif
