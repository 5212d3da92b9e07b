/* A growable byte buffer, always followed by a NUL that is not counted: for text and binary output alike. */
#ifndef BASE_BUFFER_H
#define BASE_BUFFER_H

#include "base/arena.h"

typedef struct Buffer {
    char *bytes; /* NULL while empty */
    size_t size, capacity;
    size_t limit; /* of the size; 0: none. What would pass it is left out, */
    bool cut;     /* and noted */
} Buffer;

void buffer_append(Buffer *buffer, const void *bytes, size_t size);
/* Makes it longer by so many bytes, which the caller writes: their place. The limit does not hold for them. */
void *buffer_extend(Buffer *buffer, size_t size);
void buffer_print(Buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_print_va(Buffer *buffer, const char *format, va_list arguments) __attribute__((format(printf, 2, 0)));
void buffer_align(Buffer *buffer, size_t alignment); /* pads with zero bytes */
const char *buffer_text(const Buffer *buffer);       /* never NULL */
void buffer_free(Buffer *buffer);

#endif
