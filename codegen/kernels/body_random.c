#include "codegen/kernels/body_random.h"

#include "base/random.h"

/* What random_element does to a counter that has been spread. */
static Ir mix(Emit *emit, Ir x, Ir key)
{
    LLVMBuilderRef builder = emit->builder;
    Ir mixed = emit_xor(emit, emit_lshr(emit, x, emit_integer_like(emit, x, RANDOM_SHIFT1)), key);
    x = emit_xor(emit, x, mixed);
    x = LLVMBuildMul(builder, x, emit_integer_like(emit, x, RANDOM_MULTIPLIER1), "");
    x = emit_xor(emit, x, emit_lshr(emit, x, emit_integer_like(emit, x, RANDOM_SHIFT2)));
    x = LLVMBuildMul(builder, x, emit_integer_like(emit, x, RANDOM_MULTIPLIER2), "");
    return emit_xor(emit, x, emit_lshr(emit, x, emit_integer_like(emit, x, RANDOM_SHIFT3)));
}

static Ir low_word(Emit *emit, Ir value)
{
    return LLVMBuildTrunc(emit->builder, value, emit_vector_type(emit->i32, emit_lanes(value)), "");
}

static Ir high_word(Emit *emit, Ir value)
{
    return low_word(emit, emit_lshr(emit, value, emit_integer_like(emit, value, 32)));
}

static Ir halved(Emit *emit, Ir position) { return emit_lshr(emit, position, emit_integer_like(emit, position, 1)); }

/* Scalars, or vectors of equal length, as one type. */
static Ir add_broadcast(Emit *emit, Ir a, Ir b)
{
    int lanes = emit_lanes(a) > emit_lanes(b) ? emit_lanes(a) : emit_lanes(b);
    return LLVMBuildAdd(emit->builder, emit_broadcast(emit, a, lanes), emit_broadcast(emit, b, lanes), "");
}

static Ir spread(Emit *emit, Ir key, Ir position)
{
    Ir x = low_word(emit, add_broadcast(emit, key, halved(emit, position)));
    return LLVMBuildMul(emit->builder, x, emit_integer_like(emit, x, RANDOM_SPREAD), "");
}

static Ir constant_words(Emit *emit, const uint32_t *words, int count)
{
    Ir elements[64];
    for (int i = 0; i < count; i++) elements[i] = emit_i32(emit, (int)words[i]);
    return count == 1 ? elements[0] : LLVMConstVector(elements, (unsigned)count);
}

static int64_t stride_along(const Body *body, int operand, int axis)
{
    return axis < 0 ? 0 : body->kernel->operands[operand].stride[axis];
}

/* ---- A word an element ---- */

/* Whatever the strides are. An odd position of lane 0 moves the lanes of odd distance on by one word. */
static Ir copy_alone(Body *body, const KernelInstruction *instruction, int copy, bool vector, bool inner)
{
    Emit *emit = body->emit;
    LLVMBuilderRef builder = emit->builder;
    int lanes = vector ? body->lanes : 1;
    uint32_t apart[64], odd[64];
    for (int i = 0; i < lanes; i++) {
        uint64_t distance = (uint64_t)i * (uint64_t)stride_along(body, instruction->operand, body->vector_axis);
        apart[i] = (uint32_t)(distance >> 1) * RANDOM_SPREAD;
        odd[i] = distance & 1;
    }
    Ir key = body_value(body, instruction->a, copy, false), bound = body_value(body, instruction->c, copy, false);
    Ir position = add_broadcast(emit, body_value(body, instruction->b, copy, false),
                                body_position(body, instruction->operand, copy, inner));
    Ir x = emit_broadcast(emit, spread(emit, key, position), lanes), odd_lane = constant_words(emit, odd, lanes);
    Ir odd_first = emit_and(emit, position, emit_integer_like(emit, position, 1));
    odd_first = emit_broadcast(emit, low_word(emit, odd_first), lanes);
    x = LLVMBuildAdd(builder, x, constant_words(emit, apart, lanes), "");
    Ir carry = emit_and(emit, odd_first, odd_lane);
    x = LLVMBuildAdd(builder, x, LLVMBuildMul(builder, carry, emit_integer_like(emit, x, RANDOM_SPREAD), ""), "");
    x = mix(emit, x, emit_broadcast(emit, high_word(emit, key), lanes));
    Ir shift = emit_xor(emit, odd_first, odd_lane);
    shift = LLVMBuildMul(builder, shift, emit_integer_like(emit, x, RANDOM_ELEMENT_BITS), "");
    x = emit_lshr(emit, x, shift);
    x = emit_and(emit, x, emit_integer_like(emit, x, RANDOM_ELEMENT_RANGE - 1));
    return emit_compare(emit, LLVMIntULT, x, emit_broadcast(emit, low_word(emit, bound), lanes));
}

/* ---- Both halves of every word ---- */

static bool is_even(const Kernel *kernel, Register r)
{
    const KernelInstruction *instruction = kernel_instruction(kernel, r);
    if (instruction->op == KERNEL_CONSTANT) return instruction->constant.integer % 2 == 0;
    if (instruction->op == KERNEL_MULTIPLY) return is_even(kernel, instruction->a) || is_even(kernel, instruction->b);
    return instruction->op == KERNEL_ADD && is_even(kernel, instruction->a) && is_even(kernel, instruction->b);
}

/* Lanes stand side by side, lane 0 at an even position, and key, first position and bound are the same for all. */
static bool lanes_share_words(const Body *body, Register r)
{
    const Kernel *kernel = body->kernel;
    const KernelInstruction *instruction = kernel_instruction(kernel, r);
    const Register arguments[] = {instruction->a, instruction->b, instruction->c};
    for (int i = 0; i < 3; i++)
        if (body_is_vector(body, arguments[i]) || body_copies(body, arguments[i]) > 1) return false;
    for (int axis = 0; axis < kernel->axis_count; axis++) {
        int64_t stride = stride_along(body, instruction->operand, axis);
        if (axis == body->vector_axis ? stride != 1 : kernel->extent[axis] > 1 && stride % 2) return false;
    }
    return body_is_vector(body, r) && body->lanes % 2 == 0 && is_even(kernel, instruction->b);
}

static Ir extract_half(Emit *emit, Ir vector, int half, int lanes)
{
    Ir index[64];
    for (int i = 0; i < lanes; i++) index[i] = emit_i32(emit, half * lanes + i);
    return LLVMBuildShuffleVector(emit->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)),
                                  LLVMConstVector(index, (unsigned)lanes), "");
}

/* Copies `copy` ... `copy` + count - 1: one or two. */
static void copies_together(Body *body, Register r, int copy, int count, bool inner)
{
    Emit *emit = body->emit;
    const KernelInstruction *instruction = kernel_instruction(body->kernel, r);
    int each = body->lanes / 2, words = count * each;
    uint64_t to_next = (uint64_t)(body->copy_step * stride_along(body, instruction->operand, body->copy_axis));
    uint32_t apart[64];
    for (int i = 0; i < words; i++)
        apart[i] = (uint32_t)((uint64_t)(i % each) + to_next / 2 * (uint64_t)(i / each)) * RANDOM_SPREAD;
    Ir key = body_value(body, instruction->a, 0, false), bound = body_value(body, instruction->c, 0, false);
    Ir position = emit_add(emit, body_value(body, instruction->b, 0, false),
                           body_position(body, instruction->operand, copy, inner));
    Ir x = emit_broadcast(emit, spread(emit, key, position), words);
    x = LLVMBuildAdd(emit->builder, x, constant_words(emit, apart, words), "");
    x = mix(emit, x, emit_broadcast(emit, high_word(emit, key), words));
    Ir numbers = LLVMBuildBitCast(emit->builder, x, LLVMVectorType(emit->i16, (unsigned)words * 2), "");
    bound = LLVMBuildTrunc(emit->builder, bound, emit->i16, "");
    Ir below = emit_compare(emit, LLVMIntULT, numbers, emit_broadcast(emit, bound, words * 2));
    for (int i = 0; i < count; i++)
        body->value[r][copy + i] = count == 1 ? below : extract_half(emit, below, i, body->lanes);
}

void body_random(Body *body, Register r, bool inner)
{
    int copies = body_copies(body, r);
    bool together = lanes_share_words(body, r);
    for (int copy = 0; copy < copies; copy += together && copy + 1 < copies ? 2 : 1) {
        if (together)
            copies_together(body, r, copy, copy + 1 < copies ? 2 : 1, inner);
        else
            body->value[r][copy] =
                copy_alone(body, kernel_instruction(body->kernel, r), copy, body_is_vector(body, r), inner);
    }
}
