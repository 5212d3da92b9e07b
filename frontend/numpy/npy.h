/* NumPy's .npy arrays and .npz archives of them (format versions 1 to 3), read only. */
#ifndef FRONTEND_NUMPY_NPY_H
#define FRONTEND_NUMPY_NPY_H

#include "base/dtype.h"
#include "base/file.h"

typedef struct NpyArray {
    const char *name; /* of the archive member, without ".npy"; NULL for a .npy file */
    DType dtype;
    Shape shape;
    const void *data; /* in row-major order and this machine's byte order */
} NpyArray;

/* Reads all arrays of a file, which is an archive if its name ends in ".npz", into the arena. Refused: Python objects,
 * strings, complex numbers and records, more than 8 dimensions, sizes that do not match, truth values that are neither
 * 0 nor 1, encrypted members, names that occur twice, members that together claim more than the archive can hold. */
bool npy_read(const char *path, Arena *arena, NpyArray **arrays, size_t *count, Diagnostics *diagnostics);

#endif
