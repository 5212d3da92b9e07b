/* The table of rules. By it alone, those who apply rules reach the families, which use them in turn. */
#include "graph/ops/operator.h"

const Operator operators[OP_COUNT] = {
#define OPERATOR(name, rules, least, most, outputs, axes, traits)                                                      \
    [OP_##name] = {infer_##rules, differentiate_##rules, lower_##rules, axes_##axes},
    OPERATORS
#undef OPERATOR
};
