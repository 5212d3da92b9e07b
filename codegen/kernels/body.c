#include "codegen/kernels/body.h"

#include "codegen/kernels/emit_blocks.h"

static int inner_axis(const Body *body) { return body->kernel->axis_count - 1; }

/* ---- What varies with what ---- */

static uint16_t operand_axes(const Kernel *kernel, int operand)
{
    uint16_t axes = 0;
    for (int axis = 0; axis < kernel->axis_count; axis++) {
        if (kernel->operands[operand].stride[axis] != 0 && kernel->extent[axis] > 1) axes |= (uint16_t)(1 << axis);
    }
    return axes;
}

void body_analyse(Body *body)
{
    const Kernel *kernel = body->kernel;
    uint16_t inner = (uint16_t)(1 << inner_axis(body));
    for (int p = 0; p < kernel->phase_count; p++) {
        const KernelPhase *phase = &kernel->phases[p];
        for (int r = phase->first; r < phase->first + phase->count; r++) {
            const KernelInstruction *instruction = kernel_instruction(kernel, (Register)r);
            uint16_t axes = 0;
            if (instruction->op == KERNEL_AXIS) axes = (uint16_t)(1 << instruction->operand);
            if (kernel_op_has_operand(instruction->op)) axes = operand_axes(kernel, instruction->operand);
            axes |= body->varies[instruction->a] | body->varies[instruction->b] | body->varies[instruction->c];
            if (!phase->inner || kernel_op_is_reduction(instruction->op)) axes &= (uint16_t)~inner;
            body->varies[r] = axes;
        }
    }
}

bool body_is_vector(const Body *body, Register r)
{
    return body->vector_axis >= 0 && (body->varies[r] >> body->vector_axis & 1);
}

int body_copies(const Body *body, Register r)
{
    return body->copy_axis >= 0 && (body->varies[r] >> body->copy_axis & 1) ? body->copies : 1;
}

Ir body_value(Body *body, Register r, int copy, bool vector)
{
    Ir value = body->value[r][body_copies(body, r) > 1 ? copy : 0];
    return vector ? emit_broadcast(body->emit, value, body->lanes) : value;
}

/* ---- Addresses ---- */

void body_load_operands(Body *body, Ir operand_array)
{
    for (int i = 0; i < body->kernel->operand_count; i++)
        body->operand[i] = emit_operand(body->emit, operand_array, i, body->kernel->operands[i].dtype);
}

/* Elements from the operand's address to where the outer iteration begins. */
static Ir outer_offset(Body *body, int number)
{
    Emit *emit = body->emit;
    const KernelOperand *operand = &body->kernel->operands[number];
    Ir offset = emit_i64(emit, 0);
    for (int axis = 0; axis < inner_axis(body); axis++) {
        if (operand->stride[axis] == 0) continue;
        offset = emit_add(emit, offset, emit_mul(emit, body->index[axis], operand->stride[axis]));
    }
    return offset;
}

void body_set_base(Body *body)
{
    for (int i = 0; i < body->kernel->operand_count; i++) {
        DType dtype = body->kernel->operands[i].dtype;
        body->base[i] = emit_element_address(body->emit, dtype, body->operand[i], outer_offset(body, i));
    }
}

/* Elements from there to copy `copy`'s lane 0. */
static Ir inner_offset(Body *body, int number, int copy, bool inner)
{
    Emit *emit = body->emit;
    const KernelOperand *operand = &body->kernel->operands[number];
    Ir offset = emit_i64(emit, 0);
    int64_t stride = operand->stride[inner_axis(body)];
    if (inner && stride) offset = emit_add(emit, offset, emit_mul(emit, body->index[inner_axis(body)], stride));
    if (body->copy_axis >= 0 && copy > 0 && (inner || body->copy_axis != inner_axis(body)))
        offset = emit_add(emit, offset, emit_i64(emit, copy * body->copy_step * operand->stride[body->copy_axis]));
    return offset;
}

Ir body_position(Body *body, int operand, int copy, bool inner)
{
    return emit_add(body->emit, outer_offset(body, operand), inner_offset(body, operand, copy, inner));
}

Ir body_address(Body *body, int number, Register offset_register, int copy, bool inner)
{
    Emit *emit = body->emit;
    const KernelOperand *operand = &body->kernel->operands[number];
    Ir offset = inner_offset(body, number, copy, inner);
    if (offset_register && !body_is_vector(body, offset_register))
        offset = emit_add(emit, offset, body_value(body, offset_register, copy, false));
    return emit_element_address(emit, operand->dtype, body->base[number], offset);
}
