#include "codegen/kernels/arithmetic.h"

#include "codegen/kernels/elementary.h"

static LLVMTypeRef same_lanes(LLVMTypeRef element, Ir like) { return emit_vector_type(element, emit_lanes(like)); }

static Ir integer_compare(Emit *emit, LLVMIntPredicate predicate, Ir a, int64_t b)
{
    return emit_compare(emit, predicate, a, emit_integer_like(emit, a, b));
}

/* ---- Elements in memory ---- */

static bool is_unsigned(DType dtype)
{
    return dtype == DTYPE_U8 || dtype == DTYPE_U16 || dtype == DTYPE_U32 || dtype == DTYPE_U64;
}

Ir arithmetic_widen(Emit *emit, DType dtype, Ir element)
{
    LLVMBuilderRef builder = emit->builder;
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F64:
    case DTYPE_I64:
    case DTYPE_U64:
    case DTYPE_Q8: /* which are decoded as they are loaded */
    case DTYPE_Q4: return element;
    case DTYPE_F16: return LLVMBuildFPExt(builder, element, same_lanes(emit->f32, element), "");
    case DTYPE_BF16: {
        Ir bits = LLVMBuildZExt(builder, element, same_lanes(emit->i32, element), "");
        bits = emit_shl(emit, bits, emit_integer_like(emit, bits, 16));
        return emit_bitcast(emit, bits, emit->f32);
    }
    case DTYPE_BOOL: return integer_compare(emit, LLVMIntNE, element, 0);
    default: return LLVMBuildIntCast2(builder, element, same_lanes(emit->i64, element), !is_unsigned(dtype), "");
    }
}

/* Round to nearest even; NaN keeps its sign and becomes quiet. */
static Ir narrow_bf16(Emit *emit, Ir value)
{
    LLVMBuilderRef builder = emit->builder;
    Ir bits = emit_bitcast(emit, value, emit->i32);
    Ir high = emit_lshr(emit, bits, emit_integer_like(emit, bits, 16));
    Ir odd = emit_and(emit, high, emit_integer_like(emit, bits, 1));
    Ir rounded = LLVMBuildAdd(builder, bits, emit_integer_like(emit, bits, 0x7fff), "");
    rounded = emit_lshr(emit, LLVMBuildAdd(builder, rounded, odd, ""), emit_integer_like(emit, bits, 16));
    Ir nan = LLVMBuildFCmp(builder, LLVMRealUNO, value, value, "");
    Ir quiet = emit_or(emit, high, emit_integer_like(emit, bits, 0x40));
    return LLVMBuildTrunc(builder, emit_select(emit, nan, quiet, rounded), same_lanes(emit->i16, value), "");
}

Ir arithmetic_round_bf16(Emit *emit, Ir value) { return arithmetic_widen(emit, DTYPE_BF16, narrow_bf16(emit, value)); }

/* By the processor's instruction, to which subnormal numbers are 0; NULL: it has none for as many lanes. */
static Ir narrow_bf16_at_once(Emit *emit, Ir value)
{
    enum { LANES = 16 };
    if (emit->target->bf16 == BF16_NONE || emit_lanes(value) != LANES) return NULL;
    Ir halves = emit_intrinsic(emit, "llvm.x86.avx512bf16.cvtneps2bf16.512", NULL, 0, &value, 1);
    return emit_bitcast(emit, halves, emit->i16);
}

Ir arithmetic_narrow(Emit *emit, DType dtype, Ir value)
{
    LLVMBuilderRef builder = emit->builder;
    Ir at_once = dtype == DTYPE_BF16 ? narrow_bf16_at_once(emit, value) : NULL;
    if (at_once) return at_once;
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F64:
    case DTYPE_I64:
    case DTYPE_U64: return value;
    case DTYPE_F16: return LLVMBuildFPTrunc(builder, value, same_lanes(emit->half, value), "");
    case DTYPE_BF16: return narrow_bf16(emit, value);
    case DTYPE_BOOL: return LLVMBuildZExt(builder, value, same_lanes(emit->i8, value), "");
    default: return LLVMBuildTrunc(builder, value, same_lanes(emit_memory_type(emit, dtype), value), "");
    }
}

/* ---- Conversions ---- */

Ir arithmetic_convert(Emit *emit, DType from, DType to, Ir value)
{
    if (from == to) return value;
    LLVMBuilderRef builder = emit->builder;
    LLVMTypeRef type = same_lanes(emit_register_type(emit, to), value);
    if (to == DTYPE_BOOL) {
        if (!dtype_is_float(from)) return integer_compare(emit, LLVMIntNE, value, 0);
        return LLVMBuildFCmp(builder, LLVMRealUNE, value, emit_float_like(emit, value, 0), "");
    }
    if (from == DTYPE_BOOL)
        return to == DTYPE_I64 ? LLVMBuildZExt(builder, value, type, "") : LLVMBuildUIToFP(builder, value, type, "");
    if (to == DTYPE_I64) {
        LLVMTypeRef types[] = {type, LLVMTypeOf(value)};
        return emit_intrinsic(emit, "llvm.fptosi.sat", types, 2, &value, 1);
    }
    if (from == DTYPE_I64) return LLVMBuildSIToFP(builder, value, type, "");
    return to == DTYPE_F64 ? LLVMBuildFPExt(builder, value, type, "") : LLVMBuildFPTrunc(builder, value, type, "");
}

/* ---- Unary ---- */

static Ir unary_integer(Emit *emit, int op, Ir a)
{
    LLVMBuilderRef builder = emit->builder;
    Ir negative = integer_compare(emit, LLVMIntSLT, a, 0);
    switch (op) {
    case KERNEL_NEGATE: return LLVMBuildNeg(builder, a, "");
    case KERNEL_ABSOLUTE: return emit_select(emit, negative, LLVMBuildNeg(builder, a, ""), a);
    case KERNEL_SIGN: {
        Ir positive = integer_compare(emit, LLVMIntSGT, a, 0);
        Ir sign = emit_select(emit, positive, emit_integer_like(emit, a, 1), emit_integer_like(emit, a, 0));
        return emit_select(emit, negative, emit_integer_like(emit, a, -1), sign);
    }
    default: bug("kernel operation %d on integers", op);
    }
}

static Ir unary_float(Emit *emit, int op, Ir a)
{
    LLVMBuilderRef builder = emit->builder;
    switch (op) {
    case KERNEL_NEGATE: return LLVMBuildFNeg(builder, a, "");
    case KERNEL_ABSOLUTE: return emit_unary_intrinsic(emit, "llvm.fabs", a);
    case KERNEL_SIGN: {
        Ir zero = emit_float_like(emit, a, 0);
        Ir positive = LLVMBuildFCmp(builder, LLVMRealOGT, a, zero, "");
        Ir negative = LLVMBuildFCmp(builder, LLVMRealOLT, a, zero, "");
        Ir sign = emit_select(emit, positive, emit_float_like(emit, a, 1), a);
        return emit_select(emit, negative, emit_float_like(emit, a, -1), sign);
    }
    case KERNEL_EXP: return math_exp(emit, a);
    case KERNEL_LOG: return math_log(emit, a);
    case KERNEL_SQRT: return emit_unary_intrinsic(emit, "llvm.sqrt", a);
    case KERNEL_RECIPROCAL: return LLVMBuildFDiv(builder, emit_float_like(emit, a, 1), a, "");
    case KERNEL_SIN: return emit_library_call(emit, "sin", &a, 1);
    case KERNEL_COS: return emit_library_call(emit, "cos", &a, 1);
    case KERNEL_ERF: return math_erf(emit, a);
    case KERNEL_TANH: return math_tanh(emit, a);
    case KERNEL_SIGMOID: return math_sigmoid(emit, a);
    case KERNEL_NORMAL_BELOW: return math_normal_below(emit, a);
    case KERNEL_NORMAL_DENSITY: return math_normal_density(emit, a);
    case KERNEL_IS_NAN: return LLVMBuildFCmp(builder, LLVMRealUNO, a, a, "");
    default: bug("kernel operation %d on floats", op);
    }
}

Ir arithmetic_unary(Emit *emit, int op, DType type, Ir a)
{
    if (op == KERNEL_NOT) return emit_not(emit, a);
    return dtype_is_float(type) ? unary_float(emit, op, a) : unary_integer(emit, op, a);
}

/* ---- Binary ---- */

/* NaN of either wins; of two zeros, either. */
static Ir extremum(Emit *emit, const char *intrinsic, Ir a, Ir b)
{
    LLVMTypeRef type = LLVMTypeOf(a);
    Ir result = emit_intrinsic(emit, intrinsic, &type, 1, (Ir[]){a, b}, 2);
    LLVMSetFastMathFlags(result, LLVMFastMathNoSignedZeros);
    return result;
}

/* Multiplying by a known reciprocal is much faster, and changes the last bit at most. */
static Ir divide_float(Emit *emit, Ir a, Ir b)
{
    Ir quotient = LLVMBuildFDiv(emit->builder, a, b, "");
    if (LLVMIsConstant(b) && LLVMCanValueUseFastMathFlags(quotient))
        LLVMSetFastMathFlags(quotient, LLVMFastMathAllowReciprocal);
    return quotient;
}

static Ir binary_float(Emit *emit, int op, Ir a, Ir b)
{
    LLVMBuilderRef builder = emit->builder;
    switch (op) {
    case KERNEL_ADD: return emit_fadd(emit, a, b);
    case KERNEL_SUBTRACT: return emit_fsub(emit, a, b);
    case KERNEL_MULTIPLY: return emit_fmul(emit, a, b);
    case KERNEL_MULTIPLY_BF16X3: return emit_fmul(emit, a, b);
    case KERNEL_MULTIPLY_BF16: return emit_fmul(emit, arithmetic_round_bf16(emit, a), arithmetic_round_bf16(emit, b));
    case KERNEL_DIVIDE: return divide_float(emit, a, b);
    case KERNEL_REMAINDER: return emit_library_call(emit, "fmod", (Ir[]){a, b}, 2);
    case KERNEL_POWER: return emit_library_call(emit, "pow", (Ir[]){a, b}, 2);
    case KERNEL_MINIMUM: return extremum(emit, "llvm.minimum", a, b);
    case KERNEL_MAXIMUM: return extremum(emit, "llvm.maximum", a, b);
    case KERNEL_EQUAL: return LLVMBuildFCmp(builder, LLVMRealOEQ, a, b, "");
    case KERNEL_LESS: return LLVMBuildFCmp(builder, LLVMRealOLT, a, b, "");
    case KERNEL_LESS_EQUAL: return LLVMBuildFCmp(builder, LLVMRealOLE, a, b, "");
    default: bug("kernel operation %d on floats", op);
    }
}

/* Division that cannot trap: by 0 and by -1 apart. */
static Ir divide_integer(Emit *emit, int op, Ir a, Ir b)
{
    LLVMBuilderRef builder = emit->builder;
    Ir zero = emit_integer_like(emit, a, 0);
    Ir by_zero = integer_compare(emit, LLVMIntEQ, b, 0), by_minus_one = integer_compare(emit, LLVMIntEQ, b, -1);
    Ir unsafe = emit_or(emit, by_zero, by_minus_one);
    Ir divisor = emit_select(emit, unsafe, emit_integer_like(emit, a, 1), b);
    if (op == KERNEL_DIVIDE) {
        Ir quotient = LLVMBuildSDiv(builder, a, divisor, "");
        quotient = emit_select(emit, by_minus_one, LLVMBuildNeg(builder, a, ""), quotient);
        return emit_select(emit, by_zero, zero, quotient);
    }
    Ir remainder = LLVMBuildSRem(builder, a, divisor, "");
    Ir differ = integer_compare(emit, LLVMIntSLT, emit_xor(emit, remainder, divisor), 0);
    Ir nonzero = integer_compare(emit, LLVMIntNE, remainder, 0);
    Ir moved = LLVMBuildAdd(builder, remainder, divisor, "");
    remainder = emit_select(emit, emit_and(emit, differ, nonzero), moved, remainder);
    return emit_select(emit, unsafe, zero, remainder);
}

/* a^b by repeated squaring; 63 steps cover every exponent, and a negative exponent truncates the quotient 1 / a^-b. */
static Ir power_integer(Emit *emit, Ir a, Ir b)
{
    LLVMBuilderRef builder = emit->builder;
    Ir one = emit_integer_like(emit, a, 1), zero = emit_integer_like(emit, a, 0);
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, 63), 1, 3, (Ir[]){one, a, b});
    Ir odd = integer_compare(emit, LLVMIntNE, emit_and(emit, loop.carried[2], one), 0);
    Ir product = LLVMBuildMul(builder, loop.carried[0], loop.carried[1], "");
    Ir next[] = {emit_select(emit, odd, product, loop.carried[0]),
                 LLVMBuildMul(builder, loop.carried[1], loop.carried[1], ""), emit_lshr(emit, loop.carried[2], one)};
    emit_loop_end(emit, &loop, next);
    Ir odd_exponent = integer_compare(emit, LLVMIntNE, emit_and(emit, b, one), 0);
    Ir minus_one = emit_integer_like(emit, a, -1);
    Ir inverse = emit_select(emit, integer_compare(emit, LLVMIntEQ, a, 1), one, zero);
    Ir alternating = emit_select(emit, odd_exponent, minus_one, one);
    inverse = emit_select(emit, integer_compare(emit, LLVMIntEQ, a, -1), alternating, inverse);
    return emit_select(emit, integer_compare(emit, LLVMIntSLT, b, 0), inverse, loop.carried[0]);
}

static Ir binary_integer(Emit *emit, int op, Ir a, Ir b)
{
    LLVMBuilderRef builder = emit->builder;
    switch (op) {
    case KERNEL_ADD: return LLVMBuildAdd(builder, a, b, "");
    case KERNEL_SUBTRACT: return emit_sub(emit, a, b);
    case KERNEL_MULTIPLY: return LLVMBuildMul(builder, a, b, "");
    case KERNEL_DIVIDE:
    case KERNEL_REMAINDER: return divide_integer(emit, op, a, b);
    case KERNEL_POWER: return power_integer(emit, a, b);
    case KERNEL_MINIMUM: return emit_select(emit, emit_compare(emit, LLVMIntSLT, a, b), a, b);
    case KERNEL_MAXIMUM: return emit_select(emit, emit_compare(emit, LLVMIntSGT, a, b), a, b);
    case KERNEL_EQUAL: return emit_compare(emit, LLVMIntEQ, a, b);
    case KERNEL_LESS: return emit_compare(emit, LLVMIntSLT, a, b);
    case KERNEL_LESS_EQUAL: return emit_compare(emit, LLVMIntSLE, a, b);
    default: bug("kernel operation %d on integers", op);
    }
}

static Ir binary_bool(Emit *emit, int op, Ir a, Ir b)
{
    switch (op) {
    case KERNEL_AND: return emit_and(emit, a, b);
    case KERNEL_OR: return emit_or(emit, a, b);
    case KERNEL_EQUAL: return emit_not(emit, emit_xor(emit, a, b));
    default: bug("kernel operation %d on truth values", op);
    }
}

Ir arithmetic_binary(Emit *emit, int op, DType type, Ir a, Ir b)
{
    if (type == DTYPE_BOOL) return binary_bool(emit, op, a, b);
    return dtype_is_float(type) ? binary_float(emit, op, a, b) : binary_integer(emit, op, a, b);
}

Ir arithmetic_power_constant(Emit *emit, Ir a, Ir b, double exponent)
{
    LLVMBuilderRef builder = emit->builder;
    if (exponent == 1) return a;
    if (exponent == 2) return LLVMBuildFMul(builder, a, a, "");
    if (exponent == 3) return LLVMBuildFMul(builder, LLVMBuildFMul(builder, a, a, ""), a, "");
    if (exponent == -1) return LLVMBuildFDiv(builder, emit_float_like(emit, a, 1), a, "");
    return emit_library_call(emit, "pow", (Ir[]){a, b}, 2);
}
