/* Content hashes (XXH3, 128 bits): names of compiled kernels, identity of models, costs and plans. They detect equal
 * content; they do not protect against deliberate collisions. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Hash {
    uint64_t high, low;
} Hash;

static inline bool hash_equal(Hash a, Hash b) { return a.high == b.high && a.low == b.low; }

Hash hash_bytes(const void *bytes, size_t size);
/* Hashes `hash` and then the bytes, for chaining. */
Hash hash_extend(Hash hash, const void *bytes, size_t size);
/* The hash of bytes that come one after the other: what hash_bytes says of all of them. hash_stream_end frees it. */
typedef struct HashStream HashStream;
HashStream *hash_stream(void);
void hash_stream_add(HashStream *stream, const void *bytes, size_t size);
Hash hash_stream_end(HashStream *stream);
/* 32 hexadecimal digits. */
const char *hash_format(Hash hash, char text[static 33]);

#endif
