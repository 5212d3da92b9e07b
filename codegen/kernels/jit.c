/* Compiled kernels in this process, through ORC's LLJIT. */
#include <llvm-c/Core.h>
#include <llvm-c/LLJIT.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernels/kernel_compiler.h"
#include "runtime/program/tiles.h"

struct JitProgram {
    LLVMOrcLLJITRef jit;
    const CompiledKernels *compiled;
    SkyKernel **functions; /* of compiled->kernels */
};

static bool report(LLVMErrorRef error, Diagnostics *diagnostics)
{
    char *message = LLVMGetErrorMessage(error);
    diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE, NULL, "loading compiled kernels: %s", message);
    LLVMDisposeErrorMessage(message);
    return false;
}

static bool add_objects(JitProgram *program, Diagnostics *diagnostics)
{
    LLVMOrcJITDylibRef library = LLVMOrcLLJITGetMainJITDylib(program->jit);
    LLVMOrcDefinitionGeneratorRef process;
    LLVMErrorRef error = LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(
        &process, LLVMOrcLLJITGetGlobalPrefix(program->jit), NULL, NULL);
    if (error) return report(error, diagnostics);
    LLVMOrcJITDylibAddGenerator(library, process); /* the C library's functions */
    for (size_t i = 0; i < program->compiled->count; i++) {
        const CompiledKernel *kernel = &program->compiled->kernels[i];
        LLVMMemoryBufferRef object =
            LLVMCreateMemoryBufferWithMemoryRangeCopy(kernel->object.bytes, kernel->object.size, kernel->symbol);
        error = LLVMOrcLLJITAddObjectFile(program->jit, library, object);
        if (error) return report(error, diagnostics);
    }
    return true;
}

static bool look_up(JitProgram *program, Diagnostics *diagnostics)
{
    for (size_t i = 0; i < program->compiled->count; i++) {
        LLVMOrcExecutorAddress address;
        LLVMErrorRef error = LLVMOrcLLJITLookup(program->jit, &address, program->compiled->kernels[i].symbol);
        if (error) return report(error, diagnostics);
        program->functions[i] = (SkyKernel *)(uintptr_t)address;
    }
    return true;
}

JitProgram *jit_load(const CompiledKernels *compiled, Diagnostics *diagnostics)
{
    JitProgram *program = memory_allocate(sizeof *program);
    *program = (JitProgram){.compiled = compiled};
    for (size_t i = 0; i < compiled->count; i++) {
        if (!compiled->kernels[i].uses_tiles || tiles_request()) continue;
        diagnostics_error(diagnostics, EXIT_TOOLCHAIN, PLACE_NONE, "use --target-cpu native",
                          "the code uses AMX tiles, which this processor or system does not have");
        free(program);
        return NULL;
    }
    program->functions = memory_allocate((compiled->count + 1) * sizeof *program->functions);
    LLVMErrorRef error = LLVMOrcCreateLLJIT(&program->jit, NULL);
    if (error) {
        program->jit = NULL;
        report(error, diagnostics);
    } else if (add_objects(program, diagnostics) && look_up(program, diagnostics)) {
        return program;
    }
    jit_free(program);
    return NULL;
}

SkyKernel *jit_find(const JitProgram *jit, const CompiledKernel *kernel)
{
    return jit->functions[kernel - jit->compiled->kernels];
}

void jit_free(JitProgram *jit)
{
    if (!jit) return;
    if (jit->jit) LLVMConsumeError(LLVMOrcDisposeLLJIT(jit->jit));
    free(jit->functions);
    free(jit);
}
