#include "codegen/kernels/body_emit.h"

#include "codegen/kernels/arithmetic.h"
#include "codegen/kernels/body_random.h"
#include "codegen/kernels/emit_blocks.h"

/* ---- Memory ---- */

static int64_t lane_stride(const Body *body, int operand)
{
    return body->vector_axis < 0 ? 0 : body->kernel->operands[operand].stride[body->vector_axis];
}

/* Offsets of the lanes from the address of lane 0: NULL if they are simply consecutive. */
static Ir lane_offsets(Body *body, int operand, Register offset_register, int copy)
{
    Emit *emit = body->emit;
    int64_t stride = lane_stride(body, operand);
    bool by_register = offset_register && body_is_vector(body, offset_register);
    if (!by_register && stride == 1) return NULL;
    Ir offsets = emit_iota(emit, stride, body->lanes);
    if (by_register) offsets = emit_add(emit, offsets, body_value(body, offset_register, copy, true));
    return offsets;
}

static Ir load_raw(Body *body, const KernelInstruction *instruction, Register offset, Ir address, bool vector, int copy)
{
    Emit *emit = body->emit;
    DType dtype = body->kernel->operands[instruction->operand].dtype;
    LLVMTypeRef type = emit_memory_type(emit, dtype);
    unsigned alignment = (unsigned)dtype_size(dtype);
    if (!vector && dtype_in_blocks(dtype)) return emit_block_gather(emit, dtype, address, emit_i64(emit, 0), NULL);
    if (!vector) return emit_load(emit, type, address, NULL, alignment);
    Ir offsets = lane_offsets(body, instruction->operand, offset, copy);
    if (dtype_in_blocks(dtype)) {
        if (!offsets) offsets = emit_iota(emit, 1, body->lanes);
        return emit_block_gather(emit, dtype, address, offsets, body->mask[copy]);
    }
    if (offsets) return emit_gather(emit, type, address, offsets, body->mask[copy]);
    return emit_load(emit, emit_vector_type(type, body->lanes), address, body->mask[copy], alignment);
}

/* A load, of neighbouring elements of an operand that often is 0, before anything is stored there. */
static bool may_read_zeros(const Body *body, Register r)
{
    const KernelInstruction *load = kernel_instruction(body->kernel, r);
    const KernelOperand *operand = &body->kernel->operands[load->operand];
    for (Register q = (Register)kernel_phase_of(body->kernel, r)->first; q < r; q++) {
        const KernelInstruction *earlier = kernel_instruction(body->kernel, q);
        if (kernel_op_is_store(earlier->op) && earlier->operand == load->operand) return false;
    }
    return load->op == KERNEL_LOAD && operand->often_zero && operand->dtype == DTYPE_F32 && load->type == DTYPE_F32 &&
           !load->a && body_is_vector(body, r) && lane_stride(body, load->operand) == 1;
}

static Ir lanes_as_bits(Body *body, Ir value)
{
    return LLVMBuildBitCast(body->emit->builder, value, emit_vector_type(body->emit->i32, body->lanes), "");
}

static Ir any_bit(Body *body, Ir lanes)
{
    Emit *emit = body->emit;
    LLVMTypeRef set = LLVMIntTypeInContext(emit->context, (unsigned)body->lanes);
    lanes = emit_compare(emit, LLVMIntNE, lanes, LLVMConstNull(LLVMTypeOf(lanes)));
    lanes = LLVMBuildBitCast(emit->builder, lanes, set, "");
    return emit_compare(emit, LLVMIntNE, lanes, LLVMConstNull(set));
}

Ir body_any_not_zero(Body *body, const KernelPhase *phase)
{
    Ir bits = NULL;
    for (int r = phase->first; r < phase->first + phase->count; r++) {
        const KernelInstruction *load = kernel_instruction(body->kernel, (Register)r);
        if (!may_read_zeros(body, (Register)r)) continue;
        for (int copy = 0; copy < body_copies(body, (Register)r); copy++) {
            Ir address = body_address(body, load->operand, 0, copy, phase->inner);
            Ir more = lanes_as_bits(body, load_raw(body, load, 0, address, true, copy));
            bits = bits ? emit_or(body->emit, bits, more) : more;
        }
    }
    return bits ? any_bit(body, bits) : NULL;
}

static void emit_load_instruction(Body *body, Register r, bool inner)
{
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    DType dtype = body->kernel->operands[instruction->operand].dtype;
    if (body->are_zero && may_read_zeros(body, r)) {
        LLVMTypeRef type = emit_vector_type(emit_register_type(body->emit, DTYPE_F32), body->lanes);
        for (int copy = 0; copy < body_copies(body, r); copy++) body->value[r][copy] = LLVMConstNull(type);
        return;
    }
    for (int copy = 0; copy < body_copies(body, r); copy++) {
        Ir address = body_address(body, instruction->operand, instruction->a, copy, inner);
        Ir raw = load_raw(body, instruction, instruction->a, address, body_is_vector(body, r), copy);
        Ir value = arithmetic_widen(body->emit, dtype, raw);
        body->value[r][copy] =
            arithmetic_convert(body->emit, kernel_register_type(dtype), (DType)instruction->type, value);
    }
}

/* Where copy `copy` of a strided store goes, and what. */
typedef struct Stored {
    Ir address, value;
} Stored;

static Stored stored_value(Body *body, Register r, int copy, bool inner)
{
    Emit *emit = body->emit;
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    DType dtype = body->kernel->operands[instruction->operand].dtype, wide = kernel_register_type(dtype);
    bool vector = body_is_vector(body, r);
    Ir address = body_address(body, instruction->operand, instruction->b, copy, inner);
    Ir value = body_value(body, instruction->a, copy, vector);
    value = arithmetic_convert(emit, kernel_type(body->kernel, instruction->a), wide, value);
    if (instruction->op == KERNEL_STORE_ADD) {
        Ir old = load_raw(body, instruction, instruction->b, address, vector, copy);
        old = arithmetic_widen(emit, dtype, old);
        value = arithmetic_binary(emit, KERNEL_ADD, wide, old, value);
    }
    return (Stored){address, arithmetic_narrow(emit, dtype, value)};
}

/* The load, earlier in the same phase, of the very elements that a store of neighbouring float32 overwrites; 0: none.
 */
static Register overwritten(const Body *body, Register r)
{
    const KernelInstruction *store = kernel_instruction(body->kernel, r);
    const KernelPhase *phase = kernel_phase_of(body->kernel, r);
    bool plain = store->op == KERNEL_STORE && !store->b && body_is_vector(body, r) &&
                 lane_stride(body, store->operand) == 1 && body->kernel->operands[store->operand].dtype == DTYPE_F32;
    for (int copy = 0; copy < body_copies(body, r); copy++) plain &= !body->mask[copy];
    Register found = 0;
    for (Register q = (Register)phase->first; q < r && plain; q++) {
        const KernelInstruction *instruction = kernel_instruction(body->kernel, q);
        if (instruction->operand != store->operand || !kernel_op_is_access(instruction->op)) continue;
        bool same = instruction->op == KERNEL_LOAD && !instruction->a && instruction->type == DTYPE_F32 &&
                    body_is_vector(body, q) && body_copies(body, q) == body_copies(body, r);
        found = same ? q : 0;
    }
    return found;
}

/* Elements that stay as they are need not go back to memory: rows of a table that no token reads, in an update. */
static void store_changes(Body *body, Register r, Register load, bool inner)
{
    Emit *emit = body->emit;
    Stored stored[BODY_MAX_COPIES];
    Ir changes = NULL;
    for (int copy = 0; copy < body_copies(body, r); copy++) {
        stored[copy] = stored_value(body, r, copy, inner);
        Ir old = lanes_as_bits(body, body_value(body, load, copy, true));
        Ir change = emit_xor(emit, old, lanes_as_bits(body, stored[copy].value));
        changes = changes ? emit_or(emit, changes, change) : change;
    }
    EmitIf branch;
    emit_if(emit, &branch, any_bit(body, changes));
    for (int copy = 0; copy < body_copies(body, r); copy++)
        emit_store(emit, stored[copy].value, stored[copy].address, NULL, (unsigned)sizeof(float));
    emit_end_if(emit, &branch);
}

static void emit_store_instruction(Body *body, Register r, bool inner)
{
    Emit *emit = body->emit;
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    DType dtype = body->kernel->operands[instruction->operand].dtype;
    bool vector = body_is_vector(body, r);
    Register load = body->spares_stores ? overwritten(body, r) : 0;
    if (load) {
        store_changes(body, r, load, inner);
        return;
    }
    for (int copy = 0; copy < body_copies(body, r); copy++) {
        const Stored stored = stored_value(body, r, copy, inner);
        Ir offsets = vector ? lane_offsets(body, instruction->operand, instruction->b, copy) : NULL;
        if (offsets) {
            emit_scatter(emit, stored.value, stored.address, offsets, body->mask[copy]);
        } else {
            emit_store(emit, stored.value, stored.address, vector ? body->mask[copy] : NULL,
                       (unsigned)dtype_size(dtype));
        }
    }
}

/* ---- Instructions ---- */

static Ir axis_value(Body *body, int axis, int copy, bool vector)
{
    Emit *emit = body->emit;
    Ir index = body->index[axis];
    if (axis == body->copy_axis) index = emit_add(emit, index, emit_i64(emit, copy * body->copy_step));
    if (!vector) return index;
    return emit_add(emit, emit_broadcast(emit, index, body->lanes), emit_iota(emit, 1, body->lanes));
}

static Ir constant_value(Emit *emit, const KernelInstruction *instruction)
{
    LLVMTypeRef type = emit_register_type(emit, (DType)instruction->type);
    if (dtype_is_float((DType)instruction->type)) return LLVMConstReal(type, instruction->constant.number);
    return LLVMConstInt(type, (uint64_t)instruction->constant.integer, true);
}

static Ir compute(Body *body, Register r, int copy)
{
    const Kernel *kernel = body->kernel;
    const KernelInstruction *instruction = kernel_instruction(kernel, r);
    bool vector = body_is_vector(body, r);
    if (instruction->op == KERNEL_CONSTANT) return constant_value(body->emit, instruction);
    if (instruction->op == KERNEL_AXIS) return axis_value(body, instruction->operand, copy, vector);
    Ir a = body_value(body, instruction->a, copy, vector);
    DType type = kernel_type(kernel, instruction->a);
    if (instruction->op == KERNEL_CONVERT) return arithmetic_convert(body->emit, type, (DType)instruction->type, a);
    if (!instruction->b) return arithmetic_unary(body->emit, instruction->op, type, a);
    Ir b = body_value(body, instruction->b, copy, vector);
    if (instruction->op == KERNEL_SELECT) {
        Ir c = body_value(body, instruction->c, copy, vector);
        return emit_select(body->emit, a, b, c);
    }
    const KernelInstruction *exponent = kernel_instruction(kernel, instruction->b);
    if (instruction->op == KERNEL_POWER && dtype_is_float(type) && exponent->op == KERNEL_CONSTANT)
        return arithmetic_power_constant(body->emit, a, b, exponent->constant.number);
    return arithmetic_binary(body->emit, instruction->op, type, a, b);
}

static bool is_same_everywhere(const Body *body, Register r)
{
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    const Register arguments[] = {instruction->a, instruction->b, instruction->c};
    int op = instruction->op;
    if (op == KERNEL_LOAD && body->kernel->operands[instruction->operand].written) return false;
    if (body->varies[r] || op == KERNEL_AXIS || op == KERNEL_RANDOM) return false;
    if (kernel_op_is_reduction(op) || kernel_op_is_store(op)) return false;
    for (int i = 0; i < 3; i++)
        if (arguments[i] && !body->known[arguments[i]]) return false;
    return true;
}

void body_emit_constant_part(Body *body, Register first)
{
    for (int r = first; r <= body->kernel->instruction_count; r++) {
        if (!is_same_everywhere(body, (Register)r)) continue;
        int operand = kernel_instruction(body->kernel, (Register)r)->operand;
        body->base[operand] = body->operand[operand]; /* no axis moves it; for a load */
        body_emit(body, (Register)r);
        body->known[r] = true;
    }
}

void body_emit(Body *body, Register r)
{
    if (body->known[r]) return;
    int op = kernel_instruction(body->kernel, r)->op;
    if (op == KERNEL_LOAD) {
        emit_load_instruction(body, r, kernel_phase_of(body->kernel, r)->inner);
    } else if (op == KERNEL_RANDOM) {
        body_random(body, r, kernel_phase_of(body->kernel, r)->inner);
    } else if (kernel_op_is_store(op)) {
        emit_store_instruction(body, r, kernel_phase_of(body->kernel, r)->inner);
    } else {
        for (int copy = 0; copy < body_copies(body, r); copy++) body->value[r][copy] = compute(body, r, copy);
    }
}

/* ---- Reductions ---- */

Ir body_reduction_identity(Body *body, Register r, int lanes)
{
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    LLVMTypeRef type = emit_register_type(body->emit, (DType)instruction->type);
    bool is_float = dtype_is_float((DType)instruction->type);
    int op = instruction->op;
    Ir scalar;
    if (op == KERNEL_SUM || op == KERNEL_PRODUCT) {
        int start = op == KERNEL_PRODUCT;
        scalar = is_float ? LLVMConstReal(type, start) : LLVMConstInt(type, (uint64_t)start, false);
    } else if (is_float) {
        scalar = LLVMConstReal(type, op == KERNEL_MAXIMUM_OF ? -__builtin_inf() : __builtin_inf());
    } else {
        scalar = LLVMConstInt(type, (uint64_t)(op == KERNEL_MAXIMUM_OF ? INT64_MIN : INT64_MAX), true);
    }
    return emit_splat_constant(scalar, lanes);
}

Ir body_reduction_step(Body *body, Register r, Ir accumulated, Ir value)
{
    static const int step[] = {KERNEL_ADD, KERNEL_MULTIPLY, KERNEL_MAXIMUM, KERNEL_MINIMUM};
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    return arithmetic_binary(body->emit, step[instruction->op - KERNEL_SUM], (DType)instruction->type, accumulated,
                             value);
}

Ir body_reduction_across(Body *body, Register r, Ir accumulated)
{
    Emit *emit = body->emit;
    for (int lanes = emit_lanes(accumulated) / 2; lanes >= 1; lanes /= 2) {
        Ir low[32], high[32];
        for (int i = 0; i < lanes; i++) {
            low[i] = emit_i32(emit, i);
            high[i] = emit_i32(emit, lanes + i);
        }
        Ir undefined = LLVMGetPoison(LLVMTypeOf(accumulated));
        Ir a = LLVMBuildShuffleVector(emit->builder, accumulated, undefined, LLVMConstVector(low, (unsigned)lanes), "");
        Ir b =
            LLVMBuildShuffleVector(emit->builder, accumulated, undefined, LLVMConstVector(high, (unsigned)lanes), "");
        accumulated = body_reduction_step(body, r, a, b);
    }
    if (emit_lanes(accumulated) == 1 && LLVMGetTypeKind(LLVMTypeOf(accumulated)) == LLVMVectorTypeKind)
        accumulated = LLVMBuildExtractElement(emit->builder, accumulated, emit_i32(emit, 0), "");
    return accumulated;
}
