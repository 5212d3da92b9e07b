#include "frontend/onnx/copies.h"

#include <stdlib.h>
#include <string.h>

#include "graph/analysis/choose_trained.h"

enum { MOST_ELEMENTS = 1 << 24 };

/* A vector along an axis, with its elements together. */
typedef struct Vector {
    const char *bytes;
    size_t size;
    int64_t number; /* row-major over the other axes */
} Vector;

static int by_bytes(const void *a, const void *b)
{
    const Vector *left = a, *right = b;
    int order = memcmp(left->bytes, right->bytes, left->size);
    return order ? order : left->number < right->number ? -1 : left->number > right->number;
}

/* Copies vectors between a tensor of the shape and [vectors, width], whose row for vector v is index[v]. */
static void move_vectors(const Shape *shape, int axis, size_t size, const int64_t *index, char *elements, char *rows,
                         bool to_rows)
{
    int64_t width = shape->dim[axis], inner = shape_stride(shape, axis), count = shape_elements(shape) / width;
    for (int64_t v = 0; v < count; v++)
        for (int64_t k = 0; k < width; k++) {
            char *element = elements + (size_t)((v / inner * width + k) * inner + v % inner) * size;
            char *in_row = rows + (size_t)((index ? index[v] : v) * width + k) * size;
            memcpy(to_rows ? in_row : element, to_rows ? element : in_row, size);
        }
}

void parameter_copies_expand(const ParameterCopies *copies, size_t size, const void *rows, void *elements)
{
    move_vectors(&copies->shape, copies->axis, size, copies->index, elements, (char *)rows, false);
}

/* Free both with free(). Sorted by their bytes. */
static Vector *sorted_vectors(const OnnxTensor *tensor, int axis, char **bytes)
{
    size_t size = dtype_size(tensor->dtype), row = (size_t)tensor->shape.dim[axis] * size, count = tensor->bytes / row;
    Vector *vectors = memory_allocate(count * sizeof *vectors);
    *bytes = memory_allocate(tensor->bytes);
    move_vectors(&tensor->shape, axis, size, NULL, (char *)tensor->data, *bytes, true);
    for (size_t v = 0; v < count; v++) vectors[v] = (Vector){*bytes + v * row, row, (int64_t)v};
    qsort(vectors, count, sizeof *vectors, by_bytes);
    return vectors;
}

static bool is_one_number(const Vector *vector, size_t size)
{
    return memcmp(vector->bytes, vector->bytes + size, vector->size - size) == 0;
}

/* Numbers the distinct vectors along the axis in their order; returns how many there are. `part`: vectors in a row of
 * the batch, if all rows are equal, else all. */
static int64_t number_vectors(const OnnxTensor *tensor, int axis, int64_t part, int64_t *index)
{
    size_t size = dtype_size(tensor->dtype);
    int64_t count = shape_elements(&tensor->shape) / tensor->shape.dim[axis], distinct = 0;
    FREED char *bytes = NULL;
    FREED Vector *vectors = sorted_vectors(tensor, axis, &bytes);
    for (int64_t i = 0, first = 0; i < count; i++) {
        if (memcmp(vectors[first].bytes, vectors[i].bytes, vectors[i].size) != 0) first = i;
        int64_t number = vectors[i].number;
        index[number] = is_one_number(&vectors[i], size) ? number % part : vectors[first].number;
    }
    for (int64_t v = 0; v < count; v++) index[v] = index[v] == v ? distinct++ : index[index[v]];
    return distinct;
}

/* Whether positions, not training, made the elements: masks, sinusoids, slopes; or nothing tells. */
static bool is_fixed(const OnnxTensor *tensor)
{
    const Value value = {.dtype = tensor->dtype, .shape = tensor->shape, .data = (void *)tensor->data};
    return elements_are_mask(value.dtype, &value.shape, value.data) ||
           elements_are_sinusoids(value.dtype, &value.shape, value.data) || elements_are_linear(&value) ||
           memcmp(tensor->data, (const char *)tensor->data + dtype_size(tensor->dtype),
                  tensor->bytes - dtype_size(tensor->dtype)) == 0;
}

static ParameterCopies *new_copies(const Shape *shape, int axis, Arena *arena)
{
    ParameterCopies *copies = arena_new(arena, ParameterCopies);
    *copies = (ParameterCopies){.shape = *shape, .axis = axis};
    int64_t count = shape_elements(shape) / shape->dim[axis];
    copies->index = arena_new_array(arena, int64_t, (size_t)count);
    return copies;
}

const ParameterCopies *find_copies(const OnnxTensor *tensor, Arena *arena, OnnxTensor *distinct)
{
    const Shape *shape = &tensor->shape;
    int64_t elements = shape_elements(shape), least = elements;
    if (elements < 2 || elements > MOST_ELEMENTS || is_fixed(tensor)) return NULL;
    size_t row = tensor->bytes / (size_t)shape->dim[0];
    bool batch = shape->rank > 2 && memcmp(tensor->data, (const char *)tensor->data + row, tensor->bytes - row) == 0;
    int last = shape->rank - 1;
    ParameterCopies *best = NULL;
    int64_t rows = 0;
    for (int axis = last; axis >= 0; axis--) {
        /* Besides the last axis, that of the heads to whose scores it is added: [rows, HEADS, queries, keys]. */
        bool heads = axis == shape->rank - 3 && shape->dim[last] > 1 && shape->dim[last - 1] > 1;
        if ((axis != last && !heads) || shape->dim[axis] < 2) continue;
        ParameterCopies *copies = new_copies(shape, axis, arena);
        int64_t count = elements / shape->dim[axis], part = batch && axis ? count / shape->dim[0] : count;
        int64_t found = number_vectors(tensor, axis, part, copies->index);
        bool few = axis == last || 2 * found <= part; /* of pairs of positions many have one distance */
        if (!few || found * shape->dim[axis] >= least) continue;
        least = found * shape->dim[axis], rows = found, best = copies;
        best->expands = batch && found == part && axis == last;
    }
    bool one = shape->rank > 2 || rows == 1; /* of the rows of a matrix some may be equal */
    if (!best || !one) return NULL;
    size_t size = dtype_size(tensor->dtype);
    char *data = arena_allocate(arena, (size_t)least * size);
    move_vectors(shape, best->axis, size, best->index, (char *)tensor->data, data, true);
    *distinct = (OnnxTensor){.dtype = tensor->dtype, .data = data, .bytes = (size_t)least * size};
    distinct->shape = (Shape){2, {rows, shape->dim[best->axis]}};
    if (best->expands) {
        distinct->shape = *shape;
        distinct->shape.dim[0] = 1;
    }
    return best;
}

/* The first of the sorted vectors that is not less. */
static int64_t lower_bound(const Vector *vectors, int64_t count, const char *bytes)
{
    int64_t low = 0;
    for (int64_t high = count; low < high;) {
        int64_t middle = low + (high - low) / 2;
        if (memcmp(vectors[middle].bytes, bytes, vectors->size) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const ParameterCopies *find_rows(const OnnxTensor *tensor, const ParameterCopies *copies, const OnnxTensor *table,
                                 Arena *arena)
{
    int last = tensor->shape.rank - 1;
    int64_t width = tensor->shape.dim[last], count = shape_elements(&tensor->shape) / (width ? width : 1), known = 0;
    if (width < 2 || count < 1 || count > MOST_ELEMENTS / width || table->dtype != tensor->dtype ||
        table->shape.rank != 2 || table->shape.dim[1] != width || (!copies && is_fixed(tensor)))
        return NULL;
    ParameterCopies *found = new_copies(&tensor->shape, last, arena);
    FREED char *bytes = NULL;
    FREED Vector *vectors = sorted_vectors(tensor, last, &bytes);
    size_t row = vectors->size, size = dtype_size(tensor->dtype);
    bool telling = false;
    for (int64_t v = 0; v < count; v++) found->index[v] = -1;
    for (int64_t r = 0; r < table->shape.dim[0] && known < count; r++) {
        const char *wanted = (const char *)table->data + (size_t)r * row;
        for (int64_t k = lower_bound(vectors, count, wanted); k < count; k++, known++) {
            int64_t *index = &found->index[vectors[k].number];
            if (*index >= 0 || memcmp(vectors[k].bytes, wanted, row) != 0) break;
            *index = r;
            telling |= !is_one_number(&vectors[k], size);
        }
    }
    if (!telling || known < count) return NULL;
    if (!copies) return found;
    ParameterCopies *both = new_copies(&copies->shape, copies->axis, arena);
    int64_t all = shape_elements(&both->shape) / both->shape.dim[both->axis];
    for (int64_t v = 0; v < all; v++) both->index[v] = found->index[copies->index[v]];
    return both;
}
