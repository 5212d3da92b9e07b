#include "codegen/stage/value_arrays.h"

#include <stdlib.h>
#include <string.h>

#include "base/diagnostics.h"

typedef struct ValueArray {
    char *elements;
    size_t element_bytes;
    bool taken;
} ValueArray;

struct ValueArrays {
    size_t values;
    ValueArray *arrays;
    size_t array_count, array_capacity;
    ValueId *visited;
    size_t visited_count, visited_capacity;
    bool *seen; /* per value: whether it is among the visited */
};

ValueArrays *value_arrays_create(size_t values)
{
    ValueArrays *arrays = memory_allocate(sizeof *arrays);
    *arrays = (ValueArrays){.values = values, .seen = memory_allocate(values)};
    return arrays;
}

void value_arrays_visit(ValueArrays *arrays, ValueId value)
{
    if (arrays->seen[value]) return;
    arrays->seen[value] = true;
    array_push(arrays->visited, arrays->visited_count, arrays->visited_capacity, value);
}

void *value_array_take(ValueArrays *arrays, size_t element_bytes)
{
    for (size_t i = 0; i < arrays->array_count; i++) {
        ValueArray *array = &arrays->arrays[i];
        if (array->taken || array->element_bytes != element_bytes) continue;
        array->taken = true;
        return array->elements;
    }
    ValueArray array = {memory_allocate(arrays->values * element_bytes), element_bytes, true};
    array_push(arrays->arrays, arrays->array_count, arrays->array_capacity, array);
    return array.elements;
}

void value_array_return(ValueArrays *arrays, void *array)
{
    for (size_t i = 0; i < arrays->array_count; i++) {
        ValueArray *own = &arrays->arrays[i];
        if (own->elements != array) continue;
        for (size_t v = 0; v < arrays->visited_count; v++)
            memset(own->elements + arrays->visited[v] * own->element_bytes, 0, own->element_bytes);
        own->taken = false;
    }
}

void value_arrays_clear(ValueArrays *arrays)
{
    for (size_t i = 0; i < arrays->array_count; i++)
        if (arrays->arrays[i].taken) bug("a stage keeps an array of values");
    for (size_t v = 0; v < arrays->visited_count; v++) arrays->seen[arrays->visited[v]] = false;
    arrays->visited_count = 0;
}

void value_arrays_free(ValueArrays *arrays)
{
    for (size_t i = 0; i < arrays->array_count; i++) {
        const ValueArray *array = &arrays->arrays[i];
        size_t bytes = arrays->values * array->element_bytes;
        if (bytes && (array->elements[0] || memcmp(array->elements, array->elements + 1, bytes - 1) != 0))
            bug("a stage touched a value that it did not visit");
        free(array->elements);
    }
    free(arrays->arrays);
    free(arrays->visited);
    free(arrays->seen);
    free(arrays);
}
