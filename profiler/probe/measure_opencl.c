/* Devices that OpenCL reaches. */
#include "base/clock.h"
#include "base/order.h"
#include "codegen/opencl/opencl_program.h"
#include "profiler/probe/measure.h"

/* A program of one stage, whose forward is kernels over operands of their own. */
typedef struct KernelProgram {
    Arena arena;
    SkyProgram program;
    SkyStage stage;
    uint64_t bytes; /* of all operands */
} KernelProgram;

static void make_program(KernelProgram *made, const ClusterDevice *device, Kernel *const *kernels, int count)
{
    SkyCall *calls = arena_new_array(&made->arena, SkyCall, (size_t)count);
    for (int k = 0; k < count; k++) {
        SkyLocation *operands = arena_new_array(&made->arena, SkyLocation, KERNEL_MAX_OPERANDS);
        for (int i = 0; i < kernels[k]->operand_count; i++) {
            operands[i] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = made->bytes};
            made->bytes +=
                memory_round_up(measure_operand_bytes(kernels[k], &kernels[k]->operands[i]), MEMORY_ALIGNMENT);
        }
        calls[k] = (SkyCall){.operands = operands,
                             .operand_count = (uint32_t)kernels[k]->operand_count,
                             .name = kernels[k]->label,
                             .interpreted = kernels[k]};
    }
    made->stage = (SkyStage){.slot_count = 1, .lists[SKY_LIST_FORWARD] = {calls, (uint32_t)count, 0}};
    made->stage.space_bytes[SKY_SPACE_STATE] = made->bytes;
    made->program = (SkyProgram){.stage_count = 1,
                                 .stages = &made->stage,
                                 .device_name = device->name,
                                 .opencl_platform = device->opencl_platform,
                                 .opencl_device = device->opencl_device};
    opencl_bind(&made->program, &made->arena);
}

static bool measure_program(KernelProgram *made, Execution *execution, double *seconds, Diagnostics *diagnostics)
{
    MachineProfile found = {0};
    if (!measure_stage(&found, &made->arena, execution, (LayerTraffic){SIZE_MAX, SIZE_MAX}, (MeasureCompany){0},
                       diagnostics))
        return false;
    const SkyCallList *list = &made->stage.lists[SKY_LIST_FORWARD];
    for (uint32_t k = 0; k < list->count; k++)
        seconds[k] = machine_profile_seconds(&found, profile_work(&list->calls[k]));
    return true;
}

bool measure_kernels_on_opencl(const ClusterDevice *device, Kernel *const *kernels, int count, double *seconds,
                               Diagnostics *diagnostics)
{
    KernelProgram made = {0};
    Execution execution;
    make_program(&made, device, kernels, count);
    bool ok = execution_open(&execution, &made.program, 1, NULL, diagnostics);
    if (ok) {
        ok = measure_program(&made, &execution, seconds, diagnostics);
        execution_close(&execution);
    }
    arena_free(&made.arena);
    return ok;
}

/* Seconds of a copy: from the host (0), or to it (1). The median of some. */
static double copy_s(const Execution *execution, int way, size_t bytes)
{
    enum { COPIES = 7 };
    double samples[COPIES];
    SkyLocation start = {.space = SKY_SPACE_STATE};
    for (int i = 0; i < COPIES; i++) {
        double begun = monotonic_seconds();
        if (way == 0)
            execution_hand(execution, 0, 0, start, bytes);
        else
            execution_fetch(execution, 0, 0, start, bytes);
        samples[i] = monotonic_seconds() - begun;
    }
    return median(samples, COPIES);
}

/* What kernels of that size take. */
static bool measure_size(MachineProfile *machine, const ClusterDevice *device, int size, double *product_s,
                         Diagnostics *diagnostics)
{
    enum { SMALL = 64, LARGE = 8 << 20 };
    KernelProgram made = {0};
    Execution execution;
    Kernel *kernels[] = {arena_new(&made.arena, Kernel), arena_new(&made.arena, Kernel)};
    double seconds[2];
    measure_describe_product(kernels[0], size);
    measure_describe_sum(kernels[1], size);
    make_program(&made, device, kernels, 2);
    bool ok = execution_open(&execution, &made.program, 1, NULL, diagnostics);
    if (ok) {
        ok = measure_program(&made, &execution, seconds, diagnostics);
        machine->memory_bytes = execution.memory_bytes;
        for (int way = 0; way < 2; way++) {
            double small = copy_s(&execution, way, SMALL), large = copy_s(&execution, way, LARGE);
            if (small > machine->copy_latency_s) machine->copy_latency_s = small;
            machine->copy_Bps[way] = LARGE / large;
        }
        execution_close(&execution);
    }
    if (ok) {
        *product_s = seconds[0];
        machine->gflops = 1e-9 * kernel_flops(kernels[0]) / seconds[0];
        machine->bandwidth_Bps = kernel_bytes(kernels[1]) / seconds[1];
    }
    arena_free(&made.arena);
    return ok;
}

/* A product that a slow device computes for seconds is over on a fast one before it has begun everywhere. */
bool measure_opencl(MachineProfile *machine, const ClusterDevice *device, Diagnostics *diagnostics)
{
    static const double enough_s = 5e-3;
    double product_s = 0;
    bool ok = true;
    for (int size = 0; ok && product_s < enough_s && size <= MEASURE_LARGEST; size++)
        ok = measure_size(machine, device, size, &product_s, diagnostics);
    return ok;
}
