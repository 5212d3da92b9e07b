/* Sums of products that nobody reads: where the epilogue replaces them by something else, as attention does with scores
 * of keys that a mask hides. A tile of which all is hidden is not multiplied. */
#ifndef CODEGEN_KERNELS_HIDDEN_SUMS_H
#define CODEGEN_KERNELS_HIDDEN_SUMS_H

#include "codegen/kernels/body.h"

/* The loads of conditions, neighbouring ones along columns, of which each hides a sum where it is false. */
typedef struct HiddenSums {
    int count;
    Register load[2];
} HiddenSums;

HiddenSums hidden_sums_find(const Kernel *kernel, const KernelGemm *match);
/* Whether any sum may be read of `rows` rows from where the body's base is, in the body's vectors; NULL: not known. */
Ir hidden_sums_any_visible(Body *body, const HiddenSums *hidden, const KernelGemm *match, int rows);

#endif
