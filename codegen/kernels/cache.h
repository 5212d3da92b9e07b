/* Compiled objects on disk, named by kernel and by everything else the code depends on: the target, the LLVM version
 * and the sources of this folder and of those it is built on. The cache only saves time: what is missing, damaged,
 * stored under another name, or cannot be written, is compiled again without a message. */
#ifndef CODEGEN_KERNELS_CACHE_H
#define CODEGEN_KERNELS_CACHE_H

#include "base/buffer.h"
#include "codegen/kernels/target.h"

/* What SKYCC_CACHE_SIZE says if that is set, else 256 MiB. 0: no limit. False if it is set to no size. */
bool cache_default_limit(int64_t *bytes);

typedef struct Cache {
    const char *directory; /* NULL: nothing is kept */
    Hash environment;
} Cache;

/* Makes the directory if need be, for its user alone. A directory that others may write into, or that belongs to
 * another user than root, is not used, with a warning: what lies there is linked. `directory` may be NULL and must
 * outlive the cache. */
void cache_open(Cache *cache, const char *directory, const Target *target, Diagnostics *diagnostics);
/* Appends the object to `object`; false if it is not there. */
bool cache_load(const Cache *cache, Hash kernel, Buffer *object);
void cache_store(const Cache *cache, Hash kernel, const Buffer *object);
/* If the objects, of whatever environment, take more than `limit` bytes (0: never), removes those that were not used
 * for longest until they take four fifths of it, and what interrupted compilers left. Other files stay. Others may load
 * and store meanwhile: what they miss they compile. */
void cache_prune(const Cache *cache, int64_t limit);

#endif
