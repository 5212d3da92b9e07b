#include "codegen/kernels/coding.h"

#include "base/codec_rows.h"
#include "base/random.h"
#include "codegen/kernels/body_emit.h"

enum { LANES = CODEC_TILE };

/* The row being coded. */
typedef struct Row {
    Emit *emit;
    Codec codec;
    Ir channels, bytes; /* addresses */
    Ir key, first;      /* NULL: to the nearest */
} Row;

bool coding_plan(CodingPlan *plan, const Kernel *kernel, const Target *target)
{
    if (kernel_classify(kernel) != KERNEL_CLASS_CODING) return false;
    *plan = (CodingPlan){0};
    units_init(&plan->units);
    for (int axis = 0; axis < kernel->axis_count - 1; axis++) units_add(&plan->units, axis, kernel->extent[axis], 1);
    if (!kernel_inner_extent(kernel)) plan->units.total = 0;
    double compute = kernel_flops(kernel) / (2.0 * (target->vector_bytes / 4)), memory = kernel_bytes(kernel) / 20;
    plan->nanoseconds = (int64_t)(compute > memory ? compute : memory);
    return true;
}

/* ---- Vectors of a tile ---- */

static Ir splat(Row *row, Ir scalar) { return emit_broadcast(row->emit, scalar, LANES); }
static Ir splat_i32(Row *row, int64_t value)
{
    return emit_splat_constant(LLVMConstInt(row->emit->i32, (uint64_t)value, true), LANES);
}

static LLVMTypeRef tile_type(Row *row, LLVMTypeRef element)
{
    (void)row;
    return LLVMVectorType(element, LANES);
}

static Ir shift_right(Row *row, Ir value, int bits)
{
    return emit_lshr(row->emit, value, emit_integer_like(row->emit, value, bits));
}

static Ir and_constant(Row *row, Ir value, int64_t mask)
{
    return emit_and(row->emit, value, emit_integer_like(row->emit, value, mask));
}

/* Channels beyond the row's end are zero. NULL: there are none. */
static Ir tile_mask(Row *row, int count) { return count == LANES ? NULL : emit_lane_mask(row->emit, count, LANES); }

/* What is drawn for the channels `channel` ...: random_element of base/random.h. */
static Ir draw_tile(Row *row, Ir channel)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir position = emit_add(emit, row->first, channel), lane[LANES];
    for (int i = 0; i < LANES; i++) lane[i] = emit_i32(emit, i);
    Ir half = LLVMBuildTrunc(builder, shift_right(row, position, 1), emit->i32, "");
    Ir odd = LLVMBuildTrunc(builder, and_constant(row, position, 1), emit->i32, "");
    Ir number = LLVMBuildAdd(builder, LLVMConstVector(lane, LANES), splat(row, odd), "");
    Ir start = LLVMBuildAdd(builder, LLVMBuildTrunc(builder, row->key, emit->i32, ""), half, "");
    Ir upper = LLVMBuildTrunc(builder, shift_right(row, row->key, 32), emit->i32, "");
    Ir x = LLVMBuildAdd(builder, shift_right(row, number, 1), splat(row, start), "");
    x = LLVMBuildMul(builder, x, splat_i32(row, RANDOM_SPREAD), "");
    Ir mixed = emit_xor(emit, shift_right(row, x, RANDOM_SHIFT1), splat(row, upper));
    x = emit_xor(emit, x, mixed);
    x = LLVMBuildMul(builder, x, splat_i32(row, RANDOM_MULTIPLIER1), "");
    x = emit_xor(emit, x, shift_right(row, x, RANDOM_SHIFT2));
    x = LLVMBuildMul(builder, x, splat_i32(row, RANDOM_MULTIPLIER2), "");
    x = emit_xor(emit, x, shift_right(row, x, RANDOM_SHIFT3));
    Ir shift = LLVMBuildMul(builder, and_constant(row, number, 1), splat_i32(row, RANDOM_ELEMENT_BITS), "");
    return and_constant(row, emit_lshr(emit, x, shift), RANDOM_ELEMENT_RANGE - 1);
}

/* H64 without its factor, lanes `distance` apart at a time. Where the lane's number has that bit, the lane is negated
 * and then added to the other: it is subtracted from it, in the same rounding. */
static Ir rotate(Row *row, Ir tile)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    for (int distance = 1; distance < LANES; distance *= 2) {
        Ir partner[LANES], sign[LANES];
        for (int i = 0; i < LANES; i++) {
            partner[i] = emit_i32(emit, i ^ distance);
            sign[i] = LLVMConstInt(emit->i32, i & distance ? 0x80000000u : 0, false);
        }
        Ir other =
            LLVMBuildShuffleVector(builder, tile, LLVMGetPoison(LLVMTypeOf(tile)), LLVMConstVector(partner, LANES), "");
        Ir bits = emit_xor(emit, emit_bitcast(emit, tile, emit->i32), LLVMConstVector(sign, LANES));
        tile = LLVMBuildFAdd(builder, other, emit_bitcast(emit, bits, emit->f32), "");
    }
    return tile;
}

/* ---- Tiles with a scale ---- */

/* The scale as i32, of the bits of the largest |x'|. */
static Ir scale_of(Row *row, Ir largest)
{
    LLVMBuilderRef builder = row->emit->builder;
    Emit *emit = row->emit;
    Ir least = emit_i32(emit, (int)CODEC_LEAST_BITS), most = emit_i32(emit, (int)CODEC_MOST_BITS);
    Ir up = shift_right(row, LLVMBuildAdd(builder, largest, emit_i32(emit, 0xffff), ""), 16);
    Ir large = emit_compare(row->emit, LLVMIntUGE, largest, most);
    Ir small = emit_compare(row->emit, LLVMIntULT, largest, least);
    up = emit_select(row->emit, large, emit_i32(emit, CODEC_NAN), up);
    return emit_select(row->emit, small, emit_i32(emit, 0), up);
}

/* The whole numbers q of the tile. */
static Ir quantise(Row *row, Ir tile, Ir channel)
{
    LLVMBuilderRef builder = row->emit->builder;
    Emit *emit = row->emit;
    if (row->key) {
        Ir fixed = LLVMBuildFMul(builder, tile, emit_float_like(emit, tile, 0x1p16), "");
        fixed = LLVMBuildFPToSI(builder, fixed, tile_type(row, emit->i32), "");
        fixed = LLVMBuildAdd(builder, fixed, draw_tile(row, channel), "");
        return emit_ashr(row->emit, fixed, splat_i32(row, 16));
    }
    Ir magic = emit_float_like(emit, tile, CODEC_ROUNDING);
    Ir bits = emit_bitcast(emit, LLVMBuildFAdd(builder, tile, magic, ""), emit->i32);
    return emit_sub(row->emit, bits, LLVMConstBitCast(magic, tile_type(row, emit->i32)));
}

static Ir byte_address(Row *row, Ir offset, int64_t further)
{
    Emit *emit = row->emit;
    return emit_address(emit, emit->i8, row->bytes, emit_add(emit, offset, emit_i64(emit, further)));
}

static void encode_tile(Row *row, Ir channel, Ir offset, int count)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir address = emit_address(emit, emit->f32, row->channels, channel);
    Ir tile = rotate(row, emit_load(emit, tile_type(row, emit->f32), address, tile_mask(row, count), 4));
    tile = LLVMBuildFMul(builder, tile, emit_float_like(emit, tile, 0.125), "");
    Ir sizes = and_constant(row, emit_bitcast(emit, tile, emit->i32), 0x7fffffff);
    Ir scale = scale_of(row, emit_unary_intrinsic(emit, "llvm.vector.reduce.umax", sizes));
    Ir is_zero = emit_compare(emit, LLVMIntEQ, scale, emit_i32(emit, 0));
    Ir is_nan = emit_compare(emit, LLVMIntEQ, scale, emit_i32(emit, CODEC_NAN));
    Ir counts = emit_not(emit, emit_or(emit, is_zero, is_nan));
    Ir number = emit_shl(emit, scale, emit_i32(emit, 16));
    Ir divisor = emit_select(emit, counts, number, emit_i32(emit, 0x3f800000));
    divisor = LLVMBuildBitCast(builder, divisor, emit->f32, "");
    Ir levels = LLVMConstReal(emit->f32, codec_levels(row->codec));
    Ir factor = LLVMBuildFDiv(builder, levels, divisor, "");
    tile = LLVMBuildFMul(builder, tile, splat(row, factor), "");
    tile = emit_select(emit, splat(row, counts), tile, LLVMConstNull(LLVMTypeOf(tile)));
    Ir code = LLVMBuildAdd(builder, quantise(row, tile, channel), splat_i32(row, codec_levels(row->codec)), "");
    code = LLVMBuildTrunc(builder, code, tile_type(row, emit->i8), "");
    emit_store(emit, LLVMBuildTrunc(builder, scale, emit->i16, ""), byte_address(row, offset, 0), NULL, 1);
    for (int bit = 0; bit < codec_bits(row->codec); bit++) {
        Ir plane = and_constant(row, code, 1 << bit);
        plane = emit_compare(emit, LLVMIntNE, plane, LLVMConstNull(LLVMTypeOf(plane)));
        plane = LLVMBuildBitCast(builder, plane, emit->i64, "");
        emit_store(emit, plane, byte_address(row, offset, 2 + 8 * bit), NULL, 1);
    }
}

static void decode_tile(Row *row, Ir channel, Ir offset, int count)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir scale = emit_load(emit, emit->i16, byte_address(row, offset, 0), NULL, 1);
    scale = emit_shl(emit, LLVMBuildZExt(builder, scale, emit->i32, ""), emit_i32(emit, 16));
    scale = LLVMBuildBitCast(builder, scale, emit->f32, "");
    Ir step = LLVMBuildFDiv(builder, scale, LLVMConstReal(emit->f32, codec_levels(row->codec)), "");
    step = LLVMBuildFMul(builder, step, LLVMConstReal(emit->f32, 0.125), "");
    Ir code = LLVMConstNull(tile_type(row, emit->i8));
    for (int bit = 0; bit < codec_bits(row->codec); bit++) {
        Ir plane = emit_load(emit, emit->i64, byte_address(row, offset, 2 + 8 * bit), NULL, 1);
        plane = LLVMBuildBitCast(builder, plane, tile_type(row, emit->i1), "");
        plane = LLVMBuildZExt(builder, plane, tile_type(row, emit->i8), "");
        plane = emit_shl(emit, plane, emit_integer_like(emit, plane, bit));
        code = emit_or(emit, code, plane);
    }
    code = LLVMBuildZExt(builder, code, tile_type(row, emit->i32), "");
    code = emit_sub(emit, code, splat_i32(row, codec_levels(row->codec)));
    Ir tile = LLVMBuildSIToFP(builder, code, tile_type(row, emit->f32), "");
    tile = rotate(row, LLVMBuildFMul(builder, tile, splat(row, step), ""));
    emit_store(emit, tile, emit_address(emit, emit->f32, row->channels, channel), tile_mask(row, count), 4);
}

/* ---- bf16 ---- */

static void encode_halves(Row *row, Ir channel, Ir offset, int count)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir mask = tile_mask(row, count), address = emit_address(emit, emit->f32, row->channels, channel);
    Ir bits = emit_load(emit, tile_type(row, emit->i32), address, mask, 4), added;
    if (row->key) {
        added = draw_tile(row, channel);
    } else {
        Ir last = and_constant(row, shift_right(row, bits, 16), 1);
        added = LLVMBuildAdd(builder, last, splat_i32(row, 0x7fff), "");
    }
    Ir size = and_constant(row, bits, 0x7fffffff), infinity = splat_i32(row, 0x7f800000);
    Ir rounded = shift_right(row, LLVMBuildAdd(builder, bits, added, ""), 16);
    Ir is_nan = emit_compare(emit, LLVMIntUGT, size, infinity);
    Ir is_infinite = emit_compare(emit, LLVMIntEQ, size, infinity);
    rounded = emit_select(emit, is_infinite, shift_right(row, bits, 16), rounded);
    rounded = emit_select(emit, is_nan, splat_i32(row, CODEC_NAN), rounded);
    rounded = LLVMBuildTrunc(builder, rounded, tile_type(row, emit->i16), "");
    emit_store(emit, rounded, byte_address(row, offset, 0), mask, 1);
}

static void decode_halves(Row *row, Ir channel, Ir offset, int count)
{
    Emit *emit = row->emit;
    LLVMBuilderRef builder = emit->builder;
    Ir mask = tile_mask(row, count), address = emit_address(emit, emit->f32, row->channels, channel);
    Ir halves = emit_load(emit, tile_type(row, emit->i16), byte_address(row, offset, 0), mask, 1);
    Ir bits = LLVMBuildZExt(builder, halves, tile_type(row, emit->i32), "");
    emit_store(emit, emit_shl(emit, bits, splat_i32(row, 16)), address, mask, 4);
}

/* ---- Rows ---- */

static void emit_tiles(Row *row, bool encodes, int64_t columns)
{
    static void (*const tiles[2][2])(Row *, Ir, Ir, int) = {{decode_tile, encode_tile}, {decode_halves, encode_halves}};
    Emit *emit = row->emit;
    bool halves = row->codec == CODEC_BF16;
    int64_t bytes = codec_row_bytes(row->codec, LANES), whole = columns / LANES;
    EmitLoop loop;
    if (whole) {
        emit_loop_begin(emit, &loop, emit_i64(emit, 0), emit_i64(emit, whole), 1, 0, NULL);
        tiles[halves][encodes](row, emit_mul(emit, loop.index, LANES), emit_mul(emit, loop.index, bytes), LANES);
        emit_loop_end(emit, &loop, NULL);
    }
    if (columns % LANES)
        tiles[halves][encodes](row, emit_i64(emit, whole * LANES), emit_i64(emit, whole * bytes),
                               (int)(columns % LANES));
}

void coding_emit(Emit *emit, const Kernel *kernel, const CodingPlan *plan, const char *symbol)
{
    Ir function = emit_kernel_function(emit, symbol);
    const KernelInstruction *coding = kernel_coding_of(kernel);
    Body body = {.emit = emit, .kernel = kernel, .lanes = 1, .vector_axis = -1, .copies = 1, .copy_axis = -1};
    body_analyse(&body);
    body_load_operands(&body, LLVMGetParam(function, KERNEL_OPERANDS));
    for (int axis = 0; axis < kernel->axis_count; axis++) body.index[axis] = emit_i64(emit, 0);
    EmitLoop units;
    units_emit_loop(emit, &plan->units, &units, body.index);
    body_set_base(&body);
    for (int r = 1; r < kernel->instruction_count; r++) body_emit(&body, (Register)r);
    Row row = {.emit = emit,
               .codec = kernel_coding_codec(coding),
               .channels = body.base[coding->operand],
               .bytes = body.base[kernel_coding_bytes(coding)]};
    if (coding->a) {
        row.key = body_value(&body, coding->a, 0, false);
        row.first = body_value(&body, coding->b, 0, false);
    }
    emit_tiles(&row, coding->op == KERNEL_ENCODE, kernel_inner_extent(kernel));
    emit_loop_end(emit, &units, NULL);
    LLVMBuildRetVoid(emit->builder);
}
