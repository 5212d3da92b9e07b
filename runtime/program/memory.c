#include "runtime/program/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/program/parallel.h"

enum { HUGE_PAGE = 2 << 20 };

/* Address space of `size` bytes that starts at a multiple of a huge page. */
static void *map_aligned(size_t size)
{
    size_t with_slack = size + HUGE_PAGE;
    unsigned char *bytes = mmap(NULL, with_slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) return MAP_FAILED;
    size_t before = memory_round_up((uintptr_t)bytes, HUGE_PAGE) - (uintptr_t)bytes;
    if (before) munmap(bytes, before);
    if (before < HUGE_PAGE) munmap(bytes + before + size, HUGE_PAGE - before);
    return bytes + before;
}

bool memory_map(MemoryRegion *region, size_t size, int threads, const char *what, Diagnostics *diagnostics)
{
    *region = (MemoryRegion){0};
    if (size == 0) return true;
    bool huge = size >= HUGE_PAGE;
    size_t page = huge ? HUGE_PAGE : 4096;
    if (size > SIZE_MAX / 2) bug("%zu bytes for %s", size, what);
    size = memory_round_up(size, page);
    void *bytes =
        huge ? map_aligned(size) : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED)
        return diagnostics_error(diagnostics, EXIT_BAD_INPUT, PLACE_NONE, NULL, "no memory for %s (%zu bytes): %s",
                                 what, size, strerror(errno));
    if (huge) madvise(bytes, size, MADV_HUGEPAGE); /* a refusal costs speed only */
    if (threads) parallel_zero(threads, bytes, size);
    *region = (MemoryRegion){bytes, size};
    return true;
}

void memory_unmap(MemoryRegion *region)
{
    if (region->bytes) munmap(region->bytes, region->size);
    *region = (MemoryRegion){0};
}
