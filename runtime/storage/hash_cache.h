/* Hashes of tensors of data sets that were read and checked before, in the user's cache folder: a large data set is not
 * read whole at every start. An entry holds for the file with that device, inode, size and times, which nobody can
 * change without changing one of them. Without a folder that this user alone can write, nothing is kept; that is no
 * error. */
#ifndef RUNTIME_STORAGE_HASH_CACHE_H
#define RUNTIME_STORAGE_HASH_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/hash.h"

/* Of what stands at `offset` of the open file, read as `reading` says. */
Hash hash_cache_key(int descriptor, size_t offset, Hash reading);
bool hash_cache_find(Hash key, Hash *hash);
/* Remembers it, unless the file was changed just now: a change within the resolution of its times would not be seen. */
void hash_cache_keep(int descriptor, Hash key, Hash hash);

#endif
