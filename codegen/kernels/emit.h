/* Thin helpers over LLVM's C builder, so that emitters read like the loops they emit. */
#ifndef CODEGEN_KERNELS_EMIT_H
#define CODEGEN_KERNELS_EMIT_H

#include <llvm-c/Core.h>

#include "base/dtype.h"
#include "codegen/kernels/target.h"

typedef LLVMValueRef Ir; /* an LLVM value */

typedef struct Emit {
    const Target *target;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef builder;
    LLVMTypeRef i1, i8, i16, i32, i64, half, f32, f64, pointer;
    LLVMTypeRef void_type;
    LLVMValueRef function; /* being emitted */
} Emit;

void emit_init(Emit *emit, const Target *target, LLVMTargetMachineRef machine);
void emit_free(Emit *emit); /* disposes the module too, unless it was taken (set to NULL) */

/* Starts a function (external, or internal and never inlined) and positions the builder in its entry block. */
LLVMValueRef emit_function(Emit *emit, const char *name, LLVMTypeRef type, bool internal);
/* A SkyKernel (runtime/program/program.h), whose parameters are these. */
enum { KERNEL_OPERANDS, KERNEL_BEGIN, KERNEL_END, KERNEL_SCRATCH, KERNEL_LIMIT, KERNEL_PARAMETERS };
LLVMValueRef emit_kernel_function(Emit *emit, const char *name);

/* `lanes` of `type`; the type itself for one lane. */
LLVMTypeRef emit_vector_type(LLVMTypeRef type, int lanes);
LLVMTypeRef emit_register_type(Emit *emit, DType type); /* f32, f64, i64, i1 */
LLVMTypeRef emit_memory_type(Emit *emit, DType type);   /* as the element lies in memory; bf16 as i16, bool as i8 */
int emit_lanes(Ir value);

Ir emit_i64(Emit *emit, int64_t value);
Ir emit_i32(Emit *emit, int value);
/* Constants of the type of `like`, splat over its lanes. */
Ir emit_float_like(Emit *emit, Ir like, double value);
Ir emit_integer_like(Emit *emit, Ir like, int64_t value);
Ir emit_splat_constant(Ir scalar_constant, int lanes);
Ir emit_broadcast(Emit *emit, Ir scalar, int lanes);  /* identity for one lane and for vectors */
Ir emit_iota(Emit *emit, int64_t step, int lanes);    /* 0, step, 2 step ... as i64 */
Ir emit_lane_mask(Emit *emit, int active, int lanes); /* the first `active` lanes, constant */

/* Arithmetic that the compiler may contract into fused multiply-adds, and nothing else. */
Ir emit_fadd(Emit *emit, Ir a, Ir b);
Ir emit_fsub(Emit *emit, Ir a, Ir b);
Ir emit_fmul(Emit *emit, Ir a, Ir b);
/* a * b + c: in one rounding where the target has the instruction, else in two. */
Ir emit_fma(Emit *emit, Ir a, Ir b, Ir c);
Ir emit_add(Emit *emit, Ir a, Ir b); /* i64 addresses and indices: constants folded */
Ir emit_mul(Emit *emit, Ir a, int64_t b);
Ir emit_least(Emit *emit, Ir a, Ir b); /* of signed integers */

/* What LLVM's builder calls by the same names, without a name for the result. */
static inline Ir emit_sub(Emit *emit, Ir a, Ir b) { return LLVMBuildSub(emit->builder, a, b, ""); }
static inline Ir emit_and(Emit *emit, Ir a, Ir b) { return LLVMBuildAnd(emit->builder, a, b, ""); }
static inline Ir emit_or(Emit *emit, Ir a, Ir b) { return LLVMBuildOr(emit->builder, a, b, ""); }
static inline Ir emit_xor(Emit *emit, Ir a, Ir b) { return LLVMBuildXor(emit->builder, a, b, ""); }
static inline Ir emit_shl(Emit *emit, Ir a, Ir b) { return LLVMBuildShl(emit->builder, a, b, ""); }
static inline Ir emit_lshr(Emit *emit, Ir a, Ir b) { return LLVMBuildLShr(emit->builder, a, b, ""); }
static inline Ir emit_ashr(Emit *emit, Ir a, Ir b) { return LLVMBuildAShr(emit->builder, a, b, ""); }
static inline Ir emit_udiv(Emit *emit, Ir a, Ir b) { return LLVMBuildUDiv(emit->builder, a, b, ""); }
static inline Ir emit_urem(Emit *emit, Ir a, Ir b) { return LLVMBuildURem(emit->builder, a, b, ""); }
static inline Ir emit_select(Emit *emit, Ir if_true, Ir a, Ir b)
{
    return LLVMBuildSelect(emit->builder, if_true, a, b, "");
}
static inline Ir emit_compare(Emit *emit, LLVMIntPredicate how, Ir a, Ir b)
{
    return LLVMBuildICmp(emit->builder, how, a, b, "");
}
static inline Ir emit_not(Emit *emit, Ir a) { return LLVMBuildNot(emit->builder, a, ""); }

/* An intrinsic overloaded on `types`. */
Ir emit_intrinsic(Emit *emit, const char *name, LLVMTypeRef *types, unsigned type_count, Ir *arguments,
                  unsigned argument_count);
Ir emit_unary_intrinsic(Emit *emit, const char *name, Ir a);
/* A C library function of `count` doubles or floats, applied to every lane. */
Ir emit_library_call(Emit *emit, const char *name, Ir *arguments, int count);
Ir emit_bitcast(Emit *emit, Ir value, LLVMTypeRef element); /* lanes keep their number */

/* Transposes a square of `lanes` vectors, in place. */
void emit_transpose_square(Emit *emit, Ir *row, int lanes);

/* base + offset elements of `type`. */
Ir emit_address(Emit *emit, LLVMTypeRef type, Ir base, Ir offset);
/* Of the SkyKernel that is being emitted, which has it as its last parameter: so many bytes into its scratch. */
Ir emit_scratch_at(Emit *emit, size_t offset);
Ir emit_load(Emit *emit, LLVMTypeRef type, Ir address, Ir mask, unsigned alignment); /* masked-off lanes are zero */
void emit_store(Emit *emit, Ir value, Ir address, Ir mask, unsigned alignment);
/* Element i of the result is at base + offset[i] elements of `type`. `mask` may be NULL. */
Ir emit_gather(Emit *emit, LLVMTypeRef type, Ir base, Ir offset, Ir mask);
void emit_scatter(Emit *emit, Ir value, Ir base, Ir offset, Ir mask);
typedef enum Prefetch { PREFETCH_LEVEL1, PREFETCH_LEVEL2, PREFETCH_FOR_WRITING } Prefetch;
void emit_prefetch(Emit *emit, Ir address, Prefetch kind);

/* for (index = begin; index < end; index += step), with values carried from one iteration to the next. After
 * emit_loop_end the carried phis hold the final values. */
enum { EMIT_MAX_CARRIED = 72 };
typedef struct EmitLoop {
    LLVMBasicBlockRef header, body, exit;
    Ir index;
    Ir end;
    int64_t step;
    int carried_count;
    Ir carried[EMIT_MAX_CARRIED];
} EmitLoop;

void emit_loop_begin(Emit *emit, EmitLoop *loop, Ir begin, Ir end, int64_t step, int carried_count, const Ir *initial);
void emit_loop_end(Emit *emit, EmitLoop *loop, const Ir *next);

/* A branch: emit_if, the first case, emit_end_if; or emit_if, the first case, emit_else, the second, emit_end_if. */
typedef struct EmitIf {
    LLVMBasicBlockRef otherwise, end;
} EmitIf;
void emit_if(Emit *emit, EmitIf *branch, Ir condition);
void emit_else(Emit *emit, EmitIf *branch);
void emit_end_if(Emit *emit, EmitIf *branch);

#endif
