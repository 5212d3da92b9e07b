#include "codegen/kernels/emit.h"

#include <string.h>

void emit_init(Emit *emit, const Target *target, LLVMTargetMachineRef machine)
{
    LLVMContextRef context = LLVMContextCreate();
    *emit = (Emit){
        .target = target,
        .context = context,
        .module = LLVMModuleCreateWithNameInContext("skycc", context),
        .builder = LLVMCreateBuilderInContext(context),
        .i1 = LLVMInt1TypeInContext(context),
        .i8 = LLVMInt8TypeInContext(context),
        .i16 = LLVMInt16TypeInContext(context),
        .i32 = LLVMInt32TypeInContext(context),
        .i64 = LLVMInt64TypeInContext(context),
        .half = LLVMHalfTypeInContext(context),
        .f32 = LLVMFloatTypeInContext(context),
        .f64 = LLVMDoubleTypeInContext(context),
        .pointer = LLVMPointerTypeInContext(context, 0),
        .void_type = LLVMVoidTypeInContext(context),
    };
    LLVMSetTarget(emit->module, target->triple);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetModuleDataLayout(emit->module, layout);
    LLVMDisposeTargetData(layout);
}

void emit_free(Emit *emit)
{
    LLVMDisposeBuilder(emit->builder);
    LLVMDisposeModule(emit->module);
    LLVMContextDispose(emit->context);
    *emit = (Emit){0};
}

LLVMValueRef emit_function(Emit *emit, const char *name, LLVMTypeRef type, bool internal)
{
    LLVMValueRef function = LLVMAddFunction(emit->module, name, type);
    target_set_attributes(emit->target, emit->context, function);
    if (internal) {
        LLVMSetLinkage(function, LLVMInternalLinkage);
        unsigned kind = LLVMGetEnumAttributeKindForName("noinline", 8);
        LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(emit->context, kind, 0));
    }
    emit->function = function;
    LLVMPositionBuilderAtEnd(emit->builder, LLVMAppendBasicBlockInContext(emit->context, function, "entry"));
    return function;
}

LLVMValueRef emit_kernel_function(Emit *emit, const char *name)
{
    LLVMTypeRef parameters[KERNEL_PARAMETERS] = {emit->pointer, emit->i64, emit->i64, emit->pointer, emit->i64};
    LLVMTypeRef type = LLVMFunctionType(emit->void_type, parameters, KERNEL_PARAMETERS, false);
    return emit_function(emit, name, type, false);
}

/* ---- Types and constants ---- */

LLVMTypeRef emit_vector_type(LLVMTypeRef type, int lanes)
{
    return lanes == 1 ? type : LLVMVectorType(type, (unsigned)lanes);
}

LLVMTypeRef emit_register_type(Emit *emit, DType type)
{
    switch (type) {
    case DTYPE_F32: return emit->f32;
    case DTYPE_F64: return emit->f64;
    case DTYPE_I64: return emit->i64;
    case DTYPE_BOOL: return emit->i1;
    default: bug("%s is not a register type", dtype_name(type));
    }
}

LLVMTypeRef emit_memory_type(Emit *emit, DType type)
{
    switch (type) {
    case DTYPE_F32: return emit->f32;
    case DTYPE_F64: return emit->f64;
    case DTYPE_F16: return emit->half;
    case DTYPE_BF16: return emit->i16;
    default: return LLVMIntTypeInContext(emit->context, (unsigned)dtype_size(type) * 8);
    }
}

static bool is_vector(Ir value) { return LLVMGetTypeKind(LLVMTypeOf(value)) == LLVMVectorTypeKind; }

int emit_lanes(Ir value) { return is_vector(value) ? (int)LLVMGetVectorSize(LLVMTypeOf(value)) : 1; }

static LLVMTypeRef element_type(Ir value)
{
    LLVMTypeRef type = LLVMTypeOf(value);
    return is_vector(value) ? LLVMGetElementType(type) : type;
}

Ir emit_i64(Emit *emit, int64_t value) { return LLVMConstInt(emit->i64, (uint64_t)value, true); }
Ir emit_i32(Emit *emit, int value) { return LLVMConstInt(emit->i32, (uint64_t)value, true); }

Ir emit_splat_constant(Ir scalar_constant, int lanes)
{
    if (lanes == 1) return scalar_constant;
    Ir elements[64];
    for (int i = 0; i < lanes; i++) elements[i] = scalar_constant;
    return LLVMConstVector(elements, (unsigned)lanes);
}

Ir emit_float_like(Emit *emit, Ir like, double value)
{
    (void)emit;
    return emit_splat_constant(LLVMConstReal(element_type(like), value), emit_lanes(like));
}

Ir emit_integer_like(Emit *emit, Ir like, int64_t value)
{
    (void)emit;
    return emit_splat_constant(LLVMConstInt(element_type(like), (uint64_t)value, true), emit_lanes(like));
}

Ir emit_broadcast(Emit *emit, Ir scalar, int lanes)
{
    if (lanes == 1 || is_vector(scalar)) return scalar;
    if (LLVMIsConstant(scalar)) return emit_splat_constant(scalar, lanes);
    LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
    Ir undefined = LLVMGetPoison(type);
    Ir first = LLVMBuildInsertElement(emit->builder, undefined, scalar, emit_i32(emit, 0), "");
    Ir zeros = LLVMConstNull(LLVMVectorType(emit->i32, (unsigned)lanes));
    return LLVMBuildShuffleVector(emit->builder, first, undefined, zeros, "");
}

Ir emit_iota(Emit *emit, int64_t step, int lanes)
{
    Ir elements[64];
    for (int i = 0; i < lanes; i++) elements[i] = emit_i64(emit, step * i);
    return lanes == 1 ? elements[0] : LLVMConstVector(elements, (unsigned)lanes);
}

Ir emit_lane_mask(Emit *emit, int active, int lanes)
{
    Ir elements[64];
    for (int i = 0; i < lanes; i++) elements[i] = LLVMConstInt(emit->i1, i < active, false);
    return LLVMConstVector(elements, (unsigned)lanes);
}

/* ---- Arithmetic ---- */

static Ir allow_contraction(Ir value)
{
    if (LLVMCanValueUseFastMathFlags(value)) LLVMSetFastMathFlags(value, LLVMFastMathAllowContract);
    return value;
}

Ir emit_fadd(Emit *emit, Ir a, Ir b) { return allow_contraction(LLVMBuildFAdd(emit->builder, a, b, "")); }
Ir emit_fsub(Emit *emit, Ir a, Ir b) { return allow_contraction(LLVMBuildFSub(emit->builder, a, b, "")); }
Ir emit_fmul(Emit *emit, Ir a, Ir b) { return allow_contraction(LLVMBuildFMul(emit->builder, a, b, "")); }

Ir emit_fma(Emit *emit, Ir a, Ir b, Ir c)
{
    if (!emit->target->fused_multiply_add) return emit_fadd(emit, emit_fmul(emit, a, b), c);
    LLVMTypeRef type = LLVMTypeOf(a);
    return emit_intrinsic(emit, "llvm.fma", &type, 1, (Ir[]){a, b, c}, 3);
}

Ir emit_add(Emit *emit, Ir a, Ir b) { return LLVMBuildAdd(emit->builder, a, b, ""); }

Ir emit_mul(Emit *emit, Ir a, int64_t b)
{
    if (b == 1) return a;
    return LLVMBuildMul(emit->builder, a, emit_integer_like(emit, a, b), "");
}

Ir emit_intrinsic(Emit *emit, const char *name, LLVMTypeRef *types, unsigned type_count, Ir *arguments,
                  unsigned argument_count)
{
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    if (!id) bug("LLVM has no intrinsic %s", name);
    Ir function = LLVMGetIntrinsicDeclaration(emit->module, id, types, type_count);
    LLVMTypeRef type = LLVMGlobalGetValueType(function);
    return LLVMBuildCall2(emit->builder, type, function, arguments, argument_count, "");
}

Ir emit_unary_intrinsic(Emit *emit, const char *name, Ir a)
{
    LLVMTypeRef type = LLVMTypeOf(a);
    return emit_intrinsic(emit, name, &type, 1, &a, 1);
}

Ir emit_library_call(Emit *emit, const char *name, Ir *arguments, int count)
{
    LLVMTypeRef element = element_type(arguments[0]);
    LLVMTypeRef parameters[4];
    for (int i = 0; i < count; i++) parameters[i] = element;
    LLVMTypeRef type = LLVMFunctionType(element, parameters, (unsigned)count, false);
    char full[32];
    snprintf(full, sizeof full, "%s%s", name, element == emit->f32 ? "f" : "");
    Ir function = LLVMGetNamedFunction(emit->module, full);
    if (!function) function = LLVMAddFunction(emit->module, full, type);
    int lanes = emit_lanes(arguments[0]);
    if (lanes == 1) return LLVMBuildCall2(emit->builder, type, function, arguments, (unsigned)count, "");
    Ir result = LLVMGetPoison(LLVMTypeOf(arguments[0]));
    for (int lane = 0; lane < lanes; lane++) {
        Ir position = emit_i32(emit, lane), scalar[4];
        for (int i = 0; i < count; i++) scalar[i] = LLVMBuildExtractElement(emit->builder, arguments[i], position, "");
        Ir value = LLVMBuildCall2(emit->builder, type, function, scalar, (unsigned)count, "");
        result = LLVMBuildInsertElement(emit->builder, result, value, position, "");
    }
    return result;
}

Ir emit_bitcast(Emit *emit, Ir value, LLVMTypeRef element)
{
    return LLVMBuildBitCast(emit->builder, value, emit_vector_type(element, emit_lanes(value)), "");
}

/* ---- Memory ---- */

/* Exchanges lane bit `distance` with vector bit `distance`: done for every bit, it transposes a square block. */
static void exchange(Emit *emit, Ir *row, int lanes, int distance)
{
    for (int i = 0; i < lanes; i++) {
        if (i & distance) continue;
        Ir low[64], high[64];
        for (int lane = 0; lane < lanes; lane++) {
            bool upper = lane & distance;
            low[lane] = emit_i32(emit, upper ? lanes + (lane ^ distance) : lane);
            high[lane] = emit_i32(emit, upper ? lanes + lane : lane ^ distance);
        }
        Ir a = row[i], b = row[i + distance];
        row[i] = LLVMBuildShuffleVector(emit->builder, a, b, LLVMConstVector(low, (unsigned)lanes), "");
        row[i + distance] = LLVMBuildShuffleVector(emit->builder, a, b, LLVMConstVector(high, (unsigned)lanes), "");
    }
}

void emit_transpose_square(Emit *emit, Ir *row, int lanes)
{
    for (int distance = lanes / 2; distance >= 1; distance /= 2) exchange(emit, row, lanes, distance);
}

Ir emit_least(Emit *emit, Ir a, Ir b) { return emit_select(emit, emit_compare(emit, LLVMIntSLT, a, b), a, b); }

Ir emit_address(Emit *emit, LLVMTypeRef type, Ir base, Ir offset)
{
    return LLVMBuildGEP2(emit->builder, type, base, &offset, 1, "");
}

Ir emit_scratch_at(Emit *emit, size_t offset)
{
    return emit_address(emit, emit->i8, LLVMGetParam(emit->function, KERNEL_SCRATCH), emit_i64(emit, (int64_t)offset));
}

Ir emit_load(Emit *emit, LLVMTypeRef type, Ir address, Ir mask, unsigned alignment)
{
    if (mask) {
        LLVMTypeRef types[] = {type, emit->pointer};
        Ir arguments[] = {address, emit_i32(emit, (int)alignment), mask, LLVMConstNull(type)};
        return emit_intrinsic(emit, "llvm.masked.load", types, 2, arguments, 4);
    }
    Ir value = LLVMBuildLoad2(emit->builder, type, address, "");
    LLVMSetAlignment(value, alignment);
    return value;
}

void emit_store(Emit *emit, Ir value, Ir address, Ir mask, unsigned alignment)
{
    if (mask) {
        LLVMTypeRef types[] = {LLVMTypeOf(value), emit->pointer};
        Ir arguments[] = {value, address, emit_i32(emit, (int)alignment), mask};
        emit_intrinsic(emit, "llvm.masked.store", types, 2, arguments, 4);
        return;
    }
    LLVMSetAlignment(LLVMBuildStore(emit->builder, value, address), alignment);
}

static unsigned element_bytes(Emit *emit, LLVMTypeRef type)
{
    if (type == emit->f32) return 4;
    if (type == emit->f64) return 8;
    if (type == emit->half) return 2;
    return LLVMGetIntTypeWidth(type) / 8;
}

Ir emit_gather(Emit *emit, LLVMTypeRef type, Ir base, Ir offset, Ir mask)
{
    int lanes = emit_lanes(offset);
    Ir addresses = emit_address(emit, type, base, offset);
    LLVMTypeRef vector = LLVMVectorType(type, (unsigned)lanes);
    LLVMTypeRef types[] = {vector, LLVMTypeOf(addresses)};
    if (!mask) mask = emit_lane_mask(emit, lanes, lanes);
    Ir alignment = emit_i32(emit, (int)element_bytes(emit, type));
    return emit_intrinsic(emit, "llvm.masked.gather", types, 2,
                          (Ir[]){addresses, alignment, mask, LLVMConstNull(vector)}, 4);
}

void emit_scatter(Emit *emit, Ir value, Ir base, Ir offset, Ir mask)
{
    int lanes = emit_lanes(offset);
    LLVMTypeRef type = element_type(value);
    Ir addresses = emit_address(emit, type, base, offset);
    LLVMTypeRef types[] = {LLVMTypeOf(value), LLVMTypeOf(addresses)};
    if (!mask) mask = emit_lane_mask(emit, lanes, lanes);
    Ir alignment = emit_i32(emit, (int)element_bytes(emit, type));
    emit_intrinsic(emit, "llvm.masked.scatter", types, 2, (Ir[]){value, addresses, alignment, mask}, 4);
}

void emit_prefetch(Emit *emit, Ir address, Prefetch kind)
{
    LLVMTypeRef type = emit->pointer;
    int locality = kind == PREFETCH_LEVEL2 ? 2 : 3;
    Ir arguments[] = {address, emit_i32(emit, kind == PREFETCH_FOR_WRITING), emit_i32(emit, locality),
                      emit_i32(emit, 1)};
    emit_intrinsic(emit, "llvm.prefetch", &type, 1, arguments, 4);
}

/* ---- Control flow ---- */

static LLVMBasicBlockRef new_block(Emit *emit, const char *name)
{
    return LLVMAppendBasicBlockInContext(emit->context, emit->function, name);
}

void emit_loop_begin(Emit *emit, EmitLoop *loop, Ir begin, Ir end, int64_t step, int carried_count, const Ir *initial)
{
    LLVMBasicBlockRef before = LLVMGetInsertBlock(emit->builder);
    loop->header = new_block(emit, "loop");
    loop->body = new_block(emit, "body");
    loop->exit = new_block(emit, "done");
    loop->end = end;
    loop->step = step;
    loop->carried_count = carried_count;
    if (carried_count > EMIT_MAX_CARRIED) bug("%d values carried by a loop", carried_count);
    LLVMBuildBr(emit->builder, loop->header);
    LLVMPositionBuilderAtEnd(emit->builder, loop->header);
    loop->index = LLVMBuildPhi(emit->builder, emit->i64, "");
    LLVMAddIncoming(loop->index, &begin, &before, 1);
    for (int i = 0; i < carried_count; i++) {
        loop->carried[i] = LLVMBuildPhi(emit->builder, LLVMTypeOf(initial[i]), "");
        Ir value = initial[i];
        LLVMAddIncoming(loop->carried[i], &value, &before, 1);
    }
    Ir more = emit_compare(emit, LLVMIntSLT, loop->index, end);
    LLVMBuildCondBr(emit->builder, more, loop->body, loop->exit);
    LLVMPositionBuilderAtEnd(emit->builder, loop->body);
}

void emit_loop_end(Emit *emit, EmitLoop *loop, const Ir *next)
{
    Ir index = LLVMBuildAdd(emit->builder, loop->index, emit_i64(emit, loop->step), "");
    LLVMSetNSW(index, true);
    LLVMBasicBlockRef last = LLVMGetInsertBlock(emit->builder);
    LLVMAddIncoming(loop->index, &index, &last, 1);
    for (int i = 0; i < loop->carried_count; i++) {
        Ir value = next[i];
        LLVMAddIncoming(loop->carried[i], &value, &last, 1);
    }
    LLVMBuildBr(emit->builder, loop->header);
    LLVMPositionBuilderAtEnd(emit->builder, loop->exit);
}

void emit_if(Emit *emit, EmitIf *branch, Ir condition)
{
    LLVMBasicBlockRef then = new_block(emit, "then");
    branch->otherwise = new_block(emit, "else");
    branch->end = new_block(emit, "endif");
    LLVMBuildCondBr(emit->builder, condition, then, branch->otherwise);
    LLVMPositionBuilderAtEnd(emit->builder, then);
}

void emit_else(Emit *emit, EmitIf *branch)
{
    LLVMBuildBr(emit->builder, branch->end);
    LLVMPositionBuilderAtEnd(emit->builder, branch->otherwise);
    branch->otherwise = NULL;
}

void emit_end_if(Emit *emit, EmitIf *branch)
{
    if (branch->otherwise) emit_else(emit, branch);
    LLVMBuildBr(emit->builder, branch->end);
    LLVMPositionBuilderAtEnd(emit->builder, branch->end);
}
