/* Region allocator: one arena per phase, freed whole.
 *
 * Memory is zeroed and aligned to 16 bytes. The arena owns it; single objects cannot be freed. Allocation never returns
 * NULL: when the system has no memory left, memory_exhausted() says so and ends the process with EXIT_BAD_INPUT by
 * exit(), which removes unfinished output files (base/file.h). */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Arena {
    struct ArenaBlock *block;
} Arena;

void *arena_allocate(Arena *arena, size_t bytes);
/* `count` elements of `size` bytes; a product that overflows is treated as exhausted memory. */
void *arena_allocate_array(Arena *arena, size_t count, size_t size);
/* A copy of `bytes` bytes; `source` may be NULL if `bytes` is 0. */
void *arena_copy(Arena *arena, const void *source, size_t bytes);
/* Strings end with a NUL; `length` bytes of `string` need not. */
char *arena_string(Arena *arena, const char *string);
char *arena_string_n(Arena *arena, const char *string, size_t length);
char *arena_format(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_format_va(Arena *arena, const char *format, va_list arguments);
/* Frees every object; the arena is then empty, and may be used again. */
void arena_free(Arena *arena);

#define arena_new(arena, type) ((type *)arena_allocate((arena), sizeof(type)))
#define arena_new_array(arena, type, count) ((type *)arena_allocate_array((arena), (count), sizeof(type)))

/* Like malloc and its family, but never NULL; free() the result. Only memory_allocate zeroes memory. */
void *memory_allocate(size_t bytes);
void *memory_resize(void *pointer, size_t count, size_t size);
_Noreturn void memory_exhausted(void);

/* A local variable that is freed when its block ends, however that is left: after FREED_WITH(arena_free) Arena arena =
 * {0}; arena_free(&arena) is called there, after the value of a return is computed. FREED char *text: free(text). The
 * last variable declared is the first freed. */
#define FREED_WITH(function) __attribute__((cleanup(function)))
#define FREED FREED_WITH(memory_free)
void memory_free(void *pointer_to_pointer); /* for FREED */

/* Growable arrays: `items`, `count` and `capacity` are lvalues; the array is malloc'ed, free it with free(). */
#define array_push(items, count, capacity, value)                                                                      \
    do {                                                                                                               \
        if ((count) == (capacity)) {                                                                                   \
            (capacity) = (capacity) ? 2 * (capacity) : 8;                                                              \
            (items) = memory_resize((items), (capacity), sizeof *(items));                                             \
        }                                                                                                              \
        (items)[(count)++] = (value);                                                                                  \
    } while (0)

/* Overflow-checked size arithmetic: false on overflow. */
static inline bool size_multiply(size_t a, size_t b, size_t *product) { return !__builtin_mul_overflow(a, b, product); }
static inline bool size_add(size_t a, size_t b, size_t *sum) { return !__builtin_add_overflow(a, b, sum); }

#endif
