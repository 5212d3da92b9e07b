/* Compiled objects on disk, named by kernel and by everything else the code depends on: the target, the LLVM version
 * and the compiler that contains this function. An optimisation only: what is missing, damaged or cannot be written is
 * compiled again, silently. */
#ifndef CODEGEN_CACHE_H
#define CODEGEN_CACHE_H

#include "base/buffer.h"
#include "codegen/target.h"

/* $SKYCC_CACHE, else skycc in $XDG_CACHE_HOME or in ~/.cache; NULL if there is none or $SKYCC_CACHE is empty. */
const char *cache_default_directory(Arena *arena);

typedef struct Cache {
    const char *directory; /* NULL: nothing is kept */
    Hash environment;
} Cache;

/* Makes the directory if need be. `directory` may be NULL and must outlive the cache. */
void cache_open(Cache *cache, const char *directory, const Target *target);
/* Appends the object to `object`; false if it is not there. */
bool cache_load(const Cache *cache, Hash kernel, Buffer *object);
void cache_store(const Cache *cache, Hash kernel, const Buffer *object);

#endif
