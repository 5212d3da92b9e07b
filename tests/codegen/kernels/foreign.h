/* Runs compiled kernels on a processor that this machine only emulates: cases are collected, linked into one program by
 * a cross compiler, and run under qemu's user-mode emulation. */
#ifndef TESTS_CODEGEN_KERNELS_FOREIGN_H
#define TESTS_CODEGEN_KERNELS_FOREIGN_H

#include "codegen/kernels/kernel_compiler.h"

/* What is missing for it, to be printed; NULL if nothing is. */
const char *foreign_missing(void);

/* Copies code and operands. `bytes` is of each operand. */
void foreign_add(const CompiledKernel *code, int operand_count, const size_t *bytes, void *const *data);

/* Runs all cases, each whole and in pieces, and calls `check` with the operands afterwards, in order; then forgets
 * them. False after printing what failed. */
typedef void ForeignCheck(size_t index, void *const *data);
bool foreign_run(ForeignCheck *check);

#endif
