#include "frontend/onnx/ties.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "frontend/onnx/initializer_uses.h"

enum { SAMPLES = 256, BLOCK = 64 };

/* Whether all bytes are 0. Holes of a sparse file are 0 and are not read. */
static bool is_zero(const char *bytes, size_t size)
{
    enum { PAGE = 4096 };
    static const char zeros[PAGE];
    while (size) {
        size_t zero = file_zeros_at(bytes, size), part = size < PAGE ? size : PAGE;
        if (!zero && memcmp(bytes, zeros, part) != 0) return false;
        if (!zero) zero = part;
        bytes += zero;
        size -= zero;
    }
    return true;
}

bool tensor_is_constant(const OnnxTensor *tensor)
{
    const char *bytes = tensor->data;
    size_t size = dtype_size(tensor->dtype);
    if (tensor->bytes <= size) return true;
    if (is_zero(bytes, size)) return is_zero(bytes, tensor->bytes);
    return memcmp(bytes, bytes + size, tensor->bytes - size) == 0;
}

/* A hash that is the same for tensors which are equal, also if one is transposed. Few elements are read, so that
 * tensors mapped from a file need not be loaded; of a matrix they lie on the diagonal, which transposition leaves in
 * place. */
static Hash fingerprint(const OnnxTensor *tensor)
{
    const Shape *shape = &tensor->shape;
    size_t size = dtype_size(tensor->dtype);
    int64_t elements = shape_elements(shape), available = elements, stride = 1;
    int64_t rows = shape->rank == 2 ? shape->dim[0] : 0, columns = shape->rank == 2 ? shape->dim[1] : 0;
    if (shape->rank == 2) {
        available = rows < columns ? rows : columns;
        stride = columns + 1;
    }
    int64_t step = available > SAMPLES ? available / SAMPLES : 1;
    unsigned char sample[SAMPLES * sizeof(double)];
    size_t used = 0;
    for (int64_t i = 0, taken = 0; i < available && taken < SAMPLES; i += step, taken++, used += size)
        memcpy(sample + used, (const char *)tensor->data + (size_t)(i * stride) * size, size);
    const int64_t facts[] = {tensor->dtype, shape->rank, elements, rows < columns ? rows : columns};
    return hash_extend(hash_bytes(sample, used), facts, sizeof facts);
}

/* Whether a, of shape [rows, columns], is the transpose of b. */
static bool is_transpose(const char *a, const char *b, int64_t rows, int64_t columns, size_t size)
{
    for (int64_t i0 = 0; i0 < rows; i0 += BLOCK)
        for (int64_t j0 = 0; j0 < columns; j0 += BLOCK)
            for (int64_t i = i0; i < i0 + BLOCK && i < rows; i++)
                for (int64_t j = j0; j < j0 + BLOCK && j < columns; j++)
                    if (memcmp(a + (size_t)(i * columns + j) * size, b + (size_t)(j * rows + i) * size, size) != 0)
                        return false;
    return true;
}

static TieKind compare(const OnnxTensor *a, const OnnxTensor *b)
{
    if (a->dtype != b->dtype || a->bytes != b->bytes || a->shape.rank != b->shape.rank) return TIE_NONE;
    if (shape_equal(&a->shape, &b->shape) && memcmp(a->data, b->data, a->bytes) == 0) return TIE_EQUAL;
    int64_t rows = a->shape.dim[0], columns = a->shape.dim[1];
    if (a->shape.rank != 2 || b->shape.dim[0] != columns || b->shape.dim[1] != rows) return TIE_NONE;
    return is_transpose(a->data, b->data, rows, columns, dtype_size(a->dtype)) ? TIE_TRANSPOSED : TIE_NONE;
}

typedef struct TieCandidate {
    Hash fingerprint;
    size_t tensor;
} TieCandidate;

static int by_fingerprint(const void *a, const void *b)
{
    const TieCandidate *left = a, *right = b;
    if (left->fingerprint.high != right->fingerprint.high)
        return left->fingerprint.high < right->fingerprint.high ? -1 : 1;
    if (left->fingerprint.low != right->fingerprint.low) return left->fingerprint.low < right->fingerprint.low ? -1 : 1;
    return left->tensor < right->tensor ? -1 : left->tensor > right->tensor;
}

/* Whether the exporter tells that two initializers are parameters of their own. */
static bool are_apart(Importer *importer, size_t a, size_t b)
{
    Onnx__TensorProto *const *initializers = importer->proto->initializer;
    return owners_are_apart(importer, initializer_owner(importer, initializers[a]->name),
                            initializer_owner(importer, initializers[b]->name));
}

void find_ties(Importer *importer, const OnnxTensor *const *tensors, size_t count, Tie *ties)
{
    FREED TieCandidate *candidates = memory_allocate(count * sizeof *candidates);
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        ties[i] = (Tie){TIE_NONE, 0};
        if (tensors[i] && tensors[i]->data) candidates[found++] = (TieCandidate){fingerprint(tensors[i]), i};
    }
    qsort(candidates, found, sizeof *candidates, by_fingerprint);
    for (size_t i = 0, first = 0, last = 0; i < found; i++) { /* those from `first` to `last` are tied to none before */
        Hash fingerprint = candidates[i].fingerprint;
        if (last > first && !hash_equal(candidates[first].fingerprint, fingerprint)) first = last = i;
        size_t later = candidates[i].tensor, j = last;
        for (TieKind kind; j > first && ties[later].kind == TIE_NONE; j--)
            if ((kind = compare(tensors[later], tensors[candidates[j - 1].tensor])) != TIE_NONE &&
                !are_apart(importer, later, candidates[j - 1].tensor))
                ties[later] = (Tie){kind, candidates[j - 1].tensor};
        if (ties[later].kind == TIE_NONE) candidates[last++] = candidates[i];
    }
}
