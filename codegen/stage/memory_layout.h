/* Static memory: buffers with known lifetimes packed into one block. */
#ifndef CODEGEN_STAGE_MEMORY_LAYOUT_H
#define CODEGEN_STAGE_MEMORY_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

enum { BUFFER_ALIGNMENT = 64 };

typedef struct BufferLifetime {
    uint64_t bytes;
    size_t first, last; /* the calls between which the buffer is in use, both inclusive */
    uint64_t offset;    /* result: a multiple of BUFFER_ALIGNMENT */
} BufferLifetime;

static inline uint64_t align_bytes(uint64_t bytes)
{
    return (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
}

/* Chooses offsets so that buffers alive at the same call do not overlap: the largest first, each at the lowest place
 * that is free (greedy by size, Pisarchyk and Lee 2020). Returns the bytes of the block. */
uint64_t memory_pack(BufferLifetime *buffers, size_t count);

#endif
