/* Canonical form, cuts and measures of kernels. */
#include "graph/kernel/kernel.h"

#include <string.h>

#include "base/integers.h"

/* ---- Canonical form ---- */

/* The bits of the axes whose index some instruction reads. */
static unsigned indexed_axes(const Kernel *kernel)
{
    unsigned axes = 0;
    for (int i = 0; i < kernel->instruction_count; i++)
        if (kernel->instructions[i].op == KERNEL_AXIS) axes |= 1u << kernel->instructions[i].operand;
    return axes;
}

static void remove_axis(Kernel *kernel, int axis)
{
    size_t rest = (size_t)(kernel->axis_count - 1 - axis) * sizeof kernel->extent[0];
    memmove(&kernel->extent[axis], &kernel->extent[axis + 1], rest);
    kernel->axis_count--;
    kernel->extent[kernel->axis_count] = 0;
    for (int i = 0; i < kernel->operand_count; i++) {
        int64_t *stride = kernel->operands[i].stride;
        memmove(&stride[axis], &stride[axis + 1], rest);
        stride[kernel->axis_count] = 0;
    }
    for (int i = 0; i < kernel->instruction_count; i++) {
        KernelInstruction *instruction = &kernel->instructions[i];
        if (instruction->op != KERNEL_AXIS || instruction->operand < axis) continue;
        if (instruction->operand == axis) /* of extent 1: its only index is 0 */
            *instruction = (KernelInstruction){.op = KERNEL_CONSTANT, .type = DTYPE_I64};
        else
            instruction->operand--;
    }
}

static bool axes_merge(const Kernel *kernel, int axis)
{
    if (indexed_axes(kernel) & 3u << axis) return false;
    for (int i = 0; i < kernel->operand_count; i++) {
        const int64_t *stride = kernel->operands[i].stride;
        if (stride[axis] != stride[axis + 1] * kernel->extent[axis + 1]) return false;
    }
    return true;
}

static void drop_unit_axes(Kernel *kernel, bool is_map)
{
    for (int axis = kernel->axis_count - (is_map ? 1 : 2); axis >= kernel->block_axes; axis--)
        if (kernel->extent[axis] == 1 && kernel->axis_count > kernel->block_axes + 1) remove_axis(kernel, axis);
    if (kernel_inner_extent(kernel) == 1)
        for (int i = 0; i < kernel->operand_count; i++) kernel->operands[i].stride[kernel->axis_count - 1] = 0;
}

/* The inner strides of operands that only scalar phases touch mean nothing; 0 makes equal kernels equal. */
static void clear_unused_inner_strides(Kernel *kernel)
{
    bool inner[KERNEL_MAX_OPERANDS] = {false};
    for (int phase = 0; phase < kernel->phase_count; phase++)
        for (int i = 0; kernel->phases[phase].inner && i < kernel->phases[phase].count; i++) {
            const KernelInstruction *instruction = &kernel->instructions[kernel->phases[phase].first - 1 + i];
            if (kernel_op_has_operand(instruction->op)) inner[instruction->operand] = true;
        }
    for (int i = 0; i < kernel->operand_count; i++)
        if (!inner[i]) kernel->operands[i].stride[kernel->axis_count - 1] = 0;
}

void kernel_canonicalize(Kernel *kernel)
{
    if (kernel->phase_count > 1 && !kernel->phases[kernel->phase_count - 1].count) kernel->phase_count--;
    bool is_map = kernel_is_map(kernel);
    clear_unused_inner_strides(kernel);
    drop_unit_axes(kernel, is_map);
    for (int axis = kernel->axis_count - (is_map ? 2 : 3); axis >= kernel->block_axes; axis--)
        if (axes_merge(kernel, axis)) {
            kernel->extent[axis + 1] *= kernel->extent[axis];
            remove_axis(kernel, axis);
        }
}

/* ---- Lines ---- */

/* What becomes of a register when the inner axis is cut and the results of the parts are added up. */
typedef enum Dependence {
    DEPENDS_NOT, /* it is the same, or belongs to one iteration */
    DEPENDS_LINEARLY,
    DEPENDS_OTHERWISE
} Dependence;

/* Of an instruction that computes something, in an inner phase or a scalar one. */
static Dependence dependence_of(const Kernel *kernel, const KernelInstruction *instruction, bool inner_phase,
                                const Dependence *known)
{
    int inner = kernel->axis_count - 1;
    Dependence a = instruction->a ? known[instruction->a] : DEPENDS_NOT;
    Dependence b = instruction->b ? known[instruction->b] : DEPENDS_NOT;
    Dependence c = instruction->c ? known[instruction->c] : DEPENDS_NOT;
    if (kernel_op_is_reduction(instruction->op))
        return instruction->op == KERNEL_SUM && a == DEPENDS_NOT ? DEPENDS_LINEARLY : DEPENDS_OTHERWISE;
    if (instruction->op == KERNEL_AXIS && instruction->operand == inner) return DEPENDS_OTHERWISE;
    if (kernel_op_has_operand(instruction->op)) {
        const KernelOperand *operand = &kernel->operands[instruction->operand];
        if (operand->stride[inner] && (!inner_phase || instruction->op == KERNEL_RANDOM)) return DEPENDS_OTHERWISE;
        if (!inner_phase && operand->written) return DEPENDS_OTHERWISE;
    }
    if (a == DEPENDS_NOT && b == DEPENDS_NOT && c == DEPENDS_NOT) return DEPENDS_NOT;
    if (!dtype_is_float((DType)instruction->type) || c != DEPENDS_NOT || a == DEPENDS_OTHERWISE ||
        b == DEPENDS_OTHERWISE)
        return DEPENDS_OTHERWISE;
    switch (instruction->op) {
    case KERNEL_CONVERT:
    case KERNEL_NEGATE: return DEPENDS_LINEARLY;
    case KERNEL_ADD:
    case KERNEL_SUBTRACT: return a == b ? DEPENDS_LINEARLY : DEPENDS_OTHERWISE;
    case KERNEL_MULTIPLY: return a != b ? DEPENDS_LINEARLY : DEPENDS_OTHERWISE;
    case KERNEL_DIVIDE: return b == DEPENDS_NOT ? DEPENDS_LINEARLY : DEPENDS_OTHERWISE;
    default: return DEPENDS_OTHERWISE;
    }
}

/* Whether a store comes to the same when parts are run one after the other. */
static bool store_adds_up(const Kernel *kernel, const KernelInstruction *store, bool inner_phase,
                          const Dependence *known)
{
    if (store->b && known[store->b] != DEPENDS_NOT) return false;
    if (inner_phase) return known[store->a] == DEPENDS_NOT;
    return store->op == KERNEL_STORE_ADD && !store->b && known[store->a] == DEPENDS_LINEARLY &&
           !kernel->operands[store->operand].stride[kernel->axis_count - 1];
}

bool kernel_cut_lines(Kernel *kernel, int64_t lines)
{
    Dependence known[KERNEL_MAX_INSTRUCTIONS + 1] = {DEPENDS_NOT};
    if (kernel_inner_extent(kernel) % lines || kernel_coding_of(kernel)) return false;
    for (int r = 1; r <= kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, (Register)r);
        bool inner = kernel_phase_of(kernel, (Register)r)->inner;
        if (!kernel_op_is_store(instruction->op))
            known[r] = dependence_of(kernel, instruction, inner, known);
        else if (!store_adds_up(kernel, instruction, inner, known))
            return false;
    }
    kernel->extent[kernel->axis_count - 1] /= lines;
    return true;
}

bool kernel_limit_sum(Kernel *kernel)
{
    if (!kernel_can_limit_sum(kernel)) return false;
    kernel->limited = true;
    return true;
}

/* The only store of a kernel, if it overwrites something that it does not read, once for every outer iteration. */
static KernelInstruction *only_store(Kernel *kernel)
{
    KernelInstruction *store = NULL;
    for (int r = 1; r <= kernel->instruction_count; r++) {
        if (!kernel_op_is_store(kernel_instruction(kernel, (Register)r)->op)) continue;
        if (store || kernel_phase_of(kernel, (Register)r)->inner) return NULL;
        store = &kernel->instructions[r - 1];
    }
    bool overwrites = store && store->op == KERNEL_STORE && !store->b && !kernel->operands[store->operand].read;
    return overwrites ? store : NULL;
}

int kernel_add_sums(Kernel *kernel, Kernel *fill)
{
    KernelInstruction *store = only_store(kernel);
    if (!store) return -1;
    KernelOperand *operand = &kernel->operands[store->operand];
    store->op = KERNEL_STORE_ADD;
    operand->read = true;
    int64_t one = 1;
    int axes = kernel->axis_count - 1;
    kernel_begin(fill, "Fill", axes ? axes : 1, axes ? kernel->extent : &one);
    kernel_store(fill, kernel_operand(fill, operand->dtype, operand->stride),
                 kernel_constant(fill, kernel_register_type(operand->dtype), 0));
    return store->operand;
}

/* ---- Blocks ---- */

bool kernel_split_axis(Kernel *kernel, int axis, int64_t inner)
{
    if (kernel->axis_count == KERNEL_MAX_AXES) return false;
    int moved = kernel->axis_count - axis;
    memmove(&kernel->extent[axis + 1], &kernel->extent[axis], (size_t)moved * sizeof kernel->extent[0]);
    kernel->extent[axis] /= inner;
    kernel->extent[axis + 1] = inner;
    for (int i = 0; i < kernel->operand_count; i++) {
        int64_t *stride = kernel->operands[i].stride;
        memmove(&stride[axis + 1], &stride[axis], (size_t)moved * sizeof *stride);
        stride[axis] *= inner;
    }
    for (int r = 1; r <= kernel->instruction_count; r++) {
        KernelInstruction *instruction = &kernel->instructions[r - 1];
        if (instruction->op == KERNEL_AXIS && instruction->operand > axis) instruction->operand++;
    }
    kernel->axis_count++;
    return true;
}

/* The store that is all that follows one sum. */
static KernelInstruction *store_of_sum(Kernel *kernel)
{
    if (kernel->phase_count != 2 || !kernel->phases[0].inner || kernel->phases[1].inner || kernel->phases[1].count != 1)
        return NULL;
    KernelInstruction *store = &kernel->instructions[kernel->instruction_count - 1];
    for (int r = 1; r < kernel->instruction_count; r++) {
        const KernelInstruction *instruction = kernel_instruction(kernel, r);
        if (kernel_op_is_store(instruction->op) || kernel_op_is_reduction(instruction->op) != (r == store->a))
            return NULL;
    }
    bool sum = store->a && kernel_instruction(kernel, store->a)->op == KERNEL_SUM;
    return sum && store->op == KERNEL_STORE_ADD && !store->b ? store : NULL;
}

bool kernel_cut_sum(Kernel *kernel, int64_t parts, int64_t stride)
{
    int inner = kernel->axis_count - 1;
    KernelInstruction *store = store_of_sum(kernel);
    if (!store || kernel->axis_count == KERNEL_MAX_AXES || kernel->extent[inner] % parts || indexed_axes(kernel))
        return false;
    KernelOperand *stored = &kernel->operands[store->operand];
    if (stored->elements) return false;
    memmove(&kernel->extent[1], &kernel->extent[0], (size_t)kernel->axis_count * sizeof kernel->extent[0]);
    kernel->axis_count++;
    kernel->extent[0] = parts;
    kernel->extent[inner + 1] /= parts;
    for (int i = 0; i < kernel->operand_count; i++) {
        int64_t *strides = kernel->operands[i].stride, first = strides[inner] * kernel->extent[inner + 1];
        memmove(&strides[1], &strides[0], (size_t)(inner + 1) * sizeof *strides);
        strides[0] = first;
    }
    stored->stride[0] = stride;
    stored->read = false;
    store->op = KERNEL_STORE;
    return true;
}

/* Whether the axis may take part in numbering blocks. */
static bool numbers_blocks(const Kernel *kernel, int axis)
{
    KernelGemm gemm;
    if (kernel_match_gemm(kernel, &gemm) && (axis == gemm.row_axis || axis == gemm.column_axis)) return false;
    return axis < kernel->axis_count - 1 || kernel_is_map(kernel);
}

bool kernel_cut_blocks(Kernel *kernel, int64_t blocks)
{
    int axis = 0;
    if (kernel_classify(kernel) == KERNEL_CLASS_SCATTER) return false;
    for (int64_t rest = blocks; rest > 1; axis++) {
        if (axis == kernel->axis_count || !numbers_blocks(kernel, axis)) return false;
        int64_t extent = kernel->extent[axis];
        if (extent > rest) {
            if (extent % rest || kernel_reads_axis(kernel, axis)) return false;
            if (!kernel_split_axis(kernel, axis, extent / rest)) return false;
            extent = rest;
        }
        if (extent == 0 || rest % extent) return false;
        rest /= extent;
    }
    kernel->block_axes = axis;
    return axis < kernel->axis_count;
}

void kernel_set_precision(Kernel *kernel, ProductPrecision precision)
{
    static const uint8_t op[] = {KERNEL_MULTIPLY, KERNEL_MULTIPLY_BF16, KERNEL_MULTIPLY_BF16X3};
    KernelGemm gemm;
    if (!kernel_match_gemm(kernel, &gemm) || kernel_type(kernel, gemm.sum) != DTYPE_F32) return;
    Register product = kernel_instruction(kernel, gemm.sum)->a;
    kernel->instructions[product - 1].op = op[precision];
}

int64_t kernel_keep_b(Kernel *kernel)
{
    enum { SIDE = 64, DEPTH = 32, LEAST_BLOCK = 512 }; /* columns and k are filled up, k in each of its blocks */
    static const int64_t stride[KERNEL_MAX_AXES] = {0};
    KernelGemm gemm;
    if (kernel->keeps_b || kernel->limited || kernel->axis_count != 3 ||
        kernel->operand_count + 2 > KERNEL_MAX_OPERANDS || !kernel_match_gemm(kernel, &gemm) ||
        gemm.precision != PRODUCTS_BF16 || gemm.row_axis < 0 || gemm.column_axis < 0)
        return 0;
    DType dtype = kernel->operands[gemm.b].dtype;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16) return 0;
    int64_t depth = kernel_inner_extent(kernel), filled = DEPTH * (1 + divide_up(depth, LEAST_BLOCK));
    int64_t elements = round_up(kernel->extent[gemm.column_axis], SIDE) * (depth + filled);
    kernel->operands[kernel_operand(kernel, DTYPE_BF16, stride)].elements = elements;
    kernel_operand(kernel, DTYPE_F32, stride);
    kernel->keeps_b = true;
    return dtype_bytes(DTYPE_BF16, elements);
}

/* ---- Measures ---- */

Hash kernel_hash(const Kernel *kernel)
{
    Hash hash = hash_bytes(NULL, 0);
    int64_t head[4] = {kernel->axis_count, kernel->operand_count, kernel->phase_count, kernel->instruction_count};
    hash = hash_extend(hash, head, sizeof head);
    if (kernel->block_axes) hash = hash_extend(hash, &kernel->block_axes, sizeof kernel->block_axes);
    if (kernel->keeps_b) hash = hash_extend(hash, &kernel->keeps_b, sizeof kernel->keeps_b);
    if (kernel->limited) hash = hash_extend(hash, "limited", sizeof "limited");
    hash = hash_extend(hash, kernel->extent, (size_t)kernel->axis_count * sizeof kernel->extent[0]);
    for (int i = 0; i < kernel->operand_count; i++) {
        const KernelOperand *operand = &kernel->operands[i];
        int64_t words[4 + KERNEL_MAX_AXES] = {operand->dtype, operand->read,
                                              operand->written | operand->often_zero << 1, operand->elements};
        memcpy(words + 4, operand->stride, (size_t)kernel->axis_count * sizeof operand->stride[0]);
        hash = hash_extend(hash, words, sizeof words);
    }
    for (int i = 0; i < kernel->phase_count; i++) {
        int64_t words[2] = {kernel->phases[i].inner, kernel->phases[i].count};
        hash = hash_extend(hash, words, sizeof words);
    }
    for (int i = 0; i < kernel->instruction_count; i++) {
        const KernelInstruction *instruction = &kernel->instructions[i];
        int64_t words[7] = {instruction->op, instruction->type, instruction->operand,         instruction->a,
                            instruction->b,  instruction->c,    instruction->constant.integer};
        hash = hash_extend(hash, words, sizeof words);
    }
    return hash;
}

/* A function counts as the operations of its usual polynomial, a division as what its throughput costs. */
static double operation_flops(const KernelInstruction *instruction)
{
    switch (instruction->op) {
    case KERNEL_CONSTANT:
    case KERNEL_AXIS:
    case KERNEL_LOAD:
    case KERNEL_STORE: return 0;
    case KERNEL_EXP:
    case KERNEL_LOG:
    case KERNEL_SIN:
    case KERNEL_COS:
    case KERNEL_NORMAL_DENSITY: return 16;
    case KERNEL_ERF:
    case KERNEL_TANH:
    case KERNEL_SIGMOID:
    case KERNEL_NORMAL_BELOW: return 24;
    case KERNEL_POWER: return 32;
    case KERNEL_RANDOM: return 8;
    case KERNEL_ENCODE: return instruction->a ? 28 : 16;
    case KERNEL_DECODE: return 14;
    case KERNEL_SQRT:
    case KERNEL_DIVIDE:
    case KERNEL_RECIPROCAL:
    case KERNEL_REMAINDER: return 4;
    default: return 1;
    }
}

/* The iterations of the axes whose bits are set. */
static double iterations(const Kernel *kernel, unsigned axes)
{
    double count = 1;
    for (int axis = 0; axis < kernel->axis_count; axis++)
        if (axes >> axis & 1) count *= (double)kernel->extent[axis];
    return count;
}

double kernel_flops(const Kernel *kernel)
{
    unsigned all = (1u << kernel->axis_count) - 1, outer = all >> 1;
    double flops = 0;
    for (int phase = 0; phase < kernel->phase_count; phase++) {
        double once = 0;
        for (int i = 0; i < kernel->phases[phase].count; i++) {
            const KernelInstruction *instruction = &kernel->instructions[kernel->phases[phase].first - 1 + i];
            once += operation_flops(instruction);
        }
        flops += once * iterations(kernel, kernel->phases[phase].inner ? all : outer);
    }
    return flops;
}

double kernel_bytes(const Kernel *kernel)
{
    double touched[KERNEL_MAX_OPERANDS] = {0};
    unsigned all = (1u << kernel->axis_count) - 1, outer = all >> 1;
    for (int phase = 0; phase < kernel->phase_count; phase++)
        for (int i = 0; i < kernel->phases[phase].count; i++) {
            const KernelInstruction *instruction = &kernel->instructions[kernel->phases[phase].first - 1 + i];
            if (kernel_op_is_coding(instruction->op)) {
                touched[instruction->operand] = iterations(kernel, all);
                int bytes = kernel_coding_bytes(instruction);
                touched[bytes] = iterations(kernel, outer) * (double)kernel->operands[bytes].elements;
            }
            if (!kernel_op_is_access(instruction->op)) continue;
            const KernelOperand *operand = &kernel->operands[instruction->operand];
            unsigned axes = kernel->phases[phase].inner ? all : outer, moving = 0;
            for (int axis = 0; axis < kernel->axis_count; axis++)
                if (operand->stride[axis] || kernel_access_offset(instruction)) moving |= axes & 1u << axis;
            double elements = iterations(kernel, moving);
            if (kernel_access_offset(instruction) && elements > (double)operand->elements)
                elements = (double)operand->elements;
            if (elements > touched[instruction->operand]) touched[instruction->operand] = elements;
        }
    double bytes = 0;
    for (int i = 0; i < kernel->operand_count; i++) {
        const KernelOperand *operand = &kernel->operands[i];
        bytes += touched[i] * (double)dtype_bytes(operand->dtype, DTYPE_BLOCK) / DTYPE_BLOCK *
                 (operand->read + operand->written);
    }
    return bytes;
}
