#include "codegen/kernels/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <llvm-c/Core.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "base/user_cache.h"
#include "kernel_sources.h"

static const int64_t DEFAULT_LIMIT = 256 << 20;

bool cache_default_limit(int64_t *bytes)
{
    const char *own = getenv("SKYCC_CACHE_SIZE");
    *bytes = DEFAULT_LIMIT;
    return !own || units_parse_bytes(own, bytes);
}

/* Whether nobody else may put objects there, which would be linked. */
static bool is_safe(const char *directory, Diagnostics *diagnostics)
{
    struct stat status;
    if (stat(directory, &status) != 0) return false;
    bool owned = status.st_uid == geteuid() || status.st_uid == 0, closed = !(status.st_mode & (S_IWGRP | S_IWOTH));
    if (owned && closed) return true;
    diagnostics_warning(diagnostics, PLACE_FILE(directory),
                        owned ? "chmod go-w, or let SKYCC_CACHE name another" : "let SKYCC_CACHE name another",
                        "%s: compiled kernels are not kept there",
                        owned ? "others may write into it" : "belongs to another user");
    return false;
}

void cache_open(Cache *cache, const char *directory, const Target *target, Diagnostics *diagnostics)
{
    *cache = (Cache){0};
    if (!directory || !user_cache_create(directory) || !is_safe(directory, diagnostics)) return;
    unsigned version[3];
    LLVMGetVersion(&version[0], &version[1], &version[2]);
    cache->directory = directory;
    cache->environment = hash_extend(target->hash, version, sizeof version);
    cache->environment = hash_extend(cache->environment, KERNEL_SOURCES_HASH, strlen(KERNEL_SOURCES_HASH));
}

static Hash key_of(const Cache *cache, Hash kernel) { return hash_extend(cache->environment, &kernel, sizeof kernel); }

/* The path of the object under that key, plus `suffix`. The caller frees it. */
static char *object_path(const Cache *cache, Hash key, const char *suffix)
{
    char digits[33];
    hash_format(key, digits);
    size_t size = strlen(cache->directory) + strlen(suffix) + 40;
    char *path = memory_allocate(size);
    snprintf(path, size, "%s/%s.o%s", cache->directory, digits, suffix);
    return path;
}

/* A file holds a hash of its key and of the object, then the object: under another key's name it is not used. Its
 * modification time says when it was last used. */
bool cache_load(const Cache *cache, Hash kernel, Buffer *object)
{
    if (!cache->directory) return false;
    Hash key = key_of(cache, kernel);
    char *path = object_path(cache, key, "");
    FILE *file = fopen(path, "rbe");
    free(path);
    if (!file) return false;
    FREED_WITH(buffer_free) Buffer content = {0};
    char chunk[4096];
    for (size_t size; (size = fread(chunk, 1, sizeof chunk, file)) > 0;) buffer_append(&content, chunk, size);
    futimens(fileno(file), NULL); /* may fail: a cache that others own */
    fclose(file);
    bool valid = content.size > sizeof(Hash);
    if (valid) {
        Hash stated, found = hash_extend(key, content.bytes + sizeof(Hash), content.size - sizeof(Hash));
        memcpy(&stated, content.bytes, sizeof stated);
        valid = hash_equal(stated, found);
    }
    if (valid) buffer_append(object, content.bytes + sizeof(Hash), content.size - sizeof(Hash));
    return valid;
}

/* Renamed into place, so that a reader never sees half of it; not flushed: the hash reveals what a crash leaves. */
void cache_store(const Cache *cache, Hash kernel, const Buffer *object)
{
    if (!cache->directory) return;
    char suffix[32];
    snprintf(suffix, sizeof suffix, ".%ld", (long)getpid());
    Hash key = key_of(cache, kernel), hash = hash_extend(key, object->bytes, object->size);
    char *path = object_path(cache, key, ""), *temporary = object_path(cache, key, suffix);
    FILE *file = fopen(temporary, "wbxe");
    if (file) {
        bool written = fwrite(&hash, sizeof hash, 1, file) == 1 && fwrite(object->bytes, object->size, 1, file) == 1;
        written = fclose(file) == 0 && written;
        if (!written || rename(temporary, path) != 0) unlink(temporary);
    }
    free(temporary);
    free(path);
}

/* ---- Pruning ---- */

typedef struct CachedFile {
    char *name;
    struct timespec used;
    int64_t bytes;
} CachedFile;

typedef struct CachedFiles {
    CachedFile *items;
    size_t count, capacity;
    int64_t bytes;
} CachedFiles;

/* Whether a name is one of object_path's; *suffix: what follows ".o". */
static bool is_object(const char *name, const char **suffix)
{
    enum { DIGITS = 32 };
    if (strspn(name, "0123456789abcdef") != DIGITS || strncmp(name + DIGITS, ".o", 2) != 0) return false;
    *suffix = name + DIGITS + 2;
    return !**suffix || **suffix == '.';
}

static bool earlier(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

static int by_use(const void *a, const void *b)
{
    const CachedFile *x = a, *y = b;
    return earlier(&x->used, &y->used) ? -1 : earlier(&y->used, &x->used);
}

/* Lists the objects. Temporary files that nobody can be writing any more are removed. */
static void list_objects(DIR *directory, CachedFiles *files)
{
    enum { ABANDONED_SECONDS = 3600 };
    time_t now = time(NULL);
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *suffix;
        struct stat status;
        if (!is_object(entry->d_name, &suffix) ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode))
            continue;
        if (*suffix) {
            if (status.st_mtime < now - ABANDONED_SECONDS) unlinkat(dirfd(directory), entry->d_name, 0);
            continue;
        }
        CachedFile file = {strdup(entry->d_name), status.st_mtim, 512 * (int64_t)status.st_blocks};
        if (!file.name) memory_exhausted();
        if (file.bytes < status.st_size) file.bytes = status.st_size;
        files->bytes += file.bytes;
        array_push(files->items, files->count, files->capacity, file);
    }
}

void cache_prune(const Cache *cache, int64_t limit)
{
    DIR *directory = cache->directory && limit > 0 ? opendir(cache->directory) : NULL;
    if (!directory) return;
    CachedFiles files = {0};
    list_objects(directory, &files);
    if (files.bytes > limit) {
        qsort(files.items, files.count, sizeof *files.items, by_use);
        for (size_t i = 0; i < files.count && files.bytes > limit / 5 * 4; i++) {
            unlinkat(dirfd(directory), files.items[i].name, 0); /* another compiler may have been faster */
            files.bytes -= files.items[i].bytes;
        }
    }
    for (size_t i = 0; i < files.count; i++) free(files.items[i].name);
    free(files.items);
    closedir(directory);
}
