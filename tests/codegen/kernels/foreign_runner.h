/* What tests/codegen/kernels/foreign.c tells tests/codegen/kernels/foreign_runner.c. */
#ifndef TESTS_CODEGEN_KERNELS_FOREIGN_RUNNER_H
#define TESTS_CODEGEN_KERNELS_FOREIGN_RUNNER_H

#include <stdint.h>

enum { FOREIGN_MAX_OPERANDS = 32 };

typedef struct ForeignCase {
    uint64_t kernel; /* position in foreign_kernels */
    int64_t units;
    uint64_t scratch_bytes, operands;
} ForeignCase;

#endif
