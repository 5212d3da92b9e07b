#include "codegen/stage/memory_layout.h"

#include <stdlib.h>

#include "base/arena.h"

typedef struct PackingOrder {
    const BufferLifetime *buffer;
    size_t index;
} PackingOrder;

static int by_descending_size(const void *a, const void *b)
{
    const PackingOrder *x = a, *y = b;
    if (x->buffer->bytes != y->buffer->bytes) return x->buffer->bytes < y->buffer->bytes ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_offset(const void *a, const void *b)
{
    const BufferLifetime *x = *(BufferLifetime *const *)a, *y = *(BufferLifetime *const *)b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

uint64_t memory_pack(BufferLifetime *buffers, size_t count)
{
    FREED PackingOrder *order = memory_allocate(count * sizeof *order);
    FREED BufferLifetime **conflicts = memory_allocate(count * sizeof *conflicts);
    for (size_t i = 0; i < count; i++) order[i] = (PackingOrder){&buffers[i], i};
    qsort(order, count, sizeof *order, by_descending_size);
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        BufferLifetime *buffer = &buffers[order[i].index];
        size_t conflict_count = 0;
        for (size_t k = 0; k < i; k++) {
            BufferLifetime *other = &buffers[order[k].index];
            if (other->first <= buffer->last && buffer->first <= other->last) conflicts[conflict_count++] = other;
        }
        qsort(conflicts, conflict_count, sizeof *conflicts, by_offset);
        uint64_t offset = 0;
        for (size_t k = 0; k < conflict_count; k++) {
            if (offset + buffer->bytes <= conflicts[k]->offset) break;
            uint64_t end = align_bytes(conflicts[k]->offset + conflicts[k]->bytes);
            if (end > offset) offset = end;
        }
        buffer->offset = offset;
        if (align_bytes(offset + buffer->bytes) > total) total = align_bytes(offset + buffer->bytes);
    }
    return total;
}
