#include "base/dtype.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *safetensors_name;
    unsigned char size, is_float, is_integer;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_NONE] = {"none", "", 0, 0, 0},     [DTYPE_F32] = {"f32", "F32", 4, 1, 0},
    [DTYPE_F64] = {"f64", "F64", 8, 1, 0},    [DTYPE_F16] = {"f16", "F16", 2, 1, 0},
    [DTYPE_BF16] = {"bf16", "BF16", 2, 1, 0}, [DTYPE_I32] = {"i32", "I32", 4, 0, 1},
    [DTYPE_I64] = {"i64", "I64", 8, 0, 1},    [DTYPE_BOOL] = {"bool", "BOOL", 1, 0, 0},
    [DTYPE_I8] = {"i8", "I8", 1, 0, 1},       [DTYPE_U8] = {"u8", "U8", 1, 0, 1},
    [DTYPE_I16] = {"i16", "I16", 2, 0, 1},    [DTYPE_U16] = {"u16", "U16", 2, 0, 1},
    [DTYPE_U32] = {"u32", "U32", 4, 0, 1},    [DTYPE_U64] = {"u64", "U64", 8, 0, 1},
    [DTYPE_Q8] = {"int8", "", 1, 1, 0},       [DTYPE_Q4] = {"int4", "", 1, 1, 0},
};

size_t dtype_size(DType dtype) { return dtypes[dtype].size; }
bool dtype_in_blocks(DType dtype) { return dtype == DTYPE_Q8 || dtype == DTYPE_Q4; }
int64_t dtype_bytes(DType dtype, int64_t elements)
{
    return dtype_in_blocks(dtype)
               ? elements / DTYPE_BLOCK * (DTYPE_SCALE_BYTES + DTYPE_BLOCK / (dtype == DTYPE_Q8 ? 1 : 2))
               : elements * (int64_t)dtype_size(dtype);
}
const char *dtype_name(DType dtype) { return dtypes[dtype].name; }
const char *dtype_safetensors_name(DType dtype) { return dtypes[dtype].safetensors_name; }
bool dtype_is_float(DType dtype) { return dtypes[dtype].is_float; }
bool dtype_is_integer(DType dtype) { return dtypes[dtype].is_integer; }

DType dtype_from_safetensors_name(const char *name)
{
    for (int i = 1; i < DTYPE_COUNT; i++)
        if (*name && strcmp(name, dtypes[i].safetensors_name) == 0) return (DType)i;
    return DTYPE_NONE;
}

int64_t shape_elements(const Shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0 || __builtin_mul_overflow(count, shape->dim[i], &count)) return -1;
    return count > INT64_MAX / 16 ? -1 : count;
}

int64_t shape_stride(const Shape *shape, int axis)
{
    int64_t stride = 1;
    for (int i = axis + 1; i < shape->rank; i++) stride *= shape->dim[i];
    return stride;
}

bool shape_equal(const Shape *a, const Shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool shape_equal_but_column(const Shape *a, const Shape *b)
{
    Shape longer = a->rank > b->rank ? *a : *b, shorter = a->rank > b->rank ? *b : *a;
    if (longer.rank == shorter.rank + 1 && longer.dim[shorter.rank] == 1) longer.rank--;
    return shape_equal(&longer, &shorter);
}

const char *shape_format(const Shape *shape, char text[static 256])
{
    int length = snprintf(text, 256, "[");
    for (int i = 0; i < shape->rank; i++)
        length += snprintf(text + length, 256 - (size_t)length, i ? ",%lld" : "%lld", (long long)shape->dim[i]);
    snprintf(text + length, 256 - (size_t)length, "]");
    return text;
}

static float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float half_to_float(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = (half >> 10) & 31, mantissa = half & 0x3ff;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
    float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
}

static uint16_t float_to_half(float value)
{
    uint32_t bits = float_to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* rounds beyond the largest half */
    if (magnitude < 0x38800000) { /* subnormal: adding 0.5 shifts the bits into place, rounded to nearest even */
        float shifted = bits_to_float(magnitude) + 0.5f;
        return (uint16_t)(sign | (float_to_bits(shifted) - float_to_bits(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static uint16_t float_to_bfloat(float value)
{
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float bfloat_round(float value) { return bits_to_float((uint32_t)float_to_bfloat(value) << 16); }

/* base/weight_blocks.h */
static double block_element(DType dtype, const void *data, int64_t index)
{
    const unsigned char *block = (const unsigned char *)data + dtype_bytes(dtype, index),
                        *codes = block + DTYPE_SCALE_BYTES;
    int at = (int)(index % DTYPE_BLOCK), byte = codes[dtype == DTYPE_Q8 ? at : at % 16];
    int q = dtype == DTYPE_Q8 ? (signed char)byte : (byte >> at / 16 * 4 & 15) - 8;
    return (double)q * element_as_double(DTYPE_BF16, block, 0);
}

/* Elements of mapped files may be anywhere. */
#define LOAD(type) (((const struct __attribute__((packed)) { type value; } *)data)[index].value)

double element_as_double(DType dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case DTYPE_F32: return LOAD(float);
    case DTYPE_F64: return LOAD(double);
    case DTYPE_F16: return half_to_float(LOAD(uint16_t));
    case DTYPE_BF16: return bits_to_float((uint32_t)LOAD(uint16_t) << 16);
    case DTYPE_U64: return (double)LOAD(uint64_t);
    case DTYPE_Q8:
    case DTYPE_Q4: return block_element(dtype, data, index);
    default: return (double)element_as_integer(dtype, data, index);
    }
}

int64_t element_as_integer(DType dtype, const void *data, int64_t index)
{
    switch (dtype) {
    case DTYPE_I32: return LOAD(int32_t);
    case DTYPE_I64: return LOAD(int64_t);
    case DTYPE_BOOL:
    case DTYPE_U8: return LOAD(uint8_t);
    case DTYPE_I8: return LOAD(int8_t);
    case DTYPE_I16: return LOAD(int16_t);
    case DTYPE_U16: return LOAD(uint16_t);
    case DTYPE_U32: return LOAD(uint32_t);
    case DTYPE_U64: return (int64_t)LOAD(uint64_t);
    default: break;
    }
    double value = element_as_double(dtype, data, index);
    /* Like the hardware conversion, but defined: what does not fit becomes the least integer. */
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}

#define STORE(type, converted) (((type *)data)[index] = (type)(converted))

void element_store_double(DType dtype, void *data, int64_t index, double value)
{
    switch (dtype) {
    case DTYPE_F32: STORE(float, value); return;
    case DTYPE_F64: STORE(double, value); return;
    case DTYPE_F16: STORE(uint16_t, float_to_half((float)value)); return;
    case DTYPE_BF16: STORE(uint16_t, float_to_bfloat((float)value)); return;
    case DTYPE_BOOL: STORE(uint8_t, value != 0); return;
    default: element_store_integer(dtype, data, index, element_as_integer(DTYPE_F64, &value, 0)); return;
    }
}

void element_store_integer(DType dtype, void *data, int64_t index, int64_t value)
{
    switch (dtype) {
    case DTYPE_I32: STORE(int32_t, value); return;
    case DTYPE_I64: STORE(int64_t, value); return;
    case DTYPE_BOOL: STORE(uint8_t, value != 0); return;
    case DTYPE_U8: STORE(uint8_t, value); return;
    case DTYPE_I8: STORE(int8_t, value); return;
    case DTYPE_I16: STORE(int16_t, value); return;
    case DTYPE_U16: STORE(uint16_t, value); return;
    case DTYPE_U32: STORE(uint32_t, value); return;
    case DTYPE_U64: STORE(uint64_t, value); return;
    case DTYPE_F32: STORE(float, value); return;
    case DTYPE_F64: STORE(double, value); return;
    default: element_store_double(dtype, data, index, (double)value); return;
    }
}
