#include "codegen/kernels/gemm_pack.h"

#include "codegen/kernels/arithmetic.h"

typedef struct Packer {
    Emit *emit;
    const GemmPlan *plan;
    const PanelShape *panel;
    DType dtype;
    int64_t along_k, along_n; /* strides of B */
    Ir source, packed;
    int width; /* lanes of a packed row */
} Packer;

static unsigned packed_bytes(const Packer *packer) { return (unsigned)dtype_size(packer->plan->type); }

static Ir source_at(const Packer *packer, Ir k, int64_t more_k, int64_t n)
{
    Emit *emit = packer->emit;
    Ir offset = emit_mul(emit, k, packer->along_k);
    offset = emit_add(emit, offset, emit_i64(emit, more_k * packer->along_k + n * packer->along_n));
    return emit_address(emit, emit_memory_type(emit, packer->dtype), packer->source, offset);
}

static Ir widened(const Packer *packer, Ir raw)
{
    Ir value = arithmetic_widen(packer->emit, packer->dtype, raw);
    return packer->plan->rounds_b ? arithmetic_round_bf16(packer->emit, value) : value;
}

static void store_row(const Packer *packer, Ir k, int64_t more_k, int vector, Ir value)
{
    Emit *emit = packer->emit;
    Ir offset = emit_mul(emit, k, packer->width);
    offset = emit_add(emit, offset, emit_i64(emit, more_k * packer->width + vector * packer->plan->lanes));
    Ir address = emit_address(emit, emit_register_type(emit, packer->plan->type), packer->packed, offset);
    emit_store(emit, value, address, NULL, packed_bytes(packer) * (unsigned)packer->plan->lanes);
}

static int lanes_of_vector(const Packer *packer, int vector)
{
    bool ragged = packer->panel->tail && vector == packer->panel->vectors - 1;
    return ragged ? packer->panel->tail : packer->plan->lanes;
}

/* Row k of the panel, contiguous in B or gathered. */
static void pack_row(const Packer *packer, Ir k)
{
    Emit *emit = packer->emit;
    int lanes = packer->plan->lanes;
    for (int v = 0; v < packer->panel->vectors; v++) {
        int active = lanes_of_vector(packer, v);
        Ir mask = active < lanes ? emit_lane_mask(emit, active, lanes) : NULL;
        Ir address = source_at(packer, k, 0, (int64_t)v * lanes);
        LLVMTypeRef type = emit_memory_type(emit, packer->dtype);
        Ir raw = packer->along_n == 1 ? emit_load(emit, emit_vector_type(type, lanes), address, mask,
                                                  (unsigned)dtype_size(packer->dtype))
                                      : emit_gather(emit, type, address, emit_iota(emit, packer->along_n, lanes), mask);
        store_row(packer, k, 0, v, widened(packer, raw));
    }
}

/* `count` rows k, k + 1 ... of vector `v`, from columns of B that are contiguous along k. */
static void pack_block(const Packer *packer, Ir k, int count, int v)
{
    Emit *emit = packer->emit;
    int lanes = packer->plan->lanes, active = lanes_of_vector(packer, v);
    LLVMTypeRef type = emit_vector_type(emit_memory_type(emit, packer->dtype), lanes);
    Ir mask = count < lanes ? emit_lane_mask(emit, count, lanes) : NULL;
    Ir row[64];
    for (int n = 0; n < lanes; n++) {
        Ir raw = LLVMConstNull(type);
        if (n < active) {
            Ir address = source_at(packer, k, 0, (int64_t)v * lanes + n);
            raw = emit_load(emit, type, address, mask, (unsigned)dtype_size(packer->dtype));
        }
        row[n] = widened(packer, raw);
    }
    emit_transpose_square(emit, row, lanes);
    for (int i = 0; i < count; i++) store_row(packer, k, i, v, row[i]);
}

static void pack_transposed(const Packer *packer)
{
    Emit *emit = packer->emit;
    int lanes = packer->plan->lanes;
    int64_t whole = packer->panel->depth / lanes * lanes;
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, whole), lanes, 0, NULL);
    for (int v = 0; v < packer->panel->vectors; v++) pack_block(packer, loop.index, lanes, v);
    emit_loop_end(emit, &loop, NULL);
    int rest = (int)(packer->panel->depth - whole);
    for (int v = 0; rest && v < packer->panel->vectors; v++) pack_block(packer, emit_i64(emit, whole), rest, v);
}

void gemm_pack_b(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const PanelShape *panel, Ir source, Ir packed)
{
    const KernelOperand *b = &kernel->operands[plan->match.b];
    Packer packer = {.emit = emit, .plan = plan, .panel = panel, .dtype = b->dtype, .source = source, .packed = packed};
    packer.along_k = b->stride[kernel->axis_count - 1];
    packer.along_n = b->stride[plan->match.column_axis];
    packer.width = plan->lanes * panel->vectors;
    if (plan->b == GEMM_B_TRANSPOSED && packer.along_k == 1) {
        pack_transposed(&packer);
        return;
    }
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, panel->depth), 1, 0, NULL);
    pack_row(&packer, loop.index);
    emit_loop_end(emit, &loop, NULL);
}

/* ---- A ---- */

enum { STEPS = 8 /* of k that are taken together, so that a line of A is read once */ };

/* Elements k ... k + count - 1 of `rows` rows, which stand side by side in A. What a store writes beyond them is
 * overwritten by the next one. */
static void pack_tile_steps(Emit *emit, LLVMTypeRef element, const GemmPlan *plan, int64_t a_depth, Ir source,
                            Ir packed, int rows, int count)
{
    int height = gemm_tile_rows(plan, plan->vectors), lanes = 1;
    while (lanes < height) lanes *= 2;
    unsigned alignment = (unsigned)dtype_size(plan->type);
    Ir mask = rows < lanes ? emit_lane_mask(emit, rows, lanes) : NULL, value[STEPS];
    for (int i = 0; i < count; i++) {
        Ir from = emit_address(emit, element, source, emit_i64(emit, i * a_depth));
        value[i] = emit_load(emit, emit_vector_type(element, lanes), from, mask, alignment);
        if (plan->rounds_a) value[i] = arithmetic_round_bf16(emit, value[i]);
    }
    for (int i = 0; i < count; i++) {
        Ir to = emit_address(emit, element, packed, emit_i64(emit, (int64_t)i * height));
        emit_store(emit, value[i], to, i == count - 1 ? emit_lane_mask(emit, height, lanes) : NULL, alignment);
    }
}

static void pack_steps(Emit *emit, const GemmPlan *plan, int64_t a_depth, int64_t depth, Ir rows, Ir source, Ir packed,
                       Ir k, int count)
{
    LLVMTypeRef element = emit_register_type(emit, plan->type);
    int height = gemm_tile_rows(plan, plan->vectors), rest = (int)(plan->rows % height);
    Ir from = emit_address(emit, element, source, emit_mul(emit, k, a_depth));
    Ir to = emit_address(emit, element, packed, emit_mul(emit, k, height));
    Ir extra = LLVMBuildURem(emit->builder, rows, emit_i64(emit, height), "");
    Ir whole = LLVMBuildSub(emit->builder, rows, extra, "");
    EmitLoop tiles;
    emit_loop_begin(emit, &tiles, emit_i64(emit, 0), whole, height, 0, NULL);
    pack_tile_steps(emit, element, plan, a_depth, emit_address(emit, element, from, tiles.index),
                    emit_address(emit, element, to, emit_mul(emit, tiles.index, depth)), height, count);
    emit_loop_end(emit, &tiles, NULL);
    if (!rest) return;
    EmitIf branch;
    emit_if(emit, &branch, LLVMBuildICmp(emit->builder, LLVMIntNE, extra, emit_i64(emit, 0), ""));
    pack_tile_steps(emit, element, plan, a_depth, emit_address(emit, element, from, whole),
                    emit_address(emit, element, to, emit_mul(emit, whole, depth)), rest, count);
    emit_else(emit, &branch);
    emit_end_if(emit, &branch);
}

void gemm_pack_a(Emit *emit, const Kernel *kernel, const GemmPlan *plan, int64_t depth, Ir rows, Ir source, Ir packed)
{
    int64_t a_depth = kernel->operands[plan->match.a].stride[kernel->axis_count - 1], whole = depth / STEPS * STEPS;
    EmitLoop loop;
    emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, whole), STEPS, 0, NULL);
    pack_steps(emit, plan, a_depth, depth, rows, source, packed, loop.index, STEPS);
    emit_loop_end(emit, &loop, NULL);
    int rest = (int)(depth - whole);
    if (rest) pack_steps(emit, plan, a_depth, depth, rows, source, packed, emit_i64(emit, whole), rest);
}
