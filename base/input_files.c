#include "base/input_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"

/* The system reuses numbers of removed files. The time of birth, if the file system has one, tells these apart. */
typedef struct Identity {
    uint64_t device, number, birth; /* number 0: none */
} Identity;

typedef struct InputFile {
    Identity identity;
    char *path; /* as it was named; NULL: the process's own */
} InputFile;

static InputFile *files; /* by number, colliding ones in the places after it; half of them free */
static size_t file_count, file_capacity;
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;

/* Of the descriptor if `path` is "". None, if it is no regular file. */
static Identity identify(int descriptor, const char *path)
{
    struct statx status;
    unsigned wanted = STATX_TYPE | STATX_INO | STATX_BTIME;
    if (statx(descriptor, path, *path ? 0 : AT_EMPTY_PATH, wanted, &status) != 0 || !S_ISREG(status.stx_mode))
        return (Identity){0, 0, 0};
    bool has_birth = (status.stx_mask & STATX_BTIME) != 0;
    uint64_t birth = (uint64_t)status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec;
    return (Identity){(uint64_t)status.stx_dev_major << 32 | status.stx_dev_minor, status.stx_ino,
                      has_birth ? birth : 0};
}

/* The entry, or the free place for it. */
static InputFile *find(Identity identity)
{
    size_t place = (size_t)(identity.number + identity.birth) & (file_capacity - 1);
    while (files[place].identity.number && memcmp(&files[place].identity, &identity, sizeof identity) != 0)
        place = (place + 1) & (file_capacity - 1);
    return &files[place];
}

static void grow(void)
{
    FREED InputFile *former = files;
    size_t former_capacity = file_capacity;
    file_capacity = file_capacity ? 2 * file_capacity : 64;
    files = memory_allocate(file_capacity * sizeof *files);
    for (size_t i = 0; i < former_capacity; i++)
        if (former[i].identity.number) *find(former[i].identity) = former[i];
}

/* `path` NULL: the process's own, which it stays. */
static void set(Identity identity, const char *path)
{
    if (!identity.number) return;
    pthread_mutex_lock(&files_lock);
    if (2 * file_count >= file_capacity) grow();
    InputFile *file = find(identity);
    bool known = file->identity.number != 0;
    if (!known) {
        *file = (InputFile){identity, NULL};
        file_count++;
    }
    if (!path) {
        free(file->path);
        file->path = NULL;
    } else if (!known) {
        file->path = strdup(path);
        if (!file->path) memory_exhausted();
    }
    pthread_mutex_unlock(&files_lock);
}

void input_files_note(int descriptor, const char *path) { set(identify(descriptor, ""), path); }

void input_files_note_path(const char *path)
{
    if (*path) set(identify(AT_FDCWD, path), path);
}

void input_files_release(int descriptor) { set(identify(descriptor, ""), NULL); }

void input_files_release_path(const char *path)
{
    if (*path) set(identify(AT_FDCWD, path), NULL);
}

const char *input_file_at(const char *path)
{
    Identity identity = *path ? identify(AT_FDCWD, path) : (Identity){0, 0, 0};
    pthread_mutex_lock(&files_lock);
    const char *name = identity.number && file_capacity ? find(identity)->path : NULL;
    pthread_mutex_unlock(&files_lock);
    return name;
}

bool input_files_spare(const char *path, Diagnostics *diagnostics)
{
    const char *input = input_file_at(path);
    return !input || diagnostics_error(diagnostics, EXIT_USAGE, PLACE_FILE(path), "name another output",
                                       "would replace '%s', which this command reads", input);
}

bool input_files_spare_in(const char *directory, Diagnostics *diagnostics)
{
    bool ok = true;
    DIR *stream = opendir(directory);
    for (struct dirent *entry; ok && stream && (entry = readdir(stream));) {
        FREED_WITH(buffer_free) Buffer path = {0};
        buffer_print(&path, "%s/%s", directory, entry->d_name);
        ok = input_files_spare(path.bytes, diagnostics);
    }
    if (stream) closedir(stream);
    return ok;
}
