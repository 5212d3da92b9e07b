#include "runtime/storage/checkpoint_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buffer.h"
#include "base/directory.h"
#include "base/file.h"
#include "base/input_files.h"

/* ---- Names ---- */

char *checkpoint_path(const char *directory, int64_t step)
{
    Buffer path = {0};
    buffer_print(&path, "%s/step-%08lld", directory, (long long)step);
    return path.bytes;
}

char *checkpoint_manifest_path(const char *directory, int64_t step)
{
    FREED char *path = checkpoint_path(directory, step);
    return directory_join(path, "MANIFEST.json");
}

static bool is_complete(const char *directory, int64_t step)
{
    FREED char *path = checkpoint_manifest_path(directory, step);
    return access(path, R_OK) == 0;
}

/* The step in the name of a directory entry; -1 if it has none. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 13 || strspn(name + 5, "0123456789") != strlen(name + 5))
        return -1;
    errno = 0;
    long long step = strtoll(name + 5, NULL, 10);
    return errno ? -1 : step;
}

static int descending(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? 1 : left > right ? -1 : 0;
}

/* All steps of the directory, complete or not, newest first; free() them. */
static int64_t *list_steps(const char *directory, size_t *count)
{
    int64_t *steps = NULL;
    size_t capacity = 0;
    *count = 0;
    FREED_WITH(listing_close) DIR *stream = opendir(directory);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        int64_t step = step_of(entry->d_name);
        if (step >= 0) array_push(steps, *count, capacity, step);
    }
    if (*count) qsort(steps, *count, sizeof *steps, descending);
    return steps;
}

int64_t checkpoint_newest(const char *directory)
{
    size_t count;
    FREED int64_t *steps = list_steps(directory, &count);
    for (size_t i = 0; i < count; i++)
        if (is_complete(directory, steps[i])) return steps[i];
    return -1;
}

/* ---- Making room ---- */

static bool is_retired(const char *name) { return strncmp(name, FILE_RETIRED_MARK, strlen(FILE_RETIRED_MARK)) == 0; }

/* Whether the file is one that the same rank writes again, in another step. */
static bool is_of_rank(const char *name) { return strcmp(name + strcspn(name, "."), ".safetensors") == 0; }

/* Removes a step's files, the manifest first, so that a half-removed step does not count as a checkpoint. Those of
 * ranks go to the directory `retired`, unless it is NULL. */
static void empty_step(const char *path, const char *retired)
{
    FREED char *manifest = directory_join(path, "MANIFEST.json");
    unlink(manifest);
    FREED_WITH(listing_close) DIR *stream = opendir(path);
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        if (strncmp(entry->d_name, "rank-", 5) == 0 || strncmp(entry->d_name, "MANIFEST.json.", 14) == 0 ||
            is_retired(entry->d_name)) {
            FREED char *inside = directory_join(path, entry->d_name);
            FREED char *named = directory_join(retired ? retired : path, entry->d_name);
            FREED char *aside = file_retired_path(named);
            if (!retired || !is_of_rank(entry->d_name) || rename(inside, aside) != 0) unlink(inside);
        }
}

bool checkpoint_bring_retired(const char *directory, const char *path)
{
    FREED char *named = directory_join(directory, strrchr(path, '/') + 1);
    FREED char *from = file_retired_path(named), *to = file_retired_path(path);
    if (rename(from, to) != 0) errno = 0; /* none waits */
    return true;
}

void checkpoint_drop_retired(const char *directory)
{
    FREED_WITH(listing_close) DIR *stream = opendir(directory);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        FREED char *path = directory_join(directory, entry->d_name);
        if (is_retired(entry->d_name)) unlink(path);
    }
}

bool checkpoints_spare_inputs(const char *directory, Diagnostics *diagnostics)
{
    size_t count;
    FREED int64_t *steps = list_steps(directory, &count);
    for (size_t i = 0; i < count; i++) {
        FREED char *path = checkpoint_path(directory, steps[i]);
        if (!input_files_spare_in(path, diagnostics)) return false;
    }
    return true;
}

static bool make_directory(const char *path, Diagnostics *diagnostics)
{
    struct stat status;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &status) == 0 && S_ISDIR(status.st_mode))) return true;
    return input_error(diagnostics, path, NULL, "cannot create: %s", strerror(errno));
}

bool checkpoint_check_directory(const char *directory, Diagnostics *diagnostics)
{
    if (!make_directory(directory, diagnostics)) return false;
    if (access(directory, W_OK | X_OK) == 0) return true;
    return input_error(diagnostics, directory, NULL, "cannot write into it: %s", strerror(errno));
}

CheckpointLock checkpoint_lock(const char *directory, const char *name, int *descriptor, Diagnostics *diagnostics)
{
    Buffer text = {0};
    struct stat status;
    buffer_print(&text, "%s/.lock-%s", directory, name);
    FREED char *path = text.bytes;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    bool ok = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    bool locked = ok && flock(file, LOCK_EX | LOCK_NB) == 0, held = ok && !locked && errno == EWOULDBLOCK;
    if (!ok)
        input_error(diagnostics, path, NULL, "cannot be made a lock: %s",
                    file < 0 ? strerror(errno) : "it is no regular file");
    else if (!locked && !held)
        diagnostics_warning(diagnostics, PLACE_FILE(path), "see to it that no other run writes there",
                            "cannot be locked: %s", strerror(errno));
    if (!locked && file >= 0) close(file); /* the lock stays open until the process ends */
    if (descriptor) *descriptor = locked ? file : -1;
    return !ok ? CHECKPOINT_LOCK_FAILED : held ? CHECKPOINT_LOCK_HELD : CHECKPOINT_LOCKED;
}

bool checkpoint_make_step(const char *directory, int64_t step, Diagnostics *diagnostics)
{
    FREED char *path = checkpoint_path(directory, step), *parent = strdup(directory);
    if (!parent) memory_exhausted();
    mkdir(dirname(parent), 0777); /* of best; another host than the first rank's has none of these yet */
    return make_directory(directory, diagnostics) && make_directory(path, diagnostics);
}

bool checkpoint_prepare(const char *directory, int64_t step, Diagnostics *diagnostics)
{
    if (!checkpoint_make_step(directory, step, diagnostics)) return false;
    FREED char *path = checkpoint_path(directory, step);
    empty_step(path, NULL);
    return true;
}

/* ---- Keeping some ---- */

int64_t *checkpoint_newest_steps(const char *directory, size_t *count)
{
    size_t all, complete = 0;
    int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all; i++)
        if (is_complete(directory, steps[i])) steps[complete++] = steps[i];
    *count = complete;
    return steps;
}

static bool is_among(int64_t step, const int64_t *steps, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (steps[i] == step) return true;
    return false;
}

static void remove_step(const char *directory, int64_t step, bool retires)
{
    FREED char *path = checkpoint_path(directory, step);
    empty_step(path, retires ? directory : NULL);
    rmdir(path);
}

void checkpoint_prune(const char *directory, const int64_t *kept, size_t count, bool spare_complete, bool retires)
{
    size_t all;
    FREED int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all && count > 0; i++) {
        if (steps[i] >= kept[0] || is_among(steps[i], kept, count) ||
            (spare_complete && is_complete(directory, steps[i])))
            continue;
        remove_step(directory, steps[i], retires);
    }
}

void checkpoint_remove_others(const char *directory, int64_t step)
{
    size_t all;
    FREED int64_t *steps = list_steps(directory, &all);
    for (size_t i = 0; i < all; i++)
        if (steps[i] != step) remove_step(directory, steps[i], false);
}
