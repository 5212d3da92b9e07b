/* What instructions do to lanes, by element type: float32 and float64 are computed in double, integers wrap. */
#include "graph/kernel/interpret_arithmetic.h"

#include <math.h>

#include "base/diagnostics.h"

#define EACH(lanes, expression)                                                                                        \
    do {                                                                                                               \
        for (int i = 0; i < count; i++) (lanes)[i] = (expression);                                                     \
    } while (0)

int64_t interpret_integer_of(double value)
{
    if (isnan(value)) return 0;
    if (value >= 0x1p63) return INT64_MAX;
    return value < -0x1p63 ? INT64_MIN : (int64_t)value;
}

void interpret_convert(InterpreterLanes *to, DType type, const InterpreterLanes *from, DType from_type, int count)
{
    const double *x = from->number;
    const int64_t *n = from->integer;
    bool from_float = dtype_is_float(from_type);
    if (type == DTYPE_BOOL && from_float)
        EACH(to->integer, x[i] != 0);
    else if (type == DTYPE_BOOL)
        EACH(to->integer, n[i] != 0);
    else if (type == DTYPE_I64 && from_float)
        EACH(to->integer, interpret_integer_of(x[i]));
    else if (type == DTYPE_I64)
        EACH(to->integer, n[i]);
    else if (type == DTYPE_F64 && from_float)
        EACH(to->number, x[i]);
    else if (type == DTYPE_F64)
        EACH(to->number, (double)n[i]);
    else if (from_float)
        EACH(to->number, (float)x[i]);
    else
        EACH(to->number, (float)n[i]);
}

static void unary_float(KernelOp op, InterpreterLanes *to, const double *x, int count)
{
    double *y = to->number;
    switch (op) {
    case KERNEL_NEGATE: EACH(y, -x[i]); break;
    case KERNEL_ABSOLUTE: EACH(y, fabs(x[i])); break;
    case KERNEL_SIGN: EACH(y, isnan(x[i]) ? x[i] : (x[i] > 0) - (x[i] < 0)); break;
    case KERNEL_EXP: EACH(y, exp(x[i])); break;
    case KERNEL_LOG: EACH(y, log(x[i])); break;
    case KERNEL_SQRT: EACH(y, sqrt(x[i])); break;
    case KERNEL_RECIPROCAL: EACH(y, 1 / x[i]); break;
    case KERNEL_SIN: EACH(y, sin(x[i])); break;
    case KERNEL_COS: EACH(y, cos(x[i])); break;
    case KERNEL_ERF: EACH(y, erf(x[i])); break;
    case KERNEL_TANH: EACH(y, tanh(x[i])); break;
    case KERNEL_SIGMOID: EACH(y, 1 / (1 + exp(-x[i]))); break;
    case KERNEL_NORMAL_BELOW: EACH(y, 0.5 * erfc(-M_SQRT1_2 * x[i])); break;
    case KERNEL_NORMAL_DENSITY: EACH(y, 0.5 * M_SQRT1_2 * M_2_SQRTPI * exp(-0.5 * x[i] * x[i])); break;
    case KERNEL_IS_NAN: EACH(to->integer, isnan(x[i]) != 0); break;
    default: bug("interpreter: no unary float instruction %d", op);
    }
}

static void unary_integer(KernelOp op, InterpreterLanes *to, const int64_t *n, int count)
{
    int64_t *y = to->integer;
    switch (op) {
    case KERNEL_NEGATE: EACH(y, (int64_t)(0 - (uint64_t)n[i])); break;
    case KERNEL_ABSOLUTE: EACH(y, n[i] < 0 ? (int64_t)(0 - (uint64_t)n[i]) : n[i]); break;
    case KERNEL_SIGN: EACH(y, (n[i] > 0) - (n[i] < 0)); break;
    case KERNEL_NOT: EACH(y, !n[i]); break;
    case KERNEL_IS_NAN: EACH(y, 0); break;
    default: bug("interpreter: no unary integer instruction %d", op);
    }
}

void interpret_unary(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *from, int count)
{
    if (is_float)
        unary_float(op, to, from->number, count);
    else
        unary_integer(op, to, from->integer, count);
}

static void binary_float(KernelOp op, InterpreterLanes *to, const double *x, const double *z, int count)
{
    double *y = to->number;
    switch (op) {
    case KERNEL_ADD: EACH(y, x[i] + z[i]); break;
    case KERNEL_SUBTRACT: EACH(y, x[i] - z[i]); break;
    case KERNEL_MULTIPLY:
    case KERNEL_MULTIPLY_BF16X3: EACH(y, x[i] * z[i]); break;
    case KERNEL_MULTIPLY_BF16: EACH(y, bfloat_round((float)x[i]) * (double)bfloat_round((float)z[i])); break;
    case KERNEL_DIVIDE: EACH(y, x[i] / z[i]); break;
    case KERNEL_REMAINDER: EACH(y, fmod(x[i], z[i])); break;
    case KERNEL_POWER: EACH(y, pow(x[i], z[i])); break;
    case KERNEL_MINIMUM: EACH(y, isnan(x[i]) || x[i] < z[i] ? x[i] : z[i]); break;
    case KERNEL_MAXIMUM: EACH(y, isnan(x[i]) || x[i] > z[i] ? x[i] : z[i]); break;
    case KERNEL_EQUAL: EACH(to->integer, x[i] == z[i]); break;
    case KERNEL_LESS: EACH(to->integer, x[i] < z[i]); break;
    case KERNEL_LESS_EQUAL: EACH(to->integer, x[i] <= z[i]); break;
    default: bug("interpreter: no binary float instruction %d", op);
    }
}

static int64_t multiply_wrapping(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

static int64_t divide(int64_t a, int64_t b)
{
    if (!b) return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t remainder_of_divisor_sign(int64_t a, int64_t b)
{
    if (!b || b == -1) return 0;
    int64_t rest = a % b;
    return rest && (rest ^ b) < 0 ? rest + b : rest;
}

static int64_t power(int64_t base, int64_t exponent)
{
    if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    int64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = multiply_wrapping(result, base);
        base = multiply_wrapping(base, base);
    }
    return result;
}

static void binary_integer(KernelOp op, int64_t *y, const int64_t *a, const int64_t *b, int count)
{
    switch (op) {
    case KERNEL_ADD: EACH(y, (int64_t)((uint64_t)a[i] + (uint64_t)b[i])); break;
    case KERNEL_SUBTRACT: EACH(y, (int64_t)((uint64_t)a[i] - (uint64_t)b[i])); break;
    case KERNEL_MULTIPLY: EACH(y, multiply_wrapping(a[i], b[i])); break;
    case KERNEL_DIVIDE: EACH(y, divide(a[i], b[i])); break;
    case KERNEL_REMAINDER: EACH(y, remainder_of_divisor_sign(a[i], b[i])); break;
    case KERNEL_POWER: EACH(y, power(a[i], b[i])); break;
    case KERNEL_MINIMUM: EACH(y, a[i] < b[i] ? a[i] : b[i]); break;
    case KERNEL_MAXIMUM: EACH(y, a[i] > b[i] ? a[i] : b[i]); break;
    case KERNEL_EQUAL: EACH(y, a[i] == b[i]); break;
    case KERNEL_LESS: EACH(y, a[i] < b[i]); break;
    case KERNEL_LESS_EQUAL: EACH(y, a[i] <= b[i]); break;
    case KERNEL_AND: EACH(y, a[i] && b[i]); break;
    case KERNEL_OR: EACH(y, a[i] || b[i]); break;
    default: bug("interpreter: no binary integer instruction %d", op);
    }
}

void interpret_binary(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *a,
                      const InterpreterLanes *b, int count)
{
    if (is_float)
        binary_float(op, to, a->number, b->number, count);
    else
        binary_integer(op, to->integer, a->integer, b->integer, count);
}

void interpret_choose(InterpreterLanes *to, DType type, const InterpreterLanes *condition, const InterpreterLanes *a,
                      const InterpreterLanes *b, int count)
{
    if (dtype_is_float(type))
        EACH(to->number, condition->integer[i] ? a->number[i] : b->number[i]);
    else
        EACH(to->integer, condition->integer[i] ? a->integer[i] : b->integer[i]);
}

/* ---- Reductions ---- */

void interpret_reduction_start(const KernelInstruction *instruction, InterpreterLanes *lanes)
{
    bool is_float = dtype_is_float((DType)instruction->type);
    switch (instruction->op) {
    case KERNEL_MAXIMUM_OF:
        if (is_float)
            lanes->number[0] = -INFINITY;
        else
            lanes->integer[0] = INT64_MIN;
        break;
    case KERNEL_MINIMUM_OF:
        if (is_float)
            lanes->number[0] = INFINITY;
        else
            lanes->integer[0] = INT64_MAX;
        break;
    default:
        if (is_float)
            lanes->number[0] = instruction->op == KERNEL_PRODUCT;
        else
            lanes->integer[0] = instruction->op == KERNEL_PRODUCT;
    }
}

#define FOLD(sum, expression)                                                                                          \
    do {                                                                                                               \
        for (int i = 0; i < count; i++) sum = (expression);                                                            \
    } while (0)

static void reduce_float(KernelOp op, double *accumulator, const double *x, int count)
{
    double sum = *accumulator;
    switch (op) {
    case KERNEL_SUM: FOLD(sum, sum + x[i]); break;
    case KERNEL_PRODUCT: FOLD(sum, sum * x[i]); break;
    case KERNEL_MAXIMUM_OF: FOLD(sum, isnan(sum) || sum > x[i] ? sum : x[i]); break;
    default: FOLD(sum, isnan(sum) || sum < x[i] ? sum : x[i]);
    }
    *accumulator = sum;
}

static void reduce_integer(KernelOp op, int64_t *accumulator, const int64_t *n, int count)
{
    int64_t sum = *accumulator;
    switch (op) {
    case KERNEL_SUM: FOLD(sum, (int64_t)((uint64_t)sum + (uint64_t)n[i])); break;
    case KERNEL_PRODUCT: FOLD(sum, multiply_wrapping(sum, n[i])); break;
    case KERNEL_MAXIMUM_OF: FOLD(sum, sum > n[i] ? sum : n[i]); break;
    default: FOLD(sum, sum < n[i] ? sum : n[i]);
    }
    *accumulator = sum;
}

void interpret_reduce(KernelOp op, bool is_float, InterpreterLanes *to, const InterpreterLanes *from, int count)
{
    if (is_float)
        reduce_float(op, to->number, from->number, count);
    else
        reduce_integer(op, to->integer, from->integer, count);
}
