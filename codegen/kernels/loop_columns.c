#include "codegen/kernels/loop_columns.h"

#include "codegen/kernels/body_emit.h"

typedef struct ColumnSum {
    Body *body;
    Ir sums, first; /* where the sums stand; the first column */
    Register reduction;
} ColumnSum;

static const KernelInstruction *reduction_of(const Kernel *kernel, Register *number)
{
    const KernelPhase *phase = &kernel->phases[0];
    for (*number = (Register)phase->first; *number < phase->first + phase->count; ++*number) {
        const KernelInstruction *instruction = kernel_instruction(kernel, *number);
        if (kernel_op_is_reduction(instruction->op)) return instruction;
    }
    bug("kernel %s reduces nothing", kernel->label);
}

static LLVMTypeRef sum_type(const Body *body)
{
    Register number;
    return emit_register_type(body->emit, (DType)reduction_of(body->kernel, &number)->type);
}

Ir loop_columns_room(Body *body, int64_t columns)
{
    Ir room = LLVMBuildAlloca(body->emit->builder, LLVMArrayType2(sum_type(body), (uint64_t)columns), "sums");
    LLVMSetAlignment(room, 64);
    return room;
}

static Ir sum_address(const ColumnSum *sum, Ir column)
{
    return emit_address(sum->body->emit, sum_type(sum->body), sum->sums, column);
}

static void store_sum(const ColumnSum *sum, Ir column, Ir value)
{
    emit_store(sum->body->emit, value, sum_address(sum, column), NULL, 64);
}

static Ir load_sum(const ColumnSum *sum, Ir column)
{
    Body *body = sum->body;
    return emit_load(body->emit, emit_vector_type(sum_type(body), body->lanes), sum_address(sum, column), NULL, 64);
}

static void move_to(const ColumnSum *sum, Ir column, Ir row)
{
    Body *body = sum->body;
    body->index[body->vector_axis] = emit_add(body->emit, sum->first, column);
    body->index[body->kernel->axis_count - 1] = row;
    body_set_base(body);
}

/* Adds rows row ... row + count - 1, in order, to a vector of columns. */
static void add_rows(const ColumnSum *sum, Ir column, Ir row, int count)
{
    Body *body = sum->body;
    const KernelPhase *phase = &body->kernel->phases[0];
    body->copies = count;
    move_to(sum, column, row);
    for (int r = phase->first; r < phase->first + phase->count; r++) {
        if (r != sum->reduction) {
            body_emit(body, (Register)r);
            continue;
        }
        Register source = kernel_instruction(body->kernel, (Register)r)->a;
        Ir value = load_sum(sum, column);
        for (int i = 0; i < count; i++)
            value = body_reduction_step(body, (Register)r, value, body_value(body, source, i, true));
        store_sum(sum, column, value);
    }
}

static void finish(const ColumnSum *sum, Ir column)
{
    Body *body = sum->body;
    const KernelPhase *phase = &body->kernel->phases[1];
    body->copies = 1;
    move_to(sum, column, emit_i64(body->emit, 0));
    body->value[sum->reduction][0] = load_sum(sum, column);
    for (int r = phase->first; r < phase->first + phase->count; r++) body_emit(body, (Register)r);
}

static void begin_columns(const ColumnSum *sum, EmitLoop *loop, int64_t columns)
{
    Emit *emit = sum->body->emit;
    emit_loop_begin(emit, loop, emit_i64(emit, 0), emit_i64(emit, columns), sum->body->lanes, 0, NULL);
}

void loop_columns_emit(Body *body, Ir sums, int64_t columns)
{
    Emit *emit = body->emit;
    ColumnSum sum = {.body = body, .sums = sums, .first = body->index[body->vector_axis]};
    reduction_of(body->kernel, &sum.reduction);
    int64_t rows = kernel_inner_extent(body->kernel);
    int block = body->copies, rest = (int)(rows % block);
    EmitLoop across, down;
    begin_columns(&sum, &across, columns);
    store_sum(&sum, across.index, body_reduction_identity(body, sum.reduction, body->lanes));
    emit_loop_end(emit, &across, NULL);

    emit_loop_begin(emit, &down, emit_i64(emit, 0), emit_i64(emit, rows - rest), block, 0, NULL);
    begin_columns(&sum, &across, columns);
    add_rows(&sum, across.index, down.index, block);
    emit_loop_end(emit, &across, NULL);
    emit_loop_end(emit, &down, NULL);
    if (rest) {
        begin_columns(&sum, &across, columns);
        add_rows(&sum, across.index, emit_i64(emit, rows - rest), rest);
        emit_loop_end(emit, &across, NULL);
    }
    begin_columns(&sum, &across, columns);
    finish(&sum, across.index);
    emit_loop_end(emit, &across, NULL);
    body->copies = block;
    body->index[body->vector_axis] = sum.first;
}
