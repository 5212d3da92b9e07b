/* Which files of a folder may be read. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/huggingface/folder.h"

#define CACHE_TARGET "../../blobs/" /* where files of the library's cache lie, seen from a snapshot */

const char *folder_name_problem(const char *name)
{
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return "is not a file name";
    if (strchr(name, '/') || strchr(name, '\\')) return "is outside the folder: name a file in the folder itself";
    return strlen(name) > NAME_MAX ? "is too long for a file name" : NULL;
}

/* Whether the link is one of the library's cache. */
static bool leads_into_cache(const char *path)
{
    char target[PATH_MAX];
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0) return false;
    target[length] = '\0';
    size_t front = strlen(CACHE_TARGET);
    return strncmp(target, CACHE_TARGET, front) == 0 && !folder_name_problem(target + front);
}

FolderEntry folder_find(const char *path, const char *name, int64_t most_bytes, Diagnostics *diagnostics)
{
    FREED_WITH(arena_free) Arena arena = {0};
    const char *file = arena_format(&arena, "%s/%s", path, name), *problem = folder_name_problem(name), *hint = NULL;
    struct stat status;
    FolderEntry entry = FOLDER_PRESENT;
    if (problem) {
        entry = FOLDER_REFUSED;
    } else if (lstat(file, &status) != 0) {
        entry = errno == ENOENT ? FOLDER_ABSENT : FOLDER_REFUSED;
        problem = entry == FOLDER_REFUSED ? strerror(errno) : NULL;
    } else if (S_ISLNK(status.st_mode) && (!leads_into_cache(file) || stat(file, &status) != 0)) {
        entry = FOLDER_REFUSED;
        problem = "is a symbolic link out of the folder";
        hint = "put the file itself into the folder";
    } else if (!S_ISREG(status.st_mode)) {
        entry = FOLDER_REFUSED;
        problem = "is not a regular file";
    } else if (status.st_size > most_bytes) {
        entry = FOLDER_REFUSED;
        problem = arena_format(&arena, "is longer than the limit of %lld bytes", (long long)most_bytes);
    }
    if (problem) input_error(diagnostics, file, hint, "%s", problem);
    return entry;
}
