#include "base/pending.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"

/* Temporary names that still exist, so that exit() and interrupts can remove them. */
static char **pending;
static size_t pending_count, pending_capacity;
static pthread_mutex_t pending_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *ftw)
{
    (void)status, (void)type, (void)ftw;
    return remove(path);
}

void remove_tree(const char *path) { nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

void pending_remove_all(void)
{
    pthread_mutex_lock(&pending_lock);
    for (size_t i = 0; i < pending_count; i++) remove_tree(pending[i]);
    pthread_mutex_unlock(&pending_lock);
}

char *pending_create(const char *path, CreateEntry *create, int *descriptor)
{
    static bool registered;
    enum { MOST_NAMES = 100 };
    size_t length = strlen(path) + 48;
    char *temporary = memory_allocate(length);
    pthread_mutex_lock(&pending_lock);
    if (!registered) registered = atexit(pending_remove_all) == 0;
    *descriptor = -1;
    for (int i = 0; i < MOST_NAMES && *descriptor < 0; i++) {
        snprintf(temporary, length, "%s" PENDING_MARK "%ld-%d", path, (long)getpid(), i);
        *descriptor = create(temporary);
        if (*descriptor < 0 && errno != EEXIST) break;
    }
    int saved = errno;
    if (*descriptor >= 0) array_push(pending, pending_count, pending_capacity, temporary);
    pthread_mutex_unlock(&pending_lock);
    if (*descriptor < 0) free(temporary);
    errno = saved;
    return *descriptor < 0 ? NULL : temporary;
}

void pending_drop(char *temporary)
{
    pthread_mutex_lock(&pending_lock);
    for (size_t i = 0; i < pending_count; i++)
        if (pending[i] == temporary) pending[i] = pending[--pending_count];
    pthread_mutex_unlock(&pending_lock);
    free(temporary);
}

void pending_hold(void) { pthread_mutex_lock(&pending_lock); }

void pending_release(void) { pthread_mutex_unlock(&pending_lock); }

/* Best effort: some file systems cannot, and a directory may be closed to readers. */
void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!parent) memory_exhausted();
    int descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
    free(parent);
}
