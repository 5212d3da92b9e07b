/* The machine code is generated for: what LLVM calls it, and what the emitters need to know about it.
 *
 * Vector width, fused multiply-add and bf16 arithmetic are found by compiling a probe function for the target and
 * looking at the code, so that any CPU name and feature string that LLVM knows works, without a table of CPUs here. */
#ifndef CODEGEN_KERNELS_TARGET_H
#define CODEGEN_KERNELS_TARGET_H

#include <llvm-c/TargetMachine.h>

#include "base/diagnostics.h"
#include "base/hash.h"

typedef struct TargetOptions {
    const char *triple;   /* NULL: this machine's */
    const char *cpu;      /* NULL or "native": this machine's, if the triple is; else "generic" */
    const char *features; /* LLVM feature string, "+avx2,-fma"; NULL: those of the CPU */
} TargetOptions;

typedef enum Bf16Unit {
    BF16_NONE,
    BF16_PAIRS, /* VDPBF16PS: sums of two products, on vectors of 64 bytes */
    BF16_TILES  /* AMX's TDPBF16PS too */
} Bf16Unit;

typedef struct Target {
    Arena arena;
    const char *triple, *cpu, *features; /* as given to LLVM */
    int vector_bytes;                    /* width of a vector register; at least 16 */
    int vector_registers;
    bool fused_multiply_add;
    bool avx;                          /* of x86-64: its instructions, at whatever width */
    bool foreign;                      /* another architecture than this machine's */
    Bf16Unit bf16;                     /* what multiplies bf16 numbers */
    size_t level1_bytes, level2_bytes; /* data caches of one core */
    Hash hash;                         /* of all that the code depends on */
} Target;

/* Errors: unknown triple, CPU or feature (EXIT_TOOLCHAIN). */
bool target_init(Target *target, TargetOptions options, Diagnostics *diagnostics);
void target_free(Target *target);

/* A fresh LLVM target machine (they are not to be shared between threads). Dispose it with LLVM. */
LLVMTargetMachineRef target_machine(const Target *target);

/* Sets the attributes that every emitted function needs: CPU, features, vector width. */
void target_set_attributes(const Target *target, LLVMContextRef context, LLVMValueRef function);

#endif
