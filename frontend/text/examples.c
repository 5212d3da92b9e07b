#include "frontend/text/examples.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

TokenRow examples_room(Examples *examples)
{
    if (examples->count == examples->capacity) {
        size_t row;
        examples->capacity = examples->capacity ? 2 * examples->capacity : 256;
        if (!size_multiply(examples->length, sizeof(int32_t), &row)) memory_exhausted();
        examples->ids = memory_resize(examples->ids, examples->capacity, row);
        examples->mask = memory_resize(examples->mask, examples->capacity, row);
        examples->types = memory_resize(examples->types, examples->capacity, row);
        if (examples->masked) examples->token_labels = memory_resize(examples->token_labels, examples->capacity, row);
        examples->lengths = memory_resize(examples->lengths, examples->capacity, sizeof *examples->lengths);
    }
    size_t at = examples->count * examples->length;
    return (TokenRow){.ids = examples->ids + at,
                      .mask = examples->mask + at,
                      .types = examples->types + at,
                      .length = examples->length};
}

static void add_rows(SafeTensorsWriter *writer, Arena *copies, const char *name, DType dtype, const void *data,
                     size_t per_row, const uint32_t *rows, size_t count, bool vector)
{
    size_t row = per_row * sizeof(int32_t);
    char *copy = arena_allocate_array(copies, count, row);
    for (size_t i = 0; i < count; i++) memcpy(copy + i * row, (const char *)data + rows[i] * row, row);
    const Shape shape = {vector ? 1 : 2, {(int64_t)count, (int64_t)per_row}};
    safetensors_writer_add(writer, name, dtype, &shape, copy);
}

void examples_write(const Examples *examples, const uint32_t *rows, size_t count, Arena *copies,
                    SafeTensorsWriter *writer)
{
    size_t length = examples->length;
    add_rows(writer, copies, "input_ids", DTYPE_I32, examples->ids, length, rows, count, false);
    add_rows(writer, copies, "attention_mask", DTYPE_I32, examples->mask, length, rows, count, false);
    add_rows(writer, copies, "token_type_ids", DTYPE_I32, examples->types, length, rows, count, false);
    add_rows(writer, copies, "lengths", DTYPE_I32, examples->lengths, 1, rows, count, true);
    if (examples->masked)
        add_rows(writer, copies, "labels", DTYPE_I32, examples->token_labels, length, rows, count, false);
    else if (examples->reals)
        add_rows(writer, copies, "labels", DTYPE_F32, examples->reals,
                 examples->reals_per_row ? examples->reals_per_row : 1, rows, count, !examples->reals_per_row);
    else if (examples->classes)
        add_rows(writer, copies, "labels", DTYPE_I32, examples->classes, 1, rows, count, true);
}

void examples_split(size_t rows, size_t count, uint64_t seed, uint32_t *chosen)
{
    bool *held = memory_allocate(rows);
    random_permutation(random_stream(seed, "tokenize/holdout"), chosen, rows);
    for (size_t i = 0; i < count; i++) held[chosen[i]] = true;
    size_t inside = 0, outside = count;
    for (size_t i = 0; i < rows; i++) chosen[held[i] ? inside++ : outside++] = (uint32_t)i;
    free(held);
}

typedef struct DrawnRow {
    int32_t class;
    uint32_t turn, row;
} DrawnRow;

static int by_class_and_turn(const void *a, const void *b)
{
    const DrawnRow *one = a, *other = b;
    if (one->class != other->class) return one->class < other->class ? -1 : 1;
    return (one->turn > other->turn) - (one->turn < other->turn);
}

static size_t class_size(const DrawnRow *first, const DrawnRow *end)
{
    const DrawnRow *row = first;
    while (row < end && row->class == first->class) row++;
    return (size_t)(row - first);
}

uint32_t *examples_balance(const Examples *examples, const uint32_t *rows, size_t count, uint64_t seed,
                           size_t *balanced)
{
    uint32_t *turns = memory_allocate(count * sizeof *turns);
    DrawnRow *drawn = memory_allocate(count * sizeof *drawn), *end = drawn + count;
    random_permutation(random_stream(seed, "tokenize/balance"), turns, count);
    for (size_t i = 0; i < count; i++) drawn[i] = (DrawnRow){examples->classes[rows[i]], turns[i], rows[i]};
    qsort(drawn, count, sizeof *drawn, by_class_and_turn);
    size_t classes = 0, most = 0, size, cells;
    for (const DrawnRow *first = drawn; first < end; first += size, classes++) {
        size = class_size(first, end);
        if (size > most) most = size;
    }
    if (!size_multiply(classes, most, &cells)) memory_exhausted();
    uint32_t *list = memory_resize(NULL, cells, sizeof *list);
    memcpy(list, rows, count * sizeof *list);
    size_t length = count;
    for (const DrawnRow *first = drawn; first < end; first += size) {
        size = class_size(first, end);
        for (size_t i = size; i < most; i++) list[length++] = first[i % size].row;
    }
    free(drawn);
    free(turns);
    *balanced = length;
    return list;
}

void examples_free(Examples *examples)
{
    free(examples->ids);
    free(examples->mask);
    free(examples->types);
    free(examples->lengths);
    free(examples->token_labels);
    free(examples->classes);
    free(examples->reals);
}
