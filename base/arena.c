#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/exit_codes.h"

/* Under AddressSanitizer every object is a block of its own, so that accesses beyond it are seen. */
#if defined(__has_feature)
#define ADDRESS_SANITIZER __has_feature(address_sanitizer)
#elif defined(__SANITIZE_ADDRESS__)
#define ADDRESS_SANITIZER 1
#else
#define ADDRESS_SANITIZER 0
#endif

enum { BLOCK_BYTES = 1 << 16, ALIGNMENT = 16, HUGE_PAGE = 2 << 20, SEPARATE_OBJECTS = ADDRESS_SANITIZER };

typedef struct ArenaBlock {
    struct ArenaBlock *previous;
    size_t used, size;
    _Alignas(ALIGNMENT) unsigned char bytes[];
} ArenaBlock;

_Noreturn void memory_exhausted(void)
{
    fputs("skycc: error: out of memory\n", stderr);
    exit(EXIT_BAD_INPUT);
}

/* Asks for huge pages where there is room for them: the first access to a table of many megabytes is then several times
 * faster, because one huge page replaces 512 small ones. */
static void prefer_huge_pages(const void *bytes, size_t size)
{
    uintptr_t first = ((uintptr_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, end = (uintptr_t)bytes + size;
    if (size >= 2 * HUGE_PAGE) madvise((void *)first, (end - first) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
}

void *memory_allocate(size_t bytes)
{
    void *pointer = calloc(1, bytes ? bytes : 1);
    if (!pointer) memory_exhausted();
    prefer_huge_pages(pointer, bytes);
    return pointer;
}

void *memory_resize(void *pointer, size_t count, size_t size)
{
    size_t bytes;
    if (!size_multiply(count, size, &bytes)) memory_exhausted();
    pointer = realloc(pointer, bytes ? bytes : 1);
    if (!pointer) memory_exhausted();
    return pointer;
}

void *arena_allocate(Arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX - BLOCK_BYTES) memory_exhausted();
    if (!SEPARATE_OBJECTS) bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    ArenaBlock *block = arena->block;
    if (SEPARATE_OBJECTS || !block || block->size - block->used < bytes) {
        bool alone = SEPARATE_OBJECTS || bytes > BLOCK_BYTES / 4;
        size_t size = alone ? bytes : BLOCK_BYTES;
        /* A shared block is zeroed object by object below: many short-lived arenas use a small part of one. */
        block = alone ? calloc(1, sizeof *block + size) : malloc(sizeof *block + size);
        if (!block) memory_exhausted();
        prefer_huge_pages(block, sizeof *block + size);
        block->used = 0;
        block->size = size;
        /* A large object gets a block of its own. The current block stays current, so that its rest is used. */
        if (alone && arena->block) {
            block->previous = arena->block->previous;
            arena->block->previous = block;
        } else {
            block->previous = arena->block;
            arena->block = block;
        }
    }
    void *pointer = block->bytes + block->used;
    block->used += bytes;
    return block->size == BLOCK_BYTES ? memset(pointer, 0, bytes) : pointer;
}

void *arena_allocate_array(Arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!size_multiply(count, size, &bytes)) memory_exhausted();
    return arena_allocate(arena, bytes);
}

void *arena_copy(Arena *arena, const void *source, size_t bytes)
{
    void *copy = arena_allocate(arena, bytes);
    if (bytes) memcpy(copy, source, bytes);
    return copy;
}

char *arena_string_n(Arena *arena, const char *string, size_t length)
{
    char *copy = arena_allocate(arena, length + 1);
    if (length) memcpy(copy, string, length);
    return copy;
}

char *arena_string(Arena *arena, const char *string) { return arena_string_n(arena, string, strlen(string)); }

char *arena_format_va(Arena *arena, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) memory_exhausted();
    char *text = arena_allocate(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    return text;
}

void memory_free(void *pointer_to_pointer) { free(*(void **)pointer_to_pointer); }

char *arena_format(Arena *arena, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = arena_format_va(arena, format, arguments);
    va_end(arguments);
    return text;
}

void arena_free(Arena *arena)
{
    for (ArenaBlock *block = arena->block, *previous; block; block = previous) {
        previous = block->previous;
        free(block);
    }
    arena->block = NULL;
}
