#include "codegen/kernels/work_units.h"

void units_init(Units *units) { *units = (Units){.total = 1}; }

void units_add(Units *units, int axis, int64_t extent, int64_t step)
{
    int64_t count = (extent + step - 1) / step;
    units->axes[units->axis_count++] = (UnitAxis){axis, extent, step, count};
    units->total *= count;
}

int64_t units_init_batches(Units *units, const Kernel *kernel, const KernelGemm *match)
{
    units_init(units);
    for (int axis = 0; axis < kernel->axis_count - 1; axis++)
        if (axis != match->row_axis && axis != match->column_axis) units_add(units, axis, kernel->extent[axis], 1);
    return units->total;
}

Ir units_emit_limit(Emit *emit, const Kernel *kernel, const Units *units, int axis)
{
    Ir all = emit_i64(emit, kernel->extent[axis]);
    int limited = kernel->limited ? kernel->axis_count - 1 : units->axes[0].axis;
    return axis == limited ? emit_least(emit, all, LLVMGetParam(emit->function, KERNEL_LIMIT)) : all;
}

static Ir divide_up_by(Emit *emit, Ir a, Ir b)
{
    return emit_udiv(emit, emit_sub(emit, emit_add(emit, a, b), emit_i64(emit, 1)), b);
}

UnitRows units_emit_rows(Emit *emit, const Kernel *kernel, const Units *units, int axis, int64_t granule, Ir *index)
{
    const UnitAxis *rows = &units->axes[0];
    for (int i = 0; i < units->axis_count; i++)
        if (units->axes[i].axis == axis) rows = &units->axes[i];
    UnitRows whole = {emit_i64(emit, rows->step), units_emit_limit(emit, kernel, units, axis)};
    if (rows != units->axes || kernel->limited || rows->count == 1 || rows->step < 2 * (rows->count - 1) * granule)
        return whole;
    Ir some = divide_up_by(emit, whole.limit, whole.step), each = divide_up_by(emit, whole.limit, some);
    Ir step = emit_mul(emit, divide_up_by(emit, each, emit_i64(emit, granule)), granule);
    index[axis] = LLVMBuildMul(emit->builder, emit_udiv(emit, index[axis], whole.step), step, "");
    return (UnitRows){step, whole.limit};
}

void units_emit_loop(Emit *emit, const Units *units, EmitLoop *loop, Ir index[KERNEL_MAX_AXES])
{
    emit_loop_begin(emit, loop, LLVMGetParam(emit->function, KERNEL_BEGIN), LLVMGetParam(emit->function, KERNEL_END), 1,
                    0, NULL);
    Ir rest = loop->index;
    for (int i = units->axis_count - 1; i >= 0; i--) {
        const UnitAxis *axis = &units->axes[i];
        Ir number = rest;
        if (i > 0) {
            Ir count = emit_i64(emit, axis->count);
            number = emit_urem(emit, rest, count);
            rest = emit_udiv(emit, rest, count);
        }
        index[axis->axis] = emit_mul(emit, number, axis->step);
    }
}
