#include "base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

static void reserve(Buffer *buffer, size_t more)
{
    size_t needed;
    if (!size_add(buffer->size, more, &needed) || !size_add(needed, 1, &needed)) memory_exhausted();
    if (needed <= buffer->capacity) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity < needed)
        if (!size_multiply(capacity, 2, &capacity)) memory_exhausted();
    buffer->bytes = memory_resize(buffer->bytes, capacity, 1);
    buffer->capacity = capacity;
}

void *buffer_extend(Buffer *buffer, size_t size)
{
    reserve(buffer, size);
    buffer->size += size;
    buffer->bytes[buffer->size] = '\0';
    return buffer->bytes + buffer->size - size;
}

void buffer_append(Buffer *buffer, const void *bytes, size_t size)
{
    if (buffer->limit && (size > buffer->limit || buffer->size > buffer->limit - size)) {
        buffer->cut = true;
        return;
    }
    reserve(buffer, size);
    if (size) memcpy(buffer->bytes + buffer->size, bytes, size);
    buffer->size += size;
    buffer->bytes[buffer->size] = '\0';
}

void buffer_print(Buffer *buffer, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    buffer_print_va(buffer, format, arguments);
    va_end(arguments);
}

void buffer_print_va(Buffer *buffer, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    reserve(buffer, 64); /* most texts fit at once */
    size_t room = buffer->capacity - buffer->size;
    int length = vsnprintf(buffer->bytes + buffer->size, room, format, arguments);
    if (length < 0) memory_exhausted();
    if ((size_t)length >= room) {
        reserve(buffer, (size_t)length);
        vsnprintf(buffer->bytes + buffer->size, (size_t)length + 1, format, again);
    }
    va_end(again);
    buffer->size += (size_t)length;
}

void buffer_align(Buffer *buffer, size_t alignment)
{
    static const char zero[64];
    while (buffer->size % alignment) {
        size_t missing = alignment - buffer->size % alignment;
        buffer_append(buffer, zero, missing < sizeof zero ? missing : sizeof zero);
    }
}

const char *buffer_text(const Buffer *buffer) { return buffer->bytes ? buffer->bytes : ""; }

void buffer_free(Buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (Buffer){0};
}
