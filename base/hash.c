#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/arena.h"

Hash hash_bytes(const void *bytes, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, size);
    return (Hash){hash.high64, hash.low64};
}

Hash hash_extend(Hash hash, const void *bytes, size_t size)
{
    XXH128_hash_t next = XXH3_128bits_withSeed(bytes, size, hash.low);
    uint64_t words[4] = {hash.high, hash.low, next.high64, next.low64};
    return hash_bytes(words, sizeof words);
}

struct HashStream {
    XXH3_state_t *state;
};

HashStream *hash_stream(void)
{
    HashStream *stream = memory_allocate(sizeof *stream);
    stream->state = XXH3_createState();
    if (!stream->state) memory_exhausted();
    XXH3_128bits_reset(stream->state);
    return stream;
}

void hash_stream_add(HashStream *stream, const void *bytes, size_t size)
{
    XXH3_128bits_update(stream->state, bytes, size);
}

Hash hash_stream_end(HashStream *stream)
{
    XXH128_hash_t hash = XXH3_128bits_digest(stream->state);
    XXH3_freeState(stream->state);
    free(stream);
    return (Hash){hash.high64, hash.low64};
}

const char *hash_format(Hash hash, char text[static 33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
    return text;
}
