/* Kernels of matrix products, for the tests of code generation. */
#ifndef TESTS_CODEGEN_KERNELS_PRODUCT_H
#define TESTS_CODEGEN_KERNELS_PRODUCT_H

#include "tests/codegen/kernels/kernel_check.h"

typedef enum Epilogue {
    PLAIN,
    ACCUMULATE,
    BIAS,
    BIAS_GELU,
    RESIDUAL_SCALED,
    COLUMN_SCATTERED,
    MASKED_TWICE,
    DROPPED,
    HIDDEN,
    EPILOGUES
} Epilogue;

typedef struct Product {
    int64_t batch, rows, columns, depth;
    bool transpose_a, transpose_b, strided; /* strided: heads, as slices of wider rows */
    DType type, stored;
    Epilogue epilogue;
    DType b; /* as what B is stored; DTYPE_NONE: as A */
} Product;

void build_product(const Product *p); /* in `kernel` */

#endif
