/* Emission of loop kernels as planned. */
#include <string.h>

#include "codegen/kernels/body_emit.h"
#include "codegen/kernels/elementary.h"
#include "codegen/kernels/loop.h"
#include "codegen/kernels/loop_columns.h"

enum { CACHE_LINE = 64, PREFETCH_BYTES = 2048 };

typedef struct LoopEmitter {
    Emit *emit;
    const Kernel *kernel;
    const LoopPlan *plan;
    Body body;
    int64_t unit_size; /* iterations of the stepped axis in the unit being emitted */
    Ir sums;           /* of column sums */
    bool hoisted[KERNEL_MAX_INSTRUCTIONS + 1];
    /* Of the phase being emitted: its reductions and their accumulators. */
    Register reduction[KERNEL_MAX_INSTRUCTIONS];
    int reduction_count, accumulator_count;
    int first_accumulator[KERNEL_MAX_INSTRUCTIONS]; /* of each reduction */
    Ir accumulator[EMIT_MAX_CARRIED];
} LoopEmitter;

static int inner_axis(const LoopEmitter *loop) { return loop->kernel->axis_count - 1; }
static bool inner_is_vectorised(const LoopEmitter *loop) { return loop->plan->vector_axis == inner_axis(loop); }
static bool inner_is_copied(const LoopEmitter *loop) { return loop->plan->copy_axis == inner_axis(loop); }

/* ---- Reductions ---- */

static int accumulators_of(const LoopEmitter *loop, Register r)
{
    return inner_is_copied(loop) ? loop->plan->copies : body_copies(&loop->body, r);
}

static void start_reductions(LoopEmitter *loop, const KernelPhase *phase)
{
    loop->reduction_count = loop->accumulator_count = 0;
    for (int r = phase->first; r < phase->first + phase->count; r++) {
        if (!kernel_op_is_reduction(kernel_instruction(loop->kernel, (Register)r)->op)) continue;
        bool vector = inner_is_vectorised(loop) || body_is_vector(&loop->body, (Register)r);
        Ir identity = body_reduction_identity(&loop->body, (Register)r, vector ? loop->body.lanes : 1);
        loop->reduction[loop->reduction_count] = (Register)r;
        loop->first_accumulator[loop->reduction_count++] = loop->accumulator_count;
        for (int i = 0; i < accumulators_of(loop, (Register)r); i++) {
            if (loop->accumulator_count == EMIT_MAX_CARRIED) bug("kernel %s: too many reductions", loop->kernel->label);
            loop->accumulator[loop->accumulator_count++] = identity;
        }
    }
}

static void accumulate(LoopEmitter *loop, Register r)
{
    int number = 0;
    while (loop->reduction[number] != r) number++;
    Body *body = &loop->body;
    Ir *accumulator = &loop->accumulator[loop->first_accumulator[number]];
    bool vector = inner_is_vectorised(loop) || body_is_vector(body, r);
    Register source = kernel_instruction(loop->kernel, r)->a;
    int count = inner_is_copied(loop) ? body->copies : body_copies(body, r);
    for (int i = 0; i < count; i++) {
        Ir next = body_reduction_step(body, r, accumulator[i], body_value(body, source, i, vector));
        /* Lanes beyond the end of the inner axis count for nothing. */
        Ir mask = inner_is_vectorised(loop) ? body->mask[i] : NULL;
        accumulator[i] = mask ? emit_select(loop->emit, mask, next, accumulator[i]) : next;
    }
}

/* Copies along the inner axis combine in pairs, then lanes by halves: the order depends on the plan alone. */
static void finish_reductions(LoopEmitter *loop)
{
    for (int i = 0; i < loop->reduction_count; i++) {
        Register r = loop->reduction[i];
        Ir *accumulator = &loop->accumulator[loop->first_accumulator[i]];
        int count = accumulators_of(loop, r);
        if (inner_is_copied(loop)) {
            for (int step = 1; step < count; step *= 2) {
                for (int k = 0; k + step < count; k += 2 * step)
                    accumulator[k] = body_reduction_step(&loop->body, r, accumulator[k], accumulator[k + step]);
            }
            count = 1;
        }
        for (int k = 0; k < count; k++) {
            Ir value = accumulator[k];
            if (inner_is_vectorised(loop)) value = body_reduction_across(&loop->body, r, value);
            loop->body.value[r][k] = value;
        }
    }
}

/* ---- Phases ---- */

static bool phase_stores_to(const LoopEmitter *loop, const KernelPhase *phase, int operand)
{
    for (int r = phase->first; r < phase->first + phase->count; r++) {
        const KernelInstruction *instruction = kernel_instruction(loop->kernel, (Register)r);
        if (kernel_op_is_store(instruction->op) && instruction->operand == operand) return true;
    }
    return false;
}

static bool argument_is_hoisted(const LoopEmitter *loop, const KernelPhase *phase, Register r)
{
    return r < phase->first || loop->hoisted[r]; /* register 0, none, too */
}

/* Computes what does not change along the inner axis once. */
static void hoist(LoopEmitter *loop, const KernelPhase *phase)
{
    for (int r = phase->first; r < phase->first + phase->count; r++) {
        const KernelInstruction *instruction = kernel_instruction(loop->kernel, (Register)r);
        bool varies = loop->body.varies[r] >> inner_axis(loop) & 1;
        loop->hoisted[r] =
            !varies && !kernel_op_is_store(instruction->op) && !kernel_op_is_reduction(instruction->op) &&
            argument_is_hoisted(loop, phase, instruction->a) && argument_is_hoisted(loop, phase, instruction->b) &&
            argument_is_hoisted(loop, phase, instruction->c) &&
            !(instruction->op == KERNEL_LOAD && phase_stores_to(loop, phase, instruction->operand));
        if (loop->hoisted[r]) body_emit(&loop->body, (Register)r);
    }
}

/* Whether this is the first phase along the inner axis that reads or writes the operand. */
static bool phase_uses_first(const LoopEmitter *loop, const KernelPhase *phase, int operand)
{
    for (int r = 1; r < phase->first + phase->count; r++) {
        const KernelInstruction *instruction = kernel_instruction(loop->kernel, (Register)r);
        if (!kernel_op_is_access(instruction->op)) continue;
        if (instruction->operand == operand) return r >= phase->first;
    }
    return false;
}

/* The lines that a block PREFETCH_BYTES later touches, or the one at the same place of the next rows. Processors see
 * the streams themselves, but lose them at the end of every page, and they see too few where a kernel walks through
 * many. */
static void prefetch_later(LoopEmitter *loop, const KernelPhase *phase, Ir index)
{
    Emit *emit = loop->emit;
    int64_t width = loop->plan->lanes * (inner_is_copied(loop) ? loop->plan->copies : 1);
    bool by_rows = !inner_is_copied(loop) && loop->plan->copy_axis >= 0;
    for (int o = 0; o < loop->kernel->operand_count; o++) {
        const KernelOperand *operand = &loop->kernel->operands[o];
        if (operand->stride[inner_axis(loop)] != 1 || dtype_in_blocks(operand->dtype)) continue;
        int64_t size = (int64_t)dtype_size(operand->dtype), line = CACHE_LINE / size;
        int64_t rows = by_rows ? loop->plan->copies : 1, pitch = by_rows ? operand->stride[loop->plan->copy_axis] : 0;
        if (by_rows && (!pitch || !phase_uses_first(loop, phase, o))) continue;
        for (int64_t row = 0; row < rows; row++) {
            for (int64_t i = 0; i < width; i += line) {
                int64_t distance = by_rows ? (rows + row) * pitch : PREFETCH_BYTES / size;
                Ir ahead = emit_add(emit, index, emit_i64(emit, distance + i));
                LLVMTypeRef type = emit_memory_type(emit, operand->dtype);
                emit_prefetch(emit, emit_address(emit, type, loop->body.base[o], ahead), PREFETCH_LEVEL1);
            }
        }
    }
}

/* Of a softmax whose shares often are 0: whether r is the exponential, of which they are made. */
static bool often_vanishes(const LoopEmitter *loop, Register r)
{
    const KernelInstruction *power = kernel_instruction(loop->kernel, r), *store = power + 1;
    return power->op == KERNEL_EXP && power->type == DTYPE_F32 && r < loop->kernel->instruction_count &&
           inner_is_vectorised(loop) && store->op == KERNEL_STORE && store->a == r &&
           loop->kernel->operands[store->operand].often_zero;
}

/* Whether any power of the block is not 0. */
static Ir any_remains(LoopEmitter *loop, Register r)
{
    Emit *emit = loop->emit;
    Ir any = NULL;
    for (int copy = 0; copy < body_copies(&loop->body, r); copy++) {
        Ir exponent = body_value(&loop->body, kernel_instruction(loop->kernel, r)->a, copy, true);
        Ir remains = math_exp_remains(emit, exponent);
        any = any ? emit_or(emit, any, remains) : remains;
    }
    LLVMTypeRef set = LLVMIntTypeInContext(emit->context, (unsigned)emit_lanes(any));
    any = LLVMBuildBitCast(emit->builder, any, set, "");
    return emit_compare(emit, LLVMIntNE, any, LLVMConstNull(set));
}

static void emit_from(LoopEmitter *loop, const KernelPhase *phase, int first);

/* The exponential and what follows it in the phase, and where all powers are 0 what follows alone. */
static void emit_remaining(LoopEmitter *loop, const KernelPhase *phase, Register r)
{
    Emit *emit = loop->emit;
    Body *body = &loop->body;
    int count = loop->accumulator_count;
    Ir sums[2][EMIT_MAX_CARRIED];
    LLVMBasicBlockRef from[2];
    EmitIf branch;
    memcpy(sums[1], loop->accumulator, (size_t)count * sizeof sums[1][0]);
    emit_if(emit, &branch, any_remains(loop, r));
    body_emit(body, r);
    emit_from(loop, phase, r + 1);
    memcpy(sums[0], loop->accumulator, (size_t)count * sizeof sums[0][0]);
    from[0] = LLVMGetInsertBlock(emit->builder);
    emit_else(emit, &branch);
    memcpy(loop->accumulator, sums[1], (size_t)count * sizeof sums[1][0]);
    for (int copy = 0; copy < body_copies(body, r); copy++)
        body->value[r][copy] = LLVMConstNull(LLVMTypeOf(body->value[r][copy]));
    emit_from(loop, phase, r + 1);
    memcpy(sums[1], loop->accumulator, (size_t)count * sizeof sums[1][0]);
    from[1] = LLVMGetInsertBlock(emit->builder);
    emit_end_if(emit, &branch);
    for (int i = 0; i < count; i++) {
        loop->accumulator[i] = LLVMBuildPhi(emit->builder, LLVMTypeOf(sums[0][i]), "");
        LLVMAddIncoming(loop->accumulator[i], (Ir[]){sums[0][i], sums[1][i]}, from, 2);
    }
}

/* The phase's instructions from `first` on. */
static void emit_from(LoopEmitter *loop, const KernelPhase *phase, int first)
{
    for (int r = first; r < phase->first + phase->count; r++) {
        if (loop->hoisted[r]) continue;
        if (often_vanishes(loop, (Register)r)) {
            emit_remaining(loop, phase, (Register)r);
            return;
        }
        if (kernel_op_is_reduction(kernel_instruction(loop->kernel, (Register)r)->op)) {
            accumulate(loop, (Register)r);
        } else {
            body_emit(&loop->body, (Register)r);
        }
    }
}

/* Blocks in which all is zero that often is have code of their own, in which most is the same for all such blocks and
 * moves out of the loop. */
static void emit_block(LoopEmitter *loop, const KernelPhase *phase, Ir index)
{
    Body *body = &loop->body;
    body->index[inner_axis(loop)] = index;
    if (loop->plan->streams) prefetch_later(loop, phase, index);
    bool whole = true;
    for (int copy = 0; copy < body->copies; copy++) whole &= !body->mask[copy];
    Ir not_zero = body->spares_stores && whole ? body_any_not_zero(body, phase) : NULL;
    if (!not_zero) {
        emit_from(loop, phase, phase->first);
        return;
    }
    EmitIf branch;
    emit_if(loop->emit, &branch, not_zero);
    emit_from(loop, phase, phase->first);
    emit_else(loop->emit, &branch);
    body->are_zero = true;
    emit_from(loop, phase, phase->first);
    body->are_zero = false;
    emit_end_if(loop->emit, &branch);
}

static void emit_blocks(LoopEmitter *loop, const KernelPhase *phase, Ir start, int64_t width, int64_t count)
{
    if (count == 0) return;
    if (count == 1) {
        emit_block(loop, phase, start);
        return;
    }
    EmitLoop blocks;
    Ir end = emit_add(loop->emit, start, emit_i64(loop->emit, count * width));
    emit_loop_begin(loop->emit, &blocks, start, end, width, loop->accumulator_count, loop->accumulator);
    for (int i = 0; i < loop->accumulator_count; i++) loop->accumulator[i] = blocks.carried[i];
    emit_block(loop, phase, blocks.index);
    emit_loop_end(loop->emit, &blocks, loop->accumulator);
    for (int i = 0; i < loop->accumulator_count; i++) loop->accumulator[i] = blocks.carried[i];
}

/* The last, incomplete block along the inner axis. */
static void emit_remainder(LoopEmitter *loop, const KernelPhase *phase, Ir index, int remainder)
{
    Body *body = &loop->body;
    int copies = body->copies, lanes = body->lanes, tail = remainder % lanes;
    Ir saved[BODY_MAX_COPIES];
    for (int i = 0; i < BODY_MAX_COPIES; i++) saved[i] = body->mask[i];
    if (inner_is_copied(loop)) body->copies = (remainder + lanes - 1) / lanes;
    Ir mask = tail ? emit_lane_mask(loop->emit, tail, lanes) : NULL;
    for (int i = 0; i < body->copies; i++) {
        if (!inner_is_copied(loop) || i == body->copies - 1) body->mask[i] = mask;
    }
    emit_block(loop, phase, index);
    body->copies = copies;
    for (int i = 0; i < BODY_MAX_COPIES; i++) body->mask[i] = saved[i];
}

static void emit_inner_phase(LoopEmitter *loop, const KernelPhase *phase)
{
    bool stepped = loop->plan->stepped_axis == inner_axis(loop);
    Ir start = stepped ? loop->body.index[inner_axis(loop)] : emit_i64(loop->emit, 0);
    int64_t extent = stepped ? loop->unit_size : kernel_inner_extent(loop->kernel);
    int64_t width = inner_is_vectorised(loop) ? loop->body.lanes : 1;
    if (inner_is_copied(loop)) width *= loop->body.copies;
    start_reductions(loop, phase);
    hoist(loop, phase);
    emit_blocks(loop, phase, start, width, extent / width);
    if (extent % width) {
        Ir index = emit_add(loop->emit, start, emit_i64(loop->emit, extent / width * width));
        emit_remainder(loop, phase, index, (int)(extent % width));
    }
    finish_reductions(loop);
    loop->body.index[inner_axis(loop)] = start;
}

static void emit_scalar_phase(LoopEmitter *loop, const KernelPhase *phase)
{
    loop->body.index[inner_axis(loop)] = emit_i64(loop->emit, 0);
    for (int r = phase->first; r < phase->first + phase->count; r++) body_emit(&loop->body, (Register)r);
}

/* ---- Units ---- */

static void emit_unit(LoopEmitter *loop, int64_t size)
{
    const LoopPlan *plan = loop->plan;
    Body *body = &loop->body;
    if (plan->columns) {
        loop_columns_emit(body, loop->sums, size);
        return;
    }
    loop->unit_size = size;
    body->copies = plan->copies;
    for (int i = 0; i < BODY_MAX_COPIES; i++) body->mask[i] = NULL;
    if (plan->stepped_axis >= 0 && plan->stepped_axis != inner_axis(loop)) {
        int64_t per_copy = plan->stepped_axis == plan->vector_axis ? plan->lanes : 1;
        body->copies = (int)((size + per_copy - 1) / per_copy);
        if (size % per_copy)
            body->mask[body->copies - 1] = emit_lane_mask(loop->emit, (int)(size % per_copy), plan->lanes);
    }
    body_set_base(body);
    for (int p = 0; p < loop->kernel->phase_count; p++) {
        const KernelPhase *phase = &loop->kernel->phases[p];
        if (phase->inner)
            emit_inner_phase(loop, phase);
        else
            emit_scalar_phase(loop, phase);
    }
}

void loop_emit(Emit *emit, const Kernel *kernel, const LoopPlan *plan, const char *symbol)
{
    Ir function = emit_kernel_function(emit, symbol);
    LoopEmitter loop = {.emit = emit, .kernel = kernel, .plan = plan};
    Body *body = &loop.body;
    body->emit = emit;
    body->kernel = kernel;
    body->lanes = plan->lanes;
    body->vector_axis = plan->vector_axis;
    body->copy_axis = plan->copy_axis;
    body->copies = plan->copies;
    body->spares_stores = plan->streams && kernel_is_map(kernel);
    body->copy_step = plan->copy_axis == plan->vector_axis ? plan->lanes : 1;
    body_analyse(body);
    body_load_operands(body, LLVMGetParam(function, KERNEL_OPERANDS));
    for (int axis = 0; axis < kernel->axis_count; axis++) body->index[axis] = emit_i64(emit, 0);

    body_emit_constant_part(body, 1);
    if (plan->columns) loop.sums = loop_columns_room(body, plan->columns);
    EmitLoop units;
    units_emit_loop(emit, &plan->units, &units, body->index);
    int64_t step = 1, rest = 0, extent = 0;
    for (int i = 0; i < plan->units.axis_count; i++) {
        const UnitAxis *axis = &plan->units.axes[i];
        if (axis->axis != plan->stepped_axis) continue;
        step = axis->step;
        extent = axis->extent;
        rest = extent % step;
    }
    if (rest == 0 || extent < step) {
        emit_unit(&loop, rest ? rest : step);
    } else {
        EmitIf branch;
        Ir last = emit_compare(emit, LLVMIntEQ, body->index[plan->stepped_axis], emit_i64(emit, extent - rest));
        emit_if(emit, &branch, last);
        Ir index[KERNEL_MAX_AXES];
        for (int axis = 0; axis < kernel->axis_count; axis++) index[axis] = body->index[axis];
        emit_unit(&loop, rest);
        emit_else(emit, &branch);
        for (int axis = 0; axis < kernel->axis_count; axis++) body->index[axis] = index[axis];
        emit_unit(&loop, step);
        emit_end_if(emit, &branch);
    }
    emit_loop_end(emit, &units, NULL);
    LLVMBuildRetVoid(emit->builder);
}
