/* Where this user keeps what can be made again. */
#ifndef BASE_USER_CACHE_H
#define BASE_USER_CACHE_H

#include <stdbool.h>

#include "base/arena.h"

/* $SKYCC_CACHE, else skycc in $XDG_CACHE_HOME or in ~/.cache; NULL if there is none or $SKYCC_CACHE is empty. */
const char *user_cache_directory(Arena *arena);
/* Creates it with its parents, for this user alone; false if it is not there afterwards. */
bool user_cache_create(const char *directory);

#endif
