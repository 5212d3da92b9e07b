#include "runtime/storage/row_lengths.h"

#include <stdlib.h>

#include "base/file.h"

static bool lengths_error(const char *path, const char *tensor, const char *problem, Diagnostics *diagnostics)
{
    char object[64];
    snprintf(object, sizeof object, "tensor '%s'", tensor);
    return diagnostics_error(diagnostics, EXIT_BAD_INPUT, (Place){.file = path, .object = object}, NULL, "%s", problem);
}

static bool read_lengths(RowLengths *lengths, const SafeTensor *tensor, int64_t most, const char *path,
                         Diagnostics *diagnostics)
{
    if (tensor->shape.rank != 1 || !dtype_is_integer(tensor->dtype))
        return lengths_error(path, "lengths", "is not one integer a row", diagnostics);
    for (int64_t r = 0; r < lengths->rows; r++) {
        int64_t length = element_as_integer(tensor->dtype, tensor->data, r);
        if (length < 1 || length > most) return lengths_error(path, "lengths", "holds impossible lengths", diagnostics);
        lengths->lengths[r] = (int32_t)length;
    }
    return true;
}

/* The length of a mask of ones, then zeros; any other mask counts the whole row. */
static void read_mask(RowLengths *lengths, const SafeTensor *mask)
{
    enum { BLOCK = 1 << 10 }; /* rows that are looked at before the next hole is looked for */
    int64_t width = mask->shape.dim[1], unwritten = 0;
    size_t row_bytes = (size_t)width * dtype_size(mask->dtype);
    for (int64_t r = 0; r < lengths->rows; r++) {
        int64_t ones = 0, rest;
        if (r % BLOCK == 0 && r >= unwritten)
            unwritten = r + (int64_t)(file_zeros_at((const char *)mask->data + (size_t)r * row_bytes,
                                                    (size_t)(lengths->rows - r) * row_bytes) /
                                      row_bytes);
        if (r < unwritten) { /* a hole of a sparse file: zeros, which are not read */
            lengths->lengths[r] = (int32_t)width;
            lengths->irregular++;
            continue;
        }
        while (ones < width && element_as_integer(mask->dtype, mask->data, r * width + ones) != 0) ones++;
        for (rest = ones; rest < width && element_as_integer(mask->dtype, mask->data, r * width + rest) == 0;) rest++;
        bool regular = ones > 0 && rest == width;
        lengths->lengths[r] = (int32_t)(regular ? ones : width);
        lengths->irregular += !regular;
    }
}

bool row_lengths_read(RowLengths *lengths, const SafeTensors *file, const char *path, Diagnostics *diagnostics)
{
    const SafeTensor *given = safetensors_find(file, "lengths"), *mask = safetensors_find(file, "attention_mask");
    const SafeTensor *source = given ? given : mask;
    *lengths = (RowLengths){0};
    if (mask && (mask->shape.rank != 2 || mask->shape.dim[1] < 1 || mask->shape.dim[1] > INT32_MAX)) mask = NULL;
    if (!source || !(given || mask)) return true;
    if (!source->shape.rank || (given && mask && mask->shape.dim[0] != given->shape.dim[0]))
        return lengths_error(path, "lengths", "has another number of rows than the mask", diagnostics);
    lengths->rows = source->shape.dim[0];
    lengths->lengths = memory_resize(NULL, (size_t)lengths->rows + 1, sizeof *lengths->lengths);
    bool ok = true;
    if (given)
        ok = read_lengths(lengths, given, mask ? mask->shape.dim[1] : INT32_MAX, path, diagnostics);
    else
        read_mask(lengths, mask);
    for (int64_t r = 0; r < lengths->rows && ok; r++)
        if (lengths->lengths[r] > lengths->longest) lengths->longest = lengths->lengths[r];
    if (!ok) row_lengths_free(lengths);
    return ok;
}

void row_lengths_free(RowLengths *lengths)
{
    free(lengths->lengths);
    *lengths = (RowLengths){0};
}
