#include "codegen/kernels/elementary.h"

#include <string.h>

/* The coefficients are minimax fits (Lawson's iteration on Chebyshev nodes) to the functions named at each table. */

static bool is_f32(Emit *emit, Ir x)
{
    LLVMTypeRef type = LLVMTypeOf(x);
    return type == emit->f32 || (LLVMGetTypeKind(type) == LLVMVectorTypeKind && LLVMGetElementType(type) == emit->f32);
}

/* coefficient[0] + coefficient[1] x + ... by Horner's rule. */
static Ir polynomial(Emit *emit, Ir x, const double *coefficient, int count)
{
    Ir result = emit_float_like(emit, x, coefficient[count - 1]);
    for (int i = count - 2; i >= 0; i--) result = emit_fma(emit, result, x, emit_float_like(emit, x, coefficient[i]));
    return result;
}
/* The same in two chains that do not wait for each other, even and odd powers: for long ones. */
static Ir long_polynomial(Emit *emit, Ir x, const double *coefficient, int count)
{
    double half[2][16];
    for (int i = 0; i < count; i++) half[i % 2][i / 2] = coefficient[i];
    Ir squared = LLVMBuildFMul(emit->builder, x, x, "");
    Ir even = polynomial(emit, squared, half[0], (count + 1) / 2), odd = polynomial(emit, squared, half[1], count / 2);
    return emit_fma(emit, odd, x, even);
}
#define LONG_POLYNOMIAL(x, table) long_polynomial(emit, x, table, (int)(sizeof(table) / sizeof *(table)))
#define POLYNOMIAL(x, table) polynomial(emit, x, table, (int)(sizeof(table) / sizeof *(table)))

static Ir compare(Emit *emit, LLVMRealPredicate predicate, Ir x, double y)
{
    return LLVMBuildFCmp(emit->builder, predicate, x, emit_float_like(emit, x, y), "");
}

/* 2^n as a float, for integers -126 <= n <= 127 in i32 lanes. */
static Ir power_of_two(Emit *emit, Ir n)
{
    Ir biased = LLVMBuildAdd(emit->builder, n, emit_integer_like(emit, n, 127), "");
    return emit_bitcast(emit, emit_shl(emit, biased, emit_integer_like(emit, n, 23)), emit->f32);
}

/* exp(x) = 2^n exp(r), |r| <= ln(2)/2: n is rounded by adding 1.5 * 2^23, so that its low bits are n. Returns exp(r),
 * and n as whole number and as float. */
static Ir reduced_exp(Emit *emit, Ir x, Ir *n, Ir *rounded)
{
    static const double fit[] = {/* (exp(r) - 1 - r) / r^2 */
                                 5.000000000e-01, 1.666651815e-01, 4.166620597e-02, 8.368908428e-03, 1.395052415e-03};
    LLVMBuilderRef builder = emit->builder;
    Ir magic = emit_float_like(emit, x, 12582912.0);
    Ir shifted = emit_fma(emit, x, emit_float_like(emit, x, 1.44269504088896341), magic);
    *rounded = LLVMBuildFSub(builder, shifted, magic, "");
    Ir r = emit_fma(emit, *rounded, emit_float_like(emit, x, -0.693145751953125), x);
    r = emit_fma(emit, *rounded, emit_float_like(emit, x, -1.42860677e-6), r);
    Ir squared = LLVMBuildFMul(builder, r, r, "");
    Ir value = emit_fma(emit, POLYNOMIAL(r, fit), squared, r);
    *n = emit_sub(emit, emit_bitcast(emit, shifted, emit->i32), emit_bitcast(emit, magic, emit->i32));
    return LLVMBuildFAdd(builder, value, emit_float_like(emit, x, 1.0), "");
}

/* For |x| <= 87. */
static Ir exp_bounded(Emit *emit, Ir x)
{
    Ir n, rounded, value = reduced_exp(emit, x, &n, &rounded);
    return LLVMBuildFMul(emit->builder, value, power_of_two(emit, n), "");
}

/* Of which exp rounds to 0. */
static const double VANISHING = -104;

Ir math_exp_remains(Emit *emit, Ir x) { return compare(emit, LLVMRealUGT, x, VANISHING); }

/* AVX-512 scales by powers of two in one instruction, to subnormal numbers and infinity too. */
static bool has_scaling(const Emit *emit, Ir x)
{
    return emit_lanes(x) == 16 && emit->target->vector_bytes == 64 && strncmp(emit->target->triple, "x86_64", 6) == 0;
}

/* The bound or x; x if it is NaN. */
static Ir bounded_by(Emit *emit, const char *extremum, Ir x, double bound)
{
    return emit_intrinsic(emit, extremum, NULL, 0, (Ir[]){emit_float_like(emit, x, bound), x, emit_i32(emit, 4)}, 3);
}

static Ir exp_with_scaling(Emit *emit, Ir x)
{
    x = bounded_by(emit, "llvm.x86.avx512.max.ps.512", x, VANISHING);
    x = bounded_by(emit, "llvm.x86.avx512.min.ps.512", x, 89.0);
    Ir n, rounded, value = reduced_exp(emit, x, &n, &rounded);
    Ir arguments[] = {value, rounded, x, LLVMConstAllOnes(emit->i16), emit_i32(emit, 4)};
    return emit_intrinsic(emit, "llvm.x86.avx512.mask.scalef.ps.512", NULL, 0, arguments, 5);
}

/* 2^n is applied in two halves, which lets the result be subnormal or infinite. */
static Ir exp_f32(Emit *emit, Ir x)
{
    if (has_scaling(emit, x)) return exp_with_scaling(emit, x);
    LLVMBuilderRef builder = emit->builder;
    /* The comparisons are false for NaN, which passes through. */
    Ir clamped = emit_select(emit, compare(emit, LLVMRealOGT, x, 89.0), emit_float_like(emit, x, 89.0), x);
    clamped = emit_select(emit, compare(emit, LLVMRealOLT, x, VANISHING), emit_float_like(emit, x, VANISHING), clamped);
    Ir n, rounded, value = reduced_exp(emit, clamped, &n, &rounded);
    Ir half = emit_ashr(emit, n, emit_integer_like(emit, n, 1));
    Ir rest = emit_sub(emit, n, half);
    value = LLVMBuildFMul(builder, value, power_of_two(emit, half), "");
    return LLVMBuildFMul(builder, value, power_of_two(emit, rest), "");
}

/* log(x) = e ln(2) + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
static Ir log_f32(Emit *emit, Ir x)
{
    static const double fit[] = {/* (log(1 + f) - f + f^2 / 2) / f^3 */
                                 3.333331048e-01,  -2.499998659e-01, 2.000222653e-01,
                                 -1.666924953e-01, 1.421865523e-01,  -1.238436997e-01,
                                 1.187301651e-01,  -1.178969741e-01, 6.915149093e-02};
    LLVMBuilderRef builder = emit->builder;
    Ir subnormal = compare(emit, LLVMRealOLT, x, 1.1754943508222875e-38);
    Ir scaled = emit_select(emit, subnormal, LLVMBuildFMul(builder, x, emit_float_like(emit, x, 8388608.0), ""), x);
    Ir bits = emit_bitcast(emit, scaled, emit->i32);
    /* Offset by the bits of sqrt(1/2), the exponent field counts from there. */
    Ir offset = emit_sub(emit, bits, emit_integer_like(emit, bits, 0x3f3504f3));
    Ir exponent = emit_ashr(emit, offset, emit_integer_like(emit, bits, 23));
    Ir mantissa = emit_sub(emit, bits, emit_shl(emit, exponent, emit_integer_like(emit, bits, 23)));
    Ir f = LLVMBuildFSub(builder, emit_bitcast(emit, mantissa, emit->f32), emit_float_like(emit, x, 1.0), "");
    Ir e = LLVMBuildSIToFP(builder, exponent, LLVMTypeOf(x), "");
    e = LLVMBuildFSub(builder, e,
                      emit_select(emit, subnormal, emit_float_like(emit, x, 23.0), emit_float_like(emit, x, 0.0)), "");
    Ir squared = LLVMBuildFMul(builder, f, f, "");
    Ir value = LLVMBuildFMul(builder, LLVMBuildFMul(builder, squared, f, ""), POLYNOMIAL(f, fit), "");
    value = emit_fma(emit, e, emit_float_like(emit, x, -2.12194440e-4), value);
    value = emit_fma(emit, squared, emit_float_like(emit, x, -0.5), value);
    value = LLVMBuildFAdd(builder, value, f, "");
    value = emit_fma(emit, e, emit_float_like(emit, x, 0.693359375), value);
    Ir nan = emit_float_like(emit, x, __builtin_nan("")), infinity = emit_float_like(emit, x, __builtin_inf());
    value = emit_select(emit, compare(emit, LLVMRealOEQ, x, 0.0), LLVMBuildFNeg(builder, infinity, ""), value);
    value = emit_select(emit, compare(emit, LLVMRealOEQ, x, __builtin_inf()), infinity, value);
    return emit_select(emit, compare(emit, LLVMRealULT, x, 0.0), nan, value);
}

/* |x| < 0.9277: x times a polynomial in x^2; beyond: 1 - exp(-q(|x|)), which is 1 from 3.95 on. */
static Ir erf_f32(Emit *emit, Ir x)
{
    static const double near_zero[] = {/* erf(sqrt(z)) / sqrt(z) */
                                       1.128379226e+00, -3.761263490e-01, 1.128369644e-01, -2.685939521e-02,
                                       5.200944841e-03, -8.140964201e-04, 8.360119682e-05};
    static const double beyond[] = {/* -log(1 - erf(t)) */
                                    -1.767294598e-04, 1.129524708e+00, 6.333270669e-01,  1.083018705e-01,
                                    -2.513349615e-02, 4.176400136e-03, -4.355631536e-04, 2.119016426e-05};
    LLVMBuilderRef builder = emit->builder;
    Ir magnitude = emit_unary_intrinsic(emit, "llvm.fabs", x);
    Ir inner = LLVMBuildFMul(builder, x, POLYNOMIAL(LLVMBuildFMul(builder, x, x, ""), near_zero), "");
    Ir t = emit_select(emit, compare(emit, LLVMRealOGT, magnitude, 3.95), emit_float_like(emit, x, 3.95), magnitude);
    Ir outer = exp_bounded(emit, LLVMBuildFNeg(builder, POLYNOMIAL(t, beyond), ""));
    outer = LLVMBuildFSub(builder, emit_float_like(emit, x, 1.0), outer, "");
    LLVMTypeRef type = LLVMTypeOf(x);
    outer = emit_intrinsic(emit, "llvm.copysign", &type, 1, (Ir[]){outer, x}, 2);
    return emit_select(emit, compare(emit, LLVMRealOLT, magnitude, 0.9277), inner, outer);
}

/* |x| < 0.625: x + x^3 p(x^2); beyond: 1 - 2 / (exp(2 |x|) + 1), which is 1 from 10 on. */
static Ir tanh_f32(Emit *emit, Ir x)
{
    static const double near_zero[] = {/* (tanh(sqrt(z)) / sqrt(z) - 1) / z */
                                       -3.333328366e-01, 1.333149076e-01, -5.374349654e-02, 2.065058611e-02,
                                       -5.717044696e-03};
    LLVMBuilderRef builder = emit->builder;
    Ir magnitude = emit_unary_intrinsic(emit, "llvm.fabs", x);
    Ir squared = LLVMBuildFMul(builder, x, x, "");
    Ir cubed = LLVMBuildFMul(builder, squared, x, "");
    Ir inner = emit_fma(emit, cubed, POLYNOMIAL(squared, near_zero), x);
    Ir t = emit_select(emit, compare(emit, LLVMRealOGT, magnitude, 10.0), emit_float_like(emit, x, 10.0), magnitude);
    Ir e = exp_bounded(emit, LLVMBuildFAdd(builder, t, t, ""));
    Ir one = emit_float_like(emit, x, 1.0), two = emit_float_like(emit, x, 2.0);
    Ir outer = LLVMBuildFSub(builder, one, LLVMBuildFDiv(builder, two, LLVMBuildFAdd(builder, e, one, ""), ""), "");
    LLVMTypeRef type = LLVMTypeOf(x);
    Ir result = emit_select(emit, compare(emit, LLVMRealOLT, magnitude, 0.625), inner, outer);
    return emit_intrinsic(emit, "llvm.copysign", &type, 1, (Ir[]){result, x}, 2);
}

Ir math_exp(Emit *emit, Ir x) { return is_f32(emit, x) ? exp_f32(emit, x) : emit_library_call(emit, "exp", &x, 1); }
Ir math_log(Emit *emit, Ir x) { return is_f32(emit, x) ? log_f32(emit, x) : emit_library_call(emit, "log", &x, 1); }
Ir math_erf(Emit *emit, Ir x) { return is_f32(emit, x) ? erf_f32(emit, x) : emit_library_call(emit, "erf", &x, 1); }
Ir math_tanh(Emit *emit, Ir x) { return is_f32(emit, x) ? tanh_f32(emit, x) : emit_library_call(emit, "tanh", &x, 1); }

/* 1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) where x is negative: neither overflows. */
Ir math_sigmoid(Emit *emit, Ir x)
{
    LLVMBuilderRef builder = emit->builder;
    Ir one = emit_float_like(emit, x, 1.0);
    Ir e = math_exp(emit, LLVMBuildFNeg(builder, emit_unary_intrinsic(emit, "llvm.fabs", x), ""));
    Ir numerator = emit_select(emit, compare(emit, LLVMRealOLT, x, 0.0), e, one);
    return LLVMBuildFDiv(builder, numerator, LLVMBuildFAdd(builder, one, e, ""), "");
}

/* Horner's rule in x^2, moved to the middle of its range. One polynomial for all x, since nothing but the absolute
 * error counts: x^2 stays below 5.3^2, beyond which the result is 0 or 1. */
static Ir normal_below_f32(Emit *emit, Ir x)
{
    static const double bound = 5.3;
    static const double fit[] = {
        /* (P(x) - 1/2) / x at x^2 = 5.3^2 (1 + u) / 2 */
        1.333925606e-01, -6.651842915e-02, 4.926436334e-02, -3.959205669e-02, 3.207648803e-02, -2.526170189e-02,
        1.894069705e-02, -1.337329644e-02, 8.806774285e-03, -5.357302275e-03, 3.101544306e-03, -1.783739883e-03,
        8.650557026e-04, -2.770907818e-04, 1.441822784e-04, -1.377166100e-04, 4.928003766e-05};
    Ir below = compare(emit, LLVMRealOLT, x, -bound);
    Ir t = emit_select(emit, below, emit_float_like(emit, x, -bound), x);
    t = emit_select(emit, compare(emit, LLVMRealOGT, x, bound), emit_float_like(emit, x, bound), t);
    Ir squared = LLVMBuildFMul(emit->builder, t, t, "");
    Ir u = emit_fma(emit, squared, emit_float_like(emit, x, 2 / (bound * bound)), emit_float_like(emit, x, -1.0));
    Ir value = emit_fma(emit, t, LONG_POLYNOMIAL(u, fit), emit_float_like(emit, x, 0.5));
    return emit_select(emit, below, emit_float_like(emit, x, 0.0), value);
}

/* 2^n times a polynomial in the rest r of x^2 (-log2(e) / 2) = n + r. */
static Ir normal_density_f32(Emit *emit, Ir x)
{
    static const double most = 169; /* of x^2: beyond, the result is 0 before its exponent leaves the range */
    static const double fit[] = {   /* 2^r / sqrt(2 pi) */
                                 3.989422806e-01, 2.765257269e-01, 9.583649532e-02, 2.214260819e-02,
                                 3.837221919e-03, 5.345799116e-04, 6.122093126e-05};
    LLVMBuilderRef builder = emit->builder;
    Ir squared = LLVMBuildFMul(builder, x, x, "");
    Ir beyond = compare(emit, LLVMRealOGT, squared, most);
    squared = emit_select(emit, beyond, emit_float_like(emit, x, most), squared);
    Ir magic = emit_float_like(emit, x, 12582912.0), scale = emit_float_like(emit, x, -0.72134752044448170);
    Ir shifted = emit_fma(emit, squared, scale, magic);
    Ir r = emit_fma(emit, squared, scale, LLVMBuildFSub(builder, magic, shifted, ""));
    Ir n = emit_sub(emit, emit_bitcast(emit, shifted, emit->i32), emit_bitcast(emit, magic, emit->i32));
    Ir value = LLVMBuildFMul(builder, POLYNOMIAL(r, fit), power_of_two(emit, n), "");
    return emit_select(emit, beyond, emit_float_like(emit, x, 0.0), value);
}

static Ir library_half_erfc(Emit *emit, Ir x)
{
    Ir t = LLVMBuildFMul(emit->builder, x, emit_float_like(emit, x, -0.70710678118654752440), "");
    return LLVMBuildFMul(emit->builder, emit_library_call(emit, "erfc", &t, 1), emit_float_like(emit, x, 0.5), "");
}

Ir math_normal_below(Emit *emit, Ir x)
{
    return is_f32(emit, x) ? normal_below_f32(emit, x) : library_half_erfc(emit, x);
}

Ir math_normal_density(Emit *emit, Ir x)
{
    if (is_f32(emit, x)) return normal_density_f32(emit, x);
    LLVMBuilderRef builder = emit->builder;
    Ir t = LLVMBuildFMul(builder, LLVMBuildFMul(builder, x, x, ""), emit_float_like(emit, x, -0.5), "");
    return LLVMBuildFMul(builder, math_exp(emit, t), emit_float_like(emit, x, 0.39894228040143267794), "");
}
