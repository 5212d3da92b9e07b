#include "base/user_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

const char *user_cache_directory(Arena *arena)
{
    const char *own = getenv("SKYCC_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (own) return *own ? arena_string(arena, own) : NULL;
    if (cache && *cache) return arena_format(arena, "%s/skycc", cache);
    return home && *home ? arena_format(arena, "%s/.cache/skycc", home) : NULL;
}

bool user_cache_create(const char *directory)
{
    FREED char *partial = memory_allocate(strlen(directory) + 1);
    strcpy(partial, directory);
    for (char *slash = strchr(partial + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(partial, 0700); /* what is wrong shows in the end */
        *slash = '/';
    }
    return mkdir(partial, 0700) == 0 || errno == EEXIST;
}
