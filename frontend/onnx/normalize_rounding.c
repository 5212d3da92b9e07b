/* Ceil, Floor and Round of comparisons and conversions: exports compute positions with them, never activations. */
#include "frontend/onnx/normalize.h"

/* The integer next to x towards zero; numbers so large that they have no fraction, infinities and NaN stay. */
static ValueId emit_truncated(OnnxNode *node, ValueId x)
{
    enum { BITS = 51 }; /* from 2^52 on doubles have no fraction, and integers of 64 bits reach that far */
    if (!x) return 0;
    DType type = dtype_of(node, x);
    ValueId large = emit_scalar(node, type, (double)((int64_t)1 << BITS));
    if (type == DTYPE_F16) large = emit_scalar(node, type, 2048);
    ValueId whole = emit_cast(node, emit_cast(node, x, DTYPE_I64), type);
    return emit_where(node, emit_binary(node, OP_Less, emit_unary(node, OP_Abs, x), large), whole, x);
}

static ValueId emit_floor(OnnxNode *node, ValueId x)
{
    ValueId whole = emit_truncated(node, x);
    if (!whole) return 0;
    ValueId below = emit_cast(node, emit_binary(node, OP_Less, x, whole), dtype_of(node, x));
    return emit_binary(node, OP_Sub, whole, below);
}

bool normalize_floor(OnnxNode *node) { return set_output(node, 0, emit_floor(node, node->inputs[0])); }

bool normalize_ceil(OnnxNode *node)
{
    ValueId negative = emit_unary(node, OP_Neg, node->inputs[0]);
    return set_output(node, 0, emit_unary(node, OP_Neg, emit_floor(node, negative)));
}

/* Halves go to the even neighbour. */
bool normalize_round(OnnxNode *node)
{
    ValueId x = node->inputs[0], below = emit_floor(node, x);
    if (!below) return false;
    DType type = dtype_of(node, x);
    ValueId half = emit_scalar(node, type, 0.5), zero = emit_scalar(node, type, 0);
    ValueId rest = emit_binary(node, OP_Sub, x, below);
    ValueId even = emit_floor(node, emit_binary(node, OP_Mul, below, half));
    ValueId odd = emit_binary(node, OP_Sub, below, emit_binary(node, OP_Add, even, even));
    ValueId up = emit_binary(node, OP_And, emit_binary(node, OP_Equal, rest, half),
                             emit_unary(node, OP_Not, emit_binary(node, OP_Equal, odd, zero)));
    up = emit_binary(node, OP_Or, up, emit_binary(node, OP_Greater, rest, half));
    /* An infinity less itself is NaN, which is neither. */
    return set_output(node, 0, emit_binary(node, OP_Add, below, emit_cast(node, up, type)));
}
