/* The few big allocations of a program: made at start-up, aligned for vectors, on huge pages where the system has them,
 * first touched by the threads that use them. */
#ifndef RUNTIME_PROGRAM_MEMORY_H
#define RUNTIME_PROGRAM_MEMORY_H

#include "base/diagnostics.h"

enum { MEMORY_ALIGNMENT = 64 };

typedef struct MemoryRegion {
    unsigned char *bytes; /* zeroed, aligned to a page; NULL when size is 0 */
    size_t size;
} MemoryRegion;

static inline size_t memory_round_up(size_t size, size_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/* `what` names it in the message when the system refuses. threads 0: whoever touches a page first will use it. */
bool memory_map(MemoryRegion *region, size_t size, int threads, const char *what, Diagnostics *diagnostics);
void memory_unmap(MemoryRegion *region);

#endif
