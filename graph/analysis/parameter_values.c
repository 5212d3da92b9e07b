#include "graph/analysis/parameter_values.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/weight_blocks.h"

bool parameter_has_values(const Value *value) { return value->data || value->stored_from; }

static void store_row(DType dtype, const float *row, int64_t columns, void *bytes, int64_t at)
{
    char *to = (char *)bytes + dtype_bytes(dtype, at);
    if (dtype_in_blocks(dtype))
        weight_blocks_encode(dtype, row, columns, to);
    else
        for (int64_t i = 0; i < columns; i++) element_store_double(dtype, to, i, (double)row[i]);
}

void parameter_copy_values(const Value *value, void *bytes)
{
    int64_t elements = shape_elements(&value->shape);
    if (value->data) memcpy(bytes, value->data, (size_t)dtype_bytes(value->dtype, elements));
    if (value->data || !value->stored_from) return;
    int64_t rows = value->shape.dim[0], columns = value->shape.dim[1];
    FREED float *row = memory_allocate((size_t)columns * sizeof *row);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            int64_t at = value->stored_turned ? c * rows + r : r * columns + c;
            row[c] = (float)element_as_double(value->stored_type, value->stored_from, at);
        }
        store_row(value->dtype, row, columns, bytes, r * columns);
    }
}

float *parameter_as_stored(const Value *value, const Value *stored)
{
    int64_t elements = shape_elements(&value->shape), columns = value->shape.rank > 1 ? value->shape.dim[1] : 1;
    FREED void *bytes = memory_allocate((size_t)dtype_bytes(stored->dtype, elements));
    float *values = memory_allocate((size_t)elements * sizeof *values);
    parameter_copy_values(stored, bytes);
    for (int64_t i = 0; i < elements; i++) {
        int64_t at = stored->stored_turned ? i % columns * (elements / columns) + i / columns : i;
        values[i] = (float)element_as_double(stored->dtype, bytes, at);
    }
    return values;
}

bool parameter_form(const Value *value, uint64_t check, Value *stored)
{
    int64_t elements = shape_elements(&value->shape);
    Value own = *value;
    bool fits = hash_bytes(value->data, (size_t)dtype_bytes(value->dtype, elements)).low == check;
    static const DType forms[] = {DTYPE_BF16, DTYPE_Q8, DTYPE_Q4, DTYPE_F32};
    for (size_t i = 0; value->shape.rank == 2 && !fits && i < 2 * sizeof forms / sizeof *forms; i++) {
        own = (Value){.dtype = forms[i / 2], .shape = value->shape, .stored_from = value->data};
        own.stored_type = value->dtype;
        own.stored_turned = i % 2;
        if (own.stored_turned) own.shape = (Shape){2, {value->shape.dim[1], value->shape.dim[0]}};
        if (dtype_in_blocks(own.dtype) && own.shape.dim[1] % DTYPE_BLOCK) continue;
        size_t bytes = (size_t)dtype_bytes(own.dtype, elements);
        FREED void *values = memory_allocate(bytes);
        parameter_copy_values(&own, values);
        fits = hash_bytes(values, bytes).low == check;
    }
    if (stored) *stored = own;
    return fits;
}
