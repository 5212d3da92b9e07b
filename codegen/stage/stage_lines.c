/* Micro-batches with fewer lines than the others (runtime/program/packing.h): what the calls of a stage need not do
 * then.
 *
 * Values that grow with lines have what belongs to a line in one piece, line after line. So a kernel has an axis along
 * which lines stand. Most often it is an outer one: nothing that is computed of one line meets what is computed of
 * another, and work units, or a group's blocks, are as many as there are lines. Where it is the inner axis of a matrix
 * product that is added to a gradient, the sum ends with the last line that is there. Where it is that of another sum
 * or a scatter, the kernel is cut to one line and runs for each. What absent lines hold is then read by nobody but by
 * kernels that compute nothing but other absent lines, and may be anything.
 *
 * Of the last line that there is, calls of which each token is apart from the others, and such products, leave out the
 * tokens after the last one that a row has (stage_tokens.c). */
#include <stdlib.h>

#include "codegen/stage/stage_builder.h"

static int64_t elements_of(const StageBuilder *builder, const LoweredCall *call, int operand)
{
    return shape_elements(&graph_value(builder->graph, call->operands[operand].value)->shape);
}

static LineGrowth growth_of(const StageBuilder *builder, const LoweredCall *call, int operand)
{
    return value_growth(graph_value(builder->graph, call->operands[operand].value));
}

/* Whether what the call touches of the operand depends on how many lines there are: it grows with them, and more of it
 * is touched than the first line, which is always there. What grows otherwise, one number for the rows of all lines and
 * one more for example, is computed as a whole, as what does not grow. Of one line alone, tokens may be absent. */
static bool varies(const StageBuilder *builder, const LoweredCall *call, const Kernel *kernel, int operand)
{
    const KernelOperand *touched = &kernel->operands[operand];
    int64_t last = call->operands[operand].offset;
    if (growth_of(builder, call, operand) != LINES_FIRST) return false;
    for (int axis = 0; axis < kernel->axis_count; axis++)
        if (touched->stride[axis] > 0) last += (kernel->extent[axis] - 1) * touched->stride[axis];
    const SkyPacking *packing = &builder->graph->packing;
    int64_t pieces = packing->lines > 1 ? packing->lines : packing->length;
    if (packing->lines == 1 && !graph_value(builder->graph, call->operands[operand].value)->by_token) return false;
    return touched->elements || last >= elements_of(builder, call, operand) / pieces;
}

/* The axis along which lines stand in an operand that varies with them; -1: none. */
static int line_axis_of(const StageBuilder *builder, const LoweredCall *call, const Kernel *kernel, int operand)
{
    const int64_t *stride = kernel->operands[operand].stride, lines = builder->graph->packing.lines;
    int64_t elements = elements_of(builder, call, operand);
    for (int axis = 0; axis < kernel->axis_count; axis++) {
        if (stride[axis] <= 0 || kernel->extent[axis] * stride[axis] != elements || kernel->extent[axis] % lines)
            continue;
        int64_t last = call->operands[operand].offset + (kernel->extent[axis] / lines - 1) * stride[axis];
        for (int other = 0; other < kernel->axis_count; other++) {
            if (stride[other] < 0) return -1;
            if (other != axis) last += (kernel->extent[other] - 1) * stride[other];
        }
        return last < elements / lines ? axis : -1;
    }
    return -1;
}

/* The axis along which lines stand; *any: whether an operand varies with them. False if operands do not agree. */
static bool find_line_axis(const StageBuilder *builder, const LoweredCall *call, const Kernel *kernel, bool *any,
                           int *axis)
{
    *any = false;
    *axis = -1;
    for (int i = 0; i < kernel->operand_count; i++) {
        if (!varies(builder, call, kernel, i)) continue;
        *any = true;
        int own = line_axis_of(builder, call, kernel, i);
        if (own < 0 && kernel->operands[i].elements) continue; /* what it looks up there belongs to the line's rows */
        if (own < 0 || (*axis >= 0 && own != *axis)) return false;
        *axis = own;
    }
    return !*any || *axis >= 0;
}

/* How far a token reaches along the axis along which lines stand; 0: the call does not keep to tokens. */
static int64_t token_extent_of(const StageBuilder *builder, const LoweredCall *call, const Kernel *kernel, int axis)
{
    const SkyPacking *packing = &builder->graph->packing;
    int64_t tokens = (int64_t)packing->lines * packing->length, extent = kernel->extent[axis] / tokens;
    if (kernel->extent[axis] % tokens) return 0;
    for (int i = 0; i < kernel->operand_count; i++) {
        const KernelOperand *operand = &kernel->operands[i];
        if (!varies(builder, call, kernel, i)) {
            if (operand->written && !kernel->limited) return 0;
            continue;
        }
        int64_t elements = elements_of(builder, call, i), last = call->operands[i].offset;
        if (!graph_value(builder->graph, call->operands[i].value)->by_token || operand->elements) return 0;
        for (int a = 0; a < kernel->axis_count; a++)
            last += ((a == axis ? extent : kernel->extent[a]) - 1) * operand->stride[a];
        if (last >= elements / tokens) return 0;
    }
    return extent;
}

/* Whether a call may leave out what absent lines have of all that it writes: each line at a place of its own, not where
 * a register says, which in absent lines may be anything. */
static bool writes_lines_alone(const StageBuilder *builder, const LoweredCall *call, const Kernel *kernel)
{
    for (int i = 0; i < kernel->operand_count; i++)
        if (kernel->operands[i].written && !varies(builder, call, kernel, i) &&
            growth_of(builder, call, i) != LINES_MIXED)
            return false;
    for (Register r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        if (kernel_op_is_store(instruction->op) && kernel_access_offset(instruction)) return false;
    }
    return true;
}

/* A kernel that has lines along its inner axis, to run for each. */
static bool cut_to_line(Kernel *kernel, int64_t lines, LineCut *cut)
{
    if (!kernel_cut_lines(kernel, lines)) return false;
    cut->loops = (uint32_t)lines;
    for (int i = 0; i < kernel->operand_count; i++) {
        const KernelOperand *operand = &kernel->operands[i];
        int64_t elements = operand->stride[kernel->axis_count - 1] * kernel_inner_extent(kernel);
        cut->line_bytes[i] = (uint64_t)elements * dtype_size(operand->dtype);
    }
    return true;
}

static bool cut_call(const StageBuilder *builder, const LoweredCall *call, uint32_t blocks, Kernel *kernel,
                     LineCut *cut)
{
    int64_t lines = builder->graph->packing.lines;
    bool any;
    int axis;
    if (!find_line_axis(builder, call, kernel, &any, &axis)) return false;
    if (!any) return true;
    bool sums = axis == kernel->axis_count - 1 && !kernel_is_map(kernel);
    if (sums && blocks) return false;
    if (sums && !kernel_limit_sum(kernel)) return lines > 1 && cut_to_line(kernel, lines, cut);
    if (!sums && !writes_lines_alone(builder, call, kernel)) return false;
    cut->axis = 1 + (uint32_t)axis;
    cut->extent = (uint32_t)(kernel->extent[axis] / lines);
    if (sums) cut->sum_extent = (uint32_t)kernel->extent[axis];
    if (!blocks && builder->cuts_tokens) cut->token_extent = (uint32_t)token_extent_of(builder, call, kernel, axis);
    if (axis == 0 && kernel->block_axes && blocks % lines == 0) cut->blocks = blocks / (uint32_t)lines;
    return true;
}

bool stage_cut_lines(const StageBuilder *builder, const LoweredCall *call, uint32_t blocks, Kernel *kernel,
                     LineCut *cut)
{
    *cut = (LineCut){0};
    return cut_call(builder, call, blocks, kernel, cut) || builder->graph->packing.lines == 1;
}

/* ---- The stage ---- */

static bool has_lines(const StageBuilder *builder) { return builder->graph->packing.slots > 0; }

/* Of values that are computed as a whole but for what absent lines have of them, which no other line may look up:
 * whether the call reads one otherwise than by looking something up for its lines. */
static bool reads_parts(const LoweredCall *call, const LineCut *cut, const bool *partial)
{
    bool by_lines = cut->axis || cut->loops;
    for (int i = 0; i < call->kernel->operand_count; i++) {
        const KernelOperand *operand = &call->kernel->operands[i];
        if (operand->read && !(operand->elements && by_lines) && partial[call->operands[i].value]) return true;
    }
    return false;
}

static void mark_parts(const StageBuilder *builder, const LoweredCall *call, const LineCut *cut, bool *partial)
{
    for (int i = 0; i < call->kernel->operand_count; i++)
        if (cut->axis && !cut->sum_extent && call->kernel->operands[i].written &&
            growth_of(builder, call, i) == LINES_MIXED && builder->graph->packing.lines > 1)
            partial[call->operands[i].value] = true;
}

void stage_find_lines(StageBuilder *builder)
{
    StageCode *code = builder->code;
    if (!has_lines(builder)) return;
    bool *partial = value_array_new(builder->index->arrays, bool);
    for (size_t c = 0; c < builder->end[SKY_LIST_WEIGHT_GRADIENT] && !code->needs_lines; c++) {
        const LoweredCall *call = &builder->lowering.calls[c];
        LineCut cut;
        if (call->dead) continue;
        kernel_canonicalize(call->kernel);
        Kernel kernel = *call->kernel;
        if (!stage_cut_lines(builder, call, builder->groups[c].blocks, &kernel, &cut) ||
            reads_parts(call, &cut, partial))
            code->needs_lines = stage_call_name(builder, call);
        mark_parts(builder, call, &cut, partial);
    }
    code->lines_vary = !code->needs_lines;
    value_array_return(builder->index->arrays, partial);
}

/* ---- Sums that are stored ---- */

/* A call that makes 0 what `call`, a sum over lines, is to be added to; its kernel is NULL if `call` is none. */
static LoweredCall clear_sums(StageBuilder *builder, LoweredCall *call)
{
    Arena *arena = &builder->lowering.arena;
    LoweredCall clearing = {.node = call->node};
    LineCut cut;
    Kernel adding = *call->kernel, tried;
    kernel_canonicalize(&adding);
    tried = adding;
    if (stage_cut_lines(builder, call, 0, &tried, &cut)) return clearing;
    Kernel fill;
    int operand = kernel_add_sums(&adding, &fill);
    tried = adding;
    if (operand < 0 || !stage_cut_lines(builder, call, 0, &tried, &cut)) return clearing;
    clearing.kernel = arena_copy(arena, &fill, sizeof fill);
    clearing.operands[0] = call->operands[operand];
    call->kernel = arena_copy(arena, &adding, sizeof adding);
    return clearing;
}

void stage_add_sums(StageBuilder *builder)
{
    Lowering *lowering = &builder->lowering;
    LoweredCall *calls = NULL;
    size_t count = 0, capacity = 0;
    if (!has_lines(builder)) return;
    for (size_t list = 0, c = 0; list < SKY_LIST_COUNT; list++) {
        for (; c < builder->end[list]; c++) {
            LoweredCall call = lowering->calls[c], clearing = {0};
            if (!call.dead && list != SKY_LIST_UPDATE) clearing = clear_sums(builder, &call);
            if (clearing.kernel) array_push(calls, count, capacity, clearing);
            array_push(calls, count, capacity, call);
        }
        builder->end[list] = count;
    }
    free(lowering->calls);
    lowering->calls = calls;
    lowering->call_count = count;
    lowering->call_capacity = capacity;
}
