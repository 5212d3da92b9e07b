#include "tests/codegen/kernels/opencl_runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "codegen/opencl/opencl_program.h"
#include "runtime/device/execute.h"
#include "runtime/device/opencl_api.h"

const char *opencl_missing(void)
{
    FREED_WITH(arena_free) Arena arena = {0};
    FREED_WITH(diagnostics_free) Diagnostics said = {0};
    int count;
    bool found = opencl_devices(&arena, &count, &said) != NULL;
    return found ? NULL : "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
}

/* A program of one stage with one list; buffers lie in its state. */
void opencl_run_calls(const OpenClCall *calls, size_t call_count, void *const *data, const size_t *bytes, size_t count)
{
    Arena arena = {0};
    Diagnostics said = {0};
    SkyLocation *places = arena_new_array(&arena, SkyLocation, count);
    SkyCall *listed = arena_new_array(&arena, SkyCall, call_count);
    bool *used = arena_new_array(&arena, bool, count);
    uint64_t all = 0;
    for (size_t c = 0; c < call_count; c++)
        for (int k = 0; k < calls[c].kernel->operand_count; k++) used[calls[c].buffer[k]] = true;
    for (size_t i = 0; i < count; i++) {
        if (!used[i]) continue;
        places[i] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = all};
        all += memory_round_up(bytes[i] + 1, MEMORY_ALIGNMENT);
    }
    for (size_t c = 0; c < call_count; c++) {
        SkyLocation *operands = arena_new_array(&arena, SkyLocation, KERNEL_MAX_OPERANDS);
        const Kernel *kernel = calls[c].kernel;
        for (int k = 0; k < kernel->operand_count; k++) {
            operands[k] = places[calls[c].buffer[k]];
            operands[k].offset += (uint64_t)calls[c].offset[k];
        }
        listed[c] = (SkyCall){.operands = operands,
                              .operand_count = (uint32_t)kernel->operand_count,
                              .line_extent = kernel->limited ? (uint32_t)calls[c].limit : 0,
                              .sum_extent = kernel->limited ? (uint32_t)kernel_inner_extent(kernel) : 0,
                              .name = kernel->label,
                              .interpreted = kernel};
    }
    SkyStage stage = {.slot_count = 1, .lists[SKY_LIST_FORWARD] = {listed, (uint32_t)call_count, 0}};
    stage.space_bytes[SKY_SPACE_STATE] = all;
    SkyProgram program = {
        .stage_count = 1, .stages = &stage, .device_name = "test", .opencl_platform = "*", .opencl_device = "0"};
    Execution execution;
    opencl_bind(&program, &arena);
    bool ok = execution_open(&execution, &program, 1, NULL, &said);
    for (size_t i = 0; i < count && ok; i++) {
        if (!used[i] || !bytes[i]) continue;
        memcpy(execution_address(&execution, 0, 0, places[i]), data[i], bytes[i]);
        execution_hand(&execution, 0, 0, places[i], bytes[i]);
    }
    bool ran = ok && execution_run(&execution, 0, SKY_LIST_FORWARD, 0, &said);
    for (size_t i = 0; i < count && ok; i++)
        if (used[i] && bytes[i]) memcpy(data[i], execution_fetch(&execution, 0, 0, places[i], bytes[i]), bytes[i]);
    if (ok) execution_close(&execution);
    if (!ran) diagnostics_print(&said, stderr);
    diagnostics_free(&said);
    arena_free(&arena);
    assert_true(ran);
}

void opencl_run(const Kernel *kernel, void *const *data, const size_t *bytes, int64_t limit)
{
    OpenClCall call = {.kernel = kernel, .limit = limit};
    for (int i = 0; i < kernel->operand_count; i++) call.buffer[i] = (size_t)i;
    opencl_run_calls(&call, 1, data, bytes, (size_t)kernel->operand_count);
}
