#include "codegen/stage/call_fusion.h"

#include <stdlib.h>
#include <string.h>

typedef struct Fuser {
    Lowering *lowering;
    size_t first, end;
    const bool *kept;
    ValueArrays *arrays;
    size_t *reader_count; /* per value: live calls that read it */
    size_t *writer;       /* per value: 1 + the last call that writes it, when only one does; else 0 */
    size_t *writer_count;
} Fuser;

static void count_accesses(Fuser *fuser)
{
    const Lowering *lowering = fuser->lowering;
    for (size_t c = fuser->first; c < fuser->end; c++) {
        const LoweredCall *call = &lowering->calls[c];
        for (int i = 0; !call->dead && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            bool counted_read = false, counted_write = false;
            value_arrays_visit(fuser->arrays, value);
            for (int k = 0; k < i; k++) {
                if (call->operands[k].value != value) continue;
                counted_read |= call->kernel->operands[k].read;
                counted_write |= call->kernel->operands[k].written;
            }
            if (call->kernel->operands[i].written && !counted_write)
                fuser->writer_count[value]++, fuser->writer[value] = c + 1;
            if (call->kernel->operands[i].read && !counted_read) fuser->reader_count[value]++;
        }
    }
}

/* The instruction that stores the final elements of `operand`, at their strided place; 0 if that cannot be told. The
 * kernel may have used the operand for intermediate results before, as softmax does. */
static Register final_store(const Kernel *kernel, int operand)
{
    Register last = 0;
    for (Register r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        if (!kernel_op_is_access(instruction->op) || instruction->operand != operand) continue;
        if (instruction->op == KERNEL_STORE_ADD || kernel_access_offset(instruction)) return 0;
        last = r;
    }
    return last && kernel_instruction(kernel, last)->op == KERNEL_STORE ? last : 0;
}

/* Two nests brought to the same axes: one step along axis a of the producer is consumer_scale[a] steps along axis
 * consumer_axis[a] of the consumer. */
typedef struct AxisPairs {
    int consumer_axis[KERNEL_MAX_AXES]; /* per producer axis; -1: the consumer does not move */
    int64_t consumer_scale[KERNEL_MAX_AXES];
} AxisPairs;

typedef struct AxisPart {
    int axis;
    int64_t stride, extent, scale; /* scale: how many steps of `axis` one step of this part is */
} AxisPart;

static int by_stride(const void *a, const void *b)
{
    int64_t x = ((const AxisPart *)a)->stride, y = ((const AxisPart *)b)->stride;
    return x < y ? -1 : x > y;
}

/* The axes along which `operand` moves, by ascending stride; -1 if an axis of more than one index does not move it. */
static int moving_axes(const Kernel *kernel, int operand, int axis_count, AxisPart *parts)
{
    int count = 0;
    for (int a = 0; a < axis_count; a++) {
        if (kernel->extent[a] == 1) continue;
        int64_t stride = kernel->operands[operand].stride[a];
        if (stride <= 0) return -1;
        parts[count++] = (AxisPart){a, stride, kernel->extent[a], 1};
    }
    qsort(parts, (size_t)count, sizeof *parts, by_stride);
    return count;
}

/* Whether an axis may be split at no cost: any of a map, the batch axes of a matrix product. */
static bool may_split(const Kernel *kernel, int axis)
{
    KernelGemm gemm;
    if (kernel_reads_axis(kernel, axis)) return false;
    return kernel_is_elementwise(kernel) ||
           (kernel_match_gemm(kernel, &gemm) && axis != gemm.row_axis && axis != gemm.column_axis);
}

/* Finds how the consumer's axes go along the producer's, so that `load` of the consumer and `store` of the producer
 * touch the same element. Splits axes of the producer where that costs nothing. */
static bool pair_axes(Kernel *producer, int store, bool inner_store, const Kernel *consumer, int load, AxisPairs *pairs)
{
    for (;;) {
        AxisPart p[KERNEL_MAX_AXES], c[KERNEL_MAX_AXES];
        int p_count = moving_axes(producer, store, producer->axis_count - !inner_store, p);
        int c_count = moving_axes(consumer, load, consumer->axis_count, c);
        if (p_count < 0 || c_count < 0) return false;
        for (int a = 0; a < KERNEL_MAX_AXES; a++) pairs->consumer_axis[a] = -1;
        int i = 0, j = 0;
        bool again = false;
        for (; i < p_count && j < c_count; i++) {
            if (p[i].stride != c[j].stride) return false;
            if (p[i].extent > c[j].extent) {
                if (p[i].extent % c[j].extent || !may_split(producer, p[i].axis) ||
                    !kernel_split_axis(producer, p[i].axis, c[j].extent))
                    return false;
                again = true;
                break;
            }
            if (c[j].extent % p[i].extent) return false;
            pairs->consumer_axis[p[i].axis] = c[j].axis;
            pairs->consumer_scale[p[i].axis] = c[j].scale;
            c[j].stride *= p[i].extent;
            c[j].scale *= p[i].extent;
            c[j].extent /= p[i].extent;
            if (c[j].extent == 1) j++;
        }
        if (again) continue;
        return i == p_count && j == c_count;
    }
}

/* The fused call under construction. */
typedef struct Join {
    Kernel *kernel;
    CallOperand operands[KERNEL_MAX_OPERANDS];
    bool full;
} Join;

static int join_operand(Join *join, const KernelOperand *operand, CallOperand place)
{
    Kernel *kernel = join->kernel;
    for (int i = 0; i < kernel->operand_count; i++) {
        KernelOperand *other = &kernel->operands[i];
        if (join->operands[i].value == place.value && join->operands[i].offset == place.offset &&
            other->dtype == operand->dtype && other->elements == operand->elements &&
            memcmp(other->stride, operand->stride, (size_t)kernel->axis_count * sizeof other->stride[0]) == 0) {
            other->read |= operand->read;
            other->written |= operand->written;
            return i;
        }
    }
    if (kernel->operand_count == KERNEL_MAX_OPERANDS) {
        join->full = true;
        return 0;
    }
    kernel->operands[kernel->operand_count] = *operand;
    join->operands[kernel->operand_count] = place;
    return kernel->operand_count++;
}

static Register join_instruction(Join *join, KernelInstruction instruction, const Register *map)
{
    Kernel *kernel = join->kernel;
    if (kernel->instruction_count == KERNEL_MAX_INSTRUCTIONS) {
        join->full = true;
        return 0;
    }
    instruction.a = map[instruction.a];
    instruction.b = map[instruction.b];
    instruction.c = map[instruction.c];
    kernel->instructions[kernel->instruction_count++] = instruction;
    return (Register)kernel->instruction_count;
}

/* The consumer's body, with its loads of `value` replaced by the producer's register. */
static void join_consumer(Join *join, const LoweredCall *consumer, const AxisPairs *pairs, ValueId value,
                          Register result)
{
    const Kernel *kernel = consumer->kernel;
    Register map[KERNEL_MAX_INSTRUCTIONS + 1] = {0};
    for (Register r = 1; r <= kernel->instruction_count && !join->full; r++) {
        KernelInstruction instruction = *kernel_instruction(kernel, r);
        if (instruction.op == KERNEL_LOAD && consumer->operands[instruction.operand].value == value) {
            map[r] = result;
            continue;
        }
        if (kernel_op_has_operand(instruction.op)) {
            KernelOperand operand = kernel->operands[instruction.operand];
            KernelOperand moved = operand;
            for (int a = 0; a < join->kernel->axis_count; a++) {
                int axis = pairs->consumer_axis[a];
                moved.stride[a] = axis < 0 ? 0 : operand.stride[axis] * pairs->consumer_scale[a];
            }
            instruction.operand = (uint16_t)join_operand(join, &moved, consumer->operands[instruction.operand]);
        }
        map[r] = join_instruction(join, instruction, map);
    }
}

/* The label of both, "MatMul+Add". */
static const char *join_label(Arena *arena, const char *a, const char *b)
{
    size_t length = strlen(b);
    const char *last = strrchr(a, '+');
    if (strlen(a) + length > 60 || strcmp(last ? last + 1 : a, b) == 0) return a;
    return arena_format(arena, "%s+%s", a, b);
}

/* Builds producer+consumer. False if it does not fit into one kernel. */
static bool join_calls(Lowering *lowering, const LoweredCall *producer, const Kernel *split, Register store, bool keep,
                       const LoweredCall *consumer, const AxisPairs *pairs, ValueId value, LoweredCall *result)
{
    Join join = {.kernel = arena_new(&lowering->arena, Kernel)};
    Kernel *kernel = join.kernel;
    kernel->label = join_label(&lowering->arena, split->label, consumer->kernel->label);
    kernel->axis_count = split->axis_count;
    memcpy(kernel->extent, split->extent, sizeof kernel->extent);
    Register map[KERNEL_MAX_INSTRUCTIONS + 1] = {0};
    for (int p = 0; p < split->phase_count; p++) {
        KernelPhase *phase = &kernel->phases[kernel->phase_count++];
        *phase = (KernelPhase){split->phases[p].inner, kernel->instruction_count + 1, 0};
        for (int k = 0; k < split->phases[p].count && !join.full; k++) {
            Register r = (Register)(split->phases[p].first + k);
            KernelInstruction instruction = *kernel_instruction(split, r);
            if (r == store) {
                if (keep) {
                    instruction.operand = (uint16_t)join_operand(&join, &split->operands[instruction.operand],
                                                                 producer->operands[instruction.operand]);
                    join_instruction(&join, instruction, map);
                }
                join_consumer(&join, consumer, pairs, value, map[instruction.a]);
                continue;
            }
            if (kernel_op_has_operand(instruction.op))
                instruction.operand = (uint16_t)join_operand(&join, &split->operands[instruction.operand],
                                                             producer->operands[instruction.operand]);
            map[r] = join_instruction(&join, instruction, map);
        }
        phase->count = kernel->instruction_count + 1 - phase->first;
    }
    if (join.full) return false;
    *result = (LoweredCall){.kernel = kernel, .node = consumer->node};
    memcpy(result->operands, join.operands, sizeof join.operands);
    return true;
}

static bool writes(const LoweredCall *call, ValueId value)
{
    for (int i = 0; i < call->kernel->operand_count; i++)
        if (call->operands[i].value == value && call->kernel->operands[i].written) return true;
    return false;
}

static bool touches(const LoweredCall *call, ValueId value)
{
    for (int i = 0; i < call->kernel->operand_count; i++)
        if (call->operands[i].value == value) return true;
    return false;
}

/* Whether the work of call `moved` may be done before or after all calls first ... end - 1: none of them touches what
 * it reads or writes in a way that matters. */
static bool may_pass(const Fuser *fuser, size_t moved, size_t first, size_t end)
{
    const LoweredCall *call = &fuser->lowering->calls[moved];
    for (size_t c = first; c < end; c++) {
        const LoweredCall *other = &fuser->lowering->calls[c];
        for (int i = 0; !other->dead && i < call->kernel->operand_count; i++) {
            ValueId value = call->operands[i].value;
            if (call->kernel->operands[i].written ? touches(other, value) : writes(other, value)) return false;
        }
    }
    return true;
}

/* An operand of the consumer that reads `value`, if all that do read the same places and none writes; else -1. */
static int reading_operand(const LoweredCall *call, ValueId value)
{
    int found = -1;
    for (int i = 0; i < call->kernel->operand_count; i++) {
        if (call->operands[i].value != value) continue;
        const KernelOperand *operand = &call->kernel->operands[i];
        if (operand->written) return -1;
        if (found >= 0 && (call->operands[i].offset != call->operands[found].offset ||
                           memcmp(operand->stride, call->kernel->operands[found].stride,
                                  (size_t)call->kernel->axis_count * sizeof operand->stride[0]) != 0))
            return -1;
        found = i;
    }
    return found;
}

/* Apart from `value`, the consumer neither reads what the producer writes nor writes what the producer touches. */
static bool independent(const LoweredCall *producer, const LoweredCall *consumer, ValueId value)
{
    for (int i = 0; i < consumer->kernel->operand_count; i++) {
        ValueId other = consumer->operands[i].value;
        if (other != value &&
            (consumer->kernel->operands[i].written ? touches(producer, other) : writes(producer, other)))
            return false;
    }
    return true;
}

/* The one operand of the producer that is `value`, if it writes it; else -1. */
static int writing_operand(const LoweredCall *call, ValueId value)
{
    int found = -1;
    for (int i = 0; i < call->kernel->operand_count; i++) {
        if (call->operands[i].value != value) continue;
        if (found >= 0 || !call->kernel->operands[i].written) return -1;
        found = i;
    }
    return found;
}

/* Tries to fuse call `c`, a map, into the producer of its operand `value`. */
static bool fuse_into_producer(Fuser *fuser, size_t c, ValueId value)
{
    Lowering *lowering = fuser->lowering;
    if (!fuser->writer[value] || fuser->writer_count[value] != 1) return false;
    size_t p = fuser->writer[value] - 1;
    if (p < fuser->first || p >= c) return false;
    if (shape_elements(&graph_value(lowering->graph, value)->shape) == 0) return false; /* nothing to pass on */
    LoweredCall *producer = &lowering->calls[p], *consumer = &lowering->calls[c];
    if (producer->dead ||
        graph_node(lowering->graph, producer->node)->layer != graph_node(lowering->graph, consumer->node)->layer)
        return false;
    int load = reading_operand(consumer, value), store_operand = writing_operand(producer, value);
    if (load < 0 || store_operand < 0 || consumer->operands[load].offset != producer->operands[store_operand].offset)
        return false;
    Register store = final_store(producer->kernel, store_operand);
    if (!store || !independent(producer, consumer, value)) return false;
    /* What is stored and loaded back has the type of the value, and so must what is passed in a register: types that
     * memory alone has round it, or cut it off. */
    if (kernel_type(producer->kernel, kernel_instruction(producer->kernel, store)->a) !=
        graph_value(lowering->graph, value)->dtype)
        return false;

    bool keep = fuser->kept[value] || fuser->reader_count[value] > 1;
    bool up = may_pass(fuser, c, p + 1, c);
    if (!up && !may_pass(fuser, p, p + 1, c)) return false;

    Kernel split = *producer->kernel;
    bool inner_store = kernel_phase_of(&split, store)->inner;
    AxisPairs pairs = {0};
    LoweredCall fused;
    if (!pair_axes(&split, store_operand, inner_store, consumer->kernel, load, &pairs)) return false;
    if (!join_calls(lowering, producer, &split, store, keep, consumer, &pairs, value, &fused)) return false;
    if (kernel_classify(producer->kernel) != kernel_classify(fused.kernel)) return false;

    size_t place = up ? p : c;
    lowering->calls[p].dead = lowering->calls[c].dead = true;
    lowering->calls[place] = fused;
    for (int i = 0; i < fused.kernel->operand_count; i++)
        if (fused.kernel->operands[i].written) fuser->writer[fused.operands[i].value] = place + 1;
    fuser->reader_count[value]--;
    if (!keep) fuser->writer[value] = 0;
    return true;
}

/* A scatter into a zeroed temporary that is only added to an accumulated gradient goes straight there. */
static bool retarget_scatter(Fuser *fuser, size_t c)
{
    Lowering *lowering = fuser->lowering;
    LoweredCall *consumer = &lowering->calls[c];
    if (graph_node(lowering->graph, consumer->node)->op != OP_AccumulateGradient) return false;
    int source = -1, target = -1;
    for (int i = 0; i < consumer->kernel->operand_count; i++)
        *(consumer->kernel->operands[i].written ? &target : &source) = i;
    if (source < 0 || target < 0) return false;
    ValueId value = consumer->operands[source].value, gradient = consumer->operands[target].value;
    if (fuser->kept[value] || fuser->reader_count[value] != 1 + 1 || fuser->writer_count[value] != 2) return false;
    if (!shape_equal(&graph_value(lowering->graph, value)->shape, &graph_value(lowering->graph, gradient)->shape))
        return false;
    size_t scatter = fuser->writer[value] - 1, fill = scatter;
    if (kernel_classify(lowering->calls[scatter].kernel) != KERNEL_CLASS_SCATTER) return false;
    while (fill-- > fuser->first)
        if (!lowering->calls[fill].dead && writes(&lowering->calls[fill], value)) break;
    LoweredCall *call = &lowering->calls[scatter];
    for (int i = 0; i < call->kernel->operand_count; i++)
        if (call->operands[i].value == value) call->operands[i].value = gradient;
    call->node = consumer->node;
    lowering->calls[fill].dead = consumer->dead = true;
    return true;
}

void fuse_calls(Lowering *lowering, size_t first, size_t end, const bool *kept, ValueArrays *arrays)
{
    Fuser fuser = {.lowering = lowering,
                   .first = first,
                   .end = end,
                   .kept = kept,
                   .arrays = arrays,
                   .reader_count = value_array_new(arrays, size_t),
                   .writer = value_array_new(arrays, size_t),
                   .writer_count = value_array_new(arrays, size_t)};
    for (size_t c = first; c < end; c++) kernel_canonicalize(lowering->calls[c].kernel);
    count_accesses(&fuser);
    for (size_t c = first; c < end; c++) {
        const LoweredCall *call = &lowering->calls[c];
        if (call->dead || !kernel_is_elementwise(call->kernel) || retarget_scatter(&fuser, c)) continue;
        /* The last producer first: what it made is most likely still in registers. */
        ValueId read[KERNEL_MAX_OPERANDS];
        int count = 0;
        for (int i = 0; i < call->kernel->operand_count; i++)
            if (!call->kernel->operands[i].written) read[count++] = call->operands[i].value;
        for (int done = 0; done < count; done++) {
            int latest = -1;
            for (int i = 0; i < count; i++)
                if (read[i] && (latest < 0 || fuser.writer[read[i]] > fuser.writer[read[latest]])) latest = i;
            ValueId value = latest < 0 ? 0 : read[latest];
            if (!value || fuse_into_producer(&fuser, c, value)) break;
            read[latest] = 0;
        }
    }
    value_array_return(arrays, fuser.reader_count);
    value_array_return(arrays, fuser.writer);
    value_array_return(arrays, fuser.writer_count);
}
