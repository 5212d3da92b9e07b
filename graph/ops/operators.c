/* The table of rules. By it alone, those who apply rules reach the families, which use them in turn. */
#include "graph/ops/operator.h"

const Operator operators[OP_COUNT] = {
#define OPERATOR(name, shape, gradient, lowering, axes, least, most, outputs, traits)                                  \
    [OP_##name] = {infer_##shape, differentiate_##gradient, lower_##lowering, axes_##axes},
    OPERATORS
#undef OPERATOR
};
