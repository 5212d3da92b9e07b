/* AMX kernels on processors without AMX: their tile instructions become calls of functions that do the same. */
#ifndef TESTS_CODEGEN_KERNELS_EMULATED_TILES_H
#define TESTS_CODEGEN_KERNELS_EMULATED_TILES_H

#include "codegen/kernels/kernel_compiler.h"

/* Replaces the code of the kernels, which must have been compiled for a target that is otherwise this machine's. */
void emulate_tiles(CompiledKernels *compiled);

#endif
