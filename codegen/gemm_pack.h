/* Packing of panels for matrix products. */
#ifndef CODEGEN_GEMM_PACK_H
#define CODEGEN_GEMM_PACK_H

#include "codegen/gemm.h"

/* A panel of B: `depth` rows of `vectors` vectors; only the first `tail` lanes of the last vector exist (0: all), the
 * others become zero. */
typedef struct PackedPanel {
    int vectors, tail;
    int64_t depth;
} PackedPanel;

/* Emits the packing of the panel that starts at `source`, an element of operand B, into `packed`. */
void gemm_pack_b(Emit *emit, const Kernel *kernel, const GemmPlan *plan, const PackedPanel *panel, Ir source,
                 Ir packed);

#endif
