/* Compiled codings of rows against the interpreter, bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/codegen/kernels/kernel_check.h"
#include "tests/common/limits.h"

/* Numbers of the sizes that gradients and activations have, with outliers, tiles of zeros, of what is next to nothing,
 * and of what is no number; bytes with any code and a scale that can be. */
static void fill(const Kernel *checked, int operand, int64_t elements, void *data)
{
    bool bytes = checked->operands[operand].dtype == DTYPE_U8;
    if (!bytes && checked->operands[operand].dtype != DTYPE_F32) {
        fill_random(checked, operand, elements, data);
        return;
    }
    for (int64_t i = 0; i < elements; i++) {
        if (bytes) {
            ((uint8_t *)data)[i] = (uint8_t)draw(256);
            continue;
        }
        static const float sizes[] = {1, 1e-9f, 300, 1e-36f, 0, 1e37f};
        float value = ((float)draw(1u << 24) / (1 << 23) - 1) * sizes[i / 64 % 6];
        if (draw(90) == 0) value *= 50;
        if (draw(700) == 0) value = draw(2) ? INFINITY : NAN;
        ((float *)data)[i] = value;
    }
    const KernelInstruction *coding = kernel_coding_of(checked);
    Codec codec = kernel_coding_codec(coding);
    int64_t tile = codec_row_bytes(codec, CODEC_TILE);
    for (int64_t i = 0; bytes && codec_bits(codec) && i + 1 < elements; i += tile) {
        ((uint8_t *)data)[i] = (uint8_t)draw(256);
        ((uint8_t *)data)[i + 1] = draw(9) ? (uint8_t)(0x30 + draw(0x20)) : 0;
    }
}

static void equal_bits(const Kernel *checked, void *const *expected, void *const *found, double tolerance)
{
    (void)tolerance;
    for (int i = 0; i < checked->operand_count; i++) {
        const KernelOperand *operand = &checked->operands[i];
        if (!operand->written) continue;
        int64_t count = operand->elements ? operand->elements : kernel_inner_extent(checked);
        for (int axis = 0; axis < checked->axis_count - 1; axis++)
            count += (checked->extent[axis] - 1) * operand->stride[axis];
        for (int64_t k = 0; k < count; k++) {
            double a = element_as_double(operand->dtype, expected[i], k);
            double b = element_as_double(operand->dtype, found[i], k);
            if (isnan(a) && isnan(b)) continue; /* whose sign and payload mean nothing */
            if (memcmp((char *)expected[i] + k * (int64_t)dtype_size(operand->dtype),
                       (char *)found[i] + k * (int64_t)dtype_size(operand->dtype), dtype_size(operand->dtype)) == 0)
                continue;
            Buffer text = {0};
            kernel_print(checked, &text);
            fail_msg("%s\noperand %d, element %lld: %.9g, not %.9g", buffer_text(&text), i, (long long)k, b, a);
        }
    }
}

/* Rows of a tensor [4, 3, columns], of which two of three are coded, drawn as numbers from an odd place on. */
static void check_coding(Codec codec, int64_t columns, bool encodes, bool stochastic)
{
    int64_t bytes = codec_row_bytes(codec, columns), extent[] = {4, 2, columns};
    kernel_begin(&kernel, encodes ? "encode" : "decode", 3, extent);
    int row = kernel_operand(&kernel, DTYPE_F32, (int64_t[]){3 * columns, columns, 1});
    int coded = kernel_operand(&kernel, DTYPE_U8, (int64_t[]){2 * bytes, bytes, 0});
    Register key = 0, first = 0;
    if (stochastic) {
        kernel_begin_phase(&kernel, false);
        key = kernel_load(&kernel, kernel_operand(&kernel, DTYPE_I64, (int64_t[]){0, 0, 0}));
        Register high = kernel_constant_integer(&kernel, 0x123456789);
        key = kernel_binary(&kernel, KERNEL_ADD, key, high);
        Register line = kernel_axis(&kernel, 0), number = kernel_constant_integer(&kernel, 2 * columns + 3);
        first = kernel_binary(&kernel, KERNEL_MULTIPLY, line, number);
        first = kernel_binary(&kernel, KERNEL_ADD, first, kernel_axis(&kernel, 1));
    }
    if (encodes)
        kernel_encode(&kernel, codec, row, coded, key, first);
    else
        kernel_decode(&kernel, codec, row, coded);
    kernel_canonicalize(&kernel);
    assert_int_equal(kernel_classify(&kernel), KERNEL_CLASS_CODING);
    check_compared(&kernel, 0, fill, equal_bits);
}

static void test_codings(void **state)
{
    (void)state;
    static const int64_t columns[] = {7, 64, 164};
    for (int codec = CODEC_BF16; codec < CODEC_COUNT; codec++) {
        for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
            if (ADDRESS_SANITIZER && (codec + (int)i) % 3) continue; /* LLVM is slow there */
            check_coding((Codec)codec, columns[i], true, false);
            check_coding((Codec)codec, columns[i], true, true);
            check_coding((Codec)codec, columns[i], false, false);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codings)};
    return check_run(argc, argv, tests, sizeof tests / sizeof *tests);
}
