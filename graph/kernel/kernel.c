#include "graph/kernel/kernel.h"

#include <string.h>

#include "base/diagnostics.h"

DType kernel_register_type(DType dtype)
{
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
    case DTYPE_Q8:
    case DTYPE_Q4: return DTYPE_F32;
    case DTYPE_F64: return DTYPE_F64;
    case DTYPE_BOOL: return DTYPE_BOOL;
    default: return DTYPE_I64;
    }
}

static bool is_unary(KernelOp op) { return op >= KERNEL_CONVERT && op <= KERNEL_IS_NAN; }
static bool is_binary(KernelOp op) { return op >= KERNEL_ADD && op <= KERNEL_OR; }
static bool is_comparison(KernelOp op) { return op >= KERNEL_EQUAL && op <= KERNEL_LESS_EQUAL; }

void kernel_begin(Kernel *kernel, const char *label, int axis_count, const int64_t *extent)
{
    memset(kernel, 0, sizeof *kernel);
    if (axis_count < 1 || axis_count > KERNEL_MAX_AXES) bug("kernel %s: %d axes", label, axis_count);
    kernel->label = label;
    kernel->axis_count = axis_count;
    memcpy(kernel->extent, extent, (size_t)axis_count * sizeof *extent);
    kernel_begin_phase(kernel, true);
}

int kernel_operand(Kernel *kernel, DType dtype, const int64_t *stride)
{
    if (kernel->operand_count == KERNEL_MAX_OPERANDS) bug("kernel %s: too many operands", kernel->label);
    KernelOperand *operand = &kernel->operands[kernel->operand_count];
    operand->dtype = dtype;
    memcpy(operand->stride, stride, (size_t)kernel->axis_count * sizeof *stride);
    return kernel->operand_count++;
}

void kernel_begin_phase(Kernel *kernel, bool inner)
{
    bool replaces = kernel->phase_count && !kernel->phases[kernel->phase_count - 1].count;
    if (!replaces && kernel->phase_count++ == KERNEL_MAX_PHASES) bug("kernel %s: too many phases", kernel->label);
    kernel->phases[kernel->phase_count - 1] = (KernelPhase){inner, kernel->instruction_count + 1, 0};
}

static Register append(Kernel *kernel, KernelInstruction instruction)
{
    if (kernel->instruction_count == KERNEL_MAX_INSTRUCTIONS) bug("kernel %s: too many instructions", kernel->label);
    kernel->instructions[kernel->instruction_count++] = instruction;
    kernel->phases[kernel->phase_count - 1].count++;
    return (Register)kernel->instruction_count;
}

Register kernel_constant(Kernel *kernel, DType type, double number)
{
    KernelInstruction instruction = {.op = KERNEL_CONSTANT, .type = (uint8_t)type};
    if (dtype_is_float(type))
        instruction.constant.number = number;
    else
        instruction.constant.integer = type == DTYPE_BOOL ? number != 0 : (int64_t)number;
    return append(kernel, instruction);
}

Register kernel_constant_like(Kernel *kernel, Register other, double number)
{
    return kernel_constant(kernel, kernel_type(kernel, other), number);
}

Register kernel_constant_integer(Kernel *kernel, int64_t integer)
{
    return append(kernel,
                  (KernelInstruction){.op = KERNEL_CONSTANT, .type = DTYPE_I64, .constant = {.integer = integer}});
}

Register kernel_axis(Kernel *kernel, int axis)
{
    return append(kernel, (KernelInstruction){.op = KERNEL_AXIS, .type = DTYPE_I64, .operand = (uint16_t)axis});
}

static Register access(Kernel *kernel, KernelOp op, int operand, Register value, Register offset, int64_t elements)
{
    KernelOperand *accessed = &kernel->operands[operand];
    if (offset) accessed->elements = elements;
    if (op != KERNEL_STORE) accessed->read = true;
    if (op != KERNEL_LOAD) accessed->written = true;
    KernelInstruction instruction = {.op = (uint8_t)op, .operand = (uint16_t)operand};
    if (op == KERNEL_LOAD) {
        instruction.type = (uint8_t)kernel_register_type(accessed->dtype);
        instruction.a = offset;
    } else {
        instruction.type = (uint8_t)kernel_type(kernel, value);
        instruction.a = value;
        instruction.b = offset;
    }
    return append(kernel, instruction);
}

Register kernel_load(Kernel *kernel, int operand) { return access(kernel, KERNEL_LOAD, operand, 0, 0, 0); }

Register kernel_load_at(Kernel *kernel, int operand, Register offset, int64_t elements)
{
    return access(kernel, KERNEL_LOAD, operand, 0, offset, elements);
}

void kernel_store(Kernel *kernel, int operand, Register value) { access(kernel, KERNEL_STORE, operand, value, 0, 0); }

void kernel_store_at(Kernel *kernel, int operand, Register value, Register offset, int64_t elements)
{
    access(kernel, KERNEL_STORE, operand, value, offset, elements);
}

void kernel_store_add(Kernel *kernel, int operand, Register value)
{
    access(kernel, KERNEL_STORE_ADD, operand, value, 0, 0);
}

void kernel_store_add_at(Kernel *kernel, int operand, Register value, Register offset, int64_t elements)
{
    access(kernel, KERNEL_STORE_ADD, operand, value, offset, elements);
}

Register kernel_reduce(Kernel *kernel, KernelOp op, Register a)
{
    return append(kernel, (KernelInstruction){.op = (uint8_t)op, .type = (uint8_t)kernel_type(kernel, a), .a = a});
}

Register kernel_random(Kernel *kernel, int operand, Register key, Register first, Register bound)
{
    return append(
        kernel,
        (KernelInstruction){
            .op = KERNEL_RANDOM, .type = DTYPE_BOOL, .operand = (uint16_t)operand, .a = key, .b = first, .c = bound});
}

static void append_coding(Kernel *kernel, KernelInstruction instruction, Codec codec, int bytes)
{
    instruction.type = DTYPE_F32;
    instruction.constant.integer = kernel_coding(codec, bytes);
    KernelOperand *row = &kernel->operands[instruction.operand], *coded = &kernel->operands[bytes];
    bool encodes = instruction.op == KERNEL_ENCODE;
    row->read |= encodes, row->written |= !encodes;
    coded->read |= !encodes, coded->written |= encodes;
    coded->elements = codec_row_bytes(codec, kernel_inner_extent(kernel));
    kernel_begin_phase(kernel, true);
    append(kernel, instruction);
}

void kernel_encode(Kernel *kernel, Codec codec, int operand, int bytes, Register key, Register first)
{
    KernelInstruction encode = {.op = KERNEL_ENCODE, .operand = (uint16_t)operand, .a = key, .b = first};
    append_coding(kernel, encode, codec, bytes);
}

void kernel_decode(Kernel *kernel, Codec codec, int operand, int bytes)
{
    append_coding(kernel, (KernelInstruction){.op = KERNEL_DECODE, .operand = (uint16_t)operand}, codec, bytes);
}

Register kernel_unary(Kernel *kernel, KernelOp op, Register a)
{
    DType type = op == KERNEL_IS_NAN ? DTYPE_BOOL : kernel_type(kernel, a);
    return append(kernel, (KernelInstruction){.op = (uint8_t)op, .type = (uint8_t)type, .a = a});
}

Register kernel_binary(Kernel *kernel, KernelOp op, Register a, Register b)
{
    DType type = is_comparison(op) ? DTYPE_BOOL : kernel_type(kernel, a);
    return append(kernel, (KernelInstruction){.op = (uint8_t)op, .type = (uint8_t)type, .a = a, .b = b});
}

Register kernel_select(Kernel *kernel, Register condition, Register a, Register b)
{
    DType type = kernel_type(kernel, a);
    return append(kernel,
                  (KernelInstruction){.op = KERNEL_SELECT, .type = (uint8_t)type, .a = condition, .b = a, .c = b});
}

Register kernel_convert(Kernel *kernel, DType type, Register a)
{
    if (kernel_type(kernel, a) == type) return a;
    return append(kernel, (KernelInstruction){.op = KERNEL_CONVERT, .type = (uint8_t)type, .a = a});
}

/* ---- Verifier ---- */

typedef struct Verifier {
    const Kernel *kernel;
    int phase;                                 /* being looked at */
    int phase_of[KERNEL_MAX_INSTRUCTIONS + 1]; /* per register */
} Verifier;

#define REQUIRE(condition, what)                                                                                       \
    do {                                                                                                               \
        if (!(condition)) bug("kernel %s, register %d: %s", verifier->kernel->label, (int)r, what);                    \
    } while (0)

/* Whether register `used` may be read by register `r`: computed before, and seen in its phase. */
static void verify_use(const Verifier *verifier, Register r, Register used)
{
    REQUIRE(used && used < r, "uses a register that is not computed yet");
    int from = verifier->phase_of[used];
    KernelOp op = (KernelOp)kernel_instruction(verifier->kernel, used)->op;
    REQUIRE(!kernel_op_is_store(op) && !kernel_op_is_coding(op), "uses the result of a store");
    if (from == verifier->phase)
        REQUIRE(!kernel_op_is_reduction(op), "uses a reduction in its own phase");
    else
        REQUIRE(!verifier->kernel->phases[from].inner || kernel_op_is_reduction(op),
                "uses what an earlier inner phase computed");
}

static DType type_of(const Verifier *verifier, Register r) { return kernel_type(verifier->kernel, r); }

static void verify_access(const Verifier *verifier, Register r, const KernelInstruction *instruction)
{
    const Kernel *kernel = verifier->kernel;
    REQUIRE(instruction->operand < kernel->operand_count, "there is no such operand");
    const KernelOperand *operand = &kernel->operands[instruction->operand];
    bool load = instruction->op == KERNEL_LOAD;
    Register offset = load ? instruction->a : instruction->b;
    if (!load) {
        verify_use(verifier, r, instruction->a);
        REQUIRE(instruction->type == type_of(verifier, instruction->a), "stores another type than it says");
        REQUIRE(operand->written, "stores into an operand that is not marked as written");
        bool repeats = verifier->kernel->phases[verifier->phase].inner && kernel_inner_extent(kernel) > 1 &&
                       !operand->stride[kernel->axis_count - 1];
        REQUIRE(offset || !repeats, "inner iterations write the same element");
    } else {
        REQUIRE(instruction->type == kernel_register_type(operand->dtype), "loads as another type");
    }
    if (instruction->op != KERNEL_STORE) REQUIRE(operand->read, "reads an operand that is not marked as read");
    if (offset) {
        verify_use(verifier, r, offset);
        REQUIRE(type_of(verifier, offset) == DTYPE_I64, "its offset is not an integer");
        REQUIRE(operand->elements > 0, "its operand does not say how many elements it may touch");
    }
}

static void verify_random(const Verifier *verifier, Register r, const KernelInstruction *instruction)
{
    REQUIRE(instruction->operand < verifier->kernel->operand_count, "there is no such operand");
    verify_use(verifier, r, instruction->a);
    verify_use(verifier, r, instruction->b);
    verify_use(verifier, r, instruction->c);
    REQUIRE(instruction->type == DTYPE_BOOL && type_of(verifier, instruction->a) == DTYPE_I64 &&
                type_of(verifier, instruction->b) == DTYPE_I64 && type_of(verifier, instruction->c) == DTYPE_I64,
            "its types do not fit");
}

static void verify_coding(const Verifier *verifier, Register r, const KernelInstruction *instruction)
{
    const Kernel *kernel = verifier->kernel;
    const KernelPhase *phase = &kernel->phases[verifier->phase];
    int inner = kernel->axis_count - 1, bytes = kernel_coding_bytes(instruction);
    Codec codec = kernel_coding_codec(instruction);
    REQUIRE(instruction->operand < kernel->operand_count && bytes < kernel->operand_count, "there is no such operand");
    const KernelOperand *row = &kernel->operands[instruction->operand], *coded = &kernel->operands[bytes];
    bool encodes = instruction->op == KERNEL_ENCODE;
    REQUIRE(phase->inner && phase->count == 1 && verifier->phase == kernel->phase_count - 1,
            "a coding is an inner phase, the last one");
    REQUIRE(codec > CODEC_NONE && codec < CODEC_COUNT, "there is no such codec");
    REQUIRE(row->dtype == DTYPE_F32 && coded->dtype == DTYPE_U8, "its operands are not float32 and bytes");
    REQUIRE(encodes ? row->read && coded->written : row->written && coded->read, "its operands are not marked so");
    REQUIRE((row->stride[inner] == 1 || kernel->extent[inner] <= 1) && !coded->stride[inner], "its rows are not dense");
    REQUIRE(coded->elements == codec_row_bytes(codec, kernel->extent[inner]), "its rows have other bytes");
    REQUIRE(!instruction->a == !instruction->b && (encodes || !instruction->a), "it draws without a number");
    if (!instruction->a) return;
    verify_use(verifier, r, instruction->a);
    verify_use(verifier, r, instruction->b);
    REQUIRE(type_of(verifier, instruction->a) == DTYPE_I64 && type_of(verifier, instruction->b) == DTYPE_I64,
            "its types do not fit");
}

static bool is_boolean_op(KernelOp op) { return op == KERNEL_NOT || op == KERNEL_AND || op == KERNEL_OR; }
static bool is_float_op(KernelOp op) { return op >= KERNEL_EXP && op <= KERNEL_NORMAL_DENSITY; }

static void verify_arithmetic(const Verifier *verifier, Register r, const KernelInstruction *instruction)
{
    KernelOp op = (KernelOp)instruction->op;
    verify_use(verifier, r, instruction->a);
    DType a = type_of(verifier, instruction->a), type = (DType)instruction->type;
    if (kernel_op_is_reduction(op)) {
        REQUIRE(verifier->kernel->phases[verifier->phase].inner, "reduces in a scalar phase");
        REQUIRE(type == a && a != DTYPE_BOOL, "its types do not fit");
    } else if (is_unary(op)) {
        if (op == KERNEL_CONVERT) return;
        REQUIRE(type == (op == KERNEL_IS_NAN ? DTYPE_BOOL : a), "its types do not fit");
        REQUIRE(is_boolean_op(op) == (a == DTYPE_BOOL), "its types do not fit");
        REQUIRE(!is_float_op(op) || dtype_is_float(a), "it is for floats only");
    } else if (is_binary(op)) {
        verify_use(verifier, r, instruction->b);
        REQUIRE(a == type_of(verifier, instruction->b), "its arguments have different types");
        REQUIRE(type == (is_comparison(op) ? DTYPE_BOOL : a), "its types do not fit");
        REQUIRE(is_boolean_op(op) == (a == DTYPE_BOOL) || (op == KERNEL_EQUAL), "its types do not fit");
        REQUIRE((op != KERNEL_MULTIPLY_BF16 && op != KERNEL_MULTIPLY_BF16X3) || a == DTYPE_F32,
                "it is for float32 only");
    } else {
        REQUIRE(op == KERNEL_SELECT, "there is no such instruction");
        verify_use(verifier, r, instruction->b);
        verify_use(verifier, r, instruction->c);
        REQUIRE(a == DTYPE_BOOL && type == type_of(verifier, instruction->b) &&
                    type == type_of(verifier, instruction->c),
                "its types do not fit");
    }
}

static void verify_instruction(const Verifier *verifier, Register r)
{
    const KernelInstruction *instruction = kernel_instruction(verifier->kernel, r);
    DType type = (DType)instruction->type;
    REQUIRE(type == DTYPE_F32 || type == DTYPE_F64 || type == DTYPE_I64 || type == DTYPE_BOOL, "it has no type");
    switch (instruction->op) {
    case KERNEL_CONSTANT: break;
    case KERNEL_AXIS: REQUIRE(instruction->operand < verifier->kernel->axis_count, "there is no such axis"); break;
    case KERNEL_LOAD:
    case KERNEL_STORE:
    case KERNEL_STORE_ADD: verify_access(verifier, r, instruction); break;
    case KERNEL_RANDOM: verify_random(verifier, r, instruction); break;
    case KERNEL_ENCODE:
    case KERNEL_DECODE: verify_coding(verifier, r, instruction); break;
    default: verify_arithmetic(verifier, r, instruction);
    }
}

void kernel_verify(const Kernel *kernel)
{
    Verifier state = {.kernel = kernel}, *verifier = &state;
    Register r = 0;
    REQUIRE(kernel->axis_count >= 1 && kernel->axis_count <= KERNEL_MAX_AXES, "a kernel needs 1 to 8 axes");
    REQUIRE(kernel->block_axes >= 0 && kernel->block_axes < kernel->axis_count, "all its axes number blocks");
    for (int i = 0; i < kernel->axis_count; i++) REQUIRE(kernel->extent[i] >= 0, "an extent is negative");
    REQUIRE(!kernel->limited || kernel_can_limit_sum(kernel), "it has no sum that a run could end early");
    for (int phase = 0; phase < kernel->phase_count; phase++) {
        const KernelPhase *run = &kernel->phases[phase];
        REQUIRE(run->first == r + 1 && run->count > 0, "phases are empty or leave a gap");
        state.phase = phase;
        for (int i = 0; i < run->count; i++) {
            state.phase_of[++r] = phase;
            verify_instruction(verifier, r);
        }
    }
    REQUIRE(r == kernel->instruction_count, "instructions stand outside the phases");
}
