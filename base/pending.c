#include "base/pending.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

/* What still exists under a temporary name, so that exit() and interrupts can remove it. */
typedef struct Pending {
    char *name;
    int lock; /* a descriptor that holds its lock while this process lives; -1 where it could not be had */
} Pending;

static Pending *pending;
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
    enum { MOST_TRIES = 1000 };
    struct stat status;
    int tries = 0;
    pthread_mutex_lock(&pending_lock);
    for (size_t i = 0; i < pending_count; i++) {
        remove_tree(pending[i].name);
        while (lstat(pending[i].name, &status) == 0 && ++tries < MOST_TRIES) {
            usleep(1000); /* another thread, or a linker, is still writing into the directory */
            remove_tree(pending[i].name);
        }
    }
    pthread_mutex_unlock(&pending_lock);
}

/* ---- What killed processes left ---- */

static bool is_of_gone_process(const char *entry, const char *name)
{
    long process;
    int number, end = 0;
    size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0 || strncmp(entry + length, PENDING_MARK, strlen(PENDING_MARK)) != 0)
        return false;
    entry += length + strlen(PENDING_MARK);
    return sscanf(entry, "%ld-%d%n", &process, &number, &end) == 2 && !entry[end] && process > 0 &&
           kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

/* A process that lives where its number is not known, in a container or on another host, has the lock. */
static bool is_abandoned(int directory, const char *entry)
{
    struct stat status;
    int descriptor = openat(directory, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return false;
    bool abandoned = fstat(descriptor, &status) == 0 && status.st_uid == geteuid() &&
                     (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) && flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    close(descriptor);
    return abandoned;
}

static void remove_abandoned(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    FREED char *folder = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup("./");
    if (!folder) memory_exhausted();
    DIR *stream = opendir(folder);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        if (!is_of_gone_process(entry->d_name, name) || !is_abandoned(dirfd(stream), entry->d_name)) continue;
        size_t length = strlen(folder) + strlen(entry->d_name) + 1;
        FREED char *left = memory_allocate(length);
        snprintf(left, length, "%s%s", folder, entry->d_name);
        remove_tree(left);
    }
    if (stream) closedir(stream);
}

/* ---- Names ---- */

static int lock_entry(const char *path)
{
    int lock = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (lock >= 0) flock(lock, LOCK_EX | LOCK_NB);
    return lock;
}

char *pending_create(const char *path, CreateEntry *create, int *descriptor)
{
    static bool registered;
    enum { MOST_NAMES = 100 };
    size_t length = strlen(path) + 48;
    char *temporary = memory_allocate(length);
    remove_abandoned(path);
    pthread_mutex_lock(&pending_lock);
    if (!registered) registered = atexit(pending_remove_all) == 0;
    *descriptor = -1;
    for (int i = 0; i < MOST_NAMES && *descriptor < 0; i++) {
        snprintf(temporary, length, "%s" PENDING_MARK "%ld-%d", path, (long)getpid(), i);
        *descriptor = create(temporary, path);
        if (*descriptor < 0 && errno != EEXIST) break;
    }
    int saved = errno;
    if (*descriptor >= 0) {
        Pending made = {temporary, lock_entry(temporary)};
        array_push(pending, pending_count, pending_capacity, made);
    }
    pthread_mutex_unlock(&pending_lock);
    if (*descriptor < 0) free(temporary);
    errno = saved;
    return *descriptor < 0 ? NULL : temporary;
}

void pending_drop(char *temporary)
{
    pthread_mutex_lock(&pending_lock);
    for (size_t i = 0; i < pending_count; i++) {
        if (pending[i].name != temporary) continue;
        if (pending[i].lock >= 0) close(pending[i].lock);
        pending[i] = pending[--pending_count];
    }
    pthread_mutex_unlock(&pending_lock);
    free(temporary);
}

bool pending_holds(const char *path)
{
    bool found = false;
    pthread_mutex_lock(&pending_lock);
    for (size_t i = 0; i < pending_count && !found; i++) {
        size_t length = strlen(pending[i].name);
        found = strncmp(path, pending[i].name, length) == 0 && path[length] == '/';
    }
    pthread_mutex_unlock(&pending_lock);
    return found;
}

void pending_hold(void) { pthread_mutex_lock(&pending_lock); }

void pending_release(void) { pthread_mutex_unlock(&pending_lock); }

/* Best effort: some file systems cannot, and a directory may be closed to readers. */
void sync_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    FREED char *parent = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    if (!parent) memory_exhausted();
    int descriptor = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor >= 0) {
        fsync(descriptor);
        close(descriptor);
    }
}
