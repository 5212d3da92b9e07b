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
    Arena arena = {0};
    Diagnostics said = {0};
    int count;
    bool found = opencl_devices(&arena, &count, &said) != NULL;
    diagnostics_free(&said);
    arena_free(&arena);
    return found ? NULL : "this machine has no OpenCL device (Debian: pocl-opencl-icd)";
}

/* A program of one stage whose only list has one call. */
void opencl_run(const Kernel *kernel, void *const *data, const size_t *bytes)
{
    Arena arena = {0};
    Diagnostics said = {0};
    SkyLocation operands[KERNEL_MAX_OPERANDS] = {0};
    uint64_t all = 0;
    for (int i = 0; i < kernel->operand_count; i++) {
        operands[i] = (SkyLocation){.space = SKY_SPACE_STATE, .offset = all};
        all += memory_round_up(bytes[i] + 1, MEMORY_ALIGNMENT);
    }
    SkyCall call = {.operands = operands,
                    .operand_count = (uint32_t)kernel->operand_count,
                    .name = kernel->label,
                    .interpreted = kernel};
    SkyStage stage = {.slot_count = 1, .lists[SKY_LIST_FORWARD] = {&call, 1, 0}};
    stage.space_bytes[SKY_SPACE_STATE] = all;
    SkyProgram program = {
        .stage_count = 1, .stages = &stage, .device_name = "test", .opencl_platform = "*", .opencl_device = "0"};
    Execution execution;
    bool ok = opencl_bind(&program, &arena, &said) && execution_open(&execution, &program, 1, NULL, &said);
    for (int i = 0; i < kernel->operand_count && ok; i++) {
        memcpy(execution_address(&execution, 0, 0, operands[i]), data[i], bytes[i]);
        execution_hand(&execution, 0, 0, operands[i], bytes[i]);
    }
    bool ran = ok && execution_run(&execution, 0, SKY_LIST_FORWARD, 0, &said);
    for (int i = 0; i < kernel->operand_count && ok; i++)
        memcpy(data[i], execution_fetch(&execution, 0, 0, operands[i], bytes[i]), bytes[i]);
    if (ok) execution_close(&execution);
    if (!ran) diagnostics_print(&said, stderr);
    diagnostics_free(&said);
    arena_free(&arena);
    assert_true(ran);
}
