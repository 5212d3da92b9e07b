#include "frontend/text/examples.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"

static const struct {
    const char *name;
    bool per_token;
} parts[PART_COUNT] = {{"input_ids", true},   {"attention_mask", true},   {"token_type_ids", true},
                       {"input_ids_2", true}, {"attention_mask_2", true}, {"token_type_ids_2", true},
                       {"lengths", false},    {"start_positions", false}, {"end_positions", false},
                       {"row", false},        {"text_begin", true},       {"text_end", true},
                       {"labels", true},      {"labels", false}};

static size_t per_row(const Examples *examples, ExamplePart part)
{
    return parts[part].per_token ? examples->length : 1;
}

static void grow(Examples *examples, ExamplePart part)
{
    size_t row;
    if (!size_multiply(per_row(examples, part), sizeof(int32_t), &row)) memory_exhausted();
    examples->parts[part] = memory_resize(examples->parts[part], examples->capacity, row);
}

void examples_use(Examples *examples, ExamplePart part)
{
    if (!examples->capacity) examples->capacity = 256;
    grow(examples, part);
}

int32_t *examples_at(const Examples *examples, ExamplePart part, size_t row)
{
    return examples->parts[part] + row * per_row(examples, part);
}

TokenRow examples_room(Examples *examples, bool second)
{
    if (examples->count == examples->capacity) {
        examples->capacity *= 2;
        for (ExamplePart part = 0; part < PART_COUNT; part++)
            if (examples->parts[part]) grow(examples, part);
    }
    ExamplePart first = second ? PART_SECOND_IDS : PART_IDS;
    return (TokenRow){.ids = examples_at(examples, first, examples->count),
                      .mask = examples_at(examples, first + 1, examples->count),
                      .types = examples_at(examples, first + 2, examples->count),
                      .length = examples->length};
}

static void add_rows(SafeTensorsWriter *writer, Arena *copies, const char *name, DType dtype, const void *data,
                     size_t each, const uint32_t *rows, size_t count, bool vector)
{
    size_t row = each * sizeof(int32_t);
    char *copy = arena_allocate_array(copies, count, row);
    for (size_t i = 0; i < count; i++) memcpy(copy + i * row, (const char *)data + rows[i] * row, row);
    const Shape shape = {vector ? 1 : 2, {(int64_t)count, (int64_t)each}};
    safetensors_writer_add(writer, name, dtype, &shape, copy);
}

void examples_write(const Examples *examples, const uint32_t *rows, size_t count, Arena *copies,
                    SafeTensorsWriter *writer)
{
    for (ExamplePart part = 0; part < PART_COUNT; part++)
        if (examples->parts[part])
            add_rows(writer, copies, parts[part].name, DTYPE_I32, examples->parts[part], per_row(examples, part), rows,
                     count, !parts[part].per_token);
    if (examples->reals)
        add_rows(writer, copies, "labels", DTYPE_F32, examples->reals,
                 examples->reals_per_row ? examples->reals_per_row : 1, rows, count, !examples->reals_per_row);
}

static size_t table_row(const Examples *examples, size_t example)
{
    return examples->parts[PART_ROW] ? (size_t)examples->parts[PART_ROW][example] : example;
}

size_t examples_table_rows(const Examples *examples)
{
    return examples->count ? table_row(examples, examples->count - 1) + 1 : 0;
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

/* Brings the rows into the order of their classes; within one they stay as they are. */
static void order_by_class(const Examples *examples, uint32_t *order, size_t rows)
{
    FREED DrawnRow *drawn = memory_allocate(rows * sizeof *drawn);
    for (size_t i = 0; i < rows; i++)
        drawn[i] = (DrawnRow){*examples_at(examples, PART_CLASSES, order[i]), (uint32_t)i, order[i]};
    qsort(drawn, rows, sizeof *drawn, by_class_and_turn);
    for (size_t i = 0; i < rows; i++) order[i] = drawn[i].row;
}

size_t examples_split(const Examples *examples, size_t count, bool by_class, uint64_t seed, uint32_t *chosen)
{
    size_t rows = examples_table_rows(examples), inside = 0;
    FREED bool *held = memory_allocate(rows);
    FREED uint32_t *order = memory_resize(NULL, rows, sizeof *order);
    random_permutation(random_stream(seed, "tokenize/holdout"), order, rows);
    bool spread = by_class && examples->parts[PART_CLASSES];
    if (spread) order_by_class(examples, order, rows);
    for (size_t i = 0; i < rows; i++) /* the first ones, or evenly spread ones */
        held[order[i]] = spread ? (i + 1) * count / rows > i * count / rows : i < count;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < examples->count; i++)
            if (held[table_row(examples, i)] == !pass) chosen[inside++] = (uint32_t)i;
    inside = 0;
    for (size_t i = 0; i < examples->count; i++) inside += held[table_row(examples, i)];
    return inside;
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
    FREED uint32_t *turns = memory_allocate(count * sizeof *turns);
    DrawnRow *drawn = memory_allocate(count * sizeof *drawn), *end = drawn + count;
    random_permutation(random_stream(seed, "tokenize/balance"), turns, count);
    for (size_t i = 0; i < count; i++) drawn[i] = (DrawnRow){examples->parts[PART_CLASSES][rows[i]], turns[i], rows[i]};
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
    *balanced = length;
    return list;
}

void examples_free(Examples *examples)
{
    for (ExamplePart part = 0; part < PART_COUNT; part++) free(examples->parts[part]);
    free(examples->reals);
}
