#include "runtime/storage/hash_cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/user_cache.h"

static const int64_t settled_s = 2; /* more than the resolution of times in any file system */

/* An entry. `check` is of the key and the hash: half an entry is none. */
typedef struct Entry {
    Hash hash, check;
} Entry;

static Hash check_of(Hash key, Hash hash) { return hash_extend(key, &hash, sizeof hash); }

Hash hash_cache_key(int descriptor, size_t offset, Hash reading)
{
    static const char version[] = "skycc data 1";
    struct stat s;
    if (fstat(descriptor, &s) != 0) memset(&s, 0, sizeof s);
    const int64_t fields[] = {(int64_t)s.st_dev, (int64_t)s.st_ino, s.st_size,         s.st_mtim.tv_sec,
                              s.st_mtim.tv_nsec, s.st_ctim.tv_sec,  s.st_ctim.tv_nsec, (int64_t)offset};
    Hash key = hash_extend(hash_bytes(version, sizeof version), fields, sizeof fields);
    return hash_extend(key, &reading, sizeof reading);
}

/* The path of the entry, in a folder that is made if need be; NULL if there is none that is this user's alone. */
static const char *path_of(Hash key, Arena *arena)
{
    char name[33];
    struct stat status;
    const char *cache = user_cache_directory(arena);
    const char *folder = cache ? arena_format(arena, "%s/data", cache) : NULL;
    if (!folder || !user_cache_create(folder) || stat(folder, &status) != 0 || status.st_uid != geteuid() ||
        (status.st_mode & (S_IWGRP | S_IWOTH)))
        return NULL;
    return arena_format(arena, "%s/%s", folder, hash_format(key, name));
}

bool hash_cache_find(Hash key, Hash *hash)
{
    FREED_WITH(arena_free) Arena arena = {0};
    Entry entry = {0};
    const char *path = path_of(key, &arena);
    FREED_WITH(descriptor_close) int file = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    bool found = file >= 0 && read(file, &entry, sizeof entry) == (ssize_t)sizeof entry &&
                 hash_equal(entry.check, check_of(key, entry.hash));
    *hash = entry.hash;
    return found;
}

void hash_cache_keep(int descriptor, Hash key, Hash hash)
{
    FREED_WITH(arena_free) Arena arena = {0};
    struct stat status;
    const Entry entry = {hash, check_of(key, hash)};
    const char *path = path_of(key, &arena);
    bool settled = fstat(descriptor, &status) == 0 && time(NULL) - status.st_ctim.tv_sec > settled_s;
    FREED char *temporary = path && settled ? memory_allocate(strlen(path) + sizeof ".XXXXXX") : NULL;
    if (temporary) sprintf(temporary, "%s.XXXXXX", path);
    int file = temporary ? mkostemp(temporary, O_CLOEXEC) : -1;
    if (file >= 0) {
        bool whole = write(file, &entry, sizeof entry) == (ssize_t)sizeof entry;
        if (close(file) != 0 || !whole || rename(temporary, path) != 0) unlink(temporary);
    }
}
