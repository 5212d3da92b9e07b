/* Element types of tensors, shared by graphs, kernels, files and the runtime. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType {
    DTYPE_NONE,
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_BOOL, /* one byte, 0 or 1 */
    DTYPE_I8,
    DTYPE_U8,
    DTYPE_I16,
    DTYPE_U16,
    DTYPE_U32,
    DTYPE_U64,
    DTYPE_Q8, /* integers of 8 and of 4 bits in blocks of DTYPE_BLOCK elements, each with a scale
                     (base/weight_blocks.h); */
    DTYPE_Q4, /* weights that are only read */
    DTYPE_COUNT
} DType;

enum { DTYPE_BLOCK = 32, DTYPE_SCALE_BYTES = 2 };

size_t dtype_size(DType dtype);                     /* bytes of one element; of blocks 1, and without meaning */
int64_t dtype_bytes(DType dtype, int64_t elements); /* of so many; of blocks a multiple of DTYPE_BLOCK */
bool dtype_in_blocks(DType dtype);
const char *dtype_name(DType dtype);                 /* "f32", "i64", "bool" ... */
const char *dtype_safetensors_name(DType dtype);     /* "F32", "I64", "BOOL" ... */
DType dtype_from_safetensors_name(const char *name); /* DTYPE_NONE if unknown */
bool dtype_is_float(DType dtype);
bool dtype_is_integer(DType dtype); /* signed and unsigned integers, not bool */

enum { MAX_RANK = 8 };

typedef struct Shape {
    int rank;
    int64_t dim[MAX_RANK];
} Shape;

/* The number of elements; -1 if a dimension is negative or the product, or its size in bytes at 16 bytes an element,
 * overflows int64. */
int64_t shape_elements(const Shape *shape);
int64_t shape_stride(const Shape *shape, int axis); /* elements from one index of a dense tensor's axis to the next */
bool shape_equal(const Shape *a, const Shape *b);
/* Whether they are equal but for a last dimension of 1 that one of them has: [8] and [8,1] hold the same elements. */
bool shape_equal_but_column(const Shape *a, const Shape *b);
/* "[8,128,768]" into `text`. */
const char *shape_format(const Shape *shape, char text[static 256]);

/* The nearest number that bf16 has, ties to even. */
float bfloat_round(float value);

/* Reads or writes one element as double or int64, converting. `index` counts elements. Values beyond 2^53 are exact
 * only through the integer pair. */
double element_as_double(DType dtype, const void *data, int64_t index);
int64_t element_as_integer(DType dtype, const void *data, int64_t index);
void element_store_double(DType dtype, void *data, int64_t index, double value);
void element_store_integer(DType dtype, void *data, int64_t index, int64_t value);

#endif
