#include "base/hash.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

const char *hash_format(Hash hash, char text[static 33])
{
    snprintf(text, 33, "%016llx%016llx", (unsigned long long)hash.high, (unsigned long long)hash.low);
    return text;
}
