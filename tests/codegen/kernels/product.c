#include "tests/codegen/kernels/product.h"

static Register gelu(Register x)
{
    Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, x, kernel_constant(&kernel, DTYPE_F32, 0.70710678));
    Register erf = kernel_unary(&kernel, KERNEL_ERF, scaled);
    Register more = kernel_binary(&kernel, KERNEL_ADD, erf, kernel_constant(&kernel, DTYPE_F32, 1));
    Register half = kernel_binary(&kernel, KERNEL_MULTIPLY, x, kernel_constant(&kernel, DTYPE_F32, 0.5));
    return kernel_binary(&kernel, KERNEL_MULTIPLY, half, more);
}

/* The sum where two masks hold: of row and column, and of the column. */
static Register hidden(const Product *p, Register sum)
{
    Register other = kernel_constant(&kernel, p->type, -2);
    for (int i = 0; i < 2; i++) {
        int64_t stride[] = {0, i ? 0 : p->columns, 1, 0};
        Register mask = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_BOOL, stride));
        sum = kernel_select(&kernel, mask, sum, other);
    }
    return sum;
}

void build_product(const Product *p)
{
    int64_t extent[] = {p->batch, p->rows, p->columns, p->depth};
    int64_t gap = p->strided ? p->batch : 1; /* batches interleaved within rows, else one after another */
    int64_t a_pitch = (p->transpose_a ? p->rows : p->depth) * gap,
            b_pitch = (p->transpose_b ? p->depth : p->columns) * gap;
    int64_t a_batch = p->strided ? a_pitch / gap : p->rows * p->depth;
    int64_t b_batch = p->strided ? b_pitch / gap : p->columns * p->depth;
    int64_t a[] = {a_batch, p->transpose_a ? 1 : a_pitch, 0, p->transpose_a ? a_pitch : 1};
    int64_t b[] = {b_batch, 0, p->transpose_b ? b_pitch : 1, p->transpose_b ? 1 : b_pitch};
    int64_t c[] = {p->strided ? p->columns : p->rows * p->columns, p->columns * gap, 1, 0}, bias[] = {0, 0, 1, 0};
    int64_t scattered[] = {p->rows * p->columns * 2, 2 * p->columns, 2, 0};
    kernel_begin(&kernel, "product", 4, extent);
    Register x = kernel_load(&kernel, kernel_operand(&kernel, p->stored, a));
    Register y = kernel_load(&kernel, kernel_operand(&kernel, p->b ? p->b : p->stored, b));
    Register sum = kernel_reduce(&kernel, KERNEL_SUM, kernel_binary(&kernel, KERNEL_MULTIPLY, x, y));
    kernel_begin_phase(&kernel, false);
    int out = kernel_operand(&kernel, p->type, p->epilogue == COLUMN_SCATTERED ? scattered : c);
    switch (p->epilogue) {
    case ACCUMULATE: kernel_store_add(&kernel, out, sum); break;
    case BIAS:
    case BIAS_GELU: {
        Register shift = kernel_load(&kernel, kernel_operand(&kernel, p->type, bias));
        Register z = kernel_binary(&kernel, KERNEL_ADD, sum, shift);
        kernel_store(&kernel, out, p->epilogue == BIAS || p->type != DTYPE_F32 ? z : gelu(z));
        break;
    }
    case DROPPED: {
        Register key = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, (int64_t[4]){0}));
        Register first =
            kernel_binary(&kernel, KERNEL_MULTIPLY, key, kernel_constant_integer(&kernel, 1 + p->depth % 2));
        Register bound = kernel_constant_integer(&kernel, 0x4000), zero = kernel_constant(&kernel, p->type, 0);
        Register dropped = kernel_random(&kernel, kernel_operand(&kernel, DTYPE_F32, c), key, first, bound);
        kernel_store(&kernel, out, kernel_select(&kernel, dropped, zero, sum));
        break;
    }
    case RESIDUAL_SCALED: {
        Register scaled = kernel_binary(&kernel, KERNEL_MULTIPLY, sum, kernel_constant(&kernel, p->type, 0.125));
        Register old = kernel_load(&kernel, kernel_operand(&kernel, p->type, c));
        kernel_store(&kernel, out, kernel_binary(&kernel, KERNEL_ADD, scaled, old));
        break;
    }
    case MASKED_TWICE: { /* lower triangle only; the sum itself is stored too */
        Register row = kernel_axis(&kernel, 1), column = kernel_axis(&kernel, 2);
        Register below = kernel_binary(&kernel, KERNEL_LESS_EQUAL, column, row);
        Register zero = kernel_constant(&kernel, p->type, 0);
        kernel_store(&kernel, out, kernel_select(&kernel, below, sum, zero));
        kernel_store(&kernel, kernel_operand(&kernel, p->type, c), sum);
        break;
    }
    case HIDDEN: kernel_store(&kernel, out, hidden(p, sum)); break;
    default: kernel_store(&kernel, out, sum); break;
    }
}
