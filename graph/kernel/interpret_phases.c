/* The interpreter: every instruction runs over a strip of up to STRIP lanes at a time, so that decoding it costs
 * little. InterpreterLanes are usually consecutive inner iterations; in a matrix product's epilogue they are
 * consecutive columns.
 */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "base/codec_rows.h"
#include "graph/kernel/interpret.h"

static void fill_double(double *lanes, double value, int count)
{
    for (int i = 0; i < count; i++) lanes[i] = value;
}

static void fill_integer(int64_t *lanes, int64_t value, int count)
{
    for (int i = 0; i < count; i++) lanes[i] = value;
}

/* Copies the first lane to the others: what is computed once is seen by every lane. */
static void broadcast(InterpreterLanes *lanes, DType type, int count)
{
    if (dtype_is_float(type))
        fill_double(lanes->number, lanes->number[0], count);
    else
        fill_integer(lanes->integer, lanes->integer[0], count);
}

/* ---- Memory ---- */

#define LOAD_LANES(type, lanes)                                                                                        \
    do {                                                                                                               \
        const type *from = (const type *)data + position;                                                              \
        if (stride == 1)                                                                                               \
            for (int i = 0; i < count; i++) (lanes)[i] = from[i];                                                      \
        else                                                                                                           \
            for (int i = 0; i < count; i++) (lanes)[i] = from[i * stride];                                             \
    } while (0)

void interpret_load(InterpreterLanes *to, DType dtype, const void *data, int64_t position, int64_t stride, int count)
{
    switch (dtype) {
    case DTYPE_F32: LOAD_LANES(float, to->number); break;
    case DTYPE_F64: LOAD_LANES(double, to->number); break;
    case DTYPE_I64: LOAD_LANES(int64_t, to->integer); break;
    case DTYPE_I32: LOAD_LANES(int32_t, to->integer); break;
    case DTYPE_BOOL: LOAD_LANES(unsigned char, to->integer); break;
    default:
        if (dtype_is_float(dtype))
            for (int i = 0; i < count; i++) to->number[i] = element_as_double(dtype, data, position + i * stride);
        else
            for (int i = 0; i < count; i++) to->integer[i] = element_as_integer(dtype, data, position + i * stride);
    }
}

static void store_one(DType dtype, void *data, int64_t position, DType type, const InterpreterLanes *from, int lane)
{
    if (dtype == DTYPE_BOOL)
        ((unsigned char *)data)[position] = dtype_is_float(type) ? from->number[lane] != 0 : from->integer[lane] != 0;
    else if (dtype_is_float(dtype))
        element_store_double(dtype, data, position,
                             dtype_is_float(type) ? from->number[lane] : (double)from->integer[lane]);
    else
        element_store_integer(dtype, data, position,
                              dtype_is_float(type) ? interpret_integer_of(from->number[lane]) : from->integer[lane]);
}

static void store_lanes(DType dtype, void *data, int64_t position, int64_t stride, DType type,
                        const InterpreterLanes *from, int count)
{
    if (dtype == DTYPE_F32 && dtype_is_float(type))
        for (int i = 0; i < count; i++) ((float *)data)[position + i * stride] = (float)from->number[i];
    else if (dtype == DTYPE_F64 && dtype_is_float(type))
        for (int i = 0; i < count; i++) ((double *)data)[position + i * stride] = from->number[i];
    else
        for (int i = 0; i < count; i++) store_one(dtype, data, position + i * stride, type, from, i);
}

static void add_one(DType dtype, void *data, int64_t position, DType type, const InterpreterLanes *from, int lane)
{
    if (dtype_is_float(dtype)) {
        double addend = dtype_is_float(type) ? from->number[lane] : (double)from->integer[lane];
        element_store_double(dtype, data, position, element_as_double(dtype, data, position) + addend);
    } else {
        int64_t addend = dtype_is_float(type) ? interpret_integer_of(from->number[lane]) : from->integer[lane];
        uint64_t sum = (uint64_t)element_as_integer(dtype, data, position) + (uint64_t)addend;
        element_store_integer(dtype, data, position, (int64_t)sum);
    }
}

/* Whether lane positions `position` + lane * `stride` + offset stay within the operand. */
static bool offsets_inside(const KernelOperand *operand, int64_t position, int64_t stride,
                           const InterpreterLanes *offset, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t at;
        if (__builtin_add_overflow(position + i * stride, offset->integer[i], &at)) return false;
        if (at < 0 || at >= operand->elements) return false;
    }
    return true;
}

static bool interpret_access(Interpreter *run, Register r, const KernelInstruction *instruction, int axis,
                             int64_t start, int count)
{
    const KernelOperand *operand = &run->kernel->operands[instruction->operand];
    void *data = run->address[instruction->operand];
    int64_t stride = operand->stride[axis], position = run->position[instruction->operand] + start * stride;
    bool load = instruction->op == KERNEL_LOAD;
    Register offset_register = load ? instruction->a : instruction->b;
    const InterpreterLanes *value = &run->lanes[load ? r : instruction->a];
    DType type = (DType)instruction->type;
    if (!offset_register) {
        if (load)
            interpret_load(&run->lanes[r], operand->dtype, data, position, stride, count);
        else if (instruction->op == KERNEL_STORE)
            store_lanes(operand->dtype, data, position, stride, type, value, count);
        else
            for (int i = 0; i < count; i++) add_one(operand->dtype, data, position + i * stride, type, value, i);
        return true;
    }
    const InterpreterLanes *offset = &run->lanes[offset_register];
    if (!offsets_inside(operand, position, stride, offset, count)) return false;
    for (int i = 0; i < count; i++) {
        int64_t at = position + i * stride + offset->integer[i];
        if (!load)
            (instruction->op == KERNEL_STORE ? store_one : add_one)(operand->dtype, data, at, type, value, i);
        else if (dtype_is_float(type))
            run->lanes[r].number[i] = element_as_double(operand->dtype, data, at);
        else
            run->lanes[r].integer[i] = element_as_integer(operand->dtype, data, at);
    }
    return true;
}

/* ---- Instructions and phases ---- */

static void interpret_axis(const Interpreter *run, InterpreterLanes *to, int of, int axis, int64_t start, int count)
{
    if (of == axis)
        for (int i = 0; i < count; i++) to->integer[i] = start + i;
    else
        fill_integer(to->integer, run->index[of], count);
}

static void interpret_random(const Interpreter *run, InterpreterLanes *to, const KernelInstruction *instruction,
                             int axis, int64_t start, int count)
{
    const int64_t *key = run->lanes[instruction->a].integer, *first = run->lanes[instruction->b].integer;
    const int64_t *bound = run->lanes[instruction->c].integer;
    int64_t stride = run->kernel->operands[instruction->operand].stride[axis];
    int64_t position = run->position[instruction->operand] + start * stride;
    for (int i = 0; i < count; i++)
        to->integer[i] = random_element((uint64_t)key[i], (uint64_t)(first[i] + position + i * stride)) < bound[i];
}

static bool interpret_instruction(Interpreter *run, Register r, int axis, int64_t start, int count)
{
    const KernelInstruction *instruction = kernel_instruction(run->kernel, r);
    KernelOp op = (KernelOp)instruction->op;
    InterpreterLanes *to = &run->lanes[r];
    const InterpreterLanes *a = &run->lanes[instruction->a], *b = &run->lanes[instruction->b],
                           *c = &run->lanes[instruction->c];
    if (kernel_op_is_access(op)) return interpret_access(run, r, instruction, axis, start, count);
    DType type = (DType)instruction->type;
    bool is_float = dtype_is_float(instruction->a ? kernel_type(run->kernel, instruction->a) : type);
    if (op == KERNEL_CONSTANT) {
        if (is_float)
            fill_double(to->number, instruction->constant.number, count);
        else
            fill_integer(to->integer, instruction->constant.integer, count);
    } else if (op == KERNEL_AXIS) {
        interpret_axis(run, to, instruction->operand, axis, start, count);
    } else if (op == KERNEL_RANDOM) {
        interpret_random(run, to, instruction, axis, start, count);
    } else if (kernel_op_is_reduction(op)) {
        interpret_reduce(op, is_float, to, a, count);
    } else if (op == KERNEL_CONVERT) {
        interpret_convert(to, type, a, kernel_type(run->kernel, instruction->a), count);
    } else if (op == KERNEL_SELECT) {
        interpret_choose(to, type, a, b, c, count);
    } else if (instruction->b) {
        interpret_binary(op, is_float, to, a, b, count);
    } else {
        interpret_unary(op, is_float, to, a, count);
    }
    return true;
}

bool interpret_lanes(Interpreter *run, const KernelPhase *phase, int axis, int64_t start, int count)
{
    for (int i = 0; i < phase->count; i++)
        if (!interpret_instruction(run, (Register)(phase->first + i), axis, start, count)) return false;
    return true;
}

/* A row at once; rows stand densely. */
static void interpret_coding(Interpreter *run, const KernelInstruction *coding)
{
    int bytes_operand = kernel_coding_bytes(coding);
    float *row = (float *)run->address[coding->operand] + run->position[coding->operand];
    uint8_t *bytes = (uint8_t *)run->address[bytes_operand] + run->position[bytes_operand];
    int64_t columns = kernel_inner_extent(run->kernel);
    CodecRounding rounding = {.stochastic = coding->a != 0};
    if (rounding.stochastic) {
        rounding.key = (uint64_t)run->lanes[coding->a].integer[0];
        rounding.first = (uint64_t)run->lanes[coding->b].integer[0];
    }
    if (coding->op == KERNEL_ENCODE)
        codec_encode_row(kernel_coding_codec(coding), row, columns, rounding, bytes);
    else
        codec_decode_row(kernel_coding_codec(coding), bytes, columns, row);
}

static bool interpret_inner_phase(Interpreter *run, const KernelPhase *phase)
{
    const KernelInstruction *first = &run->kernel->instructions[phase->first - 1];
    if (kernel_op_is_coding(first->op)) {
        interpret_coding(run, first);
        return true;
    }
    int axis = run->kernel->axis_count - 1;
    int64_t extent = run->kernel->extent[axis];
    int width = extent < STRIP ? (int)extent : STRIP;
    for (int i = 0; i < phase->count; i++) {
        const KernelInstruction *instruction = kernel_instruction(run->kernel, (Register)(phase->first + i));
        if (kernel_op_is_reduction(instruction->op))
            interpret_reduction_start(instruction, &run->lanes[phase->first + i]);
    }
    for (int64_t start = 0; start < extent; start += STRIP) {
        int count = extent - start < STRIP ? (int)(extent - start) : STRIP;
        if (!interpret_lanes(run, phase, axis, start, count)) return false;
    }
    for (int i = 0; i < phase->count; i++) {
        const KernelInstruction *instruction = kernel_instruction(run->kernel, (Register)(phase->first + i));
        if (kernel_op_is_reduction(instruction->op))
            broadcast(&run->lanes[phase->first + i], (DType)instruction->type, width);
    }
    return true;
}

static bool interpret_scalar_phase(Interpreter *run, const KernelPhase *phase)
{
    int64_t extent = kernel_inner_extent(run->kernel);
    int width = extent < STRIP ? (int)extent : STRIP;
    if (!interpret_lanes(run, phase, run->kernel->axis_count - 1, 0, 1)) return false;
    for (int i = 0; i < phase->count; i++) {
        const KernelInstruction *instruction = kernel_instruction(run->kernel, (Register)(phase->first + i));
        if (!kernel_op_is_store(instruction->op))
            broadcast(&run->lanes[phase->first + i], (DType)instruction->type, width);
    }
    return true;
}

bool interpret_phases(Interpreter *run)
{
    for (int i = 0; i < run->kernel->phase_count; i++) {
        const KernelPhase *phase = &run->kernel->phases[i];
        if (!(phase->inner ? interpret_inner_phase : interpret_scalar_phase)(run, phase)) return false;
    }
    return true;
}

bool interpret_step(Interpreter *run, unsigned skipped)
{
    const Kernel *kernel = run->kernel;
    for (int axis = kernel->axis_count - 2; axis >= 0; axis--) {
        if (skipped >> axis & 1) continue;
        bool more = ++run->index[axis] < kernel->extent[axis];
        int64_t steps = more ? 1 : 1 - kernel->extent[axis];
        for (int i = 0; i < kernel->operand_count; i++) run->position[i] += steps * kernel->operands[i].stride[axis];
        if (more) return true;
        run->index[axis] = 0;
    }
    return false;
}
